//! A very large number of files, on a drive with room for them: the metadata grow with the files up
//! to the size of the drive.

use crate::common;
use crate::common::{cases_of, waiter};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::make::{MakeOptions, make, open};
use zonal_fs::superblocks;
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, ROOT};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::image::backing::FileBacking;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

const UUID: [u8; 16] = *b"very many files.";

/// Files per directory.
const PER_DIRECTORY: u64 = 1000;

/// Maximum metadata per file, in bytes.
const BYTES_MAX: u64 = 350;

/// A sparse image of 8 GiB, with zones of 16 MiB.
fn image(conventional: u32) -> Arc<dyn Device> {
    let file = tempfile::tempfile().unwrap();
    let backing = Arc::new(FileBacking::new(file));
    let options = ImageOptions::default()
        .with_size(8 << 30)
        .with_zone_size(16 << 20)
        .with_zone_nr_conv(conventional)
        .with_creation([9; 16]);
    options.format(&*backing).unwrap();
    let options = OpenOptions::default().with_threads(0);
    Arc::new(ImageDevice::open_backing(Path::new("many"), backing, &options).unwrap())
}

fn reach(device: &Arc<dyn Device>) -> FileSystem {
    let drive = Arc::new(Drive::new(common::volume(device.clone())));
    open(&drive, &polling(Clock::start()), None, MountOptions::default()).unwrap()
}

fn name(n: u64) -> Vec<u8> {
    format!("file-{n:07}").into_bytes()
}

fn files() -> u64 {
    std::env::var("ZONAL_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(60_000)
}

fn fills_with_files(conventional: u32) {
    let (device, files, waiter) = (image(conventional), files(), waiter());
    let drive = Arc::new(Drive::new(common::volume(device.clone())));
    make(&drive, &polling(Clock::start()), UUID, &MakeOptions::default()).unwrap();
    drop(drive);
    let fs = reach(&device);
    let begin = Instant::now();
    let mut directory = ROOT;
    for n in 0..files {
        if n % PER_DIRECTORY == 0 {
            let new = NewFile::new(FileKind::Directory, 0o755);
            let path = format!("d{}", n / PER_DIRECTORY);
            directory = fs.create(&waiter, ROOT, path.as_bytes(), &new).unwrap();
        }
        fs.create(&waiter, directory, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap();
    }
    fs.sync(&waiter).unwrap();
    let made = begin.elapsed();
    let pages = fs.usage().metadata.unwrap().pages;
    let bytes = pages * 4096 / files;
    drop(fs);
    let begin = Instant::now();
    let fs = reach(&device);
    println!(
        "{files} files in {made:?}, {pages} pages, {bytes} bytes a file; opened again in {:?}",
        begin.elapsed()
    );
    assert!(bytes <= BYTES_MAX, "{bytes} bytes a file");
    for n in (0..files).step_by(997) {
        let directory = fs.lookup(ROOT, format!("d{}", n / PER_DIRECTORY).as_bytes()).unwrap();
        fs.lookup(directory, &name(n)).unwrap();
    }
    assert!(matches!(fs.lookup(ROOT, &name(files)), Err(FsError::NotFound)));
}

/// Number of zones of the metadata store, and of pages in it.
fn store_of(device: &Arc<dyn Device>) -> (usize, u64) {
    let drive = Drive::new(common::volume(device.clone()));
    let zones = superblocks::find(&drive, &waiter()).unwrap().copy.anchor.zones.len();
    drop(drive);
    (zones, reach(device).usage().metadata.unwrap().pages)
}

/// Slow: creates and removes files until the store has grown and shrunk.
#[test]
fn store_returns_its_zones_after_files_are_removed() {
    let (device, waiter) = (image(0), waiter());
    let drive = Arc::new(Drive::new(common::volume(device.clone())));
    make(&drive, &polling(Clock::start()), UUID, &MakeOptions::default()).unwrap();
    drop(drive);
    let new = store_of(&device);
    let files = files() * 4;
    let fs = reach(&device);
    for n in 0..files {
        fs.create(&waiter, ROOT, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap();
    }
    fs.sync(&waiter).unwrap();
    drop(fs);
    let full = store_of(&device);
    let fs = reach(&device);
    for n in (0..files).filter(|n| n % 100 != 0) {
        fs.unlink(&waiter, ROOT, &name(n)).unwrap();
    }
    fs.sync(&waiter).unwrap();
    let begin = Instant::now();
    drop(fs);
    let took = begin.elapsed();
    let left = store_of(&device);
    println!(
        "zones and pages: {new:?} new, {full:?} with {files} files, {left:?} with {}, closed in {took:?}",
        files / 100
    );
    // Space needed by the last batches remains until the next ones.
    let is_smaller = left.0 < full.0 && left.0 <= new.0 + 2 && left.1 * 20 < full.1;
    assert!(full.0 > new.0 && is_smaller, "{new:?}, {full:?}, {left:?}");
    let fs = reach(&device);
    for n in (0..files).step_by(100) {
        fs.lookup(ROOT, &name(n)).unwrap();
    }
    assert!(matches!(fs.lookup(ROOT, &name(1)), Err(FsError::NotFound)));
}

/// An image of 128 MiB with a backing that can lose power.
fn twin_of(backing: &Arc<CutBacking>) -> Arc<dyn Device> {
    let options = OpenOptions::default().with_threads(0);
    Arc::new(ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options).unwrap())
}

#[test]
fn store_that_is_moved_together_survives_a_cut_at_any_call() {
    const FILES: u64 = 40_000;
    let few_files_left = || {
        let (backing, waiter) = (Arc::new(CutBacking::new(1)), waiter());
        let options =
            ImageOptions::default().with_size(128 << 20).with_zone_size(2 << 20).with_creation([9; 16]);
        options.format(&*backing).unwrap();
        let drive = Arc::new(Drive::new(common::volume(twin_of(&backing))));
        make(&drive, &polling(Clock::start()), UUID, &MakeOptions::default()).unwrap();
        drop(drive);
        let fs = reach(&twin_of(&backing));
        for n in 0..FILES {
            fs.create(&waiter, ROOT, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap();
        }
        for n in (0..FILES).filter(|n| n % 100 != 0) {
            fs.unlink(&waiter, ROOT, &name(n)).unwrap();
        }
        fs.sync(&waiter).unwrap();
        (backing, fs)
    };
    let (backing, fs) = few_files_left();
    let first = backing.calls();
    drop(fs);
    let calls = backing.calls() - first;
    assert!(calls > 20, "{calls} calls");
    let cases = cases_of(8, 2);
    for case in 0..cases {
        let (backing, fs) = few_files_left();
        backing.cut_at(backing.calls() + case * calls / cases + case % 3);
        drop(fs);
        assert!(!backing.is_on(), "case {case}");
        let found = Arc::new(backing.restart(case));
        let fs = reach(&twin_of(&found));
        for n in (0..FILES).step_by(100) {
            fs.lookup(ROOT, &name(n)).unwrap_or_else(|e| panic!("case {case}, file {n}: {e}"));
            assert!(matches!(fs.lookup(ROOT, &name(n + 1)), Err(FsError::NotFound)), "case {case}");
        }
    }
}

#[test]
fn files_on_a_drive_of_sequential_zones_take_few_bytes_of_metadata() {
    fills_with_files(0);
}

#[test]
fn files_on_a_drive_with_one_conventional_zone_take_few_bytes_of_metadata() {
    fills_with_files(1);
}
