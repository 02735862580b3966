//! A database over bytes that the operating system, or a test's twin, keeps behind a cache.
//!
//! After a failed sync nothing is known of what was written since the last good one, and a later success proves nothing:
//! the handle takes no more writes.

use super::error::BackendError;
use super::paged::PAGE;
use super::room::{Backend, Room};
use redb::StorageBackend;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_io::image::backing::Backing;

/// The bytes of a [`Backing`] from an offset on.
pub struct Over {
    backing: Arc<dyn Backing>,
    /// Bytes before the database's, which are somebody else's.
    base: u64,
    has_failed: AtomicBool,
}

impl Over {
    /// All of `backing` but its first `base` bytes, which it has to have.
    pub fn new(backing: Arc<dyn Backing>, base: u64) -> Over {
        Over { backing, base, has_failed: AtomicBool::new(false) }
    }

    fn sound(&self) -> io::Result<()> {
        if self.has_failed.load(Ordering::Acquire) { Err(BackendError::Failed.into()) } else { Ok(()) }
    }
}

impl fmt::Debug for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Over").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Backend for Over {
    fn room(&self) -> Option<Room> {
        let most = self.backing.room().ok().flatten()?;
        let pages = self.len().ok()? / PAGE as u64;
        Some(Room::reach(pages, most.saturating_sub(self.base) / PAGE as u64))
    }
}

impl StorageBackend for Over {
    fn len(&self) -> io::Result<u64> {
        Ok(self.backing.len()?.saturating_sub(self.base))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backing.read_at(out, self.base + offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.sound()?;
        let before = self.len()?;
        self.backing.set_len(self.base + len)?;
        if len > before {
            self.backing.zero(self.base + before, len - before)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sound()?;
        self.backing.sync().inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.sound()?;
        self.backing.write_at(data, self.base + offset)
    }
}
