//! Complete flows of a volume under random schedules: half with uniformly random thread switches,
//! half with few switches at relevant places (PCT). Coverage and limits are described in
//! docs/THREADS.md.
//!
//! `ZONAL_SCHEDULES` sets the number of schedules per flow, `ZONAL_SCHEDULE_SEED` their seed; equal
//! values give equal schedules. A failed schedule is printed; `ZONAL_SCHEDULE='...' cargo test -p
//! zonal-io --features shuttle --test shuttle NAME` replays it.
//!
//! Each flow has a canary: the same flow with an injected defect, which has to be detected.

mod threads;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::thread::spawn;
use shuttle::{Config, Runner};
use std::sync::Arc;
use std::time::Instant;
use threads::{Answers, Bench, Drive, append, number, start};
use zonal_core::{DeviceError, Nanos, Op, ZoneIndex};
use zonal_io::device::Device;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};
use zonal_io::sync::AtomicBool;
use zonal_io::sync::Ordering;
use zonal_io::sync::model::{Canary, pause};
use zonal_io::volume::{Channel, Request, WriteMode, drive};

/// Default number of schedules per flow.
const SCHEDULES: usize = 8000;

/// Maximum of priority changes in a PCT schedule.
const PCT_DEPTH: usize = 4;

fn run(scheduler: impl Scheduler + 'static, flow: fn()) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(flow)
}

/// Runs a flow under the schedules of this seed; returns their number.
fn explore(flow: fn()) -> usize {
    let schedules = number("ZONAL_SCHEDULES").map_or(SCHEDULES, |n| n as usize).div_ceil(2);
    let seed = number("ZONAL_SCHEDULE_SEED").unwrap_or(0);
    run(RandomScheduler::new_from_seed(seed, schedules), flow)
        + run(PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), flow)
}

/// Checks that a flow holds, and that it fails with each of the `canaries`.
fn try_out(test: &str, flow: fn(), canaries: &[Canary]) {
    if let Ok(schedule) = std::env::var("ZONAL_SCHEDULE") {
        run(ReplayScheduler::new_from_encoded(&schedule), flow);
        return;
    }
    if threads::is_canary(canaries, || _ = explore(flow)) {
        return;
    }
    let begin = Instant::now();
    let schedules = explore(flow);
    println!("{test}: {schedules} schedules, {:.1?}", begin.elapsed());
    canaries.iter().for_each(|&canary| threads::find(test, canary));
}

/// Runs all threads on a bench, then completes all requests.
fn together<const N: usize>(bench: &Arc<Bench>, threads: [fn(&Bench, u64); N]) {
    let threads: Vec<_> = (0..N)
        .map(|n| {
            let (bench, thread) = (bench.clone(), threads[n]);
            spawn(move || thread(&bench, 100 * n as u64))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    bench.finish();
}

fn chance(of: f64) -> bool {
    thread_rng().gen_bool(of)
}

fn any_mode() -> WriteMode {
    let modes: Vec<_> = WriteMode::ALL.into_iter().filter(|mode| mode.is_switchable()).collect();
    modes[thread_rng().gen_range(0..modes.len())]
}

/// Opens a channel of either kind.
fn any_channel(bench: &Bench) -> Channel {
    if chance(0.5) { bench.channel() } else { bench.deferred_channel() }
}

/// Appends to two zones, with polls in between.
fn write(bench: &Bench, first: u64) {
    let channel = any_channel(bench);
    for n in 0..4 {
        bench.submit(&channel, first + n, append(thread_rng().gen_range(0..2), 1));
        if chance(0.3) {
            bench.volume.poll(Nanos(0));
        }
    }
}

/// Checks that a thread's appends to a zone are in order of submission.
fn check_order(bench: &Bench) {
    let mut last = std::collections::BTreeMap::new();
    for (token, at) in bench.appended() {
        let zone = at / threads::drive::ZONE;
        let before = last.insert((token / 100, zone), at);
        assert!(before.is_none_or(|b| b < at), "request {token} of zone {zone} has overtaken the one before");
    }
}

#[test]
fn writers_on_two_zones_keep_each_zones_order() {
    try_out(
        "writers_on_two_zones_keep_each_zones_order",
        || {
            let answers = if chance(0.5) { Answers::AtOnce } else { Answers::Later };
            let modes = [WriteMode::PerZone, WriteMode::Qd1, WriteMode::ZoneLock, WriteMode::Pipelined];
            let mode = modes[thread_rng().gen_range(0..modes.len())];
            let bench = Bench::new(mode, 2, answers);
            together(&bench, [write, write, write]);
            assert_eq!(bench.pointers().iter().sum::<u64>(), 12);
            bench.check_appends(1);
            check_order(&bench);
        },
        &[Canary::Exchange],
    );
}

/// Appends to one zone, more than one turn of them.
fn fill(bench: &Bench, first: u64) {
    let channel = bench.channel();
    for n in 0..4 {
        bench.submit(&channel, first + n, append(0, 1));
        if chance(0.3) {
            bench.volume.poll(Nanos(0));
        }
    }
}

/// A thread looks at a zone with an empty queue while a chain of it is in flight, and then the
/// chain's turn is used up: its rest still precedes the writes that arrived meanwhile.
#[test]
fn chain_cut_by_its_turn_after_a_look_keeps_its_place() {
    try_out(
        "chain_cut_by_its_turn_after_a_look_keeps_its_place",
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::AtOnce);
            together(&bench, [fill, fill, fill]);
            bench.check_appends(1);
            check_order(&bench);
        },
        &[Canary::Exchange],
    );
}

/// Positional writes at the write pointer as just read: some lose the race and are refused.
fn write_at_pointer(bench: &Bench, first: u64) {
    let channel = bench.channel();
    for n in 0..4 {
        let at = bench.volume.write_pointer(ZoneIndex(0)).expect("a sequential zone");
        if at.0 + 1 < threads::drive::ZONE {
            bench.submit(&channel, first + n, Request::write(at, 1, threads::bytes()));
        }
        if chance(0.3) {
            bench.volume.poll(Nanos(0));
        }
    }
}

fn reset(bench: &Bench, first: u64) {
    let channel = any_channel(bench);
    for n in 0..2 {
        let request = match thread_rng().gen_range(0..4) {
            0 => Request::reset_all(),
            1 => Request::zone(Op::ZoneFinish, start(1)),
            _ => Request::zone(Op::ZoneReset, start(thread_rng().gen_range(0..2))),
        };
        bench.submit(&channel, first + n, request);
        if chance(0.5) {
            bench.volume.poll(Nanos(0));
        }
    }
}

#[test]
fn resets_among_writers_leave_volume_and_drive_agreed() {
    try_out(
        "resets_among_writers_leave_volume_and_drive_agreed",
        || {
            let answers = if chance(0.5) { Answers::AtOnce } else { Answers::Later };
            let bench = Bench::new(WriteMode::PerZone, 2, answers);
            together(&bench, [write, write_at_pointer, reset]);
        },
        &[Canary::Exchange],
    );
}

fn switch(bench: &Bench, _: u64) {
    for _ in 0..2 {
        bench.volume.switch_mode(Nanos(0), any_mode()).unwrap();
        if chance(0.5) {
            bench.volume.poll(Nanos(0));
        }
    }
}

#[test]
fn switches_of_the_mode_among_writers_lose_nothing() {
    try_out(
        "switches_of_the_mode_among_writers_lose_nothing",
        || {
            let answers = if chance(0.5) { Answers::AtOnce } else { Answers::Later };
            let bench = Bench::switching(2, answers);
            together(&bench, [write, write, switch]);
            assert_eq!(bench.pointers().iter().sum::<u64>(), 8);
            bench.check_appends(1);
        },
        &[Canary::Exchange, Canary::LostPush],
    );
}

fn append_once(bench: &Bench, first: u64) {
    bench.submit(&bench.channel(), first, append(0, 1));
}

fn append_unless_it_waits(bench: &Bench, first: u64) {
    bench.submit(&bench.channel(), first, append(0, 1).nowait());
}

/// A `nowait` write bypasses the scheduler of mode `zone-lock`, without a tag, and blocks one in
/// the scheduler. Only its own `submit` sees its completion.
#[test]
fn u42_write_that_passed_the_scheduler_by_holds_up_nobody_for_good() {
    try_out(
        "u42_write_that_passed_the_scheduler_by_holds_up_nobody_for_good",
        || {
            let bench = Bench::new(WriteMode::ZoneLock, 1, Answers::AtOnce);
            together(&bench, [append_once, append_once, append_unless_it_waits]);
            let ends = bench.ends.all();
            assert!(ends.iter().all(|(token, end)| end.is_ok() || *token == 200), "{ends:?}");
        },
        &[Canary::Exchange],
    );
}

fn reset_and_switch(bench: &Bench, first: u64) {
    reset(bench, first);
    switch(bench, first);
}

#[test]
fn everything_at_once_ends_once() {
    try_out(
        "everything_at_once_ends_once",
        || {
            let answers = if chance(0.5) { Answers::AtOnce } else { Answers::Later };
            let bench = Bench::switching(2, answers);
            together(&bench, [write, write_at_pointer, reset_and_switch]);
        },
        &[Canary::Exchange],
    );
}

/// Each request on a channel of its own, dropped before the request ends.
fn walk_away(bench: &Bench, first: u64) {
    for n in 0..3 {
        bench.submit(&any_channel(bench), first + n, append(0, 1));
    }
}

#[test]
fn submitters_that_walk_away_leave_requests_that_end() {
    try_out(
        "submitters_that_walk_away_leave_requests_that_end",
        || {
            let bench = Bench::new(WriteMode::PerZone, 2, Answers::Later);
            together(&bench, [walk_away, walk_away, write]);
            bench.check_appends(1);
        },
        &[Canary::Exchange],
    );
}

/// Drive with two queues, so that some threads share one, that accepts the commands of any mode.
fn two_queues() -> Arc<Bench> {
    let drive = Drive::new(WriteMode::Pipelined, 2, Answers::Later).with_queues(2);
    Bench::over(Arc::new(drive), any_mode())
}

#[test]
fn submitters_that_leave_their_queues_leave_requests_that_end() {
    try_out(
        "submitters_that_leave_their_queues_leave_requests_that_end",
        || {
            let bench = two_queues();
            together(&bench, [walk_away, walk_away, write]);
            bench.check_appends(1);
        },
        &[Canary::Idle, Canary::Exchange],
    );
}

#[test]
fn threads_with_queues_of_their_own_lose_nothing() {
    try_out(
        "threads_with_queues_of_their_own_lose_nothing",
        || together(&two_queues(), [write, write_at_pointer, reset_and_switch]),
        &[Canary::Idle],
    );
}

/// Appends with completions taken from an inbox, with polls until all are there.
fn write_with_inbox(bench: &Bench, first: u64) {
    let inbox = bench.volume.inbox();
    for n in 0..4 {
        bench.submit(inbox.channel(), first + n, append(thread_rng().gen_range(0..2), 1));
    }
    for _ in 0..4 {
        loop {
            if let Some(end) = inbox.take() {
                break bench.ends.note(end);
            }
            bench.volume.poll(Nanos(0));
            pause();
        }
    }
}

/// Appends on a channel that is cancelled at a random position between them.
fn write_and_cancel(bench: &Bench, first: u64) {
    let channel = any_channel(bench);
    let cancelled = thread_rng().gen_range(1..5);
    for n in 0..4 {
        if n == cancelled {
            bench.volume.cancel(Nanos(0), &channel);
        }
        bench.submit(&channel, first + n, append(thread_rng().gen_range(0..2), 1));
        if chance(0.3) {
            bench.volume.poll(Nanos(0));
        }
    }
    bench.volume.cancel(Nanos(0), &channel);
}

#[test]
fn cancels_among_writers_end_every_request_once() {
    try_out(
        "cancels_among_writers_end_every_request_once",
        || {
            let bench = two_queues();
            together(&bench, [write_and_cancel, write_and_cancel, reset_and_switch]);
        },
        &[Canary::Exchange],
    );
}

#[test]
fn inboxes_beside_cancels_get_all_their_ends() {
    try_out(
        "inboxes_beside_cancels_get_all_their_ends",
        || {
            let bench = two_queues();
            together(&bench, [write_with_inbox, write_and_cancel, write_with_inbox]);
            bench.check_appends(1);
        },
        &[Canary::Idle],
    );
}

/// Clock that stands still and lets other threads run.
fn clock() -> Nanos {
    pause();
    Nanos(0)
}

#[test]
fn driver_completes_requests_of_other_threads() {
    try_out(
        "driver_completes_requests_of_other_threads",
        || {
            let bench = Bench::over(emulated(2), WriteMode::PerZone);
            let stop = Arc::new(AtomicBool::new(false));
            let (driven, stopped) = (bench.clone(), stop.clone());
            let driver = spawn(move || drive(&driven.volume, &stopped, clock));
            let writers: Vec<_> = (0..2)
                .map(|n| {
                    let bench = bench.clone();
                    spawn(move || {
                        let channel = any_channel(&bench);
                        (0..3).for_each(|i| bench.submit(&channel, 100 * n + i, append(0, 1)));
                    })
                })
                .collect();
            writers.into_iter().for_each(|t| t.join().unwrap());
            while bench.ends.left() > 0 {
                pause();
            }
            stop.store(true, Ordering::Release);
            driver.join().unwrap();
            bench.finish();
            assert_eq!(bench.volume.statistics().resyncs, 0, "the drive was written out of order");
        },
        &[Canary::Exchange],
    );
}

/// Emulated drive with this queue depth.
fn emulated(depth: u32) -> Arc<dyn Device> {
    let options = EmulatedOptions::default()
        .with_size(2 * threads::drive::ZONE * 512)
        .with_zone_size(threads::drive::ZONE * 512)
        .with_blocksize(512)
        .with_zone_append_max_sectors(8)
        .with_complete(CompleteMode::Poll)
        .with_hw_queue_depth(depth)
        .with_preserves_write_order(true);
    Arc::new(Emulated::new("null", &options, Null).unwrap())
}

#[test]
fn writes_that_fail_leave_volume_and_drive_agreed() {
    try_out(
        "writes_that_fail_leave_volume_and_drive_agreed",
        || {
            let every = thread_rng().gen_range(2..5);
            let fault = Fault::new(emulated(4), Plan::default());
            let error = if chance(0.5) {
                Effect::Refuse(DeviceError::Medium)
            } else {
                Effect::Fail(DeviceError::Medium)
            };
            fault.inject(Rule::new(error).on(Ops::WRITES).every(every));
            let bench = Bench::over(Arc::new(fault), any_mode());
            together(&bench, [write, write, reset]);
        },
        &[Canary::Exchange],
    );
}
