//! Errors with their facts: what a device answers, and what a request ends with.

use crate::units::{Sector, ZoneIndex};

/// A zone's refusal of a command. The device's state is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// The write does not begin at the write pointer, or another write of the zone is in flight (ZNS BCh).
    #[error("write is not at the write pointer")]
    InvalidWrite,
    /// The command goes beyond the zone's capacity or end (ZNS B8h).
    #[error("command goes beyond the zone's capacity")]
    Boundary,
    /// The zone is full (ZNS B9h).
    #[error("zone is full")]
    Full,
    /// The zone is read-only (ZNS BAh).
    #[error("zone is read-only")]
    ReadOnly,
    /// The zone is offline (ZNS BBh).
    #[error("zone is offline")]
    Offline,
    /// No active resource is left (ZNS BDh).
    #[error("too many active zones")]
    TooManyActive,
    /// No open resource is left (ZNS BEh).
    #[error("too many open zones")]
    TooManyOpen,
    /// The zone's condition does not allow the management command (ZNS BFh).
    #[error("zone state does not allow this command")]
    InvalidTransition,
    /// A zone command was sent to a conventional zone.
    #[error("zone is conventional")]
    Conventional,
}

/// What a device answers to a command that it did not carry out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Refused by the zone's rules.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// The range does not lie on the device.
    #[error("range lies beyond the device's end")]
    OutOfRange,
    /// Wrong alignment, length or field.
    #[error("invalid field in the command")]
    InvalidField,
    /// The device does not know the operation.
    #[error("operation is not supported")]
    Unsupported,
    /// The medium failed; how much was written is not known.
    #[error("medium error")]
    Medium,
    /// The operating system's error number, from a file or a driver.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

/// What a request ends with when it does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A positional write that does not begin where the zone goes on.
    #[error("zone {zone}: write at offset {offset} but the write pointer is at {write_pointer} (sectors)")]
    NotAtWritePointer {
        /// The zone.
        zone: ZoneIndex,
        /// Issue-time pointer, in sectors from the zone's start.
        write_pointer: u32,
        /// Where the write would begin, in sectors from the zone's start.
        offset: u32,
    },
    /// An earlier write was lost at `lost_at`, where this positional write's position depends on it.
    #[error("zone {zone}: an earlier write was lost at offset {lost_at}, this one at {offset} depends on it")]
    PredecessorLost {
        /// The zone.
        zone: ZoneIndex,
        /// Where the zone goes on, in sectors from the zone's start.
        lost_at: u32,
        /// Where this write would begin.
        offset: u32,
    },
    /// The write goes beyond the zone's capacity.
    #[error("zone {zone}: write ends at offset {end}, beyond the capacity of {capacity} (sectors)")]
    BeyondCapacity {
        /// The zone.
        zone: ZoneIndex,
        /// Where the write would end, in sectors from the zone's start.
        end: u32,
        /// Capacity, in sectors.
        capacity: u32,
    },
    /// The zone is full.
    #[error("zone {zone} is full")]
    ZoneFull {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The zone is read-only.
    #[error("zone {zone} is read-only")]
    ZoneReadOnly {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The zone is offline.
    #[error("zone {zone} is offline")]
    ZoneOffline {
        /// The zone.
        zone: ZoneIndex,
    },
    /// A zone command or append was sent to a conventional zone.
    #[error("zone {zone} is conventional")]
    Conventional {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The range does not lie on the device.
    #[error("sector {sector} and what follows lie beyond the device's end")]
    OutOfRange {
        /// First sector of the request.
        sector: Sector,
    },
    /// Not a multiple of the block size, an empty or oversized request, an append not at a zone start, or a buffer that
    /// is not as long as the request.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// A `nowait` request would have had to wait. Nothing was changed.
    #[error("the request would wait")]
    WouldWait,
    /// The zone was reset or finished while the write waited. Nothing of it was written.
    #[error("zone {zone}: reset or finished while the write waited")]
    Aborted {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The device refused or failed the command.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

impl RequestError {
    /// Whether the request may have left bytes on the medium although it failed.
    pub const fn is_uncertain(&self) -> bool {
        matches!(self, RequestError::Device(DeviceError::Medium | DeviceError::Os(_)))
    }
}

impl From<ZoneError> for RequestError {
    fn from(e: ZoneError) -> RequestError {
        RequestError::Device(DeviceError::Zone(e))
    }
}
