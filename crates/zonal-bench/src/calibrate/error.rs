//! Why a drive cannot be calibrated.

use crate::error::BenchError;
use crate::job::JobError;
use crate::report::Failure;
use zonal_core::{DeviceError, ZoneIndex};

/// Why a drive cannot be calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The drive has not enough zones for the runs, or may not have enough of them active.
    #[error("the runs need {needed} sequential zones{}, and the drive has {there}", of_which(*active))]
    TooSmall {
        /// Zones that have to be there.
        needed: u32,
        /// Zones that there are.
        there: u32,
        /// Those of them that are partly written at a time.
        active: u32,
    },
    /// The runs cannot be made at all.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The runs are no jobs for this drive.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A write of a run failed.
    #[error("run {run}: {failure}")]
    Failed {
        /// The run.
        run: &'static str,
        /// What went wrong.
        failure: Box<Failure>,
    },
    /// A run came to its end without having written what it should.
    #[error("run {run} wrote {written} bytes of {wanted}")]
    Short {
        /// The run.
        run: &'static str,
        /// What it wrote.
        written: u64,
        /// What it should have written.
        wanted: u64,
    },
    /// A zone that the runs use cannot be emptied.
    #[error("cannot reset zone {zone}: {error}")]
    Reset {
        /// The zone.
        zone: ZoneIndex,
        /// The device's answer.
        error: DeviceError,
    },
    /// The zones cannot be read.
    #[error("cannot read the zones: {0}")]
    Zones(DeviceError),
    /// The values that the drive reports make no simulated drive.
    #[error("the drive cannot be simulated: {0}")]
    Drive(String),
    /// The profile to begin with is of another kind of drive.
    #[error("profile {profile} is of {of}, and the drive is {is}")]
    OtherKind {
        /// Name of the profile.
        profile: String,
        /// What it is of.
        of: &'static str,
        /// What the drive is.
        is: &'static str,
    },
}

fn of_which(active: u32) -> String {
    if active == 0 { String::new() } else { format!(", {active} of them active at a time") }
}
