//! Finishing of zones that were closed before they were full.
//!
//! Such a zone remains active until it is finished, and no other zone is opened meanwhile, because
//! the drive would exceed its limit of active zones and fail the write. So a thread that waits for
//! anything finishes these zones first.

use super::core::{Core, Shared};
use super::error::FsError;
use super::waiting::WaitsFor;
use crate::waiter::Wait;
use zonal_core::Op;

impl Shared {
    /// Finishes zones that were closed early and have no writes in flight. Returns true if it did.
    pub(super) fn finish_closed(&self, waiter: &dyn Wait) -> bool {
        let mut did = false;
        loop {
            let next = self.lock().space.lock().next_to_finish();
            let Some(zone) = next else { return did };
            let result = self.drive.zone(waiter, Op::ZoneFinish, zone);
            let mut core = self.core.lock();
            self.space.lock().finished(zone, result.is_ok());
            // It may be dead, and can be reset now.
            core.step_may_help();
            core.room.wake_all(|what| what == WaitsFor::Units);
            core.notify_room(self);
            did = true;
        }
    }
}

impl Core {
    /// Closes an open user zone that is mostly garbage, for writers that would find no space
    /// otherwise. Returns true if there was one.
    pub(super) fn close_for_room(&mut self) -> Result<bool, FsError> {
        if self.gc_has_no_space {
            return Ok(false);
        }
        let mut space = self.space.lock();
        let Some(zone) = space.best_closed_for_room() else { return Ok(false) };
        space.close(zone)?;
        Ok(true)
    }
}
