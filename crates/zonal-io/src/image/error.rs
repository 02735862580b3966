//! Errors of images, with path and facts.

use crate::image::format::{FILES_MAX, HeaderError, PageError, PartError};
use crate::lock::Held;
use std::io;
use std::path::{Path, PathBuf};
use zonal_core::device::ZoneState;
use zonal_core::{GeometryError, ZoneIndex};

/// Reason that a path is not an image file.
fn no_file(path: &Path) -> &'static str {
    if path.is_dir() {
        "is a directory, not a device"
    } else {
        "is not a regular file; the names of other devices are in `zonal help devices`"
    }
}

/// Error of creating, opening or closing an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file exists; an image never replaces a file.
    #[error("{}: already exists; an image never replaces a file", .path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// The options are not valid for a device.
    #[error("{}: cannot create the image: {fault}", .path.display())]
    Options {
        /// Path of the file.
        path: PathBuf,
        /// Invalid option.
        fault: OptionsError,
    },
    /// A file has the name of a part of the new image.
    #[error(
        "{}: already exists, but {} needs this name for a part of its data; left by an image that was moved, removed or \
         not completed: move or remove it",
        .part.display(),
        .path.display()
    )]
    PartExists {
        /// Path of the image.
        path: PathBuf,
        /// File of the part.
        part: PathBuf,
    },
    /// The file system does not support a file of this length, nor enough shorter ones.
    #[error(
        "{}: this file system cannot hold {bytes} bytes in {FILES_MAX} files: give a smaller size, or use XFS or btrfs",
        .path.display()
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Length of the image in bytes.
        bytes: u64,
    },
    /// The file system is full.
    #[error("{}: no space left to create the image", .path.display())]
    NoSpace {
        /// Path of the file.
        path: PathBuf,
    },
    /// Another process has the image open, and one of the two for writing.
    #[error("{}: {held}", .path.display())]
    Locked {
        /// Path of the file.
        path: PathBuf,
        /// Processes that have it open.
        held: Held,
    },
    /// The path leads to a directory, a device or another file that is not regular.
    #[error("{}: {}", .path.display(), no_file(.path))]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The header is not that of an image supported by this version.
    #[error("{}: {fault}", .path.display())]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// Problem with the header.
        fault: HeaderError,
    },
    /// A file is not the part of the image that its name stands for.
    #[error("{}: {fault}", .path.display())]
    Part {
        /// File of the part.
        path: PathBuf,
        /// Mismatch with the image.
        fault: PartError,
    },
    /// The length of the file does not match its header.
    #[error("{}: truncated or extended: the file has {found} bytes, its header says {expected}", .path.display())]
    Length {
        /// Path of the file.
        path: PathBuf,
        /// Actual length.
        found: u64,
        /// Length according to the header.
        expected: u64,
    },
    /// The zone states are damaged.
    #[error("{}: zone state page {page}: {fault}; an image cannot be repaired, restore a copy", .path.display())]
    Page {
        /// Path of the file.
        path: PathBuf,
        /// Page index; page 0 is the session page.
        page: u32,
        /// Problem with the page.
        fault: PageError,
    },
    /// An operating system call failed.
    #[error("{}: {doing}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Action that failed.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// An earlier write of states or sync failed, so only the flush before it is certain to be
    /// durable.
    #[error(
        "{}: {failure}; nothing after the last successful flush is certain, and the image takes no more changes until \
         it is opened again",
        .path.display()
    )]
    Failed {
        /// Path of the file.
        path: PathBuf,
        /// The first failure.
        failure: Failure,
    },
}

/// Error of invalid options.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// No size is given, and no profile that has one.
    #[error("neither a size nor a profile is given")]
    NoSize,
    /// Unknown profile.
    #[error("no such profile {name:?}; known profiles: {}", .known.join(", "))]
    UnknownProfile {
        /// Name given.
        name: String,
        /// Known names.
        known: Vec<&'static str>,
    },
    /// A size is not a multiple of its unit.
    #[error("{option} of {bytes} bytes is not a multiple of {unit}")]
    Unit {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        bytes: u64,
        /// Unit in bytes.
        unit: u64,
    },
    /// A zone or a bad block is not there.
    #[error(transparent)]
    Emulated(#[from] crate::emulated::OptionsError),
    /// A value is out of range.
    #[error("{option} of {value} is not {range}")]
    Range {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// Valid values.
        range: &'static str,
    },
    /// The number of states differs from the number of zones.
    #[error("{states} zone states for {zones} zones")]
    States {
        /// Number of states.
        states: usize,
        /// Number of zones of the drive.
        zones: u32,
    },
    /// The state is not possible for this zone.
    #[error("zone {zone} cannot be {} with its write pointer {} sectors from its start", .state.condition, .state.written)]
    State {
        /// The zone.
        zone: ZoneIndex,
        /// Its state.
        state: ZoneState,
    },
    /// The active zones exceed the limit of the drive.
    #[error("{active} zones are active after a power cycle, and zone_max_active is {limit}")]
    Active {
        /// Number of active zones.
        active: u32,
        /// The limit.
        limit: u32,
    },
    /// The geometry is invalid.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// Failure after which an image accepts no more changes.
///
/// After a failed sync the operating system may have marked lost pages as clean, so a later
/// successful sync proves nothing. Therefore the first failure stands until the image is reopened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{doing} failed: {}", io::Error::from_raw_os_error(*.errno))]
pub struct Failure {
    /// Action that failed.
    pub doing: &'static str,
    /// The operating system's error number.
    pub errno: i32,
}

impl Failure {
    pub(crate) fn new(doing: &'static str, e: &io::Error) -> Failure {
        Failure { doing, errno: errno(e) }
    }
}

/// Error number of `e`, or EIO if it has none.
pub(crate) fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())
}
