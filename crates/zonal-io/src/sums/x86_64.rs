//! CRC-32C by carry-less products of 64 bytes at a time, for processors with AVX-512 and VPCLMULQDQ.
//!
//! A register holds four remainders of 16 bytes. One step multiplies each by the power of x that stands for the distance to the bytes
//! that come next, modulo the polynomial, and adds these. Four registers are folded in turn, so that no product waits for the one
//! before. At the end the sixteen remainders become one, and the processor's CRC instruction brings it to 32 bits.
//!
//! The method is that of Intel's paper "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009), of bytes
//! whose lowest bit comes first.

use super::{BLOCK_BYTES, Block};
use std::arch::x86_64::*;

/// Bytes of a register.
const WIDTH: usize = 64;

/// Registers that are folded in turn.
const LANES: usize = 4;

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82F6_3B78;

type Register = [u8; WIDTH];

const _: () = assert!(size_of::<[Powers; 4]>() == WIDTH);

const _: () = assert!(BLOCK_BYTES.is_multiple_of(LANES * WIDTH));

/// Makes the sums, if the processor can.
pub(super) fn of_blocks(blocks: &[Block], sums: &mut [u32]) -> bool {
    if !can_fold() {
        return false;
    }
    // SAFETY: the processor has what the function needs.
    unsafe { fold_all(blocks, sums) };
    true
}

/// Copies as many blocks as there are, and makes their sums, if the processor can.
pub(super) fn copy_blocks(from: &[Block], into: &mut [Block], sums: &mut [u32]) -> bool {
    if !can_fold() {
        return false;
    }
    // SAFETY: as above.
    unsafe { copy_all(from, into, sums) };
    true
}

/// The library remembers what the processor has.
fn can_fold() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold_all(blocks: &[Block], sums: &mut [u32]) {
    for (block, sum) in blocks.iter().zip(sums) {
        *sum = fold_block(block, |_, _| {});
    }
}

#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_all(from: &[Block], into: &mut [Block], sums: &mut [u32]) {
    match (from, into) {
        // A block alone is most often one that has just come into the nearest cache.
        ([from], [into]) => sums[0] = copy_block(from, into),
        (from, into) => {
            for ((from, into), sum) in from.iter().zip(into).zip(sums) {
                prefetch(from);
                *sum = copy_block(from, into);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_block(from: &Block, into: &mut Block) -> u32 {
    let (into, _) = into.as_chunks_mut();
    fold_block(from, |at, bytes| store(bytes, &mut into[at]))
}

/// Asks memory for all of a block at once. Stores between the loads keep the processor from fetching ahead: from beyond its caches, a
/// block that is asked for first is copied a fifth faster.
#[inline]
#[target_feature(enable = "sse")]
fn prefetch(block: &Block) {
    for register in block.as_chunks::<WIDTH>().0 {
        _mm_prefetch::<_MM_HINT_T0>(register.as_ptr().cast());
    }
}

/// The sum of a block, each register of which is shown with its number.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold_block(block: &Block, mut show: impl FnMut(usize, __m512i)) -> u32 {
    let (registers, _) = block.as_chunks();
    let mut next = |at: usize| {
        let bytes = load(&registers[at]);
        show(at, bytes);
        bytes
    };
    let mut lanes = [next(0), next(1), next(2), next(3)];
    // A sum begins with ones: the first 32 bits are inverted.
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
    let distance = factors(const { &[powers_of(LANES * WIDTH); 4] });
    for at in (LANES..BLOCK_BYTES / WIDTH).step_by(LANES) {
        for (lane, remainder) in lanes.iter_mut().enumerate() {
            *remainder = fold(*remainder, distance, next(at + lane));
        }
    }
    let (one, two) =
        (factors(const { &[powers_of(WIDTH); 4] }), factors(const { &[powers_of(2 * WIDTH); 4] }));
    let (even, odd) = (fold(lanes[0], two, lanes[2]), fold(lanes[1], two, lanes[3]));
    end(fold(even, one, odd))
}

/// The sum of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn end(last: __m512i) -> u32 {
    // The last 16 bytes stay as they are: a product with nothing leaves nothing.
    let distances =
        factors(const { &[powers_of(48), powers_of(32), powers_of(16), Powers { low: 0, high: 0 }] });
    let folded = fold(last, distances, _mm512_setzero_si512());
    let [a, b] = [_mm512_castsi512_si128(folded), _mm512_extracti32x4_epi32::<1>(folded)];
    let [c, d] = [_mm512_extracti32x4_epi32::<2>(folded), _mm512_extracti32x4_epi32::<3>(last)];
    let bytes = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d));
    let sum = _mm_crc32_u64(0, _mm_extract_epi64::<0>(bytes) as u64);
    !(_mm_crc32_u64(sum, _mm_extract_epi64::<1>(bytes) as u64) as u32)
}

/// Each 16 bytes of `remainder` brought forward by a distance, and those that are there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(remainder: __m512i, distance: __m512i, there: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(remainder, distance);
    let high = _mm512_clmulepi64_epi128::<0x11>(remainder, distance);
    // The exclusive or of three.
    _mm512_ternarylogic_epi64::<0x96>(low, high, there)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &Register) -> __m512i {
    // SAFETY: there are 64 bytes; any address will do.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: __m512i, into: &mut Register) {
    // SAFETY: as above.
    unsafe { _mm512_storeu_si512(into.as_mut_ptr().cast(), bytes) }
}

/// What the two halves of 16 bytes are multiplied with to bring them forward.
#[derive(Clone, Copy)]
#[repr(C)]
struct Powers {
    low: u64,
    high: u64,
}

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

/// The factors of a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn factors(powers: &[Powers; 4]) -> __m512i {
    // SAFETY: there are 64 bytes, without padding; any address will do.
    unsafe { _mm512_loadu_si512((&raw const *powers).cast()) }
}
