//! Zones that the drive will not write any more, or not even read.
//!
//! The drive says so in the answer to a write, a read or a reset, or tells of it in an event. The collector moves live data out of a
//! read-only zone. The data of an offline zone is lost, and the error of a read names the zone.

use super::core::{Core, Shared};
use super::error::FsError;
use crate::drive;
use crate::space::zone::{Lost, ZoneState};
use crate::waiter::Wait;
use zonal_core::{RequestError, ZoneCondition, ZoneIndex};
use zonal_io::volume::DeviceEvent;

/// How its zone is lost by an answer, if it is.
pub(super) fn lost_by(error: &RequestError) -> Option<Lost> {
    drive::lasting_condition(error).and_then(lost)
}

/// How a zone in `condition` is lost, if it is.
fn lost(condition: ZoneCondition) -> Option<Lost> {
    match condition {
        ZoneCondition::ReadOnly => Some(Lost::ReadOnly),
        ZoneCondition::Offline => Some(Lost::Offline),
        _ => None,
    }
}

impl Shared {
    /// Takes in what the drive has told of its zones. For the thread that does a step: no zone is reset meanwhile.
    pub(super) fn hear_of_zones(&self) -> Result<(), FsError> {
        while let Some(event) = self.events.next() {
            let DeviceEvent::Zone { zone, condition } = event else { continue };
            let Some(how) = lost(condition) else { continue };
            let mut core = self.lock();
            if core.space.lock().book.zone(zone)?.state != ZoneState::Reserved {
                core.lose_zone(zone, how)?;
            }
        }
        Ok(())
    }

    /// After a read that failed. If its answer says that the zone is lost, this asks the drive what the zone is now.
    pub(super) fn note_lost_zone(&self, waiter: &dyn Wait, error: &FsError) -> Result<(), FsError> {
        let FsError::Read { zone, error, .. } = error else { return Ok(()) };
        let zone = ZoneIndex(*zone);
        if lost_by(error).is_none() {
            return Ok(());
        }
        match self.drive.condition(waiter, zone).and_then(lost) {
            Some(how) => self.lock().lose_zone(zone, how),
            None => Ok(()),
        }
    }
}

impl Core {
    /// The drive will not write the zone any more. An offline zone stays offline.
    pub(super) fn lose_zone(&mut self, zone: ZoneIndex, how: Lost) -> Result<(), FsError> {
        if self.space.lock().lose(zone, how)? && how == Lost::Offline {
            self.readers.note_lost();
        }
        Ok(())
    }
}
