//! Memory for chunks: allocated from the system in slabs, kept for reuse up to a limit, unmapped
//! with the pool.
//!
//! # Kept pages
//! A reset returns all chunks of a zone at once, and the zone is often rewritten soon. Their pages
//! are kept, so writes after a reset cause no page faults. The pool keeps up to [`IDLE_MAX`]
//! chunks. Pages of further chunks are returned to the system at once, in runs of adjacent chunks,
//! because one call per chunk would also split huge pages one by one. A chunk is handed out with
//! its old bytes; its user tracks which of them were written ([`super::ChunkSlot`]).
//!
//! Chunks are reused last in, first out, so a small set that is rewritten stays in the processor's
//! caches.
//!
//! Slabs ask for huge pages. Otherwise, with a working set beyond the caches, every small read
//! would miss the TLB as well as the cache. The first slab is small and does not ask for them, so a
//! drive with little data takes little memory.

use super::CHUNK;
use crate::sync::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

/// Maximum number of free chunks that keep their pages: 1 GiB, four zones of the default size. This
/// covers a writer that resets one zone, or a few, before rewriting. More would keep memory that
/// the amount of data does not justify.
const IDLE_MAX: usize = (1 << 30) / CHUNK;

const HUGE_PAGE: usize = 2 << 20;

/// Size of the first slab and of later ones, in bytes. The untouched part of a slab takes no
/// memory.
const SLABS: [usize; 2] = [HUGE_PAGE, 64 << 20];

/// Pool of free chunks. All chunks are returned before the pool is dropped.
pub(super) struct Pool {
    /// Maximum number of free chunks that keep their pages.
    idle_max: usize,
    /// Locked once per 64 KiB written, and once for all chunks of a zone that was reset.
    free: Mutex<Free>,
}

struct Chunk(NonNull<u8>);

// SAFETY: only the pool refers to a free chunk.
unsafe impl Send for Chunk {}

#[derive(Default)]
struct Free {
    /// With their pages in memory.
    idle: Vec<Chunk>,
    /// With their pages returned to the system; touching them allocates new ones.
    cold: Vec<Chunk>,
    /// All mappings, with their length.
    slabs: Vec<(Chunk, usize)>,
    /// Bytes of the last slab that were handed out.
    carved: usize,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool::keeping(IDLE_MAX)
    }

    fn keeping(idle_max: usize) -> Pool {
        Pool { idle_max, free: Mutex::default() }
    }

    /// Takes a chunk with arbitrary contents: those of its last use, or zeroes.
    pub(super) fn take(&self) -> NonNull<u8> {
        self.free.lock().take()
    }

    /// Returns chunks taken with [`Pool::take`]. The last one is reused first.
    pub(super) fn give_back(&self, chunks: impl Iterator<Item = NonNull<u8>>) {
        let mut chunks = chunks.map(Chunk);
        let mut free = self.free.lock();
        let room = self.idle_max.saturating_sub(free.idle.len());
        free.idle.extend(chunks.by_ref().take(room));
        drop(free);
        let mut beyond: Vec<Chunk> = chunks.collect();
        if beyond.is_empty() {
            return;
        }
        // Not listed yet, so the system call needs no lock.
        beyond.sort_unstable_by_key(|chunk| chunk.0);
        for run in beyond.chunk_by(|a, b| a.0.as_ptr().wrapping_add(CHUNK) == b.0.as_ptr()) {
            forget_pages(run);
        }
        self.free.lock().cold.append(&mut beyond);
    }
}

impl Free {
    fn take(&mut self) -> NonNull<u8> {
        if let Some(Chunk(chunk)) = self.idle.pop().or_else(|| self.cold.pop()) {
            return chunk;
        }
        if self.slabs.last().is_none_or(|(_, len)| self.carved == *len) {
            let len = SLABS[self.slabs.len().min(1)];
            self.slabs.push((Chunk(map(len, self.slabs.is_empty())), len));
            self.carved = 0;
        }
        let (Chunk(base), _) = &self.slabs[self.slabs.len() - 1];
        // SAFETY: the slab's length is a multiple of the chunk size, and it is not used up.
        let chunk = unsafe { base.add(self.carved) };
        self.carved += CHUNK;
        chunk
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        for (Chunk(base), len) in self.slabs.drain(..) {
            // SAFETY: mapped by `map`, and all its chunks were returned.
            let _ = unsafe { munmap(base.as_ptr().cast(), len) };
        }
    }
}

/// Maps `len` zeroed bytes, in huge pages if available, unless `plain`.
fn map(len: usize, plain: bool) -> NonNull<u8> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // Huge pages are aligned to their size, so map more and unmap the excess at both ends.
    // SAFETY: a new private mapping, at an address chosen by the kernel.
    let all = unsafe { mmap_anonymous(null_mut(), len + HUGE_PAGE, access, flags) };
    let Some(all) = all.ok().and_then(|p| NonNull::new(p.cast::<u8>())) else {
        handle_alloc_error(Layout::new::<[u8; HUGE_PAGE]>())
    };
    let before = all.as_ptr().align_offset(HUGE_PAGE);
    // SAFETY: `before` is less than a huge page, so all three parts lie in the mapping; the outer
    // two are unused.
    unsafe {
        let base = all.add(before);
        if before > 0 {
            let _ = munmap(all.as_ptr().cast(), before);
        }
        let _ = munmap(base.add(len).as_ptr().cast(), HUGE_PAGE - before);
        if !plain {
            // Without huge pages, plain pages do.
            let _ = madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage);
        }
        base
    }
}

/// Returns the pages of adjacent chunks to the system.
fn forget_pages(run: &[Chunk]) {
    let Some(Chunk(first)) = run.first() else { return };
    // SAFETY: the chunks belong to the caller and are not accessed by any thread. They consist of
    // whole pages and are adjacent. They may span two adjacent slabs, which are both mapped.
    let _ = unsafe { madvise(first.as_ptr().cast(), run.len() * CHUNK, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Number of free chunks with and without pages.
    fn free(pool: &Pool) -> (usize, usize) {
        let free = pool.free.lock();
        (free.idle.len(), free.cold.len())
    }

    #[test]
    fn chunks_in_use_do_not_overlap_and_are_recycled() {
        const N: usize = 3 * HUGE_PAGE / CHUNK;
        let pool = Pool::new();
        let first: HashSet<_> = (0..N).map(|_| pool.take()).collect();
        for (n, chunk) in first.iter().enumerate() {
            assert_eq!(chunk.as_ptr().align_offset(4096), 0);
            // SAFETY: a chunk in use has this length.
            unsafe { chunk.write_bytes(n as u8, CHUNK) };
        }
        for (n, chunk) in first.iter().enumerate() {
            // SAFETY: as above, and just written.
            let bytes = unsafe { std::slice::from_raw_parts(chunk.as_ptr(), CHUNK) };
            assert!(bytes.iter().all(|&b| b == n as u8), "chunks overlap");
        }
        pool.give_back(first.iter().copied());
        let second: HashSet<_> = (0..N).map(|_| pool.take()).collect();
        assert_eq!(first, second);
        pool.give_back(second.into_iter());
    }

    #[test]
    fn chunks_of_a_zone_of_default_size_are_kept_and_handed_out_in_the_order_of_the_zone() {
        const ZONE: usize = (256 << 20) / CHUNK;
        let pool = Pool::new();
        // Untouched chunks take no memory.
        let zone: Vec<_> = (0..ZONE).map(|_| pool.take()).collect();
        for _ in 0..3 {
            pool.give_back(zone.iter().rev().copied());
            assert_eq!(free(&pool), (ZONE, 0));
            assert!(zone.iter().all(|&chunk| chunk == pool.take()), "the first chunk of a zone comes first");
        }
        pool.give_back(zone.into_iter());
    }

    /// Chunks whose pages were returned read as zeroes.
    #[test]
    fn chunks_beyond_those_kept_have_given_their_pages_back() {
        const KEPT: usize = 50;
        const MORE: usize = 100;
        let pool = Pool::keeping(KEPT);
        let chunks: Vec<_> = (0..KEPT + MORE).map(|_| pool.take()).collect();
        // SAFETY: a chunk in use has this length.
        chunks.iter().for_each(|chunk| unsafe { chunk.write_bytes(1, CHUNK) });
        // Every third chunk first, so that runs have one or two chunks.
        let (single, pairs): (Vec<_>, Vec<_>) = chunks.iter().enumerate().partition(|(n, _)| n % 3 == 0);
        pool.give_back(single.into_iter().chain(pairs).map(|(_, &chunk)| chunk));
        assert_eq!(free(&pool), (KEPT, MORE));
        // SAFETY: as above; a chunk is always fully initialised.
        let sums = chunks.iter().map(|_| unsafe { pool.take().cast::<[u8; CHUNK]>().as_ref() });
        let zeroed = sums.filter(|bytes| bytes.iter().all(|&b| b == 0)).count();
        assert_eq!(zeroed, MORE);
    }
}
