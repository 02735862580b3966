//! Values on the command line: sizes and zone addresses, and words that are nearly right.

use zonal_core::budget::Policy;
use zonal_core::{Nanos, SECTOR_BYTES, Sector};
use zonal_io::registry::parse_size;
use zonal_io::volume::{BudgetOptions, ParkOptions, Qd1Quantum};

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

/// A time: a whole number and its unit.
pub(crate) fn time(text: &str) -> Result<Nanos, String> {
    const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let parse = |(unit, nanos): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(nanos).map(Nanos)
    };
    let found = UNITS.into_iter().find_map(parse);
    found.ok_or_else(|| format!("{text:?} is no time; write it as in 10ms, with ns, us, ms or s"))
}

/// The known name nearest to a misspelt one, if it is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = 1 + name.chars().count() / 4;
    let edits = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    edits.filter(|(edits, _)| *edits <= edits_max).min().map(|(_, known)| known)
}

/// A policy of the budget, and its options.
pub(crate) fn budget(text: &str) -> Result<BudgetOptions, String> {
    let (name, grace) = text.split_once(',').map_or((text, None), |(name, grace)| (name, Some(grace)));
    let policy = Policy::from_name(name)
        .ok_or_else(|| format!("{name:?} is no policy; there are wait, close, finish and fail"))?;
    let mut options = BudgetOptions { policy, ..BudgetOptions::default() };
    if let Some(grace) = grace {
        let grace = grace.strip_prefix("grace=").ok_or("behind the policy comes grace=TIME")?;
        options.grace = time(grace)?;
    }
    Ok(options)
}

/// What a zone may write in mode qd1 while others wait.
pub(crate) fn quantum(text: &str) -> Result<Qd1Quantum, String> {
    if text == "0" {
        return Ok(Qd1Quantum::NONE);
    }
    let (bytes, share) = text.split_once(',').ok_or("not BYTES,TIME, as in 256M,350ms, or 0")?;
    Ok(Qd1Quantum { bytes: size(bytes)?, time: time(share)? })
}

/// How much is parked, and for how long.
pub(crate) fn park(text: &str) -> Result<ParkOptions, String> {
    let (bytes, wait) = text.split_once(',').ok_or("not BYTES,TIME, as in 1M,1s")?;
    let sectors = size(bytes)? / SECTOR_BYTES;
    let sectors_max = u32::try_from(sectors).map_err(|_| format!("{bytes}: more than a zone can have"))?;
    Ok(ParkOptions { sectors_max, time: time(wait)? })
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
    fn budget_is_a_policy_and_perhaps_a_grace() {
        let of = |text| budget(text).map(|b| (b.policy, b.grace.0));
        assert_eq!(of("wait,grace=50ms"), Ok((Policy::Wait, 50_000_000)));
        assert_eq!(of("close"), Ok((Policy::Close, BudgetOptions::default().grace.0)));
        for wrong in ["", "open", "wait,", "wait,50ms", "wait,grace=50", "wait,grace=99999999999s"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn park_is_a_size_and_a_time() {
        assert_eq!(park("1M,1s"), Ok(ParkOptions::default()));
        assert_eq!(quantum("256M,350ms"), Ok(Qd1Quantum::default()));
        assert_eq!(quantum("0"), Ok(Qd1Quantum::NONE));
        assert!(quantum("1M").unwrap_err().contains("256M,350ms") && quantum("1M,x").is_err());
        for wrong in ["", "1M", "1M,", "1M,10", ",10ms", "9999T,1s"] {
            assert!(park(wrong).is_err(), "{wrong}");
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
