//! What was found when written blocks were read back.

use std::fmt;
use zonal_core::{Sector, ZoneIndex};

/// Mismatches kept with their facts; the rest is counted.
pub const MISMATCHES_MAX: usize = 16;

/// What the final check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Blocks read back.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that were acknowledged and then lost to a reset or overwritten, if only in part by a write that failed, and so
    /// not looked for.
    pub gone: u64,
    /// Blocks that are not what was written.
    pub mismatches: u64,
    /// The first of them, at most [`MISMATCHES_MAX`].
    pub first: Vec<Mismatch>,
}

impl VerifyReport {
    /// Whether a block was not what was written.
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

/// What was found in place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// The device failed the read.
    Unreadable(zonal_core::DeviceError),
    /// No block begins here.
    NoBlock {
        /// The first eight bytes.
        start: u64,
    },
    /// A block whose header is damaged.
    BadHeader {
        /// The sum it states.
        stated: u32,
        /// The sum it has.
        computed: u32,
    },
    /// A block with a good header.
    Block {
        /// Its address; `None` if the device was to choose it.
        sector: Option<Sector>,
        /// Its zone.
        zone: ZoneIndex,
        /// Generation of its zone.
        generation: u32,
        /// Seed of its job.
        seed: u64,
        /// Its number.
        id: u64,
        /// Its length in bytes.
        bytes: u32,
        /// The sum of the payload that it states.
        stated: u32,
        /// The sum that its payload has; `None` if the block has another length than what was read.
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
