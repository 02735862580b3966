//! A database in a file beside the drive.
//!
//! The file begins with a block that says which file system it belongs to. It is [locked](zonal_io::lock) while it is open:
//! by one writer, or by readers. Nothing is ever made over a file that is there.

use super::error::BackendError;
use super::header::Header;
use super::over::Over;
use super::{Damage, Uuid};
use crate::BLOCK_BYTES;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use zonal_io::device::OpenMode;
use zonal_io::image::backing::FileBacking;
use zonal_io::lock::{self, LockError};

/// Makes and opens such files.
pub enum FileBeside {}

impl FileBeside {
    /// Makes the file at `path` for the file system `uuid`, readable by its owner only.
    ///
    /// # Errors
    /// [`BackendError::Exists`], or the operating system's.
    pub fn create(path: &Path, uuid: Uuid) -> Result<Over, BackendError> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => BackendError::Exists { path: path.to_owned() },
            _ => BackendError::File { path: path.to_owned(), doing: "making the file", source },
        })?;
        lock(&file, path, OpenMode::Writing)?;
        let header = Header { uuid, sequence: 1, len: 0, blocks: 0 };
        begin(&file, path, &header).inspect_err(|_| {
            // It was made just now and has nothing in it.
            let _ = std::fs::remove_file(path);
        })?;
        Ok(over(file))
    }

    /// Opens the file at `path`, which has to be the file system `uuid`'s.
    ///
    /// # Errors
    /// [`BackendError::InUse`], [`BackendError::NotOurs`], or the operating system's; then not a byte was changed.
    pub fn open(path: &Path, uuid: Uuid) -> Result<Over, BackendError> {
        FileBeside::open_for(OpenMode::Writing, path, uuid)
    }

    /// The same for reading: others may read it too, and writing to it fails.
    ///
    /// # Errors
    /// As [`FileBeside::open`].
    pub fn open_to_read(path: &Path, uuid: Uuid) -> Result<Over, BackendError> {
        FileBeside::open_for(OpenMode::Reading, path, uuid)
    }

    fn open_for(mode: OpenMode, path: &Path, uuid: Uuid) -> Result<Over, BackendError> {
        let failed = |doing| move |source| BackendError::File { path: path.to_owned(), doing, source };
        let file = OpenOptions::new().read(true).write(mode == OpenMode::Writing).open(path);
        let file = file.map_err(failed("opening the file"))?;
        lock(&file, path, mode)?;
        let mut block = Vec::new();
        (&file).take(u64::from(BLOCK_BYTES)).read_to_end(&mut block).map_err(failed("reading the header"))?;
        let ours = |damage: Damage| BackendError::NotOurs { path: path.to_owned(), damage };
        Header::parse(&block, &uuid).map_err(ours)?;
        Ok(over(file))
    }
}

fn over(file: File) -> Over {
    Over::new(Arc::new(FileBacking::new(file)), u64::from(BLOCK_BYTES))
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
fn begin(file: &File, path: &Path, header: &Header) -> Result<(), BackendError> {
    let failed = |doing| move |source| BackendError::File { path: path.to_owned(), doing, source };
    file.write_all_at(&header.emit(), 0).map_err(failed("writing the header"))?;
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
    fn file_that_is_there_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        std::fs::write(&path, b"precious").unwrap();
        assert!(matches!(FileBeside::create(&path, UUID), Err(BackendError::Exists { .. })));
        assert!(matches!(FileBeside::open(&path, UUID), Err(BackendError::NotOurs { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn open_file_is_locked_private_and_one_file_systems() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let first = FileBeside::create(&path, UUID).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(FileBeside::open(&path, UUID), Err(BackendError::InUse { .. })));
        assert!(matches!(FileBeside::open_to_read(&path, UUID), Err(BackendError::InUse { .. })));
        drop(first);
        let readers = [FileBeside::open_to_read(&path, UUID), FileBeside::open_to_read(&path, UUID)]
            .map(Result::unwrap);
        let refused = FileBeside::open(&path, UUID).err().unwrap().to_string();
        let own = format!("process {} (this one) has it for reading", std::process::id());
        assert!(refused.ends_with(&format!("rows: is open elsewhere: {own}")), "{refused}");
        drop(readers);
        let other = FileBeside::open(&path, [8; 16]);
        assert!(matches!(other, Err(BackendError::NotOurs { damage: Damage::Uuid, .. })));
        drop(FileBeside::open(&path, UUID).unwrap());
    }

    #[test]
    fn rows_are_there_when_the_file_is_opened_again() {
        const TABLE: redb::TableDefinition<'_, u64, &str> = redb::TableDefinition::new("t");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let db = redb::Builder::new().create_with_backend(FileBeside::create(&path, UUID).unwrap()).unwrap();
        let change = db.begin_write().unwrap();
        change.open_table(TABLE).unwrap().insert(3, "three").unwrap();
        change.commit().unwrap();
        drop(db);
        let db = redb::Builder::new().create_with_backend(FileBeside::open(&path, UUID).unwrap()).unwrap();
        let table = redb::ReadableDatabase::begin_read(&db).unwrap().open_table(TABLE).unwrap();
        assert_eq!(table.get(3).unwrap().unwrap().value(), "three");
    }
}
