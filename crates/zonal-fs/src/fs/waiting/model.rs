//! The waiting room under random schedules of threads. In the model no sleep ends by its time: a thread that is not told sleeps for
//! ever, which ends the schedule as a deadlock. docs/THREADS.md says how to run it.

use super::{Part, WaitingRoom, WaitsFor};
use crate::waiter::Bell;
use shuttle::thread::spawn;
use shuttle::{check_pct, check_random};
use zonal_io::sync::model::{Canary, pause, with_canary};
use zonal_io::sync::{Arc, AtomicUsize, Mutex, Ordering};

const SCHEDULES: usize = 4000;

/// Most changes of mind of a schedule that makes few.
const PCT_DEPTH: usize = 4;

/// Threads that wait, each for a unit of a file of its own.
const THREADS: u64 = 3;

/// What stands for the core.
#[derive(Default)]
struct Model {
    room: WaitingRoom,
    /// Files whose unit has completed.
    completed: Vec<u64>,
    is_step_running: bool,
    steps: usize,
}

/// The drive and the core's lock.
#[derive(Default)]
struct Shared {
    core: Mutex<Model>,
    /// Units that the drive has completed and no thread has taken in.
    answers: AtomicUsize,
}

impl Shared {
    /// Does something under the lock, and rings after it.
    fn locked<R>(&self, work: impl FnOnce(&mut Model) -> R) -> R {
        let mut core = self.core.lock();
        let done = work(&mut core);
        let bells: Vec<Arc<Bell>> = core.room.take_bells();
        drop(core);
        bells.iter().for_each(|bell| bell.ring());
        done
    }

    /// Takes in what the drive has completed.
    fn take_in(&self, core: &mut Model) {
        for _ in 0..self.answers.swap(0, Ordering::SeqCst) {
            let ino = core.completed.len() as u64;
            core.completed.push(ino);
            core.room.tell(|what| what == WaitsFor::File(ino));
        }
    }

    /// What a wait is in [`super::super::seat`].
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
                Some(core.room.enter(what, taken))
            });
            match next {
                None => return,
                Some(Part::Asleep(bell)) => {
                    bell.wait(std::time::Duration::MAX);
                    part = Part::Asleep(bell);
                }
                // The thread with the watch polls the drive.
                Some(watch) => {
                    pause();
                    part = watch;
                }
            }
        }
    }
}

/// The drive completes units while threads wait for them: each thread learns of its own.
fn units() {
    let shared = Arc::new(Shared::default());
    let waiters = (0..THREADS).map(|ino| {
        let shared = shared.clone();
        spawn(move || shared.wait_for(WaitsFor::File(ino), |core| core.completed.contains(&ino)))
    });
    let waiters: Vec<_> = waiters.collect();
    for _ in 0..THREADS {
        shared.answers.fetch_add(1, Ordering::SeqCst);
    }
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert!(shared.locked(|core| core.room.is_empty() && !core.room.is_watched));
}

/// Threads that each need one step, of which one runs at a time: the end of a step tells the next.
fn steps() {
    let shared = Arc::new(Shared::default());
    let waiters = (0..THREADS).map(|_| {
        let shared = shared.clone();
        spawn(move || {
            shared.wait_for(WaitsFor::Step, |core| !std::mem::replace(&mut core.is_step_running, true));
            shared.locked(|core| {
                core.is_step_running = false;
                core.steps += 1;
                core.room.tell_one(|what| what == WaitsFor::Step);
            });
        })
    });
    let waiters: Vec<_> = waiters.collect();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert!(shared.locked(|core| core.steps as u64 == THREADS && core.room.is_empty()));
}

fn explore(flow: fn()) {
    check_random(flow, SCHEDULES / 2);
    check_pct(flow, SCHEDULES / 2, PCT_DEPTH);
}

/// Whether a schedule of the flow fails if this is broken. On a thread of its own: what the checker leaves stays there.
fn finds(flow: fn(), canary: Canary) -> bool {
    std::thread::spawn(move || with_canary(canary, || explore(flow))).join().is_err()
}

#[test]
fn thread_whose_unit_completes_is_told() {
    explore(units);
    assert!(finds(units, Canary::Unwatched) && finds(units, Canary::Unheard));
}

#[test]
fn thread_that_waits_for_a_step_is_told_of_its_end() {
    explore(steps);
    assert!(finds(steps, Canary::Unheard));
}
