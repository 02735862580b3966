//! Results as they stand in a file, in the shape of fio 3's JSON.

use crate::job::{JobFile, supported};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use zonal_io::text::harmless;

/// Options without a bearing on a job's figures.
const WITHOUT_BEARING: [&str; 3] = ["name", "description", "filename"];

/// Error of [`Results::parse`].
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ResultsError {
    /// It is not JSON.
    #[error(
        "not JSON: {0}; give a file that `zonal bench --json FILE` or `fio --output-format=json --output=FILE` wrote"
    )]
    NotJson(serde_json::Error),
    /// It is JSON of something else.
    #[error("not results of `zonal bench --json` or of fio 3: {0}")]
    NotResults(serde_json::Error),
    /// It has an empty list of jobs.
    #[error("no job in the results; the run ended before one did")]
    NoJobs,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Results {
    name: String,
    version: String,
    time: String,
    pub(super) devices: Vec<String>,
    /// Options of the write path that do not have their defaults.
    pub(super) write_path: BTreeMap<String, String>,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "fio version", default)]
    version: String,
    #[serde(default)]
    time: String,
    #[serde(rename = "global options", default)]
    globals: BTreeMap<String, Value>,
    jobs: Vec<Job>,
    zonal: Option<RunPart>,
}

#[derive(Deserialize)]
struct RunPart {
    #[serde(default)]
    modes: Vec<Mode>,
}

#[derive(Deserialize)]
struct Mode {
    #[serde(default)]
    device: String,
    #[serde(default)]
    write_path: BTreeMap<String, String>,
}

/// A job.
#[derive(Deserialize, Clone, Debug)]
pub(super) struct Job {
    jobname: String,
    #[serde(default)]
    error: i64,
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, Value>,
    read: Work,
    write: Work,
    trim: Option<Work>,
    zonal: Option<JobPart>,
}

#[derive(Deserialize, Clone, Debug)]
struct JobPart {
    write_mode: Option<String>,
    #[serde(default)]
    lacked_zone: bool,
    #[serde(default)]
    lacked_data: bool,
    failure: Option<String>,
}

/// One direction of a job.
#[derive(Deserialize, Clone, Debug)]
pub(super) struct Work {
    pub(super) total_ios: u64,
    io_bytes: u64,
    pub(super) bw_bytes: f64,
    pub(super) iops: f64,
    clat_ns: Option<Times>,
    lat_ns: Option<Times>,
}

/// Latencies in nanoseconds.
#[derive(Deserialize, Clone, Debug)]
pub(super) struct Times {
    pub(super) mean: f64,
    #[serde(rename = "N", default)]
    count: u64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

impl Results {
    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// [`ResultsError`], if the text is not a result.
    pub fn parse(name: &str, text: &str) -> Result<Results, ResultsError> {
        let document: Document = serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => ResultsError::NotResults(error),
            _ => ResultsError::NotJson(error),
        })?;
        if document.jobs.is_empty() {
            return Err(ResultsError::NoJobs);
        }
        let mut devices: Vec<String> = Vec::new();
        let mut write_path = BTreeMap::new();
        for mode in document.zonal.into_iter().flat_map(|run| run.modes) {
            write_path.extend(mode.write_path.iter().map(|(name, value)| (harmless(name), harmless(value))));
            let device = harmless(&mode.device);
            if !device.is_empty() && !devices.contains(&device) {
                devices.push(device);
            }
        }
        let mut jobs = document.jobs;
        for job in &mut jobs {
            job.settle(&document.globals);
        }
        Ok(Results {
            name: name.to_owned(),
            version: harmless(&document.version),
            time: harmless(document.time.trim()),
            devices,
            write_path,
            jobs,
        })
    }

    /// Name of the file, and the facts about its run.
    pub(super) fn source(&self) -> Vec<String> {
        let modes: Vec<&str> = self.modes().into_iter().flatten().collect();
        let facts = [
            self.name.clone(),
            self.devices.join(", "),
            modes.join(", "),
            self.version.clone(),
            self.time.clone(),
        ];
        facts.into_iter().filter(|fact| !fact.is_empty()).collect()
    }

    /// The write modes, in the order of the file.
    pub(super) fn modes(&self) -> Vec<Option<&str>> {
        let mut modes = Vec::new();
        for mode in self.jobs.iter().map(Job::mode) {
            if !modes.contains(&mode) {
                modes.push(mode);
            }
        }
        modes
    }

    /// The jobs of a mode by names that are made distinct by their numbers where they are not.
    pub(super) fn jobs_of(&self, mode: Option<&str>) -> Vec<(String, &Job)> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let jobs: Vec<&Job> = self.jobs.iter().filter(|job| job.mode() == mode).collect();
        for job in &jobs {
            *counts.entry(&job.jobname).or_default() += 1;
        }
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        let label = |job: &'_ Job, number: u32| match counts[job.jobname.as_str()] {
            1 => job.jobname.clone(),
            _ => format!("{} #{number}", job.jobname),
        };
        let numbered = jobs.into_iter().map(|job| {
            let number = seen.entry(&job.jobname).or_default();
            *number += 1;
            (label(job, *number), job)
        });
        numbered.collect()
    }

    /// Names and numbers of the jobs of all modes.
    pub(super) fn labels(&self) -> BTreeSet<String> {
        self.modes().into_iter().flat_map(|mode| self.jobs_of(mode)).map(|(label, _)| label).collect()
    }
}

impl Job {
    /// Escapes its texts, and replaces its options by the canonical form of its own and the global ones.
    fn settle(&mut self, globals: &BTreeMap<String, Value>) {
        self.jobname = harmless(&self.jobname);
        if let Some(part) = &mut self.zonal {
            part.write_mode = part.write_mode.take().map(|mode| harmless(&mode));
            part.failure = part.failure.take().map(|failure| harmless(&failure));
        }
        let own = std::mem::take(&mut self.options);
        let all = globals.iter().filter(|(name, _)| !own.contains_key(*name)).chain(&own);
        let settled = all.filter_map(|(name, value)| canonical(name, value));
        self.options = settled.collect();
    }

    fn mode(&self) -> Option<&str> {
        self.zonal.as_ref()?.write_mode.as_deref()
    }

    /// Describes why the job did not do its work, as a continuation of "the job".
    pub(super) fn trouble(&self) -> Option<String> {
        let part = self.zonal.as_ref();
        match part.and_then(|part| part.failure.as_deref()) {
            Some(failure) => Some(format!("failed ({failure})")),
            None if self.error != 0 => Some(format!("failed (error {})", self.error)),
            None if part.is_some_and(|part| part.lacked_zone) => Some("found no zone to write".to_owned()),
            None if part.is_some_and(|part| part.lacked_data) => Some("found no data to read".to_owned()),
            None => None,
        }
    }

    /// Its directions by name.
    pub(super) fn works(&self) -> [(&'static str, Option<&Work>); 3] {
        [("read", Some(&self.read)), ("write", Some(&self.write)), ("trim", self.trim.as_ref())]
    }
}

impl Work {
    /// Mean size of its requests.
    pub(super) fn request_bytes(&self) -> f64 {
        self.io_bytes as f64 / self.total_ios.max(1) as f64
    }

    pub(super) fn clat(&self) -> Option<&Times> {
        self.clat_ns.as_ref().filter(|times| times.count > 0)
    }

    pub(super) fn lat(&self) -> Option<&Times> {
        self.lat_ns.as_ref().filter(|times| times.count > 0)
    }
}

impl Times {
    pub(super) fn p99(&self) -> Option<f64> {
        let is_p99 = |percent: &String| percent.parse::<f64>().is_ok_and(|percent| percent == 99.0);
        self.percentile.iter().find(|(percent, _)| is_p99(percent)).map(|(_, nanos)| *nanos)
    }
}

/// Returns an option by its first name, with the value as the job language prints it: `1M` is `1m`. `None` at its default.
/// Options without effect in the language are unchanged.
fn canonical(name: &str, value: &Value) -> Option<(String, Value)> {
    let text = match value {
        // A flag without a value is set.
        Value::String(text) if text.is_empty() => "1".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let known = supported().iter().find(|option| option.name == name || option.aliases.contains(&name));
    // A value of several lines would be several options, and one with a `$` depends on the environment.
    let parsed = known.filter(|_| !text.contains(|c: char| c.is_control() || c == '$')).and_then(|option| {
        let file = JobFile::parse(&format!("[job]\n{}={text}\n", option.name), "results").ok()?;
        let options = file.specs().next()?.options();
        Some(options.into_iter().find(|(name, _)| *name == option.name))
    });
    let (name, text) = match parsed {
        Some(shown) => shown.map(|(name, value)| (name.to_owned(), value))?,
        None => (known.map_or(name, |option| option.name).to_owned(), text),
    };
    Some((harmless(&name), Value::String(harmless(&text))))
}

/// Descriptions of the options in which two jobs differ.
pub(super) fn different_options<'a>(a: &'a Job, b: &'a Job) -> impl Iterator<Item = String> + 'a {
    let names: BTreeSet<&String> = a.options.keys().chain(b.options.keys()).collect();
    let names = names.into_iter().filter(|name| !WITHOUT_BEARING.contains(&name.as_str()));
    let value = |job: &'a Job, name: &String| job.options.get(name).and_then(Value::as_str);
    names.filter_map(move |name| {
        let (a, b) = (value(a, name), value(b, name));
        let said = |value: Option<&'a str>| value.unwrap_or("not set");
        (a != b).then(|| format!("{name} is {} in A and {} in B", said(a), said(b)))
    })
}
