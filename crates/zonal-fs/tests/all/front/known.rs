//! Files known to a kernel, and files opened on creation.

use super::{file, new_file};
use crate::common::{bytes, settle, waiter};
use crate::made::Made;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, FsError, IfThere, NewFile, Payload, ROOT, Rename};

fn is_gone(fs: &FileSystem, ino: u64) -> bool {
    matches!(fs.attributes(ino), Err(FsError::NotFound))
}

fn fill(fs: &FileSystem, ino: u64) {
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(ino, 50_000))).unwrap();
    fs.fsync(&waiter(), ino).unwrap();
}

#[test]
fn references_are_dropped_on_a_file_system_that_refuses_changes() {
    let (made, fs) = Made::new();
    let files = [file(&fs, b"f"), file(&fs, b"g")];
    files.iter().for_each(|&ino| assert_eq!(fs.know(ino).unwrap().links, 1));
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    fs.unlink(&waiter(), ROOT, b"g").unwrap();
    fs.sync(&waiter()).unwrap();
    fs.forbid_changes("for a test");
    files.iter().for_each(|&ino| fs.forget(&waiter(), ino, 1).unwrap());
    drop(fs);
    // The next mount deletes both.
    let fs = made.open();
    assert!(files.iter().all(|&ino| is_gone(&fs, ino)));
    assert_eq!(fs.files().unwrap().used, 1);
}

#[test]
fn unlinked_known_file_is_freed_when_forgotten() {
    let (made, fs) = Made::new();
    let ino = file(&fs, b"f");
    fill(&fs, ino);
    let found = fs.lookup_known(ROOT, b"f").unwrap();
    assert_eq!((found.ino, found.attributes.size), (ino, 50_000));
    assert_eq!(fs.know(ino).unwrap().links, 1);
    fs.know(ino).unwrap();
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    assert_eq!(fs.attributes(ino).unwrap().links, 0);
    fs.forget(&waiter(), ino, 2).unwrap();
    // Other calls that use the file do not end it.
    fill(&fs, ino);
    fs.truncate(&waiter(), ino, 9000).unwrap();
    fs.open_file(ino).unwrap().close(&waiter()).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size, 9000);
    fs.forget(&waiter(), ino, 1).unwrap();
    assert!(is_gone(&fs, ino));
    assert!(matches!(fs.know(ino), Err(FsError::NotFound)));
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.usage().used, 0);
    fs.check();
    drop(fs);
    assert_eq!(made.findings(), []);
}

#[test]
fn file_stays_until_it_is_neither_open_nor_known() {
    let (_made, fs) = Made::new();
    for close_first in [true, false] {
        let ino = file(&fs, b"f");
        fill(&fs, ino);
        let open = fs.open_file(ino).unwrap();
        fs.know(ino).unwrap();
        fs.unlink(&waiter(), ROOT, b"f").unwrap();
        if close_first {
            open.close(&waiter()).unwrap();
            assert!(!is_gone(&fs, ino));
            fs.forget(&waiter(), ino, 1).unwrap();
        } else {
            fs.forget(&waiter(), ino, 1).unwrap();
            assert!(!is_gone(&fs, ino));
            open.close(&waiter()).unwrap();
        }
        assert!(is_gone(&fs, ino), "closed first: {close_first}");
    }
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.usage().used, 0);
}

#[test]
fn file_with_a_name_stays_when_it_is_forgotten() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    fs.know(ino).unwrap();
    // More often than it was reported, and a number that was never reported.
    fs.forget(&waiter(), ino, 7).unwrap();
    fs.forget(&waiter(), ino + 1, 1).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().links, 1);
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    assert!(is_gone(&fs, ino));
}

#[test]
fn known_directory_is_removed_and_takes_no_names() {
    let (made, fs) = Made::new();
    let new = NewFile::new(FileKind::Directory, 0o755);
    let directory = fs.create_known(&waiter(), ROOT, b"d", &new).unwrap().ino;
    fs.rmdir(&waiter(), ROOT, b"d").unwrap();
    assert_eq!(fs.attributes(directory).unwrap().links, 0);
    let refused = fs.create(&waiter(), directory, b"f", &new_file());
    assert!(matches!(refused, Err(FsError::NotFound)));
    fs.sync(&waiter()).unwrap();
    assert_eq!(made.findings(), []);
    fs.forget(&waiter(), directory, 1).unwrap();
    assert!(is_gone(&fs, directory));
}

#[test]
fn unlinked_known_file_is_freed_at_the_next_opening() {
    let (made, fs) = Made::new();
    let found = fs.create_known(&waiter(), ROOT, b"f", &new_file()).unwrap();
    fill(&fs, found.ino);
    let replacing = file(&fs, b"g");
    fs.rename(&waiter(), (ROOT, b"g"), (ROOT, b"f"), Rename::Replace).unwrap();
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.attributes(found.ino).unwrap().links, 0);
    drop(fs);
    let fs = made.open();
    assert!(is_gone(&fs, found.ino));
    assert_eq!(fs.resolve(b"f").unwrap(), replacing);
    assert_eq!(fs.usage().used, 0);
    fs.check();
}

#[test]
fn known_file_that_is_closed_has_no_write_buffer() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    fs.know(ino).unwrap();
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, 4096))).unwrap();
    settle(&fs);
    assert_eq!(fs.attributes(ino).unwrap().blocks, 1);
    let open = fs.open_file(ino).unwrap();
    fs.write(&waiter(), ino, 8192, Payload::Bytes(&bytes(1, 4096))).unwrap();
    settle(&fs);
    assert_eq!(fs.attributes(ino).unwrap().blocks, 1);
    drop(open);
}

#[test]
fn name_that_is_replaced_all_the_time_is_always_found() {
    let (_made, fs) = Made::new();
    file(&fs, b"f");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                file(&fs, b"new");
                fs.rename(&waiter(), (ROOT, b"new"), (ROOT, b"f"), Rename::Replace).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let found = fs.lookup_known(ROOT, b"f").unwrap();
            fs.attributes(found.ino).unwrap();
            fs.forget(&waiter(), found.ino, 1).unwrap();
        }
    });
    assert_eq!(fs.files().unwrap().used, 2);
}

#[test]
fn file_is_made_and_opened_once_by_two_threads() {
    let (_made, fs) = Made::new();
    for round in 0..200u32 {
        let (name, both) = (format!("{round}"), Barrier::new(2));
        let if_there = if round % 2 == 0 { IfThere::Open } else { IfThere::Fail };
        let open = || {
            both.wait();
            fs.open_or_create(&waiter(), (ROOT, name.as_bytes()), &new_file(), if_there)
        };
        let opened = std::thread::scope(|scope| {
            let threads = [scope.spawn(open), scope.spawn(open)];
            threads.map(|thread| thread.join().unwrap())
        });
        let made = opened.iter().flatten().filter(|opened| opened.is_new).count();
        assert_eq!(made, 1, "round {round}");
        let ino = fs.lookup(ROOT, name.as_bytes()).unwrap();
        match &opened {
            [Ok(one), Ok(other)] => {
                assert_eq!(if_there, IfThere::Open);
                assert_eq!((one.file.ino(), other.file.ino()), (ino, ino));
            }
            [Ok(one), Err(error)] | [Err(error), Ok(one)] => {
                assert_eq!(if_there, IfThere::Fail);
                assert!(matches!(error, FsError::Exists), "{error}");
                assert_eq!(one.file.ino(), ino);
            }
            [Err(_), Err(_)] => unreachable!("one has made it"),
        }
    }
}

#[test]
fn open_or_create_fails_with_the_matching_error() {
    let (_made, fs) = Made::new();
    let open = |name: &[u8], new: &NewFile| fs.open_or_create(&waiter(), (ROOT, name), new, IfThere::Open);
    let directory = NewFile::new(FileKind::Directory, 0o755);
    fs.create(&waiter(), ROOT, b"d", &directory).unwrap();
    assert!(matches!(open(b"d", &new_file()), Err(FsError::IsDirectory)));
    assert!(matches!(open(b"new", &directory), Err(FsError::Invalid(_))));
    assert!(matches!(open(&[b'n'; 256], &new_file()), Err(FsError::NameTooLong)));
    let ino = file(&fs, b"f");
    let below = fs.open_or_create(&waiter(), (ino, b"g"), &new_file(), IfThere::Open);
    assert!(matches!(below, Err(FsError::NotDirectory)));
    // The attributes for a new file do not affect an existing one.
    let opened = open(b"f", &NewFile::new(FileKind::File, 0o600)).unwrap();
    assert_eq!((opened.file.ino(), opened.attributes.mode, opened.is_new), (ino, 0o644, false));
    fs.forbid_changes("it is to be looked at");
    assert!(matches!(open(b"new", &new_file()), Err(FsError::ReadOnly(_))));
    assert!(!open(b"f", &new_file()).unwrap().is_new);
}

#[test]
fn file_opened_as_it_is_made_stays_without_its_name() {
    let (_made, fs) = Made::new();
    let opened = fs.open_or_create(&waiter(), (ROOT, b"f"), &new_file(), IfThere::Fail).unwrap();
    let ino = opened.file.ino();
    assert_eq!((opened.attributes.mode, opened.attributes.links, opened.is_new), (0o644, 1, true));
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    assert!(!is_gone(&fs, ino));
    opened.file.close(&waiter()).unwrap();
    assert!(is_gone(&fs, ino));
}
