//! Checks of a file system that is not mounted, and repairs that need no guess.
//!
//! A check compares the rows with each other and with the drive's report of its zones. With `data` it also reads and
//! verifies every live block. Each finding says what it is about and how bad that is. A repair changes rows only, never
//! data, and all its changes become durable together. It corrects accounts and names from what they describe, and removes
//! what points nowhere.

mod check;
pub(crate) mod repair;
mod salvage;

pub use check::{Options, check};
pub use repair::repair;
pub use salvage::{Loss, Salvaged, salvage};

use crate::drive::Drive;
use crate::format::{FileKind, SuperblockError, key};
use crate::fs::{attributes, names};
use crate::make::{self, Beside, MakeError};
use crate::store::Rows;
use crate::store::backend::Stop;
use crate::superblocks;
use crate::waiter::{Wait, Waiters};
use std::sync::Arc;

/// Where a file is in the tree, from the root; `None` if that cannot be told, or it has no name.
pub fn path(rows: &Rows, ino: u64) -> Option<Vec<u8>> {
    names::path(ino, |at| {
        let file = attributes(rows, at).ok().filter(|file| file.links > 0)?;
        let name = names::name_at(rows, file.parent, file.position)?;
        rows.get(&key::entry(file.parent, &name)).ok()??;
        Some((file.parent, name))
    })
}

/// Damaged copies of the superblock that an opening may need. The metadata may still be sound.
///
/// # Errors
/// As [`superblocks::find`].
pub fn damaged_copies(drive: &Drive, waiter: &dyn Wait) -> Result<Vec<Finding>, MakeError> {
    let copies = superblocks::damaged(drive, waiter)?.into_iter();
    let finding = |copy: superblocks::Candidate| {
        let what = match copy.found.err()? {
            MakeError::Superblock(SuperblockError::Magic) => "the magic number is not there".to_owned(),
            error => error.to_string(),
        };
        Some(Finding::Superblock { zone: copy.zone.0, block: copy.block, what })
    };
    Ok(copies.filter_map(finding).collect())
}

/// Writes the superblock again, in place of damaged copies.
///
/// # Errors
/// [`MakeError`]: the metadata do not open, or the drive's; then the copies that were there still count.
pub fn renew_copies(drive: &Arc<Drive>, waiters: &Waiters, beside: Option<Beside>) -> Result<(), MakeError> {
    let found = superblocks::find(drive, &*waiters())?;
    Ok(make::open_store(drive, waiters, beside, &found)?.make()?)
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Nothing is lost: an account or a name is off.
    Minor,
    /// Data or a name is lost, or files have data in common.
    Lost,
}

/// Something that is wrong.
#[derive(thiserror::Error, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// A row cannot be read.
    #[error("a row cannot be read: key {key:02x?}")]
    DamagedRow {
        /// Its key.
        key: Vec<u8>,
    },
    /// A position of a directory whose name is not there.
    #[error("directory {parent}, position {position}: {name:?} does not have it")]
    PositionOfNothing {
        /// The directory.
        parent: u64,
        /// The position.
        position: u64,
        /// The name in its row.
        name: Vec<u8>,
    },
    /// A zone's account is not the sum of what files have there.
    #[error("zone {zone}: its account says {account} live blocks, files have {files}")]
    Account {
        /// The zone.
        zone: u32,
        /// What the account says.
        account: u32,
        /// What files have.
        files: u32,
    },
    /// The account of a zone has another beginning than its units, which match their checksums in the runs.
    #[error("zone {zone}: wrong beginning {account} in its account; its units have {units}")]
    Beginning {
        /// The zone.
        zone: u32,
        /// Beginning in the account.
        account: u64,
        /// Beginning in the headers of the units.
        units: u64,
    },
    /// A file has blocks where none can be.
    #[error("file {ino}, block {block}: {blocks} blocks are said to be in zone {zone}, which {why}")]
    Nowhere {
        /// The file.
        ino: u64,
        /// First of its blocks.
        block: u64,
        /// How many.
        blocks: u32,
        /// The zone.
        zone: u32,
        /// Why they are not there.
        why: Absent,
    },
    /// Two pieces of files are at the same place.
    #[error("file {ino}, block {block}: zone {zone}, block {at} is file {other}'s, too")]
    Shared {
        /// The file.
        ino: u64,
        /// Its block.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone.
        at: u32,
        /// The other file, or the same.
        other: u64,
    },
    /// Two extents of a file overlap.
    #[error("file {ino}: its extents at blocks {block} and {next} overlap")]
    Overlap {
        /// The file.
        ino: u64,
        /// The first one's block.
        block: u64,
        /// The second one's block.
        next: u64,
    },
    /// A zone does not know of data in it, so that collecting would lose it.
    #[error("file {ino}, block {block}: zone {zone} does not know of {blocks} blocks in it")]
    Unknown {
        /// The file.
        ino: u64,
        /// First of its blocks.
        block: u64,
        /// How many.
        blocks: u32,
        /// The zone.
        zone: u32,
    },
    /// A file of which only the data is left.
    #[error("file {ino}: its attributes are lost, and data of it is there")]
    NoAttributes {
        /// The file.
        ino: u64,
    },
    /// Extended attributes or a link target without a file, or data of a file that is not regular.
    #[error("file {ino} has data or attributes, and does not exist")]
    NoFile {
        /// The file.
        ino: u64,
    },
    /// A name of a file that does not exist.
    #[error("directory {parent}: {name:?} is file {ino}, which does not exist")]
    NoSuchFile {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// The file.
        ino: u64,
    },
    /// A name in a file that is no directory.
    #[error("file {parent} is no directory, and has the name {name:?} in it")]
    NoDirectory {
        /// The file.
        parent: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// A file that has no name and is not known to have lost it.
    #[error("file {ino} has no name")]
    NoName {
        /// The file.
        ino: u64,
    },
    /// A file's count of blocks is not that of its extents.
    #[error("file {ino} says that it has {blocks} blocks, its extents have {found}")]
    Blocks {
        /// The file.
        ino: u64,
        /// What it says.
        blocks: u64,
        /// What its extents have, those included that are lost.
        found: u64,
    },
    /// A name whose position has no row, or belongs to another name: a listing of the directory leaves it out.
    #[error("directory {parent}: {name:?} says that it has position {position}, and does not")]
    NoPosition {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// What it says.
        position: u64,
    },
    /// New names of a directory would get positions that are taken.
    #[error("directory {parent}: the next position would be {next}, but a name has {largest}")]
    NextPosition {
        /// The directory.
        parent: u64,
        /// What is next.
        next: u64,
        /// Largest position in use.
        largest: u64,
    },
    /// New files would get generations that were given.
    #[error("the opening counted last is {last}, but a file was made in {largest}")]
    Opening {
        /// The opening counted last.
        last: u32,
        /// Largest generation of a file.
        largest: u32,
    },
    /// A file's count of names is wrong.
    #[error("file {ino} says that it has {links} names, there are {found}")]
    Links {
        /// The file.
        ino: u64,
        /// What it says.
        links: u32,
        /// How many there are.
        found: u32,
    },
    /// A name gives another kind than its file has.
    #[error("directory {parent}: {name:?} is said to be a {said:?} and is a {kind:?}")]
    WrongKind {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// What the name says.
        said: FileKind,
        /// What the file is.
        kind: FileKind,
    },
    /// New files would get numbers that are taken.
    #[error("the next file would be {next}, but there is file {largest}")]
    NextFile {
        /// What is next.
        next: u64,
        /// Largest number in use.
        largest: u64,
    },
    /// The count of files is wrong. It is compared if nothing else is wrong.
    #[error("the file system says that it has {files} files, there are {found}")]
    Files {
        /// What it says.
        files: u64,
        /// How many there are.
        found: u64,
    },
    /// A zone became read-only and has live data, which has to be moved before the zone is lost.
    #[error("zone {zone} is read-only and has {blocks} live blocks")]
    ReadOnlyZone {
        /// The zone.
        zone: u32,
        /// Live blocks.
        blocks: u32,
    },
    /// A symbolic link whose target is lost.
    #[error("file {ino} is a symbolic link, and where it leads is lost")]
    NoTarget {
        /// The file.
        ino: u64,
    },
    /// A copy of the superblock is damaged, and others are not.
    #[error("zone {zone}, block {block}: a copy of the superblock is damaged: {what}")]
    Superblock {
        /// The zone.
        zone: u32,
        /// The block in it.
        block: u32,
        /// What is wrong.
        what: String,
    },
    /// Nothing can be changed any more, and everything can be read.
    #[error("no change can be made, and all files can be read: {why}; copy them to another drive")]
    NoChanges {
        /// What is in the way.
        why: Stop,
    },
    /// Data that was lost: a repair found that it was nowhere.
    #[error("file {ino}, block {block}: {blocks} blocks are lost")]
    Gone {
        /// The file.
        ino: u64,
        /// First of its blocks.
        block: u64,
        /// How many.
        blocks: u32,
    },
    /// Data that cannot be read, or is not what was written.
    #[error("{what}")]
    Data {
        /// The file.
        ino: u64,
        /// Its block.
        block: u64,
        /// What is wrong.
        what: String,
    },
}

/// Why data is not at the place that its row names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Absent {
    /// There is no such zone.
    NoZone,
    /// It is not a zone for data.
    Reserved,
    /// Its written part ends before the data.
    BeyondPointer,
    /// It is offline.
    Offline,
}

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Absent::NoZone => "does not exist",
            Absent::Reserved => "is not for data",
            Absent::BeyondPointer => "is written only up to before them",
            Absent::Offline => "is offline",
        })
    }
}

impl Finding {
    /// Whether a repair changes anything about it. A repair does not bring back what is lost. The collector moves data out
    /// of read-only zones once the file system is mounted.
    pub fn can_be_mended(&self) -> bool {
        !matches!(
            self,
            Finding::Data { .. }
                | Finding::Gone { .. }
                | Finding::NoTarget { .. }
                | Finding::NoChanges { .. }
                | Finding::ReadOnlyZone { .. }
        )
    }

    /// The file whose data or attributes it is about, if it is about one.
    pub fn file(&self) -> Option<u64> {
        match *self {
            Finding::Nowhere { ino, .. }
            | Finding::Shared { ino, .. }
            | Finding::Overlap { ino, .. }
            | Finding::Unknown { ino, .. }
            | Finding::Links { ino, .. }
            | Finding::Blocks { ino, .. }
            | Finding::Gone { ino, .. }
            | Finding::NoTarget { ino }
            | Finding::Data { ino, .. } => Some(ino),
            _ => None,
        }
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Finding::Account { .. }
            | Finding::Beginning { .. }
            | Finding::Links { .. }
            | Finding::Blocks { .. }
            | Finding::PositionOfNothing { .. }
            | Finding::NoPosition { .. }
            | Finding::NextPosition { .. }
            | Finding::Opening { .. }
            | Finding::NextFile { .. }
            | Finding::Files { .. }
            | Finding::NoFile { .. }
            | Finding::NoName { .. }
            | Finding::WrongKind { .. }
            | Finding::ReadOnlyZone { .. }
            | Finding::NoChanges { .. }
            | Finding::Superblock { .. }
            | Finding::Unknown { .. } => Severity::Minor,
            _ => Severity::Lost,
        }
    }
}
