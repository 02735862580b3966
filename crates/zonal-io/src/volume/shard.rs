//! The queues of the zones that wait, by shard.
//!
//! A zone belongs to one shard for good, and its shard's lock is what who touches its queue holds. Owns the queues, and the
//! parked writes beside them; a queue exists only while its zone waits. Queues are used again by other zones of the shard,
//! empty: a new one for each zone that waits would cost an allocation a write.

use super::PendingRequest;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use zonal_core::ZoneIndex;
use zonal_core::plug::{ParkedWrites, Queue};

/// Queues that a shard keeps for reuse.
const SPARE_QUEUES_MAX: usize = 16;

/// The queues of the zones that wait, of one part of all zones.
pub(super) struct Shard {
    /// Where in `queues` a zone's is.
    index: HashMap<u32, u32, BuildHasherDefault<ZoneHasher>>,
    /// Queues in use and, empty, to be used again.
    queues: Vec<Queue<Box<PendingRequest>>>,
    unused: Vec<u32>,
    /// The zone asked for last, and where its queue is: the usual next one too.
    last: (ZoneIndex, u32),
    /// Writes that came before their predecessors.
    pub(super) parked_writes:
        HashMap<u32, Box<ParkedWrites<Box<PendingRequest>>>, BuildHasherDefault<ZoneHasher>>,
}

/// No zone has this index: a device's zones are counted in 32 bits.
const NO_ZONE: ZoneIndex = ZoneIndex(u32::MAX);

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            index: HashMap::default(),
            queues: Vec::new(),
            unused: Vec::new(),
            last: (NO_ZONE, 0),
            parked_writes: HashMap::default(),
        }
    }
}

impl Shard {
    /// The queue of `zone`, an empty one if it has none.
    #[inline]
    pub(super) fn queue(&mut self, zone: ZoneIndex) -> &mut Queue<Box<PendingRequest>> {
        if self.last.0 != zone {
            self.last = (zone, self.find(zone));
        }
        &mut self.queues[self.last.1 as usize]
    }

    /// The zones that have a queue or parked writes.
    pub(super) fn zones(&self) -> Vec<ZoneIndex> {
        let mut zones: Vec<_> =
            self.index.keys().chain(self.parked_writes.keys()).map(|&zone| ZoneIndex(zone)).collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    #[inline(never)]
    fn find(&mut self, zone: ZoneIndex) -> u32 {
        let Shard { index, queues, unused, .. } = self;
        *index.entry(zone.0).or_insert_with(|| {
            unused.pop().unwrap_or_else(|| {
                queues.push(Queue::default());
                (queues.len() - 1) as u32
            })
        })
    }

    /// Gives up the queue of `zone`, which is empty.
    pub(super) fn drop_queue(&mut self, zone: ZoneIndex) {
        let Some(at) = self.index.remove(&zone.0) else { return };
        self.last = (NO_ZONE, 0);
        let queue = &mut self.queues[at as usize];
        queue.recycle();
        if self.index.is_empty() && self.queues.len() > SPARE_QUEUES_MAX {
            // After a reset of all zones: do not keep a queue a zone.
            self.queues = Vec::new();
            self.unused = Vec::new();
        } else {
            self.unused.push(at);
        }
    }
}

/// Hash of a zone index: its spread is all that is needed, zones are not chosen by an attacker to collide in 64 bits.
#[derive(Default)]
pub(super) struct ZoneHasher(u64);

impl Hasher for ZoneHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u32(u32::from(b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
