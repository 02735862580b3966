//! One word a zone, laid out so that zones in use at the same time do not share cache lines.
//!
//! Threads on zones of their own touch the table at each command. Side by side, eight zones would share a line and the
//! threads would pass it to and fro; so would two that split a drive in halves in a table spread by a power of two.
//! Zone `z` therefore lies in slot `z * multiplier` modulo a power of two: with an odd multiplier every zone has a slot
//! of its own, and the multiplier is chosen so that the usual strides lead far away.

use std::sync::atomic::AtomicU64;
use zonal_core::ZoneIndex;

/// Words in a cache line of 64 bytes.
const LINE_WORDS: usize = 8;

/// A table of a few zones is spread over more slots than it needs, up to this many.
const SPREAD_SLOTS: u32 = 8192;

/// Slots a zone in a small table: two cache lines, because they are fetched in pairs.
const SPREAD: u32 = 2 * LINE_WORDS as u32;

#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

/// The table.
pub(super) struct WordTable {
    lines: Box<[Line]>,
    multiplier: u32,
    mask: u32,
}

impl WordTable {
    /// A table of `zones` words, each set by `init`.
    pub(super) fn new(zones: u32, mut init: impl FnMut(ZoneIndex) -> u64) -> WordTable {
        assert!(zones > 0 && zones <= 1 << 31, "{zones} zones");
        let needed = zones.next_power_of_two();
        let slots = needed.max(needed.saturating_mul(SPREAD).min(SPREAD_SLOTS));
        let empty = || Line([const { AtomicU64::new(0) }; LINE_WORDS]);
        let lines = (0..slots as usize / LINE_WORDS).map(|_| empty()).collect();
        let mut table = WordTable { lines, multiplier: multiplier(zones, slots), mask: slots - 1 };
        for zone in (0..zones).map(ZoneIndex) {
            let slot = table.slot(zone);
            *table.lines[slot / LINE_WORDS].0[slot % LINE_WORDS].get_mut() = init(zone);
        }
        table
    }

    #[inline]
    fn slot(&self, zone: ZoneIndex) -> usize {
        (zone.0.wrapping_mul(self.multiplier) & self.mask) as usize
    }

    /// The word of `zone`.
    #[inline]
    pub(super) fn of(&self, zone: ZoneIndex) -> &AtomicU64 {
        let slot = self.slot(zone);
        &self.lines[slot / LINE_WORDS].0[slot % LINE_WORDS]
    }
}

/// Distance of the slots of two zones that are `stride` apart.
fn distance(stride: u32, multiplier: u32, slots: u32) -> u32 {
    let ahead = stride.wrapping_mul(multiplier) & (slots - 1);
    ahead.min(slots - ahead)
}

/// An odd multiplier, near the golden section of the table, that takes the usual strides to other lines.
fn multiplier(zones: u32, slots: u32) -> u32 {
    let golden = (f64::from(slots) * 0.618_033_988) as u32 | 1;
    let apart = |m: u32| strides(zones).all(|s| distance(s, m, slots) >= LINE_WORDS as u32);
    // Half of all multipliers qualify in a table of any size, so this ends early.
    (0..slots).step_by(2).map(|i| golden.wrapping_add(i)).find(|&m| apart(m)).unwrap_or(golden)
}

/// Distances at which threads are likely to place themselves: neighbours, and equal shares of the drive.
fn strides(zones: u32) -> impl Iterator<Item = u32> {
    let shares = (2..=16).flat_map(move |n| [zones / n, zones.div_ceil(n)]);
    (1..=16).chain(shares).filter(move |s| (1..zones).contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const ZONE_COUNTS: [u32; 12] = [1, 2, 3, 8, 64, 100, 1000, 1024, 5000, 55_880, 112_000, 1 << 20];

    #[test]
    fn every_zone_has_a_word_of_its_own() {
        for zones in ZONE_COUNTS {
            let table = WordTable::new(zones, |z| u64::from(z.0) + 1);
            for z in 0..zones {
                assert_eq!(table.of(ZoneIndex(z)).load(Ordering::Relaxed), u64::from(z) + 1);
            }
        }
    }

    #[test]
    fn neighbours_and_shares_of_a_drive_do_not_share_lines() {
        for zones in ZONE_COUNTS {
            let table = WordTable::new(zones, |_| 0);
            let line = |z| table.slot(ZoneIndex(z)) / LINE_WORDS;
            for stride in strides(zones) {
                let shared = (0..zones - stride).find(|&z| line(z) == line(z + stride));
                assert_eq!(shared, None, "{zones} zones, stride {stride}");
            }
        }
    }

    #[test]
    fn large_tables_take_less_than_two_words_a_zone() {
        for zones in [8192, 55_880, 112_000, 1 << 20] {
            let table = WordTable::new(zones, |_| 0);
            assert!(table.lines.len() * LINE_WORDS < 2 * zones as usize);
        }
    }
}
