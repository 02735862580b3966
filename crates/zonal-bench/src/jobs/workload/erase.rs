//! Resets a worker's zones before a pass with verification, so that no reset happens during the
//! pass.

use super::WorkerStep;
use super::zones::{Locking, Room, Zones};
use std::ops::Range;
use zonal_core::ZoneIndex;

/// Sequence of resets over a range of zones.
pub(super) struct Erase {
    /// Remaining zones, starting with the current one.
    zones: Range<u32>,
    stage: EraseStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EraseStage {
    Look,
    Locked,
    Under,
}

impl Erase {
    pub(super) fn new(zones: Range<u32>) -> Erase {
        Erase { zones, stage: EraseStage::Look }
    }

    /// Returns the next step, or `None` at the end.
    pub(super) fn next(&mut self, is_exclusive: bool, zones: &Zones) -> Option<WorkerStep> {
        loop {
            if self.zones.is_empty() {
                return None;
            }
            let zone = ZoneIndex(self.zones.start);
            match self.stage {
                EraseStage::Look if !is_wanted(zone, zones) => self.zones.start += 1,
                EraseStage::Look => match zones.lock(zone, is_exclusive) {
                    Locking::Taken => return Some(WorkerStep::Wait),
                    Locking::Locked => self.stage = EraseStage::Locked,
                },
                EraseStage::Locked if !zones.is_quiet(zone) => return Some(WorkerStep::Wait),
                EraseStage::Locked => {
                    self.stage = EraseStage::Under;
                    zones.will_be_reset(zone);
                    return Some(WorkerStep::Reset(zone));
                }
                EraseStage::Under => return Some(WorkerStep::Wait),
            }
        }
    }

    /// Continues after a reset has completed.
    pub(super) fn managed(&mut self) {
        self.stage = EraseStage::Look;
        self.zones.start += 1;
    }

    /// Releases the lock, if held.
    pub(super) fn abandon(self, zones: &Zones, is_exclusive: bool) {
        if self.stage != EraseStage::Look && !self.zones.is_empty() {
            zones.unlock(ZoneIndex(self.zones.start), is_exclusive);
        }
    }
}

fn is_wanted(zone: ZoneIndex, zones: &Zones) -> bool {
    !zones.geometry().is_conventional(zone)
        && zones.pointer(zone) > 0
        && zones.can_take(zone, 0, Room::AfterReset)
}
