//! Reset of a range of zones one by one, for wrappers where the command for all zones would reach
//! too far.
//!
//! Pure: returns the next command and receives its result. One command is in flight at a time. Like
//! the command for all zones, it skips zones that are empty, read-only, offline or conventional,
//! and is not atomic.

use crate::device::{CommandResult, Output};
use std::collections::VecDeque;
use std::ops::Range;
use zonal_core::device::ZoneAction;
use zonal_core::{DeviceError, ZoneError, ZoneIndex};

/// Zones per report: 64 bytes each on the wire of a real drive, so 64 KiB.
const REPORT_ZONES: u32 = 1024;

/// Walk through a range of zones; see the module.
#[derive(Debug)]
pub(crate) struct ResetWalk {
    /// Not reported yet.
    rest: Range<u32>,
    /// Needing a reset.
    found: VecDeque<ZoneIndex>,
    except: Box<[ZoneIndex]>,
    error: Option<DeviceError>,
}

/// Next step of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ResetStep {
    /// Report this number of zones, starting with this zone.
    Report(ZoneIndex, u32),
    /// Reset this zone.
    Reset(ZoneIndex),
    /// The walk is complete.
    End(Result<(), DeviceError>),
}

impl ResetWalk {
    /// Walk through `zones` that skips those in `except`.
    pub(crate) fn new(zones: Range<u32>, except: impl IntoIterator<Item = ZoneIndex>) -> ResetWalk {
        ResetWalk { rest: zones, found: VecDeque::new(), except: except.into_iter().collect(), error: None }
    }

    /// Returns the next command; unchanged until [`ResetWalk::answered`].
    pub(crate) fn step(&self) -> ResetStep {
        match (self.error, self.found.front()) {
            (Some(error), _) => ResetStep::End(Err(error)),
            (None, Some(zone)) => ResetStep::Reset(*zone),
            (None, None) if self.rest.is_empty() => ResetStep::End(Ok(())),
            (None, None) => {
                ResetStep::Report(ZoneIndex(self.rest.start), REPORT_ZONES.min(self.rest.len() as u32))
            }
        }
    }

    /// Receives the result of the command of [`ResetWalk::step`].
    pub(crate) fn answered(&mut self, result: CommandResult) {
        match (self.found.pop_front(), result) {
            (None, Ok(Output::Zones(zones))) if !zones.is_empty() => {
                let last = zones[zones.len() - 1].zone.0;
                for zone in zones.iter().filter(|z| self.rest.contains(&z.zone.0)) {
                    if ZoneAction::Reset.selects(zone.condition) && !self.except.contains(&zone.zone) {
                        self.found.push_back(zone.zone);
                    }
                }
                // Advance by at least one zone so that no device can keep the walk in place.
                self.rest.start = (last + 1).clamp(self.rest.start + 1, self.rest.end);
            }
            (None, Ok(_)) => self.error = Some(DeviceError::InvalidField),
            (None, Err(error)) => self.error = Some(error),
            // The zone became read-only or offline meanwhile.
            (Some(_), Ok(_) | Err(DeviceError::Zone(ZoneError::InvalidTransition))) => {}
            (Some(_), Err(error)) => self.error = Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneType};

    fn zones(from: u32, conditions: &[ZoneCondition]) -> CommandResult {
        let describe = |(n, &condition): (usize, &ZoneCondition)| ZoneDescriptor {
            zone: ZoneIndex(from + n as u32),
            start: Sector(0),
            size: Sectors(8),
            capacity: Sectors(8),
            zone_type: ZoneType::SequentialWriteRequired,
            condition,
            write_pointer: None,
        };
        Ok(Output::Zones(conditions.iter().enumerate().map(describe).collect()))
    }

    #[test]
    fn reset_walk_resets_only_zones_with_data_within_its_range() {
        use ZoneCondition::{Closed, Empty, Full, ImpOpen, Offline, ReadOnly};
        let mut walk = ResetWalk::new(2..8, [ZoneIndex(6)]);
        assert_eq!(walk.step(), ResetStep::Report(ZoneIndex(2), 6));
        walk.answered(zones(2, &[Full, Empty, ReadOnly, Offline]));
        assert_eq!(walk.step(), ResetStep::Reset(ZoneIndex(2)));
        walk.answered(Ok(Output::Done));
        assert_eq!(walk.step(), ResetStep::Report(ZoneIndex(6), 2));
        walk.answered(zones(6, &[Closed, ImpOpen, Full, Full]));
        assert_eq!(walk.step(), ResetStep::Reset(ZoneIndex(7)));
        walk.answered(Err(ZoneError::InvalidTransition.into()));
        assert_eq!(walk.step(), ResetStep::End(Ok(())));
    }

    #[test]
    fn walk_ends_with_the_first_error() {
        let mut walk = ResetWalk::new(0..8, []);
        walk.answered(zones(0, &[ZoneCondition::Full; 8]));
        walk.answered(Err(DeviceError::Medium));
        assert_eq!(walk.step(), ResetStep::End(Err(DeviceError::Medium)));
        let mut walk = ResetWalk::new(0..8, []);
        walk.answered(zones(0, &[]));
        assert_eq!(walk.step(), ResetStep::End(Err(DeviceError::InvalidField)));
    }
}
