//! Cost of a small sync, and its result after a crash if the drive has lost data.

use crate::common::{bytes, cases_of, device, read_all, settle, volume, waiter};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{DeviceError, Nanos, Op, Sector, ZoneCondition};
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, Header};
use zonal_fs::fsck::{Finding, Options, check};
use zonal_fs::make::{Access, MakeOptions, look, make, open, open_rows, superblock};
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, OpenFile, Payload, ROOT, Seek};
use zonal_io::badblocks::BadRange;
use zonal_io::clock::Clock;
use zonal_io::device::{Command, Context, Device, DeviceInfo, Landing, Submitted, Wrapper};
use zonal_io::fault::{Degraded, Fault, Plan};

const UUID: [u8; 16] = *b"synced, or not..";

/// Device that counts commands and can lose writes of units.
struct Losing {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    loses_units: AtomicBool,
    /// True if units fail with an error.
    fails_units: AtomicBool,
    /// True if every command fails.
    refuses: AtomicBool,
    flushes: AtomicU64,
    sectors: AtomicU64,
    /// Sector of the last unit, or of its zone if that was empty.
    last_unit: AtomicU64,
}

impl Wrapper for Losing {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        if self.refuses.load(Ordering::Relaxed) {
            return Submitted::Done(Err(DeviceError::Gone));
        }
        let mut is_unit = false;
        if command.op.is_write() {
            self.sectors.fetch_add(command.sectors.into(), Ordering::Relaxed);
            command.data.for_each(|at, piece| {
                is_unit |= at == 0 && piece.len() >= 4096 && Header::decode(&piece[..4096], &UUID).is_ok();
            });
        }
        if is_unit {
            self.last_unit.store(command.sector.0, Ordering::Relaxed);
        }
        if is_unit && self.fails_units.load(Ordering::Relaxed) {
            return Submitted::Done(Err(DeviceError::Medium));
        }
        self.flushes.fetch_add(u64::from(command.op == Op::Flush), Ordering::Relaxed);
        let is_lost = is_unit && self.loses_units.load(Ordering::Relaxed);
        let landing = if is_lost { Landing::Lost } else { command.landing };
        self.inner.submit(now, queue, &Command { landing, ..*command }, context)
    }
}

/// Makes a file system with the file `f` on a drive with `conventional` conventional zones.
fn file_system(conventional: u32) -> (Arc<Losing>, FileSystem, OpenFile) {
    file_system_on(&format!("ram:size=256M,zone_size=4M,blocksize=4096,zone_nr_conv={conventional}"))
}

fn file_system_on(name: &str) -> (Arc<Losing>, FileSystem, OpenFile) {
    let inner = device(name);
    let losing = Arc::new(Losing {
        // Without such a cache there are no flushes.
        info: DeviceInfo { volatile_cache: true, ..inner.info().clone() },
        inner,
        loses_units: AtomicBool::new(false),
        fails_units: AtomicBool::new(false),
        refuses: AtomicBool::new(false),
        flushes: AtomicU64::new(0),
        sectors: AtomicU64::new(0),
        last_unit: AtomicU64::new(0),
    });
    let drive = Arc::new(Drive::new(volume(losing.clone())));
    make(&drive, &polling(Clock::start()), UUID, &MakeOptions::default()).unwrap();
    drop(drive);
    let fs = mount(&losing);
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let file = fs.open_file(ino).unwrap();
    fs.fsync(&waiter(), ino).unwrap();
    (losing, fs, file)
}

fn mount(losing: &Arc<Losing>) -> FileSystem {
    let drive = Arc::new(Drive::new(volume(losing.clone())));
    open(&drive, &polling(Clock::start()), None, MountOptions::default()).unwrap()
}

fn look_at(losing: &Arc<Losing>) -> FileSystem {
    let drive = Arc::new(Drive::new(volume(losing.clone())));
    look(&drive, &polling(Clock::start()), None, MountOptions::default()).unwrap()
}

/// Findings of fsck, without reading the data.
fn findings(losing: &Arc<Losing>) -> Vec<Finding> {
    let drive = Arc::new(Drive::new(volume(losing.clone())));
    let superblock = superblock(&drive, &waiter()).unwrap();
    let rows = open_rows(&drive, &polling(Clock::start()), None, &superblock, Access::Verify).unwrap();
    check(&rows, &superblock, &drive, &waiter(), Options::default()).unwrap()
}

fn append(fs: &FileSystem, ino: u64, range: Range<usize>, data: &[u8]) {
    fs.write(&waiter(), ino, range.start as u64, Payload::Bytes(&data[range])).unwrap();
    fs.fsync(&waiter(), ino).unwrap();
}

/// Ends the file system without further writes, as a crash of the process does.
fn crash<F>(drive: &Losing, fs: FileSystem, files: F) {
    drive.refuses.store(true, Ordering::Relaxed);
    drop(files);
    drop(fs);
    drive.refuses.store(false, Ordering::Relaxed);
}

#[test]
fn small_sync_takes_one_flush_and_two_blocks() {
    const SYNCS: usize = 1000;
    // In conventional zones the store takes no zones of the data, so fewer rows wait in its log.
    for (conventional, percent) in [(0, 115), (4, 140)] {
        let (drive, fs, file) = file_system(conventional);
        let data = bytes(1, SYNCS * 100);
        let counts = || (drive.flushes.load(Ordering::Relaxed), drive.sectors.load(Ordering::Relaxed) * 512);
        let before = counts();
        for n in 0..SYNCS {
            append(&fs, file.ino(), n * 100..(n + 1) * 100, &data);
        }
        let after = counts();
        let (flushes, written) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{flushes} flushes and {written} bytes for {SYNCS} syncs, {conventional} conventional zones"
        );
        let most = SYNCS as u64 * 105 / 100;
        assert!((SYNCS as u64..most).contains(&flushes), "{flushes} flushes, {conventional} conventional");
        // Data and other rows; now and then the data goes to a zone, and the rows go to tables.
        assert!(
            written <= SYNCS as u64 * 2 * 4096 * percent / 100,
            "{written} bytes, {conventional} conventional"
        );
        let ino = file.ino();
        crash(&drive, fs, file);
        assert!(read_all(&mount(&drive), ino).unwrap() == data);
    }
}

#[test]
fn last_sync_before_a_crash_counts_only_with_its_data() {
    for conventional in [0, 4] {
        let (drive, fs, file) = file_system(conventional);
        let (ino, data) = (file.ino(), bytes(2, 30_000));
        append(&fs, ino, 0..10_000, &data);
        drive.loses_units.store(true, Ordering::Relaxed);
        append(&fs, ino, 10_000..30_000, &data);
        drive.loses_units.store(false, Ordering::Relaxed);
        crash(&drive, fs, file);
        let fs = mount(&drive);
        assert!(read_all(&fs, ino).unwrap() == data[..10_000], "{conventional} conventional");
        // The file goes on from there.
        append(&fs, ino, 10_000..30_000, &data);
        assert!(read_all(&fs, ino).unwrap() == data);
        fs.check();
    }
}

#[test]
fn sync_that_others_followed_or_a_close_counts_whatever_becomes_of_its_data() {
    for is_closed in [false, true] {
        let (drive, fs, file) = file_system(0);
        let (ino, data) = (file.ino(), bytes(3, 9000));
        drive.loses_units.store(true, Ordering::Relaxed);
        append(&fs, ino, 0..9000, &data);
        drive.loses_units.store(false, Ordering::Relaxed);
        if is_closed {
            file.close(&waiter()).unwrap();
            drop(fs);
        } else {
            fs.create(&waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap();
            fs.sync(&waiter()).unwrap();
            crash(&drive, fs, file);
        }
        let fs = mount(&drive);
        assert_eq!(fs.attributes(ino).unwrap().size, 9000, "closed: {is_closed}");
        assert!(
            matches!(read_all(&fs, ino), Err(FsError::Checksum { .. } | FsError::Unit { .. })),
            "closed: {is_closed}"
        );
        assert_eq!(fs.lookup(ROOT, b"g").is_ok(), !is_closed);
    }
}

#[test]
fn data_of_the_last_sync_that_the_drive_cannot_read_costs_no_other_change() {
    let (drive, fs, file) = file_system(0);
    let (ino, data) = (file.ino(), bytes(4, 9000));
    fs.create(&waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap();
    append(&fs, ino, 0..9000, &data);
    crash(&drive, fs, file);
    // The first block of data, after the header.
    let first = drive.last_unit.load(Ordering::Relaxed) + 8;
    drive.inner.badblocks(Some(BadRange { is_bad: true, first, last: first + 7 })).unwrap();
    let fs = mount(&drive);
    assert!(fs.lookup(ROOT, b"g").is_ok());
    assert_eq!(fs.attributes(ino).unwrap().size, 9000);
    assert!(read_all(&fs, ino).is_err());
}

#[test]
fn last_sync_counts_although_zones_that_it_left_without_data_were_reset() {
    let (drive, fs, file) = file_system_on("ram:size=64M,zone_size=512K,blocksize=4096");
    let (ino, data) = (file.ino(), bytes(5, 700_000));
    // The data of a file that is gone before the sync fills a zone.
    let gone = fs.create(&waiter(), ROOT, b"gone", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let open = fs.open_file(gone).unwrap();
    fs.write(&waiter(), gone, 0, Payload::Bytes(&data)).unwrap();
    open.close(&waiter()).unwrap();
    crate::common::settle(&fs);
    fs.unlink(&waiter(), ROOT, b"gone").unwrap();
    append(&fs, ino, 0..9000, &data);
    let resets = || fs.statistics().resets;
    while resets() == 0 && fs.collect(&waiter()).unwrap() {}
    assert!(resets() > 0, "no zone was reset");
    crash(&drive, fs, file);
    let fs = mount(&drive);
    assert!(read_all(&fs, ino).unwrap() == data[..9000]);
    assert!(fs.lookup(ROOT, b"gone").is_err());
}

/// File of a random test, with its expected bytes.
struct ModelFile {
    name: Vec<u8>,
    file: OpenFile,
    bytes: Vec<u8>,
    /// True if all changes are durable.
    is_synced: bool,
}

impl ModelFile {
    fn create(fs: &FileSystem, name: Vec<u8>) -> ModelFile {
        let ino = fs.create(&waiter(), ROOT, &name, &NewFile::new(FileKind::File, 0o644)).unwrap();
        ModelFile { name, file: fs.open_file(ino).unwrap(), bytes: Vec::new(), is_synced: false }
    }

    /// Changes the file at random.
    fn change(&mut self, fs: &FileSystem, random: &mut Pcg64Mcg) {
        let (ino, waiter) = (self.file.ino(), waiter());
        self.is_synced = false;
        let size = self.bytes.len();
        let at = random.random_range(0..=size);
        let length = *[1, 100, 4096, 5000, 9000].choose(random).unwrap();
        match random.random_range(0..8) {
            0 => {
                let to = random.random_range(0..size + 5000);
                fs.truncate(&waiter, ino, to as u64).unwrap();
                self.bytes.resize(to, 0);
            }
            1 if at < size => {
                let end = (at + length).min(size);
                fs.punch(&waiter, ino, at as u64..end as u64).unwrap();
                self.bytes[at..end].fill(0);
            }
            what => {
                let at = if what < 4 { at } else { size };
                let data = bytes(random.random(), length);
                fs.write(&waiter, ino, at as u64, Payload::Bytes(&data)).unwrap();
                self.bytes.resize(size.max(at + length), 0);
                self.bytes[at..at + length].copy_from_slice(&data);
            }
        }
    }
}

/// Checks that no byte is in a hole.
fn check_holes(fs: &FileSystem, ino: u64, bytes: &[u8]) {
    let mut hole = 0;
    while let Ok(end) = fs.seek(ino, hole, Seek::Data).or(Ok::<_, FsError>(bytes.len() as u64)) {
        assert!(bytes[hole as usize..end as usize].iter().all(|byte| *byte == 0), "{hole} to {end}");
        if end == bytes.len() as u64 {
            return;
        }
        hole = fs.seek(ino, end, Seek::Hole).unwrap();
    }
}

#[test]
fn synced_files_are_whole_after_any_changes_and_a_crash() {
    for seed in 0..cases_of(500, 12) {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let (drive, mut fs, first) = file_system_on("ram:size=64M,zone_size=1M,blocksize=4096");
        drop(first);
        let mut files: Vec<_> = (0..3).map(|n| ModelFile::create(&fs, vec![b'a' + n])).collect();
        for _ in 0..300 {
            let n = random.random_range(0..files.len());
            match random.random_range(0..20) {
                0 => {
                    let old = files.swap_remove(n);
                    fs.unlink(&waiter(), ROOT, &old.name).unwrap();
                    drop(old.file);
                    files.push(ModelFile::create(&fs, old.name));
                }
                1 => {
                    // The open handles would keep the file system alive.
                    let rest: Vec<_> =
                        files.into_iter().map(|f| (f.name, f.bytes, f.is_synced, f.file)).collect();
                    let names: Vec<_> = rest.iter().map(|f| (f.0.clone(), f.1.clone(), f.2)).collect();
                    crash(&drive, fs, rest);
                    assert_eq!(findings(&drive), [], "seed {seed}");
                    let looked = look_at(&drive);
                    for (name, bytes, _) in names.iter().filter(|file| file.2) {
                        let ino = looked.lookup(ROOT, name).unwrap();
                        assert!(read_all(&looked, ino).unwrap() == *bytes, "inspection, seed {seed}");
                        check_holes(&looked, ino, bytes);
                    }
                    drop(looked);
                    fs = mount(&drive);
                    fs.check();
                    files = Vec::new();
                    for (name, bytes, is_synced) in names {
                        let Ok(ino) = fs.lookup(ROOT, &name) else {
                            assert!(!is_synced, "seed {seed}");
                            files.push(ModelFile::create(&fs, name));
                            continue;
                        };
                        let found = read_all(&fs, ino).unwrap();
                        assert!(!is_synced || found == bytes, "seed {seed}");
                        let file = fs.open_file(ino).unwrap();
                        files.push(ModelFile { name, file, bytes: found, is_synced });
                    }
                }
                2..8 => {
                    fs.fsync(&waiter(), files[n].file.ino()).unwrap();
                    files[n].is_synced = true;
                }
                _ => files[n].change(&fs, random),
            }
        }
    }
}

#[test]
fn synced_data_that_no_zone_takes_is_there_at_the_next_opening() {
    let (drive, fs, file) = file_system(4);
    let (ino, data) = (file.ino(), bytes(6, 5000));
    append(&fs, ino, 0..1000, &data);
    drive.fails_units.store(true, Ordering::Relaxed);
    append(&fs, ino, 1000..5000, &data);
    // The read is the first to send the data.
    let seen = fs.read_in_place(&waiter(), ino, 0, 5000, |pieces| pieces.concat()).unwrap();
    assert!(seen == data);
    let closed = file.close(&waiter()).and_then(|()| fs.sync(&waiter()));
    let refused = fs.create(&waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap_err();
    assert!(closed.is_err() && refused.to_string().contains("next opening"), "{closed:?}: {refused}");
    assert!(read_all(&fs, ino).unwrap() == data);
    check_holes(&fs, ino, &data);
    drive.fails_units.store(false, Ordering::Relaxed);
    crash(&drive, fs, ());
    let fs = mount(&drive);
    assert!(read_all(&fs, ino).unwrap() == data);
    fs.check();
}

#[test]
fn synced_data_in_a_write_buffer_is_read_once_changes_are_refused() {
    let (_drive, fs, file) = file_system(4);
    let data = bytes(8, 5000);
    append(&fs, file.ino(), 0..3000, &data);
    fs.write(&waiter(), file.ino(), 3000, Payload::Bytes(&data[3000..])).unwrap();
    fs.forbid_changes("a test");
    assert!(read_all(&fs, file.ino()).unwrap() == data);
}

#[test]
fn synced_data_in_a_combined_unit_is_read_once_changes_are_refused() {
    let (_drive, fs, file) = file_system(4);
    let (ino, data) = (file.ino(), bytes(11, 3000));
    append(&fs, ino, 0..3000, &data);
    file.close(&waiter()).unwrap();
    fs.forbid_changes("a test");
    assert!(read_all(&fs, ino).unwrap() == data);
}

#[test]
fn sync_without_changes_costs_nothing() {
    let (drive, fs, file) = file_system(0);
    append(&fs, file.ino(), 0..5000, &bytes(9, 5000));
    let counts = || (drive.flushes.load(Ordering::Relaxed), drive.sectors.load(Ordering::Relaxed));
    let before = counts();
    (0..10).for_each(|_| fs.fsync(&waiter(), file.ino()).unwrap());
    assert_eq!(counts(), before);
}

/// Fills a drive with `filler`, syncs a file while the room of its tail is all that is left, and
/// crashes; `unlinks` the filler before. Returns the file and its data.
fn crash_of_a_full_drive(unlinks: bool) -> (Arc<Losing>, u64, Vec<u8>) {
    let (drive, fs, file) = file_system_on("ram:size=96M,zone_size=2M,blocksize=4096,zone_nr_conv=8");
    let (ino, data) = (file.ino(), bytes(7, 1 << 20));
    let filler = fs.create(&waiter(), ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let open = fs.open_file(filler).unwrap();
    let write = |end, length: usize| {
        let put = fs.write(&waiter(), filler, end, Payload::Bytes(&data[..length]));
        put.is_ok_and(|put| put == length as u64)
    };
    let mut end = 0;
    let mut fill = |least: u64, length: usize| {
        while fs.usage().free > least {
            assert!(write(end, length), "{:?}", fs.usage());
            end += length as u64;
        }
        fs.fsync(&waiter(), filler).unwrap();
    };
    fill(600, 1 << 20);
    append(&fs, ino, 0..5000, &data);
    // A write that finds no space would send the tail.
    fill(8, 4096);
    append(&fs, ino, 5000..8000, &data);
    assert_eq!(fs.waiting_blocks(ino), 2);
    if unlinks {
        fs.unlink(&waiter(), ROOT, b"filler").unwrap();
        fs.fsync(&waiter(), ino).unwrap();
    }
    crash(&drive, fs, (file, open));
    (drive, ino, data[..8000].to_vec())
}

#[test]
fn full_drive_opens_after_a_crash_with_synced_data_in_rows() {
    let (drive, ino, data) = crash_of_a_full_drive(false);
    let fs = mount(&drive);
    assert!(read_all(&fs, ino).unwrap() == data);
    fs.unlink(&waiter(), ROOT, b"filler").unwrap();
    fs.sync(&waiter()).unwrap();
    fs.check();
}

/// Opens the file system on a drive whose zones with room have become read-only.
fn mount_without_room(drive: Arc<Losing>) -> FileSystem {
    let fault = Arc::new(Fault::new(drive, Plan::default()));
    for zone in zonal_io::volume::report(&*fault, Sector(0), u32::MAX).unwrap() {
        if !matches!(zone.condition, ZoneCondition::Full | ZoneCondition::NotWp) {
            fault.degrade(zone.zone, Degraded::ReadOnly).unwrap();
        }
    }
    let drive = Arc::new(Drive::new(volume(fault)));
    open(&drive, &polling(Clock::start()), None, MountOptions::default()).unwrap()
}

#[test]
fn synced_data_in_rows_is_read_if_zones_were_lost_and_none_has_room() {
    let (drive, ino, data) = crash_of_a_full_drive(false);
    let fs = mount_without_room(drive);
    assert!(read_all(&fs, ino).unwrap() == data);
    let refused = fs.create(&waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap_err();
    assert!(refused.to_string().contains("no zone has room"), "{refused}");
}

#[test]
fn deleted_files_make_room_for_synced_data_at_an_opening() {
    let (drive, ino, data) = crash_of_a_full_drive(true);
    let fs = mount_without_room(drive);
    assert!(read_all(&fs, ino).unwrap() == data);
    fs.create(&waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap();
    settle(&fs);
    fs.check();
}
