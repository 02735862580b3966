//! Checks a file system that is not mounted, and makes the repairs that need no guessing.
//!
//! A check compares the rows with each other and with the drive's zone report. With `data` it also
//! reads and verifies every live block. Each finding has a subject and a severity. A repair changes
//! rows only, never data, and all its changes become durable together. It corrects accounts and
//! names to match the rest of the metadata, and removes dangling references.

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

/// Path of a file from the root; `None` if it has no name or the path cannot be read.
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
/// As for [`superblocks::find`].
pub fn damaged_copies(drive: &Drive, waiter: &dyn Wait) -> Result<Vec<Finding>, MakeError> {
    let copies = superblocks::damaged(drive, waiter)?.into_iter();
    let finding = |copy: superblocks::Candidate| {
        let what = match copy.found.err()? {
            MakeError::Superblock(SuperblockError::Magic) => "no magic number".to_owned(),
            error => error.to_string(),
        };
        Some(Finding::Superblock { zone: copy.zone.0, block: copy.block, what })
    };
    Ok(copies.filter_map(finding).collect())
}

/// Rewrites the superblock over damaged copies.
///
/// # Errors
/// [`MakeError`] if the metadata cannot be opened or the drive fails. The previous copies are then
/// still valid.
pub fn renew_copies(drive: &Arc<Drive>, waiters: &Waiters, beside: Option<Beside>) -> Result<(), MakeError> {
    let found = superblocks::find(drive, &*waiters())?;
    Ok(make::open_store(drive, waiters, beside, &found)?.make()?)
}

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Nothing is lost: an account or a name is wrong.
    Minor,
    /// Data or a name is lost, or files share data.
    Lost,
}

/// A problem found by a check.
#[derive(thiserror::Error, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// A row cannot be decoded.
    #[error("damaged row: key {key:02x?}")]
    DamagedRow {
        /// Key of the row.
        key: Vec<u8>,
    },
    /// A position of a directory refers to a name that does not have it.
    #[error("directory {parent}: position {position} refers to {name:?}, which does not have it")]
    PositionOfNothing {
        /// The directory.
        parent: u64,
        /// The position.
        position: u64,
        /// The name in the row of the position.
        name: Vec<u8>,
    },
    /// The account of a zone differs from the sum of the files' blocks in it.
    #[error("zone {zone}: {account} live blocks in its account, but files have {files}")]
    Account {
        /// The zone.
        zone: u32,
        /// Live blocks according to the account.
        account: u32,
        /// Blocks that files have in the zone.
        files: u32,
    },
    /// The account of a zone has another first sequence than the zone's units, which match their
    /// checksums in the runs.
    #[error("zone {zone}: beginning {account} in its account, but its units have {units}")]
    Beginning {
        /// The zone.
        zone: u32,
        /// First sequence in the account.
        account: u64,
        /// First sequence in the headers of the units.
        units: u64,
    },
    /// A file has blocks at a place that cannot hold data.
    #[error("file {ino}, block {block}: {blocks} blocks are mapped to zone {zone}, which {why}")]
    Nowhere {
        /// The file.
        ino: u64,
        /// First block of the extent in the file.
        block: u64,
        /// Length in blocks.
        blocks: u32,
        /// The zone.
        zone: u32,
        /// Reason why the data cannot be there.
        why: Absent,
    },
    /// Two pieces of files occupy the same block.
    #[error("file {ino}, block {block}: zone {zone}, block {at} also belongs to file {other}")]
    Shared {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone.
        at: u32,
        /// The other file, or the same one.
        other: u64,
    },
    /// Two extents of a file overlap.
    #[error("file {ino}: extents at blocks {block} and {next} overlap")]
    Overlap {
        /// The file.
        ino: u64,
        /// First block of the first extent.
        block: u64,
        /// First block of the second extent.
        next: u64,
    },
    /// The runs of a zone do not list data in it, so garbage collection would lose it.
    #[error("file {ino}, block {block}: {blocks} blocks are missing from the runs of zone {zone}")]
    Unknown {
        /// The file.
        ino: u64,
        /// First block of the data in the file.
        block: u64,
        /// Length in blocks.
        blocks: u32,
        /// The zone.
        zone: u32,
    },
    /// A file has data but no attributes.
    #[error("file {ino}: attributes lost, but data found")]
    NoAttributes {
        /// The file.
        ino: u64,
    },
    /// Extended attributes or a link target without a file, or data of a file that is not regular.
    #[error("file {ino}: data or attributes without a file")]
    NoFile {
        /// The file.
        ino: u64,
    },
    /// A name refers to a file that does not exist.
    #[error("directory {parent}: {name:?} refers to file {ino}, which does not exist")]
    NoSuchFile {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// The file.
        ino: u64,
    },
    /// A name is in a file that is not a directory.
    #[error("file {parent} is not a directory, but contains the name {name:?}")]
    NoDirectory {
        /// The file.
        parent: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// A file has no name and is not recorded as an orphan.
    #[error("file {ino} has no name")]
    NoName {
        /// The file.
        ino: u64,
    },
    /// The block count of a file differs from that of its extents.
    #[error("file {ino}: block count {blocks}, but its extents have {found}")]
    Blocks {
        /// The file.
        ino: u64,
        /// Count in the attributes.
        blocks: u64,
        /// Blocks in its extents, lost ones included.
        found: u64,
    },
    /// The position of a name has no row, or belongs to another name. A listing of the directory
    /// omits the name.
    #[error(
        "directory {parent}: {name:?} has position {position}, which is missing or belongs to another name"
    )]
    NoPosition {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// Position in the entry.
        position: u64,
    },
    /// The next position of a directory is already in use.
    #[error("directory {parent}: next position {next}, but {largest} is in use")]
    NextPosition {
        /// The directory.
        parent: u64,
        /// Next position in the attributes.
        next: u64,
        /// Largest position in use.
        largest: u64,
    },
    /// The next opening would reuse the generation of an existing file.
    #[error("last opening {last}, but a file has generation {largest}")]
    Opening {
        /// Number of the last opening.
        last: u32,
        /// Largest generation of a file.
        largest: u32,
    },
    /// The link count of a file is wrong.
    #[error("file {ino}: link count {links}, should be {found}")]
    Links {
        /// The file.
        ino: u64,
        /// Count in the attributes.
        links: u32,
        /// Number of names found.
        found: u32,
    },
    /// The type in a name differs from that of its file.
    #[error("directory {parent}: {name:?} is entered as {said:?}, but is a {kind:?}")]
    WrongKind {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// Type in the entry.
        said: FileKind,
        /// Type in the attributes.
        kind: FileKind,
    },
    /// The next file number is already in use.
    #[error("next file number {next}, but file {largest} exists")]
    NextFile {
        /// Next number in the counter.
        next: u64,
        /// Largest number in use.
        largest: u64,
    },
    /// The count of files is wrong. It is compared only if there are no other findings.
    #[error("file count {files}, but {found} files found")]
    Files {
        /// Count in the counter.
        files: u64,
        /// Number of files found.
        found: u64,
    },
    /// A read-only zone has live data, which has to be moved before the zone is lost.
    #[error("zone {zone} is read-only and has {blocks} live blocks")]
    ReadOnlyZone {
        /// The zone.
        zone: u32,
        /// Live blocks.
        blocks: u32,
    },
    /// The target of a symbolic link is lost.
    #[error("file {ino}: target of the symbolic link lost")]
    NoTarget {
        /// The file.
        ino: u64,
    },
    /// A copy of the superblock is damaged, but others are intact.
    #[error("zone {zone}, block {block}: a copy of the superblock is damaged: {what}")]
    Superblock {
        /// The zone.
        zone: u32,
        /// The block in it.
        block: u32,
        /// The problem.
        what: String,
    },
    /// The file system can be read completely, but no longer changed.
    #[error("all files can be read, but nothing changed: {why}; copy them to another drive")]
    NoChanges {
        /// The reason.
        why: Stop,
    },
    /// Data that an earlier repair marked as lost.
    #[error("file {ino}, block {block}: {blocks} blocks are lost")]
    Gone {
        /// The file.
        ino: u64,
        /// First lost block of the file.
        block: u64,
        /// Length in blocks.
        blocks: u32,
    },
    /// Data that is unreadable or wrong.
    #[error("{what}")]
    Data {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
        /// The problem.
        what: String,
    },
}

/// Reason why data cannot be at the place in its row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Absent {
    /// The zone does not exist.
    NoZone,
    /// The zone is not for data.
    Reserved,
    /// The data lies beyond the write pointer.
    BeyondPointer,
    /// The zone is offline.
    Offline,
}

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Absent::NoZone => "does not exist",
            Absent::Reserved => "is not for data",
            Absent::BeyondPointer => "is not written that far",
            Absent::Offline => "is offline",
        })
    }
}

impl Finding {
    /// True if a repair fixes the finding. A repair cannot recover lost data. Data in read-only
    /// zones is moved by garbage collection once the file system is mounted.
    pub fn is_repairable(&self) -> bool {
        !matches!(
            self,
            Finding::Data { .. }
                | Finding::Gone { .. }
                | Finding::NoTarget { .. }
                | Finding::NoChanges { .. }
                | Finding::ReadOnlyZone { .. }
        )
    }

    /// The file concerned, if the finding is about the data or attributes of one.
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

    /// Severity of the finding.
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
