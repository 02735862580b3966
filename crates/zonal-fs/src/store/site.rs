//! The database of a store, and its return after a page that cannot be read.
//!
//! redb refuses everything after the first error of its file. One damaged page would cost all rows then. So a database that had
//! an error is opened again over the same file, while no commit is in flight: what it had committed is there, and so is what
//! waits in layers above it.

use super::backend::{Backend, Handle};
use super::guard::guarded;
use super::rows::{StoreError, damaged};
use super::tables::Tables;
use parking_lot::{Mutex, MutexGuard, RwLock};
use redb::{Database, ReadableDatabase};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub(super) struct Site {
    backend: Arc<dyn Backend>,
    cache_bytes: usize,
    database: RwLock<Arc<Database>>,
    /// One commit at a time, and no return meanwhile.
    commit: Mutex<()>,
    /// The database refuses everything.
    is_stuck: AtomicBool,
}

fn open(backend: &Arc<dyn Backend>, cache_bytes: usize) -> Result<Database, StoreError> {
    let handle = Handle(backend.clone());
    let open = || Database::builder().set_cache_size(cache_bytes).create_with_backend(handle);
    Ok(guarded(open).ok_or_else(|| damaged("it contradicts itself"))??)
}

impl Site {
    /// Opens the database that `backend` holds, or makes one where it is empty.
    pub(super) fn open(backend: Arc<dyn Backend>, cache_bytes: usize) -> Result<Site, StoreError> {
        let database = open(&backend, cache_bytes)?;
        Ok(Site::of(database, backend, cache_bytes))
    }

    pub(super) fn of(database: Database, backend: Arc<dyn Backend>, cache_bytes: usize) -> Site {
        let database = RwLock::new(Arc::new(database));
        Site { backend, cache_bytes, database, commit: Mutex::new(()), is_stuck: AtomicBool::new(false) }
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// What was committed last.
    pub(super) fn tables(&self) -> Result<Tables, StoreError> {
        Tables::of(&self.database.read().begin_read()?)
    }

    /// The database, for a caller that has it alone.
    pub(super) fn alone(&mut self) -> Option<&mut Database> {
        Arc::get_mut(self.database.get_mut())
    }

    /// Notes that the database had an error of its file, if this is one.
    pub(super) fn note(&self, error: StoreError) -> StoreError {
        if error.is_of_file() {
            self.is_stuck.store(true, Ordering::Release);
        }
        error
    }

    /// Opens the database again if it had an error, and no commit is in flight. Its tables, if that was done.
    pub(super) fn return_from_error(&self) -> Option<Tables> {
        if !self.is_stuck.load(Ordering::Acquire) {
            return None;
        }
        let commit = self.commit.try_lock()?;
        self.open_again(&commit).ok()?;
        self.tables().ok()
    }

    fn open_again(&self, _commit: &MutexGuard<'_, ()>) -> Result<(), StoreError> {
        // The one before writes nothing more: each of its calls is refused.
        let database = open(&self.backend, self.cache_bytes)?;
        *self.database.write() = Arc::new(database);
        self.is_stuck.store(false, Ordering::Release);
        Ok(())
    }

    /// Calls `commit` with the database. Where a reader's error was in the way, once more.
    pub(super) fn commit<R>(
        &self,
        commit: impl Fn(&Database) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let alone = self.commit.lock();
        if self.is_stuck.load(Ordering::Acquire) {
            self.open_again(&alone)?;
        }
        let database = self.database.read().clone();
        match commit(&database) {
            Err(error) if error.is_of_earlier() => {
                drop(database);
                self.open_again(&alone)?;
                let database = self.database.read().clone();
                commit(&database).map_err(|error| self.note(error))
            }
            result => result.map_err(|error| self.note(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::super::backend::{Backend, Memory};
    use parking_lot::Mutex;
    use redb::StorageBackend;
    use std::collections::BTreeSet;
    use std::io;
    use std::sync::Arc;

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

    fn key(number: u32) -> Vec<u8> {
        [b'K'].into_iter().chain(number.to_be_bytes()).collect()
    }

    fn commit(rows: &mut Rows) {
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed).unwrap();
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
                    rows.settled(committed).unwrap();
                } else {
                    // The change needed the page. It waits, and is made once the page can be read.
                    holed.1.lock().clear();
                    let committed = sealed.commit().unwrap();
                    rows.settled(committed).unwrap();
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
