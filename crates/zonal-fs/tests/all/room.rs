//! Full metadata: calls that add to them are refused while there is still room for deletions.

use crate::common;
use crate::common::{bytes, contents, read_all, settle, waiter};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, Superblock};
use zonal_fs::fsck::{self, check};
use zonal_fs::make::{Access, MakeOptions, make, make_in, open_rows, open_rows_in};
use zonal_fs::store::{Fill, Rows};
use zonal_fs::waiter::{Waiters, polling};
use zonal_fs::{ATTRIBUTE_MAX, FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, Rename};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;

const UUID: [u8; 16] = *b"full of metadata";

/// A drive with metadata in conventional zones, in a log, or beside it, and room for a few thousand
/// files at most.
struct MetadataDrive {
    device: Arc<dyn Device>,
    /// Host of the metadata, if they are beside the drive.
    host: Option<Arc<Host>>,
}

/// A file beside the drive, on a disk with limited space.
struct Host {
    file: CutBacking,
    quota: u64,
    /// Pages that take up space.
    pages: Mutex<BTreeSet<u64>>,
}

impl Host {
    fn take(&self, at: u64, len: u64) -> io::Result<()> {
        let mut pages = self.pages.lock().unwrap();
        let fresh = (at / 4096..(at + len).div_ceil(4096)).filter(|page| !pages.contains(page));
        let fresh: Vec<u64> = fresh.collect();
        if (pages.len() + fresh.len()) as u64 * 4096 > self.quota {
            return Err(io::ErrorKind::StorageFull.into());
        }
        pages.extend(fresh);
        Ok(())
    }
}

impl Backing for Host {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.pages.lock().unwrap().split_off(&len.div_ceil(4096));
        self.file.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.take(at, buf.len() as u64)?;
        self.file.write_at(buf, at)
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.file.zero(at, len)
    }

    fn discard(&self, at: u64, len: u64) {
        self.file.discard(at, len);
    }

    fn room(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.quota))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl MetadataDrive {
    fn conventional() -> MetadataDrive {
        MetadataDrive::on("ram:size=16M,zone_size=512K,zone_nr_conv=12,blocksize=4096")
    }

    fn log() -> MetadataDrive {
        MetadataDrive::on("ram:size=16M,zone_size=512K,blocksize=4096")
    }

    fn beside() -> MetadataDrive {
        let (file, pages) = (CutBacking::new(1), Mutex::default());
        let host = Arc::new(Host { file, quota: 3 << 20, pages });
        MetadataDrive { host: Some(host), ..MetadataDrive::on("ram:size=12M,zone_size=512K,blocksize=4096") }
    }

    fn on(name: &str) -> MetadataDrive {
        MetadataDrive { device: common::device(name), host: None }
    }

    fn drive(&self) -> Arc<Drive> {
        Arc::new(Drive::new(common::volume(self.device.clone())))
    }

    fn make(&self) -> FileSystem {
        let options = MakeOptions::default();
        match &self.host {
            None => make(&self.drive(), &waiters(), UUID, &options).unwrap(),
            Some(host) => make_in(&self.drive(), &waiters(), UUID, &options, host.clone()).unwrap(),
        };
        self.open()
    }

    fn rows(&self) -> (Arc<Drive>, Superblock, Rows) {
        let (drive, options) = (self.drive(), MountOptions::default());
        let superblock = zonal_fs::make::superblock(&drive, &waiter()).unwrap();
        let access = Access::Use(&options);
        let rows = match &self.host {
            None => open_rows(&drive, &waiters(), None, &superblock, access),
            Some(host) => open_rows_in(&drive, &waiters(), host.clone(), access),
        };
        (drive, superblock, rows.unwrap())
    }

    fn open(&self) -> FileSystem {
        let (drive, superblock, rows) = self.rows();
        let volume = drive.volume().clone();
        FileSystem::open(volume, rows, superblock, MountOptions::default(), true, &waiter()).unwrap()
    }

    /// Findings of fsck, with all data read.
    fn findings(&self) -> Vec<fsck::Finding> {
        let (drive, superblock, rows) = self.rows();
        check(&rows, &superblock, &drive, &waiter(), fsck::Options::default().with_data(true)).unwrap()
    }
}

fn waiters() -> Waiters {
    polling(Clock::start())
}

fn long_name(n: u32) -> Vec<u8> {
    format!("{n:0200}").into_bytes()
}

fn is_full<T: std::fmt::Debug>(result: Result<T, FsError>) -> bool {
    match result {
        Ok(_) => false,
        Err(error @ FsError::MetadataFull { .. }) => {
            assert!(error.is_no_space() && error.to_string().contains("metadata"));
            true
        }
        Err(other) => panic!("{other}"),
    }
}

/// Creates files until there is no room for more, and returns the next number.
fn fill(fs: &FileSystem, from: u32) -> u32 {
    let waiter = waiter();
    for n in from.. {
        let made = fs.create(&waiter, ROOT, &long_name(n), &NewFile::new(FileKind::File, 0o644));
        if is_full(made) {
            return n;
        }
    }
    unreachable!("it is bounded");
}

fn share(fs: &FileSystem) -> f64 {
    let Fill { pages, usable } = fs.usage().metadata.unwrap();
    pages as f64 / usable as f64
}

/// Fills, empties and fills again.
fn continues_when_full(place: &MetadataDrive) {
    let fs = place.make();
    let waiter = waiter();
    let data = bytes(1, 40_000);
    let kept = fs.create(&waiter, ROOT, b"kept", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter, kept, 0, Payload::Bytes(&data)).unwrap();
    fs.set_xattr(&waiter, kept, b"user.a", &[7; 3000]).unwrap();
    let mut fewest = u32::MAX;
    for round in 0..5 {
        let files = fill(&fs, 0);
        fewest = fewest.min(files);
        assert!(share(&fs) > 0.9, "round {round}: {files} files, {:?}", fs.usage());
        let new = NewFile::new(FileKind::Directory, 0o755);
        assert!(is_full(fs.create(&waiter, ROOT, b"directory", &new)));
        let link = NewFile { target: b"somewhere".to_vec(), ..NewFile::new(FileKind::Symlink, 0o777) };
        assert!(is_full(fs.create(&waiter, ROOT, b"link", &link)));
        assert!(is_full(fs.link(&waiter, kept, ROOT, b"other")));
        assert!(is_full(fs.rename(&waiter, (ROOT, b"kept"), (ROOT, b"moved"), Rename::Replace)));
        assert!(is_full(fs.set_xattr(&waiter, kept, b"user.b", &[1; 100])));
        assert!(is_full(fs.write(&waiter, kept, 1 << 20, Payload::Bytes(&data))));
        assert!(is_full(fs.punch(&waiter, kept, 5000..9000)));
        assert!(read_all(&fs, kept).unwrap() == data, "round {round}");
        // Calls that need no room still succeed.
        fs.sync(&waiter).unwrap();
        fs.collect(&waiter).unwrap();
        fs.truncate(&waiter, kept, 30_001).unwrap();
        fs.truncate(&waiter, kept, 40_000).unwrap();
        for n in (0..files).filter(|n| round % 2 == 1 || n % 2 == 0) {
            fs.unlink(&waiter, ROOT, &long_name(n)).unwrap();
        }
        fs.fsync(&waiter, kept).unwrap();
        fs.write(&waiter, kept, 0, Payload::Bytes(&data)).unwrap();
        if round % 2 == 0 {
            for n in (0..files).filter(|n| n % 2 == 1) {
                fs.unlink(&waiter, ROOT, &long_name(n)).unwrap();
            }
        }
        settle(&fs);
        fs.check();
    }
    println!("at least {fewest} files");
    assert!(fewest > 250, "{fewest} files");
    fs.sync(&waiter).unwrap();
    drop(fs);
    assert_eq!(place.findings(), []);
    let fs = place.open();
    assert_eq!(contents(&fs).unwrap().len(), 1);
    assert!(fill(&fs, 0) > fewest / 2);
}

/// Sets attributes of a file until there is no room for more, and returns their number.
fn fill_attributes(fs: &FileSystem, ino: u64, letter: char, length: usize) -> u32 {
    let set = |n: u32| fs.set_xattr(&waiter(), ino, format!("{letter}{n:08}").as_bytes(), &vec![7; length]);
    (0..).take_while(|n| !is_full(set(*n))).count() as u32
}

/// Fills the gaps left by small attributes with the longest ones, and changes those again and
/// again.
#[test]
fn longest_attributes_need_no_room_in_a_row() {
    for place in [MetadataDrive::conventional(), MetadataDrive::log(), MetadataDrive::beside()] {
        let fs = place.make();
        let waiter = waiter();
        let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        for _ in 0..2 {
            let small = fill_attributes(&fs, ino, 's', 1500);
            for n in (0..small).filter(|n| n % 6 != 0) {
                fs.remove_xattr(&waiter, ino, format!("s{n:08}").as_bytes()).unwrap();
            }
            settle(&fs);
            let long = fill_attributes(&fs, ino, 'l', ATTRIBUTE_MAX);
            assert!(small > 100 && long > 30, "{small} small, {long} long");
            fs.sync(&waiter).unwrap();
            for round in 0..20 {
                for n in 0..3 {
                    is_full(fs.set_xattr(
                        &waiter,
                        ino,
                        format!("l{n:08}").as_bytes(),
                        &[round; ATTRIBUTE_MAX],
                    ));
                }
                fs.sync(&waiter).unwrap();
            }
            for name in fs.xattrs(ino).unwrap() {
                fs.remove_xattr(&waiter, ino, &name).unwrap();
            }
            settle(&fs);
        }
        drop(fs);
        assert_eq!(place.findings(), []);
    }
}

/// Fills conventional zones, which cannot grow, with the extended attributes of unnamed files. Deleting
/// all of them takes more room than is kept back, so it has to be spread over several commits.
#[test]
fn deletion_of_unnamed_files_larger_than_the_room_left_takes_several_commits() {
    for has_power_cut in [false, true] {
        let place = MetadataDrive::conventional();
        let fs = place.make();
        let (waiter, new) = (waiter(), NewFile::new(FileKind::File, 0o644));
        let open: Vec<_> = (0..40).map(|_| fs.create_unnamed(&waiter, &new).unwrap()).collect();
        let name = |n: usize| format!("user.{n:08}{:0237}", 0).into_bytes();
        let is_set = |n: &usize| !is_full(fs.set_xattr(&waiter, open[n % 40].ino(), &name(*n), b""));
        let attributes = (0..).take_while(is_set).count();
        assert!(attributes > 10_000, "{attributes}");
        fs.sync(&waiter).unwrap();
        let fs = if has_power_cut {
            fs.forbid_changes("the power is cut");
            drop(open);
            drop(fs);
            place.open()
        } else {
            drop(open);
            fs
        };
        while fs.background_step(&waiter).unwrap() {}
        fs.create(&waiter, ROOT, b"f", &new).unwrap();
        fs.sync(&waiter).unwrap();
        while fs.background_step(&waiter).unwrap() {}
        // Deletions are merged once they come to an eighth of all pages, four fifths of which are usable.
        assert!(share(&fs) < 0.2, "{:?}", fs.usage());
        drop(fs);
        assert_eq!(place.findings(), []);
    }
}

#[test]
fn full_conventional_zones_refuse_rows_and_go_on() {
    continues_when_full(&MetadataDrive::conventional());
}

#[test]
fn full_log_refuses_rows_and_takes_others() {
    continues_when_full(&MetadataDrive::log());
}

#[test]
fn full_disk_beside_the_drive_refuses_rows_and_stays_open() {
    continues_when_full(&MetadataDrive::beside());
}

/// A thread may create a few files without checking the room if there was plenty. Other rows use it
/// up then.
#[test]
fn file_creation_fails_once_other_rows_used_up_the_room() {
    let fs = MetadataDrive::on("ram:size=96M,zone_size=2M,blocksize=4096").make();
    let waiter = waiter();
    let new = NewFile::new(FileKind::File, 0o644);
    let file = fs.create(&waiter, ROOT, b"file", &new).unwrap();
    let attribute = |n: u32| fs.set_xattr(&waiter, file, format!("user.{n}").as_bytes(), &[7; 3000]);
    let taken = (0..).take_while(|n| !is_full(attribute(*n))).count();
    assert!(taken > 1000, "{taken} attributes fill it");
    assert!(is_full(fs.create(&waiter, ROOT, b"another", &new)));
}

/// Drives of many shapes are filled with names, half of them are removed, and the drives are filled
/// again; then all names are removed. Sizes of zones, pieces of the conventional zones and names
/// vary. Lack of room is `ENOSPC`, and the file system stays writable.
#[test]
fn small_drives_of_any_shape_are_filled_with_names_over_and_over() {
    let first = common::number("ZONAL_SEED", 0);
    for seed in first..first + common::number("ZONAL_CASES", common::cases_of(200, 2)) {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        // The first has segments of 63 and of 256 blocks.
        let [zone, zones, conventional, name] = match seed {
            0 => [1024, 64, 2, 85],
            _ => [
                256 << random.random_range(0..3),
                random.random_range(20..100),
                random.random_range(0..5),
                random.random_range(8..200),
            ],
        };
        let shape = format!("size={}K,zone_size={zone}K,zone_nr_conv={conventional}", zone * zones);
        let drive = MetadataDrive::on(&format!("ram:{shape},blocksize=4096"));
        let fs = drive.make();
        let what = format!("ZONAL_SEED={seed}, {shape}, names of {name} bytes");
        let path = |n: u64| format!("{n:0>width$}", width = name as usize).into_bytes();
        let new = NewFile::new(FileKind::File, 0o644);
        let done = |result: Result<(), FsError>| match result {
            Ok(()) => true,
            Err(error) if error.is_no_space() => false,
            Err(error) => panic!("{what}: {error}"),
        };
        let before = fs.usage();
        let mut there = BTreeSet::new();
        let mut made = Vec::new();
        for round in 0..3u64 {
            let mut n = round << 32;
            while n - (round << 32) < 12_000 && done(fs.create(&waiter(), ROOT, &path(n), &new).map(drop)) {
                there.insert(n);
                n += 1;
                if n.is_multiple_of(500) {
                    assert!(done(fs.sync(&waiter())), "{what}: a sync has no room");
                }
                if n.is_multiple_of(1000) {
                    // Remove and recreate some.
                    for again in n - 400..n - 100 {
                        fs.unlink(&waiter(), ROOT, &path(again)).unwrap_or_else(|e| panic!("{what}: {e}"));
                        if !done(fs.create(&waiter(), ROOT, &path(again), &new).map(drop)) {
                            there.remove(&again);
                        }
                    }
                }
            }
            made.push(there.len());
            for n in there.iter().copied().filter(|n| round > 0 || n % 2 == 0).collect::<Vec<_>>() {
                fs.unlink(&waiter(), ROOT, &path(n)).unwrap_or_else(|e| panic!("{what}: {e}"));
                there.remove(&n);
            }
            fs.sync(&waiter()).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        // After a full removal. Removing every second name leaves pages half empty, which new names
        // do not fill.
        assert!(made[2] * 5 > made[0] * 4, "{what}: {made:?}");
        let names = fs.files().unwrap().used;
        assert_eq!(names, there.len() as u64 + 1, "{what}");
        settle(&fs);
        fs.check();
        // Zones taken by the metadata are returned in the background, or when a write would find no
        // space.
        let lost = |fs: &FileSystem| before.blocks.saturating_sub(fs.usage().blocks) * 4096;
        let lost_max = (zone * zones * 1024 / 50).max(2 * zone * 1024);
        if seed % 2 == 0 {
            while fs.background_step(&waiter()).unwrap() {}
        } else {
            fill_with_data(&fs);
        }
        assert!(lost(&fs) <= lost_max, "{what}: {} of {lost_max} bytes", lost(&fs));
        drop(fs);
        let fs = drive.open();
        assert!(lost(&fs) <= lost_max, "{what}: {} of {lost_max} bytes after another mount", lost(&fs));
    }
}

/// Readers of earlier commits hold pages that commits and compactions need.
#[test]
fn full_drive_under_constant_listing_stays_writable() {
    let drive = MetadataDrive::on("ram:size=6M,zone_size=256K,blocksize=4096");
    let fs = drive.make();
    let blocks = fs.usage().blocks;
    let is_done = AtomicBool::new(false);
    let rounds = || {
        for round in 0..common::cases_of(40, 2) {
            let files = fill(&fs, 0);
            (0..files).for_each(|n| fs.unlink(&waiter(), ROOT, &long_name(n)).unwrap());
            fs.sync(&waiter()).unwrap();
            fill_with_data(&fs);
            let written = fs.usage().used;
            fs.unlink(&waiter(), ROOT, b"data").unwrap();
            settle(&fs);
            assert!(
                files > 1000 && written * 10 > blocks * 9,
                "round {round}: {files} files, {written} blocks of {blocks}"
            );
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs.list(ROOT, None, |_, _| ControlFlow::Continue(())).unwrap();
                }
            });
        }
        let result = catch_unwind(AssertUnwindSafe(rounds));
        is_done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    fs.check();
    drop(fs);
    assert_eq!(drive.findings(), []);
}

/// Writes a file until there is no space.
fn fill_with_data(fs: &FileSystem) {
    let waiter = waiter();
    let file = fs.create(&waiter, ROOT, b"data", &NewFile::new(FileKind::File, 0o644)).unwrap();
    common::fill_up(fs, file, &bytes(3, 1 << 20));
}
