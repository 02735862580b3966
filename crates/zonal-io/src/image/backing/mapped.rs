//! Shared mapping of a range of a file: a store goes directly into the operating system's cache.
//!
//! Where a write would return an error, a store faults: if its page has no block and the file
//! system is full, if the page cannot be read, if the file system is gone, or if the file was
//! truncated. Such a store returns an error and does not end the process ([`SharedMapping`]). A
//! range is mapped only on file systems that overwrite in place, so a full file system does not
//! matter.

use crate::mapping::SharedMapping;
use rustix::fs::{FsWord, fstatfs};
use rustix::io::Errno;
use rustix::mm::mlock;
use rustix::param::page_size;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Magic numbers of file systems that overwrite in place: ext2 to ext4, XFS, tmpfs.
const OVERWRITING: [FsWord; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// Mapping of a range; see the module.
#[derive(Debug)]
pub(super) struct Mapped {
    mapping: SharedMapping,
    /// Range of the file in bytes.
    range: Range<u64>,
}

impl Mapped {
    /// Maps `range` of `file`, which has allocated blocks. Returns `None` if stores might fail or
    /// the file cannot be mapped.
    pub(super) fn new(file: &File, range: Range<u64>) -> Option<Mapped> {
        if !OVERWRITING.contains(&fstatfs(file).ok()?.f_type) || range.end > file.metadata().ok()?.len() {
            return None;
        }
        let start = range.start - range.start % page_size() as u64;
        let len = usize::try_from(range.end - start).ok().filter(|&len| len > 0)?;
        let mapping = SharedMapping::new(file, start, len).ok()?;
        // A child process would keep the file locked through the mapping. Without effect for
        // children that execute another program.
        mapping.hide_from_children();
        // Keeps stores from waiting for a page to be read. Under a lower limit, some may wait.
        // SAFETY: the range is mapped.
        let _ = unsafe { mlock(mapping.base().as_ptr().cast(), len) };
        Some(Mapped { mapping, range: start..range.end })
    }

    /// Stores `word` at byte `at` of the file, a multiple of 8. Returns `None` if it is outside the
    /// range.
    #[inline]
    pub(super) fn store(&self, at: u64, word: u64) -> Option<io::Result<()>> {
        let is_inside = self.range.contains(&at) && self.range.end - at >= 8 && at.is_multiple_of(8);
        if !is_inside {
            return None;
        }
        // SAFETY: in bounds, and aligned because the base is page-aligned. Other processes only
        // read the file.
        let place = unsafe {
            AtomicU64::from_ptr(self.mapping.base().as_ptr().add((at - self.range.start) as usize).cast())
        };
        place.store(word.to_le(), Ordering::Release);
        // Once lost, the mapping is private memory, and stores do not reach the file.
        Some(if self.mapping.is_lost() { Err(Errno::IO.into()) } else { Ok(()) })
    }
}
