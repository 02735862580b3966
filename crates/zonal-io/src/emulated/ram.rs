//! Sparse in-memory storage for concurrent access.
//!
//! Owns the bytes of all zones, in chunks that are allocated on first write. Owns no write pointer:
//! callers pass the location of each write and the generation of the zone's data.
//!
//! # Why reads need no lock and are never torn
//! In a sequential zone a sector is written once per generation. A writer claims its sectors by
//! setting bits (a second claim fails, whatever the zone rules say), copies the data, and then sets
//! the same bits in *present*. A reader copies only present sectors, which no thread writes any
//! more, and returns zeroes for all others. So no byte is written while a reader may read it, and
//! an acknowledged write can be read although its neighbours are still in flight.
//!
//! # Reset
//! A reset removes a zone's whole table of chunks, and the next generation starts with an empty
//! one. Concurrent readers and writers keep the old table alive (epochs), so a late write of a past
//! generation goes to memory that is never read. Chunks then return to a pool with their old bytes,
//! which are not present and therefore never returned by a read. The pool keeps the pages of up to
//! 1 GiB, so rewriting a zone after a reset causes no page faults.
//!
//! # Misdirected writes
//! These replace present data, which ordinary writes never do. They go into *strays*, sectors that
//! reads return in place of those in the chunks. All other tables have none, which costs a read a
//! single load.
//!
//! # Conventional zones
//! These can be written anywhere, any number of times, so each chunk has a lock.

mod pool;

use super::storage::{Extent, Storage};
use super::zones::GENERATION_BITS;
use crate::data::Data;
use crate::sync::{Arc, AtomicPtr, AtomicU64, Ordering, RwLock};
use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use hashbrown::HashMap;
use pool::Pool;
use std::ptr::NonNull;
use std::sync::OnceLock;
use zonal_core::{DeviceError, Geometry, SECTOR_BYTES, ZoneIndex};

/// Chunk size in bytes: large enough to copy at full speed, small enough to be sparse, with sectors
/// that fit a bit set of 128.
const CHUNK: usize = 64 << 10;

/// Sectors per chunk.
const CHUNK_SECTORS: usize = CHUNK / SECTOR_BYTES as usize;

const _: () = assert!(CHUNK_SECTORS == u128::BITS as usize);

/// In-memory storage of an emulated device.
pub struct Ram {
    geometry: Geometry,
    conventional: Box<[OnceLock<Box<[Rewritable]>>]>,
    /// Tables of the sequential zones; null if nothing was written.
    sequential: Box<[Atomic<ZoneChunks>]>,
    pool: Arc<Pool>,
}

impl Ram {
    /// Creates storage for this geometry. Allocates no memory for data yet.
    pub fn new(geometry: &Geometry) -> Ram {
        Ram {
            geometry: *geometry,
            conventional: (0..geometry.conventional_zones()).map(|_| OnceLock::new()).collect(),
            sequential: (0..geometry.sequential_zones()).map(|_| Atomic::null()).collect(),
            pool: Arc::new(Pool::new()),
        }
    }

    fn chunks_of(&self, zone: ZoneIndex) -> usize {
        (self.geometry.capacity_of(zone) as usize).div_ceil(CHUNK_SECTORS)
    }

    fn table(&self, zone: ZoneIndex) -> &Atomic<ZoneChunks> {
        &self.sequential[(zone.0 - self.geometry.conventional_zones()) as usize]
    }

    /// Table for the data of `to`, or `None` if the zone already has a later generation.
    fn table_for<'g>(&self, to: Extent, guard: &'g Guard) -> Option<&'g ZoneChunks> {
        let table = self.table(to.zone);
        let mut current = table.load(Ordering::Acquire, guard);
        loop {
            // SAFETY: tables are destroyed only through the epoch, and `guard` pins it.
            if let Some(chunks) = unsafe { current.as_ref() } {
                if chunks.generation == to.generation {
                    return Some(chunks);
                }
                if !is_older(chunks.generation, to.generation) {
                    return None;
                }
            }
            let next = ZoneChunks::new(to.generation, self.chunks_of(to.zone), &self.pool);
            current = match replace(table, current, Owned::new(next), guard) {
                // SAFETY: just published, and pinned as above.
                Ok(next) => return unsafe { next.as_ref() },
                Err(now) => now,
            };
        }
    }

    fn rewritable(&self, zone: ZoneIndex) -> &[Rewritable] {
        let table = &self.conventional[zone.0 as usize];
        table.get_or_init(|| (0..self.chunks_of(zone)).map(|_| RwLock::new(None)).collect())
    }
}

/// Replaces `current` by `next` and retires `current`.
fn replace<'g>(
    table: &Atomic<ZoneChunks>,
    current: Shared<'g, ZoneChunks>,
    next: Owned<ZoneChunks>,
    guard: &'g Guard,
) -> Result<Shared<'g, ZoneChunks>, Shared<'g, ZoneChunks>> {
    match table.compare_exchange(current, next, Ordering::AcqRel, Ordering::Acquire, guard) {
        Ok(next) => {
            retire(current, guard);
            Ok(next)
        }
        Err(e) => Err(e.current),
    }
}

fn retire(table: Shared<'_, ZoneChunks>, guard: &Guard) {
    if !table.is_null() {
        // SAFETY: the table was unlinked by the successful exchange, from the only pointer to it.
        unsafe { guard.defer_destroy(table) };
    }
}

/// Frees retired tables if no thread is reading or writing; otherwise later commands free them. A
/// zone is large, and the next writer needs its chunks.
fn reclaim() {
    // Memory retired in one epoch is free two epochs later, and a flush tries to advance by one.
    (0..3).for_each(|_| crossbeam_epoch::pin().flush());
}

/// True if generation `a` is before `b`. Wrong if they are more than half the range apart.
fn is_older(a: u32, b: u32) -> bool {
    let ahead = b.wrapping_sub(a) & ((1 << GENERATION_BITS) - 1);
    ahead != 0 && ahead < 1 << (GENERATION_BITS - 1)
}

impl Storage for Ram {
    const KEEPS_DATA: bool = true;

    const OVERWRITES: bool = true;

    fn write(&self, to: Extent, data: &Data) -> Result<(), DeviceError> {
        if self.geometry.is_conventional(to.zone) {
            write_rewritable(self.rewritable(to.zone), to, data);
            return Ok(());
        }
        let guard = crossbeam_epoch::pin();
        match self.table_for(to, &guard) {
            Some(chunks) => chunks.write(to, data),
            None => Ok(()),
        }
    }

    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError> {
        if self.geometry.is_conventional(to.zone) {
            zero_rewritable(self.rewritable(to.zone), to);
        }
        // Sectors of a sequential zone that are not present are zero.
        Ok(())
    }

    fn overwrite(&self, to: Extent, bytes: &[u8]) {
        if self.geometry.is_conventional(to.zone) {
            return put_rewritable(self.rewritable(to.zone), start(to), bytes);
        }
        let guard = crossbeam_epoch::pin();
        if let Some(chunks) = self.table_for(to, &guard) {
            chunks.overwrite(to, bytes);
        }
    }

    fn read(&self, from: Extent, data: &Data) -> Result<(), DeviceError> {
        if self.geometry.is_conventional(from.zone) {
            read_rewritable(self.rewritable(from.zone), from, data);
            return Ok(());
        }
        let guard = crossbeam_epoch::pin();
        let table = self.table(from.zone).load(Ordering::Acquire, &guard);
        // SAFETY: tables are destroyed only through the epoch, and `guard` pins it.
        match unsafe { table.as_ref() } {
            Some(chunks) if chunks.generation == from.generation => chunks.read(from, data),
            _ => data.fill_from(0, 0),
        }
        Ok(())
    }

    fn punch(&self, range: Extent) {
        punch_rewritable(self.rewritable(range.zone), range);
    }

    fn discard(&self, zone: ZoneIndex, generation: u32) {
        let guard = crossbeam_epoch::pin();
        let table = self.table(zone);
        let mut current = table.load(Ordering::Acquire, &guard);
        // SAFETY: tables are destroyed only through the epoch, and `guard` pins it.
        while unsafe { current.as_ref() }.is_some_and(|c| is_older(c.generation, generation)) {
            let none = Shared::null();
            match table.compare_exchange(current, none, Ordering::AcqRel, Ordering::Acquire, &guard) {
                Ok(_) => {
                    retire(current, &guard);
                    guard.flush();
                    drop(guard);
                    return reclaim();
                }
                Err(e) => current = e.current,
            }
        }
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        for table in &mut self.sequential {
            // SAFETY: the storage has no other owner any more.
            drop(unsafe { std::mem::take(table).try_into_owned() });
        }
    }
}

/// Part of a zone's byte range within one chunk.
#[derive(Clone, Copy)]
struct ChunkRange {
    chunk: usize,
    /// First byte, relative to the chunk.
    at: usize,
    len: usize,
}

impl ChunkRange {
    /// Bit mask of its sectors, including partially covered ones.
    fn sectors(self) -> u128 {
        let first = self.at / SECTOR_BYTES as usize;
        let end = (self.at + self.len).div_ceil(SECTOR_BYTES as usize);
        (u128::MAX >> (CHUNK_SECTORS - (end - first))) << first
    }
}

/// Splits `len` bytes from byte `at` of a zone at chunk boundaries. No piece is empty.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = ChunkRange> {
    let (mut at, mut left) = (at, len);
    std::iter::from_fn(move || {
        let within = (at % CHUNK as u64) as usize;
        let len = left.min(CHUNK - within);
        let piece = ChunkRange { chunk: (at / CHUNK as u64) as usize, at: within, len };
        at += len as u64;
        left -= len;
        (len != 0).then_some(piece)
    })
}

fn start(extent: Extent) -> u64 {
    u64::from(extent.offset) * SECTOR_BYTES
}

fn bytes(extent: Extent) -> usize {
    extent.sectors as usize * SECTOR_BYTES as usize
}

/// Chunks of one generation of a sequential zone.
struct ZoneChunks {
    generation: u32,
    /// Chunks of which all sectors are present; null for others. Most reads access only this: with
    /// a large working set the slots are rarely in a near cache, and fetching the data could only
    /// start after loading them.
    whole: Box<[AtomicPtr<u8>]>,
    slots: Box<[ChunkSlot]>,
    strays: OnceLock<RwLock<Strays>>,
    pool: Arc<Pool>,
}

/// Sectors of a zone replaced by misdirected writes.
type Strays = HashMap<u32, [u8; SECTOR_BYTES as usize]>;

/// Slot of one chunk.
#[derive(Default)]
struct ChunkSlot {
    /// The chunk, or null. Never changes once set.
    bytes: AtomicPtr<u8>,
    /// Sectors claimed by a writer.
    claimed: Bits,
    /// Sectors with final data. Set after storing the data, loaded before reading it.
    present: Bits,
}

#[derive(Default)]
struct Bits([AtomicU64; 2]);

impl Bits {
    /// Sets `mask` and returns the bits of it that were set before.
    fn set(&self, mask: u128, order: Ordering) -> u128 {
        let set = |word: usize| match (mask >> (64 * word)) as u64 {
            0 => 0,
            part => u128::from(self.0[word].fetch_or(part, order) & part) << (64 * word),
        };
        set(0) | set(1)
    }

    /// Returns the bits of `mask` that are set.
    fn get(&self, mask: u128, order: Ordering) -> u128 {
        let get = |word: usize| match (mask >> (64 * word)) as u64 {
            0 => 0,
            part => u128::from(self.0[word].load(order) & part) << (64 * word),
        };
        get(0) | get(1)
    }
}

impl ZoneChunks {
    fn new(generation: u32, chunks: usize, pool: &Arc<Pool>) -> ZoneChunks {
        let whole = (0..chunks).map(|_| AtomicPtr::default()).collect();
        let slots = (0..chunks).map(|_| ChunkSlot::default()).collect();
        ZoneChunks { generation, whole, slots, strays: OnceLock::new(), pool: pool.clone() }
    }

    /// Returns the chunk of `slot`, allocating it if necessary.
    fn allocated(&self, slot: &ChunkSlot) -> NonNull<u8> {
        if let Some(chunk) = NonNull::new(slot.bytes.load(Ordering::Acquire)) {
            return chunk;
        }
        let fresh = self.pool.take();
        let none = std::ptr::null_mut();
        match slot.bytes.compare_exchange(none, fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(first) => {
                self.pool.give_back(std::iter::once(fresh));
                NonNull::new(first).expect("a chunk that is set stays")
            }
        }
    }

    /// Stores `data`, which has the length of `to`.
    ///
    /// # Errors
    /// [`DeviceError::InvalidField`] if a sector was already written in this generation.
    fn write(&self, to: Extent, data: &Data) -> Result<(), DeviceError> {
        for piece in pieces(start(to), bytes(to)) {
            let mask = piece.sectors();
            if self.slots[piece.chunk].claimed.set(mask, Ordering::Relaxed) != 0 {
                return Err(DeviceError::InvalidField);
            }
        }
        let mut left = bytes(to);
        data.for_each(|at, mut source| {
            source = &source[..source.len().min(left)];
            left -= source.len();
            for piece in pieces(start(to) + at as u64, source.len()) {
                let (now, rest) = source.split_at(piece.len);
                let chunk = self.allocated(&self.slots[piece.chunk]);
                // SAFETY: the range lies in the chunk. Only this call has claimed its sectors
                // (above), and they are not present yet, so no other call reads or writes them. The
                // caller's epoch keeps `self` alive.
                unsafe { chunk.add(piece.at).copy_from_nonoverlapping(NonNull::from(now).cast(), now.len()) };
                source = rest;
            }
        });
        assert_eq!(left, 0, "a write's payload is as long as the write");
        for piece in pieces(start(to), bytes(to)) {
            let slot = &self.slots[piece.chunk];
            slot.present.set(piece.sectors(), Ordering::Release);
            if slot.present.get(u128::MAX, Ordering::Acquire) == u128::MAX {
                self.whole[piece.chunk].store(slot.bytes.load(Ordering::Acquire), Ordering::Release);
            }
        }
        Ok(())
    }

    /// Fills the first `from.sectors` of `data`.
    fn read(&self, from: Extent, data: &Data) {
        let mut left = bytes(from);
        data.for_each_mut(|at, target| {
            let len = target.len().min(left);
            left -= len;
            let mut target = &mut target[..len];
            for piece in pieces(start(from) + at as u64, len) {
                let (now, rest) = target.split_at_mut(piece.len);
                self.read_piece(piece, now);
                target = rest;
            }
        });
        if let Some(strays) = self.strays.get() {
            read_strays(&strays.read(), from, data);
        }
    }

    /// Replaces the contents of the sectors of `to` by `bytes`.
    #[cold]
    fn overwrite(&self, to: Extent, bytes: &[u8]) {
        let (sectors, _) = bytes.as_chunks();
        self.strays
            .get_or_init(|| RwLock::new(Strays::default()))
            .write()
            .extend((to.offset..).zip(sectors.iter().copied()));
    }

    #[inline]
    fn read_piece(&self, piece: ChunkRange, target: &mut [u8]) {
        match NonNull::new(self.whole[piece.chunk].load(Ordering::Acquire)) {
            // SAFETY: all sectors of the chunk are present.
            Some(chunk) => unsafe { copy_out(chunk, piece.at, target) },
            None => self.slots[piece.chunk].read(piece, target),
        }
    }
}

/// Replaces sectors of `data`, which was read from `from`, by those in `strays`.
#[cold]
fn read_strays(strays: &Strays, from: Extent, data: &Data) {
    let sector_bytes = SECTOR_BYTES as usize;
    data.for_each_mut(|at, target| {
        // A segment may start and end in the middle of a sector.
        let end = (at + target.len()).min(bytes(from));
        let mut now = at;
        while now < end {
            let within = now % sector_bytes;
            let next = end.min(now - within + sector_bytes);
            if let Some(stray) = strays.get(&(from.offset + (now / sector_bytes) as u32)) {
                target[now - at..next - at].copy_from_slice(&stray[within..within + next - now]);
            }
            now = next;
        }
    });
}

/// # Safety
/// The sectors from byte `at` of `chunk` on, for the length of `target`, were seen to be present
/// (with acquire ordering).
#[inline]
unsafe fn copy_out(chunk: NonNull<u8>, at: usize, target: &mut [u8]) {
    // SAFETY: present sectors are in an allocated chunk, were stored before they became present,
    // and are not written again while the table exists, which the caller's epoch ensures.
    unsafe { chunk.add(at).copy_to_nonoverlapping(NonNull::from(&mut *target).cast(), target.len()) };
}

impl ChunkSlot {
    fn read(&self, piece: ChunkRange, target: &mut [u8]) {
        let mask = piece.sectors();
        let present = self.present.get(mask, Ordering::Acquire);
        match NonNull::new(self.bytes.load(Ordering::Acquire)) {
            // SAFETY: all sectors of the piece are present.
            Some(chunk) if present == mask => unsafe { copy_out(chunk, piece.at, target) },
            Some(chunk) => read_in_part(chunk, piece, present, target),
            None => target.fill(0),
        }
    }
}

/// Reads sector by sector, because only part of `piece` is present.
#[cold]
fn read_in_part(chunk: NonNull<u8>, piece: ChunkRange, present: u128, mut target: &mut [u8]) {
    let mut at = piece.at;
    while !target.is_empty() {
        let sector = at / SECTOR_BYTES as usize;
        let end = (sector + 1) * SECTOR_BYTES as usize;
        let (now, rest) = target.split_at_mut((end - at).min(target.len()));
        if present >> sector & 1 != 0 {
            // SAFETY: the sector is present.
            unsafe { copy_out(chunk, at, now) };
        } else {
            now.fill(0);
        }
        (at, target) = (end, rest);
    }
}

impl Drop for ZoneChunks {
    fn drop(&mut self) {
        // The first chunk last: the next writer starts at the beginning of a zone and then gets
        // chunks in ascending order of address.
        let chunks = self.slots.iter().rev().map(|slot| slot.bytes.load(Ordering::Relaxed));
        self.pool.give_back(chunks.filter_map(NonNull::new));
    }
}

/// Chunk of a conventional zone; absent chunks are zero.
type Rewritable = RwLock<Option<Box<[u8]>>>;

fn write_rewritable(chunks: &[Rewritable], to: Extent, data: &Data) {
    data.for_each(|at, source| put_rewritable(chunks, start(to) + at as u64, source));
}

/// Writes `source` to byte `at` of the zone.
fn put_rewritable(chunks: &[Rewritable], at: u64, mut source: &[u8]) {
    for piece in pieces(at, source.len()) {
        let (now, rest) = source.split_at(piece.len);
        let mut chunk = chunks[piece.chunk].write();
        let chunk = chunk.get_or_insert_with(|| vec![0; CHUNK].into());
        chunk[piece.at..][..piece.len].copy_from_slice(now);
        source = rest;
    }
}

fn zero_rewritable(chunks: &[Rewritable], to: Extent) {
    for piece in pieces(start(to), bytes(to)) {
        if let Some(chunk) = &mut *chunks[piece.chunk].write() {
            chunk[piece.at..][..piece.len].fill(0);
        }
    }
}

/// Like [`zero_rewritable`], but frees chunks that lie completely in the range.
fn punch_rewritable(chunks: &[Rewritable], range: Extent) {
    for piece in pieces(start(range), bytes(range)) {
        let mut chunk = chunks[piece.chunk].write();
        match &mut *chunk {
            Some(bytes) if piece.len < bytes.len() => bytes[piece.at..][..piece.len].fill(0),
            whole => *whole = None,
        }
    }
}

fn read_rewritable(chunks: &[Rewritable], from: Extent, data: &Data) {
    data.for_each_mut(|at, mut target| {
        for piece in pieces(start(from) + at as u64, target.len()) {
            let (now, rest) = target.split_at_mut(piece.len);
            match &*chunks[piece.chunk].read() {
                Some(chunk) => now.copy_from_slice(&chunk[piece.at..][..piece.len]),
                None => now.fill(0),
            }
            target = rest;
        }
    });
}
