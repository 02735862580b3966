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
    #[error("no writable zone is left")]
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
    #[error("already exists")]
    Exists,
    /// The operation requires a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not apply to directories.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has names.
    #[error("directory not empty")]
    NotEmpty,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attribute exists and was to be created.
    #[error("attribute already exists")]
    AttributeExists,
    /// Not a valid name of an extended attribute.
    #[error("invalid attribute name: it must have 1 to 255 bytes")]
    AttributeName,
    /// The value of an extended attribute has more than [`ATTRIBUTE_MAX`] bytes.
    #[error("attribute value too large: the maximum is {ATTRIBUTE_MAX} bytes")]
    AttributeTooLarge,
    /// The name is longer than 255 bytes.
    #[error("name too long: the maximum is 255 bytes")]
    NameTooLong,
    /// A symbolic link would point to more than 4095 bytes.
    #[error("symbolic link target too long: the maximum is 4095 bytes")]
    TargetTooLong,
    /// The file has the maximum number of names.
    #[error("too many links")]
    TooManyLinks,
    /// The offset is beyond the end of the file, or no data follows it.
    #[error("no data or hole at or after the offset")]
    NothingThere,
    /// A number space is used up.
    #[error("{0}")]
    Exhausted(&'static str),
    /// The operation is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file would exceed the maximum size.
    #[error("file too large")]
    TooLarge,
    /// No space is free, and none can be reclaimed.
    #[error("no space left")]
    NoSpace,
    /// No space for more metadata. Files have to be removed, or their former zones to be reset.
    #[error("no space left for metadata: {pages} of {usable} pages are in use")]
    MetadataFull {
        /// Upper bound of the 4 KiB pages in use.
        pages: u64,
        /// Number of pages that may be in use.
        usable: u64,
    },
    /// The operation would have to wait for space.
    #[error("would have to wait for space")]
    WouldWait,
    /// The file system refuses changes.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// Written data was lost: its zones failed, one after the other.
    #[error("file {ino}: data was lost: {why}")]
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
    #[error("file {ino}, block {block}: data is lost")]
    Gone {
        /// The file.
        ino: u64,
        /// Block of the file.
        block: u64,
    },
    /// Data does not match its checksum.
    #[error("file {ino}, block {block}: zone {zone}, block {at} does not match its checksum")]
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
    /// Error of the store.
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
