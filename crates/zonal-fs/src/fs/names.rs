//! Names: directories, links, attributes. All of it in rows, at once, without waiting for the drive.

use super::core::Core;
use super::error::FsError;
use super::node::attributes;
use crate::format::{Attributes, Entry, FILES_END, Kind, RowError, key};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// The root's number.
pub const ROOT: u64 = 1;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// Longest target of a symbolic link, in bytes: nothing follows a longer one.
pub const TARGET_MAX: usize = 4095;

/// Directories within each other of which a path tells: rows may lie that one is in itself.
const DEPTH_MAX: usize = 128;

/// What a new file is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device file.
    pub rdev: u32,
    /// Where a symbolic link points.
    pub target: Vec<u8>,
}

impl NewFile {
    /// A file of `kind` with these permissions, of user and group 0.
    pub fn new(kind: Kind, mode: u16) -> NewFile {
        NewFile { kind, mode, uid: 0, gid: 0, rdev: 0, target: Vec::new() }
    }
}

/// Attributes to be changed; what is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read, in nanoseconds since 1970.
    pub atime: Option<u64>,
    /// Last change of its data, in nanoseconds since 1970.
    pub mtime: Option<u64>,
    /// How long its data is expected to live: an index of [`Lifetime`](crate::space::Lifetime).
    pub lifetime: Option<u8>,
}

/// What a rename does where the new name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rename {
    /// The file there goes.
    #[default]
    Replace,
    /// It fails.
    KeepOther,
    /// Both change places.
    Exchange,
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    match name {
        [] | b"." | b".." => Err(FsError::Invalid("this cannot be a name")),
        _ if name.len() > NAME_MAX => Err(FsError::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => {
            Err(FsError::Invalid("a name has neither / nor zeroes"))
        }
        _ => Ok(()),
    }
}

fn check_target(target: &[u8]) -> Result<(), FsError> {
    match target.len() {
        0 => Err(FsError::Invalid("a symbolic link points somewhere")),
        1..=TARGET_MAX => Ok(()),
        _ => Err(FsError::TooLarge),
    }
}

/// The file of a row with a name that it can have.
pub(crate) fn named(key: &[u8], value: &[u8]) -> Result<Entry, RowError> {
    match check_name(key::parts(key).1) {
        Ok(()) => Entry::decode(key, value),
        Err(_) => Err(RowError { key: key.to_vec(), what: "this cannot be a name" }),
    }
}

/// Where a file is in the tree, from the root, with its name, by what `attributes` says of each on the way; `None` if that
/// cannot be told.
pub(crate) fn path(ino: u64, mut attributes: impl FnMut(u64) -> Option<Attributes>) -> Option<Vec<u8>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != ROOT {
        if names.len() == DEPTH_MAX {
            return None;
        }
        let Attributes { parent, name, .. } = attributes(at)?;
        names.push(name);
        at = parent;
    }
    names.reverse();
    Some(names.join(&b'/'))
}

impl Core {
    /// Attributes of a file as they are now, with what is on its way.
    pub(super) fn attributes(&mut self, ino: u64) -> Result<Attributes, FsError> {
        match self.nodes.here(ino) {
            Some(node) => Ok(Attributes { size: node.size, ..node.attributes.clone() }),
            None => attributes(&self.rows, ino),
        }
    }

    /// Changes attributes of a file, in its row and wherever else they are.
    pub(super) fn update<R>(
        &mut self,
        ino: u64,
        change: impl FnOnce(&mut Attributes) -> R,
    ) -> Result<R, FsError> {
        if let Some(node) = self.nodes.here(ino) {
            let result = change(&mut node.attributes);
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
        if attributes.kind == Kind::Directory { Ok(attributes) } else { Err(FsError::NotDirectory) }
    }

    pub(super) fn entry(&self, parent: u64, name: &[u8]) -> Result<Option<Entry>, FsError> {
        let key = key::entry(parent, name);
        let value = self.rows.get(&key)?;
        Ok(value.map(|value| Entry::decode(&key, &value)).transpose()?)
    }

    pub(super) fn lookup(&mut self, parent: u64, name: &[u8]) -> Result<u64, FsError> {
        let directory = self.directory(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(directory.parent),
            _ => Ok(self.entry(parent, name)?.ok_or(FsError::NotFound)?.ino),
        }
    }

    /// A name that is free, in a directory that is one and still there.
    fn check_free(&mut self, parent: u64, name: &[u8]) -> Result<(), FsError> {
        check_name(name)?;
        if self.directory(parent)?.links == 0 {
            return Err(FsError::NotFound);
        }
        if self.entry(parent, name)?.is_some() { Err(FsError::Exists) } else { Ok(()) }
    }

    fn enter(&mut self, parent: u64, name: &[u8], entry: Entry, now: u64) -> Result<(), FsError> {
        self.rows.put(key::entry(parent, name), entry.encode());
        self.update(parent, |directory| {
            directory.links = directory.links.saturating_add(u32::from(entry.kind == Kind::Directory));
            (directory.mtime, directory.ctime) = (now, now);
        })
    }

    fn strike(&mut self, parent: u64, name: &[u8], entry: Entry, now: u64) -> Result<(), FsError> {
        self.rows.delete(key::entry(parent, name));
        self.update(parent, |directory| {
            directory.links = directory.links.saturating_sub(u32::from(entry.kind == Kind::Directory));
            (directory.mtime, directory.ctime) = (now, now);
        })
    }

    pub(super) fn create(
        &mut self,
        parent: u64,
        name: &[u8],
        new: &NewFile,
        now: u64,
    ) -> Result<u64, FsError> {
        self.check_free(parent, name)?;
        if new.kind == Kind::Symlink {
            check_target(&new.target)?;
        }
        let ino = self.add(parent, name, new, now)?;
        if new.kind == Kind::Symlink {
            self.rows.put(key::target(ino), new.target.clone());
        }
        self.enter(parent, name, Entry { ino, kind: new.kind }, now)?;
        Ok(ino)
    }

    /// Makes a file without a name, open: it goes when it is closed, or the power, unless it was given one.
    pub(super) fn create_unnamed(&mut self, new: &NewFile, now: u64) -> Result<u64, FsError> {
        if new.kind != Kind::File {
            return Err(FsError::Invalid("only a file with data can do without a name"));
        }
        let ino = self.add(ROOT, b"", new, now)?;
        self.update(ino, |file| file.links = 0)?;
        self.rows.put(key::orphan(ino), Vec::new());
        self.nodes.get(&self.rows, ino)?.handles += 1;
        Ok(ino)
    }

    /// Adds a file that is to have this name; its number.
    fn add(&mut self, parent: u64, name: &[u8], new: &NewFile, now: u64) -> Result<u64, FsError> {
        let ino = self.next_ino;
        if ino >= FILES_END {
            return Err(FsError::Invalid("no number is left for another file"));
        }
        self.next_ino += 1;
        self.rows.put(key::counter("ino"), self.next_ino.to_le_bytes().to_vec());
        let attributes = Attributes {
            kind: new.kind,
            lifetime: 0,
            mode: new.mode,
            born: self.opening(),
            uid: new.uid,
            gid: new.gid,
            links: if new.kind == Kind::Directory { 2 } else { 1 },
            rdev: new.rdev,
            size: if new.kind == Kind::Symlink { new.target.len() as u64 } else { 0 },
            atime: now,
            mtime: now,
            ctime: now,
            parent,
            name: name.to_vec(),
        };
        self.rows.put(key::inode(ino), attributes.encode());
        Ok(ino)
    }

    pub(super) fn link(&mut self, ino: u64, parent: u64, name: &[u8], now: u64) -> Result<(), FsError> {
        let attributes = self.linkable(ino)?;
        self.check_free(parent, name)?;
        self.add_link(&attributes, (ino, parent, name), now)
    }

    /// Gives a file a name that another may have, which loses it.
    pub(super) fn link_over(&mut self, ino: u64, parent: u64, name: &[u8], now: u64) -> Result<(), FsError> {
        let attributes = self.linkable(ino)?;
        self.directory(parent)?;
        match self.entry(parent, name)? {
            Some(there) if there.ino == ino => return Ok(()),
            Some(there) if there.kind == Kind::Directory => return Err(FsError::IsDirectory),
            Some(there) => {
                self.strike(parent, name, there, now)?;
                self.drop_link(there.ino, now)?;
            }
            None => self.check_free(parent, name)?,
        }
        self.add_link(&attributes, (ino, parent, name), now)
    }

    /// Attributes of a file that can have another name.
    fn linkable(&mut self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = self.attributes(ino)?;
        if attributes.kind == Kind::Directory {
            return Err(FsError::IsDirectory);
        }
        let is_open = self.nodes.here(ino).is_some_and(|node| node.handles > 0);
        if attributes.links == 0 && !is_open {
            return Err(FsError::NotFound);
        }
        if attributes.links == u32::MAX {
            return Err(FsError::Invalid("it has as many names as a file can have"));
        }
        Ok(attributes)
    }

    fn add_link(
        &mut self,
        attributes: &Attributes,
        (ino, parent, name): (u64, u64, &[u8]),
        now: u64,
    ) -> Result<(), FsError> {
        self.enter(parent, name, Entry { ino, kind: attributes.kind }, now)?;
        let is_first = attributes.links == 0;
        if is_first {
            self.rows.delete(key::orphan(ino));
        }
        self.update(ino, |file| {
            file.links += 1;
            file.ctime = now;
            if is_first {
                (file.parent, file.name) = (parent, name.to_vec());
            }
        })
    }

    /// Takes a name away; the file goes with its last one, unless it is open.
    pub(super) fn unlink(&mut self, parent: u64, name: &[u8], now: u64) -> Result<(), FsError> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?.ok_or(FsError::NotFound)?;
        if entry.kind == Kind::Directory {
            return Err(FsError::IsDirectory);
        }
        self.strike(parent, name, entry, now)?;
        self.drop_link(entry.ino, now)
    }

    pub(super) fn rmdir(&mut self, parent: u64, name: &[u8], now: u64) -> Result<(), FsError> {
        self.directory(parent)?;
        let entry = self.entry(parent, name)?.ok_or(FsError::NotFound)?;
        if entry.kind != Kind::Directory {
            return Err(FsError::NotDirectory);
        }
        if !self.is_empty(entry.ino)? {
            return Err(FsError::NotEmpty);
        }
        self.strike(parent, name, entry, now)?;
        self.drop_link(entry.ino, now)
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

    fn drop_link(&mut self, ino: u64, now: u64) -> Result<(), FsError> {
        let left = self.update(ino, |file| {
            file.links = if file.kind == Kind::Directory { 0 } else { file.links.saturating_sub(1) };
            file.ctime = now;
            file.links
        })?;
        if left > 0 {
            return Ok(());
        }
        if self.nodes.here(ino).is_some_and(|node| node.handles > 0 || node.is_held) {
            self.rows.put(key::orphan(ino), Vec::new());
            return Ok(());
        }
        self.destroy(ino)
    }

    /// Takes away all rows of a file that has neither a name nor anybody who works with it.
    pub(super) fn destroy(&mut self, ino: u64) -> Result<(), FsError> {
        self.free(ino, &(0..u64::MAX))?;
        let (from, end) = key::attributes(ino);
        let mut keys = vec![key::inode(ino), key::target(ino), key::orphan(ino)];
        self.rows.scan(&from, &end, |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        keys.into_iter().for_each(|key| self.rows.delete(key));
        if let Some(node) = self.nodes.remove(ino) {
            self.forget_gathered(node.gathering);
            node.zone.into_iter().for_each(|zone| self.open.leave(zone));
        }
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (to_parent, to_name): (u64, &[u8]),
        how: Rename,
        now: u64,
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
        if entry.kind == Kind::Directory {
            self.check_not_below(entry.ino, to_parent)?;
        }
        if let (Rename::Exchange, Some(there)) = (how, there) {
            if there.kind == Kind::Directory {
                self.check_not_below(there.ino, parent)?;
            }
            self.strike(to_parent, to_name, there, now)?;
            self.strike(parent, name, entry, now)?;
            self.settle_at(parent, name, there, now)?;
            return self.settle_at(to_parent, to_name, entry, now);
        }
        if let Some(there) = there {
            match (entry.kind == Kind::Directory, there.kind == Kind::Directory) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                (true, true) if !self.is_empty(there.ino)? => return Err(FsError::NotEmpty),
                _ => {}
            }
            self.strike(to_parent, to_name, there, now)?;
            self.drop_link(there.ino, now)?;
        }
        self.strike(parent, name, entry, now)?;
        self.settle_at(to_parent, to_name, entry, now)
    }

    /// The file has this name now, and no longer the one that it was moved from.
    fn settle_at(&mut self, parent: u64, name: &[u8], entry: Entry, now: u64) -> Result<(), FsError> {
        self.enter(parent, name, entry, now)?;
        self.update(entry.ino, |file| {
            file.ctime = now;
            file.parent = parent;
            file.name = name.to_vec();
        })
    }

    /// A directory cannot be moved into itself.
    fn check_not_below(&mut self, directory: u64, mut place: u64) -> Result<(), FsError> {
        let mut passed = HashSet::new();
        while place != ROOT {
            if place == directory {
                return Err(FsError::Invalid("a directory cannot be moved into itself"));
            }
            // Rows that lie lead round and round.
            if !passed.insert(place) {
                return Err(
                    RowError { key: key::inode(place), what: "the directory lies within itself" }.into()
                );
            }
            place = self.attributes(place)?.parent;
        }
        if directory == ROOT { Err(FsError::Invalid("the root cannot be moved")) } else { Ok(()) }
    }

    /// Shows the names of a directory behind `after`, in order, until it is told to break.
    pub(super) fn list(
        &mut self,
        ino: u64,
        after: Option<&[u8]>,
        mut show: impl FnMut(&[u8], Entry) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.directory(ino)?;
        let (mut from, end) = key::entries(ino);
        if let Some(after) = after {
            from = key::entry(ino, after);
            from.push(0);
        }
        let mut damaged = None;
        self.rows.scan(&from, &end, |key, value| match named(key, value) {
            Ok(entry) => show(key::parts(key).1, entry),
            Err(e) => {
                damaged = Some(e);
                ControlFlow::Break(())
            }
        })?;
        damaged.map_or(Ok(()), |e| Err(e.into()))
    }

    pub(super) fn change(&mut self, ino: u64, changes: &Changes, now: u64) -> Result<(), FsError> {
        self.update(ino, |file| {
            file.mode = changes.mode.unwrap_or(file.mode);
            file.uid = changes.uid.unwrap_or(file.uid);
            file.gid = changes.gid.unwrap_or(file.gid);
            file.atime = changes.atime.unwrap_or(file.atime);
            file.mtime = changes.mtime.unwrap_or(file.mtime);
            file.lifetime = changes.lifetime.unwrap_or(file.lifetime);
            file.ctime = now;
        })
    }

    pub(super) fn target(&mut self, ino: u64) -> Result<Vec<u8>, FsError> {
        if self.attributes(ino)?.kind != Kind::Symlink {
            return Err(FsError::Invalid("it is no symbolic link"));
        }
        self.rows.get(&key::target(ino))?.ok_or(FsError::NotFound)
    }

    pub(super) fn attribute(&mut self, ino: u64, name: &[u8]) -> Result<Vec<u8>, FsError> {
        self.attributes(ino)?;
        self.rows.get(&key::attribute(ino, name))?.ok_or(FsError::NoAttribute)
    }

    pub(super) fn list_attributes(&mut self, ino: u64) -> Result<Vec<Vec<u8>>, FsError> {
        self.attributes(ino)?;
        let (from, end) = key::attributes(ino);
        let mut names = Vec::new();
        self.rows.scan(&from, &end, |key, _| {
            names.push(key::parts(key).1.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    pub(super) fn set_attribute(
        &mut self,
        ino: u64,
        name: &[u8],
        value: &[u8],
        now: u64,
    ) -> Result<(), FsError> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        if value.len() > 1 << 16 {
            return Err(FsError::TooLarge);
        }
        self.update(ino, |file| file.ctime = now)?;
        self.rows.put(key::attribute(ino, name), value.to_vec());
        Ok(())
    }

    pub(super) fn remove_attribute(&mut self, ino: u64, name: &[u8], now: u64) -> Result<(), FsError> {
        self.attribute(ino, name)?;
        self.update(ino, |file| file.ctime = now)?;
        self.rows.delete(key::attribute(ino, name));
        Ok(())
    }

    /// Where a directory is in the tree, from the root, without it; nothing if that cannot be told.
    pub(super) fn path(&mut self, directory: u64) -> Option<Vec<u8>> {
        path(directory, |ino| self.attributes(ino).ok())
    }
}
