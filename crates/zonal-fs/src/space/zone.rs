//! State and counters of a zone.

use super::error::BookError;
use zonal_core::ZoneIndex;

/// State of a zone for the allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneState {
    /// Superblock or metadata: not managed here.
    Reserved,
    /// Empty.
    Free,
    /// Open for allocation.
    Open,
    /// Closed for allocation, because it is used up or was abandoned. Writes may still be in
    /// flight.
    Full,
    /// All writes have ended and nothing is live. Waiting for its reset.
    Dead,
    /// Being reset by the device.
    Resetting,
    /// Read-only; final.
    ReadOnly,
    /// Offline; final.
    Offline,
}

impl ZoneState {
    /// All states.
    pub const ALL: [ZoneState; 8] = [
        ZoneState::Reserved,
        ZoneState::Free,
        ZoneState::Open,
        ZoneState::Full,
        ZoneState::Dead,
        ZoneState::Resetting,
        ZoneState::ReadOnly,
        ZoneState::Offline,
    ];
}

impl std::fmt::Display for ZoneState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ZoneState::Reserved => "reserved",
            ZoneState::Free => "free",
            ZoneState::Open => "open",
            ZoneState::Full => "full",
            ZoneState::Dead => "dead",
            ZoneState::Resetting => "being reset",
            ZoneState::ReadOnly => "read-only",
            ZoneState::Offline => "offline",
        })
    }
}

/// Reason why a zone must not be reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// A read in flight.
    Read,
    /// A copy by the collector in flight. Also keeps the zone from being chosen again.
    Copy,
}

/// Condition of a zone that can no longer be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Readable.
    ReadOnly,
    /// Unreadable.
    Offline,
}

/// Account of a zone, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Capacity.
    pub capacity: u32,
    /// Allocated blocks, headers included.
    pub allocated: u32,
    /// Allocated blocks with ended writes, successful or not.
    pub written: u32,
    /// Live data blocks.
    pub used: u32,
    /// Reads in flight.
    pub reads: u32,
    /// Copies in flight.
    pub copies: u16,
    /// State.
    pub state: ZoneState,
}

// A drive of 26 TB has 112,000 zones, and most calls touch this.
const _: () = assert!(size_of::<Zone>() <= 24);

impl Zone {
    pub(super) const fn new(capacity: u32, state: ZoneState) -> Zone {
        Zone { capacity, allocated: 0, written: 0, used: 0, reads: 0, copies: 0, state }
    }

    /// Blocks that can be allocated before a reset.
    pub const fn available(&self) -> u32 {
        match self.state {
            ZoneState::Free => self.capacity,
            ZoneState::Open => self.capacity - self.allocated,
            _ => 0,
        }
    }

    /// Blocks that are neither live nor available: garbage, headers, and abandoned blocks.
    pub const fn reclaimable(&self) -> u32 {
        match self.state {
            ZoneState::Open => self.allocated - self.used,
            ZoneState::Full | ZoneState::Dead | ZoneState::Resetting => self.capacity - self.used,
            _ => 0,
        }
    }

    /// True if the zone can be written, now or after a reset.
    pub const fn is_writable(&self) -> bool {
        !matches!(self.state, ZoneState::Reserved | ZoneState::ReadOnly | ZoneState::Offline)
    }

    /// True if the zone is closed and all its writes have ended.
    pub const fn is_settled(&self) -> bool {
        matches!(self.state, ZoneState::Full) && self.written == self.allocated
    }

    /// Changes to the state that follows from the counters.
    pub(super) fn settle(&mut self) {
        if self.state == ZoneState::Open && self.allocated == self.capacity {
            self.state = ZoneState::Full;
        }
        if self.is_settled() && self.used == 0 {
            self.state = ZoneState::Dead;
        }
    }

    pub(super) fn expect(
        &self,
        zone: ZoneIndex,
        states: &[ZoneState],
        wanted: &'static str,
    ) -> Result<(), BookError> {
        if states.contains(&self.state) {
            return Ok(());
        }
        Err(BookError::State { zone, state: self.state, wanted })
    }
}
