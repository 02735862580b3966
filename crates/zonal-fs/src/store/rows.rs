//! Rows, as the thread that changes them has them.

use super::backend::log::Log;
use super::backend::{Backend, BackendError};
use super::draft::{Draft, Totals, emit};
use super::extents::Found;
use super::gauge::{Committed, Gauge, Tally};
use super::layers::{Layers, Reader, SealedLayers, View};
use super::tables::Tables;
use crate::format::UnitPlace;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Why rows cannot be read or made durable.
#[derive(thiserror::Error, Debug)]
pub enum StoreError {
    /// The place of the rows failed.
    #[error("metadata: {0}")]
    Backend(BackendError),
    /// The place of the rows failed in another way.
    #[error("metadata: {0}")]
    Io(io::Error),
    /// The stored bytes are not valid tables of rows.
    #[error("metadata: {0}")]
    Damaged(&'static str),
}

impl StoreError {
    /// The error of the place of the rows that caused it, if one did.
    pub(crate) fn backend(&self) -> Option<&BackendError> {
        match self {
            StoreError::Backend(error) => Some(error),
            StoreError::Io(_) | StoreError::Damaged(_) => None,
        }
    }

    /// True if there is no room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, StoreError::Backend(BackendError::Full { .. }))
    }

    /// True if rows are lost, as far as the drive can tell. Other errors may pass.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            StoreError::Backend(error) => error.is_lost(),
            StoreError::Damaged(_) => true,
            StoreError::Io(_) => false,
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        error.downcast().map_or_else(StoreError::Io, StoreError::Backend)
    }
}

impl From<BackendError> for StoreError {
    fn from(error: BackendError) -> StoreError {
        StoreError::Backend(error)
    }
}

/// The rows, read through all layers, and changed. Not shared: the thread that holds the file system's lock has the rows. Changes are
/// a draft until they are published: a reader sees all of them at once.
pub struct Rows {
    layers: Arc<Layers>,
    draft: Draft,
    /// Number of the top layer, counted from 1 since it was opened.
    number: u64,
    gauge: Gauge,
    /// The next commit merges all tables.
    squeezes: bool,
}

/// A layer that a commit writes to tables or to the log.
pub struct Sealed {
    layers: Arc<Layers>,
    sealed: SealedLayers,
    /// Its number.
    pub number: u64,
    /// True if all tables are to be merged.
    squeezes: bool,
}

impl Rows {
    /// Opens the rows in `backend`; there are none if it is empty. Writes nothing.
    ///
    /// # Errors
    /// The backend's, or that what it holds are no rows.
    pub fn open(backend: impl Backend, cache_bytes: usize) -> Result<Rows, StoreError> {
        Rows::open_shared(Arc::new(backend), cache_bytes)
    }

    /// Like [`Rows::open`], for a backend that the caller uses as well.
    ///
    /// # Errors
    /// As [`Rows::open`].
    pub fn open_shared(backend: Arc<dyn Backend>, cache_bytes: usize) -> Result<Rows, StoreError> {
        Rows::of(Tables::open(backend, cache_bytes)?)
    }

    /// Returns empty rows whose first commit replaces those in `backend`. Until then nothing is removed.
    ///
    /// # Errors
    /// The backend's.
    pub(crate) fn replacing(backend: Arc<dyn Backend>, cache_bytes: usize) -> Result<Rows, StoreError> {
        Rows::of(Tables::replacing(backend, cache_bytes)?)
    }

    fn of(tables: Tables) -> Result<Rows, StoreError> {
        let gauge = Gauge::new(tables.place().backend().room());
        let layers = Arc::new(Layers::of(tables)?);
        Ok(Rows { layers, draft: Draft::default(), number: 1, gauge, squeezes: false })
    }

    /// Opens the rows in `backend`, and verifies every page of them.
    ///
    /// # Errors
    /// The backend's, or that what it holds are no rows, or damaged ones.
    pub fn verified(backend: impl Backend, cache_bytes: usize) -> Result<Rows, StoreError> {
        let tables = Tables::open(Arc::new(backend), cache_bytes)?;
        tables.verify()?;
        Rows::of(tables)
    }

    /// Storage of the rows.
    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.layers.place().backend()
    }

    /// Reads what is published, from any thread.
    pub(crate) fn reader(&self) -> Reader {
        Reader(self.layers.clone())
    }

    /// True if most rows in tables were deleted, so that the place can give room back after a
    /// [merge](Rows::compactor).
    pub(crate) fn is_sparse(&self) -> bool {
        self.gauge().is_sparse()
    }

    /// True if the same will hold after a commit of tables.
    pub(crate) fn will_be_sparse(&self) -> bool {
        self.gauge().will_be_sparse()
    }

    /// Merges all tables, also without the lock that guards these rows. It takes the time of writing all rows that are left.
    ///
    /// # Errors
    /// As [`Compactor::run`].
    pub(crate) fn compactor(&self) -> Compactor {
        Compactor(self.layers.clone())
    }

    /// Notes that all tables were merged and room was given back, or that this was tried.
    pub(crate) fn compacted(&mut self) {
        self.gauge.compacted();
        self.look_at_room();
    }

    /// Closes the rows, and returns their place.
    pub(crate) fn close(self) -> Arc<dyn Backend> {
        let Rows { layers, .. } = self;
        let backend = layers.place().backend().clone();
        drop(layers);
        backend
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// The store's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.layers.get(&self.draft.layer, key)
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.draft.put(key, value);
    }

    /// Like `put`, for a row that does not exist: if it is deleted before the next commit, no trace is left of it.
    pub fn put_new(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.draft.put_new(key, value);
    }

    /// Deletes the row of `key`, if there is one.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.draft.delete(key);
    }

    /// The changes that are not published yet.
    pub(crate) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// Shows the rows from `from` on, below `end`, in order of their keys, until it is told to break.
    ///
    /// # Errors
    /// The store's.
    pub fn scan(
        &self,
        from: &[u8],
        end: &[u8],
        show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.layers.scan(&self.draft.layer, from, end, show)
    }

    /// The last row of those from `from` up to and with `to`.
    ///
    /// # Errors
    /// The store's.
    pub fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<Row>, StoreError> {
        self.layers.last(&self.draft.layer, from, to)
    }

    /// Changes since the last seal.
    pub fn changes(&self) -> usize {
        self.layers.changes() + self.draft.layer.len()
    }

    /// Number of changes of a commit of tables now.
    pub(crate) fn changes_for_tables(&self) -> usize {
        self.layers.changes_for_tables() + self.draft.layer.len()
    }

    /// Number of the layer that changes go to.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Shows all changes to readers.
    pub fn publish(&mut self) {
        if !self.draft.is_empty() {
            self.layers.publish(std::mem::take(&mut self.draft));
        }
    }

    /// Puts a new layer on top and returns the one below for a commit; `None` while another layer is sealed.
    pub fn seal(&mut self) -> Option<Sealed> {
        self.seal_with(0, |_| Vec::new())
    }

    /// Like [`Rows::seal`], in a file system with `blocks` free blocks. `rows` returns rows that summarize the others; they are added last.
    pub(crate) fn seal_with(&mut self, blocks: u64, rows: impl FnOnce(Totals) -> Vec<Row>) -> Option<Sealed> {
        self.publish();
        // A commit of tables includes the logged changes, and is limited in size.
        let logged_max = if self.squeezes { 0 } else { self.gauge().changes_max(blocks) / 2 };
        let sealed = self.layers.seal(rows, logged_max)?;
        let number = self.number;
        self.number += 1;
        let squeezes = std::mem::take(&mut self.squeezes);
        let layers = self.layers.clone();
        Some(Sealed { layers, sealed, number, squeezes })
    }

    /// Notes that the sealed layer is durable.
    pub fn settled(&mut self, committed: Committed) {
        self.gauge.settle(committed);
        // The place may have grown since the commit looked at it.
        self.look_at_room();
    }

    /// True if there is room for more.
    pub fn gauge(&self) -> Gauge {
        self.gauge.with(self.tally())
    }

    fn tally(&self) -> Tally {
        let mut totals = self.layers.totals();
        totals.add(self.draft.totals);
        totals.tally
    }

    /// Asks how much room the place has, which may have changed since the last commit.
    pub(crate) fn look_at_room(&mut self) {
        self.gauge.set_room(self.backend().room());
    }

    /// Gives pages back that earlier tables had. Returns false if a thread still reads some of these.
    pub(crate) fn reclaim(&mut self) -> bool {
        let (place, is_alone) = (self.layers.place(), self.layers.place().try_reclaim());
        let is_all = !is_alone || !place.has_others(&self.layers.tables());
        self.look_at_room();
        is_all
    }

    /// Records that no space could be gained.
    pub(crate) fn found_full(&mut self) {
        self.gauge.squeezed(self.tally());
    }

    /// Reads of the place by threads that had the file system's lock: none, unless a row left the cache between a thread's
    /// look at it and its use.
    pub fn locked_reads(&self) -> u64 {
        self.layers.place().locked_reads()
    }

    /// The commit of the next layer that is sealed merges all tables, so that rows that were deleted or replaced take no room.
    pub fn squeeze(&mut self) {
        self.squeezes = true;
    }
}

impl View for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Rows::get(self, key)
    }

    fn scan(
        &self,
        from: &[u8],
        end: &[u8],
        show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        Rows::scan(self, from, end, show)
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<Row>, StoreError> {
        Rows::last(self, from, to)
    }

    fn kept_extents(&self, file: u64, blocks: &Range<u64>) -> Option<(Found, u64)> {
        self.layers.kept_extents(&self.draft.layer, file, blocks)
    }
}

impl Sealed {
    /// Makes the layer durable, and drops it: readers find its rows in tables, or in the layer of logged changes.
    ///
    /// # Errors
    /// The place's: nothing of the layer is durable then, or all of it; the layer stays.
    pub fn commit(&self) -> Result<Committed, StoreError> {
        self.commit_with(&[])
    }

    /// True for a commit that writes tables.
    pub(crate) fn writes_tables(&self) -> bool {
        self.sealed.covers.is_some()
    }

    /// True for a commit to a log on the drive of the data.
    pub(crate) fn takes_units(&self) -> bool {
        let log = || self.layers.place().backend().log();
        self.sealed.covers.is_none() && log().is_some_and(Log::takes_units)
    }

    /// Like [`Sealed::commit`], and makes the data in `units` durable if [`takes_units`](Sealed::takes_units) is true.
    ///
    /// # Errors
    /// As [`Sealed::commit`].
    pub(crate) fn commit_with(&self, units: &[UnitPlace]) -> Result<Committed, StoreError> {
        let SealedLayers { layers: changes, covers, totals } = &self.sealed;
        let place = self.layers.place();
        let backend = place.backend();
        let writing = place.begin();
        place.reclaim(&writing);
        let Some(covers) = *covers else {
            let mut rows = Vec::new();
            emit(changes.iter().flat_map(|layer| &**layer), &mut rows);
            backend.append_rows(units, &rows)?;
            self.layers.settle_logged(changes);
            return Ok(Committed { room: backend.room(), tally: None, is_squeezed: false });
        };
        let before = self.layers.tables();
        let tables = place.commit(&writing, &before, changes, covers)?;
        drop(before);
        self.layers.settle(tables, changes);
        backend.forget_rows(covers);
        // The layer is durable, whatever comes of this. A lasting error is that of the next commit.
        let is_squeezed = self.squeezes && self.layers.squeeze(&writing).is_ok();
        place.reclaim(&writing);
        Ok(Committed { room: backend.room(), tally: Some(totals.tally), is_squeezed })
    }
}

/// Merge of all tables.
pub(crate) struct Compactor(Arc<Layers>);

impl Compactor {
    /// Merges all tables. Threads read meanwhile. Returns false if a thread reads earlier tables, which keep their room until it has
    /// ended, and the next call.
    ///
    /// # Errors
    /// The place's. Durable rows stay durable.
    pub(crate) fn run(self) -> Result<bool, StoreError> {
        let writing = self.0.place().begin();
        let is_alone = self.0.squeeze(&writing)?;
        if let Some(log) = self.0.place().backend().log().filter(|_| is_alone) {
            log.vacate()?;
        }
        Ok(is_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::key;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn rows() -> Rows {
        Rows::open(super::super::backend::Memory::new(), 1 << 20).unwrap()
    }

    fn all(rows: &impl View) -> Vec<Row> {
        within(rows, &[0], &[255])
    }

    fn within(rows: &impl View, from: &[u8], end: &[u8]) -> Vec<Row> {
        let mut found = Vec::new();
        rows.scan(from, end, |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    #[test]
    fn sealed_layer_shows_until_it_is_settled_and_after() {
        let mut rows = rows();
        rows.put(vec![1], vec![10]);
        let sealed = rows.seal().unwrap();
        assert!(rows.seal().is_none(), "one at a time");
        rows.put(vec![2], vec![20]);
        rows.delete(vec![1]);
        assert_eq!(all(&rows), [(vec![2], vec![20])]);
        rows.settled(sealed.commit().unwrap());
        assert_eq!(all(&rows), [(vec![2], vec![20])]);
        assert_eq!(rows.last(&[0], &[1]).unwrap(), None);
        assert_eq!(rows.last(&[0], &[9]).unwrap(), Some((vec![2], vec![20])));
    }

    #[test]
    fn rows_take_few_bytes_beside_their_own() {
        let memory = super::super::backend::Memory::new();
        let mut rows = Rows::open(memory.clone(), 1 << 20).unwrap();
        let mut bytes = 0;
        for number in 0..60_000u64 {
            for kind in [b'D', b'E', b'I'] {
                let key: Vec<u8> = [kind].into_iter().chain(number.to_be_bytes()).collect();
                bytes += key.len() as u64 + 50;
                rows.put(key, vec![7; 50]);
            }
            if number % 3000 == 0 {
                let committed = rows.seal().unwrap().commit().unwrap();
                rows.settled(committed);
            }
        }
        let found = memory.footprint();
        assert!(found < bytes * 3 / 2, "{found} bytes for {bytes} bytes of rows");
    }

    /// Rows of many files, which are in different parts.
    #[test]
    fn change_of_many_files_is_seen_whole() {
        const FILES: u64 = 7;
        let mut rows = rows();
        let reader = rows.reader();
        let mut change = |number: u64| {
            for file in 0..FILES {
                rows.put(key::inode(file), number.to_be_bytes().to_vec());
            }
            rows.publish();
            if number.is_multiple_of(16) {
                let committed = rows.seal().unwrap().commit().unwrap();
                rows.settled(committed);
            }
        };
        change(0);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let (from, end) = key::inodes();
                        let mut last = Vec::new();
                        while !is_done.load(Ordering::Relaxed) {
                            let mut found: Vec<_> =
                                within(&reader, &from, &end).into_iter().map(|(_, value)| value).collect();
                            assert_eq!(found, vec![found[0].clone(); FILES as usize]);
                            assert!(found[0] >= last);
                            last = found.swap_remove(0);
                        }
                        last
                    })
                })
                .collect();
            (1..=4000).for_each(change);
            is_done.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| assert!(!reader.join().unwrap().is_empty()));
        });
    }

    #[derive(Clone, Debug)]
    enum RowStep {
        Put(u8, u8),
        Delete(u8),
        Seal,
        Commit,
        Publish,
    }

    fn step() -> impl Strategy<Value = RowStep> {
        prop_oneof![
            6 => (1..20u8, any::<u8>()).prop_map(|(k, v)| RowStep::Put(k, v)),
            4 => (1..20u8).prop_map(RowStep::Delete),
            1 => Just(RowStep::Seal),
            1 => Just(RowStep::Commit),
            2 => Just(RowStep::Publish),
        ]
    }

    /// Keys of a byte, and of two files.
    fn key_of(k: u8) -> Vec<u8> {
        match k {
            0..7 => vec![k],
            7..14 => key::entry(5, &[k]),
            _ => key::entry(6, &[k]),
        }
    }

    proptest! {
        #[test]
        fn layers_read_as_one_map(steps in prop::collection::vec(step(), 0..80)) {
            let mut rows = rows();
            let mut model = BTreeMap::new();
            let mut sealed = None;
            let (reader, mut shown) = (rows.reader(), model.clone());
            for step in steps {
                match step {
                    RowStep::Put(k, v) => {
                        match model.insert(key_of(k), vec![v]) {
                            Some(_) => rows.put(key_of(k), vec![v]),
                            None => rows.put_new(key_of(k), vec![v]),
                        }
                    }
                    RowStep::Delete(k) => {
                        rows.delete(key_of(k));
                        model.remove(&key_of(k));
                    }
                    RowStep::Seal => {
                        sealed = rows.seal().or(sealed);
                        shown = model.clone();
                    }
                    RowStep::Publish => {
                        rows.publish();
                        shown = model.clone();
                    }
                    RowStep::Commit => {
                        if let Some(sealed) = sealed.take() {
                            rows.settled(sealed.commit().unwrap());
                        }
                    }
                }
                prop_assert_eq!(all(&rows), model.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(all(&reader), shown.clone().into_iter().collect::<Vec<_>>());
                for k in 0..21u8 {
                    prop_assert_eq!(rows.get(&key_of(k)).unwrap(), model.get(&key_of(k)).cloned());
                    prop_assert_eq!(reader.get(&key_of(k)).unwrap(), shown.get(&key_of(k)).cloned());
                    // From a short key, and from one of the same file and of another.
                    for from in [3, 8, 14].map(key_of) {
                        let to = key_of(k).max(from.clone());
                        let last = model.range(from.clone()..=to).next_back().filter(|_| key_of(k) >= from);
                        let last = last.map(|(k, v)| (k.clone(), v.clone()));
                        prop_assert_eq!(rows.last(&from, &key_of(k)).unwrap(), last);
                    }
                }
                for file in [5, 6] {
                    let (from, end) = key::entries(file);
                    let of = |model: &BTreeMap<Vec<u8>, Vec<u8>>| {
                        let rows = model.range(from.clone()..end.clone());
                        rows.map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>()
                    };
                    prop_assert_eq!(within(&rows, &from, &end), of(&model));
                    prop_assert_eq!(within(&reader, &from, &end), of(&shown));
                }
            }
        }
    }
}
