//! Handles of open files.

use parking_lot::Mutex;
use slab::Slab;
use std::collections::{HashMap, HashSet};
use zonal_fs::OpenFile;

/// The handles of a mount, and what is known of files that have some.
#[derive(Default)]
pub(super) struct Handles(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    open: Slab<Handle>,
    /// Handles that write, of each file that has some.
    writers: HashMap<u64, u32>,
    /// Files that may have capabilities, which a write takes away.
    capable: HashSet<u64>,
    /// Files of which bytes were lost that programs had written, with the error that the next write is to have.
    lost: HashMap<u64, i32>,
}

struct Handle {
    file: OpenFile,
    writes: bool,
    how: How,
}

/// How a file is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// Its bytes are read and written by way of the kernel's page cache.
    Cached,
    /// They go past it.
    Direct,
}

impl Handles {
    /// Keeps a file open; the number of its handle.
    pub(super) fn put(&self, file: OpenFile, writes: bool, how: How) -> u64 {
        let mut inner = self.0.lock();
        if writes {
            *inner.writers.entry(file.ino()).or_default() += 1;
        }
        inner.open.insert(Handle { file, writes, how }) as u64
    }

    /// The file of a handle, which is a handle no more.
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

    /// How the file of a handle is open.
    pub(super) fn how(&self, handle: u64) -> Option<How> {
        Some(self.0.lock().open.get(usize::try_from(handle).ok()?)?.how)
    }

    /// Whether the kernel may have bytes of a file that were not written yet.
    pub(super) fn has_writers(&self, ino: u64) -> bool {
        self.0.lock().writers.contains_key(&ino)
    }

    /// A file may have capabilities.
    pub(super) fn note_capabilities(&self, ino: u64) {
        self.0.lock().capable.insert(ino);
    }

    /// Bytes of a file were lost that programs had written.
    pub(super) fn note_loss(&self, ino: u64, errno: i32) {
        let mut inner = self.0.lock();
        if inner.writers.contains_key(&ino) {
            inner.lost.insert(ino, errno);
        }
    }

    /// Whether the next write to a file is to hear of a loss.
    pub(super) fn has_loss(&self, ino: u64) -> bool {
        self.0.lock().lost.contains_key(&ino)
    }

    /// The error of bytes of a file that were lost since this was last asked for.
    pub(super) fn take_loss(&self, ino: u64) -> Option<i32> {
        self.0.lock().lost.remove(&ino)
    }

    /// Whether a file may have had capabilities until now: they are taken away once.
    pub(super) fn take_capabilities(&self, ino: u64) -> bool {
        let mut inner = self.0.lock();
        !inner.capable.is_empty() && inner.capable.remove(&ino)
    }
}
