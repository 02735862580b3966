//! Opening an image: lock, check, read; never change.
//!
//! The lock comes first, so that nobody changes the file while it is read. It is a lock of the open file, not of the
//! process: a second opener in the same process is refused too. Whatever is found wrong, the file stays as it was: even
//! a torn slot is repaired only by the first commit of a device that was opened.

use crate::image::backing::{Backing, FileBacking};
use crate::image::error::ImageError;
use crate::image::format::{Header, HeaderError, LEDGER_OFFSET, MAGIC};
use crate::image::ledger::{Ledger, ReadError};
use crate::sync::Arc;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use zonal_core::device::ZoneState;

/// An image that was read and found sound.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) ledger: Ledger,
    pub(crate) states: Vec<ZoneState>,
    /// Whether the file may be looked at and no more.
    pub(crate) is_read_only: bool,
}

/// Reads the header of the image at `path`, which may be open elsewhere.
///
/// # Errors
/// [`ImageError`], if there is no image.
pub fn inspect(path: &Path) -> Result<Header, ImageError> {
    let file = plain_file(path, OpenOptions::new().read(true))?;
    header(path, &FileBacking::new(file))
}

/// Whether there is a file at `path` that begins as an image does, sound or not: it is not to be written over.
pub fn is_image(path: &Path) -> bool {
    use std::io::Read;
    let mut begin = [0; MAGIC.len()];
    let file = path.metadata().is_ok_and(|found| found.is_file()).then(|| File::open(path));
    file.is_some_and(|file| file.and_then(|mut file| file.read_exact(&mut begin)).is_ok()) && begin == MAGIC
}

/// Opens and locks the image at `path`; to look at, if it may not be written.
pub(crate) fn open(path: &Path) -> Result<Opened, ImageError> {
    let file = match plain_file(path, OpenOptions::new().read(true).write(true)) {
        Err(ImageError::Io { source, .. }) if may_be_read(&source) => return open_to_look(path),
        file => file?,
    };
    lock(path, &file, FlockOperation::NonBlockingLockExclusive)?;
    open_backing(path, Arc::new(FileBacking::new(file)))
}

/// Opens the image at `path` without the right to change it. Others may look at it, too, but nobody may write.
pub(crate) fn open_to_look(path: &Path) -> Result<Opened, ImageError> {
    let file = plain_file(path, OpenOptions::new().read(true))?;
    lock(path, &file, FlockOperation::NonBlockingLockShared)?;
    let opened = open_backing(path, Arc::new(FileBacking::new(file)))?;
    Ok(Opened { is_read_only: true, ..opened })
}

/// Whether a file that cannot be opened for writing may be one to read.
fn may_be_read(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn lock(path: &Path, file: &File, how: FlockOperation) -> Result<(), ImageError> {
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(ImageError::Locked { path: path.to_owned() }),
        Err(e) => Err(ImageError::Io { path: path.to_owned(), doing: "locking", source: e.into() }),
    }
}

/// Reads the image in `backing`; `path` is its name in messages.
pub(crate) fn open_backing(path: &Path, backing: Arc<dyn Backing>) -> Result<Opened, ImageError> {
    let header = header(path, &*backing)?;
    let (ledger, states) = Ledger::read(backing.clone(), &header).map_err(|e| match e {
        ReadError::Io(source) => {
            ImageError::Io { path: path.to_owned(), doing: "reading zone states", source }
        }
        ReadError::Page { page, fault } => ImageError::Page { path: path.to_owned(), page, fault },
    })?;
    Ok(Opened { path: path.to_owned(), header, backing, ledger, states, is_read_only: false })
}

fn plain_file(path: &Path, options: &OpenOptions) -> Result<File, ImageError> {
    let io = |source| ImageError::Io { path: path.to_owned(), doing: "opening", source };
    // Asked before opening: to open a FIFO or a device can block or act.
    if !path.metadata().map_err(io)?.is_file() {
        return Err(ImageError::NotAFile { path: path.to_owned() });
    }
    options.open(path).map_err(io)
}

fn header(path: &Path, backing: &dyn Backing) -> Result<Header, ImageError> {
    let io = |source| ImageError::Io { path: path.to_owned(), doing: "reading the header", source };
    let fault = |fault| ImageError::Header { path: path.to_owned(), fault };
    let found = backing.len().map_err(io)?;
    if found < LEDGER_OFFSET {
        return Err(fault(HeaderError::Short(found)));
    }
    let mut bytes = vec![0; LEDGER_OFFSET as usize];
    backing.read_at(&mut bytes, 0).map_err(io)?;
    let header = Header::parse(&bytes).map_err(fault)?;
    let expected = header.layout().file_len().expect("a parsed header's file ends below 2^63");
    if found != expected {
        return Err(ImageError::Length { path: path.to_owned(), found, expected });
    }
    Ok(header)
}
