//! What figures of a profile are worth.

use super::Profile;
use serde::Serialize;
use std::fmt;
use toml::{Table, Value};

/// What figures of a profile are worth.
#[derive(Clone, PartialEq, Debug)]
pub enum Standing {
    /// They are those of the drive that it was fitted to.
    Calibrated {
        /// Sizes of blocks, depths and modes that were fitted; what else is run is predicted.
        to: Option<String>,
        /// The largest error of a run, in per cent, if that is known.
        worst: Option<f64>,
    },
    /// It was fitted to a drive, and these values are not that drive's.
    Moved(Vec<String>),
    /// It was fitted to a drive that does what the model does not explain: the largest error of a run, in per cent.
    Unexplained(f64),
    /// It was fitted to no drive.
    Uncalibrated,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RANGE: &str = "each figure is one of a range";
        match self {
            Standing::Calibrated { to, worst } => {
                f.write_str("calibrated")?;
                to.iter().try_for_each(|to| write!(f, " for {to}"))?;
                worst.iter().try_for_each(|worst| write!(f, ", worst residual {worst:.1}%"))?;
                to.iter().try_for_each(|_| f.write_str("; other runs are predicted"))
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
    /// What its figures are worth. What the host takes is no part of the drive.
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
}

/// Keys of the values that came with the device's name.
fn given(values: &impl Serialize) -> impl Iterator<Item = String> {
    let values = Table::try_from(values).expect("values of profiles are numbers, words and yes or no");
    let is_given = |value: &Value| value.get("source").and_then(Value::as_str) == Some("given");
    values.into_iter().filter(move |(_, value)| is_given(value)).map(|(key, _)| key)
}
