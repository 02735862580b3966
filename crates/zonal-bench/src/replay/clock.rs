//! The replay's time: real, or that of a device which lives in virtual time.

use std::sync::Arc;
use zonal_core::Nanos;
use zonal_io::clock::Clock as RealClock;
use zonal_io::control::Errands;
use zonal_io::volume::{Backoff, Volume};
use zonal_sim::executor::{Halt, Timeline};

/// Time from the replay's beginning.
pub(super) enum Clock {
    Real {
        clock: RealClock,
        backoff: Backoff,
    },
    /// Jumps from event to event. The player is all that there is in it.
    Virtual(Timeline),
}

impl Clock {
    /// The time of `volume`. A virtual one does `errands` in it.
    pub(super) fn of(volume: &Arc<Volume>, errands: &Errands) -> Clock {
        match volume.device().insight().virtual_time {
            true => Clock::Virtual(Timeline::new(volume.clone()).with_errands(errands)),
            false => Clock::Real { clock: RealClock::start(), backoff: Backoff::default() },
        }
    }

    pub(super) fn now(&self) -> Nanos {
        match self {
            Clock::Real { clock, .. } => clock.now(),
            Clock::Virtual(timeline) => timeline.now(),
        }
    }

    pub(super) fn poll(&self, volume: &Volume) -> Option<Nanos> {
        match self {
            Clock::Real { clock, .. } => volume.poll(clock.now()),
            Clock::Virtual(timeline) => timeline.poll(),
        }
    }

    /// Something has happened.
    pub(super) fn progress(&mut self) {
        match self {
            Clock::Real { backoff, .. } => backoff.reset(),
            Clock::Virtual(timeline) => timeline.has_news(),
        }
    }

    /// Lets time pass: to the next arrival, or to when the write path wants to be polled, whichever is earlier.
    pub(super) fn wait(
        &mut self,
        volume: &Volume,
        arrival: Option<Nanos>,
        due: Option<Nanos>,
    ) -> Result<(), Halt> {
        match self {
            Clock::Virtual(timeline) => timeline.advance(due, arrival, Nanos(u64::MAX)).map(drop),
            Clock::Real { backoff, clock } => {
                let next = [arrival, due].into_iter().flatten().min();
                backoff.pause(volume, clock.now(), next);
                Ok(())
            }
        }
    }
}
