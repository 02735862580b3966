//! Combined units: short pieces of several files, or of several places in a file, in one unit.
//!
//! Each unit costs a header and a command, which is much for a closed file of one block or for an
//! overwritten block. So a short tail that will not grow joins a unit with others. This unit is
//! sent when it is full, when a sync, read or truncation needs one of its pieces, when the buffers
//! are full, or after a timeout.
//!
//! # Invariants
//! - A piece counts as in flight from the moment it joins: it has its number, and a later write of
//!   its blocks replaces it, whichever unit is sent first.
//! - Space for a piece is reserved.
//! - A thread that waits for data of a file sends the units that contain pieces of it, so no thread
//!   waits for a unit that is still being filled. A unit taken by another thread is returned or
//!   sent.
//! - Pieces of deleted files are dropped.

use super::core::{Core, CoreGuard, Shared};
use super::error::{FsError, Lost};
use super::flight::{AppendUnit, Carried, Source};
use super::room::Touched;
use super::space::Placed;
use super::waiting::WaitsFor;
use super::write_buffer::BufferedTail;
use crate::BLOCK_BYTES;
use crate::format::{HEADER_BYTES, Header};
use crate::space::open::PlacementRequest;
use crate::space::{Lifetime, Reservation};
use crate::waiter::Wait;
use std::ops::Range;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;

const BLOCK: usize = BLOCK_BYTES as usize;

/// A piece is short if at least this many of its size fit in a unit. A longer one is worth its own
/// header, and is more expensive to copy.
const SHORT_PART: u32 = 4;

/// Maximum number of units being filled: one for each lifetime, and some for concurrent threads.
const UNITS_MAX: u64 = 8;

/// Combined units being filled.
#[derive(Default, Debug)]
pub(super) struct CombinedUnits {
    here: Vec<CombinedUnit>,
    /// Number of units taken by threads.
    taken: u32,
}

/// Blocks of a file that are too few for a unit of their own.
pub(super) struct ShortPiece<'a> {
    pub(super) range: Range<u64>,
    /// End of the written range, as a byte offset in the file.
    pub(super) end: u64,
    pub(super) room: Reservation,
    /// Empty if the device keeps no data.
    pub(super) bytes: &'a [u8],
    /// True if they were the file's tail, taken by the caller.
    pub(super) is_tail: bool,
}

/// Combined unit being filled.
#[derive(Debug)]
pub(super) struct CombinedUnit {
    /// Pieces, with contiguous data.
    pieces: Vec<Carried>,
    /// Total blocks of the pieces.
    blocks: u32,
    /// Space reserved for them.
    room: Option<Reservation>,
    hint: Lifetime,
    /// Space for a header, followed by the data; empty if the device keeps no data.
    buf: IoBuf,
    since: Nanos,
}

impl CombinedUnits {
    /// Returns the number of units being filled.
    pub(super) fn count(&self) -> u64 {
        self.here.len() as u64
    }

    /// True while a thread adds to a unit or sends one.
    pub(super) fn has_taken(&self) -> bool {
        self.taken > 0
    }

    /// Returns the start time of the oldest unit.
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
    /// True if another piece of `blocks` fits in a unit of at most `most` data blocks.
    fn takes(&self, blocks: u32, most: u32) -> bool {
        let all = self.blocks + blocks;
        all <= most && self.pieces.len() < Header::records_max(all)
    }
}

impl Shared {
    /// True if a piece of `blocks` should be combined with others.
    pub(super) fn is_short(&self, blocks: u32) -> bool {
        blocks * SHORT_PART < self.unit_blocks()
    }

    /// Moves a tail taken from its write buffer into a combined unit.
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

    /// Adds a piece to a combined unit.
    pub(super) fn combine(&self, waiter: &dyn Wait, ino: u64, piece: ShortPiece<'_>) -> Result<(), FsError> {
        let ShortPiece { range, end, room, bytes, is_tail } = piece;
        let blocks = (range.end - range.start) as u32;
        let most = self.unit_blocks() - 1;
        let (carried, mut unit) = {
            let mut core = self.core.lock();
            let number = match core.begin_write(ino, &range, end) {
                Ok(number) => number,
                Err(error) => {
                    core.space.lock().credit.give_back(room);
                    if is_tail {
                        core.tail_is_gone(ino);
                    }
                    // The file was deleted while its data was buffered.
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

    /// Sends the combined units with a start time that satisfies `meant`.
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

    /// Locks the core once `ready` returns true, or returns its error. Sends units with pieces of
    /// the file until then.
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

    /// Sends a taken unit. Lost data is reported by the next sync of its file.
    fn send_unit(&self, waiter: &dyn Wait, mut unit: CombinedUnit) -> Result<(), FsError> {
        let mut result = Ok(());
        while !unit.pieces.is_empty() && result.is_ok() {
            result = self.send_some(waiter, &mut unit);
        }
        let mut core = self.core.lock();
        core.combined.taken -= 1;
        unit.room.into_iter().for_each(|room| core.space.lock().credit.give_back(room));
        for carried in &unit.pieces {
            core.piece_left(carried.ino);
            core.lose(carried, Lost::NoZone);
            core.drop_if_unused(carried.ino);
        }
        core.notify_room(self);
        match result {
            // Reported by the sync of each file. A read continues without the data.
            Err(FsError::NoSpace | FsError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    /// Sends as many of the pieces as fit in a zone.
    fn send_some(&self, waiter: &dyn Wait, unit: &mut CombinedUnit) -> Result<(), FsError> {
        // Space for new rows was reserved by the writes.
        self.admit(waiter, Touched::Changed)?;
        self.drop_deleted(unit);
        let Some(first) = unit.pieces.first() else { return Ok(()) };
        let request = PlacementRequest::of_many(unit.hint);
        let (mut core, Placed { opened, blocks }) =
            self.place_by(waiter, first.ino, |_| Ok(request), unit.blocks_of_next())?;
        if let Some(room) = &mut unit.room {
            core.space.lock().spend_on_unit(room, blocks)?;
        }
        let (now, later) = core.split(std::mem::take(&mut unit.pieces), blocks);
        for carried in &now {
            core.piece_left(carried.ino);
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

    /// Drops the pieces of deleted files.
    fn drop_deleted(&self, unit: &mut CombinedUnit) {
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

/// Copies pieces, each with its block offset in `from`'s data, to a contiguous range.
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

    /// Number of blocks of the first pieces that one header has room for. A piece that was split at the
    /// end of a zone may leave many.
    fn blocks_of_next(&self) -> u32 {
        let mut blocks = 0;
        for (before, piece) in self.pieces.iter().enumerate() {
            if before >= Header::records_max(blocks + piece.blocks) {
                break;
            }
            blocks += piece.blocks;
        }
        blocks
    }
}

impl Core {
    /// Takes a combined unit with pieces of a file, if there is one.
    fn take_combined(&mut self, ino: u64) -> Option<CombinedUnit> {
        let _waits = self.nodes.here(ino).filter(|node| node.combined > 0)?;
        self.combined.take_if(|unit| unit.pieces.iter().any(|piece| piece.ino == ino))
    }

    /// Returns a unit that is not full. Wakes threads that wait for its files, because they may
    /// send it.
    fn put_back_combined(&mut self, unit: CombinedUnit) {
        if !self.room.is_empty() {
            let pieces = &unit.pieces;
            self.room.wake_all(|what| pieces.iter().any(|piece| what == WaitsFor::File(piece.ino)));
        }
        self.combined.taken -= 1;
        self.combined.here.push(unit);
    }

    /// Notes that a piece of a file has left its combined unit.
    fn piece_left(&mut self, ino: u64) {
        if let Some(mut node) = self.nodes.here(ino) {
            node.combined = node.combined.saturating_sub(1);
        }
    }

    /// Splits `pieces` after `blocks` blocks. Each later piece is returned with the block offset of
    /// its data. A piece that straddles the boundary is cut in two.
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

    /// Turns the blocks of `range` still owned by write `number` into a write of their own. Blocks
    /// of later writes are skipped: a new number would make the older data the newer one.
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

    /// Expected lifetime of a file's data, as far as it affects placement.
    pub(super) fn hint_of(&mut self, shared: &Shared, ino: u64) -> Lifetime {
        match self.nodes.here(ino) {
            Some(node) if shared.options.lifetimes => node.attributes.expected_lifetime(),
            _ => Lifetime::NotSet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splitting a piece leaves a piece for each range that was not overwritten meanwhile.
    #[test]
    fn unit_of_more_pieces_than_a_header_takes_leaves_in_parts() {
        let mut unit = CombinedUnit::new(Lifetime::NotSet, Nanos(0));
        let piece = |n| Carried { ino: 1, block: 2 * n, blocks: 1, number: n, source: Source::Write };
        unit.pieces = (0..127).map(piece).collect();
        let blocks = unit.blocks_of_next();
        assert!(blocks > 60 && blocks as usize <= Header::records_max(blocks), "{blocks}");
        unit.pieces.truncate(40);
        assert_eq!(unit.blocks_of_next(), 40);
    }
}
