//! Number of requests that the kernel sends for operations of programs, and the correctness of the
//! replies from its caches.

use crate::power::{Mounted, Powered};
use rustix::fs::{FileType, Mode, OFlags, RawDir, XattrFlags, getxattr, lstat, setxattr};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zonal_fuse::wire::numbers::opcode;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const LABEL: &str = "security.selinux";

/// Numbers of requests, by code.
struct Requests([u64; 64]);

impl Requests {
    /// Requests of `act`.
    fn of(mounted: &Mounted, act: impl FnOnce()) -> Requests {
        let count = || std::array::from_fn(|code| mounted.requests(code as u32));
        let before: [u64; 64] = count();
        act();
        let after: [u64; 64] = count();
        Requests(std::array::from_fn(|code| after[code] - before[code]))
    }

    /// Requests with these codes.
    fn with(&self, codes: &[u32]) -> u64 {
        codes.iter().map(|code| self.0[*code as usize]).sum()
    }

    /// Requests that a program waits for.
    fn all(&self) -> u64 {
        let nobody = [opcode::FORGET, opcode::BATCH_FORGET, opcode::RELEASE, opcode::RELEASEDIR];
        self.0.iter().sum::<u64>() - self.with(&nobody)
    }
}

/// Makes everything durable.
fn sync(mounted: &Mounted) {
    fs::File::open(mounted.dir.path()).unwrap().sync_all().unwrap();
}

/// Looks at each file below `dir` as `ls -lR` does, and returns their number.
fn list(dir: &Path) -> u64 {
    let mut inner = Vec::<PathBuf>::new();
    let mut count = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // The standard library asks for the time of creation, too, which listings do not have.
        let file = lstat(&path).unwrap();
        assert_eq!(getxattr(&path, ACCESS, &mut [0; 64]), Err(Errno::NODATA));
        if FileType::from_raw_mode(file.st_mode).is_dir() {
            assert_eq!(getxattr(&path, DEFAULT, &mut [0; 64]), Err(Errno::NODATA));
            inner.push(path);
        }
        count += 1;
    }
    count + inner.iter().map(|dir| list(dir)).sum::<u64>()
}

#[test]
fn listing_asks_once_for_each_list_and_twice_for_nothing() {
    const DIRECTORIES: u64 = 4;
    let drive = Powered::new();
    {
        let mounted = drive.mount(true);
        for n in 0..DIRECTORIES {
            let dir = mounted.dir.path().join(format!("d{n}"));
            fs::create_dir(&dir).unwrap();
            (0..100).for_each(|n| fs::write(dir.join(n.to_string()), b"data").unwrap());
        }
        sync(&mounted);
    }
    let mounted = drive.mount(true);
    let mut files = 0;
    let first = Requests::of(&mounted, || files = list(mounted.dir.path()));
    assert_eq!(files, DIRECTORIES * 101);
    assert!(first.with(&[opcode::GETXATTR]) <= files + DIRECTORIES, "{}", first.with(&[opcode::GETXATTR]));
    assert!(first.all() <= files + 10 * (DIRECTORIES + 1), "{}", first.all());
    // The first has changed the access times of the directories, so the kernel asks for theirs.
    let second = Requests::of(&mounted, || assert_eq!(list(mounted.dir.path()), files));
    assert!(second.all() <= 4 * (DIRECTORIES + 1), "{}", second.all());
    let third = Requests::of(&mounted, || assert_eq!(list(mounted.dir.path()), files));
    assert!(third.all() <= DIRECTORIES + 1, "{}", third.all());
    assert_eq!(third.with(&[opcode::OPENDIR]), third.all());
}

/// Linux takes a position that is no longer in its cache for the end, if the listing fills whole
/// pages: here, 128 names of 32 bytes each.
#[test]
fn reader_continues_after_a_removed_name_while_another_fills_the_cache() {
    const NAMES: usize = 127;
    let drive = Powered::new();
    let mounted = drive.mount(true);
    let path = |name: &str| mounted.dir.path().join(name);
    (0..NAMES).for_each(|n| drop(fs::File::create(path(&format!("name{n:04}"))).unwrap()));
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(mounted.dir.path(), flags, Mode::empty()).unwrap()
    };
    let mut memory = vec![MaybeUninit::uninit(); 512];
    let rest = |dir: &OwnedFd, memory: &mut [MaybeUninit<u8>]| {
        let mut names = RawDir::new(dir, memory);
        std::iter::from_fn(|| Some(names.next()?.unwrap().file_name().to_owned())).collect::<Vec<_>>()
    };
    // The cache is complete.
    assert_eq!(rest(&open(), &mut memory).len(), NAMES + 2);
    let reader = open();
    let mut seen = Vec::new();
    let mut names = RawDir::new(&reader, &mut memory);
    while seen.is_empty() || !names.is_buffer_empty() {
        seen.push(names.next().unwrap().unwrap().file_name().to_owned());
    }
    fs::remove_file(path(seen.last().unwrap().to_str().unwrap())).unwrap();
    assert_eq!(rest(&open(), &mut [MaybeUninit::uninit(); 32 << 10]).len(), NAMES + 1);
    seen.extend(rest(&reader, &mut memory));
    assert_eq!(seen.len(), NAMES + 2);
}

#[test]
fn files_without_labels_say_that_there_are_none() {
    let drive = Powered::new();
    {
        let mounted = drive.mount(true);
        let path = |name: &str| mounted.dir.path().join(name);
        let label = |name: &str| getxattr(path(name), LABEL, &mut [0; 64]);
        ["a", "b"].iter().for_each(|name| fs::write(path(name), b"data").unwrap());
        if Path::new("/sys/fs/selinux/enforce").exists() {
            return;
        }
        assert_eq!(label("a"), Err(Errno::OPNOTSUPP));
        setxattr(path("a"), LABEL, b"user_u:object_r:etc_t", XattrFlags::empty()).unwrap();
        assert_eq!((label("a"), label("b")), (Ok(21), Err(Errno::NODATA)));
        rustix::fs::removexattr(path("a"), LABEL).unwrap();
        assert_eq!(label("a"), Err(Errno::NODATA));
        setxattr(path("b"), LABEL, b"user_u:object_r:etc_t", XattrFlags::empty()).unwrap();
        sync(&mounted);
    }
    let mounted = drive.mount(true);
    let label = |name: &str| getxattr(mounted.dir.path().join(name), LABEL, &mut [0; 64]);
    assert_eq!((label("a"), label("b")), (Err(Errno::NODATA), Ok(21)));
}

/// Files are unpacked as by `tar`, and read at once.
#[test]
fn new_files_take_few_requests_and_are_read_without_more_attributes() {
    const FILES: u64 = 100;
    let drive = Powered::new();
    let mounted = drive.mount(true);
    let path = |n: u64| mounted.dir.path().join(n.to_string());
    let made = Requests::of(&mounted, || {
        for n in 0..FILES {
            let mut file = fs::File::create_new(path(n)).unwrap();
            file.write_all(&[7; 5000]).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        }
    });
    for (codes, per_file) in [
        (&[opcode::LOOKUP][..], 1),
        (&[opcode::CREATE], 1),
        (&[opcode::WRITE], 1),
        // Of the directory, which a new name changes.
        (&[opcode::GETATTR, opcode::STATX], 1),
        // Capabilities, before the first write.
        (&[opcode::GETXATTR], 1),
        // The mode, and times from the page cache.
        (&[opcode::SETATTR], 2),
    ] {
        assert!(made.with(codes) <= per_file * FILES + 10, "{codes:?}: {}", made.with(codes));
    }
    assert!(made.all() <= 7 * FILES + 20, "{}", made.all());
    // The close has changed the count of blocks, which is asked for once.
    let looked = Requests::of(&mounted, || {
        for n in 0..FILES {
            for _ in 0..3 {
                let file = fs::metadata(path(n)).unwrap();
                assert_eq!((file.len(), file.blocks()), (5000, 16));
            }
        }
    });
    assert!(looked.all() <= FILES + 10, "{}", looked.all());
    let read = Requests::of(&mounted, || {
        (0..FILES).for_each(|n| assert_eq!(fs::read(path(n)).unwrap(), [7; 5000]));
    });
    assert_eq!(read.with(&[opcode::LOOKUP, opcode::READ]), 0);
}

/// The kernel may cache a count of blocks, so it must be final.
#[test]
fn blocks_of_files_are_the_same_before_and_after_they_are_written() {
    let drive = Powered::new();
    let mounted = drive.mount(true);
    let path = |name: &str| mounted.dir.path().join(name);
    let blocks = || ["dense", "sparse", "cut"].map(|name| fs::metadata(path(name)).unwrap().blocks() / 8);
    let open = |name: &str| fs::OpenOptions::new().write(true).open(path(name)).unwrap();
    ["dense", "cut"].iter().for_each(|name| fs::write(path(name), vec![1; 10 * 4096 - 1]).unwrap());
    let sparse = fs::File::create(path("sparse")).unwrap();
    sparse.write_all_at(&[1; 4096], 0).unwrap();
    sparse.write_all_at(&[1; 4096], 9 * 4096).unwrap();
    drop(sparse);
    open("cut").set_len(3 * 4096).unwrap();
    assert_eq!(blocks(), [10, 2, 3]);
    sync(&mounted);
    assert_eq!(blocks(), [10, 2, 3]);
    // Replaced blocks of a file without holes are not counted twice.
    open("dense").write_all_at(&[2; 5 * 4096], 4096).unwrap();
    open("cut").write_all_at(&[2; 4096], 3 * 4096).unwrap();
    sync(&mounted);
    assert_eq!(blocks(), [10, 2, 4]);
    assert_eq!(fs::metadata(path("dense")).unwrap().blocks(), 80);
}
