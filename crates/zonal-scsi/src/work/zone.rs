//! Action on one zone.
//!
//! A device of another standard may refuse an action that a ZBC disk accepts without effect:
//! closing an idle zone, or opening a full one (ZBC 5.2, 5.7). The condition of the zone then
//! determines the answer.

use super::{Step, op_of, zones_of};
use crate::sense::SenseCode;
use crate::status::Failure;
use crate::wire::ZoneAction;
use zonal_core::{DeviceError, RequestError, Sector, ZoneCondition, ZoneError};
use zonal_io::volume::{Completion, Request};

/// Progress of an action on one zone.
pub(crate) struct ZoneWork {
    action: ZoneAction,
    start: Sector,
    stage: ZoneWorkStage,
}

enum ZoneWorkStage {
    Beginning,
    Acting,
    /// The device refused the action; waiting for a report of the zone.
    Asking,
}

impl ZoneWork {
    /// Creates the work for the sequential zone at `start`.
    pub(crate) fn new(action: ZoneAction, start: Sector) -> ZoneWork {
        ZoneWork { action, start, stage: ZoneWorkStage::Beginning }
    }

    pub(super) fn step(&mut self, end: Option<Completion>) -> Step {
        let Some(end) = end else {
            self.stage = ZoneWorkStage::Acting;
            return Step::Ask(Request::zone(op_of(self.action), self.start));
        };
        match self.stage {
            ZoneWorkStage::Beginning | ZoneWorkStage::Acting => self.acted(end),
            ZoneWorkStage::Asking => match zones_of(end) {
                Ok(zones) => Step::End(verdict(self.action, zones[0].condition)),
                Err(failure) => Step::End(Err(failure)),
            },
        }
    }

    fn acted(&mut self, end: Completion) -> Step {
        match end.result {
            Ok(_) => Step::End(Ok(0)),
            Err(error) if is_refused_transition(&error) => {
                self.stage = ZoneWorkStage::Asking;
                Step::Ask(Request::report(self.start, 1))
            }
            Err(error) => Step::End(Err(Failure::of_request(&error, false))),
        }
    }
}

/// True if the zone's condition does not permit the action.
pub(super) fn is_refused_transition(error: &RequestError) -> bool {
    matches!(error, RequestError::Device(DeviceError::Zone(ZoneError::InvalidTransition)))
}

/// Result of a refused action, given the condition of its zone.
fn verdict(action: ZoneAction, condition: ZoneCondition) -> Result<u32, Failure> {
    match (condition, action) {
        (ZoneCondition::ReadOnly, _) => Err(SenseCode::ZONE_IS_READ_ONLY.into()),
        (ZoneCondition::Offline, _) => Err(SenseCode::ZONE_IS_OFFLINE.into()),
        (_, ZoneAction::Close | ZoneAction::Open) => Ok(0),
        (_, ZoneAction::Finish | ZoneAction::Reset) => Err(SenseCode::INVALID_FIELD_IN_CDB.into()),
    }
}
