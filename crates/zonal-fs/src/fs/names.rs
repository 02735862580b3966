//! Names: directories, links, attributes. Each call changes rows under the lock, after the rows
//! that it reads have been prefetched without it: [`look`](super::look).
//!
//! # Positions
//! A directory lists its names in two orders: by their bytes, and by position. A position is a
//! number that increases with each name created in the directory. It is never reused, so a listing
//! can stop after any position and resume there, despite any changes and even after a remount.
//!
//! A name has two rows: the entry has the file and the position, and the row of the position has
//! the name. The directory's own row has the next position. A file's row has the position of its
//! first name instead of a third copy of the name.
//!
//! # Renames and positions
//! - A file renamed within its directory keeps its position. A listing shows it once, under one of
//!   its names, and a program that renames each listed file terminates.
//! - A replaced name keeps its own position, because the name existed the whole time. So do two
//!   exchanged names.
//! - A name moved from another directory is a new one.

use super::core::Core;
use super::create::{next_position, note_name, put_name};
use super::destroy::Deletion;
use super::error::FsError;
use super::node::attributes;
use crate::format::{Attributes, Entry, FileKind, Position, RowError, is_name, key};
use crate::store::View;
use std::collections::HashSet;
use std::ops::ControlFlow;

pub use crate::format::NAME_MAX;

/// Number of the root.
pub const ROOT: u64 = 1;

/// Maximum length of a symbolic link's target, in bytes. Linux follows no longer ones.
pub const TARGET_MAX: usize = 4095;

/// Maximum depth of a path. Damaged rows may put a directory inside itself.
const DEPTH_MAX: usize = 128;

/// Properties of a new file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device file.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

impl NewFile {
    /// Creates a description of a file of `kind` with these permissions, owned by user and group 0.
    pub fn new(kind: FileKind, mode: u16) -> NewFile {
        NewFile { kind, mode, uid: 0, gid: 0, rdev: 0, target: Vec::new() }
    }
}

/// Treatment of an existing new name by a rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rename {
    /// Replace the file there.
    #[default]
    Replace,
    /// Fail.
    KeepOther,
    /// Exchange the names of both files.
    Exchange,
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    match name {
        _ if is_name(name) => Ok(()),
        [] | b"." | b".." => Err(FsError::Invalid("invalid name")),
        _ if name.len() > NAME_MAX => Err(FsError::NameTooLong),
        _ => Err(FsError::Invalid("invalid name: it contains a slash or a zero byte")),
    }
}

/// Returns an error if a name is too long.
pub(super) fn check_length(name: &[u8]) -> Result<(), FsError> {
    if name.len() <= NAME_MAX { Ok(()) } else { Err(FsError::NameTooLong) }
}

pub(super) fn check_target(target: &[u8]) -> Result<(), FsError> {
    match target.len() {
        0 => Err(FsError::Invalid("empty symbolic link target")),
        1..=TARGET_MAX => Ok(()),
        _ => Err(FsError::TargetTooLong),
    }
}

/// Decodes the entry of a row, and checks that its key contains a valid name.
pub(crate) fn named(key: &[u8], value: &[u8]) -> Result<Entry, RowError> {
    match is_name(key::parts(key).1) {
        true => Entry::decode(key, value),
        false => Err(RowError { key: key.to_vec(), what: "invalid name" }),
    }
}

/// Returns the name at a position of a directory; `None` if there is none.
pub(crate) fn name_at(rows: &impl View, directory: u64, position: Position) -> Option<Vec<u8>> {
    rows.get(&key::position(directory, position)).ok()?
}

/// Returns the path of a file from the root, given the directory and name of each file on it;
/// `None` if one of them is unreadable.
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
    /// Returns the current attributes of a file. The size includes writes in flight.
    pub(super) fn attributes(&mut self, ino: u64) -> Result<Attributes, FsError> {
        self.in_memory(ino).map_or_else(|| attributes(&self.rows, ino), Ok)
    }

    /// Returns the current attributes of a file in memory.
    pub(super) fn in_memory(&mut self, ino: u64) -> Option<Attributes> {
        self.nodes.attributes(ino)
    }

    /// Changes attributes of a file in its row, and also in memory if the file is there.
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

    /// Checks that a name can be created, because it is free and its directory not removed, and
    /// returns its position.
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
    fn remove_entry(&mut self, parent: u64, name: &[u8], entry: Entry, now: i64) -> Result<(), FsError> {
        self.rows.delete(key::entry(parent, name));
        self.rows.delete(key::position(parent, entry.position));
        self.update(parent, |directory| {
            directory.links = directory.links.saturating_sub(u32::from(entry.kind == FileKind::Directory));
            (directory.mtime, directory.ctime) = (now, now);
        })
    }

    /// Creates an unnamed file and opens it. It is deleted when it is closed, or by a power cut,
    /// unless it has been given a name.
    pub(super) fn create_unnamed(&mut self, new: &NewFile, now: i64) -> Result<u64, FsError> {
        if new.kind != FileKind::File {
            return Err(FsError::Invalid("only a regular file can be unnamed"));
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

    /// Gives a file a name, replacing the file that has it.
    pub(super) fn link_over(&mut self, ino: u64, parent: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        let attributes = self.linkable(ino)?;
        self.directory(parent)?;
        let position = match self.entry(parent, name)? {
            Some(there) if there.ino == ino => return Ok(()),
            Some(there) if there.kind == FileKind::Directory => return Err(FsError::IsDirectory),
            Some(there) => {
                let end = self.plan_drop(there.ino)?;
                self.remove_entry(parent, name, there, now)?;
                self.drop_link(there.ino, end, now)?;
                // The name existed the whole time.
                there.position
            }
            None => self.check_free(parent, name)?,
        };
        self.add_link(&attributes, (ino, parent, name), position, now)
    }

    /// Attributes of a file that can be given another name.
    fn linkable(&mut self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = self.attributes(ino)?;
        if attributes.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if attributes.links == 0 && !self.is_used(ino) {
            return Err(FsError::NotFound);
        }
        let losses = self.nodes.here(ino).and_then(|node| node.losses);
        if let Some((_, why)) = losses.filter(|_| attributes.links == 0) {
            return Err(FsError::Write { ino, why });
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

    /// Removes a name. The file is destroyed with its last name, unless it is open or referenced.
    pub(super) fn unlink(&mut self, parent: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?.ok_or(FsError::NotFound)?;
        if entry.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        let end = self.plan_drop(entry.ino)?;
        self.remove_entry(parent, name, entry, now)?;
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
        self.remove_entry(parent, name, entry, now)?;
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

    /// Does everything that can fail when a file loses a name, before anything is changed. Returns
    /// the rows to delete if this is its last name and no caller uses the file.
    fn plan_drop(&mut self, ino: u64) -> Result<Option<Deletion>, FsError> {
        let file = self.attributes(ino)?;
        let is_last = file.kind == FileKind::Directory || file.links <= 1;
        if is_last && !self.is_used(ino) { self.plan_deletion(ino).map(Some) } else { Ok(None) }
    }

    /// Removes a link of a file as planned.
    fn drop_link(&mut self, ino: u64, end: Option<Deletion>, now: i64) -> Result<(), FsError> {
        if let Some(end) = end {
            return self.apply_deletion(end);
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
        // Fail on unreadable rows before anything is changed.
        self.attributes(entry.ino)?;
        if let (Rename::Exchange, Some(there)) = (how, there) {
            if there.kind == FileKind::Directory {
                self.check_not_below(there.ino, parent)?;
            }
            self.attributes(there.ino)?;
            self.remove_entry(to_parent, to_name, there, now)?;
            self.remove_entry(parent, name, entry, now)?;
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
            self.remove_entry(to_parent, to_name, there, now)?;
            self.drop_link(there.ino, end, now)?;
        }
        self.remove_entry(parent, name, entry, now)?;
        self.settle_at(to_parent, to_name, Entry { position, ..entry }, now)
    }

    /// Gives a moved file its new name.
    fn settle_at(&mut self, parent: u64, name: &[u8], entry: Entry, now: i64) -> Result<(), FsError> {
        self.enter(parent, name, entry, now)?;
        self.update(entry.ino, |file| {
            file.ctime = now;
            (file.parent, file.position) = (parent, entry.position);
        })
    }

    /// Checks that a directory is not moved into itself.
    fn check_not_below(&mut self, directory: u64, mut place: u64) -> Result<(), FsError> {
        let mut passed = HashSet::new();
        while place != ROOT {
            if place == directory {
                return Err(FsError::Invalid("a directory cannot be moved into itself"));
            }
            // Damaged rows may form a cycle.
            if !passed.insert(place) {
                return Err(
                    RowError { key: key::inode(place), what: "the directory is inside itself" }.into()
                );
            }
            place = self.attributes(place)?.parent;
        }
        if directory == ROOT { Err(FsError::Invalid("the root cannot be moved")) } else { Ok(()) }
    }
}
