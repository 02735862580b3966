//! What can go wrong where the rows are kept, with its place.

use std::fmt;
use std::io;
use std::path::PathBuf;
use zonal_core::{RequestError, Sector, ZoneIndex};
use zonal_io::lock::Held;

/// A block of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The zone.
    pub zone: ZoneIndex,
    /// The block of 4 KiB, counted from the zone's start.
    pub block: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {} block {}", self.zone, self.block)
    }
}

/// What is wrong with bytes.
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
    /// Somebody has the metadata on the drive.
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
        place: Place,
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
    /// An earlier failure left it unknown what is durable; it has to be opened again.
    #[error("an earlier write of metadata failed")]
    Failed,
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
            BackendError::Request { .. } | BackendError::Failed => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
