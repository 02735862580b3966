//! A range of a file in memory, shared with every process that has the file open: a store is in the operating system's cache
//! at once.
//!
//! A store finds no page where a write would return an error: if its page has no block in the file system and none is left, if it
//! cannot be read back, if the file system is gone, or if somebody has truncated the file. Such a store is an error and does not end the
//! process ([`SharedMapping`]). A range is mapped only on a file system that needs no new block to overwrite an old one, so that a full
//! one is no such case.

use crate::mapping::SharedMapping;
use rustix::fs::{FsWord, fstatfs};
use rustix::io::Errno;
use rustix::mm::mlock;
use rustix::param::page_size;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of file systems that overwrite a written block in its place: ext2 to ext4, XFS, tmpfs.
const OVERWRITING: [FsWord; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// See the module.
#[derive(Debug)]
pub(super) struct Mapped {
    mapping: SharedMapping,
    /// Bytes of the file.
    range: Range<u64>,
}

impl Mapped {
    /// Maps `range` of `file`, whose bytes have their blocks. `None` where stores may fail, or the file cannot be mapped.
    pub(super) fn new(file: &File, range: Range<u64>) -> Option<Mapped> {
        if !OVERWRITING.contains(&fstatfs(file).ok()?.f_type) || range.end > file.metadata().ok()?.len() {
            return None;
        }
        let start = range.start - range.start % page_size() as u64;
        let len = usize::try_from(range.end - start).ok().filter(|&len| len > 0)?;
        let mapping = SharedMapping::new(file, start, len).ok()?;
        // Another process would hold the file's lock by it. Without effect for those that begin with a program of their own.
        mapping.hide_from_children();
        // So that no store waits for a page to be read. Where the limit is lower, some may.
        // SAFETY: the range is mapped.
        let _ = unsafe { mlock(mapping.base().as_ptr().cast(), len) };
        Some(Mapped { mapping, range: start..range.end })
    }

    /// Stores `word` at byte `at` of the file, a multiple of 8. Returns `None` if that does not lie in the range.
    #[inline]
    pub(super) fn store(&self, at: u64, word: u64) -> Option<io::Result<()>> {
        let is_inside = self.range.contains(&at) && self.range.end - at >= 8 && at.is_multiple_of(8);
        if !is_inside {
            return None;
        }
        // SAFETY: in bounds and aligned, because the base is a page's. Other processes only read the file.
        let place = unsafe {
            AtomicU64::from_ptr(self.mapping.base().as_ptr().add((at - self.range.start) as usize).cast())
        };
        place.store(word.to_le(), Ordering::Release);
        // Once lost, the mapping is memory of this process, and no store reaches the file.
        Some(if self.mapping.is_lost() { Err(Errno::IO.into()) } else { Ok(()) })
    }
}
