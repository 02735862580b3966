//! Errors of devices and of requests, with the facts that explain them.

use crate::budget::Holders;
use crate::units::{Sector, ZoneIndex};

/// Rejection of a command by a zone. The device's state is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum ZoneError {
    /// The write does not start at the write pointer, or another write of the zone is in flight
    /// (ZNS BCh).
    #[error("write is not at the write pointer")]
    InvalidWrite,
    /// The command extends beyond the zone's capacity or end (ZNS B8h).
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
    /// A command for conventional zones was sent to a sequential one.
    #[error("zone is sequential")]
    Sequential,
}

impl ZoneError {
    /// All errors: the ZNS ones in the order of their status codes, then the others.
    pub const ALL: [ZoneError; 10] = [
        ZoneError::Boundary,
        ZoneError::Full,
        ZoneError::ReadOnly,
        ZoneError::Offline,
        ZoneError::InvalidWrite,
        ZoneError::TooManyActive,
        ZoneError::TooManyOpen,
        ZoneError::InvalidTransition,
        ZoneError::Conventional,
        ZoneError::Sequential,
    ];

    /// Keyword of the error in traces and fault plans.
    pub const fn word(self) -> &'static str {
        match self {
            ZoneError::InvalidWrite => "invalid-write",
            ZoneError::Boundary => "boundary",
            ZoneError::Full => "full",
            ZoneError::ReadOnly => "read-only",
            ZoneError::Offline => "offline",
            ZoneError::TooManyActive => "too-many-active",
            ZoneError::TooManyOpen => "too-many-open",
            ZoneError::InvalidTransition => "invalid-transition",
            ZoneError::Conventional => "conventional",
            ZoneError::Sequential => "sequential",
        }
    }
}

/// Error of a device command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum DeviceError {
    /// Rejected by the zone's rules.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// The range extends beyond the end of the device.
    #[error("range lies beyond the device's end")]
    OutOfRange,
    /// Invalid alignment, length or field.
    #[error("invalid field in the command")]
    InvalidField,
    /// The device does not support the operation.
    #[error("operation is not supported")]
    Unsupported,
    /// Medium error. The amount written is unknown.
    #[error("medium error")]
    Medium,
    /// The device has no room for the command at the moment. Nothing was executed; the command may
    /// be retried.
    #[error("device is busy")]
    Busy,
    /// The device reports a change of its state, such as a reset. Nothing of this command was
    /// executed; it may be retried.
    #[error("unit attention: the device was reset or changed")]
    UnitAttention,
    /// The command was aborted. It may have been executed in part, but no more of it will be.
    #[error("command was aborted")]
    Aborted,
    /// The command did not complete in time. It may have been executed in whole, in part or not at
    /// all, and may still be, until the device rules that out.
    #[error("command timed out")]
    TimedOut,
    /// The device lost power or was removed. What it executed before that is unknown.
    #[error("device is gone")]
    Gone,
    /// The device is open read-only. Nothing of the command was executed.
    #[error("the device is open for reading only, as asked or because its file may not be written")]
    OpenedForReading,
    /// The operating system's own write pointer of the zone differs from the drive's, so that it
    /// refuses every write. Nothing of the command was executed.
    #[error(
        "the kernel's write pointer of the zone is stale, so that it refuses every write: see `zonal doctor`"
    )]
    Stale,
    /// Error number of the operating system, from a file or a driver.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

impl DeviceError {
    /// True if the medium may have changed although the command failed.
    pub const fn is_uncertain(self) -> bool {
        match self {
            DeviceError::Medium
            | DeviceError::Aborted
            | DeviceError::TimedOut
            | DeviceError::Gone
            | DeviceError::Os(_) => true,
            DeviceError::Zone(_)
            | DeviceError::OutOfRange
            | DeviceError::InvalidField
            | DeviceError::Unsupported
            | DeviceError::Busy
            | DeviceError::UnitAttention
            | DeviceError::OpenedForReading
            | DeviceError::Stale => false,
        }
    }

    /// True if the command may still be executed after this error.
    pub const fn may_execute_late(self) -> bool {
        matches!(self, DeviceError::TimedOut)
    }

    /// Keyword of the error in traces and fault plans.
    pub const fn word(self) -> &'static str {
        match self {
            DeviceError::Zone(error) => error.word(),
            DeviceError::OutOfRange => "out-of-range",
            DeviceError::InvalidField => "invalid-field",
            DeviceError::Unsupported => "unsupported",
            DeviceError::Medium => "medium",
            DeviceError::Busy => "busy",
            DeviceError::UnitAttention => "unit-attention",
            DeviceError::Aborted => "aborted",
            DeviceError::TimedOut => "timed-out",
            DeviceError::Gone => "gone",
            DeviceError::OpenedForReading => "opened-for-reading",
            DeviceError::Stale => "stale",
            DeviceError::Os(_) => "os-error",
        }
    }

    /// All errors except [`DeviceError::Os`], including zone errors.
    pub fn all() -> impl Iterator<Item = DeviceError> {
        const OWN: [DeviceError; 11] = [
            DeviceError::OutOfRange,
            DeviceError::InvalidField,
            DeviceError::Unsupported,
            DeviceError::Medium,
            DeviceError::Busy,
            DeviceError::UnitAttention,
            DeviceError::Aborted,
            DeviceError::TimedOut,
            DeviceError::Gone,
            DeviceError::OpenedForReading,
            DeviceError::Stale,
        ];
        OWN.into_iter().chain(ZoneError::ALL.into_iter().map(DeviceError::Zone))
    }

    /// Returns the error with this keyword, if it is one of [`DeviceError::all`].
    pub fn from_word(word: &str) -> Option<DeviceError> {
        DeviceError::all().find(|e| e.word() == word)
    }
}

/// Error of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum RequestError {
    /// The positional write does not start at the zone's issue-time pointer.
    #[error("zone {zone}: write at offset {offset} but the write pointer is at {write_pointer} (sectors)")]
    NotAtWritePointer {
        /// The zone.
        zone: ZoneIndex,
        /// Issue-time pointer, in sectors from the zone's start.
        write_pointer: u32,
        /// Offset of the write, in sectors from the zone's start.
        offset: u32,
    },
    /// An earlier write was lost at `lost_at`, and this positional write lies behind it. Once no
    /// write of the zone is waiting, or another write has taken the place of the lost one, a write
    /// ahead of the pointer is parked or refused as usual.
    #[error("zone {zone}: an earlier write was lost at offset {lost_at}, this one at {offset} depends on it")]
    PredecessorLost {
        /// The zone.
        zone: ZoneIndex,
        /// Offset at which the zone continues, in sectors from the zone's start.
        lost_at: u32,
        /// Offset of this write.
        offset: u32,
    },
    /// The write extends beyond the zone's capacity.
    #[error("zone {zone}: write ends at offset {end}, beyond the capacity of {capacity} (sectors)")]
    BeyondCapacity {
        /// The zone.
        zone: ZoneIndex,
        /// End of the write, in sectors from the zone's start.
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
    /// The request is valid in conventional zones only, and its range includes a sequential zone.
    #[error("zone {zone} is sequential: only conventional zones can be discarded; reset this zone instead")]
    Sequential {
        /// First sequential zone of the range.
        zone: ZoneIndex,
    },
    /// The range extends beyond the end of the device.
    #[error("the request at sector {sector} extends beyond the device's end")]
    OutOfRange {
        /// First sector of the request.
        sector: Sector,
    },
    /// Invalid request: not a multiple of the block size, empty or too large, an append not at a
    /// zone start, or a buffer of the wrong length.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// A `nowait` request would have had to wait. Nothing was changed.
    #[error("the request would wait")]
    WouldWait,
    /// The zone was reset or finished while the write was waiting. Nothing of it was written.
    #[error("zone {zone}: reset or finished while the write waited")]
    Aborted {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The write was parked ahead of the write pointer, and its predecessors did not arrive in
    /// time.
    #[error(
        "zone {zone}: the write at offset {offset} waited for its predecessors, but the write pointer is still at {write_pointer}"
    )]
    PredecessorMissing {
        /// The zone.
        zone: ZoneIndex,
        /// Issue-time pointer, in sectors from the zone's start.
        write_pointer: u32,
        /// Offset of the write.
        offset: u32,
    },
    /// The zone needs an open or active slot, none is free, and nothing in flight will free one.
    /// Nothing of the request was written.
    #[error(
        "zone {zone}: no open or active slot is free, and nothing in flight will free one (held by {holders}): finish, close or reset a zone"
    )]
    NoSlot {
        /// The zone.
        zone: ZoneIndex,
        /// Zones that hold the slots.
        holders: Holders,
    },
    /// The write failed, and it is unknown if it was executed. The zone continues at
    /// `write_pointer`; the data below may be this write, a part of it, or another write.
    #[error(
        "zone {zone}: the write at offset {offset} failed and may have been executed, the zone continues at {write_pointer}: {error}"
    )]
    FateUnknown {
        /// The zone.
        zone: ZoneIndex,
        /// Offset of the write; of an append, the offset expected from the order of issue.
        offset: u32,
        /// Offset at which the zone continues. If the device cannot report it, the pointer as if
        /// nothing had failed.
        write_pointer: u32,
        /// Error of the device.
        error: DeviceError,
    },
    /// The append failed and left garbage in the zone. The zone continues behind the garbage.
    #[error(
        "zone {zone}: an append failed and left {sectors} sectors of garbage at offset {offset}: {error}"
    )]
    TornAppend {
        /// The zone.
        zone: ZoneIndex,
        /// First sector of the garbage, assuming that the device executed appends in the order of
        /// issue.
        offset: u32,
        /// Length of the garbage.
        sectors: u32,
        /// Error of the device.
        error: DeviceError,
    },
    /// The write was not executed, or only its beginning was, and every retry failed.
    #[error("zone {zone}: the write at offset {offset} failed after {rounds} retries: {error}")]
    GaveUp {
        /// The zone.
        zone: ZoneIndex,
        /// Offset of the write.
        offset: u32,
        /// Number of retries.
        rounds: u8,
        /// Error of the last retry.
        error: DeviceError,
    },
    /// The request's channel was cancelled before the request was issued. Nothing of it was
    /// written.
    #[error("the request was cancelled")]
    Cancelled,
    /// A part of the request failed, while other parts are, or may be, on the medium. A request is
    /// split at zone boundaries and at the largest command.
    #[error("the request failed in part at sector {sector}, {written} sectors of it were written: {error}")]
    InPart {
        /// First sector of the first part that failed.
        sector: Sector,
        /// Sectors of the request known to be on the medium: all before `sector`, and those written
        /// by other parts.
        written: u32,
        /// Device error of that part, or the device error equivalent to a refusal by the write
        /// path.
        error: DeviceError,
    },
    /// The device rejected or failed the command.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

const _: () = assert!(size_of::<RequestError>() <= 24, "an error travels in three words");

impl RequestError {
    /// True if the request may have written to the medium although it failed.
    pub const fn is_uncertain(&self) -> bool {
        match self {
            RequestError::Device(error) => error.is_uncertain(),
            RequestError::FateUnknown { .. }
            | RequestError::TornAppend { .. }
            | RequestError::InPart { .. } => true,
            _ => false,
        }
    }

    /// Sectors of the request known to be on the medium.
    pub const fn sectors_written(&self) -> u32 {
        match self {
            RequestError::InPart { written, .. } => *written,
            _ => 0,
        }
    }

    /// Converts to the error of a plain device: the device's own error, or the one equivalent to a
    /// refusal by the write path.
    pub const fn as_device(&self) -> DeviceError {
        match *self {
            RequestError::NotAtWritePointer { .. }
            | RequestError::PredecessorLost { .. }
            | RequestError::PredecessorMissing { .. } => DeviceError::Zone(ZoneError::InvalidWrite),
            RequestError::BeyondCapacity { .. } => DeviceError::Zone(ZoneError::Boundary),
            RequestError::ZoneFull { .. } => DeviceError::Zone(ZoneError::Full),
            RequestError::ZoneReadOnly { .. } => DeviceError::Zone(ZoneError::ReadOnly),
            RequestError::ZoneOffline { .. } => DeviceError::Zone(ZoneError::Offline),
            RequestError::Conventional { .. } => DeviceError::Zone(ZoneError::Conventional),
            RequestError::Sequential { .. } => DeviceError::Zone(ZoneError::Sequential),
            RequestError::NoSlot { .. } => DeviceError::Zone(ZoneError::TooManyActive),
            RequestError::OutOfRange { .. } => DeviceError::OutOfRange,
            RequestError::Invalid(_) => DeviceError::InvalidField,
            RequestError::WouldWait => DeviceError::Busy,
            RequestError::Aborted { .. } | RequestError::Cancelled => DeviceError::Aborted,
            RequestError::FateUnknown { error, .. }
            | RequestError::TornAppend { error, .. }
            | RequestError::GaveUp { error, .. }
            | RequestError::InPart { error, .. }
            | RequestError::Device(error) => error,
        }
    }
}

impl RequestError {
    /// Translates zones and sectors to the caller's numbering. `of_zone` returns `None` for a zone
    /// outside of it.
    pub fn renumbered(
        mut self,
        of_zone: impl Fn(ZoneIndex) -> Option<ZoneIndex>,
        of_sector: impl Fn(Sector) -> Sector,
    ) -> RequestError {
        match &mut self {
            RequestError::NotAtWritePointer { zone, .. }
            | RequestError::PredecessorLost { zone, .. }
            | RequestError::BeyondCapacity { zone, .. }
            | RequestError::ZoneFull { zone }
            | RequestError::ZoneReadOnly { zone }
            | RequestError::ZoneOffline { zone }
            | RequestError::Conventional { zone }
            | RequestError::Sequential { zone }
            | RequestError::Aborted { zone }
            | RequestError::PredecessorMissing { zone, .. }
            | RequestError::FateUnknown { zone, .. }
            | RequestError::TornAppend { zone, .. }
            | RequestError::GaveUp { zone, .. } => *zone = of_zone(*zone).unwrap_or(*zone),
            RequestError::NoSlot { zone, holders } => {
                *zone = of_zone(*zone).unwrap_or(*zone);
                *holders = holders.renamed(of_zone);
            }
            RequestError::OutOfRange { sector } | RequestError::InPart { sector, .. } => {
                *sector = of_sector(*sector);
            }
            RequestError::Invalid(_)
            | RequestError::WouldWait
            | RequestError::Cancelled
            | RequestError::Device(_) => {}
        }
        self
    }
}

impl From<ZoneError> for RequestError {
    fn from(e: ZoneError) -> RequestError {
        RequestError::Device(DeviceError::Zone(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_word_of_its_own_and_is_found_by_it() {
        let all: Vec<DeviceError> = DeviceError::all().collect();
        // Eleven device errors and ten zone errors. An OS error has a keyword but is not found by it.
        assert_eq!(all.len(), 21);
        for error in &all {
            assert_eq!(DeviceError::from_word(error.word()), Some(*error), "{error}");
        }
        assert_eq!(DeviceError::from_word(DeviceError::Os(5).word()), None);
    }

    #[test]
    fn errors_that_leave_the_medium_in_doubt_are_these() {
        let mut doubtful: Vec<&str> =
            DeviceError::all().filter(|e| e.is_uncertain()).map(DeviceError::word).collect();
        doubtful.sort_unstable();
        assert_eq!(doubtful, ["aborted", "gone", "medium", "timed-out"]);
        assert!(RequestError::Device(DeviceError::Os(5)).is_uncertain());
        assert!(!RequestError::WouldWait.is_uncertain());
        let late: Vec<_> = DeviceError::all().filter(|e| e.may_execute_late()).collect();
        assert_eq!(late, [DeviceError::TimedOut]);
    }
}
