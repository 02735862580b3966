//! Opening an image: lock, check and read, without changing it.
//!
//! The [lock](crate::lock) is taken first, so that no writer changes the file while it is read. A
//! reader shares the lock with other readers, and opens the file read-only. The file stays
//! unchanged whatever is found: even a torn slot is repaired only by the first commit of a device
//! opened for writing.

use crate::device::OpenMode;
use crate::image::backing::{Backing, FileBacking};
use crate::image::error::ImageError;
use crate::image::format::{HEADER_COPY_OFFSET, Header, HeaderError, LEDGER_OFFSET, MAGIC};
use crate::image::ledger::{Ledger, ReadError};
use crate::lock::{self, LockError};
use crate::sync::Arc;
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
    pub(crate) mode: OpenMode,
}

/// Reads the header of the image at `path`, which another process may have open.
///
/// # Errors
/// [`ImageError`] if there is no image.
pub fn inspect(path: &Path) -> Result<Header, ImageError> {
    let file = plain_file(path, OpenOptions::new().read(true))?;
    header(path, &FileBacking::new(file))
}

/// True if the file at `path` begins like an image, sound or not, and so must not be overwritten.
/// Either copy of the header is sufficient.
pub fn is_image(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let file = path.metadata().is_ok_and(|found| found.is_file()).then(|| File::open(path));
    let Some(Ok(file)) = file else { return false };
    let mut begin = [0; MAGIC.len()];
    [0, HEADER_COPY_OFFSET].into_iter().any(|at| file.read_exact_at(&mut begin, at).is_ok() && begin == MAGIC)
}

/// Opens and locks the image at `path`; for reading if this process has no write permission.
pub(crate) fn open(path: &Path, mode: OpenMode, kept_max: u64) -> Result<Opened, ImageError> {
    if mode == OpenMode::Reading {
        return open_to_read(path);
    }
    let file = match plain_file(path, OpenOptions::new().read(true).write(true)) {
        Err(ImageError::Io { source, .. }) if may_be_read(&source) => return open_to_read(path),
        file => file?,
    };
    lock(path, &file, OpenMode::Writing)?;
    open_backing(path, Arc::new(FileBacking::new(file)), OpenMode::Writing, kept_max)
}

fn open_to_read(path: &Path) -> Result<Opened, ImageError> {
    let file = plain_file(path, OpenOptions::new().read(true))?;
    lock(path, &file, OpenMode::Reading)?;
    open_backing(path, Arc::new(FileBacking::new(file)), OpenMode::Reading, 0)
}

/// True if a file that cannot be opened for writing may still be readable.
fn may_be_read(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn lock(path: &Path, file: &File, mode: OpenMode) -> Result<(), ImageError> {
    lock::lock(file, mode).map_err(|error| match error {
        LockError::Held(held) => ImageError::Locked { path: path.to_owned(), held },
        LockError::Os(source) => ImageError::Io { path: path.to_owned(), doing: "locking", source },
    })
}

/// Reads the image in `backing`; messages use `path` as its name. Reset zones keep at most
/// `kept_max` bytes allocated.
pub(crate) fn open_backing(
    path: &Path,
    backing: Arc<dyn Backing>,
    mode: OpenMode,
    kept_max: u64,
) -> Result<Opened, ImageError> {
    let header = header(path, &*backing)?;
    let (ledger, states) = Ledger::read(backing.clone(), &header, kept_max).map_err(|e| match e {
        ReadError::Io(source) => {
            ImageError::Io { path: path.to_owned(), doing: "reading zone states", source }
        }
        ReadError::Page { page, fault } => ImageError::Page { path: path.to_owned(), page, fault },
    })?;
    Ok(Opened { path: path.to_owned(), header, backing, ledger, states, mode })
}

fn plain_file(path: &Path, options: &OpenOptions) -> Result<File, ImageError> {
    let io = |source| ImageError::Io { path: path.to_owned(), doing: "opening", source };
    // Checked before opening, because opening a FIFO or a device may block or have side effects.
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
