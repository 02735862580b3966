//! Blocked callers of a queue: one thread polls on behalf of all.
//!
//! Most completions concern one thread. If all threads that wait for a queue slept on its
//! descriptor, every completion and every deadline would wake them all. Instead, one thread in
//! [`Volume::call`] keeps the watch: it sleeps on the descriptor until its poll is due, and polls.
//! Each of the others sleeps until the thread that completes its request wakes it.
//!
//! A thread that is done hands the watch to a sleeping thread, which holds it from then on, asleep
//! or awake, until it hands it on. Threads never sleep here while nobody has the watch.

use super::Volume;
use super::alarm::Alarm;
use super::backoff::Backoff;
use crate::sync::{
    Arc, AtomicUsize, CachePadded, Condvar, ENDING_SLOT, IS_MODEL, Mutex, Ordering, fence, thread_slot,
};
use std::collections::VecDeque;
use std::time::Duration;
use zonal_core::Nanos;

/// Longest sleep of the thread with the watch, and of one other thread, since the former may be in
/// a slow completion function.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Longest sleep of the other threads, of which there may be hundreds, since each wakeup without
/// result costs processor time.
const OTHERS_SLEEP_MAX: Duration = Duration::from_secs(1);

/// No known deadline.
const NEVER: Nanos = Nanos(u64::MAX);

/// Watches of a volume's queues.
pub(super) struct Watches(Box<[CachePadded<Watch>]>);

#[derive(Default)]
struct Watch {
    /// Number of sleeping threads; the only field that a completion reads while all are awake.
    asleep: AtomicUsize,
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    is_kept: bool,
    /// Set while the thread with the watch sleeps: the time of its next poll at the latest.
    looks_at: Option<Nanos>,
    /// Earliest deadline returned to other threads while it was awake; its last poll may have
    /// missed it.
    told: Option<Nanos>,
    sleepers: VecDeque<Arc<Sleeper>>,
    /// One of the sleepers wakes after a short time.
    has_guard: bool,
}

impl WatchState {
    /// Passes a deadline to the thread with the watch. Returns true if it sleeps beyond that and
    /// has to be woken.
    fn set_deadline(&mut self, due: Option<Nanos>) -> bool {
        let Some(due) = due.filter(|_| self.is_kept) else { return false };
        match self.looks_at {
            Some(at) => due < at,
            None => {
                self.told = Some(self.told.map_or(due, |told| told.min(due)));
                false
            }
        }
    }
}

/// Thread that sleeps without the watch.
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
    /// Called under the lock of the list from which the sleeper was removed, so a thread that
    /// leaves finds itself listed or woken. The condition variable is notified without that lock,
    /// as the woken thread would wait for it.
    fn set_woken(&self, has_watch: bool) {
        *self.woken.lock() = Woken { is_up: true, has_watch };
    }
}

impl Watches {
    pub(super) fn new(queues: usize) -> Watches {
        Watches(std::iter::repeat_with(CachePadded::default).take(queues).collect())
    }

    /// Wakes the thread with this number, if it sleeps here. The caller has stored its completion
    /// and issued a fence.
    pub(super) fn wake(&self, thread: usize) -> bool {
        if thread >= ENDING_SLOT {
            return self.wake_ending();
        }
        let watch = &self.0[thread % self.0.len()];
        if watch.asleep.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut state = watch.state.lock();
        let place = state.sleepers.iter().position(|sleeper| sleeper.thread == thread);
        let Some(sleeper) = place.and_then(|place| state.sleepers.remove(place)) else { return false };
        sleeper.set_woken(false);
        drop(state);
        sleeper.bell.notify_one();
        true
    }

    /// Wakes all threads that wait while they exit, as these share one number.
    #[cold]
    fn wake_ending(&self) -> bool {
        let mut woken: Vec<Arc<Sleeper>> = Vec::new();
        for watch in &self.0 {
            let mut state = watch.state.lock();
            let (ending, others): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut state.sleepers).into_iter().partition(|s| s.thread >= ENDING_SLOT);
            state.sleepers = others;
            ending.iter().for_each(|sleeper| sleeper.set_woken(false));
            woken.extend(ending);
        }
        for sleeper in &woken {
            sleeper.bell.notify_one();
        }
        !woken.is_empty()
    }

    /// Takes the watch of `queue`, unless another thread has it.
    fn take(&self, queue: usize) -> bool {
        !std::mem::replace(&mut self.0[queue].state.lock().is_kept, true)
    }

    /// True if threads sleep while another thread has the watch of `queue`.
    fn has_sleepers(&self, queue: usize) -> bool {
        self.0[queue].asleep.load(Ordering::Relaxed) > 0
    }

    /// Hands the watch of `queue` to the longest sleeper, if any.
    fn hand_on(&self, queue: usize) {
        let mut state = self.0[queue].state.lock();
        #[cfg(any(feature = "loom", feature = "shuttle"))]
        if crate::sync::model::is_broken(crate::sync::model::Canary::Unwatched) {
            state.is_kept = false;
            return;
        }
        let heir = state.sleepers.pop_front();
        match &heir {
            Some(heir) => heir.set_woken(true),
            None => *state = WatchState::default(),
        }
        drop(state);
        if let Some(heir) = heir {
            heir.bell.notify_one();
        }
    }

    /// Leaves without the watch; the thread's deadline `due` for `queue` passes to the thread with
    /// the watch.
    fn leave(&self, queue: usize, due: Option<Nanos>, alarm: &Alarm) {
        let sleeps_past = due.is_some() && self.0[queue].state.lock().set_deadline(due);
        if sleeps_past {
            alarm.ring();
        }
    }

    /// Prepares the thread with the watch of `queue` to sleep; its own deadline is `due`. Returns
    /// the earliest deadline, including those of other threads.
    fn begin_sleep(&self, queue: usize, due: Option<Nanos>) -> Option<Nanos> {
        let mut state = self.0[queue].state.lock();
        let due = [due, state.told.take()].into_iter().flatten().min();
        state.looks_at = Some(due.unwrap_or(NEVER));
        due
    }

    /// Ends a sleep of the thread with the watch of `queue`, which polls next.
    fn end_sleep(&self, queue: usize) {
        self.0[queue].state.lock().looks_at = None;
    }

    /// Sleeps until the calling thread is woken or gets the watch of `queue`, unless `has_come` is
    /// true. Its deadline `due` passes to the thread with the watch. Returns true if the caller now
    /// has the watch.
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
        let is_guard = !std::mem::replace(&mut state.has_guard, true);
        watch.asleep.fetch_add(1, Ordering::SeqCst);
        let sleeps_past = state.set_deadline(due);
        drop(state);
        if sleeps_past {
            alarm.ring();
        }
        fence(Ordering::SeqCst);
        let mut woken = me.woken.lock();
        if !woken.is_up && !has_come() {
            me.bell.wait_for(&mut woken, if is_guard { SLEEP_MAX } else { OTHERS_SLEEP_MAX });
        }
        let is_up = woken.is_up;
        drop(woken);
        if !is_up || is_guard {
            let mut state = watch.state.lock();
            state.sleepers.retain(|sleeper| !Arc::ptr_eq(sleeper, &me));
            state.has_guard &= !is_guard;
        }
        watch.asleep.fetch_sub(1, Ordering::SeqCst);
        // Removed from the list, so no other thread wakes it from here on.
        let woken = me.woken.lock();
        woken.has_watch
    }
}

/// Wait of one thread for its own requests.
pub(super) struct ThreadWait<'a> {
    volume: &'a Volume,
    queue: usize,
    backoff: Backoff,
    has_watch: bool,
    /// Deadline returned by this thread's last poll.
    due: Option<Nanos>,
}

impl<'a> ThreadWait<'a> {
    /// Creates the wait of the calling thread.
    pub(super) fn new(volume: &'a Volume) -> ThreadWait<'a> {
        ThreadWait {
            volume,
            queue: volume.reapers.own(),
            backoff: Backoff::default(),
            has_watch: false,
            due: None,
        }
    }

    /// Polls at `now`. If the completion is still missing, waits until the next poll is due, the
    /// thread has the watch, or `has_come` is true.
    pub(super) fn poll(&mut self, now: Nanos, has_come: impl Fn() -> bool) {
        self.due = self.volume.poll(now);
        if !has_come() {
            self.pause(now, self.due, has_come);
        }
    }

    fn pause(&mut self, now: Nanos, due: Option<Nanos>, has_come: impl Fn() -> bool) {
        let watches = self.volume.alarm.watches();
        if !self.has_watch {
            // Another thread is polling, or there is more to do: no need to wake that thread.
            let is_due = due.is_some_and(|due| due <= now);
            if self.backoff.is_spinning() && (is_due || !watches.has_sleepers(self.queue)) {
                return self.backoff.pause_unless(self.volume, now, due, has_come);
            }
            self.has_watch = watches.take(self.queue);
            if !self.has_watch {
                self.has_watch = watches.sleep(self.queue, due, &self.volume.alarm, &has_come);
                self.backoff.skip_to_sleep();
            }
            return;
        }
        let due = watches.begin_sleep(self.queue, due);
        // Sleeps in a model have no timeout.
        if watches.has_sleepers(self.queue) && !IS_MODEL {
            // Spinning would cost more than the slightly earlier wakeup gains.
            let left = due.map_or(SLEEP_MAX, |due| Duration::from_nanos(due.0.saturating_sub(now.0)));
            self.volume.wait_unless(left.min(SLEEP_MAX), has_come);
        } else {
            self.backoff.pause_unless(self.volume, now, due, has_come);
        }
        watches.end_sleep(self.queue);
    }
}

impl Drop for ThreadWait<'_> {
    fn drop(&mut self) {
        let alarm = &self.volume.alarm;
        match self.has_watch {
            true => alarm.watches().hand_on(self.queue),
            false => alarm.watches().leave(self.queue, self.due, alarm),
        }
    }
}
