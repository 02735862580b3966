//! Refused calls return the reason, and change nothing.

use super::{file, new_file};
use crate::common::{bytes, waiter};
use crate::made::Made;
use zonal_fs::format::{FileKind, key};
use zonal_fs::store::Rows;
use zonal_fs::{Changes, FileSystem, FsError, NewFile, Payload, ROOT, Rename, Target};

/// A call that removes the file `b`.
type Ends = fn(&FileSystem, u64) -> Result<(), FsError>;

#[test]
fn file_with_unreadable_rows_keeps_its_name() {
    let calls: [(&str, Ends); 3] = [
        ("rename", |fs, _| fs.rename(&waiter(), (ROOT, b"a"), (ROOT, b"b"), Rename::Replace)),
        ("unlink", |fs, _| fs.unlink(&waiter(), ROOT, b"b")),
        ("link_over", |fs, a| fs.link_over(&waiter(), a, ROOT, b"b")),
    ];
    for (name, end) in calls {
        let (made, fs) = Made::new();
        let [a, b] = [b"a", b"b"].map(|name| file(&fs, name));
        fs.write(&waiter(), b, 0, Payload::Bytes(&bytes(2, 50_000))).unwrap();
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let mut rows = Rows::open(made.memory.clone(), 1 << 22).unwrap();
        rows.put(key::extent(b, 0), vec![0xff; 3]);
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
        drop(rows);
        let fs = made.open();
        let before = [a, b].map(|ino| fs.attributes(ino).unwrap());
        assert!(matches!(end(&fs, a), Err(FsError::Row(_))), "{name}");
        assert_eq!([b"a", b"b"].map(|name| fs.lookup(ROOT, name).unwrap()), [a, b], "{name}");
        assert_eq!([a, b].map(|ino| fs.attributes(ino).unwrap()), before, "{name}");
    }
}

#[test]
fn file_without_data_is_neither_read_nor_written() {
    let (_made, fs) = Made::new();
    let mut bytes = [1; 8];
    for (kind, is_directory) in
        [(FileKind::Directory, true), (FileKind::Symlink, false), (FileKind::Pipe, false)]
    {
        let new = NewFile { target: b"target".to_vec(), ..NewFile::new(kind, 0o644) };
        let ino = fs.create(&waiter(), ROOT, format!("{kind:?}").as_bytes(), &new).unwrap();
        let refused = [
            fs.read(&waiter(), ino, 0, Target::Bytes(&mut bytes)).unwrap_err(),
            fs.write(&waiter(), ino, 0, Payload::Bytes(b"bytes")).unwrap_err(),
            fs.write(&waiter(), ino, 0, Payload::Bytes(b"")).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(matches!(error, FsError::IsDirectory), is_directory, "{kind:?}: {error}");
            assert_eq!(matches!(error, FsError::Invalid(_)), !is_directory, "{kind:?}: {error}");
        }
    }
    assert_eq!(bytes, [1; 8]);
}

#[test]
fn every_call_refuses_too_long_names() {
    let (_made, fs) = Made::new();
    file(&fs, b"a");
    let (waiter, long) = (waiter(), [b'n'; 256]);
    let refused = [
        fs.lookup(ROOT, &long).map(|_| ()),
        fs.create(&waiter, ROOT, &long, &new_file()).map(|_| ()),
        fs.unlink(&waiter, ROOT, &long),
        fs.rmdir(&waiter, ROOT, &long),
        fs.rename(&waiter, (ROOT, &long), (ROOT, b"b"), Rename::Replace),
        fs.rename(&waiter, (ROOT, b"a"), (ROOT, &long), Rename::Replace),
        fs.link(&waiter, fs.lookup(ROOT, b"a").unwrap(), ROOT, &long),
    ];
    assert!(refused.iter().all(|result| matches!(result, Err(FsError::NameTooLong))), "{refused:?}");
}

#[test]
fn mode_is_masked_to_permissions_and_unknown_lifetimes_are_refused() {
    let (_made, fs) = Made::new();
    let ino = fs.create(&waiter(), ROOT, b"a", &NewFile::new(FileKind::File, 0o107_644)).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().mode, 0o7644);
    let before = fs.attributes(ino).unwrap();
    let changes = Changes { lifetime: Some(200), ..Changes::default() };
    assert!(matches!(fs.set_attributes(&waiter(), ino, &changes), Err(FsError::Invalid(_))));
    assert_eq!(fs.attributes(ino).unwrap(), before);
}
