//! Opening real files: one opener at a time, quickly, and without a trace.

use crate::drive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zonal_core::{Op, ZoneCondition};
use zonal_io::device::Device;
use zonal_io::image::{ImageDevice, ImageError, ImageOptions, OpenOptions, inspect};

pub fn small() -> ImageOptions {
    ImageOptions {
        size: Some(16 << 20),
        zone_size: Some(1 << 20),
        zone_nr_conv: Some(1),
        blocksize: Some(512),
        creation: Some([5; 16]),
        ..Default::default()
    }
}

pub fn create(options: &ImageOptions) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    options.create(&path).unwrap();
    (dir, path)
}

pub fn open(path: &Path) -> Result<ImageDevice, ImageError> {
    ImageDevice::open(path, &OpenOptions::default())
}

#[test]
fn second_opener_gets_one_clear_error() {
    let (_dir, path) = create(&small());
    let first = open(&path).unwrap();
    let refused = open(&path).err().unwrap();
    assert!(matches!(refused, ImageError::Locked { .. }));
    assert!(refused.to_string().contains("drive.img: is open elsewhere"), "{refused}");
    inspect(&path).expect("looking is allowed");
    first.close().unwrap();
    open(&path).expect("the lock goes with the device").abandon();
    open(&path).expect("also with one that was let go of");
}

#[test]
fn opening_and_closing_without_a_change_leaves_no_trace() {
    let (_dir, path) = create(&small());
    let device = open(&path).unwrap();
    drive::write(&device, drive::command(Op::Append, 2048, 2), &[1, 2]).unwrap();
    device.close().unwrap();
    let (bytes, modified) = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    let device = open(&path).unwrap();
    assert_eq!(drive::read(&device, 2048, 3).unwrap(), [1, 2, 0]);
    device.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(path.metadata().unwrap().modified().unwrap(), modified);
}

#[test]
fn what_is_no_plain_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(open(dir.path()), Err(ImageError::NotAFile { .. })));
    assert!(matches!(open(Path::new("/dev/null")), Err(ImageError::NotAFile { .. })));
    let missing = open(&dir.path().join("missing")).err().unwrap();
    assert!(missing.to_string().contains("missing: opening: No such file"), "{missing}");
}

#[test]
fn opening_112_000_zones_is_quick() {
    let options =
        ImageOptions { size: Some(112_000 * (128 << 20)), zone_size: Some(128 << 20), ..Default::default() };
    let (_dir, path) = create(&options);
    // Every page of the ledger written, so that there is something to read.
    let device = open(&path).unwrap();
    for zone in 0..112_000 {
        drive::plain(&device, Op::ZoneFinish, zone << 18, 0).unwrap();
    }
    device.close().unwrap();
    let opened = || {
        let begin = Instant::now();
        let device = open(&path).unwrap();
        let took = begin.elapsed();
        assert_eq!(drive::describe(&device, 111_999).condition, ZoneCondition::Full);
        took
    };
    let best = (0..5).map(|_| opened()).min().unwrap();
    println!("opening 112,000 zones: {best:?}");
    assert!(best < Duration::from_millis(200), "{best:?}");
}

#[test]
fn reset_gives_space_back_once_it_is_durable() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, path) = create(&small());
    let device = open(&path).unwrap();
    let used = || path.metadata().unwrap().blocks() * 512;
    let empty = used();
    drive::write(&device, drive::command(Op::Append, 2048, 1024), &[1; 1024]).unwrap();
    drive::plain(&device, Op::Flush, 0, 0).unwrap();
    assert!(used() >= empty + (512 << 10));
    drive::plain(&device, Op::ZoneReset, 2048, 0).unwrap();
    drive::plain(&device, Op::Flush, 0, 0).unwrap();
    assert!(used() < empty + (64 << 10), "{} bytes before, {} after", empty, used());
    assert_eq!(device.info().geometry.zones(), 16);
}
