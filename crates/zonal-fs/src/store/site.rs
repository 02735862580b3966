//! The database of a store, and its return after a page that cannot be read.
//!
//! redb refuses everything after the first error of its file. One damaged page would cost all rows then. So the reader whose
//! lookup failed opens the database once more, to read only, over the same file. What was committed is there, and changes that
//! wait are in layers above. The next commit opens the database again, to write.
//!
//! # Why the reader does not open it to write
//! A database writes when it is opened. The store may need another zone for that, which the file system gives under its lock, and
//! the reader has that lock.
//!
//! # Why the reader's view stays whole
//! It holds the last commit. The next commit writes only to pages that this one does not have, because a cut may come. After the
//! next commit the view is replaced.

use super::backend::{Backend, Handle, Overlay, log};
use super::guard::guarded;
use super::rows::{StoreError, damaged};
use super::tables::{LookedAt, Tables};
use crate::format::UnitPlace;
use parking_lot::{Mutex, RwLock};
use redb::{CompactionError, Database, ReadableDatabase, StorageBackend};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compacted {
    /// The database was compacted.
    Done,
    /// Another thread reads or commits. Nothing has changed.
    Busy,
    /// Compaction is not worthwhile, or the place is full. All rows are unchanged.
    Failed,
}

/// See the module.
pub(super) struct Site {
    handle: Handle<dyn Backend>,
    cache_bytes: usize,
    database: RwLock<Arc<Database>>,
    /// One commit at a time.
    commit: Mutex<()>,
    /// The database that the rows are read from refuses everything.
    is_stuck: AtomicBool,
    /// True if the database was reopened. It does not track earlier views.
    was_opened_again: AtomicBool,
}

/// Of the bytes of a cache, those that the database keeps pages in; the others are for single rows and for extents.
pub(super) fn page_bytes(cache_bytes: usize) -> usize {
    cache_bytes - cache_bytes / ROWS_PART - cache_bytes / EXTENTS_PART
}

/// One in this number of bytes is for single rows.
const ROWS_PART: usize = 4;

/// One in this number of bytes is for extents.
const EXTENTS_PART: usize = 8;

fn open(backend: impl StorageBackend, cache_bytes: usize) -> Result<Database, StoreError> {
    let pages = page_bytes(cache_bytes);
    let open = || Database::builder().set_cache_size(pages).create_with_backend(backend);
    Ok(guarded(open).ok_or_else(|| damaged("it contradicts itself"))??)
}

impl Site {
    /// Opens the database that `backend` holds, or makes one where it is empty. If it is held, nothing becomes durable before it is
    /// [let go](Site::let_go).
    pub(super) fn open(
        backend: Arc<dyn Backend>,
        cache_bytes: usize,
        is_held: bool,
    ) -> Result<Site, StoreError> {
        let handle = Handle::new(backend);
        handle.hold(is_held);
        let database = open(handle.clone(), cache_bytes)?;
        Ok(Site::of(database, handle, cache_bytes))
    }

    /// The site of a database that was opened on `handle`.
    pub(super) fn of(database: Database, handle: Handle<dyn Backend>, cache_bytes: usize) -> Site {
        let database = RwLock::new(Arc::new(database));
        let (is_stuck, was_opened_again) = <(AtomicBool, AtomicBool)>::default();
        Site { handle, cache_bytes, database, commit: Mutex::new(()), is_stuck, was_opened_again }
    }

    /// Returns the batches of logged rows after number `covered`, which are not in the database. The log drops the others.
    ///
    /// # Errors
    /// If one of them is damaged.
    pub(super) fn rows_since(&self, covered: u64) -> Result<Vec<Arc<[u8]>>, StoreError> {
        let Some(log) = self.backend().log() else { return Ok(Vec::new()) };
        let rows = log::after(log.rows(), covered)?;
        log.forget_rows(covered);
        Ok(rows)
    }

    /// Makes rows durable in the log, together with the data in `units`.
    pub(super) fn append_rows(&self, units: &[UnitPlace], rows: &[u8]) -> Result<(), StoreError> {
        let _alone = self.commit.lock();
        Ok(self.backend().append_rows(units, rows)?)
    }

    /// What is written becomes durable from now on.
    pub(super) fn let_go(&self) {
        self.handle.hold(false);
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        self.handle.backend()
    }

    /// What was committed last.
    pub(super) fn tables(&self) -> Result<Tables, StoreError> {
        Tables::of(&self.database.read().begin_read()?)
    }

    /// What was committed last, from a database that was opened for it.
    pub(super) fn tables_again(&self) -> Result<Tables, StoreError> {
        let file = Overlay::new(self.handle.clone())?;
        let over = file.over();
        let looked_at = LookedAt { database: open(file, self.cache_bytes)?, over };
        let tables = Tables::of(&looked_at.database.begin_read()?)?;
        Ok(tables.keep(looked_at))
    }

    /// Compacts the database. If the place is full, the database is reopened in its last durable state.
    pub(super) fn compact(&self) -> Compacted {
        let mut database = self.database.write();
        match Arc::get_mut(&mut database).map(Database::compact) {
            None | Some(Err(CompactionError::TransactionInProgress)) => Compacted::Busy,
            Some(Ok(_)) => {
                // The database may truncate its file after its last sync. A failure is left to the next commit, which syncs as well.
                let _ = self.handle.sync_data();
                Compacted::Done
            }
            Some(Err(_)) => {
                // If this fails, the next commit reopens it.
                if let Ok(again) = self.open_again() {
                    *database = Arc::new(again);
                }
                Compacted::Failed
            }
        }
    }

    /// Opens the database in its last durable state, for writing. No commit may be running, and the previous database must have failed: it
    /// would otherwise write when it is dropped.
    fn open_again(&self) -> Result<Database, StoreError> {
        // Otherwise pages of the failed transaction would take the room of the next commit.
        self.handle.backend().forget_unsynced();
        self.was_opened_again.store(true, Ordering::Release);
        open(self.handle.clone(), self.cache_bytes)
    }

    /// True if the database was reopened after an error.
    pub(super) fn was_opened_again(&self) -> bool {
        self.was_opened_again.load(Ordering::Acquire)
    }

    /// Bytes for single rows in memory.
    pub(super) fn row_bytes(&self) -> u64 {
        (self.cache_bytes / ROWS_PART) as u64
    }

    /// Bytes for extents in memory.
    pub(super) fn extent_bytes(&self) -> u64 {
        (self.cache_bytes / EXTENTS_PART) as u64
    }

    /// Reads of the database's place by threads that had the file system's lock.
    pub(super) fn locked_reads(&self) -> u64 {
        self.handle.locked_reads()
    }

    /// Notes that the database refuses everything from now on, if the error is one of its file.
    pub(super) fn note(&self, error: StoreError) -> StoreError {
        if error.is_of_file() {
            self.is_stuck.store(true, Ordering::Release);
        }
        error
    }

    /// The tables to read from now on, if those before refuse everything. Where they cannot be had, that is not tried again
    /// before the next error.
    pub(super) fn return_from_error(&self) -> Option<Tables> {
        let is_stuck = self.is_stuck.load(Ordering::Acquire) && self.is_stuck.swap(false, Ordering::AcqRel);
        if is_stuck { self.tables_again().ok() } else { None }
    }

    /// Calls `commit` with the database. Where an earlier error of a reader was in the way, once more. A commit of the database syncs
    /// twice, its pages and then its header: here that is one sync.
    pub(super) fn commit<R>(
        &self,
        commit: impl Fn(&Database) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let _alone = self.commit.lock();
        let database = self.database.read().clone();
        let as_one = |database: &Database| self.handle.as_one(|| commit(database));
        let result = match as_one(&database) {
            Err(error) if error.is_of_earlier() => {
                // The database before writes nothing more: each of its calls is refused.
                let again = Arc::new(self.open_again()?);
                *self.database.write() = again.clone();
                // Readers of the one before are refused, too.
                self.is_stuck.store(true, Ordering::Release);
                as_one(&again)
            }
            result => result,
        };
        result.map_err(|error| self.note(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::super::backend::{Backend, BackendError, Memory};
    use super::Compacted;
    use parking_lot::Mutex;
    use redb::StorageBackend;
    use std::collections::BTreeSet;
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Bytes in memory of which some pages become unreadable.
    #[derive(Clone, Debug)]
    struct Holed(Memory, Arc<Mutex<BTreeSet<u64>>>);

    impl Backend for Holed {}

    impl StorageBackend for Holed {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let pages = offset / 4096..(offset + out.len() as u64).div_ceil(4096);
            match self.1.lock().range(pages).next() {
                Some(page) => Err(io::Error::other(format!("page {page} is gone"))),
                None => self.0.read(offset, out),
            }
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }
    }

    /// Bytes that become durable with a sync, which may fail.
    #[derive(Clone, Debug)]
    struct Synced {
        bytes: Memory,
        durable: Arc<Mutex<Vec<u8>>>,
        syncs: Arc<AtomicU64>,
        /// Number of syncs until they fail.
        syncs_left: Arc<AtomicU64>,
        /// Number of writes until the place is full.
        writes_left: Arc<AtomicU64>,
    }

    impl Backend for Synced {
        fn forget_unsynced(&self) {
            let durable = self.durable.lock();
            self.bytes.set_len(durable.len() as u64).unwrap();
            self.bytes.write(0, &durable).unwrap();
        }
    }

    impl StorageBackend for Synced {
        fn len(&self) -> io::Result<u64> {
            self.bytes.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.bytes.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.bytes.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let left = self.syncs_left.load(Ordering::Relaxed);
            if left == 0 {
                return Err(io::Error::other("the sync failed"));
            }
            self.syncs_left.store(left - 1, Ordering::Relaxed);
            let mut bytes = vec![0; self.bytes.len()? as usize];
            self.bytes.read(0, &mut bytes)?;
            *self.durable.lock() = bytes;
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let left = self.writes_left.load(Ordering::Relaxed);
            if left == 0 {
                return Err(BackendError::Full { needed: 1, usable: 0 }.into());
            }
            self.writes_left.store(left - 1, Ordering::Relaxed);
            self.bytes.write(offset, data)
        }
    }

    impl Synced {
        fn new() -> Synced {
            Synced {
                bytes: Memory::new(),
                durable: Arc::default(),
                syncs: Arc::default(),
                syncs_left: Arc::new(u64::MAX.into()),
                writes_left: Arc::new(u64::MAX.into()),
            }
        }

        /// Number of pages that differ from the durable ones.
        fn unsynced(&self) -> usize {
            let mut bytes = vec![0; self.bytes.len().unwrap() as usize];
            self.bytes.read(0, &mut bytes).unwrap();
            let durable = self.durable.lock();
            let pages = durable.len().max(bytes.len()).div_ceil(4096);
            let page = |of: &[u8], page: usize| of.chunks(4096).nth(page).map(<[u8]>::to_vec);
            (0..pages).filter(|&number| page(&bytes, number) != page(&durable, number)).count()
        }

        /// The rows that a cut would leave.
        fn after_cut(&self) -> Rows {
            let durable = self.durable.lock().clone();
            let memory = Memory::new();
            memory.set_len(durable.len() as u64).unwrap();
            memory.write(0, &durable).unwrap();
            Rows::open(memory, 1 << 20).unwrap()
        }
    }

    #[test]
    fn commit_syncs_once_and_is_not_durable_if_the_sync_fails() {
        let place = Synced::new();
        let mut rows = Rows::open(place.clone(), 1 << 20).unwrap();
        for number in 0..300 {
            (0..=number % 40).for_each(|value| rows.put(key(number * 40 + value), vec![7; 100]));
            let before = place.syncs.load(Ordering::Relaxed);
            let sealed = rows.seal().unwrap();
            if number % 10 == 9 {
                place.syncs_left.store(0, Ordering::Relaxed);
                assert!(sealed.commit().is_err());
                place.syncs_left.store(u64::MAX, Ordering::Relaxed);
                assert_eq!(place.after_cut().get(&key(number * 40)).unwrap(), None);
                // Its rows are here, and the next commit has them.
                assert!(rows.get(&key(number * 40)).unwrap().is_some());
            } else {
                let committed = sealed.commit().unwrap();
                rows.settled(committed);
                assert_eq!(place.syncs.load(Ordering::Relaxed), before + 1);
                assert!(place.after_cut().get(&key(number * 40)).unwrap().is_some());
                continue;
            }
            let committed = sealed.commit().unwrap();
            rows.settled(committed);
            assert!(place.after_cut().get(&key(number * 40)).unwrap().is_some());
        }
    }

    fn key(number: u32) -> Vec<u8> {
        [b'K'].into_iter().chain(number.to_be_bytes()).collect()
    }

    fn commit(rows: &mut Rows) {
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
    }

    /// Rows of which most were removed, so that a compaction moves many pages.
    fn sparse(place: &Synced) -> Rows {
        // Without a cache, so that each page is read when it is needed.
        let mut rows = Rows::open(place.clone(), 0).unwrap();
        for number in 0..4000 {
            rows.put(key(number), vec![7; 100]);
            if number % 500 == 499 {
                commit(&mut rows);
            }
        }
        (0..3600).for_each(|number| rows.delete(key(number)));
        commit(&mut rows);
        rows
    }

    fn count(rows: &Rows) -> usize {
        (0..4000).filter(|&number| rows.get(&key(number)).unwrap().is_some()).count()
    }

    #[test]
    fn compaction_that_a_full_place_refuses_leaves_the_rows_and_the_room_as_they_were() {
        let mut done = 0;
        for writes in [0, 1, 2, 3, 5, 8, 20, 50, 100, 200, 400, 1000, 4000] {
            let place = Synced::new();
            let mut rows = sparse(&place);
            place.writes_left.store(writes, Ordering::Relaxed);
            let compacted = rows.compactor().run().unwrap();
            place.writes_left.store(u64::MAX, Ordering::Relaxed);
            done += u32::from(compacted == Compacted::Done);
            assert_ne!(compacted, Compacted::Busy);
            // Opening marks the database as open. The failed transaction leaves no pages.
            assert!(place.unsynced() <= 2, "{writes} writes: {} pages", place.unsynced());
            assert_eq!((count(&rows), count(&place.after_cut())), (400, 400), "{writes} writes");
            rows.put(key(1), vec![1; 100]);
            commit(&mut rows);
            assert_eq!((count(&rows), count(&place.after_cut())), (401, 401), "{writes} writes");
        }
        assert!((1..13).contains(&done), "{done}");
    }

    #[test]
    fn compaction_with_a_failed_sync_loses_no_rows() {
        let (mut done, mut failed) = (0, 0);
        for syncs in 0.. {
            let place = Synced::new();
            let mut rows = sparse(&place);
            let before = place.syncs.load(Ordering::Relaxed);
            place.syncs_left.store(syncs, Ordering::Relaxed);
            let compacted = rows.compactor().run().unwrap();
            let is_whole = place.syncs.load(Ordering::Relaxed) - before <= syncs;
            place.syncs_left.store(u64::MAX, Ordering::Relaxed);
            match compacted {
                Compacted::Done => done += 1,
                Compacted::Failed => failed += 1,
                Compacted::Busy => panic!("there is no reader"),
            }
            assert_eq!((count(&rows), count(&place.after_cut())), (400, 400), "{syncs} syncs");
            rows.put(key(1), vec![1; 100]);
            commit(&mut rows);
            assert_eq!(count(&place.after_cut()), 401, "{syncs} syncs");
            drop(rows);
            assert_eq!(count(&place.after_cut()), 401, "{syncs} syncs");
            if is_whole {
                break;
            }
        }
        // The last sync is one after the database's own: without it the compaction is done all the same.
        assert!(failed > 1 && done == 2, "{failed} failed, {done} done");
    }

    #[test]
    fn compaction_beside_a_reader_is_busy_and_can_be_tried_again() {
        let place = Synced::new();
        let rows = sparse(&place);
        let layers = &rows.reader().0;
        let view = layers.site.tables().unwrap();
        assert_eq!(rows.compactor().run().unwrap(), Compacted::Busy);
        assert_eq!(count(&rows), 400);
        let before = place.len().unwrap();
        drop(view);
        assert_eq!(rows.compactor().run().unwrap(), Compacted::Done);
        assert!(place.len().unwrap() * 2 < before);
        assert_eq!((count(&rows), count(&place.after_cut())), (400, 400));
    }

    #[test]
    fn database_that_was_looked_at_is_dropped_without_a_panic_after_later_commits() {
        let place = Synced::new();
        let mut rows = sparse(&place);
        let site = &rows.reader().0;
        let looked_at = site.site.tables_again().unwrap();
        for round in 0..20 {
            (0..4000).for_each(|number| rows.put(key(number), vec![round; 100]));
            commit(&mut rows);
            (0..3600).for_each(|number| rows.delete(key(number)));
            commit(&mut rows);
        }
        assert_eq!(rows.compactor().run().unwrap(), Compacted::Done);
        drop(looked_at);
        assert_eq!(count(&rows), 400);
    }

    #[test]
    fn page_that_cannot_be_read_costs_its_own_rows_and_no_others() {
        const ROWS: u32 = 3000;
        let holed = Holed(Memory::new(), Arc::default());
        // Without a cache, so that each page is read when it is needed.
        let mut rows = Rows::open(holed.clone(), 0).unwrap();
        (0..ROWS).for_each(|number| rows.put(key(number), vec![7; 40]));
        commit(&mut rows);
        let pages = holed.0.len().unwrap() / 4096;
        let mut some_are_lost = 0;
        for page in 1..pages {
            holed.1.lock().insert(page);
            let read = |rows: &Rows| -> Vec<bool> {
                (0..ROWS).map(|number| rows.get(&key(number)).is_ok_and(|value| value.is_some())).collect()
            };
            let there = read(&rows);
            let lost = there.iter().filter(|there| !**there).count();
            // A leaf was lost: its rows are neighbours, and all others can be read and changed.
            if (1..500).contains(&lost) {
                some_are_lost += 1;
                let first = there.iter().position(|there| !there).unwrap();
                assert!(there[first..first + lost].iter().all(|there| !there), "page {page}");
                rows.put(key(ROWS + page as u32), vec![1; 40]);
                let sealed = rows.seal().unwrap();
                if let Ok(committed) = sealed.commit() {
                    rows.settled(committed);
                } else {
                    // The change needed the page. It waits, and is made once the page can be read.
                    holed.1.lock().clear();
                    let committed = sealed.commit().unwrap();
                    rows.settled(committed);
                }
                assert_eq!(rows.get(&key(ROWS + page as u32)).unwrap(), Some(vec![1; 40]), "page {page}");
            }
            holed.1.lock().clear();
            // The first read may still be told that the database had an error.
            assert!(read(&rows).iter().all(|there| *there), "page {page}");
        }
        assert!(some_are_lost > 10, "{some_are_lost}");
    }
}
