//! Rows in tables, as of one commit.
//!
//! # Root
//! Pages 0 and 1 each have a copy of the list of tables, so that one lost page costs nothing:
//!
//! ```text
//! magic (8) | version (4) | bytes of the list (4) | first further pages (2 x 8) | list ...
//! ```
//!
//! The rest of the list is in further pages, also stored twice. A sync of the place is atomic, so a commit is one sync of new
//! tables and both copies. Pages that no table of the list has are free, and the place forgets what they had.
//!
//! # Reads
//! An index and a data block are read once, and kept in memory as long as there is room. A search reads one data block of each table
//! whose filter has the key.

use super::StoreError;
use super::backend::log::Log;
use super::backend::{Backend, PAGE, Room};
use super::draft::{Key, Layer};
use super::levels::{Bounds, Levels, Step, Table};
use super::locked::Locked;
use super::merge::{Change, Merged, Source, Taken, take};
use super::pages::{Pages, Space};
use super::table::{BlockReader, Builder, DataBlock, Index, NoTable, verify_block};
use crate::format::varint;
use parking_lot::{Mutex, MutexGuard};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 8] = *b"zonalrow";

/// Version of the list and of the tables.
const VERSION: u32 = 1;

/// Bytes before the list in a root page.
const ROOT_HEADER: usize = 32;

/// Bytes of the list in a root page.
const IN_ROOT: usize = PAGE - ROOT_HEADER;

/// Pages of the copies of the root.
const ROOTS: Range<u64> = 0..2;

/// Pages of a table at most, where there is room.
const TABLE_PAGES_MAX: u64 = 256;

/// Pages of a table that fit anywhere.
const TABLE_PAGES_MIN: u64 = 8;

/// Pages that a merge reads at once.
const AHEAD: u32 = 32;

/// Pages that a commit merges for each page that it adds, and beside that.
const MERGED_PER_PAGE: u64 = 8;
const MERGED_MIN: u64 = 128;

/// Pages written between two syncs of a merge of everything.
const SQUEEZED_PAGES: u64 = 1024;

/// Pages of level 1, on a place without bounds.
const LEVEL_PAGES: u64 = 1024;

/// One in this number of bytes of memory is for single rows.
const ROWS_PART: usize = 4;

/// One in this number of bytes of memory is for extents.
const EXTENTS_PART: usize = 8;

/// Bytes that an entry of the cache takes beside its own.
const KEPT_BYTES: u64 = 64;

/// Part of a table in memory.
#[derive(Clone)]
enum Kept {
    Index(Arc<Index>),
    Block(Arc<[u8]>),
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<(u64, u32), Kept> for ByBytes {
    fn weight(&self, _: &(u64, u32), kept: &Kept) -> u64 {
        KEPT_BYTES
            + match kept {
                Kept::Index(index) => index.bytes() as u64,
                Kept::Block(bytes) => bytes.len() as u64,
            }
    }
}

/// Place of the tables, and what of them is in memory.
pub(super) struct Place {
    backend: Arc<dyn Backend>,
    cache_bytes: usize,
    /// By the number of their pages, and the first page in the table.
    cache: Cache<(u64, u32), Kept, ByBytes>,
    space: Arc<Space>,
    roots: Arc<Pages>,
    commit: Mutex<()>,
    /// Key up to which deeper levels were merged.
    cursor: Mutex<Key>,
    /// Levels that are not merged before the next opening, because they cannot be read.
    stuck: Mutex<BTreeSet<u8>>,
    locked_reads: AtomicU64,
    /// The numbers of new pages may be those of pages that are needed until the first commit.
    replaces: bool,
}

/// Right to write: one thread has it at a time.
pub(super) type Writing<'a> = MutexGuard<'a, ()>;

/// Rows as of one commit.
pub(super) struct Tables {
    place: Arc<Place>,
    levels: Levels,
    /// Unique number of this view.
    pub(super) number: u64,
    /// Number of the last batch of logged rows that these include.
    pub(super) covered: u64,
    /// Number of the next run of level 0.
    run: u64,
    /// Further pages of the root.
    further: Vec<Arc<Pages>>,
}

pub(super) fn damaged(what: &'static str) -> StoreError {
    StoreError::Damaged(what)
}

impl From<NoTable> for StoreError {
    fn from(_: NoTable) -> StoreError {
        damaged("a table of rows has contents that no table has")
    }
}

impl Tables {
    /// Opens the tables in `backend`; none if it is empty. Writes nothing.
    ///
    /// # Errors
    /// The backend's, or that what it holds are no tables.
    pub(super) fn open(backend: Arc<dyn Backend>, cache_bytes: usize) -> Result<Tables, StoreError> {
        let place = Arc::new(Place::new(backend, cache_bytes));
        let len = place.backend.len()? / PAGE as u64;
        let tables = match len {
            0 => Tables::new(&place, Levels::default(), 0, 1, Vec::new()),
            _ => place.root(0).or_else(|error| {
                place.space.freed();
                place.root(1).map_err(|_| error)
            })?,
        };
        let mut free = 0;
        for used in place.space.used() {
            place.backend.discard(free..used.start);
            free = used.end;
        }
        place.backend.discard(free..len.max(free));
        place.backend.check()?;
        place.backend.forget_rows(tables.covered);
        Ok(tables)
    }

    /// Returns empty tables whose first commit replaces the contents of `backend`, logged rows included. Until then nothing is removed.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn replacing(backend: Arc<dyn Backend>, cache_bytes: usize) -> Result<Tables, StoreError> {
        backend.set_len(0)?;
        let covered = backend.log().map_or(backend.last_rows(), Log::batch);
        let place = Arc::new(Place { replaces: true, ..Place::new(backend, cache_bytes) });
        Ok(Tables::new(&place, Levels::default(), covered, 1, Vec::new()))
    }

    fn new(place: &Arc<Place>, levels: Levels, covered: u64, run: u64, further: Vec<Arc<Pages>>) -> Tables {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Tables { place: place.clone(), levels, number, covered, run, further }
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        for table in self.levels.of_key(key) {
            if let Some(value) = self.place.find(table, key)? {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// Rows in `bounds`, in order.
    pub(super) fn range(
        &self,
        bounds: Bounds<'_>,
    ) -> impl Iterator<Item = Result<(Key, Vec<u8>), StoreError>> {
        let sources = self.levels.within(bounds).map(|group| self.place.source(group.to_vec(), bounds, 1));
        let rows = Merged::new(sources.collect());
        rows.filter_map(|row| row.map(|(key, value)| Some((key, value?))).transpose())
    }

    /// The last row in `bounds`.
    pub(super) fn last(&self, (from, mut to): Bounds<'_>) -> Result<Option<(Key, Vec<u8>)>, StoreError> {
        let mut hidden;
        for _ in 0..DELETIONS_SEARCHED {
            let mut last: Option<(Key, Change)> = None;
            for group in self.levels.within((from, to)) {
                for table in group.iter().rev() {
                    let Some(row) = self.place.last(table, (from, to))? else { continue };
                    if last.as_ref().is_none_or(|(key, _)| row.0 > *key) {
                        last = Some(row);
                    }
                    break;
                }
            }
            match last {
                None => return Ok(None),
                Some((key, Some(value))) => return Ok(Some((key, value))),
                Some((key, None)) => hidden = key,
            }
            to = Bound::Excluded(&hidden);
        }
        // Many deletions: each search would begin anew.
        let bounds = (from, to);
        let sources = self.levels.within(bounds).map(|group| self.place.descending(group.to_vec(), bounds));
        let mut rows = Merged::descending(sources.collect());
        rows.find_map(|row| row.map(|(key, value)| Some((key, value?))).transpose()).transpose()
    }

    /// Reads all pages.
    ///
    /// # Errors
    /// That of the first page that cannot be read, or is no part of a table.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        let root = (self.place.backend.len()? > 0).then_some(&self.place.roots);
        for pages in root.into_iter().chain(&self.further) {
            self.place.read(pages, 0..pages.count() as u32)?;
        }
        for table in self.levels.tables() {
            let index = self.place.index(table)?;
            let (mut rows, mut last) = (0, Key::new());
            for copy in [0, table.pages.count() as u32 - table.index_pages] {
                let bytes = self.place.read(&table.pages, copy..copy + table.index_pages)?;
                Index::parse(&bytes, table.index_pages, table.pages.count() as u32)?;
            }
            for data in &index.data {
                let bytes = self.place.read(&table.pages, data.pages.clone())?;
                verify_block(&bytes, &data.first)?;
                let mut reader = BlockReader::default();
                while reader.next(&bytes)?.is_some() {
                    if rows > 0 && reader.key[..] <= last[..] || !index.may_have(&reader.key) {
                        return Err(NoTable.into());
                    }
                    last = Key::from_slice(&reader.key);
                    rows += 1;
                }
            }
            if (rows, &last) != (index.rows, &table.last) {
                return Err(NoTable.into());
            }
        }
        Ok(())
    }

    /// All tables. A row of one hides those of the same key in later ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.levels.tables()
    }
}

/// Reads of tables.
impl Place {
    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Bytes of memory for single rows.
    pub(super) fn row_bytes(&self) -> u64 {
        (self.cache_bytes / ROWS_PART) as u64
    }

    /// Bytes of memory for extents.
    pub(super) fn extent_bytes(&self) -> u64 {
        (self.cache_bytes / EXTENTS_PART) as u64
    }

    /// Reads by threads that had the file system's lock.
    pub(super) fn locked_reads(&self) -> u64 {
        self.locked_reads.load(Ordering::Relaxed)
    }

    fn read(&self, pages: &Pages, range: Range<u32>) -> Result<Vec<u8>, StoreError> {
        if Locked::is_held() {
            self.locked_reads.fetch_add(1, Ordering::Relaxed);
        }
        let mut bytes = vec![0; (range.end - range.start) as usize * PAGE];
        self.backend.read((pages.range.start + u64::from(range.start)) * PAGE as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// The index of `table`, the second copy if the first is lost.
    pub(super) fn index(&self, table: &Table) -> Result<Arc<Index>, StoreError> {
        let key = (table.pages.number, 0);
        if let Some(Kept::Index(index)) = self.cache.get(&key) {
            return Ok(index);
        }
        let pages = table.pages.count() as u32;
        let copy = |first: u32| -> Result<Index, StoreError> {
            let bytes = self.read(&table.pages, first..first + table.index_pages)?;
            Ok(Index::parse(&bytes, table.index_pages, pages)?)
        };
        let index = copy(0).or_else(|error| copy(pages - table.index_pages).map_err(|_| error))?;
        let index = Arc::new(index);
        self.cache.insert(key, Kept::Index(index.clone()));
        Ok(index)
    }

    /// Bytes of a data block of `table`.
    pub(super) fn block(&self, table: &Table, pages: &Range<u32>) -> Result<Arc<[u8]>, StoreError> {
        let key = (table.pages.number, pages.start);
        if let Some(Kept::Block(bytes)) = self.cache.get(&key) {
            return Ok(bytes);
        }
        let bytes: Arc<[u8]> = self.read(&table.pages, pages.clone())?.into();
        self.cache.insert(key, Kept::Block(bytes.clone()));
        Ok(bytes)
    }

    /// The change of `key` in `table`, if there is one.
    fn find(&self, table: &Table, key: &[u8]) -> Result<Option<Change>, StoreError> {
        let index = self.index(table)?;
        let Some(block) = index.block_of(key).filter(|_| index.may_have(key)) else { return Ok(None) };
        let bytes = self.block(table, &index.data[block].pages)?;
        let mut reader = BlockReader::at(&bytes, |first| first <= key)?;
        while let Some(value) = reader.next(&bytes)? {
            if reader.key[..] >= *key {
                return Ok((reader.key[..] == *key).then(|| value.map(<[u8]>::to_vec)));
            }
        }
        Ok(None)
    }

    /// The last change in `bounds` in `table`.
    fn last(&self, table: &Table, (from, to): Bounds<'_>) -> Result<Option<(Key, Change)>, StoreError> {
        let index = self.index(table)?;
        let is_before = |key: &[u8]| is_before(key, to);
        let blocks = index.data.partition_point(|data| is_before(&data.first));
        for data in index.data[..blocks].iter().rev() {
            let bytes = self.block(table, &data.pages)?;
            let (mut reader, mut last) = (BlockReader::at(&bytes, is_before)?, None);
            while let Some(value) = reader.next(&bytes)? {
                if !is_before(&reader.key) {
                    break;
                }
                if is_after(&reader.key, from) && reader.key[..] >= table.from[..] {
                    last = Some((Key::from_slice(&reader.key), value));
                }
            }
            if let Some((key, value)) = last {
                return Ok(Some((key, value.map(<[u8]>::to_vec))));
            }
            if !is_after(&data.first, from) || data.first < table.from {
                break;
            }
        }
        Ok(None)
    }

    /// Changes in `bounds` in `tables`, which follow each other, the last first.
    fn descending(self: &Arc<Place>, tables: Vec<Arc<Table>>, bounds: Bounds<'_>) -> Source {
        let (from, to) = (bounds.0.map(Key::from_slice), bounds.1.map(Key::from_slice));
        let place = self.clone();
        let blocks = tables.into_iter().rev().flat_map(move |table| {
            let index = place.index(&table);
            let (error, index) = match index {
                Ok(index) => (None, Some(index)),
                Err(error) => (Some(Err(error)), None),
            };
            let (place, from, to) = (place.clone(), from.clone(), to.clone());
            let blocks = index.into_iter().flat_map({
                let from = from.clone().map(|from| from.max(table.from.clone()));
                move |index| {
                    let first = match &from {
                        Bound::Included(from) | Bound::Excluded(from) => index.block_of(from).unwrap_or(0),
                        Bound::Unbounded => 0,
                    };
                    (first..index.data.len()).rev().map(move |block| index.data[block].clone())
                }
            });
            let rows = blocks.flat_map(move |data| {
                let bounds = (from.as_ref().map(Key::as_slice), to.as_ref().map(Key::as_slice));
                place.rows_of_block(&table, &data, bounds)
            });
            error.into_iter().chain(rows)
        });
        Box::new(blocks)
    }

    /// Changes of a data block in `bounds`, the last first.
    fn rows_of_block(
        &self,
        table: &Table,
        data: &DataBlock,
        (from, to): Bounds<'_>,
    ) -> Vec<Result<(Key, Change), StoreError>> {
        if !is_before(&data.first, to) {
            return Vec::new();
        }
        let mut rows = Vec::new();
        let read = self.block(table, &data.pages).and_then(|bytes| {
            let mut reader = BlockReader::default();
            while let Some(value) = reader.next(&bytes)? {
                let key = &reader.key[..];
                if is_after(key, from) && is_before(key, to) && *key >= table.from[..] {
                    rows.push(Ok((Key::from_slice(key), value.map(<[u8]>::to_vec))));
                }
            }
            Ok(())
        });
        rows.extend(read.err().map(Err));
        rows.reverse();
        rows
    }

    /// Changes in `bounds` in `tables`, which follow each other. Reads `ahead` pages at once.
    fn source(self: &Arc<Place>, tables: Vec<Arc<Table>>, bounds: Bounds<'_>, ahead: u32) -> Source {
        let bounds = (bounds.0.map(Key::from_slice), bounds.1.map(Key::from_slice));
        let place = self.clone();
        Box::new(Forward { place, tables: tables.into_iter(), bounds, ahead, reading: None })
    }
}

fn is_after(key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }
}

fn is_before(key: &[u8], to: Bound<&[u8]>) -> bool {
    match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    }
}

/// Changes of tables that follow each other, in order.
struct Forward {
    place: Arc<Place>,
    tables: std::vec::IntoIter<Arc<Table>>,
    bounds: (Bound<Key>, Bound<Key>),
    ahead: u32,
    reading: Option<Reading>,
}

/// Position in a table.
struct Reading {
    table: Arc<Table>,
    index: Arc<Index>,
    /// Number of the data block.
    block: usize,
    reader: BlockReader,
    /// Pages that were read, and the first of them.
    bytes: Arc<[u8]>,
    first: u32,
}

impl Forward {
    fn begin(&mut self, table: Arc<Table>) -> Result<Reading, StoreError> {
        let index = self.place.index(&table)?;
        let from = match &self.bounds.0 {
            Bound::Included(key) | Bound::Excluded(key) => key.max(&table.from).clone(),
            Bound::Unbounded => table.from.clone(),
        };
        let block = index.block_of(&from).unwrap_or(0);
        let (bytes, first) = self.read(&table, &index, block)?;
        let data = &index.data[block].pages;
        let bytes_of_block = &bytes[..(data.end - data.start) as usize * PAGE];
        let reader = BlockReader::at(bytes_of_block, |first| first <= &from[..])?;
        Ok(Reading { table, index, block, reader, bytes, first })
    }

    /// Reads a data block, and those that follow, as far as pages are read at once. Returns the number of the first page, too.
    fn read(&mut self, table: &Table, index: &Index, block: usize) -> Result<(Arc<[u8]>, u32), StoreError> {
        let rest = &index.data[block..];
        let first = rest[0].pages.start;
        if self.ahead > 1 {
            let count = rest.partition_point(|data| data.pages.end - first <= self.ahead);
            let end = rest[count.max(1) - 1].pages.end;
            match self.place.read(&table.pages, first..end) {
                Ok(bytes) => return Ok((bytes.into(), first)),
                // The page that cannot be read may be another one. Each further try would take long.
                Err(_) => self.ahead = 1,
            }
        }
        Ok((self.place.block(table, &rest[0].pages)?, first))
    }

    /// The next change, whether it is within the bounds or before them; `None` at the end.
    fn advance(&mut self) -> Result<Option<(Key, Change)>, StoreError> {
        loop {
            let mut reading = match self.reading.take() {
                Some(reading) => reading,
                None => match self.tables.next() {
                    Some(table) => self.begin(table)?,
                    None => return Ok(None),
                },
            };
            let Some(data) = reading.index.data.get(reading.block) else { continue };
            if !is_before(&data.first, self.bounds.1.as_ref().map(Key::as_slice)) {
                return Ok(None);
            }
            let pages = data.pages.clone();
            let read = reading.first..reading.first + (reading.bytes.len() / PAGE) as u32;
            if pages.start < read.start || pages.end > read.end {
                (reading.bytes, reading.first) = self.read(&reading.table, &reading.index, reading.block)?;
            }
            let begin = (pages.start - reading.first) as usize * PAGE;
            let end = (pages.end - reading.first) as usize * PAGE;
            let Reading { reader, bytes, block, table, .. } = &mut reading;
            let Some(value) = reader.next(&bytes[begin..end])? else {
                (*block, *reader) = (*block + 1, BlockReader::default());
                self.reading = Some(reading);
                continue;
            };
            if !is_before(&reader.key, self.bounds.1.as_ref().map(Key::as_slice)) {
                return Ok(None);
            }
            let is_within = is_after(&reader.key, self.bounds.0.as_ref().map(Key::as_slice));
            let row = (is_within && reader.key[..] >= table.from[..])
                .then(|| (Key::from_slice(&reader.key), value.map(<[u8]>::to_vec)));
            self.reading = Some(reading);
            if row.is_some() {
                return Ok(row);
            }
        }
    }
}

impl Iterator for Forward {
    type Item = Result<(Key, Change), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if !matches!(next, Some(Ok(_))) {
            // Nothing follows an error or the end.
            self.tables = Vec::new().into_iter();
        }
        next
    }
}

/// Tables that a commit makes.
struct Making {
    levels: Levels,
    /// Pages written so far.
    written: u64,
}

impl Place {
    fn new(backend: Arc<dyn Backend>, cache_bytes: usize) -> Place {
        let kept = cache_bytes - cache_bytes / ROWS_PART - cache_bytes / EXTENTS_PART;
        let space = Arc::<Space>::default();
        Place {
            cache: Cache::with_weighter(kept / (2 * PAGE) + 1, kept as u64, ByBytes),
            cache_bytes,
            roots: space.take(ROOTS.end),
            space,
            commit: Mutex::new(()),
            cursor: Mutex::default(),
            stuck: Mutex::default(),
            locked_reads: AtomicU64::new(0),
            replaces: false,
            backend,
        }
    }
}

/// Writes of tables.
impl Place {
    /// Waits for the right to write.
    pub(super) fn begin(&self) -> Writing<'_> {
        self.commit.lock()
    }

    /// Lets the backend forget pages that are not in use any more.
    pub(super) fn reclaim(&self, _writing: &Writing<'_>) {
        let freed = self.space.freed();
        if !self.replaces {
            freed.into_iter().for_each(|pages| self.backend.discard(pages));
        }
    }

    /// True if there are pages of other tables than `these`: a thread reads or writes them.
    pub(super) fn has_others(&self, these: &Tables) -> bool {
        let tables = these.levels.tables().map(|table| &table.pages);
        let own: u64 = tables.chain(&these.further).map(|pages| pages.count()).sum();
        self.space.count() > own + self.roots.count()
    }

    /// Like [`Place::reclaim`], but does nothing and returns false while another thread writes. That thread reclaims the pages.
    pub(super) fn try_reclaim(&self) -> bool {
        self.commit.try_lock().map(|writing| self.reclaim(&writing)).is_some()
    }

    /// Pages of a table at most.
    fn table_pages(&self, room: Option<Room>) -> u32 {
        let pages = room.map_or(TABLE_PAGES_MAX, |room| room.limit / 32);
        pages.clamp(TABLE_PAGES_MIN, TABLE_PAGES_MAX) as u32
    }

    /// Makes changes durable, which are of different keys, and of all batches of logged rows up to `covered`.
    ///
    /// # Errors
    /// The backend's. Nothing has changed then.
    pub(super) fn commit(
        self: &Arc<Place>,
        writing: &Writing<'_>,
        before: &Tables,
        layers: &[Arc<Layer>],
        covered: u64,
    ) -> Result<Tables, StoreError> {
        match self.commit_and_merge(writing, before, layers, covered, MERGED_PER_PAGE) {
            // Merges used the reserved space.
            Err(error) if error.is_full() => self.commit_and_merge(writing, before, layers, covered, 0),
            result => result,
        }
    }

    /// Commits, and merges about `merged` pages for each page of the changes, and some more, unless it is 0.
    fn commit_and_merge(
        self: &Arc<Place>,
        writing: &Writing<'_>,
        before: &Tables,
        layers: &[Arc<Layer>],
        covered: u64,
        merged: u64,
    ) -> Result<Tables, StoreError> {
        self.reclaim(writing);
        let room = self.backend.room();
        let run = before.run;
        let result = self.add_run(before, layers, room).and_then(|mut making| {
            if merged > 0 {
                let merged_max = making.written * merged + MERGED_MIN;
                let level = room.map_or(LEVEL_PAGES, |room| (room.limit / 8).min(LEVEL_PAGES));
                let due = |levels: &Levels| levels.due(level, &self.cursor.lock(), &self.stuck.lock());
                self.merge(writing, &mut making, room, merged_max, due)?;
            }
            self.end(making, before.covered.max(covered), run + 1)
        });
        self.or_undo(writing, result)
    }

    /// Merges tables on the way to a single level; `None` if there is nothing to do, or no room to do it.
    ///
    /// # Errors
    /// The backend's. Nothing has changed then.
    pub(super) fn squeeze(
        self: &Arc<Place>,
        writing: &Writing<'_>,
        before: &Tables,
    ) -> Result<Option<Tables>, StoreError> {
        self.reclaim(writing);
        let room = self.backend.room();
        let mut making = Making { levels: before.levels.clone(), written: 0 };
        let squeeze = |levels: &Levels| levels.squeeze(&self.stuck.lock());
        let result = self.merge(writing, &mut making, room, SQUEEZED_PAGES, squeeze).and_then(|steps| {
            if steps == 0 { Ok(None) } else { self.end(making, before.covered, before.run).map(Some) }
        });
        match self.or_undo(writing, result) {
            Err(error) if error.is_full() => Ok(None),
            result => result,
        }
    }

    fn or_undo<T>(&self, writing: &Writing<'_>, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_err() {
            self.backend.forget_unsynced();
            self.reclaim(writing);
        }
        result
    }

    /// Writes a run of level 0.
    fn add_run(
        self: &Arc<Place>,
        before: &Tables,
        layers: &[Arc<Layer>],
        room: Option<Room>,
    ) -> Result<Making, StoreError> {
        let mut making = Making { levels: before.levels.clone(), written: 0 };
        let keeps_deletions = making.levels.tables().next().is_some();
        let mut changes: Vec<_> = layers.iter().flat_map(|layer| &**layer).collect();
        // This sort finds that there are as many pieces in order as layers.
        changes.sort_by_key(|(key, _)| *key);
        let (pages_max, mut table) = (self.table_pages(room), Builder::precise());
        for (key, change) in changes {
            let value = change.value.as_deref();
            if value.is_none() && !keeps_deletions {
                continue;
            }
            if !table.is_empty() && table.pages_with(key, value) > pages_max {
                let full = std::mem::replace(&mut table, Builder::precise());
                self.add(&mut making, full, 0, before.run)?;
            }
            table.add(key, value);
        }
        if !table.is_empty() {
            self.add(&mut making, table, 0, before.run)?;
        }
        Ok(making)
    }

    fn add(
        self: &Arc<Place>,
        making: &mut Making,
        table: Builder,
        level: u8,
        run: u64,
    ) -> Result<(), StoreError> {
        let table = self.write_table(making, table, level, run)?;
        making.levels.add(table).map_err(|_| damaged("tables of rows overlap"))
    }

    fn write_table(
        self: &Arc<Place>,
        making: &mut Making,
        table: Builder,
        level: u8,
        run: u64,
    ) -> Result<Table, StoreError> {
        let built = table.build();
        let pages = self.space.take((built.bytes.len() / PAGE) as u64);
        self.write(&pages, &built.bytes)?;
        making.written += pages.count();
        let (index_pages, first, last) = (built.index_pages, built.first, built.last);
        Ok(Table { pages, index_pages, level, run, first, last, from: Key::new() })
    }

    fn write(&self, pages: &Pages, bytes: &[u8]) -> Result<(), StoreError> {
        let end = pages.range.end * PAGE as u64;
        if self.backend.len()? < end {
            self.backend.set_len(end)?;
        }
        Ok(self.backend.write(pages.range.start * PAGE as u64, bytes)?)
    }

    /// Runs the merges that `next` returns, until there are none, about `pages` pages were written, or space is short. A merge stops at a
    /// page that cannot be read: the changes of a commit do not depend on it. Returns the number of steps.
    fn merge(
        self: &Arc<Place>,
        writing: &Writing<'_>,
        making: &mut Making,
        room: Option<Room>,
        pages: u64,
        next: impl Fn(&Levels) -> Option<Step>,
    ) -> Result<u64, StoreError> {
        let (begin, mut steps) = (making.written, 0);
        let table_pages = self.table_pages(room);
        let goes_on = |making: &Making, steps: u64| {
            // Each table in the list takes less than a quarter of a page, and there are two copies.
            let root = ROOTS.end + making.levels.tables().count() as u64 / 2;
            // Pages written count twice until they are durable. The first table may take the room that a commit has at most.
            let needed = 2 * (making.written + u64::from(table_pages) + root);
            let has_room = room.is_none_or(|Room { pages, limit, .. }| {
                pages + needed <= limit + if steps == 0 { limit / 3 } else { limit / 6 }
            });
            making.written - begin < pages && has_room
        };
        while goes_on(making, steps) {
            let Some(step) = next(&making.levels) else { break };
            // Tables of a run, or of a level, follow each other.
            let groups = step.inputs.chunk_by(|a, b| (a.level, a.run) == (b.level, b.run));
            let all = (Bound::Unbounded, Bound::Unbounded);
            let sources = groups.map(|group| self.source(group.to_vec(), all, AHEAD));
            let mut rows = Merged::new(sources.collect()).peekable();
            loop {
                let Taken { table, to } = match take(&mut rows, !step.is_last, table_pages) {
                    Ok(taken) => taken,
                    Err(error) if error.is_lost() => {
                        // It would take as long the next time.
                        self.stuck.lock().insert(step.level - 1);
                        break;
                    }
                    // The next commit tries again.
                    Err(_) => return Ok(steps),
                };
                let is_empty = table.is_empty();
                let table =
                    match (!is_empty).then(|| self.write_table(making, table, step.level, 0)).transpose() {
                        Err(error) if error.is_full() => {
                            // The commit needs the pages of this table.
                            self.reclaim(writing);
                            return Ok(steps);
                        }
                        table => table?,
                    };
                making.levels.take_from(&step, to.as_deref());
                if let Some(table) = table {
                    making.levels.add(table).map_err(|_| damaged("tables of rows overlap"))?;
                }
                steps += 1;
                self.merged_to(&step, to.as_ref().unwrap_or(&step.inputs[0].last));
                if to.is_none() {
                    break;
                }
                if !goes_on(making, steps) {
                    return Ok(steps);
                }
            }
        }
        Ok(steps)
    }

    /// Notes how far a level was merged, so that its next tables are merged next. All of level 0 is merged at once.
    fn merged_to(&self, step: &Step, key: &Key) {
        if step.level > 1 {
            *self.cursor.lock() = key.clone();
        }
    }

    /// Writes the root, and makes everything durable.
    fn end(self: &Arc<Place>, making: Making, covered: u64, run: u64) -> Result<Tables, StoreError> {
        let list = list(&making.levels, covered, run);
        let (in_root, rest) = list.split_at(list.len().min(IN_ROOT));
        let mut page = Vec::with_capacity(PAGE);
        page.extend(MAGIC);
        page.extend(VERSION.to_le_bytes());
        page.extend((list.len() as u32).to_le_bytes());
        let mut further = Vec::new();
        for _ in ROOTS {
            if rest.is_empty() {
                page.extend(0u64.to_le_bytes());
                continue;
            }
            let pages = self.space.take(rest.len().div_ceil(PAGE) as u64);
            let mut bytes = rest.to_vec();
            bytes.resize(rest.len().next_multiple_of(PAGE), 0);
            self.write(&pages, &bytes)?;
            page.extend(pages.range.start.to_le_bytes());
            further.push(pages);
        }
        page.extend(in_root);
        page.resize(PAGE, 0);
        self.write(&self.roots, &page.repeat(ROOTS.end as usize))?;
        let end = self.space.end() * PAGE as u64;
        if self.backend.len()? > end {
            self.backend.set_len(end)?;
        }
        self.backend.sync_data()?;
        Ok(Tables::new(self, making.levels, covered, run, further))
    }

    /// Pages that there may be: the length can be that of a sparse file.
    fn pages_max(&self) -> Result<u64, StoreError> {
        let len = self.backend.len()? / PAGE as u64;
        Ok(self.backend.room().map_or(len, |room| room.pages.min(len)))
    }

    /// Reads a copy of the root.
    fn root(self: &Arc<Place>, root: u64) -> Result<Tables, StoreError> {
        let mut page = vec![0; PAGE];
        self.backend.read(root * PAGE as u64, &mut page)?;
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        if page[..8] != MAGIC {
            return Err(damaged("the list of tables does not begin with its magic number"));
        }
        if word(8) != VERSION {
            return Err(damaged("the list of tables is of a version that is not known here"));
        }
        let len = word(12) as usize;
        if len as u64 > self.pages_max()? * PAGE as u64 {
            return Err(damaged("the list of tables is longer than all pages"));
        }
        let mut bytes = page[ROOT_HEADER..][..len.min(IN_ROOT)].to_vec();
        let mut further = Vec::new();
        let count = (len - bytes.len()).div_ceil(PAGE) as u64;
        if count > 0 {
            for at in [16, 24] {
                let first = u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
                let end = first.checked_add(count).filter(|end| *end <= u64::from(u32::MAX));
                let pages = end.and_then(|end| self.space.take_at(first..end));
                further.push(pages.ok_or(damaged("the list of tables lies in pages of something else"))?);
            }
            let rest = self.read(&further[0], 0..count as u32);
            bytes.extend(rest.or_else(|error| self.read(&further[1], 0..count as u32).map_err(|_| error))?);
            bytes.truncate(len);
        }
        let (levels, covered, run) =
            self.parse_list(&bytes).ok_or(damaged("the list of tables has contents that no list has"))?;
        Ok(Tables::new(self, levels, covered, run, further))
    }

    fn parse_list(self: &Arc<Place>, bytes: &[u8]) -> Option<(Levels, u64, u64)> {
        let mut reader = varint::Reader(bytes);
        let [covered, next, count]: [u64; 3] =
            [reader.take_number()?, reader.take_number()?, reader.take_number()?];
        let (all, mut most) = (self.backend.len().ok()? / PAGE as u64, self.pages_max().ok()?);
        if next == u64::MAX {
            return None;
        }
        let mut levels = Levels::default();
        for _ in 0..count {
            let [first, pages]: [u32; 2] = [reader.take_number()?, reader.take_number()?];
            let index_pages: u32 = reader.take_number()?;
            let (level, run): (u8, u64) = (reader.take_u8()?, reader.take_number()?);
            let key = |reader: &mut varint::Reader<'_>| {
                let len = reader.take_number()?;
                reader.take_slice(len).map(Key::from_slice)
            };
            let keys = [key(&mut reader)?, key(&mut reader)?, key(&mut reader)?];
            let end = u64::from(first) + u64::from(pages);
            let is_of_level =
                if level == 0 { run < next } else { run == 0 && usize::from(level) <= LEVELS_MAX };
            if index_pages == 0 || index_pages.checked_mul(2)? >= pages || end > all || !is_of_level {
                return None;
            }
            most = most.checked_sub(pages.into())?;
            let pages = self.space.take_at(first.into()..end)?;
            let [first, last, from] = keys;
            if first.is_empty() || last.is_empty() {
                return None;
            }
            levels.add(Table { pages, index_pages, level, run, first, last, from }).ok()?;
        }
        reader.0.is_empty().then_some((levels, covered, next))
    }
}

/// Deletions for each of which the row before is searched.
const DELETIONS_SEARCHED: usize = 4;

/// Levels that a list has at most: more rows than a drive has bytes.
const LEVELS_MAX: usize = 24;

/// Encodes the list of tables: number of the last batch of logged rows, number of the next run, number of tables, and each table.
fn list(levels: &Levels, covered: u64, run: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [covered, run, levels.tables().count() as u64] {
        varint::put(&mut bytes, number);
    }
    for table in levels.tables() {
        varint::put(&mut bytes, table.pages.range.start);
        varint::put(&mut bytes, table.pages.count());
        varint::put(&mut bytes, table.index_pages.into());
        bytes.push(table.level);
        varint::put(&mut bytes, table.run);
        for key in [&table.first, &table.last, &table.from] {
            varint::put(&mut bytes, key.len() as u64);
            bytes.extend_from_slice(key);
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
