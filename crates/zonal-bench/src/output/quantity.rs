//! Human-readable numbers as printed by fio: four characters and a prefix.

/// Meaning of prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Prefixes {
    /// `k` is 1000.
    Decimal,
    /// `Ki` is 1024.
    Binary,
}

/// Formats `value` with at most four characters before the prefix and `unit`.
pub(super) fn quantity(value: f64, prefixes: Prefixes, unit: &str) -> String {
    short(value, prefixes, unit, 4)
}

/// Formats `value` with at most `width` characters before the prefix and `unit`.
pub(super) fn short(value: f64, prefixes: Prefixes, unit: &str, width: usize) -> String {
    let (step, names): (f64, [&str; 6]) = match prefixes {
        Prefixes::Decimal => (1000.0, ["", "k", "M", "G", "T", "P"]),
        Prefixes::Binary => (1024.0, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]),
    };
    let limit = 10f64.powi(width as i32);
    let (mut scaled, mut prefix) = (value.trunc(), 0);
    while scaled.round() >= limit && prefix + 1 < names.len() {
        scaled /= step;
        prefix += 1;
    }
    let whole = format!("{:.0}", scaled.trunc()).len();
    // A decimal takes two characters, with its point.
    let decimals = if prefix == 0 { 0 } else { width.saturating_sub(whole + 1) };
    format!("{scaled:.decimals$}{}{unit}", names[prefix])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_four_characters() {
        let decimal = |value| quantity(value, Prefixes::Decimal, "");
        assert_eq!(decimal(999.0), "999");
        assert_eq!(decimal(9999.0), "9999");
        assert_eq!(decimal(10_000.0), "10.0k");
        assert_eq!(decimal(438_100.0), "438k");
        assert_eq!(decimal(5_000_000.0), "5000k");
        assert_eq!(decimal(20_000_000.0), "20.0M");
        assert_eq!(quantity(75_300_000.0, Prefixes::Binary, "B/s"), "71.8MiB/s");
        assert_eq!(quantity(0.0, Prefixes::Binary, "B"), "0B");
    }

    #[test]
    fn wider_quantities_keep_more() {
        assert_eq!(short(2_498_300.0, Prefixes::Decimal, "", 6), "2498.3k");
        assert_eq!(short(530.0, Prefixes::Decimal, "", 6), "530");
    }
}
