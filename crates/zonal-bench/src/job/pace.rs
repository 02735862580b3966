//! How fast a job may go: rates, pauses, and the time that is not measured.
//!
//! # What fio 3.33 means by them
//! - A rate lets a direction catch up with what it missed; it has no window. `rate_iops` is a rate of bytes, that many
//!   times the smallest block, so that larger blocks count for more.
//! - Without a suffix, `thinktime` and `thinktime_spin` are microseconds, `thinktime_iotime` and `ramp_time` seconds.
//! - `thinktime_iotime` takes the place of `thinktime_blocks`, unless that is given, too.

use std::time::Duration;

use super::blocks::PerDirection;

/// How fast a job may go. The fields are named after fio's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second; 0 for as many as there can be.
    pub rate: PerDirection<u64>,
    /// Smallest blocks a second; 0 for as many as there can be.
    pub rate_iops: PerDirection<u32>,
    /// Bytes a second below which the job fails; 0 for no bound.
    pub rate_min: PerDirection<u64>,
    /// Requests a second below which the job fails; 0 for no bound.
    pub rate_iops_min: PerDirection<u32>,
    /// How requests spread over time.
    pub rate_process: RateProcess,
    /// Time over which the lower bounds are judged.
    pub rate_cycle: Duration,
    /// Length of a pause; zero for none.
    pub thinktime: Duration,
    /// How much of a pause keeps the processor busy; at most all of it.
    pub thinktime_spin: Duration,
    /// Requests between two pauses, 1 if neither this nor `thinktime_iotime` is given.
    pub thinktime_blocks: Option<u32>,
    /// Which requests those are.
    pub thinktime_blocks_type: ThinkBlocks,
    /// Time between two pauses; zero for none.
    pub thinktime_iotime: Duration,
    /// Time at the beginning that does not count; zero for none.
    pub ramp_time: Duration,
}

/// `rate_process`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateProcess {
    /// Evenly.
    Linear,
    /// With random gaps, which are longer than average as often as those of a Poisson process.
    Poisson,
}

/// `thinktime_blocks_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkBlocks {
    /// Those that have ended.
    Complete,
    /// Those that were begun.
    Issue,
}

/// fio's default of `rate_cycle`.
pub(super) const RATE_CYCLE: Duration = Duration::from_millis(1000);

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: PerDirection::default(),
            rate_iops: PerDirection::default(),
            rate_min: PerDirection::default(),
            rate_iops_min: PerDirection::default(),
            rate_process: RateProcess::Linear,
            rate_cycle: RATE_CYCLE,
            thinktime: Duration::ZERO,
            thinktime_spin: Duration::ZERO,
            thinktime_blocks: None,
            thinktime_blocks_type: ThinkBlocks::Complete,
            thinktime_iotime: Duration::ZERO,
            ramp_time: Duration::ZERO,
        }
    }
}

impl Pace {
    /// Whether a rate has a lower bound.
    pub fn has_rate_min(&self) -> bool {
        self.rate_min != PerDirection::default() || self.rate_iops_min != PerDirection::default()
    }

    /// Two options that exclude each other, as fio has it.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        const BOTH: &str = "rate and rate_iops exclude each other";
        const BOTH_MIN: &str = "rate_min and rate_iops_min exclude each other";
        const ABOVE: &str = "the lower bound of a rate is above the rate";
        let none = (PerDirection::default(), PerDirection::default());
        let above = |rate: u64, min: u64| rate != 0 && rate < min;
        let (bytes, bytes_min, ios, ios_min) = (self.rate, self.rate_min, self.rate_iops, self.rate_iops_min);
        let is_above = above(bytes.read, bytes_min.read)
            || above(bytes.write, bytes_min.write)
            || above(ios.read.into(), ios_min.read.into())
            || above(ios.write.into(), ios_min.write.into());
        match () {
            () if bytes != none.0 && ios != none.1 => Some(BOTH),
            () if bytes_min != none.0 && ios_min != none.1 => Some(BOTH_MIN),
            () if is_above => Some(ABOVE),
            () => None,
        }
    }
}
