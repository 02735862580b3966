//! Time of a volume: one monotonic clock shared by all its callers.
//!
//! A volume reads no clock; each call passes the time. Callers with different clocks would disagree
//! about deadlines, so a volume has one [`Clock`], and each thread a copy of it.

use std::time::Instant;
use zonal_core::Nanos;

/// Monotonic clock. Copies share their starting point and return the same time.
///
/// ```
/// use zonal_io::clock::Clock;
/// let clock = Clock::start();
/// let copy = clock;
/// assert!(copy.now() <= clock.now());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Since(Instant),
    Function(fn() -> Nanos),
}

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Clock {
        Clock(Source::Since(Instant::now()))
    }

    /// Uses `now`, for a program that already has a clock. It has to be monotonic and the same in
    /// every thread.
    pub const fn read_by(now: fn() -> Nanos) -> Clock {
        Clock(Source::Function(now))
    }

    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Nanos {
        match self.0 {
            Source::Since(begin) => Nanos(begin.elapsed().as_nanos() as u64),
            Source::Function(now) => now(),
        }
    }
}
