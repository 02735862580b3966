//! State machine by which a worker acquires the zone of its next I/O under fio's ownership rule.

use super::zones::Zones;
use zonal_core::ZoneIndex;

/// Progress of a worker towards the zone of its next I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HoldStage {
    #[default]
    Apart,
    /// Waits for its own I/O to complete before it queues for this zone.
    Draining(ZoneIndex),
    InLine(ZoneIndex),
    Has(ZoneIndex),
}

/// Event that ends a worker's wait, other than completion of its own I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// None.
    Nothing,
    /// It is first in the queue for this zone, and the zone is free.
    Zone(ZoneIndex),
    /// Any progress of another worker.
    Others,
}

/// Hold of a worker on the zone of its next I/O.
pub(super) struct Hold {
    /// True if the worker follows fio's ownership rule at all.
    is_kept: bool,
    worker: u32,
    stage: HoldStage,
}

impl Hold {
    pub(super) fn new(is_kept: bool, worker: u32) -> Hold {
        Hold { is_kept, worker, stage: HoldStage::Apart }
    }

    /// Event that ends its wait.
    pub(super) fn awaits(&self) -> Awaits {
        match self.stage {
            HoldStage::Draining(_) => Awaits::Nothing,
            HoldStage::InLine(zone) => Awaits::Zone(zone),
            HoldStage::Apart | HoldStage::Has(_) => Awaits::Others,
        }
    }

    /// Zone that it waits for or holds.
    pub(super) fn zone(&self) -> Option<ZoneIndex> {
        match self.stage {
            HoldStage::Apart => None,
            HoldStage::Draining(zone) | HoldStage::InLine(zone) | HoldStage::Has(zone) => Some(zone),
        }
    }

    /// True if zones have to be held.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Advances towards holding `zone`, with `in_flight` I/Os of its own in flight, and releases
    /// any other zone. True if `zone` is held.
    pub(super) fn take(&mut self, zone: ZoneIndex, in_flight: u32, zones: &Zones) -> bool {
        let Some(holds) = zones.holds().filter(|_| self.is_kept) else { return true };
        match self.stage {
            HoldStage::Apart => {}
            HoldStage::Has(held) | HoldStage::Draining(held) | HoldStage::InLine(held) if held == zone => {}
            _ => self.give_up(zones),
        }
        if self.stage == HoldStage::Apart {
            let is_free = holds.take(zone, self.worker);
            self.stage = if is_free { HoldStage::Has(zone) } else { HoldStage::Draining(zone) };
        }
        if self.stage == HoldStage::Draining(zone) && in_flight == 0 {
            holds.enqueue(zone, self.worker);
            self.stage = HoldStage::InLine(zone);
        }
        if self.stage == HoldStage::InLine(zone) && holds.acquire_if_first(zone, self.worker) {
            self.stage = HoldStage::Has(zone);
        }
        self.stage == HoldStage::Has(zone)
    }

    /// Transfers the hold to the I/O being issued, which releases it on completion. True if a zone
    /// was held.
    pub(super) fn hand_over(&mut self) -> bool {
        let has_one = matches!(self.stage, HoldStage::Has(_));
        if has_one {
            self.stage = HoldStage::Apart;
        }
        has_one
    }

    /// Releases the zone and leaves the queue.
    pub(super) fn give_up(&mut self, zones: &Zones) {
        let Some(holds) = zones.holds() else { return };
        match std::mem::take(&mut self.stage) {
            HoldStage::Has(zone) => holds.give_back(zone),
            HoldStage::InLine(zone) => holds.leave(zone, self.worker),
            HoldStage::Apart | HoldStage::Draining(_) => {}
        }
    }
}
