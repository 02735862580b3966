//! CRC-32C of blocks, optionally combined with a copy.
//!
//! A checksum and a copy both load each byte into a register. Combined they load it once, so the
//! copy costs little more than the checksum alone. This module implements both for processors that
//! fold 64 or 32 bytes at a time (`x86_64`). On all others the library computes the checksum of a
//! block, and the copy follows while the block is in the L1 cache.
//!
//! # Why blocks are not interleaved
//! Folding has enough independent work within a block. Interleaving it with blocks that use the
//! processor's CRC instruction is 50% faster in cache, but runs at half the speed from memory,
//! because the hardware prefetcher follows one stream better than five.

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Block size in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// One block.
type Block = [u8; BLOCK_BYTES];

/// CRC-32C (Castagnoli) of `bytes`.
///
/// ```
/// assert_eq!(zonal_io::sums::crc32c(b"123456789"), 0xE306_9283);
/// ```
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Writes the CRC-32C of each block of `bytes` to `sums`.
///
/// # Panics
/// If `bytes` is not a whole number of blocks, or `sums` has a different length.
///
/// ```
/// use zonal_io::sums;
/// let (bytes, mut found) = (vec![7; 3 * sums::BLOCK_BYTES], [0; 3]);
/// sums::of_blocks(&bytes, &mut found);
/// assert_eq!(found, [sums::crc32c(&bytes[..sums::BLOCK_BYTES]); 3]);
/// ```
pub fn of_blocks(bytes: &[u8], sums: &mut [u32]) {
    let blocks = whole(bytes, sums);
    #[cfg(target_arch = "x86_64")]
    if x86_64::of_blocks(blocks, sums) {
        return;
    }
    for (block, sum) in blocks.iter().zip(sums) {
        *sum = crc32c(block);
    }
}

/// Copies the blocks `from` to `into`, and writes the CRC-32C of each to `sums`. The checksum
/// always matches the copy: no other thread can change the bytes meanwhile, and processors
/// supported by this module load each byte only once.
///
/// # Panics
/// If `from` is not a whole number of blocks, or `into` or `sums` has a different length.
///
/// ```
/// use zonal_io::sums;
/// let (from, mut into, mut found) = (vec![7; 8192], vec![0; 8192], [0; 2]);
/// sums::copy_blocks(&from, &mut into, &mut found);
/// assert_eq!((&into, found), (&from, [sums::crc32c(&from[..4096]); 2]));
/// ```
pub fn copy_blocks(from: &[u8], into: &mut [u8], sums: &mut [u32]) {
    assert_eq!(from.len(), into.len(), "as many bytes there as here");
    let blocks = whole(from, sums);
    let (into, _) = into.as_chunks_mut::<BLOCK_BYTES>();
    #[cfg(target_arch = "x86_64")]
    if x86_64::copy_blocks(blocks, into, sums) {
        return;
    }
    for ((from, into), sum) in blocks.iter().zip(into).zip(sums) {
        *sum = crc32c(from);
        into.copy_from_slice(from);
    }
}

fn whole<'a>(bytes: &'a [u8], sums: &[u32]) -> &'a [Block] {
    let (blocks, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "{} bytes are not whole blocks", bytes.len());
    assert_eq!(blocks.len(), sums.len(), "as many blocks as sums");
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn of_library(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks_exact(BLOCK_BYTES).map(crc32c).collect()
    }

    #[test]
    fn sums_of_any_blocks_at_any_address_equal_the_librarys() {
        check(
            |blocks, sums| of_blocks(blocks.as_flattened(), sums),
            |from, into, sums| {
                copy_blocks(from.as_flattened(), into.as_flattened_mut(), sums);
            },
        );
    }

    /// Includes all-zero and all-one blocks, for which folding by a wrong distance may go
    /// unnoticed.
    pub(super) fn check(
        mut of_blocks: impl FnMut(&[Block], &mut [u32]),
        mut copy_blocks: impl FnMut(&[Block], &mut [Block], &mut [u32]),
    ) {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for round in 0..400 {
            let (blocks, skip) = (random.random_range(0..20), random.random_range(0..130));
            let mut memory = vec![if round % 3 == 0 { 0xFF } else { 0 }; skip + blocks * BLOCK_BYTES];
            match round % 5 {
                0 => {}
                // A single bit flipped.
                1 if blocks > 0 => {
                    let at = random.random_range(skip..memory.len());
                    memory[at] ^= 1 << random.random_range(0..8);
                }
                _ => random.fill_bytes(&mut memory),
            }
            let bytes = &memory[skip..];
            let expected = of_library(bytes);
            let mut found = vec![9; blocks];
            of_blocks(bytes.as_chunks().0, &mut found);
            assert_eq!(found, expected, "round {round}");

            let mut target = vec![1; bytes.len() + 200];
            let at = random.random_range(0..130);
            let mut found = vec![9; blocks];
            copy_blocks(bytes.as_chunks().0, target[at..at + bytes.len()].as_chunks_mut().0, &mut found);
            assert_eq!(found, expected, "round {round}");
            assert_eq!(&target[at..at + bytes.len()], bytes, "round {round}");
            let beside = target[..at].iter().chain(&target[at + bytes.len()..]);
            assert!(beside.into_iter().all(|byte| *byte == 1), "round {round}");
        }
    }

    #[test]
    #[should_panic(expected = "not whole blocks")]
    fn part_of_a_block_is_refused() {
        of_blocks(&[0; 4097], &mut [0; 1]);
    }

    #[test]
    #[should_panic(expected = "as many bytes")]
    fn target_of_another_length_is_refused() {
        copy_blocks(&[0; 8192], &mut [0; 4096], &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "as many blocks as sums")]
    fn another_number_of_sums_is_refused() {
        of_blocks(&[0; 8192], &mut [0; 1]);
    }
}
