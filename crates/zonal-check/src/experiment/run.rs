//! Runs an experiment with the `zonal` program.

use super::simulated::{self, Simulated};
use super::spec::{Experiment, Row, Unit, Variant};
use crate::bench::Samples;
use crate::program::NO_CONFIG;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use zonal_io::volume::Statistics;

/// Amount of measuring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As in the job files: one warm-up round, then `rounds` rounds that count.
    Full {
        /// Number of rounds.
        rounds: usize,
    },
    /// One short round, to check that every row works. Its speed is meaningless.
    Tiny,
}

impl Scale {
    /// As in the job files, once.
    pub(super) const ONCE: Scale = Scale::Full { rounds: 1 };

    fn rounds(self) -> usize {
        match self {
            Scale::Full { rounds } => rounds + 1,
            Scale::Tiny => 1,
        }
    }

    /// Number of a row's seeds that Linux has time for.
    pub(super) fn draws(self) -> usize {
        match self {
            Scale::Full { rounds } => rounds,
            Scale::Tiny => 1,
        }
    }

    /// True if the measurement of this round is used.
    fn counts(self, round: usize) -> bool {
        self == Scale::Tiny || round > 0
    }
}

/// One row in one variant.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Figure of each round, in the row's unit.
    pub figures: Samples,
    /// Counters of the write path and the device, summed over all rounds.
    pub statistics: Statistics,
    /// Command that made the measurement.
    pub command: String,
    /// Additional results for a simulated drive.
    pub simulated: Option<Simulated>,
}

/// Result of an experiment.
#[derive(Debug)]
pub struct Measured {
    /// Description of the experiment.
    pub experiment: Experiment,
    /// Each row with one cell per variant, in their order.
    pub rows: Vec<(Row, Vec<Cell>)>,
}

/// Runs `experiment` with the program `zonal`.
///
/// # Errors
/// The command that failed, and its output.
pub fn run(experiment: Experiment, zonal: &Path, scale: Scale) -> Result<Measured, String> {
    let rows = match experiment.is_simulated() {
        true => simulated::run(&experiment, zonal, scale)?,
        false => experiment
            .rows()
            .into_iter()
            .map(|row| measure(&experiment, &row, zonal, scale).map(|cells| (row, cells)))
            .collect::<Result<_, _>>()?,
    };
    Ok(Measured { experiment, rows })
}

fn measure(experiment: &Experiment, row: &Row, zonal: &Path, scale: Scale) -> Result<Vec<Cell>, String> {
    let mut cells: Vec<Cell> = Vec::new();
    for round in 0..scale.rounds() {
        for (index, variant) in experiment.variants.iter().enumerate() {
            let arguments = arguments(experiment, row, variant, scale, "");
            let report = bench(zonal, experiment, &arguments)?;
            if cells.len() == index {
                let command = format!("zonal {}", arguments.join(" "));
                cells.push(Cell {
                    figures: Samples { rounds: Vec::new() },
                    statistics: Statistics::default(),
                    command,
                    simulated: None,
                });
            }
            if scale.counts(round) {
                cells[index].figures.rounds.push(figure(&report, row.unit)?);
                cells[index].statistics += statistics(&report)?;
            }
        }
    }
    Ok(cells)
}

/// Arguments of `zonal`, to be run in the experiment's directory, with `more` options of the
/// device.
pub(super) fn arguments(
    experiment: &Experiment,
    row: &Row,
    variant: &Variant,
    scale: Scale,
    more: &str,
) -> Vec<String> {
    let mut arguments: Vec<String> = ["bench", "--output-format=json"].map(String::from).into();
    let mut device = variant.device.clone();
    for options in [row.device.as_str(), more].into_iter().filter(|options| !options.is_empty()) {
        device += if device.ends_with(':') { "" } else { "," };
        device += options;
    }
    arguments.push(format!("--device={device}"));
    arguments.push(format!("--write-mode={}", variant.mode));
    arguments.push(format!("--section={}", row.section));
    arguments.extend(row.set.iter().map(|set| format!("--set={set}")));
    if scale == Scale::Tiny {
        arguments.push("--set=runtime=40ms".to_owned());
    }
    arguments.extend(variant.arguments.iter().cloned());
    arguments.extend(experiment.jobs.iter().cloned());
    arguments
}

pub(super) fn bench(zonal: &Path, experiment: &Experiment, arguments: &[String]) -> Result<Value, String> {
    let output = Command::new(zonal)
        .env(NO_CONFIG.0, NO_CONFIG.1)
        .args(arguments)
        .current_dir(&experiment.folder)
        .output()
        .map_err(|e| format!("{}: {e}", zonal.display()))?;
    let failed = |what: &str| {
        format!("{}: {what}: zonal {}", experiment.name, arguments.join(" ")) + "\n" + &said(&output.stderr)
    };
    if !output.status.success() {
        return Err(failed(&output.status.to_string()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(&e.to_string()))
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Total of the jobs in a report, over both directions.
pub(super) fn figure(report: &Value, unit: Unit) -> Result<f64, String> {
    let (key, per) = match unit {
        Unit::MegabytesPerSecond => ("bw_bytes", 1e6),
        Unit::Kiops => ("iops", 1e3),
    };
    let jobs = report["jobs"].as_array().ok_or("the report has no jobs")?;
    let rates = jobs.iter().flat_map(|job| ["read", "write"].map(|dir| job[dir][key].as_f64()));
    let sum = rates.sum::<Option<f64>>().ok_or_else(|| format!("the report has no {key}"))?;
    if sum > 0.0 { Ok(sum / per) } else { Err("no data was transferred".to_owned()) }
}

pub(super) fn statistics(report: &Value) -> Result<Statistics, String> {
    let statistics = &report["zonal"]["modes"][0]["statistics"];
    Statistics::deserialize(statistics).map_err(|e| format!("the report has no counters: {e}"))
}
