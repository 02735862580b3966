//! Changes of several attributes at once, and set-id bits.

use super::file;
use crate::common::{bytes, settle, waiter};
use crate::made::{At, Made};
use zonal_fs::format::FileKind;
use zonal_fs::{Changes, FileSystem, FsError, NewFile, Payload, ROOT, SetIds, SetTime, Target};

fn with_mode(fs: &FileSystem, name: &[u8], mode: u16) -> u64 {
    let ino = file(fs, name);
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(ino, 20_000))).unwrap();
    fs.set_attributes(&waiter(), ino, &Changes { mode: Some(mode), ..Changes::default() }).unwrap();
    ino
}

#[test]
fn all_attributes_change_in_one_call() {
    let (made, fs) = Made::new();
    let ino = with_mode(&fs, b"f", 0o6755);
    let at = At::new(500);
    let changes = Changes {
        size: Some(5000),
        mode: Some(0o102711),
        uid: Some(7),
        gid: Some(8),
        atime: Some(SetTime::At(-9)),
        mtime: Some(SetTime::Now),
        ctime: None,
        lifetime: Some(2),
        set_ids: SetIds::Clear,
    };
    let told = fs.set_attributes(&at, ino, &changes).unwrap();
    assert_eq!(told, fs.attributes(ino).unwrap());
    assert_eq!((told.size, told.mode, told.uid, told.gid), (5000, 0o2711, 7, 8));
    assert_eq!((told.atime, told.mtime, told.ctime, told.lifetime), (-9, 500, 500, 2));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let fs = made.open();
    assert_eq!(fs.attributes(ino).unwrap(), told);
    let mut read = vec![0; 6000];
    assert_eq!(fs.read(&waiter(), ino, 0, Target::Bytes(&mut read)).unwrap(), 5000);
    assert!(read[..5000] == bytes(ino, 20_000)[..5000]);
}

#[test]
fn size_that_stays_leaves_the_time_of_the_data() {
    let (_made, fs) = Made::new();
    let ino = with_mode(&fs, b"f", 0o644);
    let at = At::new(100);
    let resize = |size, mtime| {
        fs.set_attributes(&at, ino, &Changes { size: Some(size), mtime, ..Changes::default() }).unwrap()
    };
    let resized = resize(10_000, None);
    assert_eq!((resized.mtime, resized.ctime), (100, 100));
    at.wall.set(200);
    let same = resize(10_000, None);
    assert_eq!((same.mtime, same.ctime), (100, 200));
    at.wall.set(300);
    // As requested by ftruncate.
    assert_eq!(resize(10_000, Some(SetTime::Now)).mtime, 300);
    at.wall.set(400);
    fs.truncate(&at, ino, 10_000).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().mtime, 400);
    assert_eq!(resize(20_000, Some(SetTime::At(7))).mtime, 7);
}

#[test]
fn attributes_stay_if_the_size_cannot_be_changed() {
    let (_made, fs) = Made::new();
    let at = At::new(100);
    let directory = fs.create(&at, ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    let ino = fs.create(&at, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let pipe = fs.create(&at, ROOT, b"p", &NewFile::new(FileKind::Pipe, 0o644)).unwrap();
    at.wall.set(200);
    for (ino, size, errno) in [(directory, 0, 21), (pipe, 0, 22), (ino, u64::MAX, 27)] {
        let before = fs.attributes(ino).unwrap();
        let changes = Changes { size: Some(size), mode: Some(0), uid: Some(9), ..Changes::default() };
        assert_eq!(fs.set_attributes(&at, ino, &changes).unwrap_err().errno(), errno);
        assert_eq!(fs.attributes(ino).unwrap(), before);
    }
    let missing = fs.set_attributes(&at, pipe + 1, &Changes::default());
    assert!(matches!(missing, Err(FsError::NotFound)));
}

#[test]
fn set_id_bits_go_with_each_change_of_data_or_owner() {
    let (_made, fs) = Made::new();
    let waiter = waiter();
    let other = with_mode(&fs, b"other", 0o644);
    type Change<'a> = &'a dyn Fn(u64, SetIds) -> Result<(), FsError>;
    let set = |ino, changes: Changes| fs.set_attributes(&waiter, ino, &changes).map(|_| ());
    let changes: [(&str, Change<'_>); 6] = [
        ("write", &|ino, keep| fs.write_with(&waiter, ino, 9, Payload::Bytes(b"x"), keep).map(|_| ())),
        ("zeroes", &|ino, keep| fs.zero_range(&waiter, ino, 0..9, zonal_fs::ZeroEnd::Keep, keep)),
        ("copy", &|ino, keep| fs.copy_range(&waiter, (other, 0), (ino, 0), 9, keep).map(|_| ())),
        ("size", &|ino, set_ids| set(ino, Changes { size: Some(7), set_ids, ..Changes::default() })),
        ("owner", &|ino, set_ids| set(ino, Changes { uid: Some(0), set_ids, ..Changes::default() })),
        ("group", &|ino, set_ids| set(ino, Changes { gid: Some(5), set_ids, ..Changes::default() })),
    ];
    for (what, change) in changes {
        for (mode, cleared) in [(0o6755, 0o755), (0o6745, 0o2745)] {
            let ino = with_mode(&fs, what.as_bytes(), mode);
            change(ino, SetIds::Keep).unwrap();
            assert_eq!(fs.attributes(ino).unwrap().mode, mode, "{what}");
            change(ino, SetIds::Clear).unwrap();
            assert_eq!(fs.attributes(ino).unwrap().mode, cleared, "{what}");
            fs.unlink(&waiter, ROOT, what.as_bytes()).unwrap();
        }
    }
    let ino = with_mode(&fs, b"f", 0o6755);
    fs.write(&waiter, ino, 0, Payload::Bytes(b"")).unwrap();
    set(ino, Changes { mtime: Some(SetTime::Now), ..Changes::default() }).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().mode, 0o6755);
    fs.punch(&waiter, ino, 0..4096).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().mode, 0o755);
    let directory = fs.create(&waiter, ROOT, b"d", &NewFile::new(FileKind::Directory, 0o2755)).unwrap();
    set(directory, Changes { gid: Some(5), ..Changes::default() }).unwrap();
    assert_eq!(fs.attributes(directory).unwrap().mode, 0o2755);
}

#[test]
fn write_of_nothing_changes_nothing() {
    let (_made, fs) = Made::new();
    let ino = with_mode(&fs, b"f", 0o4755);
    settle(&fs);
    let before = fs.attributes(ino).unwrap();
    assert_eq!(fs.write(&At::new(1), ino, 1 << 40, Payload::Bytes(b"")).unwrap(), 0);
    assert_eq!(fs.attributes(ino).unwrap(), before);
    let directory = fs.write(&waiter(), ROOT, 0, Payload::Bytes(b""));
    assert!(matches!(directory, Err(FsError::IsDirectory)));
}

#[test]
fn ctime_supplied_by_the_kernel_is_used() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    let changes = Changes { mtime: Some(SetTime::At(3)), ctime: Some(SetTime::At(4)), ..Changes::default() };
    let told = fs.set_attributes(&At::new(500), ino, &changes).unwrap();
    assert_eq!((told.mtime, told.ctime), (3, 4));
    let told = fs.set_attributes(&At::new(600), ino, &Changes::default()).unwrap();
    assert_eq!((told.mtime, told.ctime), (3, 600));
}
