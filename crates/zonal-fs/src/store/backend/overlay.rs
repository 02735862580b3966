//! A database that is only looked at: what is written to it stays in memory.
//!
//! A database writes when it is opened and closed, if only to note that it is in use. An overlay lets a caller open a
//! database that must not change.

use super::log::Log;
use super::room::Backend;
use crate::BLOCK_BYTES;
use parking_lot::RwLock;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: u64 = BLOCK_BYTES as u64;

/// See the module.
#[derive(Debug)]
pub struct Overlay<B> {
    below: B,
    kept: RwLock<Kept>,
    /// True once the backend below may have changed. Reads return an error then.
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Kept {
    len: u64,
    /// Bytes of what is below that can still be seen: what was cut off is zeroes if the file grows again.
    seen: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl<B: Backend> Backend for Overlay<B> {
    fn log(&self) -> Option<&Log> {
        self.below.log()
    }
}

impl<B: StorageBackend> Overlay<B> {
    /// Shows what is in `below`, at first.
    ///
    /// # Errors
    /// If it cannot tell its length.
    pub fn new(below: B) -> io::Result<Overlay<B>> {
        let len = below.len()?;
        let kept = RwLock::new(Kept { len, seen: len, pages: BTreeMap::new() });
        Ok(Overlay { below, kept, is_over: Arc::default() })
    }

    /// Flag that makes all reads fail once it is set. A database reads when it is dropped, and panics if later commits have replaced its pages.
    pub(in crate::insides::store) fn over(&self) -> Arc<AtomicBool> {
        self.is_over.clone()
    }

    /// Reads from `at` what is below, and zeroes where nothing is.
    fn read_below(&self, kept: &Kept, at: u64, out: &mut [u8]) -> io::Result<()> {
        let there = kept.seen.saturating_sub(at).min(out.len() as u64) as usize;
        let (seen, rest) = out.split_at_mut(there);
        rest.fill(0);
        if seen.is_empty() { Ok(()) } else { self.below.read(at, seen) }
    }
}

/// The parts of a range that lie in one page each: page, where in it, and bytes of the range before.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let n = (PAGE as usize - within).min(len - done);
        let range = done..done + n;
        done += n;
        (n > 0).then_some((at / PAGE, within, range))
    })
}

impl Kept {
    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len);
        end.map_or(Err(io::ErrorKind::UnexpectedEof.into()), |_| Ok(()))
    }
}

impl<B: StorageBackend> StorageBackend for Overlay<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.kept.read().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.is_over.load(Ordering::Acquire) {
            return Err(io::Error::other("the database is not looked at any more"));
        }
        let kept = self.kept.read();
        kept.check(offset, out.len())?;
        self.read_below(&kept, offset, out)?;
        for (page, within, range) in pieces(offset, out.len()) {
            if let Some(bytes) = kept.pages.get(&page) {
                out[range.clone()].copy_from_slice(&bytes[within..within + range.len()]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut kept = self.kept.write();
        kept.seen = kept.seen.min(len);
        kept.pages.split_off(&len.div_ceil(PAGE));
        if let Some(last) = kept.pages.get_mut(&(len / PAGE)) {
            last[(len % PAGE) as usize..].fill(0);
        }
        kept.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut kept = self.kept.write();
        kept.check(offset, data.len())?;
        for (page, within, range) in pieces(offset, data.len()) {
            if !kept.pages.contains_key(&page) {
                let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
                self.read_below(&kept, page * PAGE, &mut bytes)?;
                kept.pages.insert(page, bytes);
            }
            let bytes = kept.pages.get_mut(&page).expect("it is there now");
            bytes[within..within + range.len()].copy_from_slice(&data[range]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::*;

    fn all(backend: &impl StorageBackend) -> Vec<u8> {
        let mut bytes = vec![9; backend.len().unwrap() as usize];
        backend.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn overlay_shows_writes_and_leaves_the_base_unchanged() {
        let below = Memory::new();
        below.set_len(20_000).unwrap();
        below.write(0, &[1; 20_000]).unwrap();
        let overlay = Overlay::new(below.clone()).unwrap();
        overlay.write(4000, &[2; 5000]).unwrap();
        overlay.set_len(30_000).unwrap();
        overlay.write(25_000, &[3; 10]).unwrap();
        overlay.sync_data().unwrap();
        let seen = all(&overlay);
        let runs: Vec<(u8, usize)> = seen.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(1, 4000), (2, 5000), (1, 11_000), (0, 5000), (3, 10), (0, 4990)]);
        assert_eq!(all(&below), [1; 20_000]);
    }

    #[test]
    fn truncated_data_reads_back_as_zeroes() {
        let below = Memory::new();
        below.set_len(10_000).unwrap();
        below.write(0, &[1; 10_000]).unwrap();
        let overlay = Overlay::new(below).unwrap();
        overlay.write(4500, &[2; 10]).unwrap();
        overlay.set_len(4505).unwrap();
        overlay.set_len(10_000).unwrap();
        let seen = all(&overlay);
        let runs: Vec<(u8, usize)> = seen.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(1, 4500), (2, 5), (0, 5495)]);
        assert!(overlay.read(9999, &mut [0; 2]).is_err() && overlay.write(u64::MAX, &[0]).is_err());
    }
}
