//! Heads: the blocks of a log that say what the blocks behind them are. docs/FS.md draws them.
//!
//! A head names its own place and the opening of its zone, so that a page that holds a copy of one, or one that a reset left
//! behind, is not taken for it.

use super::super::error::{Damage, Place};
use super::super::header;
use crate::BLOCK_BYTES;
use crate::format::Uuid;
use crate::format::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::ZoneIndex;

const MAGIC: [u8; 8] = *b"zonallog";
const VERSION: u32 = 1;
const CHECKPOINT: u32 = 1;
const PART: u32 = 2;
/// In a part's flags: no other part of the batch follows.
const LAST: u32 = 1;

/// Pages that one part lists at most.
pub(super) const PART_PAGES_MAX: usize = 499;

/// A head, and where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Where it lies.
    pub(super) place: Place,
    /// Which opening of a zone it belongs to: they are counted over the whole log.
    pub(super) opening: u64,
    pub(super) kind: HeadKind,
}

/// What follows a head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HeadKind {
    /// A table of pages.
    Checkpoint(Checkpoint),
    /// Pages.
    Part(Part),
}

/// The beginning of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Checkpoint {
    /// The last batch that the table includes.
    pub(super) batch: u64,
    /// The opening before this one, 0 if there was none.
    pub(super) before: u64,
    /// Length of the file in bytes.
    pub(super) len: u64,
    /// Zones that take no writes, a bit each by their number in the log: none of them was begun later.
    pub(super) bad: u64,
    /// Blocks of the table.
    pub(super) table_blocks: u32,
    /// CRC-32C of the table's blocks.
    pub(super) table_crc: u32,
    /// CRC-32C of the indexes of all zones of the log, in their order.
    pub(super) zones_crc: u32,
}

/// A batch, or as much of one as comes in one piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// The batch.
    pub(super) batch: u64,
    /// The batch that was durable before: what a part says of it is true.
    pub(super) before: u64,
    /// Length of the file in bytes, after the batch.
    pub(super) len: u64,
    /// Pages from this one on are zeroes but for those that the batch has.
    pub(super) cut: u64,
    /// Counted from 0 in the batch.
    pub(super) number: u32,
    pub(super) is_last: bool,
    /// The part before this one; without meaning in the first.
    pub(super) prior: Place,
    /// The pages that follow.
    pub(super) pages: Vec<Listed>,
}

/// A page in a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) page: u32,
    pub(super) crc: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    kind: U32,
    uuid: Uuid,
    opening: U64,
    zone: U32,
    block: U32,
    batch: U64,
    before: U64,
    len: U64,
    /// A part's cut; a checkpoint's bad zones.
    cut: U64,
    /// A part's number; a checkpoint's blocks of the table.
    count: U32,
    /// A part's flags; the CRC of a checkpoint's table.
    word: U32,
    /// A part's pages; the CRC of a checkpoint's zones.
    pages: U32,
    prior_zone: U32,
    prior_block: U32,
    listed: [[U32; 2]; PART_PAGES_MAX],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES as usize);

impl Head {
    /// Its block.
    pub(super) fn emit(&self, uuid: &Uuid) -> Vec<u8> {
        let mut raw = Raw::new_zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.uuid = *uuid;
        raw.opening = self.opening.into();
        raw.zone = self.place.zone.0.into();
        raw.block = self.place.block.into();
        match &self.kind {
            HeadKind::Checkpoint(checkpoint) => checkpoint.emit(&mut raw),
            HeadKind::Part(part) => part.emit(&mut raw),
        }
        raw.crc = crc32c(&raw.as_bytes()[..BLOCK_BYTES as usize - 4]).into();
        raw.as_bytes().to_vec()
    }

    /// The head in `block`, which was read at `place`, of the file system `uuid`.
    pub(super) fn parse(block: &[u8], uuid: &Uuid, place: Place) -> Result<Head, Damage> {
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Damage::Missing("the block"))?;
        header::check(raw.as_bytes(), &MAGIC, VERSION, uuid)?;
        if (raw.zone.get(), raw.block.get()) != (place.zone.0, place.block) {
            return Err(Damage::Place);
        }
        let kind = match raw.kind.get() {
            CHECKPOINT => HeadKind::Checkpoint(Checkpoint::parse(raw)),
            PART => HeadKind::Part(Part::parse(raw)?),
            _ => return Err(Damage::Field("kind")),
        };
        Ok(Head { place, opening: raw.opening.get(), kind })
    }
}

impl Checkpoint {
    fn emit(&self, raw: &mut Raw) {
        raw.kind = CHECKPOINT.into();
        raw.batch = self.batch.into();
        raw.before = self.before.into();
        raw.len = self.len.into();
        raw.cut = self.bad.into();
        raw.count = self.table_blocks.into();
        raw.word = self.table_crc.into();
        raw.pages = self.zones_crc.into();
    }

    fn parse(raw: &Raw) -> Checkpoint {
        Checkpoint {
            batch: raw.batch.get(),
            before: raw.before.get(),
            len: raw.len.get(),
            bad: raw.cut.get(),
            table_blocks: raw.count.get(),
            table_crc: raw.word.get(),
            zones_crc: raw.pages.get(),
        }
    }
}

impl Part {
    fn emit(&self, raw: &mut Raw) {
        raw.kind = PART.into();
        raw.batch = self.batch.into();
        raw.before = self.before.into();
        raw.len = self.len.into();
        raw.cut = self.cut.into();
        raw.count = self.number.into();
        raw.word = if self.is_last { LAST } else { 0 }.into();
        raw.pages = (self.pages.len() as u32).into();
        raw.prior_zone = self.prior.zone.0.into();
        raw.prior_block = self.prior.block.into();
        for (raw, Listed { page, crc }) in raw.listed.iter_mut().zip(&self.pages) {
            *raw = [(*page).into(), (*crc).into()];
        }
    }

    fn parse(raw: &Raw) -> Result<Part, Damage> {
        let count = raw.pages.get() as usize;
        let listed = raw.listed.get(..count).ok_or(Damage::Field("pages"))?;
        if raw.before.get() >= raw.batch.get() {
            return Err(Damage::Field("before"));
        }
        Ok(Part {
            batch: raw.batch.get(),
            before: raw.before.get(),
            len: raw.len.get(),
            cut: raw.cut.get(),
            number: raw.count.get(),
            is_last: raw.word.get() & LAST != 0,
            prior: Place { zone: ZoneIndex(raw.prior_zone.get()), block: raw.prior_block.get() },
            pages: listed.iter().map(|[page, crc]| Listed { page: page.get(), crc: crc.get() }).collect(),
        })
    }
}

/// CRC-32C of the indexes of `zones`.
pub(super) fn zones_crc(zones: &[ZoneIndex]) -> u32 {
    let bytes: Vec<u8> = zones.iter().flat_map(|zone| zone.0.to_le_bytes()).collect();
    crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: Uuid = [5; 16];

    fn place() -> impl Strategy<Value = Place> {
        (any::<u32>(), any::<u32>()).prop_map(|(zone, block)| Place { zone: ZoneIndex(zone), block })
    }

    fn part() -> impl Strategy<Value = HeadKind> {
        let numbers = (1..u64::MAX, any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>());
        let listed = (any::<u32>(), any::<u32>()).prop_map(|(page, crc)| Listed { page, crc });
        let pages = prop::collection::vec(listed, 0..=PART_PAGES_MAX);
        (numbers, place(), pages).prop_map(|((batch, before, len, cut, number, is_last), prior, pages)| {
            HeadKind::Part(Part { batch, before: before % batch, len, cut, number, is_last, prior, pages })
        })
    }

    fn checkpoint() -> impl Strategy<Value = HeadKind> {
        (any::<[u64; 4]>(), any::<[u32; 3]>()).prop_map(
            |([batch, before, len, bad], [table_blocks, table_crc, zones_crc])| {
                HeadKind::Checkpoint(Checkpoint {
                    batch,
                    before,
                    len,
                    bad,
                    table_blocks,
                    table_crc,
                    zones_crc,
                })
            },
        )
    }

    fn head() -> impl Strategy<Value = Head> {
        (place(), any::<u64>(), prop_oneof![part(), checkpoint()]).prop_map(|(place, opening, kind)| Head {
            place,
            opening,
            kind,
        })
    }

    proptest! {
        #[test]
        fn head_that_was_emitted_is_parsed(head in head()) {
            prop_assert_eq!(Head::parse(&head.emit(&UUID), &UUID, head.place), Ok(head));
        }

        #[test]
        fn head_with_a_bit_flipped_is_refused(head in head(), bit in 0..u64::from(BLOCK_BYTES) * 8) {
            let mut block = head.emit(&UUID);
            block[(bit / 8) as usize] ^= 1 << (bit % 8);
            prop_assert!(Head::parse(&block, &UUID, head.place).is_err());
        }

        #[test]
        fn any_bytes_under_a_good_checksum_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut block = Head {
                place: Place { zone: ZoneIndex(0), block: 0 },
                opening: 0,
                kind: HeadKind::Checkpoint(Checkpoint {
                    batch: 0, before: 0, len: 0, bad: 0, table_blocks: 0, table_crc: 0, zones_crc: 0,
                }),
            }
            .emit(&UUID);
            for (n, byte) in bytes.iter().enumerate() {
                block[12 + n + if n < 4 { 0 } else { 28 }] = *byte;
            }
            let crc = crc32c(&block[..BLOCK_BYTES as usize - 4]);
            block[BLOCK_BYTES as usize - 4..].copy_from_slice(&crc.to_le_bytes());
            let _ = Head::parse(&block, &UUID, Place { zone: ZoneIndex(0), block: 0 });
        }
    }

    #[test]
    fn head_of_another_place_file_system_or_version_says_so() {
        let place = Place { zone: ZoneIndex(3), block: 9 };
        let kind = HeadKind::Checkpoint(Checkpoint {
            batch: 1,
            before: 2,
            len: 3,
            bad: 0,
            table_blocks: 4,
            table_crc: 5,
            zones_crc: 6,
        });
        let head = Head { place, opening: 7, kind };
        let mut block = head.emit(&UUID);
        let elsewhere = Place { block: 10, ..place };
        assert_eq!(Head::parse(&block, &UUID, elsewhere), Err(Damage::Place));
        assert_eq!(Head::parse(&block, &[6; 16], place), Err(Damage::Uuid));
        block[8] = 9;
        let crc = crc32c(&block[..BLOCK_BYTES as usize - 4]);
        block[BLOCK_BYTES as usize - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Head::parse(&block, &UUID, place), Err(Damage::Version(9)));
    }
}
