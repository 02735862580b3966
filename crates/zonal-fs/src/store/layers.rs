//! Layers of rows that all threads read: the database, a layer that a commit writes, and the layer of later changes.
//!
//! # No lock while the drive works
//! A lock guards the layers, which are in memory. A reader that does not find a key there takes the database's view along, leaves
//! the lock, and reads. The view is one commit, and stays that. What the reader finds was the row's value when it had the lock.
//!
//! A range is read in pieces. The reader reads some rows of the database without the lock, and then takes the lock to look at the
//! layers. If a commit has replaced the view meanwhile, the piece is read again.

use super::backend::Backend;
use super::draft::{Change, Draft, Key, Layer, Totals, within};
use super::extents::{Found, KeptExtents};
use super::gauge::bytes_of;
use super::locked::{InOrder, Rank};
use super::rows::{Row, StoreError};
use super::site::Site;
use super::tables::{Bounds, Tables};
use crate::format::{Extent, key};
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::btree_map::Entry;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::{Arc, PoisonError};

/// A layer without changes.
static NOTHING: Layer = Layer::new();

/// Rows of the first piece of a range; most ranges have no more.
const PIECE_MIN: usize = 8;

/// Rows of a later piece at most.
const PIECE_MAX: usize = 256;

/// Rows of the database that were read, or that it has none of that key. Those of a sealed layer leave it before the layer is dropped,
/// and none comes that a layer knows: it is right wherever a reader looks into it.
type RowCache = Cache<Vec<u8>, Option<Arc<[u8]>>, Bytes>;

/// Weighs rows by their bytes in memory.
#[derive(Clone)]
struct Bytes;

/// Bytes that the cache takes for a row beside its own.
const ROW_BYTES: u64 = 96;

impl Weighter<Vec<u8>, Option<Arc<[u8]>>> for Bytes {
    fn weight(&self, key: &Vec<u8>, value: &Option<Arc<[u8]>>) -> u64 {
        ROW_BYTES + (key.len() + value.as_ref().map_or(0, |value| value.len())) as u64
    }
}

/// See the module.
pub(super) struct Layers {
    pub(super) site: Site,
    /// Readers are many, on all processors.
    stack: ShardedLock<Stack>,
    cache: RowCache,
    extents: KeptExtents,
}

/// The layers, the newest last.
struct Stack {
    base: Arc<Tables>,
    sealed: Option<Arc<Layer>>,
    top: Layer,
    totals: Totals,
}

impl Layers {
    pub(super) fn of(site: Site) -> Result<Layers, StoreError> {
        let base = Arc::new(site.tables()?);
        let stack =
            ShardedLock::new(Stack { base, sealed: None, top: Layer::new(), totals: Totals::default() });
        let (bytes, extents) = (site.row_bytes(), KeptExtents::new(site.extent_bytes()));
        let cache = Cache::with_weighter((bytes / (2 * ROW_BYTES)) as usize, bytes, Bytes);
        Ok(Layers { site, stack, cache, extents })
    }

    // A thread that panics with the lock has changed nothing by halves: maps take whole rows.
    fn read(&self) -> InOrder<ShardedLockReadGuard<'_, Stack>> {
        InOrder::lock(Rank::Rows, || self.stack.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self) -> InOrder<ShardedLockWriteGuard<'_, Stack>> {
        InOrder::lock(Rank::Rows, || self.stack.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The database's rows, as of the last commit.
    fn base(&self) -> Arc<Tables> {
        let base = self.read().base.clone();
        self.sound(base)
    }

    /// A view that was taken; after an error of the database's file a newer one, of the database opened again.
    fn sound(&self, before: Arc<Tables>) -> Arc<Tables> {
        let Some(tables) = self.site.return_from_error() else { return before };
        let mut stack = self.write();
        // A commit may have given a newer view meanwhile.
        if Arc::ptr_eq(&stack.base, &before) {
            stack.base = Arc::new(tables);
        }
        stack.base.clone()
    }

    /// The value of `key`, under the changes of `draft`.
    pub(super) fn get(&self, draft: &Layer, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(change) = draft.get(key) {
            return Ok(change.value.clone());
        }
        let base = {
            let stack = self.read();
            if let Some(change) = stack.change(key) {
                return Ok(change.value.clone());
            }
            if let Some(row) = self.cache.get(key) {
                return Ok(row.map(|value| value.to_vec()));
            }
            stack.base.clone()
        };
        let base = self.sound(base);
        let value = base.get(key).map_err(|error| self.site.note(error))?;
        let stack = self.read();
        if Arc::ptr_eq(&stack.base, &base) && stack.change(key).is_none() {
            self.cache.insert(key.to_vec(), value.as_deref().map(Arc::from));
        }
        drop(stack);
        Ok(value)
    }

    /// Shows the rows from `from` on, below `end`, in order of their keys, until it is told to break.
    pub(super) fn scan(
        &self,
        draft: &Layer,
        from: &[u8],
        end: &[u8],
        mut show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut from = Bound::Included(from.to_vec());
        let mut rows = PIECE_MIN;
        loop {
            let after = match &from {
                Bound::Included(key) | Bound::Excluded(key) => key.as_slice(),
                Bound::Unbounded => &[],
            };
            if after >= end {
                return Ok(());
            }
            let (piece, next) =
                self.piece(draft, (from.as_ref().map(Vec::as_slice), Bound::Excluded(end)), rows)?;
            for (key, value) in &piece {
                if show(key, value).is_break() {
                    return Ok(());
                }
            }
            let Some(next) = next else { return Ok(()) };
            from = Bound::Excluded(next);
            rows = (rows * 4).min(PIECE_MAX);
        }
    }

    /// The first rows in `bounds`, about `most`, and the key after which there may be more.
    fn piece(
        &self,
        draft: &Layer,
        bounds: Bounds<'_>,
        most: usize,
    ) -> Result<(Vec<Row>, Option<Vec<u8>>), StoreError> {
        loop {
            let base = self.base();
            let mut below = Vec::new();
            for row in base.range(bounds).map_err(|error| self.site.note(error))?.take(most) {
                let (key, value) = row.map_err(|error| self.site.note(error.into()))?;
                below.push((Key::from_slice(key.value()), value.value().to_vec()));
            }
            // Up to here the database's rows are known.
            let known = (below.len() == most).then(|| below[most - 1].0.to_vec());
            let stack = self.read();
            if !Arc::ptr_eq(&stack.base, &base) {
                continue;
            }
            let bounds = (bounds.0, known.as_deref().map_or(bounds.1, Bound::Included));
            let mut below = below.into_iter().peekable();
            let mut layers = stack.over(draft).map(|layer| layer.range::<[u8], _>(bounds).peekable());
            let mut piece = Vec::with_capacity(most);
            loop {
                let of_layers = layers.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| *key)).min();
                let of_base = below.peek().map(|(key, _)| key);
                let Some(key) = [of_layers, of_base].into_iter().flatten().min().cloned() else {
                    return Ok((piece, known));
                };
                let mut change = None;
                for layer in &mut layers {
                    if let Some((_, of_layer)) = layer.next_if(|(k, _)| **k == key) {
                        change = change.or(Some(of_layer.value.clone()));
                    }
                }
                let row = below.next_if(|(k, _)| *k == key).map(|(_, value)| value);
                let Some(value) = change.unwrap_or(row) else { continue };
                piece.push((key.to_vec(), value));
                if piece.len() == most {
                    return Ok((piece, Some(key.to_vec())));
                }
            }
        }
    }

    /// The last row of those from `from` up to and with `to`.
    pub(super) fn last(&self, draft: &Layer, from: &[u8], to: &[u8]) -> Result<Option<Row>, StoreError> {
        if from > to {
            return Ok(None);
        }
        let mut to = Bound::Included(to.to_vec());
        loop {
            let bounds = (Bound::Included(from), to.as_ref().map(Vec::as_slice));
            let base = self.base();
            let mut below = base.range(bounds).map_err(|error| self.site.note(error))?.rev();
            let below = below.next().transpose().map_err(|error| self.site.note(error.into()))?;
            let base_key = below.as_ref().map(|(key, _)| key.value());
            let stack = self.read();
            if !Arc::ptr_eq(&stack.base, &base) {
                continue;
            }
            let mut layers = stack.over(draft).map(|layer| layer.range::<[u8], _>(bounds).rev().peekable());
            let hidden = loop {
                let of_layers = layers.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| *key)).max();
                // A layer hides the row of the database with the same key.
                let Some(key) = of_layers.filter(|key| base_key.is_none_or(|base| key.as_slice() >= base))
                else {
                    return Ok(below
                        .as_ref()
                        .map(|(key, value)| (key.value().to_vec(), value.value().to_vec())));
                };
                let mut change = None;
                for layer in &mut layers {
                    if let Some((_, of_layer)) = layer.next_if(|(k, _)| *k == key) {
                        change = change.or(Some(&of_layer.value));
                    }
                }
                if let Some(Some(value)) = change {
                    return Ok(Some((key.to_vec(), value.clone())));
                }
                if base_key == Some(key.as_slice()) {
                    break key.to_vec();
                }
            };
            drop(stack);
            if hidden.as_slice() <= from {
                return Ok(None);
            }
            to = Bound::Excluded(hidden);
        }
    }

    /// The extents of `blocks` of a file, under the changes of `draft`, if all are in memory.
    pub(super) fn kept_extents(&self, draft: &Layer, file: u64, blocks: &Range<u64>) -> Option<(Found, u64)> {
        let (found, version) = self.extents.find(file, blocks)?;
        let ((first, _), (last, extent)) = (found.first()?, found.last()?);
        // Extents do not overlap: a change of what was found is one of these keys.
        let (from, end) = (key::extent(file, *first), key::extent(file, last + u64::from(extent.blocks)));
        within(draft, &from, &end).next().is_none().then_some((found, version))
    }

    /// Changes of the top layer.
    pub(super) fn changes(&self) -> usize {
        self.read().top.len()
    }

    /// What all changes come to that have been published.
    pub(super) fn totals(&self) -> Totals {
        self.read().totals
    }

    /// Puts the changes of a draft into the top layer, for all readers at once.
    pub(super) fn publish(&self, draft: Draft) {
        let Draft { layer: draft, totals } = draft;
        let mut stack = self.write();
        self.extents.follow(&draft);
        for (key, change) in draft {
            stack.add(key, change);
        }
        stack.totals.add(totals);
    }

    /// Puts a new layer on top, and returns the one below with what all changes come to; `None` while another one is sealed. Rows that
    /// say something of all others are added last.
    pub(super) fn seal(&self, rows: impl FnOnce(Totals) -> Vec<Row>) -> Option<(Arc<Layer>, Totals)> {
        let mut stack = self.write();
        if stack.sealed.is_some() {
            return None;
        }
        for (key, value) in rows(stack.totals) {
            stack.totals.tally.put(bytes_of(&key, &value));
            stack.add(Key::from_vec(key), Change { value: Some(value), is_new: false });
        }
        let layer = Arc::new(std::mem::take(&mut stack.top));
        stack.sealed = Some(layer.clone());
        Some((layer, stack.totals))
    }

    /// Drops the sealed layer, which is in `base`.
    pub(super) fn settle(&self, base: Tables, layer: &Layer) {
        // Readers find these rows in the layer until it is dropped, and put none of them into the cache meanwhile.
        for key in layer.keys() {
            self.cache.remove(key.as_slice());
        }
        let before = {
            let mut stack = self.write();
            let base = std::mem::replace(&mut stack.base, Arc::new(base));
            (base, stack.sealed.take())
        };
        // Many rows: they are freed without the lock.
        drop(before);
    }

    /// Compacts the database, if there are no changes that are not committed. Whether it did.
    pub(super) fn compact(&self) -> Result<bool, StoreError> {
        let mut stack = self.write();
        if stack.sealed.is_some() || !stack.top.is_empty() {
            return Ok(false);
        }
        stack.base = Arc::default();
        let compacted = self.site.compact();
        stack.base = Arc::new(self.site.tables()?);
        compacted
    }
}

impl Stack {
    fn change(&self, key: &[u8]) -> Option<&Change> {
        self.top.get(key).or_else(|| self.sealed.as_ref()?.get(key))
    }

    /// Adds a change to the top layer. Of a row that came with it and goes nothing is left.
    fn add(&mut self, key: Key, change: Change) {
        match self.top.entry(key) {
            Entry::Occupied(before) if before.get().is_new && change.value.is_none() => _ = before.remove(),
            Entry::Occupied(mut before) => before.get_mut().value = change.value,
            Entry::Vacant(place) => {
                let is_below = self.sealed.as_ref().is_some_and(|sealed| sealed.contains_key(place.key()));
                place.insert(Change { is_new: change.is_new && !is_below, ..change });
            }
        }
    }

    /// All layers of changes, the newest first.
    fn over<'a>(&'a self, draft: &'a Layer) -> [&'a Layer; 3] {
        [draft, &self.top, self.sealed.as_deref().unwrap_or(&NOTHING)]
    }
}

/// Rows that can be read.
pub(crate) trait View {
    /// The value of `key`.
    ///
    /// # Errors
    /// The database's; so for all.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Shows the rows from `from` on, below `end`, in order of their keys, until it is told to break.
    fn scan(
        &self,
        from: &[u8],
        end: &[u8],
        show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// The last row of those from `from` up to and with `to`.
    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<Row>, StoreError>;

    /// The extents of `blocks` of a file, whole and in order, if all of them are in memory, with the
    /// [version](Reader::map_version) of the map.
    fn kept_extents(&self, file: u64, blocks: &Range<u64>) -> Option<(Found, u64)>;
}

/// Reads the rows that have been published, from any thread. Each call sees each change whole or not at all; a later piece of a
/// range may see later changes.
#[derive(Clone)]
pub(crate) struct Reader(pub(super) Arc<Layers>);

impl Reader {
    /// Where the rows are kept.
    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.0.site.backend()
    }

    /// Shows the changes of a draft to all readers. The caller has the right to change these rows until then.
    pub(crate) fn publish(&self, draft: Draft) {
        self.0.publish(draft);
    }

    /// What all changes come to that have been published.
    pub(crate) fn totals(&self) -> Totals {
        self.0.totals()
    }

    /// A number that rises before a change of a file's map is shown. A thread that has the file system's lock and finds it as it was
    /// knows that the extents that it read in between are those of now.
    pub(crate) fn map_version(&self, file: u64) -> u64 {
        self.0.extents.version(file)
    }

    /// Whether the extents of all `blocks` that a file has are in memory.
    pub(crate) fn has_all_extents(&self, file: u64, blocks: u64) -> bool {
        self.0.extents.has_all(file, blocks)
    }

    /// Keeps extents of a file in memory that were looked up after its map had this version.
    pub(crate) fn keep_extents(&self, file: u64, extents: impl Iterator<Item = (u64, Extent)>, version: u64) {
        self.0.extents.keep(file, extents, version);
    }
}

impl View for Reader {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(&NOTHING, key)
    }

    fn scan(
        &self,
        from: &[u8],
        end: &[u8],
        show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.0.scan(&NOTHING, from, end, show)
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<Row>, StoreError> {
        self.0.last(&NOTHING, from, to)
    }

    fn kept_extents(&self, file: u64, blocks: &Range<u64>) -> Option<(Found, u64)> {
        self.0.kept_extents(&NOTHING, file, blocks)
    }
}
