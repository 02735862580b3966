//! Errors of the storage of rows, with their place.

use std::fmt;
use std::io;
use std::path::PathBuf;
use zonal_core::{RequestError, Sector, ZoneIndex};
use zonal_io::lock::Held;

/// A segment of the metadata store: a sequential zone, or a piece of the conventional zones or of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u32);

/// The bit that tells pieces from zones.
const PIECE: u32 = 1 << 31;
/// The bit that tells pieces of a file from those of conventional zones.
const OF_FILE: u32 = 1 << 30;

impl SegmentId {
    /// No segment: it stands for a segment that was given back.
    pub const NONE: SegmentId = SegmentId(u32::MAX);

    /// A sequential zone.
    pub const fn zone(zone: ZoneIndex) -> SegmentId {
        SegmentId(zone.0)
    }

    /// A piece of the conventional zones.
    pub const fn conventional(piece: u32) -> SegmentId {
        SegmentId(PIECE | piece)
    }

    /// A piece of a file.
    pub const fn file(piece: u32) -> SegmentId {
        SegmentId(PIECE | OF_FILE | piece)
    }

    /// The zone, if it is one.
    pub const fn as_zone(self) -> Option<ZoneIndex> {
        if self.0 & PIECE == 0 { Some(ZoneIndex(self.0)) } else { None }
    }

    /// Number of the piece.
    pub const fn piece(self) -> u32 {
        self.0 & !(PIECE | OF_FILE)
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_zone() {
            Some(zone) => write!(f, "zone {zone}"),
            None if self.0 & OF_FILE != 0 => write!(f, "piece {} of the file", self.piece()),
            None => write!(f, "piece {} of the conventional zones", self.piece()),
        }
    }
}

/// A block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentPlace {
    /// The segment.
    pub segment: SegmentId,
    /// The block of 4 KiB, counted from the segment's start.
    pub block: u32,
}

impl fmt::Display for SegmentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} block {}", self.segment, self.block)
    }
}

/// Why no change of a file system can be made durable. Everything can be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The superblock cannot be written.
    #[error("no zone takes another copy of the superblock")]
    Superblock,
    /// The store cannot be written.
    #[error("the metadata have {pages} pages, and the zones that take writes have room for {usable}")]
    Store {
        /// Pages in use, with those of the smallest change.
        pages: u64,
        /// Pages that there is room for.
        usable: u64,
    },
}

/// Damage of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// They do not begin as they should.
    #[error("it does not begin with the magic number")]
    Magic,
    /// A later version wrote them.
    #[error("it is of version {0}, which is not known here")]
    Version(u32),
    /// They are not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// They are another file system's.
    #[error("it belongs to another file system")]
    Uuid,
    /// They were written for another place.
    #[error("it was written for another place")]
    Place,
    /// A field has a value that it cannot have.
    #[error("its field {0} is out of range")]
    Field(&'static str),
    /// Something that has to follow is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The last batches are missing.
    #[error(
        "it ends at batch {found}, but the superblock names batch {named}: the batches in between are lost"
    )]
    Short {
        /// Last batch that was found.
        found: u64,
        /// Batch that the superblock names.
        named: u64,
    },
    /// It is older than the drive's superblock says.
    #[error("it is as it was at number {found}, and the superblock knows of number {known}: it was put back")]
    Old {
        /// How far it had come.
        found: u64,
        /// How far it has to have come.
        known: u64,
    },
}

/// Why rows cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is a file already, and nothing is replaced.
    #[error("{}: there is a file of this name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is open elsewhere.
    #[error("{}: {held}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The processes that have it open.
        held: Held,
    },
    /// Another owner in this process has the metadata on the drive.
    #[error("the file system of this drive is in use")]
    Claimed,
    /// The operating system's answer about a file.
    #[error("{}: {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The answer.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {damage}", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
    /// The drive or the range cannot be used so.
    #[error("metadata does not fit: {0}")]
    Unfit(&'static str),
    /// A zone that does not suit a log: conventional, of another size, or given twice.
    #[error("metadata does not fit: zone {zone} {why}")]
    UnfitZone {
        /// The zone.
        zone: ZoneIndex,
        /// Why not.
        why: &'static str,
    },
    /// The drive refused or failed a request.
    #[error("{doing} at sector {sector}: {error}")]
    Request {
        /// What was tried.
        doing: &'static str,
        /// Where.
        sector: Sector,
        /// The answer.
        error: RequestError,
    },
    /// Bytes of the drive are not what was written there.
    #[error("{place}: {what}: {damage}")]
    Damaged {
        /// Where.
        place: SegmentPlace,
        /// What should be there.
        what: &'static str,
        /// What is wrong with it.
        damage: Damage,
    },
    /// There is no room; nothing was changed.
    #[error("no room for metadata: {needed} pages are needed and {usable} can be kept")]
    Full {
        /// Pages that would be in use.
        needed: u64,
        /// Pages that may be.
        usable: u64,
    },
    /// It was opened for reading.
    #[error("the metadata were opened for reading only")]
    ReadOnly,
    /// No zone or piece takes writes any more; all that is there can still be read.
    #[error("no zone for metadata takes writes any more: the file system can only be read")]
    NoSegments,
    /// An earlier failure left it unknown what is durable; it has to be opened again.
    #[error("an earlier write of metadata failed")]
    Failed,
}

impl BackendError {
    /// True if bytes are not there any more, as far as the drive can tell; other answers may be different the next time.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            BackendError::Damaged { .. } => true,
            BackendError::Request { error, .. } => crate::drive::is_lost(error),
            _ => false,
        }
    }

    /// The drive's answer to a request, if it caused this error.
    pub(crate) fn answer(&self) -> Option<&RequestError> {
        match self {
            BackendError::Request { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<BackendError> for io::Error {
    fn from(error: BackendError) -> io::Error {
        let kind = match &error {
            BackendError::Full { .. } => io::ErrorKind::StorageFull,
            BackendError::Exists { .. } => io::ErrorKind::AlreadyExists,
            BackendError::InUse { .. } | BackendError::Claimed => io::ErrorKind::ResourceBusy,
            BackendError::File { source, .. } => source.kind(),
            BackendError::NotOurs { .. } | BackendError::Damaged { .. } => io::ErrorKind::InvalidData,
            BackendError::Unfit(_) | BackendError::UnfitZone { .. } => io::ErrorKind::InvalidInput,
            BackendError::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            BackendError::NoSegments => io::ErrorKind::StorageFull,
            BackendError::Request { .. } | BackendError::Failed => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
