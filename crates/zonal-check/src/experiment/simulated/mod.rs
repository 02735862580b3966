//! Experiments on simulated drives.
//!
//! A simulated run says the same each time and on any machine, so that one round is enough, and its figures can be held
//! against published ones. Beside each stands how far it is off, whether the drive's profile was fitted to it, and which value
//! of the profile moves it most. A drive that was not fitted gives a range and no figure.
//!
//! The runs whose figures stand in the table are watched for what neither a drive nor a write path can do.

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

/// What there is to say of a figure of a simulated drive.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The drive's profile.
    pub profile: String,
    /// Whether that was fitted to measurements of the drive.
    pub is_calibrated: bool,
    /// What the medium would give large writes in order, in the row's unit.
    pub media: Option<f64>,
    /// Least and most. Of a drive that is not fitted: over the orders in which a disk may write its cache, or with a value
    /// that was assumed of a flash drive a fifth more and less. Of a fitted drive, where the figure is predicted or lies
    /// between published ones: with the other values that fit as well.
    pub range: Option<(f64, f64)>,
    /// The figure of each of the row's seeds.
    pub draws: Vec<f64>,
    /// The value of the profile that moves the figure most.
    pub dominant: Option<Dominant>,
}

/// A published figure and the simulated one, or published and simulated ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// What was published.
    pub published: f64,
    /// What comes of the simulation.
    pub simulated: f64,
    /// What the one is to the other.
    pub status: Status,
    /// How far off it may be, in per cent.
    pub tolerance: f64,
}

impl Comparison {
    /// How far off it is, in per cent.
    pub fn error(&self) -> f64 {
        (self.simulated / self.published - 1.0) * 100.0
    }
}

/// The comparison of a row's cell; `None` if nothing was published.
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

/// How much is made of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Depth {
    /// The figure alone.
    Figure,
    /// Its range as well.
    Range,
    /// Which value of the profile moves it most, too.
    Effects,
}

/// A cell that is to be filled.
#[derive(Clone, Copy)]
struct Trial<'a> {
    experiment: &'a Experiment,
    row: &'a Row,
    variant: &'a Variant,
    zonal: &'a Path,
}

/// All cells, row by row.
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
    /// What `zonal` is called with for each of the row's seeds, or once.
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

    /// A report for each of the row's seeds, or one.
    fn reports(&self, changes: &str) -> Result<Vec<Value>, String> {
        self.calls(changes).iter().map(|call| bench(self.zonal, self.experiment, call)).collect()
    }

    /// Whether nothing was published of it, and something of the same variant elsewhere: a row between published ones.
    fn is_between(&self) -> bool {
        let is_published = |row: &Row| comparable(row, self.variant);
        !is_published(self.row) && self.experiment.rows().iter().any(is_published)
    }

    fn figures(&self, reports: &[Value]) -> Result<Vec<f64>, String> {
        reports.iter().map(|report| figure(report, self.row.unit)).collect()
    }

    /// The figure, with values of the profile changed.
    fn figure(&self, changes: &str) -> Result<f64, String> {
        Ok(mean(&self.figures(&self.reports(changes)?)?))
    }

    fn cell(&self, scale: Scale) -> Result<Cell, String> {
        let checked = format!("checked={}", company(&self.variant.mode));
        let reports = self.reports(&checked)?;
        let figures = self.figures(&reports)?;
        let depth = match scale {
            Scale::Tiny => Depth::Figure,
            _ if self.experiment.is_long => Depth::Figure,
            _ if comparable(self.row, self.variant) => Depth::Effects,
            _ if self.is_between() => Depth::Range,
            _ => Depth::Figure,
        };
        let simulated = match self.variant.profile() {
            Some((name, changes)) => {
                let profile = Profile::open(name, &changes).map_err(|e| e.to_string())?;
                Some(self.simulated(&profile, &reports[0], &figures, depth)?)
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
        depth: Depth,
    ) -> Result<Simulated, String> {
        let effects = if depth == Depth::Effects { sensitivity::effects(self)? } else { Vec::new() };
        // A fit says what fitted figures are. Of others it says no more than what the values that fit as well make of them.
        let is_fitted = self.row.status.get(&self.variant.name).is_some_and(|s| *s != Status::Predicted);
        let range = match &profile.timing {
            _ if depth == Depth::Figure => None,
            _ if profile.calibrated && is_fitted => None,
            _ if profile.calibrated => self.over_other_fits(mean(figures))?,
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
            draws: if self.row.randseeds.is_empty() { Vec::new() } else { figures.to_vec() },
            dominant: sensitivity::dominant(&effects),
        })
    }

    /// Least and most with one fitted value of the profile at either end of those that fit as well; `None` if it names none.
    fn over_other_fits(&self, figure: f64) -> Result<Option<(f64, f64)>, String> {
        let Some((name, changes)) = self.variant.profile() else { return Ok(None) };
        let quantities = Profile::quantities(name, &changes).map_err(|e| e.to_string())?;
        let ends = quantities.iter().flat_map(|q| q.range.iter().flatten().map(move |end| (&q.key, end)));
        let others: Vec<f64> =
            ends.map(|(key, end)| self.figure(&format!("{key}={end}"))).collect::<Result<_, _>>()?;
        Ok((!others.is_empty()).then(|| span(&[others, vec![figure]].concat())))
    }

    /// Least and most over the orders in which a disk may write what it has cached.
    fn over_policies(&self) -> Result<(f64, f64), String> {
        let figures = Policy::ALL.map(|policy| self.figure(&format!("policy={}", policy.name())));
        Ok(span(&figures.into_iter().collect::<Result<Vec<_>, _>>()?))
    }
}

/// Whether something was published that the cell can be compared with.
fn comparable(row: &Row, variant: &Variant) -> bool {
    row.status.contains_key(&variant.name)
}

/// Which writes the write mode lets be at the drive together, as `checked` calls it.
fn company(mode: &str) -> &'static str {
    match mode {
        "qd1" => "drive",
        "per-zone" | "zone-lock" => "zone",
        _ => "many",
    }
}

/// What large writes in order could get: the rate of a disk's outer edge, of the link and a zone of a flash drive.
fn media(profile: &Profile, report: &Value, unit: Unit) -> Option<f64> {
    let rate = match &profile.timing {
        TimingValues::SmrDisk(values) => values.outer_rate_mb_s.value,
        // One write of a zone takes one after the other; a rate of 0 takes no time.
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
