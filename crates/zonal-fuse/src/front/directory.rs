//! Directory listings.
//!
//! The kernel keeps the listing of a directory in its page cache, and drops it when a name changes.
//! No other program changes names, so such a listing is never stale.
//!
//! # Why only one handle of a directory uses the cache
//! A reader continues at a position. If the name there was removed, and another reader has filled
//! the cache since, the position is not in the cache, and Linux asks the server. But if the cached
//! listing fills its last page to the end, Linux returns the end of the directory instead (seen
//! with 6.18), and the reader misses the rest. So while a handle that uses the cache is open, others
//! do not use it. The kernel's NFS server opens a directory again for each part of a listing, and
//! without `O_DIRECTORY`, so it never uses the cache.

use super::{Answer, Front, Outcome, body};
use crate::wire::dirent::Names;
use crate::wire::layout::{OpenIn, OpenOut, ReadIn, ReleaseIn};
use crate::wire::numbers::open;
use crate::wire::reply;
use rustix::fs::OFlags;
use std::ops::ControlFlow;
use zonal_fs::format::{Attributes, Entry, FileKind, Position};
use zonal_fs::{FoundFile, FsError};

/// Positions of `.` and `..`, before those of names.
const SELF: u64 = 1;
const PARENT: u64 = 2;

/// Handle of a directory that is read through the kernel's cache, and of one that is not.
const CACHING: u64 = 1;
const PLAIN: u64 = 0;

impl Front {
    /// Opens a directory. The kernel tracks open directories, and a directory that it knows
    /// persists here.
    pub(super) fn opendir(&self, ino: u64, asked: &OpenIn, reply: &mut Vec<u8>) -> Outcome {
        // Set by `opendir`.
        let is_program = OFlags::from_bits_retain(asked.flags).contains(OFlags::DIRECTORY);
        let (fh, open_flags) = match is_program && self.handles.start_caching(ino) {
            true => (CACHING, open::KEEP_CACHE | open::CACHE_DIR),
            false => (PLAIN, open::KEEP_CACHE),
        };
        body(&OpenOut { fh, open_flags, padding: 0 }, reply)
    }

    pub(super) fn releasedir(&self, ino: u64, asked: &ReleaseIn) -> Outcome {
        if asked.fh == CACHING {
            self.handles.stop_caching(ino);
        }
        Ok(Answer::Body)
    }

    /// Lists as many names as fit, starting after a position. With `with_entries` the reply has
    /// attributes, and the kernel then knows these files.
    pub(super) fn readdir(
        &self,
        ino: u64,
        asked: &ReadIn,
        with_entries: bool,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let mut names = Names::new(reply, asked.size as usize);
        let directory = self.fs.attributes(ino)?;
        for (position, name, file) in [(SELF, &b"."[..], ino), (PARENT, b"..", directory.parent)] {
            if asked.offset < position {
                if !names.fits(name.len(), with_entries) {
                    return Ok(Answer::Body);
                }
                // The kernel ignores entries of these.
                let none = with_entries.then(Default::default);
                names.put(file, position, mode_of(FileKind::Directory), name, none.as_ref());
            }
        }
        let after = Position(asked.offset.max(PARENT));
        if !with_entries {
            self.fs.list_from(ino, after, |position, name, entry| {
                if !names.fits(name.len(), false) {
                    return ControlFlow::Break(());
                }
                names.put(entry.ino, position.0, mode_of(entry.kind), name, None);
                ControlFlow::Continue(())
            })?;
            return Ok(Answer::Body);
        }
        // Files are looked up after the listing, which may hold locks that a look-up needs.
        let mut found: Vec<(Position, Box<[u8]>, Entry)> = Vec::new();
        let mut left = asked.size as usize;
        self.fs.list_from(ino, after, |position, name, entry| {
            let record = Names::record(name.len(), true);
            if record > left {
                return ControlFlow::Break(());
            }
            left -= record;
            found.push((position, name.into(), entry));
            ControlFlow::Continue(())
        })?;
        for (position, name, entry) in found {
            if !names.fits(name.len(), true) {
                break;
            }
            match self.fs.know(entry.ino) {
                Ok(attributes) => {
                    let out = self.entry(&FoundFile { ino: entry.ino, attributes });
                    names.put(entry.ino, position.0, reply::mode(&attributes), &name, Some(&out));
                }
                // The file was removed in the meantime.
                Err(FsError::NotFound) => {}
                Err(error) => {
                    // The kernel will look up this one itself, and its caller gets the error.
                    (self.log)(&format!("{}: {error}", self.named(entry.ino)));
                    names.put(entry.ino, position.0, mode_of(entry.kind), &name, Some(&Default::default()));
                }
            }
        }
        Ok(Answer::Body)
    }
}

fn mode_of(kind: FileKind) -> u32 {
    reply::mode(&Attributes::new(kind, 0, 0, Position::START, 0))
}
