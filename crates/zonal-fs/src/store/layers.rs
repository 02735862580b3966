//! Layers of rows that all threads read: tables, rows that are only in the log, a layer that a commit writes, and the layer of
//! later changes.
//!
//! # No lock while the drive works
//! A lock guards the layers, which are in memory. A reader that does not find a key there takes a view of the tables along, leaves
//! the lock, and reads. The view is one commit, and stays that. What the reader finds was the row's value when it had the lock.
//!
//! A range is read in pieces. The reader reads some rows of tables without the lock, and then takes the lock to look at the
//! layers. If a commit has replaced the view meanwhile, the piece is read again.
//!
//! # Parts
//! Threads that change different files do not wait for each other: the rows of a file are in one of some parts, each with layers and a
//! lock of its own. A change of several files is shown with the locks of all their parts, and a range that is of more than a file is
//! read with the locks of all parts, so that a call still sees a change whole. All parts have the same view of the tables.

use super::backend::Backend;
use super::backend::log;
use super::draft::{self, Change, Draft, Key, Layer, Totals, within};
use super::extents::{Found, KeptExtents};
use super::gauge::bytes_of;
use super::levels::Bounds;
use super::locked::{InOrder, Rank};
use super::rows::{Row, StoreError};
use super::tables::{Place, Tables, Writing, damaged};
use crate::format::{Extent, key};
use crate::spread;
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::{Mutex, MutexGuard};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use smallvec::SmallVec;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::{Arc, PoisonError};

/// A layer without changes.
static NOTHING: Layer = Layer::new();

/// Parts of the rows.
const PARTS: usize = 8;

/// Rows of the first piece of a range; most ranges have no more.
const PIECE_MIN: usize = 8;

/// Maximum number of changes of a commit to the log.
const CHANGES_LOGGED_MAX: usize = 2000;

/// Rows of a later piece at most.
const PIECE_MAX: usize = 256;

/// Rows of tables that were read, or that they have none of that key. Those of a sealed layer leave it before the layer is dropped,
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

/// Layers of rows, shared with readers.
pub(super) struct Layers {
    place: Arc<Place>,
    /// Readers are many, on all processors.
    parts: [CachePadded<ShardedLock<Part>>; PARTS],
    counts: Mutex<Counts>,
    cache: RowCache,
    extents: KeptExtents,
}

/// The layers of a part of the rows, the newest last.
struct Part {
    base: Arc<Tables>,
    /// Changes in the log that are in no table.
    logged: Layer,
    sealed: Option<Arc<Layer>>,
    top: Layer,
}

/// Sums of all published changes, counted with the lock of a part.
#[derive(Default)]
struct Counts {
    totals: Totals,
    /// In the top layers.
    changes: usize,
    /// In the layers of logged changes.
    logged: usize,
}

/// Sealed layers, one for each part of the rows.
pub(super) struct SealedLayers {
    pub(super) layers: Vec<Arc<Layer>>,
    /// Number of the last batch of rows that they include, for a commit of tables; `None` for a commit to the log.
    pub(super) covers: Option<u64>,
    pub(super) totals: Totals,
}

type ReadPart<'a> = ShardedLockReadGuard<'a, Part>;
type WritePart<'a> = ShardedLockWriteGuard<'a, Part>;

/// The part that has the row of `key`.
fn part_of(key: &[u8]) -> usize {
    spread(key::group(key), PARTS)
}

/// The parts that have the rows from `from` up to `end`.
fn parts_of(from: &[u8], end: &[u8]) -> Range<usize> {
    match key::is_one_group(from, end) {
        true => part_of(from)..part_of(from) + 1,
        false => 0..PARTS,
    }
}

/// Drops a view and returns its number. A reader does that before it waits for a lock, because commits wait for views.
fn let_go(view: Arc<Tables>) -> u64 {
    view.number
}

impl Layers {
    pub(super) fn of(tables: Tables) -> Result<Layers, StoreError> {
        let (place, base) = (tables.place().clone(), Arc::new(tables));
        let (mut logged, mut counts): ([Layer; PARTS], _) = (Default::default(), Counts::default());
        logged_rows(&base, |key, change| {
            counts.totals.tally.put(bytes_of(&key, change.value.as_deref().unwrap_or_default()));
            draft::merge(&mut logged[part_of(&key)], [(key, change)]);
        })?;
        counts.logged = logged.iter().map(Layer::len).sum();
        let part = |logged| Part { base: base.clone(), logged, sealed: None, top: Layer::new() };
        let parts = logged.map(|logged| CachePadded::new(ShardedLock::new(part(logged))));
        let (bytes, extents) = (place.row_bytes(), KeptExtents::new(place.extent_bytes()));
        let cache = Cache::with_weighter((bytes / (2 * ROW_BYTES)) as usize, bytes, Bytes);
        Ok(Layers { place, parts, counts: Mutex::new(counts), cache, extents })
    }

    // A thread that panics with a lock has changed nothing by halves: maps take whole rows.
    fn read(&self, part: usize) -> InOrder<ReadPart<'_>> {
        InOrder::lock(Rank::Rows, || self.parts[part].read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read_parts(&self, parts: Range<usize>) -> InOrder<SmallVec<[ReadPart<'_>; 1]>> {
        let locks = self.parts[parts].iter();
        InOrder::lock(Rank::Rows, || {
            locks.map(|part| part.read().unwrap_or_else(PoisonError::into_inner)).collect()
        })
    }

    fn write_all(&self) -> InOrder<Vec<WritePart<'_>>> {
        let locks = self.parts.iter();
        InOrder::lock(Rank::Rows, || {
            locks.map(|part| part.write().unwrap_or_else(PoisonError::into_inner)).collect()
        })
    }

    fn counts(&self) -> InOrder<MutexGuard<'_, Counts>> {
        InOrder::lock(Rank::Counts, || self.counts.lock())
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The tables, as of the last commit.
    pub(super) fn tables(&self) -> Arc<Tables> {
        self.base(0)
    }

    fn base(&self, part: usize) -> Arc<Tables> {
        self.read(part).base.clone()
    }

    /// The value of `key`, under the changes of `draft`.
    pub(super) fn get(&self, draft: &Layer, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(change) = draft.get(key) {
            return Ok(change.value.clone());
        }
        let part = part_of(key);
        let base = {
            let part = self.read(part);
            if let Some(change) = part.change(key) {
                return Ok(change.value.clone());
            }
            if let Some(row) = self.cache.get(key) {
                return Ok(row.map(|value| value.to_vec()));
            }
            part.base.clone()
        };
        let value = base.get(key)?;
        let number = let_go(base);
        let part = self.read(part);
        if part.base.number == number && part.change(key).is_none() {
            self.cache.insert(key.to_vec(), value.as_deref().map(Arc::from));
        }
        drop(part);
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
        let parts = parts_of(from, end);
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
            let bounds = (from.as_ref().map(Vec::as_slice), Bound::Excluded(end));
            let (piece, next) = self.piece(&parts, draft, bounds, rows)?;
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

    /// The first rows in `bounds`, which are in `parts`, about `most`, and the key after which there may be more.
    fn piece(
        &self,
        parts: &Range<usize>,
        draft: &Layer,
        bounds: Bounds<'_>,
        most: usize,
    ) -> Result<(Vec<Row>, Option<Vec<u8>>), StoreError> {
        loop {
            let base = self.base(parts.start);
            let mut below = Vec::new();
            for row in base.range(bounds).take(most) {
                below.push(row?);
            }
            // Up to here the rows of tables are known.
            let known = (below.len() == most).then(|| below[most - 1].0.to_vec());
            let number = let_go(base);
            let parts = self.read_parts(parts.clone());
            if parts[0].base.number != number {
                continue;
            }
            let bounds = (bounds.0, known.as_deref().map_or(bounds.1, Bound::Included));
            let mut below = below.into_iter().peekable();
            let mut layers: SmallVec<[_; 4]> =
                over(draft, &parts).map(|layer| layer.range::<[u8], _>(bounds).peekable()).collect();
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
        let parts = parts_of(from, to);
        let (mut to, mut has_floor) = (Bound::Included(to.to_vec()), true);
        loop {
            let bounds = (Bound::Included(from), to.as_ref().map(Vec::as_slice));
            // The tables may have many deletions below a row of the layers, and need not be searched there.
            let floor =
                if has_floor { last_of(draft, &self.read_parts(parts.clone()), bounds) } else { None };
            let base = self.base(parts.start);
            let row = base.last((floor.as_deref().map_or(bounds.0, Bound::Excluded), bounds.1))?;
            let row = row.map(|(key, value)| (key.to_vec(), value));
            let number = let_go(base);
            let base_key = row.as_ref().map(|(key, _)| key.as_slice());
            let parts = self.read_parts(parts.clone());
            if parts[0].base.number != number {
                continue;
            }
            let mut layers = descending(draft, &parts, bounds);
            let found = loop {
                // A layer hides the row of a table with the same key.
                let is_above = |key: &Key| base_key.is_none_or(|base| key.as_slice() >= base);
                match newest(&mut layers, is_above) {
                    None => break Last::Row(row),
                    Some((key, Some(value))) => break Last::Row(Some((key.to_vec(), value.clone()))),
                    Some((key, None)) if base_key == Some(key.as_slice()) => {
                        break Last::Hidden(key.to_vec());
                    }
                    Some((_, None)) => {}
                }
            };
            drop(layers);
            drop(parts);
            match found {
                // The row of the layers has gone since.
                Last::Row(row)
                    if floor.is_some_and(|floor| row.as_ref().is_none_or(|(key, _)| key[..] < *floor)) =>
                {
                    has_floor = false;
                }
                Last::Row(row) => return Ok(row),
                Last::Hidden(key) if key.as_slice() <= from => return Ok(None),
                Last::Hidden(key) => to = Bound::Excluded(key),
            }
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

    /// Changes of the top layers.
    pub(super) fn changes(&self) -> usize {
        self.counts().changes
    }

    /// Number of changes of a commit of tables now.
    pub(super) fn changes_for_tables(&self) -> usize {
        let counts = self.counts();
        counts.changes + counts.logged
    }

    /// Sums of all published changes.
    pub(super) fn totals(&self) -> Totals {
        self.counts().totals
    }

    /// Puts the changes of a draft into the top layers, for all readers at once.
    pub(super) fn publish(&self, draft: Draft) {
        let Draft { layer: draft, totals } = draft;
        let mut is_changed = [false; PARTS];
        draft.keys().for_each(|key| is_changed[part_of(key)] = true);
        let changed = self.parts.iter().enumerate().filter(|(number, _)| is_changed[*number]);
        let mut parts: InOrder<SmallVec<[_; 4]>> = InOrder::lock(Rank::Rows, || {
            changed
                .map(|(number, part)| (number, part.write().unwrap_or_else(PoisonError::into_inner)))
                .collect()
        });
        self.extents.follow(&draft);
        let mut more = 0;
        for (key, change) in draft {
            let number = part_of(&key);
            let (_, part) = parts.iter_mut().find(|part| part.0 == number).expect("it was locked");
            more += part.add(key, change);
        }
        let mut counts = self.counts();
        counts.totals.add(totals);
        counts.changes = counts.changes.strict_add_signed(more);
    }

    /// Puts new layers on top, and returns those below; `None` while others are sealed. `rows` returns rows that summarize the others; they
    /// are added last. The layers are for the log if they have few changes, at most `logged_max` with those already in the log. Otherwise
    /// they are for tables, and include the logged changes.
    pub(super) fn seal(
        &self,
        rows: impl FnOnce(Totals) -> Vec<Row>,
        logged_max: usize,
    ) -> Option<SealedLayers> {
        let mut parts = self.write_all();
        if parts[0].sealed.is_some() {
            return None;
        }
        let mut counts = self.counts();
        for (key, value) in rows(counts.totals) {
            counts.totals.tally.put(bytes_of(&key, &value));
            parts[part_of(&key)].add(Key::from_vec(key), Change { value: Some(value), is_new: false });
        }
        let is_few = counts.changes <= CHANGES_LOGGED_MAX && counts.changes + counts.logged <= logged_max;
        let room = self.place.backend().row_room() as u64;
        let is_for_log = room > 0 && logged_max > 0 && is_few && {
            let changes = parts.iter().flat_map(|part| &part.top);
            let bytes: u64 =
                changes.map(|(key, change)| bytes_of(key, change.value.as_deref().unwrap_or_default())).sum();
            bytes <= room
        };
        if is_for_log {
            // The next commit of tables includes them.
            counts.logged += counts.changes;
        }
        counts.changes = 0;
        let seal = |part: &mut WritePart<'_>| {
            let mut layer = std::mem::take(&mut part.top);
            if !is_for_log && !part.logged.is_empty() {
                let top = std::mem::replace(&mut layer, std::mem::take(&mut part.logged));
                draft::merge(&mut layer, top);
            }
            let layer = Arc::new(layer);
            part.sealed = Some(layer.clone());
            layer
        };
        let layers = parts.iter_mut().map(seal).collect();
        let covers = (!is_for_log).then(|| {
            counts.logged = 0;
            self.place.backend().last_rows()
        });
        Some(SealedLayers { layers, covers, totals: counts.totals })
    }

    /// Merges the sealed layers, which are in the log, into the layers of logged changes.
    pub(super) fn settle_logged(&self, layers: &[Arc<Layer>]) {
        let mut parts = self.write_all();
        let mut logged = 0;
        for (part, layer) in parts.iter_mut().zip(layers) {
            let changes = layer.iter().map(|(key, change)| (key.clone(), change.clone()));
            draft::merge(&mut part.logged, changes);
            part.sealed = None;
            logged += part.logged.len();
        }
        self.counts().logged = logged;
    }

    /// Drops the sealed layers, which are in `base`.
    pub(super) fn settle(&self, base: Tables, layers: &[Arc<Layer>]) {
        // Readers find these rows in the layers until they are dropped, and put none of them into the cache meanwhile.
        for key in layers.iter().flat_map(|layer| layer.keys()) {
            self.cache.remove(key.as_slice());
        }
        self.show(base, |part| part.sealed = None);
    }

    /// Shows `base` to all readers, and calls `change` for each part.
    fn show(&self, base: Tables, change: impl Fn(&mut Part)) {
        let base = Arc::new(base);
        let show = |part: &mut WritePart<'_>| {
            let before = (part.base.clone(), part.sealed.clone());
            change(part);
            part.base = base.clone();
            before
        };
        let before: Vec<_> = self.write_all().iter_mut().map(show).collect();
        // Many rows: they are freed without the locks.
        drop(before);
    }

    /// Merges all tables, as far as there is room. Returns false if a thread reads earlier tables, which keep their room.
    pub(super) fn squeeze(&self, writing: &Writing<'_>) -> Result<bool, StoreError> {
        loop {
            let before = self.tables();
            match self.place.squeeze(writing, &before)? {
                Some(tables) => self.show(tables, |_| ()),
                None => return Ok(!self.place.has_others(&before)),
            }
        }
    }
}

/// Passes the changes of logged rows that are in none of `tables` to `show`, in order of time. The log drops the others.
///
/// # Errors
/// If one of them is damaged.
pub(super) fn logged_rows(tables: &Tables, mut show: impl FnMut(Key, Change)) -> Result<(), StoreError> {
    let backend = tables.place().backend();
    for rows in log::after(backend.rows(), tables.covered)? {
        let changes = draft::parse(&rows).ok_or(damaged("the rows in its log are damaged"))?;
        changes.into_iter().for_each(|(key, change)| show(key, change));
    }
    Ok(())
}

impl Part {
    fn change(&self, key: &[u8]) -> Option<&Change> {
        let sealed = || self.sealed.as_ref()?.get(key);
        self.top.get(key).or_else(sealed).or_else(|| self.logged.get(key))
    }

    /// Adds a change to the top layer, and returns the difference in its number of changes.
    fn add(&mut self, key: Key, change: Change) -> isize {
        let is_sealed = || self.sealed.as_ref().is_some_and(|sealed| sealed.contains_key(&key));
        let is_new = change.is_new && !is_sealed() && !self.logged.contains_key(&key);
        draft::add(&mut self.top, key, Change { is_new, ..change })
    }
}

/// All layers of changes: of two that have a key the newer comes first.
fn over<'a>(draft: &'a Layer, parts: &'a [ReadPart<'_>]) -> impl Iterator<Item = &'a Layer> {
    let of_parts =
        parts.iter().flat_map(|part| [&part.top, part.sealed.as_deref().unwrap_or(&NOTHING), &part.logged]);
    std::iter::once(draft).chain(of_parts)
}

/// Result of a search for the last row.
enum Last {
    Row(Option<Row>),
    /// The row of the tables with this key is deleted.
    Hidden(Vec<u8>),
}

type Descending<'a> =
    std::iter::Peekable<std::iter::Rev<std::collections::btree_map::Range<'a, Key, Change>>>;

/// Changes of all layers in `bounds`, the last first.
fn descending<'a>(
    draft: &'a Layer,
    parts: &'a [ReadPart<'_>],
    bounds: Bounds<'_>,
) -> SmallVec<[Descending<'a>; 4]> {
    over(draft, parts).map(|layer| layer.range::<[u8], _>(bounds).rev().peekable()).collect()
}

/// The next change of `layers`, of those with the same key the newest, if `is_wanted` says so.
fn newest<'a>(
    layers: &mut [Descending<'a>],
    is_wanted: impl Fn(&Key) -> bool,
) -> Option<(&'a Key, Option<&'a Vec<u8>>)> {
    let key = layers.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| *key)).max()?;
    if !is_wanted(key) {
        return None;
    }
    let mut change = None;
    for layer in layers {
        if let Some((_, of_layer)) = layer.next_if(|(k, _)| *k == key) {
            change = change.or(Some(of_layer.value.as_ref()));
        }
    }
    Some((key, change.flatten()))
}

/// Key of the last row of the layers in `bounds`.
fn last_of(draft: &Layer, parts: &[ReadPart<'_>], bounds: Bounds<'_>) -> Option<Vec<u8>> {
    let mut layers = descending(draft, parts, bounds);
    loop {
        let (key, value) = newest(&mut layers, |_| true)?;
        if value.is_some() {
            return Some(key.to_vec());
        }
    }
}

/// Rows that can be read.
pub(crate) trait View {
    /// The value of `key`.
    ///
    /// # Errors
    /// The store's; so for all.
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
    /// Storage of the rows.
    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.0.place.backend()
    }

    /// Shows the changes of a draft to all readers. The caller has the right to change these rows until then.
    pub(crate) fn publish(&self, draft: Draft) {
        self.0.publish(draft);
    }

    /// Sums of all published changes.
    pub(crate) fn totals(&self) -> Totals {
        self.0.totals()
    }

    /// A number that rises before a change of a file's map is shown. A thread that has the file system's lock and finds it as it was
    /// knows that the extents that it read in between are those of now.
    pub(crate) fn map_version(&self, file: u64) -> u64 {
        self.0.extents.version(file)
    }

    /// True if the extents of all `blocks` that a file has are in memory.
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
