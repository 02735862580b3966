//! Files that have no name yet.

mod common;

use common::{bytes, device, make_with, read_all, reopen, superblock, volume, waiter};
use zonal_fs::format::Kind;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FsError, MountOptions, NewFile, Payload, ROOT, Rename};

#[test]
fn file_without_a_name_goes_when_it_is_closed_or_the_power_is_cut_and_stays_once_it_has_one() {
    let volume = volume(device("ram:size=8M,zone_size=512K,blocksize=4096"));
    let (superblock, memory, options) = (superblock(&volume, 0, 8), Memory::new(), MountOptions::default());
    let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), options);
    let new = NewFile::new(Kind::File, 0o640);
    let data = bytes(1, 100_000);
    let made = || {
        let ino = fs.create_unnamed(&waiter(), &new).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(&data)).unwrap();
        fs.fsync(&waiter(), ino).unwrap();
        ino
    };
    let (closed, cut, linked, replacing) = (made(), made(), made(), made());
    fs.close_file(&waiter(), closed).unwrap();
    assert!(matches!(fs.attributes(closed), Err(FsError::NotFound)));
    assert!(matches!(fs.link(&waiter(), closed, ROOT, b"closed"), Err(FsError::NotFound)));
    fs.link(&waiter(), linked, ROOT, b"linked").unwrap();
    fs.close_file(&waiter(), linked).unwrap();
    fs.link(&waiter(), replacing, ROOT, b"x").unwrap();
    fs.rename(&waiter(), (ROOT, b"x"), (ROOT, b"linked"), Rename::Replace).unwrap();
    assert!(matches!(fs.attributes(linked), Err(FsError::NotFound)));
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.attributes(cut).unwrap().links, 0);
    fs.forbid_changes("the power is cut");
    drop(fs);
    let fs = reopen(volume, superblock, memory, options).unwrap();
    assert!(matches!(fs.attributes(cut), Err(FsError::NotFound)));
    assert_eq!(fs.resolve(b"linked").unwrap(), replacing);
    let attributes = fs.attributes(replacing).unwrap();
    assert_eq!((attributes.links, attributes.mode, attributes.size), (1, 0o640, 100_000));
    assert!(read_all(&fs, replacing).unwrap() == data);
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.usage().used, 25);
    fs.check();
    assert!(matches!(
        fs.create_unnamed(&waiter(), &NewFile::new(Kind::Directory, 0o755)),
        Err(FsError::Invalid(_))
    ));
}
