//! What a job failed by, or lacked.

use super::verify::Mismatch;
use crate::measure::Dir;
use std::fmt;
use std::path::PathBuf;
use zonal_core::{DeviceError, Op, RequestError, Sector};

/// The first error of a job, with its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// A request failed.
    Request {
        /// What it was.
        op: Op,
        /// Its first sector; of an append and of zone management, the zone's.
        sector: Sector,
        /// Its length in sectors.
        sectors: u32,
        /// What it ended with.
        error: RequestError,
    },
    /// Blocks did not read back as they were written.
    Verify {
        /// The first of them.
        first: Mismatch,
    },
    /// A block of a replayed disk reads as another.
    Misplaced {
        /// Where it was read, or what begins there.
        sector: Sector,
        /// Where on the disk the block is.
        expected: Sector,
        /// Where on the disk it says that it is, if it says anything.
        found: Option<Sector>,
    },
    /// The log of what was sent is not whole.
    Iolog {
        /// The log.
        path: PathBuf,
        /// What went wrong.
        error: String,
    },
    /// The file system refused, or lost what was written.
    Files {
        /// Its words.
        error: String,
    },
    /// A rate is below the bound that the job sets.
    TooSlow(TooSlow),
    /// The record of what was written reached its bound.
    RecordFull {
        /// The bound, in entries.
        max: u64,
    },
}

impl Failure {
    /// The error number that fio reports.
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        const ENOMEM: i32 = 12;
        const EROFS: i32 = 30;
        const EILSEQ: i32 = 84;
        match self {
            Failure::Request { error, .. } => match error {
                RequestError::Device(DeviceError::Os(errno)) => *errno,
                RequestError::Device(DeviceError::OpenedForReading) => EROFS,
                _ => EIO,
            },
            Failure::Verify { .. } | Failure::Misplaced { .. } => EILSEQ,
            Failure::RecordFull { .. } => ENOMEM,
            Failure::TooSlow(_) | Failure::Files { .. } | Failure::Iolog { .. } => EIO,
        }
    }

    /// Whether a write broke a rule of zones: of its place, or of its zone's condition.
    pub(super) fn breaks_zone_rule(&self) -> bool {
        let Failure::Request { error, .. } = self else { return false };
        matches!(
            error,
            RequestError::NotAtWritePointer { .. }
                | RequestError::BeyondCapacity { .. }
                | RequestError::ZoneFull { .. }
                | RequestError::Device(DeviceError::Zone(_))
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Request { op, sector, sectors, error } => {
                write!(f, "{} of {sectors} sectors at sector {sector} failed: {error}", op.name())
            }
            Failure::Verify { first } => write!(f, "{first}"),
            Failure::Misplaced { sector, expected, found } => {
                write!(f, "what was read from sector {sector} on is not the disk's sector {expected}: ")?;
                match found {
                    Some(found) => write!(f, "it is sector {found}"),
                    None => write!(f, "it is none of the disk's"),
                }
            }
            Failure::Files { error } => write!(f, "{error}"),
            Failure::TooSlow(slow) => write!(f, "{slow}"),
            Failure::Iolog { path, error } => write!(f, "the log {} is not whole: {error}", path.display()),
            Failure::RecordFull { max } => {
                write!(f, "the record of what was written is full ({max} entries); write less, or in order")
            }
        }
    }
}

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateUnit {
    /// Bytes.
    Bytes,
    /// Requests.
    Requests,
}

/// A rate below its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSlow {
    /// Of which direction.
    pub dir: Dir,
    /// What is counted.
    pub unit: RateUnit,
    /// The bound, a second.
    pub wanted: u64,
    /// The rate, a second.
    pub found: u64,
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooSlow { dir, unit, wanted, found } = self;
        let name = match dir {
            Dir::Read => "reads",
            Dir::Write => "writes",
        };
        match unit {
            RateUnit::Bytes => write!(f, "rate_min of {wanted} B/s not met by {name}: {found} B/s"),
            RateUnit::Requests => write!(f, "rate_iops_min of {wanted} not met by {name}: {found} IOPS"),
        }
    }
}

/// What a job did not find, so that it did not do what it was asked for. As in fio that is no error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// A zone that could be written.
    Zone,
    /// Anything written that it could read.
    Data,
}

impl Lack {
    /// What stands in tables in place of a ratio.
    pub fn mark(self) -> &'static str {
        match self {
            Lack::Zone => "no zone",
            Lack::Data => "no data",
        }
    }
}
