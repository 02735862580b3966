//! Faults of every kind under load: synced data survives, losses are reported, and no byte is ever
//! wrong.
//!
//! A case makes random calls to a file system on a drive that follows a plan. Everything read
//! meanwhile and afterwards is compared with the permissible states. Then the drive stops failing,
//! and the file system is reopened, compared again, and checked by fsck.

use crate::common;
use crate::common::expected::Expected;
use crate::common::{FsStep, Model, apply, cases_of, read_all, settle};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::path::Path;
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::fsck::{self, Severity, check};
use zonal_fs::make::{Access, MakeOptions, make, open_rows, superblock};
use zonal_fs::waiter::Waiters;
use zonal_fs::{FileSystem, FsError, MountOptions, ROOT};
use zonal_io::device::Device;
use zonal_io::fault::{Fault, read_plan};
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

const UUID: [u8; 16] = *b"plan after plan.";
const BLOCK: u32 = 4096;

/// Every kind of rule: an error of each name, and each other fault, on the operations that it can
/// affect. `*` is replaced by the frequency.
const RULES: &[&str] = &[
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"boundary\"",
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"full\"",
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"read-only\"",
    "on = \"data\"\n*\nfault = \"refuse\"\nerror = \"offline\"",
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"invalid-write\"",
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"too-many-active\"",
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"too-many-open\"",
    "on = \"management\"\n*\nfault = \"refuse\"\nerror = \"invalid-transition\"",
    "on = \"management\"\n*\nfault = \"refuse\"\nerror = \"conventional\"",
    "on = \"data\"\n*\nfault = \"refuse\"\nerror = \"out-of-range\"",
    "on = \"any\"\n*\nfault = \"refuse\"\nerror = \"invalid-field\"",
    "on = \"management\"\n*\nfault = \"refuse\"\nerror = \"unsupported\"",
    "on = \"read\"\n*\nfault = \"refuse\"\nerror = \"medium\"",
    "on = \"writes\"\n*\nfault = \"refuse\"\nerror = \"medium\"",
    "on = \"reset\"\n*\nfault = \"refuse\"\nerror = \"medium\"",
    "on = \"finish\"\n*\nfault = \"refuse\"\nerror = \"medium\"",
    "on = \"flush\"\n*\nfault = \"refuse\"\nerror = \"medium\"",
    "on = \"report\"\n*\nfault = \"refuse\"\nerror = \"medium\"",
    "on = \"any\"\n*\nfault = \"refuse\"\nerror = \"busy\"",
    "on = \"any\"\n*\nfault = \"refuse\"\nerror = \"unit-attention\"",
    "on = \"any\"\n*\nfault = \"refuse\"\nerror = \"aborted\"",
    "on = \"any\"\n*\nfault = \"refuse\"\nerror = \"timed-out\"",
    "on = \"any\"\nskip = 40\ncount = 1\nfault = \"refuse\"\nerror = \"gone\"",
    "on = \"data\"\n*\nfault = \"refuse\"\nerrno = 28",
    "on = \"any\"\n*\nfault = \"fail\"\nerror = \"aborted\"",
    "on = \"writes\"\n*\nfault = \"fail\"\nerror = \"medium\"",
    "on = \"management\"\n*\nfault = \"fail\"\nerror = \"medium\"",
    "on = \"append\"\n*\nfault = \"torn\"\nerror = \"medium\"",
    "on = \"append\"\n*\nfault = \"torn\"\nblocks = 1\nerror = \"aborted\"",
    "*\nfault = \"busy\"",
    "*\nfault = \"attention\"\ncommands = 4",
    "on = \"any\"\n*\nfault = \"time-out\"\ntime = \"200us\"",
    "on = \"any\"\n*\nfault = \"time-out\"\ntime = \"200us\"\nexecuted = \"before\"",
    "on = \"writes\"\n*\nfault = \"time-out\"\ntime = \"200us\"\nexecuted = \"late\"\nlate = \"report\"",
    "on = \"writes\"\n*\nfault = \"time-out\"\ntime = \"200us\"\nexecuted = \"late\"",
    "on = \"writes\"\n*\nfault = \"time-out\"\ntime = \"200us\"\nexecuted = \"late\"\nlate = \"100us\"",
    "on = \"writes\"\nskip = 20\nevery = 25\ncount = 3\nfault = \"read-only\"",
    "on = \"writes\"\nskip = 20\nevery = 25\ncount = 3\nfault = \"offline\"",
    "on = \"read\"\nskip = 20\ncount = 1\nfault = \"offline\"",
    "on = \"flush\"\nnth = 5\nfault = \"power-cut\"",
    "on = \"writes\"\nnth = 50\nfault = \"power-cut\"\nin_flight = \"fail\"",
    "*\nfault = \"delay\"\ntime = \"50us\"",
    "on = \"writes\"\n*\nfault = \"reorder\"\nwhat = \"execution\"\nwindow = 4\nhold = \"100us\"",
    "*\nfault = \"reorder\"\nwhat = \"completion\"\nwindow = 3\nhold = \"100us\"",
];

/// Settings of a plan, in addition to its rules.
const SETTINGS: &[&str] = &[
    "",
    "settle = \"100us\"\n",
    "settle = \"never\"\n",
    "bad_blocks = [\"+40960-40990\", \"+20000-20007\"]\n",
    "bad_blocks = [\"+24000-32000\"]\nbad_blocks_once = true\n",
    "bad_blocks = [\"+36000-36800\"]\nbad_blocks_partial_io = true\n",
];

const TABLES: &[&str] = &[
    "",
    "[device]\nappend = false\n",
    "[device]\nwrite_zeroes = false\nkeeps_order = true\n",
    "[rates]\nbusy = \"1/20\"\nattention = \"1/50\"\nmedium = \"1/60\"\n",
    "[rates]\nfailed = \"1/40\"\ntorn = \"1/40\"\ninvalid-write = \"1/40\"\n",
    "[rates]\ntoo-many-open = \"1/30\"\ntoo-many-active = \"1/30\"\nreorder = \"1/5\"\n",
];

fn waiters() -> Waiters {
    Arc::new(|| Box::new(common::impatient()))
}

/// An image in memory: a drive with a volatile cache that has to be flushed.
const CACHED: &str = "cached";

fn device(name: &str) -> Arc<dyn Device> {
    if name != CACHED {
        return common::device(name);
    }
    let backing = Arc::new(CutBacking::new(1));
    let options = ImageOptions::default()
        .with_size(24 << 19)
        .with_zone_size(1 << 19)
        .with_zone_nr_conv(4)
        .with_blocksize(4096)
        .with_creation([9; 16]);
    options.format(&*backing).unwrap();
    let options = OpenOptions::default().with_threads(0);
    Arc::new(ImageDevice::open_backing(Path::new("twin"), backing, &options).unwrap())
}

/// Drives, and the location of their metadata.
const DRIVES: [&str; 5] = [
    CACHED,
    "ram:size=12M,zone_size=512K,blocksize=4096,zone_nr_conv=4",
    "ram:size=14M,zone_size=512K,blocksize=4096",
    "ram:size=14M,zone_size=512K,blocksize=4096,complete=poll,zone_max_open=5,zone_max_active=6",
    "ram:size=12M,zone_size=512K,blocksize=512,zone_nr_conv=4,complete=poll,zone_append_max_sectors=0",
];

fn step(random: &mut impl Rng) -> FsStep {
    let (file, other) = (random.random_range(0..5u8), random.random_range(0..5u8));
    // Whole blocks only: part of a block written over lost data that nobody asked about would mix
    // with older data.
    let place = random.random_range(0..60) * BLOCK;
    let length = [random.random_range(1..4) * BLOCK, random.random_range(1..70) * BLOCK];
    match random.random_range(0..100) {
        0..10 => FsStep::Create(file),
        10..60 => FsStep::Write(file, place, length[random.random_range(0..2)]),
        60..64 => FsStep::Truncate(file, place),
        64..68 => FsStep::Punch(file, place, length[1]),
        68..73 => FsStep::Unlink(file),
        73..75 => FsStep::Rename(file, other),
        75..77 => FsStep::Link(file, other),
        77..87 => FsStep::Fsync(file),
        87..91 => FsStep::Sync,
        91..96 => FsStep::Maintain,
        _ => FsStep::Collect,
    }
}

/// Statistics of a run.
#[derive(Default, Debug)]
struct Done {
    steps: u64,
    fired: u64,
    failed_units: u64,
    /// Reads and writes that returned an error.
    told: u64,
    /// File systems that no longer accepted changes.
    dead: u64,
    victims: u64,
    lost_zones: u64,
}

struct Case {
    drive: Arc<dyn Device>,
    fault: Arc<Fault>,
    expected: Expected,
    random: Pcg64Mcg,
}

fn mount(device: Arc<dyn Device>) -> Result<FileSystem, String> {
    let options = VolumeOptions::default().without_budget();
    let volume = Volume::open(device, options).map_err(|e| e.to_string())?;
    let drive = Arc::new(Drive::new(Arc::new(volume)));
    let options = MountOptions::default().with_dirty_bytes(300_000);
    zonal_fs::make::open(&drive, &waiters(), None, options).map_err(|e| e.to_string())
}

impl Case {
    fn new(name: &str, plan: &str, seed: u64) -> Case {
        let drive = device(name);
        let options = MakeOptions::default().with_unit_bytes(8 * BLOCK);
        make(&Arc::new(Drive::new(common::volume(drive.clone()))), &waiters(), UUID, &options).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), plan).unwrap();
        let plan = read_plan(file.path()).unwrap_or_else(|e| panic!("{e}\n{plan}"));
        let fault = Arc::new(Fault::new(drive.clone(), plan));
        Case {
            drive,
            fault,
            expected: Expected::new(Model::default()),
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    fn run(mut self, steps: u32, done: &mut Done) -> Result<(), String> {
        let device: Arc<dyn Device> = self.fault.clone();
        // A failed mount has changed nothing.
        if let Ok(fs) = mount(device) {
            let worked = self.work(&fs, steps, done);
            self.expected.close_all();
            worked?;
            let statistics = fs.statistics();
            done.failed_units += statistics.failed_units;
            done.victims += statistics.gc_victims;
            done.lost_zones += u64::from(fs.usage().read_only_zones + fs.usage().offline_zones);
        }
        done.fired += self.fault.fired_each().iter().sum::<u64>();
        let fs = mount(self.drive.clone()).map_err(|e| format!("on the drive that is well again: {e}"))?;
        let model = self.expected.check(&fs).map_err(|e| format!("on the drive that is well again: {e}"))?;
        settle(&fs);
        fs.check();
        fs.sync(&common::waiter()).map_err(|e| e.to_string())?;
        drop(fs);
        self.expected = Expected::new(model);
        self.check_rows()
    }

    /// Executes steps until the file system accepts no more.
    fn work(&mut self, fs: &FileSystem, steps: u32, done: &mut Done) -> Result<(), String> {
        for n in 0..steps {
            let (step, seed) = (step(&mut self.random), self.random.next_u64());
            let mut model = self.expected.now().clone();
            match apply(fs, &mut model, &step, seed) {
                Ok(_) => self.expected.done(&step, model),
                Err(FsError::Account(why)) => return Err(format!("step {n}, {step:?}: {why}")),
                Err(FsError::ReadOnly(_) | FsError::Drive(_) | FsError::Store(_)) => {
                    self.expected.interrupted(&step, seed);
                    done.dead += 1;
                    break;
                }
                Err(error) => {
                    self.expected.interrupted(&step, seed);
                    done.told += 1;
                    self.adopt(fs).map_err(|e| format!("step {n}, {step:?}, {error}: {e}"))?;
                }
            }
            done.steps += 1;
            if n % 10 == 0 {
                self.read(fs, done).map_err(|e| format!("step {n}: {e}"))?;
            }
        }
        self.read(fs, done)
    }

    /// After a refusal, or a loss that is reported only once, adopts the files as they are.
    /// Unreadable ones are removed.
    fn adopt(&mut self, fs: &FileSystem) -> Result<(), String> {
        let mut model = self.expected.now().clone();
        for (name, file) in model.names.clone() {
            let name_there = common::name(name);
            let found = fs.lookup(ROOT, &name_there).and_then(|ino| read_all(fs, ino));
            if let Ok(found) = found {
                self.expected.explains(file, &found).map_err(|e| format!("f{name}: {e}"))?;
                model.files.insert(file, found);
            } else if fs.unlink(&common::waiter(), ROOT, &name_there).is_ok() {
                model.names.remove(&name);
                // A commit may come before the next name is removed.
                self.expected.moments.push(model.clone());
            }
        }
        model.files.retain(|file, _| model.names.values().any(|named| named == file));
        self.expected.moments.push(model);
        Ok(())
    }

    /// Checks everything that can be read.
    fn read(&self, fs: &FileSystem, done: &mut Done) -> Result<(), String> {
        for (name, file) in &self.expected.now().names {
            let Ok(ino) = fs.lookup(ROOT, &common::name(*name)) else { continue };
            match read_all(fs, ino) {
                Ok(found) => self.expected.explains(*file, &found).map_err(|e| format!("f{name}: {e}"))?,
                Err(FsError::Account(why)) => return Err(format!("f{name}: {why}")),
                Err(_) => done.told += 1,
            }
        }
        Ok(())
    }

    fn check_rows(&self) -> Result<(), String> {
        let drive = Arc::new(Drive::new(common::volume(self.drive.clone())));
        let superblock = superblock(&drive, &common::waiter()).map_err(|e| e.to_string())?;
        let rows = open_rows(&drive, &waiters(), None, &superblock, Access::Use(&MountOptions::default()));
        let rows = rows.map_err(|e| e.to_string())?;
        let options = fsck::Options::default().with_data(true);
        let found =
            check(&rows, &superblock, &drive, &common::waiter(), options).map_err(|e| e.to_string())?;
        // Counts of blocks and positions are right whatever fails.
        let is_wrong = |finding: &&fsck::Finding| {
            use fsck::Finding::*;
            let is_of_rows = matches!(
                finding,
                Blocks { .. }
                    | PositionOfNothing { .. }
                    | NoPosition { .. }
                    | NextPosition { .. }
                    | Opening { .. }
            );
            is_of_rows || finding.severity() == Severity::Lost
        };
        match found.iter().find(is_wrong) {
            Some(finding) => Err(format!("fsck: {finding}")),
            None => Ok(()),
        }
    }
}

/// A rule with this frequency, for zones of data and metadata alike.
fn rule(rule: &str, often: &str) -> String {
    // These operations are rare.
    let is_rare =
        ["management", "reset", "finish", "report"].iter().any(|on| rule.contains(&format!("\"{on}\"")));
    let often = if is_rare { "rate = \"1/2\"" } else { often };
    format!("[[rule]]\n{}\n\n", rule.replace('*', often))
}

/// A plan. A drive that never settles late writes would block their zones for good, so that
/// combination is left out.
fn plan(seed: u64, settings: &str, rules: &str, tables: &str) -> String {
    let settings = if rules.contains("time") && settings.contains("never") { SETTINGS[1] } else { settings };
    format!("seed = {seed}\n{settings}\n{tables}\n{rules}")
}

fn case(name: &str, plan: &str, seed: u64, steps: u32, done: &mut Done) {
    let result = Case::new(name, plan, seed).run(steps, done);
    result.unwrap_or_else(|why| panic!("seed {seed}, {name}: {why}\n{plan}"));
}

/// Slow: runs every rule four times on each drive.
#[test]
fn each_fault_alone_costs_no_synced_byte_and_shows_no_wrong_one() {
    let mut done = Done::default();
    for (n, text) in RULES.iter().enumerate() {
        let before = done.fired;
        for (seed, often) in
            ["every = 17", "rate = \"1/6\"", "rate = \"1/3\"", "skip = 3\nevery = 2\ncount = 20"]
                .iter()
                .enumerate()
        {
            let seed = (10 * n + seed) as u64;
            for drive in DRIVES {
                let rule = rule(text, often);
                // Few zones are finished: small commits leave the store in its zone for long.
                let steps = if rule.contains("\"finish\"") { 600 } else { 130 };
                case(drive, &plan(seed, SETTINGS[seed as usize % 3], &rule, ""), seed, steps, &mut done);
            }
        }
        assert!(done.fired > before, "{text} never fired");
    }
    for (seed, settings) in SETTINGS.iter().enumerate() {
        for tables in TABLES {
            let seed = seed as u64;
            case(DRIVES[seed as usize % 4], &plan(seed, settings, "", tables), seed, 150, &mut done);
        }
    }
    println!("{done:?}");
    assert!(
        done.failed_units > 500 && done.told > 200 && done.victims > 20 && done.lost_zones > 20,
        "{done:?}"
    );
}

#[test]
fn mixtures_of_faults_cost_no_synced_byte_and_show_no_wrong_one() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (cases, first) =
        (number("ZONAL_CASES").unwrap_or_else(|| cases_of(100, 30)), number("ZONAL_SEED").unwrap_or(1));
    let mut done = Done::default();
    for seed in first..first + cases {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let rules: String = (0..random.random_range(2..6))
            .map(|_| {
                let often = format!("rate = \"1/{}\"", random.random_range(10..60));
                rule(RULES[random.random_range(0..RULES.len())], &often)
            })
            .collect();
        let settings = SETTINGS[random.random_range(0..SETTINGS.len())];
        let tables = TABLES[random.random_range(0..TABLES.len())];
        let drive = DRIVES[random.random_range(0..DRIVES.len())];
        case(drive, &plan(seed, settings, &rules, tables), seed, 120, &mut done);
    }
    println!("{done:?}");
}
