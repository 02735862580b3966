//! One virtqueue of a SCSI host device: a ring, and what its chains mean.
//!
//! Queue 0 is for control, queue 1 for events, and the others for requests (VIRTIO 5.6.2). All begin and end in the same way, which is
//! here. What they do with a chain is in their roles: `requests` hands commands to the disk, `control` hands out task management,
//! and the event queue keeps its buffers, as this device has no events to tell.
//!
//! Sans-IO: [`Queue::turn`] moves everything that can move, and says whether the guest has to be notified.
//!
//! # Invariants
//! - A queue lives on one thread.
//! - A chain that was taken goes back once, unless it breaks the ring: then it never does.
//! - A queue that was asked to stop has stopped once no request of it is in flight. Until then it gives chains back.

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

/// The control queue.
pub const CONTROL: u16 = 0;
/// The event queue.
pub const EVENTS: u16 = 1;
/// The first queue of requests.
pub const FIRST_REQUESTS: u16 = 2;
/// Most queues of a device.
pub const QUEUES_MAX: u16 = FIRST_REQUESTS + 128;

enum Role {
    Control(Control),
    Events,
    Requests(Box<Requests>),
}

/// What a turn has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turned {
    /// The guest is to be notified.
    pub signals: bool,
    /// There is more to do at once.
    pub is_busy: bool,
    /// The ring has broken in this turn.
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
    /// Where it began, for a ring that is not in memory.
    base: u16,
    /// Functions that wait until what a killed process has left has ended: it is taken one by one, and they concern all of it, and what is
    /// in the ring after it.
    waiting: Vec<Management>,
    /// A turn has begun with some of that.
    has_left: bool,
}

impl Queue {
    /// The queue of this number. It stays on the calling thread.
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

    /// Begins with this ring. A ring that is not in memory is broken from the beginning.
    pub fn start(&mut self, memory: Rc<Memory>, setup: RingSetup, log: Option<InflightQueue>) {
        (self.stops, self.fault, self.is_fault_told) = (false, None, false);
        self.base = setup.base;
        match Ring::new(memory, setup, log) {
            Ok(ring) => self.ring = Some(ring),
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Whether chains are taken.
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

    /// Takes no more chains: see [`Queue::stopped`].
    pub fn stop(&mut self) {
        self.stops = true;
    }

    /// Where the ring would continue, once after [`Queue::stop`] no request is in flight. The ring is gone then.
    pub fn stopped(&mut self) -> Option<u16> {
        if !self.stops || self.in_flight() > 0 {
            return None;
        }
        self.stops = false;
        Some(self.ring.take().map_or(self.base, |ring| ring.base()))
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        match &self.role {
            Role::Control(control) => control.in_flight(),
            Role::Events => 0,
            Role::Requests(requests) => requests.in_flight(),
        }
    }

    /// How its ring was broken, if it was.
    pub fn fault(&self) -> Option<RingFault> {
        self.fault
    }

    /// Takes what there is, unless the queue is to rest, and gives back what has ended.
    pub fn turn(&mut self, now: Nanos, rests: bool) -> Turned {
        let Some(ring) = &mut self.ring else {
            self.has_left = false;
            return self.turned(false, false);
        };
        let takes = self.is_enabled && !self.stops && !rests && self.fault.is_none();
        let mut is_busy = false;
        if let Role::Requests(requests) = &mut self.role {
            self.has_left = requests.has_left() || ring.has_left();
            requests.poll(now, ring);
        }
        if takes {
            // A ring has this number of chains at most, however fast they end.
            match self.role.take(now, ring) {
                Ok(()) => {}
                Err(fault) => self.fault = Some(fault),
            }
        }
        if let Role::Requests(requests) = &mut self.role {
            is_busy |= requests.poll(now, ring);
            // After the last of what was left, the next turn takes what stands after it, and then carries the functions out.
            let waits = takes && self.fault.is_none() && self.has_left;
            let is_left = requests.has_left() || ring.has_left();
            is_busy |= !(self.waiting.is_empty() || waits && is_left);
            if !waits {
                self.waiting.drain(..).for_each(|management| requests.manage(now, management));
            }
        }
        if ring.is_lost() {
            // The guest hears of no end: where its memory was, there are zeroes. What else was wrong with the ring follows from that.
            self.fault = Some(RingFault::MemoryLost);
            return self.turned(false, is_busy);
        }
        let signals = ring.publish();
        let wants_more = takes && self.fault.is_none() && self.role.wants_more();
        is_busy |= wants_more && ring.listen();
        self.turned(signals, is_busy)
    }

    fn turned(&mut self, signals: bool, is_busy: bool) -> Turned {
        let fault = self.fault.filter(|_| !std::mem::replace(&mut self.is_fault_told, self.fault.is_some()));
        Turned { signals, is_busy, fault }
    }

    /// The next function of task management that the guest asks for, of the control queue.
    pub fn next_management(&mut self) -> Option<Management> {
        match &mut self.role {
            Role::Control(control) => control.next(),
            _ => None,
        }
    }

    /// A function of task management has been carried out in all queues of requests. The next turn tells the guest.
    pub fn end_management(&mut self, end: ManagementEnd) {
        if let (Role::Control(control), Some(ring)) = (&mut self.role, &mut self.ring) {
            control.end(ring, end);
        }
    }

    /// Carries out a function of task management on what is in flight here. What the guest has made available before it has been taken by
    /// a turn, but for what a killed process has left: the function waits for that.
    pub fn manage(&mut self, now: Nanos, management: Management) {
        let Role::Requests(requests) = &mut self.role else { return };
        match self.has_left {
            true => self.waiting.push(management),
            false => requests.manage(now, management),
        }
    }

    /// The next function of task management that has ended here.
    pub fn managed(&mut self) -> Option<ManagementEnd> {
        match &mut self.role {
            Role::Requests(requests) => requests.managed(),
            _ => None,
        }
    }

    /// Whether it carries out task management: whether [`Queue::managed`] answers.
    pub fn is_for_requests(&self) -> bool {
        matches!(self.role, Role::Requests(_))
    }
}

impl Role {
    /// Takes the chains that there are, one round of the ring at most.
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
            // Its buffers stay in the ring: there is nothing to put into them.
            Role::Events => false,
            Role::Requests(requests) => !requests.has_left(),
        }
    }
}
