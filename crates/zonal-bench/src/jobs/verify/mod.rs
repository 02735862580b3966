//! Verification: blocks that say what they are, a record of what was acknowledged, and a check of the bare device.
//!
//! Three parties that know nothing of each other:
//! - [`pattern`] makes blocks and reads them: a header with address, generation, seed and a unique number, all of it
//!   under a CRC-32C;
//! - [`record`] keeps which block was acknowledged where. The address of an append is known only then: its header has
//!   the number, and the record binds number and address;
//! - [`check`] reads everything back from the bare device, once the write path is closed, and compares.
//!
//! A worker also reads its own blocks back through the write path after each pass, as fio does.
//!
//! # What each fault shows as
//! | fault | shows as |
//! |---|---|
//! | a byte changed | the payload's sum, or the header's |
//! | two blocks swapped | another address, or with appends another number |
//! | a write dropped | no block, or an older number |
//! | data from before a reset | an older generation and number |

pub mod check;
pub mod pattern;
pub mod record;

pub use check::VerifyReport;
pub use pattern::{Blocks, Found, HEADER_BYTES, check_block};
pub use record::{RECORDS_MAX, Record, Recorder};

use std::fmt;
use zonal_core::{Sector, ZoneIndex};

/// What a write takes with it from submission to completion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticket {
    /// Number of the block, unique in the run.
    pub id: u64,
    /// Generation of its zone when it was submitted.
    pub generation: u32,
    /// Its submission in the order of events, where the zone may be overwritten.
    pub begun: u64,
    /// Of a read that checks: what it has to find.
    pub expected: Option<Expected>,
}

/// What a block has to be. What is `None` is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Where it lies.
    pub sector: Sector,
    /// Its number.
    pub id: Option<u64>,
    /// Generation of its zone.
    pub generation: Option<u32>,
    /// Seed of its job.
    pub seed: Option<u64>,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.sector)?;
        if let Some(id) = self.id {
            write!(f, ", number {id:#x}")?;
        }
        if let Some(generation) = self.generation {
            write!(f, ", generation {generation}")?;
        }
        match self.seed {
            Some(seed) => write!(f, ", seed {seed:#x}"),
            None => Ok(()),
        }
    }
}

/// A block that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Name of the job that wrote it.
    pub job: String,
    /// Its first sector.
    pub sector: Sector,
    /// Its zone.
    pub zone: ZoneIndex,
    /// Its length in sectors.
    pub sectors: u32,
    /// What it had to be.
    pub expected: Expected,
    /// What it is.
    pub found: Found,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { job, sector, zone, sectors, expected, found } = self;
        write!(
            f,
            "job {job}: {sectors} sectors at sector {sector} (zone {zone}) do not read back: expected {expected}; \
             found {found}"
        )
    }
}
