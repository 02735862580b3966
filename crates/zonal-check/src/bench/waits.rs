//! Waiting threads: the delay until they see a completion reaped by another thread, and the cost of
//! a hundred of them.

use super::Effort;
use super::measure::Samples;
use super::path::{SECTORS, null};
use super::report::{Bound, Report};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use zonal_core::Sector;
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

/// Device time of a write that a helper reaps: long enough for its owner to sleep.
const REAPED_AFTER: Duration = Duration::from_micros(300);
/// Device time of a write when a hundred writers share a zone and all but one wait.
const WRITES_TAKE: Duration = Duration::from_millis(1);
const WRITERS: usize = 100;
/// Operations of an effort for one write of each writer, or one wait of the owner.
const OPERATIONS_A_WAIT: u64 = 1000;

fn volume(takes: Duration) -> Arc<Volume> {
    let options = EmulatedOptions::default()
        .with_size(1 << 40)
        .with_zone_size(1 << 36)
        .with_completion_nsec(takes.as_nanos() as u64);
    let options_of = VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(false);
    Arc::new(Volume::open(null(options), options_of).expect("an emulated device opens"))
}

fn append() -> Request {
    Request::append(Sector(0), SECTORS, IoBuf::zeroed(SECTORS * 512))
}

/// Time from a helper thread reaping a completion to the waiting thread seeing it.
pub(super) fn seen(effort: Effort, report: &mut Report) {
    let waits = (effort.operations / OPERATIONS_A_WAIT).max(20);
    let volume = volume(REAPED_AFTER);
    let clock = Clock::start();
    let is_over = AtomicBool::new(false);
    let rounds = thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                volume.poll(clock.now());
            }
        });
        let round = |_| late_in_us((0..waits).filter_map(|_| wait_for_helper(&volume, clock)));
        let rounds = (0..effort.rounds).map(round).collect();
        is_over.store(true, Ordering::Relaxed);
        rounds
    });
    let samples = Samples { rounds };
    let bare = Samples { rounds: (0..effort.rounds).map(|_| bare_wakes(waits)).collect() };
    let name = "a completion reaped by a helper is seen, 99 in 100 within";
    report.add(name, "", &samples, "us", Bound::AtMost(50.0));
    let ratio = samples.against(&bare, |seen, bare| seen / bare);
    report.add(name, "a bare wake-up", &ratio, "x", Bound::None);
}

/// 99th percentile, in microseconds.
fn late_in_us(late: impl Iterator<Item = u64>) -> f64 {
    let mut late: Vec<u64> = late.collect();
    late.sort_unstable();
    let place = (late.len() * 99).div_ceil(100).checked_sub(1).expect("the helper reaps");
    late[place].max(1) as f64 / 1e3
}

/// Delay of a thread that is woken by a spinning one: the kernel's own share.
fn bare_wakes(waits: u64) -> f64 {
    let clock = Clock::start();
    let (due, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let sleeper = thread::current();
    thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let at = due.load(Ordering::Acquire);
                if at > 0 && clock.now().0 >= at {
                    due.store(0, Ordering::Relaxed);
                    woken.store(clock.now().0, Ordering::Release);
                    sleeper.unpark();
                }
            }
        });
        let late = late_in_us((0..waits).map(|_| {
            woken.store(0, Ordering::Relaxed);
            due.store(clock.now().0 + REAPED_AFTER.as_nanos() as u64, Ordering::Release);
            while woken.load(Ordering::Acquire) == 0 {
                thread::park_timeout(Duration::from_secs(1));
            }
            clock.now().0 - woken.load(Ordering::Acquire)
        }));
        is_over.store(true, Ordering::Relaxed);
        late
    })
}

/// Waits for one write. Returns the delay in nanoseconds with which its completion was seen, if the
/// helper reaped it.
fn wait_for_helper(volume: &Volume, clock: Clock) -> Option<u64> {
    let owner = thread::current().id();
    let reaped = Arc::new((AtomicU64::new(0), AtomicBool::new(false)));
    let set = reaped.clone();
    let channel = volume.channel(move |completion| {
        completion.result.as_ref().expect("it succeeds");
        if thread::current().id() != owner {
            set.0.store(clock.now().0, Ordering::Relaxed);
        }
        set.1.store(true, Ordering::Release);
    });
    volume.submit(clock.now(), &channel, append());
    let has_come = || reaped.1.load(Ordering::Acquire);
    while !has_come() {
        volume.poll(clock.now());
        volume.wait_unless(Duration::from_secs(1), has_come);
    }
    let seen = clock.now().0;
    Some(reaped.0.load(Ordering::Relaxed)).filter(|at| *at > 0).map(|at| seen.saturating_sub(at))
}

/// Processor usage of a hundred threads that each have one write in flight or waiting.
pub(super) fn writers(effort: Effort, report: &mut Report) {
    let writes = (effort.operations / OPERATIONS_A_WAIT / WRITERS as u64).max(1);
    let volume = volume(WRITES_TAKE);
    let clock = Clock::start();
    let rounds = (0..effort.rounds).map(|_| {
        let begin = Barrier::new(WRITERS + 1);
        let used = AtomicU64::new(0);
        let mut started = Instant::now();
        thread::scope(|threads| {
            for _ in 0..WRITERS {
                threads.spawn(|| {
                    begin.wait();
                    let before = processor_time();
                    for _ in 0..writes {
                        volume.call(&clock, append()).result.expect("it succeeds");
                    }
                    used.fetch_add(processor_time().saturating_sub(before), Ordering::Relaxed);
                });
            }
            begin.wait();
            started = Instant::now();
        });
        let share = used.load(Ordering::Relaxed) as f64 / started.elapsed().as_nanos() as f64;
        // A kernel that accounts in ticks may report 0.
        100.0 * share.max(1e-6)
    });
    let samples = Samples { rounds: rounds.collect() };
    let bare = Samples { rounds: (0..effort.rounds).map(|_| bare_sleeps(writes * 10)).collect() };
    let name = "a hundred waiting writers, 1 ms a write";
    report.add(name, "one core", &samples, "%", Bound::AtMost(5.0));
    let ratio = samples.against(&bare, |writers, bare| writers / bare);
    report.add(name, "a sleep and a wake-up a write", &ratio, "x", Bound::None);
}

/// Processor usage of a thread that sleeps equally long and then wakes another one: the kernel's
/// own share.
fn bare_sleeps(times: u64) -> f64 {
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let used = thread::scope(|threads| {
        let other = threads.spawn(|| {
            let before = processor_time();
            while !is_over.load(Ordering::Acquire) {
                thread::park();
            }
            processor_time().saturating_sub(before)
        });
        let before = processor_time();
        for _ in 0..times {
            thread::sleep(WRITES_TAKE);
            other.thread().unpark();
        }
        let used = processor_time().saturating_sub(before);
        is_over.store(true, Ordering::Release);
        other.thread().unpark();
        used + other.join().expect("it only sleeps")
    });
    100.0 * (used as f64 / started.elapsed().as_nanos() as f64).max(1e-6)
}

/// Processor time of the calling thread, in nanoseconds, as accounted by the scheduler.
fn processor_time() -> u64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    counted.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
