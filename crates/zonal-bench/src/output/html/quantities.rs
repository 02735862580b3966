//! Numbers in the tables of the page: three digits and a unit.

/// Formats `value` with a decimal prefix, as in `1.23 MB/s`.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let (mut scaled, mut prefix) = (value, 0);
    // 999.7 would round to four digits.
    while scaled >= 999.5 && prefix + 1 < prefixes.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let text = digits(scaled, prefix == 0 && value.fract() == 0.0);
    format!("{text} {}{unit}", prefixes[prefix]).trim_end().to_owned()
}

/// Formats a time in nanoseconds, as in `8.33 ms`.
pub(crate) fn time(nanos: f64) -> String {
    let units = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
    let fits = |(divisor, _): &&(f64, &str)| nanos / divisor < 999.5;
    let (divisor, unit) = units.iter().find(fits).unwrap_or(&units[3]);
    format!("{} {unit}", digits(nanos / divisor, *divisor == 1.0))
}

/// Formats a size in bytes with a binary prefix, as in `256 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let prefixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut scaled, mut prefix) = (bytes as f64, 0);
    while scaled >= 1024.0 && prefix + 1 < prefixes.len() {
        scaled /= 1024.0;
        prefix += 1;
    }
    format!("{} {}B", digits(scaled, scaled.fract() == 0.0), prefixes[prefix])
}

/// Formats an integer with grouped thousands.
pub(crate) fn grouped(value: impl Into<u64>) -> String {
    let text = value.into().to_string();
    let mut out = String::new();
    for (n, digit) in text.chars().enumerate() {
        if n > 0 && (text.len() - n).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

fn digits(value: f64, is_whole: bool) -> String {
    let decimals = match value {
        _ if is_whole => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let amounts = [0.0, 7.0, 84.26, 999.4, 999.6, 12_345.0, 28_600_000.0].map(|v| amount(v, ""));
        assert_eq!(amounts, ["0", "7", "84.3", "999", "1.00 k", "12.3 k", "28.6 M"]);
        assert_eq!(amount(117_440_512.0, "B/s"), "117 MB/s");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let times = [0.0, 35.0, 999.6, 8_333_000.0, 12e9, 4e12].map(time);
        assert_eq!(times, ["0 ns", "35 ns", "1.00 µs", "8.33 ms", "12.0 s", "4000 s"]);
    }

    #[test]
    fn thousands_are_apart() {
        let texts = [0u64, 999, 1000, 114_688, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1\u{202f}000", "114\u{202f}688", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!([0, 512, 1 << 20, 3 << 29].map(size), ["0 B", "512 B", "1 MiB", "1.50 GiB"]);
    }
}
