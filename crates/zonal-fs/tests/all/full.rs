//! Full drives: a call fails for lack of space only if nothing will free some, and changes nothing
//! then.

use crate::common::{self, bytes, device, fill_up, impatient, read_all, settle, volume};
use std::ops::Range;
use std::sync::Arc;
use zonal_core::{DeviceError, Nanos, Op, ZoneIndex};
use zonal_fs::format::FileKind;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};
use zonal_io::device::Device;
use zonal_io::fault::{Degraded, Effect, Fault, Ops, Plan, Rule};
use zonal_io::volume::Volume;

const BLOCK: usize = 4096;

/// Data blocks of a unit.
const UNIT: usize = 7;

fn file(fs: &FileSystem, name: &str) -> u64 {
    fs.create(&impatient(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap()
}

fn write(fs: &FileSystem, ino: u64, data: &[u8]) {
    assert_eq!(fs.write(&impatient(), ino, 0, Payload::Bytes(data)).unwrap(), data.len() as u64);
}

/// A drive that can fail, and a file system on it with its metadata in memory.
struct Made {
    fault: Arc<Fault>,
    memory: Memory,
}

impl Made {
    fn new(size: &str) -> (Made, FileSystem) {
        let ram = device(&format!("ram:size={size},zone_size=256K,blocksize=4096"));
        let made = Made { fault: Arc::new(Fault::new(ram, Plan::default())), memory: Memory::new() };
        let volume = made.volume();
        let superblock = common::superblock(&volume, 0, 8);
        let fs = common::make_with(volume, superblock, made.memory.clone(), MountOptions::default());
        (made, fs)
    }

    fn volume(&self) -> Arc<Volume> {
        let device: Arc<dyn Device> = self.fault.clone();
        volume(device)
    }

    /// Opens the file system again, on a drive that no longer writes these zones.
    fn reopen(&self, fs: FileSystem, read_only: Range<u32>) -> FileSystem {
        fs.sync(&impatient()).unwrap();
        drop(fs);
        read_only.for_each(|zone| self.fault.degrade(ZoneIndex(zone), Degraded::ReadOnly).unwrap());
        let volume = self.volume();
        let superblock = common::superblock(&volume, 0, 8);
        common::reopen(volume, superblock, self.memory.clone(), MountOptions::default()).unwrap()
    }
}

/// Writes a file until no space is left.
fn fill(fs: &FileSystem) {
    fill_up(fs, file(fs, "filler"), &bytes(99, UNIT * BLOCK));
    fs.sync(&impatient()).unwrap();
}

/// The space that a write needs is that of the blocks that another one in flight, or in a write
/// buffer, overwrites.
#[test]
fn write_waits_for_space_that_those_in_flight_will_free() {
    for is_open in [true, false] {
        let (made, fs) = Made::new("6M");
        let files: Vec<u64> = (0..4).map(|n| file(&fs, &format!("f{n}"))).collect();
        files.iter().for_each(|ino| write(&fs, *ino, &bytes(*ino, 6 * BLOCK)));
        write(&fs, file(&fs, "spare"), &bytes(1, 6 * BLOCK));
        fill(&fs);
        fs.unlink(&impatient(), ROOT, b"spare").unwrap();
        settle(&fs);
        assert_eq!(fs.usage().free, 6, "{is_open}");
        made.fault.inject(Rule::new(Effect::Delay(Nanos(50_000_000))).on(Ops::of(&[Op::Append])));
        let mut open = Vec::new();
        for ino in &files {
            open.extend(is_open.then(|| fs.open_file(*ino).unwrap()));
            write(&fs, *ino, &bytes(ino + 10, 6 * BLOCK));
        }
        fs.sync(&impatient()).unwrap();
        for ino in &files {
            assert!(read_all(&fs, *ino).unwrap() == bytes(ino + 10, 6 * BLOCK), "{is_open}: {ino}");
        }
        drop(open);
        settle(&fs);
        fs.check();
    }
}

/// Garbage collection has room for a few more copies, but not for those of any zone. A deletion
/// leaves a zone with two live blocks.
#[test]
fn deletion_gets_garbage_collection_going_again_after_it_found_no_space() {
    let (made, fs) = Made::new("4M");
    let name = |kind: char, n: u64| format!("{kind}{n}");
    // Each zone has two files that stay, and garbage.
    for n in 0..12 {
        for (kind, blocks) in [('a', 28), ('b', 2), ('c', 25)] {
            write(&fs, file(&fs, &name(kind, n)), &bytes(n, blocks * BLOCK));
        }
    }
    for n in 0..12 {
        fs.unlink(&impatient(), ROOT, name('c', n).as_bytes()).unwrap();
    }
    // One zone is free, which the collector needs for the first victim. That is lost at its reset.
    let fs = made.reopen(fs, 13..16);
    let fails = Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::ZoneReset]));
    made.fault.inject(fails.times(3));
    let ino = file(&fs, "new");
    let put = || fs.write(&impatient(), ino, 0, Payload::Bytes(&bytes(77, BLOCK)));
    assert!(matches!(put(), Err(FsError::NoSpace)));
    let usage = fs.usage();
    assert!((usage.free_zones, usage.read_only_zones) == (0, 4) && usage.free > 50, "{usage:?}");
    fs.unlink(&impatient(), ROOT, b"a5").unwrap();
    put().unwrap();
    fs.sync(&impatient()).unwrap();
    assert!(fs.usage().free_zones > 0, "{:?}", fs.usage());
    for n in 0..12 {
        let found = read_all(&fs, fs.lookup(ROOT, name('b', n).as_bytes()).unwrap()).unwrap();
        assert!(found == bytes(n, 2 * BLOCK), "file {n}");
    }
    settle(&fs);
    fs.check();
}

/// Blocks that are freed go to the collector first, which has lost a zone. Nothing is left for the
/// zeroes in a block that is cut.
#[test]
fn truncation_or_hole_without_space_for_its_zeroes_changes_nothing() {
    let (made, fs) = Made::new("4M");
    let (ino, data) = (file(&fs, "f"), bytes(5, 30 * BLOCK));
    write(&fs, ino, &data);
    fill(&fs);
    let fs = made.reopen(fs, 15..16);
    let cut = 3 * BLOCK + 100;
    let cuts: [&dyn Fn() -> Result<(), FsError>; 3] = [
        &|| fs.truncate(&impatient(), ino, cut as u64),
        &|| fs.punch(&impatient(), ino, cut as u64..u64::MAX),
        &|| fs.punch(&impatient(), ino, cut as u64..25 * BLOCK as u64 + 7),
    ];
    for (n, cut) in cuts.iter().enumerate() {
        assert!(matches!(cut(), Err(FsError::NoSpace)), "{n}");
        assert!(read_all(&fs, ino).unwrap() == data, "{n}");
    }
    // A file that fills zones makes room for its own zeroes, and for others.
    let filler = fs.lookup(ROOT, b"filler").unwrap();
    fs.truncate(&impatient(), filler, cut as u64).unwrap();
    cuts.iter().for_each(|cut| cut().unwrap());
    assert!(read_all(&fs, ino).unwrap() == data[..cut]);
    settle(&fs);
    fs.check();
}
