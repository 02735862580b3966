//! Errors that end a replay. The failure of a request is in the report instead.

use super::log::LogError;
use super::trace::{TraceError, TracePlace};
use crate::error::BenchError;
use zonal_core::Sector;

/// Reason why a replay cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The device is not usable.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The disk of the trace cannot be laid out on the device.
    #[error("{device}: {error}")]
    Log {
        /// Device name.
        device: String,
        /// Reason for the failure.
        error: LogError,
    },
    /// A record addresses sectors beyond the end.
    #[error(
        "{trace}: {place}: sectors {sector} to {end} lie beyond {what} of {sectors} sectors; {}",
        beyond_hint(*end - sector.0, *sectors)
    )]
    Beyond {
        /// Name of the trace.
        trace: String,
        /// Position of the record.
        place: TracePlace,
        /// First sector of the record.
        sector: Sector,
        /// End of the record, exclusive.
        end: u64,
        /// The device or disk that it exceeds.
        what: &'static str,
        /// Size of that device or disk in sectors.
        sectors: u64,
    },
    /// A record to be replayed as it is does not consist of whole blocks of the device.
    #[error(
        "{trace}: {place}: {sectors} sectors at {sector} are not aligned to the device's blocks of {block} sectors"
    )]
    Unaligned {
        /// Name of the trace.
        trace: String,
        /// Position of the record.
        place: TracePlace,
        /// First sector of the record.
        sector: Sector,
        /// Length of the record.
        sectors: u64,
        /// Block size of the device in sectors.
        block: u32,
    },
    /// A zone append, which cannot be replayed on a log.
    #[error("{trace}: {place}: zone append on a log; use --as-is for a trace of a zoned drive")]
    Zoned {
        /// Name of the trace.
        trace: String,
        /// Position of the record.
        place: TracePlace,
    },
    /// The trace has no record to replay.
    #[error("{trace}: no record to replay: {why}")]
    NothingPlayed {
        /// Name of the trace.
        trace: String,
        /// Events or devices in the trace, and the option that selects them.
        why: String,
    },
    /// A record waits although nothing is in flight.
    #[error("{trace}: {place}: deadlock: the record waits, but nothing is in flight")]
    Stalled {
        /// Name of the trace.
        trace: String,
        /// Position of the last record.
        place: TracePlace,
    },
    /// A request completed twice, or a record did not end exactly once.
    #[error("{trace}: {ended} of {begun} records ended, but not each exactly once")]
    Unbalanced {
        /// Name of the trace.
        trace: String,
        /// Number of records started.
        begun: u64,
        /// Number of records ended.
        ended: u64,
    },
}

/// Advice for a request beyond the end.
fn beyond_hint(length: u64, sectors: u64) -> &'static str {
    if length > sectors { "the request is longer than that" } else { "--wrap folds addresses" }
}
