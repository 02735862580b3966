//! Handles of open files.

use parking_lot::Mutex;
use slab::Slab;
use std::collections::{HashMap, HashSet};
use zonal_fs::OpenFile;

/// Handles of a mount, and the state of files with handles.
#[derive(Default)]
pub(super) struct Handles(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    open: Slab<Handle>,
    /// Number of writing handles, for each file with any.
    writers: HashMap<u64, u32>,
    /// Files that may have capabilities, which a write removes.
    capable: HashSet<u64>,
    /// Files that have lost written data, with the error for the next write.
    lost: HashMap<u64, i32>,
    /// Directories with a handle that uses the kernel's cache of the listing.
    caching: HashSet<u64>,
}

struct Handle {
    file: OpenFile,
    writes: bool,
    mode: CacheMode,
}

/// Access through the page cache or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CacheMode {
    /// Reads and writes use the kernel's page cache.
    Cached,
    /// Reads and writes bypass it.
    Direct,
}

impl Handles {
    /// Adds an open file and returns the number of its handle.
    pub(super) fn put(&self, file: OpenFile, writes: bool, mode: CacheMode) -> u64 {
        let mut inner = self.0.lock();
        if writes {
            *inner.writers.entry(file.ino()).or_default() += 1;
        }
        inner.open.insert(Handle { file, writes, mode }) as u64
    }

    /// Removes a handle and returns its file.
    pub(super) fn take(&self, handle: u64) -> Option<OpenFile> {
        let mut inner = self.0.lock();
        let Handle { file, writes, .. } = inner.open.try_remove(usize::try_from(handle).ok()?)?;
        if writes {
            let ino = file.ino();
            let left = inner.writers.get_mut(&ino).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                inner.writers.remove(&ino);
                inner.capable.remove(&ino);
                inner.lost.remove(&ino);
            }
        }
        Some(file)
    }

    /// Access mode of a handle.
    pub(super) fn mode(&self, handle: u64) -> Option<CacheMode> {
        Some(self.0.lock().open.get(usize::try_from(handle).ok()?)?.mode)
    }

    /// True if the kernel may have unwritten data of a file.
    pub(super) fn has_writers(&self, ino: u64) -> bool {
        self.0.lock().writers.contains_key(&ino)
    }

    /// Records that a file may have capabilities.
    pub(super) fn note_capabilities(&self, ino: u64) {
        self.0.lock().capable.insert(ino);
    }

    /// Records that written data of a file was lost.
    pub(super) fn note_loss(&self, ino: u64, errno: i32) {
        let mut inner = self.0.lock();
        if inner.writers.contains_key(&ino) {
            inner.lost.insert(ino, errno);
        }
    }

    /// True if the next write to a file must report a loss.
    pub(super) fn has_loss(&self, ino: u64) -> bool {
        self.0.lock().lost.contains_key(&ino)
    }

    /// Returns and clears the error of lost data.
    pub(super) fn take_loss(&self, ino: u64) -> Option<i32> {
        self.0.lock().lost.remove(&ino)
    }

    /// Marks a directory as having a handle that uses the kernel's cache. Returns false if it has
    /// one already.
    pub(super) fn start_caching(&self, ino: u64) -> bool {
        self.0.lock().caching.insert(ino)
    }

    /// The handle of a directory that used the kernel's cache was closed.
    pub(super) fn stop_caching(&self, ino: u64) {
        self.0.lock().caching.remove(&ino);
    }

    /// True once for each file that may have capabilities; they are removed then.
    pub(super) fn take_capabilities(&self, ino: u64) -> bool {
        let mut inner = self.0.lock();
        !inner.capable.is_empty() && inner.capable.remove(&ino)
    }
}
