//! Zones that were closed before they were full, which take resources of the drive until they are finished.
//!
//! While there are any, no zone is opened: the drive would have more active zones than it allows, and refuse the write. So
//! a thread that waits for anything finishes them first.

use super::core::{Core, Shared};
use super::error::FsError;
use super::waiting::WaitsFor;
use crate::space::Owner;
use crate::space::zone::ZoneState;
use crate::waiter::Waiter;
use std::collections::HashMap;
use zonal_core::{Op, ZoneIndex};

/// Times that a zone is finished before it is left as it is.
const TRIES_MAX: u32 = 3;

/// The zones that are to be finished.
#[derive(Debug, Default)]
pub(super) struct Closed {
    zones: Vec<ZoneIndex>,
    /// How many the drive is finishing.
    finishing: u32,
    /// How often it has failed.
    failures: HashMap<ZoneIndex, u32>,
}

impl Closed {
    pub(super) fn new(zones: Vec<ZoneIndex>) -> Closed {
        Closed { zones, ..Closed::default() }
    }

    pub(super) fn push(&mut self, zone: ZoneIndex) {
        self.zones.push(zone);
    }

    /// The zone is reset or lost: it takes nothing any more.
    pub(super) fn forget(&mut self, zone: ZoneIndex) {
        self.zones.retain(|other| *other != zone);
        self.failures.remove(&zone);
    }

    /// Whether no such zone takes resources of the drive.
    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty() && self.finishing == 0
    }

    fn failed(&mut self, zone: ZoneIndex) {
        let failures = self.failures.entry(zone).or_default();
        *failures += 1;
        if *failures < TRIES_MAX {
            self.zones.push(zone);
        }
    }
}

impl Shared {
    /// Finishes zones that were closed early and have no writes in flight, and returns whether there was one.
    pub(super) fn finish_closed(&self, waiter: &dyn Waiter) -> bool {
        let mut did = false;
        loop {
            let next = self.lock().next_to_finish();
            let Some(zone) = next else { return did };
            let result = self.drive.zone(waiter, Op::ZoneFinish, zone);
            let mut core = self.core.lock();
            core.to_finish.finishing -= 1;
            if result.is_err() {
                core.to_finish.failed(zone);
            }
            core.room.tell(|what| what == WaitsFor::Units);
            core.tell_of_room(self);
            did = true;
        }
    }
}

impl Core {
    /// Closes an open zone of users that is mostly garbage, for writers that would find no space otherwise. What is left of
    /// it is too little for them, and only closed zones are collected. Returns whether there was one.
    pub(super) fn close_for_room(&mut self) -> Result<bool, FsError> {
        if self.credit.waiting() == 0 || self.gc_is_helpless {
            return Ok(false);
        }
        let pool = self.credit.pool().available;
        let users = self.open.iter().filter(|open| open.owner == Owner::User).map(|open| open.opened.zone);
        // Copies of its data come out of the pool, and so does what is left of it.
        let gains = |zone: &ZoneIndex| {
            let account = self.book.zone(*zone).ok()?;
            let suits = self.book.gains_once_closed(*zone) && pool >= account.capacity.into();
            suits.then_some((account.used, *zone))
        };
        let Some((_, zone)) = users.filter_map(|zone| gains(&zone)).min() else { return Ok(false) };
        self.close(zone).map(|()| true)
    }

    fn next_to_finish(&mut self) -> Option<ZoneIndex> {
        // A zone that is being reset gives its resources back anyway.
        let is_due = |zone: &ZoneIndex| {
            self.book.zone(*zone).is_ok_and(|account| {
                account.written == account.allocated && account.state != ZoneState::Resetting
            })
        };
        let place = self.to_finish.zones.iter().position(is_due)?;
        self.to_finish.finishing += 1;
        Some(self.to_finish.zones.swap_remove(place))
    }
}
