//! A drive that wears out: its zones become unwritable, one after the other, down to none. Existing
//! data stays readable.

use crate::common;
use crate::common::{bytes, contents, waiter};
use std::collections::BTreeMap;
use std::sync::Arc;
use zonal_core::ZoneIndex;
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::fsck::{Finding, Options, check};
use zonal_fs::make::{Access, MakeError, MakeOptions, look, make, open, open_rows, superblock};
use zonal_fs::superblocks;
use zonal_fs::waiter::{Waiters, polling};
use zonal_fs::{Changes, FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, SetTime};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::fault::{Degraded, Fault, Plan};

const UUID: [u8; 16] = *b"wears out, reads";

struct Worn {
    fault: Arc<Fault>,
    expected: BTreeMap<String, Vec<u8>>,
}

fn waiters() -> Waiters {
    polling(Clock::start())
}

impl Worn {
    fn new(name: &str) -> Worn {
        let fault = Arc::new(Fault::new(common::device(name), Plan::default()));
        let worn = Worn { fault, expected: BTreeMap::new() };
        let options = MakeOptions::default().with_unit_bytes(8 * 4096);
        make(&worn.drive(), &waiters(), UUID, &options).unwrap();
        worn
    }

    fn drive(&self) -> Arc<Drive> {
        let device: Arc<dyn Device> = self.fault.clone();
        Arc::new(Drive::new(common::volume(device)))
    }

    fn open(&self) -> Result<FileSystem, MakeError> {
        open(&self.drive(), &waiters(), None, MountOptions::default())
    }

    /// Creates a file and makes it durable.
    fn put(&mut self, fs: &FileSystem, n: u64) -> Result<(), FsError> {
        let (name, data) = (format!("file-{n}"), bytes(n, 5000 + 100 * n as usize));
        let waiter = waiter();
        let ino = fs.create(&waiter, ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644))?;
        fs.write(&waiter, ino, 0, Payload::Bytes(&data))?;
        fs.sync(&waiter)?;
        self.expected.insert(format!("/{name}"), data);
        Ok(())
    }

    /// Checks that all durable files are there, with their bytes.
    fn check(&self, fs: &FileSystem, what: &str) {
        let found = contents(fs).unwrap_or_else(|e| panic!("{what}: {e}"));
        for (path, data) in &self.expected {
            assert!(found.get(path).and_then(Option::as_ref) == Some(data), "{what}: {path}");
        }
    }

    fn check_to_read(&self, what: &str) {
        let fs = look(&self.drive(), &waiters(), None, MountOptions::default());
        self.check(&fs.unwrap_or_else(|e| panic!("{what}: {e}")), what);
    }
}

/// Drives without conventional zones, with and without limits, and one with a store of pieces and
/// zones.
const DRIVES: [&str; 3] = [
    "ram:size=16M,zone_size=512K,blocksize=4096",
    "ram:size=16M,zone_size=512K,blocksize=4096,zone_max_open=6,zone_max_active=6",
    "ram:size=16M,zone_size=512K,blocksize=4096,zone_nr_conv=3",
];

#[test]
fn read_only_store_zones_are_replaced_while_others_are_available() {
    for name in &DRIVES[..2] {
        let mut worn = Worn::new(name);
        let fs = worn.open().unwrap();
        for n in 0..10 {
            worn.put(&fs, n).unwrap();
        }
        for round in 0..6 {
            // Eventually this includes the most recently started zone.
            for zone in store_zones(&fs).into_iter().take(1 + round % 3) {
                let _ = worn.fault.degrade(zone, Degraded::ReadOnly);
            }
            for n in 0..10 {
                let n = 10 + 10 * round as u64 + n;
                worn.put(&fs, n).unwrap_or_else(|e| panic!("{name}, round {round}: {e}"));
            }
            worn.check(&fs, name);
        }
        drop(fs);
        worn.check_to_read(name);
        worn.check(&worn.open().unwrap(), name);
    }
}

/// Zones of the metadata store, in the order of the superblock.
fn store_zones(fs: &FileSystem) -> Vec<ZoneIndex> {
    let drive = Drive::new(fs.volume().clone());
    superblocks::find(&drive, &waiter()).unwrap().copy.anchor.zones
}

/// Runs fsck and makes a change. Returns whether fsck reports that changes are impossible, and
/// whether the change succeeded.
fn stop_and_change(worn: &Worn, what: &str) -> (bool, bool) {
    let drive = worn.drive();
    let superblock = superblock(&drive, &waiter()).unwrap();
    let rows = open_rows(&drive, &waiters(), None, &superblock, Access::Verify);
    let rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = check(&rows, &superblock, &drive, &waiter(), Options::default().with_data(false)).unwrap();
    drop(rows);
    drop(drive);
    let change = worn.open().map_err(|error| error.to_string()).and_then(|fs| {
        let changes = Changes { mtime: Some(SetTime::At(7)), ..Changes::default() };
        let changed = fs.set_attributes(&waiter(), ROOT, &changes).and_then(|_| fs.sync(&waiter()));
        changed.map_err(|error| error.to_string())
    });
    let is_stopped = found.iter().any(|finding| matches!(finding, Finding::NoChanges { .. }));
    if is_stopped == change.is_ok() {
        eprintln!("{what}: {change:?}, {found:?}");
    }
    (is_stopped, change.is_ok())
}

#[test]
fn fsck_predicts_whether_a_worn_drive_accepts_changes() {
    for (name, from_the_end) in DRIVES.iter().flat_map(|name| [(name, false), (name, true)]) {
        let mut worn = Worn::new(name);
        let fs = worn.open().unwrap();
        for n in 0..10 {
            worn.put(&fs, n).unwrap();
        }
        let zones = fs.volume().info().geometry.zones();
        drop(fs);
        let (mut stopped, mut changed) = (0, 0);
        for step in 0..zones {
            let zone = ZoneIndex(if from_the_end { zones - 1 - step } else { step });
            let _ = worn.fault.degrade(zone, Degraded::ReadOnly);
            let what = format!("{name}, zone {zone}");
            let (is_stopped, is_changed) = stop_and_change(&worn, &what);
            assert_ne!(is_stopped, is_changed, "{what}");
            stopped += u32::from(is_stopped);
            changed += u32::from(is_changed);
        }
        assert!(changed > 10 && (stopped > 0 || name.contains("nr_conv")), "{name}: {stopped}, {changed}");
    }
}

#[test]
fn drive_that_takes_no_writes_any_more_is_read_to_the_last_file() {
    for name in DRIVES {
        let mut worn = Worn::new(name);
        let fs = worn.open().unwrap();
        for n in 0..10 {
            worn.put(&fs, n).unwrap();
        }
        let zones = fs.volume().info().geometry.zones();
        let mut was_refused = false;
        for zone in 0..zones {
            let _ = worn.fault.degrade(ZoneIndex(zone), Degraded::ReadOnly);
            was_refused |= worn.put(&fs, 100 + u64::from(zone)).is_err();
            worn.check(&fs, &format!("{name}, zone {zone}"));
        }
        assert!(was_refused || worn.expected.len() > 10, "{name}");
        let error = worn.put(&fs, 999);
        worn.check(&fs, name);
        drop(fs);
        worn.check_to_read(name);
        if !name.contains("nr_conv") {
            assert!(error.is_err(), "{name}: a drive without a zone to write took a file");
        }
    }
}
