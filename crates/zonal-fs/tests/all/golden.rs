//! A file system of the current version has to open for ever, with all its contents. Those of
//! earlier versions are refused.
//!
//! A golden file contains the non-zero 512-byte blocks of an image, each after its number,
//! compressed. The test creates it with `ZONAL_BLESS=1`, once per version. An existing file is not
//! replaced.

use crate::common::{bytes, contents, waiter};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::Sector;
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, VERSION};
use zonal_fs::fsck::{Options, check};
use zonal_fs::make::{Access, MakeOptions, make, open, open_rows, superblock};
use zonal_fs::rebuild::{RebuildOptions, rebuild};
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT, Rename};
use zonal_io::clock::Clock;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

const BLOCK: usize = 512;

fn golden(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/fs-v{version}.gz"))
}

fn drive(backing: &Arc<CutBacking>) -> Arc<Drive> {
    let options = OpenOptions::default().with_threads(0);
    let device = ImageDevice::open_backing(Path::new("golden"), backing.clone(), &options).unwrap();
    let options = VolumeOptions::default().without_budget();
    Arc::new(Drive::new(Arc::new(Volume::open(Arc::new(device), options).unwrap())))
}

fn reach(drive: &Arc<Drive>) -> FileSystem {
    open(drive, &polling(Clock::start()), None, MountOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Words instead of noise, to keep the golden file small.
fn text(n: u64, length: usize) -> Vec<u8> {
    format!("file {n} ").into_bytes().into_iter().cycle().take(length).collect()
}

/// The work that created the golden image.
fn work(fs: &FileSystem) {
    let waiter = waiter();
    let put = |parent, name: &str, data: &[u8]| {
        let ino = fs.create(&waiter, parent, name.as_bytes(), &NewFile::new(FileKind::File, 0o640)).unwrap();
        fs.write(&waiter, ino, 0, Payload::Bytes(data)).unwrap();
        ino
    };
    let directory =
        fs.create(&waiter, ROOT, b"directory", &NewFile::new(FileKind::Directory, 0o750)).unwrap();
    put(directory, "long", &text(1, 200_000));
    put(directory, "short", &bytes(2, 99));
    put(ROOT, "empty", &[]);
    put(ROOT, "gone", &text(3, 20_000));
    let changed = put(ROOT, "changed", &text(4, 50_000));
    fs.sync(&waiter).unwrap();
    fs.write(&waiter, changed, 10_000, Payload::Bytes(&text(5, 9_000))).unwrap();
    fs.truncate(&waiter, changed, 41_000).unwrap();
    fs.punch(&waiter, changed, 24_576..32_768).unwrap();
    fs.set_xattr(&waiter, changed, b"user.note", b"worth keeping").unwrap();
    let link = NewFile { target: b"directory/long".to_vec(), ..NewFile::new(FileKind::Symlink, 0o777) };
    fs.create(&waiter, ROOT, b"link", &link).unwrap();
    fs.link(&waiter, changed, directory, b"second name").unwrap();
    fs.unlink(&waiter, ROOT, b"gone").unwrap();
    fs.rename(&waiter, (ROOT, b"empty"), (directory, b"moved"), Rename::Replace).unwrap();
    fs.sync(&waiter).unwrap();
    fs.collect(&waiter).unwrap();
    fs.sync(&waiter).unwrap();
}

/// Expected contents of the golden image.
fn expected() -> BTreeMap<String, Option<Vec<u8>>> {
    let mut changed = text(4, 50_000);
    changed[10_000..19_000].copy_from_slice(&text(5, 9_000));
    changed.truncate(41_000);
    changed[24_576..32_768].fill(0);
    let files = [
        ("/directory", None),
        ("/directory/long", Some(text(1, 200_000))),
        ("/directory/moved", Some(Vec::new())),
        ("/directory/second name", Some(changed.clone())),
        ("/directory/short", Some(bytes(2, 99))),
        ("/changed", Some(changed)),
    ];
    files.into_iter().map(|(path, data)| (path.to_owned(), data)).collect()
}

fn create() -> Vec<u8> {
    let backing = Arc::new(CutBacking::new(1));
    let options = ImageOptions::default()
        .with_size(16 << 19)
        .with_zone_size(1 << 19)
        .with_zone_nr_conv(0)
        .with_blocksize(4096)
        .with_creation(*b"golden-creation!");
    options.format(&*backing).unwrap();
    let options =
        MakeOptions::default().with_label("golden").with_unit_bytes(64 << 10).with_reserved_bytes(1 << 16);
    make(&drive(&backing), &polling(Clock::start()), *b"a golden old one", &options).unwrap();
    work(&reach(&drive(&backing)));
    let mut all = vec![0; backing.len().unwrap() as usize];
    backing.read_at(&mut all, 0).unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&(all.len() as u64).to_le_bytes()).unwrap();
    for (n, block) in (0u32..).zip(all.chunks(BLOCK)).filter(|(_, block)| block.iter().any(|b| *b != 0)) {
        packed.write_all(&n.to_le_bytes()).unwrap();
        packed.write_all(block).unwrap();
    }
    packed.finish().unwrap()
}

/// The image in a golden file.
fn image(version: u32) -> Arc<CutBacking> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(golden(version)).unwrap()).read_to_end(&mut bytes).unwrap();
    let (length, blocks) = bytes.split_first_chunk().unwrap();
    let backing = Arc::new(CutBacking::new(2));
    backing.set_len(u64::from_le_bytes(*length)).unwrap();
    for block in blocks.chunks(4 + BLOCK) {
        let (n, data) = block.split_first_chunk().unwrap();
        backing.write_at(data, u64::from(u32::from_le_bytes(*n)) * BLOCK as u64).unwrap();
    }
    backing.sync().unwrap();
    backing
}

#[test]
fn golden_image_of_this_version_is_small_and_made_once() {
    let path = golden(VERSION);
    if std::env::var_os("ZONAL_BLESS").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, create()).unwrap();
    }
    let length = std::fs::metadata(&path).expect("ZONAL_BLESS=1 makes it").len();
    assert!(length < 24 << 10, "{length} bytes");
}

#[test]
fn golden_image_opens_with_all_that_is_in_it() {
    let drive = drive(&image(VERSION));
    let fs = reach(&drive);
    assert_eq!(fs.superblock().label, "golden");
    let link = fs.resolve(b"link").unwrap();
    assert_eq!(fs.target(link).unwrap(), b"directory/long");
    // Images without a counter of files are counted.
    assert_eq!(fs.files().unwrap().used, 7);
    fs.unlink(&waiter(), ROOT, b"link").unwrap();
    assert!(contents(&fs).unwrap() == expected());
    let changed = fs.attributes(fs.resolve(b"changed").unwrap()).unwrap();
    assert_eq!((changed.mode, changed.links), (0o640, 2));
    assert_eq!(fs.xattr(fs.resolve(b"changed").unwrap(), b"user.note").unwrap(), b"worth keeping");
    fs.check();
    drop(fs);
    let (waiters, superblock) = (polling(Clock::start()), superblock(&drive, &waiter()).unwrap());
    let rows = open_rows(&drive, &waiters, None, &superblock, Access::Verify).unwrap();
    let found = check(&rows, &superblock, &drive, &waiter(), Options::default().with_data(true)).unwrap();
    assert_eq!(found, []);
}

#[test]
fn golden_image_can_be_put_together_from_its_zones() {
    let drive = drive(&image(VERSION));
    let options = RebuildOptions::default().with_force(true);
    rebuild(&drive, &polling(Clock::start()), &options).unwrap();
    let found = contents(&reach(&drive)).unwrap();
    for path in ["/directory/long", "/directory/short"] {
        assert!(found[path] == expected()[path], "{path}");
    }
    assert_eq!(found["/changed"].as_ref().map(Vec::len), Some(41_000));
}

#[test]
fn image_of_an_earlier_version_is_refused_with_both_versions_and_the_way_out() {
    for version in 1..VERSION {
        let drive = drive(&image(version));
        let opened = open(&drive, &polling(Clock::start()), None, MountOptions::default());
        let error = opened.err().unwrap().to_string();
        let both = format!(
            "the file system has format version {version}, this program reads version {VERSION}; copy its"
        );
        assert!(error.starts_with(&both), "{error}");
        let options = RebuildOptions::default().with_force(true);
        let error = rebuild(&drive, &polling(Clock::start()), &options).unwrap_err().to_string();
        assert!(error.contains(&format!("has format version {version}")), "{error}");
    }
}

#[test]
fn image_of_a_later_version_is_refused_with_both_versions() {
    let drive = drive(&image(VERSION));
    let later = VERSION + 1;
    let mut block = drive.read(&waiter(), Sector(0), 16).unwrap();
    for copy in block.chunks_mut(4096) {
        copy[8..12].copy_from_slice(&later.to_le_bytes());
    }
    drive.zone(&waiter(), zonal_core::Op::ZoneReset, zonal_core::ZoneIndex(0)).unwrap();
    drive.write(&waiter(), Sector(0), block).unwrap();
    let opened = open(&drive, &polling(Clock::start()), None, MountOptions::default());
    let error = opened.err().unwrap().to_string();
    assert_eq!(
        error,
        format!("the file system has format version {later}, this program reads version {VERSION}")
    );
}
