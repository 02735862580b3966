//! Opens a file by its name, and makes it if there is none: no other caller comes in between.

use super::FileSystem;
use super::core::Core;
use super::error::FsError;
use super::known::FoundFile;
use super::names::NewFile;
use super::open_file::OpenFile;
use crate::format::FileKind;
use crate::waiter::Wait;

/// What is done if the name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IfThere {
    /// The file that has it is opened, as `O_CREAT` asks for.
    #[default]
    Open,
    /// The call fails, as `O_CREAT | O_EXCL` asks for.
    Fail,
}

/// A file that was opened, and whether the call made it.
#[derive(Debug)]
pub struct OpenedFile {
    /// Its handle.
    pub file: OpenFile,
    /// Its attributes at that moment.
    pub attributes: crate::format::Attributes,
    /// The call made it.
    pub is_new: bool,
}

impl FileSystem {
    /// Opens the file of a name, and makes it if there is none. `new` is a regular file. The file that is there may be of any kind but
    /// a directory; `new` says nothing about it.
    ///
    /// A file that was made by another caller in the same moment is there. Its handle keeps the file: [`FileSystem::know`] finds
    /// it, whatever happens to its name.
    ///
    /// # Errors
    /// [`FsError::Exists`] with [`IfThere::Fail`], [`FsError::IsDirectory`], [`FsError::NotDirectory`]; those of
    /// [`FileSystem::create`]. A file that is there is opened also where space or the mount lets none be made.
    pub fn open_or_create(
        &self,
        waiter: &dyn Wait,
        (parent, name): (u64, &[u8]),
        new: &NewFile,
        if_there: IfThere,
    ) -> Result<OpenedFile, FsError> {
        if new.kind != FileKind::File {
            return Err(FsError::Invalid("only a file with data is opened when it is made"));
        }
        self.0.look_at_name(parent, name);
        let there = self.0.lock().open_there(parent, name, if_there)?;
        let (found, is_new) = match there {
            Some(found) => (found, false),
            None => {
                // Another thread may have made it meanwhile.
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
    /// Opens the file that has a name; `None` if none has it.
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

    /// Counts a handle of a file.
    fn open_counted(&mut self, ino: u64) -> Result<FoundFile, FsError> {
        self.nodes.get(&self.rows, ino)?.handles += 1;
        let attributes = self.attributes(ino)?;
        Ok(FoundFile { ino, attributes })
    }
}
