//! Reset of all zones of a range, zone by zone: what a wrapper does where the command for all would reach too far.
//!
//! Pure: says which command comes next and is told how it ended. One command is out at any time. Like the command that
//! it stands for, it passes over zones that are empty, read-only, offline or conventional, and is no single instant.

use crate::device::{CommandResult, Output};
use std::collections::VecDeque;
use std::ops::Range;
use zonal_core::device::ZoneAction;
use zonal_core::{DeviceError, ZoneError, ZoneIndex};

/// Zones asked for at a time: 64 bytes each on the wire of a real drive, so 64 KiB.
const REPORT_ZONES: u32 = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct ResetWalk {
    /// Not looked at yet.
    rest: Range<u32>,
    /// Found to need a reset.
    found: VecDeque<ZoneIndex>,
    except: Box<[ZoneIndex]>,
    error: Option<DeviceError>,
}

/// What a walk does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ResetStep {
    /// Describe this number of zones from this one.
    Report(ZoneIndex, u32),
    /// Reset this one.
    Reset(ZoneIndex),
    /// Nothing more.
    End(Result<(), DeviceError>),
}

impl ResetWalk {
    /// A walk through `zones` that leaves those of `except` alone.
    pub(crate) fn new(zones: Range<u32>, except: impl IntoIterator<Item = ZoneIndex>) -> ResetWalk {
        ResetWalk { rest: zones, found: VecDeque::new(), except: except.into_iter().collect(), error: None }
    }

    /// The command that is next, again and again until [`ResetWalk::answered`].
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

    /// The command of [`ResetWalk::step`] has ended.
    pub(crate) fn answered(&mut self, result: CommandResult) {
        match (self.found.pop_front(), result) {
            (None, Ok(Output::Zones(zones))) if !zones.is_empty() => {
                let last = zones[zones.len() - 1].zone.0;
                for zone in zones.iter().filter(|z| self.rest.contains(&z.zone.0)) {
                    if ZoneAction::Reset.selects(zone.condition) && !self.except.contains(&zone.zone) {
                        self.found.push_back(zone.zone);
                    }
                }
                // At least one further, so that no device can keep a walk in one place.
                self.rest.start = (last + 1).clamp(self.rest.start + 1, self.rest.end);
            }
            (None, Ok(_)) => self.error = Some(DeviceError::InvalidField),
            (None, Err(error)) => self.error = Some(error),
            // It fell to read-only or offline meanwhile.
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
    fn walk_resets_what_holds_data_and_stays_inside_its_range() {
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
