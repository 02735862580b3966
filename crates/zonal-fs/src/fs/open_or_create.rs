//! Atomically opens a file by name, or creates it if it does not exist.

use super::FileSystem;
use super::core::Core;
use super::error::FsError;
use super::known::FoundFile;
use super::names::NewFile;
use super::open_file::OpenFile;
use crate::format::FileKind;
use crate::waiter::Wait;

/// Treatment of an existing file of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IfThere {
    /// Open it, as for `O_CREAT`.
    #[default]
    Open,
    /// Fail, as for `O_CREAT | O_EXCL`.
    Fail,
}

/// Opened file.
#[derive(Debug)]
pub struct OpenedFile {
    /// Handle of the file.
    pub file: OpenFile,
    /// Attributes at the time of the call.
    pub attributes: crate::format::Attributes,
    /// True if the call created the file.
    pub is_new: bool,
}

impl FileSystem {
    /// Opens a file by name, or creates it as a regular file, as described by `new`, if it does not
    /// exist. An existing file may be of any kind except a directory, and ignores `new`.
    ///
    /// A file created concurrently by another caller counts as existing. The handle keeps the file,
    /// so [`FileSystem::know`] finds it even if its name is removed.
    ///
    /// # Errors
    /// [`FsError::Exists`] with [`IfThere::Fail`], [`FsError::IsDirectory`],
    /// [`FsError::NotDirectory`]; those of [`FileSystem::create`]. An existing file is opened even
    /// if none can be created, for lack of space or on a read-only file system.
    pub fn open_or_create(
        &self,
        waiter: &dyn Wait,
        (parent, name): (u64, &[u8]),
        new: &NewFile,
        if_there: IfThere,
    ) -> Result<OpenedFile, FsError> {
        if new.kind != FileKind::File {
            return Err(FsError::Invalid("only a regular file can be created and opened"));
        }
        self.0.prefetch_name(parent, name);
        let there = self.0.lock().open_there(parent, name, if_there)?;
        let (found, is_new) = match there {
            Some(found) => (found, false),
            None => {
                // Another thread may have created it meanwhile.
                let there = || {
                    let found = self.0.lock().open_there(parent, name, if_there)?;
                    Ok((found.ok_or(FsError::NotFound)?, false))
                };
                let made = |ino| Ok((self.0.lock().open_counted(ino)?, true));
                self.0.create_or(waiter, (parent, name), new, there, made)?
            }
        };
        let FoundFile { ino, attributes } = found;
        Ok(OpenedFile { file: OpenFile::counted(self, ino), attributes, is_new })
    }
}

impl Core {
    /// Opens the file of a name; `None` if it does not exist.
    fn open_there(
        &mut self,
        parent: u64,
        name: &[u8],
        if_there: IfThere,
    ) -> Result<Option<FoundFile>, FsError> {
        match self.entry(parent, name)? {
            None => Ok(None),
            Some(_) if if_there == IfThere::Fail => Err(FsError::Exists),
            Some(entry) if entry.kind == FileKind::Directory => Err(FsError::IsDirectory),
            Some(entry) => self.open_counted(entry.ino).map(Some),
        }
    }

    /// Adds a handle to a file.
    fn open_counted(&mut self, ino: u64) -> Result<FoundFile, FsError> {
        self.nodes.get(&self.rows, ino)?.handles += 1;
        let attributes = self.attributes(ino)?;
        Ok(FoundFile { ino, attributes })
    }
}
