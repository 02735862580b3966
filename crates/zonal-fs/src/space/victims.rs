//! Which zone to collect next: fully written zones by how much of them is live.
//!
//! Owns an index over the zones that the book calls settled: closed for allocation, all writes ended, some blocks live. The
//! book puts them in, moves them when blocks are freed, and takes them out when nothing is live any more.
//!
//! A zone whose reset would bring no more than the copies of its live data take is no victim. A collector that moves such
//! zones around never ends, and its waiters wait for ever. In a file system without headers only zones without garbage are
//! such zones; here a full one may have garbage that is not worth it.
//!
//! There are ten buckets, by tenths of the live blocks from which on nothing is gained. In a bucket the zones are in order
//! of live blocks, then of index. So the choice looks at one zone, and at one more for each zone that is being copied. XFS,
//! whose buckets have no order, scans the lowest one and stops at the first zone below one percent; here the first is the
//! least.

use std::collections::BTreeSet;
use zonal_core::ZoneIndex;

/// Buckets: tenths of the live blocks from which on nothing is gained.
pub const BUCKETS: usize = 10;

/// Zones by live blocks: ten buckets, and zones with nothing to gain.
pub type Histogram = [u32; BUCKETS + 1];

/// What copies of a zone's live blocks may take beyond data and headers of full units, and one block that is gained. The
/// target zone may end within a unit, which takes a header more. Its last block is lost if only a header fits there.
pub(super) const COPY_WASTE: u32 = 3;

/// Live blocks of a zone, and how many are too many to gain anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    pub used: u32,
    pub gains_below: u32,
}

impl Fill {
    /// The bucket, or [`BUCKETS`] if collecting the zone gains nothing.
    fn bucket(self) -> usize {
        if self.used >= self.gains_below {
            return BUCKETS;
        }
        (u64::from(self.used) * BUCKETS as u64 / u64::from(self.gains_below)) as usize
    }
}

/// The index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Victims {
    buckets: [BTreeSet<(u32, ZoneIndex)>; BUCKETS],
    /// Zones with nothing to gain.
    whole: u32,
}

impl Victims {
    pub fn insert(&mut self, zone: ZoneIndex, fill: Fill) {
        match self.buckets.get_mut(fill.bucket()) {
            Some(bucket) => assert!(bucket.insert((fill.used, zone)), "zone {zone} is here twice"),
            None => self.whole += 1,
        }
    }

    pub fn remove(&mut self, zone: ZoneIndex, fill: Fill) {
        match self.buckets.get_mut(fill.bucket()) {
            Some(bucket) => assert!(bucket.remove(&(fill.used, zone)), "zone {zone} is not here"),
            None => self.whole -= 1,
        }
    }

    /// The zone with the fewest live blocks in the lowest bucket that has one, of zones that are not `busy`.
    pub fn least(&self, busy: impl Fn(ZoneIndex) -> bool) -> Option<ZoneIndex> {
        self.buckets.iter().flatten().map(|&(_, zone)| zone).find(|&zone| !busy(zone))
    }

    pub fn histogram(&self) -> Histogram {
        let mut counts = [self.whole; BUCKETS + 1];
        for (count, bucket) in counts.iter_mut().zip(&self.buckets) {
            *count = bucket.len() as u32;
        }
        counts
    }
}

/// Why the collector runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Fewer blocks can be written right now than all open zones may want, or than the first waiter wants.
    Low {
        /// Blocks that users can write right now.
        available: u64,
        /// Blocks that there should be.
        wanted: u64,
    },
    /// Fewer blocks can be written right now than the wanted share of what is free or can be freed.
    Percent {
        /// Blocks that users can write right now.
        available: u64,
        /// Blocks free or to be freed.
        free: u64,
        /// The share, of 100.
        percent: u8,
    },
    /// A caller asked for it.
    Forced,
    /// A zone became read-only, and may be lost next.
    ReadOnlyZone,
}

/// What decides whether the collector runs. All counts are blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// Whether there is a zone that collecting gains anything from.
    pub reclaimable: bool,
    /// What users can write right now.
    pub available: u64,
    /// What users could write in the end: free or to be freed.
    pub free: u64,
    /// Capacity of a zone.
    pub zone_blocks: u32,
    /// Open zones allowed, the collector's included.
    pub open_max: u32,
    /// What the first waiter wants, 0 if there is none.
    pub waiting: u64,
    /// The option `low_space`, 0 to 100; 0 is off.
    pub low_space: u8,
}

/// The collector wants at most one part in this many of what is free, or can be freed, to be writable. The fuller the
/// drive, the more live data victims have. To keep in hand all zones that writers might open would copy without end.
const FREE_PARTS: u64 = 3;

/// Blocks that should be writable.
fn wanted(p: Pressure) -> u64 {
    let zones = u64::from(p.open_max.saturating_sub(1)) * u64::from(p.zone_blocks);
    zones.min(p.free / FREE_PARTS)
}

/// With fewer writable blocks than this, writers go at the pace of the collector. It is half of what there should be, so
/// that the collector begins before it holds writers up.
pub fn pace_mark(p: Pressure) -> u64 {
    wanted(p) / 2
}

/// Whether the collector has to run, and why.
///
/// A waiter counts, too: it may want more than all open zones, and nothing else would show that it waits.
pub fn needs_gc(p: Pressure) -> Option<Reason> {
    if !p.reclaimable {
        return None;
    }
    let wanted = wanted(p).max(p.waiting);
    if p.available < wanted {
        return Some(Reason::Low { available: p.available, wanted });
    }
    let percent = p.low_space.min(100);
    (p.available < share(p.free, percent)).then_some(Reason::Percent {
        available: p.available,
        free: p.free,
        percent,
    })
}

/// `percent` of `free`, whole hundreds only, but all of it for 100.
fn share(free: u64, percent: u8) -> u64 {
    if percent >= 100 { free } else { free / 100 * u64::from(percent) }
}
