//! What a kernel and this side agree upon in the first request.

use super::layout::{InitIn, InitOut};
use super::numbers::init::*;

/// The major version that is spoken.
pub const MAJOR: u32 = 7;

/// The newest minor version that is spoken.
pub const MINOR: u32 = 45;

/// The oldest minor version that is spoken: that of Linux 5.4, since which a request has up to 256 pages and a `RENAME2`, an `LSEEK` and a
/// `COPY_FILE_RANGE`.
pub const MINOR_MIN: u32 = 31;

/// Bytes of a page, in which the kernel counts.
pub const PAGE_BYTES: u32 = 4096;

/// What this side wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The kernel may tell a caller that bytes are written when they are in its page cache.
    pub writeback: bool,
    /// Pages of a request at most; the kernel may allow fewer.
    pub pages: u16,
    /// Requests of the page cache, and direct ones that a caller does not wait for, that the kernel has under way at most.
    pub background: u16,
}

/// What was agreed upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    /// The answer.
    pub answer: InitOut,
    /// Flags that both sides know.
    pub flags: u64,
}

impl Agreed {
    /// Whether all of these flags were agreed upon.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// Bytes of a write at most.
    pub fn max_write(&self) -> u32 {
        self.answer.max_write
    }
}

/// Answers a kernel's first request.
///
/// # Errors
/// If the kernel is too old.
pub fn negotiate(asked: &InitIn, wanted: &Wanted) -> Result<Agreed, String> {
    let InitIn { major, minor, max_readahead, .. } = *asked;
    if major != MAJOR || minor < MINOR_MIN {
        return Err(format!(
            "the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MIN} or later is needed, which Linux has since 5.4"
        ));
    }
    let mut takes = ASYNC_READ
        | EXPORT_SUPPORT
        | BIG_WRITES
        | DONT_MASK
        | DO_READDIRPLUS
        | READDIRPLUS_AUTO
        | ASYNC_DIO
        | PARALLEL_DIROPS
        | POSIX_ACL
        | ABORT_ERROR
        | MAX_PAGES
        | CACHE_SYMLINKS
        | EXPLICIT_INVAL_DATA
        | HANDLE_KILLPRIV_V2
        | SETXATTR_EXT
        | INIT_EXT;
    if wanted.writeback {
        takes |= WRITEBACK_CACHE | DIRECT_IO_ALLOW_MMAP;
    }
    let second = if u64::from(asked.flags) & INIT_EXT != 0 { asked.flags2 } else { 0 };
    let flags = takes & (u64::from(asked.flags) | u64::from(second) << 32);
    // Without the flag the kernel takes 32 pages.
    let pages = if flags & MAX_PAGES != 0 { wanted.pages.max(1) } else { 32 };
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR.min(minor),
        max_readahead: max_readahead.max(u32::from(pages) * PAGE_BYTES),
        flags: flags as u32,
        max_background: wanted.background,
        congestion_threshold: wanted.background - wanted.background / 4,
        max_write: u32::from(pages) * PAGE_BYTES,
        time_gran: 1,
        max_pages: pages,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    };
    Ok(Agreed { answer, flags })
}
