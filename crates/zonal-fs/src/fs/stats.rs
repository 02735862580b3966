//! What a file system tells of itself.

use super::core::Core;
use crate::space::zone::ZoneState;
use crate::space::{self};
use crate::store::Fill;

/// Counted since it was mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Data blocks that were written for users.
    pub written_blocks: u64,
    /// Data blocks that the collector copied.
    pub gc_blocks: u64,
    /// Blocks of these that came too late: the file had been written or was gone.
    pub gc_skipped_blocks: u64,
    /// Zones that were collected.
    pub gc_victims: u64,
    /// Live blocks of those when they were chosen.
    pub gc_victims_blocks: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Writers that had to wait for space.
    pub stalls: u64,
    /// How long all of them waited, in nanoseconds.
    pub stalled_nanos: u64,
    /// How long the longest wait was, in nanoseconds.
    pub stall_nanos_max: u64,
    /// Commits of metadata.
    pub commits: u64,
    /// Units that failed and were sent to another zone, or given up.
    pub failed_units: u64,
    /// Blocks that the collector could not read or verify; their zones stay as they are.
    pub damaged_blocks: u64,
    /// Reads of the place of the metadata by threads that had the lock, since the file system was opened. Other threads waited for
    /// them. Rows are read before, so these are rows that left the cache at once: it is too small.
    pub locked_reads: u64,
    /// Units of users with pieces of several files, or of several places in one.
    pub combined_units: u64,
    /// These pieces.
    pub combined_pieces: u64,
    /// Why the collector ran last.
    pub reason: Option<space::victims::Reason>,
}

impl Statistics {
    /// Adds what was counted later.
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

    /// Blocks written by users and the collector for each one of users.
    pub fn write_amplification(&self) -> f64 {
        match self.written_blocks {
            0 => 1.0,
            written => (written + self.gc_blocks) as f64 / written as f64,
        }
    }
}

/// Space, in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Data blocks that users can ever have. What is neither free nor used waits in memory, or is in flight.
    pub blocks: u64,
    /// Blocks of these that are free or can be freed.
    pub free: u64,
    /// Blocks that can be written without collecting.
    pub available: u64,
    /// Live data blocks.
    pub used: u64,
    /// Zones that are empty.
    pub free_zones: u32,
    /// Zones that are written.
    pub open_zones: u32,
    /// Zones of data.
    pub zones: u32,
    /// Zones of these that became read-only.
    pub read_only_zones: u32,
    /// Live data blocks in them, which are to be moved elsewhere.
    pub read_only: u64,
    /// Zones that are offline.
    pub offline_zones: u32,
    /// Data blocks in them, which are lost.
    pub offline: u64,
    /// How full the place of the metadata is; `None` if it has no bounds.
    pub metadata: Option<Fill>,
}

impl Core {
    /// Statistics, with what others count.
    pub(super) fn told_statistics(&self) -> Statistics {
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
