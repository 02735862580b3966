//! Threads that wait for a queue: one of them keeps watch for all.
//!
//! Most completions are news for one thread. If all threads that wait for a queue slept on its news, each completion, and each
//! time that a poll is due, would wake all of them. So one of those in [`Volume::call`] keeps the watch: it sleeps on the news
//! until its poll is due, and polls. Each of the others sleeps until the thread that completes its request wakes it.
//!
//! A thread that has what it waited for hands the watch to a sleeping thread. From then on the watch is that thread's, asleep or
//! awake, until this one hands it on: at no time do threads sleep here while no thread has the watch.

use super::Volume;
use super::alarm::Alarm;
use super::backoff::Backoff;
use crate::sync::{
    Arc, AtomicUsize, CachePadded, Condvar, ENDING_SLOT, IS_MODEL, Mutex, Ordering, fence, thread_slot,
};
use std::collections::VecDeque;
use std::time::Duration;
use zonal_core::Nanos;

/// Longest sleep of a thread that has the watch, and of one other: the thread with the watch may be in a completion function that
/// takes its time.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Longest sleep of the others, of which there may be hundreds: each end of a sleep takes the processor for a look that finds
/// nothing.
const OTHERS_SLEEP_MAX: Duration = Duration::from_secs(1);

/// No deadline, or none that is known.
const NEVER: Nanos = Nanos(u64::MAX);

/// The watches of a volume's queues.
pub(super) struct Watches(Box<[CachePadded<Watch>]>);

#[derive(Default)]
struct Watch {
    /// The one thing that a completion reads while all are awake.
    asleep: AtomicUsize,
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    is_kept: bool,
    /// The thread that has the watch sleeps, and this is when it looks again at the latest.
    looks_at: Option<Nanos>,
    /// The earliest deadline that other threads were told while it was awake: it may have polled before there was that one.
    told: Option<Nanos>,
    sleepers: VecDeque<Arc<Sleeper>>,
    /// One of the sleepers looks after a short time.
    has_guard: bool,
}

impl WatchState {
    /// Leaves a deadline to the thread that has the watch. Returns whether it sleeps past that time, and has to be woken.
    fn tell(&mut self, due: Option<Nanos>) -> bool {
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
    /// Under the lock of the list that it was taken from: a sleeper that has left finds itself there, or woken. The bell is rung
    /// after that lock, or the thread that wakes would wait for it.
    fn set_woken(&self, has_watch: bool) {
        *self.woken.lock() = Woken { is_up: true, has_watch };
    }
}

impl Watches {
    pub(super) fn new(queues: usize) -> Watches {
        Watches(std::iter::repeat_with(CachePadded::default).take(queues).collect())
    }

    /// Wakes the thread with this number, if it sleeps here. For a caller that has left it what it waits for, and a
    /// fence after that.
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

    /// Wakes the threads that sleep while they end: they share their number.
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

    /// A thread without the watch that was told to poll `queue` at `due` does not come back.
    fn leave(&self, queue: usize, due: Option<Nanos>, alarm: &Alarm) {
        let sleeps_past = due.is_some() && self.0[queue].state.lock().tell(due);
        if sleeps_past {
            alarm.ring();
        }
    }

    /// The thread that has the watch of `queue` is about to sleep and was told to poll at `due`. Returns when it has to, with what
    /// other threads were told.
    fn begin_sleep(&self, queue: usize, due: Option<Nanos>) -> Option<Nanos> {
        let mut state = self.0[queue].state.lock();
        let due = [due, state.told.take()].into_iter().flatten().min();
        state.looks_at = Some(due.unwrap_or(NEVER));
        due
    }

    /// The thread that has the watch of `queue` has slept, and polls next.
    fn end_sleep(&self, queue: usize) {
        self.0[queue].state.lock().looks_at = None;
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
        let is_guard = !std::mem::replace(&mut state.has_guard, true);
        watch.asleep.fetch_add(1, Ordering::SeqCst);
        let sleeps_past = state.tell(due);
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
        // It is in the list no more: no other thread wakes it from here on.
        let woken = me.woken.lock();
        woken.has_watch
    }
}

/// The wait of one thread for what it has submitted.
pub(super) struct ThreadWait<'a> {
    volume: &'a Volume,
    queue: usize,
    backoff: Backoff,
    has_watch: bool,
    /// What the last poll of this thread has returned.
    due: Option<Nanos>,
}

impl<'a> ThreadWait<'a> {
    /// The wait of the calling thread.
    pub(super) fn new(volume: &'a Volume) -> ThreadWait<'a> {
        ThreadWait {
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
            // Another thread is in the middle of a poll, or there is more to do: that thread need not be woken for it.
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
        // In a model no sleep ends by its time.
        if watches.has_sleepers(self.queue) && !IS_MODEL {
            // A moment earlier is not worth the time in which this thread would spin.
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
