//! The time of a volume: one monotonic clock that all its callers share.
//!
//! A volume reads no clock: each call brings the time. Two callers with clocks that began at different moments disagree about
//! every deadline between them. So there is one [`Clock`] for a volume, and each thread has a copy of it.

use std::time::Instant;
use zonal_core::Nanos;

/// A monotonic clock. Copies have the same beginning, and therefore tell the same time.
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
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock(Source::Since(Instant::now()))
    }

    /// A clock that `now` reads, for a program that has one already. It is monotonic and the same in every thread.
    pub const fn read_by(now: fn() -> Nanos) -> Clock {
        Clock(Source::Function(now))
    }

    /// Time since the beginning.
    #[inline]
    pub fn now(&self) -> Nanos {
        match self.0 {
            Source::Since(begin) => Nanos(begin.elapsed().as_nanos() as u64),
            Source::Function(now) => now(),
        }
    }
}
