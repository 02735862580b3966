//! A hundred threads waiting for one event use little CPU time, and other callers are served
//! meanwhile.
//!
//! A slow device delays the event. CPU times are measured for the process, so tests run one at a
//! time.

mod common;

use common::{bytes, device, impatient, make, processor_time, settle, volume, waiter};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, sleep};
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op};
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT, Target};
use zonal_io::device::Device;
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};

const BLOCK: usize = 4096;

/// Number of waiting threads.
const THREADS: usize = 100;

/// Size of a write in blocks: one unit.
const UNIT: usize = 7;

/// Duration of the measurement of CPU time.
const MEASURED: Duration = Duration::from_secs(4);

/// Delay of the device: longer than the measurement.
const LATE: Nanos = Nanos(8_000_000_000);

/// Time limit for preparations.
const PATIENCE: Duration = Duration::from_secs(20);

static ALONE: Mutex<()> = Mutex::new(());

/// Measures the share of a core used by this process.
fn share_of_a_core() -> f64 {
    let (begin, used) = (Instant::now(), processor_time());
    sleep(MEASURED);
    (processor_time() - used).as_secs_f64() / begin.elapsed().as_secs_f64()
}

struct Bench {
    fault: Arc<Fault>,
    fs: FileSystem,
    files: Vec<u64>,
    is_over: AtomicBool,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// A file system of 16 MiB, with one unit-sized file for each thread and `fillers` more.
    fn new(dirty_bytes: u64, fillers: usize) -> Bench {
        let alone = ALONE.lock();
        let ram = device("ram:size=16M,zone_size=256K,blocksize=4096");
        let fault = Arc::new(Fault::new(ram, Plan::default()));
        let inner: Arc<dyn Device> = fault.clone();
        let fs = make(volume(inner), 8, MountOptions::default().with_dirty_bytes(dirty_bytes));
        let files = (0..THREADS + fillers).map(|n| {
            let new = NewFile::new(FileKind::File, 0o644);
            let ino = fs.create(&impatient(), ROOT, format!("f{n}").as_bytes(), &new).unwrap();
            fs.write(&impatient(), ino, 0, Payload::Bytes(&bytes(n as u64, UNIT * BLOCK))).unwrap();
            ino
        });
        let files = files.collect();
        fs.sync(&impatient()).unwrap();
        Bench { fault, fs, files, is_over: AtomicBool::new(false), _alone: alone }
    }

    /// Delays commands of this kind from now on.
    fn answers_late(&self, op: Op) {
        self.fault.inject(Rule::new(Effect::Delay(LATE)).on(Ops::of(&[op])));
    }

    /// Starts a thread for each file that writes it again and again.
    fn overwrite<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        for (n, ino) in self.files.iter().take(THREADS).enumerate() {
            scope.spawn(move || {
                let unit = bytes(n as u64, UNIT * BLOCK);
                while !self.is_over.load(Ordering::Acquire) {
                    self.fs.write(&impatient(), *ino, 0, Payload::Bytes(&unit)).unwrap();
                }
            });
        }
    }

    /// Ends the loops of the threads. The device is no longer slow.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.fault.clear_rules();
    }
}

/// Ends the threads even if a check fails, because their scope waits for them.
struct End<'a>(&'a Bench);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// A full drive with slow resets: one writer resets zones, and all others wait for space.
fn wait_for_space(meanwhile: impl FnOnce(&Bench)) {
    let bench = Bench::new(1 << 24, 270);
    std::thread::scope(|scope| {
        let _end = End(&bench);
        bench.overwrite(scope);
        until("they wait for the collector", || bench.fs.statistics().resets > 0);
        bench.answers_late(Op::ZoneReset);
        let waiting = || bench.fs.status().activity.unwrap().waiting as usize;
        until("all writers wait for space", || waiting() >= THREADS - 1);
        meanwhile(&bench);
        assert!(waiting() >= THREADS - 1, "they wait to the end");
    });
    settle(&bench.fs);
    bench.fs.check();
}

#[test]
fn hundred_writers_that_wait_for_space_take_little_time() {
    wait_for_space(|_| {
        let share = share_of_a_core();
        assert!(share < 0.05, "{share:.3} of a core");
    });
}

#[test]
fn reads_return_while_all_writers_wait_for_space() {
    wait_for_space(|bench| {
        for (n, ino) in bench.files.iter().enumerate() {
            let begin = Instant::now();
            let mut found = vec![0; UNIT * BLOCK];
            bench.fs.read(&impatient(), *ino, 0, Target::Bytes(&mut found)).unwrap();
            assert!(found == bytes(n as u64, UNIT * BLOCK), "file {n}");
            assert!(begin.elapsed() < Duration::from_millis(500), "file {n}: {:?}", begin.elapsed());
        }
    });
}

#[test]
fn hundred_writers_at_the_dirty_limit_take_little_time() {
    let bench = Bench::new((8 * BLOCK) as u64, 0);
    bench.answers_late(Op::Append);
    std::thread::scope(|scope| {
        let _end = End(&bench);
        bench.overwrite(scope);
        until("a unit is in flight", || !bench.fs.is_quiet());
        sleep(Duration::from_millis(200));
        let share = share_of_a_core();
        assert!(share < 0.05, "{share:.3} of a core");
    });
    settle(&bench.fs);
    bench.fs.check();
}

#[test]
fn hundred_writers_of_a_held_file_take_little_time() {
    let bench = Bench::new(1 << 24, 0);
    bench.answers_late(Op::Append);
    std::thread::scope(|scope| {
        let _end = End(&bench);
        // A truncation within a block holds the file until the rest of the block is on the drive.
        let (fs, ino) = (&bench.fs, bench.files[0]);
        scope.spawn(move || fs.truncate(&impatient(), ino, 100).unwrap());
        until("the file is held", || !fs.is_quiet());
        for n in 0..THREADS {
            scope.spawn(move || fs.write(&impatient(), ino, (n * BLOCK) as u64, Payload::Bytes(&[1; 1])));
        }
        sleep(Duration::from_millis(200));
        let share = share_of_a_core();
        assert!(share < 0.05, "{share:.3} of a core");
    });
    settle(&bench.fs);
    bench.fs.check();
}

/// A thread that waits for space does background steps, and checks after each whether space is
/// available.
#[test]
fn step_of_the_collector_copies_a_batch() {
    let options = MountOptions::default().with_low_space_percent(100);
    let fs = make(volume(device("ram:size=128M,zone_size=8M,blocksize=4096")), 16, options);
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let open = fs.open_file(ino).unwrap();
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(1, 64 << 20))).unwrap();
    for at in (0..64 << 20).step_by(1 << 20) {
        fs.punch(&waiter(), ino, at..at + (512 << 10)).unwrap();
    }
    open.close(&waiter()).unwrap();
    fs.sync(&waiter()).unwrap();
    let copied = || fs.statistics().gc_blocks;
    let mut steps = Vec::new();
    while fs.background_step(&waiter()).unwrap() {
        steps.push(copied() - steps.iter().sum::<u64>());
    }
    let (batch, zone) = (8 * 15, (8 << 20) / BLOCK as u64);
    assert!(copied() > zone / 2 && steps.iter().all(|step| *step <= batch), "{steps:?}");
    fs.check();
}
