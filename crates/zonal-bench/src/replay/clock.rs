//! The replay's time: real, or that of a device which lives in virtual time.

use crate::run::VAIN_POLLS_MAX;
use zonal_core::Nanos;
use zonal_io::clock::{Backoff, Clock as RealClock};
use zonal_io::volume::Volume;

/// Waits of a virtual clock at one moment: beyond that the write path goes round in circles.
const CIRCLES_MAX: u32 = 1_000_000;

/// Time from the replay's beginning.
pub(super) enum Clock {
    Real {
        clock: RealClock,
        backoff: Backoff,
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
            false => Clock::Real { clock: RealClock::start(), backoff: Backoff::default() },
        }
    }

    pub(super) fn now(&self) -> Nanos {
        match self {
            Clock::Real { clock, .. } => clock.now(),
            Clock::Virtual { now, .. } => *now,
        }
    }

    /// Something has happened.
    pub(super) fn progress(&mut self) {
        match self {
            Clock::Real { backoff, .. } => backoff.reset(),
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
            Clock::Real { backoff, .. } => {
                backoff.pause(volume, at, next);
                Ok(())
            }
        }
    }
}
