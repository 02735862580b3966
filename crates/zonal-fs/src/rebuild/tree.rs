//! Names: each file where its newest header says that it was, if nobody newer is there.

use crate::format::{Attributes, Entry, Kind, key};
use crate::fs::ROOT;
use crate::fs::names::check_name;
use crate::fsck::repair::{FOUND, directory};
use crate::store::Row;
use std::collections::{BTreeMap, HashMap};

/// What a rebuilt file can be used by: nobody knows whose it was.
const MODE: u16 = 0o600;

/// A file that is to get a name.
pub(super) struct Nameless<'a> {
    pub(super) ino: u64,
    pub(super) born: u16,
    pub(super) size: u64,
    /// The newest header that names it.
    pub(super) sequence: u64,
    pub(super) path: &'a [u8],
}

/// The tree, as it grows.
pub(super) struct Tree {
    names: HashMap<(u64, Vec<u8>), Entry>,
    directories: BTreeMap<u64, Attributes>,
    /// The next number of a file.
    next: u64,
    now: u64,
    pub(super) lost_and_found: u64,
}

impl Tree {
    /// A tree with a root. `next` is above all files' numbers.
    pub(super) fn new(next: u64, now: u64) -> Tree {
        let mut tree =
            Tree { names: HashMap::new(), directories: BTreeMap::new(), next, now, lost_and_found: 0 };
        tree.directories.insert(ROOT, dated(directory(ROOT, Vec::new()), now));
        tree
    }

    /// The next number of a file.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Gives a file its name, or one for those that have lost theirs: its rows.
    pub(super) fn name(&mut self, file: &Nameless<'_>) -> [Row; 2] {
        let (parent, name) = self.place(file.path).unwrap_or_else(|| self.lost(file.ino));
        let entry = Entry { ino: file.ino, kind: Kind::File };
        self.names.insert((parent, name.clone()), entry);
        let attributes = Attributes {
            kind: Kind::File,
            mode: MODE,
            born: file.born,
            links: 1,
            size: file.size,
            ..dated(directory(parent, name.clone()), self.now)
        };
        [(key::inode(file.ino), attributes.encode()), (key::entry(parent, &name), entry.encode())]
    }

    /// The rows of all directories.
    pub(super) fn directories(&self) -> impl Iterator<Item = Row> {
        self.directories.iter().flat_map(|(&ino, attributes)| {
            let entry = Entry { ino, kind: Kind::Directory };
            let name = key::entry(attributes.parent, &attributes.name);
            let name = (ino != ROOT).then(|| (name, entry.encode()));
            std::iter::once((key::inode(ino), attributes.encode())).chain(name)
        })
    }

    /// The directory and name of a path, if it is one and nobody has it; its directories are made.
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

    /// The directory of this name, made if there is none; nothing if a file has it.
    fn enter(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        if let Some(Entry { ino, kind }) = self.names.get(&(parent, name.to_vec())) {
            return (*kind == Kind::Directory).then_some(*ino);
        }
        let ino = self.next;
        self.next += 1;
        self.names.insert((parent, name.to_vec()), Entry { ino, kind: Kind::Directory });
        self.directories.insert(ino, dated(directory(parent, name.to_vec()), self.now));
        self.directories.get_mut(&parent)?.links += 1;
        Some(ino)
    }

    /// A place for a file whose own is not known or taken.
    fn lost(&mut self, ino: u64) -> (u64, Vec<u8>) {
        self.lost_and_found += 1;
        // Files are kept from this name, so that it is a directory's.
        let found = self.enter(ROOT, FOUND).expect("no file is called so");
        let numbered = (0u32..).map(|n| if n == 0 { format!("{ino}") } else { format!("{ino}.{n}") });
        let mut free =
            numbered.map(String::into_bytes).filter(|name| !self.names.contains_key(&(found, name.clone())));
        (found, free.next().expect("there are more names than files"))
    }
}

fn dated(attributes: Attributes, now: u64) -> Attributes {
    Attributes { atime: now, mtime: now, ctime: now, ..attributes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(tree: &mut Tree, ino: u64, path: &str) -> String {
        let file = Nameless { ino, born: 0, size: 0, sequence: 0, path: path.as_bytes() };
        let [_, (entry, _)] = tree.name(&file);
        let (mut at, name) = key::parts(&entry);
        let mut names = vec![name.to_vec()];
        while at != ROOT {
            let directory = &tree.directories[&at];
            names.insert(0, directory.name.clone());
            at = directory.parent;
        }
        String::from_utf8(names.join(&b'/')).unwrap()
    }

    #[test]
    fn path_that_is_taken_or_none_leads_to_lost_and_found() {
        let mut tree = Tree::new(100, 7);
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
        assert_eq!(tree.directories[&ROOT].links, 4, "two directories in it");
        assert_eq!(tree.next(), 102);
    }
}
