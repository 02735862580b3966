//! Steps of a paced worker: rates, pauses, and the end of the ramp.

use super::Worker;
use super::time::Time;
use crate::jobs::workload::{Completed, Dir, WorkerStep};
use crate::measure::Usage;
use crate::report::Failure;
use quanta::Clock;
use std::time::Duration;
use zonal_core::{Nanos, SECTOR_BYTES};

/// Start of a worker's measurement, and times accumulated since.
#[derive(Default)]
pub(super) struct Begin {
    /// In raw clock units.
    pub(super) at: u64,
    pub(super) usage: Usage,
    pub(super) reading: Duration,
    pub(super) writing: Duration,
}

impl Begin {
    pub(super) fn now<T: Time>(clock: &Clock) -> Begin {
        Begin { at: clock.raw(), usage: T::usage(), ..Begin::default() }
    }
}

impl<T: Time> Worker<'_, T> {
    /// Takes a step that waits for a time or starts the measurement.
    #[cold]
    #[inline(never)]
    pub(super) fn hold(&mut self, step: WorkerStep) {
        match step {
            WorkerStep::NotBefore(time) => self.rest(time),
            WorkerStep::SpinUntil(time) => self.spin(time),
            WorkerStep::RampOver => return self.begin_measuring(),
            _ => unreachable!("not a step that holds"),
        }
        self.workload.time_is(self.now);
        self.judge();
    }

    /// Fails the job if it is below its minimum rate.
    fn judge(&mut self) {
        let Some(floor) = &mut self.floor else { return };
        let done = [Dir::Read, Dir::Write]
            .map(|dir| Completed { ios: self.watch.ios(dir), bytes: self.watch.sectors(dir) * SECTOR_BYTES });
        if self.is_measured
            && let Err(slow) = floor.check(self.now, done)
        {
            self.fail(Failure::TooSlow(slow));
        }
    }

    /// Drives the write path until `time`, and sleeps while it has nothing to do.
    fn rest(&mut self, time: Nanos) {
        loop {
            self.read_clock();
            if self.now >= time || self.is_over() {
                return;
            }
            T::rest(self, time);
        }
    }

    fn spin(&mut self, time: Nanos) {
        loop {
            self.read_clock();
            if self.now >= time || self.is_over() {
                return;
            }
            T::spin(self, time);
        }
    }

    fn begin_measuring(&mut self) {
        self.measure = self.environment.measure(self.plan);
        self.watch.restart();
        (self.resets, self.finishes) = (0, 0);
        self.is_measured = true;
        self.begin = Begin::now::<T>(self.environment.clock);
    }
}
