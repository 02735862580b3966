//! Block sizes, and values that reads and writes have apart.

/// Something for reads and something for writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerDirection<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
}

/// Block sizes that are drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockMix {
    /// `bsrange`: the multiples of `min` up to `max`, all as likely; where `max` is none of them, it stands for the
    /// one above.
    Range {
        /// Smallest, in bytes.
        min: u32,
        /// Largest, in bytes.
        max: u32,
    },
    /// `bssplit`: sizes by rising share, multiples of the smallest. The last gets the rest if the shares add up to less than 100 percent.
    Split(Vec<BlockShare>),
}

/// One size of a `bssplit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockShare {
    /// The size.
    pub bytes: u32,
    /// Its share, 0 to 100; of 0, it is never drawn and only counts as smallest or largest.
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
