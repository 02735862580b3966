//! Rebuilds lost metadata from the zones alone.
//!
//! A rebuild reads the data zones from header to header, and never writes them. For each block of a
//! file, the newest data wins; the newest header that names a file determines its size and path.
//! Everything is read before anything is written. Then an empty store replaces the old metadata
//! and gets all rows. The rows that make it a valid file system are written last, in one commit.
//! After a power cut, either the file system is complete, or its metadata do not open and the
//! rebuild can be repeated.
//!
//! # Limits
//! Headers describe data that was written, and nothing else. A deleted file reappears while its
//! units still exist, and a hole may show old data. A file gets the name it had at its last write
//! or copy; other names are lost. Empty files and directories, symbolic links, permissions, owners,
//! times and extended attributes are lost, too.

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

/// Options of a rebuild.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RebuildOptions {
    /// The file with the metadata, if they are beside the drive.
    pub beside: Option<PathBuf>,
    /// Rebuild even if the metadata are sound.
    pub force: bool,
    /// Amount of data to read. Torn units are always found, but damage inside a unit only with
    /// [`Depth::Data`].
    pub depth: Depth,
    /// Parameters of the file system that the units do not record. Used only if the superblock is
    /// lost.
    pub made_with: MakeOptions,
}

zonal_core::setters! {
    RebuildOptions
    /// The file with the metadata, if they are beside the drive.
    with_beside beside: impl Into<Option<PathBuf>>;
    /// True to rebuild even if the metadata are sound.
    with_force force: bool;
    /// Amount of data to read.
    with_depth depth: Depth;
    /// Parameters of the file system that the units do not record.
    with_made_with made_with: MakeOptions;
}

/// Result of a rebuild.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// Source of the superblock.
    pub superblock: Origin,
    /// Number of valid units.
    pub units: u64,
    /// Units that were in no commit at the next opening of the file system, and are ignored.
    pub uncommitted: u64,
    /// Stale units: from before the last reset of their zone, where the drive has lost a write, or
    /// in a zone that had no live data when it was next written.
    pub earlier: u64,
    /// Torn units.
    pub torn: u64,
    /// Units with damaged data among the blocks that were read. They are valid, but reading the
    /// damaged data is an error.
    pub damaged: u64,
    /// Blocks that belong to no unit.
    pub garbage_blocks: u64,
    /// Unreadable blocks.
    pub unreadable_blocks: u64,
    /// Units of files with a number that another file has reused since.
    pub replaced: u64,
    /// Number of files.
    pub files: u64,
    /// Files among these with a path that is unknown or taken.
    pub lost_and_found: u64,
    /// Total size of all files, in bytes.
    pub bytes: u64,
}

/// Failure of a rebuild.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum RebuildError {
    /// The metadata are intact.
    #[error("the metadata open and nothing is lost; use --force to rebuild them anyway")]
    Sound,
    /// Written by a different version of the format.
    #[error("{0}; nothing was changed")]
    Version(String),
    /// Another process may have the file system open, or the drive or options are unsuitable.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The new file of metadata would overwrite something else.
    #[error("{0}; not replaced, because it may not be metadata of this file system")]
    NotReplaced(BackendError),
    /// The drive failed to return metadata that may be sound, and the error may be transient.
    #[error("{0}; the metadata may be sound, and are replaced only on request")]
    Unread(MakeError),
    /// There is no superblock, and none can be derived from the units.
    #[error("there is no superblock, and {0}")]
    NoSuperblock(String),
    /// There are no units.
    #[error("no units in the data zones")]
    NoUnits,
    /// The rows cannot be written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The file of the metadata cannot be put in place.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Rebuilds the metadata of a file system from its zones.
///
/// # Errors
/// [`RebuildError`]. If it fails before the metadata are written, nothing has changed. After that
/// the rebuild can be repeated.
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

/// Checks the existing metadata. If only the superblock is lost, it is restored from them, and the
/// rebuild is done.
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

/// Returns normally if the metadata do not open because they are lost. Any other reason is an
/// error.
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
