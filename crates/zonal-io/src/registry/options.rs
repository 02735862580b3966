//! The `key=value,key=value` part of a device name.

use super::error::{NameError, NameProblem};
use crate::words::nearest;
use std::ops::{Range, RangeInclusive};

/// Options of one device or wrapper, taken one by one. [`Options::finish`] rejects those that were
/// not taken.
pub struct Options<'a> {
    name: &'a str,
    pairs: Vec<Pair>,
    known: Vec<&'static str>,
}

struct Pair {
    /// Location of key and value together.
    at: Range<usize>,
    key: Range<usize>,
    value: Option<Range<usize>>,
    is_taken: bool,
}

impl<'a> Options<'a> {
    /// Splits the part `at` of `name` at its commas.
    pub(super) fn new(name: &'a str, at: Range<usize>) -> Result<Options<'a>, NameError> {
        let mut pairs: Vec<Pair> = Vec::new();
        let mut from = at.start;
        for text in name[at.clone()].split(',').filter(|_| !at.is_empty()) {
            let pair = from..from + text.len();
            from = pair.end + 1;
            if text.is_empty() {
                return Err(NameError::new(name, pair, NameProblem::EmptyOption));
            }
            let (key, value) = match text.find('=') {
                Some(equals) => {
                    let equals = pair.start + equals;
                    (pair.start..equals, Some(equals + 1..pair.end))
                }
                None => (pair.clone(), None),
            };
            if pairs.iter().any(|p| name[p.key.clone()] == name[key.clone()]) {
                return Err(NameError::new(name, key, NameProblem::Repeated));
            }
            pairs.push(Pair { at: pair, key, value, is_taken: false });
        }
        Ok(Options { name, pairs, known: Vec::new() })
    }

    fn error(&self, at: Range<usize>, problem: NameProblem) -> NameError {
        NameError::new(self.name, at, problem)
    }

    /// Takes an option and returns the location of its key and value.
    fn take(&mut self, key: &'static str) -> Option<(Range<usize>, Option<Range<usize>>)> {
        self.known.push(key);
        let name = self.name;
        let pair = self.pairs.iter_mut().find(|p| &name[p.key.clone()] == key)?;
        pair.is_taken = true;
        Some((pair.at.clone(), pair.value.clone()))
    }

    /// Takes an option that requires a value.
    fn take_value(&mut self, key: &'static str) -> Result<Option<(Range<usize>, &'a str)>, NameError> {
        match self.take(key) {
            None => Ok(None),
            Some((_, Some(value))) if !value.is_empty() => Ok(Some((value.clone(), &self.name[value]))),
            Some((at, _)) => Err(self.error(at, NameProblem::MissingValue)),
        }
    }

    /// Takes a text.
    ///
    /// # Errors
    /// [`NameError`] if the option has no value.
    pub fn text(&mut self, key: &'static str) -> Result<Option<&'a str>, NameError> {
        Ok(self.take_value(key)?.map(|(_, text)| text))
    }

    /// Takes a size in bytes, if present: see [`parse_size`].
    ///
    /// # Errors
    /// [`NameError`] if it is not a size or too large.
    pub fn size(&mut self, key: &'static str, into: &mut u64) -> Result<(), NameError> {
        if let Some((at, text)) = self.take_value(key)? {
            *into = parse_size(text).map_err(|problem| self.error(at, problem))?;
        }
        Ok(())
    }

    /// Takes a whole number of at most `max`, if present.
    ///
    /// # Errors
    /// [`NameError`] if it is not a number or too large.
    pub fn number(&mut self, key: &'static str, max: u64, into: &mut u64) -> Result<(), NameError> {
        *into = self.number_if_there(key, max)?.unwrap_or(*into);
        Ok(())
    }

    /// Takes a whole number of at most `max`; `None` if the option is absent.
    ///
    /// # Errors
    /// As for [`Options::number`].
    pub fn number_if_there(&mut self, key: &'static str, max: u64) -> Result<Option<u64>, NameError> {
        let Some((at, text)) = self.take_value(key)? else { return Ok(None) };
        let number = digits(text).map_err(|problem| self.error(at.clone(), problem))?;
        match number.filter(|&n| n <= max) {
            Some(number) => Ok(Some(number)),
            None => Err(self.error(at, NameProblem::TooLarge { max })),
        }
    }

    /// Takes a whole number from 1 to `max`; `None` if the option is absent.
    ///
    /// # Errors
    /// [`NameError`] if it is not a number, 0, or too large.
    pub fn positive(&mut self, key: &'static str, max: u64) -> Result<Option<u64>, NameError> {
        let at = self.pairs.iter().find(|p| self.name[p.key.clone()] == *key).map(|p| p.at.clone());
        match (self.number_if_there(key, max)?, at) {
            (Some(0), Some(at)) => Err(self.error(at, NameProblem::Zero)),
            (number, _) => Ok(number),
        }
    }

    /// Takes a list of whole numbers and ranges of them, `7` or `7-9`, separated by colons. Empty if
    /// absent.
    ///
    /// # Errors
    /// [`NameError`] if it is not such a list.
    pub fn ranges(&mut self, key: &'static str) -> Result<Vec<RangeInclusive<u64>>, NameError> {
        let Some((at, text)) = self.take_value(key)? else { return Ok(Vec::new()) };
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (digits(first).ok()??, digits(last).ok()??);
            (first <= last).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(':').map(range).collect();
        ranges.ok_or_else(|| self.error(at, NameProblem::NotRanges))
    }

    /// Takes a 32-bit whole number, if present.
    ///
    /// # Errors
    /// [`NameError`] if it is not a number or too large.
    pub fn count(&mut self, key: &'static str, into: &mut u32) -> Result<(), NameError> {
        let mut wide = u64::from(*into);
        self.number(key, u64::from(u32::MAX), &mut wide)?;
        *into = wide as u32;
        Ok(())
    }

    /// Takes a flag, if present: 0 or 1. Without a value it is 1.
    ///
    /// # Errors
    /// [`NameError`] for any other value.
    pub fn flag(&mut self, key: &'static str, into: &mut bool) -> Result<(), NameError> {
        *into = self.flag_if_there(key)?.unwrap_or(*into);
        Ok(())
    }

    /// Takes a flag as [`Options::flag`]; `None` if the option is absent.
    ///
    /// # Errors
    /// As for [`Options::flag`].
    pub fn flag_if_there(&mut self, key: &'static str) -> Result<Option<bool>, NameError> {
        match self.take(key) {
            None => Ok(None),
            Some((_, None)) => Ok(Some(true)),
            Some((_, Some(at))) => match &self.name[at.clone()] {
                "0" => Ok(Some(false)),
                "1" => Ok(Some(true)),
                _ => Err(self.error(at, NameProblem::NotAFlag)),
            },
        }
    }

    /// Takes one of several named values, if present.
    ///
    /// # Errors
    /// [`NameError`] if it is none of them.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        into: &mut T,
    ) -> Result<(), NameError> {
        let Some((at, text)) = self.take_value(key)? else { return Ok(()) };
        match choices.iter().find(|c| c.0 == text) {
            Some(choice) => *into = choice.1,
            None => {
                let choices = choices.iter().map(|c| c.0).collect();
                return Err(self.error(at, NameProblem::NotAChoice { choices }));
            }
        }
        Ok(())
    }

    /// Rejects an option that users may expect here.
    ///
    /// # Errors
    /// [`NameError`] with `why` if the option is present.
    pub fn refuse(&mut self, key: &'static str, why: &'static str) -> Result<(), NameError> {
        match self.take(key) {
            Some((at, _)) => Err(self.error(at, NameProblem::NotHere { why })),
            None => Ok(()),
        }
    }

    /// Checks that all options were taken.
    ///
    /// # Errors
    /// [`NameError`] for the first option that was not taken.
    pub fn finish(self) -> Result<(), NameError> {
        match self.pairs.iter().find(|p| !p.is_taken) {
            Some(pair) => {
                let key = pair.key.clone();
                let nearest = nearest(&self.name[key.clone()], &self.known);
                Err(self.error(key, NameProblem::UnknownOption { nearest, hint: None }))
            }
            None => Ok(()),
        }
    }
}

/// Parses a decimal number; `None` if it exceeds 64 bits.
fn digits(text: &str) -> Result<Option<u64>, NameProblem> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { Ok(text.parse().ok()) } else { Err(NameProblem::NotANumber) }
}

/// Reads a size in bytes, with the units of GNU programs in either case: K, KiB, M, MiB to P, PiB for powers of 1024, and
/// KB, MB to PB for powers of 1000.
///
/// # Errors
/// [`NameProblem::NotASize`], or [`NameProblem::TooLarge`] if it exceeds 64 bits.
///
/// ```
/// use zonal_io::registry::parse_size;
/// assert_eq!(parse_size("4096").unwrap(), 4096);
/// assert_eq!(parse_size("256M").unwrap(), 256 << 20);
/// assert_eq!(parse_size("28TiB").unwrap(), 28 << 40);
/// assert_eq!(parse_size("28TB").unwrap(), 28_000_000_000_000);
/// assert!(parse_size("1.5g").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64, NameProblem> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = digits(number).map_err(|_| NameProblem::NotASize)?;
    let unit = unit.to_ascii_lowercase();
    let prefix = unit.bytes().next().unwrap_or(b'b');
    let power = b"bkmgtp".iter().position(|known| *known == prefix).ok_or(NameProblem::NotASize)?;
    let base: u64 = match unit.get(1..).unwrap_or_default() {
        "" | "i" | "ib" if power > 0 => 1024,
        "b" if power > 0 => 1000,
        "" => 1,
        _ => return Err(NameProblem::NotASize),
    };
    number.and_then(|n| n.checked_mul(base.pow(power as u32))).ok_or(NameProblem::TooLarge { max: u64::MAX })
}
