//! A table of a plan. Its keys are taken one by one; keys that were not taken are errors.

use super::error::{PlanError, PlanProblem};
use crate::words::nearest;
use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zonal_core::Nanos;

/// Table of a plan; see the module.
pub(super) struct Table<'t> {
    text: &'t str,
    /// Location of the whole table.
    at: Range<usize>,
    entries: Vec<Entry<'t>>,
    known: Vec<&'static str>,
}

struct Entry<'t> {
    key: Box<str>,
    key_at: Range<usize>,
    value: Option<Value<'t>>,
}

/// A value and its location.
pub(super) struct Value<'t> {
    text: &'t str,
    pub(super) at: Range<usize>,
    value: DeValue<'t>,
}

impl<'t> Table<'t> {
    pub(super) fn new(text: &'t str, table: Spanned<DeTable<'t>>) -> Table<'t> {
        let at = table.span();
        let entry = |(key, value): (Spanned<Cow<str>>, Spanned<_>)| Entry {
            key_at: key.span(),
            key: Box::from(&*key.into_inner()),
            value: Some(Value::new(text, value)),
        };
        Table { text, at, entries: table.into_inner().into_iter().map(entry).collect(), known: Vec::new() }
    }

    /// Creates an error that concerns the table as a whole.
    pub(super) fn error(&self, problem: PlanProblem) -> PlanError {
        PlanError::new(self.text, self.at.clone(), problem)
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Value<'t>> {
        self.known.push(key);
        self.entries.iter_mut().find(|e| &*e.key == key).and_then(|e| e.value.take())
    }

    /// Takes `key` and parses it with `read`.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Value<'t>) -> Result<T, PlanError>,
    ) -> Result<Option<T>, PlanError> {
        self.take(key).map(read).transpose()
    }

    /// Checks that all keys were taken.
    pub(super) fn finish(self) -> Result<(), PlanError> {
        match self.entries.iter().find(|e| e.value.is_some()) {
            Some(entry) => {
                let nearest = nearest(&entry.key, &self.known);
                let problem = PlanProblem::UnknownKey { nearest };
                Err(PlanError::new(self.text, entry.key_at.clone(), problem))
            }
            None => Ok(()),
        }
    }
}

impl<'t> Value<'t> {
    fn new(text: &'t str, value: Spanned<DeValue<'t>>) -> Value<'t> {
        Value { text, at: value.span(), value: value.into_inner() }
    }

    pub(super) fn error(&self, problem: PlanProblem) -> PlanError {
        PlanError::new(self.text, self.at.clone(), problem)
    }

    fn wrong(&self, wanted: &'static str) -> PlanError {
        self.error(PlanProblem::WrongType { wanted, found: self.value.type_str() })
    }

    pub(super) fn table(self) -> Result<Table<'t>, PlanError> {
        match self.value {
            DeValue::Table(table) => Ok(Table::new(self.text, Spanned::new(self.at, table))),
            _ => Err(self.wrong("a table")),
        }
    }

    /// Returns the elements of a list, or a single value as a list.
    pub(super) fn list(self) -> Vec<Value<'t>> {
        let text = self.text;
        match self.value {
            DeValue::Array(list) => list.into_iter().map(|v| Value::new(text, v)).collect(),
            value => vec![Value { value, ..self }],
        }
    }

    pub(super) fn text(&self) -> Result<&str, PlanError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    pub(super) fn flag(self) -> Result<bool, PlanError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// Parses a whole number from `min` to `max`.
    pub(super) fn number(&self, min: u64, max: u64) -> Result<u64, PlanError> {
        let integer = self.value.as_integer().ok_or_else(|| self.wrong("a whole number"))?;
        u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| self.error(PlanProblem::OutOfBounds { min, max }))
    }

    /// Parses one of several words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Result<T, PlanError> {
        let word = self.text()?;
        choices.iter().find(|c| c.0 == word).map(|c| c.1).ok_or_else(|| {
            let choices: Box<[_]> = choices.iter().map(|c| c.0).collect();
            let nearest = nearest(word, &choices);
            self.error(PlanProblem::UnknownWord { choices, nearest })
        })
    }

    /// Parses a duration.
    pub(super) fn time(&self) -> Result<Nanos, PlanError> {
        match &self.value {
            DeValue::Integer(_) => self.number(0, u64::MAX).map(Nanos),
            DeValue::String(text) => parse_time(text).ok_or_else(|| self.error(PlanProblem::NotATime)),
            _ => Err(self.wrong("a time")),
        }
    }

    /// Parses a probability.
    pub(super) fn rate(&self) -> Result<f64, PlanError> {
        let rate = match &self.value {
            DeValue::Integer(number) => parse_rate(number.as_str()),
            DeValue::Float(number) => parse_rate(number.as_str()),
            DeValue::String(text) => parse_rate(text),
            _ => return Err(self.wrong("a rate")),
        };
        rate.ok_or_else(|| self.error(PlanProblem::NotARate))
    }

    /// Parses a number, or a range with or without an end.
    pub(super) fn range(&self, max: u64) -> Result<RangeInclusive<u64>, PlanError> {
        if let DeValue::Integer(_) = self.value {
            return self.number(0, max).map(|n| n..=n);
        }
        let not = || self.error(PlanProblem::NotARange);
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| is_number).ok_or_else(not)
        };
        let text = self.text()?;
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first = number(first)?;
        let last = if last.is_empty() { max } else { number(last)? };
        if first > last {
            return Err(not());
        }
        if last > max {
            return Err(self.error(PlanProblem::OutOfBounds { min: 0, max }));
        }
        Ok(first..=last)
    }
}

/// Parses a duration such as `5ms`, or a number of nanoseconds.
fn parse_time(text: &str) -> Option<Nanos> {
    const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        unit => UNITS.iter().find(|u| u.0 == unit)?.1,
    };
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit).map(Nanos)
}

/// Parses a number from 0 to 1, or a fraction of two whole numbers.
pub(in crate::fault) fn parse_rate(text: &str) -> Option<f64> {
    let rate = match text.split_once('/') {
        Some((part, whole)) => {
            let (part, whole): (u32, u32) = (part.parse().ok()?, whole.parse().ok()?);
            f64::from(part) / f64::from(whole)
        }
        None => text.parse().ok()?,
    };
    // Excludes 0/0 and NaN, too.
    (0.0..=1.0).contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, nanos) in
            [("0", 0), ("7", 7), ("7ns", 7), ("2us", 2000), ("3ms", 3_000_000), ("1s", 1_000_000_000)]
        {
            assert_eq!(parse_time(text), Some(Nanos(nanos)), "{text}");
        }
        for text in ["", "s", "-1s", "+1s", "1.5s", "1m", "1 s", "99999999999999s", "５s"] {
            assert_eq!(parse_time(text), None, "{text:?}");
        }
    }

    #[test]
    fn rates_lie_between_none_and_all() {
        for (text, rate) in [("0", 0.0), ("1", 1.0), ("0.25", 0.25), ("1/4", 0.25), ("1e-3", 0.001)] {
            assert_eq!(parse_rate(text), Some(rate), "{text}");
        }
        for text in ["", "2", "-0.1", "nan", "inf", "0/0", "1/0", "3/2", "1/2/3", "x"] {
            assert_eq!(parse_rate(text), None, "{text:?}");
        }
    }
}
