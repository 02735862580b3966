//! A worker that is held back by its job: rates, pauses, and the end of the time that does not count.

use super::cpu::Usage;
use super::worker::{SLEEP_MARGIN, SLEEP_MAX, Worker};
use crate::report::Failure;
use crate::workload::{Dir, Done, Step};
use quanta::Clock;
use std::time::Duration;
use zonal_core::{Nanos, SECTOR_BYTES};

/// Longest sleep with nothing in flight: bounds how late a stop is seen.
const REST_MAX: Duration = Duration::from_millis(10);

/// From where a worker is measured, and what it took since.
#[derive(Default)]
pub(super) struct Begin {
    /// In the clock's raw units.
    pub(super) at: u64,
    pub(super) usage: Usage,
    pub(super) reading: Duration,
    pub(super) writing: Duration,
}

impl Begin {
    pub(super) fn now(clock: &Clock) -> Begin {
        Begin { at: clock.raw(), usage: Usage::now(), ..Begin::default() }
    }
}

impl Worker<'_> {
    /// Takes a step that waits for a time, or begins to measure.
    #[cold]
    #[inline(never)]
    pub(super) fn hold(&mut self, step: Step) {
        match step {
            Step::NotBefore(time) => self.rest(time),
            Step::SpinUntil(time) => self.spin(time),
            Step::RampOver => return self.begin_measuring(),
            _ => unreachable!("not a step that holds"),
        }
        self.workload.time_is(self.now);
        self.judge();
    }

    /// Fails the job if it is slower than it may be.
    fn judge(&mut self) {
        let Some(floor) = &mut self.floor else { return };
        let done = [Dir::Read, Dir::Write]
            .map(|dir| Done { ios: self.watch.ios(dir), bytes: self.watch.sectors(dir) * SECTOR_BYTES });
        if self.is_measured
            && let Err(slow) = floor.check(self.now, done)
        {
            self.fail(Failure::TooSlow(slow));
        }
    }

    /// Lets the write path get on until `time`, and sleeps where it has nothing to do.
    fn rest(&mut self, time: Nanos) {
        loop {
            self.read_clock();
            if self.now >= time || self.is_over() {
                return;
            }
            let due = self.environment.volume.poll(self.now);
            self.reap();
            let wake = due.map_or(time, |due| due.min(time));
            let left = Duration::from_nanos(wake.0.saturating_sub(self.now.0)).saturating_sub(SLEEP_MARGIN);
            if left.is_zero() {
                // Whoever yields this short before its time may be back long after it.
                std::hint::spin_loop();
            } else if self.in_flight == 0 {
                std::thread::sleep(left.min(REST_MAX));
            } else {
                self.environment.volume.wait(left.min(SLEEP_MAX));
            }
        }
    }

    fn spin(&mut self, time: Nanos) {
        loop {
            self.read_clock();
            if self.now >= time || self.is_over() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn begin_measuring(&mut self) {
        self.measure = self.environment.measure(self.plan);
        self.watch.restart();
        (self.resets, self.finishes) = (0, 0);
        self.is_measured = true;
        self.begin = Begin::now(self.environment.clock);
    }
}
