//! Requests of one direction, by address and by arrival.

use super::parts::Parts;
use crate::units::{Nanos, Sector, Sectors, ZoneIndex};
use std::collections::BTreeMap;
use std::ops::Range;

/// Order of arrival, unique within a scheduler. Does not overflow in practice.
pub(super) type Arrival = u64;

/// Position in address order. Requests at the same address are in order of arrival.
pub(super) type Key = (u64, Arrival);

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub sectors: Sectors,
    pub zone: Option<ZoneIndex>,
    pub mergeable: bool,
    pub deadline: Nanos,
    pub parts: Parts<T>,
}

/// Rules for merging adjacent requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeRules {
    pub sectors_max: Sectors,
    pub front: bool,
}

#[derive(Debug)]
pub(super) struct Lane<T> {
    sorted: BTreeMap<Key, Entry<T>>,
    /// Address of each entry of `sorted` by arrival, oldest first.
    fifo: BTreeMap<Arrival, u64>,
    /// Address at which the search for the next batch starts.
    pub latest: u64,
}

impl<T> Lane<T> {
    pub const fn new() -> Lane<T> {
        Lane { sorted: BTreeMap::new(), fifo: BTreeMap::new(), latest: 0 }
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub fn get(&self, key: Key) -> &Entry<T> {
        &self.sorted[&key]
    }

    /// First entry at or behind `sector`.
    pub fn from(&self, sector: u64) -> Option<Key> {
        self.sorted.range((sector, 0)..).next().map(|(&key, _)| key)
    }

    /// Entries from `key` on, in ascending order of address.
    pub fn entries_from(&self, key: Key) -> impl Iterator<Item = (Key, &Entry<T>)> {
        self.sorted.range(key..).map(|(&key, entry)| (key, entry))
    }

    /// All entries, oldest first.
    pub fn by_age(&self) -> impl Iterator<Item = Key> {
        self.fifo.iter().map(|(&arrival, &sector)| (sector, arrival))
    }

    /// Deadline of the oldest entry.
    pub fn deadline(&self) -> Option<Nanos> {
        self.by_age().next().map(|key| self.get(key).deadline)
    }

    /// The entry before `key` in address order.
    pub fn before(&self, key: Key) -> Option<(Key, &Entry<T>)> {
        self.sorted.range(..key).next_back().map(|(&key, entry)| (key, entry))
    }

    pub fn remove(&mut self, key: Key) -> Entry<T> {
        self.fifo.remove(&key.1);
        self.sorted.remove(&key).expect("keys are those of entries")
    }

    pub fn insert(&mut self, key: Key, entry: Entry<T>) {
        self.fifo.insert(key.1, key.0);
        self.sorted.insert(key, entry);
    }

    /// Merges a new entry with the one that ends at its start, and the result with the one behind,
    /// or else with the entry that starts at its end. The merged entry has the age of the older
    /// one.
    ///
    /// Returns true if it was merged; otherwise it is inserted on its own.
    pub fn merge_or_insert(&mut self, key: Key, entry: Entry<T>, rules: MergeRules) -> bool {
        let before = self.before(key).filter(|(k, e)| touches(*k, e, key.0) && fits(e, &entry, rules));
        if let Some(before) = before.map(|(k, _)| k) {
            self.append(before, entry);
            self.close_gap(before, rules);
            return true;
        }
        let behind = self.from(key.0 + entry.sectors.0).filter(|k| k.0 == key.0 + entry.sectors.0);
        match behind {
            Some(behind) if rules.front && fits(&entry, self.get(behind), rules) => {
                let mut joined = self.remove(behind);
                joined.sectors += entry.sectors;
                joined.parts.push_front(entry.parts.into_iter().next().expect("it just came, alone"));
                self.insert((key.0, behind.1), joined);
                true
            }
            _ => {
                self.insert(key, entry);
                false
            }
        }
    }

    fn append(&mut self, key: Key, later: Entry<T>) {
        let entry = self.sorted.get_mut(&key).expect("keys are those of entries");
        entry.sectors += later.sectors;
        entry.parts.append(later.parts);
    }

    /// Merges the entry `key`, which has grown, with the one behind it if they are adjacent now.
    fn close_gap(&mut self, key: Key, rules: MergeRules) {
        let entry = self.get(key);
        let end = key.0 + entry.sectors.0;
        let Some(behind) = self.from(end).filter(|k| k.0 == end && fits(entry, self.get(*k), rules)) else {
            return;
        };
        let (mut joined, later) = (self.remove(key), self.remove(behind));
        if behind.1 < key.1 {
            joined.deadline = later.deadline;
        }
        joined.sectors += later.sectors;
        joined.parts.append(later.parts);
        self.insert((key.0, key.1.min(behind.1)), joined);
    }

    /// Removes all entries that start in `sectors`, in ascending order of address.
    pub fn remove_range(&mut self, sectors: Range<u64>) -> Vec<Entry<T>> {
        let within = self.sorted.range((sectors.start, 0)..(sectors.end, 0));
        let keys: Vec<Key> = within.map(|(&key, _)| key).collect();
        keys.into_iter().map(|key| self.remove(key)).collect()
    }

    /// Removes all entries whose first part matches, in ascending order of address.
    pub fn remove_if(&mut self, fits: impl Fn(&T) -> bool) -> Vec<Entry<T>> {
        let matching = self.sorted.iter().filter(|(_, entry)| fits(entry.parts.first()));
        let keys: Vec<Key> = matching.map(|(&key, _)| key).collect();
        keys.into_iter().map(|key| self.remove(key)).collect()
    }

    /// Compares both orders.
    pub fn check(&self) -> Result<(), String> {
        let sorted: BTreeMap<Arrival, u64> =
            self.sorted.keys().map(|&(sector, arrival)| (arrival, sector)).collect();
        if sorted != self.fifo {
            return Err(format!("by address {sorted:?}, by arrival {:?}", self.fifo));
        }
        Ok(())
    }
}

/// True if the entry ends at `sector`.
pub(super) fn touches<T>((start, _): Key, entry: &Entry<T>, sector: u64) -> bool {
    start + entry.sectors.0 == sector
}

/// True if two adjacent entries may be merged. Never across zones, which are written separately.
fn fits<T>(a: &Entry<T>, b: &Entry<T>, rules: MergeRules) -> bool {
    let short = a.sectors.0 + b.sectors.0 <= rules.sectors_max.0;
    a.mergeable && b.mergeable && a.zone == b.zone && short
}

pub(super) fn sector(key: Key) -> Sector {
    Sector(key.0)
}
