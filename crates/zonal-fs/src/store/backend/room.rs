//! How full a database's file is.

use super::log::Log;
use crate::format::UnitPlace;
use crate::store::locked::Locked;
use redb::StorageBackend;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file for a database, with bounds. A sync makes durable all that was written before it, or nothing of it.
pub trait Backend: StorageBackend {
    /// How full the file is; `None` if nothing bounds it.
    fn room(&self) -> Option<Room> {
        None
    }

    /// Discards all writes since the last successful sync, as a crash does. No sync may be running.
    fn forget_unsynced(&self) {}

    /// Maximum number of bytes for [`Backend::append_rows`] now.
    fn row_room(&self) -> usize {
        0
    }

    /// Makes rows durable that are not in the database yet, together with the data in `units`, which were written to the same drive. Writes
    /// to the database still wait for the next sync.
    ///
    /// # Errors
    /// As for a sync.
    fn append_rows(&self, _units: &[UnitPlace], _rows: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The log that holds the file, if there is one.
    fn log(&self) -> Option<&Log> {
        None
    }
}

/// Pages of a bounded file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Room {
    /// In use.
    pub pages: u64,
    /// That can be in use, before the file gets more room.
    pub limit: u64,
    /// Blocks that the file can get at once, without the help of a file system.
    pub growth: u64,
    /// It grows by zones, which a file system gives.
    pub takes_zones: bool,
}

impl Backend for redb::backends::InMemoryBackend {}

/// A backend that the database shares with its rows.
#[derive(Debug)]
pub(in crate::insides::store) struct Handle<B: ?Sized> {
    backend: Arc<B>,
    locked_reads: Arc<AtomicU64>,
    /// Syncs do nothing.
    is_held: Arc<AtomicBool>,
}

impl<B: ?Sized> Clone for Handle<B> {
    fn clone(&self) -> Handle<B> {
        let Handle { backend, locked_reads, is_held } = self;
        Handle { backend: backend.clone(), locked_reads: locked_reads.clone(), is_held: is_held.clone() }
    }
}

impl<B: ?Sized> Handle<B> {
    pub(in crate::insides::store) fn new(backend: Arc<B>) -> Handle<B> {
        Handle { backend, locked_reads: Arc::default(), is_held: Arc::default() }
    }

    pub(in crate::insides::store) fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// Whether syncs do nothing from now on. What is written meanwhile becomes durable with the first sync after that, or never.
    pub(in crate::insides::store) fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Release);
    }

    /// Does what syncs several times, and syncs once, after it. Each sync is atomic, so the others order nothing.
    pub(in crate::insides::store) fn as_one<R, E: From<io::Error>>(
        &self,
        act: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E>
    where
        B: StorageBackend,
    {
        let result = {
            let _held = Held { is_held: &self.is_held, was_held: self.is_held.swap(true, Ordering::AcqRel) };
            act()?
        };
        self.sync_data()?;
        Ok(result)
    }

    /// Reads by threads that had the file system's lock.
    pub(in crate::insides::store) fn locked_reads(&self) -> u64 {
        self.locked_reads.load(Ordering::Relaxed)
    }
}

/// Syncs do nothing before it is dropped.
struct Held<'a> {
    is_held: &'a AtomicBool,
    was_held: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.is_held.store(self.was_held, Ordering::Release);
    }
}

impl<B: StorageBackend + ?Sized> StorageBackend for Handle<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if Locked::is_held() {
            self.locked_reads.fetch_add(1, Ordering::Relaxed);
        }
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.is_held.load(Ordering::Acquire) { Ok(()) } else { self.backend.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}
