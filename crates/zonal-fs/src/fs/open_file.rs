//! Open files: handles that close themselves.
//!
//! A file exists as long as it has a handle, even without names, and its write buffer collects
//! small writes. There are two ways to give up a handle. [`OpenFile::close`] sends the buffered
//! tail, for which it may have to wait. Dropping the handle never waits: the tail stays in memory
//! until the next sync, a later background step, or a read or write in its range sends it. The rest
//! of a large unnamed file is freed by later calls.

use super::FileSystem;
use super::core::{Core, Shared};
use super::error::FsError;
use crate::waiter::Wait;
use std::fmt;

/// Open file, from [`FileSystem::open_file`] or [`FileSystem::create_unnamed`]. An unnamed file is
/// deleted with its last handle.
///
/// Keeps the file system in memory, like a clone of it.
#[must_use = "dropping the handle closes the file"]
pub struct OpenFile {
    fs: FileSystem,
    ino: u64,
    /// True once the handle is no longer counted.
    is_closed: bool,
}

impl OpenFile {
    /// Creates the object for a handle that has been counted.
    pub(super) fn counted(fs: &FileSystem, ino: u64) -> OpenFile {
        OpenFile { fs: fs.clone(), ino, is_closed: false }
    }

    /// Number of the file.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Sends the buffered tail, or adds it to a combined unit, as [`close`](OpenFile::close) does.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`].
    pub fn send(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.fs.0.send_tail(waiter, self.ino)
    }

    /// Closes the file. The last handle sends the buffered tail or adds it to a combined unit.
    ///
    /// # Errors
    /// If the blocks of an unnamed file cannot be freed; [`FsError::ReadOnly`].
    pub fn close(mut self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.is_closed = true;
        self.fs.0.close_file(waiter, self.ino)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let mut core = self.fs.0.core.lock();
        core.give_up_handle(self.ino);
        let gone = core.end_use(self.ino);
        drop(core);
        if let Err(error) = self.fs.0.end_deletion(self.ino, gone, None) {
            // The error has no caller to go to, and the file's space is unaccounted for.
            self.fs.0.core.lock().make_read_only(&error);
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({})", self.ino)
    }
}

impl Shared {
    fn close_file(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        let is_last = self.core.lock().give_up_handle(ino);
        // The buffered data of an unnamed file is dropped with the file.
        let sent = if is_last { self.send_tail(waiter, ino) } else { Ok(()) };
        let gone = self.lock().end_use(ino);
        self.end_deletion(ino, gone, Some(waiter))?;
        sent
    }
}

impl Core {
    /// Gives up a handle of a file. Returns true if it was the last one of a named file.
    fn give_up_handle(&mut self, ino: u64) -> bool {
        let node = self.nodes.here(ino);
        node.is_some_and(|mut node| {
            node.handles = node.handles.saturating_sub(1);
            node.handles == 0 && node.attributes.links > 0
        })
    }
}
