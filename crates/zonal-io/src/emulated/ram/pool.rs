//! Memory for chunks: taken from the system in slabs, kept for reuse up to a bound, unmapped with the pool.
//!
//! # What is kept
//! A zone that is reset gives back all its chunks at once, and is often written again soon. Their pages stay, so that the writes
//! after a reset meet no page fault. The pool keeps [`IDLE_MAX`] chunks so; what comes above that has its pages taken at once,
//! in runs of adjacent chunks, because a call a chunk would also split huge pages one by one. A chunk is handed out with its old
//! bytes: its taker keeps account of what was written ([`super::ChunkSlot`]).
//!
//! Chunks are reused last in, first out: a small set that is rewritten stays in the processor's caches.
//!
//! Slabs ask for huge pages: in a working set beyond the caches every small read would otherwise wait for the address
//! translation of a page of its own as well as for its data. The first slab is small and asks for none, so that a drive
//! that holds little takes little.

use super::CHUNK;
use crate::sync::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

/// Free chunks that keep their pages: 1 GiB, four zones of the default size. A writer that resets a zone before it writes it
/// needs one zone's; a writer that resets a few at a time needs those. More would hold memory that the data does not
/// explain.
const IDLE_MAX: usize = (1 << 30) / CHUNK;

const HUGE_PAGE: usize = 2 << 20;

/// Bytes of the first slab, and of those after it. The untouched part of a slab takes no memory.
const SLABS: [usize; 2] = [HUGE_PAGE, 64 << 20];

/// Chunks of memory that are free. Every chunk taken is given back before the pool ends.
pub(super) struct Pool {
    /// Most chunks that keep their pages.
    idle_max: usize,
    /// Taken once for 64 KiB written, and once for all chunks of a zone that was reset.
    free: Mutex<Free>,
}

struct Chunk(NonNull<u8>);

// SAFETY: an unused chunk belongs to the pool alone.
unsafe impl Send for Chunk {}

#[derive(Default)]
struct Free {
    /// Their pages are in memory.
    idle: Vec<Chunk>,
    /// Their pages have been given back, and come again when touched.
    cold: Vec<Chunk>,
    /// All that was mapped, with its length.
    slabs: Vec<(Chunk, usize)>,
    /// How much of the last slab was handed out.
    carved: usize,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool::keeping(IDLE_MAX)
    }

    fn keeping(idle_max: usize) -> Pool {
        Pool { idle_max, free: Mutex::default() }
    }

    /// A chunk with any content: that of its last use, or zeroes.
    pub(super) fn take(&self) -> NonNull<u8> {
        self.free.lock().take()
    }

    /// Takes back chunks of [`Pool::take`]. The last one is the first to be handed out again.
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
        // Ours until they are listed: no lock is held while the system works.
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
        // SAFETY: the slab's length is a multiple of a chunk's, and not all of it is carved.
        let chunk = unsafe { base.add(self.carved) };
        self.carved += CHUNK;
        chunk
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        for (Chunk(base), len) in self.slabs.drain(..) {
            // SAFETY: mapped by `map`, and every chunk of it has been given back.
            let _ = unsafe { munmap(base.as_ptr().cast(), len) };
        }
    }
}

/// Maps `len` bytes of zeroes, in huge pages where the system has them and they are not `plain`.
fn map(len: usize, plain: bool) -> NonNull<u8> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // Huge pages lie at multiples of their size: map more, and give back what is before the first and after the last.
    // SAFETY: a fresh private mapping, wherever the system likes.
    let all = unsafe { mmap_anonymous(null_mut(), len + HUGE_PAGE, access, flags) };
    let Some(all) = all.ok().and_then(|p| NonNull::new(p.cast::<u8>())) else {
        handle_alloc_error(Layout::new::<[u8; HUGE_PAGE]>())
    };
    let before = all.as_ptr().align_offset(HUGE_PAGE);
    // SAFETY: `before` is less than a huge page, so all three parts lie in the mapping; the outer two are not used.
    unsafe {
        let base = all.add(before);
        if before > 0 {
            let _ = munmap(all.as_ptr().cast(), before);
        }
        let _ = munmap(base.add(len).as_ptr().cast(), HUGE_PAGE - before);
        if !plain {
            // Where there are none, plain pages do.
            let _ = madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage);
        }
        base
    }
}

/// Lets the system have the pages of chunks that lie next to each other.
fn forget_pages(run: &[Chunk]) {
    let Some(Chunk(first)) = run.first() else { return };
    // SAFETY: the chunks are the caller's, no thread reads them; they are whole pages, and adjacent. Two slabs may be, too, and
    // are both mapped.
    let _ = unsafe { madvise(first.as_ptr().cast(), run.len() * CHUNK, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Free chunks, with their pages and without.
    fn free(pool: &Pool) -> (usize, usize) {
        let free = pool.free.lock();
        (free.idle.len(), free.cold.len())
    }

    #[test]
    fn chunks_in_use_do_not_overlap_and_come_back() {
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
        // Untouched, they take no memory.
        let zone: Vec<_> = (0..ZONE).map(|_| pool.take()).collect();
        for _ in 0..3 {
            pool.give_back(zone.iter().rev().copied());
            assert_eq!(free(&pool), (ZONE, 0));
            assert!(zone.iter().all(|&chunk| chunk == pool.take()), "the first chunk of a zone comes first");
        }
        pool.give_back(zone.into_iter());
    }

    /// Pages that the system has taken come back as zeroes.
    #[test]
    fn chunks_beyond_those_kept_have_given_their_pages_back() {
        const KEPT: usize = 50;
        const MORE: usize = 100;
        let pool = Pool::keeping(KEPT);
        let chunks: Vec<_> = (0..KEPT + MORE).map(|_| pool.take()).collect();
        // SAFETY: a chunk in use has this length.
        chunks.iter().for_each(|chunk| unsafe { chunk.write_bytes(1, CHUNK) });
        // Every third one first, so that the runs are of one and of two.
        let (single, pairs): (Vec<_>, Vec<_>) = chunks.iter().enumerate().partition(|(n, _)| n % 3 == 0);
        pool.give_back(single.into_iter().chain(pairs).map(|(_, &chunk)| chunk));
        assert_eq!(free(&pool), (KEPT, MORE));
        // SAFETY: as above; a chunk has all its bytes at any time.
        let sums = chunks.iter().map(|_| unsafe { pool.take().cast::<[u8; CHUNK]>().as_ref() });
        let zeroed = sums.filter(|bytes| bytes.iter().all(|&b| b == 0)).count();
        assert_eq!(zeroed, MORE);
    }
}
