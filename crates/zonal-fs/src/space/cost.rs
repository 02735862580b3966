//! Space requirements of writes.

use std::ops::Sub;

/// Blocks of both counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// Data blocks.
    pub extents: u64,
    /// Blocks to write, headers included.
    pub available: u64,
}

impl Need {
    /// Subtracts `other`; `None` if it is larger.
    pub fn checked_sub(self, other: Need) -> Option<Need> {
        Some(Need {
            extents: self.extents.checked_sub(other.extents)?,
            available: self.available.checked_sub(other.available)?,
        })
    }
}

impl Sub for Need {
    type Output = Need;
    fn sub(self, other: Need) -> Need {
        self.checked_sub(other).expect("no more than is there")
    }
}

/// Space cost of data, headers included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Size of the largest unit in blocks, header included; at least 2.
    pub unit_blocks: u32,
    /// Blocks that a write may need beyond full units: headers of pieces, zone tails too short for
    /// a unit.
    pub slack: u32,
}

impl Cost {
    /// Space needed for `data` blocks.
    pub fn of(&self, data: u64) -> Need {
        let headers = data.div_ceil(u64::from(self.unit_blocks) - 1);
        Need { extents: data, available: data + headers + u64::from(self.slack) }
    }
}
