//! Combined units: short pieces of several files, or of several places in one file, that leave in one unit.
//!
//! A unit has a header and is a command. A file of one block that is closed, or a block that is overwritten, would cost one of
//! each. So a short tail that gets no more joins a unit that waits for others. The file system sends this unit when it is full,
//! when a sync, a read or a truncation needs one of its pieces, when the buffers are full, and after a time.
//!
//! # Invariants
//! - A piece counts as in flight from the moment that it joins: it has its number, and a later write of its blocks replaces it,
//!   whichever unit leaves first.
//! - Its room is reserved.
//! - A thread that waits for data of a file sends the units that have pieces of it. So no thread waits for a unit that waits for
//!   more. A unit that another thread has taken comes back, or is sent.
//! - Pieces of a file that is gone are left out.

use super::core::{Core, CoreGuard, Shared};
use super::error::{FsError, Lost};
use super::flight::{AppendUnit, Carried, Source};
use super::room::Touched;
use super::space::Placed;
use super::waiting::WaitsFor;
use super::write_buffer::BufferedTail;
use crate::BLOCK_BYTES;
use crate::format::{HEADER_BYTES, Header};
use crate::space::open::Wish;
use crate::space::{Lifetime, Reservation};
use crate::waiter::Wait;
use std::ops::Range;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;

const BLOCK: usize = BLOCK_BYTES as usize;

/// A piece is short if this number of its kind fits in a unit: a longer one is worth a header, and costs more to copy.
const SHORT_PART: u32 = 4;

/// Units that wait for more at once: one for each lifetime, and some that several threads fill.
const UNITS_MAX: u64 = 8;

/// The units that wait for more pieces.
#[derive(Default, Debug)]
pub(super) struct CombinedUnits {
    here: Vec<CombinedUnit>,
    /// How many threads have taken.
    taken: u32,
}

/// Blocks of a file that are too few for a unit.
pub(super) struct ShortPiece<'a> {
    pub(super) range: Range<u64>,
    /// The byte of the file after the last that was written.
    pub(super) end: u64,
    pub(super) room: Reservation,
    /// Empty where the device keeps no data.
    pub(super) bytes: &'a [u8],
    /// They were the file's tail, which the caller has taken.
    pub(super) is_tail: bool,
}

/// A unit that waits for more pieces.
#[derive(Debug)]
pub(super) struct CombinedUnit {
    /// Its pieces, whose data lie one after the other.
    pieces: Vec<Carried>,
    /// Blocks that they have.
    blocks: u32,
    /// Room for them.
    room: Option<Reservation>,
    hint: Lifetime,
    /// Room for a header, and the data after it; empty where the device keeps none.
    buf: IoBuf,
    since: Nanos,
}

impl CombinedUnits {
    /// How many wait for more.
    pub(super) fn count(&self) -> u64 {
        self.here.len() as u64
    }

    /// Whether a thread adds to one, or sends it.
    pub(super) fn has_taken(&self) -> bool {
        self.taken > 0
    }

    /// Since when the oldest waits.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.here.iter().map(|unit| unit.since).min()
    }

    fn take_if(&mut self, is_meant: impl FnMut(&CombinedUnit) -> bool) -> Option<CombinedUnit> {
        let place = self.here.iter().position(is_meant)?;
        self.taken += 1;
        Some(self.here.swap_remove(place))
    }
}

impl CombinedUnit {
    /// Whether another piece of `blocks` fits in a unit of `most` data blocks.
    fn takes(&self, blocks: u32, most: u32) -> bool {
        let all = self.blocks + blocks;
        all <= most && self.pieces.len() < Header::records_max(all)
    }
}

impl Shared {
    /// Whether a piece of `blocks` is to leave with others.
    pub(super) fn is_short(&self, blocks: u32) -> bool {
        blocks * SHORT_PART < self.unit_blocks()
    }

    /// Moves a tail that was taken into a unit that waits for more.
    pub(super) fn combine_tail(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        tail: BufferedTail,
    ) -> Result<(), FsError> {
        let (range, end) = (tail.range(), tail.end);
        let bytes = if tail.buf.is_empty() { &[] } else { &tail.buf[HEADER_BYTES..] };
        self.combine(waiter, ino, ShortPiece { range, end, room: tail.room, bytes, is_tail: true })
    }

    /// Adds a piece to a unit that waits for more.
    pub(super) fn combine(&self, waiter: &dyn Wait, ino: u64, piece: ShortPiece<'_>) -> Result<(), FsError> {
        let ShortPiece { range, end, room, bytes, is_tail } = piece;
        let blocks = (range.end - range.start) as u32;
        let most = self.unit_blocks() - 1;
        let (carried, mut unit) = {
            let mut core = self.core.lock();
            let number = match core.takes_up(ino, &range, end) {
                Ok(number) => number,
                Err(error) => {
                    core.space.lock().credit.give_back(room);
                    if is_tail {
                        core.tail_is_gone(ino);
                    }
                    // The file went while its data waited.
                    return if matches!(error, FsError::NotFound) { Ok(()) } else { Err(error) };
                }
            };
            let hint = core.hint_of(self, ino);
            if let Some(mut node) = core.nodes.here(ino) {
                node.combined += 1;
                node.scattered = Some(end);
            }
            if is_tail {
                core.tail_is_gone(ino);
            }
            let unit = core.combined.take_if(|unit| unit.hint == hint && unit.takes(blocks, most));
            core.combined.taken += u32::from(unit.is_none());
            let carried = Carried { ino, block: range.start, blocks, number, source: Source::Write };
            let fresh = || CombinedUnit::new(hint, waiter.now());
            (carried, unit.unwrap_or_else(fresh))
        };
        if self.has_data() {
            if unit.buf.is_empty() {
                unit.buf = self.pool.take();
            }
            let at = HEADER_BYTES + unit.blocks as usize * BLOCK;
            let length = blocks as usize * BLOCK;
            unit.buf[at..][..length].copy_from_slice(&bytes[..length]);
        }
        unit.pieces.push(carried);
        unit.blocks += blocks;
        match &mut unit.room {
            Some(of_unit) => of_unit.join(room),
            None => unit.room = Some(room),
        }
        let full = {
            let mut core = self.core.lock();
            if unit.takes(1, most) {
                core.put_back_combined(unit);
                let max = UNITS_MAX.min(self.options.dirty_bytes / 4 / (u64::from(most + 1) * BLOCK as u64));
                let fullest = core.combined.here.iter().map(|unit| unit.blocks).max();
                match core.combined.count() > max {
                    true => core.combined.take_if(|unit| Some(unit.blocks) == fullest),
                    false => None,
                }
            } else {
                Some(unit)
            }
        };
        full.map_or(Ok(()), |unit| self.send_unit(waiter, unit))
    }

    /// Sends the units that wait since a time that is `meant`.
    pub(super) fn send_combined(
        &self,
        waiter: &dyn Wait,
        meant: impl Fn(Nanos) -> bool,
    ) -> Result<(), FsError> {
        loop {
            let unit = self.core.lock().combined.take_if(|unit| meant(unit.since));
            let Some(unit) = unit else { return Ok(()) };
            self.send_unit(waiter, unit)?;
        }
    }

    /// The core, once `ready` returns true, or an error. Until then units with pieces of the file are sent.
    pub(super) fn lock_file_when(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        mut ready: impl FnMut(&mut Core) -> Result<bool, FsError>,
    ) -> Result<CoreGuard<'_>, FsError> {
        loop {
            let mut unit = None;
            let core = self.lock_when(waiter, WaitsFor::File(ino), |core| {
                if ready(core)? {
                    return Ok(true);
                }
                unit = core.take_combined(ino);
                Ok(unit.is_some())
            })?;
            let Some(unit) = unit else { return Ok(core) };
            drop(core);
            self.send_unit(waiter, unit)?;
        }
    }

    /// Sends a unit that was taken. The next sync of a file reports what of it is lost.
    fn send_unit(&self, waiter: &dyn Wait, mut unit: CombinedUnit) -> Result<(), FsError> {
        let mut result = Ok(());
        while !unit.pieces.is_empty() && result.is_ok() {
            result = self.send_some(waiter, &mut unit);
        }
        let mut core = self.core.lock();
        core.combined.taken -= 1;
        unit.room.into_iter().for_each(|room| core.space.lock().credit.give_back(room));
        for carried in &unit.pieces {
            core.leaves_combined(carried.ino);
            core.lose(carried, Lost::NoZone);
            core.let_go(carried.ino);
        }
        core.tell_of_room(self);
        match result {
            // The sync of each file reports it.
            Err(FsError::NoSpace) => Ok(()),
            other => other,
        }
    }

    /// Sends as many of the pieces as a zone has room for.
    fn send_some(&self, waiter: &dyn Wait, unit: &mut CombinedUnit) -> Result<(), FsError> {
        // The writes found room for their rows.
        self.admit(waiter, Touched::Changed)?;
        self.leave_out_gone(unit);
        let Some(first) = unit.pieces.first() else { return Ok(()) };
        let wish = Wish::of_many(unit.hint);
        let (mut core, Placed { opened, blocks }) =
            self.place_by(waiter, first.ino, |_| Ok(wish), unit.blocks)?;
        if let Some(room) = &mut unit.room {
            core.space.lock().spend_on_unit(room, blocks)?;
        }
        let (now, later) = core.split(std::mem::take(&mut unit.pieces), blocks);
        for carried in &now {
            core.leaves_combined(carried.ino);
        }
        if now.len() > 1 {
            core.statistics.combined_units += 1;
            core.statistics.combined_pieces += now.len() as u64;
        }
        drop(core);
        let whole = std::mem::take(&mut unit.buf);
        let buf = if later.is_empty() || !self.has_data() {
            if whole.is_empty() { self.buffer(|_| {}) } else { whole }
        } else {
            unit.buf = self.buffer(|data| move_pieces(&whole, &later, data));
            whole
        };
        unit.blocks = later.iter().map(|(piece, _)| piece.blocks).sum();
        unit.pieces = later.into_iter().map(|(piece, _)| piece).collect();
        self.send(waiter, AppendUnit::new(opened.zone, now), buf);
        Ok(())
    }

    /// Leaves out the pieces of files that are gone.
    fn leave_out_gone(&self, unit: &mut CombinedUnit) {
        let kept = {
            let core = self.core.lock();
            let mut at = 0;
            let mut kept = Vec::with_capacity(unit.pieces.len());
            for piece in &unit.pieces {
                if core.nodes.here(piece.ino).is_some() {
                    kept.push((*piece, at));
                }
                at += piece.blocks;
            }
            kept
        };
        if kept.len() == unit.pieces.len() {
            return;
        }
        if self.has_data() && !kept.is_empty() {
            unit.buf = self.buffer(|data| move_pieces(&unit.buf, &kept, data));
        }
        unit.blocks = kept.iter().map(|(piece, _)| piece.blocks).sum();
        unit.pieces = kept.into_iter().map(|(piece, _)| piece).collect();
    }
}

/// Moves pieces, each of which lies at a block of `from`'s data, together.
fn move_pieces(from: &IoBuf, pieces: &[(Carried, u32)], data: &mut [u8]) {
    let mut to = 0;
    for (piece, at) in pieces {
        let (at, bytes) = (HEADER_BYTES + *at as usize * BLOCK, piece.blocks as usize * BLOCK);
        data[to..][..bytes].copy_from_slice(&from[at..][..bytes]);
        to += bytes;
    }
}

impl CombinedUnit {
    fn new(hint: Lifetime, since: Nanos) -> CombinedUnit {
        CombinedUnit { pieces: Vec::new(), blocks: 0, room: None, hint, buf: IoBuf::empty(), since }
    }
}

impl Core {
    /// A unit with pieces of a file, if one waits for more.
    fn take_combined(&mut self, ino: u64) -> Option<CombinedUnit> {
        let _waits = self.nodes.here(ino).filter(|node| node.combined > 0)?;
        self.combined.take_if(|unit| unit.pieces.iter().any(|piece| piece.ino == ino))
    }

    /// A unit waits for more pieces again: a thread that waits for one of its files may send it.
    fn put_back_combined(&mut self, unit: CombinedUnit) {
        if !self.room.is_empty() {
            let pieces = &unit.pieces;
            self.room.tell(|what| pieces.iter().any(|piece| what == WaitsFor::File(piece.ino)));
        }
        self.combined.taken -= 1;
        self.combined.here.push(unit);
    }

    /// A piece of a file waits for others no more.
    fn leaves_combined(&mut self, ino: u64) {
        if let Some(mut node) = self.nodes.here(ino) {
            node.combined = node.combined.saturating_sub(1);
        }
    }

    /// The first `blocks` of `pieces`, and the others, each with the block at which its data lies. A piece that is cut is two from
    /// then on.
    fn split(&mut self, pieces: Vec<Carried>, blocks: u32) -> (Vec<Carried>, Vec<(Carried, u32)>) {
        let (mut now, mut later, mut at) = (Vec::with_capacity(pieces.len()), Vec::new(), 0);
        for piece in pieces {
            let fits = blocks.saturating_sub(at).min(piece.blocks);
            if fits == 0 {
                later.push((piece, at));
            } else {
                now.push(Carried { blocks: fits, ..piece });
                let rest = piece.block + u64::from(fits)..piece.end();
                let rests = self.cut_off(piece.ino, piece.number, &rest);
                let place = |rest: &Carried| at + (rest.block - piece.block) as u32;
                later.extend(rests.into_iter().map(|rest| (rest, place(&rest))));
            }
            at += piece.blocks;
        }
        (now, later)
    }

    /// Makes a write of its own of what write `number` still has of `range`. Blocks that a later write has are left out: a number of
    /// their own would make them newer than that.
    fn cut_off(&mut self, ino: u64, number: u64, range: &Range<u64>) -> Vec<Carried> {
        if range.is_empty() {
            return Vec::new();
        }
        let Some(node) = self.nodes.here(ino) else { return Vec::new() };
        let own = node.dirty.own(range, number);
        drop(node);
        own.into_iter().map(|part| self.cut_off_part(ino, number, part)).collect()
    }

    fn cut_off_part(&mut self, ino: u64, number: u64, part: Range<u64>) -> Carried {
        let next = self.next_number();
        if let Some(mut node) = self.nodes.here(ino) {
            drop(node.dirty.take(&part, next));
            node.in_flight.begin(next, std::iter::once(number));
            node.combined += 1;
        }
        let blocks = (part.end - part.start) as u32;
        Carried { ino, block: part.start, blocks, number: next, source: Source::Write }
    }

    /// How long data of a file is expected to live, as far as it decides where the data goes.
    pub(super) fn hint_of(&mut self, shared: &Shared, ino: u64) -> Lifetime {
        match self.nodes.here(ino) {
            Some(node) if shared.options.lifetimes => node.attributes.expected_lifetime(),
            _ => Lifetime::NotSet,
        }
    }
}
