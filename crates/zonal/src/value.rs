//! Values on the command line: sizes and zone addresses, and words that are nearly right.

use zonal_core::{SECTOR_BYTES, Sector};
use zonal_io::registry::parse_size;

/// A size in bytes, with the suffixes of device names.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

/// An address: a plain number counts sectors, as listings print them; with a suffix it is a size.
pub(crate) fn sector(text: &str) -> Result<Sector, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    if let Some(sectors) = number {
        return Ok(Sector(sectors));
    }
    let bytes = size(text).map_err(|_| {
        "not an address: a number of 512-byte sectors, or of bytes with k, m, g, t or p".to_owned()
    })?;
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("{bytes} bytes are no whole number of sectors"));
    }
    Ok(Sector(bytes / SECTOR_BYTES))
}

/// The known name nearest to a misspelt one, if it is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = 1 + name.chars().count() / 4;
    let edits = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    edits.filter(|(edits, _)| *edits <= edits_max).min().map(|(_, known)| known)
}

/// A number of bytes for people: exact, in the largest unit that divides it.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sector_plain_numbers_count_sectors_and_sizes_bytes() {
        assert_eq!(sector("524288"), Ok(Sector(524_288)));
        assert_eq!(sector("0x000080000"), Ok(Sector(524_288)));
        assert_eq!(sector("256M"), Ok(Sector(524_288)));
        assert!(sector("0xzz").is_err());
        assert!(sector("-1").is_err());
        assert!(sector("").is_err());
        assert!(sector("4z").unwrap_err().starts_with("not an address"));
    }

    #[test]
    fn human_is_exact() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(160 << 30), "160 GiB");
        assert_eq!(human(3 << 39), "1536 GiB");
        assert_eq!(human((1 << 30) + 512), "1073742336 B");
    }
}
