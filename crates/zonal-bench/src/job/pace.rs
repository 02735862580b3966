//! Pace of a job: rates, pauses and ramp time.
//!
//! # Semantics of fio 3.33
//! - A direction that fell behind its rate catches up; there is no window. `rate_iops` is a byte
//!   rate of that many smallest blocks per second, so larger blocks count for more.
//! - Without a suffix, `thinktime` and `thinktime_spin` are in microseconds, `thinktime_iotime` and
//!   `ramp_time` in seconds.
//! - `thinktime_iotime` replaces `thinktime_blocks`, unless both are given.

use std::time::Duration;

use super::blocks::PerDirection;

/// Pace of a job. The fields are named after fio's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second; 0 is unlimited.
    pub rate: PerDirection<u64>,
    /// Smallest blocks per second; 0 is unlimited.
    pub rate_iops: PerDirection<u32>,
    /// Bytes per second below which the job fails; 0 for no minimum.
    pub rate_min: PerDirection<u64>,
    /// Requests per second below which the job fails; 0 for no minimum.
    pub rate_iops_min: PerDirection<u32>,
    /// Distribution of requests over time.
    pub rate_process: RateProcess,
    /// Time over which the minimum rates are checked.
    pub rate_cycle: Duration,
    /// Length of a pause; zero for none.
    pub thinktime: Duration,
    /// Part of a pause spent busy-waiting, at most all of it.
    pub thinktime_spin: Duration,
    /// Requests between two pauses; 1 if neither this nor `thinktime_iotime` is given.
    pub thinktime_blocks: Option<u32>,
    /// Requests counted by `thinktime_blocks`.
    pub thinktime_blocks_type: ThinkBlocks,
    /// Time between two pauses; zero for none.
    pub thinktime_iotime: Duration,
    /// Time at the start that is not measured; zero for none.
    pub ramp_time: Duration,
}

/// `rate_process`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateProcess {
    /// Evenly spaced.
    Linear,
    /// Random gaps with the distribution of a Poisson process.
    Poisson,
}

/// `thinktime_blocks_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkBlocks {
    /// Completed requests.
    Complete,
    /// Issued requests.
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
    /// True if there is a minimum rate.
    pub fn has_rate_min(&self) -> bool {
        self.rate_min != PerDirection::default() || self.rate_iops_min != PerDirection::default()
    }

    /// Returns the conflict between two options that exclude each other in fio.
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
