//! Reusable buffers for reads shorter than a unit.
//!
//! Their sizes are powers of two. A new allocation for each read would be zeroed each time, at a
//! cost comparable to the read itself.

use crate::{BLOCK_BYTES, STRIPES, stripe};
use zonal_io::buffer::{BufferPool, IoBuf};

/// Maximum bytes of idle buffers of one size in each stripe.
const IDLE_BYTES: usize = 1 << 18;

pub(super) struct SmallBuffers {
    /// Buffers of 1, 2, 4 blocks and so on, in each stripe. A thread keeps to one stripe, because a
    /// buffer filled by another thread is in the other's cache.
    stripes: [Vec<BufferPool>; STRIPES],
}

impl SmallBuffers {
    /// Creates pools for buffers of up to `blocks_max` blocks.
    pub(super) fn new(blocks_max: u32) -> SmallBuffers {
        let size = |size| {
            let bytes = BLOCK_BYTES << size;
            BufferPool::new(bytes, (IDLE_BYTES / bytes as usize).max(4))
        };
        let largest = blocks_max.max(1).next_power_of_two().trailing_zeros();
        SmallBuffers { stripes: std::array::from_fn(|_| (0..=largest).map(size).collect()) }
    }

    /// Takes a buffer of at least `blocks` blocks, with bytes of an earlier read; `None` if it
    /// would be too large.
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
