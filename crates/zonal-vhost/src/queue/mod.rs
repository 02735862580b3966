//! One virtqueue of a SCSI host device: a ring with its processing.
//!
//! Queue 0 is the control queue, queue 1 the event queue, and the others are request queues (VIRTIO
//! 5.6.2). Starting and stopping is common to all and implemented here. The processing of chains
//! depends on the role: `requests` passes commands to the disk, `control` hands out task
//! management, and the event queue leaves its buffers in the ring, as this device has no events.
//!
//! Sans-IO: [`Queue::run_once`] makes all possible progress, and returns whether to notify the
//! guest.
//!
//! # Invariants
//! - A queue lives on one thread.
//! - A chain is returned exactly once, unless it breaks the ring: then it is never returned.
//! - A queue asked to stop has stopped once no request is in flight. Until then it returns chains.

mod control;
mod requests;

pub use control::{Management, ManagementEnd};

use crate::memory::Memory;
use crate::ring::{InflightQueue, Ring, RingFault, RingSetup};
use control::Control;
use requests::Requests;
use std::rc::Rc;
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_scsi::Disk;

/// Control queue.
pub const CONTROL: u16 = 0;
/// Event queue.
pub const EVENTS: u16 = 1;
/// First request queue.
pub const FIRST_REQUESTS: u16 = 2;
/// Maximum queues of a device.
pub const QUEUES_MAX: u16 = FIRST_REQUESTS + 128;

enum Role {
    Control(Control),
    Events,
    Requests(Box<Requests>),
}

/// Result of [`Queue::run_once`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The guest has to be notified.
    pub signals: bool,
    /// More work can be done at once.
    pub is_busy: bool,
    /// Fault of the ring in this turn.
    pub fault: Option<RingFault>,
}

/// A virtqueue.
pub struct Queue {
    ring: Option<Ring>,
    role: Role,
    is_enabled: bool,
    stops: bool,
    fault: Option<RingFault>,
    is_fault_told: bool,
    /// Base of the ring, for a ring that is not in memory.
    base: u16,
    /// Functions that wait for requests left over by a killed process. These are processed one by
    /// one, and the functions apply to all of them and to the ring entries after them.
    waiting: Vec<Management>,
    /// Such requests remained at the start of the turn.
    has_left: bool,
}

impl Queue {
    /// Creates the queue with this number, on the calling thread.
    pub fn new(number: u16, disk: &Arc<Disk>) -> Queue {
        let role = match number {
            CONTROL => Role::Control(Control::default()),
            EVENTS => Role::Events,
            _ => Role::Requests(Box::new(Requests::new(disk.clone()))),
        };
        Queue {
            ring: None,
            role,
            is_enabled: false,
            stops: false,
            fault: None,
            is_fault_told: false,
            base: 0,
            waiting: Vec::new(),
            has_left: false,
        }
    }

    /// Starts with this ring. A ring that is not in memory is faulty from the start.
    pub fn start(&mut self, memory: Rc<Memory>, setup: RingSetup, log: Option<InflightQueue>) {
        (self.stops, self.fault, self.is_fault_told) = (false, None, false);
        self.base = setup.base;
        match Ring::new(memory, setup, log) {
            Ok(ring) => self.ring = Some(ring),
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Sets whether chains are taken.
    pub fn set_enabled(&mut self, is_enabled: bool) {
        self.is_enabled = is_enabled;
    }

    /// Continues in this memory.
    pub fn set_memory(&mut self, memory: Rc<Memory>) {
        if let Some(ring) = &mut self.ring
            && let Err(fault) = ring.set_memory(memory)
        {
            self.fault = self.fault.or(Some(fault));
        }
    }

    /// Stops taking chains: see [`Queue::stopped`].
    pub fn stop(&mut self) {
        self.stops = true;
    }

    /// Completes a [`Queue::stop`] once no request is in flight: removes the ring and returns the
    /// base for continuing.
    pub fn stopped(&mut self) -> Option<u16> {
        if !self.stops || self.in_flight() > 0 {
            return None;
        }
        self.stops = false;
        Some(self.ring.take().map_or(self.base, |ring| ring.base()))
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        match &self.role {
            Role::Control(control) => control.in_flight(),
            Role::Events => 0,
            Role::Requests(requests) => requests.in_flight(),
        }
    }

    /// Fault of the ring, if any.
    pub fn fault(&self) -> Option<RingFault> {
        self.fault
    }

    /// Returns completed chains and, unless the queue `rests`, takes new ones.
    pub fn run_once(&mut self, now: Nanos, rests: bool) -> Progress {
        let Some(ring) = &mut self.ring else {
            self.has_left = false;
            return self.progress(false, false);
        };
        let takes = self.is_enabled && !self.stops && !rests && self.fault.is_none();
        let mut is_busy = false;
        if let Role::Requests(requests) = &mut self.role {
            self.has_left = requests.has_left() || ring.has_left();
            requests.poll(now, ring);
        }
        if takes {
            // At most one round of the ring, however fast chains complete.
            match self.role.take(now, ring) {
                Ok(()) => {}
                Err(fault) => self.fault = Some(fault),
            }
        }
        if let Role::Requests(requests) = &mut self.role {
            is_busy |= requests.poll(now, ring);
            // After the last of these requests, the next turn takes the entries behind them, then
            // executes the functions.
            let waits = takes && self.fault.is_none() && self.has_left;
            let is_left = requests.has_left() || ring.has_left();
            is_busy |= !(self.waiting.is_empty() || waits && is_left);
            if !waits {
                self.waiting.drain(..).for_each(|management| requests.manage(now, management));
            }
        }
        if ring.is_lost() {
            // No completion is reported to the guest: its memory may have become zeroes. Other
            // faults of the ring are a consequence.
            self.fault = Some(RingFault::MemoryLost);
            return self.progress(false, is_busy);
        }
        let signals = ring.publish();
        let wants_more = takes && self.fault.is_none() && self.role.wants_more();
        is_busy |= wants_more && ring.listen();
        self.progress(signals, is_busy)
    }

    fn progress(&mut self, signals: bool, is_busy: bool) -> Progress {
        let fault = self.fault.filter(|_| !std::mem::replace(&mut self.is_fault_told, self.fault.is_some()));
        Progress { signals, is_busy, fault }
    }

    /// Next task management function requested by the guest, on the control queue.
    pub fn next_management(&mut self) -> Option<Management> {
        match &mut self.role {
            Role::Control(control) => control.next(),
            _ => None,
        }
    }

    /// Completes a task management function executed by all request queues. The next turn reports
    /// it to the guest.
    pub fn end_management(&mut self, end: ManagementEnd) {
        if let (Role::Control(control), Some(ring)) = (&mut self.role, &mut self.ring) {
            control.end(ring, end);
        }
    }

    /// Executes a task management function on the requests in flight. A turn has taken the chains
    /// that the guest made available before, except behind requests left over by a killed process;
    /// the function then waits for those.
    pub fn manage(&mut self, now: Nanos, management: Management) {
        let Role::Requests(requests) = &mut self.role else { return };
        match self.has_left {
            true => self.waiting.push(management),
            false => requests.manage(now, management),
        }
    }

    /// Next completed task management function of this queue.
    pub fn managed(&mut self) -> Option<ManagementEnd> {
        match &mut self.role {
            Role::Requests(requests) => requests.managed(),
            _ => None,
        }
    }

    /// True for a request queue, which executes task management and returns [`Queue::managed`].
    pub fn is_for_requests(&self) -> bool {
        matches!(self.role, Role::Requests(_))
    }
}

impl Role {
    /// Takes the available chains, at most one round of the ring.
    fn take(&mut self, now: Nanos, ring: &mut Ring) -> Result<(), RingFault> {
        for _ in 0..ring.num() {
            if !self.wants_more() {
                break;
            }
            let Some(chain) = ring.take()? else { break };
            match self {
                Role::Control(control) => control.begin(ring, chain)?,
                Role::Requests(requests) => requests.begin(now, ring, chain)?,
                Role::Events => {}
            }
        }
        Ok(())
    }

    fn wants_more(&self) -> bool {
        match self {
            Role::Control(control) => control.has_room(),
            // Its buffers stay in the ring, because there are no events to store.
            Role::Events => false,
            Role::Requests(requests) => !requests.has_left(),
        }
    }
}
