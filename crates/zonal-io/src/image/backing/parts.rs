//! Image in several files, for file systems that do not support a file of its length.
//!
//! Owns the files and the location of each byte ([`Split`]). The rest of the image uses one range
//! of bytes, as with a single file.

use super::{Backing, CacheId};
use crate::image::format::{Placed, Split};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::io::{self, IoSlice};
use std::ops::Range;

/// Files of an image as one range of bytes.
pub(crate) struct Parts<B> {
    split: Split,
    files: Vec<Part<B>>,
    /// Held during a sync, so that a concurrent sync does not return before the first has made the
    /// same writes durable.
    syncing: Mutex<()>,
}

struct Part<B> {
    backing: B,
    /// True if the file was written to since the start of the last sync. Initially true, because an
    /// earlier process may have written to it.
    is_unsynced: AtomicBool,
}

impl<B: Backing> Parts<B> {
    /// Joins `files`, of the lengths given by `split`.
    pub(crate) fn new(split: Split, files: Vec<B>) -> Parts<B> {
        assert_eq!(files.len(), split.files() as usize);
        let files = files.into_iter().map(|backing| Part { backing, is_unsynced: AtomicBool::new(true) });
        Parts { split, files: files.collect(), syncing: Mutex::new(()) }
    }

    /// Location of the `len` bytes at `at`, if they are in one file.
    #[inline]
    fn place(&self, at: u64, len: u64) -> Option<(&Part<B>, u64)> {
        let Placed { file, at, len: here } = self.split.place(at);
        self.files.get(file).filter(|_| len <= here).map(|part| (part, at))
    }

    /// Calls `work` for each file with bytes of `range`: the file, the offset in the file, and the
    /// position of the bytes in `range`.
    #[cold]
    fn each(
        &self,
        range: Range<u64>,
        mut work: impl FnMut(&Part<B>, u64, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let placed = self.split.place(at);
            let part = self.files.get(placed.file).ok_or(io::ErrorKind::UnexpectedEof)?;
            let len = placed.len.min(range.end - at);
            let from = (at - range.start) as usize;
            work(part, placed.at, from..from + len as usize)?;
            at += len;
        }
        Ok(())
    }
}

impl<B: Backing> Part<B> {
    /// Changes the file and marks it as unsynced.
    #[inline]
    fn change<T>(&self, change: impl FnOnce(&B) -> T) -> T {
        let result = change(&self.backing);
        // Set after the change, so a sync that clears the mark covers the change. Also set if the
        // change failed, because it may have been done in part.
        if !self.is_unsynced.load(Ordering::SeqCst) {
            self.is_unsynced.store(true, Ordering::SeqCst);
        }
        result
    }
}

impl<B: Backing> Backing for Parts<B> {
    fn len(&self) -> io::Result<u64> {
        let mut len = self.split.len();
        for (index, part) in (0..).zip(&self.files) {
            // The length of each file was checked at open. A wrong sum is enough to detect a change.
            len = (len + part.backing.len()?).saturating_sub(self.split.file_len(index));
        }
        Ok(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len == self.split.len() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    #[inline]
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let len = buf.len() as u64;
        match self.place(at, len) {
            Some((part, at)) => part.backing.read_at(buf, at),
            None => self.each(at..at + len, |part, at, range| part.backing.read_at(&mut buf[range], at)),
        }
    }

    #[inline]
    fn read_at_once(&self, buf: &mut [u8], at: u64) -> bool {
        let place = self.place(at, buf.len() as u64);
        place.is_some_and(|(part, at)| part.backing.read_at_once(buf, at))
    }

    #[inline]
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        let len = buf.len() as u64;
        match self.place(at, len) {
            Some((part, at)) => part.change(|file| file.write_at(buf, at)),
            None => {
                self.each(at..at + len, |part, at, range| part.change(|file| file.write_at(&buf[range], at)))
            }
        }
    }

    #[inline]
    fn write_vectored_at(&self, pieces: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let Some((part, at)) = self.place(at, len) {
            return part.change(|file| file.write_vectored_at(pieces, at));
        }
        let mut at = at;
        for piece in pieces {
            self.write_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.each(at..at + len, |part, at, range| part.change(|file| file.zero(at, range.len() as u64)))
    }

    fn discard(&self, at: u64, len: u64) {
        let _ = self.each(at..at + len, |part, at, range| {
            part.change(|file| file.discard(at, range.len() as u64));
            Ok(())
        });
    }

    /// Combines the identities of all files, so that the result changes if a part is replaced.
    fn cache(&self) -> Option<CacheId> {
        let mut caches = self.files.iter().map(|part| part.backing.cache());
        let first = caches.next()??;
        caches.try_fold(first, |all, cache| Some(all.with(cache?)))
    }

    fn map(&self, range: Range<u64>) {
        if let Some((part, at)) = self.place(range.start, range.end - range.start) {
            part.backing.map(at..at + (range.end - range.start));
        }
    }

    #[inline]
    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        match self.place(at, 8) {
            Some((part, at)) => part.change(|file| file.store(at, word)),
            None => self.write_at(&word.to_le_bytes(), at),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        for part in &self.files {
            if !part.is_unsynced.swap(false, Ordering::SeqCst) {
                continue;
            }
            if let Err(e) = part.backing.sync() {
                part.is_unsynced.store(true, Ordering::SeqCst);
                return Err(e);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
