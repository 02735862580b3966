//! Waiters: the file system's only source of time and of waiting.
//!
//! Nothing else in this crate reads a clock, sleeps or spins. The caller passes a [`Wait`], which
//! returns the time and lets the write path make progress until something may have changed. A
//! thread polls and naps; a coroutine in virtual time yields. So the same code runs in real and in
//! virtual time.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use zonal_core::Nanos;
use zonal_io::clock::Clock;
use zonal_io::sync::{Condvar, IS_MODEL, Mutex};
use zonal_io::volume::{Backoff, Volume};

/// Longest sleep of a thread, after which it notices changes caused only by time. A hundred threads
/// that wake twice a second take less than 1% of a core.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// A caller's way of waiting. Not shared: each thread or coroutine has its own.
pub trait Wait {
    /// The current time, from an arbitrary origin.
    fn now(&self) -> Nanos;

    /// Nanoseconds since 1970, negative before, for file times.
    fn wall(&self) -> i64;

    /// Lets `volume` make progress, and returns after something may have happened. The caller
    /// checks its condition and calls again. It must not hold a lock.
    fn wait(&self, volume: &Volume);

    /// Called before a request that blocks the calling thread in the drive. A call of
    /// [`done`](Wait::done) follows.
    fn begin_blocking(&self) {}

    /// Ends the current wait, so that the next call of `wait` starts a new one.
    fn done(&self) {}

    /// True if the caller may sleep until another thread rings its bell. A coroutine may not, as it
    /// has no thread of its own.
    fn may_sleep(&self) -> bool {
        false
    }

    /// Sleeps until `bell` is rung or a time limit expires. Called only if [`Wait::may_sleep`] is
    /// true.
    fn sleep(&self, bell: &Bell) {
        bell.wait(SLEEP_MAX);
    }
}

/// Wakes a thread that sleeps in the file system.
#[derive(Default)]
pub struct Bell {
    woken: Mutex<Option<Woken>>,
    rung: Condvar,
}

/// Reason for a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    /// The awaited event may have happened.
    Told,
    /// The sleeper takes over the watch.
    WithWatch,
}

impl Bell {
    /// Sleeps until the bell is rung, for at most `longest`.
    pub fn wait(&self, longest: Duration) {
        let mut woken = self.woken.lock();
        if woken.is_some() {
            return;
        }
        // In a model, sleeps never time out, so that a missing ring is detected.
        if IS_MODEL {
            self.rung.wait(&mut woken);
        } else {
            self.rung.wait_for(&mut woken, longest);
        }
    }

    /// Marks the sleeper as woken; [`Bell::ring`] follows.
    pub(crate) fn wake(&self, has_watch: bool) {
        *self.woken.lock() = Some(if has_watch { Woken::WithWatch } else { Woken::Told });
    }

    /// Rings for a sleeper that was marked as woken.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// True if the sleeper was woken to take over the watch.
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
    /// Start of the current wait.
    began: Cell<Option<Nanos>>,
}

/// After a wait longer than this, in nanoseconds, the next one sleeps at once: spinning for a disk
/// costs as much CPU time as the work itself.
const LONG: u64 = 1_000_000;

impl Polling {
    /// A waiter in the time of `clock`, which has to be shared by all callers of a volume.
    pub fn new(clock: Clock) -> Polling {
        Polling { clock, backoff: Cell::default(), began: Cell::default() }
    }
}

impl Wait for Polling {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn wall(&self) -> i64 {
        // The clock that the kernel uses for file times, so that changes by the kernel and by Zonal
        // are stamped in order.
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
        // If this thread takes over the watch, others have spun before it.
        let mut backoff = self.backoff.get();
        backoff.skip_to_sleep();
        self.backoff.set(backoff);
    }
}

/// Nanoseconds since 1970, saturated outside the years 1677 to 2262.
fn nanos_since_1970(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Makes a waiter where none is passed, because the rows call their place without one.
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
