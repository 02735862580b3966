//! Result of an experiment as a table and as JSON.

use super::run::{Cell, Measured};
use super::spec::Row;
use crate::bench::{machine, span};
use serde_json::{Value, json};
use std::fmt::Write;
use zonal_bench::columns;

const HEADS: [&str; 12] = [
    "what",
    "how",
    "measured",
    "unit",
    "spread",
    "ratio",
    "published",
    "ratio",
    "path waits",
    "retries",
    "device waits",
    "retries",
];

/// Text columns; the others hold numbers.
const WORDS: [usize; 3] = [0, 1, 3];

impl Measured {
    /// Formats the table with its explanations.
    pub fn to_text(&self) -> String {
        if self.experiment.is_simulated() {
            return self.simulated_text();
        }
        let experiment = &self.experiment;
        let mut out = format!("{}: {}\n", experiment.name, experiment.title);
        let rounds =
            self.rows.first().and_then(|(_, cells)| cells.first()).map_or(0, |c| c.figures.rounds.len());
        writeln!(out, "published: {}", experiment.source).expect("writing to a string");
        writeln!(out, "machine: {}; medians of {rounds} alternating rounds", machine())
            .expect("writing to a string");
        writeln!(
            out,
            "ratios to `{}`; waits and retries per million requests\n",
            experiment.variants[0].name
        )
        .expect("writing to a string");
        out += &self.table();
        writeln!(out, "\n{}", experiment.about.trim()).expect("writing to a string");
        out
    }

    fn table(&self) -> String {
        let mut lines = vec![HEADS.map(String::from)];
        for (row, cells) in &self.rows {
            lines.extend((0..cells.len()).map(|index| self.line(row, cells, index)));
        }
        columns(&lines, &WORDS)
    }

    /// Median ratio of a variant to its baseline, over the rounds.
    pub(super) fn ratio(&self, cells: &[Cell], index: usize) -> f64 {
        let other = &cells[self.experiment.against(index)].figures;
        cells[index].figures.against(other, |own, other| own / other).median()
    }

    fn line(&self, row: &Row, cells: &[Cell], index: usize) -> [String; 12] {
        let cell = &cells[index];
        let variants = &self.experiment.variants;
        let published = |index: usize| row.published.get(&variants[index].name).copied();
        let against = self.experiment.against(index);
        let published_ratio = published(index).zip(published(against)).map(|(own, other)| own / other);
        let [path_waits, path_retries, device_waits, device_retries] = cell.per_million();
        [
            row.name.clone(),
            variants[index].name.clone(),
            figure(cell.figures.median()),
            row.unit.name().to_owned(),
            format!("{:.0}%", cell.figures.spread() * 100.0),
            format!("{:.2}x", self.ratio(cells, index)),
            published(index).map_or("-".to_owned(), figure),
            published_ratio.map_or("-".to_owned(), |r| format!("{r:.2}x")),
            figure(path_waits),
            figure(path_retries),
            figure(device_waits),
            figure(device_retries),
        ]
    }

    /// Formats the result as JSON, with commands that can be repeated in the experiment's
    /// directory.
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().flat_map(|(row, cells)| self.row_json(row, cells)).collect();
        let experiment = &self.experiment;
        json!({
            "name": experiment.name, "title": experiment.title, "source": experiment.source,
            "about": experiment.about.trim(), "machine": machine(), "rows": rows,
        })
    }

    fn row_json<'a>(&'a self, row: &'a Row, cells: &'a [Cell]) -> impl Iterator<Item = Value> + 'a {
        self.experiment.variants.iter().zip(cells).enumerate().map(move |(index, (variant, cell))| {
            json!({
                "what": row.name, "how": variant.name, "unit": row.unit.name(),
                "measured": cell.figures.median(), "spread": cell.figures.spread(), "rounds": cell.figures.rounds,
                "ratio": self.ratio(cells, index), "published": row.published.get(&variant.name),
                "statistics": cell.statistics, "command": cell.command,
                "simulated": self.simulated_json(row, cells, index),
            })
        })
    }
}

impl Cell {
    /// Waits and retries of the write path and of the device, per million requests.
    fn per_million(&self) -> [f64; 4] {
        let s = &self.statistics;
        let requests = s.requests.max(1) as f64;
        [s.plug_waits, s.plug_retries, s.device_waits, s.device_retries].map(|n| n as f64 * 1e6 / requests)
    }
}

/// Minimum and maximum, as text.
pub(super) fn range(figures: &[f64]) -> String {
    let (least, most) = span(figures);
    format!("{}..{}", figure(least), figure(most))
}

/// Formats a number with at most about four digits.
pub(super) fn figure(value: f64) -> String {
    let digits = match value {
        0.0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}
