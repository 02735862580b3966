//! Units: the contents of one zone append.
//!
//! A unit is a header of one block, followed by data blocks. The header identifies the owners of
//! the data and has a checksum of each block. Reads can therefore verify data without the metadata,
//! and a rebuild can recover the metadata from the zones.
//!
//! # Sequences and numbers
//! If a block was written several times, the newest data is valid. The order of units in the zones
//! does not show which is newest: a copy made by garbage collection, or a resubmitted unit, may lie
//! behind newer data of the same block. So each record has a number for the age of its data, and
//! each unit has a sequence for the age of its header, that is of sizes and paths. Both are drawn
//! from one counter.
//!
//! Units that were in flight at a power failure and belong to no commit are still in the zones. So
//! a header also records the number at which the file system was opened: see [`Header::since`].

use super::{FILES_END, SIZE_MAX, Uuid, VERSION, crc32c, varint};
use crate::BLOCK_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header.
pub const HEADER_BYTES: usize = BLOCK_BYTES as usize;

const MAGIC: [u8; 8] = *b"ZNLunit\x01";

/// Fixed part at the start of the header. Records, checksums and paths follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Fixed {
    magic: [u8; 8],
    version: U32,
    /// Computed over the header with zeroes in this field.
    checksum: U32,
    uuid: Uuid,
    sequence: U64,
    zone: U32,
    /// Number of data blocks.
    blocks: U16,
    records: U16,
    path_bytes: U16,
    flags: U16,
    since: U64,
    begun: U64,
    reserved: [u8; 4],
}

/// Flag: the data has no checksums.
const UNSUMMED: u16 = 1;

/// Range of the checksum.
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;

/// Longest prefix that a path can share with the previous one, in bytes.
const SHARED_MAX: usize = 255;

/// Size of a path's head: the lengths of the shared prefix and of the rest.
const PATH_HEAD_BYTES: usize = 3;

const FIXED_BYTES: usize = size_of::<Fixed>();
const RECORD_BYTES: usize = size_of::<RawRecord>();
const _: () = assert!(FIXED_BYTES == 72 && RECORD_BYTES == 32);

/// Maximum number of data blocks in a unit: 2 MiB. Their checksums take half of the header, which
/// leaves room for many records.
pub const DATA_BLOCKS_MAX: u32 = 512;

/// Average bytes per path assumed by [`Header::records_max`], shared prefixes excluded.
const PATH_BYTES: usize = 16;

/// Numbers skipped by each opening of the file system: more than are ever drawn between two
/// commits.
pub const NUMBERS_SKIPPED: u64 = 1 << 32;

/// Upper bound of numbers, exclusive. Reaching it would take a billion openings of the file system.
pub const NUMBERS_END: u64 = 1 << 62;

/// Upper bound of file and block numbers, exclusive.
const NUMBER_MAX: u64 = 1 << 48;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawRecord {
    ino: [u8; 6],
    born: U16,
    block: [u8; 6],
    blocks: U16,
    size: U64,
    number: U64,
}

/// A piece of a file in a unit. Pieces lie one after another in the order of their records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The file.
    pub ino: u64,
    /// Distinguishes the file from earlier ones with its number:
    /// [`Attributes::born`](super::Attributes::born).
    pub born: u16,
    /// First block of the piece in the file.
    pub block: u64,
    /// Length in blocks, at least 1.
    pub blocks: u32,
    /// Size of the file in bytes at the time of the write, for a rebuild.
    pub size: u64,
    /// Age of the data. If two records contain the same block of a file, the higher number wins.
    pub number: u64,
}

impl Record {
    /// True if all fields are in range.
    fn is_sound(&self) -> bool {
        self.blocks > 0 && self.ino < FILES_END && self.size <= SIZE_MAX && self.number < NUMBERS_END
    }
}

/// Place and identity of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitPlace {
    /// Zone of the unit.
    pub zone: u32,
    /// Block of its header in the zone.
    pub block: u32,
    /// Number of its data blocks.
    pub blocks: u32,
    /// Checksum of its header.
    pub checksum: u32,
}

impl UnitPlace {
    /// Maximum number of bytes of an encoded place.
    pub const BYTES_MAX: usize = 5 + 5 + 2 + 4;

    /// Appends the encoded place.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [self.zone, self.block, self.blocks] {
            varint::put(bytes, number.into());
        }
        bytes.extend(self.checksum.to_le_bytes());
    }

    /// Decodes a place; `None` if it is damaged.
    pub(crate) fn decode(reader: &mut varint::Reader<'_>) -> Option<UnitPlace> {
        let (zone, block, blocks) = (reader.take_number()?, reader.take_number()?, reader.take_number()?);
        let checksum = u32::from_le_bytes(reader.take()?);
        (blocks <= DATA_BLOCKS_MAX).then_some(UnitPlace { zone, block, blocks, checksum })
    }
}

/// Decoded header of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// File system that the unit belongs to.
    pub uuid: Uuid,
    /// Number of the unit. Size and path of a file are taken from the header with the highest
    /// number.
    pub sequence: u64,
    /// Number at which the file system was opened. A unit with a sequence among the
    /// [`NUMBERS_SKIPPED`] numbers from here on is in no commit and is ignored.
    pub since: u64,
    /// Zone that the unit was written for.
    pub zone: u32,
    /// Sequence of the first unit since the last reset of the zone, equal in all units until the
    /// next reset. A unit with another value is stale: the drive lost the write that should have
    /// replaced it.
    pub begun: u64,
    /// Pieces of files.
    pub records: Vec<Record>,
    /// Checksum of each data block; empty if data has no checksums.
    pub sums: Vec<u32>,
    /// Path of each piece's file; empty if it is unknown or did not fit. Consecutive pieces of a
    /// file have equal paths.
    pub paths: Vec<Vec<u8>>,
}

/// Reason why a block is not a valid header of a unit.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitError {
    /// No header was ever written here.
    #[error("no unit starts here")]
    Magic,
    /// Written by another version of the format.
    #[error("the unit has format version {0}, this program reads version {VERSION}")]
    Version(u32),
    /// Wrong checksum.
    #[error("the unit's header is damaged")]
    Checksum,
    /// A field is out of range.
    #[error("the unit's header is inconsistent")]
    Nonsense,
    /// From another file system that was on the drive earlier.
    #[error("the unit belongs to another file system")]
    Foreign,
    /// A copy of a header from another zone.
    #[error("the unit was written for another zone")]
    Elsewhere,
    /// Written before the last reset of the zone.
    #[error("stale unit from before the last reset of the zone: a write was lost")]
    Earlier,
    /// The checksum matches the run of the zone, but `begun` differs from the account of the zone.
    /// A repair stores this sequence in the account.
    #[error("wrong beginning in the account of the zone; run `zonal fsck --data --repair`")]
    Beginning(u64),
    /// Not the unit that the metadata references.
    #[error("not the expected unit: a write was misdirected or lost")]
    Other,
}

impl Header {
    /// Number of data blocks.
    pub fn blocks(&self) -> u32 {
        self.records.iter().map(|record| record.blocks).sum()
    }

    /// Maximum number of records beside the checksums of `blocks`, with room for their paths.
    pub const fn records_max(blocks: u32) -> usize {
        (HEADER_BYTES - FIXED_BYTES - 4 * blocks as usize) / (RECORD_BYTES + PATH_BYTES)
    }

    /// Encodes the header with as many paths as fit, and returns its checksum.
    ///
    /// # Panics
    /// If the records do not fit. Up to [`Header::records_max`] always do.
    pub fn encode(&self, block: &mut [u8]) -> u32 {
        let block = &mut block[..HEADER_BYTES];
        let blocks = self.blocks();
        assert!(blocks <= DATA_BLOCKS_MAX, "more blocks than a unit has");
        block.fill(0);
        let mut at = FIXED_BYTES;
        for record in &self.records {
            block[at..at + RECORD_BYTES].copy_from_slice(RawRecord::of(record).as_bytes());
            at += RECORD_BYTES;
        }
        for sum in &self.sums {
            block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            at += 4;
        }
        let paths = self.emit_paths(HEADER_BYTES - at);
        block[at..at + paths.len()].copy_from_slice(&paths);
        let mut fixed = Fixed {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            uuid: self.uuid,
            sequence: self.sequence.into(),
            zone: self.zone.into(),
            blocks: (blocks as u16).into(),
            records: (self.records.len() as u16).into(),
            path_bytes: (paths.len() as u16).into(),
            flags: if self.sums.is_empty() { UNSUMMED } else { 0 }.into(),
            since: self.since.into(),
            begun: self.begun.into(),
            reserved: [0; 4],
        };
        block[..FIXED_BYTES].copy_from_slice(fixed.as_bytes());
        fixed.checksum = crc32c(block).into();
        block[..FIXED_BYTES].copy_from_slice(fixed.as_bytes());
        fixed.checksum.get()
    }

    /// Checksum stored in a header. [`Header::decode`] verifies it.
    ///
    /// # Panics
    /// If `block` is shorter than a header.
    pub fn checksum_in(block: &[u8]) -> u32 {
        let bytes: [u8; 4] = block[CHECKSUM_AT].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    }

    /// Encodes as many paths of the pieces' files as fit in `room` bytes, each as the length of the
    /// prefix shared with the previous path, and the rest.
    fn emit_paths(&self, room: usize) -> Vec<u8> {
        let (mut bytes, mut end) = (Vec::new(), 0);
        let (mut last, mut ino) = (&[][..], None);
        for (record, path) in self.records.iter().zip(&self.paths) {
            if ino.replace(record.ino) == Some(record.ino) {
                continue;
            }
            let common = last.iter().zip(path).take(SHARED_MAX).take_while(|(a, b)| a == b).count();
            let rest = &path[common..];
            if bytes.len() + PATH_HEAD_BYTES + rest.len() > room {
                break;
            }
            bytes.push(common as u8);
            bytes.extend_from_slice(&(rest.len() as u16).to_le_bytes());
            bytes.extend_from_slice(rest);
            if !path.is_empty() {
                (last, end) = (path, bytes.len());
            }
        }
        bytes.truncate(end);
        bytes
    }

    /// Decodes the header of a unit of the file system `uuid`.
    ///
    /// # Errors
    /// If the block is not a valid header of that file system.
    pub fn decode(block: &[u8], uuid: &Uuid) -> Result<Header, UnitError> {
        let header = Header::decode_any(block)?;
        if header.uuid == *uuid { Ok(header) } else { Err(UnitError::Foreign) }
    }

    /// Decodes the header of a unit of any file system.
    ///
    /// # Errors
    /// If the block is not a valid header.
    pub fn decode_any(block: &[u8]) -> Result<Header, UnitError> {
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
        Header::of_parts(&fixed, &block[FIXED_BYTES..]).ok_or(UnitError::Nonsense)
    }

    fn of_parts(fixed: &Fixed, rest: &[u8]) -> Option<Header> {
        let (raw, rest) = <[RawRecord]>::ref_from_prefix_with_elems(rest, fixed.records.get().into()).ok()?;
        let sums = if fixed.flags.get() & UNSUMMED == 0 { fixed.blocks.get() } else { 0 };
        let (sums, rest) = <[U32]>::ref_from_prefix_with_elems(rest, sums.into()).ok()?;
        let records: Vec<Record> = raw.iter().map(RawRecord::record).collect();
        let paths = parse_paths(&records, rest.get(..fixed.path_bytes.get().into())?)?;
        let header = Header {
            uuid: fixed.uuid,
            sequence: fixed.sequence.get(),
            since: fixed.since.get(),
            zone: fixed.zone.get(),
            begun: fixed.begun.get(),
            records,
            sums: sums.iter().map(|sum| sum.get()).collect(),
            paths,
        };
        let blocks = header.blocks();
        let is_sound = blocks == u32::from(fixed.blocks.get())
            && blocks <= DATA_BLOCKS_MAX
            && header.sequence.max(header.since).max(header.begun) < NUMBERS_END
            && header.records.iter().all(Record::is_sound);
        is_sound.then_some(header)
    }
}

impl RawRecord {
    fn of(record: &Record) -> RawRecord {
        let Record { ino, born, block, blocks, size, number } = *record;
        let six = |number: u64| {
            assert!(number < NUMBER_MAX, "files and blocks have six bytes");
            *number.to_le_bytes().first_chunk::<6>().expect("eight bytes")
        };
        RawRecord {
            ino: six(ino),
            born: born.into(),
            block: six(block),
            blocks: (blocks as u16).into(),
            size: size.into(),
            number: number.into(),
        }
    }

    fn record(&self) -> Record {
        let eight = |[a, b, c, d, e, f]: [u8; 6]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        Record {
            ino: eight(self.ino),
            born: self.born.get(),
            block: eight(self.block),
            blocks: self.blocks.get().into(),
            size: self.size.get(),
            number: self.number.get(),
        }
    }
}

/// Decodes the output of [`Header::emit_paths`] into one path per record.
fn parse_paths(records: &[Record], mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut paths: Vec<Vec<u8>> = Vec::with_capacity(records.len());
    let mut last: Vec<u8> = Vec::new();
    for (i, record) in records.iter().enumerate() {
        if i > 0 && records[i - 1].ino == record.ino {
            paths.push(paths[i - 1].clone());
            continue;
        }
        let Some((&[common, low, high], rest)) = bytes.split_first_chunk() else {
            paths.push(Vec::new());
            continue;
        };
        let (own, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        let path = [last.get(..common.into())?, own].concat();
        bytes = rest;
        if !path.is_empty() {
            last.clone_from(&path);
        }
        paths.push(path);
    }
    bytes.is_empty().then_some(paths)
}

/// For fuzzers: decodes any bytes as a header. A header has to survive encoding and decoding
/// unchanged.
///
/// # Errors
/// As for [`Header::decode_any`].
///
/// # Panics
/// If a header changes: a bug.
pub fn fuzz_header(bytes: &[u8]) -> Result<Header, UnitError> {
    // A fuzzer cannot guess a checksum, so the input gets the correct one.
    let mut block = vec![0; HEADER_BYTES];
    let bytes = &bytes[..bytes.len().min(HEADER_BYTES)];
    block[..bytes.len()].copy_from_slice(bytes);
    block[CHECKSUM_AT].fill(0);
    let sum = crc32c(&block);
    block[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
    let header = Header::decode_any(&block)?;
    let mut again = vec![0xAA; HEADER_BYTES];
    header.encode(&mut again);
    assert_eq!(Header::decode_any(&again).as_ref(), Ok(&header), "encode and decode");
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn header() -> Header {
        let record = |ino, block, blocks| Record { ino, born: 5, block, blocks, size: 77_777, number: 41 };
        Header {
            uuid: [7; 16],
            sequence: 42,
            since: 9,
            zone: 3,
            begun: 40,
            records: vec![record(12, 0, 2), record(13, 9, 1)],
            sums: vec![1, 2, 3],
            paths: vec![b"a/b".to_vec(), b"a/cd".to_vec()],
        }
    }

    fn block(header: &Header) -> Vec<u8> {
        let mut block = vec![0xAA; HEADER_BYTES];
        header.encode(&mut block);
        block
    }

    #[test]
    fn header_round_trips() {
        let unsummed = Header { sums: Vec::new(), ..header() };
        for header in [header(), unsummed] {
            assert_eq!(Header::decode(&block(&header), &[7; 16]), Ok(header));
        }
    }

    #[test]
    fn full_header_round_trips() {
        for blocks in [1, 7, 255, DATA_BLOCKS_MAX] {
            let most = Header::records_max(blocks).min(blocks as usize);
            let piece =
                |i: usize| Record { ino: i as u64, born: 0, block: i as u64, blocks: 1, size: 0, number: 0 };
            let mut records: Vec<_> = (0..most).map(piece).collect();
            records[0].blocks += blocks - most as u32;
            let paths = (0..most).map(|i| format!("a/directory/file-{i:08}").into_bytes()).collect();
            let header = Header { records, sums: vec![9; blocks as usize], paths, ..header() };
            assert_eq!(Header::decode(&block(&header), &[7; 16]), Ok(header), "{blocks} blocks");
        }
    }

    #[test]
    fn paths_that_do_not_fit_are_left_out_whole() {
        let long = vec![b'x'; 3000];
        let mut paths = vec![long.clone(), vec![b'y'; 1000]];
        let read = Header::decode(&block(&Header { paths: paths.clone(), ..header() }), &[7; 16]).unwrap();
        assert_eq!(read.paths, [long, Vec::new()]);
        paths[0] = vec![b'x'; 5000];
        let read = Header::decode(&block(&Header { paths, ..header() }), &[7; 16]).unwrap();
        assert_eq!(read.paths, [b"", b""]);
    }

    #[test]
    fn pieces_of_one_file_share_its_path() {
        let mut header = header();
        header.records[1].ino = 12;
        header.paths = vec![b"a/b".to_vec(); 2];
        assert_eq!(Header::decode(&block(&header), &[7; 16]), Ok(header));
    }

    #[test]
    fn invalid_unit_headers_give_distinct_errors() {
        let good = block(&header());
        let change = |at: usize| {
            let mut block = good.clone();
            block[at] ^= 1;
            Header::decode(&block, &[7; 16]).unwrap_err()
        };
        assert_eq!(change(0), UnitError::Magic);
        assert_eq!(change(8), UnitError::Version(VERSION ^ 1));
        assert_eq!(change(100), UnitError::Checksum);
        assert_eq!(change(4095), UnitError::Checksum);
        assert_eq!(Header::decode(&good, &[8; 16]).unwrap_err(), UnitError::Foreign);
        assert_eq!(Header::decode(&good[..100], &[7; 16]).unwrap_err(), UnitError::Magic);
    }

    /// Random bytes, modified headers and mixtures never panic, and valid headers survive. A short
    /// version of the fuzz target `unit`.
    #[test]
    fn mutated_headers_are_rejected_or_round_trip() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut accepted = 0;
        for _ in 0..4000 {
            let mut bytes = block(&header());
            for _ in 0..random.random_range(1..6) {
                // Most of a header is unused space at its end, so most changes go to its beginning.
                let end = if random.random_bool(0.9) { 160 } else { bytes.len() };
                let at = random.random_range(0..end);
                bytes[at] = if random.random_bool(0.5) { random.random() } else { random.random_range(0..4) };
            }
            accepted += u32::from(fuzz_header(&bytes).is_ok());
        }
        assert!((500..3500).contains(&accepted), "{accepted}");
    }

    proptest! {
        #[test]
        fn garbage_with_a_right_checksum_never_panics(bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES)) {
            let mut bytes = bytes;
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            let _ = fuzz_header(&bytes);
        }
    }
}
