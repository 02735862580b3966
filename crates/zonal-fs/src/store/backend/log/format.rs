//! Heads: the blocks of a log that say what the blocks after them are. docs/FS.md draws them.
//!
//! A head names the file system, its own place and the beginning of its segment. So a page that holds a copy of a head is
//! not taken for a head. Nor is a head that an earlier use of the segment left there. The sum of a page is bound to the same.

use super::super::error::{Damage, SegmentId, SegmentPlace};
use crate::BLOCK_BYTES;
use crate::format::{Uuid, VERSION, crc32c};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"zonallog";
const CHECKPOINT: u32 = 1;
const PART: u32 = 2;
/// In a part's flags: no other part of the batch follows.
const LAST: u32 = 1;
/// In a part's flags: it has rows instead of pages.
const ROWS: u32 = 2;
/// In a checkpoint's flags: it has a table.
const TABLE: u32 = 1;
/// In a listed segment's flags: it takes no writes.
const BAD: u32 = 1;

/// Pages that one part lists at most.
pub(super) const PART_PAGES_MAX: usize = 497;

/// Maximum number of bytes of rows in the head of a part. The rest is in the blocks after it.
pub(super) const ROWS_IN_HEAD: usize = PART_PAGES_MAX * 8;

/// Upper bound of the numbers of beginnings and batches, exclusive. They only rise, and would take longer than any drive lasts.
const NUMBERS_END: u64 = 1 << 62;

/// Segments that one block of a checkpoint's list has room for.
const LISTED_PER_BLOCK: usize = BLOCK_BYTES as usize / size_of::<RawSegment>();

/// A head, and where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Where it lies.
    pub(super) place: SegmentPlace,
    /// Which of all beginnings of segments in the store its segment's is.
    pub(super) beginning: u64,
    pub(super) kind: HeadKind,
}

/// What follows a head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HeadKind {
    /// The list of segments, the table of pages and rows.
    Checkpoint(Checkpoint),
    /// Pages, or rows.
    Part(Part),
}

/// The start of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Checkpoint {
    /// The last batch that the table includes.
    pub(super) batch: u64,
    /// The beginning before this one, 0 if there was none.
    pub(super) before: u64,
    /// Length of the file in bytes.
    pub(super) len: u64,
    /// Segments in the list that follows.
    pub(super) listed: u32,
    /// Blocks of the segment.
    pub(super) blocks: u32,
    /// Blocks of the table after the list; `None` if an earlier checkpoint has the table.
    pub(super) table_blocks: Option<u32>,
    /// Bytes of the rows after the table.
    pub(super) rows_bytes: u32,
    /// CRC-32C of the blocks of the list, the table and the rows.
    pub(super) body_crc: u32,
}

impl Checkpoint {
    /// Blocks of the list.
    pub(super) fn list_blocks(&self) -> u32 {
        self.listed.div_ceil(LISTED_PER_BLOCK as u32)
    }

    /// Blocks of the rows.
    pub(super) fn rows_blocks(&self) -> u32 {
        self.rows_bytes.div_ceil(BLOCK_BYTES)
    }

    /// Blocks of list, table and rows.
    pub(super) fn body_blocks(&self) -> u64 {
        let table = u64::from(self.table_blocks.unwrap_or(0));
        u64::from(self.list_blocks()) + table + u64::from(self.rows_blocks())
    }
}

/// A segment in the list of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ListedSegment {
    pub(super) segment: SegmentId,
    /// It takes no writes: it was not begun later.
    pub(super) is_bad: bool,
    /// Its beginning, which its pages are bound to.
    pub(super) beginning: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSegment {
    segment: U32,
    flags: U32,
    beginning: U64,
}

/// The blocks of a list.
pub(super) fn emit_list(listed: impl ExactSizeIterator<Item = ListedSegment>) -> Vec<u8> {
    let blocks = listed.len().div_ceil(LISTED_PER_BLOCK);
    let mut bytes = vec![0; blocks * BLOCK_BYTES as usize];
    for (raw, listed) in bytes.chunks_exact_mut(size_of::<RawSegment>()).zip(listed) {
        let flags = if listed.is_bad { BAD } else { 0 };
        let of = RawSegment {
            segment: listed.segment.0.into(),
            flags: flags.into(),
            beginning: listed.beginning.into(),
        };
        raw.copy_from_slice(of.as_bytes());
    }
    bytes
}

/// The `count` segments of a list.
pub(super) fn parse_list(bytes: &[u8], count: u32) -> Vec<ListedSegment> {
    let raws = bytes.chunks_exact(size_of::<RawSegment>()).take(count as usize);
    raws.filter_map(|raw| RawSegment::read_from_bytes(raw).ok())
        .map(|raw| ListedSegment {
            segment: SegmentId(raw.segment.get()),
            is_bad: raw.flags.get() & BAD != 0,
            beginning: raw.beginning.get(),
        })
        .collect()
}

/// Blocks of a list of `segments`.
pub(super) fn list_blocks(segments: usize) -> u64 {
    segments.div_ceil(LISTED_PER_BLOCK) as u64
}

/// What a page's bytes and its place come to: a page counts only where it was written for.
pub(super) fn page_sum(crc: u32, uuid: &Uuid, place: SegmentPlace, beginning: u64) -> u32 {
    let mut bound = [0; 36];
    bound[..4].copy_from_slice(&crc.to_le_bytes());
    bound[4..20].copy_from_slice(uuid);
    bound[20..24].copy_from_slice(&place.segment.0.to_le_bytes());
    bound[24..28].copy_from_slice(&place.block.to_le_bytes());
    bound[28..].copy_from_slice(&beginning.to_le_bytes());
    crc32c(&bound)
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
    pub(super) prior: SegmentPlace,
    /// How far the store had come, which the superblock may know of.
    pub(super) store_number: u64,
    /// The pages that follow.
    pub(super) pages: Vec<Listed>,
    /// Rows, instead of pages.
    pub(super) rows: Option<PartRows>,
}

/// Rows in a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PartRows {
    /// First bytes, in the head.
    pub(super) in_head: Vec<u8>,
    /// Total length in bytes.
    pub(super) bytes: u32,
    /// CRC-32C of the blocks after the head.
    pub(super) crc: u32,
}

impl PartRows {
    /// Blocks after the head.
    pub(super) fn blocks(&self) -> u32 {
        rows_blocks(self.bytes as usize)
    }
}

/// Number of blocks after the head of a part with `bytes` bytes of rows.
pub(super) fn rows_blocks(bytes: usize) -> u32 {
    bytes.saturating_sub(ROWS_IN_HEAD).div_ceil(BLOCK_BYTES as usize) as u32
}

impl Part {
    /// Blocks after the head.
    pub(super) fn blocks(&self) -> u32 {
        self.rows.as_ref().map_or(self.pages.len() as u32, PartRows::blocks)
    }
}

/// A page in a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) page: u32,
    /// See [`page_sum`].
    pub(super) sum: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    kind: U32,
    uuid: Uuid,
    beginning: U64,
    segment: U32,
    block: U32,
    batch: U64,
    before: U64,
    len: U64,
    /// A part's cut; a checkpoint's bytes of rows.
    cut: U64,
    /// A part's number in the batch; a checkpoint's blocks of the table.
    count: U32,
    flags: U32,
    /// A part's pages, or bytes of rows; a checkpoint's listed segments.
    items: U32,
    /// A checkpoint's sum of its body; the segment of the part before.
    word: U32,
    /// Block of the part before; a checkpoint's blocks of the segment.
    prior_block: U32,
    /// Checksum of the blocks of rows after the head of a part.
    rows_crc: U32,
    /// How far the store had come.
    number: U64,
    listed: [[U32; 2]; PART_PAGES_MAX],
    rest: U32,
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
        raw.beginning = self.beginning.into();
        raw.segment = self.place.segment.0.into();
        raw.block = self.place.block.into();
        match &self.kind {
            HeadKind::Checkpoint(checkpoint) => checkpoint.emit(&mut raw),
            HeadKind::Part(part) => part.emit(&mut raw),
        }
        raw.crc = crc32c(&raw.as_bytes()[..BLOCK_BYTES as usize - 4]).into();
        raw.as_bytes().to_vec()
    }

    /// True if `block` is a head in the file beside the drive of the file system `uuid`, wherever in that file.
    pub(super) fn is_in_file_of(block: &[u8], uuid: &Uuid) -> bool {
        let Ok((raw, _)) = Raw::ref_from_prefix(block) else { return false };
        let segment = SegmentId(raw.segment.get());
        let place = SegmentPlace { segment, block: raw.block.get() };
        segment >= SegmentId::file(0) && Head::parse(block, uuid, place).is_ok()
    }

    /// The head in `block`, which was read at `place`, of the file system `uuid`.
    pub(super) fn parse(block: &[u8], uuid: &Uuid, place: SegmentPlace) -> Result<Head, Damage> {
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Damage::Missing("the block"))?;
        if raw.magic != MAGIC {
            return Err(Damage::Magic);
        }
        if raw.crc.get() != crc32c(&raw.as_bytes()[..BLOCK_BYTES as usize - 4]) {
            return Err(Damage::Checksum);
        }
        if raw.version.get() != VERSION {
            return Err(Damage::Version(raw.version.get()));
        }
        if raw.uuid != *uuid {
            return Err(Damage::Uuid);
        }
        if (raw.segment.get(), raw.block.get()) != (place.segment.0, place.block) {
            return Err(Damage::Place);
        }
        if [raw.beginning, raw.batch, raw.number].iter().any(|number| number.get() >= NUMBERS_END) {
            return Err(Damage::Field("number"));
        }
        let kind = match raw.kind.get() {
            CHECKPOINT => HeadKind::Checkpoint(Checkpoint::parse(raw)?),
            PART => HeadKind::Part(Part::parse(raw)?),
            _ => return Err(Damage::Field("kind")),
        };
        Ok(Head { place, beginning: raw.beginning.get(), kind })
    }
}

impl Checkpoint {
    fn emit(&self, raw: &mut Raw) {
        raw.kind = CHECKPOINT.into();
        raw.batch = self.batch.into();
        raw.before = self.before.into();
        raw.len = self.len.into();
        raw.cut = u64::from(self.rows_bytes).into();
        raw.count = self.table_blocks.unwrap_or(0).into();
        raw.flags = if self.table_blocks.is_some() { TABLE } else { 0 }.into();
        raw.items = self.listed.into();
        raw.word = self.body_crc.into();
        raw.prior_block = self.blocks.into();
    }

    fn parse(raw: &Raw) -> Result<Checkpoint, Damage> {
        Ok(Checkpoint {
            batch: raw.batch.get(),
            before: raw.before.get(),
            len: raw.len.get(),
            listed: raw.items.get(),
            blocks: raw.prior_block.get(),
            table_blocks: (raw.flags.get() & TABLE != 0).then_some(raw.count.get()),
            rows_bytes: raw.cut.get().try_into().map_err(|_| Damage::Field("rows"))?,
            body_crc: raw.word.get(),
        })
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
        let last = if self.is_last { LAST } else { 0 };
        raw.flags = (last | if self.rows.is_some() { ROWS } else { 0 }).into();
        raw.items = (self.pages.len() as u32).into();
        raw.word = self.prior.segment.0.into();
        raw.prior_block = self.prior.block.into();
        raw.number = self.store_number.into();
        for (raw, Listed { page, sum }) in raw.listed.iter_mut().zip(&self.pages) {
            *raw = [(*page).into(), (*sum).into()];
        }
        if let Some(PartRows { in_head, bytes, crc }) = &self.rows {
            (raw.items, raw.rows_crc) = ((*bytes).into(), (*crc).into());
            raw.listed.as_mut_bytes()[..in_head.len()].copy_from_slice(in_head);
        }
    }

    fn parse(raw: &Raw) -> Result<Part, Damage> {
        let count = raw.items.get() as usize;
        let rows = (raw.flags.get() & ROWS != 0).then(|| PartRows {
            in_head: raw.listed.as_bytes()[..count.min(ROWS_IN_HEAD)].to_vec(),
            bytes: raw.items.get(),
            crc: raw.rows_crc.get(),
        });
        let count = if rows.is_some() { 0 } else { count };
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
            is_last: raw.flags.get() & LAST != 0,
            prior: SegmentPlace { segment: SegmentId(raw.word.get()), block: raw.prior_block.get() },
            store_number: raw.number.get(),
            pages: listed.iter().map(|[page, sum]| Listed { page: page.get(), sum: sum.get() }).collect(),
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: Uuid = [5; 16];

    fn place() -> impl Strategy<Value = SegmentPlace> {
        (any::<u32>(), any::<u32>())
            .prop_map(|(segment, block)| SegmentPlace { segment: SegmentId(segment), block })
    }

    fn part() -> impl Strategy<Value = HeadKind> {
        let below = [0..u64::MAX, 0..u64::MAX, 0..u64::MAX, 0..NUMBERS_END];
        let numbers = (1..NUMBERS_END, below, any::<u32>(), any::<bool>());
        let listed = (any::<u32>(), any::<u32>()).prop_map(|(page, sum)| Listed { page, sum });
        let pages = prop::collection::vec(listed, 0..=PART_PAGES_MAX);
        let rows = (prop::collection::vec(any::<u8>(), 0..=ROWS_IN_HEAD), any::<[u32; 2]>());
        let rows = prop::option::of(rows.prop_map(|(in_head, [more, crc])| {
            let more = if in_head.len() == ROWS_IN_HEAD { more >> 1 } else { 0 };
            PartRows { bytes: in_head.len() as u32 + more, in_head, crc }
        }));
        (numbers, place(), pages, rows).prop_map(
            |((batch, [before, len, cut, store_number], number, is_last), prior, pages, rows)| {
                let before = before % batch;
                let pages = if rows.is_some() { Vec::new() } else { pages };
                HeadKind::Part(Part {
                    batch,
                    before,
                    len,
                    cut,
                    number,
                    is_last,
                    prior,
                    store_number,
                    pages,
                    rows,
                })
            },
        )
    }

    fn checkpoint() -> impl Strategy<Value = HeadKind> {
        ([0..NUMBERS_END, 0..u64::MAX, 0..u64::MAX], any::<[u32; 4]>(), any::<Option<u32>>()).prop_map(
            |([batch, before, len], [listed, blocks, rows_bytes, body_crc], table_blocks)| {
                HeadKind::Checkpoint(Checkpoint {
                    batch,
                    before,
                    len,
                    listed,
                    blocks,
                    table_blocks,
                    rows_bytes,
                    body_crc,
                })
            },
        )
    }

    fn head() -> impl Strategy<Value = Head> {
        (place(), 0..NUMBERS_END, prop_oneof![part(), checkpoint()])
            .prop_map(|(place, beginning, kind)| Head { place, beginning, kind })
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
            let place = SegmentPlace { segment: SegmentId(0), block: 0 };
            let kind = HeadKind::Checkpoint(Checkpoint {
                batch: 0, before: 0, len: 0, listed: 0, blocks: 0, table_blocks: None, rows_bytes: 0, body_crc: 0,
            });
            let mut block = Head { place, beginning: 0, kind }.emit(&UUID);
            for (n, byte) in bytes.iter().enumerate() {
                block[12 + n + if n < 4 { 0 } else { 28 }] = *byte;
            }
            let crc = crc32c(&block[..BLOCK_BYTES as usize - 4]);
            block[BLOCK_BYTES as usize - 4..].copy_from_slice(&crc.to_le_bytes());
            let _ = Head::parse(&block, &UUID, place);
        }
    }

    #[test]
    fn head_of_another_place_file_system_or_version_is_rejected() {
        let place = SegmentPlace { segment: SegmentId(3), block: 9 };
        let (batch, before, len, listed, blocks) = (1, 2, 3, 4, 5);
        let (table_blocks, rows_bytes, body_crc) = (Some(6), 7, 8);
        let checkpoint =
            Checkpoint { batch, before, len, listed, blocks, table_blocks, rows_bytes, body_crc };
        let head = Head { place, beginning: 7, kind: HeadKind::Checkpoint(checkpoint) };
        let mut block = head.emit(&UUID);
        let elsewhere = SegmentPlace { block: 10, ..place };
        assert_eq!(Head::parse(&block, &UUID, elsewhere), Err(Damage::Place));
        assert_eq!(Head::parse(&block, &[6; 16], place), Err(Damage::Uuid));
        block[8] = 9;
        let crc = crc32c(&block[..BLOCK_BYTES as usize - 4]);
        block[BLOCK_BYTES as usize - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Head::parse(&block, &UUID, place), Err(Damage::Version(9)));
    }

    proptest! {
        #[test]
        fn list_that_was_emitted_is_parsed(segments in prop::collection::vec(any::<(u32, bool, u64)>(), 0..600)) {
            let listed: Vec<ListedSegment> = segments
                .into_iter()
                .map(|(segment, is_bad, beginning)| ListedSegment { segment: SegmentId(segment), is_bad, beginning })
                .collect();
            let bytes = emit_list(listed.iter().copied());
            prop_assert_eq!(bytes.len() as u64, list_blocks(listed.len()) * u64::from(BLOCK_BYTES));
            prop_assert_eq!(parse_list(&bytes, listed.len() as u32), listed);
        }

        #[test]
        fn sum_of_a_page_changes_with_all_that_it_is_bound_to(
            (crc, segment, block, beginning) in any::<(u32, u32, u32, u64)>(), bit in 0..32u32,
        ) {
            let place = SegmentPlace { segment: SegmentId(segment), block };
            let sum = page_sum(crc, &UUID, place, beginning);
            let (there, here) = (SegmentPlace { block: block ^ 1 << bit, ..place }, 1u64 << bit);
            prop_assert_ne!(sum, page_sum(crc ^ 1 << bit, &UUID, place, beginning));
            prop_assert_ne!(sum, page_sum(crc, &[6; 16], place, beginning));
            prop_assert_ne!(sum, page_sum(crc, &UUID, there, beginning));
            prop_assert_ne!(sum, page_sum(crc, &UUID, SegmentPlace { segment: SegmentId(segment ^ 1 << bit), block }, beginning));
            prop_assert_ne!(sum, page_sum(crc, &UUID, place, beginning ^ here));
        }
    }
}
