//! Why a replay cannot continue. What goes wrong with a request of it is in its report.

use super::log::LogError;
use super::trace::{TraceError, TracePlace};
use crate::error::BenchError;
use zonal_core::Sector;

/// Why a replay cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The device cannot be used.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The trace's disk cannot be laid on the device.
    #[error("{device}: {error}")]
    Log {
        /// Device name.
        device: String,
        /// Why not.
        error: LogError,
    },
    /// A record names what the device does not have.
    #[error(
        "{trace}: {place}: sectors {sector} to {end} lie beyond {what} of {sectors} sectors; {}",
        beyond_hint(*end - sector.0, *sectors)
    )]
    Beyond {
        /// The trace.
        trace: String,
        /// Where the record stands.
        place: TracePlace,
        /// Its first sector.
        sector: Sector,
        /// The sector after its last one.
        end: u64,
        /// What it is beyond.
        what: &'static str,
        /// How long that is.
        sectors: u64,
    },
    /// A record that is played as it is does not consist of the device's blocks.
    #[error(
        "{trace}: {place}: {sectors} sectors from {sector} on are no whole blocks of {block} sectors, as the device has them"
    )]
    Unaligned {
        /// The trace.
        trace: String,
        /// Where the record stands.
        place: TracePlace,
        /// Its first sector.
        sector: Sector,
        /// Its length.
        sectors: u64,
        /// The device's block.
        block: u32,
    },
    /// A zone append cannot be laid on a log.
    #[error("{trace}: {place}: a zone append; a trace of a zoned drive is played with --as-is")]
    Zoned {
        /// The trace.
        trace: String,
        /// Where the record stands.
        place: TracePlace,
    },
    /// The trace has no record that is played.
    #[error("{trace}: nothing was played: {why}")]
    NothingPlayed {
        /// The trace.
        trace: String,
        /// Events or devices in the trace, and the option that selects them.
        why: String,
    },
    /// Nothing is under way any more, and yet a record waits.
    #[error("{trace}: {place}: the device came to a stop: nothing is under way that the record waits for")]
    Stalled {
        /// The trace.
        trace: String,
        /// Where the last record stands.
        place: TracePlace,
    },
    /// A completion came twice, or a record ended more or less often than once.
    #[error("{trace}: {ended} of {begun} records have ended, and not each of them once")]
    Unbalanced {
        /// The trace.
        trace: String,
        /// Records that were begun.
        begun: u64,
        /// Records that have ended.
        ended: u64,
    },
}

/// What to do about a request that goes beyond the end.
fn beyond_hint(length: u64, sectors: u64) -> &'static str {
    if length > sectors { "it is longer than all of that" } else { "--wrap folds addresses" }
}
