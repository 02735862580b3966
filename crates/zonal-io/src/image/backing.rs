//! Storage of an image's bytes: a file, or in tests a twin that forgets unsynced data.
//!
//! The image accesses storage only through this trait, so a test can intercept every call.

mod cache;
mod mapped;
mod parts;
pub mod twin;

pub use cache::CacheId;
pub(crate) use parts::Parts;

use mapped::Mapped;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::OnceLock;

/// Bytes at fixed addresses behind a volatile cache.
///
/// Reads return all completed writes. Writes become durable only with a later successful
/// [`sync`](Backing::sync); until then any part of them may be lost, in any order, in units of 512
/// bytes. Calls may be concurrent.
#[expect(clippy::len_without_is_empty, reason = "the length of a file, not of a collection")]
pub trait Backing: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// Those of the operating system, as for all calls below.
    fn len(&self) -> io::Result<u64>;

    /// Truncates or extends to `len` bytes; new bytes read as zeroes.
    ///
    /// # Errors
    /// EFBIG if the file system's limit is lower.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Fills `buf` from `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the range exceeds the end.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()>;

    /// Fills `buf` from `at` if this is possible without waiting for a medium. Returns false
    /// otherwise, and `buf` is then undefined.
    fn read_at_once(&self, buf: &mut [u8], at: u64) -> bool {
        let _ = (buf, at);
        false
    }

    /// Writes all of `buf` at `at`.
    ///
    /// # Errors
    /// After an error, any part of the range may have been written.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()>;

    /// Writes `pieces` consecutively from `at`.
    ///
    /// # Errors
    /// As for [`write_at`](Backing::write_at).
    fn write_vectored_at(&self, pieces: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let mut at = at;
        for piece in pieces {
            self.write_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes `len` bytes from `at` read as zeroes.
    ///
    /// # Errors
    /// As for [`write_at`](Backing::write_at).
    fn zero(&self, at: u64, len: u64) -> io::Result<()>;

    /// Deallocates `len` bytes from `at`, which will not be read any more. May do nothing.
    fn discard(&self, at: u64, len: u64);

    /// Total size that the file can presently reach; `None` if unknown.
    ///
    /// # Errors
    /// Those of the operating system.
    fn room(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Identity of the cache that holds unsynced writes; `None` if unknown.
    fn cache(&self) -> Option<CacheId> {
        None
    }

    /// Prepares `range`, which has been written, for fast calls of [`store`](Backing::store), if
    /// possible.
    fn map(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Writes one little-endian word at `at`, a multiple of 8.
    ///
    /// # Errors
    /// After an error, the word may have been written.
    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        self.write_at(&word.to_le_bytes(), at)
    }

    /// Makes all writes and stores that returned before the call durable.
    ///
    /// # Errors
    /// After an error, any write since the last success may be lost.
    fn sync(&self) -> io::Result<()>;
}

/// Backing by a file.
#[derive(Debug)]
pub struct FileBacking {
    file: File,
    mapped: OnceLock<Option<Mapped>>,
    /// Set once the file system was found not to know `RWF_NOWAIT`: true if it is in memory.
    is_in_memory: OnceLock<bool>,
}

/// Type of a file system without a medium: `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Maximum number of pieces in one vectored write: the limit of Linux.
const PIECES_MAX: usize = 1024;

/// Source for writing zeroes where the file system cannot punch holes.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

impl FileBacking {
    /// Uses `file`, which has to be open for reading and writing.
    pub const fn new(file: File) -> FileBacking {
        FileBacking { file, mapped: OnceLock::new(), is_in_memory: OnceLock::new() }
    }

    /// Returns the file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    fn punch(&self, at: u64, len: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(
                &self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                at,
                len,
            ) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }
}

impl Backing for FileBacking {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, at)
    }

    fn read_at_once(&self, buf: &mut [u8], at: u64) -> bool {
        if self.is_in_memory.get().is_none() {
            let len = buf.len();
            let flags = ReadWriteFlags::NOWAIT;
            let result = rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buf)], at, flags);
            if result != Err(Errno::OPNOTSUPP) {
                // All other cases, errors included, are left to the call that may wait.
                return result == Ok(len);
            }
        }
        let is_tmpfs = || rustix::fs::fstatfs(&self.file).is_ok_and(|found| found.f_type == TMPFS);
        *self.is_in_memory.get_or_init(is_tmpfs) && self.read_at(buf, at).is_ok()
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(buf, at)
    }

    fn write_vectored_at(&self, pieces: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let (mut pieces, mut at) = (pieces, at);
        while !pieces.is_empty() {
            let batch = pieces.len().min(PIECES_MAX);
            match rustix::io::pwritev(&self.file, &pieces[..batch], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    IoSlice::advance_slices(&mut pieces, n);
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        match self.punch(at, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            other => return Ok(other?),
        }
        let end = at + len;
        let mut at = at;
        while at < end {
            let n = (end - at).min(ZEROES.len() as u64);
            self.file.write_all_at(&ZEROES[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) {
        // These bytes are not read any more, so a failure only costs space.
        let _ = self.punch(at, len);
    }

    fn room(&self) -> io::Result<Option<u64>> {
        let host = rustix::fs::fstatvfs(&self.file)?;
        // Holes have no space yet.
        let own = self.file.metadata()?.blocks() * 512;
        Ok(Some(host.f_bavail.saturating_mul(host.f_frsize).saturating_add(own)))
    }

    fn cache(&self) -> Option<CacheId> {
        CacheId::of(&self.file)
    }

    fn map(&self, range: Range<u64>) {
        self.mapped.get_or_init(|| Mapped::new(&self.file, range));
    }

    #[inline]
    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        let mapped = self.mapped.get().and_then(Option::as_ref);
        let stored = mapped.and_then(|mapped| mapped.store(at, word));
        stored.unwrap_or_else(|| self.write_at(&word.to_le_bytes(), at))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing() -> FileBacking {
        let b = FileBacking::new(tempfile::tempfile().unwrap());
        b.set_len(1 << 20).unwrap();
        b
    }

    #[test]
    fn vectored_write_beyond_the_piece_limit_lands_whole() {
        let b = backing();
        let bytes: Vec<u8> = (0..3 * PIECES_MAX).map(|i| (i % 251) as u8).collect();
        let mut pieces: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
        b.write_vectored_at(&mut pieces, 77).unwrap();
        let mut back = vec![0; bytes.len()];
        b.read_at(&mut back, 77).unwrap();
        assert_eq!(back, bytes);
    }

    #[test]
    fn zero_reads_as_zeroes_and_keeps_the_length() {
        let b = backing();
        b.write_at(&[7; 8192], 4096).unwrap();
        b.zero(4096 + 512, 4096).unwrap();
        let mut back = [1; 8192];
        b.read_at(&mut back, 4096).unwrap();
        assert!(back[..512].iter().all(|&x| x == 7));
        assert!(back[512..4608].iter().all(|&x| x == 0));
        assert!(back[4608..].iter().all(|&x| x == 7));
        assert_eq!(b.len().unwrap(), 1 << 20);
    }

    #[test]
    fn read_at_once_returns_cached_data_or_nothing() {
        let b = backing();
        b.write_at(&[7; 8192], 4096).unwrap();
        let mut back = [0; 8192];
        assert!(!b.read_at_once(&mut back, (1 << 20) - 4096), "the end comes first");
        if b.read_at_once(&mut back, 4096) {
            assert_eq!(back, [7; 8192]);
        }
    }

    #[test]
    fn file_in_memory_is_read_at_once() {
        let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let b = FileBacking::new(file.into());
        b.set_len(1 << 20).unwrap();
        b.write_at(&[7; 8192], 4096).unwrap();
        let mut back = [0; 8192];
        // The first read may find out how the file can be read.
        for _ in 0..2 {
            assert!(b.read_at_once(&mut back, 4096));
            assert_eq!(back, [7; 8192]);
        }
        assert!(!b.read_at_once(&mut back, (1 << 20) - 4096), "the end comes first");
    }

    #[test]
    fn store_in_a_mapped_range_is_read_from_the_file() {
        let b = backing();
        b.write_at(&[7; 8192], 4096).unwrap();
        b.map(4096 + 512..12288);
        for (at, word) in [(4096 + 512, 1), (12280, 2), (4096, 3), (12288, u64::MAX - 5)] {
            b.store(at, word).unwrap();
            let mut back = [0; 8];
            b.read_at(&mut back, at).unwrap();
            assert_eq!(u64::from_le_bytes(back), word, "at {at}");
        }
    }

    #[test]
    fn store_into_a_truncated_file_is_an_error_from_then_on() {
        let b = backing();
        b.write_at(&[7; 8192], 4096).unwrap();
        b.map(4096..12288);
        b.store(4096, 1).unwrap();
        b.set_len(4096).unwrap();
        // The first store is the access that faults. Extending the file again does not bring the
        // stores back.
        for at in [8192, 4096] {
            let failed = b.store(at, 2).map_err(|error| error.raw_os_error());
            assert_eq!(failed, Err(Some(Errno::IO.raw_os_error())), "at {at}");
            b.set_len(1 << 20).unwrap();
        }
    }

    #[test]
    fn cache_of_another_file_is_another() {
        let (a, b) = (backing(), backing());
        assert!(a.cache().is_some());
        assert_eq!(a.cache(), FileBacking::new(a.file().try_clone().unwrap()).cache());
        assert_ne!(a.cache(), b.cache());
    }

    #[test]
    fn read_past_the_end_fails() {
        assert!(backing().read_at(&mut [0; 2], (1 << 20) - 1).is_err());
    }
}
