//! An action on one zone.
//!
//! A device may go by another standard and refuse what a disk with zones passes over: to close an idle zone, to open a full one
//! (ZBC 5.2, 5.7). Then the zone itself says what to answer.

use super::{Next, op_of, zones_of};
use crate::sense::SenseCode;
use crate::status::Failure;
use crate::wire::ZoneAction;
use zonal_core::{DeviceError, RequestError, Sector, ZoneCondition, ZoneError};
use zonal_io::volume::{Completion, Request};

/// See the module.
pub(crate) struct ZoneWork {
    action: ZoneAction,
    start: Sector,
    stage: ZoneWorkStage,
}

enum ZoneWorkStage {
    Beginning,
    Acting,
    /// The device has refused the action, and is asked for the zone.
    Asking,
}

impl ZoneWork {
    /// The zone that starts at `start` is sequential.
    pub(crate) fn new(action: ZoneAction, start: Sector) -> ZoneWork {
        ZoneWork { action, start, stage: ZoneWorkStage::Beginning }
    }

    pub(super) fn step(&mut self, end: Option<Completion>) -> Next {
        let Some(end) = end else {
            self.stage = ZoneWorkStage::Acting;
            return Next::Ask(Request::zone(op_of(self.action), self.start));
        };
        match self.stage {
            ZoneWorkStage::Beginning | ZoneWorkStage::Acting => self.acted(end),
            ZoneWorkStage::Asking => match zones_of(end) {
                Ok(zones) => Next::End(verdict(self.action, zones[0].condition)),
                Err(failure) => Next::End(Err(failure)),
            },
        }
    }

    fn acted(&mut self, end: Completion) -> Next {
        match end.result {
            Ok(_) => Next::End(Ok(0)),
            Err(error) if is_refused_transition(&error) => {
                self.stage = ZoneWorkStage::Asking;
                Next::Ask(Request::report(self.start, 1))
            }
            Err(error) => Next::End(Err(Failure::of_request(&error, false))),
        }
    }
}

/// Whether the zone's condition does not allow the action.
pub(super) fn is_refused_transition(error: &RequestError) -> bool {
    matches!(error, RequestError::Device(DeviceError::Zone(ZoneError::InvalidTransition)))
}

/// What a refused action answers, by the condition of its zone.
fn verdict(action: ZoneAction, condition: ZoneCondition) -> Result<u32, Failure> {
    match (condition, action) {
        (ZoneCondition::ReadOnly, _) => Err(SenseCode::ZONE_IS_READ_ONLY.into()),
        (ZoneCondition::Offline, _) => Err(SenseCode::ZONE_IS_OFFLINE.into()),
        (_, ZoneAction::Close | ZoneAction::Open) => Ok(0),
        (_, ZoneAction::Finish | ZoneAction::Reset) => Err(SenseCode::INVALID_FIELD_IN_CDB.into()),
    }
}
