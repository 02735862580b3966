//! Waiters: all that the file system knows of time and of other threads.
//!
//! Nothing else in this crate reads a clock, sleeps or spins. The caller passes a [`Waiter`], which tells the time and lets
//! the write path continue until something may have changed. A thread polls and naps; a coroutine in virtual time leaves
//! the processor. So the same code runs in both times.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zonal_core::Nanos;
use zonal_io::clock::{Backoff, Clock};
use zonal_io::volume::Volume;

/// A caller's way to wait. Not shared: each thread or coroutine has its own.
pub trait Waiter {
    /// The time now, from any beginning.
    fn now(&self) -> Nanos;

    /// Nanoseconds since 1970, below zero before, for files' times.
    fn wall(&self) -> i64;

    /// Lets `volume` work, and returns after something may have happened. The caller looks at what it waits for and calls
    /// again; no lock may be held.
    fn wait(&self, volume: &Volume);

    /// What the caller waited for has come: the next wait is another one.
    fn done(&self) {}
}

/// The waiter of a thread in real time.
#[derive(Debug)]
pub struct Polling {
    clock: Clock,
    backoff: Cell<Backoff>,
}

impl Polling {
    /// A waiter in the time of `clock`, which all callers of a volume have in common.
    pub fn new(clock: Clock) -> Polling {
        Polling { clock, backoff: Cell::default() }
    }
}

impl Waiter for Polling {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn wall(&self) -> i64 {
        nanos_since_1970(SystemTime::now())
    }

    fn wait(&self, volume: &Volume) {
        let now = self.now();
        let due = volume.poll(now);
        let mut backoff = self.backoff.get();
        backoff.pause(volume, now, due);
        self.backoff.set(backoff);
    }

    fn done(&self) {
        self.backoff.take();
    }
}

/// The nanoseconds between 1970 and a time, below zero before. Times beyond the years 1677 to 2262 give the nearest number.
fn nanos_since_1970(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}

/// Makes a waiter for each call that gets none: the database calls its storage without one.
pub type Waiters = Arc<dyn Fn() -> Box<dyn Waiter> + Send + Sync>;

/// Makes waiters for threads in the time of `clock`.
pub fn polling(clock: Clock) -> Waiters {
    Arc::new(move || Box::new(Polling::new(clock)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_before_1970_is_below_zero() {
        let second = Duration::from_secs(1);
        assert_eq!(nanos_since_1970(UNIX_EPOCH + second), 1_000_000_000);
        assert_eq!(nanos_since_1970(UNIX_EPOCH - second), -1_000_000_000);
        assert_eq!(nanos_since_1970(UNIX_EPOCH + Duration::from_secs(1 << 34)), i64::MAX);
        assert_eq!(nanos_since_1970(UNIX_EPOCH - Duration::from_secs(1 << 34)), i64::MIN);
    }
}
