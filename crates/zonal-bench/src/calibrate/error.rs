//! Reasons why a drive cannot be calibrated.

use crate::error::BenchError;
use crate::job::JobError;
use crate::report::Failure;
use zonal_core::{DeviceError, ZoneIndex};

/// Reason why a drive cannot be calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The drive has too few zones for the runs, or allows too few active ones.
    #[error("the runs need {needed} sequential zones{}, but the drive has {there}", of_which(*active))]
    TooSmall {
        /// Required zones.
        needed: u32,
        /// Zones of the drive.
        there: u32,
        /// Required zones that are active at the same time.
        active: u32,
    },
    /// The runs cannot be executed at all.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The runs are not valid jobs for this drive.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A write of a run failed.
    #[error("run {run}: {failure}")]
    Failed {
        /// Name of the run.
        run: &'static str,
        /// The failure.
        failure: Box<Failure>,
    },
    /// A run ended before writing its full amount.
    #[error("run {run} wrote only {written} of {wanted} bytes")]
    Short {
        /// Name of the run.
        run: &'static str,
        /// Bytes written.
        written: u64,
        /// Bytes to be written.
        wanted: u64,
    },
    /// A zone used by the runs cannot be reset.
    #[error("cannot reset zone {zone}: {error}")]
    Reset {
        /// The zone.
        zone: ZoneIndex,
        /// Error of the device.
        error: DeviceError,
    },
    /// The drive cannot report its zones.
    #[error("cannot read the zones: {0}")]
    Zones(DeviceError),
    /// The values reported by the drive do not describe a drive that can be simulated.
    #[error("the drive cannot be simulated: {0}")]
    Drive(String),
    /// The initial profile is for another kind of drive.
    #[error("profile {profile} is for {of}, but the drive is {is}")]
    OtherKind {
        /// Name of the profile.
        profile: String,
        /// Kind of drive of the profile.
        of: &'static str,
        /// Kind of the drive.
        is: &'static str,
    },
}

fn of_which(active: u32) -> String {
    if active == 0 { String::new() } else { format!(", {active} of them active at a time") }
}
