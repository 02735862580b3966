//! Errors of file system operations.

use super::xattr::ATTRIBUTE_MAX;
use crate::format::{RowError, UnitError};
use crate::store::StoreError;
use zonal_core::RequestError;

/// Reason for the loss of accepted data.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Every zone that was tried failed; this is the last error.
    #[error("{0}")]
    Request(RequestError),
    /// No zone is left to try.
    #[error("no zone is left that takes it")]
    NoZone,
}

/// Error of a file system operation.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum FsError {
    /// No such name or file.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists.
    #[error("the name exists already")]
    Exists,
    /// The operation requires a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not apply to directories.
    #[error("it is a directory")]
    IsDirectory,
    /// The directory still has names.
    #[error("the directory is not empty")]
    NotEmpty,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attribute exists and was to be created.
    #[error("the attribute exists already")]
    AttributeExists,
    /// Not a valid name of an extended attribute.
    #[error("the name of an attribute has 1 to 255 bytes")]
    AttributeName,
    /// The value of an extended attribute has more than [`ATTRIBUTE_MAX`] bytes.
    #[error("the value of an attribute has at most {ATTRIBUTE_MAX} bytes")]
    AttributeTooLarge,
    /// The name is longer than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// A symbolic link would point to more than 4095 bytes.
    #[error("the target of a symbolic link has at most 4095 bytes")]
    TargetTooLong,
    /// The file has the maximum number of names.
    #[error("it has the most names that a file can have")]
    TooManyLinks,
    /// The offset is beyond the end of the file, or no data follows it.
    #[error("nothing of that kind is at the offset or after it")]
    NothingThere,
    /// A number space is used up.
    #[error("{0}")]
    Exhausted(&'static str),
    /// The operation is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file would exceed the maximum size.
    #[error("the file would be too large")]
    TooLarge,
    /// No space is free, and none can be reclaimed.
    #[error("no space is left")]
    NoSpace,
    /// No space for more metadata. Files have to be removed, or their former zones to be reset.
    #[error("no space is left for metadata: {pages} pages of {usable} are in use")]
    MetadataFull {
        /// Upper bound of the 4 KiB pages in use.
        pages: u64,
        /// Number of pages that may be in use.
        usable: u64,
    },
    /// The operation would have to wait for space.
    #[error("it would have to wait for space")]
    WouldWait,
    /// The file system refuses changes.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// Written data was lost: its zones failed, one after the other.
    #[error("file {ino}: data of it was lost: {why}")]
    Write {
        /// The file.
        ino: u64,
        /// Reason of the loss.
        why: Lost,
    },
    /// Data is unreadable.
    #[error("file {ino}, block {block}: zone {zone}, block {at} cannot be read: {error}")]
    Read {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone.
        at: u32,
        /// Error of the read.
        error: RequestError,
    },
    /// Data was lost earlier: its metadata is gone or was wrong.
    #[error("file {ino}, block {block}: what was there is lost")]
    Gone {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
    },
    /// Data does not match its checksum.
    #[error("file {ino}, block {block}: zone {zone}, block {at} does not hold what was written there")]
    Checksum {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone.
        at: u32,
    },
    /// The header of a unit is wrong.
    #[error("file {ino}, block {block}: the unit at zone {zone}, block {at}: {error}")]
    Unit {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
        /// The zone.
        zone: u32,
        /// First block of the unit in the zone.
        at: u32,
        /// Error in the header.
        error: UnitError,
    },
    /// The drive failed a command other than a read or write of data.
    #[error("the drive: {0}")]
    Drive(#[from] RequestError),
    /// Error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A row is damaged.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The zone accounts are inconsistent.
    #[error("accounts: {0}")]
    Account(String),
}

impl FsError {
    /// Returns the drive's answer to a metadata request, if it caused this error.
    pub(crate) fn answer(&self) -> Option<&RequestError> {
        match self {
            FsError::Drive(answer) => Some(answer),
            FsError::Store(error) => error.backend()?.answer(),
            _ => None,
        }
    }

    /// Returns the affected file, if the error is about data.
    pub fn file(&self) -> Option<u64> {
        match self {
            FsError::Write { ino, .. }
            | FsError::Read { ino, .. }
            | FsError::Gone { ino, .. }
            | FsError::Checksum { ino, .. }
            | FsError::Unit { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// True for unreadable or corrupt data. Other data may be intact.
    pub fn is_damage(&self) -> bool {
        use FsError::*;
        matches!(self, Read { .. } | Checksum { .. } | Unit { .. } | Gone { .. })
    }

    /// True if space is missing, for data or metadata (ENOSPC).
    pub fn is_no_space(&self) -> bool {
        matches!(self, FsError::NoSpace | FsError::MetadataFull { .. })
    }
}
