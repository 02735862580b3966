//! Assembles a run from command line options and job files, in fio's order.

use super::environment::Environment;
use super::error::{JobError, Limit, Origin, excerpt};
use super::file::{JobFile, unknown};
use super::include;
use super::inline;
use super::lexer::{self, Section, Setting};
use super::limits::{SECTIONS_MAX, SETTINGS_MAX};
use super::tables::table_of;

/// Collects the options of a run.
///
/// As in fio, options before the first `--name` are defaults for the jobs after them and for the
/// first job file, where its own globals take precedence. Each further file starts from fio's
/// defaults, and its first job waits for all earlier jobs.
///
/// ```
/// use zonal_bench::job::{Environment, JobParser};
///
/// let mut parser = JobParser::new(Environment::of_process());
/// let files = parser.command_line(["--bs=64k", "--name=fill", "--rw=write", "check.fio"])?;
/// assert_eq!(files, ["check.fio"]);
/// parser.file("[check]\nrw=read\n", "check.fio")?;
/// let jobs = parser.finish()?;
/// assert_eq!(jobs.jobs()[1].spec.block_size.read, 65536);
/// # Ok::<(), zonal_bench::job::JobError>(())
/// ```
#[derive(Debug, Clone)]
pub struct JobParser {
    environment: Environment,
    sections: Vec<Section>,
    files: Vec<String>,
    only: Vec<String>,
}

impl JobParser {
    /// Creates an empty run. The environment is used for job files only; the shell expands the
    /// command line.
    pub fn new(environment: Environment) -> Self {
        Self { environment, sections: Vec::new(), files: Vec::new(), only: Vec::new() }
    }

    /// Selects sections of the job files by name. Every `[global]` is kept, and the other sections
    /// are not even checked.
    pub fn only_sections<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, names: I) {
        self.only.extend(names.into_iter().map(Into::into));
    }

    /// Adds command line arguments and returns the names of job files among them, for the caller to
    /// read.
    ///
    /// # Errors
    /// A value that a job file cannot express, a missing value, or too many arguments. Names and
    /// values are checked by [`JobParser::finish`].
    pub fn command_line<I, S>(&mut self, arguments: I) -> Result<Vec<String>, JobError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let line = inline::read(arguments)?;
        if let Some(global) = line.sections.first().filter(|first| line.files.len() > 1 && first.is_global())
        {
            // The value of a mistyped option is taken for a job file.
            let mistyped = global.settings.iter().find(|setting| table_of(&setting.name).is_none());
            return Err(match mistyped {
                Some(setting) => unknown(&setting.name, setting.origin.clone()),
                None => JobError::OptionsBeforeFiles,
            });
        }
        self.add(line.sections, Origin::CommandLine)?;
        Ok(line.files)
    }

    /// Adds a job file. `source` is its name in errors.
    ///
    /// # Errors
    /// A line that is neither section, option nor comment, or an exceeded limit.
    pub fn file(&mut self, text: &str, source: &str) -> Result<(), JobError> {
        let mut sections = lexer::sections(text, source)?;
        if let Some(first) = sections.first_mut() {
            first.starts_file = !self.files.is_empty();
        }
        self.files.push(source.to_owned());
        self.add(sections, whole_file(source))
    }

    /// As [`JobParser::file`], for bytes that may not be valid UTF-8.
    ///
    /// # Errors
    /// As [`JobParser::file`], and [`JobError::NotUtf8`].
    pub fn file_bytes(&mut self, bytes: &[u8], source: &str) -> Result<(), JobError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| JobError::NotUtf8 { origin: whole_file(source), byte: error.valid_up_to() })?;
        self.file(text, source)
    }

    /// Applies globals and checks every option and job.
    ///
    /// # Errors
    /// [`JobError::Several`] if several options or jobs are invalid; otherwise the
    /// first error found.
    pub fn finish(mut self) -> Result<JobFile, JobError> {
        self.select()?;
        include::resolve(&mut self.sections, &self.environment.files)?;
        let settings = self.sections.iter_mut().flat_map(|section| &mut section.settings);
        let errors = settings.filter_map(|setting| expand(setting, &self.environment).err());
        JobError::all(errors.collect())?;
        JobFile::new(self.sections, self.files.first().map_or(Origin::CommandLine, |file| whole_file(file)))
    }

    pub(super) fn parse_one(mut self, text: &str, source: &str) -> Result<JobFile, JobError> {
        self.file(text, source)?;
        self.finish()
    }

    pub(super) fn parse_one_bytes(mut self, bytes: &[u8], source: &str) -> Result<JobFile, JobError> {
        self.file_bytes(bytes, source)?;
        self.finish()
    }

    fn add(&mut self, sections: Vec<Section>, origin: Origin) -> Result<(), JobError> {
        self.sections.extend(sections);
        let settings: usize = self.sections.iter().map(|section| section.settings.len()).sum();
        if self.sections.len() > SECTIONS_MAX {
            return Err(JobError::TooMany { origin, limit: Limit::Sections, max: SECTIONS_MAX });
        }
        if settings > SETTINGS_MAX {
            return Err(JobError::TooMany { origin, limit: Limit::Settings, max: SETTINGS_MAX });
        }
        Ok(())
    }

    fn select(&mut self) -> Result<(), JobError> {
        let from_file = |section: &Section| matches!(section.origin, Origin::File { .. });
        for name in &self.only {
            if !self.sections.iter().any(|section| from_file(section) && section.name == *name) {
                return Err(JobError::NoSuchSection { name: excerpt(name) });
            }
        }
        if self.only.is_empty() {
            return Ok(());
        }
        let mut starts_file = false;
        let only = &self.only;
        self.sections.retain_mut(|section| {
            starts_file |= section.starts_file;
            let kept = section.is_global() || !from_file(section) || only.contains(&section.name);
            if kept {
                // The mark of a dropped section moves to the next section that is kept.
                section.starts_file = std::mem::take(&mut starts_file);
            }
            kept
        });
        Ok(())
    }
}

impl JobFile {
    /// Parses one job file in the environment of this process. `source` is its name in errors.
    ///
    /// # Errors
    /// The first error found, with its line.
    pub fn parse(text: &str, source: &str) -> Result<Self, JobError> {
        JobParser::new(Environment::of_process()).parse_one(text, source)
    }

    /// Parses jobs from command line arguments alone. See [`JobParser`] for options combined with
    /// files.
    ///
    /// # Errors
    /// The first error found; [`JobError::NotAnOption`] for an argument that would name a file.
    pub fn parse_inline<I, S>(arguments: I) -> Result<Self, JobError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let mut parser = JobParser::new(Environment::fixed());
        match parser.command_line(arguments)?.first() {
            Some(argument) => Err(JobError::NotAnOption { argument: excerpt(argument) }),
            None => parser.finish(),
        }
    }
}

fn whole_file(source: &str) -> Origin {
    Origin::File { name: source.into(), line: 0 }
}

/// Expands `${VARIABLE}`, then the keywords, once each. Substituted text is not expanded again.
fn expand(setting: &mut Setting, environment: &Environment) -> Result<(), JobError> {
    let Setting { name, value: Some(value), origin, .. } = setting else { return Ok(()) };
    if !value.contains('$') || *origin == Origin::CommandLine {
        return Ok(());
    }
    let mut expanded = String::with_capacity(value.len());
    let mut rest = value.as_str();
    while let Some((before, variable, after)) = next_variable(rest) {
        let found = environment
            .variables
            .get(variable)
            .ok_or_else(|| JobError::UnsetVariable { origin: origin.clone(), variable: excerpt(variable) })?;
        if let Some(what) = inline::unprintable(found, environment) {
            return Err(JobError::Unprintable { origin: origin.clone(), name: excerpt(name), what });
        }
        expanded.push_str(before);
        expanded.push_str(found);
        rest = after;
    }
    expanded.push_str(rest);
    for (keyword, number) in environment.keywords() {
        expanded = expanded.replace(keyword, &number.to_string());
    }
    expanded.trim().clone_into(value);
    Ok(())
}

/// Splits at the first `${...}`. As in fio, an unclosed one is left as it is.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${")?;
    let (variable, after) = rest.split_once('}')?;
    Some((before, variable, after))
}

#[cfg(test)]
mod tests;
