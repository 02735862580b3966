//! Listing a directory by position: a lister can stop anywhere and continue, whatever has changed
//! meanwhile.

use crate::common::{device, make_with, reopen, superblock, volume, waiter};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_fs::format::{Attributes, Entry, FileKind, Position, Superblock, key};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::{Backend, Memory};
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, ROOT, Rename};
use zonal_io::volume::Volume;

struct Made {
    volume: Arc<Volume>,
    superblock: Superblock,
    memory: Memory,
    fs: Option<FileSystem>,
}

impl Made {
    fn new() -> Made {
        let volume = volume(device("ram:size=4M,zone_size=256K,blocksize=4096"));
        let (superblock, memory) = (superblock(&volume, 0, 8), Memory::new());
        let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
        Made { volume, superblock, memory, fs: Some(fs) }
    }

    fn fs(&self) -> &FileSystem {
        self.fs.as_ref().unwrap()
    }

    /// Closes and reopens the file system. Unsynced changes are lost.
    fn reopen(&mut self) {
        self.fs = None;
        let (volume, superblock) = (self.volume.clone(), self.superblock.clone());
        self.fs = Some(reopen(volume, superblock, self.memory.clone(), MountOptions::default()).unwrap());
    }

    fn make(&self, parent: u64, name: &str) -> u64 {
        self.fs().create(&waiter(), parent, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap()
    }

    fn rename(&self, from: &str, to: &str, how: Rename) {
        self.fs().rename(&waiter(), (ROOT, from.as_bytes()), (ROOT, to.as_bytes()), how).unwrap();
    }

    fn position_of(&self, parent: u64, name: &str) -> u64 {
        let all = page(self.fs(), parent, Position::START, usize::MAX);
        all.iter().find(|(_, other, _)| other == name).unwrap().0.0
    }
}

/// At most `names` names after a position.
fn page(fs: &FileSystem, directory: u64, after: Position, names: usize) -> Vec<(Position, String, Entry)> {
    let mut page = Vec::new();
    fs.list_from(directory, after, |position, name, entry| {
        page.push((position, String::from_utf8(name.to_vec()).unwrap(), entry));
        if page.len() < names { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .unwrap();
    page
}

/// Position of each name in the root.
fn positions(fs: &FileSystem) -> BTreeMap<String, Position> {
    let page = page(fs, ROOT, Position::START, usize::MAX);
    page.into_iter().map(|(position, name, _)| (name, position)).collect()
}

#[derive(Clone, Debug)]
enum PositionStep {
    Make(u8),
    Remove(u8),
    Rename(u8, u8),
    Exchange(u8, u8),
    /// The lister takes this number of names.
    List(usize),
    Sync,
    /// Closes and reopens the file system, with all changes or only synced ones.
    Reopen {
        synced: bool,
    },
}

fn step() -> impl Strategy<Value = PositionStep> {
    let name = || 0..24u8;
    prop_oneof![
        8 => name().prop_map(PositionStep::Make),
        5 => name().prop_map(PositionStep::Remove),
        3 => (name(), name()).prop_map(|(a, b)| PositionStep::Rename(a, b)),
        2 => (name(), name()).prop_map(|(a, b)| PositionStep::Exchange(a, b)),
        6 => (1..5usize).prop_map(PositionStep::List),
        2 => Just(PositionStep::Sync),
        1 => any::<bool>().prop_map(|synced| PositionStep::Reopen { synced }),
    ]
}

/// A lister, and its progress in the directory.
#[derive(Default)]
struct Lister {
    after: Position,
    shown: Vec<(Position, String)>,
    /// Names that have existed since it started.
    stayed: BTreeSet<String>,
}

impl Lister {
    fn new(names: &BTreeMap<String, u64>) -> Lister {
        Lister { stayed: names.keys().cloned().collect(), ..Lister::default() }
    }

    /// Called at the end: names that stayed were shown once, and no name twice at one position.
    fn check(&self) {
        for name in &self.stayed {
            let times = self.shown.iter().filter(|(_, other)| other == name).count();
            assert_eq!(times, 1, "{name}: {:?}", self.shown);
        }
        assert!(self.shown.is_sorted_by(|a, b| a.0 < b.0), "{:?}", self.shown);
    }
}

proptest! {
    #[test]
    fn names_that_stay_are_shown_once_while_others_come_and_go(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut made = Made::new();
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        let mut synced = names.clone();
        let mut lister = Lister::new(&names);
        let mut full_lists = 0;
        // In the end the lister finishes.
        let end = [PositionStep::List(usize::MAX), PositionStep::List(1)];
        for step in steps.into_iter().chain(end) {
            let name = |n: u8| format!("name-{n}");
            match step {
                PositionStep::Make(n) => {
                    names.entry(name(n)).or_insert_with_key(|name| made.make(ROOT, name));
                }
                PositionStep::Remove(n) => {
                    if names.remove(&name(n)).is_some() {
                        made.fs().unlink(&waiter(), ROOT, name(n).as_bytes()).unwrap();
                    }
                }
                PositionStep::Rename(a, b) if a != b && names.contains_key(&name(a)) => {
                    made.rename(&name(a), &name(b), Rename::Replace);
                    let ino = names.remove(&name(a)).unwrap();
                    names.insert(name(b), ino);
                }
                PositionStep::Exchange(a, b) if names.contains_key(&name(a)) && names.contains_key(&name(b)) => {
                    made.rename(&name(a), &name(b), Rename::Exchange);
                    let (of_a, of_b) = (names[&name(a)], names[&name(b)]);
                    names.insert(name(a), of_b);
                    names.insert(name(b), of_a);
                }
                PositionStep::Rename(..) | PositionStep::Exchange(..) => {}
                PositionStep::List(most) => {
                    let page = page(made.fs(), ROOT, lister.after, most);
                    for (position, name, entry) in &page {
                        prop_assert_eq!(names.get(name), Some(&entry.ino), "{}", name);
                        lister.shown.push((*position, name.clone()));
                        lister.after = *position;
                    }
                    if page.len() < most {
                        lister.check();
                        lister = Lister::new(&names);
                        full_lists += 1;
                    }
                }
                PositionStep::Sync => {
                    made.fs().sync(&waiter()).unwrap();
                    synced = names.clone();
                }
                PositionStep::Reopen { synced: is_synced } => {
                    if is_synced {
                        made.fs().sync(&waiter()).unwrap();
                        synced = names.clone();
                    }
                    let before = positions(made.fs());
                    made.reopen();
                    let after = positions(made.fs());
                    names = page(made.fs(), ROOT, Position::START, usize::MAX)
                        .into_iter()
                        .map(|(_, name, entry)| (name, entry.ino))
                        .collect();
                    // Unsynced changes may be lost, and a name may have its earlier position again.
                    prop_assert!(!is_synced || before == after);
                    lister.stayed.retain(|name| before.get(name) == after.get(name));
                    // There may have been a commit without a sync, but a sync always commits.
                    prop_assert!(!is_synced || names == synced);
                }
            }
            lister.stayed.retain(|name| names.contains_key(name));
        }
        prop_assert!(full_lists > 0);
    }
}

#[test]
fn recreated_name_takes_a_new_position_after_a_restart() {
    let mut made = Made::new();
    made.make(ROOT, "a");
    made.make(ROOT, "b");
    assert_eq!((made.position_of(ROOT, "a"), made.position_of(ROOT, "b")), (3, 4));
    made.fs().unlink(&waiter(), ROOT, b"b").unwrap();
    made.fs().sync(&waiter()).unwrap();
    made.reopen();
    made.make(ROOT, "b");
    assert_eq!(made.position_of(ROOT, "b"), 5, "the last one is not given again");
    let other = made.make(ROOT, "c");
    made.fs().link(&waiter(), other, ROOT, b"d").unwrap();
    assert_eq!((made.position_of(ROOT, "c"), made.position_of(ROOT, "d")), (6, 7));
}

#[test]
fn rename_in_a_directory_keeps_positions() {
    let made = Made::new();
    for name in ["a", "b", "c"] {
        made.make(ROOT, name);
    }
    made.rename("a", "new", Rename::Replace);
    assert_eq!(made.position_of(ROOT, "new"), 3);
    made.rename("new", "b", Rename::Replace);
    assert_eq!(made.position_of(ROOT, "b"), 4);
    made.rename("b", "c", Rename::Exchange);
    assert_eq!((made.position_of(ROOT, "b"), made.position_of(ROOT, "c")), (4, 5));
    assert_eq!(page(made.fs(), ROOT, Position::START, usize::MAX).len(), 2);
}

#[test]
fn name_moved_from_another_directory_takes_the_next_position() {
    let made = Made::new();
    let directory = NewFile::new(FileKind::Directory, 0o755);
    let directory = made.fs().create(&waiter(), ROOT, b"d", &directory).unwrap();
    let file = made.make(ROOT, "a");
    made.make(directory, "first");
    let to = (directory, &b"a"[..]);
    made.fs().rename(&waiter(), (ROOT, b"a"), to, Rename::Replace).unwrap();
    assert_eq!(made.position_of(directory, "a"), 4);
    let all = page(made.fs(), directory, Position(3), usize::MAX);
    assert_eq!((all.len(), all[0].2.ino), (1, file));
    let listed = made.fs().list_from(file, Position::START, |_, _, _| ControlFlow::Continue(()));
    assert!(matches!(listed, Err(FsError::NotDirectory)));
}

#[test]
fn directory_without_a_position_left_takes_no_name() {
    let mut made = Made::new();
    made.make(ROOT, "a");
    made.fs().sync(&waiter()).unwrap();
    made.fs = None;
    let mut rows = Rows::open(made.memory.clone(), 1 << 20).unwrap();
    let root = key::inode(ROOT);
    let mut attributes = Attributes::decode(&root, &rows.get(&root).unwrap().unwrap()).unwrap();
    attributes.next_position = Position::END;
    rows.put(root, attributes.encode());
    let committed = rows.seal().unwrap().commit().unwrap();
    rows.settled(committed);
    drop(rows);
    made.reopen();
    let new = NewFile::new(FileKind::File, 0o644);
    let refused = made.fs().create(&waiter(), ROOT, b"b", &new).unwrap_err();
    assert!(matches!(refused, FsError::Exhausted(why) if why.contains("position")));
    // This needs no new position.
    made.rename("a", "b", Rename::Replace);
    assert_eq!(made.position_of(ROOT, "b"), 3);
}

/// Memory that counts reads.
#[derive(Clone, Debug)]
struct Counted {
    memory: Memory,
    reads: Arc<AtomicU64>,
}

impl Backend for Counted {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write(offset, data)
    }
}

/// Number of reads of tables, of which nothing is cached, while `names` names are listed in pages
/// of a hundred.
fn reads_of_a_list(names: u64) -> u64 {
    let volume = volume(device("null:size=1G,zone_size=16M"));
    let superblock = superblock(&volume, 0, 8);
    let counted = Counted { memory: Memory::new(), reads: Arc::default() };
    let mut rows = Rows::open(counted.clone(), 0).unwrap();
    FileSystem::make(&mut rows, &superblock, &waiter()).unwrap();
    let fs = FileSystem::open(volume, rows, superblock, MountOptions::default(), false, &waiter()).unwrap();
    for n in 0..names {
        // Not in the order of the names.
        let name = format!("{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        fs.create(&waiter(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap();
    }
    fs.sync(&waiter()).unwrap();
    let before = counted.reads.load(Ordering::Relaxed);
    let (mut after, mut listed) = (Position::START, 0);
    loop {
        let page = page(&fs, ROOT, after, 100);
        listed += page.len() as u64;
        match page.last() {
            Some((last, _, _)) => after = *last,
            None => break,
        }
    }
    assert_eq!(listed, names);
    counted.reads.load(Ordering::Relaxed) - before
}

#[test]
fn reads_of_a_list_in_pages_grow_as_its_names_do() {
    for names in [4_000, 32_000] {
        let reads = reads_of_a_list(names);
        // A name has its own row and its entry, each in a data block of a table. If each page
        // started from the beginning, a name of 32,000 would be read 160 times.
        assert!(reads > names && reads < 4 * names, "{reads} reads for {names} names");
    }
}

#[test]
fn name_that_another_file_takes_keeps_its_position() {
    let made = Made::new();
    let directory =
        made.fs().create(&waiter(), ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    for name in ["a", "b", "c"] {
        made.make(ROOT, name);
    }
    let other = made.make(directory, "other");
    let position = made.position_of(ROOT, "a");
    made.fs().link_over(&waiter(), other, ROOT, b"a").unwrap();
    assert_eq!(made.position_of(ROOT, "a"), position);
    assert_eq!(made.fs().lookup(ROOT, b"a").unwrap(), other);
}
