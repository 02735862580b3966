//! Units: addresses and lengths in sectors of 512 bytes, zones by index.
//!
//! A sector is always 512 bytes, whatever the device's logical block size, as in the Linux block
//! layer and its listings. Addresses and lengths have 64 bits; offsets within a zone fit in 32 bits
//! because a zone has at most 2^31 sectors.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector.
pub const SECTOR_BYTES: u64 = 512;

/// Address on a device, in sectors of 512 bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Sector(pub u64);

/// Length or count, in sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Sectors(pub u64);

/// Index of a zone on its device, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ZoneIndex(pub u32);

/// Point in time, in nanoseconds from an origin chosen by the caller. Time is always passed in,
/// never read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Nanos(pub u64);

impl Sectors {
    /// Whole sectors in `bytes`, or `None` if `bytes` is not a multiple of 512.
    pub const fn from_bytes(bytes: u64) -> Option<Sectors> {
        if bytes.is_multiple_of(SECTOR_BYTES) { Some(Sectors(bytes / SECTOR_BYTES)) } else { None }
    }

    /// Length in bytes. Saturates at `u64::MAX`, which is beyond any device.
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(SECTOR_BYTES)
    }
}

impl Sector {
    /// Byte address. Saturates at `u64::MAX`, which is beyond any device.
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(SECTOR_BYTES)
    }

    /// Returns the address `n` sectors further on, or `None` on overflow.
    pub const fn checked_add(self, n: Sectors) -> Option<Sector> {
        match self.0.checked_add(n.0) {
            Some(s) => Some(Sector(s)),
            None => None,
        }
    }
}

impl Add<Sectors> for Sector {
    type Output = Sector;
    fn add(self, n: Sectors) -> Sector {
        Sector(self.0 + n.0)
    }
}

impl AddAssign<Sectors> for Sector {
    fn add_assign(&mut self, n: Sectors) {
        self.0 += n.0;
    }
}

impl Sub for Sector {
    type Output = Sectors;
    fn sub(self, other: Sector) -> Sectors {
        Sectors(self.0 - other.0)
    }
}

impl Add for Sectors {
    type Output = Sectors;
    fn add(self, n: Sectors) -> Sectors {
        Sectors(self.0 + n.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, n: Sectors) {
        self.0 += n.0;
    }
}

impl Sub for Sectors {
    type Output = Sectors;
    fn sub(self, n: Sectors) -> Sectors {
        Sectors(self.0 - n.0)
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ZoneIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_bytes_odd_length_is_refused() {
        assert_eq!(Sectors::from_bytes(4096), Some(Sectors(8)));
        assert_eq!(Sectors::from_bytes(4097), None);
    }

    #[test]
    fn bytes_beyond_2_tib_are_exact() {
        assert_eq!(Sector(1 << 33).bytes(), 1 << 42);
    }
}
