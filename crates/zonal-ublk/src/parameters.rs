//! Description of a drive for the kernel: blocks, zones, limits and attributes.

use crate::wire::{Parameters, attribute, parameter};
use zonal_core::ZoneIndex;
use zonal_io::device::DeviceInfo;

/// Maximum request size in bytes.
pub const BYTES_MAX: u32 = 1 << 20;

/// Page size as a power of two: the maximum size of a logical block.
const PAGE_SHIFT: u32 = 12;

/// Reason why the driver does not support a drive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitError {
    /// The last zone is smaller.
    #[error("the last zone is smaller than the others, but a ublk device needs zones of equal size")]
    SmallerLastZone,
    /// The logical blocks are too large.
    #[error("logical blocks of {bytes} bytes are not supported: a ublk device has at most 4096")]
    Block {
        /// Block size in bytes.
        bytes: u32,
    },
}

/// Parameters of a drive. `append_sectors_max` is the append limit in sectors, native or emulated.
/// Without `fua` the kernel makes writes durable by flushes.
///
/// # Errors
/// [`UnfitError`] if the driver does not support the drive.
pub fn of(info: &DeviceInfo, append_sectors_max: u32, is_read_only: bool) -> Result<Parameters, UnfitError> {
    let geometry = &info.geometry;
    let zone_sectors = geometry.size_of(ZoneIndex(0));
    if !geometry.sectors().0.is_multiple_of(geometry.zone_size().0) {
        return Err(UnfitError::SmallerLastZone);
    }
    let block = info.block_sectors * 512;
    let shift = block.ilog2() as u8;
    if block > 1 << PAGE_SHIFT {
        return Err(UnfitError::Block { bytes: block });
    }
    let mut attributes = 0;
    for (is_so, attribute) in [
        (is_read_only || info.read_only, attribute::READ_ONLY),
        (info.rotational, attribute::ROTATIONAL),
        (info.volatile_cache, attribute::VOLATILE_CACHE),
        (info.volatile_cache && info.fua, attribute::FUA),
    ] {
        attributes |= if is_so { attribute } else { 0 };
    }
    // A multiple of the page size and of the block size.
    let page = 1 << PAGE_SHIFT >> 9;
    let sectors_max = info.command_sectors_max.min(BYTES_MAX / 512).min(zone_sectors);
    let sectors_max = (sectors_max / page * page).max(page);
    let zones = geometry.zones();
    Ok(Parameters {
        len: size_of::<Parameters>() as u32,
        types: parameter::BASIC | parameter::DISCARD | parameter::ZONED,
        attributes,
        logical_shift: shift,
        physical_shift: shift,
        best_shift: shift,
        least_shift: shift,
        sectors_max,
        zone_sectors,
        sectors: geometry.sectors().0,
        discard_granularity: block,
        discard_sectors_max: info.discard_sectors_max,
        zeroes_sectors_max: sectors_max,
        discard_ranges_max: u16::from(info.discard_sectors_max > 0),
        // The kernel refuses limits above the number of zones.
        open_max: info.open_max.min(zones),
        active_max: info.active_max.min(zones),
        append_sectors_max: append_sectors_max.min(sectors_max),
        ..Parameters::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Geometry, Sectors};
    use zonal_io::registry::Registry;

    fn of_device(name: &str) -> Result<Parameters, UnfitError> {
        of(Registry::default().open(name).unwrap().info(), 256, false)
    }

    #[test]
    fn drive_has_its_limits_and_attributes() {
        let name =
            "ram:size=64M,zone_size=4M,zone_nr_conv=2,zone_max_open=3,zone_max_active=5,blocksize=4096";
        let parameters = of_device(name).unwrap();
        assert_eq!((parameters.sectors, parameters.zone_sectors), (131_072, 8192));
        assert_eq!((parameters.open_max, parameters.active_max), (3, 5));
        assert_eq!((parameters.logical_shift, parameters.append_sectors_max), (12, 256));
        assert_eq!(parameters.attributes & attribute::READ_ONLY, 0);
        let info = Registry::default().open(name).unwrap().info().clone();
        let with = |change: &dyn Fn(&mut DeviceInfo)| {
            let mut info = info.clone();
            (info.rotational, info.volatile_cache, info.fua, info.read_only) = (false, false, false, false);
            change(&mut info);
            of(&info, 256, false).unwrap().attributes
        };
        assert_eq!(with(&|_| {}), 0);
        assert_eq!(with(&|info| info.rotational = true), attribute::ROTATIONAL);
        assert_eq!(with(&|info| info.read_only = true), attribute::READ_ONLY);
        assert_eq!(with(&|info| info.volatile_cache = true), attribute::VOLATILE_CACHE);
        assert_eq!(with(&|info| info.fua = true), 0, "a drive without a cache needs no such writes");
        let both = attribute::VOLATILE_CACHE | attribute::FUA;
        assert_eq!(with(&|info| (info.volatile_cache, info.fua) = (true, true)), both);
        assert_eq!(of(&info, 256, true).unwrap().attributes & attribute::READ_ONLY, attribute::READ_ONLY);
    }

    #[test]
    fn limit_of_all_zones_is_no_more_than_these() {
        let parameters = of_device("ram:size=16M,zone_size=4M,zone_max_open=100").unwrap();
        assert!(parameters.open_max <= 4, "{}", parameters.open_max);
    }

    #[test]
    fn drive_that_the_driver_has_not_is_refused() {
        let info = Registry::default().open("ram:size=12M,zone_size=4M").unwrap().info().clone();
        let geometry = Geometry::new(Sectors(20_000), Sectors(8192), Sectors(0), 0).unwrap();
        assert_eq!(of(&DeviceInfo { geometry, ..info.clone() }, 8, false), Err(UnfitError::SmallerLastZone));
        assert_eq!(
            of(&DeviceInfo { block_sectors: 16, ..info }, 8, false),
            Err(UnfitError::Block { bytes: 8192 })
        );
    }
}
