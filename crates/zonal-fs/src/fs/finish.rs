//! Zones that were closed before they were full, which take resources of the drive until they are finished.
//!
//! While there are any, no zone is opened: the drive would have more active zones than it allows, and refuse the write. So
//! a thread that waits for anything finishes them first.

use super::core::{Core, Shared};
use super::error::FsError;
use super::waiting::WaitsFor;
use crate::waiter::Wait;
use zonal_core::Op;

impl Shared {
    /// Finishes zones that were closed early and have no writes in flight, and returns whether there was one.
    pub(super) fn finish_closed(&self, waiter: &dyn Wait) -> bool {
        let mut did = false;
        loop {
            let next = self.lock().space.lock().next_to_finish();
            let Some(zone) = next else { return did };
            let result = self.drive.zone(waiter, Op::ZoneFinish, zone);
            let mut core = self.core.lock();
            self.space.lock().finished(zone, result.is_ok());
            core.room.tell(|what| what == WaitsFor::Units);
            core.tell_of_room(self);
            did = true;
        }
    }
}

impl Core {
    /// Closes an open zone of users that is mostly garbage, for writers that would find no space otherwise. Returns whether there was one.
    pub(super) fn close_for_room(&mut self) -> Result<bool, FsError> {
        if self.gc_is_helpless {
            return Ok(false);
        }
        let mut space = self.space.lock();
        let Some(zone) = space.best_closed_for_room() else { return Ok(false) };
        space.close(zone)?;
        Ok(true)
    }
}
