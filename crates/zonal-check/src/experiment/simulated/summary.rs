//! Accuracy of simulated drives over all experiments.
//!
//! A figure at the rate of the medium says nothing about a model, so it is not counted, nor are
//! ratios without figures. Figures that a profile was fitted to, and those that depend on choices,
//! are counted separately from the rest.

use super::{Cell, Comparison, comparison};
use crate::experiment::Measured;
use crate::experiment::spec::Status;
use serde_json::{Value, json};
use std::fmt;

/// Published figures this close to the rate of the medium are not counted.
const AT_MEDIA_RATE: f64 = 0.10;

/// Errors up to this are small enough, in per cent.
const NEAR: f64 = 15.0;

/// Rows of one kind.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// Absolute errors in per cent, ascending.
    pub errors: Vec<f64>,
}

impl Group {
    /// Number of errors within 15%.
    pub fn near(&self) -> usize {
        self.errors.iter().filter(|error| **error <= NEAR).count()
    }

    /// Median error; the lower of the two middle ones.
    pub fn median(&self) -> Option<f64> {
        self.errors.get(self.errors.len().checked_sub(1)? / 2).copied()
    }

    fn to_json(&self) -> Value {
        json!({ "rows": self.errors.len(), "within_15_percent": self.near(), "median_error": self.median() })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(median) = self.median() else { return f.write_str("none") };
        write!(f, "{} of {} within {NEAR}%, median error {median:.1}%", self.near(), self.errors.len())
    }
}

/// Counts of each kind. See the module.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// Figures that profiles were fitted to.
    pub calibrated: Group,
    /// Figures that no fit used, including known misses.
    pub predicted: Group,
    /// Figures that no fit used, but that depend on choices.
    pub assumed: Group,
    /// Number of known misses among the predicted figures.
    pub unexplained: usize,
}

/// Summarizes the experiments on simulated drives; others are skipped.
pub fn summary<'a>(experiments: impl Iterator<Item = &'a Measured>) -> Summary {
    let mut summary = Summary::default();
    for measured in experiments {
        for (row, cells) in &measured.rows {
            for (index, cell) in cells.iter().enumerate() {
                let found = comparison(&measured.experiment, row, cells, index);
                let has_figure = row.published.contains_key(&measured.experiment.variants[index].name);
                if let Some(found) = found.filter(|found| has_figure && is_off_media(found, cell)) {
                    summary.count(&found);
                }
            }
        }
    }
    for group in [&mut summary.calibrated, &mut summary.predicted, &mut summary.assumed] {
        group.errors.sort_by(f64::total_cmp);
    }
    summary
}

fn is_off_media(comparison: &Comparison, cell: &Cell) -> bool {
    is_off_media_rate(comparison.published, cell.simulated.as_ref().and_then(|s| s.media))
}

/// True if a published figure says more about a model than the rate of the medium does.
pub(super) fn is_off_media_rate(published: f64, media: Option<f64>) -> bool {
    media.is_some_and(|media| (published / media - 1.0).abs() > AT_MEDIA_RATE)
}

impl Summary {
    fn count(&mut self, comparison: &Comparison) {
        let group = match comparison.status {
            Status::Calibrated => &mut self.calibrated,
            Status::Predicted | Status::Unexplained => &mut self.predicted,
            Status::Assumed => &mut self.assumed,
        };
        group.errors.push(comparison.error().abs());
        self.unexplained += usize::from(comparison.status == Status::Unexplained);
    }

    /// Formats the summary as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "calibrated": self.calibrated.to_json(), "predicted": self.predicted.to_json(),
            "unexplained": self.unexplained, "assumed": self.assumed.to_json(),
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "published figures more than 10% off the rate of the medium, simulated:")?;
        writeln!(f, "  fitted to:     {}", self.calibrated)?;
        write!(f, "  not fitted to: {}", self.predicted)?;
        if self.unexplained > 0 {
            write!(f, "; known misses: {}", self.unexplained)?;
        }
        write!(f, "\n  with choices:  {}", self.assumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_counts_near_errors_and_states_the_median() {
        let group = Group { errors: vec![1.0, 7.5, 15.0, 40.0] };
        assert_eq!((group.near(), group.median()), (3, Some(7.5)));
        assert_eq!(group.to_string(), "3 of 4 within 15%, median error 7.5%");
        assert_eq!(Group::default().to_string(), "none");
    }
}
