//! Pacing of a worker: rates, pauses and the end of the ramp.
//!
//! Owns no clock. Before each I/O it returns a [`WorkerStep`] with a time to wait for, if any, and
//! receives the time when that is reached, so it works in virtual time as well. All times count
//! from the worker's first step, and again from the end of `ramp_time`.
//!
//! # Rates
//! The next I/O of a direction is due when the direction's previous I/Os would have finished at its
//! rate. There is no window, so a delayed worker catches up. If one direction of a mixed job is
//! ahead of its rate, the other may go first. If both are ahead, the one due earlier goes first.
//!
//! # Pauses
//! A pause is due after a number of I/Os or after some time. It starts once nothing is in flight.
//!
//! # Differences from fio
//! - Times have a resolution of one nanosecond rather than one microsecond.
//! - The count for `thinktime_blocks` does not restart at the end of `ramp_time`. fio stops pausing
//!   there until the count has caught up.
//! - The mean gap of `rate_process=poisson` has fractions. fio does not limit rates above a million
//!   per second.

use super::random::{Purpose, Stream};
use super::{Dir, WorkerStep};
use crate::job::{PerDirection, RateProcess, ThinkBlocks};
use crate::jobs::plan::WorkerPlan;
use std::time::Duration;
use zonal_core::{Nanos, SECTOR_BYTES};

const SECOND: u128 = 1_000_000_000;

/// Pacing state of a worker.
pub(super) struct Pace {
    /// Current time, if reported since the last I/O.
    now: Option<Nanos>,
    /// Start of all times.
    begun: Option<Nanos>,
    /// Length of the ramp, as long as it lasts.
    ramp: Option<u64>,
    rates: [Option<Rate>; 2],
    pauses: Option<Pauses>,
    /// Direction that waits for its rate.
    waiting: Option<Dir>,
    /// True if the driver checks minimum rates, for which it needs the time.
    is_judged: bool,
}

impl Pace {
    /// Creates the state of a worker that is paced in any way.
    pub(super) fn new(plan: &WorkerPlan) -> Option<Box<Pace>> {
        let ramp = Some(nanos(plan.spec.pace.ramp_time)).filter(|&ramp| ramp > 0);
        let (rates, pauses) = (Rate::of(plan), Pauses::new(plan));
        let is_judged = plan.spec.pace.has_rate_min();
        let pace = Pace { now: None, begun: None, ramp, rates, pauses, waiting: None, is_judged };
        (!pace.is_spent()).then(|| Box::new(pace))
    }

    /// True if it will never delay the worker again.
    pub(super) fn is_spent(&self) -> bool {
        !self.is_judged
            && self.ramp.is_none()
            && self.rates.iter().all(Option::is_none)
            && self.pauses.is_none()
    }

    pub(super) fn time_is(&mut self, now: Nanos) {
        self.now = Some(now);
        self.begun.get_or_insert(now);
    }

    /// Records that an I/O is issued.
    pub(super) fn issued(&mut self, dir: Dir, sectors: u32) {
        self.now = None;
        self.waiting = None;
        if let Some(rate) = &mut self.rates[dir as usize] {
            rate.issued(sectors);
        }
        if let Some(pauses) = &mut self.pauses {
            pauses.issued();
        }
    }

    /// Returns the step required before the next I/O, with `in_flight` I/Os in flight.
    pub(super) fn hold(&mut self, in_flight: u32) -> Option<WorkerStep> {
        let (Some(now), Some(begun)) = (self.now, self.begun) else {
            return Some(WorkerStep::NotBefore(Nanos(0)));
        };
        if self.ramp.is_some_and(|ramp| now.0 >= begun.0.saturating_add(ramp)) {
            self.ramp = None;
            self.begun = Some(now);
            self.rates.iter_mut().flatten().for_each(Rate::restart);
            return Some(WorkerStep::RampOver);
        }
        let step = self.pauses.as_mut()?.hold(now, begun, in_flight);
        if step == Some(WorkerStep::Wait) {
            // Time will have passed when the wait ends.
            self.now = None;
        }
        step
    }

    /// Direction that waits for its rate.
    pub(super) fn waiting(&self) -> Option<Dir> {
        self.waiting
    }

    /// Returns the direction to continue with instead of `wanted`, or a step that waits for one.
    /// `other_percent` is the share of the other direction.
    pub(super) fn turn(&mut self, wanted: Dir, other_percent: u8) -> Result<Dir, WorkerStep> {
        let (Some(now), Some(begun)) = (self.now, self.begun) else {
            return Err(WorkerStep::NotBefore(Nanos(0)));
        };
        let at = |dir: Dir| self.rates[dir as usize].as_ref().map_or(begun.0, |rate| rate.next_after(begun));
        let other = wanted.other();
        let (own_at, other_at) = (at(wanted), at(other));
        if own_at <= now.0 {
            return Ok(wanted);
        }
        let (dir, next) = match other_percent > 0 && self.waiting.is_none() {
            true if other_at <= now.0 => return Ok(other),
            true if other_at < own_at => (other, other_at),
            _ => (wanted, own_at),
        };
        self.waiting = Some(dir);
        // Rates restart at the end of the ramp.
        let ramp_end = self.ramp.map_or(u64::MAX, |ramp| begun.0.saturating_add(ramp));
        Err(WorkerStep::NotBefore(Nanos(next.min(ramp_end))))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Rate limit of one direction.
struct Rate {
    bytes_per_second: u64,
    /// Bytes issued since the start.
    bytes: u64,
    /// Nanoseconds from the start at which the next I/O is due.
    next: u64,
    /// Source of random gaps, with their mean in nanoseconds.
    gaps: Option<(Stream, f64)>,
}

impl Rate {
    fn of(plan: &WorkerPlan) -> [Option<Rate>; 2] {
        let pace = &plan.spec.pace;
        let blocks = plan.spec.block_min();
        let bytes = |rate: u64, ios: u32, block: u32| match rate {
            0 => u64::from(ios) * u64::from(block),
            rate => rate,
        };
        let PerDirection { read, write } = pace.rate;
        [
            Rate::new(plan, Dir::Read, bytes(read, pace.rate_iops.read, blocks.read)),
            Rate::new(plan, Dir::Write, bytes(write, pace.rate_iops.write, blocks.write)),
        ]
    }

    fn new(plan: &WorkerPlan, dir: Dir, bytes_per_second: u64) -> Option<Rate> {
        let (sectors, purpose) = match dir {
            Dir::Read => (plan.read_sectors, Purpose::ReadGaps),
            Dir::Write => (plan.write_sectors, Purpose::WriteGaps),
        };
        let gaps = || {
            let block = f64::from(sectors) * SECTOR_BYTES as f64;
            let mean = block / bytes_per_second as f64 * SECOND as f64;
            (Stream::new(plan.seed, plan.number as u64, 0, purpose), mean)
        };
        let gaps = (plan.spec.pace.rate_process == RateProcess::Poisson).then(gaps);
        (bytes_per_second > 0).then_some(Rate { bytes_per_second, bytes: 0, next: 0, gaps })
    }

    fn restart(&mut self) {
        (self.bytes, self.next) = (0, 0);
    }

    fn issued(&mut self, sectors: u32) {
        self.bytes += u64::from(sectors) * SECTOR_BYTES;
        self.next = match &mut self.gaps {
            None => {
                let nanos = u128::from(self.bytes) * SECOND / u128::from(self.bytes_per_second);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
            Some((stream, mean)) => {
                // In (0, 1], because 0 has no logarithm.
                let chance = ((stream.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                self.next.saturating_add((*mean * -chance.ln()) as u64)
            }
        };
    }

    fn next_after(&self, begun: Nanos) -> u64 {
        begun.0.saturating_add(self.next)
    }
}

/// State of `thinktime` and related options.
struct Pauses {
    /// Lengths in nanoseconds.
    pause: u64,
    spin: u64,
    /// I/Os between pauses; 0 if only time decides.
    every: u64,
    counts: ThinkBlocks,
    /// Nanoseconds between pauses; 0 if only I/Os decide.
    iotime: u64,
    ios: u64,
    /// Count at the last pause, and the time at which it was due.
    last: u64,
    last_at: Option<u64>,
    stage: PaceStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PaceStage {
    /// No I/O was issued since the last step.
    Idle,
    Issued,
    /// A pause starts once nothing is in flight.
    Due,
    /// Paused until these times.
    Pausing {
        spin: u64,
        end: u64,
    },
}

impl Pauses {
    fn new(plan: &WorkerPlan) -> Option<Pauses> {
        let pace = &plan.spec.pace;
        let pause = nanos(pace.thinktime);
        let iotime = nanos(pace.thinktime_iotime);
        let (every, decides) = match (pace.thinktime_blocks, iotime) {
            (None, 0) => (1, true),
            (None, _) => (0, false),
            (Some(blocks), _) => (blocks.into(), true),
        };
        (pause > 0).then_some(Pauses {
            pause,
            spin: nanos(pace.thinktime_spin).min(pause),
            // A count of 0 means every I/O, as in fio.
            every: if decides { u64::max(every, 1) } else { 0 },
            counts: pace.thinktime_blocks_type,
            iotime,
            ios: 0,
            last: 0,
            last_at: None,
            stage: PaceStage::Idle,
        })
    }

    fn issued(&mut self) {
        self.ios += 1;
        self.stage = PaceStage::Issued;
    }

    fn hold(&mut self, now: Nanos, begun: Nanos, in_flight: u32) -> Option<WorkerStep> {
        if self.stage == PaceStage::Issued {
            self.stage = if self.is_due(now, begun, in_flight) { PaceStage::Due } else { PaceStage::Idle };
        }
        if self.stage == PaceStage::Due {
            if in_flight > 0 {
                return Some(WorkerStep::Wait);
            }
            let until = |length: u64| now.0.saturating_add(length);
            self.stage = PaceStage::Pausing { spin: until(self.spin), end: until(self.pause) };
        }
        match self.stage {
            PaceStage::Pausing { spin, .. } if now.0 < spin => Some(WorkerStep::SpinUntil(Nanos(spin))),
            PaceStage::Pausing { end, .. } if now.0 < end => Some(WorkerStep::NotBefore(Nanos(end))),
            _ => {
                self.stage = PaceStage::Idle;
                None
            }
        }
    }

    fn is_due(&mut self, now: Nanos, begun: Nanos, in_flight: u32) -> bool {
        let counted = match self.counts {
            ThinkBlocks::Complete => self.ios - u64::from(in_flight),
            ThinkBlocks::Issue => self.ios,
        };
        let since = now.0.saturating_sub(self.last_at.unwrap_or(begun.0));
        let by_time = self.iotime > 0 && since >= self.iotime + self.pause;
        let by_count = self.every > 0 && counted >= self.last + self.every;
        if by_time || by_count {
            self.last = counted;
            self.last_at = Some(now.0);
        }
        by_time || by_count
    }
}

#[cfg(test)]
mod tests;
