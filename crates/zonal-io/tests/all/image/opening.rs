//! Opening of real files: several readers or one writer, quickly, and without modifying them.

use crate::image::drive;
use parking_lot::{RwLock, RwLockReadGuard};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Op, ZoneCondition};
use zonal_io::device::{Device, OpenMode};
use zonal_io::image::backing::{Backing, FileBacking};
use zonal_io::image::{ImageDevice, ImageError, ImageOptions, OpenOptions, inspect, is_image};
use zonal_io::registry::Registry;

pub fn small() -> ImageOptions {
    ImageOptions::default()
        .with_size(16 << 20)
        .with_zone_size(1 << 20)
        .with_zone_nr_conv(1)
        .with_blocksize(512)
        .with_creation([5; 16])
}

/// Locked for writing while a process is started, which shares the open files and their locks until
/// it executes its own program.
pub static STARTING: RwLock<()> = RwLock::new(());

/// Directory for an image. No process is started during its lifetime.
pub struct Dir(tempfile::TempDir, #[expect(dead_code, reason = "a guard")] RwLockReadGuard<'static, ()>);

impl Dir {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

pub fn create(options: &ImageOptions) -> (Dir, PathBuf) {
    let dir = Dir(tempfile::tempdir().unwrap(), STARTING.read());
    let path = dir.path().join("drive.img");
    options.create(&path).unwrap();
    (dir, path)
}

pub fn open(path: &Path) -> Result<ImageDevice, ImageError> {
    ImageDevice::open(path, &OpenOptions::default())
}

fn open_to_read(path: &Path) -> Result<ImageDevice, ImageError> {
    ImageDevice::open(path, &reading())
}

fn reading() -> OpenOptions {
    OpenOptions::default().with_mode(OpenMode::Reading).with_kept_max(0)
}

#[test]
fn opener_that_is_in_the_way_is_named() {
    let (_dir, path) = create(&small());
    let own = format!("process {} (this one)", std::process::id());
    let refused = |opened: Result<ImageDevice, ImageError>, by: &str| {
        let refused = opened.err().unwrap();
        assert!(matches!(refused, ImageError::Locked { .. }));
        let expected = format!("drive.img: in use {by} {own}");
        assert!(refused.to_string().ends_with(&expected), "{refused}");
    };
    let writer = open(&path).unwrap();
    refused(open(&path), "by");
    refused(open_to_read(&path), "by");
    inspect(&path).expect("the header is read without a lock");
    writer.close().unwrap();
    let readers = [open_to_read(&path).unwrap(), open_to_read(&path).unwrap()];
    refused(open(&path), "for reading by");
    drop(readers);
    open(&path).expect("the lock goes with the device").abandon();
    open(&path).expect("also with one that was let go of");
}

/// File opened for reading; calls that would change it fail and are counted.
struct OnlyRead(FileBacking, AtomicU32);

impl OnlyRead {
    fn refuse(&self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(28))
    }
}

impl Backing for OnlyRead {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        self.refuse()
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_at(buf, at)
    }

    fn write_at(&self, _buf: &[u8], _at: u64) -> io::Result<()> {
        self.refuse()
    }

    fn zero(&self, _at: u64, _len: u64) -> io::Result<()> {
        self.refuse()
    }

    fn discard(&self, _at: u64, _len: u64) {
        let _ = self.refuse();
    }

    fn sync(&self) -> io::Result<()> {
        self.refuse()
    }
}

#[test]
fn reader_sees_data_of_a_killed_writer_and_writes_nothing() {
    let (_dir, path) = create(&small());
    let writer = open(&path).unwrap();
    drive::write(&writer, drive::command(Op::Append, 2048, 2), &[1, 2]).unwrap();
    drive::plain(&writer, Op::Flush, 0, 0).unwrap();
    drive::plain(&writer, Op::ZoneReset, 2048, 0).unwrap();
    drive::write(&writer, drive::command(Op::Append, 4096, 1), &[3]).unwrap();
    drive::plain(&writer, Op::Flush, 0, 0).unwrap();
    // The session is marked as open, and so is a zone.
    writer.abandon();
    let before = std::fs::read(&path).unwrap();
    for threads in [0, 1] {
        let backing = Arc::new(OnlyRead(FileBacking::new(File::open(&path).unwrap()), AtomicU32::new(0)));
        let options = reading().with_threads(threads);
        let reader = ImageDevice::open_backing(&path, backing.clone(), &options).unwrap();
        assert!(reader.info().read_only);
        assert_eq!(drive::describe(&reader, 1).condition, ZoneCondition::Empty);
        assert_eq!(drive::describe(&reader, 2).condition, ZoneCondition::Closed);
        assert_eq!(drive::read(&reader, 4096, 2).unwrap(), [3, 0]);
        drive::plain(&reader, Op::Flush, 0, 0).unwrap();
        let refused = Err(DeviceError::OpenedForReading);
        assert_eq!(drive::write(&reader, drive::command(Op::Append, 4096, 1), &[4]), refused);
        assert_eq!(drive::write(&reader, drive::command(Op::Write, 0, 1), &[4]), refused);
        for op in [Op::ZoneReset, Op::ZoneOpen, Op::ZoneClose, Op::ZoneFinish, Op::ResetAll] {
            assert_eq!(drive::plain(&reader, op, 4096, 0), refused, "{op:?}");
        }
        assert_eq!(drive::plain(&reader, Op::WriteZeroes, 0, 1), refused);
        reader.close().unwrap();
        assert_eq!(backing.1.load(Ordering::Relaxed), 0, "calls that would change the file");
    }
    assert!(std::fs::read(&path).unwrap() == before);
    // The state left by the writer is no damage: the next writer continues.
    let writer = open(&path).unwrap();
    assert!(!writer.info().read_only);
    drive::write(&writer, drive::command(Op::Append, 4096, 1), &[4]).unwrap();
    writer.close().unwrap();
}

#[test]
fn name_opened_to_read_reads_every_image_in_it() {
    let (dir, path) = create(&small());
    let other = dir.path().join("other.img");
    // Conventional zones precede all sequential ones, even across images.
    small().with_zone_nr_conv(0).create(&other).unwrap();
    let (a, b) = (path.display(), other.display());
    let trace = dir.path().join("trace");
    let names = [
        format!("image:{a}"),
        format!("fault:seed=1+{a}"),
        format!("trace:file={}+{a}", trace.display()),
        format!("linear:zone=0,zones=8+{a}"),
        format!("concat:[fault:seed=1+{a}][{b}]"),
    ];
    let held = open_to_read(&path).unwrap();
    let also_held = open_to_read(&other).unwrap();
    for name in names {
        let device = Registry::default().open_to_read(&name).unwrap_or_else(|e| panic!("{e}"));
        assert!(device.info().read_only, "{name}");
        assert_eq!(drive::plain(&*device, Op::ZoneFinish, 2048, 0), Err(DeviceError::OpenedForReading));
        let refused = Registry::default().open(&name.replace("trace:", "trace:overwrite=1,")).err().unwrap();
        assert!(refused.to_string().contains("in use for reading by"), "{refused}");
    }
    drop((held, also_held));
}

#[test]
fn image_is_known_by_either_copy_of_its_header() {
    let (_dir, path) = create(&small());
    let file = File::options().write(true).open(&path).unwrap();
    for (at, is_still) in [(0, true), (4096, false)] {
        assert!(is_image(&path));
        file.write_all_at(&[0; 8], at).unwrap();
        assert_eq!(is_image(&path), is_still);
    }
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
fn non_regular_files_are_refused_as_images() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(open(dir.path()), Err(ImageError::NotAFile { .. })));
    assert!(matches!(open(Path::new("/dev/null")), Err(ImageError::NotAFile { .. })));
    let missing = open(&dir.path().join("missing")).err().unwrap();
    assert!(missing.to_string().contains("missing: opening: No such file"), "{missing}");
}

#[test]
fn opening_112_000_zones_is_quick() {
    let options = ImageOptions::default().with_size(112_000 * (128 << 20)).with_zone_size(128 << 20);
    let (_dir, path) = create(&options);
    // Write every page of the ledger, so that there is something to read.
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
    let mut times: Vec<_> = (0..5).map(|_| opened()).collect();
    times.sort();
    println!("opening 112,000 zones: {times:?}");
    assert!(times[2] < Duration::from_millis(200), "{times:?}");
}

#[test]
fn reset_zone_keeps_its_space_within_the_bound_and_until_the_image_is_closed() {
    use std::os::unix::fs::MetadataExt;
    for kept_max in [0, 256 << 10, 1 << 30] {
        let (_dir, path) = create(&small());
        let device = ImageDevice::open(&path, &OpenOptions::default().with_kept_max(kept_max)).unwrap();
        let used = || path.metadata().unwrap().blocks() * 512;
        let empty = used();
        drive::write(&device, drive::command(Op::Append, 2048, 1024), &[1; 1024]).unwrap();
        drive::plain(&device, Op::Flush, 0, 0).unwrap();
        assert!(used() >= empty + (512 << 10));
        drive::plain(&device, Op::ZoneReset, 2048, 0).unwrap();
        drive::plain(&device, Op::Flush, 0, 0).unwrap();
        let kept = empty + kept_max.min(512 << 10);
        assert!((kept..kept + (64 << 10)).contains(&used()), "{empty} bytes before, {} after", used());
        assert_eq!(drive::read(&device, 2048, 1024).unwrap(), [0; 1024]);
        device.close().unwrap();
        assert!(used() < empty + (64 << 10), "{empty} bytes before, {} after closing", used());
    }
}

#[test]
fn first_write_frees_space_left_by_a_killed_opener() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, path) = create(&small());
    let used = || path.metadata().unwrap().blocks() * 512;
    let empty = used();
    let device = open(&path).unwrap();
    drive::write(&device, drive::command(Op::Append, 2048, 1024), &[1; 1024]).unwrap();
    drive::plain(&device, Op::Flush, 0, 0).unwrap();
    drive::plain(&device, Op::ZoneReset, 2048, 0).unwrap();
    drive::plain(&device, Op::Flush, 0, 0).unwrap();
    device.abandon();
    let device = open(&path).unwrap();
    assert!(used() >= empty + (512 << 10), "opening changes nothing");
    drive::write(&device, drive::command(Op::Append, 2048, 8), &[2; 8]).unwrap();
    assert!(used() < empty + (64 << 10), "{empty} bytes before, {} after", used());
    assert_eq!(drive::read(&device, 2048, 16).unwrap(), [[2; 8], [0; 8]].concat());
    device.close().unwrap();
}
