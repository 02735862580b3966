//! The file beside the drive that holds the metadata store.
//!
//! The file begins with a block that says which file system it belongs to; pieces follow it. It is locked while it is open,
//! and nothing is ever made over a file that is there.

use super::error::BackendError;
use super::segment::StoreFile;
use super::{Damage, Uuid};
use crate::BLOCK_BYTES;
use crate::format::{VERSION, crc32c};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_io::device::OpenMode;
use zonal_io::image::backing::{Backing, FileBacking};
use zonal_io::lock::{self, LockError};

const MAGIC: [u8; 8] = *b"zonal-db";

/// The block at the start of the file of the file system `uuid`.
pub(crate) fn header(uuid: &Uuid) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    block[..8].copy_from_slice(&MAGIC);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    block[16..32].copy_from_slice(uuid);
    let end = block.len() - 4;
    let sum = crc32c(&block[..end]);
    block[end..].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Checks the block at the start of a file.
fn check(block: &[u8], uuid: &Uuid) -> Result<(), Damage> {
    let block: &[u8; BLOCK_BYTES as usize] = block.try_into().map_err(|_| Damage::Missing("the header"))?;
    let (body, sum) = block.split_at(block.len() - 4);
    if body[..8] != MAGIC {
        return Err(Damage::Magic);
    }
    if sum != crc32c(body).to_le_bytes() {
        return Err(Damage::Checksum);
    }
    match u32::from_le_bytes([body[8], body[9], body[10], body[11]]) {
        VERSION if body[16..32] == *uuid => Ok(()),
        VERSION => Err(Damage::Uuid),
        other => Err(Damage::Version(other)),
    }
}

/// Makes the file at `path` for the file system `uuid`, readable by its owner only.
///
/// # Errors
/// [`BackendError::Exists`], or the operating system's.
pub(crate) fn create(path: &Path, uuid: &Uuid) -> Result<StoreFile, BackendError> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => BackendError::Exists { path: path.to_owned() },
        _ => BackendError::File { path: path.to_owned(), doing: "making the file", source },
    })?;
    lock(&file, path, OpenMode::Writing)?;
    begin(&file, path, uuid).inspect_err(|_| {
        // It was made just now and has nothing in it.
        let _ = std::fs::remove_file(path);
    })?;
    Ok(store_file(file, path))
}

/// Opens the file at `path`, which has to be the file system `uuid`'s.
///
/// # Errors
/// [`BackendError::InUse`], [`BackendError::NotOurs`], or the operating system's; then not a byte was changed.
pub(crate) fn open(path: &Path, uuid: &Uuid, mode: OpenMode) -> Result<StoreFile, BackendError> {
    let failed = |doing| move |source| BackendError::File { path: path.to_owned(), doing, source };
    let file = OpenOptions::new().read(true).write(mode == OpenMode::Writing).open(path);
    let file = file.map_err(failed("opening the file"))?;
    lock(&file, path, mode)?;
    let mut block = Vec::new();
    (&file).take(u64::from(BLOCK_BYTES)).read_to_end(&mut block).map_err(failed("reading the header"))?;
    check(&block, uuid).map_err(|damage| BackendError::NotOurs { path: path.to_owned(), damage })?;
    Ok(store_file(file, path))
}

/// Locks the file at `path`, which is about to be replaced by new metadata of the file system `uuid`. `None` if there is none.
/// The file is locked until what is returned is dropped.
///
/// # Errors
/// [`BackendError::InUse`]; [`BackendError::NotOurs`] if there is something in it, and neither the first block nor a head of the
/// log says that it is this file system's; or the operating system's.
pub(crate) fn lock_to_replace(path: &Path, uuid: &Uuid) -> Result<Option<File>, BackendError> {
    let failed = |doing| move |source| BackendError::File { path: path.to_owned(), doing, source };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed("opening the file"))?,
    };
    let not_ours = |damage| BackendError::NotOurs { path: path.to_owned(), damage };
    let is_file = |file: &File| Ok(Some(file.metadata()?).filter(std::fs::Metadata::is_file));
    let Some(there) = is_file(&file).map_err(failed("looking at the file"))? else {
        return Err(not_ours(Damage::Missing("a file of metadata")));
    };
    lock(&file, path, OpenMode::Writing)?;
    if there.len() == 0 {
        return Ok(Some(file));
    }
    let mut block = vec![0; BLOCK_BYTES as usize];
    let mut reader = io::BufReader::with_capacity(1 << 20, &file);
    let mut first = None;
    loop {
        match reader.read_exact(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read.map_err(failed("reading the file"))?,
        }
        let damage = match first {
            None => check(&block, uuid).err(),
            Some(_) if super::log::is_in_file_of(&block, uuid) => None,
            some => some,
        };
        match damage {
            None => return Ok(Some(file)),
            Some(damage @ (Damage::Uuid | Damage::Version(_))) if first.is_none() => {
                return Err(not_ours(damage));
            }
            Some(damage) => first = first.or(Some(damage)),
        }
    }
    Err(not_ours(first.unwrap_or(Damage::Missing("the header"))))
}

/// What a file without a name is called in messages.
const IN_BACKING: &str = "the metadata beside the drive";

impl StoreFile {
    /// Makes a file for the file system `uuid` of bytes that no other owner has.
    ///
    /// # Errors
    /// The backing's.
    pub fn create(backing: Arc<dyn Backing>, uuid: &Uuid) -> Result<StoreFile, BackendError> {
        let file = StoreFile { backing, path: PathBuf::from(IN_BACKING) };
        let begun = file.backing.set_len(u64::from(BLOCK_BYTES));
        let begun = begun.and_then(|()| file.backing.write_at(&header(uuid), 0));
        begun.and_then(|()| file.backing.sync()).map_err(file.failed("making the file"))?;
        Ok(file)
    }

    /// Opens a file in bytes that no other owner has.
    ///
    /// # Errors
    /// [`BackendError::NotOurs`], or the backing's.
    pub fn over(backing: Arc<dyn Backing>, uuid: &Uuid) -> Result<StoreFile, BackendError> {
        let file = StoreFile { backing, path: PathBuf::from(IN_BACKING) };
        let mut block = vec![0; BLOCK_BYTES as usize];
        file.backing.read_at(&mut block, 0).map_err(file.failed("reading the header"))?;
        check(&block, uuid).map_err(|damage| BackendError::NotOurs { path: file.path.clone(), damage })?;
        Ok(file)
    }
}

fn store_file(file: File, path: &Path) -> StoreFile {
    StoreFile { backing: Arc::new(FileBacking::new(file)), path: path.to_owned() }
}

fn lock(file: &File, path: &Path, mode: OpenMode) -> Result<(), BackendError> {
    lock::lock(file, mode).map_err(|error| match error {
        LockError::Held(held) => BackendError::InUse { path: path.to_owned(), held },
        other => BackendError::File {
            path: path.to_owned(),
            doing: "locking the file",
            source: io::Error::other(other),
        },
    })
}

/// Writes the header, and makes the file and its name durable.
fn begin(file: &File, path: &Path, uuid: &Uuid) -> Result<(), BackendError> {
    let failed = |doing| move |source| BackendError::File { path: path.to_owned(), doing, source };
    file.write_all_at(&header(uuid), 0).map_err(failed("writing the header"))?;
    file.sync_all().map_err(failed("syncing the file"))?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|d| d.sync_all()).map_err(failed("syncing its directory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const UUID: Uuid = [7; 16];

    #[test]
    fn existing_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        std::fs::write(&path, b"precious").unwrap();
        assert!(matches!(create(&path, &UUID), Err(BackendError::Exists { .. })));
        assert!(matches!(open(&path, &UUID, OpenMode::Writing), Err(BackendError::NotOurs { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn file_open_for_writing_is_locked_private_and_one_file_systems() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let first = create(&path, &UUID).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [OpenMode::Reading, OpenMode::Writing] {
            assert!(matches!(open(&path, &UUID, mode), Err(BackendError::InUse { .. })));
        }
        drop(first);
        let other = open(&path, &[8; 16], OpenMode::Writing);
        assert!(matches!(other, Err(BackendError::NotOurs { damage: Damage::Uuid, .. })));
        let readers = [OpenMode::Reading; 2].map(|mode| open(&path, &UUID, mode).unwrap());
        let refused = open(&path, &UUID, OpenMode::Writing).err().unwrap().to_string();
        let own = format!("process {} (this one)", std::process::id());
        assert!(refused.ends_with(&format!("rows: in use for reading by {own}")), "{refused}");
        drop(readers);
        drop(open(&path, &UUID, OpenMode::Writing).unwrap());
    }

    #[test]
    fn header_with_any_byte_changed_or_of_another_version_is_refused() {
        let whole = header(&UUID);
        assert_eq!(check(&whole, &UUID), Ok(()));
        for at in 0..whole.len() {
            let mut block = whole.clone();
            block[at] ^= 0x10;
            assert!(check(&block, &UUID).is_err(), "byte {at}");
        }
        assert_eq!(check(&whole[..100], &UUID), Err(Damage::Missing("the header")));
    }
}
