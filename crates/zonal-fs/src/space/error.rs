//! What is wrong with an account: a caller's mistake, or metadata that contradict each other.

use super::zone::ZoneState;
use thiserror::Error;
use zonal_core::ZoneIndex;

/// A transition that the book refused. The zone is as it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BookError {
    /// The drive has no such zone.
    #[error("zone {zone}: there is no such zone")]
    NoZone {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The state does not allow it.
    #[error("zone {zone}: {wanted} is not possible while it is {state}")]
    State {
        /// The zone.
        zone: ZoneIndex,
        /// Its state.
        state: ZoneState,
        /// What was asked for.
        wanted: &'static str,
    },
    /// More blocks than the zone has left.
    #[error("zone {zone}: {blocks} blocks handed out with {allocated} of {capacity} gone")]
    Overallocated {
        /// The zone.
        zone: ZoneIndex,
        /// Blocks handed out before.
        allocated: u32,
        /// Blocks asked for.
        blocks: u32,
        /// Blocks of the zone.
        capacity: u32,
    },
    /// More blocks ended than were handed out.
    #[error("zone {zone}: {blocks} blocks ended with {written} of {allocated} ended before")]
    Overwritten {
        /// The zone.
        zone: ZoneIndex,
        /// Blocks ended before.
        written: u32,
        /// Blocks that ended.
        blocks: u32,
        /// Blocks handed out.
        allocated: u32,
    },
    /// More live blocks than are written.
    #[error("zone {zone}: {blocks} blocks come to life with {used} live and {written} written")]
    Overused {
        /// The zone.
        zone: ZoneIndex,
        /// Live blocks before.
        used: u32,
        /// Blocks that come to life.
        blocks: u32,
        /// Blocks written.
        written: u32,
    },
    /// More blocks freed than are live.
    #[error("zone {zone}: {blocks} blocks freed of {used} that are live")]
    Underused {
        /// The zone.
        zone: ZoneIndex,
        /// Live blocks before.
        used: u32,
        /// Blocks freed.
        blocks: u32,
    },
    /// A pin taken away that was not there, or one more than can be counted.
    #[error("zone {zone}: its pins do not add up")]
    Pins {
        /// The zone.
        zone: ZoneIndex,
    },
    /// A reset while reads or copies are in flight.
    #[error("zone {zone}: reset under {reads} reads and {copies} copies")]
    Pinned {
        /// The zone.
        zone: ZoneIndex,
        /// Reads in flight.
        reads: u32,
        /// Copies in flight.
        copies: u16,
    },
    /// A reset while what is durable still refers to the zone.
    #[error("zone {zone}: reset with commit {committed} durable, its last blocks were freed by {freed_at}")]
    Referred {
        /// The zone.
        zone: ZoneIndex,
        /// Number of the last commit that is durable.
        committed: u64,
        /// Number of the commit that frees its last blocks.
        freed_at: u64,
    },
}

/// What a mount finds wrong with a zone: the device and the metadata contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The zone.
    pub zone: ZoneIndex,
    /// What is wrong.
    pub fault: Fault,
}

/// How a zone and its account contradict each other. All counts are blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The zone has no write pointer, so it cannot hold data.
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
    /// More live blocks than are written.
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
