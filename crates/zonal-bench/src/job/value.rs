//! Values: integers with size suffixes, times, extents, booleans, floats and words, parsed and
//! printed.
//!
//! All functions take a value without surrounding blanks. Errors have no location: the caller adds
//! option and origin. `parse_*` reads the output of the corresponding `show_*` back to the same
//! value.

use std::time::Duration;

use super::error::ValueError;
use super::limits::RUNTIME_MICROS_MAX;
use super::spec::Extent;

type Parsed<T> = Result<T, ValueError>;

/// fio keeps sizes as signed 64-bit numbers and refuses larger ones.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// Bytes per unit of each size suffix.
///
/// With fio's default `kb_base=1024` the suffixes are reversed compared with the standards: `kb` is
/// 1024 and `kib` is 1000.
const SIZE_SUFFIXES: [(&str, u64); 17] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1_000),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1_000_000),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1_000_000_000),
    ("t", 1 << 40),
    ("tb", 1 << 40),
    ("tib", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pb", 1 << 50),
    ("pib", 1_000_000_000_000_000),
];

/// Suffixes that are powers of ten in fio's manual and powers of two in fio 3.33.
const SIZE_SUFFIXES_AMBIGUOUS: [&str; 5] = ["ki", "mi", "gi", "ti", "pi"];

/// Microseconds per second, the unit of most times without a suffix.
const TIME_UNIT: u64 = 1_000_000;

/// Microseconds per unit of each time suffix.
const TIME_SUFFIXES: [(&str, u64); 8] = [
    ("s", 1_000_000),
    ("m", 60 * 1_000_000),
    ("h", 3_600 * 1_000_000),
    ("d", 86_400 * 1_000_000),
    ("ms", 1_000),
    ("msec", 1_000),
    ("us", 1),
    ("usec", 1),
];

/// Parses an integer with an optional size suffix, such as `4096`, `4k` or `0x1000`.
pub(super) fn parse_int(text: &str) -> Parsed<u64> {
    const EXPECTED: &str = "a whole number with an optional suffix such as k, m, g, t or p";
    let (number, suffix) = split_number(text, EXPECTED)?;
    let suffix = suffix.to_ascii_lowercase();
    if SIZE_SUFFIXES_AMBIGUOUS.contains(&suffix.as_str()) {
        let letter = &suffix[..1];
        return Err(ValueError::Ambiguous {
            fio: format!("a power of two, and its manual as a power of ten: {text}"),
            instead: format!("{number}{letter} or {number}{letter}ib"),
        });
    }
    let (_, unit) = *SIZE_SUFFIXES
        .iter()
        .find(|(name, _)| *name == suffix)
        .ok_or(ValueError::Malformed { expected: EXPECTED })?;
    scale(number, unit)
}

/// Parses an integer within a range.
pub(super) fn parse_int_in(text: &str, min: u64, max: u64) -> Parsed<u64> {
    let number = parse_int(text)?;
    if !(min..=max).contains(&number) {
        return Err(ValueError::OutOfRange { min, max });
    }
    Ok(number)
}

/// As [`parse_int_in`], for options kept in 32 bits.
pub(super) fn parse_u32_in(text: &str, min: u64, max: u64) -> Parsed<u32> {
    debug_assert!(max <= u64::from(u32::MAX));
    parse_int_in(text, min, max).and_then(|number| u32::try_from(number).map_err(|_| ValueError::Overflow))
}

/// Parses a time such as `30`, `30s` or `500ms` to microseconds.
pub(super) fn parse_micros(text: &str) -> Parsed<u64> {
    parse_time(text, TIME_UNIT)
}

/// As [`parse_micros`], for options with microseconds as the default unit.
pub(super) fn parse_micros_bare(text: &str) -> Parsed<u64> {
    parse_time(text, 1)
}

/// Parses a time to microseconds; `bare` is the unit of a number without a suffix.
fn parse_time(text: &str, bare: u64) -> Parsed<u64> {
    const EXPECTED: &str = "a whole number with an optional suffix d, h, m, s, ms or us";
    let (number, suffix) = split_number(text, EXPECTED)?;
    let suffix = suffix.to_ascii_lowercase();
    if suffix == "sec" {
        // The manual lists `sec`, but fio 3.33 does not recognise it and falls back to
        // microseconds.
        return Err(ValueError::Ambiguous {
            fio: format!("{number} microseconds"),
            instead: format!("{number}s"),
        });
    }
    let unit = match suffix.as_str() {
        "" => bare,
        suffix => TIME_SUFFIXES
            .iter()
            .find_map(|(name, unit)| (*name == suffix).then_some(*unit))
            .ok_or(ValueError::Malformed { expected: EXPECTED })?,
    };
    let micros = scale(number, unit)?;
    if micros > RUNTIME_MICROS_MAX {
        return Err(ValueError::OutOfRange { min: 0, max: RUNTIME_MICROS_MAX });
    }
    Ok(micros)
}

/// Parses a position or length: bytes, `N%` from 1 to 100, or `Nz` zones.
pub(super) fn parse_extent(text: &str) -> Parsed<Extent> {
    parse_extent_up_to(100, text)
}

fn parse_extent_up_to(percent_max: u16, text: &str) -> Parsed<Extent> {
    const EXPECTED: &str = "a size, a percentage such as 10%, or a number of zones such as 10z";
    if let Some(number) = text.strip_suffix('%') {
        let percent = whole_number(number).ok_or(ValueError::Malformed { expected: EXPECTED })??;
        return match u16::try_from(percent) {
            Ok(percent) if (1..=percent_max).contains(&percent) => Ok(Extent::Percent(percent)),
            _ => Err(ValueError::OutOfRange { min: 1, max: percent_max.into() }),
        };
    }
    if let Some(number) = text.strip_suffix(['z', 'Z']) {
        return Ok(Extent::Zones(whole_number(number).ok_or(ValueError::Malformed { expected: EXPECTED })??));
    }
    parse_int(text).map(Extent::Bytes)
}

/// As [`parse_extent`], for a length, where 0 means everything in fio.
pub(super) fn parse_length(text: &str) -> Parsed<Extent> {
    length(parse_extent(text)?)
}

/// As [`parse_length`], for an amount, which may be several times the size. fio takes this in bytes
/// only.
pub(super) fn parse_amount(text: &str) -> Parsed<Extent> {
    length(parse_extent_up_to(u16::MAX, text)?)
}

fn length(extent: Extent) -> Parsed<Extent> {
    match extent {
        Extent::Bytes(0) => Ok(Extent::Fill),
        Extent::Zones(0) => Err(ValueError::OutOfRange { min: 1, max: NUMBER_MAX }),
        extent => Ok(extent),
    }
}

/// Parses `1` or `0`. fio accepts no words.
pub(super) fn parse_bool(text: &str) -> Parsed<bool> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(ValueError::Malformed { expected: "0 or 1" }),
    }
}

/// Parses a decimal fraction within a range.
pub(super) fn parse_float(text: &str, min: f64, max: f64) -> Parsed<f64> {
    // Rust also parses `inf`, `nan` and exponents; job files have plain decimals only.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = plain
        .then(|| text.parse().ok())
        .flatten()
        .ok_or(ValueError::Malformed { expected: "a decimal number" })?;
    if !(min..=max).contains(&number) {
        return Err(ValueError::FloatOutOfRange { min, max });
    }
    Ok(number)
}

/// Parses decimal numbers separated by `:`.
pub(super) fn parse_floats(text: &str, min: f64, max: f64, count_max: usize) -> Parsed<Vec<f64>> {
    if text.split(':').nth(count_max).is_some() {
        return Err(ValueError::TooMany { max: count_max });
    }
    text.split(':').map(|number| parse_float(number, min, max)).collect()
}

/// Parses one of several keywords.
pub(super) fn parse_word<T: Copy>(text: &str, words: &'static str, choices: &[(&str, T)]) -> Parsed<T> {
    choices
        .iter()
        .find_map(|(word, value)| (*word == text).then_some(*value))
        .ok_or(ValueError::UnknownWord { words })
}

/// Prints bytes with the largest suffix that divides them.
pub(super) fn show_int(number: u64) -> String {
    let units = [("p", 50), ("t", 40), ("g", 30), ("m", 20), ("k", 10)];
    units
        .into_iter()
        .find(|(_, shift)| number != 0 && number.trailing_zeros() >= *shift)
        .map_or_else(|| number.to_string(), |(suffix, shift)| format!("{}{suffix}", number >> shift))
}

/// Prints a time in whole seconds if possible, otherwise in microseconds.
pub(super) fn show_time(time: Duration) -> String {
    match time.subsec_micros() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}us", time.as_micros()),
    }
}

/// Prints an extent as an option value.
pub(super) fn show_extent(extent: Extent) -> String {
    match extent {
        Extent::Bytes(bytes) => show_int(bytes),
        Extent::Percent(percent) => format!("{percent}%"),
        Extent::Zones(zones) => format!("{zones}z"),
        Extent::Fill => "0".to_owned(),
    }
}

/// Prints numbers joined by `:`.
pub(super) fn show_floats(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(":")
}

/// Splits `4k` into 4 and `k`. A hexadecimal number takes no suffix: fio silently drops it.
fn split_number<'a>(text: &'a str, expected: &'static str) -> Parsed<(u64, &'a str)> {
    if text.contains(['(', ')', '*', '/', '^']) {
        return Err(ValueError::Arithmetic);
    }
    let malformed = ValueError::Malformed { expected };
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed);
        }
        let number = u64::from_str_radix(digits, 16).ok().filter(|number| *number <= NUMBER_MAX);
        return Ok((number.ok_or(ValueError::Overflow)?, ""));
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(end);
    Ok((whole_number(digits).ok_or(malformed)??, suffix))
}

/// Parses decimal digits; `None` for anything else.
fn whole_number(digits: &str) -> Option<Parsed<u64>> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok().filter(|number| *number <= NUMBER_MAX);
    Some(number.ok_or(ValueError::Overflow))
}

fn scale(number: u64, unit: u64) -> Parsed<u64> {
    number.checked_mul(unit).filter(|product| *product <= NUMBER_MAX).ok_or(ValueError::Overflow)
}

#[cfg(test)]
mod tests;
