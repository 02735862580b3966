//! Units: what one zone append writes.
//!
//! A unit is a header of one block, and the data blocks after it. The header says whose data it is, and has a checksum of
//! each block. So reads verify data without the metadata, and a rebuild makes the metadata again from the zones.
//!
//! # What the numbers are for
//! Of all data of a block, the data that was written last counts. The order of units does not show it. A copy by the
//! collector, or a unit that was sent again, may lie after newer data of its block. So each record has a number, which says
//! how new its data is. The unit's sequence says how new the header is, and with it sizes and paths. One counter gives
//! both.
//!
//! Units that were in flight when the power failed, and in no commit, are still in the zones. So a header also says at
//! which number the file system was opened: see [`Header::since`].

use super::{FILES_END, SIZE_MAX, Uuid, VERSION, crc32c};
use crate::BLOCK_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header.
pub const HEADER_BYTES: usize = BLOCK_BYTES as usize;

const MAGIC: [u8; 8] = *b"ZNLunit\x01";

/// The fixed part, at the start of the header. The records, the checksums and the paths follow.
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
    since: U64,
    begun: U64,
    reserved: [u8; 4],
}

/// The data has no checksums.
const UNSUMMED: u16 = 1;

/// Where the checksum lies.
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;

/// Most bytes that a path shares with the one before.
const SHARED_MAX: usize = 255;

/// Bytes before the rest of a path: how many it shares, and how many follow.
const PATH_HEAD_BYTES: usize = 3;

const FIXED_BYTES: usize = size_of::<Fixed>();
const RECORD_BYTES: usize = size_of::<RawRecord>();
const _: () = assert!(FIXED_BYTES == 72 && RECORD_BYTES == 32);

/// Most data blocks of a unit, two mebibytes: their checksums take half of what the header has, so that many records fit too.
pub const DATA_BLOCKS_MAX: u32 = 512;

/// Bytes that [`Header::records_max`] reckons for each path: what a path does not share with the one before.
const PATH_BYTES: usize = 16;

/// Numbers that each opening of the file system passes over: more than are ever given between two commits.
pub const NUMBERS_PASSED: u64 = 1 << 32;

/// Numbers are below this one: a file system would have to be opened a thousand million times to reach it.
pub const NUMBERS_END: u64 = 1 << 62;

/// Files and blocks have numbers below this one.
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

/// A piece of a file in a unit. The pieces lie one after the other, in the order of their records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The file.
    pub ino: u64,
    /// Tells it from earlier files of its number: [`Attributes::born`](super::Attributes::born).
    pub born: u16,
    /// First of its blocks.
    pub block: u64,
    /// How many, 1 at least.
    pub blocks: u32,
    /// Bytes of the file when this was written, for a rebuild.
    pub size: u64,
    /// How new the data is: of two records with the same block of a file the one with the higher number counts.
    pub number: u64,
}

impl Record {
    /// Whether there can be such a piece of a file.
    fn is_sound(&self) -> bool {
        self.blocks > 0 && self.ino < FILES_END && self.size <= SIZE_MAX && self.number < NUMBERS_END
    }
}

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The file system of the unit.
    pub uuid: Uuid,
    /// Number of the unit. Of two headers with a file's size and path, the one with the higher number counts.
    pub sequence: u64,
    /// The file system was opened at this number. A unit whose sequence is among the [`NUMBERS_PASSED`] numbers from this
    /// one on was in no commit, and does not count.
    pub since: u64,
    /// The zone it was written for.
    pub zone: u32,
    /// Sequence of the first unit after the last reset of the zone, the same in all units until the next reset. A unit with another one is
    /// stale: the drive has lost the write that should have replaced it.
    pub begun: u64,
    /// The pieces.
    pub records: Vec<Record>,
    /// A checksum of each data block; none where data has no checksums.
    pub sums: Vec<u32>,
    /// Where the file of each piece was in the tree; empty if that is not known or did not fit. Pieces of one file that
    /// follow each other have the same.
    pub paths: Vec<Vec<u8>>,
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
    /// It contradicts itself.
    #[error("the unit's header contradicts itself")]
    Nonsense,
    /// It is another file system's, from before this one was made.
    #[error("the unit is of another file system")]
    Foreign,
    /// It is a copy of a header of another zone.
    #[error("the unit was written for another zone")]
    Elsewhere,
    /// It was written before the last reset of its zone.
    #[error("stale unit from before the last reset of the zone: a write was lost")]
    Earlier,
    /// It matches its checksum in the run of the zone, but not the beginning in the account of the zone. A repair takes this sequence.
    #[error("the account of the zone has a wrong beginning; run `zonal fsck --data --repair`")]
    Beginning(u64),
    /// It is another unit than the metadata reference.
    #[error("another unit than expected: a write was misdirected or lost")]
    Other,
}

impl Header {
    /// Data blocks.
    pub fn blocks(&self) -> u32 {
        self.records.iter().map(|record| record.blocks).sum()
    }

    /// How many records a header has beside the checksums of `blocks`, with room for their paths.
    pub const fn records_max(blocks: u32) -> usize {
        (HEADER_BYTES - FIXED_BYTES - 4 * blocks as usize) / (RECORD_BYTES + PATH_BYTES)
    }

    /// Writes the header, with as many of the paths as fit, and returns its checksum.
    ///
    /// # Panics
    /// If the records do not fit; those of [`Header::records_max`] do.
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

    /// The checksum of a header, as it says itself: [`Header::decode`] compares it with the bytes.
    ///
    /// # Panics
    /// If `block` is shorter than a header.
    pub fn checksum_in(block: &[u8]) -> u32 {
        let bytes: [u8; 4] = block[CHECKSUM_AT].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    }

    /// Paths of the pieces' files, as many as fit in `room` bytes. Each is the number of bytes that it shares with the one
    /// before, and the rest.
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

    /// Reads the header of a unit of the file system `uuid`.
    ///
    /// # Errors
    /// What keeps the block from being one.
    pub fn decode(block: &[u8], uuid: &Uuid) -> Result<Header, UnitError> {
        let header = Header::decode_any(block)?;
        if header.uuid == *uuid { Ok(header) } else { Err(UnitError::Foreign) }
    }

    /// Reads the header of a unit of any file system.
    ///
    /// # Errors
    /// What keeps the block from being one.
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

/// The path of each record, from what [`Header::emit_paths`] wrote.
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

/// Reads any bytes as a header; for fuzzers. A header survives another round.
///
/// # Errors
/// As [`Header::decode_any`].
///
/// # Panics
/// If a header does not survive: a bug.
pub fn fuzz_header(bytes: &[u8]) -> Result<Header, UnitError> {
    // A fuzzer does not find a checksum: its bytes get the right one.
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
    fn header_comes_back_as_it_went() {
        let unsummed = Header { sums: Vec::new(), ..header() };
        for header in [header(), unsummed] {
            assert_eq!(Header::decode(&block(&header), &[7; 16]), Ok(header));
        }
    }

    #[test]
    fn header_full_to_its_end_still_comes_back() {
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
    fn what_is_no_header_is_told_apart() {
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

    /// Random bytes, changed headers and what lies between: none panics, and what is a header comes back. The same as the fuzz
    /// target `unit` does at length.
    #[test]
    fn any_bytes_are_a_header_that_comes_back_or_none() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut accepted = 0;
        for _ in 0..4000 {
            let mut bytes = block(&header());
            for _ in 0..random.random_range(1..6) {
                // Most of a header is its end.
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
