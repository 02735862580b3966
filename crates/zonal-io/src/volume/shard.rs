//! Queues of zones with waiters, by shard.
//!
//! Each zone belongs to one fixed shard, the lock of which protects its queue. A shard owns the
//! queues and the parked writes; a queue exists only while its zone has waiters. Emptied queues are
//! reused for other zones of the shard: otherwise each zone that starts to wait would cost an
//! allocation per write.

use super::PendingRequest;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use zonal_core::ZoneIndex;
use zonal_core::plug::{ParkedWrites, Queue};

/// Queues that a shard keeps for reuse.
const SPARE_QUEUES_MAX: usize = 16;

/// Queues of the waiting zones in one part of the drive.
pub(super) struct Shard {
    /// Index in `queues` for a zone.
    index: HashMap<u32, u32, BuildHasherDefault<ZoneHasher>>,
    /// Queues in use, and empty ones for reuse.
    queues: Vec<Queue<Box<PendingRequest>>>,
    unused: Vec<u32>,
    /// Zone of the last lookup and the index of its queue, since the next lookup is usually of this
    /// zone.
    last: (ZoneIndex, u32),
    /// Writes that arrived before their predecessors.
    pub(super) parked_writes:
        HashMap<u32, Box<ParkedWrites<Box<PendingRequest>>>, BuildHasherDefault<ZoneHasher>>,
}

/// Sentinel: zone indices of a device are below this.
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
    /// Returns the queue of `zone`, creating an empty one if needed.
    #[inline]
    pub(super) fn queue(&mut self, zone: ZoneIndex) -> &mut Queue<Box<PendingRequest>> {
        if self.last.0 != zone {
            self.last = (zone, self.find(zone));
        }
        &mut self.queues[self.last.1 as usize]
    }

    /// Zones with a queue or parked writes, sorted.
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

    /// Releases the empty queue of `zone`.
    pub(super) fn drop_queue(&mut self, zone: ZoneIndex) {
        let Some(at) = self.index.remove(&zone.0) else { return };
        self.last = (NO_ZONE, 0);
        let queue = &mut self.queues[at as usize];
        queue.recycle();
        if self.index.is_empty() && self.queues.len() > SPARE_QUEUES_MAX {
            // Do not keep a queue per zone after a reset of all zones.
            self.queues = Vec::new();
            self.unused = Vec::new();
        } else {
            self.unused.push(at);
        }
    }
}

/// Hash of a zone index. Only needs to spread well: zone indices are not under an attacker's
/// control.
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
