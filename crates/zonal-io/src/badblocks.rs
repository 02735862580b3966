//! Bad blocks: ranges of sectors that cannot be read or written, in the notation of the Linux null
//! block device.
//!
//! A [`BadBlocks`] is a set of ranges with the rules for hitting one. An emulated drive keeps its
//! set in a `Medium`, which costs the path of a command one load while there are none.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PlainU32};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use zonal_core::DeviceError;

/// Maximum number of ranges of an emulated drive; an image has place for so many.
pub const RANGES_MAX: usize = 253;

/// Set of bad sectors.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BadBlocks {
    /// First and last sector of each range, ascending and separate.
    pub(crate) ranges: Vec<(u64, u64)>,
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
    /// Set of these ranges of sectors.
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u64>>) -> BadBlocks {
        let mut bad = BadBlocks::default();
        for range in ranges {
            bad.change(BadRange { is_bad: true, first: *range.start(), last: *range.end() });
        }
        bad
    }

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

    /// Whole blocks, in sectors, that a command from `sector` on transfers before it hits `bad`.
    pub(crate) fn good_part(&self, sector: u64, bad: BadRange, block_sectors: u32) -> u32 {
        let good = bad.first.saturating_sub(sector) as u32;
        if self.partial_io { good / block_sectors * block_sectors } else { 0 }
    }

    /// First range that overlaps `sectors` sectors from `sector` on.
    pub(crate) fn met_by(&self, sector: u64, sectors: u32) -> Option<BadRange> {
        let end = sector.saturating_add(sectors.into());
        let &(first, last) = self.ranges.iter().find(|&&(a, b)| a < end && sector <= b)?;
        Some(BadRange { is_bad: true, first, last })
    }

    /// Records that a command has hit `range`.
    pub(crate) fn hit(&mut self, range: BadRange) {
        if self.once {
            self.change(BadRange { is_bad: false, ..range });
        }
    }
}

/// Bad blocks of an emulated drive in use.
pub(crate) struct Medium {
    sectors: u64,
    block_sectors: u32,
    /// Number of ranges, the only field read while there are none. Model checkers leave it alone,
    /// because a command may see a change or not.
    count: PlainU32,
    /// The set has changed since [`Medium::take_changed`].
    has_changed: AtomicBool,
    bad: Mutex<BadBlocks>,
    /// Held from the placement of a write to its end while there are bad blocks.
    placing: Mutex<()>,
}

impl Medium {
    /// Medium of `sectors` sectors with logical blocks of `block_sectors`.
    pub(crate) fn new(sectors: u64, block_sectors: u32, bad: BadBlocks) -> Medium {
        let count = PlainU32::new(bad.ranges.len() as u32);
        let (bad, placing) = (Mutex::new(bad), Mutex::new(()));
        Medium { sectors, block_sectors, count, has_changed: AtomicBool::new(false), bad, placing }
    }

    /// True if there are no bad blocks.
    #[inline]
    pub(crate) fn is_sound(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Waits until no other write is between its placement and its end, so that none gets a place
    /// behind one that fails.
    pub(crate) fn place_alone(&self) -> MutexGuard<'_, ()> {
        self.placing.lock()
    }

    /// Number of sectors to transfer of a command of `sectors` from `sector` on: all, or those
    /// before the bad block that it hits.
    #[inline]
    pub(crate) fn good_part(&self, sector: u64, sectors: u32) -> u32 {
        if self.is_sound() { sectors } else { self.hit(sector, sectors) }
    }

    #[cold]
    fn hit(&self, sector: u64, sectors: u32) -> u32 {
        let mut bad = self.bad.lock();
        let Some(range) = bad.met_by(sector, sectors) else { return sectors };
        bad.hit(range);
        if bad.once {
            self.changed(&bad);
        }
        bad.good_part(sector, range, self.block_sectors)
    }

    /// Makes `change`, if any, and returns the first and last sector of each bad range.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if the range exceeds the drive, ENOSPC if it would make more than
    /// [`RANGES_MAX`] ranges.
    pub(crate) fn change(&self, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        let mut bad = self.bad.lock();
        if let Some(change) = change {
            if change.last >= self.sectors {
                return Err(DeviceError::OutOfRange);
            }
            let mut next = bad.clone();
            next.change(change);
            if next.ranges.len() > RANGES_MAX {
                return Err(DeviceError::Os(rustix::io::Errno::NOSPC.raw_os_error()));
            }
            *bad = next;
            self.changed(&bad);
        }
        Ok(bad.ranges.clone())
    }

    fn changed(&self, bad: &BadBlocks) {
        self.count.store(bad.ranges.len() as u32, Ordering::Relaxed);
        self.has_changed.store(true, Ordering::Release);
    }

    /// True if the set has changed since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed) && self.has_changed.swap(false, Ordering::Acquire)
    }

    /// Returns a copy of the set.
    pub(crate) fn bad_blocks(&self) -> BadBlocks {
        self.bad.lock().clone()
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
