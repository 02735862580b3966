//! Units: what one zone append writes.
//!
//! A unit is a header, one block, and the data blocks behind it. The header says whose data it is and carries a checksum
//! of each block, so that data is verified without asking the metadata, and the metadata can be made again from the zones.

use super::{Uuid, VERSION, crc32c};
use crate::BLOCK_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header.
pub const HEADER_BYTES: usize = BLOCK_BYTES as usize;

const MAGIC: [u8; 8] = *b"ZNLunit\x01";

/// The fixed part, at the start of the header. Behind it lie the records, the checksums, and the path.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Fixed {
    magic: [u8; 8],
    version: U32,
    /// Of the header with zeroes here.
    checksum: U32,
    uuid: Uuid,
    sequence: U64,
    zone: U32,
    /// Data blocks.
    blocks: U16,
    records: U16,
    path_bytes: U16,
    flags: U16,
    reserved: [u8; 12],
}

/// The data has no checksums.
const UNSUMMED: u16 = 1;

const FIXED_BYTES: usize = size_of::<Fixed>();
const RECORD_BYTES: usize = size_of::<RawRecord>();
const _: () = assert!(FIXED_BYTES == 64 && RECORD_BYTES == 32);

/// Most data blocks of a unit, two mebibytes: their checksums take half of what the header has, so that many records fit too.
pub const DATA_BLOCKS_MAX: u32 = 512;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawRecord {
    ino: U64,
    block: U64,
    size: U64,
    blocks: U32,
    reserved: U32,
}

/// A piece of a file in a unit. The pieces lie one behind the other, in the order of their records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The file.
    pub ino: u64,
    /// First of its blocks.
    pub block: u64,
    /// How many.
    pub blocks: u32,
    /// Bytes of the file when this was written, for a file system that is put together from its zones.
    pub size: u64,
}

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose unit it is.
    pub uuid: Uuid,
    /// Number of the unit: of two with the same block of a file the later one counts.
    pub sequence: u64,
    /// The zone it was written for.
    pub zone: u32,
    /// The pieces.
    pub records: Vec<Record>,
    /// A checksum of each data block; none where data has no checksums.
    pub sums: Vec<u32>,
    /// Where the first piece's file was in the tree; as much as fits, perhaps nothing.
    pub path: Vec<u8>,
}

/// Why a block is no header.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitError {
    /// It never was one.
    #[error("no unit begins here")]
    Magic,
    /// It was written by another version.
    #[error("the unit is of version {0}, this is version {VERSION}")]
    Version(u32),
    /// It is damaged.
    #[error("the unit's header is damaged")]
    Checksum,
    /// It says what cannot be.
    #[error("the unit's header contradicts itself")]
    Nonsense,
    /// It is another file system's, from before this one was made.
    #[error("the unit is of another file system")]
    Foreign,
}

impl Header {
    /// Data blocks.
    pub fn blocks(&self) -> u32 {
        self.records.iter().map(|record| record.blocks).sum()
    }

    /// How many records fit into a header beside the checksums of `blocks`.
    pub const fn records_max(blocks: u32) -> usize {
        (HEADER_BYTES - FIXED_BYTES - 4 * blocks as usize) / RECORD_BYTES
    }

    /// Writes the header, with as much of the path as fits.
    ///
    /// # Panics
    /// If there are more records than [`Header::records_max`].
    pub fn encode(&self, block: &mut [u8]) {
        let block = &mut block[..HEADER_BYTES];
        let blocks = self.blocks();
        assert!(blocks <= DATA_BLOCKS_MAX && self.records.len() <= Header::records_max(blocks));
        block.fill(0);
        let mut at = FIXED_BYTES;
        for record in &self.records {
            let Record { ino, block: first, blocks, size } = *record;
            let (ino, size, reserved) = (ino.into(), size.into(), 0.into());
            let raw = RawRecord { ino, block: first.into(), size, blocks: blocks.into(), reserved };
            block[at..at + RECORD_BYTES].copy_from_slice(raw.as_bytes());
            at += RECORD_BYTES;
        }
        for sum in &self.sums {
            block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            at += 4;
        }
        let path = &self.path[..self.path.len().min(HEADER_BYTES - at)];
        block[at..at + path.len()].copy_from_slice(path);
        let mut fixed = Fixed {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            uuid: self.uuid,
            sequence: self.sequence.into(),
            zone: self.zone.into(),
            blocks: (blocks as u16).into(),
            records: (self.records.len() as u16).into(),
            path_bytes: (path.len() as u16).into(),
            flags: if self.sums.is_empty() { UNSUMMED } else { 0 }.into(),
            reserved: [0; 12],
        };
        block[..FIXED_BYTES].copy_from_slice(fixed.as_bytes());
        fixed.checksum = crc32c(block).into();
        block[..FIXED_BYTES].copy_from_slice(fixed.as_bytes());
    }

    /// Reads the header of a unit of the file system `uuid`.
    ///
    /// # Errors
    /// What keeps the block from being one.
    pub fn decode(block: &[u8], uuid: &Uuid) -> Result<Header, UnitError> {
        let block = block.get(..HEADER_BYTES).ok_or(UnitError::Magic)?;
        let (fixed, _) = Fixed::read_from_prefix(block).map_err(|_| UnitError::Magic)?;
        if fixed.magic != MAGIC {
            return Err(UnitError::Magic);
        }
        if fixed.version.get() != VERSION {
            return Err(UnitError::Version(fixed.version.get()));
        }
        let mut unsummed = block.to_vec();
        unsummed[..FIXED_BYTES].copy_from_slice(Fixed { checksum: 0.into(), ..fixed }.as_bytes());
        if crc32c(&unsummed) != fixed.checksum.get() {
            return Err(UnitError::Checksum);
        }
        if fixed.uuid != *uuid {
            return Err(UnitError::Foreign);
        }
        Header::of_parts(&fixed, &block[FIXED_BYTES..]).ok_or(UnitError::Nonsense)
    }

    fn of_parts(fixed: &Fixed, rest: &[u8]) -> Option<Header> {
        let (raw, rest) = <[RawRecord]>::ref_from_prefix_with_elems(rest, fixed.records.get().into()).ok()?;
        let sums = if fixed.flags.get() & UNSUMMED == 0 { fixed.blocks.get() } else { 0 };
        let (sums, rest) = <[U32]>::ref_from_prefix_with_elems(rest, sums.into()).ok()?;
        let path = rest.get(..fixed.path_bytes.get().into())?;
        let record = |raw: &RawRecord| Record {
            ino: raw.ino.get(),
            block: raw.block.get(),
            blocks: raw.blocks.get(),
            size: raw.size.get(),
        };
        let header = Header {
            uuid: fixed.uuid,
            sequence: fixed.sequence.get(),
            zone: fixed.zone.get(),
            records: raw.iter().map(record).collect(),
            sums: sums.iter().map(|sum| sum.get()).collect(),
            path: path.to_vec(),
        };
        let all = header.records.iter().try_fold(0u32, |all, record| all.checked_add(record.blocks))?;
        (all == u32::from(fixed.blocks.get())).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        let record = |ino, block, blocks| Record { ino, block, blocks, size: 77_777 };
        Header {
            uuid: [7; 16],
            sequence: 42,
            zone: 3,
            records: vec![record(12, 0, 2), record(13, 9, 1)],
            sums: vec![1, 2, 3],
            path: b"a/b".to_vec(),
        }
    }

    fn block(header: &Header) -> Vec<u8> {
        let mut block = vec![0xAA; HEADER_BYTES];
        header.encode(&mut block);
        block
    }

    #[test]
    fn header_comes_back_as_it_went() {
        let unsummed = Header { sums: Vec::new(), ..header() };
        for header in [header(), unsummed] {
            assert_eq!(Header::decode(&block(&header), &[7; 16]), Ok(header));
        }
    }

    #[test]
    fn header_full_to_its_end_still_comes_back() {
        let records = Header::records_max(DATA_BLOCKS_MAX);
        let piece = |i: usize| Record { ino: 1, block: 10 * i as u64, blocks: 1, size: 0 };
        let mut records: Vec<_> = (0..records).map(piece).collect();
        records[0].blocks += DATA_BLOCKS_MAX - records.len() as u32;
        let path = vec![b'x'; 5000];
        let header = Header { records, sums: vec![9; DATA_BLOCKS_MAX as usize], path, ..header() };
        let read = Header::decode(&block(&header), &[7; 16]).unwrap();
        assert!(read.path.len() < 100 && read.path.iter().all(|&b| b == b'x'));
        assert_eq!(Header { path: Vec::new(), ..read }, Header { path: Vec::new(), ..header });
    }

    #[test]
    fn what_is_no_header_is_told_apart() {
        let good = block(&header());
        let change = |at: usize| {
            let mut block = good.clone();
            block[at] ^= 1;
            Header::decode(&block, &[7; 16]).unwrap_err()
        };
        assert_eq!(change(0), UnitError::Magic);
        assert_eq!(change(8), UnitError::Version(0));
        assert_eq!(change(100), UnitError::Checksum);
        assert_eq!(change(4095), UnitError::Checksum);
        assert_eq!(Header::decode(&good, &[8; 16]).unwrap_err(), UnitError::Foreign);
        assert_eq!(Header::decode(&good[..100], &[7; 16]).unwrap_err(), UnitError::Magic);
    }

    proptest! {
        #[test]
        fn garbage_with_a_right_checksum_never_panics(bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES)) {
            let mut bytes = bytes;
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            bytes[12..16].fill(0);
            bytes[16..32].fill(7);
            let sum = crc32c(&bytes);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            let _ = Header::decode(&bytes, &[7; 16]);
        }
    }
}
