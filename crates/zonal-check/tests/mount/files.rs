//! File operations of programs.

use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, SeekFrom, XattrFlags, copy_file_range, fallocate, fgetxattr, getxattr,
    linkat, listxattr, removexattr, setxattr,
};
use rustix::io::Errno;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use zonal_check::program::mounted::{MountPlace, bytes, open};

#[test]
fn files_and_attributes_persist_across_remounting() {
    let place = MountPlace::new("256M");
    let mounted = place.mount("");
    let data = bytes(1, 3 << 20 | 77);
    fs::create_dir(mounted.at("d")).unwrap();
    fs::write(mounted.at("d/f"), &data).unwrap();
    fs::set_permissions(mounted.at("d/f"), fs::Permissions::from_mode(0o2640)).unwrap();
    fs::hard_link(mounted.at("d/f"), mounted.at("hard")).unwrap();
    symlink("d/f", mounted.at("soft")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(mounted.at("pipe")).status().unwrap();
    assert!(status.success());
    fs::rename(mounted.at("d/f"), mounted.at("d/g")).unwrap();
    let before = fs::metadata(mounted.at("hard")).unwrap();
    mounted.end();
    let mounted = place.mount("");
    let after = fs::metadata(mounted.at("hard")).unwrap();
    let shown = |m: &fs::Metadata| {
        (m.ino(), m.mode(), m.nlink(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
    };
    assert_eq!(shown(&before), shown(&after));
    assert_eq!(after.created().unwrap(), before.created().unwrap());
    assert_eq!(fs::read(mounted.at("d/g")).unwrap(), data);
    assert_eq!(fs::read_link(mounted.at("soft")).unwrap(), Path::new("d/f"));
    assert!(fs::metadata(mounted.at("soft")).is_err());
    assert!(fs::symlink_metadata(mounted.at("pipe")).unwrap().file_type().is_fifo());
    fs::remove_dir_all(mounted.at("d")).unwrap();
    assert_eq!(fs::metadata(mounted.at("hard")).unwrap().nlink(), 1);
    mounted.end();
}

#[test]
fn bytes_in_the_kernels_cache_are_data_to_a_search_for_holes() {
    for options in ["writeback", "writethrough"] {
        let place = MountPlace::new("128M");
        let mounted = place.mount(options);
        let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&bytes(1, 8192), 256 << 10).unwrap();
        let seek = |from| rustix::fs::seek(&file, from).unwrap();
        assert_eq!(seek(SeekFrom::Data(0)), 256 << 10, "{options}");
        assert_eq!(seek(SeekFrom::Hole(256 << 10)), 264 << 10, "{options}");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(264 << 10)), Err(Errno::NXIO));
        drop(file);
        // The block count covers the data, for programs that detect sparse files by it.
        assert!(fs::metadata(mounted.at("f")).unwrap().blocks() >= 16, "{options}");
        mounted.end();
    }
}

#[test]
fn ranges_are_punched_zeroed_and_copied_and_none_is_promised() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
    let mut model = bytes(3, 1 << 20);
    file.write_all_at(&model, 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 10_000, 100_000).unwrap();
    model[10_000..110_000].fill(0);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 1_000_000, 100_000).unwrap();
    model.resize(1_100_000, 0);
    model[1_000_000..].fill(0);
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 1_090_000, 100_000).unwrap();
    let other = open(&mounted.at("g"), OFlags::RDWR | OFlags::CREATE);
    let (mut from, mut to) = (5_000, 0);
    while from < 300_000 {
        let left = (300_000 - from) as usize;
        let copied = copy_file_range(&file, Some(&mut from), &other, Some(&mut to), left);
        assert!(copied.unwrap() > 0);
    }
    assert_eq!(fs::read(mounted.at("f")).unwrap(), model);
    assert_eq!(fs::read(mounted.at("g")).unwrap(), model[5_000..300_000]);
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 4096), Err(Errno::OPNOTSUPP));
    drop((file, other));
    mounted.end();
}

#[test]
fn unnamed_file_is_linked_or_removed() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let mut files: Vec<_> = (0..2).map(|_| open(&mounted.at(""), OFlags::RDWR | OFlags::TMPFILE)).collect();
    for file in &mut files {
        file.write_all(b"without a name").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
    let itself = format!("/proc/self/fd/{}", files[0].as_raw_fd());
    let here = rustix::fs::CWD;
    linkat(here, itself.as_str(), here, mounted.at("named").as_path(), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(files);
    assert_eq!(fs::read(mounted.at("named")).unwrap(), b"without a name");
    assert_eq!(fs::read_dir(mounted.at("")).unwrap().count(), 1);
    mounted.end();
    assert_eq!(place.zonal("ls image:d.img").lines().count(), 1);
}

#[test]
fn file_that_is_open_stays_after_its_last_name() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let data = bytes(5, 300_000);
    fs::write(mounted.at("f"), &data).unwrap();
    let mut file = open(&mounted.at("f"), OFlags::RDWR);
    fs::remove_file(mounted.at("f")).unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, data);
    file.write_all_at(b"more", 1 << 20).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.end();
}

#[test]
fn several_appenders_lose_nothing() {
    const LINES: usize = 500;
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let mut file = open(&mounted.at("log"), OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE);
            scope.spawn(move || {
                (0..LINES).for_each(|n| file.write_all(format!("{writer} {n:05}\n").as_bytes()).unwrap());
            });
        }
    });
    let text = fs::read_to_string(mounted.at("log")).unwrap();
    for writer in 0..4 {
        let own = text.lines().filter(|line| line.starts_with(&format!("{writer} ")));
        assert!(own.map(str::to_owned).eq((0..LINES).map(|n| format!("{writer} {n:05}"))));
    }
    mounted.end();
}

#[test]
fn direct_and_cached_writes_to_one_file_are_both_kept() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let cached = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
    let direct = open(&mounted.at("f"), OFlags::RDWR | OFlags::DIRECT);
    let mut block = zonal_io::buffer::IoBuf::zeroed(64 << 10);
    for n in 0..16u64 {
        cached.write_all_at(&[n as u8 + 1; 4096], n * (68 << 10)).unwrap();
        block.fill(n as u8 + 101);
        direct.write_all_at(&block, n * (68 << 10) + 4096).unwrap();
    }
    direct.read_exact_at(&mut block[..4096], 3 * (68 << 10)).unwrap();
    assert_eq!(block[..4096], [4; 4096]);
    let all = fs::read(mounted.at("f")).unwrap();
    for (n, piece) in all.chunks(68 << 10).enumerate() {
        assert!(piece[..4096].iter().all(|byte| *byte == n as u8 + 1), "piece {n}");
        assert!(piece[4096..].iter().all(|byte| *byte == n as u8 + 101), "piece {n}");
    }
    drop((cached, direct));
    mounted.end();
}

#[test]
fn attributes_are_in_the_name_spaces_of_linux() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let path = mounted.at("f");
    fs::write(&path, b"f").unwrap();
    let set = |name: &str, value: &[u8], flags| setxattr(&path, name, value, flags);
    let mut value = [0; 64];
    set("user.a", b"one", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
    set("user.a", b"two", XattrFlags::REPLACE).unwrap();
    assert_eq!(set("user.b", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(set("system.other", b"", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    set("trusted.t", b"", XattrFlags::empty()).unwrap();
    let read = getxattr(&path, "user.a", &mut value).unwrap();
    assert_eq!(value[..read], *b"two");
    assert_eq!(getxattr(&path, "user.a", &mut value[..2]), Err(Errno::RANGE));
    let listed = listxattr(&path, &mut value).unwrap();
    assert_eq!(value[..listed], *b"trusted.t\0user.a\0");
    removexattr(&path, "user.a").unwrap();
    assert_eq!(removexattr(&path, "user.a"), Err(Errno::NODATA));
    mounted.end();
}

#[test]
fn lifetime_is_an_attribute_that_files_inherit() {
    const NAME: &str = "user.zonal.lifetime";
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let mut value = [0; 64];
    fs::create_dir(mounted.at("d")).unwrap();
    assert_eq!(getxattr(mounted.at("d"), NAME, &mut value), Err(Errno::NODATA));
    assert_eq!(setxattr(mounted.at("d"), NAME, b"ages", XattrFlags::empty()), Err(Errno::INVAL));
    setxattr(mounted.at("d"), NAME, b"extreme", XattrFlags::empty()).unwrap();
    fs::write(mounted.at("d/f"), b"f").unwrap();
    fs::create_dir(mounted.at("d/e")).unwrap();
    for name in ["d/f", "d/e"] {
        let read = getxattr(mounted.at(name), NAME, &mut value).unwrap();
        assert_eq!(value[..read], *b"extreme");
    }
    removexattr(mounted.at("d/f"), NAME).unwrap();
    assert_eq!(getxattr(mounted.at("d/f"), NAME, &mut value), Err(Errno::NODATA));
    // A file that can never get a name is gone once it is closed, so its lifetime is
    // short, unless its directory has another one.
    for (directory, flags, told) in [
        ("", OFlags::EXCL, Ok("short")),
        ("", OFlags::empty(), Err(Errno::NODATA)),
        ("d", OFlags::EXCL, Ok("extreme")),
    ] {
        let file = open(&mounted.at(directory), OFlags::RDWR | OFlags::TMPFILE | flags);
        let read = fgetxattr(&file, NAME, &mut value);
        assert_eq!(
            read.map(|read| std::str::from_utf8(&value[..read]).unwrap()),
            told,
            "{directory} {flags:?}"
        );
    }
    mounted.end();
}

/// An access control list in the format of the kernel's attribute: tag, permissions and owner of
/// each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    value
}

#[test]
fn access_control_lists_agree_with_modes_and_are_inherited() {
    const ACCESS: &str = "system.posix_acl_access";
    const NONE: u32 = u32::MAX;
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    fs::create_dir(mounted.at("d")).unwrap();
    // For user 1000: read and write.
    let rights = list(&[(1, 7, NONE), (2, 6, 1000), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE)]);
    setxattr(mounted.at("d"), "system.posix_acl_default", &rights, XattrFlags::empty()).unwrap();
    fs::write(mounted.at("d/f"), b"f").unwrap();
    let mode = || fs::metadata(mounted.at("d/f")).unwrap().mode() & 0o777;
    let mut value = [0; 64];
    let read = getxattr(mounted.at("d/f"), ACCESS, &mut value).unwrap();
    // The creator has asked for 0666.
    let expected = list(&[(1, 6, NONE), (2, 6, 1000), (4, 5, NONE), (16, 6, NONE), (32, 0, NONE)]);
    assert_eq!((&value[..read], mode()), (&expected[..], 0o660));
    fs::set_permissions(mounted.at("d/f"), fs::Permissions::from_mode(0o604)).unwrap();
    let read = getxattr(mounted.at("d/f"), ACCESS, &mut value).unwrap();
    let expected = list(&[(1, 6, NONE), (2, 6, 1000), (4, 5, NONE), (16, 0, NONE), (32, 4, NONE)]);
    assert_eq!(value[..read], expected);
    setxattr(
        mounted.at("d/f"),
        ACCESS,
        &list(&[(1, 4, NONE), (4, 2, NONE), (32, 1, NONE)]),
        XattrFlags::empty(),
    )
    .unwrap();
    assert_eq!((getxattr(mounted.at("d/f"), ACCESS, &mut value), mode()), (Err(Errno::NODATA), 0o421));
    let bad = setxattr(mounted.at("d/f"), ACCESS, &list(&[(1, 7, NONE)]), XattrFlags::empty());
    assert_eq!(bad, Err(Errno::INVAL));
    mounted.end();
}

#[test]
fn set_id_bits_go_with_writes_and_owners_but_not_of_root() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("allow_other");
    let path = mounted.at("f");
    let with = |mode| {
        fs::write(&path, b"f").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    with(0o6777);
    open(&path, OFlags::WRONLY).write_all_at(b"g", 0).unwrap();
    assert_eq!(mode(), 0o6777);
    let script = format!("echo h >> '{}'", path.display());
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script];
    assert!(std::process::Command::new("setpriv").args(nobody).status().unwrap().success());
    assert_eq!(mode(), 0o777);
    // For these operations, the kernel does not report that set-id bits must be cleared.
    let size = 1 << 16;
    fs::write(mounted.at("source"), bytes(1, size)).unwrap();
    type Change<'a> = &'a (dyn Fn(&fs::File) + Sync);
    let changes: [(&str, Change<'_>); 6] = [
        ("append", &|f| f.write_all_at(b"more", 1 << 16).unwrap()),
        ("truncate", &|f| f.set_len(5000).unwrap()),
        ("extend", &|f| f.set_len(1 << 17).unwrap()),
        ("punch", &|f| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(f, punch, 0, 4096).unwrap();
        }),
        ("zero", &|f| fallocate(f, FallocateFlags::ZERO_RANGE, 0, 4096).unwrap()),
        ("copy", &|f| {
            let source = open(&mounted.at("source"), OFlags::RDONLY);
            assert_eq!(rustix::fs::copy_file_range(source, None, f, None, 4096).unwrap(), 4096);
        }),
    ];
    for (name, change) in changes {
        with(0o6777);
        open(&path, OFlags::WRONLY).write_all_at(&bytes(2, size), 0).unwrap();
        change(&open(&path, OFlags::RDWR));
        assert_eq!(mode(), 0o6777, "{name}");
        // A thread has credentials of its own.
        let as_nobody = || {
            use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
            set_thread_groups(&[]).unwrap();
            set_thread_gid(rustix::fs::Gid::from_raw(65534)).unwrap();
            set_thread_uid(rustix::fs::Uid::from_raw(65534)).unwrap();
            change(&open(&path, OFlags::RDWR));
        };
        std::thread::scope(|scope| scope.spawn(as_nobody).join()).unwrap();
        assert_eq!(mode(), 0o777, "{name}");
    }
    with(0o6777);
    std::os::unix::fs::chown(&path, Some(1), Some(1)).unwrap();
    assert_eq!(mode(), 0o777);
    // A file in a directory with the set-group-id bit gets the directory's group.
    fs::create_dir(mounted.at("d")).unwrap();
    std::os::unix::fs::chown(mounted.at("d"), None, Some(77)).unwrap();
    fs::set_permissions(mounted.at("d"), fs::Permissions::from_mode(0o2755)).unwrap();
    fs::write(mounted.at("d/f"), b"f").unwrap();
    fs::create_dir(mounted.at("d/e")).unwrap();
    let [file, directory] = ["d/f", "d/e"].map(|name| fs::metadata(mounted.at(name)).unwrap());
    assert_eq!((file.gid(), directory.gid(), directory.mode() & 0o7777), (77, 77, 0o2755));
    mounted.end();
}

#[test]
fn file_capabilities_go_with_each_change_of_data_or_owner() {
    const NAME: &str = "security.capability";
    // Version 2, with CAP_NET_RAW permitted.
    let capabilities = [0x0200_0000u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
    type Change<'a> = &'a dyn Fn(&Path);
    let writer = |path: &Path| open(path, OFlags::RDWR);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let place = MountPlace::new("128M");
    for options in ["writeback", "writethrough"] {
        let mounted = place.mount(options);
        let (path, source) = (mounted.at("f"), mounted.at("source"));
        fs::write(&source, bytes(1, 1 << 16)).unwrap();
        let changes: [(&str, Change<'_>); 9] = [
            ("write", &|path| writer(path).write_all_at(b"g", 0).unwrap()),
            ("append", &|path| open(path, OFlags::WRONLY | OFlags::APPEND).write_all(b"g").unwrap()),
            ("truncate", &|path| writer(path).set_len(4000).unwrap()),
            ("extend", &|path| writer(path).set_len(1 << 20).unwrap()),
            ("open", &|path| drop(open(path, OFlags::WRONLY | OFlags::TRUNC))),
            ("punch", &|path| fallocate(writer(path), punch, 0, 4096).unwrap()),
            ("zero", &|path| fallocate(writer(path), FallocateFlags::ZERO_RANGE, 0, 4096).unwrap()),
            ("copy", &|path| {
                let source = open(&source, OFlags::RDONLY);
                assert_eq!(copy_file_range(source, None, writer(path), None, 4096).unwrap(), 4096);
            }),
            ("owner", &|path| std::os::unix::fs::chown(path, Some(1), Some(1)).unwrap()),
        ];
        for (name, change) in changes {
            // The kernel knows that the file has none, and has to notice that it gets some.
            fs::write(&path, bytes(2, 1 << 16)).unwrap();
            setxattr(&path, NAME, &capabilities, XattrFlags::empty()).unwrap();
            assert_eq!(getxattr(&path, NAME, &mut [0; 64]), Ok(capabilities.len()), "{name}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(getxattr(&path, NAME, &mut [0; 64]), Ok(capabilities.len()), "{name}, mode");
            change(&path);
            assert_eq!(getxattr(&path, NAME, &mut [0; 64]), Err(Errno::NODATA), "{name}, {options}");
        }
        // A file that is open already.
        let file = writer(&path);
        file.write_all_at(b"g", 0).unwrap();
        setxattr(&path, NAME, &capabilities, XattrFlags::empty()).unwrap();
        file.write_all_at(b"h", 0).unwrap();
        assert_eq!(getxattr(&path, NAME, &mut [0; 64]), Err(Errno::NODATA), "{options}");
        drop(file);
        mounted.end();
    }
}

/// The kernel caches lists and their absence.
#[test]
fn changed_access_control_lists_take_effect_at_once() {
    const ACCESS: &str = "system.posix_acl_access";
    const NONE: u32 = u32::MAX;
    let place = MountPlace::new("128M");
    let mounted = place.mount("allow_other");
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let (path, link) = (mounted.at("f"), mounted.at("g"));
    fs::write(&path, b"f").unwrap();
    fs::hard_link(&path, &link).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let can_read = || {
        let read = || {
            use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
            set_thread_groups(&[]).unwrap();
            set_thread_gid(rustix::fs::Gid::from_raw(1000)).unwrap();
            set_thread_uid(rustix::fs::Uid::from_raw(1000)).unwrap();
            fs::read(&path).is_ok()
        };
        std::thread::scope(|scope| scope.spawn(read).join()).unwrap()
    };
    let look = || drop(fs::read_dir(mounted.at("")).unwrap().collect::<Vec<_>>());
    let rights = list(&[(1, 6, NONE), (2, 4, 1000), (4, 0, NONE), (16, 4, NONE), (32, 0, NONE)]);
    for _ in 0..2 {
        assert_eq!(getxattr(&path, ACCESS, &mut [0; 64]), Err(Errno::NODATA));
        assert!(!can_read());
        // By the other name, and by a file that is open.
        setxattr(&link, ACCESS, &rights, XattrFlags::empty()).unwrap();
        assert!(can_read());
        look();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!can_read());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(can_read());
        rustix::fs::fremovexattr(open(&link, OFlags::RDONLY), ACCESS).unwrap();
        look();
    }
    // Without a list the umask applies; a default list of the directory replaces it.
    fs::create_dir(mounted.at("d")).unwrap();
    let make = |name: &str| {
        let script = format!("umask 077; : >'{}'", mounted.at(name).display());
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        fs::metadata(mounted.at(name)).unwrap().mode() & 0o777
    };
    assert_eq!(make("d/before"), 0o600);
    setxattr(mounted.at("d"), "system.posix_acl_default", &rights, XattrFlags::empty()).unwrap();
    assert_eq!(make("d/with"), 0o640);
    removexattr(mounted.at("d"), "system.posix_acl_default").unwrap();
    assert_eq!(make("d/after"), 0o600);
    mounted.end();
}

#[test]
fn mount_options_set_the_displayed_owner_and_permissions() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("uid=7,gid=8,umask=027");
    fs::write(mounted.at("f"), b"f").unwrap();
    let shown = fs::metadata(mounted.at("f")).unwrap();
    assert_eq!((shown.uid(), shown.gid(), shown.mode() & 0o777), (7, 8, 0o640));
    mounted.end();
    let mounted = place.mount("");
    let own = fs::metadata(mounted.at("f")).unwrap();
    assert_eq!((own.uid(), own.gid(), own.mode() & 0o777), (0, 0, 0o644));
    mounted.end();
}

/// Timestamps of later changes are never older: the kernel stamps writes, and the process stamps
/// changes of names.
#[test]
fn times_of_files_do_not_run_backwards() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    let time = |path: &Path| {
        let there = fs::metadata(path).unwrap();
        (there.mtime(), there.mtime_nsec())
    };
    for n in 0..200 {
        let [directory, stamp, file] = ["d", "s", "f"].map(|name| mounted.at(&format!("{name}{n}")));
        fs::create_dir(&directory).unwrap();
        fs::write(&stamp, b"").unwrap();
        fs::write(&file, b"f").unwrap();
        assert!(time(&directory) <= time(&stamp), "{n}");
        assert!(time(&stamp) <= time(&file), "{n}: {:?} {:?}", time(&stamp), time(&file));
        let born = fs::metadata(&file).unwrap().created().unwrap();
        assert!(born <= fs::metadata(&file).unwrap().modified().unwrap(), "{n}");
    }
    mounted.end();
}
