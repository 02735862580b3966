//! The layers.

use super::backend::{Backend, BackendError, Handle};
use super::gauge::{Committed, Gauge, Tally, bytes_of};
use super::guard::guarded;
use super::site::Site;
use super::tables::{Tables, write};
use parking_lot::{RwLock, RwLockReadGuard};
use redb::{Database, Durability};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Changes: a value, or that the row is gone.
pub(super) type Layer = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Why rows cannot be read or made durable.
#[derive(thiserror::Error, Debug)]
#[error("metadata: {0}")]
pub struct StoreError(#[from] redb::Error);

impl StoreError {
    /// Whether an error of the database's file caused it. After such an error the database refuses everything.
    pub(super) fn is_of_file(&self) -> bool {
        matches!(self.0, redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::DatabaseClosed)
    }

    /// The error of the place of the metadata that caused it, if one did.
    pub(crate) fn backend(&self) -> Option<&BackendError> {
        let redb::Error::Io(error) = &self.0 else { return None };
        error.get_ref()?.downcast_ref()
    }

    /// Whether the database refuses because of an earlier error.
    pub(super) fn is_of_earlier(&self) -> bool {
        matches!(self.0, redb::Error::PreviousIo)
    }
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for StoreError {
            fn from(error: $error) -> StoreError {
                StoreError(error.into())
            }
        }
    )*};
}

from_redb!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    redb::CompactionError,
    redb::SetDurabilityError
);

impl From<BackendError> for StoreError {
    fn from(error: BackendError) -> StoreError {
        redb::StorageError::Io(error.into()).into()
    }
}

/// The rows, read through all layers. Not shared: the thread that holds the file system's lock has the rows.
pub struct Rows {
    site: Arc<Site>,
    base: RwLock<Tables>,
    sealed: Option<Arc<Layer>>,
    top: Layer,
    /// Number of the top layer, counted from 1 since it was opened.
    number: u64,
    gauge: Gauge,
    /// The next commit counts the pages in use.
    counts_pages: bool,
}

/// A layer that a commit writes to the database.
pub struct Sealed {
    site: Arc<Site>,
    layer: Arc<Layer>,
    /// Its number.
    pub number: u64,
    /// What the gauge had counted when it was sealed.
    tally: Tally,
    /// Whether the pages in use are to be counted.
    counts_pages: bool,
}

impl Rows {
    /// Opens the database that `backend` holds, or makes one where it is empty.
    ///
    /// # Errors
    /// The backend's, or that what it holds is no database.
    pub fn open(backend: impl Backend, cache_bytes: usize) -> Result<Rows, StoreError> {
        Rows::of(Site::open(Arc::new(backend), cache_bytes)?)
    }

    fn of(site: Site) -> Result<Rows, StoreError> {
        Ok(Rows {
            base: RwLock::new(site.tables()?),
            sealed: None,
            top: Layer::new(),
            number: 1,
            gauge: Gauge::new(site.backend().room()),
            site: Arc::new(site),
            counts_pages: false,
        })
    }

    /// Opens the database that `backend` holds, and verifies every page of it.
    ///
    /// # Errors
    /// The backend's, or that what it holds is no database, or a damaged one.
    pub fn verified(backend: impl Backend, cache_bytes: usize) -> Result<Rows, StoreError> {
        let backend = Arc::new(backend);
        let handle = Handle(backend.clone());
        let opened = guarded(|| {
            let mut database = Database::builder().set_cache_size(cache_bytes).create_with_backend(handle)?;
            match database.check_integrity()? {
                true => Rows::of(Site::of(database, backend, cache_bytes)),
                false => Err(damaged("what was committed last is not there")),
            }
        });
        opened.unwrap_or_else(|| Err(damaged("it contradicts itself")))
    }

    /// Where the rows are kept.
    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.site.backend()
    }

    /// Compacts the database if most of its pages are free, so that the place can give room back. It takes the time of
    /// writing all rows that are left. It does nothing while there are changes that are not committed.
    ///
    /// # Errors
    /// The database's; durable rows stay durable.
    pub(crate) fn compact_if_sparse(&mut self) -> Result<bool, StoreError> {
        if !self.gauge.is_sparse() || self.sealed.is_some() || !self.top.is_empty() {
            return Ok(false);
        }
        *self.base.get_mut() = Tables::default();
        let Some(database) = Arc::get_mut(&mut self.site).and_then(Site::alone) else { return Ok(false) };
        let compacted = database.compact();
        *self.base.get_mut() = self.site.tables()?;
        Ok(compacted?)
    }

    /// Closes the database, and returns where it was kept.
    pub(crate) fn close(self) -> Arc<dyn Backend> {
        let Rows { site, base, .. } = self;
        let backend = site.backend().clone();
        drop(base);
        drop(site);
        backend
    }

    /// The database's rows, as of the last commit. After an error of its file the database is opened again first.
    fn base(&self) -> RwLockReadGuard<'_, Tables> {
        if let Some(tables) = self.site.return_from_error() {
            *self.base.write() = tables;
        }
        self.base.read()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// The database's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        for layer in self.layers() {
            if let Some(change) = layer.get(key) {
                return Ok(change.clone());
            }
        }
        self.base().get(key).map_err(|error| self.site.note(error))
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.gauge.put(bytes_of(&key, &value));
        self.top.insert(key, Some(value));
    }

    /// Deletes the row of `key`, if there is one.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.gauge.deleted(bytes_of(&key, &[]));
        // A row that came and went within a layer leaves nothing: each search for other rows would have to pass it.
        if matches!(self.top.get(&key), Some(Some(_))) && self.is_new(&key) {
            self.top.remove(&key);
        } else {
            self.top.insert(key, None);
        }
    }

    /// Whether nothing below the top layer knows of `key`; false if that cannot be read.
    fn is_new(&self, key: &[u8]) -> bool {
        let is_sealed = self.sealed.as_ref().is_some_and(|layer| layer.contains_key(key));
        !is_sealed && matches!(self.base().get(key), Ok(None))
    }

    /// Shows the rows from `from` on, below `end`, in order of their keys, until it is told to break.
    ///
    /// # Errors
    /// The database's.
    pub fn scan(
        &self,
        from: &[u8],
        end: &[u8],
        mut show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if from >= end {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(end));
        let mut base = self.base().range(bounds).map_err(|error| self.site.note(error))?.peekable();
        let mut layers: Vec<_> =
            self.layers().map(|layer| layer.range::<[u8], _>(bounds).peekable()).collect();
        loop {
            let least_of_layers =
                layers.iter_mut().filter_map(|l| l.peek().map(|(key, _)| key.as_slice())).min();
            let base_key = match base.peek() {
                Some(Ok((key, _))) => Some(key.value().to_vec()),
                Some(Err(_)) => {
                    let error = base.next().expect("peeked").err().expect("peeked");
                    return Err(self.site.note(error.into()));
                }
                None => None,
            };
            let Some(key) =
                [least_of_layers, base_key.as_deref()].into_iter().flatten().min().map(<[u8]>::to_vec)
            else {
                return Ok(());
            };
            let mut value = None;
            for layer in &mut layers {
                if let Some((_, change)) = layer.next_if(|(k, _)| **k == key) {
                    value = value.or(Some(change));
                }
            }
            let of_base = if base_key.as_deref() == Some(&key) { base.next() } else { None };
            let flow = match (value, of_base) {
                (Some(Some(value)), _) => show(&key, value),
                (None, Some(row)) => show(&key, row.map_err(|error| self.site.note(error.into()))?.1.value()),
                _ => ControlFlow::Continue(()),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    /// The last row of those from `from` up to and with `to`.
    ///
    /// # Errors
    /// The database's.
    pub fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<Row>, StoreError> {
        if from > to {
            return Ok(None);
        }
        let bounds = (Bound::Included(from), Bound::Included(to));
        let note = |error: redb::StorageError| self.site.note(error.into());
        let mut base = self.base().range(bounds).map_err(|error| self.site.note(error))?.rev();
        let mut of_base = base.next().transpose().map_err(note)?;
        let mut layers: Vec<_> =
            self.layers().map(|layer| layer.range::<[u8], _>(bounds).rev().peekable()).collect();
        loop {
            let of_layers = layers.iter_mut().filter_map(|l| l.peek().map(|(key, _)| *key)).max();
            let base_key = of_base.as_ref().map(|(key, _)| key.value());
            // A layer hides the row of the database with the same key.
            let Some(key) = of_layers.filter(|key| base_key.is_none_or(|base| key.as_slice() >= base)) else {
                return Ok(of_base.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())));
            };
            let is_hidden = base_key == Some(key);
            let mut change = None;
            for layer in &mut layers {
                if let Some((_, of_layer)) = layer.next_if(|(k, _)| *k == key) {
                    change = change.or(Some(of_layer));
                }
            }
            if let Some(Some(value)) = change {
                return Ok(Some((key.clone(), value.clone())));
            }
            if is_hidden {
                of_base = base.next().transpose().map_err(note)?;
            }
        }
    }

    /// Changes since the last seal.
    pub fn changes(&self) -> usize {
        self.top.len()
    }

    /// Number of the layer that changes go to.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Puts a new layer on top and returns the one below for a commit; `None` while another layer is sealed.
    pub fn seal(&mut self) -> Option<Sealed> {
        if self.sealed.is_some() {
            return None;
        }
        let layer = Arc::new(std::mem::take(&mut self.top));
        self.sealed = Some(layer.clone());
        let number = self.number;
        self.number += 1;
        let counts_pages = std::mem::take(&mut self.counts_pages);
        let site = self.site.clone();
        Some(Sealed { site, layer, number, tally: self.gauge.tally(), counts_pages })
    }

    /// Drops the sealed layer, which is in the database now.
    ///
    /// # Errors
    /// The database's; then the layer stays.
    pub fn settled(&mut self, committed: Committed) -> Result<(), StoreError> {
        let tables = self.site.tables().or_else(|_| self.site.tables_again())?;
        *self.base.get_mut() = tables;
        self.sealed = None;
        self.gauge.settle(committed);
        Ok(())
    }

    /// Whether there is room for more.
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// Asks how much room the place has, which may have changed since the last commit.
    pub(crate) fn look_at_room(&mut self) {
        self.gauge.set_room(self.site.backend().room());
    }

    pub(crate) fn gauge_mut(&mut self) -> &mut Gauge {
        &mut self.gauge
    }

    /// The commit of the next layer that is sealed counts the pages in use.
    pub fn count_pages(&mut self) {
        self.counts_pages = true;
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.top).chain(self.sealed.as_deref())
    }
}

impl Sealed {
    /// Makes the layer durable.
    ///
    /// # Errors
    /// The database's: nothing of the layer is durable then, or all of it.
    pub fn commit(&self) -> Result<Committed, StoreError> {
        let (fresh, pages) = self.site.commit(|database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            // After a cut the database is open at once, however large it is.
            transaction.set_quick_repair(true);
            let fresh = write(&transaction, &self.layer)?;
            let pages = if self.counts_pages { Some(transaction.stats()?.allocated_pages()) } else { None };
            transaction.commit()?;
            Ok((fresh, pages))
        })?;
        Ok(Committed { room: self.site.backend().room(), tally: self.tally, fresh, pages })
    }
}

pub(super) fn damaged(what: &str) -> StoreError {
    StoreError(redb::Error::Corrupted(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    fn rows() -> Rows {
        Rows::open(InMemoryBackend::new(), 1 << 20).unwrap()
    }

    fn all(rows: &Rows) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        rows.scan(&[0], &[255], |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        all
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
        rows.settled(sealed.commit().unwrap()).unwrap();
        assert_eq!(all(&rows), [(vec![2], vec![20])]);
        assert_eq!(rows.last(&[0], &[1]).unwrap(), None);
        assert_eq!(rows.last(&[0], &[9]).unwrap(), Some((vec![2], vec![20])));
    }

    #[test]
    fn rows_that_come_in_the_order_of_their_kinds_leave_no_pages_half_empty() {
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
                rows.settled(committed).unwrap();
            }
        }
        let found = memory.footprint();
        assert!(found < bytes * 3 / 2, "{found} bytes for {bytes} bytes of rows");
    }

    #[derive(Clone, Debug)]
    enum RowStep {
        Put(u8, u8),
        Delete(u8),
        Seal,
        Commit,
    }

    fn step() -> impl Strategy<Value = RowStep> {
        prop_oneof![
            6 => (1..20u8, any::<u8>()).prop_map(|(k, v)| RowStep::Put(k, v)),
            4 => (1..20u8).prop_map(RowStep::Delete),
            1 => Just(RowStep::Seal),
            1 => Just(RowStep::Commit),
        ]
    }

    proptest! {
        #[test]
        fn layers_read_as_one_map(steps in prop::collection::vec(step(), 0..80)) {
            let mut rows = rows();
            let mut model = BTreeMap::new();
            let mut sealed = None;
            for step in steps {
                match step {
                    RowStep::Put(k, v) => {
                        rows.put(vec![k], vec![v]);
                        model.insert(vec![k], vec![v]);
                    }
                    RowStep::Delete(k) => {
                        rows.delete(vec![k]);
                        model.remove(&vec![k]);
                    }
                    RowStep::Seal => sealed = rows.seal().or(sealed),
                    RowStep::Commit => {
                        if let Some(sealed) = sealed.take() {
                            rows.settled(sealed.commit().unwrap()).unwrap();
                        }
                    }
                }
                prop_assert_eq!(all(&rows), model.clone().into_iter().collect::<Vec<_>>());
                for k in 0..21u8 {
                    prop_assert_eq!(rows.get(&[k]).unwrap(), model.get(&vec![k]).cloned());
                    let last = model.range(vec![3]..=vec![k.max(3)]).next_back().filter(|_| k >= 3);
                    let last = last.map(|(k, v)| (k.clone(), v.clone()));
                    prop_assert_eq!(rows.last(&[3], &[k]).unwrap(), last);
                }
            }
        }
    }
}
