//! Drive profiles by name: the drive's own part of the profiles of simulated drives.
//!
//! The file `profiles/NAME.toml` serves both: an image uses its section `[drive]`, a simulated
//! drive (`sim:NAME`, crate zonal-sim) that and the timing. So their geometries cannot differ. The
//! file gives a source for each value, or marks it as an assumption, and all values can be
//! overridden when an image is created.

use std::sync::LazyLock;
use toml::de::{DeTable, DeValue};
use zonal_core::{Personality, SECTOR_BYTES};

/// Built-in profiles: name, and text of the file.
pub const PROFILES: [(&str, &str); 4] = [
    ("smr-hdd-26t", include_str!("../../../../profiles/smr-hdd-26t.toml")),
    ("smr-hdd-30t", include_str!("../../../../profiles/smr-hdd-30t.toml")),
    ("ufs-zoned", include_str!("../../../../profiles/ufs-zoned.toml")),
    ("zns-1t", include_str!("../../../../profiles/zns-1t.toml")),
];

/// Properties of a drive. Sizes are in bytes; a limit of 0 means none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Name of the profile.
    pub name: &'static str,
    /// One-line description.
    pub title: String,
    /// Size, a whole number of zones; a partial zone at the end is omitted.
    pub size: u64,
    /// Zone size.
    pub zone_size: u64,
    /// Writable part of a zone.
    pub zone_capacity: u64,
    /// Number of conventional zones.
    pub zone_nr_conv: u32,
    /// Maximum number of open zones.
    pub zone_max_open: u32,
    /// Maximum number of active zones.
    pub zone_max_active: u32,
    /// Largest native zone append in sectors.
    pub zone_append_max_sectors: u32,
    /// Logical block size.
    pub blocksize: u32,
    /// Largest read or write in sectors, as limited by the drive's usual adapter.
    pub max_sectors: u32,
    /// True if the drive preserves the order of each queue.
    pub preserves_write_order: bool,
    /// Standard that the drive follows.
    pub personality: Personality,
    /// True for a rotational drive.
    pub rotational: bool,
}

impl Profile {
    /// Returns the profile `name`.
    pub fn named(name: &str) -> Option<&'static Profile> {
        Profile::all().iter().find(|p| p.name == name)
    }

    /// Returns all built-in profiles.
    pub fn all() -> &'static [Profile] {
        static ALL: LazyLock<Vec<Profile>> = LazyLock::new(|| {
            let read = |(name, text): (&'static str, &str)| {
                Profile::read(name, text)
                    .unwrap_or_else(|| panic!("profile {name}: a value is missing or wrong"))
            };
            PROFILES.into_iter().map(read).collect()
        });
        &ALL
    }

    /// Parses the drive in `text`; `None` if a value is missing or invalid.
    fn read(name: &'static str, text: &str) -> Option<Profile> {
        let file = DeTable::parse(text).ok()?;
        let drive = file.get_ref().get("drive")?.get_ref().as_table()?;
        let value = |key: &str| Some(drive.get(key)?.get_ref().as_table()?.get("value")?.get_ref());
        let number = |key: &str| match value(key)? {
            DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => None,
        };
        let count = |key: &str| number(key).and_then(|n| u32::try_from(n).ok());
        let zone_size = number("zone_size").filter(|&n| n > 0)?;
        Some(Profile {
            name,
            title: file.get_ref().get("title")?.get_ref().as_str()?.to_owned(),
            size: number("size")? / zone_size * zone_size,
            zone_size,
            // In the file 0 means the zone size, as in names of emulated devices.
            zone_capacity: number("zone_capacity").map(|n| if n == 0 { zone_size } else { n })?,
            zone_nr_conv: count("zone_nr_conv")?,
            zone_max_open: count("zone_max_open")?,
            zone_max_active: count("zone_max_active")?,
            zone_append_max_sectors: u32::try_from(number("zone_append_max")? / SECTOR_BYTES).ok()?,
            blocksize: count("blocksize")?,
            max_sectors: u32::try_from(number("command_max")? / SECTOR_BYTES).ok()?,
            preserves_write_order: value("preserves_write_order")?.as_bool()?,
            personality: match value("personality")?.as_str()? {
                "zns" => Personality::Zns,
                "zbc" => Personality::Zbc,
                _ => return None,
            },
            rotational: value("rotational")?.as_bool()?,
        })
    }
}
