//! Negotiation with the kernel in the first request.

use super::layout::{InitIn, InitOut};
use super::numbers::init::*;

/// Major version of the protocol.
pub const MAJOR: u32 = 7;

/// Newest supported minor version.
pub const MINOR: u32 = 45;

/// Oldest supported minor version: that of Linux 5.4, which allows requests of up to 256 pages and
/// has `RENAME2`, `LSEEK` and `COPY_FILE_RANGE`.
pub const MINOR_MIN: u32 = 31;

/// Page size, in bytes, of the kernel's limits.
pub const PAGE_BYTES: u32 = 4096;

/// Wanted parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The kernel may report a write as done once the data is in its page cache.
    pub writeback: bool,
    /// Maximum number of pages per request. The kernel may allow fewer.
    pub pages: u16,
    /// Maximum number of requests in flight from the page cache and of asynchronous direct ones.
    pub background: u16,
}

/// Negotiated parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    /// Reply to the kernel.
    pub answer: InitOut,
    /// Flags supported by both sides.
    pub flags: u64,
}

impl Agreed {
    /// True if all of these flags are supported by both sides.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// Maximum length of a write, in bytes.
    pub fn max_write(&self) -> u32 {
        self.answer.max_write
    }
}

/// Negotiates with the kernel.
///
/// # Errors
/// The kernel is too old.
pub fn negotiate(asked: &InitIn, wanted: &Wanted) -> Result<Agreed, String> {
    let InitIn { major, minor, max_readahead, .. } = *asked;
    if major != MAJOR || minor < MINOR_MIN {
        return Err(format!(
            "the kernel has FUSE {major}.{minor}, but {MAJOR}.{MINOR_MIN} or later is required (Linux 5.4)"
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
    // Without the flag the limit is 32 pages.
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
