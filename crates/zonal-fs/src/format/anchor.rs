//! Location and version of the metadata store, as recorded in a copy of the superblock.
//!
//! The first 512 bytes of a copy are the superblock, which never changes. The anchor follows it,
//! and a checksum of the whole block ends the copy. docs/FS.md draws the bytes.

use super::superblock::{Superblock, SuperblockError};
use super::{SUPERBLOCK_BYTES, crc32c};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::ZoneIndex;

/// Maximum number of sequential zones of the store, limited by the room in a copy.
pub const STORE_ZONES_MAX: usize = 880;

/// Offset of the anchor in a copy.
const ANCHOR_AT: usize = 512;

/// Offset of the checksum in a copy.
const SUM_AT: usize = SUPERBLOCK_BYTES - 4;

/// Location and minimum version of the metadata store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Anchor {
    /// Number of this update. The copy with the highest number is current.
    pub copy: u64,
    /// Store number when the copy was written. A store that has not reached it is refused.
    pub number: u64,
    /// Last batch of the store when the file system was closed or had been idle for a second. A
    /// store without this batch is refused.
    pub batch: u64,
    /// The two zones that hold the copies in turn. Both 0 if the copies are in conventional blocks.
    pub homes: [ZoneIndex; 2],
    /// Number of pieces of the store, from piece 0 on. The pieces are equal parts of the
    /// conventional zones or of the file beside the drive.
    pub pieces: u32,
    /// Size of each piece, in blocks.
    pub piece_blocks: u32,
    /// Sequential zones of the store, ascending.
    pub zones: Vec<ZoneIndex>,
}

/// A copy of the superblock, with its anchor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperblockCopy {
    /// Parameters of the file system.
    pub superblock: Superblock,
    /// Location of its metadata.
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
    /// Encodes the copy as a block.
    ///
    /// # Panics
    /// If the anchor names more than [`STORE_ZONES_MAX`] zones. The store enforces a lower limit.
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

    /// Decodes a copy.
    ///
    /// # Errors
    /// If the bytes are not a valid copy.
    pub fn decode(block: &[u8]) -> Result<SuperblockCopy, SuperblockError> {
        let superblock = Superblock::decode(block)?;
        let block: &[u8; SUPERBLOCK_BYTES] = block.try_into().map_err(|_| SuperblockError::Magic)?;
        if crc32c(&block[..SUM_AT]).to_le_bytes() != block[SUM_AT..] {
            return Err(SuperblockError::Checksum);
        }
        let (raw, _) = Raw::ref_from_prefix(&block[ANCHOR_AT..]).map_err(|_| SuperblockError::Magic)?;
        let anchor =
            raw.anchor().ok_or(SuperblockError::Nonsense("metadata zones or pieces out of range"))?;
        let on_drive = superblock.sectors / superblock.zone_sectors;
        let is_there = |zone: &ZoneIndex| u64::from(zone.0) < on_drive;
        if !anchor.zones.iter().chain(&anchor.homes).all(is_there) {
            return Err(SuperblockError::Nonsense("metadata zone beyond the drive"));
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
