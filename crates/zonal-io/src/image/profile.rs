//! Named presets of a drive's geometry.
//!
//! Numbers that no public source states are assumptions and marked so; every one can be overridden.

use zonal_core::Personality;

/// A preset. Sizes are in bytes, limits of 0 are none.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name it is asked for by.
    pub name: &'static str,
    /// One line on what it stands for.
    pub about: &'static str,
    /// Size, a whole number of zones.
    pub size: u64,
    /// Size of a zone.
    pub zone_size: u64,
    /// Writable part of a zone.
    pub zone_capacity: u64,
    /// Conventional zones, in thousandths of all zones.
    pub conventional_permille: u32,
    /// Largest number of open zones.
    pub zone_max_open: u32,
    /// Largest number of active zones.
    pub zone_max_active: u32,
    /// Logical block.
    pub blocksize: u32,
    /// Which standard's rules.
    pub personality: Personality,
    /// Whether the medium turns.
    pub rotational: bool,
}

const MIB: u64 = 1 << 20;
const GB: u64 = 1_000_000_000;

/// `bytes` rounded up to whole zones.
const fn zones(bytes: u64, zone: u64) -> u64 {
    bytes.next_multiple_of(zone)
}

const fn smr(name: &'static str, about: &'static str, bytes: u64) -> Profile {
    Profile {
        name,
        about,
        size: zones(bytes, 256 * MIB),
        zone_size: 256 * MIB,
        zone_capacity: 256 * MIB,
        // Assumed: published drives have about one conventional zone in a hundred.
        conventional_permille: 10,
        zone_max_open: 128,
        // ZBC knows no active limit.
        zone_max_active: 0,
        blocksize: 4096,
        personality: Personality::Zbc,
        rotational: true,
    }
}

/// Every preset.
pub const PROFILES: [Profile; 4] = [
    smr("smr-hdd-30t", "30 TB host-managed SMR disk, 256 MiB zones, 1% conventional", 30_000 * GB),
    smr("smr-hdd-26t", "26 TB host-managed SMR disk, 256 MiB zones, 1% conventional", 26_000 * GB),
    Profile {
        name: "zns-1t",
        about: "1 TB ZNS SSD, 904 zones of 2 GiB of which 1077 MiB can be written, 14 open and active",
        // Assumed: zone count and capacity as a common drive reports them.
        size: 904 * 2048 * MIB,
        zone_size: 2048 * MIB,
        zone_capacity: 1077 * MIB,
        conventional_permille: 0,
        zone_max_open: 14,
        zone_max_active: 14,
        blocksize: 4096,
        personality: Personality::Zns,
        rotational: false,
    },
    Profile {
        name: "ufs-zoned",
        about: "256 GB zoned UFS device, 256 MiB zones, 6 open",
        // Assumed throughout: no product's numbers are public.
        size: zones(256 * GB, 256 * MIB),
        zone_size: 256 * MIB,
        zone_capacity: 256 * MIB,
        conventional_permille: 0,
        zone_max_open: 6,
        zone_max_active: 0,
        blocksize: 4096,
        personality: Personality::Zbc,
        rotational: false,
    },
];

impl Profile {
    /// The preset called `name`.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|p| p.name == name)
    }

    /// Conventional zones among `zones`, at least one where there are any at all.
    pub fn conventional_of(&self, zones: u64) -> u32 {
        if self.conventional_permille == 0 {
            return 0;
        }
        let n = (zones * u64::from(self.conventional_permille) / 1000).max(1);
        u32::try_from(n).unwrap_or(u32::MAX)
    }
}
