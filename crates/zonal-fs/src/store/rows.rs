//! The layers.

use super::backend::{Backend, Handle};
use super::gauge::{Committed, Gauge, Tally, bytes_of};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// All rows of a file system, told apart by the first byte of their keys.
const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("rows");

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Changes: a value, or that the row is gone.
type Layer = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

type Base = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Why rows cannot be read or made durable.
#[derive(thiserror::Error, Debug)]
#[error("metadata: {0}")]
pub struct StoreError(#[from] redb::Error);

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
    redb::SetDurabilityError
);

/// The rows, read through all layers. Not shared: whoever has the file system's lock has the rows.
pub struct Rows {
    database: Arc<Database>,
    base: Base,
    sealed: Option<Arc<Layer>>,
    top: Layer,
    /// Number of the top layer, counted from 1 since it was opened.
    number: u64,
    backend: Arc<dyn Backend>,
    gauge: Gauge,
    /// The next commit counts the pages in use.
    counts_pages: bool,
}

/// A layer on its way into the database.
pub struct Sealed {
    database: Arc<Database>,
    layer: Arc<Layer>,
    /// Which it is.
    pub number: u64,
    backend: Arc<dyn Backend>,
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
        let backend = Arc::new(backend);
        let mut builder = Database::builder();
        let database = builder.set_cache_size(cache_bytes).create_with_backend(Handle(backend.clone()))?;
        let base = match base(&database) {
            Err(TableError::TableDoesNotExist(_)) => {
                let transaction = database.begin_write()?;
                transaction.open_table(TABLE)?;
                transaction.commit()?;
                base(&database)?
            }
            other => other?,
        };
        Ok(Rows {
            database: Arc::new(database),
            base,
            sealed: None,
            top: Layer::new(),
            number: 1,
            gauge: Gauge::new(backend.room()),
            backend,
            counts_pages: false,
        })
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
        Ok(self.base.get(key)?.map(|value| value.value().to_vec()))
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.gauge.put(bytes_of(&key, &value));
        self.top.insert(key, Some(value));
    }

    /// Takes the row of `key` away, if there is one.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.gauge.deleted(bytes_of(&key, &[]));
        self.top.insert(key, None);
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
        let mut base = self.base.range::<&[u8]>(bounds)?.peekable();
        let mut layers: Vec<_> =
            self.layers().map(|layer| layer.range::<[u8], _>(bounds).peekable()).collect();
        loop {
            let least_of_layers =
                layers.iter_mut().filter_map(|l| l.peek().map(|(key, _)| key.as_slice())).min();
            let base_key = match base.peek() {
                Some(Ok((key, _))) => Some(key.value().to_vec()),
                Some(Err(_)) => return Err(base.next().expect("peeked").err().expect("peeked").into()),
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
                (None, Some(row)) => show(&key, row?.1.value()),
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
        let mut to = Bound::Included(to.to_vec());
        loop {
            let bounds = (Bound::Included(from), as_ref(&to));
            if is_nothing(&bounds) {
                return Ok(None);
            }
            let of_layers =
                self.layers().filter_map(|l| l.range::<[u8], _>(bounds).next_back().map(|(k, _)| k)).max();
            let of_base = self.base.range::<&[u8]>(bounds)?.next_back().transpose()?;
            let base_key = of_base.as_ref().map(|(key, _)| key.value());
            let Some(key) =
                [of_layers.map(Vec::as_slice), base_key].into_iter().flatten().max().map(<[u8]>::to_vec)
            else {
                return Ok(None);
            };
            match self.layers().find_map(|layer| layer.get(&key)) {
                Some(Some(value)) => return Ok(Some((key, value.clone()))),
                None => return Ok(of_base.map(|(_, value)| (key, value.value().to_vec()))),
                Some(None) => to = Bound::Excluded(key),
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

    /// Puts a new layer on top and gives the one below to be committed; `None` as long as another is.
    pub fn seal(&mut self) -> Option<Sealed> {
        if self.sealed.is_some() {
            return None;
        }
        let layer = Arc::new(std::mem::take(&mut self.top));
        self.sealed = Some(layer.clone());
        let number = self.number;
        self.number += 1;
        let counts_pages = std::mem::take(&mut self.counts_pages);
        let (database, backend) = (self.database.clone(), self.backend.clone());
        Some(Sealed { database, layer, number, backend, tally: self.gauge.tally(), counts_pages })
    }

    /// The sealed layer is in the database.
    ///
    /// # Errors
    /// The database's; the layer then stays where it is.
    pub fn settled(&mut self, committed: Committed) -> Result<(), StoreError> {
        self.base = base(&self.database)?;
        self.sealed = None;
        self.gauge.settle(committed);
        Ok(())
    }

    /// Whether there is room for more.
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    pub(crate) fn gauge_mut(&mut self) -> &mut Gauge {
        &mut self.gauge
    }

    /// The next layer that is committed is one after which the pages in use are counted.
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
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        // After a cut the database is open at once, however large it is.
        transaction.set_quick_repair(true);
        let mut fresh = 0;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, change) in self.layer.iter() {
                match change {
                    Some(value) => {
                        let old = table.insert(key.as_slice(), value.as_slice())?;
                        let old = old.map_or(0, |old| bytes_of(key, old.value()));
                        fresh += bytes_of(key, value).saturating_sub(old);
                    }
                    None => drop(table.remove(key.as_slice())?),
                }
            }
        }
        let pages = if self.counts_pages { Some(transaction.stats()?.allocated_pages()) } else { None };
        transaction.commit()?;
        Ok(Committed { room: self.backend.room(), tally: self.tally, fresh, pages })
    }
}

fn base(database: &Database) -> Result<Base, TableError> {
    let transaction = database.begin_read().map_err(|e| match e {
        redb::TransactionError::Storage(e) => TableError::Storage(e),
        other => unreachable!("a read transaction can always begin: {other}"),
    })?;
    transaction.open_table(TABLE)
}

fn as_ref(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn is_nothing((from, to): &(Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from), Bound::Excluded(to)) => from >= to,
        _ => false,
    }
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

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u8),
        Delete(u8),
        Seal,
        Commit,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..20u8, any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
            4 => (1..20u8).prop_map(Step::Delete),
            1 => Just(Step::Seal),
            1 => Just(Step::Commit),
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
                    Step::Put(k, v) => {
                        rows.put(vec![k], vec![v]);
                        model.insert(vec![k], vec![v]);
                    }
                    Step::Delete(k) => {
                        rows.delete(vec![k]);
                        model.remove(&vec![k]);
                    }
                    Step::Seal => sealed = rows.seal().or(sealed),
                    Step::Commit => {
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
