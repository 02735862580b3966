//! Checksums of blocks: CRC-32C of one block after the other, and of blocks that are copied meanwhile.
//!
//! A checksum and a copy both bring each byte into a register. Done together they bring it in once: a copy costs little more than
//! a checksum alone. Where the processor folds 64 bytes at a time (`x86_64`), this module does that itself. On all others the library
//! makes the checksum of a block, and the copy follows while the block is in the nearest cache.
//!
//! # Why not several blocks side by side
//! Folding has enough independent work within a block. Blocks whose sums are made by the processor's own instruction beside it are
//! half as fast again in a cache, and half as fast from memory: the processor fetches ahead for one place better than for five.

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// A block.
type Block = [u8; BLOCK_BYTES];

/// The CRC-32C (Castagnoli) of any bytes.
///
/// ```
/// assert_eq!(zonal_io::sums::crc32c(b"123456789"), 0xE306_9283);
/// ```
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Adds the CRC-32C of each block of `bytes` to `sums`.
///
/// # Panics
/// If `bytes` are not whole blocks.
///
/// ```
/// use zonal_io::sums;
/// let (bytes, mut found) = (vec![7; 3 * sums::BLOCK_BYTES], Vec::new());
/// sums::of_blocks(&bytes, &mut found);
/// assert_eq!(found, [sums::crc32c(&bytes[..sums::BLOCK_BYTES]); 3]);
/// ```
pub fn of_blocks(bytes: &[u8], sums: &mut Vec<u32>) {
    let blocks = whole(bytes);
    sums.reserve(blocks.len());
    #[cfg(target_arch = "x86_64")]
    if x86_64::of_blocks(blocks, sums) {
        return;
    }
    sums.extend(blocks.iter().map(|block| crc32c(block)));
}

/// Copies the blocks `from` to `into`, and adds the CRC-32C of each to `sums`. What is summed is what is copied: the bytes are read
/// once on processors that this module knows, and no other thread can change them meanwhile.
///
/// # Panics
/// If these are not whole blocks, or not equally many.
///
/// ```
/// use zonal_io::sums;
/// let (from, mut into, mut found) = (vec![7; 8192], vec![0; 8192], Vec::new());
/// sums::copy_blocks(&from, &mut into, &mut found);
/// assert_eq!((&into, found.len()), (&from, 2));
/// ```
pub fn copy_blocks(from: &[u8], into: &mut [u8], sums: &mut Vec<u32>) {
    assert_eq!(from.len(), into.len(), "as many bytes there as here");
    let blocks = whole(from);
    let (into, _) = into.as_chunks_mut::<BLOCK_BYTES>();
    sums.reserve(blocks.len());
    #[cfg(target_arch = "x86_64")]
    if x86_64::copy_blocks(blocks, into, sums) {
        return;
    }
    for (from, into) in blocks.iter().zip(into) {
        sums.push(crc32c(from));
        into.copy_from_slice(from);
    }
}

fn whole(bytes: &[u8]) -> &[Block] {
    let (blocks, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "{} bytes are not whole blocks", bytes.len());
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

    /// Also of zeroes and of ones alone, where folding a wrong number of bits may show nothing or all.
    #[test]
    fn sums_of_any_blocks_at_any_address_equal_the_librarys() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for round in 0..400 {
            let (blocks, skip) = (random.random_range(0..20), random.random_range(0..130));
            let mut memory = vec![if round % 3 == 0 { 0xFF } else { 0 }; skip + blocks * BLOCK_BYTES];
            match round % 5 {
                0 => {}
                // One bit is set.
                1 if blocks > 0 => {
                    let at = random.random_range(skip..memory.len());
                    memory[at] ^= 1 << random.random_range(0..8);
                }
                _ => random.fill_bytes(&mut memory),
            }
            let (bytes, before) = (&memory[skip..], vec![9, 9]);
            let expected = [&before[..], &of_library(bytes)].concat();
            let mut found = before.clone();
            of_blocks(bytes, &mut found);
            assert_eq!(found, expected, "round {round}");

            let mut target = vec![1; bytes.len() + 200];
            let at = random.random_range(0..130);
            let mut found = before;
            copy_blocks(bytes, &mut target[at..at + bytes.len()], &mut found);
            assert_eq!(found, expected, "round {round}");
            assert_eq!(&target[at..at + bytes.len()], bytes, "round {round}");
            let beside = target[..at].iter().chain(&target[at + bytes.len()..]);
            assert!(beside.into_iter().all(|byte| *byte == 1), "round {round}");
        }
    }

    #[test]
    #[should_panic(expected = "not whole blocks")]
    fn part_of_a_block_is_refused() {
        of_blocks(&[0; 4097], &mut Vec::new());
    }

    #[test]
    #[should_panic(expected = "as many bytes")]
    fn target_of_another_length_is_refused() {
        copy_blocks(&[0; 8192], &mut [0; 4096], &mut Vec::new());
    }
}
