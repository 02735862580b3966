//! The waiting room under random schedules of threads. Sleeps never time out in the model, so a
//! thread that misses its notification sleeps forever, and the schedule ends as a deadlock. See
//! docs/THREADS.md for how to run it.

use super::{Part, WaitingRoom, WaitsFor};
use crate::waiter::Bell;
use shuttle::thread::{JoinHandle, spawn};
use shuttle::{check_pct, check_random};
use zonal_io::sync::model::{Canary, is_broken, pause, with_canary};
use zonal_io::sync::{Arc, AtomicUsize, Mutex, Ordering};

const SCHEDULES: usize = 4000;

/// Maximum number of preemptions in a PCT schedule.
const PCT_DEPTH: usize = 4;

/// Number of waiting threads, each for a unit of its own file.
const THREADS: u64 = 3;

/// Model of the core.
#[derive(Default)]
struct Model {
    room: WaitingRoom,
    /// Files with a completed unit.
    completed: Vec<u64>,
    is_step_running: bool,
    steps: usize,
    /// Number of layers that were sealed, and of those that are durable.
    layer: u64,
    committed: u64,
    is_committing: bool,
}

/// Tail of a file, guarded by the file's own lock.
#[derive(Default)]
struct Tail {
    is_taken: bool,
    is_awaited: bool,
}

/// Drive and locks. The core's lock is taken before the file's.
#[derive(Default)]
struct Shared {
    core: Mutex<Model>,
    tail: Mutex<Tail>,
    /// Units completed by the drive and not yet processed by a thread.
    answers: AtomicUsize,
}

impl Shared {
    /// Works under the lock, and rings the bells afterwards.
    fn locked<R>(&self, work: impl FnOnce(&mut Model) -> R) -> R {
        let mut core = self.core.lock();
        let done = work(&mut core);
        let bells: Vec<Arc<Bell>> = core.room.take_bells();
        drop(core);
        bells.iter().for_each(|bell| bell.ring());
        done
    }

    /// Processes the units completed by the drive.
    fn take_in(&self, core: &mut Model) {
        for _ in 0..self.answers.swap(0, Ordering::SeqCst) {
            let ino = core.completed.len() as u64;
            core.completed.push(ino);
            core.room.wake_all(|what| what == WaitsFor::File(ino));
        }
    }

    /// Models a wait of [`super::super::seat`].
    fn wait_for(&self, what: WaitsFor, mut is_ready: impl FnMut(&mut Model) -> bool) {
        let mut part = Part::Outside;
        loop {
            let taken = std::mem::take(&mut part);
            let next = self.locked(|core| {
                self.take_in(core);
                if is_ready(core) {
                    core.room.leave(taken);
                    return None;
                }
                if matches!(what, WaitsFor::File(_)) {
                    let was_awaited = std::mem::replace(&mut self.tail.lock().is_awaited, true);
                    if !was_awaited && !is_broken(Canary::Unlooked) {
                        return Some(taken);
                    }
                }
                Some(core.room.enter(what, taken))
            });
            match next {
                None => return,
                Some(Part::Outside) => {}
                Some(Part::Asleep(bell)) => {
                    bell.wait(std::time::Duration::MAX);
                    part = Part::Asleep(bell);
                }
                // The thread on watch polls the drive.
                Some(watch) => {
                    pause();
                    part = watch;
                }
            }
        }
    }
}

/// Runs `work` on [`THREADS`] threads, each with a number.
fn in_threads(shared: &Arc<Shared>, work: fn(&Shared, u64)) -> Vec<JoinHandle<()>> {
    let start = |number| {
        let shared = shared.clone();
        spawn(move || work(&shared, number))
    };
    (0..THREADS).map(start).collect()
}

fn join(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(shared.locked(|core| core.room.is_empty() && !core.room.is_watched));
}

/// Ends a thread of [`join_with_watch`].
fn end(shared: &Shared) {
    shared.locked(|core| {
        core.steps += 1;
        core.room.wake_all(|what| what == WaitsFor::Units);
    });
}

/// Waits for all threads with a thread that may have the watch all the time. Having it does not satisfy any of their conditions.
fn join_with_watch(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.wait_for(WaitsFor::Units, |core| core.steps as u64 == THREADS);
    join(shared, threads);
}

/// The drive completes units while threads wait for them. Each thread is notified of its own.
fn units() {
    let shared = Arc::new(Shared::default());
    let threads = in_threads(&shared, |shared, ino| {
        shared.wait_for(WaitsFor::File(ino), |core| core.completed.contains(&ino));
    });
    for _ in 0..THREADS {
        shared.answers.fetch_add(1, Ordering::SeqCst);
    }
    join(&shared, threads);
}

/// Each thread needs one step, and only one step runs at a time. Its end wakes the next thread.
fn steps() {
    let shared = Arc::new(Shared::default());
    let threads = in_threads(&shared, |shared, _| {
        shared.wait_for(WaitsFor::Step, |core| !std::mem::replace(&mut core.is_step_running, true));
        shared.locked(|core| {
            core.is_step_running = false;
            core.steps += 1;
            core.room.wake_one(|what| what == WaitsFor::Step);
        });
    });
    join(&shared, threads);
    assert!(shared.locked(|core| core.steps as u64 == THREADS));
}

/// Threads take a tail in turn, and put it back with only the file's lock.
fn tails() {
    let shared = Arc::new(Shared::default());
    let threads = in_threads(&shared, |shared, _| {
        let take = |_: &mut Model| !std::mem::replace(&mut shared.tail.lock().is_taken, true);
        shared.wait_for(WaitsFor::File(0), take);
        let is_awaited = {
            let mut tail = shared.tail.lock();
            tail.is_taken = false;
            std::mem::take(&mut tail.is_awaited)
        };
        if is_awaited {
            shared.locked(|core| core.room.wake_all(|what| what == WaitsFor::File(0)));
        }
        end(shared);
    });
    join_with_watch(&shared, threads);
}

/// Each thread changes something, and commits it or waits for another thread's commit. The end of a commit wakes the threads it
/// served and one other.
fn commits() {
    let shared = Arc::new(Shared::default());
    let threads = in_threads(&shared, |shared, _| {
        let target = shared.locked(|core| core.layer) + 1;
        loop {
            let mut sealed = None;
            shared.wait_for(WaitsFor::Commit(target), |core| {
                if core.committed < target && !std::mem::replace(&mut core.is_committing, true) {
                    core.layer += 1;
                    sealed = Some(core.layer);
                }
                core.committed >= target || sealed.is_some()
            });
            let Some(layer) = sealed else { break };
            pause();
            shared.locked(|core| {
                core.is_committing = false;
                core.committed = layer;
                core.room.committed(layer);
            });
        }
        end(shared);
    });
    join_with_watch(&shared, threads);
}

fn explore(flow: fn()) {
    check_random(flow, SCHEDULES / 2);
    check_pct(flow, SCHEDULES / 2, PCT_DEPTH);
}

/// True if a schedule of the flow fails with this canary. On a thread of its own, because a failed
/// check leaves state behind.
fn finds(flow: fn(), canary: Canary) -> bool {
    std::thread::spawn(move || with_canary(canary, || explore(flow))).join().is_err()
}

#[test]
fn completed_unit_wakes_its_waiting_thread() {
    explore(units);
    assert!(finds(units, Canary::Unwatched) && finds(units, Canary::Unheard));
}

#[test]
fn thread_waiting_for_a_step_is_woken_at_its_end() {
    explore(steps);
    assert!(finds(steps, Canary::Unheard));
}

#[test]
fn thread_is_woken_for_a_tail_put_back_without_the_core_lock() {
    explore(tails);
    assert!(finds(tails, Canary::Unlooked) && finds(tails, Canary::Unheard));
}

#[test]
fn commit_wakes_those_it_served_and_the_next_to_commit() {
    explore(commits);
    assert!(finds(commits, Canary::Unheard));
}
