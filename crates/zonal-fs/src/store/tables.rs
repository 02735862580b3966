//! The database's tables: one for each kind of row, which is the first byte of a key.
//!
//! # Why not one
//! The database splits a full page in the middle, unless the new row comes after all rows of its table. Most rows do come
//! in order of their keys: files by their numbers, extents by files, runs by zones. In one table they would come in the
//! middle, after their own kind and before the next, and leave all pages half empty.

use super::StoreError;
use super::draft::Layer;
use super::gauge::bytes_of;
use super::rows::damaged;
use redb::{Database, Range, ReadOnlyTable, ReadTransaction, TableDefinition, TableHandle, WriteTransaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Tables with the number of the last batch of logged rows that the database includes. Each has its own page: after the loss of one page
/// the number is still known, so a salvage does not restore outdated rows.
const COVERED: [TableDefinition<'static, &[u8], &[u8]>; 2] =
    [TableDefinition::new("covered"), TableDefinition::new("covered-again")];

/// Key of the only row of these tables.
const BATCH: &[u8] = b"batch";

/// Records that the database includes all batches of logged rows up to `batch`.
pub(super) fn cover(transaction: &WriteTransaction, batch: u64) -> Result<(), StoreError> {
    for table in COVERED {
        transaction.open_table(table)?.insert(BATCH, &batch.to_le_bytes()[..])?;
    }
    Ok(())
}

/// Rows of the database, as one transaction sees them.
pub(super) struct Tables {
    tables: BTreeMap<u8, Table>,
    /// Unique number of this view.
    pub(super) number: u64,
    /// Number of the last batch of logged rows that it includes.
    pub(super) covered: u64,
    /// True if the tables could not be opened. Each read is an error.
    is_lost: bool,
    /// The database, if nothing else keeps it. It is dropped after its tables.
    _database: Option<LookedAt>,
}

/// Database over an [overlay](super::backend::Overlay), which is disabled before the database is dropped.
pub(super) struct LookedAt {
    pub(super) database: Database,
    /// Flag of the overlay.
    pub(super) over: Arc<AtomicBool>,
}

impl Drop for LookedAt {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Keys from here to there.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

type Entry = Result<
    (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>),
    redb::StorageError,
>;

/// What the table of a kind is called.
fn name(kind: u8) -> String {
    char::from(kind).into()
}

/// The kind whose table has this name.
fn kind(name: &str) -> Option<u8> {
    let mut letters = name.chars();
    let kind = letters.next()?.try_into().ok()?;
    letters.next().is_none().then_some(kind)
}

impl Tables {
    fn new() -> Tables {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Tables { tables: BTreeMap::new(), number, covered: 0, is_lost: false, _database: None }
    }

    /// What `transaction` sees.
    pub(super) fn of(transaction: &ReadTransaction) -> Result<Tables, StoreError> {
        let (mut tables, mut covered, mut is_covering) = (BTreeMap::new(), None, false);
        for table in transaction.list_tables()? {
            if let Some(kind) = kind(table.name()) {
                let definition = TableDefinition::new(table.name());
                tables.insert(kind, transaction.open_table(definition)?);
            } else if let Some(table) = COVERED.into_iter().find(|covered| covered.name() == table.name()) {
                let number = transaction.open_table(table)?.get(BATCH)?;
                let number =
                    number.and_then(|number| Some(u64::from_le_bytes(number.value().try_into().ok()?)));
                covered = number.max(covered);
                is_covering = true;
            }
        }
        let covered = match covered {
            Some(number) => number,
            None if is_covering => return Err(damaged("the number of the last logged rows is lost")),
            None => 0,
        };
        Ok(Tables { tables, covered, ..Tables::new() })
    }

    /// Tables of which nothing can be read.
    pub(super) fn lost() -> Tables {
        Tables { is_lost: true, ..Tables::new() }
    }

    /// # Errors
    /// If the tables are [lost](Tables::lost).
    fn check(&self) -> Result<(), StoreError> {
        if self.is_lost { Err(damaged("it cannot be opened again")) } else { Ok(()) }
    }

    /// The same, with the database that they are of.
    pub(super) fn keep(self, database: LookedAt) -> Tables {
        Tables { _database: Some(database), ..self }
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.check()?;
        let Some(table) = key.first().and_then(|kind| self.tables.get(kind)) else { return Ok(None) };
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }

    /// The kinds of rows that there are.
    pub(super) fn kinds(&self) -> Vec<u8> {
        self.tables.keys().copied().collect()
    }

    /// All rows of a kind, in order.
    pub(super) fn all(&self, kind: u8) -> Result<impl Iterator<Item = Entry> + use<>, StoreError> {
        self.check()?;
        let rows = self.tables.get(&kind).map(|table| table.range::<&[u8]>(..)).transpose()?;
        Ok(rows.into_iter().flatten())
    }

    /// Tables that may have keys in `bounds`.
    fn within(&self, bounds: Bounds<'_>) -> impl DoubleEndedIterator<Item = &Table> {
        let kinds = kind_at(bounds.0, 0)..=kind_at(bounds.1, u8::MAX);
        self.tables.iter().filter(move |(kind, _)| kinds.contains(kind)).map(|(_, table)| table)
    }

    /// Rows in `bounds`, in order.
    pub(super) fn range(
        &self,
        bounds: Bounds<'_>,
    ) -> Result<impl DoubleEndedIterator<Item = Entry> + use<>, StoreError> {
        self.check()?;
        let ranges: Result<Vec<Range<'static, _, _>>, _> =
            self.within(bounds).map(|table| table.range::<&[u8]>(bounds)).collect();
        Ok(ranges?.into_iter().flatten())
    }
}

/// Writes changes of different keys to the tables of `transaction`, in order, and returns how many bytes they add.
pub(super) fn write(transaction: &WriteTransaction, layers: &[Arc<Layer>]) -> Result<u64, StoreError> {
    let mut fresh = 0;
    let mut changes: Vec<_> = layers.iter().flat_map(|layer| &**layer).collect();
    // This sort finds that there are as many pieces in order as layers.
    changes.sort_by_key(|(key, _)| *key);
    let mut changes = changes.into_iter().peekable();
    while let Some(kind) = changes.peek().and_then(|(key, _)| key.first().copied()) {
        let name = name(kind);
        let mut table = transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(&name))?;
        while let Some((key, change)) = changes.next_if(|(key, _)| key.first() == Some(&kind)) {
            match &change.value {
                Some(value) => {
                    let old = table.insert(key.as_slice(), value.as_slice())?;
                    let old = old.map_or(0, |old| bytes_of(key, old.value()));
                    fresh += bytes_of(key, value).saturating_sub(old);
                }
                None => drop(table.remove(key.as_slice())?),
            }
        }
    }
    Ok(fresh)
}

fn kind_at(bound: Bound<&[u8]>, other: u8) -> u8 {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.first().copied().unwrap_or(0),
        Bound::Unbounded => other,
    }
}
