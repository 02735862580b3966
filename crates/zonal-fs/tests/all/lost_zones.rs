//! Zones that become read-only or go offline under a file system: data is moved out of the first,
//! and the second are reported.

use crate::common::interleaved::Interleaved;
use crate::common::{bytes, device, fill_up, read_all, settle, superblock, volume, waiter};
use std::sync::Arc;
use zonal_core::{DeviceError, Op, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, Superblock};
use zonal_fs::fsck::{self, Absent, Finding, Severity, check};
use zonal_fs::space::victims::Reason;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};
use zonal_io::device::Device;
use zonal_io::fault::{Degraded, Effect, Fault, Ops, Plan, Rule, RulePlace};
use zonal_io::volume::Volume;

const BLOCK: usize = 4096;

/// Zone capacity in blocks.
const ZONE: usize = 64;

/// A drive of 24 zones that can fail, and a file system with ten files of forty blocks.
struct Made {
    fault: Arc<Fault>,
    superblock: Superblock,
    memory: Memory,
}

impl Made {
    fn new() -> (Made, FileSystem) {
        let ram = device("ram:size=6M,zone_size=256K,blocksize=4096,complete=poll");
        let fault = Arc::new(Fault::new(ram, Plan::default()));
        let superblock = superblock(&volume(fault.clone()), 0, 8);
        let made = Made { fault, superblock, memory: Memory::new() };
        let mut rows = made.rows();
        FileSystem::make(&mut rows, &made.superblock, &waiter()).unwrap();
        drop(rows);
        let fs = made.open();
        for n in 0..10 {
            write(&fs, n, &data(n, 40));
        }
        fs.sync(&waiter()).unwrap();
        (made, fs)
    }

    fn volume(&self) -> Arc<Volume> {
        let device: Arc<dyn Device> = self.fault.clone();
        volume(device)
    }

    fn rows(&self) -> Rows {
        Rows::open(self.memory.clone(), 1 << 22).unwrap()
    }

    fn open(&self) -> FileSystem {
        let (superblock, options) = (self.superblock.clone(), MountOptions::default());
        FileSystem::open(self.volume(), self.rows(), superblock, options, true, &waiter()).unwrap()
    }

    fn findings(&self) -> Vec<Finding> {
        let drive = Drive::new(self.volume());
        check(&self.rows(), &self.superblock, &drive, &waiter(), fsck::Options::default().with_data(true))
            .unwrap()
    }

    fn fall(&self, zone: u32, to: Degraded) {
        self.fault.degrade(ZoneIndex(zone), to).unwrap();
    }
}

fn data(n: u64, blocks: usize) -> Vec<u8> {
    bytes(n + 1, blocks * BLOCK)
}

fn name(n: u64) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn write(fs: &FileSystem, n: u64, data: &[u8]) {
    let ino = match fs.lookup(ROOT, &name(n)) {
        Ok(ino) => ino,
        Err(_) => fs.create(&waiter(), ROOT, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap(),
    };
    assert_eq!(fs.write(&waiter(), ino, 0, Payload::Bytes(data)).unwrap(), data.len() as u64);
}

fn read(fs: &FileSystem, n: u64) -> Result<Vec<u8>, FsError> {
    read_all(fs, fs.lookup(ROOT, &name(n)).unwrap())
}

fn maintain(fs: &FileSystem) {
    while fs.background_step(&waiter()).unwrap() {}
    settle(fs);
    fs.check();
}

fn check_all(fs: &FileSystem) {
    for n in 0..10 {
        assert!(read(fs, n).unwrap() == data(n, 40), "f{n}");
    }
}

#[test]
fn zones_found_read_only_are_moved_out_of_and_may_go_offline() {
    let (made, fs) = Made::new();
    drop(fs);
    made.fall(0, Degraded::ReadOnly);
    made.fall(2, Degraded::ReadOnly);
    let findings = made.findings();
    let zones = |zone| Finding::ReadOnlyZone { zone, blocks: 55 };
    assert_eq!(findings, [zones(0), zones(2)]);
    assert!(findings.iter().all(|finding| finding.severity() == Severity::Minor));
    let fs = made.open();
    fs.check();
    assert_eq!((fs.usage().read_only_zones, fs.usage().read_only), (2, 110));
    let free = fs.usage().free;
    maintain(&fs);
    assert_eq!((fs.usage().read_only_zones, fs.usage().read_only), (2, 0));
    assert_eq!(fs.usage().free, free - 110, "what was moved takes space that users had");
    assert_eq!((fs.statistics().gc_victims, fs.statistics().reason), (2, Some(Reason::ReadOnlyZone)));
    fs.sync(&waiter()).unwrap();
    made.fall(0, Degraded::Offline);
    made.fall(2, Degraded::Offline);
    check_all(&fs);
    drop(fs);
    assert_eq!(made.findings(), []);
    check_all(&made.open());
}

#[test]
fn zone_that_becomes_read_only_while_it_is_written_is_moved_out_of() {
    let (made, fs) = Made::new();
    let rule = Rule::new(Effect::Degrade(Degraded::ReadOnly)).on(Ops::WRITES);
    made.fault.inject(rule.nth(6).times(1));
    for n in 0..10 {
        write(&fs, n, &data(n, 40));
    }
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.usage().read_only_zones, 1);
    maintain(&fs);
    assert_eq!(fs.usage().read_only, 0);
    check_all(&fs);
}

#[test]
fn reads_from_an_offline_zone_fail_and_other_data_is_intact() {
    let (made, fs) = Made::new();
    made.fall(1, Degraded::Offline);
    let is_told = |result: Result<Vec<u8>, FsError>| match result {
        Ok(_) => false,
        Err(error @ FsError::Read { zone: 1, .. }) => error.to_string().contains("offline"),
        Err(other) => panic!("{other}"),
    };
    let lost: Vec<u64> = (0..10).filter(|n| is_told(read(&fs, *n))).collect();
    assert_eq!(lost, [1, 2]);
    // Detected by reading. From then on, reads do not ask the drive.
    assert_eq!((fs.usage().offline_zones, fs.usage().offline), (1, 55));
    assert!(is_told(read(&fs, 1)));
    maintain(&fs);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let findings = made.findings();
    let is_offline = |f: &Finding| matches!(f, Finding::Nowhere { zone: 1, why: Absent::Offline, .. });
    assert!(findings.iter().any(is_offline), "{findings:?}");
    let fs = made.open();
    for n in (0..10).filter(|n| !lost.contains(n)) {
        assert!(read(&fs, n).unwrap() == data(n, 40), "f{n}");
    }
    for n in lost {
        write(&fs, n, &data(n, 40));
    }
    maintain(&fs);
    check_all(&fs);
    assert_eq!(fs.usage().offline, 0);
}

/// Checks a file system whose zone 0 went offline during its collection: only its data is lost.
fn check_left(fs: &FileSystem, what: &str) {
    settle(fs);
    for n in 0..10 {
        match read(fs, n) {
            Ok(found) => assert!(found == data(n, 40), "{what}, f{n}"),
            Err(FsError::Read { zone: 0, .. }) => assert!(fs.usage().offline > 0, "{what}, f{n}"),
            Err(other) => panic!("{what}, f{n}: {other}"),
        }
    }
    assert_eq!((fs.usage().offline_zones, fs.statistics().damaged_blocks), (1, 0), "{what}");
    for n in 0..10 {
        write(fs, n, &data(n, 40));
    }
    maintain(fs);
    fs.sync(&waiter()).unwrap();
    check_all(fs);
    assert_eq!(fs.usage().offline, 0, "{what}");
}

/// A file system in which most of zone 0 is garbage.
fn with_victim() -> (Made, FileSystem) {
    let (made, fs) = Made::new();
    write(&fs, 0, &data(0, 40));
    fs.sync(&waiter()).unwrap();
    (made, fs)
}

#[test]
fn zone_that_goes_offline_after_the_collector_has_read_it_loses_nothing() {
    let mut turn = 0;
    loop {
        let (made, fs) = with_victim();
        let fall = || {
            made.fall(0, Degraded::Offline);
            // A read finds out.
            (0..10).for_each(|n| drop(read(&fs, n)));
        };
        let interleaved = Interleaved::new(turn, &fall);
        fs.collect(&interleaved).unwrap();
        if !interleaved.has_come() {
            break;
        }
        settle(&fs);
        assert_eq!(fs.usage().offline, 0, "turn {turn}");
        check_left(&fs, &format!("turn {turn}"));
        turn += 1;
    }
    assert!(turn > 1, "{turn} turns");
}

#[test]
fn zone_that_the_collector_finds_offline_is_left() {
    let (made, fs) = with_victim();
    let rule = Rule::new(Effect::Degrade(Degraded::Offline)).on(Ops::of(&[Op::Read]));
    made.fault.inject(rule.zone(ZoneIndex(0)).times(1));
    fs.collect(&waiter()).unwrap();
    assert!(fs.usage().offline > 0);
    check_left(&fs, "found by a read");
}

#[test]
fn read_only_zone_on_a_full_drive_is_evacuated_once_space_is_free() {
    let (made, fs) = Made::new();
    let filler = fs.create(&waiter(), ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let chunk = data(99, ZONE);
    let at = fill_up(&fs, filler, &chunk);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    made.fall(0, Degraded::ReadOnly);
    let fs = made.open();
    maintain(&fs);
    assert_eq!(
        (fs.usage().read_only, fs.statistics().gc_victims),
        (55, 0),
        "it would take what users have not"
    );
    check_all(&fs);
    assert!(matches!(fs.write(&waiter(), filler, at, Payload::Bytes(&chunk)), Err(FsError::NoSpace)));
    fs.truncate(&waiter(), filler, 0).unwrap();
    fs.sync(&waiter()).unwrap();
    maintain(&fs);
    assert_eq!(fs.usage().read_only, 0);
    check_all(&fs);
}

#[test]
fn lost_zone_with_damaged_data_keeps_them_and_no_others() {
    let (made, fs) = Made::new();
    drop(fs);
    made.fall(0, Degraded::ReadOnly);
    let fs = made.open();
    // The third unit of zone 0 cannot be read.
    let rule = Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::Read]));
    let place = RulePlace::Sectors(16 * 8..=24 * 8 - 1);
    made.fault.inject(rule.at(place));
    maintain(&fs);
    assert_eq!(fs.usage().read_only, 7);
    assert_eq!(fs.statistics().damaged_blocks, 7);
}
