//! Checksums of units that were read and verified, kept for the next reads.
//!
//! The header of a unit has the checksums of its data. A read that finds them here is one command. Any other read fetches the header
//! along. Four bytes a block is a thousandth of the data.
//!
//! # Invariants
//! - Only what a sound header said is kept. What is kept is at most as many bytes as the mount options say.
//! - A zone is reset only when no read has it pinned. [`UnitSums::forget`] is called before the reset begins, and
//!   [`UnitSums::remember`] while the zone is pinned. So what is kept is of the units that lie in the zone now.
//!
//! # Why ages and not a search
//! Each zone has an age, which its reset increases. What has another age than its zone does not count. So a reset costs one addition,
//! however much is kept of the zone, and what is out of date is the first to leave.
//!
//! # Which leave
//! Each shard is a clock: a hand passes over the entries, takes the mark of each that was used since it came by, and stops at one
//! without a mark. An entry comes without a mark: a file that is read once from end to end takes the place of others of its kind.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Parts with a lock each. Two threads that read at random seldom meet.
const SHARDS: usize = 64;

/// Bytes that an entry takes beside its checksums: its key twice, the table's slack, the counts of the shared list, the allocator.
const ENTRY_BYTES: usize = 128;

/// A unit: its zone, and its first block there.
type Unit = (u32, u32);

/// The checksums of a unit's blocks, in order.
pub(super) type Sums = Arc<[u32]>;

#[derive(Debug)]
pub(super) struct UnitSums {
    shards: Vec<Mutex<Shard>>,
    /// How often each zone was reset since the file system was opened.
    ages: Vec<AtomicU32>,
    /// Bytes that a shard keeps.
    shard_bytes: usize,
}

#[derive(Debug, Default)]
struct Shard {
    /// Where a unit's entry is.
    places: FxHashMap<Unit, usize>,
    entries: Vec<Entry>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    unit: Unit,
    age: u32,
    is_used: bool,
    sums: Sums,
}

impl Entry {
    fn bytes(&self) -> usize {
        bytes_of(&self.sums)
    }
}

fn bytes_of(sums: &Sums) -> usize {
    ENTRY_BYTES + size_of_val::<[u32]>(sums)
}

impl UnitSums {
    /// Room for `bytes` of checksums of a drive with `zones` zones. With less than a unit's in each shard none is kept.
    pub(super) fn new(zones: u32, bytes: usize) -> UnitSums {
        UnitSums {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            ages: (0..zones).map(|_| AtomicU32::new(0)).collect(),
            shard_bytes: bytes / SHARDS,
        }
    }

    /// What is known of a unit, whose zone is pinned.
    pub(super) fn find(&self, zone: u32, unit: u32) -> Option<Sums> {
        let age = self.age(zone)?;
        let mut shard = self.shard((zone, unit)).lock();
        let place = *shard.places.get(&(zone, unit))?;
        let entry = &mut shard.entries[place];
        if entry.age != age {
            return None;
        }
        entry.is_used = true;
        Some(entry.sums.clone())
    }

    /// Keeps what the sound header of a unit said, whose zone is pinned.
    pub(super) fn remember(&self, zone: u32, unit: u32, sums: &Sums) {
        let Some(age) = self.age(zone) else { return };
        if bytes_of(sums) > self.shard_bytes {
            return;
        }
        let entry = Entry { unit: (zone, unit), age, is_used: false, sums: sums.clone() };
        let mut shard = self.shard(entry.unit).lock();
        shard.put(entry);
        while shard.bytes > self.shard_bytes {
            shard.evict(&self.ages);
        }
    }

    /// A zone without reads is about to be reset: what is known of its units does not count any more.
    pub(super) fn forget(&self, zone: u32) {
        if let Some(age) = self.ages.get(zone as usize) {
            age.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// No order is needed: a reset begins after the last pin is gone, and the next reader was shown what was written after it.
    fn age(&self, zone: u32) -> Option<u32> {
        self.ages.get(zone as usize).map(|age| age.load(Ordering::Relaxed))
    }

    fn shard(&self, (zone, unit): Unit) -> &Mutex<Shard> {
        // Units of one zone lie at equal distances: the upper bits of a product spread them.
        let mixed = (u64::from(zone) << 32 | u64::from(unit)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 32) as usize % SHARDS]
    }
}

impl Shard {
    fn put(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        match self.places.get(&entry.unit) {
            Some(&place) => {
                let old = std::mem::replace(&mut self.entries[place], entry);
                self.bytes -= old.bytes();
            }
            None => {
                self.places.insert(entry.unit, self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    /// Removes an entry that was not used since the hand came by, or is out of date. There is one at the latest after a round.
    fn evict(&mut self, ages: &[AtomicU32]) {
        loop {
            self.hand %= self.entries.len();
            let entry = &mut self.entries[self.hand];
            let is_current = ages[entry.unit.0 as usize].load(Ordering::Relaxed) == entry.age;
            if is_current && std::mem::take(&mut entry.is_used) {
                self.hand += 1;
                continue;
            }
            // The last entry, which is the newest, takes the place: the hand passes over it.
            let gone = self.entries.swap_remove(self.hand);
            self.bytes -= gone.bytes();
            self.places.remove(&gone.unit);
            if let Some(moved) = self.entries.get(self.hand) {
                self.places.insert(moved.unit, self.hand);
                self.hand += 1;
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(blocks: u32, value: u32) -> Sums {
        vec![value; blocks as usize].into()
    }

    fn bytes(of: &UnitSums) -> usize {
        of.shards.iter().map(|shard| shard.lock().bytes).sum()
    }

    fn check(of: &UnitSums) {
        for shard in of.shards.iter().map(Mutex::lock) {
            assert_eq!(shard.bytes, shard.entries.iter().map(Entry::bytes).sum::<usize>());
            assert_eq!(shard.places.len(), shard.entries.len());
            for (unit, place) in &shard.places {
                assert_eq!(shard.entries[*place].unit, *unit);
            }
            assert!(shard.bytes <= of.shard_bytes);
        }
    }

    #[test]
    fn unit_that_is_kept_is_found_until_its_zone_is_reset() {
        let kept = UnitSums::new(3, 1 << 20);
        kept.remember(1, 256, &sums(255, 7));
        kept.remember(2, 256, &sums(255, 8));
        assert_eq!(kept.find(1, 256), Some(sums(255, 7)));
        assert_eq!((kept.find(1, 0), kept.find(0, 256)), (None, None));
        kept.forget(1);
        assert_eq!((kept.find(1, 256), kept.find(2, 256)), (None, Some(sums(255, 8))));
        // The next unit at this place.
        kept.remember(1, 256, &sums(9, 1));
        assert_eq!(kept.find(1, 256), Some(sums(9, 1)));
        check(&kept);
    }

    #[test]
    fn more_units_than_fit_keep_to_the_bound() {
        let kept = UnitSums::new(1000, SHARDS * 4 * (ENTRY_BYTES + 4 * 255));
        for zone in 0..1000 {
            (0..3).for_each(|unit| kept.remember(zone, unit * 256, &sums(1 + (zone + unit) % 255, zone)));
        }
        check(&kept);
        let found = (0..1000).filter(|zone| kept.find(*zone, 256).is_some()).count();
        assert!((50..900).contains(&found), "{found}");
        assert!(bytes(&kept) > SHARDS * (ENTRY_BYTES + 4 * 255), "{} bytes", bytes(&kept));
    }

    /// One pass over many units does not push out what is used between.
    #[test]
    fn unit_that_is_used_between_outlives_a_scan() {
        let kept = UnitSums::new(20_000, SHARDS * 8 * (ENTRY_BYTES + 4));
        kept.remember(0, 0, &sums(1, 5));
        for zone in 1..20_000 {
            assert_eq!(kept.find(0, 0), Some(sums(1, 5)), "{zone}");
            kept.remember(zone, 0, &sums(1, zone));
        }
        check(&kept);
    }

    #[test]
    fn unit_of_a_reset_zone_leaves_before_one_in_use() {
        let kept = UnitSums::new(20_000, SHARDS * 8 * (ENTRY_BYTES + 4));
        (0..400).for_each(|zone| kept.remember(zone, 0, &sums(1, zone)));
        let there: Vec<u32> = (0..400).filter(|zone| kept.find(*zone, 0).is_some()).collect();
        let (old, used) = there.split_at(there.len() / 2);
        old.iter().for_each(|zone| kept.forget(*zone));
        (1000..1000 + used.len() as u32 / 4).for_each(|zone| kept.remember(zone, 0, &sums(1, zone)));
        let left = used.iter().filter(|zone| kept.find(**zone, 0).is_some()).count();
        assert!(left * 10 > used.len() * 9, "{left} of {}", used.len());
        check(&kept);
    }

    #[test]
    fn no_room_and_unknown_zones_keep_nothing() {
        let none = UnitSums::new(1, 0);
        none.remember(0, 0, &sums(1, 1));
        assert_eq!(none.find(0, 0), None);
        let kept = UnitSums::new(1, 1 << 20);
        kept.remember(1, 0, &sums(1, 1));
        kept.forget(1);
        assert_eq!((kept.find(1, 0), bytes(&kept)), (None, 0));
    }
}
