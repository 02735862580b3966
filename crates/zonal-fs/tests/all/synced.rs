//! Cost of a small sync, and its result after a crash if the drive has lost data.

use crate::common::{bytes, device, read_all, volume, waiter};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{DeviceError, Nanos, Op};
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, Header};
use zonal_fs::make::{MakeOptions, make, open};
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, OpenFile, Payload, ROOT};
use zonal_io::badblocks::BadRange;
use zonal_io::clock::Clock;
use zonal_io::device::{Command, Context, Device, DeviceInfo, Landing, Submitted, Wrapper};

const UUID: [u8; 16] = *b"synced, or not..";

/// Device that counts commands and can lose writes of units.
struct Losing {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    loses_units: AtomicBool,
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

fn append(fs: &FileSystem, ino: u64, range: Range<usize>, data: &[u8]) {
    fs.write(&waiter(), ino, range.start as u64, Payload::Bytes(&data[range])).unwrap();
    fs.fsync(&waiter(), ino).unwrap();
}

/// Ends the file system without further writes, as a crash of the process does.
fn crash(drive: &Losing, fs: FileSystem, file: OpenFile) {
    drive.refuses.store(true, Ordering::Relaxed);
    drop(file);
    drop(fs);
    drive.refuses.store(false, Ordering::Relaxed);
}

#[test]
fn small_sync_takes_one_flush_and_three_blocks() {
    const SYNCS: usize = 1000;
    // In conventional zones the store takes no zones of the data, so fewer rows wait in its log.
    for (conventional, percent) in [(0, 103), (4, 110)] {
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
        // Header, data and rows; now and then the rows go to tables.
        assert!(
            written <= SYNCS as u64 * 3 * 4096 * percent / 100,
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
