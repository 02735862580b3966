//! Statistics and usage of a file system.

use super::core::Core;
use crate::space::zone::ZoneState;
use crate::space::{self};
use crate::store::Fill;

/// Statistics since the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Data blocks written for users.
    pub written_blocks: u64,
    /// Data blocks copied by the collector.
    pub gc_blocks: u64,
    /// Copied blocks that were obsolete on completion: the file had been overwritten or deleted.
    pub gc_skipped_blocks: u64,
    /// Zones collected.
    pub gc_victims: u64,
    /// Live blocks of victims when they were chosen.
    pub gc_victims_blocks: u64,
    /// Zones reset.
    pub resets: u64,
    /// Number of writers that had to wait for space.
    pub stalls: u64,
    /// Total time of these waits, in nanoseconds.
    pub stalled_nanos: u64,
    /// Longest of these waits, in nanoseconds.
    pub stall_nanos_max: u64,
    /// Commits of metadata.
    pub commits: u64,
    /// Units that failed and were sent to another zone, or given up.
    pub failed_units: u64,
    /// Blocks that the collector could not read or verify. Their zones are left as they are.
    pub damaged_blocks: u64,
    /// Reads of metadata from the store under the lock, since the mount. Other threads wait for
    /// them. Rows are prefetched, so a row read here was evicted at once: the cache is too small.
    pub locked_reads: u64,
    /// Units of users with pieces of several files, or of several places in one.
    pub combined_units: u64,
    /// Pieces in these units.
    pub combined_pieces: u64,
    /// Reason for the last garbage collection.
    pub reason: Option<space::victims::Reason>,
}

impl Statistics {
    /// Adds later statistics.
    pub fn add(&mut self, later: &Statistics) {
        self.written_blocks += later.written_blocks;
        self.gc_blocks += later.gc_blocks;
        self.gc_skipped_blocks += later.gc_skipped_blocks;
        self.gc_victims += later.gc_victims;
        self.gc_victims_blocks += later.gc_victims_blocks;
        self.resets += later.resets;
        self.stalls += later.stalls;
        self.stalled_nanos += later.stalled_nanos;
        self.stall_nanos_max = self.stall_nanos_max.max(later.stall_nanos_max);
        self.commits += later.commits;
        self.failed_units += later.failed_units;
        self.damaged_blocks += later.damaged_blocks;
        self.locked_reads += later.locked_reads;
        self.combined_units += later.combined_units;
        self.combined_pieces += later.combined_pieces;
        self.reason = later.reason.or(self.reason);
    }

    /// Blocks written by users and the collector, divided by those of users.
    pub fn write_amplification(&self) -> f64 {
        match self.written_blocks {
            0 => 1.0,
            written => (written + self.gc_blocks) as f64 / written as f64,
        }
    }
}

/// Use of space, in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Data blocks that users can have in total. Blocks that are neither free nor used are in
    /// memory or in flight.
    pub blocks: u64,
    /// Free or reclaimable blocks out of these.
    pub free: u64,
    /// Blocks that can be written without garbage collection.
    pub available: u64,
    /// Live data blocks.
    pub used: u64,
    /// Empty zones.
    pub free_zones: u32,
    /// Zones being written.
    pub open_zones: u32,
    /// Zones for data.
    pub zones: u32,
    /// Read-only zones among these.
    pub read_only_zones: u32,
    /// Live data blocks in read-only zones, which will be moved elsewhere.
    pub read_only: u64,
    /// Offline zones.
    pub offline_zones: u32,
    /// Data blocks in offline zones, which are lost.
    pub offline: u64,
    /// Use of the space for metadata; `None` if it is unlimited.
    pub metadata: Option<Fill>,
}

impl Core {
    /// Statistics, including counters kept elsewhere.
    pub(super) fn all_statistics(&self) -> Statistics {
        Statistics { locked_reads: self.rows.locked_reads(), ..self.statistics }
    }

    pub(super) fn usage(&self) -> Usage {
        let in_flight = self.units.lock().new_blocks();
        let space = self.space.lock();
        let user = space.credit.user();
        let used = space.book.sums().used;
        let ours = |state: &ZoneState| *state != ZoneState::Reserved;
        Usage {
            blocks: space.credit.of_users() + in_flight + used,
            free: user.extents,
            available: user.available,
            used,
            free_zones: space.book.count(ZoneState::Free),
            open_zones: space.open.iter().count() as u32,
            read_only_zones: space.book.count(ZoneState::ReadOnly),
            read_only: space.live_in(ZoneState::ReadOnly),
            offline_zones: space.book.count(ZoneState::Offline),
            offline: space.live_in(ZoneState::Offline),
            metadata: self.rows.gauge().fill(),
            zones: ZoneState::ALL.iter().filter(|s| ours(s)).map(|s| space.book.count(*s)).sum(),
        }
    }
}
