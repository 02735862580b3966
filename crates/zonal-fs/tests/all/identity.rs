//! Intact units in the place of others, after misdirected and lost writes that the drive
//! acknowledged.

use crate::common::{bytes, read_all, waiter};
use crate::rebuild::rig::{BLOCK, EVERYWHERE, Rig, UUID, Where, waiters};
use std::cell::Cell;
use zonal_core::Nanos;
use zonal_fs::format::{FileKind, Header, UnitError, crc32c};
use zonal_fs::fsck::Finding;
use zonal_fs::make::{MakeError, open};
use zonal_fs::waiter::{Bell, Polling, Wait};
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, Scrub, Target};
use zonal_io::image::backing::Backing;
use zonal_io::volume::Volume;

/// Creates a file of four blocks, in a separate unit.
fn put(fs: &FileSystem, name: &[u8], seed: u64) -> u64 {
    let ino = fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(seed, 4 * BLOCK))).unwrap();
    fs.sync(&waiter()).unwrap();
    ino
}

/// A drive with the files `a` and `b`, and the offsets of their units in its image.
fn two_files(seed: u64) -> (Rig, [u64; 2], [u64; 2]) {
    let rig = Rig::new(Where::Logged, seed);
    let fs = rig.open();
    let files = [put(&fs, b"a", 1), put(&fs, b"b", 2)];
    drop(fs);
    let all = image(&rig);
    let unit_of = |ino: u64| {
        let is_it =
            |block: &[u8]| Header::decode(block, &UUID).is_ok_and(|header| header.records[0].ino == ino);
        (all.chunks(BLOCK).position(is_it).unwrap() * BLOCK) as u64
    };
    (rig, files, files.map(unit_of))
}

fn image(rig: &Rig) -> Vec<u8> {
    let mut all = vec![0; rig.backing.len().unwrap() as usize];
    rig.backing.read_at(&mut all, 0).unwrap();
    all
}

/// Writes a unit of four blocks directly to the image.
fn place(rig: &Rig, at: u64, unit: &[u8]) {
    rig.backing.write_at(unit, at).unwrap();
}

/// The unit at an offset of the image, with a changed header.
fn unit(rig: &Rig, at: u64, change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut unit = image(rig)[at as usize..][..5 * BLOCK].to_vec();
    let mut header = Header::decode(&unit, &UUID).unwrap();
    change(&mut header);
    header.encode(&mut unit[..BLOCK]);
    unit
}

/// An older version of a file's data, as valid as the current one.
fn older(rig: &Rig, at: u64, change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let data = bytes(9, 4 * BLOCK);
    let mut unit = unit(rig, at, |header| {
        header.sums = data.chunks(BLOCK).map(crc32c).collect();
        change(header);
    });
    unit[BLOCK..].copy_from_slice(&data);
    unit
}

/// Collects the zone of the two files, after filling it.
fn collect_all(fs: &FileSystem) {
    let ino = put(fs, b"c", 3);
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(4, 150 * BLOCK))).unwrap();
    fs.sync(&waiter()).unwrap();
    while fs.collect(&waiter()).unwrap() {}
    fs.sync(&waiter()).unwrap();
    assert!(fs.statistics().gc_blocks > 0, "nothing was collected");
}

fn why(error: FsError) -> UnitError {
    match error {
        FsError::Unit { error, .. } => error,
        other => panic!("{other}"),
    }
}

/// Everybody who reads `b` detects the damage, and `a` is unchanged.
fn assert_found_out(rig: &Rig, [a, b]: [u64; 2], expected: UnitError) {
    let findings = rig.findings();
    assert!(
        matches!(findings[..], [Finding::Data { ino, block: 0, .. }] if ino == b),
        "{expected:?}: {findings:?}"
    );
    let fs = rig.open();
    let mut seen = Scrub::default();
    while seen.ended.is_none() {
        fs.scrub_step(&waiter(), &mut seen, |_| {}).unwrap();
    }
    assert_eq!(seen.damaged, 1, "{expected:?}");
    // Headers may be cached after the first round.
    for _ in 0..2 {
        let mut into = vec![7; 4 * BLOCK];
        let error = fs.read(&waiter(), b, 0, Target::Bytes(&mut into)).unwrap_err();
        assert_eq!(why(error), expected);
        assert!(into.iter().all(|byte| *byte == 0), "nothing of it is shown");
        assert!(read_all(&fs, a).unwrap() == bytes(1, 4 * BLOCK), "{expected:?}");
    }
    // The collector leaves the unit in place. With a new header it would look valid for ever.
    collect_all(&fs);
    assert_eq!(why(read_all(&fs, b).unwrap_err()), expected, "after a collection");
    assert!(read_all(&fs, a).unwrap() == bytes(1, 4 * BLOCK), "{expected:?}");
}

#[test]
fn unit_that_lies_in_the_place_of_another_is_found_out_by_every_reader() {
    let (rig, files, [a, b]) = two_files(1);
    place(&rig, b, &unit(&rig, a, |_| {}));
    assert_found_out(&rig, files, UnitError::Other);
}

#[test]
fn unit_of_another_zone_is_found_out_by_every_reader() {
    let (rig, files, [_, b]) = two_files(2);
    place(&rig, b, &older(&rig, b, |header| header.zone += 1));
    assert_found_out(&rig, files, UnitError::Elsewhere);
}

/// Runs record the header of each unit, and extents do not. Except for the collector, a scrub and
/// fsck, only the first sequence of the zone reveals the stale unit.
#[test]
fn unit_from_before_the_reset_of_its_zone_is_not_shown() {
    let (rig, [a, b], [_, at]) = two_files(3);
    place(
        &rig,
        at,
        &older(&rig, at, |header| (header.begun, header.sequence) = (header.begun - 1, header.sequence - 9)),
    );
    let fs = rig.open();
    for _ in 0..2 {
        assert_eq!(why(read_all(&fs, b).unwrap_err()), UnitError::Earlier);
    }
    assert!(read_all(&fs, a).unwrap() == bytes(1, 4 * BLOCK));
    drop(fs);
    assert!(matches!(rig.findings()[..], [Finding::Data { ino, .. }] if ino == b));
    // A rebuild from the zones alone detects it as well.
    rig.lose_metadata();
    let rebuilt = rig.rebuild().unwrap();
    assert_eq!((rebuilt.files, rebuilt.units, rebuilt.earlier), (1, 1, 1));
    assert!(rig.contents()["/a"] == Some(bytes(1, 4 * BLOCK)));
}

#[test]
fn header_that_is_not_the_one_that_was_written_is_found_out_by_a_scrub_and_the_collector() {
    let (rig, [_, b], [_, at]) = two_files(4);
    place(&rig, at, &older(&rig, at, |header| header.sequence -= 1));
    assert!(
        matches!(rig.findings()[..], [Finding::Data { ino, ref what, .. }] if ino == b && what.contains("not the expected unit"))
    );
    let fs = rig.open();
    let mut seen = Scrub::default();
    while seen.ended.is_none() {
        fs.scrub_step(&waiter(), &mut seen, |_| {}).unwrap();
    }
    assert_eq!(seen.damaged, 1);
    collect_all(&fs);
    assert_eq!(fs.statistics().damaged_blocks, 4, "it was not copied");
}

/// A clock that the test advances.
struct Later(Polling, Cell<u64>);

impl Wait for Later {
    fn now(&self) -> Nanos {
        Nanos(self.0.now().0 + self.1.get())
    }

    fn wall(&self) -> i64 {
        self.0.wall()
    }

    fn wait(&self, volume: &Volume) {
        self.0.wait(volume);
    }

    fn sleep(&self, bell: &Bell) {
        self.0.sleep(bell);
    }
}

/// Zeroes the last head of the metadata and everything behind it, as if the drive had lost the
/// writes.
fn lose_last_batch(rig: &Rig) {
    let file = rig.beside();
    let mut all = file.as_ref().map_or_else(|| image(rig), |path| std::fs::read(path).unwrap());
    let number = |block: &[u8]| u64::from_le_bytes(block[48..56].try_into().unwrap());
    let is_part = |block: &[u8]| block.starts_with(b"zonallog") && block[12] == 2;
    let last = (0..all.len() / BLOCK)
        .filter(|n| is_part(&all[n * BLOCK..]))
        .max_by_key(|n| number(&all[n * BLOCK..]))
        .unwrap();
    all[last * BLOCK..][..BLOCK].fill(0);
    match file {
        None => rig.backing.write_at(&all[last * BLOCK..][..BLOCK], (last * BLOCK) as u64).unwrap(),
        Some(path) => std::fs::write(path, &all).unwrap(),
    }
}

/// The power is cut an hour after the last sync of a program that does background steps, or right
/// after it.
#[test]
fn loss_of_the_last_batch_is_detected_after_close_or_idle() {
    for place in EVERYWHERE {
        // Kind of end, and idle time before it.
        let ends = [("closed", 0), ("finished", 0), ("cut", 1_100_000_000), ("cut", 900_000_000)];
        for (end, idle) in ends {
            let (is_closed, is_named) = (end == "closed", end != "cut" || idle > 1_000_000_000);
            let rig = Rig::new(place, 5);
            let fs = rig.open();
            put(&fs, b"f", 1);
            let later = Later(waiter(), Cell::new(0));
            while fs.background_step(&later).unwrap() {}
            later.1.set(idle);
            while fs.background_step(&later).unwrap() {}
            if end == "finished" {
                fs.finish(&later).unwrap();
            }
            let beside = rig.beside().map(|path| (std::fs::read(&path).unwrap(), path));
            if !is_closed {
                rig.backing.cut();
            }
            drop(fs);
            if let Some((rows, path)) = beside.filter(|_| !is_closed) {
                std::fs::write(path, rows).unwrap();
            }
            let rig = if is_closed { rig } else { rig.restarted(6) };
            lose_last_batch(&rig);
            let opened = open(&rig.drive(), &waiters(), rig.beside(), MountOptions::default());
            match opened {
                Err(MakeError::Backend(error)) => {
                    assert!(is_named, "{place:?}, {end}, idle for {idle}: {error}");
                    assert!(error.to_string().contains("the superblock names batch"), "{error}");
                }
                Err(error) => panic!("{place:?}: {error}"),
                Ok(_) => assert!(!is_named, "{place:?}, {end}, idle for {idle}"),
            }
        }
    }
}
