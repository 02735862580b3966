//! Values of rows.
//!
//! Each kind of row has a type with `encode` and `decode`. `decode` accepts any bytes as input. It
//! refuses truncated values, trailing bytes and numbers out of range. An accepted value survives
//! another `encode` and `decode` unchanged.
//!
//! A million files have millions of rows, so numbers that are usually small have a short encoding:
//! see [`varint`](super::varint).

use super::key;
use super::unit::NUMBERS_END;
use super::varint::{Reader, put, put_signed};
use crate::space::Lifetime;
use std::ops::Range;

/// A row with an invalid value.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("row {key:02x?} is damaged: {what}")]
pub struct RowError {
    /// Key of the row.
    pub key: Vec<u8>,
    /// The problem.
    pub what: &'static str,
}

/// Upper bound of the blocks of an extent or a run, exclusive.
const BLOCKS_END: u32 = 1 << 24;

/// Upper bound of block numbers in a zone, exclusive.
const UNIT_END: u32 = 1 << 30;

/// Upper bound of block numbers in a file, exclusive.
const FILE_END: u64 = 1 << 48;

/// Upper bound of file numbers, exclusive: 140 trillion. A unit's header has six bytes for a file
/// number.
pub const FILES_END: u64 = 1 << 47;

/// Upper bound of generations, exclusive. Each opening of the file system is a generation and skips
/// 2^32 unit numbers.
pub const GENERATIONS_END: u32 = (NUMBERS_END >> 32) as u32;

/// Size of the largest file, in bytes.
pub const SIZE_MAX: u64 = 1 << 56;

/// Length of the longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// True if `name` is valid for a file in a directory.
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.contains(&b'/')
        && !name.contains(&0)
}

/// Position of a name in the listing of its directory. Positions increase in the order in which
/// names are created, and are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

impl Position {
    /// Ahead of all names.
    pub const START: Position = Position(0);

    /// Position of the first name. Lower positions are free for a mount, which also lists `.` and
    /// `..`.
    pub const FIRST: Position = Position(3);

    /// Upper bound of positions, exclusive. Positions fit a signed 64-bit offset, and last for a
    /// century of one new name per nanosecond.
    pub const END: Position = Position(1 << 62);

    /// The next position.
    pub fn next(self) -> Position {
        Position(self.0.saturating_add(1))
    }

    /// True if a name can have this position.
    pub fn is_of_name(self) -> bool {
        (Position::FIRST..Position::END).contains(&self)
    }
}

/// Type of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 0,
    /// A directory.
    Directory = 1,
    /// A symbolic link.
    Symlink = 2,
    /// A named pipe.
    Pipe = 3,
    /// A socket.
    Socket = 4,
    /// A character device.
    Character = 5,
    /// A block device.
    Block = 6,
}

impl FileKind {
    fn of(byte: u8) -> Option<FileKind> {
        use FileKind::*;
        [File, Directory, Symlink, Pipe, Socket, Character, Block].into_iter().find(|k| *k as u8 == byte)
    }
}

/// Decodes a value, which must have no bytes left over.
fn read<T>(key: &[u8], value: &[u8], read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Result<T, RowError> {
    let mut reader = Reader(value);
    let row = read(&mut reader).filter(|_| reader.0.is_empty());
    row.ok_or_else(|| RowError { key: key.to_vec(), what: "invalid value" })
}

/// Attributes of a file.
///
/// Times are nanoseconds since 1970 and negative before, which covers the years 1677 to 2262.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Type of the file.
    pub kind: FileKind,
    /// Expected lifetime of its data, as an index of [`Lifetime::ALL`].
    pub lifetime: u8,
    /// Permission bits.
    pub mode: u16,
    /// Low 16 bits of the opening that created the file. Its units carry them too, because a
    /// rebuild may reuse a number while the zones still hold data of its previous owner.
    pub born: u16,
    /// Opening of the file system that created the file, or rebuild that found it. Number and
    /// generation together are unique. Only a rebuild changes it. The root has 0.
    pub generation: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names. A directory has 2, and one more for each subdirectory.
    pub links: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Size in bytes. Holes between extents read as zeroes.
    pub size: u64,
    /// Blocks of 4096 bytes in all extents, lost ones included. 0 for a directory.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: i64,
    /// Time of the last change of the data.
    pub mtime: i64,
    /// Time of the last change of the attributes.
    pub ctime: i64,
    /// Time of creation. It never changes.
    pub btime: i64,
    /// Directory that contains the first name.
    pub parent: u64,
    /// Position of that name, under which a row holds the name; [`Position::START`] without a name.
    pub position: Position,
    /// For a directory, the position of the next new name; [`Position::START`] for other files.
    pub next_position: Position,
}

impl Attributes {
    /// Attributes of a new file or directory with one name, owned by user and group 0.
    pub fn new(kind: FileKind, mode: u16, parent: u64, position: Position, now: i64) -> Attributes {
        let is_directory = kind == FileKind::Directory;
        Attributes {
            kind,
            lifetime: 0,
            mode,
            born: 0,
            generation: 0,
            uid: 0,
            gid: 0,
            links: if is_directory { 2 } else { 1 },
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent,
            position,
            next_position: if is_directory { Position::FIRST } else { Position::START },
        }
    }

    /// Expected lifetime of new data of the file. A file that has lost its last name is deleted
    /// when it is closed, so its data is short-lived unless another lifetime was set.
    pub fn expected_lifetime(&self) -> Lifetime {
        let had_a_name = self.position != Position::START;
        match Lifetime::ALL.get(usize::from(self.lifetime)).copied().unwrap_or_default() {
            Lifetime::NotSet if self.links == 0 && had_a_name => Lifetime::Short,
            lifetime => lifetime,
        }
    }

    /// Updates the block count after blocks were unmapped and others mapped.
    pub fn count_blocks(&mut self, gone: u64, came: u64) {
        // A damaged row may hold a count below the number of blocks that are unmapped.
        self.blocks = self.blocks.saturating_sub(gone).saturating_add(came).min(FILE_END);
    }

    /// Encodes the row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(48);
        row.extend_from_slice(&[self.kind as u8, self.lifetime]);
        row.extend_from_slice(&self.mode.to_le_bytes());
        for n in [self.born.into(), self.generation, self.uid, self.gid, self.links, self.rdev] {
            put(&mut row, n.into());
        }
        put(&mut row, self.size);
        match self.kind {
            FileKind::File => put(&mut row, self.blocks),
            FileKind::Directory => put(&mut row, self.next_position.0),
            _ => {}
        }
        // Most files are read and changed soon after creation or never, so the differences are
        // small.
        row.extend_from_slice(&self.btime.to_le_bytes());
        put_signed(&mut row, self.atime.wrapping_sub(self.btime));
        put_signed(&mut row, self.mtime.wrapping_sub(self.btime));
        put_signed(&mut row, self.ctime.wrapping_sub(self.mtime));
        put(&mut row, self.parent);
        put(&mut row, self.position.0);
        row
    }

    /// Decodes a row's value.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Attributes, RowError> {
        read(key, value, |r| {
            let (kind, lifetime) = (FileKind::of(r.take_u8()?)?, r.take_u8()?);
            let mode = u16::from_le_bytes(r.take()?);
            let (born, generation) = (r.take_number()?, r.take_number()?);
            let (uid, gid, links, rdev) =
                (r.take_number()?, r.take_number()?, r.take_number()?, r.take_number()?);
            let size = r.take_number()?;
            let blocks = if kind == FileKind::File { r.take_number()? } else { 0 };
            let next_position =
                if kind == FileKind::Directory { Position(r.take_number()?) } else { Position::START };
            let btime = i64::from_le_bytes(r.take()?);
            let atime = btime.wrapping_add(r.take_signed()?);
            let mtime = btime.wrapping_add(r.take_signed()?);
            let ctime = mtime.wrapping_add(r.take_signed()?);
            let (parent, position) = (r.take_number()?, Position(r.take_number()?));
            let is_sound = generation < GENERATIONS_END
                && size <= SIZE_MAX
                && blocks <= FILE_END
                && (kind != FileKind::Directory
                    || (Position::FIRST..=Position::END).contains(&next_position))
                && parent < FILES_END
                && (position == Position::START || position.is_of_name())
                && key::parts(key).0 < FILES_END;
            is_sound.then_some(Attributes {
                kind,
                lifetime,
                mode,
                born,
                generation,
                uid,
                gid,
                links,
                rdev,
                size,
                blocks,
                atime,
                mtime,
                ctime,
                btime,
                parent,
                position,
                next_position,
            })
        })
    }
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Number of the file.
    pub ino: u64,
    /// Type of the file.
    pub kind: FileKind,
    /// Position in the listing of the directory.
    pub position: Position,
}

impl Entry {
    /// Encodes the row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![self.kind as u8];
        put(&mut row, self.ino);
        put(&mut row, self.position.0);
        row
    }

    /// Decodes a row's value.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Entry, RowError> {
        read(key, value, |r| {
            let kind = FileKind::of(r.take_u8()?)?;
            let entry = Entry { kind, ino: r.take_number()?, position: Position(r.take_number()?) };
            (entry.ino < FILES_END && entry.position.is_of_name()).then_some(entry)
        })
    }
}

/// Decodes the row of a position and returns the name.
///
/// # Errors
/// If the row is invalid.
pub fn positioned<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], RowError> {
    let (directory, position) = key::position_parts(key);
    let is_sound = directory < FILES_END && position.is_of_name() && is_name(value);
    let what = "invalid position or name";
    if is_sound { Ok(value) } else { Err(RowError { key: key.to_vec(), what }) }
}

/// A block on the drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockPlace {
    /// Zone of the block.
    pub zone: u32,
    /// First block of the unit, which is its header.
    pub unit: u32,
    /// Index among the data blocks of the unit, from 0.
    pub index: u32,
}

impl BlockPlace {
    /// Block number in the zone.
    pub fn block(&self) -> u32 {
        self.unit + 1 + self.index
    }
}

/// Contiguous blocks of a file in consecutive units, all of which are full except the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Zone of the units.
    pub zone: u32,
    /// First block of the first unit, which is its header.
    pub unit: u32,
    /// Data blocks per unit, except in the last one.
    pub unit_blocks: u16,
    /// Data blocks of the first unit ahead of the extent.
    pub skip: u16,
    /// Length in blocks.
    pub blocks: u32,
}

impl Extent {
    /// Marks an extent of lost blocks: the file had data there, and no zone has it any more.
    /// Reading it is an error.
    pub const LOST: u32 = u32::MAX;

    /// An extent of lost blocks.
    pub fn lost(blocks: u32) -> Extent {
        Extent { zone: Extent::LOST, unit: 0, unit_blocks: u16::MAX, skip: 0, blocks }
    }

    /// True if the blocks are lost.
    pub fn is_lost(&self) -> bool {
        self.zone == Extent::LOST
    }

    /// Location of block `i` of the extent.
    pub fn place(&self, i: u32) -> BlockPlace {
        let (per, at) = (u32::from(self.unit_blocks), u32::from(self.skip) + i);
        BlockPlace { zone: self.zone, unit: self.unit + at / per * (per + 1), index: at % per }
    }

    /// Sub-extent of the blocks in `range`.
    pub fn part(&self, range: Range<u32>) -> Extent {
        let BlockPlace { unit, index, .. } = self.place(range.start);
        Extent { unit, skip: index as u16, blocks: range.end - range.start, ..*self }
    }

    /// True if `next` follows immediately, so that the two can be merged.
    pub fn continues_with(&self, next: &Extent) -> bool {
        let end = u32::from(self.skip) + self.blocks;
        let per = u32::from(self.unit_blocks);
        let follows = match end % per {
            0 => next.skip == 0 && next.unit == self.unit + end / per * (per + 1) && next.fits(per),
            index => {
                // Blocks in the last unit of this extent must not reach beyond that unit unless it
                // is full.
                u32::from(next.skip) == index
                    && next.unit == self.unit + end / per * (per + 1)
                    && next.unit_blocks == self.unit_blocks
            }
        };
        self.zone == next.zone && follows
    }

    /// For fuzzers: checks that the last block has a place.
    fn check(&self) {
        let last = self.blocks - 1;
        assert!(self.place(last).block() > self.unit, "blocks come after the header of the first unit");
        assert_eq!(self.part(last..self.blocks).place(0), self.place(last), "a part has the same places");
    }

    /// True if the extent can be expressed in units of `per` data blocks.
    fn fits(&self, per: u32) -> bool {
        u32::from(self.unit_blocks) == per || self.blocks <= u32::from(self.unit_blocks) && self.blocks <= per
    }

    /// Encodes the row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(12);
        for n in [self.zone, self.unit, self.unit_blocks.into(), self.skip.into(), self.blocks] {
            put(&mut row, n.into());
        }
        row
    }

    /// Decodes a row's value.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Extent, RowError> {
        read(key, value, |r| {
            let extent = Extent {
                zone: r.take_number()?,
                unit: r.take_number()?,
                unit_blocks: r.take_number()?,
                skip: r.take_number()?,
                blocks: r.take_number()?,
            };
            let is_sound = extent.unit_blocks > 0
                && extent.skip < extent.unit_blocks
                && (1..BLOCKS_END).contains(&extent.blocks)
                && extent.unit < UNIT_END
                && key::extent_parts(key).0 < FILES_END
                && key::extent_parts(key).1 < FILE_END;
            is_sound.then_some(extent)
        })
    }
}

/// A zone's account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Live data blocks.
    pub used: u32,
    /// Number of resets since the file system was made.
    pub resets: u32,
    /// [`Header::begun`](super::Header::begun) of the zone's units; 0 without live blocks, or after
    /// a repair has recounted them.
    pub begun: u64,
}

impl Account {
    /// Encodes the row's value.
    pub fn encode(&self) -> Vec<u8> {
        let Account { used, resets, begun } = *self;
        [&used.to_le_bytes()[..], &resets.to_le_bytes(), &begun.to_le_bytes()].concat()
    }

    /// Decodes a row's value.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Account, RowError> {
        read(key, value, |r| {
            let account = Account {
                used: u32::from_le_bytes(r.take()?),
                resets: u32::from_le_bytes(r.take()?),
                begun: u64::from_le_bytes(r.take()?),
            };
            (account.begun < NUMBERS_END).then_some(account)
        })
    }
}

/// A piece of a file in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunPiece {
    /// The file.
    pub ino: u64,
    /// First block of the piece in the file.
    pub block: u64,
    /// Length in blocks.
    pub blocks: u32,
}

/// Consecutive units of a zone: either one unit with any number of pieces, or several units with
/// one piece, all full except the last.
///
/// A run records what was written. The extents of the files record which of it is still in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Data blocks per unit, except in the last one.
    pub unit_blocks: u16,
    /// Checksums of the headers, one per unit, at most [`RUN_UNITS_MAX`]; 0 for a unit that was
    /// added by a repair.
    pub headers: Vec<u32>,
    /// Pieces, in the order of the zone.
    pub pieces: Vec<RunPiece>,
}

/// Maximum number of units in a run. Each unit that is appended to a run rewrites its row.
pub const RUN_UNITS_MAX: usize = 64;

impl Run {
    /// Number of units for `blocks` data blocks.
    fn units(&self, blocks: u32) -> usize {
        blocks.div_ceil(self.unit_blocks.into()) as usize
    }

    /// First block and header checksum of each unit of a run at block `start` of its zone.
    pub fn headers_from(&self, start: u32) -> impl Iterator<Item = (u32, u32)> {
        let per = u32::from(self.unit_blocks) + 1;
        (0..).zip(&self.headers).map(move |(n, header)| (start + n * per, *header))
    }

    /// Number of data blocks.
    pub fn blocks(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.blocks).sum()
    }

    /// True if a unit at block `unit` with just this piece continues the run that starts at
    /// `start`.
    pub fn continues_with(&self, start: u32, unit: u32, piece: &RunPiece) -> bool {
        let [own] = &self.pieces[..] else { return false };
        let per = u32::from(self.unit_blocks);
        self.headers.len() < RUN_UNITS_MAX
            && own.blocks.is_multiple_of(per)
            && unit == start + own.blocks / per * (per + 1)
            && own.ino == piece.ino
            && own.block + u64::from(own.blocks) == piece.block
            && piece.blocks <= per
    }

    /// Encodes the row's value.
    ///
    /// # Panics
    /// If the number of checksums differs from the number of units.
    pub fn encode(&self) -> Vec<u8> {
        let (first, others) = self.headers.split_first().expect("a run has a unit");
        let mut row = Vec::with_capacity(2 + 6 * self.pieces.len() + 4 * self.headers.len());
        put(&mut row, self.unit_blocks.into());
        row.extend_from_slice(&first.to_le_bytes());
        for piece in &self.pieces {
            for n in [piece.ino, piece.block, piece.blocks.into()] {
                put(&mut row, n);
            }
        }
        // Only a run with one piece has several units, so the number of units follows from the
        // first piece.
        for header in others {
            row.extend_from_slice(&header.to_le_bytes());
        }
        assert_eq!(self.headers.len(), self.units(self.blocks()), "one checksum for each unit");
        row
    }

    /// Decodes a row's value.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Run, RowError> {
        read(key, value, |r| {
            let unit_blocks = r.take_number().filter(|blocks| *blocks > 0)?;
            let headers = vec![u32::from_le_bytes(r.take()?)];
            let mut run = Run { unit_blocks, headers, pieces: Vec::with_capacity(r.0.len() / 4) };
            let mut blocks = 0u32;
            while !r.0.is_empty() {
                let piece =
                    RunPiece { ino: r.take_number()?, block: r.take_number()?, blocks: r.take_number()? };
                let is_sound = piece.ino < FILES_END && piece.block < FILE_END && piece.blocks > 0;
                run.pieces.push(piece);
                blocks = blocks.checked_add(piece.blocks)?;
                if !is_sound || blocks >= BLOCKS_END {
                    return None;
                }
                let units = run.units(blocks);
                if units > RUN_UNITS_MAX || units > 1 && run.pieces.len() > 1 {
                    return None;
                }
                for _ in 1..units {
                    run.headers.push(u32::from_le_bytes(r.take()?));
                }
                if units > 1 {
                    break;
                }
            }
            (key::run_parts(key).1 < UNIT_END && !run.pieces.is_empty()).then_some(run)
        })
    }
}

/// For fuzzers: decodes any bytes as a key and a value. An accepted row has to survive encoding and
/// decoding unchanged.
///
/// # Errors
/// As for the decoder of that kind of row.
///
/// # Panics
/// If a row changes: a bug.
pub fn fuzz_row(bytes: &[u8]) -> Result<(), RowError> {
    let (key, value) = bytes.split_at(bytes.len().min(KEY_BYTES));
    match key.first() {
        Some(b'I') => survives(key, value, Attributes::decode, Attributes::encode),
        Some(b'D') => survives(key, value, Entry::decode, Entry::encode),
        Some(b'P') => positioned(key, value).map(drop),
        Some(b'E') => {
            let extent = survives(key, value, Extent::decode, Extent::encode);
            extent.and_then(|()| Extent::decode(key, value)).map(|extent| extent.check())
        }
        Some(b'R') => survives(key, value, Run::decode, Run::encode),
        Some(b'Z') => survives(key, value, Account::decode, Account::encode),
        _ => Err(RowError { key: key.to_vec(), what: "unknown kind of row" }),
    }
}

/// Length of the key at the start of the input of [`fuzz_row`].
const KEY_BYTES: usize = 17;

fn survives<T: PartialEq + std::fmt::Debug>(
    key: &[u8],
    value: &[u8],
    decode: impl Fn(&[u8], &[u8]) -> Result<T, RowError>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Result<(), RowError> {
    let row = decode(key, value)?;
    assert_eq!(decode(key, &encode(&row)).as_ref(), Ok(&row), "encode and decode");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Rows of all kinds with random changes, as a short version of the fuzz target `row`.
    #[test]
    fn mutated_rows_are_rejected_or_round_trip() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let run = Run {
            unit_blocks: 9,
            headers: vec![6],
            pieces: vec![RunPiece { ino: 1, block: 2, blocks: 3 }; 3],
        };
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..4000 {
            let (key, value) = match random.random_range(0..7) {
                0 => (key::extent(5, 9), EXTENT.encode()),
                1 => (key::run(3, 0), run.encode()),
                2 => (key::zone(3), Account { used: 4, resets: 5, begun: 6 }.encode()),
                3 => (key::entry(1, b"name"), ENTRY.encode()),
                4 => (key::position(1, ENTRY.position), b"name".to_vec()),
                5 => (key::inode(5), attributes().encode()),
                _ => (key::inode(5), directory().encode()),
            };
            let mut bytes = key;
            bytes.resize(KEY_BYTES, 0);
            bytes.extend(value);
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(1..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(bytes.len() - random.random_range(0..2));
            match fuzz_row(&bytes) {
                Ok(()) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(accepted > 500 && refused > 500, "{accepted} and {refused}");
    }

    const ENTRY: Entry = Entry { ino: 7, kind: FileKind::File, position: Position(300) };

    fn attributes() -> Attributes {
        Attributes {
            lifetime: 3,
            born: 12,
            generation: 70_000,
            uid: 1000,
            gid: 2,
            links: 3,
            rdev: 4,
            size: 5 << 20,
            blocks: 6,
            atime: -7,
            mtime: i64::MAX,
            ctime: i64::MIN,
            ..Attributes::new(FileKind::File, 0o644, 9, Position(70), -1_000_000_000)
        }
    }

    fn directory() -> Attributes {
        Attributes {
            next_position: Position(1000),
            ..Attributes::new(FileKind::Directory, 0o755, 1, Position::FIRST, 77)
        }
    }

    const EXTENT: Extent = Extent { zone: 4, unit: 10, unit_blocks: 7, skip: 2, blocks: 20 };

    #[test]
    fn extent_blocks_follow_the_headers_of_their_units() {
        let places: Vec<u32> = (0..20).map(|i| EXTENT.place(i).block()).collect();
        let expected = [13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 35];
        assert_eq!(places, expected);
    }

    #[test]
    fn part_of_an_extent_has_the_same_places() {
        for start in 0..20 {
            let part = EXTENT.part(start..20);
            for i in 0..20 - start {
                assert_eq!(part.place(i), EXTENT.place(start + i));
            }
        }
    }

    #[test]
    fn extent_continues_only_with_its_successor() {
        for cut in 1..20 {
            let (head, tail) = (EXTENT.part(0..cut), EXTENT.part(cut..20));
            assert!(head.continues_with(&tail), "{cut}");
            assert!(!tail.continues_with(&head), "{cut}");
            let elsewhere = Extent { zone: 5, ..tail };
            assert!(!head.continues_with(&elsewhere));
        }
        let full = Extent { skip: 0, blocks: 7, ..EXTENT };
        let short = Extent { zone: 4, unit: 18, unit_blocks: 3, skip: 0, blocks: 3 };
        assert!(full.continues_with(&short), "the last unit may be short");
        let joined = Extent { blocks: 10, ..full };
        assert_eq!(
            (0..3).map(|i| joined.place(7 + i)).collect::<Vec<_>>(),
            (0..3).map(|i| short.place(i)).collect::<Vec<_>>()
        );
        let after_short = Extent { zone: 4, unit: 22, unit_blocks: 7, skip: 0, blocks: 7 };
        assert!(!joined.continues_with(&after_short), "the unit after a short one does not fit the count");
    }

    #[test]
    fn rows_round_trip() {
        assert_eq!(Extent::decode(&[], &EXTENT.encode()), Ok(EXTENT));
        let [one, other] = [(1, 2, 3), (4, 5, 6)].map(|(ino, block, blocks)| RunPiece { ino, block, blocks });
        let unit = Run { unit_blocks: 9, headers: vec![7], pieces: vec![one, other] };
        let units = Run { unit_blocks: 2, headers: vec![7, 8], pieces: vec![one] };
        for run in [unit, units] {
            assert_eq!(Run::decode(&[], &run.encode()), Ok(run));
        }
        for attributes in [attributes(), directory()] {
            assert_eq!(Attributes::decode(&[], &attributes.encode()), Ok(attributes));
            let cut = &attributes.encode()[..20];
            assert!(Attributes::decode(b"k", cut).unwrap_err().to_string().contains("[6b]"));
        }
        assert_eq!(Entry::decode(&[], &ENTRY.encode()), Ok(ENTRY));
        let key = key::position(3, Position(7));
        assert_eq!(positioned(&key, b"name"), Ok(&b"name"[..]));
    }

    #[test]
    fn row_of_a_new_file_is_small() {
        let made = 1_800_000_000_000_000_000;
        let new = Attributes::new(FileKind::File, 0o644, 100_000, Position(1000), made);
        let old = Attributes { born: 2, generation: 2, uid: 1000, gid: 1000, ctime: made + 9_000, ..new };
        assert_eq!(old.encode().len(), 32);
        let entry = Entry { ino: 100_001, kind: FileKind::File, position: Position(1000) };
        assert_eq!((entry.encode().len(), EXTENT.encode().len()), (6, 5));
    }

    #[test]
    fn values_out_of_their_range_or_with_bytes_left_over_are_refused() {
        let is_refused = |change: fn(&mut Attributes)| {
            let mut row = directory();
            change(&mut row);
            Attributes::decode(&key::inode(5), &row.encode()).is_err()
        };
        assert!(!is_refused(|_| {}));
        assert!(is_refused(|row| row.generation = GENERATIONS_END));
        assert!(is_refused(|row| row.size = SIZE_MAX + 1));
        assert!(is_refused(|row| (row.kind, row.blocks) = (FileKind::File, FILE_END + 1)));
        assert!(is_refused(|row| row.next_position = Position(2)));
        assert!(is_refused(|row| row.next_position = Position(Position::END.0 + 1)));
        assert!(is_refused(|row| row.parent = FILES_END));
        assert!(is_refused(|row| row.position = Position(2)));
        for position in [Position::START, Position(2), Position::END] {
            assert!(Entry::decode(&[], &Entry { position, ..ENTRY }.encode()).is_err(), "{position:?}");
            assert!(positioned(&key::position(1, position), b"name").is_err(), "{position:?}");
        }
        let key = key::position(1, Position::FIRST);
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; NAME_MAX + 1]] {
            assert!(positioned(&key, name).is_err(), "{name:?}");
        }
        assert!(positioned(&key[..16], b"name").is_err());
        for mut row in [ENTRY.encode(), EXTENT.encode(), Account::default().encode()] {
            row.push(0);
            let is_sound = [
                Entry::decode(&[], &row).is_ok(),
                Extent::decode(&[], &row).is_ok(),
                Account::decode(&[], &row).is_ok(),
            ];
            assert_eq!(is_sound, [false; 3], "{row:?}");
        }
    }
}
