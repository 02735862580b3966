//! Inspection of the contents of a drive, sound or not. Nothing is written.

use crate::drive::Drive;
use crate::format::{
    Account, Attributes, Entry, Extent, Header, Metadata, Position, Run, Superblock, SuperblockCopy, key,
    positioned,
};
use crate::fs::FsError;
use crate::fs::map::{self, Mapped};
use crate::make::MakeError;
use crate::store::Rows;
use crate::store::backend::log::{Begun, begun};
use crate::store::backend::{Damage, SegmentId};
use crate::superblocks::{self, COPY_BLOCKS};
use crate::waiter::Wait;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::ops::ControlFlow;
use zonal_core::{RequestError, Sector, ZoneIndex};

/// State of something that the metadata are expected to hold at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inspected<T> {
    /// Valid.
    Sound(T),
    /// Present but invalid.
    Damaged(Damage),
    /// Cannot be read.
    Unreadable(RequestError),
}

/// Location of the metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetadataLocation {
    /// On the drive: the segments of the store, and the first block of each segment in use.
    OnDrive(Vec<(SegmentId, Option<Inspected<Begun>>)>),
    /// A file beside the drive.
    Beside,
}

/// Locates the metadata.
///
/// # Errors
/// If there is no superblock, or the drive cannot report its zones.
pub fn metadata_location(drive: &Drive, waiter: &dyn Wait) -> Result<MetadataLocation, MakeError> {
    let SuperblockCopy { superblock, anchor } = superblocks::find(drive, waiter)?.copy;
    if superblock.metadata == Metadata::Beside {
        return Ok(MetadataLocation::Beside);
    }
    let report = drive.report(waiter)?;
    // A piece that was never used starts with zeroes, the initial contents of conventional zones on
    // most drives.
    let first = |segment, at| match drive.read(waiter, at, BLOCK_SECTORS) {
        Ok(block) if block.iter().all(|byte| *byte == 0) => None,
        Ok(block) => Some(Inspected::of(begun(&block, &superblock.uuid, segment))),
        Err(error) => Some(Inspected::Unreadable(error)),
    };
    let piece = |n: u32| {
        let block = u64::from(COPY_BLOCKS) + u64::from(n) * u64::from(anchor.piece_blocks);
        let segment = SegmentId::conventional(n);
        (segment, first(segment, Sector(block * u64::from(BLOCK_SECTORS))))
    };
    let zone = |zone: &ZoneIndex| {
        let segment = SegmentId::zone(*zone);
        let described = report.get(zone.0 as usize).filter(|described| crate::scan::written(described) > 0);
        (segment, described.and_then(|described| first(segment, described.start)))
    };
    Ok(MetadataLocation::OnDrive(
        (0..anchor.pieces).map(piece).chain(anchor.zones.iter().map(zone)).collect(),
    ))
}

impl<T> Inspected<T> {
    fn of(found: Result<T, Damage>) -> Inspected<T> {
        found.map_or_else(Inspected::Damaged, Inspected::Sound)
    }
}

/// A decoded row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Row {
    /// A file's attributes.
    File(u64, Attributes),
    /// A name in a directory.
    Name(u64, Vec<u8>, Entry),
    /// A position of a directory, and its name.
    Position(u64, Position, Vec<u8>),
    /// An extent of a file, with the first block.
    Extent(u64, u64, Extent),
    /// A run at a block of a zone.
    Run(u32, u32, Run),
    /// A zone's account.
    Zone(u32, Account),
    /// An extended attribute of a file.
    Attribute(u64, Vec<u8>, Vec<u8>),
    /// The target of a symbolic link.
    Target(u64, Vec<u8>),
    /// A file without a name.
    Orphan(u64),
    /// A block of a file whose data is in the row.
    Tail(u64, u64, Vec<u8>),
    /// A counter of the file system.
    Counter(String, u64),
    /// The copy of the superblock.
    Superblock(Superblock),
    /// A row that cannot be decoded, with its key and value.
    Damaged(Vec<u8>, Vec<u8>),
}

/// Kinds of rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RowKind {
    /// Attributes of files.
    File,
    /// Names.
    Name,
    /// Positions of names.
    Position,
    /// Extents of files.
    Extent,
    /// Runs of zones.
    Run,
    /// Accounts of zones.
    Zone,
    /// Extended attributes.
    Attribute,
    /// Targets of symbolic links.
    Target,
    /// Files without names.
    Orphan,
    /// Blocks of files whose data is in the row.
    Tail,
    /// Counters of the file system, and the copy of the superblock.
    Counter,
    /// Rows that cannot be decoded.
    Damaged,
}

impl RowKind {
    /// All kinds.
    pub const ALL: [RowKind; 12] = {
        use RowKind::*;
        [File, Name, Position, Extent, Run, Zone, Attribute, Target, Orphan, Tail, Counter, Damaged]
    };

    /// Name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            RowKind::File => "file",
            RowKind::Name => "name",
            RowKind::Position => "position",
            RowKind::Extent => "extent",
            RowKind::Run => "run",
            RowKind::Zone => "zone",
            RowKind::Attribute => "attribute",
            RowKind::Target => "target",
            RowKind::Orphan => "orphan",
            RowKind::Tail => "tail",
            RowKind::Counter => "counter",
            RowKind::Damaged => "damaged",
        }
    }
}

impl Row {
    /// Decodes a row.
    pub fn of(key: &[u8], value: &[u8]) -> Row {
        Row::sound(key, value).unwrap_or_else(|| Row::Damaged(key.to_vec(), value.to_vec()))
    }

    fn sound(key: &[u8], value: &[u8]) -> Option<Row> {
        let (kind, (number, rest)) = (*key.first()?, key::parts(key));
        let is_whole = |length: usize| (key.len() == length).then_some(());
        key.get(8)?;
        Some(match kind {
            b'I' => Row::File(number, is_whole(9).and(Attributes::decode(key, value).ok())?),
            b'D' => Row::Name(number, rest.to_vec(), Entry::decode(key, value).ok()?),
            b'P' => {
                let name = is_whole(17).and(positioned(key, value).ok())?.to_vec();
                Row::Position(number, key::position_parts(key).1, name)
            }
            b'E' => {
                let extent = is_whole(17).and(Extent::decode(key, value).ok())?;
                Row::Extent(number, key::extent_parts(key).1, extent)
            }
            b'R' => {
                let (zone, block) = key::run_parts(key);
                Row::Run(zone, block, is_whole(9).and(Run::decode(key, value).ok())?)
            }
            b'Z' => Row::Zone(number.try_into().ok()?, is_whole(9).and(Account::decode(key, value).ok())?),
            b'X' => Row::Attribute(number, rest.to_vec(), value.to_vec()),
            b'L' => Row::Target(number, value.to_vec()),
            b'O' => Row::Orphan(is_whole(9).map(|()| number)?),
            b'T' => {
                let bytes =
                    is_whole(17).and((value.len() <= BLOCK_BYTES as usize).then(|| value.to_vec()))?;
                Row::Tail(number, key::extent_parts(key).1, bytes)
            }
            b'S' if rest == b"superblock" => Row::Superblock(Superblock::decode(value).ok()?),
            b'S' => Row::Counter(
                String::from_utf8(rest.to_vec()).ok()?,
                u64::from_le_bytes(value.try_into().ok()?),
            ),
            _ => return None,
        })
    }

    /// Kind of the row.
    pub fn kind(&self) -> RowKind {
        match self {
            Row::File(..) => RowKind::File,
            Row::Name(..) => RowKind::Name,
            Row::Position(..) => RowKind::Position,
            Row::Extent(..) => RowKind::Extent,
            Row::Run(..) => RowKind::Run,
            Row::Zone(..) => RowKind::Zone,
            Row::Attribute(..) => RowKind::Attribute,
            Row::Target(..) => RowKind::Target,
            Row::Orphan(_) => RowKind::Orphan,
            Row::Tail(..) => RowKind::Tail,
            Row::Counter(..) | Row::Superblock(_) => RowKind::Counter,
            Row::Damaged(..) => RowKind::Damaged,
        }
    }

    /// True if the row concerns this file.
    pub fn is_of(&self, ino: u64) -> bool {
        match self {
            Row::File(of, _)
            | Row::Extent(of, ..)
            | Row::Attribute(of, ..)
            | Row::Target(of, _)
            | Row::Tail(of, ..)
            | Row::Orphan(of) => *of == ino,
            Row::Name(parent, _, entry) => *parent == ino || entry.ino == ino,
            Row::Position(directory, ..) => *directory == ino,
            Row::Run(_, _, run) => run.pieces.iter().any(|piece| piece.ino == ino),
            Row::Damaged(key, _) => key::parts(key).0 == ino,
            Row::Zone(..) | Row::Counter(..) | Row::Superblock(_) => false,
        }
    }
}

/// Passes all rows to `show` in order of their keys.
///
/// # Errors
/// Those of the rows.
pub fn rows(rows: &Rows, mut show: impl FnMut(Row)) -> Result<(), FsError> {
    Ok(rows.scan(&[0], &[u8::MAX], |key, value| {
        show(Row::of(key, value));
        ControlFlow::Continue(())
    })?)
}

/// Number of blocks of each record in a unit that are still live.
///
/// # Errors
/// Those of the rows; a damaged row.
pub fn live(rows: &Rows, zone: u32, unit: u32, header: &Header) -> Result<Vec<u32>, FsError> {
    let mut live = Vec::with_capacity(header.records.len());
    let mut skip = 0;
    for record in &header.records {
        let end = skip + record.blocks;
        let unit_blocks = header.blocks() as u16;
        let whole = Extent { zone, unit, unit_blocks, skip: 0, blocks: end };
        let there = Mapped { block: record.block, extent: whole.part(skip..end) };
        live.push(map::held(rows, record.ino, &there)?.iter().map(|held| held.extent.blocks).sum());
        skip = end;
    }
    Ok(live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_a_key_that_is_cut_or_of_no_kind_is_damaged() {
        let account = Account { used: 3, resets: 4, begun: 5 };
        assert_eq!(Row::of(&key::zone(7), &account.encode()), Row::Zone(7, account));
        assert_eq!(Row::of(&key::zone(7)[..8], &account.encode()).kind(), RowKind::Damaged);
        assert_eq!(Row::of(&key::zone(7), &[1]).kind(), RowKind::Damaged);
        assert_eq!(Row::of(b"?12345678", &[]).kind(), RowKind::Damaged);
        assert_eq!(Row::of(&[], &[]).kind(), RowKind::Damaged);
        assert_eq!(Row::of(&key::counter("ino"), &[5, 0, 0, 0, 0, 0, 0, 0]), Row::Counter("ino".into(), 5));
        assert_eq!(Row::of(&key::counter("superblock"), &[5; 80]).kind(), RowKind::Damaged);
    }
}
