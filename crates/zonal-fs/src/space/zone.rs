//! One zone: its state and its counts.

use super::error::BookError;
use zonal_core::ZoneIndex;

/// What a zone is to the allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneState {
    /// Superblock or metadata: not ours.
    Reserved,
    /// Empty.
    Free,
    /// Blocks are handed out of it.
    Open,
    /// Closed for allocation: nothing left, or given up early. Writes may still be in flight.
    Full,
    /// All writes ended and nothing is live: waits for its reset.
    Dead,
    /// The device is resetting it.
    Resetting,
    /// Can be read only; final.
    ReadOnly,
    /// Lost; final.
    Offline,
}

impl ZoneState {
    /// Every state.
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

/// What keeps a zone from a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// A read in flight.
    Read,
    /// A copy of the collector in flight: the zone is not picked again meanwhile.
    Copy,
}

/// What the device says of a zone that will not be written any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// It can be read.
    ReadOnly,
    /// Nothing of it can be read.
    Offline,
}

/// One zone's account, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Blocks that can be written.
    pub capacity: u32,
    /// Blocks handed out, headers included.
    pub allocated: u32,
    /// Blocks of these whose write ended, well or ill.
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

// A drive of 26 TB has 112,000 zones; this is what most calls touch.
const _: () = assert!(size_of::<Zone>() <= 24);

impl Zone {
    pub(super) const fn new(capacity: u32, state: ZoneState) -> Zone {
        Zone { capacity, allocated: 0, written: 0, used: 0, reads: 0, copies: 0, state }
    }

    /// Blocks that can be handed out before a reset.
    pub const fn available(&self) -> u32 {
        match self.state {
            ZoneState::Free => self.capacity,
            ZoneState::Open => self.capacity - self.allocated,
            _ => 0,
        }
    }

    /// Blocks that are neither live nor available: garbage, headers, and what was given up.
    pub const fn reclaimable(&self) -> u32 {
        match self.state {
            ZoneState::Open => self.allocated - self.used,
            ZoneState::Full | ZoneState::Dead | ZoneState::Resetting => self.capacity - self.used,
            _ => 0,
        }
    }

    /// Whether it can be written, now or after a reset.
    pub const fn is_writable(&self) -> bool {
        !matches!(self.state, ZoneState::Reserved | ZoneState::ReadOnly | ZoneState::Offline)
    }

    /// Whether it is closed and all its writes have ended.
    pub const fn is_settled(&self) -> bool {
        matches!(self.state, ZoneState::Full) && self.written == self.allocated
    }

    /// Moves on to the state that follows from the counts.
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
