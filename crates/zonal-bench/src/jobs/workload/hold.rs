//! A worker's way to the zone of its next I/O, where zones are held: a state, whose steps depend on who has the zone.

use super::zones::Zones;
use zonal_core::ZoneIndex;

/// Whether a worker waits for the zone that its next I/O will go to, or has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HoldStage {
    #[default]
    Apart,
    /// Lets its own I/O end before it waits for this zone.
    Draining(ZoneIndex),
    InLine(ZoneIndex),
    Has(ZoneIndex),
}

/// What ends a worker's wait, apart from the end of an I/O of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// Nothing else.
    Nothing,
    /// That it is the first in line for this zone and no worker has it.
    Zone(ZoneIndex),
    /// That another worker gets on.
    Others,
}

/// One worker's hold on the zone that its next I/O goes to.
pub(super) struct Hold {
    /// Whether it keeps to fio's rule at all.
    is_kept: bool,
    worker: u32,
    stage: HoldStage,
}

impl Hold {
    pub(super) fn new(is_kept: bool, worker: u32) -> Hold {
        Hold { is_kept, worker, stage: HoldStage::Apart }
    }

    /// What ends its wait.
    pub(super) fn awaits(&self) -> Awaits {
        match self.stage {
            HoldStage::Draining(_) => Awaits::Nothing,
            HoldStage::InLine(zone) => Awaits::Zone(zone),
            HoldStage::Apart | HoldStage::Has(_) => Awaits::Others,
        }
    }

    /// The zone that it waits for or has.
    pub(super) fn zone(&self) -> Option<ZoneIndex> {
        match self.stage {
            HoldStage::Apart => None,
            HoldStage::Draining(zone) | HoldStage::InLine(zone) | HoldStage::Has(zone) => Some(zone),
        }
    }

    /// Whether zones have to be held.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Takes the next step to a zone, with `in_flight` I/Os of its own, and gives up any other; whether it has it.
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
            holds.line_up(zone, self.worker);
            self.stage = HoldStage::InLine(zone);
        }
        if self.stage == HoldStage::InLine(zone) && holds.take_in_turn(zone, self.worker) {
            self.stage = HoldStage::Has(zone);
        }
        self.stage == HoldStage::Has(zone)
    }

    /// The I/O that goes out now keeps the zone; whether there is one.
    pub(super) fn hand_over(&mut self) -> bool {
        let has_one = matches!(self.stage, HoldStage::Has(_));
        if has_one {
            self.stage = HoldStage::Apart;
        }
        has_one
    }

    /// Gives up what it has and what it waits for.
    pub(super) fn give_up(&mut self, zones: &Zones) {
        let Some(holds) = zones.holds() else { return };
        match std::mem::take(&mut self.stage) {
            HoldStage::Has(zone) => holds.give_back(zone),
            HoldStage::InLine(zone) => holds.leave(zone, self.worker),
            HoldStage::Apart | HoldStage::Draining(_) => {}
        }
    }
}
