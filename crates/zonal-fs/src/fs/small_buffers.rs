//! Buffers of reads that are shorter than a unit, kept for the next ones.
//!
//! They come in sizes of a power of two. An allocation for each read would be zeroed each time, and that costs what the read costs.

use crate::{BLOCK_BYTES, STRIPES, stripe};
use zonal_io::buffer::{BufferPool, IoBuf};

/// Bytes of idle buffers of one size in each part.
const IDLE_BYTES: usize = 1 << 18;

pub(super) struct SmallBuffers {
    /// Of 1 block, of 2, of 4. A thread keeps to a part: a buffer that another thread has filled is in the other's cache.
    stripes: [Vec<BufferPool>; STRIPES],
}

impl SmallBuffers {
    /// Buffers of up to `blocks_max` blocks.
    pub(super) fn new(blocks_max: u32) -> SmallBuffers {
        let size = |size| {
            let bytes = BLOCK_BYTES << size;
            BufferPool::new(bytes, (IDLE_BYTES / bytes as usize).max(4))
        };
        let largest = blocks_max.max(1).next_power_of_two().trailing_zeros();
        SmallBuffers { stripes: std::array::from_fn(|_| (0..=largest).map(size).collect()) }
    }

    /// A buffer of at least `blocks` blocks, which has the bytes of an earlier read; `None` if it would be too large.
    pub(super) fn take(&self, blocks: u32) -> Option<IoBuf> {
        let size = blocks.max(1).next_power_of_two().trailing_zeros();
        self.stripes[stripe()].get(size as usize).map(BufferPool::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_as_long_as_asked_for_and_at_most_twice_as_long() {
        for most in [1, 2, 5, 127, 128, 129] {
            let buffers = SmallBuffers::new(most);
            for blocks in 1..=most {
                let found = buffers.take(blocks).map_or(0, |buf| buf.len()) as u32 / BLOCK_BYTES;
                assert!((blocks..2 * blocks).contains(&found), "{found} blocks for {blocks} of {most}");
            }
            assert!(buffers.take(2 * most + 1).is_none());
        }
    }

    #[test]
    fn buffer_that_is_dropped_is_taken_again() {
        let buffers = SmallBuffers::new(8);
        let address = buffers.take(3).unwrap().as_ptr();
        assert_eq!(buffers.take(4).unwrap().as_ptr(), address);
    }
}
