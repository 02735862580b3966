//! Byte format of the current states: the stamp, and the word of each zone.

use super::{Layout, PAGE_BYTES, state_from_word};
use crate::image::backing::CacheId;
use std::ops::Range;
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, ZoneIndex};

/// Size of the stamp. The words begin one page after it.
pub const STAMP_BYTES: usize = 64;

/// Validity of the current states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum StampState {
    /// Valid in the cache that the stamp identifies.
    Counts = 1,
    /// Valid, but with a sync in progress, which may have failed.
    InSync = 2,
}

/// Identifies the cache in which the current states are valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Their validity there.
    pub state: StampState,
    /// Identity of the cache.
    pub cache: CacheId,
    /// Creation number of the image.
    pub creation: [u8; 16],
}

impl Stamp {
    /// Bytes of a stamp, or of an empty one.
    pub fn emit(stamp: Option<&Stamp>) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        if let Some(stamp) = stamp {
            let words = std::iter::once(stamp.state as u64).chain(stamp.cache.0);
            for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
            bytes[STAMP_BYTES - 16..].copy_from_slice(&stamp.creation);
        }
        bytes
    }

    /// Parses a stamp; `None` if it is empty.
    ///
    /// # Errors
    /// The first word, if no version writes it.
    pub fn parse(bytes: &[u8; STAMP_BYTES]) -> Result<Option<Stamp>, u64> {
        let word = |i: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[i]);
        let state = match word(0) {
            0 => return Ok(None),
            1 => StampState::Counts,
            2 => StampState::InSync,
            other => return Err(other),
        };
        let creation = bytes.as_chunks::<16>().0[3];
        Ok(Some(Stamp { state, cache: CacheId(std::array::from_fn(|i| word(1 + i))), creation }))
    }
}

impl Layout {
    /// Range of the words of the current states.
    pub const fn current_words(&self) -> Range<u64> {
        let start = self.current_offset + PAGE_BYTES as u64;
        start..start + self.zones as u64 * 8
    }

    /// Offset of the word of `zone`.
    #[inline]
    pub const fn current_word(&self, zone: ZoneIndex) -> u64 {
        self.current_offset + PAGE_BYTES as u64 + zone.0 as u64 * 8
    }
}

/// Word of `zone` in `state`: the ledger's word, with a check of 28 bits above it.
#[inline]
pub fn current_word(creation: &[u8; 16], zone: ZoneIndex, state: ZoneState) -> u64 {
    let bits = state.to_bits();
    bits | check(creation, zone, bits) << ZoneState::BITS
}

/// State in `word`; `None` if it is not a word of `zone`, or if the state is impossible for this
/// geometry.
pub fn current_state(
    geometry: &Geometry,
    creation: &[u8; 16],
    zone: ZoneIndex,
    word: u64,
) -> Option<ZoneState> {
    let bits = word & ((1 << ZoneState::BITS) - 1);
    let is_sound = word >> ZoneState::BITS == check(creation, zone, bits);
    if is_sound { state_from_word(geometry, zone, bits).ok() } else { None }
}

/// Check that detects a damaged word, or one of another zone or image. Odd multipliers and shifts
/// make each bit of the result depend on every bit of the input.
#[inline]
fn check(creation: &[u8; 16], zone: ZoneIndex, bits: u64) -> u64 {
    let image = u64::from_le_bytes(creation.as_chunks::<8>().0[0]);
    let mut mixed = bits ^ image ^ (u64::from(zone.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed >> ZoneState::BITS
}
