//! Files of many extents are removed in portions, and calls of other threads are served in between.
//! Tests run one at a time.

mod common;

use common::{device, make, volume, waiter};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT};

const BLOCK: u64 = 4096;

/// Number of extents of the file, each a block followed by a hole. Enough for the other thread to
/// see intermediate states even with half a CPU.
const EXTENTS: u64 = 200_000;

static ALONE: Mutex<()> = Mutex::new(());

/// Makes a file of many extents, ends it with `end`, and watches the used space from another thread
/// meanwhile.
fn end_beside_another_thread(end: impl FnOnce(&FileSystem, u64)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fs = make(volume(device("null:size=4G,zone_size=16M,blocksize=4096")), 256, MountOptions::default());
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let open = fs.open_file(ino).unwrap();
    for extent in 0..EXTENTS {
        fs.write(&waiter(), ino, 2 * extent * BLOCK, Payload::Bytes(&[7; BLOCK as usize])).unwrap();
    }
    open.close(&waiter()).unwrap();
    fs.sync(&waiter()).unwrap();
    let is_over = AtomicBool::new(false);
    let (took, (longest, seen)) = std::thread::scope(|scope| {
        let look = || {
            let (mut longest, mut seen) = (Duration::ZERO, BTreeSet::new());
            while !is_over.load(Ordering::Acquire) {
                let begin = Instant::now();
                seen.insert(fs.usage().used);
                longest = longest.max(begin.elapsed());
            }
            (longest, seen)
        };
        let other = scope.spawn(look);
        std::thread::sleep(Duration::from_millis(20));
        let begin = Instant::now();
        end(&fs, ino);
        let took = begin.elapsed();
        is_over.store(true, Ordering::Release);
        (took, other.join().unwrap())
    });
    println!("{took:?}, of it the longest call of the other thread {longest:?}, {} states", seen.len());
    assert_eq!(fs.usage().used, 0);
    assert!(seen.len() > 10, "{seen:?}; {longest:?} of {took:?}");
    fs.sync(&waiter()).unwrap();
    fs.check();
}

#[test]
fn calls_are_served_while_a_file_of_many_extents_is_removed() {
    end_beside_another_thread(|fs, _| fs.unlink(&waiter(), ROOT, b"f").unwrap());
}

#[test]
fn calls_are_served_while_a_file_of_many_extents_is_closed() {
    end_beside_another_thread(|fs, ino| {
        let open = fs.open_file(ino).unwrap();
        fs.unlink(&waiter(), ROOT, b"f").unwrap();
        drop(open);
    });
}

#[test]
fn calls_are_served_while_a_file_of_many_extents_is_cut() {
    end_beside_another_thread(|fs, ino| fs.truncate(&waiter(), ino, 0).unwrap());
}
