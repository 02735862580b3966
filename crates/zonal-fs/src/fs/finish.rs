//! Zones that were closed before they were full, which take resources of the drive until they are finished.
//!
//! As long as there are any, no zone is opened: the drive would have more that are active than it allows, and refuse the write.
//! So whoever waits for anything sees to them first.

use super::core::{Core, Shared};
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
    /// At the drive for it.
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

    /// Whether none takes resources that somebody else may want.
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
    /// Finishes zones that were closed early and have no writes under way; whether there was one.
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
            did = true;
        }
    }
}

impl Core {
    fn next_to_finish(&mut self) -> Option<ZoneIndex> {
        // One that is being reset gives its resources back by itself.
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
