//! Zones that the drive will not write any more, or not even read.
//!
//! The drive says so where a write, a read or a reset fails. What lives in a zone that is read-only is moved elsewhere by the
//! collector; what lived in one that is offline is lost, and whoever reads it is told in which zone it was.

use super::core::{Core, Shared};
use super::error::FsError;
use crate::drive;
use crate::space::zone::{Lost, ZoneState};
use crate::waiter::Waiter;
use zonal_core::{RequestError, ZoneCondition, ZoneIndex};

/// What an answer says of its zone for good.
pub(super) fn lost_by(error: &RequestError) -> Option<Lost> {
    drive::lasting_condition(error).and_then(lost)
}

/// What a zone in `condition` is lost for.
fn lost(condition: ZoneCondition) -> Option<Lost> {
    match condition {
        ZoneCondition::ReadOnly => Some(Lost::ReadOnly),
        ZoneCondition::Offline => Some(Lost::Offline),
        _ => None,
    }
}

impl Shared {
    /// A read failed. If that is said to be for good, the drive is asked what became of the zone.
    pub(super) fn note_lost_zone(&self, waiter: &dyn Waiter, error: &FsError) -> Result<(), FsError> {
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
    /// The drive will not write the zone any more. One that is offline stays so.
    pub(super) fn lose_zone(&mut self, zone: ZoneIndex, how: Lost) -> Result<(), FsError> {
        if self.book.zone(zone)?.state != ZoneState::Offline {
            let lost = self.book.lose(zone, how)?;
            self.credit.lost(lost);
            self.to_finish.forget(zone);
        }
        self.look_at(zone)
    }

    /// Live blocks of zones in `state`.
    pub(super) fn live_in(&self, state: ZoneState) -> u64 {
        if self.book.count(state) == 0 {
            return 0;
        }
        let zones = self.book.iter().filter(|(_, account)| account.state == state);
        zones.map(|(_, account)| u64::from(account.used)).sum()
    }
}
