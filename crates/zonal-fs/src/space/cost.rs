//! What writes need: data, and data with their headers.

use std::ops::Sub;

/// Blocks of both counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// Data blocks.
    pub extents: u64,
    /// Blocks to be written, headers included.
    pub available: u64,
}

impl Need {
    /// What is left without `other`, if there is that much.
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

/// What data cost with their headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Blocks of the largest unit, its header included; at least 2.
    pub unit_blocks: u32,
    /// Blocks that a write may need beyond full units: headers of pieces, tails of zones too short for a unit.
    pub slack: u32,
}

impl Cost {
    /// What `data` blocks need.
    pub fn of(&self, data: u64) -> Need {
        let headers = data.div_ceil(u64::from(self.unit_blocks) - 1);
        Need { extents: data, available: data + headers + u64::from(self.slack) }
    }
}
