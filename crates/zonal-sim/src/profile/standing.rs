//! Reliability of a profile's results.

use super::Profile;
use serde::Serialize;
use std::fmt;
use toml::{Table, Value};

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
}

/// Keys of the values given in the device's name.
fn given(values: &impl Serialize) -> impl Iterator<Item = String> {
    let values = Table::try_from(values).expect("values of profiles are numbers, words and yes or no");
    let is_given = |value: &Value| value.get("source").and_then(Value::as_str) == Some("given");
    values.into_iter().filter(move |(_, value)| is_given(value)).map(|(key, _)| key)
}
