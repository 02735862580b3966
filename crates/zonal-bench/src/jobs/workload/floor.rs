//! Minimum rates: `rate_min` and `rate_iops_min`.
//!
//! Owns no clock: the caller passes the time and the completed amounts. As in fio, the first two
//! seconds are ignored, and each direction is checked over windows of at least `rate_cycle`.

use crate::job::PerDirection;
use crate::jobs::plan::WorkerPlan;
use crate::measure::Dir;
use crate::report::{RateUnit, TooSlow};
use zonal_core::Nanos;

/// Time before the first window, as in fio.
const SETTLE: u64 = 2_000_000_000;

/// Successfully completed requests and bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Completed {
    /// Requests.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Monitors the rates of one worker.
#[derive(Clone, Debug)]
pub struct RateFloor {
    bytes: PerDirection<u64>,
    ios: PerDirection<u32>,
    cycle: u64,
    begun: Option<Nanos>,
    windows: [Option<(Nanos, Completed)>; 2],
}

impl RateFloor {
    /// Creates the monitor, if the worker has a minimum rate.
    pub fn new(plan: &WorkerPlan) -> Option<RateFloor> {
        let pace = &plan.spec.pace;
        let cycle = u64::try_from(pace.rate_cycle.as_nanos()).unwrap_or(u64::MAX);
        let (bytes, ios) = (pace.rate_min, pace.rate_iops_min);
        let floor = RateFloor { bytes, ios, cycle, begun: None, windows: [None; 2] };
        pace.has_rate_min().then_some(floor)
    }

    /// Checks the amounts completed up to `now`.
    ///
    /// # Errors
    /// [`TooSlow`] for the first direction below its minimum.
    pub fn check(&mut self, now: Nanos, done: [Completed; 2]) -> Result<(), TooSlow> {
        let begun = *self.begun.get_or_insert(now);
        if now.0.saturating_sub(begun.0) < SETTLE {
            return Ok(());
        }
        self.check_direction(Dir::Read, now, done[0])?;
        self.check_direction(Dir::Write, now, done[1])
    }

    fn check_direction(&mut self, dir: Dir, now: Nanos, done: Completed) -> Result<(), TooSlow> {
        let (bytes, ios) = match dir {
            Dir::Read => (self.bytes.read, self.ios.read),
            Dir::Write => (self.bytes.write, self.ios.write),
        };
        if done.ios == 0 || bytes == 0 && ios == 0 {
            return Ok(());
        }
        let window = &mut self.windows[dir as usize];
        if let Some((from, before)) = *window {
            let spent = now.0.saturating_sub(from.0);
            if spent == 0 || spent < self.cycle {
                return Ok(());
            }
            let (unit, wanted, count) = match bytes {
                0 => (RateUnit::Requests, u64::from(ios), done.ios.saturating_sub(before.ios)),
                bytes => (RateUnit::Bytes, bytes, done.bytes.saturating_sub(before.bytes)),
            };
            let found = (u128::from(count) * 1_000_000_000 / u128::from(spent)) as u64;
            if found < wanted {
                return Err(TooSlow { dir, unit, wanted, found });
            }
        }
        *window = Some((now, done));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn floor(bytes: u64, ios: u32, cycle: u64) -> RateFloor {
        let bytes = PerDirection { read: 0, write: bytes };
        let ios = PerDirection { read: 0, write: ios };
        RateFloor { bytes, ios, cycle, begun: None, windows: [None; 2] }
    }

    /// Checks each tenth of a second with `rate(tenth)` writes per second, of 100 bytes each.
    fn run(mut floor: RateFloor, rate: impl Fn(u64) -> u64) -> Result<(), (u64, TooSlow)> {
        let mut ios = 0;
        for tenth in 0..100 {
            let done = [Completed::default(), Completed { ios, bytes: ios * 100 }];
            let now = Nanos(5 * SECOND + tenth * SECOND / 10);
            floor.check(now, done).map_err(|slow| (tenth, slow))?;
            ios += rate(tenth) / 10;
        }
        Ok(())
    }

    #[test]
    fn rate_below_its_minimum_fails_after_settling_and_one_window() {
        assert_eq!(run(floor(1000, 0, SECOND), |_| 10), Ok(()));
        let slow = TooSlow { dir: Dir::Write, unit: RateUnit::Bytes, wanted: 1001, found: 1000 };
        assert_eq!(run(floor(1001, 0, SECOND), |_| 10), Err((30, slow)));
        let slow = TooSlow { dir: Dir::Write, unit: RateUnit::Requests, wanted: 11, found: 10 };
        assert_eq!(run(floor(0, 11, SECOND / 5), |_| 10), Err((22, slow)));
    }

    #[test]
    fn each_window_is_judged_by_itself() {
        let slows_down = |tenth| if tenth < 50 { 1000 } else { 10 };
        assert_eq!(run(floor(0, 20, SECOND), slows_down).unwrap_err().0, 60);
        let starts_slowly = |tenth| if tenth < 20 { 10 } else { 1000 };
        assert_eq!(run(floor(0, 20, SECOND), starts_slowly), Ok(()));
    }

    #[test]
    fn direction_that_did_nothing_is_not_judged() {
        assert_eq!(run(floor(0, 20, SECOND), |_| 0), Ok(()));
    }
}
