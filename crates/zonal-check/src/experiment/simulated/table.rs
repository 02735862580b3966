//! Table of an experiment on simulated drives, and its JSON.

use super::{Cell, Simulated, comparison, summary};
use crate::experiment::Measured;
use crate::experiment::spec::{Row, Status};
use crate::experiment::table::{figure, range as range_of};
use serde_json::{Value, json};
use std::fmt::Write;
use zonal_bench::columns;
use zonal_sim::Profile;

const HEADS: [&str; 10] = [
    "what",
    "how",
    "published",
    "simulated",
    "unit",
    "error",
    "status",
    "published",
    "ratio",
    "moved most by",
];

/// Text columns; the others hold numbers.
const WORDS: [usize; 5] = [0, 1, 4, 6, 9];

impl Measured {
    pub(in crate::experiment) fn simulated_text(&self) -> String {
        let experiment = &self.experiment;
        let mut out = format!("{}: {}\n", experiment.name, experiment.title);
        writeln!(out, "published: {}", experiment.source).expect("writing to a string");
        for line in self.drives() {
            writeln!(out, "{line}").expect("writing to a string");
        }
        let first = &experiment.variants[0].name;
        writeln!(out, "ratios to `{first}`; errors of the figure, or of the ratio if no figure is published")
            .expect("writing to a string");
        for line in self.spans_said() {
            writeln!(out, "{line}").expect("writing to a string");
        }
        writeln!(out).expect("writing to a string");
        let lines = self.rows.iter().flat_map(|(row, cells)| {
            (0..cells.len()).map(move |index| self.simulated_line(row, cells, index))
        });
        out += &columns(&[vec![HEADS.map(String::from)], lines.collect()].concat(), &WORDS);
        for line in self.reasons() {
            writeln!(out, "\n{line}").expect("writing to a string");
        }
        writeln!(out, "\n{}\n\n{}", summary(std::iter::once(self)), experiment.about.trim())
            .expect("writing to a string");
        out
    }

    /// Names of the simulated drives, each with the meaning of its figures.
    fn drives(&self) -> Vec<String> {
        let cells = self.rows.iter().flat_map(|(_, cells)| cells);
        let mut drives: Vec<String> = cells.filter_map(|cell| cell.simulated.as_ref().map(drive)).collect();
        drives.sort();
        drives.dedup();
        drives
    }

    fn simulated_line(&self, row: &Row, cells: &[Cell], index: usize) -> [String; 10] {
        let variants = &self.experiment.variants;
        let name = &variants[index].name;
        let against = &variants[self.experiment.against(index)].name;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let found = comparison(&self.experiment, row, cells, index);
        let simulated = cells[index].simulated.as_ref();
        [
            row.name.clone(),
            name.clone(),
            or_none(row.published.get(name).map(|published| figure(*published))),
            simulated_figure(cells[index].figures.median(), simulated),
            row.unit.name().to_owned(),
            or_none(found.map(|found| format!("{:+.1}%", found.error()))),
            or_none(found.map(|found| found.status.name().to_owned())),
            or_none(row.published_ratio(name, against).map(|ratio| format!("{ratio:.2}x"))),
            format!("{:.2}x{}", self.ratio(cells, index), self.ratio_range(row, cells, index)),
            or_none(
                simulated
                    .and_then(|s| s.dominant.as_ref())
                    .map(|d| format!("{} {:+.2}", d.key, d.elasticity)),
            ),
        ]
    }

    /// Range of an assumed ratio over the choices, in brackets. Empty for other ratios.
    fn ratio_range(&self, row: &Row, cells: &[Cell], index: usize) -> String {
        let against = self.experiment.against(index);
        let is_assumed = row.status.get(&self.experiment.variants[index].name) == Some(&Status::Assumed);
        let choices = |index: usize| cells[index].simulated.as_ref().map_or(&[][..], |s| &s.choices);
        let ratios = choices(index).iter().zip(choices(against)).map(|(own, other)| own / other);
        let ratios: Vec<f64> = ratios.chain([self.ratio(cells, index)]).collect();
        match is_assumed && index != against && ratios.len() > 1 {
            true => format!(" ({})", range_of(&ratios)),
            false => String::new(),
        }
    }

    /// Explanations of the brackets behind figures.
    fn spans_said(&self) -> Vec<String> {
        let all = || self.rows.iter().flat_map(|(_, cells)| cells).filter_map(|cell| cell.simulated.as_ref());
        let ranged = all().any(|s| s.is_calibrated && s.range.is_some());
        let ranged = ranged.then(|| {
            "(range) after a figure that is not fitted: with other values that fit as well".to_owned()
        });
        let seeds = self.rows.iter().map(|(row, _)| &row.randseeds).find(|seeds| !seeds.is_empty());
        let drawn = seeds.map(|seeds| {
            let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
            format!("a figure followed by {{range}} is the mean over randseed={}; the range is their minimum and maximum", seeds.join(","))
        });
        let chosen = all().any(|s| !s.choices.is_empty()).then(|| {
            let choices = self.experiment.choices.join(", ");
            format!("(range) after an assumed figure or ratio: with other choices as well: {choices}")
        });
        ranged.into_iter().chain(chosen).chain(drawn).collect()
    }

    /// Reasons for missed figures, each with the figures that it explains.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<(&String, Vec<String>)> = Vec::new();
        for (row, _) in &self.rows {
            let unexplained = row.status.iter().filter(|(_, status)| **status == Status::Unexplained);
            for (name, reason) in unexplained.filter_map(|(name, _)| Some((name, row.reason.get(name)?))) {
                let place = format!("{}, {name}", row.name);
                match reasons.iter_mut().find(|(other, _)| *other == reason) {
                    Some((_, places)) => places.push(place),
                    None => reasons.push((reason, vec![place])),
                }
            }
        }
        let line = |(reason, places): (&String, Vec<String>)| format!("{}: {reason}", places.join("; "));
        reasons.into_iter().map(line).collect()
    }

    pub(in crate::experiment) fn simulated_json(
        &self,
        row: &Row,
        cells: &[Cell],
        index: usize,
    ) -> Option<Value> {
        let Simulated { profile, is_calibrated, media, range, choices, draws, dominant } =
            cells[index].simulated.as_ref()?;
        let found = comparison(&self.experiment, row, cells, index);
        let name = &self.experiment.variants[index].name;
        Some(json!({
            "profile": profile, "calibrated": is_calibrated, "media_rate": media, "range": range, "choices": choices,
            "randseeds": row.randseeds, "draws": draws, "calibrated_for": calibrated_for(profile),
            "status": found.map(|f| f.status.name()), "error_percent": found.map(|f| f.error()),
            "tolerance_percent": found.map(|f| f.tolerance), "reason": row.reason.get(name),
            "published_ratio": row.published_ratio(name, &self.experiment.variants[self.experiment.against(index)].name),
            "moved_most_by": dominant.as_ref().map(|d| json!({ "key": d.key, "elasticity": d.elasticity })),
        }))
    }
}

/// Formats a figure with its range.
fn simulated_figure(measured: f64, simulated: Option<&Simulated>) -> String {
    let Some(Simulated { is_calibrated, range, draws, .. }) = simulated else { return figure(measured) };
    if let (false, Some(range)) = (is_calibrated, range) {
        return range_of(&<[f64; 2]>::from(*range));
    }
    let drawn = if draws.is_empty() { String::new() } else { format!(" {{{}}}", range_of(draws)) };
    let ranged = range.map_or(String::new(), |range| format!(" ({})", range_of(&<[f64; 2]>::from(range))));
    format!("{}{drawn}{ranged}", figure(measured))
}

/// Measurements that the profile of this name was fitted to.
fn calibrated_for(profile: &str) -> Option<String> {
    Profile::open(profile, &[]).ok()?.calibrated_for
}

fn drive(simulated: &Simulated) -> String {
    let name = &simulated.profile;
    let title = Profile::open(name, &[]).map_or(String::new(), |profile| format!(" ({})", profile.title));
    let what = match (simulated.is_calibrated, calibrated_for(name)) {
        (true, Some(what)) => format!("fitted to published figures ({what}); those are called calibrated"),
        (true, None) => "fitted to published figures; those are called calibrated".to_owned(),
        (false, _) => {
            "not fitted as a whole: figures are ranges, and errors are those of its own values".to_owned()
        }
    };
    format!("simulated: {name}{title}, {what}")
}
