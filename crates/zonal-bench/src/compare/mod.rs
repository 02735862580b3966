//! Two results side by side: files that `zonal bench --json` or fio itself has written.
//!
//! [`Results`] is one file, [`ResultsComparison`] the jobs that both have, with the ratio of each figure, and in words what is not
//! compared and why. No ratio is given where it would mislead: where a job failed, and of IOPS and latencies where the requests
//! differ in size.

mod read;

pub use read::{Results, ResultsError};

use crate::output::quantities;
use read::{Job, Times, Work};
use std::collections::{BTreeMap, BTreeSet};

/// Relative difference of the mean request sizes above which only bandwidth has a ratio. Sizes drawn at random differ a
/// little.
const SIZE_TOLERANCE: f64 = 0.1;

/// Names of the two results in tables and messages.
pub const SIDES: [&str; 2] = ["A", "B"];

/// A job and direction that both results have.
#[derive(Clone, Debug, PartialEq)]
pub struct JobComparison {
    /// Name of the job, with its number if others have the same name.
    pub job: String,
    /// `read`, `write` or `trim`.
    pub dir: &'static str,
    /// Write modes; `None` in a result of fio's.
    pub modes: [Option<String>; 2],
    /// Bandwidth, IOPS, mean and 99th percentile, in this order.
    pub figures: [Figure; 4],
}

/// One figure of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: FigureUnit,
    /// In both results; `None` where it was not measured.
    pub values: [Option<f64>; 2],
    /// B divided by A; `None` if that is not to be compared.
    pub ratio: Option<f64>,
}

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FigureUnit {
    /// Bytes a second.
    Bandwidth,
    /// Requests a second.
    Rate,
    /// Nanoseconds.
    Time,
}

/// Comparison of two results: the jobs of both, and the differences.
#[derive(Clone, Debug, Default)]
pub struct ResultsComparison {
    /// Name of each file, with device, write modes, version and time of its run.
    pub sources: [Vec<String>; 2],
    /// Jobs that both have.
    pub jobs: Vec<JobComparison>,
    /// Jobs, directions and modes of one result only, and figures without a ratio, each with the reason.
    pub not_compared: Vec<String>,
    /// Differences in devices, write modes and options, which leave the ratios in place.
    pub differences: Vec<String>,
}

impl ResultsComparison {
    /// Compares two results.
    pub fn new(a: &Results, b: &Results) -> ResultsComparison {
        let mut all = ResultsComparison { sources: [a.source(), b.source()], ..ResultsComparison::default() };
        let devices = [a, b].map(|results| results.devices.join(", "));
        if devices.iter().all(|name| !name.is_empty()) && devices[0] != devices[1] {
            all.differences.push(format!("the devices differ: {} in A, {} in B", devices[0], devices[1]));
        }
        let names: BTreeSet<&String> = a.write_path.keys().chain(b.write_path.keys()).collect();
        for name in names {
            let values =
                [a, b].map(|results| results.write_path.get(name).map_or("the default", String::as_str));
            if values[0] != values[1] {
                let [a, b] = values;
                all.differences.push(format!("{name} of the write path: {a} in A, {b} in B"));
            }
        }
        let modes = [a, b].map(Results::modes);
        let pairs = mode_pairs(&modes);
        for (side, own) in modes.iter().enumerate() {
            let has_pair = |mode| pairs.iter().any(|pair| pair[side] == mode);
            let lone = own.iter().filter(|mode| !has_pair(**mode));
            all.not_compared.extend(
                lone.map(|mode| format!("write mode {} is only in {}", mode.unwrap_or("none"), SIDES[side])),
            );
        }
        let is_one = pairs.len() == 1;
        let labels = [a, b].map(Results::labels);
        for pair in pairs {
            all.add_modes([a, b], &labels, pair, is_one);
        }
        // Modes of one run have the same jobs with the same options, so much is true of each.
        for said in [&mut all.not_compared, &mut all.differences] {
            let mut seen = BTreeSet::new();
            said.retain(|text| seen.insert(text.clone()));
        }
        all
    }

    /// Compares the jobs of one mode of each. `labels`: those of each result in any mode; `is_one`: these are the only
    /// modes that are compared.
    fn add_modes(
        &mut self,
        results: [&Results; 2],
        labels: &[BTreeSet<String>; 2],
        modes: [Option<&str>; 2],
        is_one: bool,
    ) {
        if let [Some(a), Some(b)] = modes
            && a != b
        {
            self.differences.push(format!("the write modes differ: {a} in A, {b} in B"));
        }
        let jobs = [0, 1].map(|side| results[side].jobs_of(modes[side]));
        let of = |label: &str| if is_one { label.to_owned() } else { labelled(label, modes) };
        // Where the other result has the job in no mode at all, the mode says nothing.
        let only_in = |side: usize, label: &str| {
            let is_elsewhere = labels[1 - side].contains(label);
            let job = if is_elsewhere { of(label) } else { label.to_owned() };
            format!("job {job} is only in {}", SIDES[side])
        };
        let by_label = jobs.each_ref().map(|jobs| jobs.iter().cloned().collect::<BTreeMap<_, _>>());
        for (label, job) in &jobs[0] {
            match by_label[1].get(label) {
                Some(other) => self.add_job(&of(label), label, modes, [job, other]),
                None => self.not_compared.push(only_in(0, label)),
            }
        }
        let lone = jobs[1].iter().filter(|(label, _)| !by_label[0].contains_key(label));
        self.not_compared.extend(lone.map(|(label, _)| only_in(1, label)));
    }

    fn add_job(&mut self, called: &str, label: &str, modes: [Option<&str>; 2], jobs: [&Job; 2]) {
        let failed = [0, 1].map(|side| {
            let why = jobs[side].trouble();
            self.not_compared.extend(
                why.iter()
                    .map(|why| format!("{called}: in {} the job {why}, so there is no ratio", SIDES[side])),
            );
            why.is_some()
        });
        self.differences.extend(
            read::different_options(jobs[0], jobs[1]).map(|text| format!("options of {label}: {text}")),
        );
        for (dir, works) in
            jobs[0].works().into_iter().zip(jobs[1].works()).map(|((dir, a), (_, b))| (dir, [a, b]))
        {
            let works = works.map(|work| work.filter(|work| work.total_ios > 0));
            let (a, b) = match works {
                [Some(a), Some(b)] => (a, b),
                [None, None] => continue,
                [a, _] => {
                    let side = SIDES[usize::from(a.is_none())];
                    self.not_compared.push(format!("{called}: only {side} has requests to {dir}"));
                    continue;
                }
            };
            let figures = self.figures(&format!("{called}, {dir}"), [a, b], failed.contains(&true));
            let modes = modes.map(|mode| mode.map(str::to_owned));
            self.jobs.push(JobComparison { job: label.to_owned(), dir, modes, figures });
        }
    }

    fn figures(&mut self, called: &str, works: [&Work; 2], is_failed: bool) -> [Figure; 4] {
        let sizes = works.map(Work::request_bytes);
        let is_sized_alike = (sizes[0] / sizes[1] - 1.0).abs() <= SIZE_TOLERANCE;
        if !is_sized_alike && !is_failed {
            let [a, b] = sizes.map(|size| quantities::size(size.round() as u64));
            self.not_compared.push(format!(
                "{called}: requests of {a} in A and {b} in B, so IOPS and latencies have no ratio"
            ));
        }
        let figure = |name, unit, values: [Option<f64>; 2], is_comparable: bool| {
            let ratio = match values {
                [Some(a), Some(b)] if is_comparable && !is_failed && a > 0.0 => Some(b / a),
                _ => None,
            };
            Figure { name, unit, values, ratio }
        };
        // Latencies of different kinds are not comparable.
        let kind =
            [Work::clat, Work::lat].into_iter().find(|kind| works.iter().all(|work| kind(work).is_some()));
        let times =
            |of: fn(&Times) -> Option<f64>| works.map(|work| kind.and_then(|kind| kind(work)).and_then(of));
        let mean = times(|times| Some(times.mean));
        let p99 = times(Times::p99);
        if kind.is_none() {
            self.not_compared.push(format!("{called}: not both have latencies"));
        } else if p99.contains(&None) {
            self.not_compared.push(format!(
                "{called}: not both have the 99th percentile; the job option percentile_list asks for it"
            ));
        }
        [
            figure("bandwidth", FigureUnit::Bandwidth, works.map(|work| Some(work.bw_bytes)), true),
            figure("IOPS", FigureUnit::Rate, works.map(|work| Some(work.iops)), is_sized_alike),
            figure("mean latency", FigureUnit::Time, mean, is_sized_alike),
            figure("p99 latency", FigureUnit::Time, p99, is_sized_alike),
        ]
    }
}

impl JobComparison {
    /// Write mode in words: one if both are the same.
    pub fn mode(&self) -> String {
        match &self.modes {
            [None, None] => String::new(),
            [Some(a), Some(b)] if a == b => a.clone(),
            [a, b] => {
                let name = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "fio".to_owned());
                format!("{} / {}", name(a), name(b))
            }
        }
    }
}

/// Name of a job with the mode of the runs, if they have one.
fn labelled(label: &str, modes: [Option<&str>; 2]) -> String {
    let mode = modes.into_iter().flatten().next();
    mode.map_or(label.to_owned(), |mode| format!("{label} ({mode})"))
}

/// Modes that are compared with each other: of one name; or those of a file that has a single one and another that does too;
/// and a result without modes, which is fio's, with every mode.
fn mode_pairs<'a>(modes: &[Vec<Option<&'a str>>; 2]) -> Vec<[Option<&'a str>; 2]> {
    let [a, b] = modes;
    match (a.as_slice(), b.as_slice()) {
        ([a], [b]) => vec![[*a, *b]],
        ([None], _) => b.iter().map(|mode| [None, *mode]).collect(),
        (_, [None]) => a.iter().map(|mode| [*mode, None]).collect(),
        _ => a.iter().filter(|mode| b.contains(mode)).map(|mode| [*mode, *mode]).collect(),
    }
}
