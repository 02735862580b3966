//! Jobs of a run: sections with globals applied, and overrides with a record of their changes.

use std::fmt;

use super::draft::Draft;
use super::environment::Environment;
use super::error::{JobError, Limit, Origin, ValueError, excerpt};
use super::inline::PROGRAM_OPTIONS;
use super::lexer::{Section, Setting};
use super::limits::WORKERS_MAX;
use super::options::{Form, Supported};
use super::spec::{Extent, JobSpec, ZoneMode};
use super::tables::{Table, nearest, table_of};

/// A job and its location.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The job's options.
    pub spec: JobSpec,
    /// Header of its section. `name` may set a different name.
    pub section: String,
    /// Location of its section.
    pub origin: Origin,
}

/// An option in a job file that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredUse {
    /// Location.
    pub origin: Origin,
    /// The option.
    pub name: &'static str,
    /// Reason why it is ignored.
    pub reason: &'static str,
    /// True if the user should be warned.
    pub warns: bool,
}

/// A value replaced by an override, at one location.
///
/// Prints as `x.fio [dev1] filename=/dev/sda -> image.zonal`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Location of the old value, or of the job's section if it had none.
    pub origin: Origin,
    /// Header of the section.
    pub section: String,
    /// The option.
    pub option: &'static str,
    /// The old value, or `None` if the job had fio's default.
    pub old: Option<String>,
    /// The new value.
    pub new: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let old = self.old.as_deref().unwrap_or("(not given)");
        write!(f, "{} [{}] {}={old} -> {}", self.origin.source(), self.section, self.option, self.new)
    }
}

/// Jobs of one or more job files, or of a command line.
#[derive(Debug, Clone)]
pub struct JobFile {
    origin: Origin,
    sections: Vec<Section>,
    overrides: Vec<Setting>,
    changes: Vec<Change>,
    jobs: Vec<Job>,
    ignored: Vec<IgnoredUse>,
}

impl JobFile {
    pub(super) fn new(sections: Vec<Section>, origin: Origin) -> Result<Self, JobError> {
        let mut file = Self {
            origin,
            sections,
            overrides: Vec::new(),
            changes: Vec::new(),
            jobs: Vec::new(),
            ignored: Vec::new(),
        };
        file.build()?;
        Ok(file)
    }

    /// Returns the jobs in the order of their sections. There is at least one.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns the options of each job.
    pub fn specs(&self) -> impl Iterator<Item = &JobSpec> {
        self.jobs.iter().map(|job| &job.spec)
    }

    /// Returns the ignored options, in the order given.
    pub fn ignored(&self) -> &[IgnoredUse] {
        &self.ignored
    }

    /// Returns the changes made by overrides, in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Overrides an option in every job and records the changes.
    ///
    /// # Errors
    /// As for a line of a job file. On an error, the jobs and the record are unchanged.
    pub fn override_option(&mut self, name: &str, value: &str) -> Result<(), JobError> {
        let option = match table_of(name) {
            Some(Table::Supported(option)) => option,
            Some(Table::Ignored(option)) => {
                return Err(JobError::Refused {
                    origin: Origin::Override,
                    name: name.to_owned(),
                    why: option.reason,
                });
            }
            Some(Table::Refused(option)) => {
                return Err(JobError::Refused {
                    origin: Origin::Override,
                    name: name.to_owned(),
                    why: option.why,
                });
            }
            None => return Err(unknown(name, Origin::Override)),
        };
        if let Some(what) = super::inline::unprintable(value, &Environment::fixed()) {
            return Err(JobError::Unprintable { origin: Origin::Override, name: name.to_owned(), what });
        }
        let before = self.overrides.clone();
        self.overrides.retain(|setting| setting.name != option.name);
        self.overrides.push(Setting {
            name: option.name.to_owned(),
            value: Some(value.trim().to_owned()),
            blank_before_value: false,
            origin: Origin::Override,
        });
        if let Err(error) = self.build() {
            self.overrides = before;
            return Err(error);
        }
        self.changes.retain(|change| change.option != option.name);
        self.record(option, value.trim());
        Ok(())
    }

    fn record(&mut self, option: &Supported, new: &str) {
        let names = |setting: &&Setting| {
            setting.name == option.name || option.aliases.contains(&setting.name.as_str())
        };
        let mut given_by_global = false;
        for section in &self.sections {
            given_by_global &= !section.starts_file;
            let given: Vec<&Setting> = section.settings.iter().filter(names).collect();
            let old = |setting: &Setting| setting.value.clone().unwrap_or_else(|| "1".to_owned());
            let changed = given.iter().map(|setting| (setting.origin.clone(), Some(old(setting))));
            let absent = given.is_empty() && !section.is_global() && !given_by_global;
            let absent = absent.then(|| (section.origin.clone(), None));
            given_by_global |= section.is_global() && !given.is_empty();
            self.changes.extend(changed.chain(absent).filter(|(_, old)| old.as_deref() != Some(new)).map(
                |(origin, old)| Change {
                    origin,
                    section: section.name.clone(),
                    option: option.name,
                    old,
                    new: new.to_owned(),
                },
            ));
        }
    }

    /// Reapplies globals, sections and overrides. On an error the jobs are unchanged.
    fn build(&mut self) -> Result<(), JobError> {
        let mut jobs = Vec::new();
        let mut ignored = Vec::new();
        let mut defaults = Draft::default();
        let mut waits = false;
        let mut workers = 0;
        let mut errors = Vec::new();
        for section in &self.sections {
            if section.starts_file {
                defaults = Draft::default();
                waits = true;
            }
            if section.is_global() {
                apply(&mut defaults, &section.settings, &mut ignored, &mut errors);
                continue;
            }
            let mut draft = defaults.clone();
            draft.spec.name.clone_from(&section.name);
            let errors_before = errors.len();
            apply(&mut draft, &section.settings, &mut ignored, &mut errors);
            apply(&mut draft, &self.overrides, &mut ignored, &mut errors);
            draft.spec.stonewall |= std::mem::take(&mut waits);
            let job = Job { spec: draft.spec, section: section.name.clone(), origin: section.origin.clone() };
            // After an invalid option the rest of the job would often only repeat that error.
            if errors.len() == errors_before {
                errors.extend(check(&job).err());
            }
            workers += u64::from(job.spec.numjobs);
            if workers > WORKERS_MAX {
                let max = usize::try_from(WORKERS_MAX).unwrap_or(usize::MAX);
                errors.push(JobError::TooMany { origin: job.origin, limit: Limit::Workers, max });
                break;
            }
            jobs.push(job);
        }
        JobError::all(errors)?;
        if jobs.is_empty() {
            return Err(JobError::NoJobs { origin: self.origin.clone() });
        }
        self.jobs = jobs;
        self.ignored = ignored;
        Ok(())
    }
}

/// Checks that need the complete job.
fn check(job: &Job) -> Result<(), JobError> {
    let spec = &job.spec;
    let (origin, name) = (job.origin.clone(), excerpt(&spec.name));
    if spec.time_based && spec.runtime.is_none() {
        return Err(JobError::EndlessJob { origin, job: name });
    }
    if let Some(problem) = spec.pace.conflict() {
        return Err(JobError::Rates { origin, job: name, problem });
    }
    let extents = [
        ("size", spec.size),
        ("io_size", spec.io_size),
        ("offset", spec.offset),
        ("offset_increment", spec.offset_increment),
    ];
    match extents.into_iter().find(|(_, extent)| matches!(extent, Extent::Zones(_))) {
        Some((option, _)) if spec.zonemode != ZoneMode::Zbd => {
            Err(JobError::ZonesWithoutZbd { origin, job: name, option })
        }
        _ => Ok(()),
    }
}

/// Applies settings to a draft, and collects the errors of those that are invalid.
fn apply(draft: &mut Draft, settings: &[Setting], ignored: &mut Vec<IgnoredUse>, errors: &mut Vec<JobError>) {
    for setting in settings {
        if let Err(error) = apply_one(draft, setting, ignored)
            // An override is applied to each job.
            && !errors.contains(&error)
        {
            errors.push(error);
        }
    }
}

fn apply_one(draft: &mut Draft, setting: &Setting, ignored: &mut Vec<IgnoredUse>) -> Result<(), JobError> {
    let Setting { name, origin, .. } = setting;
    let value = setting.value.as_deref();
    let missing = || JobError::MissingValue { origin: origin.clone(), name: name.clone() };
    let wrong = |problem| JobError::Value {
        origin: origin.clone(),
        name: name.clone(),
        value: excerpt(value.unwrap_or_default()),
        problem,
    };
    let table = table_of(name).ok_or_else(|| unknown(name, origin.clone()))?;
    let given = match (table.form(), value) {
        (Form::Flag, None) => "1",
        (_, None | Some("")) => return Err(missing()),
        (_, Some(value)) => value,
    };
    match table {
        Table::Supported(option) => {
            check_blank(option, setting, given).map_err(&wrong)?;
            (option.apply)(draft, given).map_err(wrong)?;
        }
        Table::Ignored(option) => {
            if let Some(except) = option.except.filter(|except| except.values.contains(&given)) {
                return Err(wrong(ValueError::Refused { why: except.why }));
            }
            ignored.push(IgnoredUse {
                origin: origin.clone(),
                name: option.name,
                reason: option.reason,
                warns: option.warn.is_with(given),
            });
        }
        Table::Refused(option) if option.neutral.contains(&given) && value.is_some() => {}
        Table::Refused(option) => {
            return Err(JobError::Refused { origin: origin.clone(), name: name.clone(), why: option.why });
        }
    }
    Ok(())
}

/// Rejects a blank before a number with a suffix: fio loses the suffix.
fn check_blank(option: &Supported, setting: &Setting, value: &str) -> Result<(), ValueError> {
    let has_suffix = value.contains(|c: char| c.is_ascii_alphabetic() || c == '%');
    if option.numeric && setting.blank_before_value && has_suffix {
        return Err(ValueError::Ambiguous {
            fio: "a number without its suffix, because of the blank before it".to_owned(),
            instead: format!("{}={}", setting.name, excerpt(value)),
        });
    }
    Ok(())
}

/// Error of an option that is in no table.
pub(super) fn unknown(name: &str, origin: Origin) -> JobError {
    if origin == Origin::CommandLine && PROGRAM_OPTIONS.contains(&name) {
        return JobError::ProgramOption { origin, name: name.to_owned() };
    }
    JobError::Unknown { origin, name: excerpt(name), nearest: nearest(name) }
}

#[cfg(test)]
mod tests;
