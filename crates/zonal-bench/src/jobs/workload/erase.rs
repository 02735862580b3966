//! Resets of a worker's zones before a pass whose data is to be verified, so that none comes in between.

use super::Step;
use super::zones::{Locking, Room, Zones};
use std::ops::Range;
use zonal_core::ZoneIndex;

/// Resets of a range of zones, one after the other.
pub(super) struct Erase {
    /// The zones that are left; the first is the one at hand.
    zones: Range<u32>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Look,
    Locked,
    Under,
}

impl Erase {
    pub(super) fn new(zones: Range<u32>) -> Erase {
        Erase { zones, stage: Stage::Look }
    }

    /// The next step; `None` when all is done.
    pub(super) fn next(&mut self, is_alone: bool, zones: &Zones) -> Option<Step> {
        loop {
            if self.zones.is_empty() {
                return None;
            }
            let zone = ZoneIndex(self.zones.start);
            match self.stage {
                Stage::Look if !is_wanted(zone, zones) => self.zones.start += 1,
                Stage::Look => match zones.lock(zone, is_alone) {
                    Locking::Taken => return Some(Step::Wait),
                    Locking::Locked => self.stage = Stage::Locked,
                },
                Stage::Locked if !zones.is_quiet(zone) => return Some(Step::Wait),
                Stage::Locked => {
                    self.stage = Stage::Under;
                    zones.will_be_reset(zone);
                    return Some(Step::Reset(zone));
                }
                Stage::Under => return Some(Step::Wait),
            }
        }
    }

    /// The reset has ended.
    pub(super) fn managed(&mut self) {
        self.stage = Stage::Look;
        self.zones.start += 1;
    }

    /// Gives up a lock it may hold.
    pub(super) fn abandon(self, zones: &Zones, is_alone: bool) {
        if self.stage != Stage::Look && !self.zones.is_empty() {
            zones.unlock(ZoneIndex(self.zones.start), is_alone);
        }
    }
}

fn is_wanted(zone: ZoneIndex, zones: &Zones) -> bool {
    !zones.geometry().is_conventional(zone)
        && zones.pointer(zone) > 0
        && zones.can_take(zone, 0, Room::AfterReset)
}
