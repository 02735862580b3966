//! Properties (Base 3.1.4): what a host reads and sets of its controller before there are queues for commands.

use super::QUEUE_ENTRIES;
use super::controller::{Controller, ControllerState};
use crate::status::Status;
use crate::wire::csts::{FATAL, READY, SHUT_DOWN, SHUTTING_DOWN};
use crate::wire::{cap, cc, csts, property};
use std::sync::atomic::Ordering;

/// `VS`: 2.1.0.
pub(super) const VERSION: u32 = 0x0002_0100;

/// Time for a controller to be ready or reset, in units of 500 ms.
const TIMEOUT: u64 = 20;

/// What setting a property takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertySet {
    /// Nothing more.
    Done,
    /// The I/O queues end what is at the device (`Controller::has_drained`), and all data are made durable; then
    /// [`Controller::has_shut_down`].
    Shutdown,
}

impl Controller {
    /// Property Get (Base 6.5): 4 bytes, or 8.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for what is no property, or has another length.
    pub fn property(&self, offset: u32, is_long: bool) -> Result<u64, Status> {
        let state = self.state.lock();
        let entries = u64::from(QUEUE_ENTRIES) - 1;
        // Contiguous queues; NVM, and command sets by their numbers; the time to be ready is in CRTO as well.
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
    /// [`Status::INVALID_FIELD`] for what a host may not set.
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
            // After it is not ready: a queue that sees the one sees the other, and takes no more commands.
            self.is_draining.store(!state.draining.is_empty(), Ordering::Release);
        }
        Ok(then)
    }

    /// Whether some I/O queue may have commands at the device that a shutdown waits for (Base 3.6.1).
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Queue `qid` has no command at the device, and takes none. Whether the shutdown waited for it.
    pub(crate) fn has_drained(&self, qid: u16) -> bool {
        let mut state = self.state.lock();
        let did_wait = state.draining.remove(&qid);
        self.is_draining.store(!state.draining.is_empty(), Ordering::Release);
        did_wait
    }

    /// `CSTS` of a controller that a host enables with this value of `CC`.
    fn enabled(&self, value: u32) -> u32 {
        let (page, arbitration) = (value >> 7 & 0xF, value >> 11 & 7);
        // A host of the base set alone says 0. Pages of 4 KiB, arbitration in turn.
        let is_right = matches!(value & cc::SETS, 0 | cc::ALL_SETS) && page == 0 && arbitration == 0;
        // Entries of 64 and 16 bytes, which concern no discovery controller.
        let has_sizes = self.is_discovery() || value & cc::SIZES == cc::SIZES_64_16;
        if is_right && has_sizes { READY } else { FATAL }
    }

    /// A controller level reset (Base 3.7.2): I/O queues are gone, and what waits for events ends.
    fn reset(&self, state: &mut ControllerState) {
        state.csts = 0;
        state.draining.clear();
        self.is_draining.store(false, Ordering::Release);
        let ControllerState { notices, withdrawn, .. } = state;
        withdrawn.extend(notices.waiting.drain(..));
        self.resets.fetch_add(1, Ordering::AcqRel);
    }

    /// Number of the shutdown that was asked for last.
    pub fn shutdown(&self) -> u32 {
        self.state.lock().shutdowns
    }

    /// What is to be durable at shutdown number `shutdown` is (Base 3.6.1), or could not be made so.
    pub fn has_shut_down(&self, shutdown: u32, is_durable: bool) {
        let mut state = self.state.lock();
        // It was reset meanwhile, and perhaps the host has asked for another one, which covers more.
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
    /// `CSTS`. A reset is over once the queues from before have ended what waited in them.
    fn status(&self) -> u32 {
        let is_resetting = self.cc & cc::ENABLE == 0 && !self.queues.is_empty();
        self.csts | if is_resetting { READY } else { 0 }
    }
}
