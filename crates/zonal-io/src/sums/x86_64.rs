//! CRC-32C by carry-less products of 64 or 32 bytes at a time, for processors with VPCLMULQDQ, with AVX-512 or without.
//!
//! A register holds remainders of 16 bytes each. One step multiplies each by the power of x that stands for the distance to the bytes
//! that come next, modulo the polynomial, and adds these. Four registers are folded in turn, so that no product waits for the one
//! before. At the end all remainders become one, and the processor's CRC instruction brings it to 32 bits.
//!
//! The method is that of Intel's paper "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009), of bytes
//! whose lowest bit comes first.
//!
//! A copy stores the registers that the sum has loaded, so that each byte is loaded once. The C library would copy a block with `rep
//! movsb`. On a Zen 3 that takes four times as long when the target begins 16 bytes further into its page than the source, as every
//! large `Vec` does.

use super::{BLOCK_BYTES, Block};
use std::arch::x86_64::*;
use std::hint::black_box;

/// Registers that are folded in turn.
const LANES: usize = 4;

/// Bytes that a processor's cache holds together.
const LINE: usize = 64;

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Makes the sums, if the processor can.
pub(super) fn of_blocks(blocks: &[Block], sums: &mut [u32]) -> bool {
    if can_fold_64() {
        // SAFETY: the processor has what the function needs.
        unsafe { fold_all_64(blocks, sums) };
    } else if can_fold_32() {
        // SAFETY: as above.
        unsafe { fold_all_32(blocks, sums) };
    } else {
        return false;
    }
    true
}

/// Copies as many blocks as there are, and makes their sums, if the processor can.
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

/// The library remembers what the processor has.
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
    // SAFETY: this function asks for all that a register of 64 bytes needs.
    unsafe { fold_all::<__m512i>(blocks, sums) }
}

#[target_feature(enable = "avx512f,avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_all_64(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    // SAFETY: as above.
    unsafe { copy_all::<__m512i>(from, into, sums) }
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold_all_32(blocks: &[Block], sums: &mut [u32]) {
    // SAFETY: this function asks for all that a register of 32 bytes needs.
    unsafe { fold_all::<__m256i>(blocks, sums) }
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_all_32(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    // SAFETY: as above.
    unsafe { copy_all::<__m256i>(from, into, sums) }
}

/// # Safety
/// The processor has what `R` needs. This holds for all functions of an `R` below: they become part of a function that asks for it.
#[inline(always)]
unsafe fn fold_all<R: Register>(blocks: &[Block], sums: &mut [u32]) {
    for (block, sum) in blocks.iter().zip(sums) {
        // SAFETY: the caller's promise.
        *sum = unsafe { fold_block::<R>(block, |_, _| {}) };
    }
}

/// # Safety
/// As of [`fold_all`].
#[inline(always)]
unsafe fn copy_all<R: Register>(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    match (from, into) {
        // A block alone has most often just come into the nearest cache.
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
/// As of [`fold_all`].
#[inline(always)]
unsafe fn copy_block<R: Register>(from: &Block, into: &mut Block) -> u32 {
    // A compiler that knows the blocks to be two makes a call of `memmove` of the stores, and reads the bytes a second time.
    let into = black_box(into.as_mut_ptr());
    // SAFETY: the registers of one block go to the same places of another; the rest is the caller's promise.
    unsafe { fold_block::<R>(from, |at, bytes| bytes.store(into.add(at * size_of::<R>()))) }
}

/// Asks memory for all of a block at once. Stores between the loads keep the processor from fetching ahead: from beyond its caches, a
/// block that is asked for first is copied a fifth faster.
#[inline(always)]
fn prefetch(block: &Block) {
    for line in block.as_chunks::<LINE>().0 {
        // SAFETY: all processors of this kind have SSE, and a hint reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// The sum of a block, each register of which is shown with its number.
///
/// # Safety
/// As of [`fold_all`].
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
        // A sum begins with ones: the first 32 bits are inverted.
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

/// Some remainders of 16 bytes side by side.
///
/// # Safety
/// The processor has what the register needs, for each of these functions; pointers are to as many bytes as the register has, at any
/// address.
trait Register: Copy {
    unsafe fn load(bytes: *const u8) -> Self;

    unsafe fn store(self, into: *mut u8);

    /// The factors of as many remainders as there are.
    unsafe fn factors(powers: &[Powers; 4]) -> Self;

    /// Inverts the first 32 bits.
    unsafe fn begin(self) -> Self;

    /// Each remainder brought forward by a distance, and those that are there.
    unsafe fn fold(self, distance: Self, there: Self) -> Self;

    /// The sum of what lies here.
    unsafe fn end(self) -> u32;
}

impl Register for __m512i {
    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller's promise, here and in all below.
        unsafe { _mm512_loadu_si512(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(into.cast(), self) }
    }

    #[inline(always)]
    unsafe fn factors(powers: &[Powers; 4]) -> Self {
        // SAFETY: there are 64 bytes, without padding.
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
            // The exclusive or of three.
            _mm512_ternarylogic_epi64::<0x96>(low, high, there)
        }
    }

    #[inline(always)]
    unsafe fn end(self) -> u32 {
        // SAFETY: as above; this register needs what one of 32 bytes does, and more.
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
        // SAFETY: the caller's promise, here and in all below.
        unsafe { _mm256_loadu_si256(bytes.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, into: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(into.cast(), self) }
    }

    #[inline(always)]
    unsafe fn factors(powers: &[Powers; 4]) -> Self {
        // SAFETY: there are more than 32 bytes, without padding.
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
        // SAFETY: as above; the CRC instruction is in SSE 4.2.
        unsafe {
            // The last 16 bytes stay as they are: a product with nothing leaves nothing.
            let distances = Self::factors(const { &[powers_of(16), NOTHING, NOTHING, NOTHING] });
            let folded = self.fold(distances, _mm256_setzero_si256());
            let bytes = _mm_xor_si128(_mm256_castsi256_si128(folded), _mm256_extracti128_si256::<1>(self));
            let sum = _mm_crc32_u64(0, _mm_extract_epi64::<0>(bytes) as u64);
            !(_mm_crc32_u64(sum, _mm_extract_epi64::<1>(bytes) as u64) as u32)
        }
    }
}

/// What the two halves of 16 bytes are multiplied with to bring them forward.
#[derive(Clone, Copy)]
#[repr(C)]
struct Powers {
    low: u64,
    high: u64,
}

const NOTHING: Powers = Powers { low: 0, high: 0 };

const _: () = assert!(size_of::<[Powers; 4]>() == size_of::<__m512i>());

/// Those for a distance of `bytes`. The lower half has 64 bits further to go. A factor lies in the upper half of its 64 bits, and the
/// product of two numbers with the lowest bit first lies one bit too low, which [`power`] makes good.
const fn powers_of(bytes: usize) -> Powers {
    Powers { low: power(8 * bytes + 32), high: power(8 * bytes - 32) }
}

/// x to the `exponent` modulo the polynomial, lowest bit first, times x.
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

    /// Also the narrower registers, where the wider ones are taken before them.
    #[test]
    fn registers_of_both_widths_make_the_librarys_sums() {
        let wide: (_, OfBlocks, CopyBlocks) = (can_fold_64(), fold_all_64, copy_all_64);
        let narrow: (_, OfBlocks, CopyBlocks) = (can_fold_32(), fold_all_32, copy_all_32);
        for (_, of_blocks, copy_blocks) in [wide, narrow].into_iter().filter(|(can, ..)| *can) {
            // SAFETY: the processor has what these functions need.
            check(
                |blocks, sums| unsafe { of_blocks(blocks, sums) },
                |from, into, sums| unsafe {
                    copy_blocks(from, into, sums);
                },
            );
        }
    }
}
