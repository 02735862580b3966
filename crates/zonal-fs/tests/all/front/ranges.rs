//! Data and holes of a file with data in memory, and copies that cannot be completed.

use super::file;
use crate::common::{bytes, read_all, settle, waiter};
use crate::made::Made;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, FsError, NewFile, Payload, ROOT, Seek, SetIds, ZeroEnd};

const BLOCK: u64 = 4096;

fn write(fs: &FileSystem, ino: u64, block: u64, blocks: u64) {
    let data = bytes(block + 1, (blocks * BLOCK) as usize);
    assert_eq!(fs.write(&waiter(), ino, block * BLOCK, Payload::Bytes(&data)).unwrap(), blocks * BLOCK);
}

/// Data ranges, in blocks.
fn data(fs: &FileSystem, ino: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(from) = fs.seek(ino, at, Seek::Data) {
        at = fs.seek(ino, from, Seek::Hole).unwrap();
        found.push((from / BLOCK, at.div_ceil(BLOCK)));
    }
    found
}

#[test]
fn seek_treats_buffered_blocks_as_data() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    write(&fs, ino, 10, 3);
    fs.sync(&waiter()).unwrap();
    let open = fs.open_file(ino).unwrap();
    write(&fs, ino, 13, 1);
    // Still in the write buffer.
    settle(&fs);
    assert_eq!(fs.attributes(ino).unwrap().blocks, 3);
    assert_eq!(data(&fs, ino), [(10, 14)]);
    assert_eq!(fs.seek(ino, 13 * BLOCK + 5, Seek::Data).unwrap(), 13 * BLOCK + 5);
    // A write elsewhere moves it on, to wait for pieces of other files.
    write(&fs, ino, 30, 1);
    settle(&fs);
    assert_eq!(fs.attributes(ino).unwrap().blocks, 3);
    assert_eq!(data(&fs, ino), [(10, 14), (30, 31)]);
    assert_eq!(fs.seek(ino, 11 * BLOCK, Seek::Hole).unwrap(), 14 * BLOCK);
    open.close(&waiter()).unwrap();
    assert_eq!(data(&fs, ino), [(10, 14), (30, 31)]);
    fs.sync(&waiter()).unwrap();
    assert_eq!(data(&fs, ino), [(10, 14), (30, 31)]);
}

#[test]
fn seek_at_or_after_the_end_finds_nothing() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    let seek = |offset, what| fs.seek(ino, offset, what).map_err(|error| error.errno());
    assert_eq!((seek(0, Seek::Data), seek(0, Seek::Hole)), (Err(6), Err(6)));
    fs.truncate(&waiter(), ino, 10_000).unwrap();
    assert_eq!((seek(0, Seek::Data), seek(77, Seek::Hole)), (Err(6), Ok(77)));
    fs.write(&waiter(), ino, 9_990, Payload::Bytes(b"0123456789")).unwrap();
    assert_eq!((seek(0, Seek::Data), seek(9_999, Seek::Hole)), (Ok(8192), Ok(10_000)));
    for what in [Seek::Data, Seek::Hole] {
        assert_eq!((seek(10_000, what), seek(u64::MAX, what)), (Err(6), Err(6)));
    }
    assert!(matches!(fs.seek(ROOT, 0, Seek::Data), Err(FsError::IsDirectory)));
    let pipe = fs.create(&waiter(), ROOT, b"p", &NewFile::new(FileKind::Pipe, 0o644)).unwrap();
    assert!(matches!(fs.seek(pipe, 0, Seek::Data), Err(FsError::Invalid(_))));
}

#[test]
fn data_that_is_overwritten_and_moved_is_never_a_hole() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    write(&fs, ino, 0, 300);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..1500u64 {
                write(&fs, ino, n * 7919 % 295, 1 + n % 5);
                if n % 50 == 0 {
                    fs.collect(&waiter()).unwrap();
                }
            }
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            assert_eq!(fs.seek(ino, 0, Seek::Hole).unwrap(), 300 * BLOCK);
            assert_eq!(fs.seek(ino, 77 * BLOCK, Seek::Data).unwrap(), 77 * BLOCK);
        }
    });
    fs.sync(&waiter()).unwrap();
    fs.check();
}

#[test]
fn zeroes_after_the_end_make_a_file_longer_if_asked() {
    let (made, fs) = Made::new();
    let ino = file(&fs, b"f");
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, 10_000))).unwrap();
    let zero = |range, end| fs.zero_range(&waiter(), ino, range, end, SetIds::Keep);
    zero(9_000..50_000, ZeroEnd::Keep).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size, 10_000);
    zero(5_000..50_000, ZeroEnd::Extend).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size, 50_000);
    zero(0..1, ZeroEnd::Extend).unwrap();
    let mut expected = bytes(1, 10_000);
    expected.resize(50_000, 0);
    expected[0] = 0;
    expected[5_000..].fill(0);
    assert!(read_all(&fs, ino).unwrap() == expected);
    assert_eq!(data(&fs, ino), [(0, 2)]);
    assert!(matches!(zero(7..7, ZeroEnd::Keep), Err(FsError::Invalid(_))));
    assert!(matches!(zero(0..u64::MAX, ZeroEnd::Extend), Err(FsError::TooLarge)));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let fs = made.open();
    assert!(read_all(&fs, ino).unwrap() == expected);
    drop(fs);
    assert_eq!(made.findings(), []);
}

#[test]
fn copy_range_preserves_holes_and_frees_replaced_blocks() {
    let (made, fs) = Made::new();
    let (source, target) = (file(&fs, b"s"), file(&fs, b"t"));
    write(&fs, source, 2, 300);
    fs.punch(&waiter(), source, 10 * BLOCK..200 * BLOCK).unwrap();
    write(&fs, target, 0, 320);
    let copied = fs.copy_range(&waiter(), (source, 0), (target, 5 * BLOCK), 1 << 40, SetIds::Keep).unwrap();
    assert_eq!(copied, 302 * BLOCK);
    assert_eq!(data(&fs, source), [(2, 10), (200, 302)]);
    assert_eq!(data(&fs, target), [(0, 5), (7, 15), (205, 320)]);
    let (from, to) = (read_all(&fs, source).unwrap(), read_all(&fs, target).unwrap());
    assert!(to[5 * 4096..307 * 4096] == from);
    assert_eq!(to.len(), 320 * 4096);
    // A hole at the end of the source extends the target.
    fs.truncate(&waiter(), source, 400 * BLOCK).unwrap();
    let tail =
        fs.copy_range(&waiter(), (source, 300 * BLOCK + 7), (target, 320 * BLOCK), 1 << 40, SetIds::Keep);
    assert_eq!(tail.unwrap(), 100 * BLOCK - 7);
    assert_eq!(fs.attributes(target).unwrap().size, 420 * BLOCK - 7);
    fs.sync(&waiter()).unwrap();
    fs.check();
    drop(fs);
    assert_eq!(made.findings(), []);
}

#[test]
fn copy_range_errors_leave_the_target_unchanged() {
    let (_made, fs) = Made::new();
    let (source, target) = (file(&fs, b"s"), file(&fs, b"t"));
    write(&fs, source, 0, 10);
    let copy = |from, to, length| fs.copy_range(&waiter(), from, to, length, SetIds::Keep);
    let errno = |from, to, length| copy(from, to, length).map_err(|error: FsError| error.errno());
    assert_eq!(errno((source, 0), (source, 100), 200), Err(22));
    assert_eq!(errno((source, 100), (source, 0), 200), Err(22));
    assert_eq!(errno((source, 0), (source, 5000), 5000), Ok(5000));
    assert_eq!(errno((ROOT, 0), (target, 0), 1), Err(21));
    assert_eq!(errno((source, 0), (ROOT, 0), 1), Err(21));
    assert_eq!(errno((source, 0), (target, 1 << 56), 1), Err(27));
    assert_eq!(errno((source, 0), (99, 0), 1), Err(2));
    let before = fs.attributes(target).unwrap();
    assert_eq!(errno((source, 10 * BLOCK), (target, 0), 1), Ok(0));
    assert_eq!(errno((source, u64::MAX), (target, 0), u64::MAX), Ok(0));
    assert_eq!(fs.attributes(target).unwrap(), before);
}

#[test]
fn copy_range_without_enough_space_is_short() {
    let (_made, fs) = Made::new();
    let (source, target) = (file(&fs, b"s"), file(&fs, b"t"));
    let room = fs.usage().free;
    write(&fs, source, 0, room * 2 / 3);
    fs.sync(&waiter()).unwrap();
    let copy = |from: u64, to| fs.copy_range(&waiter(), (source, from), (target, to), 1 << 40, SetIds::Keep);
    let copied = copy(0, 0).unwrap();
    assert!((1 << 20..room * 2 / 3 * BLOCK).contains(&copied), "{copied}");
    assert!(copy(copied, copied).is_err_and(|error| error.errno() == 28));
    let (from, to) = (read_all(&fs, source).unwrap(), read_all(&fs, target).unwrap());
    assert!(to == from[..copied as usize]);
    fs.sync(&waiter()).unwrap();
    fs.check();
}
