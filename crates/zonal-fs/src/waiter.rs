//! Waiters: all that the file system knows of time and of other threads.
//!
//! Nothing else in this crate reads a clock, sleeps or spins. The caller passes a [`Wait`], which tells the time and lets
//! the write path continue until something may have changed. A thread polls and naps; a coroutine in virtual time leaves
//! the processor. So the same code runs in both times.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use zonal_core::Nanos;
use zonal_io::clock::Clock;
use zonal_io::sync::{Condvar, IS_MODEL, Mutex};
use zonal_io::volume::{Backoff, Volume};

/// Longest sleep of a thread: what only time changes is seen then. A hundred threads that look twice a second take less than a hundredth
/// of a core.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// A caller's way to wait. Not shared: each thread or coroutine has its own.
pub trait Wait {
    /// The time now, from any beginning.
    fn now(&self) -> Nanos;

    /// Nanoseconds since 1970, below zero before, for files' times.
    fn wall(&self) -> i64;

    /// Lets `volume` work, and returns after something may have happened. The caller looks at what it waits for and calls
    /// again; no lock may be held.
    fn wait(&self, volume: &Volume);

    /// What the caller waited for has come: the next wait is another one.
    fn done(&self) {}

    /// Whether the caller may sleep until another thread rings its bell. A coroutine may not: it has no thread of its own.
    fn may_sleep(&self) -> bool {
        false
    }

    /// Sleeps until `bell` is rung, or for a time that the caller chooses. Called only if it [may](Wait::may_sleep).
    fn sleep(&self, bell: &Bell) {
        bell.wait(SLEEP_MAX);
    }
}

/// What wakes a thread that sleeps in the file system.
#[derive(Default)]
pub struct Bell {
    woken: Mutex<Option<Woken>>,
    rung: Condvar,
}

/// How a sleeper was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    /// What it waits for may have come.
    Told,
    /// It has the watch now.
    WithWatch,
}

impl Bell {
    /// Sleeps until the bell is rung, and no longer than `longest`.
    pub fn wait(&self, longest: Duration) {
        let mut woken = self.woken.lock();
        if woken.is_some() {
            return;
        }
        // In a model no sleep ends by its time: a bell that is not rung would be missed.
        if IS_MODEL {
            self.rung.wait(&mut woken);
        } else {
            self.rung.wait_for(&mut woken, longest);
        }
    }

    /// The sleeper is to wake once the bell is rung.
    pub(crate) fn wake(&self, has_watch: bool) {
        *self.woken.lock() = Some(if has_watch { Woken::WithWatch } else { Woken::Told });
    }

    /// Rings for a sleeper that was woken.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// Whether the sleeper was woken with the watch.
    pub(crate) fn has_watch(&self) -> bool {
        *self.woken.lock() == Some(Woken::WithWatch)
    }
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

/// The waiter of a thread in real time.
#[derive(Debug)]
pub struct Polling {
    clock: Clock,
    backoff: Cell<Backoff>,
    /// When the wait began that has not ended.
    began: Cell<Option<Nanos>>,
}

/// After a wait that was longer, the next one sleeps at once: to spin for a disk takes as much of the processor as its work.
const LONG: u64 = 1_000_000;

impl Polling {
    /// A waiter in the time of `clock`, which all callers of a volume have in common.
    pub fn new(clock: Clock) -> Polling {
        Polling { clock, backoff: Cell::default(), began: Cell::default() }
    }
}

impl Wait for Polling {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn wall(&self) -> i64 {
        // The clock that the kernel stamps files with: of two changes, one of the kernel's and one of this, the later is never the older.
        nanos_since_1970(clock_gettime(ClockId::RealtimeCoarse))
    }

    fn wait(&self, volume: &Volume) {
        let now = self.now();
        if self.began.get().is_none() {
            self.began.set(Some(now));
        }
        let due = volume.poll(now);
        let mut backoff = self.backoff.get();
        backoff.pause(volume, now, due);
        self.backoff.set(backoff);
    }

    fn done(&self) {
        let Some(began) = self.began.take() else { return };
        let mut backoff = self.backoff.get();
        match self.now().0.saturating_sub(began.0) < LONG {
            true => backoff.reset(),
            false => backoff.skip_to_sleep(),
        }
        self.backoff.set(backoff);
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn sleep(&self, bell: &Bell) {
        bell.wait(SLEEP_MAX);
        // If it has the watch now, other threads have spun before it.
        let mut backoff = self.backoff.get();
        backoff.skip_to_sleep();
        self.backoff.set(backoff);
    }
}

/// Nanoseconds since 1970. Times beyond the years 1677 to 2262 give the nearest number.
fn nanos_since_1970(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Makes a waiter for each call that gets none: the database calls its storage without one.
pub type Waiters = Arc<dyn Fn() -> Box<dyn Wait> + Send + Sync>;

/// Makes waiters for threads in the time of `clock`.
pub fn polling(clock: Clock) -> Waiters {
    Arc::new(move || Box::new(Polling::new(clock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_1970_is_below_zero() {
        let at = |tv_sec, tv_nsec| nanos_since_1970(Timespec { tv_sec, tv_nsec });
        assert_eq!((at(1, 5), at(-1, 5)), (1_000_000_005, -999_999_995));
        assert_eq!((at(1 << 34, 0), at(-1 << 34, 0)), (i64::MAX, i64::MIN));
    }
}
