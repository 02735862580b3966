//! Observation of zones, for callers that cannot report each write.
//!
//! In a write path where most writes touch only one word, reporting each write to the budget would
//! be too expensive. Such a caller inspects the zones that hold slots when another zone lacks one:
//! [`Budget::observe`] replaces [`Budget::write_started`] and [`Budget::write_ended`]. A zone that
//! was written since the last observation counts as busy once more even if nothing is in flight,
//! because its writer may be between two writes.

use super::holding::Held;
use super::ledger::Budget;
use super::options::{Fill, WriterClass};
use super::slots::Horizon;
use crate::units::ZoneIndex;

/// Observed activity of a zone that holds an open slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Writes are in flight or waiting.
    Busy,
    /// No activity.
    Idle,
    /// No activity, but the zone cannot be closed or finished in its present state.
    Stuck,
}

impl Budget {
    /// Records an observation of `zone`. Returns true if the zone is busy: writes are in flight or
    /// waiting, or it was written since the last observation, or it is being closed or finished.
    /// Has no effect on a zone that holds no open slot or is being closed or finished.
    pub fn observe(&mut self, zone: ZoneIndex, activity: Activity, fill: Fill) -> bool {
        let Some(&known) = self.zones.get(&zone) else { return false };
        if known.held != Held::Open || known.leaving.is_some() {
            return known.leaving.is_some();
        }
        let moved = fill.written != known.written;
        let busy = activity == Activity::Busy || moved;
        let stuck = activity == Activity::Stuck;
        if moved || known.writes != busy.into() || known.stuck != stuck || busy && known.reserved.is_some() {
            let used = if busy { self.tick() } else { known.used };
            self.change_known(zone, |h| {
                h.writes = busy.into();
                h.reserved = h.reserved.filter(|_| !busy);
                (h.stuck, h.written, h.used) = (stuck, fill.written, used);
                h.nearly_full = fill.is_nearly_full();
            });
        }
        busy
    }

    /// Declares `zone` quiet, whatever was observed before. Call it before
    /// [`Budget::set_condition`].
    pub fn quiet(&mut self, zone: ZoneIndex) {
        if self.zones.contains_key(&zone) {
            self.change_known(zone, |h| h.writes = 0);
        }
    }

    /// True if `zone` has its slots and is not being closed or finished.
    pub fn has_slot(&self, zone: ZoneIndex) -> bool {
        self.zones.get(&zone).is_some_and(|h| h.held == Held::Open && h.leaving.is_none())
    }

    /// True from the time when [`BudgetStep::Close`](super::BudgetStep::Close) or
    /// [`BudgetStep::Finish`](super::BudgetStep::Finish) was returned for `zone` until its new
    /// condition is reported.
    pub fn is_leaving(&self, zone: ZoneIndex) -> bool {
        self.zones.get(&zone).is_some_and(|h| h.leaving.is_some())
    }

    /// True if `zone` would get no slot at present.
    pub fn is_short(&self, zone: ZoneIndex, class: WriterClass) -> bool {
        let known = self.zones.get(&zone);
        let needs = known.map_or(crate::device::Needs::ActiveAndOpen, |h| h.needs());
        let class = known.map_or(class, |h| h.class);
        self.slots.missing_slot(class, needs, Horizon::Now).is_some()
    }

    /// True if no zone waits and [`Budget::next`] has no wake-up to return.
    pub fn is_at_rest(&self) -> bool {
        self.woken.is_empty() && self.waiting().next().is_none()
    }
}
