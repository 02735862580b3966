//! What can be wrong with an image, with the path and the facts.

use crate::image::format::{HeaderError, PageError};
use crate::lock::Held;
use std::io;
use std::path::{Path, PathBuf};
use zonal_core::GeometryError;

/// What a path leads to that is no image.
fn no_file(path: &Path) -> &'static str {
    if path.is_dir() {
        "it is a directory, and no device"
    } else {
        "not a plain file, as an image is; real drives are not supported yet"
    }
}

/// Why an image cannot be created, opened or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file exists; an image never replaces one.
    #[error("{}: exists already; an image is never created over a file", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The options do not describe a device.
    #[error("{}: cannot create the image: {fault}", .path.display())]
    Options {
        /// The file asked for.
        path: PathBuf,
        /// What does not fit.
        fault: OptionsError,
    },
    /// The file system cannot hold a file of this length.
    #[error(
        "{}: this file system cannot hold a file of {bytes} bytes (ext4 ends at 16 TiB): give a smaller size, or use XFS or \
         btrfs",
        .path.display()
    )]
    TooLarge {
        /// The file asked for.
        path: PathBuf,
        /// Length of the image file.
        bytes: u64,
    },
    /// The file system is full.
    #[error("{}: no space left to create the image", .path.display())]
    NoSpace {
        /// The file asked for.
        path: PathBuf,
    },
    /// The image is open elsewhere: for writing, or it was to be opened for writing.
    #[error("{}: {held}", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// The processes that have it open.
        held: Held,
    },
    /// The path leads to a directory, a device or something else that is no plain file.
    #[error("{}: {}", .path.display(), no_file(.path))]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The header is not one of an image that this version reads.
    #[error("{}: {fault}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: HeaderError,
    },
    /// The file has another length than its header says.
    #[error("{}: the file has {found} bytes but its header asks for {expected}: truncated or grown", .path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        found: u64,
        /// Length by the header.
        expected: u64,
    },
    /// The zone states are damaged.
    #[error("{}: zone state page {page}: {fault}; nothing repairs an image, go back to a copy", .path.display())]
    Page {
        /// The file.
        path: PathBuf,
        /// The page, from 0; page 0 is the session page.
        page: u32,
        /// What is wrong.
        fault: PageError,
    },
    /// The operating system refused.
    #[error("{}: {doing}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// An earlier write of states or sync failed: what is durable is known only up to the flush before it.
    #[error(
        "{}: {failure}; nothing after the last successful flush is certain, and the image takes no more changes until \
         it is opened again",
        .path.display()
    )]
    Failed {
        /// The file.
        path: PathBuf,
        /// The first failure.
        failure: Failure,
    },
}

/// Options that do not describe a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Neither a size nor a profile that has one.
    #[error("no size and no profile given")]
    NoSize,
    /// No preset has this name.
    #[error("no profile is called {name:?}; there are {}", .known.join(", "))]
    UnknownProfile {
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// A byte count that is not a multiple of the unit.
    #[error("{option} of {bytes} bytes is not a multiple of {unit}")]
    Unit {
        /// The option.
        option: &'static str,
        /// Its value.
        bytes: u64,
        /// The unit, in bytes.
        unit: u64,
    },
    /// A value that is outside its range.
    #[error("{option} of {value} is not {range}")]
    Range {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// The geometry is impossible.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// The failure after which an image takes no more changes.
///
/// After a failed sync the operating system may have forgotten which bytes it owes the medium, so that a later sync
/// that succeeds proves nothing. Hence the first failure stands until the image is opened again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{doing} failed: {}", io::Error::from_raw_os_error(*.errno))]
pub struct Failure {
    /// What was tried.
    pub doing: &'static str,
    /// The operating system's error number.
    pub errno: i32,
}

impl Failure {
    pub(crate) fn new(doing: &'static str, e: &io::Error) -> Failure {
        Failure { doing, errno: errno(e) }
    }
}

/// The error number of `e`; an error that has none counts as EIO.
pub(crate) fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())
}
