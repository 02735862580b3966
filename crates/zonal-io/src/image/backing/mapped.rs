//! A range of a file in memory, shared with every process that has the file open: a store is in the operating system's cache
//! at once.
//!
//! A store can end the process (SIGBUS) where a write would return an error: if its page has no block in the file system and
//! none is left, if it cannot be read back, or if the file system is gone. So a range is mapped only on a file system that
//! needs no new block to overwrite an old one.

use rustix::fs::{FsWord, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};
use rustix::param::page_size;
use std::fs::File;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of file systems that overwrite a written block in its place: ext2 to ext4, XFS, tmpfs.
const OVERWRITING: [FsWord; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// See the module.
#[derive(Debug)]
pub(super) struct Mapped {
    base: NonNull<u8>,
    len: usize,
    /// Bytes of the file.
    range: Range<u64>,
}

// SAFETY: the memory belongs to this value until it is dropped, and is reached by atomic stores alone.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `range` of `file`, whose bytes have their blocks. `None` where stores may fail, or the file cannot be mapped.
    pub(super) fn new(file: &File, range: Range<u64>) -> Option<Mapped> {
        if !OVERWRITING.contains(&fstatfs(file).ok()?.f_type) || range.end > file.metadata().ok()?.len() {
            return None;
        }
        let start = range.start - range.start % page_size() as u64;
        let len = usize::try_from(range.end - start).ok().filter(|&len| len > 0)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks addresses that nothing else uses.
        let base = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, file, start) }.ok()?;
        let mapped = Mapped { base: NonNull::new(base.cast())?, len, range: start..range.end };
        // Another process would hold the file's lock by it. Without effect for those that begin with a program of their own.
        // SAFETY: the range was just mapped.
        let _ = unsafe { madvise(base, len, Advice::LinuxDontFork) };
        // So that no store waits for a page to be read. Where the limit is lower, some may.
        // SAFETY: the range was just mapped.
        let _ = unsafe { mlock(base, len) };
        Some(mapped)
    }

    /// Stores `word` at byte `at` of the file, a multiple of 8. Whether that lies in the range.
    #[inline]
    pub(super) fn store(&self, at: u64, word: u64) -> bool {
        let is_inside = self.range.contains(&at) && self.range.end - at >= 8 && at.is_multiple_of(8);
        if is_inside {
            // SAFETY: in bounds and aligned, because the base is a page's. Other processes only read the file.
            let place = unsafe {
                AtomicU64::from_ptr(self.base.as_ptr().add((at - self.range.start) as usize).cast())
            };
            place.store(word.to_le(), Ordering::Release);
        }
        is_inside
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference to it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
