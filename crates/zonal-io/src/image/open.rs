//! Opening an image: lock, check and read, without changing it.
//!
//! The [lock](crate::lock) is taken first, so that no writer changes the file while it is read. A
//! reader shares the lock with other readers, and opens the file read-only. The file stays
//! unchanged whatever is found: even a torn slot is repaired only by the first commit of a device
//! opened for writing.
//!
//! An image in several files has its zone states in the first. All files are locked, so that two
//! images cannot write to the same part.

use crate::device::OpenMode;
use crate::image::backing::{Backing, FileBacking, Parts};
use crate::image::error::ImageError;
use crate::image::format::{
    HEADER_COPY_OFFSET, Header, HeaderError, LEDGER_OFFSET, MAGIC, PART_HEAD_BYTES, PART_MAGIC, PartError,
    PartHead, Split,
};
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
    let file = FileBacking::new(plain_file(path, OpenOptions::new().read(true))?);
    let header = header(path, &file)?;
    check_first_len(path, &file, &header)?;
    Ok(header)
}

/// Files of the image at `path`, which may be open elsewhere. They are moved, copied and removed
/// together.
///
/// # Errors
/// [`ImageError`], if there is no image.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let parts = 1..inspect(path)?.split().map_or(1, |split| split.files());
    Ok([path.to_owned()].into_iter().chain(parts.map(|index| part_path(path, index))).collect())
}

/// Path of part `index`, from 1, of the image at `path`: in the directory of its first file, with
/// links resolved.
pub fn part_path(path: &Path, index: u32) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part{index}"));
    path.with_file_name(name)
}

/// True if the file at `path` begins like an image or a part of one, sound or not, and so must not
/// be overwritten. Either copy of the header is sufficient.
pub fn is_image(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let file = path.metadata().is_ok_and(|found| found.is_file()).then(|| File::open(path));
    let Some(Ok(file)) = file else { return false };
    let mut begin = [0; MAGIC.len()];
    [0, HEADER_COPY_OFFSET]
        .into_iter()
        .any(|at| file.read_exact_at(&mut begin, at).is_ok() && [MAGIC, PART_MAGIC].contains(&begin))
}

/// Opens and locks the image at `path`; for reading if this process has no write permission.
pub(crate) fn open(path: &Path, mode: OpenMode, kept_max: u64) -> Result<Opened, ImageError> {
    match open_as(path, mode, kept_max) {
        Err(ImageError::Io { source, .. }) if mode == OpenMode::Writing && may_be_read(&source) => {
            open_as(path, OpenMode::Reading, kept_max)
        }
        opened => opened,
    }
}

fn open_as(path: &Path, mode: OpenMode, kept_max: u64) -> Result<Opened, ImageError> {
    let kept_max = if mode == OpenMode::Reading { 0 } else { kept_max };
    let file = FileBacking::new(locked(path, mode)?);
    let header = header(path, &file)?;
    check_first_len(path, &file, &header)?;
    match header.split() {
        None => open_backing(path, Arc::new(file), mode, kept_max),
        Some(split) => {
            let mut files = vec![file];
            for index in 1..split.files() {
                files.push(open_part(path, mode, &header, &split, index)?);
            }
            open_backing(path, Arc::new(Parts::new(split, files)), mode, kept_max)
        }
    }
}

/// Opens and locks a file.
fn locked(path: &Path, mode: OpenMode) -> Result<File, ImageError> {
    let file = plain_file(path, OpenOptions::new().read(true).write(mode == OpenMode::Writing))?;
    lock(path, &file, mode)?;
    Ok(file)
}

/// Opens, locks and checks part `index`, from 1, of the image at `path`.
fn open_part(
    path: &Path,
    mode: OpenMode,
    header: &Header,
    split: &Split,
    index: u32,
) -> Result<FileBacking, ImageError> {
    let path = part_path(path, index);
    let files = split.files();
    let fault = |fault| ImageError::Part { path: path.clone(), fault };
    let file = match locked(&path, mode) {
        Err(ImageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(fault(PartError::Missing { files }));
        }
        file => FileBacking::new(file?),
    };
    let mut bytes = [0; PART_HEAD_BYTES];
    match file.read_at(&mut bytes, 0) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(fault(PartError::Foreign)),
        read => read.map_err(|source| ImageError::Io {
            path: path.clone(),
            doing: "reading the head of the part",
            source,
        })?,
    }
    PartHead { creation: header.creation, index, files }.check(&bytes).map_err(fault)?;
    check_len(&path, &file, split.file_len(index))?;
    Ok(file)
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
    check_len(path, &*backing, file_len(&header))?;
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
    Header::parse(&bytes).map_err(fault)
}

/// Length of the image.
fn file_len(header: &Header) -> u64 {
    header.layout().file_len().expect("a parsed header's file ends below 2^63")
}

/// Checks the length of the first or only file.
fn check_first_len(path: &Path, file: &FileBacking, header: &Header) -> Result<(), ImageError> {
    let expected = header.split().map_or_else(|| file_len(header), |split| split.file_len(0));
    check_len(path, file, expected)
}

fn check_len(path: &Path, backing: &dyn Backing, expected: u64) -> Result<(), ImageError> {
    let io = |source| ImageError::Io { path: path.to_owned(), doing: "reading the length", source };
    match backing.len().map_err(io)? {
        found if found == expected => Ok(()),
        found => Err(ImageError::Length { path: path.to_owned(), found, expected }),
    }
}
