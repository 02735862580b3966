//! Threads change names concurrently, while others open and list the directory.

use crate::common::{device, make_with, superblock, volume, waiter};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, Position, Superblock};
use zonal_fs::fsck::{Options, check};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, MountOptions, NewFile, ROOT, Rename};
use zonal_io::volume::Volume;

/// Run time of the threads. A race, if there is one, usually shows within a second.
const TIME: Duration = Duration::from_secs(3);

/// Number of openers, in addition to the thread that creates names.
const OPENERS: usize = 4;

/// Maximum number of names. A larger directory would show nothing new.
const NAMES_MAX: u64 = 200_000;

fn made() -> (Arc<Volume>, Superblock, Memory, FileSystem) {
    let volume = volume(device("ram:size=64M,zone_size=1M,blocksize=4096"));
    let (superblock, memory) = (superblock(&volume, 0, 8), Memory::new());
    let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
    (volume, superblock, memory, fs)
}

/// If a directory is loaded while a name is created in it, it has that name, too.
fn directory_is_opened_while_names_are_made(kind: FileKind) {
    let (volume, superblock, memory, fs) = made();
    let (waiter, is_over) = (waiter(), AtomicBool::new(false));
    let directory = fs.create(&waiter, ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    let names = thread::scope(|scope| {
        for _ in 0..OPENERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(fs.open_file(directory).unwrap());
                }
            });
        }
        let (begin, mut names) = (Instant::now(), 0);
        while begin.elapsed() < TIME && names < NAMES_MAX {
            fs.create(&waiter, directory, names.to_string().as_bytes(), &NewFile::new(kind, 0o644)).unwrap();
            names += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        names
    });
    let attributes = fs.attributes(directory).unwrap();
    assert_eq!(attributes.next_position.0, names + Position::FIRST.0);
    let subdirectories = if kind == FileKind::Directory { names } else { 0 };
    assert_eq!(u64::from(attributes.links), 2 + subdirectories);
    let mut listed = 0;
    fs.list_from(directory, Position::START, |_, _, _| {
        listed += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(listed, names);
    fs.sync(&waiter).unwrap();
    drop(fs);
    let rows = Rows::open(memory, 1 << 22).unwrap();
    let found =
        check(&rows, &superblock, &Drive::new(volume), &waiter, Options::default().with_data(false)).unwrap();
    assert_eq!(found, []);
}

/// Slow: repeats a race of two threads.
#[test]
fn directory_is_opened_while_names_are_made_in_it() {
    for kind in [FileKind::File, FileKind::Directory] {
        directory_is_opened_while_names_are_made(kind);
    }
}

#[test]
fn file_that_is_renamed_to_and_fro_is_listed_once_and_is_no_damage() {
    let (_volume, _superblock, _memory, fs) = made();
    let waiter = waiter();
    fs.create(&waiter, ROOT, b"a", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let listers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut lists = 0;
                    while !is_over.load(Ordering::Acquire) {
                        let mut names = 0;
                        fs.list_from(ROOT, Position::START, |_, _, _| {
                            names += 1;
                            ControlFlow::Continue(())
                        })
                        .unwrap();
                        assert_eq!(names, 1);
                        lists += 1;
                    }
                    lists
                })
            })
            .collect();
        let begin = Instant::now();
        while begin.elapsed() < TIME && listers.iter().all(|lister| !lister.is_finished()) {
            fs.rename(&waiter, (ROOT, b"a"), (ROOT, b"b"), Rename::Replace).unwrap();
            fs.rename(&waiter, (ROOT, b"b"), (ROOT, b"a"), Rename::Replace).unwrap();
        }
        is_over.store(true, Ordering::Release);
        for lister in listers {
            assert!(lister.join().unwrap() > 0);
        }
    });
}
