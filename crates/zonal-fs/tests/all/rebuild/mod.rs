//! Lost metadata are rebuilt from the zones.

mod cuts;
mod damage;
mod random;
pub mod rig;

use crate::common;
use crate::common::{bytes, read_all, waiter};
use rig::{BLOCK, Contents, EVERYWHERE, Rig, Where};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use zonal_fs::format::{FileKind, Position};
use zonal_fs::fsck::Finding;
use zonal_fs::rebuild::Rebuilt;
use zonal_fs::{FileSystem, NewFile, Payload, ROOT};

/// Creates a file with these bytes at a path in the root, or in a directory of it.
fn file(fs: &FileSystem, path: &str, data: &[u8]) -> u64 {
    let waiter = waiter();
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = match fs.resolve(directory.as_bytes()) {
        Ok(ino) => ino,
        Err(_) => {
            fs.create(&waiter, ROOT, directory.as_bytes(), &NewFile::new(FileKind::Directory, 0o755)).unwrap()
        }
    };
    let ino = fs.create(&waiter, parent, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap();
    write(fs, ino, 0, data);
    ino
}

fn write(fs: &FileSystem, ino: u64, offset: usize, data: &[u8]) {
    let written = fs.write(&waiter(), ino, offset as u64, Payload::Bytes(data)).unwrap();
    assert_eq!(written, data.len() as u64);
}

/// Loses the metadata, rebuilds them, and expects no findings.
fn lose_and_rebuild(rig: &Rig) -> Rebuilt {
    assert_eq!(rig.findings(), [], "{:?}", rig.place);
    rig.lose_metadata();
    let rebuilt = rig.rebuild().unwrap_or_else(|e| panic!("{:?}: {e}", rig.place));
    assert_eq!(rig.findings(), [], "{:?}", rig.place);
    rig.open().check();
    rebuilt
}

/// Checks that all files of `expected` are in place, with their bytes.
fn has_all(found: &Contents, expected: &Contents) {
    for (path, data) in expected {
        let there = found.get(path).unwrap_or_else(|| panic!("{path} is missing: {:?}", found.keys()));
        assert!(there == data, "{path} differs");
    }
}

/// Files of many kinds with a history: overwritten, truncated, replaced, deleted, and moved by
/// garbage collection.
fn with_history(fs: &FileSystem) {
    let waiter = waiter();
    let files: Vec<u64> = (0..60u64)
        .map(|n| file(fs, &format!("d{}/file-{n:03}", n % 5), &bytes(n, 1 + n as usize * 2999)))
        .collect();
    for n in (0..60).step_by(3) {
        write(fs, files[n], n * 777, &bytes(100 + n as u64, 9000));
    }
    for n in (0..60usize).step_by(7) {
        // Within a block, zeroes record the truncation. At a block's end nothing does until the
        // block is rewritten.
        fs.truncate(&waiter, files[n], (n * 2999 / 2) as u64).unwrap();
        fs.truncate(&waiter, files[n], (n * 2999 / 3 / BLOCK * BLOCK) as u64).unwrap();
        write(fs, files[n], n * 2999 / 3 / BLOCK * BLOCK, b"the end");
    }
    for n in (1..60).step_by(11) {
        fs.unlink(
            &waiter,
            fs.resolve(format!("d{}", n % 5).as_bytes()).unwrap(),
            format!("file-{n:03}").as_bytes(),
        )
        .unwrap();
    }
    // Until all zones have been collected.
    for round in 0..30u64 {
        let ino = file(fs, &format!("round-{round}"), &bytes(1000 + round, 400_000));
        fs.sync(&waiter).unwrap();
        while fs.collect(&waiter).unwrap() && fs.statistics().gc_victims < round * 2 {}
        if round % 4 != 0 {
            fs.unlink(&waiter, ROOT, format!("round-{round}").as_bytes()).unwrap();
        } else {
            write(fs, ino, 5000, &bytes(2000 + round, 100_000));
        }
        fs.sync(&waiter).unwrap();
        while fs.background_step(&waiter).unwrap() {}
    }
    assert!(fs.statistics().gc_blocks > 100 && fs.statistics().resets > 5, "{:?}", fs.statistics());
}

#[test]
fn metadata_lost_are_put_together_with_every_file_and_its_bytes() {
    for place in EVERYWHERE {
        let rig = Rig::new(place, 1);
        let fs = rig.open();
        with_history(&fs);
        let expected = common::contents(&fs).unwrap();
        drop(fs);
        let before = zones(&rig);
        let rebuilt = lose_and_rebuild(&rig);
        assert_eq!(zones(&rig), before, "data zones are as they were");
        let found = rig.contents();
        has_all(&found, &expected);
        let count = |contents: &Contents| contents.values().flatten().count() as u64;
        assert_eq!((rebuilt.files, rebuilt.torn, rebuilt.damaged), (count(&found), 0, 0), "{place:?}");
        // It is a normal file system, and its metadata can be lost again.
        let fs = rig.open();
        with_more(&fs);
        let expected = common::contents(&fs).unwrap();
        drop(fs);
        lose_and_rebuild(&rig);
        has_all(&rig.contents(), &expected);
    }
}

/// Work of the test on a rebuilt file system.
fn with_more(fs: &FileSystem) {
    let waiter = waiter();
    for n in 0..10 {
        file(fs, &format!("more/{n}"), &bytes(7000 + n, 100_000));
    }
    fs.sync(&waiter).unwrap();
    while fs.background_step(&waiter).unwrap() {}
    assert!(fs.collect(&waiter).unwrap());
    fs.sync(&waiter).unwrap();
}

/// Write pointers of the data zones.
fn zones(rig: &Rig) -> Vec<u64> {
    let first = if rig.place == Where::Conventional { 16 } else { 7 };
    let report = rig.drive().report(&waiter()).unwrap();
    report[first..].iter().map(|zone| zone.write_pointer.map_or(0, |pointer| pointer.0)).collect()
}

#[test]
fn newest_data_of_a_block_counts_wherever_it_lies() {
    let rig = Rig::new(Where::Logged, 2);
    let fs = rig.open();
    let ino = file(&fs, "f", &bytes(1, 40 * BLOCK));
    for round in 0..20 {
        write(&fs, ino, round * BLOCK, &bytes(10 + round as u64, 3 * BLOCK));
        file(&fs, &format!("other-{round}"), &bytes(99, 2 * BLOCK));
    }
    fs.sync(&waiter()).unwrap();
    while fs.collect(&waiter()).unwrap() && fs.statistics().gc_victims < 4 {}
    fs.sync(&waiter()).unwrap();
    let expected = read_all(&fs, ino).unwrap();
    drop(fs);
    lose_and_rebuild(&rig);
    assert!(rig.contents()["/f"].as_ref() == Some(&expected));
}

#[test]
fn path_that_another_file_has_now_leads_to_lost_and_found() {
    let rig = Rig::new(Where::Logged, 3);
    let fs = rig.open();
    let waiter = waiter();
    let first = file(&fs, "f", b"first");
    fs.rename(&waiter, (ROOT, b"f"), (ROOT, b"g"), zonal_fs::Rename::Replace).unwrap();
    file(&fs, "f", b"second");
    let announced = fs.create(&waiter, ROOT, b".part", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.announce(announced, b"made/whole").unwrap();
    write(&fs, announced, 0, b"third");
    fs.sync(&waiter).unwrap();
    drop(fs);
    let rebuilt = lose_and_rebuild(&rig);
    assert_eq!((rebuilt.files, rebuilt.lost_and_found), (3, 1));
    let found = rig.contents();
    assert_eq!(found["/f"].as_deref(), Some(&b"second"[..]));
    assert_eq!(found[&format!("/lost+found/{first}")].as_deref(), Some(&b"first"[..]));
    assert_eq!(found["/made/whole"].as_deref(), Some(&b"third"[..]));
}

#[test]
fn rebuild_restores_deleted_files_and_sizes_as_of_the_last_write() {
    let rig = Rig::new(Where::Conventional, 4);
    let fs = rig.open();
    let waiter = waiter();
    file(&fs, "gone", b"still here");
    let cut = file(&fs, "cut", &bytes(1, 4 * BLOCK));
    file(&fs, "empty", b"");
    fs.unlink(&waiter, ROOT, b"gone").unwrap();
    fs.truncate(&waiter, cut, BLOCK as u64 + 100).unwrap();
    fs.sync(&waiter).unwrap();
    drop(fs);
    lose_and_rebuild(&rig);
    let found = rig.contents();
    assert_eq!(found["/gone"].as_deref(), Some(&b"still here"[..]));
    assert!(found["/cut"].as_deref() == Some(&bytes(1, 4 * BLOCK)[..BLOCK + 100]));
    assert!(!found.contains_key("/empty"));
}

#[test]
fn repaired_and_checked_findings_are_none() {
    let rig = Rig::new(Where::Beside, 5);
    let fs = rig.open();
    file(&fs, "a/b", &bytes(3, 100_000));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    assert_eq!(rig.findings(), Vec::<Finding>::new());
    std::fs::remove_file(rig.beside().unwrap()).unwrap();
    rig.rebuild().unwrap();
    assert_eq!(rig.contents()["/a/b"].as_ref(), Some(&bytes(3, 100_000)));
}

/// Numbers and generations of all files.
fn handles(fs: &FileSystem) -> BTreeSet<(u64, u32)> {
    let mut handles = BTreeSet::new();
    for path in common::contents(fs).unwrap().into_keys() {
        let ino = fs.resolve(path.as_bytes()).unwrap();
        handles.insert((ino, fs.attributes(ino).unwrap().generation));
    }
    handles
}

#[test]
fn handles_from_before_a_rebuild_name_no_file_after_it() {
    for place in EVERYWHERE {
        let rig = Rig::new(place, 30);
        let fs = rig.open();
        for n in 0..20u64 {
            file(&fs, &format!("d{}/file-{n}", n % 3), &bytes(n, 9000));
        }
        fs.sync(&waiter()).unwrap();
        let mut before = handles(&fs);
        drop(fs);
        // Openings that leave no unit are invisible to a rebuild.
        for round in 0..3 {
            let fs = rig.open();
            for n in 0..30 {
                let name = format!("empty-{round}-{n}");
                fs.create(&waiter(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap();
            }
            fs.sync(&waiter()).unwrap();
            before.extend(handles(&fs));
        }
        for round in 0..2 {
            lose_and_rebuild(&rig);
            let fs = rig.open();
            file(&fs, &format!("after-{round}/new"), &bytes(77, 9000));
            for n in 0..60 {
                let name = format!("new-{round}-{n}");
                fs.create(&waiter(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap();
            }
            fs.sync(&waiter()).unwrap();
            let after = handles(&fs);
            let numbers =
                |handles: &BTreeSet<(u64, u32)>| handles.iter().map(|(ino, _)| *ino).collect::<BTreeSet<_>>();
            assert!(!numbers(&before).is_disjoint(&numbers(&after)), "{place:?}: numbers are given again");
            assert!(before.is_disjoint(&after), "{place:?}");
            before.extend(after);
        }
    }
}

#[test]
fn rebuilt_directories_list_their_names_by_position() {
    let rig = Rig::new(Where::Logged, 31);
    let fs = rig.open();
    for n in 0..20u64 {
        file(&fs, &format!("d/file-{n:02}"), &bytes(n, 9000));
    }
    fs.sync(&waiter()).unwrap();
    drop(fs);
    lose_and_rebuild(&rig);
    let fs = rig.open();
    let directory = fs.resolve(b"d").unwrap();
    let list = || {
        let mut names = BTreeMap::new();
        fs.list_from(directory, Position::START, |position, name, entry| {
            assert_eq!(entry.position, position);
            assert!(names.insert(name.to_vec(), position).is_none());
            ControlFlow::Continue(())
        })
        .unwrap();
        names
    };
    let names = list();
    assert_eq!(names.len(), 20);
    file(&fs, "d/another", &bytes(1, 10));
    let last = list()[&b"another"[..]];
    assert!(names.values().all(|position| *position < last), "{last:?} is after all");
}
