//! The space of a file system: accounts of zones, the open ones, credits, and zones that are yet to be finished or were given up.
//!
//! The parts are those of [`crate::space`]; here is what happens to several of them at once. They have one lock of their own, because most
//! changes of one are changes of another: a zone that is closed leaves the open ones, and what was left of it is no credit any more.
//!
//! # Who needs the core as well
//! Threads that wait for space are in the core's waiting room. So whatever may end a wait (space that is freed, given back or made available) is
//! done under the core's lock, whose holder tells the waiting room. What takes space, or only looks, needs no more than this lock.

use super::beginnings::Beginnings;
use super::error::FsError;
use super::map::Freed;
use crate::BLOCK_BYTES;
use crate::format::{Account, key};
use crate::space::cost::Need;
use crate::space::credits::Credits;
use crate::space::open::{OpenZones, Wish, ZONES_MIN};
use crate::space::victims::{Reason, needs_gc};
use crate::space::zone::{Lost, Pin, ZoneState};
use crate::space::zones::ZoneBook;
use crate::space::{self, BookError, Choice, Lifetime, Opened, Owner, Reservation, Urgency, ZoneOrder};
use crate::store::Rows;
use crate::store::locked::{InOrder, Rank};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use zonal_core::ZoneIndex;

/// Failed resets after which a zone is given up.
const RESET_FAILURES_MAX: u32 = 3;

/// Times that a zone is finished before it is left as it is.
const FINISHES_MAX: u32 = 3;

/// Free zones that a commit leaves the collector.
const FREE_MIN: u32 = 1;

/// Where a unit goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) opened: Opened,
    /// Data blocks.
    pub(super) blocks: u32,
}

/// The space and its lock.
pub(super) struct SpaceLock(Mutex<Space>);

impl SpaceLock {
    pub(super) fn new(space: Space) -> SpaceLock {
        SpaceLock(Mutex::new(space))
    }

    pub(super) fn lock(&self) -> InOrder<MutexGuard<'_, Space>> {
        InOrder::lock(Rank::Space, || self.0.lock())
    }
}

/// What the lock guards.
pub(super) struct Space {
    pub(super) book: ZoneBook,
    pub(super) open: OpenZones,
    pub(super) credit: Credits,
    begun: Arc<Beginnings>,
    /// Blocks of the largest unit, header included.
    unit_blocks: u32,
    zone_order: ZoneOrder,
    closed: Closed,
    /// Zones with data that the collector cannot read: it leaves them alone.
    damaged: BTreeSet<ZoneIndex>,
    /// How often resets of a zone have failed.
    reset_failures: HashMap<ZoneIndex, u32>,
    /// Zones whose account has changed since the last commit.
    changed: BTreeSet<ZoneIndex>,
    /// Zones that have got their last unit since the list was taken.
    ended: Vec<ZoneIndex>,
}

/// Zones closed before they were full, which take resources of the drive until they are finished.
#[derive(Debug, Default)]
struct Closed {
    zones: Vec<ZoneIndex>,
    /// How many the drive is finishing.
    finishing: u32,
    /// How often it has failed.
    failures: HashMap<ZoneIndex, u32>,
}

impl Space {
    /// Space with these parts, and zones that were closed early, of a file system whose largest unit has `unit_blocks` with its header.
    pub(super) fn new(
        book: ZoneBook,
        open: OpenZones,
        credit: Credits,
        begun: Arc<Beginnings>,
        closed: Vec<ZoneIndex>,
        unit_blocks: u32,
        zone_order: ZoneOrder,
    ) -> Space {
        Space {
            book,
            open,
            credit,
            begun,
            unit_blocks,
            zone_order,
            closed: Closed { zones: closed, ..Closed::default() },
            damaged: BTreeSet::new(),
            reset_failures: HashMap::new(),
            changed: BTreeSet::new(),
            ended: Vec::new(),
        }
    }

    /// Hands out room for a unit of up to `blocks` data blocks; `None` if the caller has to wait.
    pub(super) fn place(&mut self, wish: Wish, blocks: u32) -> Result<Option<Placed>, FsError> {
        loop {
            let free = self.book.count(ZoneState::Free);
            let opened = match self.open.choose(wish, free) {
                Choice::Zone(opened) => opened,
                Choice::OpenNew if self.has_closed() => return Ok(None),
                Choice::OpenNew => match self.open_zone(wish) {
                    Some(opened) => opened,
                    None => return Ok(None),
                },
                Choice::Wait => return Ok(None),
            };
            let room = self.book.zone(opened.zone)?.available();
            let mut unit = (blocks + 1).min(room).min(self.unit_blocks);
            // One block left could hold nothing.
            if room - unit == 1 && unit > 2 {
                unit -= 1;
            }
            if unit < 2 {
                self.close(opened.zone)?;
                continue;
            }
            self.book.allocate(opened.zone, unit)?;
            self.look_at(opened.zone)?;
            return Ok(Some(Placed { opened, blocks: unit - 1 }));
        }
    }

    /// The same for all of `blocks` in one unit, without a reservation: zones with less room are closed.
    pub(super) fn place_whole(&mut self, wish: Wish, blocks: u32) -> Result<Option<Placed>, FsError> {
        while let Some(placed) = self.place(wish, blocks)? {
            self.room_lost(placed.blocks + 1);
            if placed.blocks == blocks {
                return Ok(Some(placed));
            }
            let zone = placed.opened.zone;
            self.unit_ended(zone, placed.blocks + 1, 0)?;
            self.close(zone)?;
        }
        Ok(None)
    }

    fn open_zone(&mut self, wish: Wish) -> Option<Opened> {
        let zone = self.book.take_free(self.zone_order)?;
        let (hint, owner) = match wish {
            Wish::User { hint, .. } => (hint, Owner::User),
            Wish::Gc => (Lifetime::NotSet, Owner::Gc),
        };
        Some(self.open.open(zone, hint, owner))
    }

    /// A zone gets no more data.
    pub(super) fn close(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        if self.book.zone(zone)?.state == ZoneState::Open {
            let lost = self.book.close(zone)?;
            self.credit.lost(lost);
            self.closed.zones.push(zone);
        }
        self.look_at(zone)
    }

    /// A unit of `blocks` blocks has ended, of which `live` hold data of files.
    pub(super) fn unit_ended(&mut self, zone: ZoneIndex, blocks: u32, live: u32) -> Result<(), BookError> {
        self.book.end(zone, blocks, live)?;
        if live > 0 {
            self.changed.insert(zone);
        }
        Ok(())
    }

    /// Looks whether a zone takes no more data, and whether its writes have ended.
    pub(super) fn look_at(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        let account = *self.book.zone(zone)?;
        if account.state != ZoneState::Open {
            self.open.filled(zone);
            if account.written == account.allocated {
                self.open.remove(zone);
                self.ended.push(zone);
            }
        }
        Ok(())
    }

    /// Zones that have got their last unit since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<ZoneIndex> {
        std::mem::take(&mut self.ended)
    }

    /// Live blocks of a zone are live no more as of the layer of rows with this number. Returns whether they become free.
    pub(super) fn free(&mut self, freed: Freed, number: u64) -> Result<bool, BookError> {
        let zone = ZoneIndex(freed.zone);
        let account = self.book.free(zone, freed.blocks, number)?;
        self.changed.insert(zone);
        Ok(account.is_writable())
    }

    /// The drive will not write the zone any more. An offline zone stays offline. Returns whether it is lost by this.
    pub(super) fn lose(&mut self, zone: ZoneIndex, how: Lost) -> Result<bool, BookError> {
        let is_new = self.book.zone(zone)?.state != ZoneState::Offline;
        if is_new {
            let lost = self.book.lose(zone, how)?;
            self.credit.lost(lost);
            self.closed.forget(zone);
        }
        self.look_at(zone)?;
        Ok(is_new)
    }

    /// Live blocks of zones in `state`.
    pub(super) fn live_in(&self, state: ZoneState) -> u64 {
        if self.book.count(state) == 0 {
            return 0;
        }
        let zones = self.book.iter().filter(|(_, account)| account.state == state);
        zones.map(|(_, account)| u64::from(account.used)).sum()
    }

    /// Hands out room that was reserved.
    pub(super) fn spend(
        &mut self,
        reservation: &mut Reservation,
        extents: u64,
        available: u64,
    ) -> Result<(), FsError> {
        let need = Need { extents, available };
        self.credit.spend(reservation, need).map_err(|e| FsError::Account(e.to_string()))
    }

    /// Hands out room for a unit of this many data blocks. Data that crosses zones has more headers than were reserved.
    pub(super) fn spend_on_unit(&mut self, room: &mut Reservation, blocks: u32) -> Result<(), FsError> {
        let wanted = u64::from(blocks) + 1;
        let owed = wanted.saturating_sub(room.left().available);
        self.spend(room, u64::from(blocks), wanted - owed)?;
        self.room_lost(owed as u32);
        Ok(())
    }

    /// Counts room that was handed out without a reservation: for a unit that failed.
    pub(super) fn room_lost(&mut self, blocks: u32) {
        self.credit.lost(Need { extents: 0, available: blocks.into() });
    }

    /// Room for a unit of copies, from the pool that is kept for them.
    pub(super) fn place_copy(&mut self, blocks: u32) -> Result<Option<Placed>, FsError> {
        let need = Need { extents: 0, available: u64::from(blocks) + 1 };
        let Ok(mut reservation) = self.credit.reserve(need, Urgency::Gc) else { return Ok(None) };
        let placed = self.place(Wish::Gc, blocks)?;
        if let Some(placed) = placed {
            self.spend(&mut reservation, 0, u64::from(placed.blocks) + 1)?;
        }
        self.credit.give_back(reservation);
        Ok(placed)
    }

    /// Whether and why zones have to be collected.
    pub(super) fn needs_gc(&self, low_space_percent: u8) -> Option<Reason> {
        needs_gc(space::pressure(&self.book, &self.open, &self.credit, low_space_percent))
    }

    /// A zone is collected from now on: writers go at the collector's pace.
    pub(super) fn collection_begins(&mut self) {
        let mark = space::pace_mark(&self.book, &self.open, &self.credit);
        self.credit.gc_runs(mark);
    }

    /// What is shown of it; `low_space_percent` is the option.
    pub(super) fn statistics(&self, low_space_percent: u8) -> space::Statistics {
        space::Statistics::of(&self.book, &self.open, &self.credit, low_space_percent)
    }

    /// Compares the accounts with each other, while nothing is in flight.
    ///
    /// # Panics
    /// If they contradict each other: a bug.
    pub(super) fn check(&self) {
        space::check(&self.book, &self.open, &self.credit);
    }

    /// A zone was reset: its capacity can be written.
    pub(super) fn was_reset(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        let blocks = self.book.end_reset(zone)?;
        self.begun.was_reset(zone.0);
        self.credit.made_available(blocks.into());
        self.changed.insert(zone);
        self.closed.forget(zone);
        Ok(())
    }

    /// A zone was not reset. It is tried again a few times, and then it counts as read-only.
    pub(super) fn reset_failed(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        self.book.fail_reset(zone)?;
        let failures = self.reset_failures.entry(zone).or_default();
        *failures += 1;
        if *failures == RESET_FAILURES_MAX {
            let lost = self.book.lose(zone, Lost::ReadOnly)?;
            self.credit.lost(lost);
        }
        Ok(())
    }

    /// Unpins zones that were left alone for data that could not be read, once no file has that data. `victim`, which is being collected,
    /// keeps its pin until its collection has ended.
    pub(super) fn let_damaged_go(&mut self, victim: Option<ZoneIndex>) -> Result<(), BookError> {
        let is_over = |zone: &ZoneIndex| {
            Some(*zone) != victim && self.book.zone(*zone).is_ok_and(|account| account.used == 0)
        };
        for zone in self.damaged.extract_if(.., is_over).collect::<Vec<_>>() {
            self.book.unpin(zone, Pin::Copy)?;
        }
        Ok(())
    }

    /// Some blocks of a zone cannot be moved: it is not collected again before they are gone.
    pub(super) fn leave_alone(&mut self, zone: ZoneIndex) {
        self.damaged.insert(zone);
    }

    /// The collection of a zone has ended. What could not be read keeps its zone: the pin stays.
    pub(super) fn collection_ended(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        if self.damaged.contains(&zone) {
            return Ok(());
        }
        self.book.unpin(zone, Pin::Copy)
    }

    /// The open zone of users that is best closed for writers that would find no space otherwise: it is mostly garbage, what is left of it is too
    /// little for them, and only closed zones are collected.
    pub(super) fn best_closed_for_room(&self) -> Option<ZoneIndex> {
        if self.credit.waiting() == 0 {
            return None;
        }
        let pool = self.credit.pool().available;
        let users = self.open.iter().filter(|open| open.owner == Owner::User).map(|open| open.opened.zone);
        // Copies of its data come out of the pool, and so does what is left of it.
        let gains = |zone: &ZoneIndex| {
            let account = self.book.zone(*zone).ok()?;
            let suits = self.book.gains_once_closed(*zone) && pool >= account.capacity.into();
            suits.then_some((account.used, *zone))
        };
        users.filter_map(|zone| gains(&zone)).min().map(|(_, zone)| zone)
    }

    /// Whether zones that were closed early take resources of the drive.
    pub(super) fn has_closed(&self) -> bool {
        !self.closed.zones.is_empty() || self.closed.finishing > 0
    }

    /// A zone that was closed early and has no writes in flight: the caller finishes it, and calls [`Space::finished`].
    pub(super) fn next_to_finish(&mut self) -> Option<ZoneIndex> {
        // A zone that is being reset gives its resources back anyway.
        let is_due = |zone: &ZoneIndex| {
            self.book.zone(*zone).is_ok_and(|account| {
                account.written == account.allocated && account.state != ZoneState::Resetting
            })
        };
        let place = self.closed.zones.iter().position(is_due)?;
        self.closed.finishing += 1;
        Some(self.closed.zones.swap_remove(place))
    }

    /// The drive has finished a zone, or has failed to.
    pub(super) fn finished(&mut self, zone: ZoneIndex, is_done: bool) {
        self.closed.finishing -= 1;
        if !is_done {
            self.closed.failed(zone);
        }
    }

    /// Whether the data can do with a zone less: with fewer than this a file system does not open.
    pub(super) fn can_lend(&self) -> bool {
        self.book.len() - self.book.count(ZoneState::Reserved) > ZONES_MIN
    }

    /// Blocks of the zones that the store could have at once, and leave some.
    pub(super) fn blocks_to_lend(&self) -> u64 {
        let free = self.book.count(ZoneState::Free).saturating_sub(FREE_MIN + 1);
        let most = (self.book.len() - self.book.count(ZoneState::Reserved)).saturating_sub(ZONES_MIN);
        u64::from(free.min(most)) * u64::from(self.book.zone_blocks())
    }

    /// Gives the lowest free zone to the store, out of what was reserved for it.
    pub(super) fn lend(&mut self, reservation: &mut Reservation) -> Result<Option<ZoneIndex>, FsError> {
        let Some(zone) = self.book.lowest_free() else { return Ok(None) };
        let Need { extents, available } = self.book.lend(zone)?;
        self.spend(reservation, extents, available)?;
        Ok(Some(zone))
    }

    /// Gives the lowest free zone to the store though none was reserved.
    pub(super) fn lend_at_once(&mut self) -> Option<ZoneIndex> {
        if self.book.count(ZoneState::Free) <= FREE_MIN || !self.can_lend() {
            return None;
        }
        let zone = self.book.lowest_free()?;
        let lost = self.book.lend(zone).ok()?;
        self.credit.lost(lost);
        Some(zone)
    }

    /// The store gives a zone of `capacity` blocks back.
    pub(super) fn take_back(&mut self, zone: ZoneIndex, capacity: u32) -> Result<(), BookError> {
        let Need { extents, available } = self.book.take_back(zone, capacity)?;
        self.credit.freed(extents);
        self.credit.made_available(available);
        Ok(())
    }

    /// Whether no account has changed since the last commit.
    pub(super) fn is_clean(&self) -> bool {
        self.changed.is_empty()
    }

    /// Puts the accounts that have changed into rows.
    pub(super) fn note_accounts(&mut self, rows: &mut Rows) -> Result<(), BookError> {
        for zone in std::mem::take(&mut self.changed) {
            let (used, resets) = (self.book.zone(zone)?.used, self.book.resets(zone));
            let begun = self.begun.of(zone.0).filter(|_| used > 0).unwrap_or(0);
            rows.put(key::zone(zone.0), Account { used, resets, begun }.encode());
        }
        Ok(())
    }

    /// Whether users may have another unit in flight, with `in_flight` blocks of theirs there, `waiting` blocks in buffers, and `dirty_bytes` of both
    /// at most.
    pub(super) fn has_room(&self, in_flight: u64, waiting: u64, dirty_bytes: u64) -> bool {
        let most = dirty_bytes / u64::from(BLOCK_BYTES);
        let is_low = in_flight + waiting < most && in_flight < self.credit.share_in_flight(most);
        is_low || in_flight == 0
    }
}

impl Closed {
    /// The zone is reset or lost: it takes nothing any more.
    fn forget(&mut self, zone: ZoneIndex) {
        self.zones.retain(|other| *other != zone);
        self.failures.remove(&zone);
    }

    fn failed(&mut self, zone: ZoneIndex) {
        let failures = self.failures.entry(zone).or_default();
        *failures += 1;
        if *failures < FINISHES_MAX {
            self.zones.push(zone);
        }
    }
}

impl From<BookError> for FsError {
    fn from(error: BookError) -> FsError {
        FsError::Account(error.to_string())
    }
}
