//! Requests of one direction, by address and by arrival.

use super::parts::Parts;
use crate::units::{Nanos, Sector, Sectors, ZoneIndex};
use slab::Slab;
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

impl<T> Entry<T> {
    /// Adds the adjacent entry behind this one. The deadline stays.
    fn append(&mut self, later: Entry<T>) {
        self.sectors += later.sectors;
        self.parts.append(later.parts);
    }

    /// Adds the adjacent entry before this one. The deadline stays.
    fn prepend(&mut self, mut earlier: Entry<T>) {
        self.sectors += earlier.sectors;
        std::mem::swap(&mut self.parts, &mut earlier.parts);
        self.parts.append(earlier.parts);
    }
}

/// Rules for merging adjacent requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeRules {
    pub sectors_max: Sectors,
    pub front: bool,
}

/// Index of an entry in [`Lane::nodes`].
type Slot = usize;

/// An entry in the list by age.
#[derive(Debug)]
struct Node<T> {
    key: Key,
    older: Option<Slot>,
    newer: Option<Slot>,
    entry: Entry<T>,
}

#[derive(Debug)]
pub(super) struct Lane<T> {
    nodes: Slab<Node<T>>,
    sorted: BTreeMap<Key, Slot>,
    oldest: Option<Slot>,
    newest: Option<Slot>,
    /// Address at which the search for the next batch starts.
    pub latest: u64,
}

impl<T> Lane<T> {
    pub const fn new() -> Lane<T> {
        Lane { nodes: Slab::new(), sorted: BTreeMap::new(), oldest: None, newest: None, latest: 0 }
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub fn get(&self, key: Key) -> &Entry<T> {
        &self.nodes[self.sorted[&key]].entry
    }

    /// First entry at or behind `sector`.
    pub fn from(&self, sector: u64) -> Option<Key> {
        self.sorted.range((sector, 0)..).next().map(|(&key, _)| key)
    }

    /// Entries from `key` on, in ascending order of address.
    pub fn entries_from(&self, key: Key) -> impl Iterator<Item = (Key, &Entry<T>)> {
        self.sorted.range(key..).map(|(&key, &slot)| (key, &self.nodes[slot].entry))
    }

    /// All entries, oldest first.
    pub fn by_age(&self) -> impl Iterator<Item = Key> {
        self.nodes_by_age().map(|node| node.key)
    }

    fn nodes_by_age(&self) -> impl Iterator<Item = &Node<T>> {
        let node = |slot: Option<Slot>| slot.map(|slot| &self.nodes[slot]);
        std::iter::successors(node(self.oldest), move |last| node(last.newer))
    }

    /// Deadline of the oldest entry.
    pub fn deadline(&self) -> Option<Nanos> {
        self.nodes_by_age().next().map(|node| node.entry.deadline)
    }

    /// The entry before `key` in address order.
    pub fn before(&self, key: Key) -> Option<(Key, &Entry<T>)> {
        self.sorted.range(..key).next_back().map(|(&key, &slot)| (key, &self.nodes[slot].entry))
    }

    pub fn remove(&mut self, key: Key) -> Entry<T> {
        let slot = self.sorted.remove(&key).expect("keys are those of entries");
        let Node { older, newer, entry, .. } = self.nodes.remove(slot);
        match older {
            Some(older) => self.nodes[older].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.nodes[newer].older = older,
            None => self.newest = older,
        }
        entry
    }

    /// Inserts an entry as the newest.
    pub fn insert(&mut self, key: Key, entry: Entry<T>) {
        let older = self.newest;
        let slot = self.nodes.insert(Node { key, older, newer: None, entry });
        match older {
            Some(older) => self.nodes[older].newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        self.newest = Some(slot);
        self.sorted.insert(key, slot);
    }

    /// Moves an entry to another address. It keeps its age.
    fn move_to(&mut self, key: Key, sector: u64) {
        let slot = self.sorted.remove(&key).expect("keys are those of entries");
        let key = (sector, key.1);
        self.nodes[slot].key = key;
        self.sorted.insert(key, slot);
    }

    fn get_mut(&mut self, key: Key) -> &mut Entry<T> {
        &mut self.nodes[self.sorted[&key]].entry
    }

    /// Merges a new entry with the one that ends at its start, and the result with the one behind,
    /// or else with the entry that starts at its end. The merged entry has the age of the older
    /// one.
    ///
    /// Returns true if it was merged; otherwise it is inserted on its own.
    pub fn merge_or_insert(&mut self, key: Key, entry: Entry<T>, rules: MergeRules) -> bool {
        if !entry.mergeable {
            self.insert(key, entry);
            return false;
        }
        let before = self.before(key).filter(|(k, e)| touches(*k, e, key.0) && fits(e, &entry, rules));
        if let Some(before) = before.map(|(k, _)| k) {
            self.get_mut(before).append(entry);
            self.close_gap(before, rules);
            return true;
        }
        let behind = self.from(key.0 + entry.sectors.0).filter(|k| k.0 == key.0 + entry.sectors.0);
        match behind {
            Some(behind) if rules.front && fits(&entry, self.get(behind), rules) => {
                self.get_mut(behind).prepend(entry);
                self.move_to(behind, key.0);
                true
            }
            _ => {
                self.insert(key, entry);
                false
            }
        }
    }

    /// Merges the entry `key`, which has grown, with the one behind it if they are adjacent now.
    fn close_gap(&mut self, key: Key, rules: MergeRules) {
        let entry = self.get(key);
        let end = key.0 + entry.sectors.0;
        let Some(behind) = self.from(end).filter(|k| k.0 == end && fits(entry, self.get(*k), rules)) else {
            return;
        };
        if behind.1 < key.1 {
            let earlier = self.remove(key);
            self.get_mut(behind).prepend(earlier);
            self.move_to(behind, key.0);
        } else {
            let later = self.remove(behind);
            self.get_mut(key).append(later);
        }
    }

    /// Removes all entries that start in `sectors`, in ascending order of address.
    pub fn remove_range(&mut self, sectors: Range<u64>) -> Vec<Entry<T>> {
        let within = self.sorted.range((sectors.start, 0)..(sectors.end, 0));
        let keys: Vec<Key> = within.map(|(&key, _)| key).collect();
        keys.into_iter().map(|key| self.remove(key)).collect()
    }

    /// Removes all entries whose first part matches, in ascending order of address.
    pub fn remove_if(&mut self, fits: impl Fn(&T) -> bool) -> Vec<Entry<T>> {
        let matching = self.sorted.iter().filter(|&(_, &slot)| fits(self.nodes[slot].entry.parts.first()));
        let keys: Vec<Key> = matching.map(|(&key, _)| key).collect();
        keys.into_iter().map(|key| self.remove(key)).collect()
    }

    /// Compares both orders.
    pub fn check(&self) -> Result<(), String> {
        let ages: Vec<Key> = self.by_age().collect();
        let mut sorted: Vec<Key> = self.sorted.keys().copied().collect();
        sorted.sort_unstable_by_key(|key| key.1);
        if ages != sorted || self.nodes.len() != sorted.len() {
            return Err(format!("by address {sorted:?}, by arrival {ages:?}, {} nodes", self.nodes.len()));
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
