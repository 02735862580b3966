//! Reads of rows without the core's lock: those of read-only calls, and prefetches for changes.
//!
//! Reading a row that is not in memory may take the drive seconds. So a thread reads it before it
//! takes the lock, to keep other threads from waiting. A read-only call is then done. A call that
//! changes something takes the lock and reads again. By then the row is in the cache, unless
//! it has been evicted, or in a layer in memory.
//! [`Statistics::locked_reads`](super::Statistics::locked_reads) counts the rare misses.
//!
//! # Consistency of two rows
//! Each row is read as of some moment of the call. The lookup of a name that is moved meanwhile
//! follows the move.

use super::core::{CoreGuard, Shared};
use super::destroy::{attributes_of_piece, end_of_piece};
use super::error::FsError;
use super::map;
use super::names::{ROOT, check_length, name_at, named, path};
use super::node;
use crate::format::{Attributes, Entry, FileKind, Position, RowError, key, positioned};
use crate::store::View;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

impl Shared {
    /// Returns the file of this name in a directory.
    pub(super) fn lookup(&self, parent: u64, name: &[u8]) -> Result<u64, FsError> {
        if !matches!(name, b"." | b"..")
            && let Some(entry) = self.entry(parent, name)?
        {
            return Ok(entry.ino);
        }
        let directory = self.directory(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(directory.parent),
            _ => Err(FsError::NotFound),
        }
    }

    /// Returns the file at a path from the root.
    pub(super) fn resolve(&self, path: &[u8]) -> Result<u64, FsError> {
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |at, name| self.lookup(at, name))
    }

    /// Returns the current attributes of a file. The size includes writes in flight.
    pub(super) fn attributes(&self, ino: u64) -> Result<Attributes, FsError> {
        if let Some(there) = self.nodes.attributes(ino) {
            return Ok(there);
        }
        let row = node::attributes(&self.reader, ino);
        // If a writer has loaded the file into memory meanwhile, that version is newer.
        self.nodes.attributes(ino).map_or(row, Ok)
    }

    /// Returns the row of a directory.
    fn directory(&self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = node::attributes(&self.reader, ino)?;
        if attributes.kind == FileKind::Directory { Ok(attributes) } else { Err(FsError::NotDirectory) }
    }

    pub(super) fn entry(&self, parent: u64, name: &[u8]) -> Result<Option<Entry>, FsError> {
        check_length(name)?;
        let key = key::entry(parent, name);
        let value = self.reader.get(&key)?;
        Ok(value.map(|value| Entry::decode(&key, &value)).transpose()?)
    }

    /// Calls `show` for the names of a directory after `after`, in byte order, until it breaks.
    pub(super) fn list(
        &self,
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
        self.reader.scan(&from, &end, |key, value| match named(key, value) {
            Ok(entry) => show(key::parts(key).1, entry),
            Err(e) => {
                damaged = Some(e);
                ControlFlow::Break(())
            }
        })?;
        damaged.map_or(Ok(()), |e| Err(e.into()))
    }

    /// Calls `show` for the names of a directory after a position, in order of their positions,
    /// until it breaks.
    pub(super) fn list_from(
        &self,
        ino: u64,
        after: Position,
        mut show: impl FnMut(Position, &[u8], Entry) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.directory(ino)?;
        let (from, end) = (key::position(ino, after.next()), key::position(ino, Position::END));
        let mut failed = None;
        self.reader.scan(&from, &end, |key, value| match self.at_position(key, value) {
            Ok(Some((name, entry))) => show(entry.position, &name, entry),
            Ok(None) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Returns the name at a position, and its entry; `None` if it was removed meanwhile.
    fn at_position(&self, key: &[u8], value: &[u8]) -> Result<Option<(Vec<u8>, Entry)>, FsError> {
        let (directory, position) = key::position_parts(key);
        let mut name = positioned(key, value)?.to_vec();
        loop {
            let version = self.names.version(directory);
            let entry = |name: &[u8]| {
                let entry = self.entry(directory, name)?;
                Ok::<_, FsError>(entry.filter(|entry| entry.position == position))
            };
            if let Some(entry) = entry(&name)? {
                return Ok(Some((name, entry)));
            }
            // A rename within the directory keeps the position.
            match self.reader.get(key)? {
                None => return Ok(None),
                Some(now) if now == name => {
                    // After two renames, back and forth, the name may have differed when its entry
                    // was read. If the entry is still missing and no name was changed meanwhile,
                    // the two rows are inconsistent.
                    if let Some(entry) = entry(&name)? {
                        return Ok(Some((name, entry)));
                    }
                    if self.names.version(directory) == version {
                        let what = "no entry of this name has this position";
                        return Err(RowError { key: key.to_vec(), what }.into());
                    }
                }
                Some(now) => name = positioned(key, &now)?.to_vec(),
            }
        }
    }

    /// Returns the target of a symbolic link.
    pub(super) fn target(&self, ino: u64) -> Result<Vec<u8>, FsError> {
        if node::attributes(&self.reader, ino)?.kind != FileKind::Symlink {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        let key = key::target(ino);
        Ok(self.reader.get(&key)?.ok_or(RowError { key, what: "missing" })?)
    }

    /// Returns the value of an extended attribute.
    pub(super) fn attribute(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, FsError> {
        if let Some(value) = self.reader.get(&key::attribute(ino, name))? {
            return Ok(value);
        }
        node::attributes(&self.reader, ino)?;
        Err(FsError::NoAttribute)
    }

    /// Returns the names of all extended attributes.
    pub(super) fn list_attributes(&self, ino: u64) -> Result<Vec<Vec<u8>>, FsError> {
        node::attributes(&self.reader, ino)?;
        let (from, end) = key::attributes(ino);
        let mut names = Vec::new();
        self.reader.scan(&from, &end, |key, _| {
            names.push(key::parts(key).1.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// True if any file may have an extended attribute of this name. Reads at most `rows_max` rows.
    pub(super) fn may_have_attribute(&self, name: &[u8], rows_max: usize) -> Result<bool, FsError> {
        let (from, end) = key::all_attributes();
        let (mut rows, mut is_found) = (0, false);
        self.reader.scan(&from, &end, |key, _| {
            rows += 1;
            is_found = rows > rows_max || key::parts(key).1 == name;
            if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_found)
    }

    /// Returns the path of a file by its first name; `None` if a directory on it is unreadable.
    pub(super) fn path(&self, ino: u64) -> Option<Vec<u8>> {
        path(ino, |ino| {
            let Attributes { parent, position, .. } = node::attributes(&self.reader, ino).ok()?;
            Some((parent, name_at(&self.reader, parent, position)?))
        })
    }
}

/// Prefetches of rows that a change will read under the lock. Missing and unreadable rows are left
/// for the change to report.
impl Shared {
    /// Locks the core, after prefetching the row of a file.
    pub(super) fn lock_with_file(&self, ino: u64) -> CoreGuard<'_> {
        let mut core = self.lock();
        if core.nodes.here(ino).is_none() {
            drop(core);
            self.prefetch_file(ino);
            core = self.lock();
        }
        core
    }

    /// Prefetches the row of a file.
    pub(super) fn prefetch_file(&self, ino: u64) {
        let _ = self.reader.get(&key::inode(ino));
    }

    /// Prefetches a name that may exist, its directory, and its file.
    pub(super) fn prefetch_name(&self, parent: u64, name: &[u8]) -> Option<Entry> {
        self.prefetch_file(parent);
        let entry = self.entry(parent, name).ok()??;
        self.prefetch_file(entry.ino);
        Some(entry)
    }

    /// Prefetches a name about to be removed, and everything deleted with it if it is the last.
    pub(super) fn prefetch_deletion(&self, parent: u64, name: &[u8]) {
        if let Some(entry) = self.prefetch_name(parent, name) {
            if entry.kind == FileKind::Directory {
                self.prefetch_entries(entry.ino);
            }
            self.prefetch_all_of(entry.ino);
        }
    }

    /// Prefetches the two names of a rename, and everything deleted with the file of the second.
    pub(super) fn prefetch_rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let moved = [self.prefetch_name(from.0, from.1), self.prefetch_name(to.0, to.1)];
        self.prefetch_deletion(to.0, to.1);
        if moved.iter().flatten().any(|entry| entry.kind == FileKind::Directory) {
            self.prefetch_path(from.0);
            self.prefetch_path(to.0);
        }
    }

    /// Prefetches a file and one of its extended attributes.
    pub(super) fn prefetch_attribute(&self, ino: u64, name: &[u8]) {
        self.prefetch_file(ino);
        let _ = self.reader.get(&key::attribute(ino, name));
    }

    /// Prefetches the first name of a directory.
    fn prefetch_entries(&self, directory: u64) {
        let (from, end) = key::entries(directory);
        let _ = self.reader.scan(&from, &end, |_, _| ControlFlow::Break(()));
    }

    /// Prefetches a file, with the first pieces of its attributes and map.
    pub(super) fn prefetch_all_of(&self, ino: u64) {
        self.prefetch_file(ino);
        let _ = attributes_of_piece(&self.reader, ino);
        let _ = end_of_piece(&self.reader, ino, 0);
    }

    /// Prefetches the directories up to the root. Damaged rows may form a cycle.
    pub(super) fn prefetch_path(&self, directory: u64) {
        let (mut passed, mut at) = (HashSet::new(), directory);
        while at != ROOT && passed.insert(at) {
            let Ok(attributes) = node::attributes(&self.reader, at) else { return };
            at = attributes.parent;
        }
    }

    /// True if a file and its whole map are in memory.
    pub(super) fn has_map_in_memory(&self, ino: u64) -> bool {
        let attributes = self.nodes.attributes(ino);
        attributes.is_some_and(|file| self.reader.has_all_extents(ino, file.blocks))
    }

    /// Prefetches the extents of a file that touch `blocks`, and the preceding one.
    pub(super) fn prefetch_map(&self, ino: u64, blocks: &Range<u64>) {
        if self.reader.kept_extents(ino, blocks).is_none() {
            let _ = map::extents_to_keep(&self.reader, ino, blocks);
        }
    }
}
