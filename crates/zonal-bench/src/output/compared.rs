//! Comparison of two results as text.

use super::quantities::{amount, time};
use super::{columns, line};
use crate::compare::{Figure, FigureUnit, ResultsComparison, SIDES};
use std::fmt;

impl Figure {
    /// Both values in human-readable form, with a dash for one not measured.
    pub(super) fn texts(&self) -> [String; 2] {
        let text = |value: f64| match self.unit {
            FigureUnit::Bandwidth => amount(value, "B/s"),
            FigureUnit::Rate => amount(value, ""),
            FigureUnit::Time => time(value),
        };
        self.values.map(|value| value.map_or_else(|| "-".to_owned(), text))
    }
}

impl fmt::Display for ResultsComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (side, source) in SIDES.iter().zip(&self.sources) {
            line!(text, "{side}: {}", source.join("; "));
        }
        if !self.jobs.is_empty() {
            let has_modes = self.jobs.iter().any(|job| !job.mode().is_empty());
            let mode_head = if has_modes { "mode" } else { "" };
            let mut lines = vec![["job", "rw", mode_head, "figure", "A", "B", "B/A"].map(str::to_owned)];
            for job in &self.jobs {
                let mut heads = [job.job.clone(), job.dir.to_owned(), job.mode()];
                for figure in &job.figures {
                    let [first, second, third] = std::mem::take(&mut heads);
                    let [a, b] = figure.texts();
                    let ratio = figure.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
                    lines.push([first, second, third, figure.name.to_owned(), a, b, ratio]);
                }
            }
            text += &format!("\n{}", columns(&lines, &[0, 1, 2, 3]));
        }
        for (head, said) in [("not compared:", &self.not_compared), ("differences:", &self.differences)] {
            if !said.is_empty() {
                line!(text, "\n{head}");
                said.iter().for_each(|said| line!(text, "  {said}"));
            }
        }
        f.write_str(&text)
    }
}
