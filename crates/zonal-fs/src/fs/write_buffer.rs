//! Write buffers: sequential writes to open files, collected into whole units.
//!
//! Each unit costs a header and a command, too much for every small write. So the part of a write
//! to an open file that does not fill a unit stays in memory, as the *buffered tail* of the file.
//! The tail is sent when it fills a unit, when a sync, a close or a read asks for it, when the
//! buffers are full, and after a timeout. A short tail is combined with those of other files:
//! [`combine`](super::combine).
//!
//! # Invariants
//! - A file has at most one tail: whole blocks, less than a unit, including the file's old bytes
//!   around the written ones.
//! - Space for a tail is reserved: a lack of space is an error of the write, never of a later call.
//!   If there is plenty, more is reserved than the tail needs.
//! - The thread that takes a tail sends it or puts it back. Meanwhile no other thread has it, and
//!   threads that need it wait.
//! - A file without handles has a tail only if its last handle was dropped without closing, and
//!   then nothing is added to it.

use super::combine::ShortPiece;
use super::core::{Core, Shared};
use super::credit::{CallRoom, Wanted};
use super::error::{FsError, Lost};
use super::flight::{AppendUnit, Carried, Source};
use super::room::Touched;
use super::space::Placed;
use super::waiting::WaitsFor;
use super::write::{Blocks, Payload, Sums};
use crate::BLOCK_BYTES;
use crate::format::HEADER_BYTES;
use crate::space::cost::Need;
use crate::space::{Reservation, Urgency};
use crate::waiter::Wait;
use std::collections::BTreeMap;
use std::ops::Range;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Age at which the background step sends a tail.
const AGE_MAX: u64 = 5_000_000_000;

/// At most 1/16 of the free blocks is reserved ahead for a tail.
const AHEAD_PART: u64 = 16;

/// Write buffer of a file.
#[derive(Default, Debug)]
pub(crate) enum WriteBuffer {
    #[default]
    Nothing,
    Here(Box<BufferedTail>),
    /// A thread has taken the tail with these blocks and this number in the order of all tails.
    Taken(Range<u64>, u64),
}

impl WriteBuffer {
    /// True if there is none.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, WriteBuffer::Nothing)
    }

    /// True if a thread has taken the tail.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, WriteBuffer::Taken(..))
    }

    /// Takes the tail, if it is here.
    pub(super) fn take(&mut self) -> Option<Box<BufferedTail>> {
        match std::mem::take(self) {
            WriteBuffer::Here(tail) => {
                *self = WriteBuffer::Taken(tail.range(), tail.number);
                Some(tail)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// True if any of `blocks` are in it, or in a tail that a thread has taken.
    pub(crate) fn has_any(&self, blocks: &Range<u64>) -> bool {
        match self {
            WriteBuffer::Here(tail) => touches(&tail.range(), blocks),
            WriteBuffer::Taken(range, _) => touches(range, blocks),
            WriteBuffer::Nothing => false,
        }
    }
}

/// Buffered blocks of a file.
#[derive(Debug)]
pub(crate) struct BufferedTail {
    /// Reserved space for its blocks, and for further ones.
    pub(super) room: Reservation,
    /// Maximum number of blocks.
    most: u32,
    /// First block of the file.
    block: u64,
    blocks: u32,
    /// End of the written range, as a byte offset in the file.
    pub(super) end: u64,
    /// Start of the bytes that are in no row, as a byte offset in the file; at least `end` if all
    /// are in rows.
    unlogged: u64,
    /// Space for a header, followed by the blocks; empty if the device keeps no data.
    pub(super) buf: IoBuf,
    /// Position in the order of all tails, and time of creation.
    number: u64,
    pub(super) since: Nanos,
}

/// Result of an attempt to take a tail.
enum TakenTail {
    Tail(Box<BufferedTail>),
    /// Another thread has taken it.
    Taken,
    Nothing,
}

/// Choice of whether a short tail may wait for pieces of other files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combining {
    MayWait,
    /// The caller waits for it: combine it only with pieces that are waiting already.
    AtOnce,
}

/// Tails of all files.
#[derive(Default, Debug)]
pub(super) struct WriteBuffers {
    /// Tails that are here, in order of age, with their files.
    here: BTreeMap<u64, (u64, Nanos)>,
    /// Number of tails taken by threads.
    taken: u32,
    number: u64,
}

impl TakenTail {
    /// True if the wait for a tail is over; stores the tail in `into`, if there is one.
    fn ends_wait(self, into: &mut Option<Box<BufferedTail>>) -> bool {
        match self {
            TakenTail::Tail(tail) => {
                *into = Some(tail);
                true
            }
            TakenTail::Taken => false,
            TakenTail::Nothing => true,
        }
    }
}

impl WriteBuffers {
    /// True if a thread is about to send a tail, or to put it back.
    pub(super) fn has_taken(&self) -> bool {
        self.taken > 0
    }

    /// Removes a tail that was taken with only the file's lock from the order.
    pub(super) fn taken_for_good(&mut self, tail: &BufferedTail) {
        self.here.remove(&tail.number);
        self.taken += 1;
    }

    /// Number of tails that are here.
    pub(super) fn count(&self) -> u64 {
        self.here.len() as u64
    }
}

impl BufferedTail {
    pub(super) fn range(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.blocks)
    }

    /// Start of the blocks that it does not have.
    pub(super) fn next_block(&self) -> u64 {
        self.range().end * BLOCK
    }

    /// Maximum end as a byte offset in the file.
    fn limit(&self) -> u64 {
        (self.block + u64::from(self.most)) * BLOCK
    }

    pub(super) fn is_full(&self) -> bool {
        self.end == self.limit()
    }

    /// End of the reserved space as a byte offset in the file.
    pub(super) fn room_end(&self) -> u64 {
        (self.block + self.room.left().extents) * BLOCK
    }

    /// Blocks with bytes that are in no row.
    pub(super) fn unlogged(&self) -> Range<u64> {
        let end = self.range().end;
        (self.unlogged / BLOCK).min(end)..end
    }

    /// Notes that all blocks are in rows.
    pub(super) fn note_logged(&mut self) {
        self.unlogged = u64::MAX;
    }

    /// Bytes of a block.
    pub(super) fn bytes_of(&self, block: u64) -> &[u8] {
        &self.buf[HEADER_BYTES + ((block - self.block) * BLOCK) as usize..][..BLOCK as usize]
    }

    /// True if a write at `at` overlaps or continues it.
    pub(super) fn takes(&self, at: u64) -> bool {
        (self.block * BLOCK..=self.end).contains(&at) && at < self.limit()
    }

    /// Adds the bytes written at `at`; `new` has the blocks that are not in the tail yet.
    pub(super) fn add(&mut self, at: u64, payload: Payload<'_>, new: Option<&Blocks<'_>>) {
        let (begin, next, end) = (self.block * BLOCK, self.next_block(), at + payload.len());
        let place = |byte: u64| HEADER_BYTES + (byte - begin) as usize;
        if let (Payload::Bytes(bytes), false) = (payload, self.buf.is_empty()) {
            let known = end.min(next).saturating_sub(at) as usize;
            self.buf[place(at)..][..known].copy_from_slice(&bytes[..known]);
            if let Some(new) = new {
                let into = &mut self.buf[place(next)..place(end.next_multiple_of(BLOCK))];
                new.fill(next / BLOCK, into, Sums::None);
            }
        }
        self.blocks = self.blocks.max((end.div_ceil(BLOCK) - self.block) as u32);
        self.end = self.end.max(end);
        self.unlogged = self.unlogged.min(at);
    }
}

impl Shared {
    /// Writes at `offset` of a held open file, and returns the number of bytes written.
    pub(super) fn put_open(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        room: &mut CallRoom<'_>,
    ) -> Result<u64, FsError> {
        self.admit(waiter, Touched::Added)?;
        let (unit, end) = (u64::from(self.unit_blocks() - 1) * BLOCK, offset + payload.len());
        let mut at = offset + self.extend_tail(waiter, ino, offset, payload, room)?;
        if at > offset && at < end {
            // A tail that got less space than it has room for is still there. The rest may begin
            // another one.
            self.send_tail(waiter, ino)?;
        }
        let written = |at: u64, result: Result<u64, FsError>| match result {
            Err(error) if error.is_no_space() && at > offset => Ok(0),
            other => other,
        };
        let floor = at / BLOCK * BLOCK;
        let whole = (floor + (end - floor) / unit * unit).max(at);
        if at < whole {
            let part = payload.part(at - offset..whole - offset);
            at += written(at, self.put(waiter, ino, at, part, Touched::Added, room))?;
            if at < whole {
                return Ok(at - offset);
            }
        }
        if at < end {
            at += written(at, self.begin(waiter, ino, at, payload.part(at - offset..end - offset), room))?;
        }
        Ok(at - offset)
    }

    /// Adds to the tail of a file, or sends it if the write is elsewhere. Returns the bytes added.
    fn extend_tail(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        at: u64,
        payload: Payload<'_>,
        room: &mut CallRoom<'_>,
    ) -> Result<u64, FsError> {
        let Some(mut tail) = self.take_tail(waiter, ino)? else { return Ok(0) };
        if !tail.takes(at) {
            return self.send_or_combine(waiter, ino, tail, Combining::MayWait).map(|()| 0);
        }
        let result = self.extend(waiter, ino, &mut tail, at, payload, room);
        self.leave_tail(waiter, ino, tail)?;
        result
    }

    /// Adds as much of a write to a tail as there is space for, and returns the number of bytes.
    fn extend(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: &mut BufferedTail,
        at: u64,
        payload: Payload<'_>,
        room: &mut CallRoom<'_>,
    ) -> Result<u64, FsError> {
        let beyond = |end: u64| end.saturating_sub(tail.room_end()).div_ceil(BLOCK);
        let (wanted, rest) = (beyond((at + payload.len()).min(tail.limit())), beyond(at + payload.len()));
        if wanted > 0 {
            let mut more = room.take(waiter, wanted, rest)?;
            // Space for the header is already reserved.
            let blocks = more.left().extents;
            let data = more.split(Need { extents: blocks, available: blocks }).expect("data and a header");
            tail.room.join(data);
            room.put_back(more);
            self.core.lock().reserve_ahead(tail);
        }
        let length = payload.len().min(tail.room_end().min(tail.limit()) - at);
        let payload = payload.part(0..length);
        let new = self.new_blocks(waiter, ino, at.max(tail.next_block()), at, payload)?;
        tail.add(at, payload, new.as_ref());
        Ok(length)
    }

    /// Begins a tail, or combines the write if it is unlikely to be continued. Returns the number
    /// of bytes written.
    fn begin(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        at: u64,
        payload: Payload<'_>,
        room: &mut CallRoom<'_>,
    ) -> Result<u64, FsError> {
        self.make_room(waiter)?;
        let (block, most) = (at / BLOCK, self.unit_blocks() - 1);
        let length = payload.len().min((block + u64::from(most)) * BLOCK - at);
        let blocks = (at + length).div_ceil(BLOCK) - block;
        let room = room.take(waiter, blocks, blocks)?;
        let length = length.min((block + room.left().extents) * BLOCK - at);
        let payload = payload.part(0..length);
        let new = match self.new_blocks(waiter, ino, at, at, payload) {
            Ok(new) => new,
            Err(error) => {
                self.core.lock().space.lock().credit.give_back(room);
                return Err(error);
            }
        };
        if self.is_scattered(ino, at, length) {
            let (range, bytes) =
                (block..block + length / BLOCK, new.as_ref().map_or(&[][..], |new| new.bytes));
            let piece = ShortPiece { range, end: at + length, room, bytes, is_tail: false };
            return self.combine(waiter, ino, piece).map(|()| length);
        }
        let buf = if self.has_data() { self.pool.take() } else { IoBuf::empty() };
        let mut tail = Box::new(BufferedTail {
            room,
            most,
            block,
            blocks: 0,
            end: at,
            unlogged: at,
            buf,
            number: 0,
            since: waiter.now(),
        });
        tail.add(at, payload, new.as_ref());
        {
            let mut core = self.core.lock();
            core.reserve_ahead(&mut tail);
            core.enlist(ino, &mut tail);
        }
        self.leave_tail(waiter, ino, tail).map(|()| length)
    }

    /// True if a write of whole blocks is one of several scattered in a file: it does not continue
    /// the previous one, which was short and scattered, too. As a tail it would not be continued.
    fn is_scattered(&self, ino: u64, at: u64, length: u64) -> bool {
        let is_whole = at.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
        is_whole
            && self.is_short((length / BLOCK) as u32)
            && self.core.lock().nodes.here(ino).and_then(|node| node.scattered).is_some_and(|end| end != at)
    }

    /// Returns the part of a write at `at` in the blocks from `from` on, with the old contents of
    /// partly written blocks.
    fn new_blocks<'a>(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        from: u64,
        at: u64,
        payload: Payload<'a>,
    ) -> Result<Option<Blocks<'a>>, FsError> {
        let end = at + payload.len();
        match payload {
            Payload::Bytes(bytes) if self.has_data() && from < end => {
                let edges = self.edges(waiter, ino, from..end)?;
                Ok(Some(Blocks { offset: from, bytes: &bytes[(from - at) as usize..], edges }))
            }
            Payload::Length(_) if self.has_data() => {
                Err(FsError::Invalid("the device keeps data, so bytes are required"))
            }
            _ => Ok(None),
        }
    }

    /// Reserves space for data. Before failing for lack of space, sends the tails of other files,
    /// which frees the blocks that they overwrite.
    ///
    /// No thread waits for its own tail: it sends only tails that no thread had when it had taken
    /// its own.
    pub(super) fn reserve_tail(&self, waiter: &dyn Wait, wanted: Wanted) -> Result<Reservation, FsError> {
        match self.reserve(waiter, wanted) {
            Err(FsError::NoSpace) if self.core.lock().has_buffered() => {
                self.send_all(waiter, |_| true)?;
                self.send_combined(waiter, |_| true)?;
                self.reserve(waiter, wanted)
            }
            other => other,
        }
    }

    /// Sends the oldest tails until there may be another one.
    fn make_room(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let unit = u64::from(self.unit_blocks()) * BLOCK;
        let most = (self.options.dirty_bytes / 2 / unit).max(1);
        loop {
            let oldest = {
                let core = self.lock();
                core.write_buffers
                    .here
                    .values()
                    .next()
                    .filter(|_| core.write_buffers.count() >= most)
                    .copied()
            };
            let Some((ino, _)) = oldest else { return Ok(()) };
            self.send_tail(waiter, ino)?;
        }
    }

    /// Takes the tail of a file, once no other thread has it.
    fn take_tail(&self, waiter: &dyn Wait, ino: u64) -> Result<Option<Box<BufferedTail>>, FsError> {
        let mut tail = None;
        drop(self.lock_when(waiter, WaitsFor::File(ino), |core| {
            core.check_writable()?;
            let found = core.take_tail(ino, u64::MAX);
            Ok(found.ends_wait(&mut tail))
        })?);
        Ok(tail)
    }

    /// Puts a taken tail back, or sends it if it is full or the file has no handle.
    pub(super) fn leave_tail(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: Box<BufferedTail>,
    ) -> Result<(), FsError> {
        let left = if tail.is_full() { Some(tail) } else { self.core.lock().put_back(ino, tail) };
        left.map_or(Ok(()), |tail| self.send_or_combine(waiter, ino, tail, Combining::MayWait))
    }

    /// Sends the tail of a file, or combines it if it is short. On return the file has no tail
    /// except of later writes; does not wait for a thread that keeps writing.
    pub(super) fn send_tail(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        self.end_tail(waiter, ino, Combining::MayWait)
    }

    /// Like [`Shared::send_tail`], for a caller that waits for the data.
    pub(super) fn sync_tail(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        self.end_tail(waiter, ino, Combining::AtOnce)
    }

    fn end_tail(&self, waiter: &dyn Wait, ino: u64, leaves: Combining) -> Result<(), FsError> {
        let mark = self.core.lock().write_buffers.number;
        let mut tail = None;
        drop(self.lock_when(waiter, WaitsFor::File(ino), |core| {
            core.check_writable()?;
            let found = core.take_tail(ino, mark);
            Ok(found.ends_wait(&mut tail))
        })?);
        tail.map_or(Ok(()), |tail| self.send_or_combine(waiter, ino, tail, leaves))
    }

    /// Sends a taken tail, or combines it if it is short.
    fn send_or_combine(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: Box<BufferedTail>,
        leaves: Combining,
    ) -> Result<(), FsError> {
        match self.is_short(tail.blocks)
            && (leaves == Combining::MayWait || self.core.lock().combined.count() > 0)
        {
            true => self.combine_tail(waiter, ino, *tail),
            false => self.send_taken_tail(waiter, ino, tail, leaves),
        }
    }

    /// Sends the tails of all files with a creation time that satisfies `meant`.
    fn send_all(&self, waiter: &dyn Wait, meant: impl Fn(Nanos) -> bool) -> Result<(), FsError> {
        let files: Vec<u64> = {
            let core = self.lock();
            let meant = |(ino, since): &(u64, Nanos)| meant(*since).then_some(*ino);
            core.write_buffers.here.values().filter_map(meant).collect()
        };
        files.into_iter().try_for_each(|ino| self.send_tail(waiter, ino))
    }

    /// Sends the tails of all files.
    pub(super) fn send_all_tails(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.send_all(waiter, |_| true)
    }

    /// Sends tails and combined units that have reached the maximum age.
    pub(super) fn send_old(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let now = waiter.now().0;
        let is_old = |since: Nanos| now.saturating_sub(since.0) >= AGE_MAX;
        let (oldest, combined) = {
            let core = self.core.lock();
            (core.write_buffers.here.values().next().map(|(_, since)| *since), core.combined.oldest())
        };
        if oldest.is_some_and(is_old) {
            self.send_all(waiter, is_old)?;
        }
        if combined.is_some_and(is_old) { self.send_combined(waiter, is_old) } else { Ok(()) }
    }

    /// Sends a taken tail. Lost data is reported by the next sync of the file.
    fn send_taken_tail(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        mut tail: Box<BufferedTail>,
        leaves: Combining,
    ) -> Result<(), FsError> {
        let mut result = Ok(());
        while tail.blocks > 0 && result.is_ok() {
            result = self.send_part(waiter, ino, &mut tail, leaves);
        }
        let left = tail.range();
        let mut core = self.core.lock();
        core.space.lock().credit.give_back(tail.room);
        if matches!(result, Err(FsError::NoSpace)) {
            // Before the node of a file without handles may go.
            let core = &mut *core;
            if let Some(mut node) = core.nodes.here(ino) {
                node.lose(Lost::NoZone);
                core.lost.get_or_insert((ino, Lost::NoZone));
            }
            core.keep_logged_tail(ino, &[left], Lost::NoZone);
        }
        core.tail_is_gone(ino);
        core.notify_room(self);
        match result {
            // The file was deleted while its data was buffered.
            Err(FsError::NotFound) => Ok(()),
            Err(FsError::NoSpace) => {
                core.at_rest(ino);
                Ok(())
            }
            other => other,
        }
    }

    /// Sends as much of a tail as fits in its zone.
    fn send_part(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: &mut BufferedTail,
        leaves: Combining,
    ) -> Result<(), FsError> {
        // The write reserved space for its rows.
        self.admit(waiter, Touched::Changed)?;
        let (mut core, Placed { opened, blocks }) = self.place(waiter, ino, tail.blocks)?;
        core.space.lock().spend_on_unit(&mut tail.room, blocks)?;
        let part = tail.block..tail.block + u64::from(blocks);
        let number = core.begin_write(ino, &part, tail.end)?;
        core.cache_zone(ino, opened)?;
        drop(core);
        let carried = Carried { ino, block: tail.block, blocks, number, source: Source::Write };
        let buf = self.part_of(tail, blocks);
        tail.block += u64::from(blocks);
        tail.blocks -= blocks;
        let mut append = AppendUnit::new(opened.zone, vec![carried]);
        append.is_awaited = leaves == Combining::AtOnce && tail.blocks == 0;
        self.send(waiter, append, buf);
        Ok(())
    }

    /// Moves the first blocks of a tail to a buffer, and the other blocks to the front.
    fn part_of(&self, tail: &mut BufferedTail, blocks: u32) -> IoBuf {
        if tail.buf.is_empty() {
            return self.buffer(|_| {});
        }
        if blocks == tail.blocks {
            return std::mem::take(&mut tail.buf);
        }
        let bytes = (blocks * BLOCK_BYTES) as usize;
        let buf = self.buffer(|data| data[..bytes].copy_from_slice(&tail.buf[HEADER_BYTES..][..bytes]));
        tail.buf.copy_within(HEADER_BYTES + bytes.., HEADER_BYTES);
        buf
    }
}

impl Core {
    /// True if data is buffered in tails or combined units.
    fn has_buffered(&self) -> bool {
        self.write_buffers.count() + self.combined.count() > 0
    }

    /// Takes the tail of a file. If another thread has it, it counts only if its number is below
    /// `mark`.
    fn take_tail(&mut self, ino: u64, mark: u64) -> TakenTail {
        let Some(mut node) = self.nodes.here(ino) else { return TakenTail::Nothing };
        match node.write_buffer.take() {
            Some(tail) => {
                self.write_buffers.taken_for_good(&tail);
                TakenTail::Tail(tail)
            }
            None if matches!(node.write_buffer, WriteBuffer::Taken(_, number) if number < mark) => {
                TakenTail::Taken
            }
            None => TakenTail::Nothing,
        }
    }

    /// Reserves as much again as a tail has, if that is a small part of the free space, so that its
    /// next writes need only the file's lock.
    fn reserve_ahead(&mut self, tail: &mut BufferedTail) {
        let reserved = tail.room.left().extents;
        let credit = &mut self.space.lock().credit;
        let free = credit.user();
        let most = (u64::from(tail.most) - reserved).min(free.extents.min(free.available) / AHEAD_PART);
        let blocks = reserved.min(most);
        let need = Need { extents: blocks, available: blocks };
        if let Ok(room) = credit.reserve(need, Urgency::NoWait) {
            tail.room.join(room);
        }
    }

    /// Enlists a new tail as taken by the calling thread.
    fn enlist(&mut self, ino: u64, tail: &mut BufferedTail) {
        tail.number = self.write_buffers.number;
        self.write_buffers.number += 1;
        self.write_buffers.taken += 1;
        if let Some(mut node) = self.nodes.here(ino) {
            node.write_buffer = WriteBuffer::Taken(tail.range(), tail.number);
            node.scattered = None;
        }
    }

    /// Puts a tail back, or returns it to the caller if its file has no handle.
    fn put_back(&mut self, ino: u64, tail: Box<BufferedTail>) -> Option<Box<BufferedTail>> {
        let Some(mut node) = self.nodes.here(ino).filter(|node| node.handles > 0) else { return Some(tail) };
        node.size = node.size.max(tail.end);
        self.write_buffers.here.insert(tail.number, (ino, tail.since));
        self.write_buffers.taken -= 1;
        node.write_buffer = WriteBuffer::Here(tail);
        self.room.wake_all(|what| what == WaitsFor::File(ino));
        None
    }

    pub(super) fn tail_is_gone(&mut self, ino: u64) {
        self.write_buffers.taken -= 1;
        if let Some(mut node) = self.nodes.here(ino) {
            node.write_buffer = WriteBuffer::Nothing;
        }
        self.room.wake_all(|what| what == WaitsFor::File(ino));
        self.drop_if_unused(ino);
    }

    /// Drops the tail of a file that is being removed, and gives back its space.
    pub(super) fn drop_write_buffer(&mut self, write_buffer: WriteBuffer) {
        if let WriteBuffer::Here(tail) = write_buffer {
            self.write_buffers.here.remove(&tail.number);
            self.space.lock().credit.give_back(tail.room);
        }
    }
}

fn touches(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
