//! Comparison of two results as an HTML page in the style of the report's, without scripts.

use super::tables::Cell;
use crate::compare::{Figure, JobComparison, ResultsComparison, SIDES};
use askama::Template;

#[derive(Template)]
#[template(path = "compare.html")]
struct Page<'a> {
    sources: Vec<(&'static str, String, String)>,
    jobs: Vec<Card>,
    not_compared: &'a [String],
    differences: &'a [String],
    style: &'static str,
}

/// One direction of a job.
struct Card {
    title: String,
    mode: String,
    figures: Vec<Line>,
}

/// A figure with its values in both results.
struct Line {
    name: &'static str,
    /// Values of A and B, each with the length of its bar in percent.
    sides: Vec<(Cell, f64)>,
    ratio: Option<Cell>,
}

impl ResultsComparison {
    /// Formats the comparison as a self-contained HTML page.
    pub fn to_html(&self) -> String {
        let sources = SIDES.iter().zip(&self.sources).map(|(side, source)| {
            let (name, facts) = source.split_first().map_or(("", &[][..]), |(name, facts)| (name, facts));
            (*side, name.to_owned(), facts.join("; "))
        });
        let page = Page {
            sources: sources.collect(),
            jobs: self.jobs.iter().map(card).collect(),
            not_compared: &self.not_compared,
            differences: &self.differences,
            style: include_str!("../../../assets/report.css"),
        };
        page.render().expect("a template whose parts are all there")
    }
}

fn card(job: &JobComparison) -> Card {
    Card {
        title: format!("{}, {}", job.job, job.dir),
        mode: job.mode(),
        figures: job.figures.iter().map(line).collect(),
    }
}

fn line(figure: &Figure) -> Line {
    let most = figure.values.iter().flatten().copied().fold(0.0, f64::max);
    let percent = |value: Option<f64>| value.filter(|_| most > 0.0).map_or(0.0, |value| value / most * 100.0);
    let sides = figure.texts().into_iter().zip(figure.values).map(|(text, value)| {
        let written = value.map_or_else(String::new, |value| value.to_string());
        (Cell { value: written, text }, percent(value))
    });
    let ratio = figure.ratio.map(|ratio| Cell { value: ratio.to_string(), text: format!("{ratio:.2}×") });
    Line { name: figure.name, sides: sides.collect(), ratio }
}
