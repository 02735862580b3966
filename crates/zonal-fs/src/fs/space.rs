//! Space of a file system: zone accounts, open zones, credits, and zones to finish or give up.
//!
//! The parts are those of [`crate::space`]; this module has the operations on several of them. They
//! share one lock, because most changes affect more than one part: closing a zone removes it from
//! the open ones, and its remaining space is no longer credit.
//!
//! # When the core is needed as well
//! Threads that wait for space are in the core's waiting room. So anything that may end a wait
//! (space that is freed, given back or made available) is done under the core's lock, and its
//! holder notifies the waiting room. Taking or inspecting space needs only this lock.

use super::beginnings::Beginnings;
use super::error::FsError;
use super::map::Freed;
use crate::BLOCK_BYTES;
use crate::format::{Account, key};
use crate::space::cost::Need;
use crate::space::credits::Credits;
use crate::space::open::{OpenZones, PlacementRequest, ZONES_MIN};
use crate::space::victims::{Reason, needs_gc};
use crate::space::zone::{Lost, Pin, Zone, ZoneState};
use crate::space::zones::ZoneBook;
use crate::space::{self, BookError, Choice, Lifetime, Opened, Owner, Reservation, Urgency, ZoneOrder};
use crate::store::Rows;
use crate::store::locked::{InOrder, Rank};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use zonal_core::ZoneIndex;

/// Number of failed resets after which a zone is given up.
const RESET_FAILURES_MAX: u32 = 3;

/// Number of attempts to finish a zone before it is left as it is.
const FINISHES_MAX: u32 = 3;

/// Free zones reserved for the collector when the store takes one during a commit.
const FREE_MIN: u32 = 1;

/// Place of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) opened: Opened,
    /// Number of data blocks.
    pub(super) blocks: u32,
}

/// Space and its lock.
pub(super) struct SpaceLock(Mutex<Space>);

impl SpaceLock {
    pub(super) fn new(space: Space) -> SpaceLock {
        SpaceLock(Mutex::new(space))
    }

    pub(super) fn lock(&self) -> InOrder<MutexGuard<'_, Space>> {
        InOrder::lock(Rank::Space, || self.0.lock())
    }
}

/// State guarded by the lock.
pub(super) struct Space {
    pub(super) book: ZoneBook,
    pub(super) open: OpenZones,
    pub(super) credit: Credits,
    begun: Arc<Beginnings>,
    /// Blocks of the largest unit, including its header.
    unit_blocks: u32,
    zone_order: ZoneOrder,
    closed: Closed,
    /// Zones with data that the collector cannot read. They are excluded from collection.
    damaged: BTreeSet<ZoneIndex>,
    /// Number of failed resets of each zone.
    reset_failures: HashMap<ZoneIndex, u32>,
    /// Zones with account changes since the last commit.
    changed: BTreeSet<ZoneIndex>,
    /// Zones that have completed their last unit since the list was taken.
    ended: Vec<ZoneIndex>,
}

/// Zones closed before they were full, which remain active until they are finished.
#[derive(Debug, Default)]
struct Closed {
    zones: Vec<ZoneIndex>,
    /// Zones being finished by the drive. They are not reset meanwhile: a late finish would end the
    /// zone's next use.
    finishing: Vec<ZoneIndex>,
    /// Number of failed attempts for each zone.
    failures: HashMap<ZoneIndex, u32>,
}

impl Space {
    /// Creates the space from its parts and the zones that were closed early. `unit_blocks`
    /// includes the header of the largest unit.
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

    /// Allocates space for a unit of up to `blocks` data blocks; `None` if the caller has to wait.
    pub(super) fn place(
        &mut self,
        request: PlacementRequest,
        blocks: u32,
    ) -> Result<Option<Placed>, FsError> {
        loop {
            let free = self.book.count(ZoneState::Free);
            let opened = match self.open.choose(request, free) {
                Choice::Zone(opened) => opened,
                Choice::OpenNew if self.has_closed() => return Ok(None),
                Choice::OpenNew => match self.open_zone(request) {
                    Some(opened) => opened,
                    None => return Ok(None),
                },
                Choice::Wait => return Ok(None),
            };
            let room = self.book.zone(opened.zone)?.available();
            let mut unit = (blocks + 1).min(room).min(self.unit_blocks);
            // A single remaining block would be unusable.
            if room - unit == 1 && unit > 2 {
                unit -= 1;
            }
            if unit < 2 {
                self.close(opened.zone)?;
                continue;
            }
            self.book.allocate(opened.zone, unit)?;
            self.update_state(opened.zone)?;
            return Ok(Some(Placed { opened, blocks: unit - 1 }));
        }
    }

    /// Like [`Space::place`], for all `blocks` in one unit, without a reservation. Closes zones
    /// with less space.
    pub(super) fn place_whole(
        &mut self,
        request: PlacementRequest,
        blocks: u32,
    ) -> Result<Option<Placed>, FsError> {
        while let Some(placed) = self.place(request, blocks)? {
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

    fn open_zone(&mut self, request: PlacementRequest) -> Option<Opened> {
        let zone = self.book.take_free(self.zone_order)?;
        let (hint, owner) = match request {
            PlacementRequest::User { hint, .. } => (hint, Owner::User),
            PlacementRequest::Gc => (Lifetime::NotSet, Owner::Gc),
        };
        Some(self.open.open(zone, hint, owner))
    }

    /// Closes a zone for further data.
    pub(super) fn close(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        if self.book.zone(zone)?.state == ZoneState::Open {
            let lost = self.book.close(zone)?;
            self.credit.lost(lost);
            self.closed.zones.push(zone);
        }
        self.update_state(zone)
    }

    /// Ends a unit of `blocks` blocks, `live` of them with live data.
    pub(super) fn unit_ended(&mut self, zone: ZoneIndex, blocks: u32, live: u32) -> Result<(), BookError> {
        self.book.end(zone, blocks, live)?;
        if live > 0 {
            self.changed.insert(zone);
        }
        Ok(())
    }

    /// Checks whether a zone has become full, and whether its writes have completed.
    pub(super) fn update_state(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
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

    /// Returns the zones that have completed their last unit since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<ZoneIndex> {
        std::mem::take(&mut self.ended)
    }

    /// Frees live blocks of a zone, as of the layer of rows with this number. Returns true if they
    /// become free space.
    pub(super) fn free(&mut self, freed: Freed, number: u64) -> Result<bool, BookError> {
        let zone = ZoneIndex(freed.zone);
        let account = self.book.free(zone, freed.blocks, number)?;
        self.changed.insert(zone);
        Ok(account.is_writable())
    }

    /// Records that the drive no longer writes the zone. An offline zone stays offline. Returns
    /// true if it was not offline before.
    pub(super) fn lose(&mut self, zone: ZoneIndex, how: Lost) -> Result<bool, BookError> {
        let is_new = self.book.zone(zone)?.state != ZoneState::Offline;
        if is_new {
            let lost = self.book.lose(zone, how)?;
            self.credit.lost(lost);
            self.closed.forget(zone);
        }
        self.update_state(zone)?;
        Ok(is_new)
    }

    /// Number of live blocks in zones in `state`.
    pub(super) fn live_in(&self, state: ZoneState) -> u64 {
        if self.book.count(state) == 0 {
            return 0;
        }
        let zones = self.book.iter().filter(|(_, account)| account.state == state);
        zones.map(|(_, account)| u64::from(account.used)).sum()
    }

    /// Uses up reserved space.
    pub(super) fn spend(
        &mut self,
        reservation: &mut Reservation,
        extents: u64,
        available: u64,
    ) -> Result<(), FsError> {
        let need = Need { extents, available };
        self.credit.spend(reservation, need).map_err(|e| FsError::Account(e.to_string()))
    }

    /// Uses up space for a unit of this many data blocks. Data that crosses zones has more headers
    /// than were reserved.
    pub(super) fn spend_on_unit(&mut self, room: &mut Reservation, blocks: u32) -> Result<(), FsError> {
        let wanted = u64::from(blocks) + 1;
        let owed = wanted.saturating_sub(room.left().available);
        self.spend(room, u64::from(blocks), wanted - owed)?;
        self.room_lost(owed as u32);
        Ok(())
    }

    /// Accounts for space used without a reservation, by resubmitting a failed unit.
    pub(super) fn room_lost(&mut self, blocks: u32) {
        self.credit.lost(Need { extents: 0, available: blocks.into() });
    }

    /// Allocates space for a unit of copies, from the pool reserved for them.
    pub(super) fn place_copy(&mut self, blocks: u32) -> Result<Option<Placed>, FsError> {
        let need = Need { extents: 0, available: u64::from(blocks) + 1 };
        let Ok(mut reservation) = self.credit.reserve(need, Urgency::Gc) else { return Ok(None) };
        let placed = self.place(PlacementRequest::Gc, blocks)?;
        if let Some(placed) = placed {
            self.spend(&mut reservation, 0, u64::from(placed.blocks) + 1)?;
        }
        self.credit.give_back(reservation);
        Ok(placed)
    }

    /// Returns the reason for garbage collection, if it is needed.
    pub(super) fn needs_gc(&self, low_space_percent: u8) -> Option<Reason> {
        needs_gc(space::pressure(&self.book, &self.open, &self.credit, low_space_percent))
    }

    /// Begins a collection: writers are throttled to the collector's pace from now on.
    pub(super) fn collection_begins(&mut self) {
        let mark = space::pace_mark(&self.book, &self.open, &self.credit);
        self.credit.gc_runs(mark);
    }

    /// Statistics for display; `low_space_percent` is the option.
    pub(super) fn statistics(&self, low_space_percent: u8) -> space::Statistics {
        space::Statistics::of(&self.book, &self.open, &self.credit, low_space_percent)
    }

    /// Checks the accounts against each other, while nothing is in flight.
    ///
    /// # Panics
    /// If they are inconsistent, which is a bug.
    pub(super) fn check(&self) {
        space::check(&self.book, &self.open, &self.credit);
    }

    /// Makes the capacity of a zone available after a reset.
    pub(super) fn was_reset(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        let blocks = self.book.end_reset(zone)?;
        self.begun.was_reset(zone.0);
        self.credit.made_available(blocks.into());
        self.changed.insert(zone);
        self.closed.forget(zone);
        Ok(())
    }

    /// Handles a failed reset. A zone counts as read-only after a few of them.
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

    /// Unpins zones with unreadable data once no file refers to that data. `victim`, which is being
    /// collected, keeps its pin until the end of the collection.
    pub(super) fn unpin_damaged(&mut self, victim: Option<ZoneIndex>) -> Result<(), BookError> {
        let is_over = |zone: &ZoneIndex| {
            Some(*zone) != victim && self.book.zone(*zone).is_ok_and(|account| account.used == 0)
        };
        for zone in self.damaged.extract_if(.., is_over).collect::<Vec<_>>() {
            self.book.unpin(zone, Pin::Copy)?;
        }
        Ok(())
    }

    /// Excludes a zone from collection until its immovable blocks are gone.
    pub(super) fn exclude_from_gc(&mut self, zone: ZoneIndex) {
        self.damaged.insert(zone);
    }

    /// Ends the collection of a zone. With unreadable data the zone stays pinned.
    pub(super) fn collection_ended(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        if self.damaged.contains(&zone) {
            return Ok(());
        }
        self.book.unpin(zone, Pin::Copy)
    }

    /// Returns the open user zone that is best closed for writers that would find no space
    /// otherwise. It is mostly garbage, its remaining space is too little for them, and only closed
    /// zones are collected.
    pub(super) fn best_closed_for_room(&self) -> Option<ZoneIndex> {
        if self.credit.waiting() == 0 {
            return None;
        }
        let pool = self.credit.pool().available;
        let users = self.open.iter().filter(|open| open.owner == Owner::User).map(|open| open.opened.zone);
        // Copies of its data use the pool, and so does the loss of its remaining space.
        let gains = |zone: &ZoneIndex| {
            let account = self.book.zone(*zone).ok()?;
            let suits = self.book.gains_once_closed(*zone) && pool >= account.capacity.into();
            suits.then_some((account.used, *zone))
        };
        users.filter_map(|zone| gains(&zone)).min().map(|(_, zone)| zone)
    }

    /// True if zones that were closed early are still active.
    pub(super) fn has_closed(&self) -> bool {
        !self.closed.zones.is_empty() || !self.closed.finishing.is_empty()
    }

    /// True while a zone is being finished.
    pub(super) fn is_finishing(&self, zone: ZoneIndex) -> bool {
        self.closed.finishing.contains(&zone)
    }

    /// Returns a zone that was closed early and has no writes in flight. The caller finishes it and
    /// calls [`Space::finished`].
    pub(super) fn next_to_finish(&mut self) -> Option<ZoneIndex> {
        // The reset of a zone ends its active state anyway.
        let is_due = |zone: &ZoneIndex| {
            self.book.zone(*zone).is_ok_and(|account| {
                account.written == account.allocated && account.state != ZoneState::Resetting
            })
        };
        let place = self.closed.zones.iter().position(is_due)?;
        let zone = self.closed.zones.swap_remove(place);
        self.closed.finishing.push(zone);
        Some(zone)
    }

    /// Records the result of finishing a zone.
    pub(super) fn finished(&mut self, zone: ZoneIndex, is_done: bool) {
        self.closed.finishing.retain(|other| *other != zone);
        // A zone lost meanwhile is not active.
        if !is_done && self.book.zone(zone).is_ok_and(Zone::is_writable) {
            self.closed.failed(zone);
        }
    }

    /// True if the data can spare a zone: the minimum is needed to open a file system.
    pub(super) fn can_lend(&self) -> bool {
        self.book.len() - self.book.count(ZoneState::Reserved) > ZONES_MIN
    }

    /// Blocks of the zones that the store could take at once while leaving some.
    pub(super) fn blocks_to_lend(&self) -> u64 {
        let free = self.book.count(ZoneState::Free).saturating_sub(FREE_MIN + 1);
        let most = (self.book.len() - self.book.count(ZoneState::Reserved)).saturating_sub(ZONES_MIN);
        u64::from(free.min(most)) * u64::from(self.book.zone_blocks())
    }

    /// Lends the lowest free zone to the store, from its reservation.
    pub(super) fn lend(&mut self, reservation: &mut Reservation) -> Result<Option<ZoneIndex>, FsError> {
        let Some(zone) = self.book.lowest_free() else { return Ok(None) };
        let Need { extents, available } = self.book.lend(zone)?;
        self.spend(reservation, extents, available)?;
        Ok(Some(zone))
    }

    /// Lends the lowest free zone to the store without a reservation.
    pub(super) fn lend_at_once(&mut self, is_last: bool) -> Option<ZoneIndex> {
        // With fewer zones for data the file system could not be opened again.
        if !self.can_lend() || !is_last && self.book.count(ZoneState::Free) <= FREE_MIN {
            return None;
        }
        let zone = self.book.lowest_free()?;
        let lost = self.book.lend(zone).ok()?;
        self.credit.lost(lost);
        Some(zone)
    }

    /// Takes a zone of `capacity` blocks back from the store.
    pub(super) fn take_back(&mut self, zone: ZoneIndex, capacity: u32) -> Result<(), BookError> {
        let Need { extents, available } = self.book.take_back(zone, capacity)?;
        self.credit.freed(extents);
        self.credit.made_available(available);
        Ok(())
    }

    /// True if no account has changed since the last commit.
    pub(super) fn is_clean(&self) -> bool {
        self.changed.is_empty()
    }

    /// Writes changed accounts to their rows.
    pub(super) fn note_accounts(&mut self, rows: &mut Rows) -> Result<(), BookError> {
        for zone in std::mem::take(&mut self.changed) {
            let (used, resets) = (self.book.zone(zone)?.used, self.book.resets(zone));
            let begun = self.begun.of(zone.0).filter(|_| used > 0).unwrap_or(0);
            rows.put(key::zone(zone.0), Account { used, resets, begun }.encode());
        }
        Ok(())
    }

    /// True if users may have another unit in flight. They have `in_flight` blocks there and
    /// `waiting` blocks in buffers, together limited to `dirty_bytes`.
    pub(super) fn has_room(&self, in_flight: u64, waiting: u64, dirty_bytes: u64) -> bool {
        let most = dirty_bytes / u64::from(BLOCK_BYTES);
        let is_low = in_flight + waiting < most && in_flight < self.credit.share_in_flight(most);
        is_low || in_flight == 0
    }
}

impl Closed {
    /// Forgets a zone that is reset or lost.
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
