//! Attributes of files: times, counts of blocks, generations.

use crate::common::{bytes, settle, waiter};
use crate::made::{At, Made};
use std::collections::BTreeSet;
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::{Changes, FileSystem, NewFile, Payload, ROOT, Rename, SetTime};

const BLOCK: u64 = 4096;

fn file(fs: &FileSystem, name: &str) -> u64 {
    fs.create(&waiter(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap()
}

fn write(fs: &FileSystem, ino: u64, block: u64, blocks: usize) {
    fs.write(&waiter(), ino, block * BLOCK, Payload::Bytes(&bytes(ino, blocks * BLOCK as usize))).unwrap();
}

/// Block count of a file once nothing of it is in flight.
fn blocks(fs: &FileSystem, ino: u64) -> u64 {
    settle(fs);
    fs.attributes(ino).unwrap().blocks
}

#[test]
fn times_before_1970_are_preserved() {
    let (made, fs) = Made::new();
    // 1901, and the limits of the range.
    let long_ago = -2_147_483_648_000_000_001;
    let at = At::new(long_ago);
    let ino = fs.create(&at, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    at.wall.set(5);
    let changes = Changes {
        atime: Some(SetTime::At(i64::MIN)),
        mtime: Some(SetTime::At(i64::MAX)),
        ..Changes::default()
    };
    fs.set_attributes(&at, ino, &changes).unwrap();
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let Attributes { atime, mtime, ctime, btime, .. } = made.open().attributes(ino).unwrap();
    assert_eq!((atime, mtime, ctime, btime), (i64::MIN, i64::MAX, 5, long_ago));
    assert_eq!(made.findings(), []);
}

#[test]
fn time_of_birth_stays_whatever_is_done_to_a_file() {
    let (made, fs) = Made::new();
    let at = At::new(1000);
    let ino = fs.create(&at, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    at.wall.set(2000);
    fs.write(&at, ino, 0, Payload::Bytes(&bytes(1, 50_000))).unwrap();
    fs.truncate(&at, ino, 30_000).unwrap();
    fs.punch(&at, ino, 4096..20_000).unwrap();
    fs.link(&at, ino, ROOT, b"g").unwrap();
    fs.rename(&at, (ROOT, b"f"), (ROOT, b"h"), Rename::Replace).unwrap();
    fs.set_xattr(&at, ino, b"user.x", b"y").unwrap();
    let changes = Changes {
        mode: Some(0o600),
        atime: Some(SetTime::At(1)),
        mtime: Some(SetTime::At(1)),
        ..Changes::default()
    };
    fs.set_attributes(&at, ino, &changes).unwrap();
    fs.unlink(&at, ROOT, b"g").unwrap();
    fs.sync(&at).unwrap();
    fs.collect(&at).unwrap();
    fs.sync(&at).unwrap();
    drop(fs);
    let after = made.open().attributes(ino).unwrap();
    assert_eq!((after.btime, after.ctime), (1000, 2000));
}

#[test]
fn blocks_are_those_of_the_extents_after_any_change() {
    // A small drive, so that there is garbage to collect.
    let (made, fs) = Made::on("ram:size=8M,zone_size=512K,blocksize=4096");
    let ino = file(&fs, "f");
    assert_eq!(blocks(&fs, ino), 0);
    write(&fs, ino, 0, 40);
    assert_eq!(blocks(&fs, ino), 40);
    // Over existing data, half over it, and far beyond it.
    write(&fs, ino, 5, 10);
    assert_eq!(blocks(&fs, ino), 40);
    write(&fs, ino, 35, 10);
    assert_eq!(blocks(&fs, ino), 45);
    write(&fs, ino, 1000, 3);
    assert_eq!(blocks(&fs, ino), 48);
    fs.punch(&waiter(), ino, 10 * BLOCK..20 * BLOCK + 5).unwrap();
    assert_eq!(blocks(&fs, ino), 38);
    // In the hole.
    write(&fs, ino, 12, 2);
    assert_eq!(blocks(&fs, ino), 40);
    fs.truncate(&waiter(), ino, 30 * BLOCK + 1).unwrap();
    assert_eq!(blocks(&fs, ino), 23);
    fs.truncate(&waiter(), ino, 1 << 40).unwrap();
    assert_eq!(blocks(&fs, ino), 23);
    // Until the zones of the file are full and have been collected.
    let filler = file(&fs, "filler");
    write(&fs, filler, 0, 300);
    fs.sync(&waiter()).unwrap();
    while fs.collect(&waiter()).unwrap() && fs.statistics().gc_blocks < 500 {}
    assert!(fs.statistics().gc_blocks > 23, "{:?}", fs.statistics());
    assert_eq!(blocks(&fs, ino), 23);
    // A deleted file that is still open, and one without a name.
    let open = fs.open_file(ino).unwrap();
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    fs.truncate(&waiter(), ino, BLOCK).unwrap();
    assert_eq!(blocks(&fs, ino), 1);
    open.close(&waiter()).unwrap();
    let open = fs.create_unnamed(&waiter(), &NewFile::new(FileKind::File, 0o600)).unwrap();
    let unnamed = open.ino();
    write(&fs, unnamed, 3, 9);
    fs.fsync(&waiter(), unnamed).unwrap();
    assert_eq!(blocks(&fs, unnamed), 9);
    fs.link(&waiter(), unnamed, ROOT, b"g").unwrap();
    open.close(&waiter()).unwrap();
    fs.sync(&waiter()).unwrap();
    drop(fs);
    assert_eq!(made.findings(), []);
    assert_eq!(blocks(&made.open(), unnamed), 9);
    assert_eq!(blocks(&made.open(), ROOT), 0);
}

#[test]
fn number_given_again_after_a_cut_has_another_generation() {
    let (made, fs) = Made::new();
    let mut handles = BTreeSet::new();
    let mut note = |fs: &FileSystem, ino: u64| {
        let generation = fs.attributes(ino).unwrap().generation;
        assert!(handles.insert((ino, generation)), "{ino} of {generation} twice: {handles:?}");
        ino
    };
    let kept = note(&fs, file(&fs, "kept"));
    fs.sync(&waiter()).unwrap();
    let before = fs.attributes(kept).unwrap();
    let mut numbers = BTreeSet::from([note(&fs, file(&fs, "lost"))]);
    drop(fs);
    for _ in 0..3 {
        // Nothing is made durable, and no data is written.
        let fs = made.open();
        let waiter = waiter();
        assert_eq!(fs.attributes(kept).unwrap(), before);
        numbers.insert(note(&fs, file(&fs, "lost")));
        let unnamed = fs.create_unnamed(&waiter, &NewFile::new(FileKind::File, 0o600)).unwrap();
        note(&fs, unnamed.ino());
        let new = NewFile::new(FileKind::Directory, 0o755);
        note(&fs, fs.create(&waiter, ROOT, b"directory", &new).unwrap());
    }
    assert_eq!(numbers.len(), 1, "the number was given again: {handles:?}");
    assert_eq!(made.open().attributes(ROOT).unwrap().generation, 0);
}
