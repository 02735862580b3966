//! Builds the metadata from the zones alone, for a drive that has lost them.
//!
//! A rebuild reads the zones for data from header to header, and never writes them. Of each block of a file the newest data
//! counts. The newest header that names a file gives its size and its path. The rebuild reads everything before it writes
//! anything. Then an empty database replaces what was there, and gets all rows. The rows that make it the file system's
//! come last, in one commit. So after a cut either the file system is complete, or its metadata do not open and the rebuild
//! can run again.
//!
//! # What cannot be known
//! Headers tell of data that was written, and of nothing else. A deleted file comes back while its units are there, and a
//! hole may show what was there before. A file has its name at the last write or copy; its other names are lost. Empty
//! files and directories, symbolic links, permissions, owners, times and extended attributes are lost, too.

mod overlay;
mod superblock;
mod tree;
mod units;
mod write;

use crate::drive::Drive;
use crate::format::Metadata;
use crate::fs::mount::check_drive;
use crate::fs::{FsError, OpenError};
use crate::fsck::{self, Severity};
use crate::make::{self, Access, Beside, MakeError, MakeOptions};
use crate::scan::Depth;
use crate::store::backend::log::Log;
use crate::store::backend::{BackendError, Damage};
use crate::superblocks::check_zones;
use crate::waiter::Waiters;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use superblock::Basis;
pub use superblock::Origin;

/// How to rebuild.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RebuildOptions {
    /// The file with the metadata, if they are beside the drive.
    pub beside: Option<PathBuf>,
    /// Rebuild although the metadata are sound.
    pub force: bool,
    /// How much data is read. A unit that lost its end is found in any case, damage inside a unit only with
    /// [`Depth::Data`].
    pub depth: Depth,
    /// What the file system was made with, as far as the units do not say it: of use only where the superblock is gone.
    pub made_with: MakeOptions,
}

zonal_core::setters! {
    RebuildOptions
    /// The file with the metadata, if they are beside the drive.
    with_beside beside: impl Into<Option<PathBuf>>;
    /// Whether to rebuild although the metadata are sound.
    with_force force: bool;
    /// How much data is read.
    with_depth depth: Depth;
    /// What the file system was made with, as far as the units do not say it.
    with_made_with made_with: MakeOptions;
}

/// The result of a rebuild.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// Where the superblock is from.
    pub superblock: Origin,
    /// Units that count.
    pub units: u64,
    /// Units that no commit knew when the file system was opened again after them.
    pub uncommitted: u64,
    /// Stale units: from before the last reset of their zone, where the drive has lost a write, or without live data when the zone was next
    /// written.
    pub earlier: u64,
    /// Units of which not all was written.
    pub torn: u64,
    /// Units with data that is not what was written, as far as the scan read it. They count: a read of the data is an
    /// error.
    pub damaged: u64,
    /// Blocks that no header vouches for.
    pub garbage_blocks: u64,
    /// Blocks that cannot be read.
    pub unreadable_blocks: u64,
    /// Units of files whose number another file has had since.
    pub replaced: u64,
    /// Files.
    pub files: u64,
    /// Files among these whose path is not known or taken.
    pub lost_and_found: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Why a rebuild ended.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum RebuildError {
    /// Nothing is lost.
    #[error(
        "the metadata open and nothing is lost; they are put together again only if that is asked for (--force)"
    )]
    Sound,
    /// It was written by a later version.
    #[error("{0}; nothing was changed")]
    Version(String),
    /// Another process may have the file system open, or that cannot be known.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The file of new metadata would replace something else.
    #[error("{0}; it is not known to be metadata of this file system, and is not replaced")]
    NotReplaced(BackendError),
    /// The drive's answer may differ the next time, and the metadata that it did not return may be sound.
    #[error("{0}; the metadata may be sound, and are replaced only if that is asked for")]
    Unread(MakeError),
    /// There is neither a superblock nor a unit from which one can be made.
    #[error("there is no superblock, and {0}")]
    NoSuperblock(String),
    /// There is nothing to begin with.
    #[error("there is not one unit in the zones for data")]
    NoUnits,
    /// The rows cannot be written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The file of the metadata cannot be put in place.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
}

/// Builds the metadata of a file system from its zones.
///
/// # Errors
/// [`RebuildError`]. An error before the metadata are written changes nothing; after a later one the rebuild can run again.
pub fn rebuild(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    options: &RebuildOptions,
) -> Result<Rebuilt, RebuildError> {
    let waiter = &*waiters();
    let report = drive.report(waiter).map_err(MakeError::from)?;
    let basis = superblock::find(drive, waiter, &report, options)?;
    let superblock = &basis.superblock;
    check_drive(drive.volume(), superblock).map_err(MakeError::from)?;
    check_zones(drive.volume(), superblock).map_err(OpenError::from).map_err(MakeError::from)?;
    if let Some(sound) = present(drive, waiters, &basis, options)? {
        return Ok(sound);
    }
    let place = match (superblock.metadata, &options.beside) {
        (Metadata::Beside, Some(path)) => Some(write::Beside::new(path, &superblock.uuid)?),
        _ => None,
    };
    let found = units::read_all(drive, waiter, superblock, &report, options.depth);
    if found.is_empty() {
        return Err(RebuildError::NoUnits);
    }
    let writer = superblock::place(drive, waiter, &report, &basis, options)?;
    let rebuilt = write::write(drive, waiters, superblock, writer, place, found)?;
    Ok(Rebuilt { superblock: basis.origin, ..rebuilt })
}

/// Looks at the metadata that are there. If only the superblock was lost, it is written again, and the rebuild ends.
fn present(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    basis: &Basis,
    options: &RebuildOptions,
) -> Result<Option<Rebuilt>, RebuildError> {
    let waiter = &*waiters();
    let Some(there) = basis.found.as_ref().filter(|_| !options.force) else { return Ok(None) };
    let opened =
        make::open_found(drive, waiters, options.beside.clone().map(Beside::Path), there, Access::Verify);
    let rows = match opened {
        Ok(rows) => rows,
        Err(error) => return judge(error).map(|()| None),
    };
    let Some(own) = superblock::own(&rows) else { return Ok(None) };
    let found = match fsck::check(&rows, &own, drive, waiter, fsck::Options::default()) {
        Ok(found) => found,
        Err(error) => return judge(error.into()).map(|()| None),
    };
    if found.iter().any(|finding| finding.severity() == Severity::Lost) {
        return Ok(None);
    }
    if basis.origin == Origin::Drive {
        return Err(RebuildError::Sound);
    }
    let anchor = rows.backend().log().map_or_else(|| there.copy.anchor.clone(), Log::anchor_now);
    drop(rows);
    superblock::put_back(drive, waiter, &own, anchor)?;
    Ok(Some(Rebuilt { superblock: Origin::Metadata, ..Rebuilt::default() }))
}

/// Returns if the metadata do not open because they are lost. Any other reason is an error.
fn judge(error: MakeError) -> Result<(), RebuildError> {
    match error {
        error if error.passing().is_some() => Err(RebuildError::Unread(error)),
        MakeError::Backend(BackendError::Damaged { damage: Damage::Version(_), .. })
        | MakeError::Backend(BackendError::NotOurs { damage: Damage::Version(_), .. }) => {
            Err(RebuildError::Version(error.to_string()))
        }
        MakeError::Backend(BackendError::File { ref source, .. }) => match source.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error.into()),
        },
        MakeError::NeedsFile
        | MakeError::Backend(
            BackendError::InUse { .. }
            | BackendError::Claimed
            | BackendError::Unfit(_)
            | BackendError::UnfitZone { .. },
        ) => Err(error.into()),
        _ => Ok(()),
    }
}
