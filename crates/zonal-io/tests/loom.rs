//! Every schedule of small programs of two or three threads, with every value that the language's
//! memory model permits. Coverage and limits are described in docs/THREADS.md.
//!
//! Each model has a canary: the same program with an injected defect, which has to be detected.
//!
//! `ZONAL_PREEMPTIONS` overrides the number of preemptions per schedule that each model sets.

mod threads;

use loom::thread::spawn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use threads::{Answers, Bench, Drive, append, number};
use zonal_core::device::{Limits, ZoneAction, ZoneState};
use zonal_core::{Geometry, Nanos, Op, Personality, Sector, Sectors, ZoneCondition, ZoneIndex};
use zonal_io::buffer::BufferPool;
use zonal_io::clock::Clock;
use zonal_io::device::{Command, Context, Device, Submitted};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null, Zones};
use zonal_io::sync::AtomicBool;
use zonal_io::sync::model::{Canary, SpinShortLock};
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

/// Preemptions of a runnable thread per schedule.
const PREEMPTIONS: usize = 3;

/// Maximum of steps per schedule; a model that exceeds it does not terminate.
const STEPS_MAX: usize = 20_000;

/// Explores every schedule with up to this many preemptions; returns their number.
fn explore(preemptions: usize, model: fn()) -> usize {
    let schedules = Arc::new(AtomicUsize::new(0));
    let count = schedules.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = STEPS_MAX;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    schedules.load(Ordering::Relaxed)
}

/// Proves that a model holds, and that it fails with each of the `canaries`.
fn prove(test: &str, preemptions: usize, model: fn(), canaries: &[Canary]) {
    let preemptions = number("ZONAL_PREEMPTIONS").map_or(preemptions, |n| n as usize);
    if threads::is_canary(canaries, || _ = explore(preemptions, model)) {
        return;
    }
    let begin = Instant::now();
    let schedules = explore(preemptions, model);
    println!("{test}: {schedules} schedules, up to {preemptions} preemptions, {:.1?}", begin.elapsed());
    assert!(schedules > 10, "{test}: its threads do not meet");
    canaries.iter().for_each(|&canary| threads::find(test, canary));
}

/// Runs all threads on a bench, the last one on this thread, then completes all requests.
fn together<const N: usize>(bench: &Arc<Bench>, mut threads: [fn(&Bench); N]) {
    let (here, others) = threads.split_last_mut().expect("a thread runs");
    let others: Vec<_> = others
        .iter()
        .map(|&thread| {
            let bench = bench.clone();
            spawn(move || thread(&bench))
        })
        .collect();
    here(bench);
    others.into_iter().for_each(|t| t.join().unwrap());
    bench.finish();
}

fn poll(bench: &Bench) {
    bench.volume.poll(Nanos(0));
}

#[test]
fn brief_lock_of_two_threads_is_one_at_a_time() {
    prove(
        "brief_lock_of_two_threads_is_one_at_a_time",
        PREEMPTIONS,
        || {
            let lock = Arc::new(SpinShortLock::new(0));
            let other = lock.clone();
            let other = spawn(move || other.change(|n| n + 1));
            let tried = lock.try_change(|n| n + 1);
            other.join().unwrap();
            lock.change(|n| {
                assert_eq!(n, 1 + u32::from(tried));
                n
            });
        },
        &[Canary::Exchange, Canary::Relaxed],
    );
}

/// The word: admission, completion, and the hand-off between a completion and a submitter that
/// finds a write in flight.
#[test]
fn zone_of_three_writers_answered_at_once_hands_every_write_on() {
    prove(
        "zone_of_three_writers_answered_at_once_hands_every_write_on",
        PREEMPTIONS,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::AtOnce);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, append(0, 1)),
                    |b| b.submit(&b.channel(), 2, append(0, 1)),
                    |b| b.submit(&b.channel(), 3, append(0, 1)),
                ],
            );
            bench.check_appends(1);
        },
        &[Canary::Exchange, Canary::Open],
    );
}

/// Like the test above, with completions in another thread's poll.
#[test]
fn zone_of_two_writers_completed_by_a_third_hands_every_write_on() {
    prove(
        "zone_of_two_writers_completed_by_a_third_hands_every_write_on",
        PREEMPTIONS,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, append(0, 1)),
                    |b| b.submit(&b.channel(), 2, append(0, 1)),
                    poll,
                ],
            );
            bench.check_appends(1);
        },
        &[Canary::Exchange],
    );
}

/// A submitter leaves commands in its queue; a thread of the other queue, whose write waits for one
/// of them, reaps them.
#[test]
fn queue_of_a_submitter_that_left_is_reaped_by_another() {
    prove(
        "queue_of_a_submitter_that_left_is_reaped_by_another",
        2,
        || {
            let drive = Drive::new(WriteMode::PerZone, 1, Answers::Later).with_queues(2);
            let bench = Bench::over(Arc::new(drive), WriteMode::PerZone);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, append(0, 1)),
                    |b| {
                        b.submit(&b.channel(), 2, append(0, 1));
                        poll(b);
                    },
                ],
            );
            bench.check_appends(1);
        },
        &[Canary::Idle, Canary::Exchange],
    );
}

/// A used-up turn leaves its zone on the ready list, where a poll finds it.
#[test]
fn zones_left_on_the_ready_list_go_on() {
    prove(
        "zones_left_on_the_ready_list_go_on",
        PREEMPTIONS,
        || {
            let bench = Bench::switching(2, Answers::AtOnce);
            together(
                &bench,
                [
                    |b| b.volume.switch_mode(Nanos(0), WriteMode::Append).unwrap(),
                    |b| {
                        let channel = b.channel();
                        b.submit(&channel, 1, append(0, 1));
                        b.submit(&channel, 2, append(1, 1));
                        poll(b);
                    },
                ],
            );
            bench.check_appends(1);
        },
        &[Canary::LostPush],
    );
}

/// Mode `qd1`: one write at the device, whichever thread has the token.
#[test]
fn token_of_three_writers_in_two_zones_is_passed_on() {
    prove(
        "token_of_three_writers_in_two_zones_is_passed_on",
        PREEMPTIONS,
        || {
            let bench = Bench::new(WriteMode::Qd1, 2, Answers::Later);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, append(0, 1)),
                    |b| b.submit(&b.channel(), 2, append(1, 1)),
                    |b| {
                        b.submit(&b.channel(), 3, append(0, 1));
                        poll(b);
                    },
                ],
            );
            assert_eq!(bench.pointers(), [2, 1]);
        },
        &[Canary::Open],
    );
}

/// Mode `pipelined`: several writes at the device, in the order of their admission.
#[test]
fn window_of_two_writers_keeps_their_order() {
    prove(
        "window_of_two_writers_keeps_their_order",
        PREEMPTIONS,
        || {
            let bench = Bench::new(WriteMode::Pipelined, 1, Answers::Later);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, append(0, 1)),
                    |b| {
                        b.submit(&b.channel(), 2, append(0, 1));
                        poll(b);
                    },
                ],
            );
            bench.check_appends(1);
        },
        &[Canary::Exchange],
    );
}

/// Memory of a pool has one holder at a time and is freed once, whichever thread drops the pool
/// last.
#[test]
fn pool_of_three_threads_gives_each_its_own_memory() {
    prove(
        "pool_of_three_threads_gives_each_its_own_memory",
        PREEMPTIONS,
        || {
            let pool = BufferPool::new(8, 1);
            let use_it = |mark: u8, pool: &BufferPool| {
                let mut buf = pool.take();
                buf.fill(mark);
                loom::thread::yield_now();
                assert!(buf.iter().all(|&b| b == mark), "another thread writes here");
            };
            let others: Vec<_> = (1..3)
                .map(|mark| {
                    let pool = pool.clone();
                    spawn(move || use_it(mark, &pool))
                })
                .collect();
            use_it(3, &pool);
            drop(pool);
            others.into_iter().for_each(|t| t.join().unwrap());
        },
        &[Canary::LostPush],
    );
}

/// Reset of a zone with concurrent writes: writes before it are aborted, later ones begin at the
/// start.
#[test]
fn reset_among_writers_leaves_volume_and_drive_agreed() {
    prove(
        "reset_among_writers_leaves_volume_and_drive_agreed",
        PREEMPTIONS - 1,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, append(0, 1)),
                    |b| b.submit(&b.channel(), 2, Request::zone(Op::ZoneReset, Sector(0))),
                    poll,
                ],
            );
        },
        &[Canary::Exchange],
    );
}

/// A read that raises a zone's floor, concurrent with a reset that lowers it: after the reset no
/// read finds data.
#[test]
fn floor_raised_beside_a_reset_shows_nothing_afterwards() {
    prove(
        "floor_raised_beside_a_reset_shows_nothing_afterwards",
        PREEMPTIONS,
        || {
            let geometry = Geometry::new(Sectors(8), Sectors(8), Sectors(8), 0).expect("one zone");
            let written = |_| ZoneState { condition: ZoneCondition::Closed, written: 4 };
            let zones = Arc::new(Zones::new(geometry, Personality::Zns, Limits::default(), written));
            let read = |zones: &Zones| zones.readable(ZoneIndex(0), 0, 1).expect("the zone is not offline");
            let other = zones.clone();
            let readers = spawn(move || {
                read(&other);
                read(&other)
            });
            zones.manage(ZoneIndex(0), ZoneAction::Reset).expect("a closed zone is reset");
            assert_eq!(read(&zones).data_sectors, 0, "the thread that has reset the zone reads its data");
            readers.join().unwrap();
            assert_eq!(read(&zones).data_sectors, 0, "data is there after the reset");
        },
        &[Canary::Exchange],
    );
}

/// A submitter that is gone before its request ends: its channel is kept until then, even if others
/// are opened meanwhile.
#[test]
fn channel_dropped_early_hears_of_its_request() {
    prove(
        "channel_dropped_early_hears_of_its_request",
        PREEMPTIONS - 1,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(
                &bench,
                [
                    |b| b.submit(&b.deferred_channel(), 1, append(0, 1)),
                    |b| b.submit(&b.channel(), 2, append(0, 1)),
                    poll,
                ],
            );
        },
        &[Canary::Exchange],
    );
}

/// A thread that waits for a drive is woken by a command that no poll has seen. The model has no
/// timeouts.
#[test]
fn sleeper_at_a_drive_is_woken_by_a_command() {
    prove(
        "sleeper_at_a_drive_is_woken_by_a_command",
        PREEMPTIONS,
        || {
            let options = EmulatedOptions::default()
                .with_size(1 << 20)
                .with_zone_size(1 << 19)
                .with_complete(CompleteMode::Poll);
            let drive = Arc::new(Emulated::new("null", &options, Null).unwrap());
            let other = drive.clone();
            let other = spawn(move || {
                let command = Command::new(Op::Flush, Sector(0), 0);
                let sent = other.submit(Nanos(0), 0, &command, &mut Some(Context::token(7)));
                assert!(matches!(sent, Submitted::Accepted));
            });
            let mut token = None;
            while token.is_none() {
                drive.wait(0, Duration::from_secs(1));
                drive.poll(Nanos(0), 0, 1, &mut |c| token = Some(c.context.into_token()));
            }
            assert_eq!(token, Some(7));
            other.join().unwrap();
        },
        &[Canary::Unheard],
    );
}

/// A thread that sleeps until its request has ended is woken by the thread that reaps it.
#[test]
fn sleeper_at_a_volume_is_woken_by_the_thread_that_reaps_its_answer() {
    prove(
        "sleeper_at_a_volume_is_woken_by_the_thread_that_reaps_its_answer",
        2,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(&bench, [poll, |b| sleep_until_it_ends(b, append(0, 1))]);
        },
        &[Canary::Unheard],
    );
}

/// Like the test above, with the commands of both threads in queues of their own, and one waiting
/// for the other's zone.
#[test]
fn sleeper_at_a_volume_is_woken_by_a_submitter_that_leaves() {
    prove(
        "sleeper_at_a_volume_is_woken_by_a_submitter_that_leaves",
        2,
        || {
            let drive = Drive::new(WriteMode::PerZone, 1, Answers::Later).with_queues(2);
            let bench = Bench::over(Arc::new(drive), WriteMode::PerZone);
            together(
                &bench,
                [|b| b.submit(&b.channel(), 2, append(0, 1)), |b| sleep_until_it_ends(b, append(0, 1))],
            );
        },
        &[Canary::Unheard],
    );
}

/// A thread without a deadline sleeps while another thread parks a write, which adds a deadline.
#[test]
fn sleeper_at_a_volume_is_woken_by_a_deadline_set_after_its_poll() {
    prove(
        "sleeper_at_a_volume_is_woken_by_a_deadline_set_after_its_poll",
        2,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(
                &bench,
                [
                    |b| b.submit(&b.channel(), 1, Request::write(Sector(2), 1, threads::bytes())),
                    |b| {
                        while b.volume.poll(Nanos(0)).is_none() {
                            b.volume.wait(Duration::from_secs(1));
                        }
                    },
                ],
            );
        },
        &[Canary::Uncounted, Canary::Unheard],
    );
}

/// Two threads wait for a queue: one has the watch, and hands it on when it is done. Writes take
/// some time, and the second write of the zone is issued when the first has ended, so the first
/// thread is done first.
#[test]
fn watch_of_a_queue_is_handed_to_a_thread_that_sleeps() {
    prove(
        "watch_of_a_queue_is_handed_to_a_thread_that_sleeps",
        2,
        || {
            TIME.store(0, Ordering::Relaxed);
            let options =
                EmulatedOptions::default().with_size(1 << 20).with_zone_size(1 << 19).with_completion_nsec(2);
            let drive = Arc::new(Emulated::new("null", &options, Null).unwrap());
            let options = VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(false);
            let volume = Arc::new(Volume::open(drive, options).unwrap());
            let other = volume.clone();
            let other = spawn(move || call_for_an_append(&other));
            call_for_an_append(&volume);
            other.join().unwrap();
        },
        &[Canary::Unwatched, Canary::Unheard],
    );
}

/// Advances with each reading.
static TIME: AtomicU64 = AtomicU64::new(0);

fn call_for_an_append(volume: &Volume) {
    let clock = Clock::read_by(|| Nanos(TIME.fetch_add(1, Ordering::Relaxed)));
    let append = Request::append(Sector(0), 1, threads::bytes());
    let end = volume.call(&clock, append);
    assert!(end.result.is_ok(), "{:?}", end.result);
}

/// An inbox with completions by two threads: only the owner accesses its own list, and it is woken
/// for the others.
#[test]
fn inbox_receives_completions_reaped_by_both_threads() {
    prove(
        "inbox_receives_completions_reaped_by_both_threads",
        2,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(&bench, [poll, take_two_ends]);
        },
        &[Canary::Mine, Canary::Unheard],
    );
}

fn take_two_ends(bench: &Bench) {
    let inbox = bench.volume.inbox();
    let mut news = bench.volume.news().unwrap();
    (1..=2).for_each(|token| bench.submit(inbox.channel(), token, append(0, 1)));
    let mut left = 2;
    let mut now = Nanos(0);
    while left > 0 {
        news.arm();
        while let Some(due) = bench.volume.poll(now) {
            now = now.max(due);
        }
        let before = left;
        while let Some(end) = inbox.take() {
            bench.ends.note(end);
            left -= 1;
        }
        if left == before {
            news.sleep(Duration::from_secs(1));
        }
        news.disarm();
    }
}

/// A cancel concurrent with a poll: each waiting request ends once, by either of them, and the zone
/// serves the rest.
#[test]
fn cancel_beside_a_poll_ends_every_request_once() {
    prove(
        "cancel_beside_a_poll_ends_every_request_once",
        2,
        || {
            let bench = Bench::new(WriteMode::PerZone, 1, Answers::Later);
            together(
                &bench,
                [poll, |b| {
                    let channel = b.channel();
                    (1..=2).for_each(|token| b.submit(&channel, token, append(0, 1)));
                    b.volume.cancel(Nanos(0), &channel);
                    b.submit(&b.channel(), 3, append(0, 1));
                }],
            );
        },
        &[Canary::Exchange],
    );
}

/// Arm, check once more, sleep: until the deadline of the poll, which passes at once, or until
/// woken.
fn sleep_until_it_ends(bench: &Bench, request: Request) {
    let (ends, ended) = (bench.ends.clone(), Arc::new(AtomicBool::new(false)));
    let set = ended.clone();
    let channel = bench.volume.channel(move |c| {
        ends.note(c);
        set.store(true, Ordering::SeqCst);
    });
    let mut news = bench.volume.news().unwrap();
    bench.submit(&channel, 1, request);
    let mut now = Nanos(0);
    while !ended.load(Ordering::SeqCst) {
        news.arm();
        while let Some(due) = bench.volume.poll(now) {
            now = now.max(due);
        }
        if !ended.load(Ordering::SeqCst) {
            news.sleep(Duration::from_secs(1));
        }
        news.disarm();
    }
}
