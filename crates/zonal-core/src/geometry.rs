//! Geometry of a zoned device: the division of its sectors into zones.

use crate::units::{SECTOR_BYTES, Sector, Sectors, ZoneIndex};

/// Largest zone size, so that offsets within a zone, its end included, fit in 32 bits.
pub const ZONE_SECTORS_MAX: u64 = 1 << 31;

/// Invalid geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The zone size is zero, not a power of two, or above [`ZONE_SECTORS_MAX`].
    #[error("zone size of {} bytes is not a power of two from 4 KiB to 1 TiB", bytes(*.0))]
    ZoneSize(u64),
    /// The zone capacity is above the zone size.
    #[error(
        "zone capacity of {} bytes is not between one sector and the zone size of {} bytes",
        bytes(*.capacity),
        bytes(*.size)
    )]
    ZoneCapacity {
        /// Requested capacity.
        capacity: u64,
        /// Zone size.
        size: u64,
    },
    /// The device has no sectors, or more than 2^32 - 1 zones.
    #[error(
        "a device of {} bytes cannot be divided into zones of {} bytes",
        bytes(*.sectors),
        bytes(*.zone_size)
    )]
    Size {
        /// Requested size.
        sectors: u64,
        /// Zone size.
        zone_size: u64,
    },
    /// No sequential zone is left.
    #[error("no sequential zone is left: {conventional} of {zones} zones are conventional")]
    Conventional {
        /// Requested number of conventional zones.
        conventional: u32,
        /// Total number of zones.
        zones: u32,
    },
    /// A smaller last zone requires a zone capacity equal to the zone size.
    #[error(
        "a device of {} bytes has a smaller last zone, which requires zone capacity = zone size",
        bytes(*.sectors)
    )]
    SmallerLastZoneCapacity {
        /// Requested size.
        sectors: u64,
    },
    /// The open limit exceeds the active limit.
    #[error("max open {open} is above max active {active}")]
    OpenAboveActive {
        /// Open limit.
        open: u32,
        /// Active limit.
        active: u32,
    },
}

/// Converts to bytes, the unit in which users specify devices. Saturates, since a rejected size may
/// be out of range.
fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

/// Division of a device's sectors into zones.
///
/// All zones have the same size, a power of two; only the last one may be smaller. Conventional
/// zones are first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    sectors: u64,
    zone_shift: u32,
    zones: u32,
    conventional: u32,
    capacity: u32,
    last_size: u32,
}

impl Geometry {
    /// Divides `sectors` into zones of `zone_size` with a capacity of `zone_capacity` (0: the zone
    /// size). At least one zone must be sequential.
    ///
    /// # Errors
    /// [`GeometryError`] with the value that does not fit.
    pub fn new(
        sectors: Sectors,
        zone_size: Sectors,
        zone_capacity: Sectors,
        conventional: u32,
    ) -> Result<Geometry, GeometryError> {
        let geometry = Geometry::of_part(sectors, zone_size, zone_capacity, conventional)?;
        match geometry.sequential_zones() {
            0 => Err(GeometryError::Conventional { conventional, zones: geometry.zones }),
            _ => Ok(geometry),
        }
    }

    /// Like [`Geometry::new`], for a part of a device, which may consist of conventional zones
    /// only.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub fn of_part(
        sectors: Sectors,
        zone_size: Sectors,
        zone_capacity: Sectors,
        conventional: u32,
    ) -> Result<Geometry, GeometryError> {
        let (total, size) = (sectors.0, zone_size.0);
        if !size.is_power_of_two() || !(8..=ZONE_SECTORS_MAX).contains(&size) {
            return Err(GeometryError::ZoneSize(size));
        }
        let capacity = if zone_capacity.0 == 0 { size } else { zone_capacity.0 };
        if capacity > size {
            return Err(GeometryError::ZoneCapacity { capacity, size });
        }
        let zones = u32::try_from(total.div_ceil(size))
            .ok()
            .filter(|&n| n > 0)
            .ok_or(GeometryError::Size { sectors: total, zone_size: size })?;
        let last_size = match total % size {
            0 => size,
            _ if capacity != size => return Err(GeometryError::SmallerLastZoneCapacity { sectors: total }),
            rest => rest,
        };
        if conventional > zones {
            return Err(GeometryError::Conventional { conventional, zones });
        }
        Ok(Geometry {
            sectors: total,
            zone_shift: size.trailing_zeros(),
            zones,
            conventional,
            capacity: capacity as u32,
            last_size: last_size as u32,
        })
    }

    /// Total number of sectors.
    pub const fn sectors(&self) -> Sectors {
        Sectors(self.sectors)
    }

    /// Distance between the starts of adjacent zones.
    pub const fn zone_size(&self) -> Sectors {
        Sectors(1 << self.zone_shift)
    }

    /// Number of zones.
    pub const fn zones(&self) -> u32 {
        self.zones
    }

    /// Number of conventional zones, which are the first ones.
    pub const fn conventional_zones(&self) -> u32 {
        self.conventional
    }

    /// Number of sequential zones.
    pub const fn sequential_zones(&self) -> u32 {
        self.zones - self.conventional
    }

    /// Capacity of a sequential zone, except that of a smaller last zone.
    pub const fn zone_capacity(&self) -> Sectors {
        Sectors(self.capacity as u64)
    }

    /// True if `zone` is conventional.
    pub const fn is_conventional(&self, zone: ZoneIndex) -> bool {
        zone.0 < self.conventional
    }

    /// Returns the zone of `sector`, which must lie on the device.
    #[inline]
    pub const fn zone_of(&self, sector: Sector) -> ZoneIndex {
        ZoneIndex((sector.0 >> self.zone_shift) as u32)
    }

    /// Offset of `sector` in its zone, in sectors.
    #[inline]
    pub const fn offset_of(&self, sector: Sector) -> u32 {
        (sector.0 & ((1 << self.zone_shift) - 1)) as u32
    }

    /// First sector of `zone`.
    #[inline]
    pub const fn start_of(&self, zone: ZoneIndex) -> Sector {
        Sector((zone.0 as u64) << self.zone_shift)
    }

    /// Size of `zone`, in sectors. Only the last zone may be smaller.
    #[inline]
    pub const fn size_of(&self, zone: ZoneIndex) -> u32 {
        if zone.0 + 1 == self.zones { self.last_size } else { 1 << self.zone_shift }
    }

    /// Capacity of `zone`, in sectors: its size if it is conventional or smaller than the zone
    /// capacity, else the zone capacity.
    #[inline]
    pub const fn capacity_of(&self, zone: ZoneIndex) -> u32 {
        let size = self.size_of(zone);
        if zone.0 < self.conventional || size < self.capacity { size } else { self.capacity }
    }

    /// True if `sectors` from `sector` lie on the device.
    #[inline]
    pub const fn contains(&self, sector: Sector, sectors: Sectors) -> bool {
        match sector.0.checked_add(sectors.0) {
            Some(end) => end <= self.sectors,
            None => false,
        }
    }

    /// Converts open and active limits as reported by a device to the effective ones (0: none).
    ///
    /// A limit that reaches the number of sequential zones has no effect and becomes 0. Without an
    /// open limit, the active limit applies to open zones, too.
    ///
    /// # Errors
    /// [`GeometryError::OpenAboveActive`].
    pub fn limits(&self, open_max: u32, active_max: u32) -> Result<(u32, u32), GeometryError> {
        if active_max != 0 && open_max > active_max {
            return Err(GeometryError::OpenAboveActive { open: open_max, active: active_max });
        }
        let effective = |n| if n >= self.sequential_zones() { 0 } else { n };
        let active = effective(active_max);
        let open = if open_max == 0 { active } else { effective(open_max) };
        Ok((open, active))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(
        sectors: u64,
        size: u64,
        capacity: u64,
        conventional: u32,
    ) -> Result<Geometry, GeometryError> {
        Geometry::new(Sectors(sectors), Sectors(size), Sectors(capacity), conventional)
    }

    #[test]
    fn smaller_last_zone_has_its_own_capacity() {
        let g = geometry(1000, 128, 0, 2).unwrap();
        assert_eq!(g.zones(), 8);
        assert_eq!((g.size_of(ZoneIndex(6)), g.capacity_of(ZoneIndex(6))), (128, 128));
        assert_eq!((g.size_of(ZoneIndex(7)), g.capacity_of(ZoneIndex(7))), (104, 104));
    }

    #[test]
    fn smaller_last_zone_with_capacity_below_size_is_refused() {
        assert_eq!(geometry(1000, 128, 96, 0), Err(GeometryError::SmallerLastZoneCapacity { sectors: 1000 }));
    }

    #[test]
    fn h40_sectors_beyond_2_pow_32_keep_their_zone() {
        let g = geometry(1 << 40, 1 << 19, 0, 0).unwrap();
        let s = Sector((1 << 33) + 7);
        assert_eq!(g.zone_of(s), ZoneIndex(1 << 14));
        assert_eq!(g.offset_of(s), 7);
        assert_eq!(g.start_of(ZoneIndex((1 << 21) - 1)), Sector((1 << 40) - (1 << 19)));
    }

    #[test]
    fn h39_limits_at_or_above_the_sequential_zones_are_none() {
        let g = geometry(16 * 128, 128, 0, 4).unwrap();
        assert_eq!(g.limits(12, 12), Ok((0, 0)));
        assert_eq!(g.limits(4, 12), Ok((4, 0)));
        assert_eq!(g.limits(0, 6), Ok((6, 6)));
        assert_eq!(g.limits(7, 6), Err(GeometryError::OpenAboveActive { open: 7, active: 6 }));
    }

    #[test]
    fn conventional_zones_have_their_whole_size() {
        let g = geometry(16 * 128, 128, 96, 4).unwrap();
        assert_eq!(g.capacity_of(ZoneIndex(3)), 128);
        assert_eq!(g.capacity_of(ZoneIndex(4)), 96);
        assert!(geometry(16 * 128, 128, 96, 16).is_err());
    }

    #[test]
    fn contains_does_not_wrap() {
        let g = geometry(1024, 128, 0, 0).unwrap();
        assert!(g.contains(Sector(1023), Sectors(1)));
        assert!(!g.contains(Sector(u64::MAX), Sectors(2)));
    }
}
