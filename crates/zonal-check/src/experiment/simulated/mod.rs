//! Experiments on simulated drives.
//!
//! A simulated run gives the same result each time and on any machine, so one round is enough, and
//! its figures can be compared with published ones. The table shows the error of each figure,
//! whether the drive's profile was fitted to it, and the value of the profile that moves it most. A
//! drive that was not fitted gets a range instead of a figure.
//!
//! The runs behind the figures of the table are checked for behaviour that is impossible for the
//! drive or the write path.

mod fit;
mod parallel;
mod sensitivity;
mod summary;
mod table;

pub use fit::{Begin, fit};
pub use sensitivity::Dominant;
pub use summary::{Group, Summary, summary};

use super::run::{Cell, Scale, arguments, bench, figure, statistics};
use super::spec::{Experiment, Row, Status, Unit, Variant};
use crate::bench::{Samples, mean, span};
use serde_json::Value;
use std::path::Path;
use zonal_io::volume::Statistics;
use zonal_sim::Profile;
use zonal_sim::profile::TimingValues;
use zonal_sim::smr::Policy;

/// Additional results for a figure of a simulated drive.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Profile of the drive.
    pub profile: String,
    /// True if the profile was fitted to measurements of the drive.
    pub is_calibrated: bool,
    /// Rate of the medium for large sequential writes, in the row's unit.
    pub media: Option<f64>,
    /// Minimum and maximum. For a drive that is not fitted: over the orders in which a disk may
    /// write its cache, or, for a flash drive, with each assumed value increased and decreased by a
    /// fifth. For a fitted drive whose figure is predicted or lies between published ones: over the
    /// other values that fit as well, and of an assumed figure also over the choices.
    pub range: Option<(f64, f64)>,
    /// Figure with each of the experiment's choices, if the row has an assumed one.
    pub choices: Vec<f64>,
    /// Figure for each of the row's seeds.
    pub draws: Vec<f64>,
    /// Value of the profile that moves the figure most.
    pub dominant: Option<Dominant>,
}

/// A published figure with the simulated one, or a published ratio with the simulated one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// Published figure or ratio.
    pub published: f64,
    /// Simulated figure or ratio.
    pub simulated: f64,
    /// Relation of the published figure to the profile.
    pub status: Status,
    /// Allowed error, in per cent.
    pub tolerance: f64,
}

impl Comparison {
    /// Error in per cent.
    pub fn error(&self) -> f64 {
        (self.simulated / self.published - 1.0) * 100.0
    }
}

/// Compares a row's cell with the published figure or ratio; `None` if there is none.
pub fn comparison(experiment: &Experiment, row: &Row, cells: &[Cell], index: usize) -> Option<Comparison> {
    let name = &experiment.variants[index].name;
    let of = |index: usize| cells[index].figures.median();
    let figure = row.published.get(name).map(|published| (*published, of(index)));
    let against = experiment.against(index);
    let ratio =
        || Some((row.published_ratio(name, &experiment.variants[against].name)?, of(index) / of(against)));
    let (published, simulated) = figure.or_else(ratio).filter(|_| row.status.contains_key(name))?;
    Some(Comparison { published, simulated, status: row.status[name], tolerance: row.tolerance[name] })
}

/// Amount of work for a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Depth {
    /// The figure only.
    Figure,
    /// The figure and its range.
    Range,
    /// The figure, its range, and the effect of each value of the profile.
    Effects,
}

/// A cell to be filled.
#[derive(Clone, Copy)]
struct Trial<'a> {
    experiment: &'a Experiment,
    row: &'a Row,
    variant: &'a Variant,
    zonal: &'a Path,
}

/// Runs all cells, row by row.
pub(super) fn run(
    experiment: &Experiment,
    zonal: &Path,
    scale: Scale,
) -> Result<Vec<(Row, Vec<Cell>)>, String> {
    let rows = experiment.rows();
    let variants = &experiment.variants;
    let trials: Vec<Trial<'_>> = rows
        .iter()
        .flat_map(|row| variants.iter().map(move |variant| Trial { experiment, row, variant, zonal }))
        .collect();
    let cells = parallel::map(&trials, |trial| trial.cell(scale))?;
    let cells: Vec<Vec<Cell>> = cells.chunks(variants.len()).map(<[Cell]>::to_vec).collect();
    Ok(rows.into_iter().zip(cells).collect())
}

impl Trial<'_> {
    /// Arguments of `zonal` for each of the row's seeds, or for a single run.
    fn calls(&self, changes: &str) -> Vec<Vec<String>> {
        let with = |seed: Option<u64>| {
            let mut row = self.row.clone();
            row.set.extend(seed.map(|seed| format!("randseed={seed}")));
            arguments(self.experiment, &row, self.variant, Scale::ONCE, changes)
        };
        match self.row.randseeds.as_slice() {
            [] => vec![with(None)],
            seeds => seeds.iter().map(|seed| with(Some(*seed))).collect(),
        }
    }

    /// Reports for each of the row's seeds, or a single one.
    fn reports(&self, changes: &str) -> Result<Vec<Value>, String> {
        self.calls(changes).iter().map(|call| bench(self.zonal, self.experiment, call)).collect()
    }

    /// True for a row between published ones: nothing was published for it, but for other rows of
    /// its variant.
    fn is_between(&self) -> bool {
        let is_published = |row: &Row| comparable(row, self.variant);
        !is_published(self.row) && self.experiment.rows().iter().any(is_published)
    }

    fn figures(&self, reports: &[Value]) -> Result<Vec<f64>, String> {
        reports.iter().map(|report| figure(report, self.row.unit)).collect()
    }

    /// Figure with `changes` to the profile.
    fn figure(&self, changes: &str) -> Result<f64, String> {
        Ok(mean(&self.figures(&self.reports(changes)?)?))
    }

    fn cell(&self, scale: Scale) -> Result<Cell, String> {
        let checked = format!("checked={}", company(&self.variant.mode));
        let reports = self.reports(&checked)?;
        let figures = self.figures(&reports)?;
        let is_thorough = scale != Scale::Tiny && !self.experiment.is_long;
        let depth = match () {
            () if !is_thorough => Depth::Figure,
            () if comparable(self.row, self.variant) => Depth::Effects,
            () if self.is_between() => Depth::Range,
            () => Depth::Figure,
        };
        let choices = if is_thorough { self.over_choices()? } else { Vec::new() };
        let simulated = match self.variant.profile() {
            Some((name, changes)) => {
                let profile = Profile::open(name, &changes).map_err(|e| e.to_string())?;
                Some(self.simulated(&profile, &reports[0], &figures, choices, depth)?)
            }
            None => None,
        };
        let mut all = Statistics::default();
        for report in &reports {
            all += statistics(report)?;
        }
        Ok(Cell {
            figures: Samples { rounds: vec![mean(&figures)] },
            statistics: all,
            command: format!("zonal {}", self.calls(&checked)[0].join(" ")),
            simulated,
        })
    }

    fn simulated(
        &self,
        profile: &Profile,
        report: &Value,
        figures: &[f64],
        choices: Vec<f64>,
        depth: Depth,
    ) -> Result<Simulated, String> {
        let effects = if depth == Depth::Effects { sensitivity::effects(self)? } else { Vec::new() };
        let status = self.row.status.get(&self.variant.name);
        let range = match &profile.timing {
            _ if depth == Depth::Figure => None,
            // A fit explains the figures that it used. For others, the spread over equally good
            // fits says how reliable they are.
            _ if profile.calibrated => match status {
                Some(Status::Calibrated | Status::Unexplained) => None,
                Some(Status::Assumed) => {
                    let fits = self.over_other_fits(mean(figures))?;
                    let fits = fits.into_iter().flat_map(<[f64; 2]>::from);
                    Some(span(
                        &choices.iter().copied().chain(fits).chain([mean(figures)]).collect::<Vec<_>>(),
                    ))
                }
                Some(Status::Predicted) | None => self.over_other_fits(mean(figures))?,
            },
            TimingValues::SmrDisk(_) => Some(self.over_policies()?),
            TimingValues::Flash(_) => {
                Some(sensitivity::range_of_assumed(&effects, figure(report, self.row.unit)?))
            }
        };
        Ok(Simulated {
            profile: profile.name.clone(),
            is_calibrated: profile.calibrated,
            media: media(profile, report, self.row.unit),
            range,
            choices,
            draws: if self.row.randseeds.is_empty() { Vec::new() } else { figures.to_vec() },
            dominant: sensitivity::dominant(&effects),
        })
    }

    /// Minimum and maximum with one fitted value at either end of its equally good range; `None` if
    /// the profile lists no such range.
    fn over_other_fits(&self, figure: f64) -> Result<Option<(f64, f64)>, String> {
        let Some((name, changes)) = self.variant.profile() else { return Ok(None) };
        let quantities = Profile::quantities(name, &changes).map_err(|e| e.to_string())?;
        let ends = quantities.iter().flat_map(|q| q.range.iter().flatten().map(move |end| (&q.key, end)));
        let others: Vec<f64> =
            ends.map(|(key, end)| self.figure(&format!("{key}={end}"))).collect::<Result<_, _>>()?;
        Ok((!others.is_empty()).then(|| span(&[others, vec![figure]].concat())))
    }

    /// Figure with each of the experiment's choices, in every variant of a row with an assumed figure
    /// or ratio.
    fn over_choices(&self) -> Result<Vec<f64>, String> {
        if self.row.status.values().all(|status| *status != Status::Assumed) {
            return Ok(Vec::new());
        }
        let with = |choice: &String| {
            let variant = self.variant.with_choice(choice);
            Trial { variant: &variant, ..*self }.figure("")
        };
        self.experiment.choices.iter().map(with).collect()
    }

    /// Minimum and maximum over the orders in which a disk may write its cache.
    fn over_policies(&self) -> Result<(f64, f64), String> {
        let figures = Policy::ALL.map(|policy| self.figure(&format!("policy={}", policy.name())));
        Ok(span(&figures.into_iter().collect::<Result<Vec<_>, _>>()?))
    }
}

/// True if a figure or ratio was published for the cell.
fn comparable(row: &Row, variant: &Variant) -> bool {
    row.status.contains_key(&variant.name)
}

/// Limit on writes at the drive together in a write mode, as a value of `checked`.
fn company(mode: &str) -> &'static str {
    match mode {
        "qd1" => "drive",
        "per-zone" | "zone-lock" => "zone",
        _ => "many",
    }
}

/// Upper bound for large sequential writes: the rate of a disk's outer edge, or of link and zone of
/// a flash drive.
fn media(profile: &Profile, report: &Value, unit: Unit) -> Option<f64> {
    let rate = match &profile.timing {
        TimingValues::SmrDisk(values) => values.outer_rate_mb_s.value,
        // A write to a zone uses the link, then the zone; a rate of 0 takes no time.
        TimingValues::Flash(values) => {
            let (link, zone) = (values.link_mb_s.value, values.zone_mb_s.value);
            let time: f64 = [link, zone].into_iter().filter(|rate| *rate > 0.0).map(f64::recip).sum();
            time.recip()
        }
    };
    match unit {
        Unit::MegabytesPerSecond => Some(rate),
        Unit::Kiops => {
            let (bytes, requests) = (
                figure(report, Unit::MegabytesPerSecond).ok()? * 1e6,
                figure(report, Unit::Kiops).ok()? * 1e3,
            );
            Some(rate * 1e6 / (bytes / requests) / 1e3)
        }
    }
}
