//! Threads that wait for a queue: one of them keeps watch for all.
//!
//! Most completions are news for one thread. If all threads that wait for a queue slept on its news, each completion, and each
//! time that a poll is due, would wake all of them. So one of those in [`Volume::call`] keeps the watch: it sleeps on the news
//! until its poll is due, and polls. Each of the others sleeps until the thread that completes its request wakes it.
//!
//! A thread that has what it waited for hands the watch to one that sleeps. From then on the watch is that thread's, asleep or
//! awake, until this one hands it on: at no time do threads sleep here while no thread has the watch.

use super::Volume;
use super::alarm::Alarm;
use crate::clock::Backoff;
use crate::sync::{Arc, AtomicUsize, CachePadded, Condvar, IS_MODEL, Mutex, Ordering, fence, thread_slot};
use std::collections::VecDeque;
use std::time::Duration;
use zonal_core::Nanos;

/// Longest sleep: the thread that has the watch may be in a completion function that takes its time.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// No deadline, or none that is known.
const NEVER: Nanos = Nanos(u64::MAX);

/// The watches of a volume's queues.
pub(super) struct Watches(Box<[CachePadded<Watch>]>);

#[derive(Default)]
struct Watch {
    /// The one thing that a completion reads while all are awake.
    asleep: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_kept: bool,
    /// The thread that has the watch sleeps, and this is when it looks again at the latest.
    looks_at: Option<Nanos>,
    sleepers: VecDeque<Arc<Sleeper>>,
}

impl State {
    /// Whether the thread that has the watch may look later than at `due`, or has looked before there was this deadline.
    fn is_early(&self, due: Option<Nanos>) -> bool {
        self.is_kept && due.is_some_and(|due| self.looks_at.is_none_or(|at| due < at))
    }
}

/// A thread that sleeps without the watch.
struct Sleeper {
    thread: usize,
    woken: Mutex<Woken>,
    bell: Condvar,
}

#[derive(Default)]
struct Woken {
    is_up: bool,
    has_watch: bool,
}

impl Sleeper {
    /// Under the lock of the list that it was taken from: a sleeper that has left finds itself there, or woken.
    fn wake(&self, has_watch: bool) {
        let mut woken = self.woken.lock();
        woken.is_up = true;
        woken.has_watch = has_watch;
        drop(woken);
        self.bell.notify_one();
    }
}

impl Watches {
    pub(super) fn new(queues: usize) -> Watches {
        Watches(std::iter::repeat_with(CachePadded::default).take(queues).collect())
    }

    /// Wakes the thread with this number, if it sleeps here. For who has left it what it waits for, and a fence behind that.
    pub(super) fn wake(&self, thread: usize) -> bool {
        let watch = &self.0[thread % self.0.len()];
        if watch.asleep.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut state = watch.state.lock();
        let place = state.sleepers.iter().position(|sleeper| sleeper.thread == thread);
        let Some(sleeper) = place.and_then(|place| state.sleepers.remove(place)) else { return false };
        sleeper.wake(false);
        true
    }

    /// Takes the watch of `queue`, unless another thread has it.
    fn take(&self, queue: usize) -> bool {
        !std::mem::replace(&mut self.0[queue].state.lock().is_kept, true)
    }

    /// Whether threads sleep while another one has the watch of `queue`.
    fn has_sleepers(&self, queue: usize) -> bool {
        self.0[queue].asleep.load(Ordering::Relaxed) > 0
    }

    /// Hands the watch of `queue` to the thread that has slept for longest, if one sleeps.
    fn hand_on(&self, queue: usize) {
        let mut state = self.0[queue].state.lock();
        #[cfg(any(feature = "loom", feature = "shuttle"))]
        if crate::sync::model::is_broken(crate::sync::model::Canary::Unwatched) {
            state.is_kept = false;
            return;
        }
        match state.sleepers.pop_front() {
            Some(heir) => heir.wake(true),
            None => state.is_kept = false,
        }
    }

    /// A thread without the watch that was told to poll `queue` at `due` does not come back.
    fn leave(&self, queue: usize, due: Option<Nanos>, alarm: &Alarm) {
        if due.is_some() && self.0[queue].state.lock().is_early(due) {
            alarm.ring();
        }
    }

    /// The thread that has the watch of `queue` is about to sleep until `due`, or has slept.
    fn looks_at(&self, queue: usize, due: Option<Nanos>) {
        self.0[queue].state.lock().looks_at = due;
    }

    /// Sleeps until the calling thread is woken or gets the watch of `queue`, which another thread had a moment ago, unless what
    /// it waits for `has_come`. It was told to poll at `due`, which is the other's business from here on. Returns whether it has the
    /// watch.
    fn sleep(
        &self,
        queue: usize,
        due: Option<Nanos>,
        alarm: &Alarm,
        has_come: impl FnOnce() -> bool,
    ) -> bool {
        let watch = &*self.0[queue];
        let me = Arc::new(Sleeper { thread: thread_slot(), woken: Mutex::default(), bell: Condvar::new() });
        let mut state = watch.state.lock();
        if !state.is_kept {
            state.is_kept = true;
            return true;
        }
        state.sleepers.push_back(me.clone());
        watch.asleep.fetch_add(1, Ordering::SeqCst);
        let is_early = state.is_early(due);
        drop(state);
        if is_early {
            alarm.ring();
        }
        fence(Ordering::SeqCst);
        let mut woken = me.woken.lock();
        if !woken.is_up && !has_come() {
            me.bell.wait_for(&mut woken, SLEEP_MAX);
        }
        let is_up = woken.is_up;
        drop(woken);
        if !is_up {
            watch.state.lock().sleepers.retain(|sleeper| !Arc::ptr_eq(sleeper, &me));
        }
        watch.asleep.fetch_sub(1, Ordering::SeqCst);
        // It is in the list no more: no other thread wakes it from here on.
        let woken = me.woken.lock();
        woken.has_watch
    }
}

/// The wait of one thread for what it has submitted.
pub(super) struct Waiter<'a> {
    volume: &'a Volume,
    queue: usize,
    backoff: Backoff,
    has_watch: bool,
    /// What the last poll of this thread has returned.
    due: Option<Nanos>,
}

impl<'a> Waiter<'a> {
    /// The wait of the calling thread.
    pub(super) fn new(volume: &'a Volume) -> Waiter<'a> {
        Waiter {
            volume,
            queue: volume.reapers.own(),
            backoff: Backoff::default(),
            has_watch: false,
            due: None,
        }
    }

    /// Polls at `now`. If what the thread waits for has not come with that, it waits until the next poll is due, until it has
    /// the watch, or until it `has_come`.
    pub(super) fn poll(&mut self, now: Nanos, has_come: impl Fn() -> bool) {
        self.due = self.volume.poll(now);
        if !has_come() {
            self.pause(now, self.due, has_come);
        }
    }

    fn pause(&mut self, now: Nanos, due: Option<Nanos>, has_come: impl Fn() -> bool) {
        let watches = self.volume.alarm.watches();
        if !self.has_watch {
            if self.backoff.is_spinning() && !watches.has_sleepers(self.queue) {
                return self.backoff.pause_unless(self.volume, now, due, has_come);
            }
            self.has_watch = watches.take(self.queue);
            if !self.has_watch {
                self.has_watch = watches.sleep(self.queue, due, &self.volume.alarm, &has_come);
                self.backoff.skip_to_sleep();
            }
            return;
        }
        watches.looks_at(self.queue, Some(due.unwrap_or(NEVER)));
        // In a model no sleep ends by its time.
        if watches.has_sleepers(self.queue) && !IS_MODEL {
            // A moment earlier is not worth the time in which this thread would spin.
            let left = due.map_or(SLEEP_MAX, |due| Duration::from_nanos(due.0.saturating_sub(now.0)));
            self.volume.wait_unless(left.min(SLEEP_MAX), has_come);
        } else {
            self.backoff.pause_unless(self.volume, now, due, has_come);
        }
        watches.looks_at(self.queue, None);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let alarm = &self.volume.alarm;
        match self.has_watch {
            true => alarm.watches().hand_on(self.queue),
            false => alarm.watches().leave(self.queue, self.due, alarm),
        }
    }
}
