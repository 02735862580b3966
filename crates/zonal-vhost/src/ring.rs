//! One split virtqueue, from the device's side (VIRTIO 2.7).
//!
//! Chains of descriptors come out, and go back as used. Owns the two indices, and which chains are in flight. Owns no descriptor of
//! a file and sends no signal: it says when one is due.
//!
//! # Drivers that misbehave
//! Every number of the guest is read once and checked. A chain is a fault that loops, leaves the table or memory, has no bytes
//! somewhere, is too long, or has bytes to read after bytes to write. After a fault ([`RingFault`]) the ring gives no more chains:
//! the device needs a reset (VIRTIO 2.1.2). Chains that are in flight still go back.
//!
//! # Where a ring begins
//! At the base that the front end gives, unless the used index is ahead of it. That happens after a front end has lost its
//! connection: it takes the used index of that moment, and requests have ended since.

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

/// Most descriptors of a ring: as many as QEMU gives one.
pub const DESCRIPTORS_MAX: u16 = 1024;

/// How a driver has broken a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingFault {
    /// The ring's parts are not in memory, or not aligned.
    #[error("the ring is not in memory")]
    NotInMemory,
    /// The available index is further ahead than the ring is long.
    #[error("the available index jumps from {from} to {to}")]
    AvailableIndex {
        /// The next entry.
        from: u16,
        /// The index.
        to: u16,
    },
    /// There is no such descriptor.
    #[error("descriptor {index} of {len}")]
    DescriptorIndex {
        /// Its number.
        index: u16,
        /// Descriptors in the table.
        len: u32,
    },
    /// The front end has truncated a file of memory.
    #[error("a file of the guest's memory was truncated while in use")]
    MemoryLost,
    /// The chain is in flight.
    #[error("descriptor {head} is made available while its chain is in flight")]
    HeadInFlight {
        /// The first descriptor.
        head: u16,
    },
    /// The chain has more descriptors than it may, or loops.
    #[error("the chain of descriptor {head} is too long")]
    TooLong {
        /// The first descriptor.
        head: u16,
    },
    /// A descriptor has no bytes.
    #[error("a descriptor without bytes in the chain of {head}")]
    Empty {
        /// The first descriptor of its chain.
        head: u16,
    },
    /// A descriptor's bytes are not in memory, or the chain has 4 GiB.
    #[error("{len} bytes at {guest:#x} are not in memory")]
    OutOfMemory {
        /// Guest-physical address.
        guest: u64,
        /// Bytes.
        len: u32,
    },
    /// Bytes for the device to read follow those for it to write.
    #[error("bytes to read after bytes to write in the chain of descriptor {head}")]
    Direction {
        /// The first descriptor.
        head: u16,
    },
    /// An indirect table that is no table, lies in another one, or has a descriptor after it.
    #[error("a wrong indirect table in the chain of descriptor {head}")]
    Indirect {
        /// The first descriptor.
        head: u16,
    },
    /// The request is shorter than its header, or has no room for its response.
    #[error("a request with {readable} bytes and room for {writable} is too short")]
    TooShort {
        /// Bytes to read.
        readable: u32,
        /// Bytes to write.
        writable: u32,
    },
}

/// Where a ring is, and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingSetup {
    /// Descriptors: a power of two, at most [`DESCRIPTORS_MAX`].
    pub num: u16,
    /// Descriptor table, by the front end's address.
    pub descriptors: u64,
    /// Available ring, likewise.
    pub available: u64,
    /// Used ring, likewise.
    pub used: u64,
    /// The next entry of the available ring.
    pub base: u16,
    /// Whether notifications are asked for by index.
    pub event_idx: bool,
    /// Whether descriptors may be indirect.
    pub indirect: bool,
}

/// A chain of descriptors: one request of the guest.
pub struct Chain {
    /// Its first descriptor, which names it while it is in flight.
    pub head: u16,
    /// Its bytes.
    pub buffers: GuestBuffers,
    /// Whether an earlier back end has left it: what it asks for may have been done.
    pub is_left: bool,
}

/// The memory of a ring.
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
    /// The next entry of the available ring.
    next_available: Wrapping<u16>,
    /// The next entry of the used ring, told or not.
    next_used: Wrapping<u16>,
    /// The used index that the guest can read.
    told: Wrapping<u16>,
    /// Chains in flight, by their first descriptor.
    in_flight: Vec<bool>,
    log: Option<InflightQueue>,
    /// Chains that an earlier back end left, the oldest first.
    left: VecDeque<u16>,
}

impl Ring {
    /// The ring of `setup` in `memory`. With a log it begins with the chains that were in flight there.
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

    /// Its descriptors.
    pub fn num(&self) -> u16 {
        self.setup.num
    }

    /// The next entry of the available ring: where another back end would continue, once no chain is in flight.
    pub fn base(&self) -> u16 {
        (self.next_available - Wrapping(self.left.len() as u16)).0
    }

    /// Continues in this memory, in which the ring has the same addresses. Chains in flight keep theirs.
    ///
    /// # Errors
    /// [`RingFault::NotInMemory`]; then the ring stays where it was.
    pub fn set_memory(&mut self, memory: Rc<Memory>) -> Result<(), RingFault> {
        self.parts = Parts::new(memory, &self.setup).ok_or(RingFault::NotInMemory)?;
        Ok(())
    }

    /// The next chain, if there is one.
    ///
    /// # Errors
    /// [`RingFault`]; the caller takes no more.
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
        // A chain that was left is marked, and keeps its place in the order if this process is killed as well.
        if let Some(log) = self.log.as_mut().filter(|_| !is_left) {
            log.begin(head);
        }
        Ok(Some(Chain { head, buffers, is_left }))
    }

    fn next_head(&mut self) -> Result<Option<u16>, RingFault> {
        if let Some(head) = self.left.pop_front() {
            return Ok(Some(head));
        }
        // Acquire: the entries before the index are written.
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

    /// Gives a chain back, of which `written` bytes were written. The guest sees it after [`Ring::publish`].
    ///
    /// # Panics
    /// If the chain is not in flight: a mistake of the caller.
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

    /// Tells the guest of the chains that were given back. Returns whether it wants an interrupt for them.
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.told, self.next_used);
        if old == new {
            return false;
        }
        // Release: the entries before the index are written.
        self.parts.used.store_u16(INDEX, new.0, Ordering::Release);
        self.told = new;
        if let Some(log) = &mut self.log {
            log.publish(new.0);
        }
        // The driver writes what it wants and then reads the index; this side does it the other way round.
        fence(Ordering::SeqCst);
        let available = &self.parts.available;
        if !self.setup.event_idx {
            return available.load_u16(FLAGS, Ordering::Relaxed) & NO_INTERRUPT == 0;
        }
        let event = Wrapping(available.load_u16(used_event_at(self.setup.num), Ordering::Relaxed));
        (new - event - Wrapping(1)) < (new - old)
    }

    /// Asks for a notification with the next chain. Returns whether one is there already: it may have come before the asking.
    pub fn listen(&mut self) -> bool {
        if self.setup.event_idx {
            let at = available_event_at(self.setup.num);
            self.parts.used.store_u16(at, self.next_available.0, Ordering::Relaxed);
        }
        // The driver makes a chain available and then reads what is asked for; this side does it the other way round.
        fence(Ordering::SeqCst);
        self.has_next()
    }

    /// True once the memory of the ring or of its requests was found to be truncated. Then nothing that was read from there
    /// counts, and nothing that was written there has arrived.
    pub fn is_lost(&self) -> bool {
        self.parts.memory.is_lost() || self.log.as_ref().is_some_and(InflightQueue::is_lost)
    }

    /// Whether chains are to be taken that an earlier back end left.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Whether [`Ring::take`] has something, be it a fault.
    pub fn has_next(&self) -> bool {
        self.has_left() || self.parts.available.load_u16(INDEX, Ordering::Acquire) != self.next_available.0
    }
}
