//! Names: each file gets the path in its newest header, unless a newer file has it.
//!
//! Positions follow the order in which names are made here, since the zones do not record the old
//! ones. File handles from before the rebuild are stale, because all files get the rebuild's
//! generation.

use crate::format::{Attributes, Entry, FileKind, Position, key};
use crate::fs::ROOT;
use crate::fs::names::check_name;
use crate::fsck::repair::{FOUND, directory};
use crate::store::Row;
use std::collections::{BTreeMap, HashMap};

/// Permissions of a rebuilt file. The owner is unknown, so nobody else gets access.
const MODE: u16 = 0o600;

/// A file that needs a name.
pub(super) struct UnlinkedFile<'a> {
    pub(super) ino: u64,
    pub(super) born: u16,
    pub(super) size: u64,
    /// Number of blocks in its extents.
    pub(super) blocks: u64,
    /// Sequence of the newest header that names it.
    pub(super) sequence: u64,
    pub(super) path: &'a [u8],
}

struct Directory {
    attributes: Attributes,
    name: Vec<u8>,
}

/// The directory tree under construction.
pub(super) struct Tree {
    names: HashMap<(u64, Vec<u8>), Entry>,
    directories: BTreeMap<u64, Directory>,
    /// Next file number.
    next: u64,
    /// Generation of the opening that the rebuild counts as.
    generation: u32,
    now: i64,
    pub(super) lost_and_found: u64,
}

impl Tree {
    /// A tree with a root. `next` has to be above all numbers of files.
    pub(super) fn new(next: u64, generation: u32, now: i64) -> Tree {
        let (names, directories) = (HashMap::new(), BTreeMap::new());
        let mut tree = Tree { names, directories, next, generation, now, lost_and_found: 0 };
        let attributes = dated(directory(ROOT, Position::START), now);
        tree.directories.insert(ROOT, Directory { attributes, name: Vec::new() });
        tree
    }

    /// Next file number.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Number of directories.
    pub(super) fn directories_count(&self) -> u64 {
        self.directories.len() as u64
    }

    /// Enters a file under its path, or in `lost+found`, and returns its rows.
    pub(super) fn name(&mut self, file: &UnlinkedFile<'_>) -> [Row; 3] {
        let (parent, name) = self.place(file.path).unwrap_or_else(|| self.lost(file.ino));
        let entry = self.take_name(parent, &name, file.ino, FileKind::File);
        let attributes = Attributes {
            born: file.born,
            generation: self.generation,
            size: file.size,
            blocks: file.blocks,
            ..Attributes::new(FileKind::File, MODE, parent, entry.position, self.now)
        };
        let [entry, position] = rows_of(parent, &name, &entry);
        [(key::inode(file.ino), attributes.encode()), entry, position]
    }

    /// Adds a name at the next position of a directory.
    fn take_name(&mut self, parent: u64, name: &[u8], ino: u64, kind: FileKind) -> Entry {
        let parent_of = self.directories.get_mut(&parent).expect("a parent is a directory of the tree");
        let directory = &mut parent_of.attributes;
        let entry = Entry { ino, kind, position: directory.next_position };
        directory.next_position = directory.next_position.next();
        self.names.insert((parent, name.to_vec()), entry);
        entry
    }

    /// Rows of all directories.
    pub(super) fn directories(&self) -> impl Iterator<Item = Row> {
        self.directories.iter().flat_map(|(&ino, Directory { attributes, name })| {
            let parent = attributes.parent;
            let entry = self.names.get(&(parent, name.clone())).filter(|_| ino != ROOT);
            let entry = entry.map(|entry| rows_of(parent, name, entry));
            std::iter::once((key::inode(ino), attributes.encode())).chain(entry.into_iter().flatten())
        })
    }

    /// Directory and name of a path, if it is valid and not taken. Creates missing directories.
    fn place(&mut self, path: &[u8]) -> Option<(u64, Vec<u8>)> {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        if names.iter().any(|name| check_name(name).is_err()) {
            return None;
        }
        let (name, above) = names.split_last()?;
        let parent = above.iter().try_fold(ROOT, |at, name| self.enter(at, name))?;
        let is_reserved = parent == ROOT && *name == FOUND;
        let is_free = !is_reserved && !self.names.contains_key(&(parent, name.to_vec()));
        is_free.then(|| (parent, name.to_vec()))
    }

    /// Looks up a directory by name, or creates it. `None` if the name belongs to a file.
    fn enter(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        if let Some(Entry { ino, kind, .. }) = self.names.get(&(parent, name.to_vec())) {
            return (*kind == FileKind::Directory).then_some(*ino);
        }
        let ino = self.next;
        self.next += 1;
        let Entry { position, .. } = self.take_name(parent, name, ino, FileKind::Directory);
        let (born, generation) = (self.generation as u16, self.generation);
        let attributes = Attributes { born, generation, ..dated(directory(parent, position), self.now) };
        self.directories.insert(ino, Directory { attributes, name: name.to_vec() });
        self.directories.get_mut(&parent)?.attributes.links += 1;
        Some(ino)
    }

    /// A name in `lost+found`, for a file with an unknown or taken path.
    fn lost(&mut self, ino: u64) -> (u64, Vec<u8>) {
        self.lost_and_found += 1;
        // No file can take this name, because `place` reserves it.
        let found = self.enter(ROOT, FOUND).expect("no file is called so");
        let numbered = (0u32..).map(|n| if n == 0 { format!("{ino}") } else { format!("{ino}.{n}") });
        let mut free =
            numbered.map(String::into_bytes).filter(|name| !self.names.contains_key(&(found, name.clone())));
        (found, free.next().expect("there are more names than files"))
    }
}

fn dated(attributes: Attributes, now: i64) -> Attributes {
    Attributes { atime: now, mtime: now, ctime: now, btime: now, ..attributes }
}

/// The two rows of a name.
fn rows_of(parent: u64, name: &[u8], entry: &Entry) -> [Row; 2] {
    let position = (key::position(parent, entry.position), name.to_vec());
    [(key::entry(parent, name), entry.encode()), position]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(tree: &mut Tree, ino: u64, path: &str) -> String {
        let file = UnlinkedFile { ino, born: 0, size: 0, blocks: 0, sequence: 0, path: path.as_bytes() };
        let [_, (entry, _), (position, positioned)] = tree.name(&file);
        let (mut at, name) = key::parts(&entry);
        assert_eq!((key::position_parts(&position).0, &positioned[..]), (at, name));
        let mut names = vec![name.to_vec()];
        while at != ROOT {
            let directory = &tree.directories[&at];
            names.insert(0, directory.name.clone());
            at = directory.attributes.parent;
        }
        String::from_utf8(names.join(&b'/')).unwrap()
    }

    #[test]
    fn path_that_is_taken_or_none_leads_to_lost_and_found() {
        let mut tree = Tree::new(100, 5, 7);
        assert_eq!(named(&mut tree, 2, "a/b"), "a/b");
        assert_eq!(named(&mut tree, 3, "a/b"), "lost+found/3");
        assert_eq!(named(&mut tree, 4, "a"), "lost+found/4");
        assert_eq!(named(&mut tree, 5, "a/b/c"), "lost+found/5");
        assert_eq!(named(&mut tree, 6, ""), "lost+found/6");
        assert_eq!(named(&mut tree, 7, "a//b"), "lost+found/7");
        assert_eq!(named(&mut tree, 8, "../b"), "lost+found/8");
        assert_eq!(named(&mut tree, 9, "lost+found"), "lost+found/9");
        assert_eq!(named(&mut tree, 10, "lost+found/11"), "lost+found/11");
        assert_eq!(named(&mut tree, 11, ""), "lost+found/11.1");
        assert_eq!(tree.lost_and_found, 8);
        assert_eq!(tree.directories[&ROOT].attributes.links, 4, "two directories in it");
        assert_eq!(tree.next(), 102);
    }
}
