//! Values on the command line: sizes, addresses, zones, and suggestions for misspelt words.

use std::ops::RangeInclusive;
use zonal_core::{Geometry, SECTOR_BYTES};
use zonal_io::registry::parse_size;

/// Parses a size in bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

/// Address on a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Address {
    /// Number of 512-byte sectors.
    Sectors(u64),
    /// Start of the zone with this index.
    Zone(u32),
    /// Start of the zone at this percentage of the device.
    Percent(f64),
}

impl Address {
    /// Sector on a device of this size, which may lie beyond its end.
    pub(crate) fn sector(self, size: &ZonedSize) -> u64 {
        match self {
            Address::Sectors(sectors) => sectors,
            Address::Zone(zone) => u64::from(zone) * size.zone_sectors,
            Address::Percent(percent) => {
                let zone = (f64::from(size.zones()) * percent / 100.0) as u64;
                zone * size.zone_sectors
            }
        }
    }
}

/// Size of a device and of its zones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZonedSize {
    /// Sectors of the device.
    pub(crate) sectors: u64,
    /// Sectors of a zone; the last one may have fewer.
    pub(crate) zone_sectors: u64,
}

impl ZonedSize {
    /// Number of zones.
    pub(crate) fn zones(&self) -> u32 {
        self.sectors.div_ceil(self.zone_sectors) as u32
    }
}

impl From<&Geometry> for ZonedSize {
    fn from(geometry: &Geometry) -> ZonedSize {
        ZonedSize { sectors: geometry.sectors().0, zone_sectors: geometry.zone_size().0 }
    }
}

/// Parses an address: sectors as a plain number, a size with a unit, `100z`, or `25%`.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let percent = |text: &str| text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let found = number
        .map(Address::Sectors)
        .or_else(|| text.strip_suffix('z').and_then(|zone| zone.parse().ok()).map(Address::Zone))
        .or_else(|| text.strip_suffix('%').and_then(percent).map(Address::Percent));
    if let Some(address) = found {
        return Ok(address);
    }
    let bytes = size(text).map_err(|_| {
        "not an address: expected 512-byte sectors, or a number with a unit such as 256M, 100z or 25%"
            .to_owned()
    })?;
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("{bytes} bytes is not a whole number of 512-byte sectors"));
    }
    Ok(Address::Sectors(bytes / SECTOR_BYTES))
}

/// Parses a zone's index, or the first and last of a range: `7` or `7-9`.
pub(crate) fn zones(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("not a zone number, such as 7, or a range, such as 7-9".to_owned()),
    }
}

/// Parses a sector's number, or the first and last of a range: `8` or `8-15`.
pub(crate) fn sectors(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("not a sector number, such as 8, or a range, such as 8-15".to_owned()),
    }
}

/// Returns the known name closest to a misspelt one, if it is close enough.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = 1 + name.chars().count() / 4;
    let edits = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    edits.filter(|(edits, _)| *edits <= edits_max).min().map(|(_, known)| known)
}

/// Hint for an unknown word: the known one that may be meant, or the list of all.
pub(crate) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let hint = nearest(name, known).map(|name| format!("did you mean `{name}`?"));
    hint.unwrap_or_else(|| "see `zonal help`".to_owned())
}

/// Formats an exact number of bytes in the largest unit that divides it.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

/// Formats a number of bytes with at least two significant digits, like `ls -h`: `4.0K`, `15M`.
pub(crate) fn rounded(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // Rounded up as `ls` does, so that a size is never understated.
    while value.ceil() >= 1024.0 {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let tenths = (value * 10.0).ceil() / 10.0;
    match tenths < 10.0 {
        true => format!("{tenths:.1}{}", UNITS[unit]),
        false => format!("{:.0}{}", value.ceil(), UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_unit_or_counts_sectors() {
        for (text, expected) in [
            ("524288", Address::Sectors(524_288)),
            ("0x000080000", Address::Sectors(524_288)),
            ("256M", Address::Sectors(524_288)),
            ("512KB", Address::Sectors(1000)),
            ("100z", Address::Zone(100)),
            ("2.5%", Address::Percent(2.5)),
        ] {
            assert_eq!(address(text), Ok(expected), "{text}");
        }
        for text in ["0xzz", "-1", "", "z", "%", "101%", "-1%", "NaN%", "4q", "1KB", "4294967296z"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn zones_are_one_or_a_range() {
        assert_eq!((zones("7"), zones("3-5")), (Ok(7..=7), Ok(3..=5)));
        for wrong in ["", "-", "5-3", "a", "1-", "-1", "4294967296"] {
            assert!(zones(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rounded_sizes_are_those_of_ls() {
        for (bytes, expected) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1 << 20, "1.0M"),
            ((1 << 20) - 1, "1.0M"),
            (250 << 30, "250G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(rounded(bytes), expected);
        }
    }

    #[test]
    fn human_is_exact() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(160 << 30), "160 GiB");
        assert_eq!(human(3 << 39), "1536 GiB");
        assert_eq!(human((1 << 30) + 512), "1073742336 B");
    }
}
