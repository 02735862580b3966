//! Block sizes, and pairs of values for reads and writes.

/// A pair of values, one per direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerDirection<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
}

/// Distribution of block sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockMix {
    /// `bsrange`: the multiples of `min` up to `max`, drawn uniformly. If `max` is not a multiple
    /// of `min`, it replaces the next multiple above it.
    Range {
        /// Smallest size in bytes.
        min: u32,
        /// Largest size in bytes.
        max: u32,
    },
    /// `bssplit`: sizes in order of share, all multiples of the smallest. If the shares add up to
    /// less than 100 percent, the last size gets the rest.
    Split(Vec<BlockShare>),
}

/// One size of a `bssplit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockShare {
    /// Size in bytes.
    pub bytes: u32,
    /// Share in percent, 0 to 100. A size with share 0 is never drawn, but still counts as the
    /// smallest or largest.
    pub percent: u8,
}

impl BlockMix {
    /// The smallest size.
    pub fn min(&self) -> u32 {
        match self {
            Self::Range { min, .. } => *min,
            Self::Split(shares) => shares.iter().map(|share| share.bytes).min().unwrap_or(0),
        }
    }

    /// The largest size.
    pub fn max(&self) -> u32 {
        match self {
            Self::Range { max, .. } => *max,
            Self::Split(shares) => shares.iter().map(|share| share.bytes).max().unwrap_or(0),
        }
    }
}
