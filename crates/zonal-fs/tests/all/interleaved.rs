//! Other calls made by a waiter while a call waits.

use crate::common;
use crate::common::interleaved::Interleaved;
use crate::common::{bytes, contents, device, make, make_with, read_all, reopen, settle, superblock, volume};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use zonal_core::{DeviceError, Op, ZoneIndex};
use zonal_fs::format::FileKind;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};

const BLOCK: usize = 4096;

/// A file system with zones of 64 blocks, the first of which is half garbage, and the file with the
/// other half.
fn half_garbage() -> (FileSystem, u64, Vec<u8>) {
    let device = device("ram:size=6M,zone_size=256K,blocksize=4096,complete=poll");
    let fs = make(volume(device), 8, MountOptions::default());
    let waiter = common::waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let mut data = bytes(1, 100 * BLOCK);
    fs.write(&waiter, ino, 0, Payload::Bytes(&data)).unwrap();
    fs.sync(&waiter).unwrap();
    for block in (0..56).step_by(2) {
        let new = bytes(1000 + block as u64, BLOCK);
        fs.write(&waiter, ino, (block * BLOCK) as u64, Payload::Bytes(&new)).unwrap();
        data[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&new);
    }
    fs.sync(&waiter).unwrap();
    (fs, ino, data)
}

#[test]
fn h73_gc_copy_does_not_replace_newer_data() {
    let mut skipped = 0;
    for turn in 0..24 {
        let (fs, ino, mut data) = half_garbage();
        let new = bytes(7, 20 * BLOCK);
        let write = || {
            let written = fs.write(&common::waiter(), ino, 10 * BLOCK as u64, Payload::Bytes(&new));
            assert_eq!(written.unwrap(), new.len() as u64);
        };
        let interleaved = Interleaved::new(turn, &write);
        assert!(fs.collect(&interleaved).unwrap());
        if !interleaved.has_come() {
            // The call ended before its turn.
            write();
        }
        data[10 * BLOCK..30 * BLOCK].copy_from_slice(&new);
        settle(&fs);
        assert!(read_all(&fs, ino).unwrap() == data, "turn {turn}");
        fs.check();
        skipped += fs.statistics().gc_skipped_blocks;
    }
    assert!(skipped > 0, "no copy ever came too late");
}

#[test]
fn file_deleted_during_garbage_collection_stays_deleted() {
    for turn in 0..24 {
        let (fs, _, _) = half_garbage();
        let unlink = || fs.unlink(&common::waiter(), ROOT, b"f").unwrap();
        let interleaved = Interleaved::new(turn, &unlink);
        fs.collect(&interleaved).unwrap();
        if !interleaved.has_come() {
            unlink();
        }
        settle(&fs);
        fs.sync(&common::waiter()).unwrap();
        assert!(contents(&fs).unwrap().is_empty());
        fs.check();
        assert_eq!(fs.usage().used, 0, "turn {turn}");
    }
}

#[test]
fn file_that_is_cut_while_it_is_read_is_read_as_it_was_or_as_it_is() {
    for turn in 0..6 {
        let (fs, ino, data) = half_garbage();
        let cut = || fs.truncate(&common::waiter(), ino, 5 * BLOCK as u64).unwrap();
        let interleaved = Interleaved::new(turn, &cut);
        let mut read = vec![0; data.len()];
        let length = fs.read(&interleaved, ino, 0, zonal_fs::Target::Bytes(&mut read)).unwrap() as usize;
        assert!(read[..length] == data[..length], "turn {turn}");
    }
}

/// Makes files durable while another thread streams into one of them. The test's data is in the
/// first unit of it.
fn stream_meanwhile(durable: impl Fn(&FileSystem, &Interleaved<'_>, u64)) {
    let volume = volume(device("ram:size=16M,zone_size=256K,blocksize=4096,complete=poll"));
    let (superblock, memory) = (superblock(&volume, 0, 8), Memory::new());
    let options = MountOptions::default().with_dirty_bytes(1 << 20);
    let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), options);
    let ino = fs.create(&common::waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let open = fs.open_file(ino).unwrap();
    let (data, written) = (bytes(3, 8 * BLOCK), Cell::new(0));
    let more = || {
        let at = written.get();
        written.set(at + fs.write(&common::waiter(), ino, at, Payload::Bytes(&data)).unwrap());
    };
    more();
    let streaming = Interleaved::streaming(&more);
    durable(&fs, &streaming, ino);
    assert!(streaming.has_come() && !fs.is_quiet(), "no thread streamed meanwhile");
    fs.forbid_changes("the power is cut");
    settle(&fs);
    drop(open);
    drop(fs);
    let fs = reopen(volume, superblock, memory, options).unwrap();
    assert!(read_all(&fs, ino).unwrap()[..data.len()] == data, "what was written before was not durable");
}

#[test]
fn fsync_waits_for_earlier_writes_and_not_for_a_stream() {
    stream_meanwhile(|fs, streaming, ino| fs.fsync(streaming, ino).unwrap());
}

#[test]
fn sync_waits_for_earlier_writes_and_not_for_a_stream() {
    stream_meanwhile(|fs, streaming, _| fs.sync(streaming).unwrap());
}

/// A file system on a drive that can fail, and a synced file with this data.
fn on_faulty_drive(data: &[u8]) -> (Arc<Fault>, FileSystem, u64) {
    let ram = device("ram:size=6M,zone_size=256K,blocksize=4096,complete=poll");
    let fault = Arc::new(Fault::new(ram, Plan::default()));
    let fs = make(volume(fault.clone()), 8, MountOptions::default());
    let ino = fs.create(&common::waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&common::waiter(), ino, 0, Payload::Bytes(data)).unwrap();
    fs.sync(&common::waiter()).unwrap();
    (fault, fs, ino)
}

fn refuse_writes(fault: &Fault) {
    fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::WRITES));
}

#[test]
fn truncation_whose_zeroes_are_lost_fails_although_a_sync_reports_the_loss() {
    let data = bytes(1, 4 * BLOCK);
    let (fault, fs, ino) = on_faulty_drive(&data);
    refuse_writes(&fault);
    let reported = Cell::new(0);
    let sync = || reported.set(reported.get() + u32::from(fs.fsync(&common::waiter(), ino).is_err()));
    let cut = fs.truncate(&Interleaved::streaming(&sync), ino, BLOCK as u64 + 100);
    assert!(matches!(cut, Err(FsError::Write { .. })), "{cut:?}");
    assert_eq!(reported.get(), 1, "the sync was to come first");
    fault.clear_rules();
    assert!(read_all(&fs, ino).unwrap() == data);
    fs.check();
}

#[test]
fn loss_before_a_truncation_is_reported_by_a_sync_during_it() {
    let data = bytes(1, 4 * BLOCK);
    let (fault, fs, ino) = on_faulty_drive(&data);
    refuse_writes(&fault);
    fs.write(&common::waiter(), ino, 2 * BLOCK as u64, Payload::Bytes(&bytes(2, BLOCK))).unwrap();
    while !fs.is_quiet() {
        fs.background_step(&common::waiter()).unwrap();
        common::waiter().wait(fs.volume());
    }
    fault.clear_rules();
    let reported = RefCell::new(Vec::new());
    let sync = || reported.borrow_mut().push(fs.fsync(&common::waiter(), ino).is_err());
    fs.truncate(&Interleaved::streaming(&sync), ino, BLOCK as u64 + 100).unwrap();
    let reported = reported.into_inner();
    assert!(reported[0] && !reported[1..].contains(&true), "{reported:?}");
    assert!(read_all(&fs, ino).unwrap() == data[..BLOCK + 100]);
    fs.check();
}

#[test]
fn zone_that_dies_while_it_is_finished_is_reset_only_afterwards() {
    let zone = ZoneIndex(0);
    let (fault, fs, _) = on_faulty_drive(&bytes(1, 20 * BLOCK));
    // A failed write closes the zone early. Its unit waits for another zone, and no zone is opened
    // before this one is finished.
    let other = fs.create(&common::waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::WRITES).times(1));
    fault.inject(Rule::new(Effect::Fail(DeviceError::Medium)).on(Ops::of(&[Op::ZoneFinish])).times(1));
    fs.write(&common::waiter(), other, 0, Payload::Bytes(&bytes(2, 7 * BLOCK))).unwrap();
    while fs.statistics().failed_units == 0 {
        common::waiter().wait(fs.volume());
    }
    let unlink = || {
        fs.unlink(&common::waiter(), ROOT, b"f").unwrap();
        for _ in 0..10 {
            fs.background_step(&common::waiter()).unwrap();
        }
        assert_eq!(fs.resets(zone), 0, "it is still being finished");
    };
    let interleaved = Interleaved::new(0, &unlink);
    fs.background_step(&interleaved).unwrap();
    assert!(interleaved.has_come());
    fs.sync(&common::waiter()).unwrap();
    while fs.background_step(&common::waiter()).unwrap() {}
    assert_eq!((fs.resets(zone), fs.statistics().failed_units), (1, 1));
    assert!(read_all(&fs, other).unwrap() == bytes(2, 7 * BLOCK));
    fs.check();
}
