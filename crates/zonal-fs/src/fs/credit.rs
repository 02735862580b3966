//! Reservation of space before anything is written.

use super::core::Shared;
use super::error::FsError;
use super::seat::Seat;
use super::waiting::WaitsFor;
use crate::space::cost::Need;
use crate::space::credits::{Answer, Credits, Refusal, Ticket};
use crate::space::{Reservation, Urgency};
use crate::waiter::Wait;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Space wanted by a caller.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// A unit of up to this many data blocks.
    UpTo(u32),
    /// All of this.
    All(Need),
}

impl Wanted {
    fn need(self, credit: &Credits) -> Need {
        match self {
            Wanted::UpTo(blocks) => need(u64::from(blocks).min(credit.user().extents).max(1)),
            Wanted::All(need) => need,
        }
    }
}

impl Shared {
    /// Reserves space, waiting in line if necessary. A waiting thread collects garbage unless
    /// another thread does.
    pub(super) fn reserve(&self, waiter: &dyn Wait, wanted: Wanted) -> Result<Reservation, FsError> {
        loop {
            let compactions = self.compactions.load(Ordering::Acquire);
            let answered = self.units.lock().answered_count();
            let result = self.try_reserve(waiter, wanted);
            if !matches!(result, Err(FsError::NoSpace)) {
                return result;
            }
            // A thread that could not wait may have left blocks of deleted files.
            let gone = self.lock().deleted.mark();
            if gone.is_some() {
                self.free_deleted(gone, Some(waiter))?;
                continue;
            }
            // Units in flight free the blocks that they overwrite.
            if self.await_answer(waiter, answered)? {
                continue;
            }
            // The store may have superfluous zones, or another thread may have returned some.
            if self.lock().rows.will_be_sparse() {
                self.compact_for_space(waiter)?;
            }
            let has_shrunk = self.shrink_store_alone(waiter)?;
            if self.compactions.load(Ordering::Acquire) == compactions && !has_shrunk {
                return result;
            }
        }
    }

    /// Waits until more than `answered` units have been answered, or none of users is in flight.
    /// Returns true for the first.
    ///
    /// The caller may have taken the tail of a file. No unit in flight needs that to complete.
    fn await_answer(&self, waiter: &dyn Wait, answered: u64) -> Result<bool, FsError> {
        let mut has_answer = false;
        drop(self.lock_when(waiter, WaitsFor::Units, |core| {
            core.check_writable()?;
            let units = core.units.lock();
            has_answer = units.answered_count() > answered;
            Ok(has_answer || !units.has_users())
        })?);
        Ok(has_answer)
    }

    fn try_reserve(&self, waiter: &dyn Wait, wanted: Wanted) -> Result<Reservation, FsError> {
        let reserve = |urgency| {
            let credit = &mut self.space.lock().credit;
            credit.reserve(wanted.need(credit), urgency)
        };
        if let Ok(reservation) = reserve(Urgency::NoWait) {
            return Ok(reservation);
        }
        let ticket = {
            // Taking the lock processes pending answers, which may free space.
            let _core = self.lock();
            match reserve(Urgency::Wait) {
                Ok(reservation) => return Ok(reservation),
                Err(Refusal::NoSpace) => return Err(FsError::NoSpace),
                Err(Refusal::WouldWait) => return Err(FsError::WouldWait),
                Err(Refusal::Queued(ticket)) => ticket,
            }
        };
        let begin = waiter.now();
        let granted = self.wait_in_line(waiter, ticket);
        let mut core = self.core.lock();
        let stalled = waiter.now().0.saturating_sub(begin.0);
        core.statistics.stalls += 1;
        core.statistics.stalled_nanos += stalled;
        core.statistics.stall_nanos_max = core.statistics.stall_nanos_max.max(stalled);
        granted
    }

    /// Reserves a whole zone for the metadata store; `None` if less is left for users.
    pub(super) fn reserve_zone(&self, waiter: &dyn Wait) -> Result<Option<Reservation>, FsError> {
        let need = self.need_of_zone();
        let core = self.lock();
        let reserved = self.space.lock().credit.reserve(need, Urgency::Wait);
        drop(core);
        let ticket = match reserved {
            Ok(reservation) => return Ok(Some(reservation)),
            Err(Refusal::NoSpace | Refusal::WouldWait) => return Ok(None),
            Err(Refusal::Queued(ticket)) => ticket,
        };
        match self.wait_in_line(waiter, ticket) {
            Err(FsError::NoSpace) => Ok(None),
            other => other.map(Some),
        }
    }

    fn wait_in_line(&self, waiter: &dyn Wait, mut ticket: Ticket) -> Result<Reservation, FsError> {
        let mut seat = Seat::new(self, waiter, WaitsFor::Space(ticket.number()));
        loop {
            let mut core = self.lock();
            if let Err(error) = core.check_writable() {
                core.space.lock().credit.abandon(ticket);
                seat.leave(&mut core);
                return Err(error);
            }
            let answer = self.space.lock().credit.state(ticket);
            match answer {
                Answer::Granted(reservation) => {
                    seat.leave(&mut core);
                    return Ok(reservation);
                }
                Answer::NoSpace => {
                    seat.leave(&mut core);
                    return Err(FsError::NoSpace);
                }
                Answer::Waiting(again) => ticket = again,
            }
            if !seat.should_step(&core) {
                seat.wait(core);
                continue;
            }
            seat.step_out(core);
            self.resend(waiter);
            match self.background_step(waiter) {
                Ok(true) => {}
                Ok(false) => seat.found_no_step(),
                Err(error) => {
                    self.core.lock().space.lock().credit.abandon(ticket);
                    return Err(error);
                }
            }
        }
    }
}

/// Space reserved by a call and not yet used. It is reserved for the whole call, or for a unit, so
/// that the call does not wait in line again at the end of a tail or zone. The rest is given back
/// at the end of the call.
pub(super) struct CallRoom<'a> {
    shared: &'a Shared,
    left: Option<Reservation>,
}

impl<'a> CallRoom<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        CallRoom { shared, left: None }
    }

    /// Reserves space for units of a block each, for the `edges` of a range of a held file, before
    /// its blocks `whole` are freed. If space is short, frees a piece of them that makes room.
    ///
    /// # Errors
    /// If no space is left, no block was freed.
    pub(super) fn take_for_edges(
        &mut self,
        waiter: &dyn Wait,
        (ino, whole): (u64, &Range<u64>),
        edges: u64,
    ) -> Result<(), FsError> {
        let need = Need { extents: edges, available: 2 * edges };
        let reserve = |need| self.shared.reserve_tail(waiter, Wanted::All(need));
        match reserve(need) {
            Err(FsError::NoSpace) if !whole.is_empty() => {}
            other => return other.map(|room| self.put_back(room)),
        }
        // Freed blocks are written only once their zone has been reset.
        let room = match reserve(Need { extents: 0, ..need }) {
            Err(FsError::NoSpace) => Reservation::nothing(),
            other => other?,
        };
        let room = self.left.insert(room);
        let need = need.checked_sub(room.left()).expect("it has no more");
        match self.shared.free_for(waiter, (ino, whole), room, need)? {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        }
    }

    /// Takes space for `blocks` data blocks and a header, out of the `rest` that the call still has
    /// to write; for fewer blocks if space is short.
    ///
    /// # Errors
    /// No space is left.
    pub(super) fn take(&mut self, waiter: &dyn Wait, blocks: u64, rest: u64) -> Result<Reservation, FsError> {
        let here = self.left.as_ref().map_or(0, |left| left.left().extents);
        if here < blocks {
            let wanted = rest.min(u64::from(self.shared.unit_blocks() - 1)).max(blocks);
            match self.shared.reserve_tail(waiter, Wanted::UpTo((wanted - here) as u32)) {
                Ok(more) => self.put_back(more),
                Err(error) if error.is_no_space() && here > 0 => {}
                Err(error) => return Err(error),
            }
        }
        let left = self.left.as_mut().expect("some is left, or was got");
        let extents = blocks.min(left.left().extents);
        let available = (extents + 1).min(left.left().available);
        Ok(left.split(Need { extents, available }).expect("no more than is left"))
    }

    /// Returns unused space.
    pub(super) fn put_back(&mut self, room: Reservation) {
        match &mut self.left {
            Some(left) => left.join(room),
            None => self.left = Some(room),
        }
    }
}

impl Drop for CallRoom<'_> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.shared.core.lock().space.lock().credit.give_back(left);
        }
    }
}

/// Space for a unit of `blocks` data blocks.
fn need(blocks: u64) -> Need {
    Need { extents: blocks, available: blocks + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Metadata, Superblock};
    use crate::fs::{FileSystem, MountOptions};
    use crate::store::Rows;
    use crate::store::backend::Memory;
    use crate::waiter::Polling;
    use std::sync::Arc;
    use zonal_io::clock::Clock;
    use zonal_io::registry::Registry;
    use zonal_io::volume::{Volume, VolumeOptions};

    #[test]
    fn call_reserves_once_for_all_that_it_writes() {
        let waiter = Polling::new(Clock::start());
        let device = Registry::default().open("ram:size=8M,zone_size=1M,blocksize=4096").unwrap();
        let volume = Arc::new(Volume::open(device, VolumeOptions::default()).unwrap());
        let superblock =
            Superblock::new(*b"zonal-room-of-a!", &volume.info().geometry, 64, Metadata::Beside, 0);
        let mut rows = Rows::open(Memory::new(), 1 << 20).unwrap();
        FileSystem::make(&mut rows, &superblock, &waiter).unwrap();
        let fs = FileSystem::open(volume, rows, superblock, MountOptions::default(), true, &waiter).unwrap();
        let user = || fs.0.space.lock().credit.user();
        let before = user();
        let mut room = CallRoom::new(&fs.0);
        // Ten blocks fill up a tail; thirty remain.
        let ten = room.take(&waiter, 10, 40).unwrap();
        assert_eq!(ten.left(), Need { extents: 10, available: 11 });
        let after = user();
        assert_eq!(before - after, Need { extents: 40, available: 41 });
        let thirty = room.take(&waiter, 30, 30).unwrap();
        assert_eq!((thirty.left().extents, user()), (30, after));
        // A zone ends within the unit; twenty blocks remain.
        room.put_back(thirty);
        let twenty = room.take(&waiter, 20, 20).unwrap();
        assert_eq!((twenty.left().extents, user()), (20, after));
        room.put_back(twenty);
        drop(room);
        fs.0.space.lock().credit.give_back(ten);
        assert_eq!(user(), before);
        // At most a unit is reserved at once.
        let mut room = CallRoom::new(&fs.0);
        let much = room.take(&waiter, 20, 1000).unwrap();
        assert_eq!(before - user(), Need { extents: 63, available: 64 });
        room.put_back(much);
        drop(room);
        assert_eq!(user(), before);
    }
}
