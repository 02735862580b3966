//! Failures of jobs, and reasons why a job is incomplete.

use super::verify::Mismatch;
use crate::measure::Dir;
use std::fmt;
use std::path::PathBuf;
use zonal_core::{DeviceError, Op, RequestError, Sector};

/// First error of a job. A request that failed only because of another one gives way to that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// A request failed.
    Request {
        /// Operation.
        op: Op,
        /// First sector of the request; first sector of the zone for appends and zone management.
        sector: Sector,
        /// Length in sectors.
        sectors: u32,
        /// Error of the request.
        error: RequestError,
    },
    /// Blocks read back differ from those written.
    Verify {
        /// First mismatch.
        first: Mismatch,
    },
    /// A read of a replayed disk returned the wrong block.
    Misplaced {
        /// First sector of the read on the device.
        sector: Sector,
        /// Sector of the requested block on the replayed disk.
        expected: Sector,
        /// Sector of the block that was read, if it identifies itself.
        found: Option<Sector>,
    },
    /// The log of issued requests is incomplete.
    Iolog {
        /// Path of the log.
        path: PathBuf,
        /// Error of the write to the log.
        error: String,
    },
    /// The file system returned an error or lost data.
    Files {
        /// Error message.
        error: String,
    },
    /// A rate is below the minimum set by the job.
    TooSlow(TooSlow),
    /// The record of written blocks is full.
    RecordFull {
        /// Maximum number of entries.
        max: u64,
    },
}

impl Failure {
    /// True for a request that failed because one before it did. It may complete first.
    pub(crate) const fn is_consequence(&self) -> bool {
        matches!(self, Failure::Request { error: RequestError::PredecessorLost { .. }, .. })
    }

    /// Error number, as reported by fio.
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

    /// True if a write violated the zone rules, by its position or by the condition of its zone.
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
                write!(f, "read of sector {sector}: expected sector {expected} of the disk, ")?;
                match found {
                    Some(found) => write!(f, "found sector {found}"),
                    None => write!(f, "found no block of the disk"),
                }
            }
            Failure::Files { error } => write!(f, "{error}"),
            Failure::TooSlow(slow) => write!(f, "{slow}"),
            Failure::Iolog { path, error } => write!(f, "the log {} is incomplete: {error}", path.display()),
            Failure::RecordFull { max } => {
                write!(f, "the record of written blocks is full ({max} entries); write less, or in order")
            }
        }
    }
}

/// Unit of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateUnit {
    /// Bytes per second.
    Bytes,
    /// Requests per second.
    Requests,
}

/// Rate below its minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSlow {
    /// Direction.
    pub dir: Dir,
    /// Unit of both rates.
    pub unit: RateUnit,
    /// Minimum rate.
    pub wanted: u64,
    /// Measured rate.
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

/// Reason why a job is incomplete without an error, as in fio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// No zone of its range was writable.
    Zone,
    /// No data to read in its range.
    Data,
}

impl Lack {
    /// Text shown in tables in place of a ratio.
    pub fn mark(self) -> &'static str {
        match self {
            Lack::Zone => "no zone",
            Lack::Data => "no data",
        }
    }
}
