//! Bad blocks: ranges of sectors that cannot be read or written, in the notation of the Linux null
//! block device.

use std::fmt;
use std::str::FromStr;

/// Set of bad sectors.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BadBlocks {
    /// First and last sector of each range, ascending and separate.
    ranges: Vec<(u64, u64)>,
    /// True if a range becomes good once a command has hit it.
    pub once: bool,
    /// True to transfer the blocks before the first bad one.
    pub partial_io: bool,
}

/// Change to the bad blocks: `+first-last` or `-first-last`, in sectors, both inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRange {
    /// True to make the range bad, false to make it good.
    pub is_bad: bool,
    /// First sector.
    pub first: u64,
    /// Last sector.
    pub last: u64,
}

/// Error of parsing a [`BadRange`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadRangeError {
    /// Does not start with `+` or `-`.
    #[error("a range of bad blocks starts with + to add it or - to remove it")]
    NoSign,
    /// Not two numbers.
    #[error("a range of bad blocks is two sectors, `+first-last`")]
    NotSectors,
    /// The last sector precedes the first.
    #[error("a range of bad blocks ends before it begins")]
    Backwards,
}

impl FromStr for BadRange {
    type Err = BadRangeError;

    fn from_str(text: &str) -> Result<BadRange, BadRangeError> {
        let (is_bad, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(BadRangeError::NoSign),
        };
        let number = |digits: &str| {
            // `parse` would accept a sign.
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number).ok_or(BadRangeError::NotSectors)
        };
        let (first, last) = rest.split_once('-').ok_or(BadRangeError::NotSectors)?;
        let (first, last) = (number(first)?, number(last)?);
        if last < first { Err(BadRangeError::Backwards) } else { Ok(BadRange { is_bad, first, last }) }
    }
}

impl fmt::Display for BadRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}-{}", if self.is_bad { '+' } else { '-' }, self.first, self.last)
    }
}

impl BadBlocks {
    /// Makes a range bad or good.
    pub fn change(&mut self, change: BadRange) {
        let BadRange { is_bad, mut first, mut last } = change;
        let mut kept = Vec::new();
        for (a, b) in self.ranges.drain(..) {
            // Adjacent ranges are joined when adding; removal affects only ranges that overlap.
            let touches = a <= last.saturating_add(1) && first <= b.saturating_add(1);
            match is_bad {
                true if touches => (first, last) = (first.min(a), last.max(b)),
                false if a <= last && first <= b => {
                    kept.extend((a < first).then(|| (a, first - 1)));
                    kept.extend((b > last).then(|| (last + 1, b)));
                }
                _ => kept.push((a, b)),
            }
        }
        kept.extend(is_bad.then_some((first, last)));
        kept.sort_unstable();
        self.ranges = kept;
    }

    /// Returns first and last sector of each range, ascending.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// First range that overlaps `sectors` sectors from `sector` on.
    pub(super) fn met_by(&self, sector: u64, sectors: u32) -> Option<BadRange> {
        let end = sector.saturating_add(sectors.into());
        let &(first, last) = self.ranges.iter().find(|&&(a, b)| a < end && sector <= b)?;
        Some(BadRange { is_bad: true, first, last })
    }

    /// Records that a command has hit `range`.
    pub(super) fn hit(&mut self, range: BadRange) {
        if self.once {
            self.change(BadRange { is_bad: false, ..range });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bad(changes: &[&str]) -> BadBlocks {
        let mut bad = BadBlocks::default();
        changes.iter().for_each(|c| bad.change(c.parse().unwrap()));
        bad
    }

    #[test]
    fn ranges_join_and_split() {
        assert_eq!(bad(&["+8-15", "+16-20"]).ranges(), [(8, 20)]);
        assert_eq!(bad(&["+8-15", "-10-11"]).ranges(), [(8, 9), (12, 15)]);
        assert_eq!(bad(&["+8-15", "+30-31", "-0-100"]).ranges(), []);
        let whole = bad(&["+0-18446744073709551615", "-1-1"]);
        assert_eq!(whole.ranges(), [(0, 0), (2, u64::MAX)]);
    }

    #[test]
    fn first_range_met_is_found_and_cleared_once() {
        let mut bad = bad(&["+8-9", "+12-13"]);
        assert_eq!(bad.met_by(0, 8), None);
        assert_eq!(bad.met_by(9, 8).map(|r| r.first), Some(8));
        assert_eq!(bad.met_by(10, 3).map(|r| r.first), Some(12));
        assert_eq!(bad.met_by(14, u32::MAX), None);
        let hit = bad.met_by(0, 100).unwrap();
        bad.hit(hit);
        assert_eq!(bad.ranges().len(), 2);
        bad.once = true;
        bad.hit(hit);
        assert_eq!(bad.ranges(), [(12, 13)]);
    }

    #[test]
    fn texts_that_are_no_ranges_are_refused() {
        use BadRangeError::{Backwards, NoSign, NotSectors};
        for (text, error) in [
            ("1-2", NoSign),
            ("", NoSign),
            ("+1", NotSectors),
            ("+1-", NotSectors),
            ("+-1", NotSectors),
            ("++1-2", NotSectors),
            ("+1-99999999999999999999", NotSectors),
            ("-2-1", Backwards),
        ] {
            assert_eq!(text.parse::<BadRange>(), Err(error), "{text:?}");
        }
        assert_eq!("+3-7".parse::<BadRange>().unwrap().to_string(), "+3-7");
    }

    proptest! {
        /// Compares with one flag per sector.
        #[test]
        fn changes_do_what_a_flag_a_sector_does(
            changes in prop::collection::vec((any::<bool>(), 0..40u64, 0..12u64), 0..20),
        ) {
            let (mut bad, mut flags) = (BadBlocks::default(), [false; 64]);
            for (is_bad, first, more) in changes {
                bad.change(BadRange { is_bad, first, last: first + more });
                flags[first as usize..=(first + more) as usize].fill(is_bad);
            }
            for (sector, flag) in flags.iter().enumerate() {
                prop_assert_eq!(bad.met_by(sector as u64, 1).is_some(), *flag);
            }
            prop_assert!(bad.ranges().windows(2).all(|w| w[0].1 + 1 < w[1].0));
        }
    }
}
