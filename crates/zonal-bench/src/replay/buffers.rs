//! Request buffers, reused by size, and their content.
//!
//! On a disk laid out as a log, each block carries its own number. A block read from its mapped
//! place has to be the requested one, which exposes errors in the map, the cleaner and the write
//! path.

use zonal_core::SECTOR_BYTES;
use zonal_io::buffer::IoBuf;

/// Idle buffers by length, which is a power of two.
#[derive(Default)]
pub(super) struct Buffers {
    idle: [Vec<IoBuf>; 32],
}

fn class_of(bytes: usize) -> usize {
    bytes.max(1).next_power_of_two().ilog2() as usize
}

impl Buffers {
    /// Takes a buffer of at least `sectors` sectors with arbitrary content.
    pub(super) fn take(&mut self, sectors: u32) -> IoBuf {
        let bytes = sectors as usize * SECTOR_BYTES as usize;
        let class = class_of(bytes);
        self.idle[class].pop().unwrap_or_else(|| IoBuf::zeroed(1 << class))
    }

    pub(super) fn give_back(&mut self, buffer: IoBuf) {
        if !buffer.is_empty() {
            self.idle[class_of(buffer.len())].push(buffer);
        }
    }
}

/// Writes its number into each block.
pub(super) fn stamp(bytes: &mut [u8], block_bytes: usize, first: u64) {
    for (number, block) in (first..).zip(bytes.chunks_exact_mut(block_bytes)) {
        block[..8].copy_from_slice(&number.to_le_bytes());
        block[8..16].copy_from_slice(&(!number).to_le_bytes());
    }
}

/// Finds the first block that is not the expected one, with the number it carries, if any.
pub(super) fn misplaced(bytes: &[u8], block_bytes: usize, first: u64) -> Option<(u64, Option<u64>)> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    (first..).zip(bytes.chunks_exact(block_bytes)).find_map(|(number, block)| {
        let (says, inverse) = (word(&block[..8]), word(&block[8..16]));
        let found = (inverse == !says).then_some(says);
        (found != Some(number)).then_some((number, found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misplaced_and_unstamped_blocks_are_detected() {
        let mut bytes = vec![0; 4 * 512];
        assert_eq!(misplaced(&bytes, 512, 7), Some((7, None)));
        stamp(&mut bytes, 512, 7);
        assert_eq!(misplaced(&bytes, 512, 7), None);
        bytes.copy_within(0..512, 1024);
        assert_eq!(misplaced(&bytes, 512, 7), Some((9, Some(7))));
    }
}
