//! Selection of the next zone to collect, by the number of live blocks.
//!
//! Owns an index of the settled zones in the book: closed for allocation, all writes ended, some
//! blocks live. The book adds zones, moves them when blocks are freed, and removes them when
//! nothing is live any more.
//!
//! A zone is not a victim if resetting it would gain no more blocks than copying its live data
//! needs. A collector that moves such zones around never ends, and its waiters wait for ever. In a
//! file system without headers, only zones without garbage are like that; here a full zone may
//! contain garbage that is not worth collecting.
//!
//! There are ten buckets, by tenths of the number of live blocks at which nothing is gained. Within
//! a bucket, zones are sorted by live blocks, then by index. So the search looks at one zone, plus
//! one for each zone that is being copied. XFS has unsorted buckets, scans the lowest one, and
//! stops at the first zone below one percent; here the first is the minimum.

use std::collections::BTreeSet;
use zonal_core::ZoneIndex;

/// Number of buckets, by tenths of the number of live blocks at which nothing is gained.
pub const BUCKETS: usize = 10;

/// Number of zones in each of the ten buckets, and of zones with nothing to gain.
pub type Histogram = [u32; BUCKETS + 1];

/// Maximum number of blocks that copying a zone needs beyond data and headers of full units, plus
/// one block of gain. The target zone may end within a unit, which takes another header. Its last
/// block is wasted if only a header fits there.
pub(super) const COPY_WASTE: u32 = 3;

/// Live blocks of a zone, and the threshold at which nothing is gained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    pub used: u32,
    pub gains_below: u32,
}

impl Fill {
    /// Bucket of the zone, or [`BUCKETS`] if collecting it gains nothing.
    fn bucket(self) -> usize {
        if self.used >= self.gains_below {
            return BUCKETS;
        }
        (u64::from(self.used) * BUCKETS as u64 / u64::from(self.gains_below)) as usize
    }
}

/// Index of victims.
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

    /// The zone with the fewest live blocks in the lowest non-empty bucket, except `busy` ones.
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

/// Reason for garbage collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Fewer blocks are writable than all open zones, or the first waiter, may need.
    Low {
        /// Blocks that users can write now.
        available: u64,
        /// Target for that number.
        wanted: u64,
    },
    /// Fewer blocks are writable than the configured share of those free or reclaimable.
    Percent {
        /// Blocks that users can write now.
        available: u64,
        /// Blocks that are free or can be freed.
        free: u64,
        /// The share, in percent.
        percent: u8,
    },
    /// Requested by a caller.
    Forced,
    /// A zone became read-only, and may be lost next.
    ReadOnlyZone,
}

/// Inputs of the decision whether to collect. All counts are blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// True if collecting some zone gains anything.
    pub reclaimable: bool,
    /// Blocks that users can write now.
    pub available: u64,
    /// Blocks that users could write in the end: free or reclaimable.
    pub free: u64,
    /// Capacity of a zone.
    pub zone_blocks: u32,
    /// Maximum number of open zones, the collector's included.
    pub open_max: u32,
    /// Blocks wanted by the first waiter, 0 without one.
    pub waiting: u64,
    /// The option `low_space`, 0 to 100; 0 is off.
    pub low_space: u8,
}

/// Inverse of the maximum share of free and reclaimable blocks that the collector keeps writable.
/// The fuller the drive, the more live data victims have. Keeping enough space for all zones that
/// writers might open would lead to endless copying.
const FREE_PARTS: u64 = 3;

/// Target for the number of writable blocks.
fn wanted(p: Pressure) -> u64 {
    let zones = u64::from(p.open_max.saturating_sub(1)) * u64::from(p.zone_blocks);
    zones.min(p.free / FREE_PARTS)
}

/// Number of writable blocks below which writers are paced by the collector: half the target, so
/// that the collector starts before it slows writers down.
pub fn pace_mark(p: Pressure) -> u64 {
    wanted(p) / 2
}

/// Decides whether to collect, and returns the reason.
///
/// A waiter counts, too: it may want more than all open zones, and nothing else would show that it
/// waits.
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

/// `percent` of `free`, rounded down to whole hundreds, except for 100 percent.
fn share(free: u64, percent: u8) -> u64 {
    if percent >= 100 { free } else { free / 100 * u64::from(percent) }
}
