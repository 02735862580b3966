//! Rows, as a table and as JSON.

use super::Effort;
use super::measure::Samples;
use serde_json::{Value, json};
use zonal_bench::columns;

/// Target value of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// Only reported.
    None,
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Bound {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Bound::None => None,
            Bound::AtMost(most) => Some(value <= most),
            Bound::AtLeast(least) => Some(value >= least),
        }
    }

    fn text(self) -> String {
        match self {
            Bound::None => String::new(),
            Bound::AtMost(most) => format!("<= {most}"),
            Bound::AtLeast(least) => format!(">= {least}"),
        }
    }
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the measurement.
    pub name: String,
    /// Baseline of the comparison, or method of measurement.
    pub baseline: String,
    /// Figure: the median if it was measured in rounds.
    pub value: f64,
    /// Unit of the figure.
    pub unit: &'static str,
    /// Half the interquartile range, relative to the figure.
    pub spread: f64,
    /// Target of the figure.
    pub bound: Bound,
}

/// All rows, and the machine that measured them.
#[derive(Debug)]
pub struct Report {
    effort: Effort,
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(effort: Effort) -> Report {
        Report { effort, rows: Vec::new() }
    }

    /// Rows in order of measurement.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn add(
        &mut self,
        name: &str,
        baseline: &str,
        samples: &Samples,
        unit: &'static str,
        bound: Bound,
    ) {
        let (value, spread) = (samples.median(), samples.spread());
        self.rows.push(Row { name: name.into(), baseline: baseline.into(), value, unit, spread, bound });
    }

    pub(super) fn add_one(
        &mut self,
        name: &str,
        baseline: &str,
        value: f64,
        unit: &'static str,
        bound: Bound,
    ) {
        self.rows.push(Row { name: name.into(), baseline: baseline.into(), value, unit, spread: 0.0, bound });
    }

    /// Formats the rows as a table.
    pub fn to_text(&self) -> String {
        let mut out =
            format!("machine: {}; medians of {} alternating rounds\n\n", machine(), self.effort.rounds);
        let heads = ["what", "against", "value", "unit", "spread", "bound", ""];
        let cells = self.rows.iter().map(Row::cells);
        let lines: Vec<[String; 7]> = std::iter::once(heads.map(String::from)).chain(cells).collect();
        out += &columns(&lines, &[0, 1, 2, 3, 4, 5, 6]);
        out
    }

    /// Formats the rows as JSON.
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|r| {
                json!({
                    "name": r.name, "baseline": r.baseline, "value": r.value, "unit": r.unit,
                    "spread": r.spread, "bound": r.bound.text(), "met": r.bound.is_met(r.value),
                })
            })
            .collect();
        json!({ "machine": machine(), "rounds": self.effort.rounds, "rows": rows })
    }
}

impl Row {
    fn cells(&self) -> [String; 7] {
        let digits = if self.value < 10.0 { 2 } else { 1 };
        let verdict = match self.bound.is_met(self.value) {
            None => "",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        [
            self.name.clone(),
            self.baseline.clone(),
            format!("{:.digits$}", self.value),
            self.unit.into(),
            format!("{:.0}%", self.spread * 100.0),
            self.bound.text(),
            verdict.into(),
        ]
    }
}

/// Processor and number of cores, as named by the kernel.
pub(crate) fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ").map(|(_, m)| m.trim()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    format!("{}, {cores} cores, load {load} at the end", model.unwrap_or("unknown processor"))
}
