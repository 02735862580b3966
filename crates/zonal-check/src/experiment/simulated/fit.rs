//! Fits values of a profile to the published figures with the status calibrated.
//!
//! The search tries all steps of one value's ladder while the others stay unchanged, then goes on
//! to the next value, until no step of any value reduces the root mean square of the errors by a
//! tenth. It is deterministic: equal figures give equal values. Figures that the fit does not use
//! are simulated at the end, and their errors are reported separately.

use super::{Trial, media, parallel};
use crate::experiment::Experiment;
use crate::experiment::simulated::summary::is_off_media_rate;
use crate::experiment::spec::{Row, Status, Variant};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use zonal_bench::columns;
use zonal_sim::Profile;
use zonal_sim::profile::Source;

/// Values that may be fitted, and the steps to try for each. A value whose source is not `fitted`
/// is left unchanged.
const LADDERS: [(&str, &[&str]); 6] = [
    ("dwell", &["0", "0.5", "0.75", "1", "1.25", "1.5", "1.75", "2", "2.5", "4", "8", "16", "32"]),
    ("cache_bytes", &["12M", "14M", "16M", "18M", "20M", "22M", "25M", "28M", "32M", "48M", "64M", "96M"]),
    ("cache_commands", &["0", "2496", "2912", "3328", "3744", "4160"]),
    ("cache_zone_commands", &["0", "3", "4", "5", "6", "7", "8"]),
    ("command_us", &["20", "21", "22", "23", "24"]),
    (
        "patience_us",
        &["0", "40000", "60000", "80000", "100000", "110000", "120000", "140000", "160000", "180000"],
    ),
];

/// A value fits as well as the best if no fitted figure is off by more than this, or than the worst
/// figure with the best values.
const AS_WELL: f64 = 0.10;

/// Factor by which a step must reduce the errors to be taken. Other seeds of the draws move them by
/// about as much.
const GAIN: f64 = 0.9;

type Values = BTreeMap<&'static str, String>;

/// Relative errors of the figures with some values.
#[derive(Clone, Debug)]
struct Errors {
    all: Vec<f64>,
}

impl Errors {
    fn rms(&self) -> f64 {
        (self.all.iter().map(|error| error * error).sum::<f64>() / self.all.len() as f64).sqrt()
    }

    /// Index and size of the largest error.
    fn worst(&self) -> (usize, f64) {
        let sized = self.all.iter().map(|error| error.abs()).enumerate();
        sized.fold((0, 0.0), |worst, error| if error.1 > worst.1 { error } else { worst })
    }

    /// Median of the error sizes; the lower of the two middle ones.
    fn median(&self) -> f64 {
        let mut sizes: Vec<f64> = self.all.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.get(sizes.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
    }
}

/// A published figure, and the run that simulates it.
struct Target<'a> {
    trial: Trial<'a>,
    published: f64,
}

impl Target<'_> {
    fn name(&self) -> String {
        format!("{}: {}, {}", self.trial.experiment.name, self.trial.row.name, self.trial.variant.name)
    }
}

/// Starting point of a fit.
#[derive(Default, Debug)]
pub struct Begin {
    /// Values that replace those of the profile.
    pub given: Vec<(String, String)>,
    /// Keys that the search leaves unchanged. The effect of other values is reported all the same.
    pub held: Vec<String>,
}

/// State of a fit. See the module.
struct Fit<'a> {
    fitted: Vec<Target<'a>>,
    held: &'a [String],
    known: BTreeMap<Values, Vec<f64>>,
}

/// Fits `profile` to the calibrated figures of `experiments`, starting from its own values and
/// those of `begin`. Returns a text with the best values and the effect of every step.
///
/// # Errors
/// A profile that is missing or has nothing to fit; a run that failed.
pub fn fit(
    experiments: &[Experiment],
    profile: &str,
    begin: &Begin,
    zonal: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let rows: Vec<(&Experiment, Row)> = experiments
        .iter()
        .filter(|experiment| experiment.is_simulated() && !experiment.is_long)
        .flat_map(|experiment| experiment.rows().into_iter().map(move |row| (experiment, row)))
        .collect();
    let cells = rows.iter().flat_map(|(experiment, row)| {
        experiment.variants.iter().map(move |variant| Trial { experiment, row, variant, zonal })
    });
    let (mut fitted, mut apart) = (Vec::new(), Vec::new());
    for trial in cells.filter(|trial| is_of(trial.variant, profile)) {
        let name = &trial.variant.name;
        let Some((&published, status)) = trial.row.published.get(name).zip(trial.row.status.get(name)) else {
            continue;
        };
        match status {
            Status::Calibrated => fitted.push(Target { trial, published }),
            Status::Predicted | Status::Assumed | Status::Unexplained => {
                apart.push(Target { trial, published })
            }
        }
    }
    let mut values = start(profile, begin)?;
    for targets in [&mut fitted, &mut apart] {
        let is_kept = parallel::map(targets, |target| target.is_off_media(profile))?;
        let mut is_kept = is_kept.into_iter();
        targets.retain(|_| is_kept.next() == Some(true));
    }
    if fitted.is_empty() || values.is_empty() {
        return Err(format!("profile {profile} has no figures or no values to fit"));
    }
    let mut fit = Fit { fitted, held: &begin.held, known: BTreeMap::new() };
    fit.descend(&mut values, progress)?;
    fit.told(&values, &apart)
}

/// True for a run of the drive with the unchanged values of the profile.
fn is_of(variant: &Variant, profile: &str) -> bool {
    // The host's limit on commands is not a value of the drive.
    variant.profile().is_some_and(|(name, changes)| {
        name == profile && changes.iter().all(|(key, _)| *key == "command_max")
    })
}

/// Fitted values of the profile and given values, as far as they have a ladder.
fn start(profile: &str, Begin { given, held }: &Begin) -> Result<Values, String> {
    let changes: Vec<(&str, &str)> = given.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let before = Profile::quantities(profile, &[]).map_err(|e| e.to_string())?;
    let quantities = Profile::quantities(profile, &changes).map_err(|e| e.to_string())?;
    let mut values = Values::new();
    for (key, _) in LADDERS {
        let is_fitted = before.iter().any(|q| q.key == key && q.source == Source::Fitted)
            || given.iter().any(|(other, _)| other == key);
        let value = quantities.iter().find(|q| q.key == key).map(|q| q.value.to_string());
        values.extend(value.filter(|_| is_fitted).map(|value| (key, value)));
    }
    match held.iter().find(|key| !values.contains_key(key.as_str())) {
        Some(key) => Err(format!("{key} is not fitted, so it cannot be held")),
        None => Ok(values),
    }
}

impl Target<'_> {
    /// True if the published figure is far enough from the rate of the medium to say something
    /// about a model.
    fn is_off_media(&self, profile: &str) -> Result<bool, String> {
        let profile = Profile::open(profile, &[]).map_err(|e| e.to_string())?;
        let report = self.trial.reports("")?.swap_remove(0);
        Ok(is_off_media_rate(self.published, media(&profile, &report, self.trial.row.unit)))
    }
}

fn changes(values: &Values) -> String {
    values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn errors(targets: &[Target<'_>], figures: &[f64]) -> Errors {
    Errors {
        all: targets.iter().zip(figures).map(|(target, figure)| figure / target.published - 1.0).collect(),
    }
}

impl Fit<'_> {
    fn figures(&mut self, values: &Values) -> Result<Vec<f64>, String> {
        if let Some(known) = self.known.get(values) {
            return Ok(known.clone());
        }
        let changes = changes(values);
        let figures = parallel::map(&self.fitted, |target| target.trial.figure(&changes))?;
        self.known.insert(values.clone(), figures.clone());
        Ok(figures)
    }

    fn errors(&mut self, values: &Values) -> Result<Errors, String> {
        let figures = self.figures(values)?;
        Ok(errors(&self.fitted, &figures))
    }

    fn descend(&mut self, best: &mut Values, progress: &mut dyn FnMut(&str)) -> Result<(), String> {
        let mut least = self.errors(best)?.rms();
        loop {
            let before = least;
            for (key, step) in steps(best) {
                if self.held.iter().any(|held| held == key) {
                    continue;
                }
                let with = with(best, key, step);
                let errors = self.errors(&with)?;
                progress(&format!("{}: rms {:.1}%", changes(&with), errors.rms() * 100.0));
                if errors.rms() < least * GAIN {
                    (least, *best) = (errors.rms(), with);
                }
            }
            if least == before {
                return Ok(());
            }
        }
    }

    /// Formats the best values, the effect of other steps, and each figure.
    fn told(&mut self, best: &Values, apart: &[Target<'_>]) -> Result<String, String> {
        let figures = self.figures(best)?;
        let found = errors(&self.fitted, &figures);
        let (others, spans) = self.others(best, &figures, found.worst().1.max(AS_WELL))?;
        let mut out = format!("best: {}\n\n{others}", changes(best));
        let told = |target, figure: &f64, span: &(f64, f64)| {
            line(target, *figure, format!("{:.4}..{:.4}", span.0, span.1))
        };
        let lines = self.fitted.iter().zip(&figures).zip(&spans).map(|((t, f), span)| told(t, f, span));
        let _ = writeln!(out, "\nfitted: rms {}, worst {}", percent(found.rms()), percent(found.worst().1));
        out += &table(lines);
        let changes = changes(best);
        let figures = parallel::map(apart, |target| target.trial.figure(&changes))?;
        let kept = errors(apart, &figures);
        let (median, worst) = (percent(kept.median()), percent(kept.worst().1));
        let _ = writeln!(out, "\nkept apart: median {median}, worst {worst}");
        out +=
            &table(apart.iter().zip(&figures).map(|(target, figure)| line(target, *figure, String::new())));
        Ok(out)
    }

    /// Result of each step of each value, and the range of each figure over the steps that fit as
    /// well, that is, with no figure off by more than `bound`.
    fn others(
        &mut self,
        best: &Values,
        figures: &[f64],
        bound: f64,
    ) -> Result<(String, Vec<(f64, f64)>), String> {
        let mut spans: Vec<(f64, f64)> = figures.iter().map(|figure| (*figure, *figure)).collect();
        let mut lines = vec![["value", "rms", "worst", "of", ""].map(String::from)];
        for (key, step) in steps(best) {
            let figures = self.figures(&with(best, key, step))?;
            let errors = errors(&self.fitted, &figures);
            let (at, worst) = errors.worst();
            let is_as_well = worst <= bound;
            if is_as_well {
                spans.iter_mut().zip(&figures).for_each(|(span, f)| *span = (span.0.min(*f), span.1.max(*f)));
            }
            lines.push([
                format!("{key}={step}"),
                percent(errors.rms()),
                percent(worst),
                self.fitted[at].name(),
                if is_as_well { "fits as well" } else { "" }.to_owned(),
            ]);
        }
        Ok((columns(&lines, &[0, 3, 4]), spans))
    }
}

/// Formats figures in columns.
fn table(lines: impl Iterator<Item = [String; 5]>) -> String {
    let head = ["figure", "published", "simulated", "error", "with values that fit as well"];
    columns(&[head.map(String::from)].into_iter().chain(lines).collect::<Vec<_>>(), &[0])
}

fn line(target: &Target<'_>, figure: f64, span: String) -> [String; 5] {
    let error = figure / target.published - 1.0;
    [
        target.name(),
        target.published.to_string(),
        format!("{figure:.4}"),
        format!("{:+.1}%", error * 100.0),
        span,
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Every step of every fitted value.
fn steps(values: &Values) -> Vec<(&'static str, &'static str)> {
    let fitted = LADDERS.iter().filter(|(key, _)| values.contains_key(key));
    fitted.flat_map(|(key, ladder)| ladder.iter().map(move |step| (*key, *step))).collect()
}

fn with(values: &Values, key: &'static str, value: &str) -> Values {
    let mut values = values.clone();
    values.insert(key, value.to_owned());
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_summarized_by_rms_worst_and_median() {
        let errors = Errors { all: vec![0.03, -0.04, 0.0, 0.01] };
        assert!((errors.rms() - (0.0026f64 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!((errors.worst(), errors.median()), ((1, 0.04), 0.01));
    }

    #[test]
    fn fitted_values_start_from_the_profile() {
        let given = vec![("dwell".into(), "0.5".into())];
        let values = start("smr-hdd-30t", &Begin { given, held: vec!["dwell".into()] }).unwrap();
        assert_eq!(values["dwell"], "0.5");
        assert!(values.contains_key("patience_us") && !values.contains_key("command_us"), "{values:?}");
        assert!(start("zns-1t", &Begin::default()).unwrap().is_empty());
        assert!(start("smr-hdd-31t", &Begin::default()).is_err());
        assert!(
            start("smr-hdd-30t", &Begin { held: vec!["command_us".into()], ..Begin::default() }).is_err()
        );
    }
}
