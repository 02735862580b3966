//! Time base of a replay: real time, or virtual time of the device.

use std::sync::Arc;
use zonal_core::Nanos;
use zonal_io::clock::Clock as RealClock;
use zonal_io::control::Errands;
use zonal_io::volume::{Backoff, Volume};
use zonal_sim::executor::{Halt, Timeline};

/// Time since the start of the replay.
pub(super) enum Clock {
    Real {
        clock: RealClock,
        backoff: Backoff,
    },
    /// Jumps from event to event. The player is the only task.
    Virtual(Timeline),
}

impl Clock {
    /// Chooses the time base of `volume`. In virtual time the clock also carries out `errands`.
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

    /// Records progress.
    pub(super) fn progress(&mut self) {
        match self {
            Clock::Real { backoff, .. } => backoff.reset(),
            Clock::Virtual(timeline) => timeline.has_news(),
        }
    }

    /// Waits until the next arrival or until the write path has to be polled, whichever is earlier.
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
