//! Write buffers: consecutive writes to open files, collected to whole units.
//!
//! A unit has a header and is a command. Small writes that were sent one by one would cost one of each. So what a write to an
//! open file leaves that is less than a unit stays in memory, as the *buffered tail* of the file, until more comes. The file
//! system sends it when it is a unit, when a sync, a close or a read asks for it, when the buffers are full, and after a time. A short
//! tail leaves with those of others: [`combine`](super::combine).
//!
//! # Invariants
//! - A file has one tail at most: whole blocks, less than a unit, with what the file has there around what was written.
//! - Its room is reserved: the write says that there is none, and no later call does. Where there is plenty, more is reserved than it has.
//! - The thread that takes a tail sends it or puts it back. Meanwhile no other thread has it, and threads that need it wait.
//! - A file without handles has a tail only if its last handle was dropped and not closed: nothing is added to it then.

use super::combine::ShortPiece;
use super::core::{Core, Shared};
use super::credit::CallRoom;
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

/// How long a tail waits for more before the background step sends it.
const AGE_MAX: u64 = 5_000_000_000;

/// One in this number of free blocks at most is reserved ahead for a tail.
const AHEAD_PART: u64 = 16;

/// The write buffer of a file.
#[derive(Default, Debug)]
pub(crate) enum WriteBuffer {
    #[default]
    Nothing,
    Here(Box<BufferedTail>),
    /// A thread has taken the tail of these blocks, which has this number in the order of all.
    Taken(Range<u64>, u64),
}

impl WriteBuffer {
    /// Whether there is none.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, WriteBuffer::Nothing)
    }

    /// Whether a thread has taken the tail.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, WriteBuffer::Taken(..))
    }

    /// The tail, if it is here; it is taken then.
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

    /// Whether any of `blocks` are in it, or in a tail that a thread has taken.
    pub(crate) fn has_any(&self, blocks: &Range<u64>) -> bool {
        match self {
            WriteBuffer::Here(tail) => meets(&tail.range(), blocks),
            WriteBuffer::Taken(range, _) => meets(range, blocks),
            WriteBuffer::Nothing => false,
        }
    }
}

/// Blocks of a file that wait for more.
#[derive(Debug)]
pub(crate) struct BufferedTail {
    /// Room for the blocks that it has, and ahead of them.
    pub(super) room: Reservation,
    /// Blocks that it may have.
    most: u32,
    /// First block of the file.
    block: u64,
    blocks: u32,
    /// The byte of the file after the last that was written.
    pub(super) end: u64,
    /// Room for a header, and the blocks after it; empty where the device keeps no data.
    pub(super) buf: IoBuf,
    /// Its place in the order of all, and since when it is there.
    number: u64,
    pub(super) since: Nanos,
}

/// What a thread finds that wants to take a tail.
enum Found {
    Tail(Box<BufferedTail>),
    /// Another thread has taken it.
    Taken,
    Nothing,
}

/// Whether a short tail may wait for pieces of others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    WithOthers,
    /// The caller waits for it: it goes along if others wait, and alone otherwise.
    AtOnce,
}

/// The tails of all files.
#[derive(Default, Debug)]
pub(super) struct WriteBuffers {
    /// Those that are here, in order of age, with their files.
    here: BTreeMap<u64, (u64, Nanos)>,
    /// How many threads have taken.
    taken: u32,
    number: u64,
}

impl Found {
    /// Whether the wait for a tail is over; `into` is the tail if there is one.
    fn ends_wait(self, into: &mut Option<Box<BufferedTail>>) -> bool {
        match self {
            Found::Tail(tail) => {
                *into = Some(tail);
                true
            }
            Found::Taken => false,
            Found::Nothing => true,
        }
    }
}

impl WriteBuffers {
    /// Whether a thread is about to send a tail, or to put it back.
    pub(super) fn has_taken(&self) -> bool {
        self.taken > 0
    }

    /// A tail that was taken with the file's lock alone leaves the order.
    pub(super) fn taken_for_good(&mut self, tail: &BufferedTail) {
        self.here.remove(&tail.number);
        self.taken += 1;
    }

    /// How many wait for more.
    pub(super) fn count(&self) -> u64 {
        self.here.len() as u64
    }
}

impl BufferedTail {
    pub(super) fn range(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.blocks)
    }

    /// Where blocks begin that it does not have.
    pub(super) fn next_block(&self) -> u64 {
        self.range().end * BLOCK
    }

    /// Bytes of the file up to which it may go.
    fn limit(&self) -> u64 {
        (self.block + u64::from(self.most)) * BLOCK
    }

    pub(super) fn is_full(&self) -> bool {
        self.end == self.limit()
    }

    /// Bytes of the file up to which room is reserved.
    pub(super) fn room_end(&self) -> u64 {
        (self.block + self.room.left().extents) * BLOCK
    }

    /// Whether a write at `at` changes it or continues it.
    pub(super) fn takes(&self, at: u64) -> bool {
        (self.block * BLOCK..=self.end).contains(&at) && at < self.limit()
    }

    /// Takes in what is written at `at`; `new` has the blocks that it does not have yet.
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
    }
}

impl Shared {
    /// Writes at `offset` of an open file that is held; how many bytes went in.
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
        let mut at = offset + self.go_on(waiter, ino, offset, payload, room)?;
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

    /// Adds to the tail of a file, or sends it if the write is elsewhere; how many bytes it took.
    fn go_on(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        at: u64,
        payload: Payload<'_>,
        room: &mut CallRoom<'_>,
    ) -> Result<u64, FsError> {
        let Some(mut tail) = self.take_tail(waiter, ino)? else { return Ok(0) };
        if !tail.takes(at) {
            return self.move_on(waiter, ino, tail, Leaves::WithOthers).map(|()| 0);
        }
        let result = self.extend(waiter, ino, &mut tail, at, payload, room);
        self.leave_tail(waiter, ino, tail)?;
        result
    }

    /// Adds to a tail as much of a write as there is room for; how many bytes.
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
            // Its header is reserved already.
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

    /// Begins a tail, or has the write combined if no tail is to be expected of it; how many bytes it took.
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

    /// Whether a write of whole blocks is the next one here and there in a file: it is elsewhere than the one before, which was short
    /// and had its own place, too. It would be a tail that nothing continues.
    fn is_scattered(&self, ino: u64, at: u64, length: u64) -> bool {
        let is_whole = at.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
        is_whole
            && self.is_short((length / BLOCK) as u32)
            && self.core.lock().nodes.here(ino).and_then(|node| node.scattered).is_some_and(|end| end != at)
    }

    /// What of a write at `at` lies in blocks from `from` on, with the edges of those as they are.
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
                Err(FsError::Invalid("this device keeps data: a length is not enough"))
            }
            _ => Ok(None),
        }
    }

    /// Room for data. The tails of other files are sent before the caller is told that there is none: what they overwrite is freed.
    ///
    /// No thread waits for its own tail: the tails to be sent are those that no thread had when the caller had taken its own.
    pub(super) fn reserve_tail(&self, waiter: &dyn Wait, blocks: u32) -> Result<Reservation, FsError> {
        match self.reserve(waiter, blocks) {
            Err(FsError::NoSpace) if self.core.lock().has_buffered() => {
                self.send_all(waiter, |_| true)?;
                self.send_combined(waiter, |_| true)?;
                self.reserve(waiter, blocks)
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

    /// The tail of a file, taken, once no other thread has it.
    fn take_tail(&self, waiter: &dyn Wait, ino: u64) -> Result<Option<Box<BufferedTail>>, FsError> {
        let mut tail = None;
        drop(self.lock_when(waiter, WaitsFor::File(ino), |core| {
            core.check_alive()?;
            let found = core.take_tail(ino, u64::MAX);
            Ok(found.ends_wait(&mut tail))
        })?);
        Ok(tail)
    }

    /// Puts a tail that was taken back, or sends it if it is full or the file has no handle.
    pub(super) fn leave_tail(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: Box<BufferedTail>,
    ) -> Result<(), FsError> {
        let left = if tail.is_full() { Some(tail) } else { self.core.lock().put_back(ino, tail) };
        left.map_or(Ok(()), |tail| self.move_on(waiter, ino, tail, Leaves::WithOthers))
    }

    /// Sends the tail of a file, or has it combined if it is short. When it returns, the file has no tail but of later writes; it does
    /// not wait for a thread that continues to write.
    pub(super) fn send_tail(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        self.end_tail(waiter, ino, Leaves::WithOthers)
    }

    /// The same for a caller that waits for the data.
    pub(super) fn sync_tail(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        self.end_tail(waiter, ino, Leaves::AtOnce)
    }

    fn end_tail(&self, waiter: &dyn Wait, ino: u64, leaves: Leaves) -> Result<(), FsError> {
        let mark = self.core.lock().write_buffers.number;
        let mut tail = None;
        drop(self.lock_when(waiter, WaitsFor::File(ino), |core| {
            core.check_alive()?;
            let found = core.take_tail(ino, mark);
            Ok(found.ends_wait(&mut tail))
        })?);
        tail.map_or(Ok(()), |tail| self.move_on(waiter, ino, tail, leaves))
    }

    /// Sends a tail that was taken, or has it combined if it is short.
    fn move_on(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: Box<BufferedTail>,
        leaves: Leaves,
    ) -> Result<(), FsError> {
        match self.is_short(tail.blocks)
            && (leaves == Leaves::WithOthers || self.core.lock().combined.count() > 0)
        {
            true => self.combine_tail(waiter, ino, *tail),
            false => self.send_off(waiter, ino, tail),
        }
    }

    /// Sends the tails of all files that have been there since a time that is `meant`.
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

    /// Sends what has waited for more for long.
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

    /// Sends a tail that was taken. The next sync of a file reports what of it is lost.
    fn send_off(&self, waiter: &dyn Wait, ino: u64, mut tail: Box<BufferedTail>) -> Result<(), FsError> {
        let mut result = Ok(());
        while tail.blocks > 0 && result.is_ok() {
            result = self.send_part(waiter, ino, &mut tail);
        }
        let mut core = self.core.lock();
        core.space.lock().credit.give_back(tail.room);
        core.tail_is_gone(ino);
        core.tell_of_room(self);
        match result {
            // The file went while its data waited.
            Err(FsError::NotFound) => Ok(()),
            Err(FsError::NoSpace) => {
                let core = &mut *core;
                if let Some(mut node) = core.nodes.here(ino) {
                    node.failure.get_or_insert(Lost::NoZone);
                    core.lost.get_or_insert((ino, Lost::NoZone));
                }
                core.at_rest(ino);
                Ok(())
            }
            other => other,
        }
    }

    /// Sends as much of a tail as its zone has room for.
    fn send_part(&self, waiter: &dyn Wait, ino: u64, tail: &mut BufferedTail) -> Result<(), FsError> {
        // The write found room for its rows.
        self.admit(waiter, Touched::Changed)?;
        let (mut core, Placed { opened, blocks }) = self.place(waiter, ino, tail.blocks)?;
        core.space.lock().spend_on_unit(&mut tail.room, blocks)?;
        let part = tail.block..tail.block + u64::from(blocks);
        let number = core.takes_up(ino, &part, tail.end)?;
        core.cache_zone(ino, opened)?;
        drop(core);
        let carried = Carried { ino, block: tail.block, blocks, number, source: Source::Write };
        let buf = self.part_of(tail, blocks);
        tail.block += u64::from(blocks);
        tail.blocks -= blocks;
        self.send(waiter, AppendUnit::new(opened.zone, vec![carried]), buf);
        Ok(())
    }

    /// A buffer with the first blocks of a tail, whose others move up.
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
    /// Whether data waits in memory for more.
    fn has_buffered(&self) -> bool {
        self.write_buffers.count() + self.combined.count() > 0
    }

    /// Takes the tail of a file. A tail with another number than those before `mark` does not count where another thread has it.
    fn take_tail(&mut self, ino: u64, mark: u64) -> Found {
        let Some(mut node) = self.nodes.here(ino) else { return Found::Nothing };
        match node.write_buffer.take() {
            Some(tail) => {
                self.write_buffers.taken_for_good(&tail);
                Found::Tail(tail)
            }
            None if matches!(node.write_buffer, WriteBuffer::Taken(_, number) if number < mark) => {
                Found::Taken
            }
            None => Found::Nothing,
        }
    }

    /// Room for as much again as a tail has, if that is little of what is free: its next writes need no more than the file's lock.
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

    /// The thread that begins a tail has it.
    fn enlist(&mut self, ino: u64, tail: &mut BufferedTail) {
        tail.number = self.write_buffers.number;
        self.write_buffers.number += 1;
        self.write_buffers.taken += 1;
        if let Some(mut node) = self.nodes.here(ino) {
            node.write_buffer = WriteBuffer::Taken(tail.range(), tail.number);
            node.scattered = None;
        }
    }

    /// A tail waits for more again, unless its file has no handle; then the caller gets it back.
    fn put_back(&mut self, ino: u64, tail: Box<BufferedTail>) -> Option<Box<BufferedTail>> {
        let Some(mut node) = self.nodes.here(ino).filter(|node| node.handles > 0) else { return Some(tail) };
        node.size = node.size.max(tail.end);
        self.write_buffers.here.insert(tail.number, (ino, tail.since));
        self.write_buffers.taken -= 1;
        node.write_buffer = WriteBuffer::Here(tail);
        self.room.tell(|what| what == WaitsFor::File(ino));
        None
    }

    pub(super) fn tail_is_gone(&mut self, ino: u64) {
        self.write_buffers.taken -= 1;
        if let Some(mut node) = self.nodes.here(ino) {
            node.write_buffer = WriteBuffer::Nothing;
        }
        self.room.tell(|what| what == WaitsFor::File(ino));
        self.let_go(ino);
    }

    /// The tail of a file that is removed is dropped, and its room given back.
    pub(super) fn drop_write_buffer(&mut self, write_buffer: WriteBuffer) {
        if let WriteBuffer::Here(tail) = write_buffer {
            self.write_buffers.here.remove(&tail.number);
            self.space.lock().credit.give_back(tail.room);
        }
    }
}

fn meets(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
