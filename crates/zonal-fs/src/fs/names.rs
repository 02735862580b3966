//! Names: directories, links, attributes. Each call changes rows under the lock. The rows that it looks at have been looked at before,
//! without the lock: [`look`](super::look).
//!
//! # Positions
//! A directory lists its names in two orders: by their bytes, and by position. A position is a number that rises with each name
//! that is made in the directory. It is never given again, so that a lister can stop after any position and continue there,
//! whatever has changed meanwhile, and after a restart.
//!
//! A name has two rows: the entry has the file and the position, and the row of the position has the name. The directory's own
//! row has the next position. A file's row has the position of its first name, not the name, which would be there a third time.
//!
//! # What a rename does to positions
//! - A file that is renamed within its directory keeps its position. A lister then sees the file once, under one of its
//!   names; a program that renames each file that it lists comes to an end.
//! - A name that is replaced keeps its own position, because the name was there the whole time. So do two names that are
//!   exchanged.
//! - A name that comes from another directory is a new one.

use super::core::Core;
use super::create::{next_position, note_name, put_name};
use super::destroy::End;
use super::error::FsError;
use super::node::attributes;
use crate::format::{Attributes, Entry, FileKind, Position, RowError, is_name, key};
use crate::store::View;
use std::collections::HashSet;
use std::ops::ControlFlow;

pub use crate::format::NAME_MAX;

/// The root's number.
pub const ROOT: u64 = 1;

/// Longest target of a symbolic link, in bytes: Linux follows no longer one.
pub const TARGET_MAX: usize = 4095;

/// Deepest path that is looked up: damaged rows may say that a directory is in itself.
const DEPTH_MAX: usize = 128;

/// What a new file is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device file.
    pub rdev: u32,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
}

impl NewFile {
    /// A file of `kind` with these permissions, of user and group 0.
    pub fn new(kind: FileKind, mode: u16) -> NewFile {
        NewFile { kind, mode, uid: 0, gid: 0, rdev: 0, target: Vec::new() }
    }
}

/// What a rename does if the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rename {
    /// It takes the place of the file there.
    #[default]
    Replace,
    /// It fails.
    KeepOther,
    /// Both files change their names.
    Exchange,
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    match name {
        _ if is_name(name) => Ok(()),
        [] | b"." | b".." => Err(FsError::Invalid("this cannot be a name")),
        _ if name.len() > NAME_MAX => Err(FsError::NameTooLong),
        _ => Err(FsError::Invalid("a name has neither / nor zeroes")),
    }
}

/// An error if no name is that long.
pub(super) fn check_length(name: &[u8]) -> Result<(), FsError> {
    if name.len() <= NAME_MAX { Ok(()) } else { Err(FsError::NameTooLong) }
}

pub(super) fn check_target(target: &[u8]) -> Result<(), FsError> {
    match target.len() {
        0 => Err(FsError::Invalid("a symbolic link has a target")),
        1..=TARGET_MAX => Ok(()),
        _ => Err(FsError::TargetTooLong),
    }
}

/// The entry of a row whose key has a name that can be one.
pub(crate) fn named(key: &[u8], value: &[u8]) -> Result<Entry, RowError> {
    match is_name(key::parts(key).1) {
        true => Entry::decode(key, value),
        false => Err(RowError { key: key.to_vec(), what: "this cannot be a name" }),
    }
}

/// The name at a position of a directory; `None` if there is none.
pub(crate) fn name_at(rows: &impl View, directory: u64, position: Position) -> Option<Vec<u8>> {
    rows.get(&key::position(directory, position)).ok()?
}

/// The path of a file from the root, by the directory and name of each file on it; `None` if one of them cannot be read.
pub(crate) fn path(ino: u64, mut place: impl FnMut(u64) -> Option<(u64, Vec<u8>)>) -> Option<Vec<u8>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != ROOT {
        if names.len() == DEPTH_MAX {
            return None;
        }
        let (parent, name) = place(at)?;
        names.push(name);
        at = parent;
    }
    names.reverse();
    Some(names.join(&b'/'))
}

impl Core {
    /// Attributes of a file as they are now; its size counts writes in flight.
    pub(super) fn attributes(&mut self, ino: u64) -> Result<Attributes, FsError> {
        self.in_memory(ino).map_or_else(|| attributes(&self.rows, ino), Ok)
    }

    /// The same of a file in memory.
    pub(super) fn in_memory(&mut self, ino: u64) -> Option<Attributes> {
        self.nodes.attributes(ino)
    }

    /// Changes attributes of a file in its row, and in memory if the file is there.
    pub(super) fn update<R>(
        &mut self,
        ino: u64,
        change: impl FnOnce(&mut Attributes) -> R,
    ) -> Result<R, FsError> {
        if let Some(mut node) = self.nodes.here(ino) {
            let result = change(&mut node.attributes);
            node.is_ahead_of_row = false;
            self.rows.put(key::inode(ino), node.attributes.encode());
            return Ok(result);
        }
        let mut attributes = attributes(&self.rows, ino)?;
        let result = change(&mut attributes);
        self.rows.put(key::inode(ino), attributes.encode());
        Ok(result)
    }

    fn directory(&mut self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = self.attributes(ino)?;
        if attributes.kind == FileKind::Directory { Ok(attributes) } else { Err(FsError::NotDirectory) }
    }

    pub(super) fn entry(&self, parent: u64, name: &[u8]) -> Result<Option<Entry>, FsError> {
        check_length(name)?;
        let key = key::entry(parent, name);
        let value = self.rows.get(&key)?;
        Ok(value.map(|value| Entry::decode(&key, &value)).transpose()?)
    }

    /// The position of a new name, if it can be made: no file has it, and the directory is not removed.
    fn check_free(&mut self, parent: u64, name: &[u8]) -> Result<Position, FsError> {
        check_name(name)?;
        let position = next_position(&self.directory(parent)?)?;
        if self.entry(parent, name)?.is_some() { Err(FsError::Exists) } else { Ok(position) }
    }

    /// Writes the two rows of a name.
    fn enter(&mut self, parent: u64, name: &[u8], entry: Entry, now: i64) -> Result<(), FsError> {
        put_name(self.rows.draft(), parent, name, entry);
        self.update(parent, |directory| note_name(directory, entry, now))
    }

    /// Deletes the two rows of a name.
    fn strike(&mut self, parent: u64, name: &[u8], entry: Entry, now: i64) -> Result<(), FsError> {
        self.rows.delete(key::entry(parent, name));
        self.rows.delete(key::position(parent, entry.position));
        self.update(parent, |directory| {
            directory.links = directory.links.saturating_sub(u32::from(entry.kind == FileKind::Directory));
            (directory.mtime, directory.ctime) = (now, now);
        })
    }

    /// Makes a file without a name, and opens it. It is gone after it is closed, or after a power cut, unless it was given a
    /// name.
    pub(super) fn create_unnamed(&mut self, new: &NewFile, now: i64) -> Result<u64, FsError> {
        if new.kind != FileKind::File {
            return Err(FsError::Invalid("only a file with data can do without a name"));
        }
        let place = (ROOT, Position::START);
        let ino = self.names.add(self.rows.draft(), place, new, now, |file| file.links = 0)?;
        self.rows.put_new(key::orphan(ino), Vec::new());
        self.nodes.get(&self.rows, ino)?.handles += 1;
        Ok(ino)
    }

    pub(super) fn link(&mut self, ino: u64, parent: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        let attributes = self.linkable(ino)?;
        let position = self.check_free(parent, name)?;
        self.add_link(&attributes, (ino, parent, name), position, now)
    }

    /// Gives a file a name that another may have, which loses it.
    pub(super) fn link_over(&mut self, ino: u64, parent: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        let attributes = self.linkable(ino)?;
        self.directory(parent)?;
        let position = match self.entry(parent, name)? {
            Some(there) if there.ino == ino => return Ok(()),
            Some(there) if there.kind == FileKind::Directory => return Err(FsError::IsDirectory),
            Some(there) => {
                let end = self.plan_drop(there.ino)?;
                self.strike(parent, name, there, now)?;
                self.drop_link(there.ino, end, now)?;
                // The name was there the whole time.
                there.position
            }
            None => self.check_free(parent, name)?,
        };
        self.add_link(&attributes, (ino, parent, name), position, now)
    }

    /// Attributes of a file that can have another name.
    fn linkable(&mut self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = self.attributes(ino)?;
        if attributes.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if attributes.links == 0 && !self.is_used(ino) {
            return Err(FsError::NotFound);
        }
        if attributes.links == u32::MAX {
            return Err(FsError::TooManyLinks);
        }
        Ok(attributes)
    }

    fn add_link(
        &mut self,
        attributes: &Attributes,
        (ino, parent, name): (u64, u64, &[u8]),
        position: Position,
        now: i64,
    ) -> Result<(), FsError> {
        self.enter(parent, name, Entry { ino, kind: attributes.kind, position }, now)?;
        let is_first = attributes.links == 0;
        if is_first {
            self.rows.delete(key::orphan(ino));
        }
        self.update(ino, |file| {
            file.links += 1;
            file.ctime = now;
            if is_first {
                (file.parent, file.position) = (parent, position);
            }
        })
    }

    /// Removes a name. The file is removed with its last name, unless it is open or known.
    pub(super) fn unlink(&mut self, parent: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?.ok_or(FsError::NotFound)?;
        if entry.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        let end = self.plan_drop(entry.ino)?;
        self.strike(parent, name, entry, now)?;
        self.drop_link(entry.ino, end, now)
    }

    pub(super) fn rmdir(&mut self, parent: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?.ok_or(FsError::NotFound)?;
        if entry.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if !self.is_empty(entry.ino)? {
            return Err(FsError::NotEmpty);
        }
        let end = self.plan_drop(entry.ino)?;
        self.strike(parent, name, entry, now)?;
        self.drop_link(entry.ino, end, now)
    }

    fn is_empty(&self, directory: u64) -> Result<bool, FsError> {
        let (from, end) = key::entries(directory);
        let mut is_empty = true;
        self.rows.scan(&from, &end, |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    /// All that can fail when a file loses a name, while nothing is changed yet. What goes with the file, if this is its last name and
    /// no caller uses it.
    fn plan_drop(&mut self, ino: u64) -> Result<Option<End>, FsError> {
        let file = self.attributes(ino)?;
        let is_last = file.kind == FileKind::Directory || file.links <= 1;
        if is_last && !self.is_used(ino) { self.plan_end(ino).map(Some) } else { Ok(None) }
    }

    /// A file has lost a name, as was planned.
    fn drop_link(&mut self, ino: u64, end: Option<End>, now: i64) -> Result<(), FsError> {
        if let Some(end) = end {
            return self.carry_out(end);
        }
        let left = self.update(ino, |file| {
            file.links = if file.kind == FileKind::Directory { 0 } else { file.links.saturating_sub(1) };
            file.ctime = now;
            file.links
        })?;
        if left > 0 {
            return Ok(());
        }
        self.rows.put(key::orphan(ino), Vec::new());
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (to_parent, to_name): (u64, &[u8]),
        how: Rename,
        now: i64,
    ) -> Result<(), FsError> {
        check_name(to_name)?;
        self.directory(parent)?;
        if self.directory(to_parent)?.links == 0 {
            return Err(FsError::NotFound);
        }
        let entry = self.entry(parent, name)?.ok_or(FsError::NotFound)?;
        let there = self.entry(to_parent, to_name)?;
        match (how, there) {
            (Rename::KeepOther, Some(_)) => return Err(FsError::Exists),
            (Rename::Exchange, None) => return Err(FsError::NotFound),
            (_, Some(there)) if there.ino == entry.ino => return Ok(()),
            _ => {}
        }
        if entry.kind == FileKind::Directory {
            self.check_not_below(entry.ino, to_parent)?;
        }
        // Rows that cannot be read are found before anything is changed.
        self.attributes(entry.ino)?;
        if let (Rename::Exchange, Some(there)) = (how, there) {
            if there.kind == FileKind::Directory {
                self.check_not_below(there.ino, parent)?;
            }
            self.attributes(there.ino)?;
            self.strike(to_parent, to_name, there, now)?;
            self.strike(parent, name, entry, now)?;
            self.settle_at(parent, name, Entry { position: entry.position, ..there }, now)?;
            return self.settle_at(to_parent, to_name, Entry { position: there.position, ..entry }, now);
        }
        let position = match there {
            Some(there) => there.position,
            None if parent == to_parent => entry.position,
            None => next_position(&self.directory(to_parent)?)?,
        };
        if let Some(there) = there {
            match (entry.kind == FileKind::Directory, there.kind == FileKind::Directory) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                (true, true) if !self.is_empty(there.ino)? => return Err(FsError::NotEmpty),
                _ => {}
            }
            let end = self.plan_drop(there.ino)?;
            self.strike(to_parent, to_name, there, now)?;
            self.drop_link(there.ino, end, now)?;
        }
        self.strike(parent, name, entry, now)?;
        self.settle_at(to_parent, to_name, Entry { position, ..entry }, now)
    }

    /// Gives a file this name in place of the name that it was moved from.
    fn settle_at(&mut self, parent: u64, name: &[u8], entry: Entry, now: i64) -> Result<(), FsError> {
        self.enter(parent, name, entry, now)?;
        self.update(entry.ino, |file| {
            file.ctime = now;
            (file.parent, file.position) = (parent, entry.position);
        })
    }

    /// A directory cannot be moved into itself.
    fn check_not_below(&mut self, directory: u64, mut place: u64) -> Result<(), FsError> {
        let mut passed = HashSet::new();
        while place != ROOT {
            if place == directory {
                return Err(FsError::Invalid("a directory cannot be moved into itself"));
            }
            // Damaged rows may lead in a circle.
            if !passed.insert(place) {
                return Err(
                    RowError { key: key::inode(place), what: "the directory lies within itself" }.into()
                );
            }
            place = self.attributes(place)?.parent;
        }
        if directory == ROOT { Err(FsError::Invalid("the root cannot be moved")) } else { Ok(()) }
    }
}
