//! One split virtqueue, device side (VIRTIO 2.7).
//!
//! Takes chains of descriptors and returns them as used. Owns the two indices and the set of chains
//! in flight. Owns no file descriptors and sends no signals, but reports when one is due.
//!
//! # Misbehaving drivers
//! Every number of the guest is read once and checked. A chain is faulty if it loops, leaves the
//! table or memory, has an empty descriptor, is too long, or has readable bytes after writable
//! ones. After a fault ([`RingFault`]) the ring yields no more chains, because the device needs a
//! reset (VIRTIO 2.1.2). Chains in flight are still returned.
//!
//! # Starting point
//! The ring starts at the base given by the front end, unless the used index is ahead of it. That
//! happens after a front end lost its connection: it reads the used index at that moment, and
//! requests complete later.

mod chain;
mod inflight;

pub use inflight::{InflightQueue, queue_len};

use crate::memory::{Area, GuestBuffers, Memory};
use crate::wire::ring::{
    AVAILABLE_ENTRY, ENTRIES, FLAGS, INDEX, NO_INTERRUPT, USED_ENTRY, available_event_at, available_len,
    descriptors_len, used_event_at, used_len,
};
use std::collections::VecDeque;
use std::num::Wrapping;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

/// Maximum descriptors of a ring, as in QEMU.
pub const DESCRIPTORS_MAX: u16 = 1024;

/// Violation of the ring format by a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingFault {
    /// Part of the ring is not in memory, or misaligned.
    #[error("the ring is not in memory")]
    NotInMemory,
    /// The available index is ahead by more than the ring's length.
    #[error("the available index jumps from {from} to {to}")]
    AvailableIndex {
        /// Next entry.
        from: u16,
        /// Available index.
        to: u16,
    },
    /// Descriptor beyond the table.
    #[error("descriptor {index} is beyond its table of {len}")]
    DescriptorIndex {
        /// Descriptor number.
        index: u16,
        /// Number of descriptors in the table.
        len: u32,
    },
    /// The front end truncated a file of memory.
    #[error("a file of the guest's memory was truncated while in use")]
    MemoryLost,
    /// The chain is already in flight.
    #[error("descriptor {head} is made available while its chain is in flight")]
    HeadInFlight {
        /// First descriptor.
        head: u16,
    },
    /// The chain loops or has too many descriptors.
    #[error("the chain of descriptor {head} is too long")]
    TooLong {
        /// First descriptor.
        head: u16,
    },
    /// Descriptor of zero length.
    #[error("empty descriptor in the chain of descriptor {head}")]
    Empty {
        /// First descriptor of the chain.
        head: u16,
    },
    /// The bytes of a descriptor are not in memory, or the chain reaches 4 GiB.
    #[error("{len} bytes at {guest:#x} are not in memory")]
    OutOfMemory {
        /// Guest-physical address.
        guest: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Device-readable bytes after device-writable ones.
    #[error("readable bytes after writable ones in the chain of descriptor {head}")]
    Direction {
        /// First descriptor.
        head: u16,
    },
    /// Indirect table that is malformed, nested, or followed by another descriptor.
    #[error("invalid indirect table in the chain of descriptor {head}")]
    Indirect {
        /// First descriptor.
        head: u16,
    },
    /// The request is too short for its header or its response.
    #[error("request too short: {readable} readable and {writable} writable bytes")]
    TooShort {
        /// Number of device-readable bytes.
        readable: u32,
        /// Number of device-writable bytes.
        writable: u32,
    },
}

/// Location and options of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingSetup {
    /// Number of descriptors: a power of two, at most [`DESCRIPTORS_MAX`].
    pub num: u16,
    /// Descriptor table, as an address of the front end.
    pub descriptors: u64,
    /// Available ring, as an address of the front end.
    pub available: u64,
    /// Used ring, as an address of the front end.
    pub used: u64,
    /// Next entry of the available ring.
    pub base: u16,
    /// True if notifications are requested by index.
    pub event_idx: bool,
    /// True if descriptors may be indirect.
    pub indirect: bool,
}

/// Chain of descriptors: one request of the guest.
pub struct Chain {
    /// First descriptor, which identifies the chain while it is in flight.
    pub head: u16,
    /// Memory of the request.
    pub buffers: GuestBuffers,
    /// True if left over by an earlier back end: the request may have been executed.
    pub is_left: bool,
}

/// Memory of a ring.
struct Parts {
    memory: Rc<Memory>,
    descriptors: Area,
    available: Area,
    used: Area,
}

impl Parts {
    fn new(memory: Rc<Memory>, setup: &RingSetup) -> Option<Parts> {
        let num = setup.num;
        Some(Parts {
            descriptors: memory.area(setup.descriptors, descriptors_len(num), 16)?,
            available: memory.area(setup.available, available_len(num), 2)?,
            used: memory.area(setup.used, used_len(num), 4)?,
            memory,
        })
    }
}

/// A split virtqueue.
pub struct Ring {
    setup: RingSetup,
    parts: Parts,
    /// Next entry of the available ring.
    next_available: Wrapping<u16>,
    /// Next entry of the used ring, including unpublished ones.
    next_used: Wrapping<u16>,
    /// Used index visible to the guest.
    told: Wrapping<u16>,
    /// Chains in flight, indexed by first descriptor.
    in_flight: Vec<bool>,
    log: Option<InflightQueue>,
    /// Chains left over by an earlier back end, oldest first.
    left: VecDeque<u16>,
}

impl Ring {
    /// Creates the ring of `setup` in `memory`. With a log it starts with the chains recorded there
    /// as in flight.
    ///
    /// # Errors
    /// [`RingFault::NotInMemory`].
    pub fn new(memory: Rc<Memory>, setup: RingSetup, log: Option<InflightQueue>) -> Result<Ring, RingFault> {
        let is_valid = setup.num.is_power_of_two() && setup.num <= DESCRIPTORS_MAX;
        let parts = Parts::new(memory, &setup).filter(|_| is_valid).ok_or(RingFault::NotInMemory)?;
        let used = Wrapping(parts.used.load_u16(INDEX, Ordering::Acquire));
        let base = Wrapping(setup.base);
        let ahead = (used - base).0;
        let mut ring = Ring {
            parts,
            next_available: if (1..=setup.num).contains(&ahead) { used } else { base },
            next_used: used,
            told: used,
            in_flight: vec![false; usize::from(setup.num)],
            log,
            left: VecDeque::new(),
            setup,
        };
        if let Some(log) = &mut ring.log {
            ring.left = log.recover(used.0).into();
            if !ring.left.is_empty() {
                ring.next_available = used + Wrapping(ring.left.len() as u16);
            }
        }
        Ok(ring)
    }

    /// Number of descriptors.
    pub fn num(&self) -> u16 {
        self.setup.num
    }

    /// Next entry of the available ring, where another back end can continue once no chain is in
    /// flight.
    pub fn base(&self) -> u16 {
        (self.next_available - Wrapping(self.left.len() as u16)).0
    }

    /// Continues in this memory, with the ring at the same addresses. Chains in flight keep the old
    /// memory.
    ///
    /// # Errors
    /// [`RingFault::NotInMemory`]; the ring is then unchanged.
    pub fn set_memory(&mut self, memory: Rc<Memory>) -> Result<(), RingFault> {
        self.parts = Parts::new(memory, &self.setup).ok_or(RingFault::NotInMemory)?;
        Ok(())
    }

    /// Takes the next chain, if any.
    ///
    /// # Errors
    /// [`RingFault`]; the caller must not take any more.
    pub fn take(&mut self) -> Result<Option<Chain>, RingFault> {
        let is_left = !self.left.is_empty();
        let Some(head) = self.next_head()? else { return Ok(None) };
        let num = self.setup.num;
        if head >= num {
            return Err(RingFault::DescriptorIndex { index: head, len: u32::from(num) });
        }
        if self.in_flight[usize::from(head)] {
            return Err(RingFault::HeadInFlight { head });
        }
        let buffers = self.chain(head)?;
        self.in_flight[usize::from(head)] = true;
        // A left-over chain is already marked, and keeps its position in case this process is
        // killed as well.
        if let Some(log) = self.log.as_mut().filter(|_| !is_left) {
            log.begin(head);
        }
        Ok(Some(Chain { head, buffers, is_left }))
    }

    fn next_head(&mut self) -> Result<Option<u16>, RingFault> {
        if let Some(head) = self.left.pop_front() {
            return Ok(Some(head));
        }
        // Acquire: the entries were written before the index.
        let index = Wrapping(self.parts.available.load_u16(INDEX, Ordering::Acquire));
        let ahead = (index - self.next_available).0;
        if ahead > self.setup.num {
            return Err(RingFault::AvailableIndex { from: self.next_available.0, to: index.0 });
        }
        if ahead == 0 {
            return Ok(None);
        }
        let entry = usize::from(self.next_available.0 % self.setup.num);
        self.next_available += 1;
        Ok(Some(self.parts.available.load_u16(ENTRIES + AVAILABLE_ENTRY * entry, Ordering::Relaxed)))
    }

    /// Returns a chain of which `written` bytes were written. Visible to the guest after
    /// [`Ring::publish`].
    ///
    /// # Panics
    /// If the chain is not in flight, which is a bug of the caller.
    pub fn put(&mut self, head: u16, written: u32) {
        let was_in_flight = std::mem::take(&mut self.in_flight[usize::from(head)]);
        assert!(was_in_flight, "a chain goes back once");
        let entry = ENTRIES + USED_ENTRY * usize::from(self.next_used.0 % self.setup.num);
        self.parts.used.store_u32(entry, u32::from(head), Ordering::Relaxed);
        self.parts.used.store_u32(entry + 4, written, Ordering::Relaxed);
        self.next_used += 1;
        if let Some(log) = &mut self.log {
            log.end(head);
        }
    }

    /// Publishes the returned chains to the guest. Returns true if it wants an interrupt for them.
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.told, self.next_used);
        if old == new {
            return false;
        }
        // Release: the entries are written before the index.
        self.parts.used.store_u16(INDEX, new.0, Ordering::Release);
        self.told = new;
        if let Some(log) = &mut self.log {
            log.publish(new.0);
        }
        // The driver writes its request for an interrupt, then reads the index; this side writes
        // the index, then reads the request.
        fence(Ordering::SeqCst);
        let available = &self.parts.available;
        if !self.setup.event_idx {
            return available.load_u16(FLAGS, Ordering::Relaxed) & NO_INTERRUPT == 0;
        }
        let event = Wrapping(available.load_u16(used_event_at(self.setup.num), Ordering::Relaxed));
        (new - event - Wrapping(1)) < (new - old)
    }

    /// Requests a notification for the next chain. Returns true if a chain is already available,
    /// possibly from before the request.
    pub fn listen(&mut self) -> bool {
        if self.setup.event_idx {
            let at = available_event_at(self.setup.num);
            self.parts.used.store_u16(at, self.next_available.0, Ordering::Relaxed);
        }
        // The driver makes a chain available, then reads the request; this side writes the request,
        // then checks for a chain.
        fence(Ordering::SeqCst);
        self.has_next()
    }

    /// True if the memory of the ring or of its requests was found to be truncated. Data read from
    /// it is then invalid, and data written to it is lost.
    pub fn is_lost(&self) -> bool {
        self.parts.memory.is_lost() || self.log.as_ref().is_some_and(InflightQueue::is_lost)
    }

    /// True if left-over chains of an earlier back end are still to be taken.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// True if [`Ring::take`] would return a chain or a fault.
    pub fn has_next(&self) -> bool {
        self.has_left() || self.parts.available.load_u16(INDEX, Ordering::Acquire) != self.next_available.0
    }
}
