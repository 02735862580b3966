//! Changes of rows that no reader sees yet. They are published together.

use super::gauge::{Tally, bytes_of};
use crate::format::varint;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// A change of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// Its value, or that it is gone.
    pub(super) value: Option<Vec<u8>>,
    /// The row came with this layer: nothing below has it.
    pub(super) is_new: bool,
}

/// A key. Most lie in a map's own memory, where a search compares them.
pub(super) type Key = SmallVec<[u8; 24]>;

/// Changes by their keys.
pub(super) type Layer = BTreeMap<Key, Change>;

/// Adds a later change to `layer`, and returns the difference in its number of changes. A new row that is deleted leaves no change.
pub(super) fn add(layer: &mut Layer, key: Key, change: Change) -> isize {
    match layer.entry(key) {
        Entry::Occupied(before) if before.get().is_new && change.value.is_none() => {
            before.remove();
            -1
        }
        Entry::Occupied(mut before) => {
            before.get_mut().value = change.value;
            0
        }
        Entry::Vacant(place) => {
            place.insert(change);
            1
        }
    }
}

/// Adds later changes to `layer`.
pub(super) fn merge(layer: &mut Layer, changes: impl IntoIterator<Item = (Key, Change)>) {
    for (key, change) in changes {
        add(layer, key, change);
    }
}

/// Appends encoded changes. Each is the length of the key, the length of the value plus 1, or 0 for a deletion, the key, and the value.
pub(super) fn emit<'a>(changes: impl IntoIterator<Item = (&'a Key, &'a Change)>, bytes: &mut Vec<u8>) {
    for (key, Change { value, .. }) in changes {
        varint::put(bytes, key.len() as u64);
        varint::put(bytes, value.as_ref().map_or(0, |value| value.len() as u64 + 1));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
    }
}

/// Decodes [encoded](emit) changes; `None` if they are damaged.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<(Key, Change)>> {
    let (mut reader, mut changes) = (varint::Reader(bytes), Vec::new());
    while !reader.0.is_empty() {
        let (key, value): (usize, usize) = (reader.take_number()?, reader.take_number()?);
        let key = Key::from_slice(reader.take_slice(key).filter(|key| !key.is_empty())?);
        let value = match value.checked_sub(1) {
            Some(len) => Some(reader.take_slice(len)?.to_vec()),
            None => None,
        };
        changes.push((key, Change { value, is_new: false }));
    }
    Some(changes)
}

/// Changes of the keys from `from` on, below `end`.
pub(super) fn within<'a>(
    layer: &'a Layer,
    from: &[u8],
    end: &[u8],
) -> impl Iterator<Item = (&'a Key, &'a Change)> + use<'a> {
    layer.range::<[u8], _>((Bound::Included(from), Bound::Excluded(end)))
}

/// Changes of one thread.
#[derive(Default)]
pub(crate) struct Draft {
    pub(super) layer: Layer,
    pub(super) totals: Totals,
}

/// Sums of all changes since the rows were opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Totals {
    pub(super) tally: Tally,
    /// Files that were made, less those that were destroyed.
    pub(crate) files: i64,
    /// Number of times that this has changed.
    pub(crate) changes_of_files: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: Totals) {
        self.tally.add(other.tally);
        self.files += other.files;
        self.changes_of_files += other.changes_of_files;
    }
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.layer.is_empty()
    }

    /// Sets the value of `key`.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.set(key, value, false);
    }

    /// Like `put`, for a row that does not exist: if it is deleted before the next commit, no trace is left of it.
    pub(crate) fn put_new(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.set(key, value, true);
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>, is_new: bool) {
        self.totals.tally.put(bytes_of(&key, &value));
        match self.layer.entry(Key::from_slice(&key)) {
            // What was deleted here may be there below.
            Entry::Occupied(mut change) => change.get_mut().value = Some(value),
            Entry::Vacant(place) => _ = place.insert(Change { value: Some(value), is_new }),
        }
    }

    /// Deletes the row of `key`, if there is one.
    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.totals.tally.deleted(bytes_of(&key, &[]));
        match self.layer.entry(Key::from_slice(&key)) {
            // A row that came and went within a layer leaves nothing: each search for other rows would have to pass it.
            Entry::Occupied(change) if change.get().is_new => _ = change.remove(),
            Entry::Occupied(mut change) => change.get_mut().value = None,
            Entry::Vacant(place) => _ = place.insert(Change { value: None, is_new: false }),
        }
    }

    /// A file was made.
    pub(crate) fn file_made(&mut self) {
        self.totals.files += 1;
        self.totals.changes_of_files += 1;
    }

    /// A file was destroyed.
    pub(crate) fn file_destroyed(&mut self) {
        self.totals.files -= 1;
        self.totals.changes_of_files += 1;
    }
}
