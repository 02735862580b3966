//! Data on its way into a file: writes, truncation, holes.

use super::core::{Core, Shared};
use super::error::FsError;
use super::flight::{Carried, Flight, Placed, Source};
use super::room::Touched;
use crate::BLOCK_BYTES;
use crate::format::{HEADER_BYTES, Kind};
use crate::waiter::Waiter;
use parking_lot::MutexGuard;
use std::ops::Range;
use zonal_io::buffer::IoBuf;

/// Bytes of the largest file.
pub const SIZE_MAX: u64 = 1 << 56;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many, on a device that keeps none.
    Length(u64),
}

impl Payload<'_> {
    /// How many bytes.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::Length(length) => *length,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A block of which a write changes only a part, as it was.
type Edge = (u64, Box<[u8]>);

/// Bytes for whole blocks: those of a write, and what its first and last block had before.
struct Blocks<'a> {
    offset: u64,
    bytes: &'a [u8],
    edges: Vec<Edge>,
}

impl Blocks<'_> {
    /// Fills `into` with the blocks from `first` on.
    fn fill(&self, first: u64, into: &mut [u8]) {
        let from = first * BLOCK;
        let range = from..from + into.len() as u64;
        let (start, end) =
            (self.offset.max(range.start), (self.offset + self.bytes.len() as u64).min(range.end));
        // Buffers come from a pool: what is not filled would be somebody else's.
        if start > range.start {
            into[..(start - from) as usize].fill(0);
        }
        if end < range.end {
            into[(end - from) as usize..].fill(0);
        }
        for (block, old) in &self.edges {
            if range.contains(&(block * BLOCK)) {
                let at = (block * BLOCK - from) as usize;
                into[at..at + old.len()].copy_from_slice(old);
            }
        }
        into[(start - from) as usize..(end - from) as usize]
            .copy_from_slice(&self.bytes[(start - self.offset) as usize..(end - self.offset) as usize]);
    }
}

/// Who changes a file's data; others wait until it is dropped.
struct Held<'a> {
    shared: &'a Shared,
    ino: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut core = self.shared.core.lock();
        if let Some(node) = core.nodes.here(self.ino) {
            node.is_held = false;
        }
        if let Err(error) = core.end_use(self.ino) {
            core.die(&error);
        }
    }
}

impl Core {
    /// Somebody is done with a file: it goes if it has no name, and leaves memory if nobody works with it.
    pub(super) fn end_use(&mut self, ino: u64) -> Result<(), FsError> {
        let is_over = |core: &mut Core| {
            core.nodes.here(ino).is_some_and(|n| n.handles == 0 && !n.is_held && n.attributes.links == 0)
        };
        if is_over(self) {
            return self.destroy(ino);
        }
        self.let_go(ino);
        Ok(())
    }
}

impl Shared {
    /// Waits until nobody else changes the file's data.
    fn hold(&self, waiter: &dyn Waiter, ino: u64) -> Result<Held<'_>, FsError> {
        drop(self.lock_when(waiter, |core| {
            core.check_alive()?;
            let node = core.nodes.get(&core.rows, ino)?;
            match node.attributes.kind {
                Kind::File => {}
                Kind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid("it has no data")),
            }
            Ok(!std::mem::replace(&mut node.is_held, true))
        })?);
        Ok(Held { shared: self, ino })
    }

    /// Writes at `offset`; how many bytes went in, fewer than all only where space is short.
    pub(super) fn write(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
    ) -> Result<u64, FsError> {
        let length = payload.len();
        if offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
            return Err(FsError::TooLarge);
        }
        let _held = self.hold(waiter, ino)?;
        let now = waiter.wall();
        self.lock().update(ino, |file| (file.mtime, file.ctime) = (now, now))?;
        if length == 0 {
            return Ok(0);
        }
        self.put(waiter, ino, offset, payload, Touched::Added)
    }

    /// Writes at `offset` of a file that is held.
    fn put(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        touched: Touched,
    ) -> Result<u64, FsError> {
        let end = offset + payload.len();
        let blocks = match (payload, self.has_data()) {
            (Payload::Bytes(bytes), true) => {
                let edges = self.edges(waiter, ino, offset..end)?;
                Some(Blocks { offset, bytes, edges })
            }
            (Payload::Length(_), true) => {
                return Err(FsError::Invalid("this device keeps data: a length is not enough"));
            }
            (_, false) => None,
        };
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let mut block = first;
        while block < last {
            let unit = self.admit(waiter, touched);
            let unit = unit.and_then(|()| self.put_unit(waiter, ino, block..last, end, blocks.as_ref()));
            match unit {
                Ok(written) => block += u64::from(written),
                Err(error) if error.is_no_space() && block > first => return Ok(block * BLOCK - offset),
                Err(error) => return Err(error),
            }
        }
        Ok(payload.len())
    }

    /// Sends one unit with as many of the blocks `range` as it takes; how many.
    fn put_unit(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        range: Range<u64>,
        end: u64,
        blocks: Option<&Blocks<'_>>,
    ) -> Result<u32, FsError> {
        let wanted = (range.end - range.start).min(u64::from(self.unit_blocks() - 1)) as u32;
        let mut grant = self.reserve(waiter, wanted)?;
        // Where space is short it is less.
        let wanted = grant.left().extents as u32;
        let placed = self.place(waiter, ino, wanted);
        let (mut core, placed) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                self.core.lock().credit.give_back(grant);
                return Err(error);
            }
        };
        let Placed { opened, blocks: taken } = placed;
        core.spend(&mut grant, u64::from(taken), u64::from(taken) + 1)?;
        core.credit.give_back(grant);
        let part = range.start..range.start + u64::from(taken);
        let number = core.takes_up(ino, &part, end)?;
        core.cache_zone(ino, opened)?;
        drop(core);
        let buf = self.buffer(|data| {
            let blocks = blocks.expect("a device that keeps data is given some");
            blocks.fill(part.start, &mut data[..(u64::from(taken) * BLOCK) as usize]);
        });
        let carried = Carried { ino, block: part.start, blocks: taken, source: Source::Write(number) };
        self.send(waiter, Flight::new(opened.zone, vec![carried]), buf);
        Ok(taken)
    }

    /// Room for a unit of a file, once not too much is on its way.
    fn place(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        blocks: u32,
    ) -> Result<(MutexGuard<'_, Core>, Placed), FsError> {
        loop {
            let mut core = self.lock();
            core.check_alive()?;
            let is_clear =
                core.blocks_in_flight * BLOCK < self.options.dirty_bytes || core.blocks_in_flight == 0;
            if is_clear {
                let wish = core.wish_of(self, ino)?;
                if let Some(placed) = core.place(self, wish, blocks)? {
                    waiter.done();
                    return Ok((core, placed));
                }
                // Zones were lost that the reservation counted on.
                if core.is_stuck() {
                    return Err(FsError::NoSpace);
                }
            }
            drop(core);
            self.resend(waiter);
            if !is_clear || !self.find_room(waiter)? {
                waiter.wait(self.drive.volume());
            }
        }
    }

    /// A buffer for a unit, its data filled in; whatever it had where no data is kept.
    pub(super) fn buffer(&self, fill: impl FnOnce(&mut [u8])) -> IoBuf {
        let mut buf = self.pool.take();
        if self.has_data() {
            fill(&mut buf[HEADER_BYTES..]);
        }
        buf
    }

    /// The first and last block of a write as they are, where it changes only a part of them.
    fn edges(&self, waiter: &dyn Waiter, ino: u64, range: Range<u64>) -> Result<Vec<Edge>, FsError> {
        let size = self.lock().attributes(ino)?.size;
        let mut edges: Vec<Edge> = Vec::new();
        let (first, last) = (range.start / BLOCK, (range.end - 1) / BLOCK);
        let is_partial = |block: u64| {
            let whole = block * BLOCK..(block + 1) * BLOCK;
            whole.start < size && (range.start > whole.start || range.end < whole.end.min(size))
        };
        for block in [first, last] {
            if is_partial(block) && edges.last().is_none_or(|(b, _)| *b != block) {
                edges.push((block, self.read_block(waiter, ino, block)?));
            }
        }
        Ok(edges)
    }

    /// Makes the file `size` bytes long.
    pub(super) fn truncate(&self, waiter: &dyn Waiter, ino: u64, size: u64) -> Result<(), FsError> {
        if size > SIZE_MAX {
            return Err(FsError::TooLarge);
        }
        self.admit(waiter, Touched::Changed)?;
        let _held = self.hold(waiter, ino)?;
        self.clear(waiter, ino, size..u64::MAX)?;
        let now = waiter.wall();
        let mut core = self.lock_when(waiter, |core| core.is_at_rest(ino))?;
        if let Some(node) = core.nodes.here(ino) {
            node.size = size;
        }
        core.update(ino, |file| {
            file.size = size;
            (file.mtime, file.ctime) = (now, now);
        })
    }

    /// Makes bytes of a file read as zeroes, without changing its size.
    pub(super) fn punch(&self, waiter: &dyn Waiter, ino: u64, range: Range<u64>) -> Result<(), FsError> {
        // A hole in the midst of an extent makes two of one.
        self.admit(waiter, Touched::Added)?;
        let _held = self.hold(waiter, ino)?;
        self.clear(waiter, ino, range)?;
        let now = waiter.wall();
        self.lock().update(ino, |file| (file.mtime, file.ctime) = (now, now))
    }

    /// Zeroes in the blocks at the edges of `range` are written, those between are freed. Once it returns the zeroes are on
    /// the drive, so that a size that is changed next never uncovers what was there.
    fn clear(&self, waiter: &dyn Waiter, ino: u64, range: Range<u64>) -> Result<(), FsError> {
        let size = self.lock_when(waiter, |core| core.is_at_rest(ino))?.attributes(ino)?.size;
        let range = range.start..range.end.min(size);
        if range.start >= range.end {
            return Ok(());
        }
        let whole = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        // Up to the file's end the last block counts as whole: what is behind it is zeroes already.
        let whole = whole.start..if range.end == size { range.end.div_ceil(BLOCK) } else { whole.end };
        if self.has_data() {
            self.clear_edges_for_good(waiter, ino, &range, &whole)?;
        }
        if whole.start < whole.end {
            self.lock_when(waiter, |core| core.is_at_rest(ino))?.free(ino, &whole)?;
        }
        Ok(())
    }

    /// Clears the edges. If the zeroes are lost on the way it is an error, and what they were to cover stays as it is.
    fn clear_edges_for_good(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        range: &Range<u64>,
        whole: &Range<u64>,
    ) -> Result<(), FsError> {
        let failure = |shared: &Shared| shared.lock().nodes.here(ino).and_then(|node| node.failure.take());
        let before = failure(self);
        let result = self.clear_edges(waiter, ino, range, whole);
        let lost = failure(self);
        if let Some(node) = self.lock().nodes.here(ino) {
            node.failure = before.or(lost);
        }
        result?;
        lost.map_or(Ok(()), |why| Err(FsError::Write { ino, why }))
    }

    fn clear_edges(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        range: &Range<u64>,
        whole: &Range<u64>,
    ) -> Result<(), FsError> {
        let (front, back) = match whole.start <= whole.end {
            true => (range.start..whole.start * BLOCK, (whole.end * BLOCK).min(range.end)..range.end),
            // All of it lies in one block.
            false => (range.clone(), range.end..range.end),
        };
        for edge in [front.start..front.end.min(range.end), back] {
            let is_mapped = |core: &mut Core| {
                let block = edge.start / BLOCK;
                super::map::extents(&core.rows, ino, &(block..block + 1)).map(|found| !found.is_empty())
            };
            if edge.start < edge.end && is_mapped(&mut self.lock())? {
                let zeroes = vec![0; (edge.end - edge.start) as usize];
                let size = self.lock().attributes(ino)?.size;
                debug_assert!(edge.end <= size);
                // Who shortens a file is never refused for want of room.
                self.put(waiter, ino, edge.start, Payload::Bytes(&zeroes), Touched::Changed)?;
            }
        }
        drop(self.lock_when(waiter, |core| core.is_at_rest(ino))?);
        Ok(())
    }
}

impl Core {
    /// Blocks of a file are about to be sent; the number of the write.
    fn takes_up(&mut self, ino: u64, part: &Range<u64>, end: u64) -> Result<u64, FsError> {
        let number = self.next_token;
        let node = self.nodes.get(&self.rows, ino)?;
        node.pending.take(part, number);
        node.in_flight += 1;
        node.size = node.size.max(end.min(part.end * BLOCK));
        self.next_token += 1;
        Ok(number)
    }

    /// Whether nothing of a file is on its way.
    pub(super) fn is_at_rest(&mut self, ino: u64) -> Result<bool, FsError> {
        match self.nodes.here(ino).is_none_or(|node| node.in_flight == 0) {
            true => Ok(true),
            // It may be so for ever.
            false => self.check_alive().map(|()| false),
        }
    }
}
