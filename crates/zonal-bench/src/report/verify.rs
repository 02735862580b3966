//! Results of verification: blocks that differ from those written.

use std::fmt;
use zonal_core::{Sector, ZoneIndex};

/// Maximum number of mismatches kept. Further ones are only counted.
pub const MISMATCHES_MAX: usize = 16;

/// Results of the final verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Blocks read back.
    pub blocks: u64,
    /// Bytes read back.
    pub bytes: u64,
    /// Acknowledged blocks excluded from verification: reset or overwritten later, even if only in
    /// part by a failed write.
    pub gone: u64,
    /// Blocks that differ from those written.
    pub mismatches: u64,
    /// First mismatches, at most [`MISMATCHES_MAX`].
    pub first: Vec<Mismatch>,
}

impl VerifyReport {
    /// True if a block differs.
    pub fn is_failed(&self) -> bool {
        self.mismatches > 0
    }

    pub(crate) fn mismatch(&mut self, mismatch: Mismatch) {
        self.mismatches += 1;
        if self.first.len() < MISMATCHES_MAX {
            self.first.push(mismatch);
        }
    }
}

/// Expected properties of a block; `None` if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// First sector.
    pub sector: Sector,
    /// Number of the block.
    pub id: Option<u64>,
    /// Generation of the zone.
    pub generation: Option<u32>,
    /// Seed of the job.
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

/// Block that differs from the one written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Name of the job that wrote the block.
    pub job: String,
    /// First sector.
    pub sector: Sector,
    /// Zone.
    pub zone: ZoneIndex,
    /// Length in sectors.
    pub sectors: u32,
    /// Expected block.
    pub expected: Expected,
    /// Actual content.
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

/// Actual content in the place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// The device failed the read.
    Unreadable(zonal_core::DeviceError),
    /// No block begins here.
    NoBlock {
        /// First eight bytes.
        start: u64,
    },
    /// A block whose header is damaged.
    BadHeader {
        /// Checksum stored in the header.
        stated: u32,
        /// Checksum of the header.
        computed: u32,
    },
    /// A block with a valid header.
    Block {
        /// Address; `None` for an append.
        sector: Option<Sector>,
        /// Zone.
        zone: ZoneIndex,
        /// Generation of the zone.
        generation: u32,
        /// Seed of the job.
        seed: u64,
        /// Number of the block.
        id: u64,
        /// Length in bytes.
        bytes: u32,
        /// Checksum of the payload stored in the header.
        stated: u32,
        /// Checksum of the payload; `None` if the block's length differs from that of the read.
        computed: Option<u32>,
    },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Unreadable(error) => write!(f, "a read error: {error}"),
            Found::NoBlock { start: 0 } => write!(f, "no block (zeroes)"),
            Found::NoBlock { start } => write!(f, "no block (begins {start:#018x})"),
            Found::BadHeader { stated, computed } => {
                write!(f, "a damaged header (crc32c {stated:#010x} stated, {computed:#010x} computed)")
            }
            Found::Block { sector, zone, generation, seed, id, bytes, stated, computed } => {
                match sector {
                    Some(sector) => write!(f, "sector {sector}")?,
                    None => write!(f, "an append to zone {zone}")?,
                }
                write!(f, ", number {id:#x}, generation {generation}, seed {seed:#x}, {bytes} bytes")?;
                match computed {
                    Some(computed) if computed == stated => write!(f, ", crc32c {stated:#010x}"),
                    Some(computed) => {
                        write!(f, ", crc32c {stated:#010x} stated, {computed:#010x} computed")
                    }
                    None => Ok(()),
                }
            }
        }
    }
}
