//! Why an operation of the file system fails.

use super::xattr::ATTRIBUTE_MAX;
use crate::format::{RowError, UnitError};
use crate::store::StoreError;
use zonal_core::RequestError;

/// Why data that had been taken was not written.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Each zone that it was tried in failed; this is the last answer.
    #[error("{0}")]
    Request(RequestError),
    /// There is no zone left to try it in.
    #[error("no zone is left that takes it")]
    NoZone,
}

/// Why an operation fails.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum FsError {
    /// There is no such name or file.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// A directory is needed here.
    #[error("not a directory")]
    NotDirectory,
    /// This does not go with a directory.
    #[error("it is a directory")]
    IsDirectory,
    /// A directory that still has names.
    #[error("the directory is not empty")]
    NotEmpty,
    /// There is no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// An extended attribute that was to be made exists.
    #[error("the attribute exists already")]
    AttributeExists,
    /// No extended attribute can have this name.
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
    /// A file has as many names as its count of them can say.
    #[error("it has the most names that a file can have")]
    TooManyLinks,
    /// What a caller looks for is not at the offset, nor after it: data, a hole, or the file at all.
    #[error("nothing of that kind is at the offset or after it")]
    NothingThere,
    /// There are no more of what has a number.
    #[error("{0}")]
    Exhausted(&'static str),
    /// The operation makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file would be larger than any can be.
    #[error("the file would be too large")]
    TooLarge,
    /// Nothing is free, and nothing can be reclaimed.
    #[error("no space is left")]
    NoSpace,
    /// There is no room for more metadata: files have to be removed, or zones that they were in to be reset.
    #[error("no space is left for metadata: {pages} pages of {usable} are in use")]
    MetadataFull {
        /// Pages of 4 KiB in use at most.
        pages: u64,
        /// Pages that may be.
        usable: u64,
    },
    /// It would have to wait for space.
    #[error("it would have to wait for space")]
    WouldWait,
    /// The file system takes no changes.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// Data was written, and its zones failed, each in turn.
    #[error("file {ino}: data of it was lost: {why}")]
    Write {
        /// The file.
        ino: u64,
        /// Why.
        why: Lost,
    },
    /// Data could not be read.
    #[error("file {ino}, block {block}: zone {zone}, block {at} cannot be read: {error}")]
    Read {
        /// The file.
        ino: u64,
        /// Which of its blocks.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone.
        at: u32,
        /// Why not.
        error: RequestError,
    },
    /// Data was lost before: its metadata are gone, or were wrong.
    #[error("file {ino}, block {block}: what was there is lost")]
    Gone {
        /// The file.
        ino: u64,
        /// Which of its blocks.
        block: u64,
    },
    /// Data is not what was written.
    #[error("file {ino}, block {block}: zone {zone}, block {at} does not hold what was written there")]
    Checksum {
        /// The file.
        ino: u64,
        /// Which of its blocks.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone.
        at: u32,
    },
    /// A header is not what was written.
    #[error("file {ino}, block {block}: the unit at zone {zone}, block {at}: {error}")]
    Unit {
        /// The file.
        ino: u64,
        /// Which of its blocks.
        block: u64,
        /// The zone.
        zone: u32,
        /// Block of the zone where the unit begins.
        at: u32,
        /// What is wrong.
        error: UnitError,
    },
    /// The drive refused what is not data.
    #[error("the drive: {0}")]
    Drive(#[from] RequestError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A row is damaged.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The accounts of zones contradict each other.
    #[error("accounts: {0}")]
    Account(String),
}

impl FsError {
    /// The drive's answer to a request for metadata, if it caused this error.
    pub(crate) fn answer(&self) -> Option<&RequestError> {
        match self {
            FsError::Drive(answer) => Some(answer),
            FsError::Store(error) => error.backend()?.answer(),
            _ => None,
        }
    }

    /// The file whose data it is about, if it is about one.
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

    /// Whether data cannot be read, or is not what was written: other data may be sound.
    pub fn is_damage(&self) -> bool {
        use FsError::*;
        matches!(self, Read { .. } | Checksum { .. } | Unit { .. } | Gone { .. })
    }

    /// Whether space is missing, for data or for metadata: ENOSPC.
    pub fn is_no_space(&self) -> bool {
        matches!(self, FsError::NoSpace | FsError::MetadataFull { .. })
    }
}
