//! Calls at the limits of the permitted range, and beyond.

use crate::common;
use crate::common::{bytes, device, impatient, make, read_all, settle, volume, waiter};
use std::sync::Arc;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, Metadata, SuperblockCopy};
use zonal_fs::make::MakeOptions;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::polling;
use zonal_fs::{ATTRIBUTE_MAX, FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, Target};
use zonal_io::clock::Clock;

const BLOCK: usize = 4096;

fn small() -> FileSystem {
    make(
        volume(device("ram:size=6M,zone_size=256K,blocksize=4096,complete=poll")),
        8,
        MountOptions::default(),
    )
}

fn file(fs: &FileSystem, name: &[u8]) -> u64 {
    fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::File, 0o644)).unwrap()
}

/// Writes a file until no space is left, and returns its length in bytes.
fn fill(fs: &FileSystem, ino: u64) -> u64 {
    let chunk = bytes(1, 7 * BLOCK);
    let mut at = 0;
    loop {
        // Gives the writes to zones time to end.
        settle(fs);
        match fs.write(&impatient(), ino, at, Payload::Bytes(&chunk)) {
            Ok(written) => at += written,
            Err(error) if error.is_no_space() => return at,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn read_at_the_end_of_a_file_keeps_no_zone_from_being_reset() {
    let fs = small();
    let ino = file(&fs, b"f");
    let size = (100 * BLOCK - 100) as u64;
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, size as usize))).unwrap();
    fs.sync(&waiter()).unwrap();
    let mut byte = [0; 10];
    for at in [size, size + 1, size + 90, size + 5000, u64::MAX - 5] {
        assert_eq!(fs.read(&impatient(), ino, at, Target::Bytes(&mut byte)).unwrap(), 0);
    }
    // A drive full of garbage has to become free again.
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    for round in 0..4 {
        let filler = file(&fs, b"filler");
        eprintln!("{:?}", fs.status());
        let filled = fill(&fs, filler);
        eprintln!("{:?}", fs.status());
        assert!(filled * 100 >= fs.usage().blocks * 95 * BLOCK as u64, "round {round}: {filled} bytes");
        fs.unlink(&waiter(), ROOT, b"filler").unwrap();
    }
    fs.check();
}

#[test]
fn file_on_a_full_drive_is_shortened_in_the_midst_of_a_block() {
    let fs = small();
    let ino = file(&fs, b"f");
    let size = fill(&fs, ino);
    fs.sync(&waiter()).unwrap();
    assert!(fs.usage().free < 8, "{:?}", fs.usage());
    fs.truncate(&impatient(), ino, size / 2 + 5).unwrap();
    fs.sync(&waiter()).unwrap();
    let data = read_all(&fs, ino).unwrap();
    assert_eq!(data.len() as u64, size / 2 + 5);
    settle(&fs);
    fs.check();
}

#[test]
fn offsets_up_to_u64_max_are_refused_or_handled_correctly() {
    let fs = small();
    let ino = file(&fs, b"f");
    let w = impatient();
    let max = zonal_fs::SIZE_MAX;
    assert!(matches!(fs.write(&w, ino, u64::MAX, Payload::Bytes(b"x")), Err(FsError::TooLarge)));
    assert!(matches!(fs.write(&w, ino, max, Payload::Bytes(b"x")), Err(FsError::TooLarge)));
    fs.write(&w, ino, max, Payload::Bytes(b"")).unwrap();
    for is_open in [false, true] {
        let _open = is_open.then(|| fs.open_file(ino).unwrap());
        assert_eq!(fs.write(&w, ino, max - 3, Payload::Bytes(b"abc")).unwrap(), 3);
        let mut buf = [9; 10];
        assert_eq!(fs.read(&w, ino, max - 5, Target::Bytes(&mut buf)).unwrap(), 5);
        assert_eq!(&buf[..5], b"\0\0abc");
        assert_eq!(fs.read(&w, ino, u64::MAX, Target::Bytes(&mut buf)).unwrap(), 0);
        fs.punch(&w, ino, max - 2..u64::MAX).unwrap();
        assert_eq!(fs.read(&w, ino, max - 5, Target::Bytes(&mut buf)).unwrap(), 5);
        assert_eq!(&buf[..5], b"\0\0a\0\0");
        let (from, to) = (5, 3);
        for nothing in [from..to, u64::MAX..u64::MAX] {
            assert!(matches!(fs.punch(&w, ino, nothing), Err(FsError::Invalid(_))));
        }
        fs.punch(&w, ino, 0..u64::MAX).unwrap();
        fs.truncate(&w, ino, max).unwrap();
        assert!(matches!(fs.truncate(&w, ino, max + 1), Err(FsError::TooLarge)));
        assert!(matches!(fs.truncate(&w, ino, u64::MAX), Err(FsError::TooLarge)));
        assert_eq!(fs.read(&w, ino, 0, Target::Bytes(&mut buf)).unwrap(), 10);
        fs.truncate(&w, ino, 1).unwrap();
        fs.truncate(&w, ino, 0).unwrap();
    }
    fs.sync(&w).unwrap();
    fs.check();
    assert_eq!(fs.usage().used, 0);
}

/// A drive with `conventional` conventional zones, and `copy` applied to all its superblocks.
fn drive_with(copy: impl FnOnce(&mut SuperblockCopy), conventional: u32) -> Arc<Drive> {
    let name = format!("ram:size=12M,zone_size=512K,blocksize=4096,zone_nr_conv={conventional}");
    let drive = Arc::new(Drive::new(volume(device(&name))));
    let waiters = polling(Clock::start());
    zonal_fs::make::make(&drive, &waiters, *b"0123456789abcdef", &MakeOptions::default()).unwrap();
    let mut found = zonal_fs::superblocks::find(&drive, &waiter()).unwrap().copy;
    copy(&mut found);
    for zone in (0..2).filter(|_| conventional == 0) {
        drive.zone(&waiter(), Op::ZoneReset, ZoneIndex(zone)).unwrap();
    }
    let copies = if conventional == 0 { 2 } else { 4 };
    let mut buf = zonal_io::buffer::IoBuf::zeroed(copies * BLOCK as u32);
    buf.chunks_exact_mut(BLOCK).for_each(|copy| copy.copy_from_slice(&found.encode()));
    drive.write(&waiter(), Sector(0), buf).unwrap();
    drive
}

#[test]
fn inconsistent_superblock_is_refused_with_the_mismatch() {
    let waiters = polling(Clock::start());
    type Lie = fn(&mut SuperblockCopy);
    let lies: [(&str, Lie); 18] = [
        ("more sectors", |c| c.superblock.sectors *= 2),
        ("other zones", |c| c.superblock.zone_sectors /= 2),
        ("less capacity", |c| c.superblock.capacity_sectors = 8),
        ("all of it metadata", |c| {
            (c.superblock.sectors, c.superblock.first_zone) = (u64::MAX / 2, u32::MAX);
        }),
        ("no zone before data", |c| c.superblock.first_zone = 0),
        ("one zone before data", |c| c.superblock.first_zone = 1),
        ("six zones before data", |c| c.superblock.first_zone = 6),
        ("metadata where none are", |c| {
            let is_logged = c.superblock.metadata == Metadata::Logged;
            c.superblock.metadata = if is_logged { Metadata::Conventional } else { Metadata::Logged };
        }),
        ("units that the drive does not take", |c| c.superblock.unit_blocks = 513),
        ("another file system", |c| c.superblock.uuid = [7; 16]),
        ("all is kept back", |c| c.superblock.reserved_blocks = u64::MAX),
        ("a store that came further", |c| c.anchor.number += 1),
        ("a store that came as far as can be", |c| c.anchor.number = u64::MAX),
        ("no segments", |c| (c.anchor.pieces, c.anchor.zones) = (0, Vec::new())),
        ("segments elsewhere", |c| {
            (c.anchor.pieces, c.anchor.zones) = (0, vec![ZoneIndex(9), ZoneIndex(12)])
        }),
        ("pieces beyond the conventional zones", |c| {
            (c.anchor.pieces, c.anchor.piece_blocks) = (60_000, 60_000)
        }),
        ("pieces of another size", |c| (c.anchor.pieces, c.anchor.piece_blocks) = (3, 17)),
        ("pieces of nothing", |c| (c.anchor.pieces, c.anchor.piece_blocks) = (9, 0)),
    ];
    for (lie, change) in lies {
        for conventional in [0, 3] {
            let drive = drive_with(change, conventional);
            let opened = zonal_fs::make::open(&drive, &waiters, None, MountOptions::default());
            let looked = zonal_fs::make::look(&drive, &waiters, None, MountOptions::default());
            let superblock = zonal_fs::make::superblock(&drive, &waiter());
            assert!(opened.is_err() && looked.is_err(), "{lie}, {conventional}");
            if superblock.is_ok() {
                let _ = zonal_fs::dump::metadata_location(&drive, &waiter());
            }
        }
    }
}

/// Older programs made file systems with one zone for the superblock, on drives of six zones.
#[test]
fn file_system_with_one_zone_for_its_superblock_is_refused() {
    let drive = drive_with(|copy| copy.superblock.first_zone = 1, 0);
    let opened = zonal_fs::make::open(&drive, &polling(Clock::start()), None, MountOptions::default());
    let expected = "the copies of the superblock have 1 zones and need 2; make a new file system on a drive of 7 zones or more";
    assert_eq!(opened.err().unwrap().to_string(), expected);
}

#[test]
fn large_attributes_and_targets_leave_full_metadata_of_use() {
    let name = "ram:size=12M,zone_size=512K,blocksize=4096,zone_nr_conv=3";
    for conventional in [3, 0] {
        let drive =
            Arc::new(Drive::new(volume(device(&name.replace("conv=3", &format!("conv={conventional}"))))));
        let waiters = polling(Clock::start());
        zonal_fs::make::make(&drive, &waiters, *b"0123456789abcdef", &MakeOptions::default()).unwrap();
        let fs = zonal_fs::make::open(&drive, &waiters, None, MountOptions::default()).unwrap();
        let w = waiter();
        let fits = |result: Result<(), FsError>, what: &str| match result {
            Ok(()) => true,
            Err(error) if error.is_no_space() => false,
            Err(error) => panic!("{what}: {error}"),
        };
        let target = |target: Vec<u8>| NewFile { target, ..NewFile::new(FileKind::Symlink, 0o777) };
        for too_long in [4096, 20 << 20] {
            let made = fs.create(&w, ROOT, b"link", &target(vec![b'x'; too_long]));
            assert!(matches!(made, Err(FsError::TargetTooLong)), "{too_long}");
        }
        let made = fs.create(&w, ROOT, b"link", &target(Vec::new()));
        assert!(matches!(made, Err(FsError::Invalid(_))));
        for round in 0..6u8 {
            for n in 0..60u8 {
                let value = vec![round; if n % 3 == 0 { ATTRIBUTE_MAX } else { 3000 }];
                fits(fs.set_xattr(&w, ROOT, &[b'a', n], &value), "xattr");
                let new = target(vec![b'x'; 4095]);
                fits(fs.create(&w, ROOT, format!("l{n}").as_bytes(), &new).map(drop), "link");
            }
            fits(fs.sync(&w), "sync");
            for n in 0..60u8 {
                let _ = fs.remove_xattr(&w, ROOT, &[b'a', n]);
                let _ = fs.unlink(&w, ROOT, format!("l{n}").as_bytes());
            }
            fits(fs.sync(&w), "sync");
        }
        assert!(
            fits(fs.set_xattr(&w, ROOT, b"last", &[1; 1000]), "last"),
            "{conventional}: {:?}",
            fs.usage()
        );
        fs.sync(&w).unwrap();
    }
}

#[test]
fn last_zone_that_is_shorter_than_a_unit_is_of_no_use_and_no_harm() {
    for rest in [2, 4, 8, 12, 16] {
        let name = format!("ram:size={}K,zone_size=256K,blocksize=2048,complete=poll", 12 * 256 + rest);
        let Ok(device): Result<Arc<dyn zonal_io::device::Device>, _> =
            zonal_io::registry::Registry::default().open(&name)
        else {
            eprintln!("{name} is refused");
            continue;
        };
        let fs = make(volume(device), 8, MountOptions::default());
        for _ in 0..3 {
            let ino = file(&fs, b"filler");
            let filled = fill(&fs, ino);
            assert!(filled * 100 >= fs.usage().blocks * 90 * BLOCK as u64, "{rest}: {filled}");
            fs.unlink(&waiter(), ROOT, b"filler").unwrap();
            fs.sync(&waiter()).unwrap();
        }
        fs.check();
    }
}

#[test]
fn garbage_in_open_zones_is_reclaimed_before_enospc() {
    for (zones, units, rest) in [(4, 7, 0), (4, 7, 5), (4, 6, 0), (3, 7, 0), (3, 7, 5), (5, 7, 5)] {
        let fs = small();
        let w = impatient();
        let files: Vec<u64> = (0..zones).map(|n| file(&fs, &[b'a' + n])).collect();
        let open: Vec<_> = files.iter().map(|ino| fs.open_file(*ino).unwrap()).collect();
        // Each in a separate zone, which has little left in the end.
        for unit in 0..units {
            for ino in &files {
                let data = bytes(*ino, 7 * BLOCK);
                fs.write(&w, *ino, unit * 7 * BLOCK as u64, Payload::Bytes(&data)).unwrap();
            }
        }
        for ino in &files {
            let data = bytes(*ino, rest * BLOCK);
            fs.write(&w, *ino, units * 7 * BLOCK as u64, Payload::Bytes(&data)).unwrap();
        }
        settle(&fs);
        for (n, file) in (0..).zip(open) {
            file.close(&w).unwrap();
            fs.unlink(&w, ROOT, &[b'a' + n]).unwrap();
        }
        fs.sync(&w).unwrap();
        let blocks = fs.usage().free;
        let filler = file(&fs, b"filler");
        // Placed apart from others as long as there are zones.
        let _open = fs.open_file(filler).unwrap();
        let filled = fill(&fs, filler);
        assert!(
            filled >= (blocks - 7) * BLOCK as u64,
            "{zones} {units} {rest}: {filled} bytes of {blocks} blocks"
        );
        settle(&fs);
        fs.check();
    }
}

#[test]
fn drive_that_takes_only_smaller_appends_than_units_are_is_refused() {
    let volume = volume(device("ram:size=6M,zone_size=256K,blocksize=4096,max_sectors=64"));
    let superblock = common::superblock(&volume, 0, 16);
    let mut rows = Rows::open(Memory::new(), 1 << 22).unwrap();
    FileSystem::make(&mut rows, &superblock, &waiter()).unwrap();
    let opened = FileSystem::open(volume, rows, superblock, MountOptions::default(), true, &waiter());
    let said = opened.err().unwrap().to_string();
    assert!(said.contains("appends of up to 8 blocks") && said.contains("16 blocks"), "{said}");
}

#[test]
fn buffered_data_of_other_files_is_written_before_enospc() {
    for is_open in [false, true] {
        let fs = small();
        let w = impatient();
        let files: Vec<u64> = (0..20).map(|n| file(&fs, &[b'a' + n])).collect();
        for ino in &files {
            fs.write(&w, *ino, 0, Payload::Bytes(&bytes(*ino, 6 * BLOCK))).unwrap();
        }
        fs.sync(&w).unwrap();
        let mut open = Vec::new();
        for ino in &files {
            open.push(fs.open_file(*ino).unwrap());
            fs.write(&w, *ino, 0, Payload::Bytes(&bytes(1, 6 * BLOCK))).unwrap();
        }
        let filler = file(&fs, b"filler");
        let _open = is_open.then(|| fs.open_file(filler).unwrap());
        fill(&fs, filler);
        fs.sync(&w).unwrap();
        // With an open file, the reported free space is too high by less than a unit.
        assert!(fs.usage().free < 7, "{is_open}: {:?}", fs.usage());
        fs.check();
    }
}

#[test]
fn any_number_of_bytes_may_be_on_their_way() {
    for dirty_bytes in [0, 1, u64::MAX] {
        let options = MountOptions::default().with_dirty_bytes(dirty_bytes);
        let fs = make(volume(device("ram:size=8M,zone_size=512K,blocksize=4096")), 8, options);
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, 100_000))).unwrap();
        let _open = fs.open_file(ino).unwrap();
        fs.write(&waiter(), ino, 100_000, Payload::Bytes(&bytes(2, 100_000))).unwrap();
        fs.sync(&waiter()).unwrap();
        assert_eq!(fs.attributes(ino).unwrap().size, 200_000, "{dirty_bytes}");
    }
}

/// The size shown by `df` hardly changes while blocks are buffered, sent, overwritten and removed.
#[test]
fn size_of_a_file_system_stays_while_it_is_written() {
    let fs = small();
    let size = fs.usage().blocks;
    let (unit, piece) = (bytes(1, 7 * BLOCK), bytes(2, 3 * BLOCK));
    let ino = file(&fs, b"f");
    let open = fs.open_file(ino).unwrap();
    for round in 0..40 {
        let at = (round % 10 * 7 * BLOCK) as u64;
        fs.write(&waiter(), ino, at, Payload::Bytes(&unit)).unwrap();
        fs.write(&waiter(), ino, at + unit.len() as u64, Payload::Bytes(&piece)).unwrap();
        // The space that a short unit wastes on its header is regained with its zone.
        let now = fs.usage().blocks;
        assert!(now <= size && now + size / 50 >= size, "{now} of {size} in round {round}");
        if round % 4 == 3 {
            fs.sync(&waiter()).unwrap();
        }
    }
    open.close(&waiter()).unwrap();
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    settle(&fs);
    assert!(fs.usage().blocks + size / 50 >= size, "{} of {size}", fs.usage().blocks);
}

#[test]
fn drive_with_a_file_system_in_use_is_not_mounted_again() {
    let device = zonal_io::registry::Registry::default().open("ram:size=64M,zone_size=1M").unwrap();
    let fs = FileSystem::format(device.clone()).unwrap();
    for device in [device.clone(), fs.volume().device().clone()] {
        let error = FileSystem::mount(device).err().unwrap().to_string();
        assert!(error.contains("already has a volume"), "{error}");
    }
    drop(fs);
    FileSystem::mount(device).unwrap();
}
