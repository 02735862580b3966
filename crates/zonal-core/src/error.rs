//! Errors with their facts: what a device answers, and what a request ends with.

use crate::budget::Holders;
use crate::units::{Sector, ZoneIndex};

/// A zone's refusal of a command. The device's state is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
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
    /// A command for conventional zones was sent to a sequential one.
    #[error("zone is sequential")]
    Sequential,
}

impl ZoneError {
    /// Every kind, in the order of the ZNS status numbers.
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

    /// The one word that traces and fault plans use.
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

/// What a device answers to a command that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
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
    /// The device had no room for the command just now. Nothing was carried out; it may be sent again.
    #[error("device is busy")]
    Busy,
    /// Something happened to the device that its host should know, such as a reset. Nothing of this command was carried
    /// out; it may be sent again.
    #[error("unit attention: the device was reset or changed")]
    UnitAttention,
    /// The command was given up; how much of it was carried out is not known, and no more of it will be.
    #[error("command was aborted")]
    Aborted,
    /// No answer came in time. The command may have been carried out in whole, in part or not at all, and may still be,
    /// until the device says otherwise.
    #[error("no answer in time")]
    TimedOut,
    /// The device is without power or has been taken away; what it did before that is not known.
    #[error("device is gone")]
    Gone,
    /// The device was opened for reading. Nothing of the command was carried out.
    #[error("the device is open for reading only, as asked or because its file may not be written")]
    OpenedForReading,
    /// The operating system's error number, from a file or a driver.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

impl DeviceError {
    /// Whether the medium may have changed although the command failed.
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
            | DeviceError::OpenedForReading => false,
        }
    }

    /// Whether the command may still be carried out after this answer.
    pub const fn may_come_late(self) -> bool {
        matches!(self, DeviceError::TimedOut)
    }

    /// The one word that traces and fault plans use; for a zone's refusal, the zone's.
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
            DeviceError::Os(_) => "os-error",
        }
    }

    /// Every kind that has no number of its own, zones' refusals included.
    pub fn all() -> impl Iterator<Item = DeviceError> {
        const OWN: [DeviceError; 10] = [
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
        ];
        OWN.into_iter().chain(ZoneError::ALL.into_iter().map(DeviceError::Zone))
    }

    /// The error that `word` stands for, if it is one of [`DeviceError::all`].
    pub fn from_word(word: &str) -> Option<DeviceError> {
        DeviceError::all().find(|e| e.word() == word)
    }
}

/// What a request ends with when it does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum RequestError {
    /// A positional write that does not begin at the zone's issue pointer.
    #[error("zone {zone}: write at offset {offset} but the write pointer is at {write_pointer} (sectors)")]
    NotAtWritePointer {
        /// The zone.
        zone: ZoneIndex,
        /// Issue-time pointer, in sectors from the zone's start.
        write_pointer: u32,
        /// Where the write would begin, in sectors from the zone's start.
        offset: u32,
    },
    /// An earlier write was lost at `lost_at`, where this positional write's position depends on it. Once
    /// no write of the zone waits any more, or another has taken the lost one's place, a write ahead of the pointer is parked or refused
    /// as any other.
    #[error("zone {zone}: an earlier write was lost at offset {lost_at}, this one at {offset} depends on it")]
    PredecessorLost {
        /// The zone.
        zone: ZoneIndex,
        /// Where the zone continues, in sectors from the zone's start.
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
    /// The request is for conventional zones only, and reaches this sequential one.
    #[error("zone {zone} is sequential: only sectors of conventional zones are discarded, this one is reset")]
    Sequential {
        /// The first such zone.
        zone: ZoneIndex,
    },
    /// The range does not lie on the device.
    #[error("sector {sector} and what follows lie beyond the device's end")]
    OutOfRange {
        /// First sector of the request.
        sector: Sector,
    },
    /// Not a multiple of the block size, an empty or oversized request, an append not at a zone start, or a buffer
    /// whose length is not that of the request.
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
    /// The write lay ahead of the pointer and waited for those before it, which did not come.
    #[error(
        "zone {zone}: the write at offset {offset} waited for those before it, but the zone still stands at {write_pointer}"
    )]
    PredecessorMissing {
        /// The zone.
        zone: ZoneIndex,
        /// Issue-time pointer, in sectors from the zone's start.
        write_pointer: u32,
        /// Where the write would begin.
        offset: u32,
    },
    /// The zone needs an open or active slot to be written or opened, none is free, and nothing under way will free one.
    /// Nothing of the request was written.
    #[error(
        "zone {zone}: no open or active zone is left, and nothing under way will free one: {holders} may be finished, closed or reset"
    )]
    NoSlot {
        /// The zone.
        zone: ZoneIndex,
        /// The zones that hold the slots it lacks.
        holders: Holders,
    },
    /// The device failed the write, and whether it was executed cannot be told. The zone continues at `write_pointer`,
    /// and what lies below that may be this write, a part of it, or another's.
    #[error(
        "zone {zone}: what became of the write at offset {offset} is not known, the zone continues at {write_pointer}: {error}"
    )]
    FateUnknown {
        /// The zone.
        zone: ZoneIndex,
        /// Where the write would begin, or an append would have gone by the order of its issue.
        offset: u32,
        /// Where the zone continues; where the device could not say that, where it would if nothing had failed.
        write_pointer: u32,
        /// What the device said.
        error: DeviceError,
    },
    /// The append failed and left garbage in the zone. The zone continues after the garbage.
    #[error(
        "zone {zone}: an append failed and left {sectors} sectors of garbage at offset {offset}: {error}"
    )]
    TornAppend {
        /// The zone.
        zone: ZoneIndex,
        /// First sector of the garbage, as far as the device took appends in the order of their issue.
        offset: u32,
        /// Length of the garbage.
        sectors: u32,
        /// What the device said.
        error: DeviceError,
    },
    /// The write was not executed, was sent again, and failed each time. Nothing of it was written by the last try.
    #[error("zone {zone}: the write at offset {offset} failed again after {rounds} more tries: {error}")]
    GaveUp {
        /// The zone.
        zone: ZoneIndex,
        /// Where the write would begin.
        offset: u32,
        /// How often it was sent again.
        rounds: u8,
        /// What the device said the last time.
        error: DeviceError,
    },
    /// The request's channel was cancelled before the request went out. Nothing of it was written.
    #[error("the request was cancelled")]
    Cancelled,
    /// A part of the request failed, while other parts of it are, or may be, on the medium: a request that spans zones is one
    /// part a zone, and one beyond the largest command several commands.
    #[error(
        "the part of the request at sector {sector} failed, {written} sectors of the others were written: {error}"
    )]
    InPart {
        /// First sector of the first part that failed.
        sector: Sector,
        /// Sectors of the request that are known to be on the medium: all before `sector`, and what other parts wrote.
        written: u32,
        /// What the device said of that part, or would have said where the write path refused it.
        error: DeviceError,
    },
    /// The device refused or failed the command.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

const _: () = assert!(size_of::<RequestError>() <= 24, "an error travels in three words");

impl RequestError {
    /// Whether the request may have left bytes on the medium although it failed.
    pub const fn is_uncertain(&self) -> bool {
        match self {
            RequestError::Device(error) => error.is_uncertain(),
            RequestError::FateUnknown { .. }
            | RequestError::TornAppend { .. }
            | RequestError::InPart { .. } => true,
            _ => false,
        }
    }

    /// Sectors of the request that are known to be on the medium.
    pub const fn sectors_written(&self) -> u32 {
        match self {
            RequestError::InPart { written, .. } => *written,
            _ => 0,
        }
    }

    /// What a device would answer that knows no write path: its own answer, or the one for what the write path refused.
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
    /// The same error for a caller whose zones and sectors have other numbers: `of_zone` and `of_sector` give the caller's.
    /// A zone that the caller cannot name is `None`.
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
        // Ten of the device, ten of the zone; an error number has a word but is not found by it.
        assert_eq!(all.len(), 20);
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
        let late: Vec<_> = DeviceError::all().filter(|e| e.may_come_late()).collect();
        assert_eq!(late, [DeviceError::TimedOut]);
    }
}
