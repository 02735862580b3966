//! Waiters: all that the file system knows of time and of other threads.
//!
//! Nothing else in this crate reads a clock, sleeps or spins. The caller passes a [`Waiter`], which tells the time and lets
//! the write path continue until something may have changed. A thread polls and naps; a coroutine in virtual time leaves
//! the processor. So the same code runs in both times.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zonal_core::Nanos;
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

/// Polls without news before other threads get the processor.
const SPINS_MAX: u32 = 100;

/// Polls without news before the waiter naps.
const YIELDS_MAX: u32 = 1000;

/// Longest nap: how late the thread sees what another one did.
const NAP_MAX: Duration = Duration::from_micros(500);

/// The waiter of a thread in real time: polls, then yields, then naps.
#[derive(Debug)]
pub struct Polling {
    begin: Instant,
    idle: Cell<u32>,
}

impl Polling {
    /// A waiter whose time begins at `begin`, which all waiters of a volume have in common.
    pub fn since(begin: Instant) -> Polling {
        Polling { begin, idle: Cell::new(0) }
    }
}

impl Waiter for Polling {
    fn now(&self) -> Nanos {
        Nanos(self.begin.elapsed().as_nanos() as u64)
    }

    fn wall(&self) -> i64 {
        nanos_since_1970(SystemTime::now())
    }

    fn wait(&self, volume: &Volume) {
        let now = self.now();
        let due = volume.poll(now);
        let idle = self.idle.get().saturating_add(1);
        self.idle.set(idle);
        if idle <= SPINS_MAX {
            std::hint::spin_loop();
        } else if idle <= YIELDS_MAX {
            std::thread::yield_now();
        } else {
            let nap =
                due.map_or(NAP_MAX, |due| Duration::from_nanos(due.0.saturating_sub(now.0)).min(NAP_MAX));
            volume.wait(nap);
        }
    }

    fn done(&self) {
        self.idle.set(0);
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

/// Makes waiters for threads in real time, which begins at `begin`.
pub fn polling(begin: Instant) -> Waiters {
    Arc::new(move || Box::new(Polling::since(begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_1970_is_below_zero() {
        let second = Duration::from_secs(1);
        assert_eq!(nanos_since_1970(UNIX_EPOCH + second), 1_000_000_000);
        assert_eq!(nanos_since_1970(UNIX_EPOCH - second), -1_000_000_000);
        assert_eq!(nanos_since_1970(UNIX_EPOCH + Duration::from_secs(1 << 34)), i64::MAX);
        assert_eq!(nanos_since_1970(UNIX_EPOCH - Duration::from_secs(1 << 34)), i64::MIN);
    }
}
