//! Images in several files, as on a file system that does not support one of their length.

use crate::image::drive;
use crate::image::opening::{Dir, create, open, small};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use zonal_core::device::ZoneState;
use zonal_core::{Op, ZoneCondition, ZoneIndex};
use zonal_io::device::{Device, OpenMode};
use zonal_io::image::format::{PartError, PartHead};
use zonal_io::image::{
    ImageDevice, ImageError, ImageOptions, OpenOptions, files, inspect, is_image, part_path,
};

/// Sixteen zones of 1 MiB, five per file, starting at 1 MiB.
fn split() -> ImageOptions {
    small().with_file_max((6 << 20) + 4096)
}

fn names(path: &Path) -> Vec<PathBuf> {
    [path.to_owned()].into_iter().chain((1..4).map(|index| part_path(path, index))).collect()
}

/// Writes one sector to each sequential zone, stamped with its number and `round`. Returns the
/// stamps.
fn write_all(device: &ImageDevice, round: u64) -> Vec<u64> {
    let stamps = (1..16).map(|zone| {
        let start = device.info().geometry.start_of(ZoneIndex(zone)).0;
        let stamp = round << 8 | u64::from(zone);
        drive::write(device, drive::command(Op::Append, start, 1), &[stamp]).unwrap();
        stamp
    });
    stamps.collect()
}

/// Reads the sector at `offset` of each sequential zone.
fn read_all(device: &ImageDevice, offset: u64) -> Vec<u64> {
    let start = |zone| device.info().geometry.start_of(ZoneIndex(zone)).0;
    (1..16).flat_map(|zone| drive::read(device, start(zone) + offset, 1).unwrap()).collect()
}

#[test]
fn image_beyond_a_file_is_one_drive_in_several() {
    let (dir, path) = create(&split());
    let lens: Vec<u64> = names(&path).iter().map(|name| name.metadata().unwrap().len()).collect();
    assert_eq!(lens, [6 << 20, 6 << 20, 6 << 20, 2 << 20]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    assert_eq!((inspect(&path).unwrap().zones_per_file, files(&path).unwrap()), (5, names(&path)));
    assert!(names(&path).iter().all(|name| is_image(name)));

    let device = open(&path).unwrap();
    let conventional: Vec<u64> = (1..=2048).collect();
    drive::write(&device, drive::command(Op::Write, 0, 2048), &conventional).unwrap();
    let first = write_all(&device, 1);
    drive::plain(&device, Op::Flush, 0, 0).unwrap();
    let second = write_all(&device, 2);
    // Like a killed process: unflushed data is in the cache.
    device.abandon();
    let device = open(&path).unwrap();
    assert_eq!((read_all(&device, 0), read_all(&device, 1)), (first, second));
    assert_eq!(drive::read(&device, 0, 2048).unwrap(), conventional);
    // A reset frees blocks of the file that has the zone.
    for zone in 0..3 {
        let start = device.info().geometry.start_of(ZoneIndex(6 + zone)).0;
        let stamps: Vec<u64> = (1..=2000).collect();
        drive::write(&device, drive::command(Op::Append, start, 2000), &stamps).unwrap();
    }
    drive::plain(&device, Op::Flush, 0, 0).unwrap();
    let blocks = || names(&path)[1].metadata().unwrap().blocks();
    let before = blocks();
    drive::plain(&device, Op::ResetAll, 0, 0).unwrap();
    device.close().unwrap();
    assert!(blocks() + 3 * 1900 < before, "{} of {before} blocks", blocks());
    let device = open(&path).unwrap();
    assert!((1..16).all(|zone| drive::describe(&device, zone).condition == ZoneCondition::Empty));
    assert!(read_all(&device, 0).iter().all(|&stamp| stamp == 0));
    let third = write_all(&device, 3);
    device.close().unwrap();
    let reader = ImageDevice::open(&path, &OpenOptions::default().with_mode(OpenMode::Reading)).unwrap();
    assert_eq!(read_all(&reader, 0), third);
}

#[test]
fn image_moves_with_all_of_its_files_and_opens_by_a_link() {
    let (dir, path) = create(&split());
    let device = open(&path).unwrap();
    let stamps = write_all(&device, 1);
    device.close().unwrap();
    let moved = dir.path().join("moved.img");
    for (from, to) in names(&path).iter().zip(names(&moved)) {
        fs::rename(from, to).unwrap();
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(&moved, &link).unwrap();
    for name in [&moved, &link] {
        let device = open(name).unwrap();
        assert_eq!(read_all(&device, 0), stamps);
        device.close().unwrap();
    }
}

/// Opens the image for reading and for writing. Both have to fail because of part `index`; returns
/// the error.
fn refused(path: &Path, index: u32) -> ImageError {
    let modes = [OpenMode::Reading, OpenMode::Writing];
    let [_, error] = modes.map(|mode| {
        let error = ImageDevice::open(path, &OpenOptions::default().with_mode(mode)).err().unwrap();
        let begin = format!("{}: ", part_path(path, index).display());
        assert!(error.to_string().starts_with(&begin), "{error}");
        error
    });
    error
}

#[test]
fn part_that_is_missing_or_another_is_named() {
    let (dir, path) = create(&split());
    let other = dir.path().join("other.img");
    split().with_creation([6; 16]).create(&other).unwrap();
    let part = |index| part_path(&path, index);
    let fault = |error| match error {
        ImageError::Part { fault, .. } => fault,
        e => panic!("{e}"),
    };
    let kept = dir.path().join("kept");

    fs::rename(part(2), &kept).unwrap();
    assert_eq!(fault(refused(&path, 2)), PartError::Missing { files: 4 });
    fs::copy(part_path(&other, 2), part(2)).unwrap();
    assert_eq!(fault(refused(&path, 2)), PartError::OtherImage);
    fs::copy(part(1), part(2)).unwrap();
    let misplaced = PartError::Misplaced { found: 1, files: 4, expected: 2, files_expected: 4 };
    assert_eq!(fault(refused(&path, 2)), misplaced);
    for bytes in [0, 100, 8192, 6 << 20] {
        fs::write(part(2), vec![0; bytes]).unwrap();
        assert_eq!(fault(refused(&path, 2)), PartError::Foreign, "{bytes} zeroes");
    }
    fs::remove_file(part(2)).unwrap();
    fs::create_dir(part(2)).unwrap();
    assert!(matches!(refused(&path, 2), ImageError::NotAFile { .. }));
    fs::remove_dir(part(2)).unwrap();
    fs::rename(&kept, part(2)).unwrap();

    let file = File::options().write(true).open(part(3)).unwrap();
    for len in [(2 << 20) - 512, (2 << 20) + 512] {
        file.set_len(len).unwrap();
        let error = refused(&path, 3);
        assert!(matches!(error, ImageError::Length { found, .. } if found == len), "{error}");
    }
    file.set_len(2 << 20).unwrap();
    // One copy of the head is sufficient.
    file.write_all_at(&[0xff; 512], 0).unwrap();
    open(&path).unwrap().close().unwrap();
    file.write_all_at(&[0xff; 512], 4096).unwrap();
    assert_eq!(fault(refused(&path, 3)), PartError::Foreign);
    let header = inspect(&path).unwrap();
    let head = PartHead { creation: header.creation, index: 3, files: 4 };
    file.write_all_at(&head.emit(), 0).unwrap();
    open(&path).unwrap().close().unwrap();
}

#[test]
fn part_under_two_names_has_one_opener() {
    let (dir, path) = create(&split());
    let copies = Dir::path(&dir).join("copies");
    fs::create_dir(&copies).unwrap();
    let copy = copies.join("drive.img");
    fs::copy(&path, &copy).unwrap();
    for index in 1..4 {
        symlink(part_path(&path, index), part_path(&copy, index)).unwrap();
    }
    let device = open(&path).unwrap();
    assert!(matches!(refused(&copy, 1), ImageError::Locked { .. }));
    device.close().unwrap();
    open(&copy).unwrap().close().unwrap();
}

#[test]
fn create_that_fails_leaves_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    let files = || {
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    // Less than a zone per file, and too many files.
    let error = split().with_file_max((2 << 20) - 1).create(&path).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
    let many = small().with_size(600 << 20).with_file_max(3 << 20);
    let error = many.create(&path).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
    assert_eq!(files(), [""; 0]);
    // A part of an image without its first file.
    fs::write(part_path(&path, 2), "precious").unwrap();
    let error = split().create(&path).unwrap_err();
    assert!(matches!(error, ImageError::PartExists { .. }), "{error}");
    assert!(error.to_string().contains("drive.img.part2: already exists"), "{error}");
    assert_eq!(files(), ["drive.img.part2"]);
    assert_eq!(fs::read(part_path(&path, 2)).unwrap(), b"precious");
    fs::remove_file(part_path(&path, 2)).unwrap();
    let header = split().create(&path).unwrap();
    assert_eq!(header, inspect(&path).unwrap());
    let error = split().create(&path).unwrap_err();
    assert!(matches!(error, ImageError::Exists { .. }), "{error}");
    open(&path).unwrap().close().unwrap();
}

#[test]
fn created_states_are_those_of_a_drive_with_a_past() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in [("one.img", small()), ("several.img", split())] {
        let path = dir.path().join(name);
        let mut states = vec![ZoneState::full(2048); 16];
        states[0] = ZoneState::CONVENTIONAL;
        states[13] = ZoneState { condition: ZoneCondition::ImpOpen, written: 24 };
        options.with_states(states).create(&path).unwrap();
        let device = open(&path).unwrap();
        let condition = |zone| drive::describe(&device, zone).condition;
        assert!((1..16).all(|zone| (condition(zone) == ZoneCondition::Full) == (zone != 13)));
        assert!(read_all(&device, 7).iter().all(|&stamp| stamp == 0));
        // A closed zone continues at its write pointer; a full one starts again after a reset.
        drive::write(&device, drive::command(Op::Write, 13 * 2048 + 24, 1), &[7]).unwrap();
        drive::plain(&device, Op::ZoneReset, 14 * 2048, 0).unwrap();
        drive::write(&device, drive::command(Op::Write, 14 * 2048, 1), &[8]).unwrap();
        device.close().unwrap();
        let device = open(&path).unwrap();
        assert_eq!(drive::read(&device, 13 * 2048 + 23, 3).unwrap(), [0, 7, 0]);
        assert_eq!(drive::read(&device, 14 * 2048, 2).unwrap(), [8, 0]);
        device.close().unwrap();
    }
}

/// A 30 TB disk: in two files on a file system with files up to 16 TiB, and in one on others.
#[test]
fn image_of_a_disk_of_30_tb_is_made_on_any_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    let zones = 111_758u64;
    let options =
        ImageOptions::default().with_size(zones << 28).with_zone_size(256 << 20).with_creation([5; 16]);
    options.create(&path).unwrap();
    let device = open(&path).unwrap();
    for zone in [0, 60_000, 111_757] {
        let start = device.info().geometry.start_of(ZoneIndex(zone)).0;
        drive::write(&device, drive::command(Op::Append, start, 8), &[u64::from(zone) + 1; 8]).unwrap();
        assert_eq!(drive::read(&device, start, 8).unwrap(), [u64::from(zone) + 1; 8]);
    }
    device.close().unwrap();
    let blocks: u64 =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().blocks()).sum();
    assert!(blocks * 512 < 16 << 20, "{blocks} blocks");
}
