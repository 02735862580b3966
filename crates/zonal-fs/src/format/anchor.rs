//! What a copy of the superblock says of the metadata store: where its segments lie, and how far it had come.
//!
//! The first 512 bytes of a copy are the superblock itself, which never changes. The anchor follows it. A checksum over the
//! whole block ends the copy. docs/FS.md draws the bytes.

use super::superblock::{Superblock, SuperblockError};
use super::{SUPERBLOCK_BYTES, crc32c};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::ZoneIndex;

/// Sequential zones that the store can have: as many as one copy can name.
pub const STORE_ZONES_MAX: usize = 880;

/// Where the anchor begins in a copy.
const ANCHOR_AT: usize = 512;

/// Where the checksum of a copy lies.
const SUM_AT: usize = SUPERBLOCK_BYTES - 4;

/// What the store is found by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Anchor {
    /// Rises with each copy that is written: of two copies, the one with the higher number counts.
    pub copy: u64,
    /// The store had come this far when the copy was written. A store that has not is refused.
    pub number: u64,
    /// Last batch of the store when the file system was closed, or after a second without changes. A store without it is refused.
    pub batch: u64,
    /// The zones that hold the copies in turn; both 0 where they lie in conventional blocks.
    pub homes: [ZoneIndex; 2],
    /// Equal pieces of the conventional zones or of the file beside the drive that the store has, from the first one on.
    pub pieces: u32,
    /// Blocks of each piece.
    pub piece_blocks: u32,
    /// Sequential zones that the store has, ascending.
    pub zones: Vec<ZoneIndex>,
}

/// A copy of the superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperblockCopy {
    /// What the file system was made with.
    pub superblock: Superblock,
    /// Where its metadata are.
    pub anchor: Anchor,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    copy: U64,
    number: U64,
    batch: U64,
    homes: [U32; 2],
    pieces: U32,
    piece_blocks: U32,
    zones: U32,
    listed: [U32; STORE_ZONES_MAX],
}

const _: () = assert!(ANCHOR_AT + size_of::<Raw>() <= SUM_AT);

impl SuperblockCopy {
    /// Its block.
    ///
    /// # Panics
    /// If the anchor names more than [`STORE_ZONES_MAX`] zones: the store has a bound below.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let Anchor { copy, number, batch, homes, pieces, piece_blocks, zones } = &self.anchor;
        assert!(zones.len() <= STORE_ZONES_MAX, "{} zones of metadata", zones.len());
        let mut listed = [U32::ZERO; STORE_ZONES_MAX];
        for (raw, zone) in listed.iter_mut().zip(zones) {
            *raw = zone.0.into();
        }
        let raw = Raw {
            copy: (*copy).into(),
            number: (*number).into(),
            batch: (*batch).into(),
            homes: homes.map(|zone| zone.0.into()),
            pieces: (*pieces).into(),
            piece_blocks: (*piece_blocks).into(),
            zones: (zones.len() as u32).into(),
            listed,
        };
        let mut block = self.superblock.encode();
        block[ANCHOR_AT..ANCHOR_AT + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        let sum = crc32c(&block[..SUM_AT]);
        block[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// What keeps the bytes from being one.
    pub fn decode(block: &[u8]) -> Result<SuperblockCopy, SuperblockError> {
        let superblock = Superblock::decode(block)?;
        let block: &[u8; SUPERBLOCK_BYTES] = block.try_into().map_err(|_| SuperblockError::Magic)?;
        if crc32c(&block[..SUM_AT]).to_le_bytes() != block[SUM_AT..] {
            return Err(SuperblockError::Checksum);
        }
        let (raw, _) = Raw::ref_from_prefix(&block[ANCHOR_AT..]).map_err(|_| SuperblockError::Magic)?;
        let anchor = raw.anchor().ok_or(SuperblockError::Nonsense("the places of its metadata"))?;
        let on_drive = superblock.sectors / superblock.zone_sectors;
        let is_there = |zone: &ZoneIndex| u64::from(zone.0) < on_drive;
        if !anchor.zones.iter().chain(&anchor.homes).all(is_there) {
            return Err(SuperblockError::Nonsense("the zones of its metadata"));
        }
        Ok(SuperblockCopy { superblock, anchor })
    }
}

impl Raw {
    fn anchor(&self) -> Option<Anchor> {
        let listed = self.listed.get(..self.zones.get() as usize)?;
        let zones: Vec<ZoneIndex> = listed.iter().map(|zone| ZoneIndex(zone.get())).collect();
        let is_ascending = zones.windows(2).all(|pair| pair[0] < pair[1]);
        let (pieces, piece_blocks) = (self.pieces.get(), self.piece_blocks.get());
        let blocks = pieces.checked_mul(piece_blocks)?;
        let is_known = pieces == 0 || blocks > 0;
        (is_ascending && is_known).then(|| Anchor {
            copy: self.copy.get(),
            number: self.number.get(),
            batch: self.batch.get(),
            homes: self.homes.map(|zone| ZoneIndex(zone.get())),
            pieces,
            piece_blocks,
            zones,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::superblock::tests::superblock;
    use proptest::prelude::*;

    fn anchor() -> impl Strategy<Value = Anchor> {
        let zones = prop::collection::btree_set(0..2048u32, 0..STORE_ZONES_MAX);
        (any::<[u64; 3]>(), [0..2048u32, 0..2048u32], 0..60_000u32, 1..60_000u32, zones).prop_map(
            |([copy, number, batch], homes, pieces, piece_blocks, zones)| Anchor {
                copy,
                number,
                batch,
                homes: homes.map(ZoneIndex),
                pieces,
                piece_blocks,
                zones: zones.into_iter().map(ZoneIndex).collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn copy_that_was_encoded_is_decoded(anchor in anchor()) {
            let copy = SuperblockCopy { superblock: superblock(), anchor };
            prop_assert_eq!(SuperblockCopy::decode(&copy.encode()), Ok(copy));
        }

        #[test]
        fn copy_with_a_bit_flipped_is_refused(anchor in anchor(), bit in 0..SUPERBLOCK_BYTES * 8) {
            let mut block = SuperblockCopy { superblock: superblock(), anchor }.encode();
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(SuperblockCopy::decode(&block).is_err());
        }

        #[test]
        fn any_bytes_under_good_checksums_are_a_copy_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut block = SuperblockCopy { superblock: superblock(), anchor: Anchor::default() }.encode();
            block[ANCHOR_AT..ANCHOR_AT + bytes.len()].copy_from_slice(&bytes);
            let sum = crc32c(&block[..SUM_AT]);
            block[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(copy) = SuperblockCopy::decode(&block) {
                prop_assert_eq!(SuperblockCopy::decode(&copy.encode()), Ok(copy));
            }
        }
    }

    #[test]
    fn zone_beyond_the_drive_or_out_of_order_is_refused() {
        for zones in [vec![3, 3], vec![4, 3], vec![2048]] {
            let zones = zones.into_iter().map(ZoneIndex).collect();
            let copy =
                SuperblockCopy { superblock: superblock(), anchor: Anchor { zones, ..Anchor::default() } };
            assert!(matches!(SuperblockCopy::decode(&copy.encode()), Err(SuperblockError::Nonsense(_))));
        }
    }
}
