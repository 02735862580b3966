//! Controller properties (Base 3.1.4), which hosts access before queues for commands exist.

use super::QUEUE_ENTRIES;
use super::controller::{Controller, ControllerState};
use crate::status::Status;
use crate::wire::csts::{FATAL, READY, SHUT_DOWN, SHUTTING_DOWN};
use crate::wire::{cap, cc, csts, property};
use std::sync::atomic::Ordering;

/// `VS`: 2.1.0.
pub(super) const VERSION: u32 = 0x0002_0100;

/// Timeout for a controller to become ready or to reset, in units of 500 ms.
const TIMEOUT: u64 = 20;

/// Work required after setting a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertySet {
    /// None.
    Done,
    /// Shutdown: drain the I/O queues (`Controller::has_drained`), make all data durable, then call
    /// [`Controller::has_shut_down`].
    Shutdown,
}

impl Controller {
    /// Property Get (Base 6.5) of 4 bytes, or 8 if `is_long`.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for an unknown property or a wrong length.
    pub fn property(&self, offset: u32, is_long: bool) -> Result<u64, Status> {
        let state = self.state.lock();
        let entries = u64::from(QUEUE_ENTRIES) - 1;
        // Contiguous queues; multiple command sets; the ready timeout is also in CRTO.
        let cap = entries | 1 << 16 | TIMEOUT << 24 | 1 << 37 | cap::HAS_SETS | 1 << 59;
        Ok(match (offset, is_long) {
            (property::CAP, true) => cap,
            (property::VS, false) => VERSION.into(),
            (property::CC, false) => state.cc.into(),
            (property::CSTS, false) => state.status().into(),
            (property::CRTO, false) => TIMEOUT,
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Property Set (Base 6.6).
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for a property that hosts may not set.
    pub fn set_property(&self, offset: u32, is_long: bool, value: u64) -> Result<PropertySet, Status> {
        if offset != property::CC || is_long {
            return Err(Status::INVALID_FIELD);
        }
        let value = value as u32;
        let mut state = self.state.lock();
        let was = std::mem::replace(&mut state.cc, value);
        let mut then = PropertySet::Done;
        if value & cc::SHUTDOWN != 0 && was & cc::SHUTDOWN == 0 {
            state.csts = state.csts & !csts::SHUTDOWN | SHUTTING_DOWN;
            state.shutdowns = state.shutdowns.wrapping_add(1);
            then = PropertySet::Shutdown;
        }
        match (was & cc::ENABLE != 0, value & cc::ENABLE != 0) {
            (false, true) => state.csts = self.enabled(value),
            (true, false) => {
                self.reset(&mut state);
                then = PropertySet::Done;
            }
            _ => {}
        }
        self.set_ready(&state);
        if then == PropertySet::Shutdown {
            state.draining = state.queues.clone();
            // Stored after `is_ready` is cleared: a queue that sees the drain also sees that, and
            // accepts no more commands.
            self.is_draining.store(!state.draining.is_empty(), Ordering::Release);
        }
        Ok(then)
    }

    /// True if a shutdown waits for commands of an I/O queue at the device (Base 3.6.1).
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Reports that queue `qid` has no command at the device and accepts none. Returns true if the
    /// shutdown waited for it.
    pub(crate) fn has_drained(&self, qid: u16) -> bool {
        let mut state = self.state.lock();
        let did_wait = state.draining.remove(&qid);
        self.is_draining.store(!state.draining.is_empty(), Ordering::Release);
        did_wait
    }

    /// `CSTS` after a host enables the controller with this value of `CC`.
    fn enabled(&self, value: u32) -> u32 {
        let (page, arbitration) = (value >> 7 & 0xF, value >> 11 & 7);
        // Hosts with only the base command set write 0. Page size 4 KiB, round robin arbitration.
        let is_right = matches!(value & cc::SETS, 0 | cc::ALL_SETS) && page == 0 && arbitration == 0;
        // Queue entry sizes of 64 and 16 bytes; discovery controllers ignore them.
        let has_sizes = self.is_discovery() || value & cc::SIZES == cc::SIZES_64_16;
        if is_right && has_sizes { READY } else { FATAL }
    }

    /// Controller Level Reset (Base 3.7.2): removes the I/O queues and ends outstanding event
    /// requests.
    fn reset(&self, state: &mut ControllerState) {
        state.csts = 0;
        state.draining.clear();
        self.is_draining.store(false, Ordering::Release);
        let ControllerState { notices, withdrawn, .. } = state;
        withdrawn.extend(notices.waiting.drain(..));
        self.resets.fetch_add(1, Ordering::AcqRel);
    }

    /// Number of the most recent shutdown request.
    pub fn shutdown(&self) -> u32 {
        self.state.lock().shutdowns
    }

    /// Completes shutdown number `shutdown` (Base 3.6.1). `is_durable` is false if the data could
    /// not be made durable.
    pub fn has_shut_down(&self, shutdown: u32, is_durable: bool) {
        let mut state = self.state.lock();
        // The controller was reset meanwhile. A newer shutdown request, if any, covers this one.
        if state.csts & csts::SHUTDOWN != SHUTTING_DOWN || state.shutdowns != shutdown {
            return;
        }
        state.csts = state.csts & !csts::SHUTDOWN | SHUT_DOWN | if is_durable { 0 } else { FATAL };
        self.set_ready(&state);
    }

    fn set_ready(&self, state: &ControllerState) {
        let is_ready = state.csts & (READY | FATAL | csts::SHUTDOWN) == READY;
        self.has_zones.store(state.cc & cc::SETS == cc::ALL_SETS, Ordering::Release);
        self.is_ready.store(is_ready, Ordering::Release);
    }
}

impl ControllerState {
    /// `CSTS` as read by the host. A reset is complete once the old queues are gone.
    fn status(&self) -> u32 {
        let is_resetting = self.cc & cc::ENABLE == 0 && !self.queues.is_empty();
        self.csts | if is_resetting { READY } else { 0 }
    }
}
