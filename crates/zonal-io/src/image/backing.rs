//! Where an image's bytes live: a file, or in tests a twin that forgets what was not synced.
//!
//! The image reaches storage through these calls and no others, so that a test can stand in their way.

pub mod twin;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes at fixed addresses behind a volatile cache.
///
/// Reads see every write that returned. Durable is only what a later successful [`sync`](Backing::sync) covers; until
/// then any part of it may be lost, in any order, at the grain of 512 bytes. Calls may run concurrently.
#[expect(clippy::len_without_is_empty, reason = "the length of a file, not of a collection")]
pub trait Backing: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// As the operating system answers; so for every call below.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends to `len` bytes; what is new reads as zeroes.
    ///
    /// # Errors
    /// EFBIG where the file system's limit is lower.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Fills `buf` from `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` where the end comes first.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()>;

    /// Fills `buf` from `at` if that needs no wait for a medium. Whether it did; if not, `buf` holds anything.
    fn read_at_once(&self, buf: &mut [u8], at: u64) -> bool {
        let _ = (buf, at);
        false
    }

    /// Writes all of `buf` at `at`.
    ///
    /// # Errors
    /// After one, any part of the range may have been written.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()>;

    /// Writes `pieces` one after the other from `at`.
    ///
    /// # Errors
    /// As [`write_at`](Backing::write_at).
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
    /// As [`write_at`](Backing::write_at).
    fn zero(&self, at: u64, len: u64) -> io::Result<()>;

    /// Gives back the space of `len` bytes from `at`, whose content nobody will ask for. May do nothing.
    fn discard(&self, at: u64, len: u64);

    /// Bytes that it can have altogether, as things are; `None` if nobody knows.
    ///
    /// # Errors
    /// As the operating system answers.
    fn room(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Makes all writes that returned before the call durable.
    ///
    /// # Errors
    /// After one, nothing is known about any write since the last success.
    fn sync(&self) -> io::Result<()>;
}

/// A file as it is.
#[derive(Debug)]
pub struct FileBacking(File);

/// Largest number of pieces in one vectored write: the limit of Linux.
const PIECES_MAX: usize = 1024;

/// Zeroes written at once where the file system cannot punch holes.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

impl FileBacking {
    /// The bytes of `file`, which has to be open for reading and writing.
    pub const fn new(file: File) -> FileBacking {
        FileBacking(file)
    }

    /// The file.
    pub const fn file(&self) -> &File {
        &self.0
    }

    fn punch(&self, at: u64, len: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(
                &self.0,
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
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, at)
    }

    fn read_at_once(&self, buf: &mut [u8], at: u64) -> bool {
        let len = buf.len();
        // Anything else, an error too, is met again by the call that waits.
        rustix::io::preadv2(&self.0, &mut [IoSliceMut::new(buf)], at, ReadWriteFlags::NOWAIT) == Ok(len)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(buf, at)
    }

    fn write_vectored_at(&self, pieces: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let (mut pieces, mut at) = (pieces, at);
        while !pieces.is_empty() {
            let batch = pieces.len().min(PIECES_MAX);
            match rustix::io::pwritev(&self.0, &pieces[..batch], at) {
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
            self.0.write_all_at(&ZEROES[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) {
        // Nobody asks for these bytes: what the file system cannot give back costs space and nothing else.
        let _ = self.punch(at, len);
    }

    fn room(&self) -> io::Result<Option<u64>> {
        let host = rustix::fs::fstatvfs(&self.0)?;
        // What is in holes has no room yet.
        let own = self.0.metadata()?.blocks() * 512;
        Ok(Some(host.f_bavail.saturating_mul(host.f_frsize).saturating_add(own)))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
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
    fn read_at_once_brings_what_is_in_the_cache_or_nothing() {
        let b = backing();
        b.write_at(&[7; 8192], 4096).unwrap();
        let mut back = [0; 8192];
        assert!(!b.read_at_once(&mut back, (1 << 20) - 4096), "the end comes first");
        if b.read_at_once(&mut back, 4096) {
            assert_eq!(back, [7; 8192]);
        }
    }

    #[test]
    fn read_past_the_end_fails() {
        assert!(backing().read_at(&mut [0; 2], (1 << 20) - 1).is_err());
    }
}
