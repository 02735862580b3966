//! Zones that have become read-only or offline.
//!
//! The drive reports them in the answer to a write, read or reset, or by an event. Garbage
//! collection moves live data out of a read-only zone. Data in an offline zone is lost, and reads
//! fail with an error that names the zone.

use super::core::{Core, Shared};
use super::error::FsError;
use crate::drive;
use crate::space::zone::{Lost, ZoneState};
use crate::waiter::Wait;
use zonal_core::{RequestError, ZoneCondition, ZoneIndex};
use zonal_io::volume::DeviceEvent;

/// Returns the kind of loss that an error indicates for its zone, if any.
pub(super) fn lost_by(error: &RequestError) -> Option<Lost> {
    drive::lasting_condition(error).and_then(lost)
}

/// Returns the kind of loss that `condition` means, if any.
fn lost(condition: ZoneCondition) -> Option<Lost> {
    match condition {
        ZoneCondition::ReadOnly => Some(Lost::ReadOnly),
        ZoneCondition::Offline => Some(Lost::Offline),
        _ => None,
    }
}

impl Shared {
    /// Processes the drive's zone events. Called by the thread that does a step, so that no zone is
    /// reset meanwhile.
    pub(super) fn process_zone_events(&self) -> Result<(), FsError> {
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

    /// After a read error that indicates a lost zone, asks the drive for the zone's condition.
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
    /// Records that the drive no longer writes the zone. An offline zone stays offline.
    pub(super) fn lose_zone(&mut self, zone: ZoneIndex, how: Lost) -> Result<(), FsError> {
        if self.space.lock().lose(zone, how)? && how == Lost::Offline {
            self.readers.note_lost();
        }
        Ok(())
    }
}
