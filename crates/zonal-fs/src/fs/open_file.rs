//! A file that is open: a handle that closes itself.
//!
//! While a file has a handle it stays, whatever happens to its names, and its write buffer collects small writes. The caller
//! gives a handle up in two ways. [`OpenFile::close`] sends the buffered tail, for which it may have to wait. Dropping waits for
//! nothing: the tail stays in memory. The next sync, a later background step, or a read or write there sends it.

use super::FileSystem;
use super::core::{Core, Shared};
use super::error::FsError;
use crate::waiter::Wait;
use std::fmt;

/// An open file, from [`FileSystem::open_file`] or [`FileSystem::create_unnamed`]. A file without a name goes with the last of
/// them.
///
/// It keeps the file system in memory, as a clone of it does.
#[must_use = "a handle that is dropped closes its file"]
pub struct OpenFile {
    fs: FileSystem,
    ino: u64,
    /// The handle does not count any more.
    is_closed: bool,
}

impl OpenFile {
    /// A handle that has been counted.
    pub(super) fn counted(fs: &FileSystem, ino: u64) -> OpenFile {
        OpenFile { fs: fs.clone(), ino, is_closed: false }
    }

    /// The number of the file.
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

    /// Closes the file. With its last handle the buffered tail has been sent when this returns, or waits with other short pieces for more.
    ///
    /// # Errors
    /// If the blocks of a file without a name cannot be freed; [`FsError::ReadOnly`].
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
        if let Err(error) = core.end_use(self.ino) {
            // The caller is not there to be told, and what the file left cannot be accounted for.
            core.die(&error);
        }
        let gone = core.gone.mark();
        drop(core);
        if let Err(error) = self.fs.0.free_gone(gone, None) {
            self.fs.0.core.lock().die(&error);
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
        // Of a file without a name nothing is sent: it goes.
        let sent = if is_last { self.send_tail(waiter, ino) } else { Ok(()) };
        let gone = {
            let mut core = self.lock();
            core.end_use(ino)?;
            core.gone.mark()
        };
        self.free_gone(gone, Some(waiter))?;
        sent
    }
}

impl Core {
    /// A handle of a file does not count any more; whether it was the last one of a file with a name.
    fn give_up_handle(&mut self, ino: u64) -> bool {
        let node = self.nodes.here(ino);
        node.is_some_and(|mut node| {
            node.handles = node.handles.saturating_sub(1);
            node.handles == 0 && node.attributes.links > 0
        })
    }
}
