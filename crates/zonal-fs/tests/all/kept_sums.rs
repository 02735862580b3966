//! Cached checksums: they save commands, and do not outlive their units.

use crate::common::{bytes, device, impatient, make, read_all, settle, volume, waiter};
use std::sync::Arc;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, Target};
use zonal_io::buffer::IoBuf;

const BLOCK: u64 = 4096;

fn write(fs: &FileSystem, name: &[u8], data: &[u8]) -> u64 {
    let ino = fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&impatient(), ino, 0, Payload::Bytes(data)).unwrap();
    fs.sync(&waiter()).unwrap();
    settle(fs);
    ino
}

/// Reads the block at `at`, and returns the number of commands used.
fn commands_of_read(fs: &FileSystem, ino: u64, at: u64, into: &mut [u8]) -> u64 {
    let before = fs.volume().statistics().commands;
    assert_eq!(fs.read(&waiter(), ino, at, Target::Bytes(into)).unwrap(), into.len() as u64);
    fs.volume().statistics().commands - before
}

/// Number of commands for random reads of a file of `length` bytes that was read before.
fn commands_of_warm_reads(length: u64, options: MountOptions) -> Vec<u64> {
    let fs = make(volume(device("ram:size=1792M,zone_size=64M,blocksize=4096")), 256, options);
    let piece = bytes(3, 1 << 20);
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    for at in (0..length).step_by(piece.len()) {
        fs.write(&impatient(), ino, at, Payload::Bytes(&piece)).unwrap();
    }
    settle(&fs);
    let mut block = vec![0; BLOCK as usize];
    for at in (0..length).step_by(piece.len() / 4) {
        commands_of_read(&fs, ino, at, &mut block);
    }
    let mut at = 1u64;
    let reads = (0..2000).map(|_| {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block_at = (at >> 20) % (length / BLOCK) * BLOCK;
        let commands = commands_of_read(&fs, ino, block_at, &mut block);
        assert_eq!(block, piece[(block_at % (1 << 20)) as usize..][..BLOCK as usize], "at {block_at}");
        commands
    });
    reads.collect()
}

#[test]
fn warm_random_reads_of_a_gibibyte_are_one_command_each() {
    let commands = commands_of_warm_reads(1 << 30, MountOptions::default());
    assert!(commands.iter().all(|commands| *commands == 1), "{commands:?}");
}

#[test]
fn reads_without_kept_sums_fetch_headers() {
    let commands = commands_of_warm_reads(64 << 20, MountOptions::default().with_sums_bytes(0));
    let two = commands.iter().filter(|commands| **commands == 2).count();
    assert!(two > 1500 && commands.iter().all(|commands| *commands <= 2), "{two} of {}", commands.len());
}

/// Room for the sums of a few units in each part, so most reads miss the cache, and must still be
/// correct.
#[test]
fn reads_with_few_kept_sums_are_right() {
    let options = MountOptions::default().with_sums_bytes(64 * 2400);
    let commands = commands_of_warm_reads(1 << 30, options);
    let one = commands.iter().filter(|commands| **commands == 1).count();
    assert!((100..1000).contains(&one), "{one} of {}", commands.len());
}

/// Zones are written, read, and reset again and again, so that each round's units replace those of
/// the round before in place.
#[test]
fn reused_zones_are_verified_with_their_new_sums() {
    let fs = make(volume(device("ram:size=6M,zone_size=256K,blocksize=4096")), 8, MountOptions::default());
    for round in 0..12 {
        // Units of other lengths as well, so that cached sums may be fewer than those of the next
        // unit in that place.
        let data = bytes(round, (3 << 20) + (round as usize % 3) * 5000);
        let ino = write(&fs, b"f", &data);
        assert!(read_all(&fs, ino).unwrap() == data, "round {round}");
        assert!(read_all(&fs, ino).unwrap() == data, "round {round}, from what is kept");
        fs.unlink(&waiter(), ROOT, b"f").unwrap();
        fs.sync(&waiter()).unwrap();
        while fs.background_step(&impatient()).unwrap() {}
    }
    assert!(fs.statistics().resets > 60, "{} resets", fs.statistics().resets);
    fs.check();
}

/// Rewrites a zone with one bit changed, behind the file system's back.
fn damage(fs: &FileSystem, zone: ZoneIndex, at: usize) {
    let drive = Drive::new(Arc::clone(fs.volume()));
    let geometry = fs.volume().info().geometry;
    let (start, zones) = (geometry.start_of(zone), drive.report(&waiter()).unwrap());
    let written = zones[zone.0 as usize].write_pointer.unwrap_or(start + geometry.zone_capacity());
    let sectors = (written.0 - start.0) as u32;
    let mut all = drive.read(&waiter(), start, sectors).unwrap();
    all[at] ^= 4;
    drive.zone(&waiter(), Op::ZoneReset, zone).unwrap();
    for (i, piece) in all.chunks(64 << 10).enumerate() {
        drive.write(&waiter(), Sector(start.0 + i as u64 * 128), IoBuf::copied(piece)).unwrap();
    }
}

#[test]
fn damaged_block_is_an_error_and_shows_nothing() {
    for warm in [false, true] {
        let fs =
            make(volume(device("ram:size=16M,zone_size=1M,blocksize=4096")), 16, MountOptions::default());
        let data = bytes(5, 40 * BLOCK as usize);
        let ino = write(&fs, b"f", &data);
        if warm {
            assert!(read_all(&fs, ino).unwrap() == data);
        }
        let zone = fs.status().open_zones.iter().find(|zone| zone.written > 0).expect("it is there").zone;
        // The first unit is a header and 15 blocks: block 7 of the file.
        damage(&fs, ZoneIndex(zone), 8 * BLOCK as usize + 9);
        for (at, length) in [(0, 40 * BLOCK), (7 * BLOCK + 10, 20), (6 * BLOCK + 1, 2 * BLOCK)] {
            let mut into = vec![7; length as usize];
            match fs.read(&waiter(), ino, at, Target::Bytes(&mut into)) {
                Err(FsError::Checksum { block: 7, .. }) => {}
                other => panic!("{other:?}"),
            }
            assert!(into.iter().all(|byte| *byte == 0), "{length} bytes at {at}");
        }
        let mut sound = vec![0; BLOCK as usize];
        commands_of_read(&fs, ino, 6 * BLOCK, &mut sound);
        assert_eq!(sound, data[6 * BLOCK as usize..][..BLOCK as usize]);
    }
}
