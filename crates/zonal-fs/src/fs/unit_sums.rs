//! Cache of unit headers: the owner and checksum of each block.
//!
//! A read that finds its unit here takes one command; other reads fetch the header, too. Four bytes
//! per block are a thousandth of the data.
//!
//! # Invariants
//! - Only verified headers are cached, in at most as many bytes as the mount options allow.
//! - A zone is reset only when no read has it pinned. [`UnitSums::forget`] is called before the
//!   reset begins, and [`UnitSums::remember`] while the zone is pinned. So valid entries belong to
//!   units presently in the zone.
//!
//! # Invalidation by age
//! Each zone has an age, which is incremented by a reset. Entries with an age other than their
//! zone's are invalid. So a reset costs one addition, whatever the number of entries, and invalid
//! entries are evicted first.
//!
//! # Eviction
//! Each shard is a clock: a hand passes over the entries, clears the mark of those used since its
//! last visit, and evicts the first unmarked one. New entries are unmarked, so a sequential read of
//! a file evicts mainly its own entries.

use crate::format::{Header, Record};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of shards with a lock each. Two random readers seldom collide.
const SHARDS: usize = 64;

/// Bytes of an entry in addition to the header: the key twice, slack of the table, reference
/// counts, allocator overhead.
const ENTRY_BYTES: usize = 128;

/// Unit, by its zone and first block there.
type Unit = (u32, u32);

/// Owners and checksums from a decoded header.
///
/// A single allocation holds the number of pieces, [`PIECE_WORDS`] words for each, and the checksum
/// of each block, so that a lookup touches few cache lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnitHeader(Arc<[u32]>);

/// Words of a piece: file and first block (low word first), and number of blocks.
const PIECE_WORDS: usize = 5;

impl UnitHeader {
    pub(super) fn new(header: &Header) -> UnitHeader {
        let mut words = vec![header.records.len() as u32];
        for Record { ino, block, blocks, .. } in &header.records {
            words.extend([*ino as u32, (ino >> 32) as u32, *block as u32, (block >> 32) as u32, *blocks]);
        }
        words.extend(&header.sums);
        UnitHeader(words.into())
    }

    fn parts(&self) -> (&[[u32; PIECE_WORDS]], &[u32]) {
        let (pieces, rest) = self.0.split_first().expect("it begins with their number");
        let (pieces, sums) = rest.split_at(*pieces as usize * PIECE_WORDS);
        (pieces.as_chunks().0, sums)
    }

    /// Checksums of the data blocks, in order.
    pub(super) fn sums(&self) -> &[u32] {
        self.parts().1
    }

    /// True if the unit holds `blocks` blocks of a file, starting with `block` of the file at data
    /// block `index` of the unit.
    pub(super) fn holds(&self, ino: u64, block: u64, index: u32, blocks: u32) -> bool {
        let (mut at, mut next, end) = (0, index, index + blocks);
        for [ino_low, ino_high, low, high, own] in self.parts().0 {
            let own_end = at + own;
            if next < own_end {
                let is_it = u64::from(*ino_high) << 32 | u64::from(*ino_low) == ino
                    && (u64::from(*high) << 32 | u64::from(*low)) + u64::from(next - at)
                        == block + u64::from(next - index);
                if !is_it || own_end >= end {
                    return is_it;
                }
                next = own_end;
            }
            at = own_end;
        }
        false
    }
}

#[derive(Debug)]
pub(super) struct UnitSums {
    shards: Vec<Mutex<Shard>>,
    /// Number of resets of each zone since the mount.
    ages: Vec<AtomicU32>,
    /// Maximum bytes of a shard.
    shard_bytes: usize,
}

#[derive(Debug, Default)]
struct Shard {
    /// Index of each unit's entry.
    places: FxHashMap<Unit, usize>,
    entries: Vec<CachedUnit>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct CachedUnit {
    unit: Unit,
    age: u32,
    is_used: bool,
    unit_header: UnitHeader,
}

impl CachedUnit {
    fn bytes(&self) -> usize {
        bytes_of(&self.unit_header)
    }
}

fn bytes_of(unit_header: &UnitHeader) -> usize {
    ENTRY_BYTES + size_of_val::<[u32]>(&unit_header.0)
}

impl UnitSums {
    /// Creates a cache of `bytes` for a drive with `zones` zones. If a shard has less space than
    /// one unit needs, nothing is cached.
    pub(super) fn new(zones: u32, bytes: usize) -> UnitSums {
        UnitSums {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            ages: (0..zones).map(|_| AtomicU32::new(0)).collect(),
            shard_bytes: bytes / SHARDS,
        }
    }

    /// Returns the entry of a unit in a pinned zone.
    pub(super) fn find(&self, zone: u32, unit: u32) -> Option<UnitHeader> {
        let age = self.age(zone)?;
        let mut shard = self.shard((zone, unit)).lock();
        let place = *shard.places.get(&(zone, unit))?;
        let entry = &mut shard.entries[place];
        if entry.age != age {
            return None;
        }
        entry.is_used = true;
        Some(entry.unit_header.clone())
    }

    /// Caches the verified header of a unit in a pinned zone.
    pub(super) fn remember(&self, zone: u32, unit: u32, unit_header: &UnitHeader) {
        let Some(age) = self.age(zone) else { return };
        if bytes_of(unit_header) > self.shard_bytes {
            return;
        }
        let entry = CachedUnit { unit: (zone, unit), age, is_used: false, unit_header: unit_header.clone() };
        let mut shard = self.shard(entry.unit).lock();
        shard.put(entry);
        while shard.bytes > self.shard_bytes {
            shard.evict(&self.ages);
        }
    }

    /// Invalidates the units of a zone that has no readers and is about to be reset.
    pub(super) fn forget(&self, zone: u32) {
        if let Some(age) = self.ages.get(zone as usize) {
            age.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Relaxed order suffices: a reset begins after the last pin is gone, and the next reader finds
    /// only newer data in the map.
    fn age(&self, zone: u32) -> Option<u32> {
        self.ages.get(zone as usize).map(|age| age.load(Ordering::Relaxed))
    }

    fn shard(&self, (zone, unit): Unit) -> &Mutex<Shard> {
        // Units of a zone are at equal distances; the upper bits of a product spread them.
        let mixed = (u64::from(zone) << 32 | u64::from(unit)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 32) as usize % SHARDS]
    }
}

impl Shard {
    fn put(&mut self, entry: CachedUnit) {
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

    /// Removes an entry that is invalid, or unused since the last visit of the hand. One is found
    /// within a round.
    fn evict(&mut self, ages: &[AtomicU32]) {
        loop {
            self.hand %= self.entries.len();
            let entry = &mut self.entries[self.hand];
            let is_current = ages[entry.unit.0 as usize].load(Ordering::Relaxed) == entry.age;
            if is_current && std::mem::take(&mut entry.is_used) {
                self.hand += 1;
                continue;
            }
            // The last entry, which is the newest, moves here, and the hand passes over it.
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

    fn header(pieces: &[(u64, u64, u32)], sums: Vec<u32>) -> Header {
        let record = |&(ino, block, blocks): &_| Record { ino, born: 0, block, blocks, size: 0, number: 0 };
        let records: Vec<_> = pieces.iter().map(record).collect();
        Header { uuid: [0; 16], sequence: 1, since: 0, zone: 0, begun: 1, records, sums, paths: Vec::new() }
    }

    fn sums(blocks: u32, value: u32) -> UnitHeader {
        UnitHeader::new(&header(&[(1, 0, blocks)], vec![value; blocks as usize]))
    }

    /// Tries every range of a unit of four pieces, two of which are contiguous in their file.
    #[test]
    fn unit_holds_the_pieces_of_its_header_and_nothing_else() {
        let pieces = [(7, 1 << 33, 2), (1 << 40, 5, 3), (1 << 40, 8, 2), (7, 0, 1)];
        let unit_header = UnitHeader::new(&header(&pieces, vec![9; 8]));
        assert_eq!(unit_header.sums(), [9; 8]);
        let owners: Vec<(u64, u64)> = pieces
            .iter()
            .flat_map(|&(ino, block, blocks)| (block..).take(blocks as usize).map(move |b| (ino, b)))
            .collect();
        for index in 0..8 {
            for blocks in 1..=8 - index as u32 {
                let (ino, block) = owners[index];
                let wanted = (block..).take(blocks as usize).map(|b| (ino, b));
                let expected = owners[index..].iter().copied().take(blocks as usize).eq(wanted);
                assert_eq!(unit_header.holds(ino, block, index as u32, blocks), expected, "{index}+{blocks}");
                assert!(!unit_header.holds(ino + 1, block, index as u32, blocks));
                assert!(!unit_header.holds(ino, block + 1, index as u32, blocks));
            }
        }
        assert!(!unit_header.holds(7, 0, 7, 2), "more blocks than the unit has");
    }

    fn bytes(of: &UnitSums) -> usize {
        of.shards.iter().map(|shard| shard.lock().bytes).sum()
    }

    fn check(of: &UnitSums) {
        for shard in of.shards.iter().map(Mutex::lock) {
            assert_eq!(shard.bytes, shard.entries.iter().map(CachedUnit::bytes).sum::<usize>());
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
        // Next unit at this place.
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

    /// A scan of many units does not evict an entry that is used meanwhile.
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
