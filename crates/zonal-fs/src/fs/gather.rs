//! Writes to open files that go on where the last one ended, gathered to whole units.
//!
//! A unit has a header and is a command: small writes sent one by one would cost one of each. So what a write to an open file
//! leaves that is less than a unit stays in memory until more comes. It goes out when it is a unit, when somebody asks for it
//! (a sync, a close, a read of it), when too much is gathered, and when it has been there for long.
//!
//! # Invariants
//! - A file has one *sheaf* at most: whole blocks, less than a unit, with what the file has there around what was written.
//! - Its room is reserved: that there is none is said by the write, not later.
//! - Whoever takes a sheaf sends it or puts it back. Meanwhile it is nobody else's, and those who need it wait.
//! - A file without handles has a sheaf only if its last handle was dropped and not closed: nothing is added to it then.

use super::core::{Core, Shared};
use super::error::{FsError, Lost};
use super::flight::{Carried, Flight, Placed, Source};
use super::room::Touched;
use super::write::{Blocks, Payload, Sums};
use crate::BLOCK_BYTES;
use crate::format::HEADER_BYTES;
use crate::space::Reservation;
use crate::space::cost::Need;
use crate::waiter::Waiter;
use std::collections::BTreeMap;
use std::ops::Range;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How long a sheaf waits for more before whoever tends the zones sends it.
const AGE_MAX: u64 = 5_000_000_000;

/// What is gathered of a file.
#[derive(Default, Debug)]
pub(crate) enum WriteBuffer {
    #[default]
    Nothing,
    Here(Box<Sheaf>),
    /// Somebody has taken the sheaf of these blocks, which is this one in the order of all.
    Taken(Range<u64>, u64),
}

impl WriteBuffer {
    /// Whether there is none.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, WriteBuffer::Nothing)
    }

    /// Whether somebody has taken the sheaf.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, WriteBuffer::Taken(..))
    }

    /// Whether somebody has taken a sheaf from before `mark`.
    fn is_taken_before(&self, mark: u64) -> bool {
        matches!(self, WriteBuffer::Taken(_, number) if *number < mark)
    }

    /// Whether somebody has taken a sheaf with any of `blocks`.
    pub(crate) fn is_leaving(&self, blocks: &Range<u64>) -> bool {
        matches!(self, WriteBuffer::Taken(range, _) if meets(range, blocks))
    }
}

/// Blocks of a file that wait for more.
#[derive(Debug)]
pub(crate) struct Sheaf {
    /// For as many blocks as it has.
    room: Reservation,
    /// Blocks that it may have.
    most: u32,
    /// First block of the file.
    block: u64,
    blocks: u32,
    /// The byte of the file behind the last that was written.
    end: u64,
    /// The blocks, behind room for a header; empty where the device keeps no data.
    buf: IoBuf,
    /// Its place in the order of all, and since when it is there.
    number: u64,
    since: Nanos,
}

/// The sheaves of all files.
#[derive(Default, Debug)]
pub(super) struct Gathers {
    /// Those that are here, in order of age, with their files.
    here: BTreeMap<u64, (u64, Nanos)>,
    /// How many somebody has taken.
    taken: u32,
    number: u64,
}

impl Gathers {
    /// Whether somebody is about to send a sheaf, or to put it back.
    pub(super) fn has_taken(&self) -> bool {
        self.taken > 0
    }

    /// How many wait for more.
    pub(super) fn count(&self) -> u64 {
        self.here.len() as u64
    }
}

impl Sheaf {
    fn range(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.blocks)
    }

    /// Where blocks begin that it does not have.
    fn next_block(&self) -> u64 {
        self.range().end * BLOCK
    }

    /// Bytes of the file up to which it may go.
    fn limit(&self) -> u64 {
        (self.block + u64::from(self.most)) * BLOCK
    }

    fn is_full(&self) -> bool {
        self.end == self.limit()
    }

    /// Whether a write at `at` changes it or goes on with it.
    fn takes(&self, at: u64) -> bool {
        (self.block * BLOCK..=self.end).contains(&at) && at < self.limit()
    }

    /// Takes in what is written at `at`; `new` has the blocks that it does not have yet.
    fn add(&mut self, at: u64, payload: Payload<'_>, new: Option<&Blocks<'_>>) {
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
        waiter: &dyn Waiter,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
    ) -> Result<u64, FsError> {
        self.admit(waiter, Touched::Added)?;
        let (unit, end) = (u64::from(self.unit_blocks() - 1) * BLOCK, offset + payload.len());
        let mut at = offset + self.go_on(waiter, ino, offset, payload)?;
        let written = |at: u64, result: Result<u64, FsError>| match result {
            Err(error) if error.is_no_space() && at > offset => Ok(0),
            other => other,
        };
        let floor = at / BLOCK * BLOCK;
        let whole = (floor + (end - floor) / unit * unit).max(at);
        if at < whole {
            let part = payload.part(at - offset..whole - offset);
            at += written(at, self.put(waiter, ino, at, part, Touched::Added))?;
            if at < whole {
                return Ok(at - offset);
            }
        }
        if at < end {
            at += written(at, self.begin(waiter, ino, at, payload.part(at - offset..end - offset)))?;
        }
        Ok(at - offset)
    }

    /// Adds to the sheaf that is gathered of a file, or sends it if the write is elsewhere; how many bytes it took.
    fn go_on(&self, waiter: &dyn Waiter, ino: u64, at: u64, payload: Payload<'_>) -> Result<u64, FsError> {
        let Some(mut sheaf) = self.take_gathered(waiter, ino)? else { return Ok(0) };
        if !sheaf.takes(at) {
            return self.send_off(waiter, ino, sheaf).map(|()| 0);
        }
        let length = payload.len().min(sheaf.limit() - at);
        let result = self.extend(waiter, ino, &mut sheaf, at, payload.part(0..length));
        self.leave_gathered(waiter, ino, sheaf)?;
        result
    }

    /// Adds to a sheaf as much of a write as there is room for; how many bytes.
    fn extend(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        sheaf: &mut Sheaf,
        at: u64,
        payload: Payload<'_>,
    ) -> Result<u64, FsError> {
        let next = sheaf.next_block();
        let wanted = (at + payload.len()).saturating_sub(next).div_ceil(BLOCK);
        let mut end = next;
        if wanted > 0 {
            let mut more = self.reserve_gathered(waiter, wanted as u32)?;
            // Its header is reserved already.
            let blocks = more.left().extents;
            let data = more.split(Need { extents: blocks, available: blocks }).expect("data and a header");
            sheaf.room.join(data);
            self.core.lock().credit.give_back(more);
            end += blocks * BLOCK;
        }
        let length = payload.len().min(end - at);
        let payload = payload.part(0..length);
        let new = self.new_blocks(waiter, ino, at.max(next), at, payload)?;
        sheaf.add(at, payload, new.as_ref());
        Ok(length)
    }

    /// Begins a sheaf; how many bytes it took.
    fn begin(&self, waiter: &dyn Waiter, ino: u64, at: u64, payload: Payload<'_>) -> Result<u64, FsError> {
        self.make_room(waiter)?;
        let (block, most) = (at / BLOCK, self.unit_blocks() - 1);
        let length = payload.len().min((block + u64::from(most)) * BLOCK - at);
        let room = self.reserve_gathered(waiter, ((at + length).div_ceil(BLOCK) - block) as u32)?;
        let length = length.min((block + room.left().extents) * BLOCK - at);
        let payload = payload.part(0..length);
        let new = match self.new_blocks(waiter, ino, at, at, payload) {
            Ok(new) => new,
            Err(error) => {
                self.core.lock().credit.give_back(room);
                return Err(error);
            }
        };
        let buf = if self.has_data() { self.pool.take() } else { IoBuf::empty() };
        let mut sheaf =
            Box::new(Sheaf { room, most, block, blocks: 0, end: at, buf, number: 0, since: waiter.now() });
        sheaf.add(at, payload, new.as_ref());
        self.core.lock().enlist(ino, &mut sheaf);
        self.leave_gathered(waiter, ino, sheaf).map(|()| length)
    }

    /// What of a write at `at` lies in blocks from `from` on, with the edges of those as they are.
    fn new_blocks<'a>(
        &self,
        waiter: &dyn Waiter,
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

    /// Room for data. What is gathered of others is sent before there is said to be none: what it overwrites is freed.
    ///
    /// Nobody waits for himself: the sheaves to be sent are those that nobody had when the caller had taken his own.
    pub(super) fn reserve_gathered(&self, waiter: &dyn Waiter, blocks: u32) -> Result<Reservation, FsError> {
        match self.reserve(waiter, blocks) {
            Err(FsError::NoSpace) if self.core.lock().gathers.count() > 0 => {
                self.send_all(waiter, |_| true)?;
                self.reserve(waiter, blocks)
            }
            other => other,
        }
    }

    /// Sends the oldest sheaves until there may be another one.
    fn make_room(&self, waiter: &dyn Waiter) -> Result<(), FsError> {
        let unit = u64::from(self.unit_blocks()) * BLOCK;
        let most = (self.options.dirty_bytes / 2 / unit).max(1);
        loop {
            let oldest = {
                let core = self.lock();
                core.gathers.here.values().next().filter(|_| core.gathers.count() >= most).copied()
            };
            let Some((ino, _)) = oldest else { return Ok(()) };
            self.send_gathered(waiter, ino)?;
        }
    }

    /// The sheaf of a file, taken, once nobody else has it.
    fn take_gathered(&self, waiter: &dyn Waiter, ino: u64) -> Result<Option<Box<Sheaf>>, FsError> {
        let mut sheaf = None;
        drop(self.lock_when(waiter, |core| {
            core.check_alive()?;
            sheaf = core.take_gathered(ino);
            Ok(sheaf.is_some() || !core.is_taken(ino))
        })?);
        Ok(sheaf)
    }

    /// Puts a sheaf that was taken back, or sends it if it is full or nobody has the file open.
    fn leave_gathered(&self, waiter: &dyn Waiter, ino: u64, sheaf: Box<Sheaf>) -> Result<(), FsError> {
        let left = if sheaf.is_full() { Some(sheaf) } else { self.core.lock().put_back(ino, sheaf) };
        left.map_or(Ok(()), |sheaf| self.send_off(waiter, ino, sheaf))
    }

    /// Sends what is gathered of a file; nothing is once it returns, but what was written meanwhile. It waits for nobody who
    /// goes on writing.
    pub(super) fn send_gathered(&self, waiter: &dyn Waiter, ino: u64) -> Result<(), FsError> {
        let mark = self.core.lock().gathers.number;
        let mut sheaf = None;
        drop(self.lock_when(waiter, |core| {
            core.check_alive()?;
            sheaf = core.take_gathered(ino);
            let has_older = core.nodes.here(ino).is_some_and(|node| node.write_buffer.is_taken_before(mark));
            Ok(sheaf.is_some() || !has_older)
        })?);
        sheaf.map_or(Ok(()), |sheaf| self.send_off(waiter, ino, sheaf))
    }

    /// Sends what is gathered of all files, of those that have been there since a time that is `meant`.
    fn send_all(&self, waiter: &dyn Waiter, meant: impl Fn(Nanos) -> bool) -> Result<(), FsError> {
        let files: Vec<u64> = {
            let core = self.lock();
            let meant = |(ino, since): &(u64, Nanos)| meant(*since).then_some(*ino);
            core.gathers.here.values().filter_map(meant).collect()
        };
        files.into_iter().try_for_each(|ino| self.send_gathered(waiter, ino))
    }

    /// Sends what is gathered of all files.
    pub(super) fn send_all_gathered(&self, waiter: &dyn Waiter) -> Result<(), FsError> {
        self.send_all(waiter, |_| true)
    }

    /// Sends what has waited for more for long.
    pub(super) fn send_old(&self, waiter: &dyn Waiter) -> Result<(), FsError> {
        let now = waiter.now().0;
        let is_old = |since: Nanos| now.saturating_sub(since.0) >= AGE_MAX;
        let oldest = self.core.lock().gathers.here.values().next().map(|(_, since)| *since);
        if oldest.is_some_and(is_old) { self.send_all(waiter, is_old) } else { Ok(()) }
    }

    /// Sends a sheaf that was taken. What is lost on the way its file's next sync tells.
    fn send_off(&self, waiter: &dyn Waiter, ino: u64, mut sheaf: Box<Sheaf>) -> Result<(), FsError> {
        let mut result = Ok(());
        while sheaf.blocks > 0 && result.is_ok() {
            result = self.send_part(waiter, ino, &mut sheaf);
        }
        let mut core = self.core.lock();
        core.credit.give_back(sheaf.room);
        core.gathered_is_gone(ino);
        match result {
            // The file went while its data waited.
            Err(FsError::NotFound) => Ok(()),
            Err(FsError::NoSpace) => {
                if let Some(node) = core.nodes.here(ino) {
                    node.failure.get_or_insert(Lost::NoZone);
                    core.lost.get_or_insert((ino, Lost::NoZone));
                }
                core.at_rest(ino);
                Ok(())
            }
            other => other,
        }
    }

    /// Sends as much of a sheaf as its zone has room for.
    fn send_part(&self, waiter: &dyn Waiter, ino: u64, sheaf: &mut Sheaf) -> Result<(), FsError> {
        // Whoever wrote it found room for its rows.
        self.admit(waiter, Touched::Changed)?;
        let (mut core, Placed { opened, blocks }) = self.place(waiter, ino, sheaf.blocks)?;
        // A sheaf that crosses zones has more headers than were reserved.
        let owed = (u64::from(blocks) + 1).saturating_sub(sheaf.room.left().available);
        core.spend(&mut sheaf.room, u64::from(blocks), u64::from(blocks) + 1 - owed)?;
        core.room_lost(owed as u32);
        let part = sheaf.block..sheaf.block + u64::from(blocks);
        let number = core.takes_up(ino, &part, sheaf.end)?;
        core.cache_zone(ino, opened)?;
        drop(core);
        let carried = Carried { ino, block: sheaf.block, blocks, number, source: Source::Write };
        let buf = self.part_of(sheaf, blocks);
        sheaf.block += u64::from(blocks);
        sheaf.blocks -= blocks;
        self.send(waiter, Flight::new(opened.zone, vec![carried]), buf);
        Ok(())
    }

    /// A buffer with the first blocks of a sheaf, whose others move up.
    fn part_of(&self, sheaf: &mut Sheaf, blocks: u32) -> IoBuf {
        if sheaf.buf.is_empty() {
            return self.buffer(|_| {});
        }
        if blocks == sheaf.blocks {
            return std::mem::take(&mut sheaf.buf);
        }
        let bytes = (blocks * BLOCK_BYTES) as usize;
        let buf = self.buffer(|data| data[..bytes].copy_from_slice(&sheaf.buf[HEADER_BYTES..][..bytes]));
        sheaf.buf.copy_within(HEADER_BYTES + bytes.., HEADER_BYTES);
        buf
    }
}

impl Core {
    /// Whether some of `blocks` are gathered, for nobody has sent them.
    pub(super) fn is_gathered(&mut self, ino: u64, blocks: &Range<u64>) -> bool {
        let node = self.nodes.here(ino);
        node.is_some_and(
            |node| matches!(&node.write_buffer, WriteBuffer::Here(sheaf) if meets(&sheaf.range(), blocks)),
        )
    }

    /// Whether somebody has taken the sheaf of a file.
    pub(super) fn is_taken(&mut self, ino: u64) -> bool {
        self.nodes.here(ino).is_some_and(|node| node.write_buffer.is_taken())
    }

    fn take_gathered(&mut self, ino: u64) -> Option<Box<Sheaf>> {
        let node = self.nodes.here(ino)?;
        let sheaf = match std::mem::take(&mut node.write_buffer) {
            WriteBuffer::Here(sheaf) => sheaf,
            other => {
                node.write_buffer = other;
                return None;
            }
        };
        node.write_buffer = WriteBuffer::Taken(sheaf.range(), sheaf.number);
        self.gathers.here.remove(&sheaf.number);
        self.gathers.taken += 1;
        Some(sheaf)
    }

    /// A sheaf that is new is with whoever began it.
    fn enlist(&mut self, ino: u64, sheaf: &mut Sheaf) {
        sheaf.number = self.gathers.number;
        self.gathers.number += 1;
        self.gathers.taken += 1;
        if let Some(node) = self.nodes.here(ino) {
            node.write_buffer = WriteBuffer::Taken(sheaf.range(), sheaf.number);
        }
    }

    /// A sheaf waits for more again, unless nobody has its file open; then it is given back.
    fn put_back(&mut self, ino: u64, sheaf: Box<Sheaf>) -> Option<Box<Sheaf>> {
        let Some(node) = self.nodes.here(ino).filter(|node| node.handles > 0) else { return Some(sheaf) };
        node.size = node.size.max(sheaf.end);
        self.gathers.here.insert(sheaf.number, (ino, sheaf.since));
        self.gathers.taken -= 1;
        node.write_buffer = WriteBuffer::Here(sheaf);
        None
    }

    fn gathered_is_gone(&mut self, ino: u64) {
        self.gathers.taken -= 1;
        if let Some(node) = self.nodes.here(ino) {
            node.write_buffer = WriteBuffer::Nothing;
        }
        self.let_go(ino);
    }

    /// What was gathered of a file that goes is nobody's.
    pub(super) fn drop_write_buffer(&mut self, write_buffer: WriteBuffer) {
        if let WriteBuffer::Here(sheaf) = write_buffer {
            self.gathers.here.remove(&sheaf.number);
            self.credit.give_back(sheaf.room);
        }
    }
}

fn meets(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
