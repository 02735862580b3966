//! CRC-32C with carry-less multiplication of 64 or 32 bytes at a time, for processors with
//! VPCLMULQDQ, with or without AVX-512.
//!
//! A register holds remainders of 16 bytes each. One step multiplies each by the power of x for the
//! distance to the next bytes, modulo the polynomial, and adds those bytes. Four registers are
//! folded in turn, so no product waits for the previous one. Finally all remainders are folded into
//! one, which the processor's CRC instruction reduces to 32 bits.
//!
//! The method follows Intel's paper "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction" (2009), for bytes with the lowest bit first.
//!
//! A copy stores the registers loaded for the checksum, so each byte is loaded once. The C library
//! would copy a block with `rep movsb`, which on Zen 3 takes four times as long if the target
//! starts 16 bytes further into its page than the source, as every large `Vec` does.

use super::{BLOCK_BYTES, Block};
use std::arch::x86_64::*;
use std::hint::black_box;

/// Number of registers folded in turn.
const LANES: usize = 4;

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Computes the checksums; returns false if the processor lacks the instructions.
pub(super) fn of_blocks(blocks: &[Block], sums: &mut [u32]) -> bool {
    if can_fold_64() {
        // SAFETY: the processor has the required features.
        unsafe { fold_all_64(blocks, sums) };
    } else if can_fold_32() {
        // SAFETY: as above.
        unsafe { fold_all_32(blocks, sums) };
    } else {
        return false;
    }
    true
}

/// Copies the blocks and computes their checksums; returns false if the processor lacks the
/// instructions.
pub(super) fn copy_blocks(from: &[Block], into: &mut [Block], sums: &mut [u32]) -> bool {
    if can_fold_64() {
        // SAFETY: as above.
        unsafe { copy_all_64(from, into, sums) };
    } else if can_fold_32() {
        // SAFETY: as above.
        unsafe { copy_all_32(from, into, sums) };
    } else {
        return false;
    }
    true
}

/// The standard library caches the result of the detection.
fn can_fold_64() -> bool {
    is_x86_feature_detected!("avx512f") && can_fold_32()
}

fn can_fold_32() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

#[target_feature(enable = "avx512f,avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold_all_64(blocks: &[Block], sums: &mut [u32]) {
    // SAFETY: this function enables all features that a register of 64 bytes needs.
    unsafe { fold_all::<__m512i>(blocks, sums) }
}

#[target_feature(enable = "avx512f,avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_all_64(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    // SAFETY: as above.
    unsafe { copy_all::<__m512i>(from, into, sums) }
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold_all_32(blocks: &[Block], sums: &mut [u32]) {
    // SAFETY: this function enables all features that a register of 32 bytes needs.
    unsafe { fold_all::<__m256i>(blocks, sums) }
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_all_32(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    // SAFETY: as above.
    unsafe { copy_all::<__m256i>(from, into, sums) }
}

/// # Safety
/// The processor has the features that `R` needs. This holds for all generic functions below: they
/// are inlined into a function that enables the features.
#[inline(always)]
unsafe fn fold_all<R: Register>(blocks: &[Block], sums: &mut [u32]) {
    for (block, sum) in blocks.iter().zip(sums) {
        // SAFETY: the caller's promise.
        *sum = unsafe { fold_block::<R>(block, |_, _| {}) };
    }
}

/// # Safety
/// As for [`fold_all`].
#[inline(always)]
unsafe fn copy_all<R: Register>(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    match (from, into) {
        // A single block is usually in the L1 cache already.
        // SAFETY: the caller's promise.
        ([from], [into]) => sums[0] = unsafe { copy_block::<R>(from, into) },
        (from, into) => {
            for ((from, into), sum) in from.iter().zip(into).zip(sums) {
                prefetch(from);
                // SAFETY: the caller's promise.
                *sum = unsafe { copy_block::<R>(from, into) };
            }
        }
    }
}

/// # Safety
/// As for [`fold_all`].
#[inline(always)]
unsafe fn copy_block<R: Register>(from: &Block, into: &mut Block) -> u32 {
    // If the compiler could prove that the blocks do not overlap, it would turn the stores into a
    // call of `memmove`, which reads the bytes a second time.
    let into = black_box(into.as_mut_ptr());
    // SAFETY: the registers of one block are stored at the same offsets of another; the rest is the
    // caller's promise.
    unsafe { fold_block::<R>(from, |at, bytes| bytes.store(into.add(at * size_of::<R>()))) }
}

/// Prefetches a whole block. Stores between the loads defeat the hardware prefetcher: with this,
/// copying a block from main memory is 20% faster.
#[inline(always)]
fn prefetch(block: &Block) {
    for line in block.as_chunks::<LINE>().0 {
        // SAFETY: all x86-64 processors have SSE, and a prefetch does not access memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// Checksum of a block. Calls `show` with each register and its index.
///
/// # Safety
/// As for [`fold_all`].
#[inline(always)]
unsafe fn fold_block<R: Register>(block: &Block, mut show: impl FnMut(usize, R)) -> u32 {
    const { assert!(BLOCK_BYTES.is_multiple_of(LANES * size_of::<R>())) };
    let width = size_of::<R>();
    let mut next = |at: usize| {
        // SAFETY: a block has this many registers; the rest is the caller's promise.
        let bytes = unsafe { R::load(block.as_ptr().add(at * width)) };
        show(at, bytes);
        bytes
    };
    let mut lanes = [next(0), next(1), next(2), next(3)];
    // SAFETY: the caller's promise, for all below.
    unsafe {
        // The initial value of the CRC is all ones, so the first 32 bits are inverted.
        lanes[0] = lanes[0].begin();
        let distance = R::factors(const { &[powers_of(LANES * size_of::<R>()); 4] });
        for at in (LANES..BLOCK_BYTES / width).step_by(LANES) {
            for (lane, remainder) in lanes.iter_mut().enumerate() {
                *remainder = remainder.fold(distance, next(at + lane));
            }
        }
        let one = R::factors(const { &[powers_of(size_of::<R>()); 4] });
        let two = R::factors(const { &[powers_of(2 * size_of::<R>()); 4] });
        let (even, odd) = (lanes[0].fold(two, lanes[2]), lanes[1].fold(two, lanes[3]));
        even.fold(one, odd).end()
    }
}

/// Several remainders of 16 bytes side by side.
///
/// # Safety
/// For each of these functions, the processor has the features that the register needs. Pointers
/// are valid for the size of the register, at any alignment.
trait Register: Copy {
    unsafe fn load(bytes: *const u8) -> Self;

    unsafe fn store(self, into: *mut u8);

    /// Loads the factors of all remainders.
    unsafe fn factors(powers: &[Powers; 4]) -> Self;

    /// Inverts the first 32 bits.
    unsafe fn begin(self) -> Self;

    /// Folds each remainder over `distance` into `there`.
    unsafe fn fold(self, distance: Self, there: Self) -> Self;

    /// Reduces all remainders to the checksum.
    unsafe fn end(self) -> u32;
}

impl Register for __m512i {
    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller's promise, here and below.
        unsafe { _mm512_loadu_si512(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(into.cast(), self) }
    }

    #[inline(always)]
    unsafe fn factors(powers: &[Powers; 4]) -> Self {
        // SAFETY: the array has 64 bytes, without padding.
        unsafe { _mm512_loadu_si512((&raw const *powers).cast()) }
    }

    #[inline(always)]
    unsafe fn begin(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_xor_si512(self, _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1))) }
    }

    #[inline(always)]
    unsafe fn fold(self, distance: Self, there: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let low = _mm512_clmulepi64_epi128::<0x00>(self, distance);
            let high = _mm512_clmulepi64_epi128::<0x11>(self, distance);
            // Exclusive or of three operands.
            _mm512_ternarylogic_epi64::<0x96>(low, high, there)
        }
    }

    #[inline(always)]
    unsafe fn end(self) -> u32 {
        // SAFETY: as above; the features for this register include those for one of 32 bytes.
        unsafe {
            let (first, last) = (_mm512_castsi512_si256(self), _mm512_extracti64x4_epi64::<1>(self));
            let half = __m256i::factors(const { &[powers_of(32); 4] });
            first.fold(half, last).end()
        }
    }
}

impl Register for __m256i {
    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller's promise, here and below.
        unsafe { _mm256_loadu_si256(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(into.cast(), self) }
    }

    #[inline(always)]
    unsafe fn factors(powers: &[Powers; 4]) -> Self {
        // SAFETY: the array has more than 32 bytes, without padding.
        unsafe { _mm256_loadu_si256((&raw const *powers).cast()) }
    }

    #[inline(always)]
    unsafe fn begin(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_xor_si256(self, _mm256_zextsi128_si256(_mm_cvtsi32_si128(-1))) }
    }

    #[inline(always)]
    unsafe fn fold(self, distance: Self, there: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let low = _mm256_clmulepi64_epi128::<0x00>(self, distance);
            let high = _mm256_clmulepi64_epi128::<0x11>(self, distance);
            _mm256_xor_si256(_mm256_xor_si256(low, high), there)
        }
    }

    #[inline(always)]
    unsafe fn end(self) -> u32 {
        // SAFETY: as above; the CRC instruction is part of SSE 4.2.
        unsafe {
            // The last 16 bytes are not multiplied: they are added below, and the other products
            // are zero.
            let distances = Self::factors(const { &[powers_of(16), NOTHING, NOTHING, NOTHING] });
            let folded = self.fold(distances, _mm256_setzero_si256());
            let bytes = _mm_xor_si128(_mm256_castsi256_si128(folded), _mm256_extracti128_si256::<1>(self));
            let sum = _mm_crc32_u64(0, _mm_extract_epi64::<0>(bytes) as u64);
            !(_mm_crc32_u64(sum, _mm_extract_epi64::<1>(bytes) as u64) as u32)
        }
    }
}

/// Factors that the two halves of 16 bytes are multiplied by to fold them.
#[derive(Clone, Copy)]
#[repr(C)]
struct Powers {
    low: u64,
    high: u64,
}

const NOTHING: Powers = Powers { low: 0, high: 0 };

const _: () = assert!(size_of::<[Powers; 4]>() == size_of::<__m512i>());

/// Factors for a distance of `bytes`. The lower half is 64 bits further away. Each factor occupies
/// the upper half of its 64 bits. The product of two numbers in bit-reflected form is one bit too
/// low, which [`power`] compensates.
const fn powers_of(bytes: usize) -> Powers {
    Powers { low: power(8 * bytes + 32), high: power(8 * bytes - 32) }
}

/// x^`exponent` modulo the polynomial, lowest bit first, times x.
const fn power(exponent: usize) -> u64 {
    let mut power: u32 = 1 << 31;
    let mut i = 0;
    while i < exponent {
        power = (power >> 1) ^ (POLYNOMIAL & (power & 1).wrapping_neg());
        i += 1;
    }
    (power as u64) << 1
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    type OfBlocks = unsafe fn(&[Block], &mut [u32]);
    type CopyBlocks = unsafe fn(&[Block], &mut [Block], &mut [u32]);

    /// Also tests the narrower registers where wider ones are preferred.
    #[test]
    fn registers_of_both_widths_make_the_librarys_sums() {
        let wide: (_, OfBlocks, CopyBlocks) = (can_fold_64(), fold_all_64, copy_all_64);
        let narrow: (_, OfBlocks, CopyBlocks) = (can_fold_32(), fold_all_32, copy_all_32);
        for (_, of_blocks, copy_blocks) in [wide, narrow].into_iter().filter(|(can, ..)| *can) {
            // SAFETY: the processor has the features that these functions need.
            check(
                |blocks, sums| unsafe { of_blocks(blocks, sums) },
                |from, into, sums| unsafe {
                    copy_blocks(from, into, sums);
                },
            );
        }
    }
}
