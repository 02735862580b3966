//! Zones with garbage or torn units; a lost superblock; and refusals.

use crate::common::{bytes, read_all, waiter};
use crate::rebuild::rig::{BLOCK, EVERYWHERE, Rig, UUID, Where, waiters};
use crate::rebuild::{file, has_all, lose_and_rebuild, write};
use std::sync::Arc;
use zonal_core::{Op, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{HEADER_BYTES, Header, Record};
use zonal_fs::make::{MakeOptions, make, open, superblock};
use zonal_fs::rebuild::{Origin, RebuildError, RebuildOptions, rebuild};
use zonal_fs::scan::Depth;
use zonal_fs::{FsError, MountOptions};
use zonal_io::buffer::IoBuf;
use zonal_io::fault::{Fault, Plan};

/// First data zone of a drive without conventional zones and with its metadata in a log.
const DATA: u32 = 7;

/// A unit of `blocks` blocks of a separate file.
fn unit(ino: u64, blocks: u32, change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let data = bytes(ino, blocks as usize * BLOCK);
    let mut header = Header {
        uuid: UUID,
        sequence: 1 << 40,
        since: 0,
        zone: DATA,
        begun: 1,
        records: vec![Record { ino, born: 0, block: 0, blocks, size: data.len() as u64, number: 1 << 40 }],
        sums: data.chunks(BLOCK).map(zonal_fs::format::crc32c).collect(),
        paths: vec![format!("made-{ino}").into_bytes()],
    };
    change(&mut header);
    let mut unit = vec![0; HEADER_BYTES];
    header.encode(&mut unit);
    unit.extend_from_slice(&data);
    unit
}

/// First sequence in the first data zone.
fn begun(rig: &Rig) -> u64 {
    let drive = rig.drive();
    let start = drive.volume().info().geometry.start_of(ZoneIndex(DATA));
    Header::decode(&drive.read(&waiter(), start, 8).unwrap(), &UUID).unwrap().begun
}

fn append(rig: &Rig, zone: u32, data: &[u8]) {
    let drive = rig.drive();
    let start = drive.volume().info().geometry.start_of(ZoneIndex(zone));
    drive.append(&waiter(), start, IoBuf::copied(data)).unwrap();
    drive.flush(&waiter()).unwrap();
}

/// Rewrites a zone with changes.
fn rewrite(rig: &Rig, zone: u32, change: impl FnOnce(&mut [u8])) {
    let drive = rig.drive();
    let report = drive.report(&waiter()).unwrap();
    let start = report[zone as usize].start;
    let sectors = report[zone as usize].write_pointer.unwrap().0 - start.0;
    let mut data = drive.read(&waiter(), start, sectors as u32).unwrap();
    change(&mut data);
    drive.zone(&waiter(), Op::ZoneReset, ZoneIndex(zone)).unwrap();
    drive.write(&waiter(), start, data).unwrap();
    drive.flush(&waiter()).unwrap();
}

/// A drive with a file in its first data zone.
fn one_file(seed: u64) -> Rig {
    let rig = Rig::new(Where::Logged, seed);
    let fs = rig.open();
    file(&fs, "f", &bytes(1, 20 * BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    rig
}

/// Writes another file after the existing data in the first data zone.
fn another(rig: &Rig, path: &str, data: &[u8]) {
    let fs = rig.open();
    file(&fs, path, data);
    fs.sync(&waiter()).unwrap();
    assert!(fs.usage().used > 20);
}

#[test]
fn torn_unit_is_skipped_and_later_units_are_found() {
    for torn in [1, 3, 5] {
        let rig = one_file(10);
        append(&rig, DATA, &unit(900, 6, |header| header.begun = begun(&rig))[..torn * BLOCK]);
        // One exactly as long as the missing part, and a longer one.
        another(&rig, "g", &bytes(2, 6 * BLOCK));
        another(&rig, "h", &bytes(3, 3 * BLOCK));
        let expected = rig.contents();
        let rebuilt = lose_and_rebuild(&rig);
        assert_eq!((rebuilt.torn, rebuilt.files), (1, 3), "{torn} blocks");
        has_all(&rig.contents(), &expected);
    }
}

#[test]
fn torn_unit_at_a_zones_end_is_left_out() {
    let rig = one_file(11);
    append(&rig, DATA, &unit(900, 6, |header| header.begun = begun(&rig))[..4 * BLOCK]);
    let rebuilt = lose_and_rebuild(&rig);
    assert_eq!((rebuilt.torn, rebuilt.files), (1, 1));
}

#[test]
fn garbage_and_headers_of_others_are_counted_and_left_out() {
    let rig = one_file(12);
    append(&rig, DATA, &bytes(77, 3 * BLOCK));
    append(&rig, DATA, &unit(900, 2, |header| header.uuid = [1; 16]));
    append(&rig, DATA, &unit(901, 2, |header| header.zone = 9));
    another(&rig, "g", &bytes(2, 6 * BLOCK));
    let expected = rig.contents();
    let rebuilt = lose_and_rebuild(&rig);
    assert_eq!((rebuilt.garbage_blocks, rebuilt.files), (9, 2));
    has_all(&rig.contents(), &expected);
}

#[test]
fn unit_in_a_file_is_data_and_nothing_else() {
    let rig = one_file(13);
    another(&rig, "copy", &unit(900, 5, |_| {}));
    another(&rig, "g", &bytes(2, 6 * BLOCK));
    let rebuilt = lose_and_rebuild(&rig);
    assert_eq!((rebuilt.files, rebuilt.garbage_blocks), (3, 0));
}

#[test]
fn damaged_data_fails_reads_and_damaged_headers_lose_their_units() {
    let rig = one_file(14);
    another(&rig, "g", &bytes(2, 6 * BLOCK));
    // Units of 8 blocks, the first with blocks 0 to 6 of the first file.
    rewrite(&rig, DATA, |data| {
        data[3 * BLOCK + 9] ^= 1;
        data[8 * BLOCK + 100] ^= 1;
    });
    rig.lose_metadata();
    let options = RebuildOptions::default().with_depth(Depth::Data);
    let rebuilt = rig.rebuild_with(options).unwrap();
    assert_eq!((rebuilt.files, rebuilt.damaged, rebuilt.garbage_blocks), (2, 1, 8));
    assert_eq!(rig.findings().len(), 1);
    let fs = rig.open();
    let (f, g) = (fs.resolve(b"f").unwrap(), fs.resolve(b"g").unwrap());
    assert!(read_all(&fs, g).unwrap() == bytes(2, 6 * BLOCK));
    assert!(matches!(read_all(&fs, f), Err(FsError::Checksum { block: 2, .. })));
    let mut end = vec![0; 6 * BLOCK];
    fs.read(&waiter(), f, 14 * BLOCK as u64, zonal_fs::Target::Bytes(&mut end)).unwrap();
    assert!(end == bytes(1, 20 * BLOCK)[14 * BLOCK..]);
}

#[test]
fn damaged_end_of_a_unit_is_found_without_reading_all() {
    let rig = one_file(15);
    another(&rig, "g", &bytes(2, 6 * BLOCK));
    rewrite(&rig, DATA, |data| data[7 * BLOCK + 9] ^= 1);
    rig.lose_metadata();
    let rebuilt = rig.rebuild().unwrap();
    assert_eq!((rebuilt.files, rebuilt.damaged, rebuilt.torn), (2, 1, 0));
}

#[test]
fn superblock_of_which_a_copy_is_left_is_enough() {
    let rig = Rig::new(Where::Conventional, 16);
    let fs = rig.open();
    file(&fs, "f", b"here");
    fs.sync(&waiter()).unwrap();
    drop(fs);
    rig.scribble(0, 1);
    let rebuilt = lose_and_rebuild(&rig);
    assert_eq!(rebuilt.superblock, Origin::Drive);
}

#[test]
fn superblock_that_is_gone_is_taken_from_the_metadata() {
    for place in EVERYWHERE {
        let made_with = MakeOptions::default().with_label("mine");
        let rig = Rig::with(place, 17, made_with);
        let fs = rig.open();
        file(&fs, "f", b"here");
        file(&fs, "empty", b"");
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let expected = rig.contents();
        rig.lose_superblock();
        let rebuilt = rig.rebuild().unwrap();
        assert_eq!(rebuilt.superblock, Origin::Metadata, "{place:?}");
        assert_eq!(superblock(&rig.drive(), &waiter()).unwrap().label, "mine");
        assert_eq!((rig.contents(), rig.findings()), (expected, vec![]));
    }
}

#[test]
fn superblock_and_metadata_that_are_gone_are_made_from_the_units() {
    for place in EVERYWHERE {
        let rig = Rig::new(place, 18);
        let fs = rig.open();
        let ino = file(&fs, "f", &bytes(1, 50_000));
        write(&fs, ino, 4096, b"again");
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let expected = rig.contents();
        let before = superblock(&rig.drive(), &waiter()).unwrap();
        rig.lose_metadata();
        rig.lose_superblock();
        let made_with = MakeOptions::default().with_unit_bytes(8 * BLOCK as u32);
        let rebuilt = rig.rebuild_with(RebuildOptions::default().with_made_with(made_with)).unwrap();
        assert_eq!(rebuilt.superblock, Origin::Units, "{place:?}");
        assert_eq!(superblock(&rig.drive(), &waiter()).unwrap(), before);
        assert_eq!((rig.contents(), rig.findings()), (expected, vec![]));
    }
}

#[test]
fn nothing_to_go_by_is_one_clear_error() {
    let rig = Rig::new(Where::Logged, 19);
    rig.lose_metadata();
    assert!(matches!(rig.rebuild(), Err(RebuildError::NoUnits)));
    rig.lose_superblock();
    assert!(rig.rebuild().unwrap_err().to_string().contains("no zone starts with a unit"));
    let rig = one_file(20);
    append(&rig, 9, &unit(900, 2, |header| (header.uuid, header.zone) = ([1; 16], 9)));
    rig.lose_metadata();
    rig.lose_superblock();
    assert!(rig.rebuild().unwrap_err().to_string().contains("units of 2 different file systems"));
}

#[test]
fn sound_metadata_are_left_alone_unless_it_is_asked_for() {
    for place in EVERYWHERE {
        let rig = Rig::new(place, 22);
        let fs = rig.open();
        file(&fs, "f", b"here");
        file(&fs, "empty", b"");
        fs.sync(&waiter()).unwrap();
        drop(fs);
        assert!(matches!(rig.rebuild(), Err(RebuildError::Sound)), "{place:?}");
        assert_eq!(rig.contents().len(), 2);
        rig.rebuild_with(RebuildOptions::default().with_force(true)).unwrap();
        assert_eq!((rig.contents().len(), rig.findings()), (1, vec![]));
    }
}

#[test]
fn file_of_the_metadata_that_is_open_is_not_replaced() {
    let rig = Rig::new(Where::Beside, 23);
    let fs = rig.open();
    file(&fs, "f", b"here");
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let path = rig.beside().unwrap();
    let open = std::fs::File::open(&path).unwrap();
    open.lock().unwrap();
    let error = rig.rebuild().unwrap_err();
    assert!(error.to_string().contains("rows: in use by process "), "{error}");
    drop(open);
    let without = RebuildOptions::default();
    let error = rebuild(&rig.drive(), &waiters(), &without).unwrap_err();
    assert!(error.to_string().contains("name that file"), "{error}");
}

#[test]
fn metadata_of_a_later_version_are_left_alone() {
    let rig = Rig::new(Where::Conventional, 24);
    let (drive, later) = (rig.drive(), zonal_fs::format::VERSION + 1);
    let mut blocks = drive.read(&waiter(), zonal_core::Sector(0), 4 * 8).unwrap();
    for block in blocks.chunks_exact_mut(BLOCK) {
        block[8..12].copy_from_slice(&later.to_le_bytes());
    }
    drive.write(&waiter(), zonal_core::Sector(0), blocks).unwrap();
    drop(drive);
    let error = rig.rebuild_with(RebuildOptions::default().with_force(true)).unwrap_err();
    assert!(matches!(&error, RebuildError::Version(_)), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "the file system has format version {later}, this program reads version {}; nothing was changed",
            later - 1
        )
    );
}

#[test]
fn unreadable_blocks_are_counted_and_only_their_data_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows");
    let ram = crate::common::device("ram:size=6M,zone_size=256K,zone_nr_conv=0,blocksize=4096");
    let device = Arc::new(Fault::new(ram, Plan::default()));
    let drive = Arc::new(Drive::new(crate::common::volume(device.clone())));
    let unit_bytes = Some(8 * BLOCK as u32);
    let made = MakeOptions::default().with_unit_bytes(unit_bytes).with_beside(rows.clone());
    make(&drive, &waiters(), UUID, &made).unwrap();
    let reach = || open(&drive, &waiters(), Some(rows.clone()), MountOptions::default()).unwrap();
    let fs = reach();
    file(&fs, "f", &bytes(1, 20 * BLOCK));
    file(&fs, "g", &bytes(2, 6 * BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    std::fs::remove_file(&rows).unwrap();
    // The header of the second unit, in zone 2: its data becomes garbage, and the following units
    // are found.
    let sector = 2 * 64 * 8 + 8 * 8;
    device.change_bad_blocks(format!("+{sector}-{}", sector + 7).parse().unwrap());
    let options = RebuildOptions::default().with_beside(rows.clone());
    let rebuilt = rebuild(&drive, &waiters(), &options).unwrap();
    assert_eq!((rebuilt.unreadable_blocks, rebuilt.garbage_blocks, rebuilt.files), (1, 7, 2));
    let fs = reach();
    let f = read_all(&fs, fs.resolve(b"f").unwrap()).unwrap();
    let mut expected = bytes(1, 20 * BLOCK);
    expected[7 * BLOCK..14 * BLOCK].fill(0);
    assert!(f == expected && read_all(&fs, fs.resolve(b"g").unwrap()).unwrap() == bytes(2, 6 * BLOCK));
}
