//! For a caller that cannot report each write: what it sees of the zones when it matters.
//!
//! A write path whose usual write touches one word cannot tell the budget of each. It looks at the zones that hold slots
//! when another zone lacks one, and says what it saw: [`Budget::observe`] stands in for [`Budget::write_started`] and
//! [`Budget::write_ended`]. A zone that was written since the last look counts as busy for this one, although nothing is
//! under way: its writer may be between two writes.

use super::holding::Held;
use super::ledger::Budget;
use super::options::{Fill, WriterClass};
use super::slots::When;
use crate::units::ZoneIndex;

/// What is seen of a zone that holds an open slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Something of it is under way or waits to be.
    Busy,
    /// Nothing is.
    Idle,
    /// Nothing is, but it cannot be closed or finished as it is.
    Stuck,
}

impl Budget {
    /// `zone` has been looked at. Returns whether it counts as busy: something is under way, or it was written since the
    /// last look. Nothing happens to a zone that holds no open slot or is being closed or finished.
    pub fn observe(&mut self, zone: ZoneIndex, seen: Seen, fill: Fill) -> bool {
        let Some(&known) = self.zones.get(&zone) else { return false };
        if known.held != Held::Open || known.leaving.is_some() {
            return known.leaving.is_some();
        }
        let moved = fill.written != known.written;
        let busy = seen == Seen::Busy || moved;
        let stuck = seen == Seen::Stuck;
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

    /// Nothing of `zone` is under way any more, whatever was seen of it. To be said before [`Budget::became`].
    pub fn quiet(&mut self, zone: ZoneIndex) {
        if self.zones.contains_key(&zone) {
            self.change_known(zone, |h| h.writes = 0);
        }
    }

    /// Whether `zone` has its slots and is not being closed or finished.
    pub fn has_slot(&self, zone: ZoneIndex) -> bool {
        self.zones.get(&zone).is_some_and(|h| h.held == Held::Open && h.leaving.is_none())
    }

    /// Whether [`BudgetStep::Close`](super::BudgetStep::Close) or [`BudgetStep::Finish`](super::BudgetStep::Finish) has named `zone`,
    /// and the caller has not said yet what it became.
    pub fn is_leaving(&self, zone: ZoneIndex) -> bool {
        self.zones.get(&zone).is_some_and(|h| h.leaving.is_some())
    }

    /// Whether `zone` would get no slot if it asked now.
    pub fn is_short(&self, zone: ZoneIndex, class: WriterClass) -> bool {
        let known = self.zones.get(&zone);
        let needs = known.map_or(crate::device::Needs::ActiveAndOpen, |h| h.needs());
        let class = known.map_or(class, |h| h.class);
        self.slots.lack(class, needs, When::Now).is_some()
    }

    /// Whether no zone waits and [`Budget::next`] has nothing to say.
    pub fn is_at_rest(&self) -> bool {
        self.woken.is_empty() && self.waiting().next().is_none()
    }
}
