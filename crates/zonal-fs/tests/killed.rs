//! Processes that use the library are killed at random moments, again and again on the same image.
//! Synced data must survive, and no file may have bytes that it never contained.
//!
//! The killed process is this program itself. Its threads do random steps, each in its own
//! directory, and log each completed step. The parent kills it, repeats the steps on file systems
//! in memory, and compares.
//!
//! `ZONAL_KILLS` sets the number of kills, `ZONAL_KILL_SEED` the seed of the random numbers. The
//! moment at which the kernel kills the process is not seeded, so a run cannot be repeated exactly.

mod common;

use common::expected::Expected;
use common::number;
use common::steps::any_step;
use common::{FsStep, Model, apply, device, make, read_all, volume, waiter};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::make::{MakeOptions, make as make_on, open};
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT};
use zonal_io::clock::Clock;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

/// Threads of a process, with a directory each.
const THREADS: u64 = 3;

/// Steps of a process that is not killed.
const STEPS_MAX: u32 = 20_000;

/// Maximum number of steps before a kill.
const STEPS: u64 = 400;

/// Time limit for one step of a process.
const PATIENCE: Duration = Duration::from_secs(60);

fn drive(image: &Path) -> Arc<Drive> {
    let device = ImageDevice::open(image, &OpenOptions::default()).unwrap();
    Arc::new(Drive::new(volume(Arc::new(device))))
}

fn reach(image: &Path) -> FileSystem {
    let options = MountOptions::default().with_dirty_bytes(1 << 20).with_cache_bytes(1 << 20);
    open(&drive(image), &polling(Clock::start()), None, options).unwrap()
}

/// Directory of a thread.
fn directory(thread: u64) -> Vec<u8> {
    format!("d{thread}").into_bytes()
}

/// Steps of a thread in a process, with the seeds of their bytes.
struct Steps(Pcg64Mcg);

impl Steps {
    fn new(life: u64, thread: u64) -> Steps {
        Steps(Pcg64Mcg::seed_from_u64(life * THREADS + thread))
    }

    fn next(&mut self) -> (FsStep, u64) {
        (any_step(&mut self.0), self.0.random())
    }
}

/// Reads the contents of a directory as a model.
fn model_of(fs: &FileSystem, directory: u64) -> Model {
    let mut model = Model { directory, ..Model::default() };
    fs.list(directory, None, |name, entry| {
        model.names.insert(std::str::from_utf8(&name[1..]).unwrap().parse().unwrap(), entry.ino);
        ControlFlow::Continue(())
    })
    .unwrap();
    for ino in model.names.values() {
        model.files.insert(*ino, read_all(fs, *ino).unwrap());
        model.next = model.next.max(*ino);
    }
    model
}

/// Body of the killed process; run only by [`Campaign::life`].
#[test]
#[ignore = "it is run to be killed"]
fn process_that_is_killed() {
    let place = PathBuf::from(std::env::var_os("ZONAL_KILLED_PLACE").unwrap());
    let life = number("ZONAL_KILLED_LIFE", 0);
    let fs = reach(&place.join("image"));
    let work = |thread: u64| {
        let log = File::options().append(true).open(place.join("log")).unwrap();
        let mut model = model_of(&fs, fs.lookup(ROOT, &directory(thread)).unwrap());
        let mut steps = Steps::new(life, thread);
        for _ in 0..STEPS_MAX {
            let (step, seed) = steps.next();
            assert!(apply(&fs, &mut model, &step, seed).unwrap(), "it has room");
            (&log).write_all(&[thread as u8]).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(thread));
        }
    });
}

/// A file system in memory with the contents of `model`.
fn twin(model: &Model) -> FileSystem {
    let fs = make(volume(device("ram:size=128m,zone_size=2m,blocksize=4096")), 64, MountOptions::default());
    let mut first = std::collections::BTreeMap::new();
    for (name, file) in &model.names {
        let name = format!("f{name}").into_bytes();
        if let Some(ino) = first.get(file) {
            fs.link(&waiter(), *ino, ROOT, &name).unwrap();
            continue;
        }
        let ino = fs.create(&waiter(), ROOT, &name, &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(&model.files[file])).unwrap();
        first.insert(*file, ino);
    }
    fs
}

/// The killed process. It does not outlive a failed test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Campaign {
    dir: TempDir,
    random: Pcg64Mcg,
    models: Vec<Model>,
    steps: u64,
    syncs: u64,
    /// Processes killed before their first step.
    early: u64,
}

impl Campaign {
    fn new(conventional: u32, seed: u64) -> Campaign {
        let dir = tempfile::tempdir().unwrap();
        let options = ImageOptions::default()
            .with_size(96 << 20)
            .with_zone_size(2 << 20)
            .with_zone_nr_conv(conventional)
            .with_blocksize(4096);
        let image = dir.path().join("image");
        options.create(&image).unwrap();
        let options = MakeOptions::default().with_unit_bytes(256 << 10);
        make_on(&drive(&image), &polling(Clock::start()), *b"it will be kill.", &options).unwrap();
        let fs = reach(&image);
        for thread in 0..THREADS {
            let new = NewFile::new(FileKind::Directory, 0o755);
            fs.create(&waiter(), ROOT, &directory(thread), &new).unwrap();
        }
        fs.sync(&waiter()).unwrap();
        let models = (0..THREADS).map(|_| Model::default()).collect();
        let random = Pcg64Mcg::seed_from_u64(seed << 8 | u64::from(conventional));
        Campaign { dir, random, models, steps: 0, syncs: 0, early: 0 }
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Runs a process and kills it. Returns the number of logged steps of each thread.
    fn life(&mut self, life: u64) -> Vec<u64> {
        let log = self.dir.path().join("log");
        File::create(&log).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process_that_is_killed", "--ignored"]);
        command.env("ZONAL_KILLED_PLACE", self.dir.path()).env("ZONAL_KILLED_LIFE", life.to_string());
        let mut child = Killed(command.stdout(Stdio::null()).spawn().unwrap());
        let least = if self.random.random_bool(0.15) { 0 } else { self.random.random_range(0..STEPS) };
        let begin = Instant::now();
        while std::fs::metadata(&log).unwrap().len() < least {
            assert!(begin.elapsed() < PATIENCE, "life {life}: {least} steps take too long");
            let ended = child.0.try_wait().unwrap();
            assert!(ended.is_none(), "life {life}: it ended without a kill: {ended:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
        // If there is no step to wait for, kill it while it starts.
        let range = if least == 0 { 0..10_000 } else { 0..2000 };
        std::thread::sleep(Duration::from_micros(self.random.random_range(range)));
        child.0.kill().unwrap();
        let status = child.0.wait().unwrap();
        assert_eq!(status.code(), None, "life {life}: it ended without a kill");
        let noted = std::fs::read(&log).unwrap();
        self.early += u64::from(noted.is_empty());
        (0..THREADS)
            .map(|thread| noted.iter().filter(|by| u64::from(**by) == thread).count() as u64)
            .collect()
    }

    /// Permissible states of the directory of `thread`.
    fn expected(&mut self, life: u64, thread: u64, done: u64) -> Expected {
        let mut model = self.models[thread as usize].clone();
        let (fs, mut steps) = (twin(&model), Steps::new(life, thread));
        let mut expected = Expected::new(model.clone());
        for _ in 0..done {
            let (step, seed) = steps.next();
            assert!(apply(&fs, &mut model, &step, seed).unwrap(), "it has room");
            self.syncs += u64::from(matches!(step, FsStep::Sync | FsStep::Fsync(_)));
            expected.done(&step, model.clone());
        }
        self.steps += done;
        // The next step may have been executed completely without being logged.
        let (step, seed) = steps.next();
        expected.interrupted(&step, seed);
        apply(&fs, &mut model, &step, seed).unwrap();
        expected.moments.push(model);
        expected.close_all();
        expected
    }

    fn check(&mut self, life: u64, done: &[u64]) -> Result<(), String> {
        let expected: Vec<Expected> =
            (0..THREADS).zip(done).map(|(thread, done)| self.expected(life, thread, *done)).collect();
        let fs = reach(&self.image());
        for (thread, expected) in (0..THREADS).zip(expected) {
            let inside = fs.lookup(ROOT, &directory(thread)).map_err(|e| e.to_string())?;
            let found = expected.check_in(&fs, inside);
            self.models[thread as usize] =
                found.map_err(|e| format!("life {life}, thread {thread}, {done:?} steps: {e}"))?;
        }
        fs.check();
        // The state that the next round starts from has to be durable.
        fs.sync(&waiter()).map_err(|e| e.to_string())
    }
}

fn campaign(conventional: u32) {
    let (kills, first) = (number("ZONAL_KILLS", 40) / 2, number("ZONAL_KILL_SEED", 0));
    let mut campaign = Campaign::new(conventional, first);
    for life in 0..kills {
        let life = first + life;
        let done = campaign.life(life);
        campaign.check(life, &done).unwrap_or_else(|why| panic!("{why}"));
    }
    let Campaign { steps, syncs, early, .. } = campaign;
    println!(
        "killed: {kills} processes, {early} before their first step; {steps} steps, {syncs} of them syncs"
    );
    assert!(
        kills < 20 || (steps > 50 * kills && syncs > kills && early < kills / 2),
        "{steps}, {syncs}, {early}"
    );
}

#[test]
fn synced_data_in_zones_survives_process_kills() {
    campaign(0);
}

#[test]
fn synced_data_in_conventional_zones_survives_process_kills() {
    campaign(4);
}

#[test]
fn canary_check_catches_a_file_that_is_gone_and_one_with_other_bytes() {
    let campaign = Campaign::new(0, 0);
    let fs = reach(&campaign.image());
    let inside = fs.lookup(ROOT, &directory(0)).unwrap();
    let file = fs.create(&waiter(), inside, b"f1", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter(), file, 0, Payload::Bytes(&[1; 9000])).unwrap();
    let expected = Expected::new(model_of(&fs, inside));
    expected.check_in(&fs, inside).unwrap();
    fs.write(&waiter(), file, 5000, Payload::Bytes(&[2])).unwrap();
    expected.check_in(&fs, inside).unwrap_err();
    fs.write(&waiter(), file, 5000, Payload::Bytes(&[1])).unwrap();
    expected.check_in(&fs, inside).unwrap();
    fs.unlink(&waiter(), inside, b"f1").unwrap();
    expected.check_in(&fs, inside).unwrap_err();
}
