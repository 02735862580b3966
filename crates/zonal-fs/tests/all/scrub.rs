//! Scrubs verify everything, whatever is written, collected and reset meanwhile.

use crate::common;
use crate::common::interleaved::Interleaved;
use crate::common::{bytes, device, make, settle, volume, waiter};
use std::ops::ControlFlow;
use zonal_fs::format::{FileKind, key};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT, Scrub};

const BLOCK: usize = 4096;

/// A file system with zones of 64 blocks, and a file that spans several zones.
fn filled() -> (FileSystem, u64) {
    let device = device("ram:size=6M,zone_size=256K,blocksize=4096,complete=poll");
    let fs = make(volume(device), 8, MountOptions::default());
    let waiter = waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(1, 200 * BLOCK))).unwrap();
    fs.sync(&waiter).unwrap();
    (fs, ino)
}

/// Scrubs to the end, and returns the damage.
fn scrub(fs: &FileSystem, waiter: &dyn Wait, scrub: &mut Scrub) -> Vec<String> {
    let mut damaged = Vec::new();
    while scrub.ended.is_none() {
        fs.scrub_step(waiter, scrub, |error| damaged.push(error.to_string())).unwrap();
    }
    damaged
}

#[test]
fn all_data_are_seen_once() {
    let (fs, ino) = filled();
    let mut seen = Scrub::default();
    assert_eq!(scrub(&fs, &waiter(), &mut seen), [""; 0]);
    assert_eq!((seen.bytes, seen.damaged), (fs.scrub_bytes(), 0));
    let before = seen.bytes;
    // A hole, and relocated blocks.
    fs.punch(&waiter(), ino, 0..50 * BLOCK as u64).unwrap();
    for block in (100..140).step_by(2) {
        fs.write(&waiter(), ino, block * BLOCK as u64, Payload::Bytes(&bytes(block, BLOCK))).unwrap();
    }
    fs.sync(&waiter()).unwrap();
    let mut seen = Scrub::default();
    assert_eq!(scrub(&fs, &waiter(), &mut seen), [""; 0]);
    assert_eq!(seen.bytes, fs.scrub_bytes());
    assert!(seen.bytes <= before - 40 * BLOCK as u64, "{} of {before}", seen.bytes);
}

#[test]
fn zones_that_are_collected_and_written_again_meanwhile_are_no_damage() {
    let mut resets = 0;
    for turn in 0..40 {
        let (fs, ino) = filled();
        let change = || {
            let waiter = common::waiter();
            for round in 0..6 {
                for first in (0..200).step_by(20) {
                    let new = bytes(1000 * (round + 1) + first, 20 * BLOCK);
                    fs.write(&waiter, ino, first * BLOCK as u64, Payload::Bytes(&new)).unwrap();
                }
                fs.sync(&waiter).unwrap();
                while fs.collect(&waiter).unwrap() {}
            }
        };
        let interleaved = Interleaved::new(turn, &change);
        let mut seen = Scrub::default();
        assert_eq!(scrub(&fs, &interleaved, &mut seen), [""; 0], "turn {turn}");
        settle(&fs);
        fs.check();
        resets += fs.statistics().resets;
        // No zone stays pinned.
        change();
        assert_eq!(scrub(&fs, &waiter(), &mut Scrub::default()), [""; 0], "turn {turn}");
    }
    assert!(resets > 100, "{resets}");
}

/// A damaged row about the contents of a zone is reported, and the other zones are scrubbed.
#[test]
fn zone_with_damaged_rows_does_not_stop_the_scrub_of_others() {
    let volume = volume(device("ram:size=6M,zone_size=256K,blocksize=4096,complete=poll"));
    let (superblock, memory) = (common::superblock(&volume, 0, 8), Memory::new());
    let options = MountOptions::default();
    let fs = common::make_with(volume.clone(), superblock.clone(), memory.clone(), options);
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, 200 * BLOCK))).unwrap();
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let mut rows = Rows::open(memory.clone(), 1 << 22).unwrap();
    let mut run = None;
    let (from, end) = key::runs(1);
    rows.scan(&from, &end, |key, _| {
        run = Some(key.to_vec());
        ControlFlow::Break(())
    })
    .unwrap();
    rows.put(run.expect("zone 1 has data"), vec![1]);
    let committed = rows.seal().unwrap().commit().unwrap();
    rows.settled(committed);
    drop(rows);
    let fs = common::reopen(volume, superblock, memory, options).unwrap();
    let mut seen = Scrub::default();
    let damaged = scrub(&fs, &waiter(), &mut seen);
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    // One of the four zones is left out.
    let all = fs.scrub_bytes();
    assert!(seen.bytes < all && seen.bytes > all - 64 * BLOCK as u64, "{} of {all}", seen.bytes);
}

#[test]
fn scrub_is_kept_and_continues() {
    let (fs, _) = filled();
    assert_eq!(fs.scrub().unwrap(), None);
    let mut seen = Scrub::default();
    for _ in 0..3 {
        fs.scrub_step(&waiter(), &mut seen, |_| {}).unwrap();
        fs.keep_scrub(&waiter(), &seen).unwrap();
        assert_eq!(fs.scrub().unwrap(), Some(seen));
    }
    scrub(&fs, &waiter(), &mut seen);
    fs.keep_scrub(&waiter(), &seen).unwrap();
    assert_eq!(fs.scrub().unwrap(), Some(seen));
    assert!(seen.ended.is_some());
}
