//! Putting the metadata together from the zones alone, for a drive whose own are lost.
//!
//! The zones for data are read from header to header, never written. Of each block of a file the newest data counts; the newest
//! header that names a file says how long it is and where it was. Everything is known before anything is written. Then an
//! empty database takes the place of what was there, and gets all rows; those that make it the file system's come last, in one
//! commit. So whenever the power goes, either the file system is whole, or its metadata do not open and it can be done again.
//!
//! # What cannot be known
//! Headers tell of data that was written, and of nothing else. Files that were deleted come back as long as their units are
//! there, and holes may show what was there before. Names are those at the last write or copy, others of the same file are
//! lost, and so are empty files and directories, symbolic links, permissions, owners, times and extended attributes.

mod overlay;
mod superblock;
mod tree;
mod units;
mod write;

use crate::drive::Drive;
use crate::format::Metadata;
use crate::fs::FsError;
use crate::fs::mount::check_drive;
use crate::fsck::{self, Severity};
use crate::make::{self, Access, Beside, MakeError, MakeOptions};
use crate::scan::Depth;
use crate::store::backend::log::Log;
use crate::store::backend::{BackendError, Damage};
use crate::waiter::Waiters;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use superblock::Basis;
pub use superblock::Origin;

/// How it is to be done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RebuildOptions {
    /// The file with the metadata, if they are beside the drive.
    pub beside: Option<PathBuf>,
    /// Although the metadata are sound.
    pub force: bool,
    /// Look at all data: a unit whose end was lost is found by its end anyway, damage inside it only so.
    pub depth: Depth,
    /// What the file system was made with, as far as the units do not say it: of use only where the superblock is gone.
    pub made_with: MakeOptions,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// Where the superblock is from.
    pub superblock: Origin,
    /// Units that count.
    pub units: u64,
    /// Units that no commit knew when the file system was opened again after them.
    pub uncommitted: u64,
    /// Units of which not all was written.
    pub torn: u64,
    /// Units with data that is not what was written, as far as was looked. They count: whoever reads them is told.
    pub damaged: u64,
    /// Blocks that no header vouches for.
    pub garbage_blocks: u64,
    /// Blocks that cannot be read.
    pub unreadable_blocks: u64,
    /// Units of files whose number another file has had since.
    pub replaced: u64,
    /// Files.
    pub files: u64,
    /// Of these, those whose path is not known or taken.
    pub lost_and_found: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Why it is not done.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum RebuildError {
    /// There is nothing to be mended.
    #[error("the metadata open and nothing is lost; they are put together anew only if that is asked for")]
    Sound,
    /// It was written by a later version.
    #[error("{0}; nothing was changed")]
    Version(String),
    /// Somebody may have it open, or it cannot be told.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The file of new metadata would replace something else.
    #[error("{0}; it is not known to be metadata of this file system, and is not replaced")]
    NotReplaced(BackendError),
    /// The drive did not answer as it may the next time, and what it did not answer may be sound.
    #[error("{0}; it may be sound, and is put together anew only if that is asked for")]
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

/// Puts the metadata of a file system together from its zones.
///
/// # Errors
/// [`RebuildError`]. Up to [`RebuildError::Fs`] and [`RebuildError::File`] nothing was changed; after these it can be done again.
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

/// Looks at the metadata that are there. Where only the superblock was lost, it is put back, and that is all.
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

/// Whether what keeps the metadata from being opened is that they are lost.
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
