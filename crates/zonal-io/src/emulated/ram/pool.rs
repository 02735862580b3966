//! Memory for chunks: taken from the system in slabs, given back to it chunk by chunk, unmapped with the pool.
//!
//! Slabs ask for huge pages: in a working set beyond the caches every small read would otherwise wait for the address
//! translation of a page of its own as well as for its data. The first slab is small and asks for none, so that a drive
//! that holds little takes little.

use super::CHUNK;
use crate::sync::{ArrayQueue, Mutex};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

/// Freed chunks kept for the next writer, whose pages are then touched already: 64 MiB.
const IDLE_MAX: usize = 1024;

const HUGE_PAGE: usize = 2 << 20;

/// Bytes of the first slab, and of those after it. What nobody has touched of a slab takes no memory.
const SLABS: [usize; 2] = [HUGE_PAGE, 64 << 20];

/// Chunks of memory that nobody uses. Every chunk taken is given back before the pool ends.
pub(super) struct Pool {
    /// Their pages are in memory.
    idle: ArrayQueue<Chunk>,
    rest: Mutex<Rest>,
}

struct Chunk(NonNull<u8>);

// SAFETY: an unused chunk belongs to the pool alone.
unsafe impl Send for Chunk {}

#[derive(Default)]
struct Rest {
    /// Their pages have been given back, and come anew when touched.
    cold: Vec<Chunk>,
    /// All that was mapped, with its length.
    slabs: Vec<(Chunk, usize)>,
    /// How much of the last slab was handed out.
    carved: usize,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { idle: ArrayQueue::new(IDLE_MAX), rest: Mutex::default() }
    }

    /// A chunk with any content: that of its last use, or zeroes.
    pub(super) fn take(&self) -> NonNull<u8> {
        match self.idle.pop() {
            Some(Chunk(chunk)) => chunk,
            None => self.rest.lock().take(),
        }
    }

    /// Takes back a chunk of [`Pool::take`].
    pub(super) fn give_back(&self, chunk: NonNull<u8>) {
        if let Err(chunk) = self.idle.push(Chunk(chunk)) {
            forget_pages(chunk.0);
            self.rest.lock().cold.push(chunk);
        }
    }
}

impl Rest {
    fn take(&mut self) -> NonNull<u8> {
        if let Some(Chunk(chunk)) = self.cold.pop() {
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

impl Drop for Rest {
    fn drop(&mut self) {
        for (Chunk(base), len) in self.slabs.drain(..) {
            // SAFETY: mapped by `map`, and nobody has a chunk of it any more.
            let _ = unsafe { munmap(base.as_ptr().cast(), len) };
        }
    }
}

/// Maps `len` bytes of zeroes, in huge pages where the system has them and they are not `plain`.
fn map(len: usize, plain: bool) -> NonNull<u8> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // Huge pages lie at multiples of their size: map more, and give back what is before the first and behind the last.
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

/// Lets the system have a chunk's pages.
fn forget_pages(chunk: NonNull<u8>) {
    // SAFETY: the chunk is the caller's, nobody reads it; it is whole pages.
    let _ = unsafe { madvise(chunk.as_ptr().cast(), CHUNK, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn chunks_in_use_do_not_overlap_and_come_back() {
        const N: usize = 3 * HUGE_PAGE / CHUNK;
        let pool = Pool::new();
        let first: HashSet<_> = (0..N).map(|_| pool.take()).collect();
        for (n, chunk) in first.iter().enumerate() {
            assert_eq!(chunk.as_ptr().align_offset(4096), 0);
            // SAFETY: a chunk in use is as long as this.
            unsafe { chunk.write_bytes(n as u8, CHUNK) };
        }
        for (n, chunk) in first.iter().enumerate() {
            // SAFETY: as above, and just written.
            let bytes = unsafe { std::slice::from_raw_parts(chunk.as_ptr(), CHUNK) };
            assert!(bytes.iter().all(|&b| b == n as u8), "chunks overlap");
        }
        first.iter().for_each(|&chunk| pool.give_back(chunk));
        let second: HashSet<_> = (0..N).map(|_| pool.take()).collect();
        assert_eq!(first, second);
        second.iter().for_each(|&chunk| pool.give_back(chunk));
    }

    /// Pages that the system has taken come back as zeroes.
    #[test]
    fn chunks_beyond_those_kept_have_given_their_pages_back() {
        const MORE: usize = 100;
        let pool = Pool::new();
        let chunks: Vec<_> = (0..IDLE_MAX + MORE).map(|_| pool.take()).collect();
        // SAFETY: a chunk in use is as long as this.
        chunks.iter().for_each(|chunk| unsafe { chunk.write_bytes(1, CHUNK) });
        chunks.iter().for_each(|&chunk| pool.give_back(chunk));
        // SAFETY: as above; a chunk has all its bytes at any time.
        let sums = chunks.iter().map(|_| unsafe { pool.take().cast::<[u8; CHUNK]>().as_ref() });
        let zeroed = sums.filter(|bytes| bytes.iter().all(|&b| b == 0)).count();
        assert_eq!(zeroed, MORE);
    }
}
