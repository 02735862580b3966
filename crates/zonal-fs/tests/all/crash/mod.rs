//! Power cuts at any step of the drive, metadata included: synced data survives, and no file has
//! another's data.
//!
//! A case makes random calls to a file system on a drive that loses power at some call of its
//! backing. The remaining file system is opened and compared with the permissible states: the names
//! of some moment since the last sync, and in each file, block by block, the contents of some
//! moment since it was last synced. Then the case continues with it.

use crate::common;
use crate::common::expected::Expected;
use crate::common::steps::any_step;
use crate::common::{FsStep, Model, apply, settle};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::path::Path;
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::fsck::salvage;
use zonal_fs::make::{Access, Beside, MakeOptions, make, make_in, open, open_rows_in, superblock};
use zonal_fs::waiter::polling;
use zonal_fs::{FileKind, FileSystem, FsError, MountOptions, NewFile, ROOT};
use zonal_io::clock::Clock;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

const UUID: [u8; 16] = *b"crashes a lot...";
const BLOCK: usize = 4096;

/// Steps per cycle.
const STEPS: u32 = 80;

/// Properties of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    zones: u64,
    conventional: u32,
    open: u32,
    is_beside: bool,
    /// Range of the size of the largest unit, in blocks.
    unit_blocks: (u32, u32),
}

/// Units of a few blocks.
const FEW: (u32, u32) = (2, 12);

/// Drives with so little room for metadata that it fills up.
const FULL: [Shape; 2] = [
    Shape { zones: 9, conventional: 3, open: 0, is_beside: false, unit_blocks: FEW },
    Shape { zones: 13, conventional: 0, open: 5, is_beside: false, unit_blocks: FEW },
];

/// Drives with their metadata in a file beside them.
const BESIDE: [Shape; 2] = [
    Shape { zones: 8, conventional: 0, open: 0, is_beside: true, unit_blocks: FEW },
    Shape { zones: 12, conventional: 0, open: 5, is_beside: true, unit_blocks: FEW },
];

const SHAPES: [Shape; 3] = [
    Shape { zones: 24, conventional: 16, open: 0, is_beside: false, unit_blocks: FEW },
    Shape { zones: 20, conventional: 0, open: 0, is_beside: false, unit_blocks: FEW },
    Shape { zones: 23, conventional: 16, open: 3, is_beside: false, unit_blocks: FEW },
];

/// Drives with units that have room for pieces of many files.
const MANY: [Shape; 3] = [
    Shape { zones: 20, conventional: 0, open: 0, is_beside: false, unit_blocks: (16, 64) },
    Shape { zones: 23, conventional: 16, open: 3, is_beside: false, unit_blocks: (16, 64) },
    Shape { zones: 12, conventional: 0, open: 5, is_beside: true, unit_blocks: (16, 64) },
];

fn format(shape: Shape, backing: &CutBacking) {
    let options = ImageOptions::default()
        .with_size(shape.zones << 19)
        .with_zone_size(1 << 19)
        .with_zone_nr_conv(shape.conventional)
        .with_zone_max_open(shape.open)
        .with_zone_max_active(shape.open)
        .with_blocksize(4096)
        .with_creation([9; 16]);
    options.format(backing).unwrap();
}

/// The devices that lose power: a drive, and a file beside it if that holds the metadata. Each
/// loses unsynced data independently.
struct Power {
    drive: Arc<CutBacking>,
    beside: Option<Arc<CutBacking>>,
    unit_bytes: u32,
}

impl Power {
    fn new(shape: Shape, random: &mut Pcg64Mcg) -> Power {
        let drive = Arc::new(CutBacking::new(random.random()));
        format(shape, &drive);
        let beside = shape.is_beside.then(|| Arc::new(CutBacking::new(random.random())));
        let (from, to) = shape.unit_blocks;
        Power { drive, beside, unit_bytes: random.random_range(from..to) * BLOCK as u32 }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<CutBacking>> {
        std::iter::once(&self.drive).chain(&self.beside)
    }

    fn cut(&self) {
        self.all().for_each(|backing| backing.cut());
    }

    /// Cuts the power at a random call to the drive or the file.
    fn cut_at_some_call(&self, random: &mut Pcg64Mcg) {
        let calls = random.random_range(1..600);
        let backing = self.beside.as_ref().filter(|_| random.random_bool(0.3)).unwrap_or(&self.drive);
        backing.cut_at(backing.calls() + calls);
    }

    fn restart(&self, random: &mut Pcg64Mcg) -> Power {
        let drive = Arc::new(self.drive.restart(random.random()));
        let beside = self.beside.as_ref().map(|file| Arc::new(file.restart(random.random())));
        Power { drive, beside, unit_bytes: self.unit_bytes }
    }

    fn reach_drive(&self) -> Result<Arc<Drive>, String> {
        let options = OpenOptions::default().with_threads(0);
        let device = ImageDevice::open_backing(Path::new("twin"), self.drive.clone(), &options);
        let device = device.map_err(|e| e.to_string())?;
        let options = VolumeOptions::default().without_budget();
        let volume = Volume::open(Arc::new(device), options).map_err(|e| e.to_string())?;
        Ok(Arc::new(Drive::new(Arc::new(volume))))
    }

    fn make(&self) -> Result<(), String> {
        let (drive, waiters) = (self.reach_drive()?, polling(Clock::start()));
        let options = MakeOptions::default().with_unit_bytes(self.unit_bytes);
        let made = match &self.beside {
            None => make(&drive, &waiters, UUID, &options),
            Some(file) => make_in(&drive, &waiters, UUID, &options, file.clone()),
        };
        made.map_err(|e| e.to_string())?;
        self.all().try_for_each(|backing| backing.sync()).map_err(|e| e.to_string())
    }

    fn reach(&self) -> Result<FileSystem, String> {
        let (drive, waiters) = (self.reach_drive()?, polling(Clock::start()));
        let dirty_bytes = 16 * u64::from(self.unit_bytes).max(18_750);
        let options = MountOptions::default().with_dirty_bytes(dirty_bytes).with_cache_bytes(1 << 20);
        let Some(file) = &self.beside else {
            return open(&drive, &waiters, None, options).map_err(|e| e.to_string());
        };
        let superblock = superblock(&drive, &common::waiter()).map_err(|e| e.to_string())?;
        let rows = open_rows_in(&drive, &waiters, file.clone(), Access::Use(&options));
        let rows = rows.map_err(|e| e.to_string())?;
        let opened =
            FileSystem::open(drive.volume().clone(), rows, superblock, options, true, &common::waiter());
        opened.map_err(|e| e.to_string())
    }
}

/// Replaces the metadata as a repair does, on drives that lose power in the midst of it.
#[test]
fn repair_that_is_cut_leaves_what_was_there_or_replaces_it() {
    const FILES: u32 = 150;
    let name = |n: u32| format!("{n:0>200}").into_bytes();
    for shape in [SHAPES[0], SHAPES[1], BESIDE[0]] {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let power = Power::new(shape, &mut random);
        power.make().unwrap();
        let fs = power.reach().unwrap();
        for n in 0..FILES {
            let file =
                fs.create(&common::waiter(), ROOT, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap();
            fs.fsync(&common::waiter(), file).unwrap();
        }
        power.cut();
        drop(fs);
        let power = power.restart(&mut random);
        let [drive, file] =
            [Some(&power.drive), power.beside.as_ref()].map(|backing| backing.map(|b| b.bytes()));
        let again = |seed| Power {
            drive: Arc::new(CutBacking::with_bytes(drive.as_ref().unwrap(), seed)),
            beside: file.as_ref().map(|bytes| Arc::new(CutBacking::with_bytes(bytes, seed))),
            unit_bytes: power.unit_bytes,
        };
        let mut cuts = 0;
        for call in 0.. {
            let power = again(call);
            let (drive, waiters) = (power.reach_drive().unwrap(), polling(Clock::start()));
            let beside = || power.beside.clone().map(|file| Beside::Backing(file));
            let salvaged = salvage(&drive, &waiters, beside()).unwrap();
            assert_eq!(salvaged.losses, []);
            power.all().for_each(|backing| backing.cut_at(backing.calls() + call));
            let is_done = salvaged.put_back(&drive, &waiters, beside()).is_ok();
            let was_cut = power.all().any(|backing| !backing.is_on());
            power.cut();
            drop(drive);
            let fs = power.restart(&mut random).reach().unwrap();
            for n in 0..FILES {
                let found = fs.lookup(ROOT, &name(n));
                assert!(found.is_ok(), "{shape:?}, call {call}, done {is_done}: file {n}: {found:?}");
            }
            if !was_cut {
                assert!(is_done);
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 5, "{shape:?}: {cuts} cuts");
    }
}

/// A step for a file system with full metadata.
fn full_step(random: &mut Pcg64Mcg) -> FsStep {
    match random.random_range(0..10) {
        0..6 => FsStep::Load(random.random_range(0..120)),
        6 => FsStep::Unload(random.random_range(0..120)),
        _ => any_step(random),
    }
}

/// A step that often leaves a short piece of an open file.
fn many_step(random: &mut Pcg64Mcg) -> FsStep {
    let file = random.random_range(0..6u8);
    match random.random_range(0..100) {
        0..48 => FsStep::Write(file, random.random_range(0..40) * BLOCK as u32, BLOCK as u32),
        48..52 => FsStep::Write(file, random.random_range(0..200_000), random.random_range(1..9000)),
        52..66 => FsStep::Open(file),
        66..68 => FsStep::Close(file),
        68..78 => FsStep::Fsync(file),
        78..82 => FsStep::Sync,
        _ => any_step(random),
    }
}

/// Checks the values of all attributes present.
fn check_loads(fs: &FileSystem) -> Result<(), String> {
    for name in fs.xattrs(ROOT).map_err(|e| e.to_string())? {
        let n = std::str::from_utf8(&name[1..]).unwrap().parse().unwrap();
        if fs.xattr(ROOT, &name).map_err(|e| e.to_string())? != common::load(n) {
            return Err(format!("attribute {n} is not what was set"));
        }
    }
    Ok(())
}

/// Statistics of a run, to detect a run that did nothing.
#[derive(Default, Debug)]
struct Done {
    cuts: u64,
    steps: u64,
    victims: u64,
    resets: u64,
    refused: u64,
    /// Refused for lack of room for metadata.
    full: u64,
    /// A commit found no room.
    died: u64,
    /// Units with several pieces, and the number of their pieces.
    combined_units: u64,
    combined_pieces: u64,
}

/// Executes steps until the power is cut, or up to a number.
fn run(
    fs: &FileSystem,
    expected: &mut Expected,
    random: &mut Pcg64Mcg,
    step: fn(&mut Pcg64Mcg) -> FsStep,
    done: &mut Done,
) {
    for _ in 0..STEPS {
        let step = step(random);
        let mut model = expected.now().clone();
        let seed = random.next_u64();
        match apply(fs, &mut model, &step, seed) {
            Ok(had_room) => {
                done.steps += 1;
                done.refused += u64::from(!had_room);
                done.full += u64::from(!had_room && matches!(step, FsStep::Load(_)));
                expected.done(&step, model);
            }
            Err(error) => {
                done.died += u64::from(matches!(&error, FsError::ReadOnly(why) if why.contains("no room")));
                // It may have been executed, or not, or in part.
                expected.interrupted(&step, seed);
                break;
            }
        }
    }
    let statistics = fs.statistics();
    done.victims += statistics.gc_victims;
    done.resets += statistics.resets;
    done.combined_units += statistics.combined_units;
    done.combined_pieces += statistics.combined_pieces;
}

fn case(shapes: &[Shape], seed: u64, cycles: u32, done: &mut Done) -> Result<(), String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let shape = shapes[random.random_range(0..shapes.len())];
    let steps = match shapes {
        _ if shapes == FULL => full_step,
        _ if shapes == MANY => many_step,
        _ => any_step,
    };
    let mut power = Power::new(shape, &mut random);
    power.make()?;
    let mut model = Model::default();
    for cycle in 0..cycles {
        let fs = power.reach().map_err(|e| format!("cycle {cycle}: it does not open: {e}"))?;
        let mut expected = Expected::new(model);
        if cycle > 0 {
            expected =
                Expected::new(expected.check(&fs).map_err(|e| format!("cycle {cycle}, opened again: {e}"))?);
        }
        power.cut_at_some_call(&mut random);
        run(&fs, &mut expected, &mut random, steps, done);
        // A cut at a call of one device cuts the other as well.
        power.cut();
        done.cuts += 1;
        expected.close_all();
        drop(fs);
        power = power.restart(&mut random);
        let fs = power.reach().map_err(|e| format!("cycle {cycle}: it does not open after the cut: {e}"))?;
        model = expected.check(&fs).map_err(|e| format!("cycle {cycle}: {e}"))?;
        check_loads(&fs).map_err(|e| format!("cycle {cycle}: {e}"))?;
        settle(&fs);
        fs.check();
        // The state that the next cycle starts from has to survive the next cut.
        fs.sync(&common::waiter()).map_err(|e: FsError| format!("cycle {cycle}: {e}"))?;
    }
    Ok(())
}

fn campaign(shapes: &[Shape], first: u64, cases: u64, cycles: u32) -> Done {
    let mut done = Done::default();
    for seed in first..first + cases {
        if let Err(why) = case(shapes, seed, cycles, &mut done) {
            panic!("seed {seed}: {why}");
        }
    }
    done
}

/// Number of cases, and the seed of the first.
fn asked(usual: u64) -> (u64, u64) {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    (number("ZONAL_CASES").unwrap_or(usual), number("ZONAL_SEED").unwrap_or(1))
}

#[test]
fn synced_data_survives_a_power_cut_anywhere() {
    let (cases, first) = asked(40);
    let done = campaign(&SHAPES, first, cases, 4);
    println!("{done:?}");
    if cases >= 40 {
        assert!(done.victims > 0 && done.resets > 0 && done.steps > 20 * done.cuts, "{done:?}");
    }
}

#[test]
fn full_metadata_survive_a_cut_anywhere() {
    let (cases, first) = asked(30);
    let done = campaign(&FULL, first, cases, 8);
    println!("{done:?}");
    assert_eq!(done.died, 0, "a commit found no room: {done:?}");
    if cases >= 30 {
        assert!(done.full > done.cuts, "{done:?}");
    }
}

#[test]
fn metadata_beside_the_drive_never_know_more_than_it_has() {
    let (cases, first) = asked(40);
    let done = campaign(&BESIDE, first, cases, 4);
    println!("{done:?}");
    if cases >= 40 {
        assert!(done.victims > 0 && done.resets > 0 && done.steps > 20 * done.cuts, "{done:?}");
    }
}

#[test]
fn units_of_many_files_survive_a_cut_anywhere() {
    let (cases, first) = asked(40);
    let done = campaign(&MANY, first, cases, 4);
    println!("{done:?}");
    if cases >= 40 {
        // About one per cut, as the time between two cuts is random, too.
        assert!(4 * done.combined_units > 3 * done.cuts, "{done:?}");
        assert!(done.combined_pieces > 3 * done.combined_units, "{done:?}");
        assert!(done.victims > 0 && done.resets > 0, "{done:?}");
    }
}
