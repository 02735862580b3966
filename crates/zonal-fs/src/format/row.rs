//! Rows of the metadata: keys and values.

use std::ops::Range;

/// Why a row's value cannot be read.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("row {key:02x?} is damaged: {what}")]
pub struct RowError {
    /// Its key.
    pub key: Vec<u8>,
    /// What is wrong.
    pub what: &'static str,
}

/// Keys of rows. The first byte says which kind of row it is; numbers sort as they count.
pub mod key {
    const INODE: u8 = b'I';
    const ENTRY: u8 = b'D';
    const EXTENT: u8 = b'E';
    const RUN: u8 = b'R';
    const ZONE: u8 = b'Z';
    const ATTRIBUTE: u8 = b'X';
    const TARGET: u8 = b'L';
    const ORPHAN: u8 = b'O';
    const COUNTER: u8 = b'S';

    fn of(kind: u8, number: u64, rest: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(9 + rest.len());
        key.push(kind);
        key.extend_from_slice(&number.to_be_bytes());
        key.extend_from_slice(rest);
        key
    }

    /// A file's attributes.
    pub fn inode(ino: u64) -> Vec<u8> {
        of(INODE, ino, &[])
    }

    /// All files' attributes, from and below.
    pub fn inodes() -> (Vec<u8>, Vec<u8>) {
        (vec![INODE], vec![INODE + 1])
    }

    /// A name in a directory.
    pub fn entry(parent: u64, name: &[u8]) -> Vec<u8> {
        of(ENTRY, parent, name)
    }

    /// All names of a directory, from and below.
    pub fn entries(parent: u64) -> (Vec<u8>, Vec<u8>) {
        (of(ENTRY, parent, &[]), of(ENTRY, parent.saturating_add(1), &[]))
    }

    /// All names of all directories, from and below.
    pub fn all_entries() -> (Vec<u8>, Vec<u8>) {
        (vec![ENTRY], vec![ENTRY + 1])
    }

    /// The extent of a file that begins at this block.
    pub fn extent(ino: u64, block: u64) -> Vec<u8> {
        of(EXTENT, ino, &block.to_be_bytes())
    }

    /// All extents, from and below.
    pub fn all_extents() -> (Vec<u8>, Vec<u8>) {
        (vec![EXTENT], vec![EXTENT + 1])
    }

    /// The run of units that begins at this block of a zone.
    pub fn run(zone: u32, block: u32) -> Vec<u8> {
        of(RUN, u64::from(zone) << 32 | u64::from(block), &[])
    }

    /// All runs of a zone, from and below.
    pub fn runs(zone: u32) -> (Vec<u8>, Vec<u8>) {
        (run(zone, 0), of(RUN, (u64::from(zone) + 1) << 32, &[]))
    }

    /// All runs, from and below.
    pub fn all_runs() -> (Vec<u8>, Vec<u8>) {
        (vec![RUN], vec![RUN + 1])
    }

    /// A zone's account.
    pub fn zone(zone: u32) -> Vec<u8> {
        of(ZONE, zone.into(), &[])
    }

    /// All zones' accounts, from and below.
    pub fn zones() -> (Vec<u8>, Vec<u8>) {
        (vec![ZONE], vec![ZONE + 1])
    }

    /// An extended attribute of a file.
    pub fn attribute(ino: u64, name: &[u8]) -> Vec<u8> {
        of(ATTRIBUTE, ino, name)
    }

    /// All extended attributes of a file, from and below.
    pub fn attributes(ino: u64) -> (Vec<u8>, Vec<u8>) {
        (of(ATTRIBUTE, ino, &[]), of(ATTRIBUTE, ino.saturating_add(1), &[]))
    }

    /// Where a symbolic link points.
    pub fn target(ino: u64) -> Vec<u8> {
        of(TARGET, ino, &[])
    }

    /// A file without a name that is still open, or was when the power went.
    pub fn orphan(ino: u64) -> Vec<u8> {
        of(ORPHAN, ino, &[])
    }

    /// All such files, from and below.
    pub fn orphans() -> (Vec<u8>, Vec<u8>) {
        (vec![ORPHAN], vec![ORPHAN + 1])
    }

    /// A number of the whole file system.
    pub fn counter(name: &str) -> Vec<u8> {
        of(COUNTER, 0, name.as_bytes())
    }

    /// The numbers in a key: the first, and what follows it.
    pub fn parts(key: &[u8]) -> (u64, &[u8]) {
        let number = key.get(1..9).map_or(0, |n| u64::from_be_bytes(n.try_into().expect("eight bytes")));
        (number, key.get(9..).unwrap_or_default())
    }

    /// The file and block in the key of an extent.
    pub fn extent_parts(key: &[u8]) -> (u64, u64) {
        let (ino, rest) = parts(key);
        (ino, rest.try_into().map_or(0, u64::from_be_bytes))
    }

    /// The zone and block in the key of a run.
    pub fn run_parts(key: &[u8]) -> (u32, u32) {
        let (number, _) = parts(key);
        ((number >> 32) as u32, number as u32)
    }
}

/// Blocks of an extent, or of a run, are fewer.
const BLOCKS_END: u32 = 1 << 24;

/// Blocks of a zone have numbers below this one.
const UNIT_END: u32 = 1 << 30;

/// Blocks of a file have numbers below this one.
const FILE_END: u64 = 1 << 48;

/// Files have numbers below this one: more than anybody makes, and fewer than a unit's header has room for.
pub const FILES_END: u64 = 1 << 47;

/// Bytes of the largest file.
pub const SIZE_MAX: u64 = 1 << 56;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A file with data.
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

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        [File, Directory, Symlink, Pipe, Socket, Character, Block].into_iter().find(|k| *k as u8 == byte)
    }
}

/// Takes values from the front of a row.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn take_u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }

    fn take_u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn take_u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn take_u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

fn read<T>(key: &[u8], value: &[u8], read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Result<T, RowError> {
    read(&mut Reader(value)).ok_or_else(|| RowError { key: key.to_vec(), what: "its value cannot be read" })
}

/// What is known of a file beside its data. Times are nanoseconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// How long its data is expected to live: an index of [`Lifetime`](crate::space::Lifetime).
    pub lifetime: u8,
    /// Permission bits.
    pub mode: u16,
    /// Which opening of the file system it was made in, as far as two bytes tell: after a cut a number of a file may be given
    /// again whose first owner still has data in the zones.
    pub born: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names it has; of a directory 2, and one more for each directory in it.
    pub links: u32,
    /// Number of a device file.
    pub rdev: u32,
    /// Bytes; what no extent holds reads as zeroes.
    pub size: u64,
    /// Last read.
    pub atime: u64,
    /// Last change of its data.
    pub mtime: u64,
    /// Last change of these attributes.
    pub ctime: u64,
    /// The directory that has its first name.
    pub parent: u64,
    /// That name.
    pub name: Vec<u8>,
}

impl Attributes {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![self.kind as u8, self.lifetime];
        row.extend_from_slice(&self.mode.to_le_bytes());
        row.extend_from_slice(&self.born.to_le_bytes());
        for n in [self.uid, self.gid, self.links, self.rdev] {
            row.extend_from_slice(&n.to_le_bytes());
        }
        for n in [self.size, self.atime, self.mtime, self.ctime, self.parent] {
            row.extend_from_slice(&n.to_le_bytes());
        }
        row.extend_from_slice(&self.name);
        row
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Attributes, RowError> {
        read(key, value, |r| {
            let attributes = Attributes {
                kind: Kind::of(r.take_u8()?)?,
                lifetime: r.take_u8()?,
                mode: r.take_u16()?,
                born: r.take_u16()?,
                uid: r.take_u32()?,
                gid: r.take_u32()?,
                links: r.take_u32()?,
                rdev: r.take_u32()?,
                size: r.take_u64()?,
                atime: r.take_u64()?,
                mtime: r.take_u64()?,
                ctime: r.take_u64()?,
                parent: r.take_u64()?,
                name: r.0.to_vec(),
            };
            (attributes.size <= SIZE_MAX && key::parts(key).0 < FILES_END).then_some(attributes)
        })
    }
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file.
    pub ino: u64,
    /// What it is.
    pub kind: Kind,
}

impl Entry {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = self.ino.to_le_bytes().to_vec();
        row.push(self.kind as u8);
        row
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Entry, RowError> {
        read(key, value, |r| {
            let entry = Entry { ino: r.take_u64()?, kind: Kind::of(r.take_u8()?)? };
            (entry.ino < FILES_END).then_some(entry)
        })
    }
}

/// A block on the drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The zone.
    pub zone: u32,
    /// First block of the unit, its header.
    pub unit: u32,
    /// Which data block of the unit, from 0.
    pub index: u32,
}

impl Place {
    /// The block of the zone that it is.
    pub fn block(&self) -> u32 {
        self.unit + 1 + self.index
    }
}

/// Blocks of a file that lie in units one behind the other, all but the last of them full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The zone.
    pub zone: u32,
    /// First block of the first unit, its header.
    pub unit: u32,
    /// Data blocks of each unit but the last.
    pub unit_blocks: u16,
    /// Data blocks of the first unit that come before.
    pub skip: u16,
    /// How many.
    pub blocks: u32,
}

impl Extent {
    /// Bytes of a row.
    pub const BYTES: usize = 16;

    /// The zone of blocks that are lost: their file had something there, and nobody knows what. Who reads them is told so.
    pub const LOST: u32 = u32::MAX;

    /// So many blocks that are lost.
    pub fn lost(blocks: u32) -> Extent {
        Extent { zone: Extent::LOST, unit: 0, unit_blocks: u16::MAX, skip: 0, blocks }
    }

    /// Whether its blocks are lost, and lie nowhere.
    pub fn is_lost(&self) -> bool {
        self.zone == Extent::LOST
    }

    /// Where its block number `i` lies.
    pub fn place(&self, i: u32) -> Place {
        let (per, at) = (u32::from(self.unit_blocks), u32::from(self.skip) + i);
        Place { zone: self.zone, unit: self.unit + at / per * (per + 1), index: at % per }
    }

    /// Its blocks `range`.
    pub fn part(&self, range: Range<u32>) -> Extent {
        let Place { unit, index, .. } = self.place(range.start);
        Extent { unit, skip: index as u16, blocks: range.end - range.start, ..*self }
    }

    /// Whether `next` goes on where it ends, so that both are one.
    pub fn goes_on_with(&self, next: &Extent) -> bool {
        let end = u32::from(self.skip) + self.blocks;
        let per = u32::from(self.unit_blocks);
        let follows = match end % per {
            0 => next.skip == 0 && next.unit == self.unit + end / per * (per + 1) && next.fits(per),
            index => {
                // What follows in the last unit of this one may not go beyond it unless that is full.
                u32::from(next.skip) == index
                    && next.unit == self.unit + end / per * (per + 1)
                    && next.unit_blocks == self.unit_blocks
            }
        };
        self.zone == next.zone && follows
    }

    /// Its last block has a place; for fuzzers.
    fn check(&self) {
        let last = self.blocks - 1;
        assert!(self.place(last).block() > self.unit, "blocks lie behind the header of the first unit");
        assert_eq!(self.part(last..self.blocks).place(0), self.place(last), "a part has the same places");
    }

    /// Whether it can be counted in units of `per` data blocks.
    fn fits(&self, per: u32) -> bool {
        u32::from(self.unit_blocks) == per || self.blocks <= u32::from(self.unit_blocks) && self.blocks <= per
    }

    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(Extent::BYTES);
        row.extend_from_slice(&self.zone.to_le_bytes());
        row.extend_from_slice(&self.unit.to_le_bytes());
        row.extend_from_slice(&self.unit_blocks.to_le_bytes());
        row.extend_from_slice(&self.skip.to_le_bytes());
        row.extend_from_slice(&self.blocks.to_le_bytes());
        row
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Extent, RowError> {
        read(key, value, |r| {
            let extent = Extent {
                zone: r.take_u32()?,
                unit: r.take_u32()?,
                unit_blocks: r.take_u16()?,
                skip: r.take_u16()?,
                blocks: r.take_u32()?,
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
    /// How often it was reset since the file system was made.
    pub resets: u32,
}

impl Account {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        [self.used.to_le_bytes(), self.resets.to_le_bytes()].concat()
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Account, RowError> {
        read(key, value, |r| Some(Account { used: r.take_u32()?, resets: r.take_u32()? }))
    }
}

/// A piece of a file, as the zone that has it knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The file.
    pub ino: u64,
    /// First of its blocks.
    pub block: u64,
    /// How many.
    pub blocks: u32,
}

/// Units of a zone that lie one behind the other: one unit with any pieces, or several with one piece, all but the last
/// full. It says what was written there; whether a file still has it there, the file's extents say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Data blocks of each unit but the last.
    pub unit_blocks: u16,
    /// What lies in them, one behind the other.
    pub pieces: Vec<Piece>,
}

impl Run {
    /// Data blocks.
    pub fn blocks(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.blocks).sum()
    }

    /// Whether another unit behind it, with this one piece, belongs to it; `unit` and `start` are where both begin.
    pub fn goes_on_with(&self, start: u32, unit: u32, piece: &Piece) -> bool {
        let [own] = &self.pieces[..] else { return false };
        let per = u32::from(self.unit_blocks);
        own.blocks.is_multiple_of(per)
            && unit == start + own.blocks / per * (per + 1)
            && own.ino == piece.ino
            && own.block + u64::from(own.blocks) == piece.block
            && piece.blocks <= per
    }

    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = self.unit_blocks.to_le_bytes().to_vec();
        for piece in &self.pieces {
            row.extend_from_slice(&piece.ino.to_le_bytes());
            row.extend_from_slice(&piece.block.to_le_bytes());
            row.extend_from_slice(&piece.blocks.to_le_bytes());
        }
        row
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Run, RowError> {
        read(key, value, |r| {
            let unit_blocks = r.take_u16()?;
            let mut pieces = Vec::with_capacity(r.0.len() / 20);
            let mut blocks = 0u32;
            while !r.0.is_empty() {
                let piece = Piece { ino: r.take_u64()?, block: r.take_u64()?, blocks: r.take_u32()? };
                blocks = blocks.checked_add(piece.blocks).filter(|blocks| *blocks < BLOCKS_END)?;
                pieces.push(piece);
            }
            let is_sound = unit_blocks > 0
                && key::run_parts(key).1 < UNIT_END
                && pieces.iter().all(|piece| piece.block < FILE_END);
            is_sound.then_some(Run { unit_blocks, pieces })
        })
    }
}

/// Reads any bytes as a row, its key and its value; for fuzzers. What is one survives another round.
///
/// # Errors
/// As the rows' own.
///
/// # Panics
/// If a row does not survive: a bug.
pub fn fuzz_row(bytes: &[u8]) -> Result<(), RowError> {
    let (key, value) = bytes.split_at(bytes.len().min(KEY_BYTES));
    match key.first() {
        Some(b'I') => survives(key, value, Attributes::decode, Attributes::encode),
        Some(b'D') => survives(key, value, Entry::decode, Entry::encode),
        Some(b'E') => {
            let extent = survives(key, value, Extent::decode, Extent::encode);
            extent.and_then(|()| Extent::decode(key, value)).map(|extent| extent.check())
        }
        Some(b'R') => survives(key, value, Run::decode, Run::encode),
        Some(b'Z') => survives(key, value, Account::decode, Account::encode),
        _ => Err(RowError { key: key.to_vec(), what: "there is no such row" }),
    }
}

/// Bytes that [`fuzz_row`] takes for a key.
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

    /// Changed rows of all kinds: the same as the fuzz target `row` does at length.
    #[test]
    fn any_bytes_are_a_row_that_comes_back_or_none() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let run = Run { unit_blocks: 9, pieces: vec![Piece { ino: 1, block: 2, blocks: 3 }; 3] };
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..4000 {
            let (kind, value) = match random.random_range(0..5) {
                0 => (b'E', EXTENT.encode()),
                1 => (b'R', run.encode()),
                2 => (b'Z', Account { used: 4, resets: 5 }.encode()),
                3 => (b'D', Entry { ino: 7, kind: Kind::File }.encode()),
                _ => (b'I', (0..80).map(|_| random.random_range(0..8)).collect()),
            };
            let mut bytes = vec![0; KEY_BYTES];
            bytes[0] = kind;
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

    const EXTENT: Extent = Extent { zone: 4, unit: 10, unit_blocks: 7, skip: 2, blocks: 20 };

    #[test]
    fn extents_blocks_lie_behind_the_headers_of_their_units() {
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
    fn extent_goes_on_exactly_with_what_lies_behind_it() {
        for cut in 1..20 {
            let (head, tail) = (EXTENT.part(0..cut), EXTENT.part(cut..20));
            assert!(head.goes_on_with(&tail), "{cut}");
            assert!(!tail.goes_on_with(&head), "{cut}");
            let elsewhere = Extent { zone: 5, ..tail };
            assert!(!head.goes_on_with(&elsewhere));
        }
        let full = Extent { skip: 0, blocks: 7, ..EXTENT };
        let short = Extent { zone: 4, unit: 18, unit_blocks: 3, skip: 0, blocks: 3 };
        assert!(full.goes_on_with(&short), "the last unit may be short");
        let joined = Extent { blocks: 10, ..full };
        assert_eq!(
            (0..3).map(|i| joined.place(7 + i)).collect::<Vec<_>>(),
            (0..3).map(|i| short.place(i)).collect::<Vec<_>>()
        );
        let behind_short = Extent { zone: 4, unit: 22, unit_blocks: 7, skip: 0, blocks: 7 };
        assert!(!joined.goes_on_with(&behind_short), "the one behind a short unit does not fit the count");
    }

    #[test]
    fn rows_come_back_as_they_went() {
        assert_eq!(Extent::decode(&[], &EXTENT.encode()), Ok(EXTENT));
        let run = Run {
            unit_blocks: 9,
            pieces: vec![Piece { ino: 1, block: 2, blocks: 3 }, Piece { ino: 4, block: 5, blocks: 6 }],
        };
        assert_eq!(Run::decode(&[], &run.encode()), Ok(run));
        let attributes = Attributes {
            kind: Kind::Symlink,
            lifetime: 3,
            mode: 0o644,
            born: 12,
            uid: 1,
            gid: 2,
            links: 3,
            rdev: 4,
            size: 5,
            atime: 6,
            mtime: 7,
            ctime: 8,
            parent: 9,
            name: b"name".to_vec(),
        };
        assert_eq!(Attributes::decode(&[], &attributes.encode()), Ok(attributes.clone()));
        let cut = &attributes.encode()[..30];
        assert!(Attributes::decode(b"k", cut).unwrap_err().to_string().contains("[6b]"));
        let entry = Entry { ino: 3, kind: Kind::Directory };
        assert_eq!(Entry::decode(&[], &entry.encode()), Ok(entry));
    }

    #[test]
    fn keys_sort_as_their_numbers_do() {
        assert!(key::extent(1, 255) < key::extent(1, 256));
        assert!(key::extent(1, u64::MAX) < key::extent(2, 0));
        let (from, end) = key::runs(7);
        assert!(from <= key::run(7, 0) && key::run(7, u32::MAX) < end && end <= key::run(8, 0));
        assert_eq!(key::extent_parts(&key::extent(3, 4)), (3, 4));
        assert_eq!(key::run_parts(&key::run(3, 4)), (3, 4));
        assert_eq!(key::parts(&key::entry(3, b"x")), (3, &b"x"[..]));
    }
}
