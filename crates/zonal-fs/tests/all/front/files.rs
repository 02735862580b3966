//! The count of files.

use super::{file, new_file};
use crate::common::{bytes, waiter};
use crate::made::Made;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_fs::format::{FILES_END, FileKind, key};
use zonal_fs::store::Rows;
use zonal_fs::{FileCounts, FileSystem, NewFile, Payload, ROOT};

fn used(fs: &FileSystem) -> u64 {
    fs.files().unwrap().used
}

impl Made {
    /// Changes rows while the file system is closed.
    fn change(&self, change: impl FnOnce(&mut Rows)) {
        let mut rows = Rows::open(self.memory.clone(), 1 << 22).unwrap();
        change(&mut rows);
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
    }
}

#[test]
fn file_count_follows_creation_and_deletion() {
    let (made, fs) = Made::new();
    assert_eq!(fs.files().unwrap(), FileCounts { used: 1, free: FILES_END - 2 });
    let (first, second) = (file(&fs, b"f"), file(&fs, b"g"));
    fs.create(&waiter(), ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    let link = NewFile { target: b"f".to_vec(), ..NewFile::new(FileKind::Symlink, 0o777) };
    fs.create(&waiter(), ROOT, b"l", &link).unwrap();
    assert_eq!(fs.files().unwrap(), FileCounts { used: 5, free: FILES_END - 6 });
    fs.link(&waiter(), first, ROOT, b"h").unwrap();
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    assert_eq!(used(&fs), 5);
    let open = fs.open_file(second).unwrap();
    fs.unlink(&waiter(), ROOT, b"g").unwrap();
    assert_eq!(used(&fs), 5);
    drop(open);
    assert_eq!(used(&fs), 4);
    fs.rmdir(&waiter(), ROOT, b"d").unwrap();
    assert_eq!(used(&fs), 3);
    let unnamed = fs.create_unnamed(&waiter(), &new_file()).unwrap();
    fs.sync(&waiter()).unwrap();
    assert_eq!(used(&fs), 4);
    fs.forbid_changes("the power is cut");
    drop(unnamed);
    drop(fs);
    let fs = made.open();
    assert_eq!(used(&fs), 3);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    assert_eq!(made.findings(), []);
}

#[test]
fn count_is_in_a_row_and_is_not_made_again() {
    let (made, fs) = Made::new();
    for n in 0..20 {
        file(&fs, format!("{n}").as_bytes());
    }
    fs.sync(&waiter()).unwrap();
    drop(fs);
    // The row is trusted, because it was written by the last commit.
    made.change(|rows| rows.put(key::counter("files"), 100u64.to_le_bytes().to_vec()));
    assert_eq!(used(&made.open()), 100);
}

#[test]
fn files_are_counted_after_a_commit_without_a_count() {
    let (made, fs) = Made::new();
    let ino = file(&fs, b"f");
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, 5000))).unwrap();
    fs.sync(&waiter()).unwrap();
    drop(fs);
    // As left by a program without the counter: it removes a file, and counts its opening.
    made.change(|rows| {
        rows.put(key::counter("files"), 100u64.to_le_bytes().to_vec());
        rows.put(key::counter("sequence"), (9u64 << 32).to_le_bytes().to_vec());
    });
    let fs = made.open();
    assert_eq!(used(&fs), 2);
    file(&fs, b"g");
    assert_eq!(used(&fs), 3);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    assert_eq!(made.findings(), []);
    // A row that cannot be decoded is no reason to refuse the file system.
    made.change(|rows| rows.put(key::counter("files"), vec![1, 2, 3]));
    assert_eq!(used(&made.open()), 3);
    // No row, as in an older file system.
    made.change(|rows| {
        rows.delete(key::counter("files"));
        rows.delete(key::counter("files-as-of"));
    });
    let fs = made.open();
    file(&fs, b"h");
    assert_eq!(used(&fs), 4);
}

#[test]
fn files_made_while_they_are_counted_are_counted_once() {
    let (made, fs) = Made::new();
    for n in 0..500 {
        file(&fs, format!("{n}").as_bytes());
    }
    fs.sync(&waiter()).unwrap();
    drop(fs);
    made.change(|rows| rows.delete(key::counter("files-as-of")));
    let (fs, is_making) = (made.open(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 500..1000 {
                file(&fs, format!("{n}").as_bytes());
                is_making.store(true, Ordering::Release);
                if n % 2 == 0 {
                    fs.unlink(&waiter(), ROOT, format!("{}", n - 500).as_bytes()).unwrap();
                }
            }
        });
        while !is_making.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        for _ in 0..20 {
            assert!((501..=751).contains(&used(&fs)));
        }
    });
    assert_eq!(used(&fs), 751);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    assert_eq!(made.findings(), []);
}
