//! fsck finds exactly the injected damage from a list, and no more of it after the repair.

use crate::common;
use crate::common::{bytes, device, make_with, reopen, superblock, volume, waiter};
use std::sync::Arc;
use zonal_core::ZoneIndex;
use zonal_fs::drive::Drive;
use zonal_fs::format::{
    Account, Attributes, Entry, Extent, FileKind, Position, Run, RunPiece, Superblock, key,
};
use zonal_fs::fsck::{Absent, Finding, Options, Severity, check, repair};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, Target};
use zonal_io::volume::Volume;

const BLOCK: usize = 4096;

/// A closed file system with two files, one of them in a directory, and some history.
struct Made {
    volume: Arc<Volume>,
    superblock: Superblock,
    memory: Memory,
}

/// Numbers of the directory and the files.
const DIRECTORY: u64 = 2;
const FIRST: u64 = 3;
const SECOND: u64 = 4;

impl Made {
    fn new() -> Made {
        let volume = volume(device("ram:size=8M,zone_size=512K,blocksize=4096"));
        let superblock = superblock(&volume, 0, 8);
        let memory = Memory::new();
        let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
        let waiter = waiter();
        let directory = fs.create(&waiter, ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
        let first = fs.create(&waiter, directory, b"first", &NewFile::new(FileKind::File, 0o644)).unwrap();
        let second = fs.create(&waiter, ROOT, b"second", &NewFile::new(FileKind::File, 0o644)).unwrap();
        assert_eq!((directory, first, second), (DIRECTORY, FIRST, SECOND));
        for (ino, blocks) in [(first, 40), (second, 10)] {
            fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(ino, blocks * BLOCK))).unwrap();
            fs.fsync(&waiter, ino).unwrap();
        }
        fs.write(&waiter, first, 5 * BLOCK as u64, Payload::Bytes(&bytes(9, 3 * BLOCK))).unwrap();
        fs.sync(&waiter).unwrap();
        Made { volume, superblock, memory }
    }

    fn open(&self) -> FileSystem {
        let (volume, superblock) = (self.volume.clone(), self.superblock.clone());
        reopen(volume, superblock, self.memory.clone(), MountOptions::default()).unwrap()
    }

    fn rows(&self) -> Rows {
        Rows::open(self.memory.clone(), 1 << 22).unwrap()
    }

    fn findings(&self, rows: &Rows) -> Vec<Finding> {
        let drive = Drive::new(self.volume.clone());
        check(rows, &self.superblock, &drive, &waiter(), Options::default().with_data(true)).unwrap()
    }

    /// Damages the rows, and returns the findings.
    fn damaged(&self, damage: impl FnOnce(&mut Rows)) -> Vec<Finding> {
        let mut rows = self.rows();
        damage(&mut rows);
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
        self.findings(&rows)
    }

    /// Repairs the findings, checks again, and opens the file system.
    fn repaired(&self, findings: &[Finding]) -> Vec<Finding> {
        let mut rows = self.rows();
        repair(&mut rows, findings).unwrap();
        let mut left = self.findings(&rows);
        // Repairs may uncover further damage.
        for _ in 0..3 {
            if left.iter().any(Finding::is_repairable) {
                repair(&mut rows, &left).unwrap();
                left = self.findings(&rows);
            }
        }
        drop(rows);
        if !left.iter().any(Finding::is_repairable) {
            let opened = reopen(
                self.volume.clone(),
                self.superblock.clone(),
                self.memory.clone(),
                MountOptions::default(),
            );
            opened.unwrap_or_else(|e| panic!("{e}")).check();
        }
        left
    }
}

/// An entry at the first position of a directory.
fn entry_of(ino: u64, kind: FileKind) -> Entry {
    Entry { ino, kind, position: Position::FIRST }
}

fn read_entry(rows: &Rows, parent: u64, name: &[u8]) -> Entry {
    let key = key::entry(parent, name);
    Entry::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap()
}

/// Deletes both rows of a name.
fn take_name(rows: &mut Rows, parent: u64, name: &[u8]) {
    let entry = read_entry(rows, parent, name);
    rows.delete(key::entry(parent, name));
    rows.delete(key::position(parent, entry.position));
}

fn change_extent(rows: &mut Rows, ino: u64, block: u64, change: impl FnOnce(&mut Extent)) {
    let key = key::extent(ino, block);
    let mut extent = Extent::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap();
    change(&mut extent);
    rows.put(key, extent.encode());
}

fn change_file(rows: &mut Rows, ino: u64, change: impl FnOnce(&mut Attributes)) {
    let key = key::inode(ino);
    let mut file = Attributes::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap();
    change(&mut file);
    rows.put(key, file.encode());
}

/// Injects `damage`, and expects exactly `expected`, and nothing after a repair.
fn finds(damage: impl FnOnce(&mut Rows), expected: &[Finding]) {
    let made = Made::new();
    let found = made.damaged(damage);
    assert_eq!(found, expected);
    assert_eq!(made.repaired(&found), []);
}

#[test]
fn sound_file_system_has_no_findings() {
    let made = Made::new();
    assert_eq!(made.findings(&made.rows()), []);
}

#[test]
fn wrong_accounts_are_found_and_counted_anew() {
    finds(
        |rows| rows.put(key::zone(0), Account { used: 7, resets: 0, begun: 0 }.encode()),
        &[Finding::Account { zone: 0, account: 7, files: 50 }],
    );
}

#[test]
fn account_that_cannot_be_read_is_found_and_keeps_a_mount_from_resetting_its_zone() {
    let made = Made::new();
    let found = made.damaged(|rows| rows.put(key::zone(0), vec![1, 2]));
    let row = Finding::DamagedRow { key: key::zone(0) };
    assert_eq!(found, [row, Finding::Account { zone: 0, account: 0, files: 50 }]);
    let opened =
        reopen(made.volume.clone(), made.superblock.clone(), made.memory.clone(), MountOptions::default());
    assert!(opened.err().unwrap().to_string().contains("is damaged"));
    assert_eq!(made.repaired(&found), []);
}

#[test]
fn account_that_the_units_of_its_zone_contradict_is_found_with_the_data_and_mended() {
    let made = Made::new();
    let right = Account::decode(&[], &made.rows().get(&key::zone(0)).unwrap().unwrap()).unwrap();
    let begun = right.begun + 1;
    made.damaged(|rows| rows.put(key::zone(0), Account { begun, ..right }.encode()));
    let drive = Drive::new(made.volume.clone());
    let options = Options::default().with_data(true);
    let mut rows = made.rows();
    let found = check(&rows, &made.superblock, &drive, &waiter(), options).unwrap();
    let expected = Finding::Beginning { zone: 0, account: begun, units: right.begun };
    assert!(!found.is_empty() && found.iter().all(|finding| *finding == expected), "{found:?}");
    repair(&mut rows, &found).unwrap();
    assert_eq!(check(&rows, &made.superblock, &drive, &waiter(), options).unwrap(), []);
}

#[test]
fn resets_are_counted_over_mounts_and_repairs() {
    let made = Made::new();
    let found = made.damaged(|rows| {
        let account = Account { used: 1, resets: 7, begun: 0 };
        rows.put(key::zone(0), account.encode());
    });
    assert_eq!(made.repaired(&found), []);
    let options = MountOptions::default();
    let fs = reopen(made.volume.clone(), made.superblock.clone(), made.memory.clone(), options).unwrap();
    assert_eq!(fs.resets(ZoneIndex(0)), 7);
    let waiter = waiter();
    for name in [&b"second"[..], b"d/first"] {
        let (parent, name) = match name {
            b"d/first" => (DIRECTORY, &b"first"[..]),
            name => (ROOT, name),
        };
        fs.unlink(&waiter, parent, name).unwrap();
    }
    // The rest of the zone is written to make it full, and deleted to make it dead.
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(1, 128 * BLOCK))).unwrap();
    fs.unlink(&waiter, ROOT, b"f").unwrap();
    fs.sync(&waiter).unwrap();
    while fs.background_step(&waiter).unwrap() {}
    assert_eq!(fs.resets(ZoneIndex(0)), 8);
    fs.sync(&waiter).unwrap();
    drop(fs);
    let fs = reopen(made.volume, made.superblock, made.memory, options).unwrap();
    assert_eq!(fs.resets(ZoneIndex(0)), 8);
}

#[test]
fn wrong_counts_of_names_are_found() {
    finds(
        |rows| change_file(rows, FIRST, |file| file.links = 3),
        &[Finding::Links { ino: FIRST, links: 3, found: 1 }],
    );
    finds(
        |rows| change_file(rows, ROOT, |file| file.links = 2),
        &[Finding::Links { ino: ROOT, links: 2, found: 3 }],
    );
}

#[test]
fn wrong_count_of_blocks_is_found_and_counted_again() {
    finds(
        |rows| change_file(rows, FIRST, |file| file.blocks = 39),
        &[Finding::Blocks { ino: FIRST, blocks: 39, found: 40 }],
    );
    // Lost blocks are counted, so a repair that marks blocks as lost does not change the count.
    let made = Made::new();
    let found = made.damaged(|rows| change_extent(rows, FIRST, 8, |extent| extent.zone = 99));
    assert_eq!(made.repaired(&found), [Finding::Gone { ino: FIRST, block: 8, blocks: 32 }]);
    let fs = made.open();
    assert_eq!(fs.attributes(FIRST).unwrap().blocks, 40);
    fs.truncate(&waiter(), FIRST, 10 * BLOCK as u64).unwrap();
    assert_eq!(fs.attributes(FIRST).unwrap().blocks, 10);
}

#[test]
fn position_of_nothing_is_found_and_taken_away() {
    for (name, position) in [(&b"gone"[..], 70), (b"first", 70)] {
        let nothing = Finding::PositionOfNothing { parent: DIRECTORY, position, name: name.to_vec() };
        let next =
            Finding::NextPosition { parent: DIRECTORY, next: Position::FIRST.0 + 1, largest: position };
        finds(|rows| rows.put(key::position(DIRECTORY, Position(position)), name.to_vec()), &[nothing, next]);
    }
}

#[test]
fn name_without_position_is_found_and_assigned_a_new_one() {
    let first = Position::FIRST;
    let damages: [fn(&mut Rows); 2] = [
        |rows| rows.delete(key::position(ROOT, Position::FIRST)),
        // If two names have the same position, only one is listed.
        |rows| {
            let second = read_entry(rows, ROOT, b"second");
            take_name(rows, ROOT, b"second");
            rows.put(key::entry(ROOT, b"second"), Entry { position: Position::FIRST, ..second }.encode());
        },
    ];
    for (damage, name) in damages.into_iter().zip([&b"d"[..], b"second"]) {
        let made = Made::new();
        let found = made.damaged(damage);
        let expected = Finding::NoPosition { parent: ROOT, name: name.to_vec(), position: first.0 };
        assert_eq!(found, [expected]);
        assert_eq!(made.repaired(&found), []);
        let mut listed = Vec::new();
        made.open()
            .list_from(ROOT, Position::START, |position, name, _| {
                listed.push((position.0, name.to_vec()));
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(listed.last(), Some(&(5, name.to_vec())), "a new position: {listed:?}");
        assert_eq!(listed.len(), 2);
    }
}

#[test]
fn next_position_that_names_have_is_found_and_moved_after_them() {
    finds(
        |rows| change_file(rows, ROOT, |root| root.next_position = Position(4)),
        &[Finding::NextPosition { parent: ROOT, next: 4, largest: 4 }],
    );
}

#[test]
fn opening_that_files_are_newer_than_is_found_and_counted_past() {
    let made = Made::new();
    let found = made.damaged(|rows| change_file(rows, FIRST, |file| file.generation = 9));
    assert_eq!(found, [Finding::Opening { last: 1, largest: 9 }]);
    assert_eq!(made.repaired(&found), []);
    let fs = made.open();
    let ino = fs.create(&waiter(), ROOT, b"new", &NewFile::new(FileKind::File, 0o644)).unwrap();
    assert!(fs.attributes(ino).unwrap().generation > 9);
}

#[test]
fn directory_that_a_repair_makes_has_a_generation_of_its_own() {
    let made = Made::new();
    let found = made.damaged(|rows| take_name(rows, DIRECTORY, b"first"));
    made.repaired(&found);
    let fs = made.open();
    let lost_and_found = fs.resolve(b"lost+found").unwrap();
    let generation = fs.attributes(lost_and_found).unwrap().generation;
    assert_ne!(generation, fs.attributes(FIRST).unwrap().generation);
    let ino = fs.create(&waiter(), ROOT, b"new", &NewFile::new(FileKind::File, 0o644)).unwrap();
    assert_ne!(generation, fs.attributes(ino).unwrap().generation);
}

#[test]
fn name_of_nothing_is_found_and_taken_away() {
    let entry = entry_of(99, FileKind::File);
    finds(
        |rows| rows.put(key::entry(DIRECTORY, b"gone"), entry.encode()),
        &[Finding::NoSuchFile { parent: DIRECTORY, name: b"gone".to_vec(), ino: 99 }],
    );
}

#[test]
fn symbolic_link_without_target_is_found_and_fails_to_read() {
    let made = Made::new();
    let link = Attributes::new(FileKind::Symlink, 0o777, DIRECTORY, Position(9), 0);
    let found = made.damaged(|rows| {
        rows.put(key::inode(50), link.encode());
        rows.put(
            key::entry(DIRECTORY, b"link"),
            Entry { position: Position(9), ..entry_of(50, FileKind::Symlink) }.encode(),
        );
        rows.put(key::position(DIRECTORY, Position(9)), b"link".to_vec());
        change_file(rows, DIRECTORY, |directory| directory.next_position = Position(10));
        rows.put(key::counter("ino"), 51u64.to_le_bytes().to_vec());
    });
    assert_eq!(found, [Finding::NoTarget { ino: 50 }]);
    assert_eq!(made.repaired(&found), found);
    let error = made.open().target(50).unwrap_err();
    assert!(matches!(error, FsError::Row(_)), "{error}");
}

#[test]
fn entry_in_a_non_directory_is_found() {
    let entry = entry_of(SECOND, FileKind::File);
    finds(
        |rows| rows.put(key::entry(FIRST, b"x"), entry.encode()),
        &[Finding::NoDirectory { parent: FIRST, name: b"x".to_vec() }],
    );
}

#[test]
fn orphaned_file_is_found_and_moved_to_lost_found() {
    let made = Made::new();
    let found = made.damaged(|rows| rows.delete(key::entry(DIRECTORY, b"first")));
    let nothing = Finding::PositionOfNothing {
        parent: DIRECTORY,
        position: Position::FIRST.0,
        name: b"first".to_vec(),
    };
    assert_eq!(found, [nothing, Finding::NoName { ino: FIRST }]);
    assert_eq!(made.repaired(&found), []);
    let fs =
        reopen(made.volume.clone(), made.superblock.clone(), made.memory.clone(), MountOptions::default())
            .unwrap();
    let ino = fs.resolve(b"lost+found/3").unwrap();
    let mut expected = bytes(FIRST, 40 * BLOCK);
    expected[5 * BLOCK..8 * BLOCK].copy_from_slice(&bytes(9, 3 * BLOCK));
    assert!(common::read_all(&fs, ino).unwrap() == expected);
}

#[test]
fn wrong_kind_in_a_name_is_found() {
    let entry = entry_of(FIRST, FileKind::Symlink);
    let name = b"first".to_vec();
    finds(
        |rows| rows.put(key::entry(DIRECTORY, b"first"), entry.encode()),
        &[Finding::WrongKind { parent: DIRECTORY, name, said: FileKind::Symlink, kind: FileKind::File }],
    );
}

#[test]
fn number_that_would_be_given_twice_is_found() {
    finds(
        |rows| rows.put(key::counter("ino"), 3u64.to_le_bytes().to_vec()),
        &[Finding::NextFile { next: 3, largest: SECOND }],
    );
}

#[test]
fn file_of_which_only_data_is_left_is_found_and_kept() {
    // With and without its name.
    for (is_named, name) in [(true, &b"second"[..]), (false, b"lost+found/4")] {
        let made = Made::new();
        let found = made.damaged(|rows| {
            rows.delete(key::inode(SECOND));
            if !is_named {
                take_name(rows, ROOT, b"second");
            }
        });
        assert!(found.contains(&Finding::NoAttributes { ino: SECOND }), "{found:?}");
        assert_eq!(Finding::NoAttributes { ino: SECOND }.severity(), Severity::Lost);
        assert_eq!(made.repaired(&found), [Finding::Gone { ino: SECOND, block: 10, blocks: 1 }]);
        let fs = made.open();
        assert_eq!(fs.resolve(name).unwrap(), SECOND);
        let mut data = vec![0; 10 * BLOCK];
        fs.read(&waiter(), SECOND, 0, Target::Bytes(&mut data)).unwrap();
        assert!(data == bytes(SECOND, 10 * BLOCK));
        let behind = fs.read(&waiter(), SECOND, 10 * BLOCK as u64, Target::Bytes(&mut [0; 8]));
        assert!(matches!(behind, Err(FsError::Gone { ino: SECOND, block: 10 })), "{behind:?}");
    }
}

#[test]
fn unreferenced_data_is_found_and_freed() {
    let made = Made::new();
    let found = made.damaged(|rows| {
        let extent = rows.get(&key::extent(SECOND, 0)).unwrap().unwrap();
        rows.delete(key::extent(SECOND, 0));
        rows.put(key::extent(DIRECTORY, 0), extent);
        change_file(rows, SECOND, |file| (file.size, file.blocks) = (0, 0));
    });
    assert!(found.contains(&Finding::NoFile { ino: DIRECTORY }), "{found:?}");
    assert_eq!(made.repaired(&found), []);
    assert_eq!(made.open().resolve(b"d/first").unwrap(), FIRST);
}

#[test]
fn attributes_and_target_of_no_file_are_found_and_taken_away() {
    let made = Made::new();
    let found = made.damaged(|rows| {
        rows.put(key::attribute(77, b"user.a"), b"value".to_vec());
        rows.put(key::target(78), b"to".to_vec());
    });
    assert_eq!(found, [Finding::NoFile { ino: 77 }, Finding::NoFile { ino: 78 }]);
    assert_eq!(made.repaired(&found), []);
    assert_eq!(made.rows().get(&key::attribute(77, b"user.a")).unwrap(), None);
    assert_eq!(made.rows().get(&key::target(78)).unwrap(), None);
}

#[test]
fn rows_that_cannot_be_read_are_found() {
    finds(
        |rows| rows.put(key::entry(ROOT, b"x"), vec![1, 2]),
        &[Finding::DamagedRow { key: key::entry(ROOT, b"x") }],
    );
    finds(|rows| rows.put(key::run(9, 4), vec![1]), &[Finding::DamagedRow { key: key::run(9, 4) }]);
}

#[test]
fn data_that_is_nowhere_is_found() {
    let lost = |zone, why| {
        move |found: &[Finding]| {
            let is = |f: &&Finding| matches!(f, Finding::Nowhere { ino: FIRST, block: 8, zone: z, why: w, .. } if (*z, *w) == (zone, why));
            assert_eq!(found.iter().filter(is).count(), 1, "{found:?}");
        }
    };
    for (zone, expect) in [(12, lost(12, Absent::BeyondPointer)), (99, lost(99, Absent::NoZone))] {
        let made = Made::new();
        let found = made.damaged(|rows| change_extent(rows, FIRST, 8, |extent| extent.zone = zone));
        expect(&found);
        assert_eq!(made.repaired(&found), [Finding::Gone { ino: FIRST, block: 8, blocks: 32 }]);
    }
}

#[test]
fn blocks_lost_in_a_repair_fail_to_read_until_rewritten() {
    let made = Made::new();
    let found = made.damaged(|rows| change_extent(rows, FIRST, 8, |extent| extent.zone = 99));
    made.repaired(&found);
    let open =
        || reopen(made.volume.clone(), made.superblock.clone(), made.memory.clone(), MountOptions::default());
    let fs = open().unwrap();
    let waiter = waiter();
    let block = BLOCK as u64;
    let read = |fs: &FileSystem, at: u64| {
        let mut bytes = vec![0; BLOCK];
        fs.read(&waiter, FIRST, at * block, Target::Bytes(&mut bytes)).map(|_| bytes)
    };
    assert!(matches!(read(&fs, 20), Err(FsError::Gone { ino: FIRST, block: 20 })));
    assert!(read(&fs, 0).unwrap() == bytes(FIRST, BLOCK));
    // Part of a block cannot be written without the rest of it, but a whole block can.
    assert!(matches!(
        fs.write(&waiter, FIRST, 20 * block + 1, Payload::Bytes(b"x")),
        Err(FsError::Gone { ino: FIRST, block: 20 })
    ));
    fs.write(&waiter, FIRST, 20 * block, Payload::Bytes(&bytes(7, BLOCK))).unwrap();
    fs.truncate(&waiter, FIRST, 30 * block + 5).unwrap();
    fs.sync(&waiter).unwrap();
    assert!(read(&fs, 20).unwrap() == bytes(7, BLOCK));
    assert!(matches!(read(&fs, 30), Err(FsError::Gone { ino: FIRST, block: 30 })));
    fs.check();
    drop(fs);
    let gone = |block, blocks| Finding::Gone { ino: FIRST, block, blocks };
    assert_eq!(made.findings(&made.rows()), [gone(8, 12), gone(21, 10)]);
    let fs = open().unwrap();
    fs.unlink(&waiter, DIRECTORY, b"first").unwrap();
    fs.sync(&waiter).unwrap();
    fs.check();
    assert_eq!(fs.usage().used, 10);
    drop(fs);
    assert_eq!(made.findings(&made.rows()), []);
}

#[test]
fn damaged_extent_row_loses_only_its_blocks() {
    let made = Made::new();
    let key = key::extent(FIRST, 5);
    let found = made.damaged(|rows| rows.put(key.clone(), vec![1]));
    assert!(found.contains(&Finding::DamagedRow { key: key.clone() }), "{found:?}");
    assert_eq!(made.repaired(&found), [Finding::Gone { ino: FIRST, block: 5, blocks: 3 }]);
}

#[test]
fn place_of_two_files_is_found() {
    let made = Made::new();
    let mut other = None;
    let found = made.damaged(|rows| {
        let key = key::extent(FIRST, 0);
        other = Some(Extent::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap());
        let extent = Extent { blocks: 5, ..other.unwrap() };
        change_extent(rows, SECOND, 0, |second| *second = extent);
    });
    let is = |f: &&Finding| matches!(f, Finding::Shared { zone: 0, at: 1, .. });
    assert_eq!(found.iter().filter(is).count(), 1, "{found:?}");
    assert_eq!(made.repaired(&found), [Finding::Gone { ino: SECOND, block: 0, blocks: 5 }]);
}

#[test]
fn repair_of_shared_places_leaves_extents_alone_that_share_nothing() {
    let made = Made::new();
    // Two units of the first file, blocks 0 to 4 and 8 to 20, are also claimed by the second file,
    // after one of its own extents.
    let found = made.damaged(|rows| {
        let key = key::extent(FIRST, 8);
        let shared = Extent::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap();
        rows.put(key::extent(SECOND, 20), shared.part(0..20).encode());
    });
    let shared = found.iter().filter(|f| matches!(f, Finding::Shared { ino: SECOND, .. })).count();
    assert!(shared > 1, "{found:?}");
    assert_eq!(made.repaired(&found), [Finding::Gone { ino: SECOND, block: 20, blocks: 20 }]);
    let fs =
        reopen(made.volume.clone(), made.superblock.clone(), made.memory.clone(), MountOptions::default())
            .unwrap();
    assert!(common::read_all(&fs, SECOND).unwrap() == bytes(SECOND, 10 * BLOCK));
}

#[test]
fn root_that_is_gone_is_made_anew_with_the_names_that_it_had() {
    for damage in [(|rows| rows.delete(key::inode(ROOT))) as fn(&mut Rows), |rows| {
        change_file(rows, ROOT, |root| root.kind = FileKind::File)
    }] {
        let made = Made::new();
        let found = made.damaged(damage);
        assert_eq!(found, [Finding::NoName { ino: ROOT }]);
        assert_eq!(made.repaired(&found), []);
        let fs = reopen(
            made.volume.clone(),
            made.superblock.clone(),
            made.memory.clone(),
            MountOptions::default(),
        )
        .unwrap();
        assert_eq!((fs.resolve(b"d/first").unwrap(), fs.resolve(b"second").unwrap()), (FIRST, SECOND));
    }
}

#[test]
fn keys_and_names_that_cannot_be_are_found_and_taken_away() {
    let entry = entry_of(SECOND, FileKind::File).encode();
    let orphan = [&key::orphan(FIRST)[..], b"x"].concat();
    for (key, value) in [
        (key::entry(DIRECTORY, b".."), entry.clone()),
        (key::entry(DIRECTORY, b"a/b"), entry.clone()),
        (key::entry(DIRECTORY, b""), entry),
        (orphan, Vec::new()),
        (
            key::extent(FIRST, 100)[..14].to_vec(),
            Extent { zone: 1, unit: 0, unit_blocks: 7, skip: 0, blocks: 1 }.encode(),
        ),
        (key::extent(u64::MAX, 0), Extent { zone: 1, unit: 0, unit_blocks: 7, skip: 0, blocks: 1 }.encode()),
        (key::zone(0)[..8].to_vec(), Account::default().encode()),
    ] {
        finds(|rows| rows.put(key.clone(), value), &[Finding::DamagedRow { key: key.clone() }]);
    }
}

#[test]
fn extents_that_overlap_are_found() {
    let made = Made::new();
    let found = made.damaged(|rows| change_extent(rows, FIRST, 5, |extent| extent.blocks = 4));
    assert!(found.contains(&Finding::Overlap { ino: FIRST, block: 5, next: 8 }), "{found:?}");
    let gone = |block, blocks| Finding::Gone { ino: FIRST, block, blocks };
    assert_eq!(made.repaired(&found), [gone(5, 4), gone(9, 31)]);
}

#[test]
fn data_that_its_zone_does_not_know_is_found_and_survives_a_collection() {
    let made = Made::new();
    let found = made.damaged(|rows| {
        let (from, end) = key::all_runs();
        let mut keys = Vec::new();
        rows.scan(&from, &end, |key, _| {
            keys.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        keys.into_iter().for_each(|key| rows.delete(key));
    });
    assert!(found.len() > 5 && found.iter().all(|f| matches!(f, Finding::Unknown { .. })), "{found:?}");
    assert_eq!(made.repaired(&found), []);
}

/// A zone was reset, and the power was cut before the rows of its contents were deleted. Then the
/// same file was written there.
#[test]
fn stale_rows_of_earlier_zone_contents_are_no_finding() {
    finds(
        |rows| {
            let (from, end) = key::all_runs();
            let mut longest: Option<(u32, u32, Run)> = None;
            rows.scan(&from, &end, |key, value| {
                let ((zone, at), run) = (key::run_parts(key), Run::decode(key, value).unwrap());
                if longest.as_ref().is_none_or(|(_, _, other)| other.blocks() < run.blocks()) {
                    longest = Some((zone, at, run));
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            let (zone, at, run) = longest.unwrap();
            assert!(run.blocks() > 2 * u32::from(run.unit_blocks), "it has several units");
            // In the middle of its first unit, and at the start of its second one.
            for old in [at + 2, at + 1 + u32::from(run.unit_blocks)] {
                let piece = RunPiece { ino: run.pieces[0].ino, block: 7777, blocks: 2 };
                rows.put(
                    key::run(zone, old),
                    Run { unit_blocks: 2, headers: vec![1], pieces: vec![piece] }.encode(),
                );
            }
        },
        &[],
    );
}

#[test]
fn overwritten_data_is_found_by_fsck_and_fails_reads() {
    let volume = volume(device("ram:size=8M,zone_size=512K,zone_nr_conv=0,blocksize=4096"));
    let superblock = superblock(&volume, 0, 8);
    let memory = Memory::new();
    let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
    let waiter = waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(1, 20 * BLOCK))).unwrap();
    fs.sync(&waiter).unwrap();
    drop(fs);
    // The test rewrites the zone behind the file system's back, which destroys its headers.
    let drive = Drive::new(volume.clone());
    drive.zone(&waiter, zonal_core::Op::ZoneReset, ZoneIndex(0)).unwrap();
    let mut other = zonal_io::buffer::IoBuf::zeroed(30 * BLOCK as u32);
    other[..].copy_from_slice(&bytes(5, 30 * BLOCK));
    drive.write(&waiter, zonal_core::Sector(0), other).unwrap();
    let rows = Rows::open(memory.clone(), 1 << 22).unwrap();
    let found = check(&rows, &superblock, &drive, &waiter, Options::default().with_data(true)).unwrap();
    assert_eq!(found.len(), 3, "one a unit: {found:?}");
    assert!(found.iter().all(|f| matches!(f, Finding::Data { ino: i, .. } if *i == ino)), "{found:?}");
    drop(rows);
    let fs = reopen(volume, superblock, memory, MountOptions::default()).unwrap();
    assert!(matches!(common::read_all(&fs, ino), Err(zonal_fs::FsError::Unit { .. })));
}

#[test]
fn wrong_count_of_files_is_found_and_counted_again() {
    finds(
        |rows| rows.put(key::counter("files"), 9u64.to_le_bytes().to_vec()),
        &[Finding::Files { files: 9, found: 4 }],
    );
    // A count from another commit is ignored.
    finds(|rows| rows.put(key::counter("files-as-of"), 9u64.to_le_bytes().to_vec()), &[]);
}
