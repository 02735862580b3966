//! Accounting errors: a caller's mistake, or contradictory metadata.

use super::zone::ZoneState;
use thiserror::Error;
use zonal_core::ZoneIndex;

/// A transition refused by the book. The zone is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BookError {
    /// The drive has no such zone.
    #[error("zone {zone} does not exist")]
    NoZone {
        /// The zone.
        zone: ZoneIndex,
    },
    /// Not possible in this state.
    #[error("zone {zone}: {wanted} is not possible while it is {state}")]
    State {
        /// The zone.
        zone: ZoneIndex,
        /// State of the zone.
        state: ZoneState,
        /// The requested transition.
        wanted: &'static str,
    },
    /// More blocks allocated than the zone has left.
    #[error("zone {zone}: {blocks} blocks allocated with {allocated} of {capacity} in use")]
    Overallocated {
        /// The zone.
        zone: ZoneIndex,
        /// Blocks allocated before.
        allocated: u32,
        /// Blocks requested.
        blocks: u32,
        /// Capacity of the zone.
        capacity: u32,
    },
    /// More blocks ended than allocated.
    #[error("zone {zone}: {blocks} blocks ended with {written} of {allocated} ended before")]
    Overwritten {
        /// The zone.
        zone: ZoneIndex,
        /// Blocks ended before.
        written: u32,
        /// Blocks that ended.
        blocks: u32,
        /// Blocks allocated.
        allocated: u32,
    },
    /// More live blocks than written ones.
    #[error("zone {zone}: {blocks} blocks become live with {used} live and {written} written")]
    Overused {
        /// The zone.
        zone: ZoneIndex,
        /// Live blocks before.
        used: u32,
        /// Blocks that become live.
        blocks: u32,
        /// Blocks written.
        written: u32,
    },
    /// More blocks freed than are live.
    #[error("zone {zone}: {blocks} blocks freed with {used} live")]
    Underused {
        /// The zone.
        zone: ZoneIndex,
        /// Live blocks before.
        used: u32,
        /// Blocks freed.
        blocks: u32,
    },
    /// A pin removed that does not exist, or one more than can be counted.
    #[error("zone {zone}: pin count out of range")]
    Pins {
        /// The zone.
        zone: ZoneIndex,
    },
    /// A reset while reads or copies are in flight.
    #[error("zone {zone}: reset with {reads} reads and {copies} copies in flight")]
    Pinned {
        /// The zone.
        zone: ZoneIndex,
        /// Reads in flight.
        reads: u32,
        /// Copies in flight.
        copies: u16,
    },
    /// A reset while the durable metadata still refer to the zone.
    #[error(
        "zone {zone}: reset after commit {committed}, but its last blocks are freed by commit {freed_at}"
    )]
    Referred {
        /// The zone.
        zone: ZoneIndex,
        /// Number of the last durable commit.
        committed: u64,
        /// Number of the commit that frees the last blocks.
        freed_at: u64,
    },
}

/// A contradiction between device and metadata, found at mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The zone.
    pub zone: ZoneIndex,
    /// The contradiction.
    pub fault: Fault,
}

/// A contradiction between a zone and its account. All counts are blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A conventional zone, which cannot hold data.
    #[error("a conventional zone holds data")]
    Conventional,
    /// The write pointer lies beyond the capacity.
    #[error("write pointer {pointer} beyond the capacity {capacity}")]
    PointerBeyondCapacity {
        /// Write pointer.
        pointer: u32,
        /// Capacity.
        capacity: u32,
    },
    /// More live blocks than the zone can hold.
    #[error("{used} live blocks in a zone of {capacity}")]
    UsedBeyondCapacity {
        /// Live blocks.
        used: u32,
        /// Capacity.
        capacity: u32,
    },
    /// More live blocks than written ones.
    #[error("{used} live blocks below write pointer {pointer}")]
    UsedBeyondPointer {
        /// Live blocks.
        used: u32,
        /// Write pointer.
        pointer: u32,
    },
    /// Live blocks in an empty zone.
    #[error("{used} live blocks in an empty zone")]
    UsedInEmpty {
        /// Live blocks.
        used: u32,
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "zone {}: {}", self.zone, self.fault)
    }
}
