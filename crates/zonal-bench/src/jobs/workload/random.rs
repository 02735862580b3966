//! Randomness: the random number streams of a worker, and the map of blocks not yet hit by random
//! offsets.

use crate::error::PlanError;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// Maximum number of blocks in a random map: 1 GiB of bits.
pub const RANDOM_MAP_BLOCKS_MAX: u64 = 8 << 30;

/// Purpose of a random stream. Each has a stream of its own, so that choices do not shift each
/// other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Random offsets.
    Offsets = 1,
    /// Direction in a mixed job.
    Directions = 2,
    /// Payload.
    Payload = 3,
    /// Sizes of reads.
    ReadSizes = 4,
    /// Sizes of writes.
    WriteSizes = 5,
    /// Gaps between reads.
    ReadGaps = 6,
    /// Gaps between writes.
    WriteGaps = 7,
}

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub struct Stream(Pcg64Mcg);

impl Stream {
    /// Creates the stream of a worker. `number` distinguishes clones of a job, `pass` repeated
    /// passes that shall differ.
    pub fn new(seed: u64, number: u64, pass: u64, purpose: Purpose) -> Stream {
        // Multiplication by odd constants separates neighbouring workers and passes. The
        // generator's own seeding mixes the bits.
        let mixed = seed
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(number.wrapping_mul(0xBF58_476D_1CE4_E5B9))
            .wrapping_add(pass.wrapping_mul(0x94D0_49BB_1331_11EB))
            ^ (purpose as u64) << 56;
        Stream(Pcg64Mcg::seed_from_u64(mixed))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `n`, which must not be zero.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

/// Set of blocks already hit, as a tree of bits that finds the next free one in a few steps.
#[derive(Debug, Clone)]
pub struct RandomMap {
    blocks: u64,
    /// Bits of the blocks. Each bit of a higher level stands for a word of all ones below it.
    levels: Vec<Vec<u64>>,
}

impl RandomMap {
    /// Creates a map of `blocks` free blocks.
    ///
    /// # Errors
    /// [`PlanError::RandomMap`] above [`RANDOM_MAP_BLOCKS_MAX`].
    pub fn new(blocks: u64) -> Result<RandomMap, PlanError> {
        RandomMap::check(blocks)?;
        let mut map = RandomMap { blocks, levels: Vec::new() };
        let mut bits = blocks.max(1);
        loop {
            bits = bits.div_ceil(64);
            map.levels.push(vec![0; bits as usize]);
            if bits == 1 {
                break;
            }
        }
        map.clear();
        Ok(map)
    }

    /// Checks that a map of `blocks` blocks is not too large.
    ///
    /// # Errors
    /// [`PlanError::RandomMap`] above [`RANDOM_MAP_BLOCKS_MAX`].
    pub fn check(blocks: u64) -> Result<(), PlanError> {
        match blocks > RANDOM_MAP_BLOCKS_MAX {
            true => Err(PlanError::RandomMap { blocks, max: RANDOM_MAP_BLOCKS_MAX }),
            false => Ok(()),
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Marks every block as free.
    pub fn clear(&mut self) {
        let mut bits = self.blocks;
        for level in &mut self.levels {
            // Zeroed allocations use no memory until they are written, and most jobs hit few blocks
            // of a drive.
            *level = vec![0; level.len()];
            // Bits beyond the end count as hit, at every level.
            let last = level.len() - 1;
            let used = bits - last as u64 * 64;
            level[last] = if used == 64 { 0 } else { !0 << used };
            bits = level.len() as u64;
        }
    }

    /// True if `block` is free.
    #[inline]
    pub fn is_free(&self, block: u64) -> bool {
        self.levels[0][(block / 64) as usize] >> (block % 64) & 1 == 0
    }

    /// Marks a block as hit.
    #[inline]
    pub fn hit(&mut self, block: u64) {
        let mut at = block;
        for level in &mut self.levels {
            let word = &mut level[(at / 64) as usize];
            *word |= 1 << (at % 64);
            if *word != !0 {
                return;
            }
            at /= 64;
        }
    }

    /// Finds the first free block at or after `from`, wrapping around to the start. `None` if all
    /// are hit.
    pub fn next_free(&self, from: u64) -> Option<u64> {
        self.free_from(from).or_else(|| self.free_from(0))
    }

    fn free_from(&self, from: u64) -> Option<u64> {
        let mut at = from;
        let mut level = 0;
        // Ascend while nothing to the right is free, then descend to the leftmost free block.
        loop {
            let words = self.levels.get(level)?;
            let index = (at / 64) as usize;
            let free = words.get(index).map_or(0, |word| !word & (!0 << (at % 64)));
            if free != 0 {
                at = index as u64 * 64 + u64::from(free.trailing_zeros());
                break;
            }
            at = index as u64 + 1;
            level += 1;
        }
        while level > 0 {
            level -= 1;
            let free = !self.levels[level][at as usize];
            debug_assert!(free != 0, "a word marked as not full is full");
            at = at * 64 + u64::from(free.trailing_zeros());
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_gives_every_block_once() {
        for blocks in [1, 2, 63, 64, 65, 4095, 4096, 4097, 300_000] {
            let mut map = RandomMap::new(blocks).unwrap();
            let mut stream = Stream::new(blocks, 0, 0, Purpose::Offsets);
            for _ in 0..blocks {
                let drawn = stream.below(blocks);
                let block = map.next_free(drawn).expect("a block is left");
                assert!(map.is_free(block) && block < blocks);
                map.hit(block);
            }
            assert_eq!(map.next_free(blocks / 2), None);
            map.clear();
            assert_eq!(map.next_free(blocks - 1), Some(blocks - 1));
        }
    }

    #[test]
    fn next_free_is_the_nearest_to_the_right() {
        let mut map = RandomMap::new(1000).unwrap();
        (100..900).for_each(|b| map.hit(b));
        assert_eq!(map.next_free(99), Some(99));
        assert_eq!(map.next_free(100), Some(900));
        (900..1000).for_each(|b| map.hit(b));
        assert_eq!(map.next_free(950), Some(0));
    }

    #[test]
    fn map_of_blocks_that_nobody_hits_takes_no_memory() {
        let resident = || -> u64 {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        let mut map = RandomMap::new(RANDOM_MAP_BLOCKS_MAX).unwrap();
        map.hit(RANDOM_MAP_BLOCKS_MAX - 1);
        map.clear();
        // Other tests run concurrently. The bits take a gigabyte.
        assert!(resident() < before + (256 << 20), "{} bytes more", resident() - before);
        assert!(map.is_free(RANDOM_MAP_BLOCKS_MAX - 1));
    }

    #[test]
    fn map_above_the_limit_is_refused() {
        let error = RandomMap::new(RANDOM_MAP_BLOCKS_MAX + 1).unwrap_err();
        assert!(matches!(error, PlanError::RandomMap { .. }));
    }

    #[test]
    fn streams_of_neighbours_differ() {
        let first = |seed, number, pass, purpose| Stream::new(seed, number, pass, purpose).bits();
        let all = [
            first(1, 0, 0, Purpose::Offsets),
            first(2, 0, 0, Purpose::Offsets),
            first(1, 1, 0, Purpose::Offsets),
            first(1, 0, 1, Purpose::Offsets),
            first(1, 0, 0, Purpose::Directions),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
        assert_eq!(first(1, 0, 0, Purpose::Offsets), all[0]);
    }
}
