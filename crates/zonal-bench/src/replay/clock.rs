//! The replay's time: real, or that of a device which lives in virtual time.

use crate::run::VAIN_POLLS_MAX;
use std::time::{Duration, Instant};
use zonal_core::Nanos;
use zonal_io::volume::Volume;

/// Longest sleep: bounds how late something is seen that another thread has brought about.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// How much earlier than due a sleeper wakes: the kernel's timers are about that late.
const SLEEP_MARGIN: Duration = Duration::from_micros(60);

/// Waits without progress before the clock sleeps rather than let other threads run.
const YIELDS_MAX: u32 = 200;

/// Waits of a virtual clock at one moment: beyond that the write path goes round in circles.
const CIRCLES_MAX: u32 = 1_000_000;

/// Time from the replay's beginning.
pub(super) enum Clock {
    Real {
        begin: Instant,
        idle: u32,
    },
    /// Jumps from event to event.
    Virtual {
        now: Nanos,
        circles: u32,
    },
}

/// Nothing can happen any more, or nothing does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stalled;

impl Clock {
    pub(super) fn new(is_virtual: bool) -> Clock {
        match is_virtual {
            true => Clock::Virtual { now: Nanos(0), circles: 0 },
            false => Clock::Real { begin: Instant::now(), idle: 0 },
        }
    }

    pub(super) fn now(&self) -> Nanos {
        match self {
            Clock::Real { begin, .. } => Nanos(begin.elapsed().as_nanos() as u64),
            Clock::Virtual { now, .. } => *now,
        }
    }

    /// Something has happened.
    pub(super) fn progress(&mut self) {
        match self {
            Clock::Real { idle, .. } => *idle = 0,
            Clock::Virtual { circles, .. } => *circles = 0,
        }
    }

    /// Lets time pass: to the next arrival, or to when the write path wants to be polled, whichever is earlier.
    pub(super) fn wait(
        &mut self,
        volume: &Volume,
        arrival: Option<Nanos>,
        due: Option<Nanos>,
    ) -> Result<(), Stalled> {
        let next = [arrival, due].into_iter().flatten().min();
        let at = self.now();
        match self {
            Clock::Virtual { now, circles } => {
                let circles_max = if next.is_some() { CIRCLES_MAX } else { VAIN_POLLS_MAX };
                let next = next.unwrap_or(*now);
                *circles = if next > *now { 0 } else { *circles + 1 };
                *now = next.max(*now);
                if *circles < circles_max { Ok(()) } else { Err(Stalled) }
            }
            Clock::Real { idle, .. } => {
                *idle = idle.saturating_add(1);
                let sleep = match next {
                    Some(next) => {
                        Duration::from_nanos(next.0.saturating_sub(at.0)).saturating_sub(SLEEP_MARGIN)
                    }
                    None => SLEEP_MAX,
                };
                if *idle <= YIELDS_MAX && arrival.is_none() || sleep.is_zero() {
                    std::thread::yield_now();
                } else {
                    volume.wait(sleep.min(SLEEP_MAX));
                }
                Ok(())
            }
        }
    }
}
