//! Resets of a worker's zones before a pass whose data is to be verified, so that none comes in between.

use super::WorkerStep;
use super::zones::{Locking, Room, Zones};
use std::ops::Range;
use zonal_core::ZoneIndex;

/// Resets of a range of zones, one after the other.
pub(super) struct Erase {
    /// The zones that are left; the first is the one at hand.
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

    /// The next step; `None` when all is done.
    pub(super) fn next(&mut self, is_alone: bool, zones: &Zones) -> Option<WorkerStep> {
        loop {
            if self.zones.is_empty() {
                return None;
            }
            let zone = ZoneIndex(self.zones.start);
            match self.stage {
                EraseStage::Look if !is_wanted(zone, zones) => self.zones.start += 1,
                EraseStage::Look => match zones.lock(zone, is_alone) {
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

    /// The reset has ended.
    pub(super) fn managed(&mut self) {
        self.stage = EraseStage::Look;
        self.zones.start += 1;
    }

    /// Gives up a lock it may hold.
    pub(super) fn abandon(self, zones: &Zones, is_alone: bool) {
        if self.stage != EraseStage::Look && !self.zones.is_empty() {
            zones.unlock(ZoneIndex(self.zones.start), is_alone);
        }
    }
}

fn is_wanted(zone: ZoneIndex, zones: &Zones) -> bool {
    !zones.geometry().is_conventional(zone)
        && zones.pointer(zone) > 0
        && zones.can_take(zone, 0, Room::AfterReset)
}
