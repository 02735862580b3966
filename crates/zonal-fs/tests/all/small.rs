//! The smallest possible drives: refused with a reason, or usable to the last block, again and
//! again.

use crate::common;
use crate::common::steps::step;
use crate::common::{Model, apply, bytes, contents, read_all, settle, waiter};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::ZoneCondition;
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::make::{MakeError, MakeOptions, look, make, open};
use zonal_fs::rebuild::{RebuildOptions, rebuild};
use zonal_fs::waiter::{Waiters, polling};
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::format::Header;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

const UUID: [u8; 16] = *b"as small as that";
const BLOCK: usize = 4096;

/// A drive, and the location of the metadata.
#[derive(Clone, Copy, Debug)]
struct Shape {
    zones: u32,
    conventional: u32,
    open: u32,
    active: u32,
    is_beside: bool,
}

/// A file system on a drive, and the directory of the file beside it.
struct Made {
    device: Arc<dyn Device>,
    directory: tempfile::TempDir,
    is_beside: bool,
}

fn waiters() -> Waiters {
    polling(Clock::start())
}

impl Made {
    fn new(shape: Shape) -> Result<Made, MakeError> {
        let Shape { zones, conventional, open, active, is_beside } = shape;
        let name = format!(
            "ram:size={}K,zone_size=512K,blocksize=4096,complete=poll,zone_nr_conv={conventional},\
             zone_max_open={open},zone_max_active={active}",
            zones * 512
        );
        let directory = tempfile::tempdir().unwrap();
        let made = Made { device: common::device(&name), directory, is_beside };
        let unit_bytes = Some(8 * BLOCK as u32);
        let options = MakeOptions::default().with_beside(made.beside()).with_unit_bytes(unit_bytes);
        make(&made.drive(), &waiters(), UUID, &options)?;
        Ok(made)
    }

    fn beside(&self) -> Option<PathBuf> {
        self.is_beside.then(|| self.directory.path().join("rows"))
    }

    fn drive(&self) -> Arc<Drive> {
        Arc::new(Drive::new(common::volume(self.device.clone())))
    }

    fn open(&self) -> FileSystem {
        let options = MountOptions::default().with_dirty_bytes(100_000);
        open(&self.drive(), &waiters(), self.beside(), options).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// Writes a file until no space is left, and returns its length in blocks.
fn fill(fs: &FileSystem) -> usize {
    let waiter = common::impatient();
    let ino = fs.create(&waiter, ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let chunk = bytes(1, 13 * BLOCK);
    common::fill_up(fs, ino, &chunk);
    fs.sync(&waiter).unwrap();
    let found = read_all(fs, ino).unwrap();
    assert!(found.chunks(chunk.len()).all(|piece| piece == &chunk[..piece.len()]));
    found.len() / BLOCK
}

/// Fills, modifies, empties, and fills again.
fn is_of_use(shape: Shape) {
    let made = Made::new(shape).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
    let mut fs = made.open();
    let blocks = fs.usage().blocks;
    let mut fewest = usize::MAX;
    for round in 0..4 {
        let filled = fill(&fs);
        fewest = fewest.min(filled);
        assert!(filled as u64 * 100 >= blocks * 95, "{shape:?}, round {round}: {filled} blocks of {blocks}");
        let ino = fs.lookup(ROOT, b"filler").unwrap();
        let again = fs.write(&common::impatient(), ino, 0, Payload::Bytes(&bytes(2, BLOCK)));
        assert!(again.is_ok() || again.is_err_and(|e| e.is_no_space()), "{shape:?}");
        settle(&fs);
        fs.check();
        if round == 1 {
            drop(fs);
            fs = made.open();
        }
        fs.unlink(&waiter(), ROOT, b"filler").unwrap();
        if round == 2 {
            fs.sync(&waiter()).unwrap();
        }
    }
    assert!(contents(&fs).unwrap().is_empty());
    settle(&fs);
    fs.check();
}

#[test]
fn smallest_drives_fill_up_and_empty_again() {
    for (open, active) in [(0, 0), (2, 2), (3, 4)] {
        let on = |zones, conventional, is_beside| Shape { zones, conventional, open, active, is_beside };
        // Five data zones, and one or three conventional ones.
        is_of_use(on(6, 1, true));
        is_of_use(on(8, 3, false));
    }
    for (open, active) in [(0, 0), (3, 3)] {
        // The conventional zone only has room for the superblock: five zones of metadata, and five
        // of data.
        is_of_use(Shape { zones: 11, conventional: 1, open, active, is_beside: false });
    }
    for (open, active) in [(0, 0), (5, 5), (0, 5)] {
        let on = |zones, is_beside| Shape { zones, conventional: 0, open, active, is_beside };
        // Five data zones, two for the superblock, and five for metadata if these are on the drive.
        is_of_use(on(7, true));
        is_of_use(on(12, false));
    }
}

/// The drive has no limits here. If it had, the write path would enforce them by waiting, and the
/// test would see nothing.
#[test]
fn zone_that_is_closed_early_is_finished_before_the_next_is_opened() {
    let device = common::device("ram:size=6M,zone_size=256K,zone_capacity=252K,blocksize=4096,complete=poll");
    let options = MountOptions::default().with_max_open_zones(2);
    let fs = common::make(common::volume(device), 8, options);
    let waiter = waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let put = |block: usize, blocks: usize| {
        let data = bytes(block as u64, blocks * BLOCK);
        fs.write(&waiter, ino, (block * BLOCK) as u64, Payload::Bytes(&data)).unwrap();
    };
    put(0, 100);
    put(0, 20);
    fs.sync(&waiter).unwrap();
    // From now on the collector has a zone that is not full.
    assert!(fs.collect(&waiter).unwrap());
    let drive = Drive::new(fs.volume().clone());
    let mut filled = 0;
    // Units of two blocks in zones of 63: each zone is closed with one block left, and nothing of
    // it is in flight then.
    for block in 0..100 {
        put(block, 1);
        let report = drive.report(&waiter).unwrap();
        let active = report.iter().filter(|zone| zone.condition.is_active()).count();
        assert!(active <= 2, "block {block}: {active} zones take resources of the drive");
        filled = report.iter().filter(|zone| zone.condition == ZoneCondition::Full).count();
        fs.sync(&waiter).unwrap();
    }
    assert!(filled > 3, "{filled} zones were closed");
    fs.check();
}

#[test]
fn too_small_drive_is_refused_with_its_shortfall() {
    let on = |zones, conventional, is_beside| Shape { zones, conventional, open: 0, active: 0, is_beside };
    let refusal = |shape: Shape| match Made::new(shape) {
        Err(MakeError::Unfit(why)) => why,
        Err(other) => panic!("{shape:?}: {other}"),
        Ok(_) => panic!("{shape:?} was not refused"),
    };
    for (shape, why) in [
        (on(6, 0, true), "4 zones are left for data; a file system needs 5: use a drive with more zones"),
        (on(5, 0, false), "0 zones are left for data; a file system needs 5: use a drive with more zones"),
        (on(11, 0, false), "4 zones are left for data; a file system needs 5: use a drive with more zones"),
        (on(7, 3, false), "4 zones are left for data; a file system needs 5: use a drive with more zones"),
        (on(9, 2, false), "2 zones are left for data; a file system needs 5: use a drive with more zones"),
    ] {
        assert_eq!(refusal(shape), why, "{shape:?}");
    }
    for (limit, needed, shape) in [
        (1, 2, Shape { active: 1, ..on(14, 3, false) }),
        (1, 2, Shape { open: 1, active: 3, ..on(14, 3, true) }),
        (2, 3, Shape { active: 2, ..on(14, 1, false) }),
        (2, 5, Shape { open: 2, active: 2, ..on(14, 0, false) }),
        (3, 5, Shape { open: 3, ..on(14, 0, true) }),
        (4, 5, Shape { active: 4, ..on(14, 0, false) }),
        (4, 5, Shape { open: 4, active: 5, ..on(14, 0, true) }),
    ] {
        assert_eq!(refusal(shape), too_few_active(limit, needed), "{shape:?}");
    }
}

fn too_few_active(limit: u32, needed: u32) -> String {
    format!(
        "the drive allows {limit} open or active zones, but a file system needs {needed}; use a drive with a higher \
         limit"
    )
}

/// Older programs made file systems on such drives, and finished the zones of the superblock or
/// updated it later.
#[test]
fn file_system_on_a_drive_with_too_few_active_zones_is_refused_and_left_alone() {
    for conventional in [0, 3] {
        let backing = Arc::new(CutBacking::new(1));
        let options = ImageOptions::default()
            .with_size(14 << 19)
            .with_zone_size(1 << 19)
            .with_zone_nr_conv(conventional)
            .with_blocksize(4096);
        options.format(&*backing).unwrap();
        let drive = || {
            let options = OpenOptions::default().with_threads(0);
            let device = ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options).unwrap();
            Arc::new(Drive::new(common::volume(Arc::new(device))))
        };
        make(&drive(), &waiters(), UUID, &MakeOptions::default()).unwrap();
        let usable = if conventional > 0 { 2 } else { 5 };
        for limit in [1, 2, 3, 4, 5] {
            let header = Header::parse(&backing.bytes()).unwrap();
            backing.write_at(&Header { open_max: 0, active_max: limit, ..header }.emit(), 0).unwrap();
            let before = backing.bytes();
            let options = MountOptions::default;
            let opened = open(&drive(), &waiters(), None, options()).map(drop);
            if limit >= usable {
                opened.unwrap_or_else(|error| panic!("{conventional}, {limit}: {error}"));
                continue;
            }
            let forced = RebuildOptions::default().with_force(true);
            let rebuilt = rebuild(&drive(), &waiters(), &forced).map(drop);
            let looked = look(&drive(), &waiters(), None, options()).map(drop);
            let again = make(&drive(), &waiters(), UUID, &MakeOptions::default().with_force(true)).map(drop);
            let refusals = [
                opened.unwrap_err().to_string(),
                rebuilt.unwrap_err().to_string(),
                looked.unwrap_err().to_string(),
                again.unwrap_err().to_string(),
            ];
            assert!(
                refusals
                    .iter()
                    .all(|said| *said == too_few_active(limit, if conventional > 0 { 2 } else { 5 })),
                "{limit}: {refusals:?}"
            );
            assert!(backing.bytes() == before, "{conventional}, {limit}: the drive was changed");
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let limits = prop_oneof![Just((0, 0)), Just((3, 3)), Just((0, 4))];
    let place = prop_oneof![Just((7, 0, false)), Just((3, 3, false)), Just((2, 0, true))];
    (limits, place, 5..8u32).prop_map(|((open, active), (own, conventional, is_beside), data)| {
        // Without conventional zones, the superblock takes two more.
        let of = |limit: u32| if conventional == 0 && limit > 0 { limit + 2 } else { limit };
        Shape { zones: own + data, conventional, open: of(open), active: of(active), is_beside }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn small_drive_is_what_a_naive_file_system_is(
        shape in shape(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let made = Made::new(shape).unwrap();
        let mut fs = made.open();
        let mut model = Model::default();
        for (i, step) in steps.iter().enumerate() {
            apply(&fs, &mut model, step, i as u64).unwrap();
            if i % 40 == 39 {
                fs.sync(&waiter()).unwrap();
                model.open.borrow_mut().clear();
                drop(fs);
                fs = made.open();
            }
            if i % 9 == 0 {
                settle(&fs);
                fs.check();
                prop_assert_eq!(&contents(&fs).unwrap(), &model.contents());
            }
        }
        settle(&fs);
        fs.check();
        prop_assert_eq!(contents(&fs).unwrap(), model.contents());
    }
}
