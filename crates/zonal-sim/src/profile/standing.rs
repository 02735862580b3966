//! Reliability of a profile's results.

use super::Profile;
use super::error::Problem;
use serde::{Deserialize, Serialize};
use std::fmt;
use toml::{Table, Value};
use zonal_io::volume::WriteMode;

/// Reliability of a profile's results.
#[derive(Clone, PartialEq, Debug)]
pub enum Standing {
    /// Results apply to the drive that the profile was fitted to.
    Calibrated {
        /// Fitted block sizes, queue depths and modes. Other runs are predictions.
        to: Option<String>,
        /// Largest error of a run in percent, if known.
        worst: Option<f64>,
    },
    /// Fitted to a drive, but these values were changed from that drive's.
    Moved(Vec<String>),
    /// Fitted to a drive with behaviour that the model does not explain. Largest error of a run, in
    /// percent.
    Unexplained(f64),
    /// Not fitted to any drive.
    Uncalibrated,
}

/// Runs that a profile was fitted to, or whose published figures it reproduces.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = "runs, as in { rw = [\"write\"], block_bytes = [4096, 4096], depth = [1, 16] }"
)]
pub struct CalibratedRuns {
    /// Directions and orders of the jobs: `read`, `write`, `randread`, `randwrite`.
    pub rw: Vec<String>,
    /// Names of the write modes. Empty: any, as for reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<String>,
    /// Least and greatest block size, in bytes.
    pub block_bytes: [u64; 2],
    /// Least and greatest queue depth of a job.
    pub depth: [u32; 2],
}

/// A job, to be compared with the runs of a calibration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload<'a> {
    /// Direction and order, as in [`CalibratedRuns::rw`]. A mix of reads and writes has another
    /// name, which no calibration has.
    pub rw: &'a str,
    /// Write mode.
    pub mode: WriteMode,
    /// Least and greatest block size, in bytes.
    pub block_bytes: [u64; 2],
    /// Queue depth.
    pub depth: u32,
}

/// Aspect in which a job differs from the runs of a calibration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aspect {
    /// Direction or order.
    Rw,
    /// Write mode.
    Mode,
    /// Block size.
    BlockSize,
    /// Queue depth.
    Depth,
}

impl CalibratedRuns {
    pub(super) fn check(&self) -> Result<(), Problem> {
        let is_rw = |rw: &String| ["read", "write", "randread", "randwrite"].contains(&rw.as_str());
        if !self.rw.iter().all(is_rw) {
            return Err(Problem::Range("rw", "a list of read, write, randread and randwrite"));
        }
        match self.modes.iter().all(|mode| mode.parse::<WriteMode>().is_ok()) {
            true => Ok(()),
            false => Err(Problem::Range("modes", "a list of write modes; see zonal help modes")),
        }
    }

    /// Aspects in which `workload` is outside of these runs.
    fn outside(&self, workload: &Workload<'_>) -> Vec<Aspect> {
        let Workload { rw, mode, block_bytes: [least, most], depth } = workload;
        let [block_min, block_max] = self.block_bytes;
        let [depth_min, depth_max] = self.depth;
        let is_mode = self.modes.is_empty() || self.modes.iter().any(|name| name == mode.name());
        let aspects = [
            (self.rw.iter().any(|own| own == rw), Aspect::Rw),
            (is_mode, Aspect::Mode),
            (block_min <= *least && *most <= block_max, Aspect::BlockSize),
            ((depth_min..=depth_max).contains(depth), Aspect::Depth),
        ];
        aspects.into_iter().filter(|(is_inside, _)| !is_inside).map(|(_, aspect)| aspect).collect()
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RANGE: &str = "each figure is one of a range";
        match self {
            Standing::Calibrated { to, worst } => {
                f.write_str("calibrated")?;
                to.iter().try_for_each(|to| write!(f, " for {to}"))?;
                worst.iter().try_for_each(|worst| write!(f, ", worst residual {worst:.1}%"))?;
                to.iter().try_for_each(|_| f.write_str("; other runs are guesses"))
            }
            Standing::Unexplained(worst) => {
                write!(f, "fitted, but with a residual of {worst:.1}%, which is not explained: {RANGE}")
            }
            Standing::Moved(keys) => {
                write!(f, "calibrated on another drive, with another {}: {RANGE}", keys.join(", "))
            }
            Standing::Uncalibrated => write!(f, "not calibrated: {RANGE}"),
        }
    }
}

impl Profile {
    /// Reliability of the results. Changes of host values do not matter, since the host is not part
    /// of the drive.
    pub fn standing(&self) -> Standing {
        let mut given: Vec<String> = given(&self.drive).chain(given(&self.timing)).collect();
        given.sort();
        match (self.calibrated, given.is_empty()) {
            (true, true) => {
                Standing::Calibrated { to: self.calibrated_for.clone(), worst: self.worst_residual_percent }
            }
            (true, false) => Standing::Moved(given),
            (false, _) => self.worst_residual_percent.map_or(Standing::Uncalibrated, Standing::Unexplained),
        }
    }

    /// Aspects in which `workload` is outside of the runs that the profile was calibrated for: of
    /// those runs that differ in the fewest. Empty if it is inside, or if the runs are unknown.
    pub fn outside(&self, workload: &Workload<'_>) -> Vec<Aspect> {
        let all = self.calibrated_runs.iter().map(|runs| runs.outside(workload));
        all.min_by_key(Vec::len).unwrap_or_default()
    }
}

/// Keys of the values given in the device's name.
fn given(values: &impl Serialize) -> impl Iterator<Item = String> {
    let values = Table::try_from(values).expect("values of profiles are numbers, words and yes or no");
    let is_given = |value: &Value| value.get("source").and_then(Value::as_str) == Some("given");
    values.into_iter().filter(move |(_, value)| is_given(value)).map(|(key, _)| key)
}
