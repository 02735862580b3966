//! Errors in jobs, with their locations.

use std::fmt;
use std::sync::Arc;

/// Location of a section or an option.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A line of a job file, numbered from 1.
    File {
        /// File name as given by the caller.
        name: Arc<str>,
        /// Line number, or 0 for the file as a whole.
        line: u32,
    },
    /// An argument of the command line.
    CommandLine,
    /// A call to [`JobFile::override_option`](super::JobFile::override_option).
    Override,
}

impl Origin {
    /// Returns the file name, or the display form of an [`Origin`] that is not a file.
    pub fn source(&self) -> &str {
        match self {
            Self::File { name, .. } => name,
            Self::CommandLine => "command line",
            Self::Override => "override",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } if *line > 0 => write!(f, "{name}:{line}"),
            _ => f.write_str(self.source()),
        }
    }
}

/// Limits of the job language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of a job file.
    TextBytes,
    /// Bytes of a line.
    LineBytes,
    /// Sections.
    Sections,
    /// Options in all sections.
    Settings,
    /// Clones of all jobs together.
    Workers,
    /// Nesting of includes.
    IncludeDepth,
    /// Included files.
    Includes,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TextBytes => "bytes in a job file",
            Self::LineBytes => "bytes in a line",
            Self::Sections => "sections",
            Self::Settings => "options",
            Self::Workers => "jobs, counting numjobs",
            Self::IncludeDepth => "files that include each other",
            Self::Includes => "included files",
        })
    }
}

/// Reasons why the value of an option is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Not a number, or an unknown suffix.
    #[error("not {expected}")]
    Malformed {
        /// Values that the option accepts.
        expected: &'static str,
    },
    /// An arithmetic expression.
    #[error("arithmetic expressions are not supported, write the result")]
    Arithmetic,
    /// Exceeds 64 bits.
    #[error("too large for 64 bits")]
    Overflow,
    /// Outside the option's range.
    #[error("out of range, from {min} to {max}")]
    OutOfRange {
        /// Smallest accepted value.
        min: u64,
        /// Largest accepted value.
        max: u64,
    },
    /// A decimal number outside the option's range.
    #[error("out of range, from {min} to {max}")]
    FloatOutOfRange {
        /// Smallest accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },
    /// More elements than the option takes.
    #[error("more than {max} values")]
    TooMany {
        /// Maximum number of values.
        max: usize,
    },
    /// fio gives this value another meaning than it appears to have.
    #[error("ambiguous: fio reads this as {fio}; write {instead}")]
    Ambiguous {
        /// Interpretation by fio 3.33.
        fio: String,
        /// Unambiguous form.
        instead: String,
    },
    /// Shares that add up to more than 100 percent.
    #[error("the percentages add up to {sum}, more than 100")]
    SharesAboveAll {
        /// Sum in percent.
        sum: u32,
    },
    /// A text that is too long.
    #[error("more than {max} bytes long")]
    TooLong {
        /// Maximum length in bytes.
        max: usize,
    },
    /// Not one of the option's keywords.
    #[error("not one of {words}")]
    UnknownWord {
        /// The accepted words.
        words: &'static str,
    },
    /// A value that fio accepts but this runner does not support.
    #[error("known to fio, not supported here: {why}")]
    Refused {
        /// Reason for the refusal.
        why: &'static str,
    },
}

/// Errors of reading jobs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// An option that does not exist in fio either.
    #[error("{origin}: unknown option `{name}`{}", hint(.nearest))]
    Unknown {
        /// Location.
        origin: Origin,
        /// The name, shortened.
        name: String,
        /// Nearest known name.
        nearest: Option<&'static str>,
    },
    /// An ambiguous abbreviation on the command line.
    #[error("{origin}: `{name}` is ambiguous, it matches {}{}", listed(.options), hint(.nearest))]
    SeveralOptions {
        /// Location.
        origin: Origin,
        /// The abbreviation.
        name: String,
        /// Options that it could stand for.
        options: Vec<&'static str>,
        /// Nearest known name.
        nearest: Option<&'static str>,
    },
    /// A fio option that this runner refuses.
    #[error("{origin}: `{name}` is a fio option that is not supported here: {why}")]
    Refused {
        /// Location.
        origin: Origin,
        /// The option.
        name: String,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// A command line option of the fio program itself, not a job option.
    #[error("{origin}: `--{name}` is an option of the fio program, not of a job")]
    ProgramOption {
        /// Location.
        origin: Origin,
        /// The option.
        name: String,
    },
    /// A missing value.
    #[error("{origin}: `{name}` needs a value")]
    MissingValue {
        /// Location.
        origin: Origin,
        /// The option.
        name: String,
    },
    /// A rejected value.
    #[error("{origin}: {name}={value}: {problem}")]
    Value {
        /// Location.
        origin: Origin,
        /// The option.
        name: String,
        /// The value, shortened.
        value: String,
        /// Reason for the rejection.
        #[source]
        problem: ValueError,
    },
    /// An option before the first section.
    #[error("{origin}: `{text}` is outside of a [section]")]
    OutsideSection {
        /// Location.
        origin: Origin,
        /// The line, shortened.
        text: String,
    },
    /// A section header without `]` or without a name, or `global` with blanks, which fio takes for
    /// a job.
    #[error("{origin}: `{text}` is not a section header such as [name]")]
    SectionHeader {
        /// Location.
        origin: Origin,
        /// The line, shortened.
        text: String,
    },
    /// An included file that cannot be read.
    #[error("{origin}: cannot include `{file}`: {reason}")]
    IncludeUnreadable {
        /// Location.
        origin: Origin,
        /// The file, shortened.
        file: String,
        /// Reason for the failure.
        reason: String,
    },
    /// A file that includes itself, directly or through others.
    #[error("{origin}: circular include: {chain}")]
    IncludeLoop {
        /// Location of the include that closes the cycle.
        origin: Origin,
        /// The files of the cycle.
        chain: String,
    },
    /// A section in an included file.
    #[error("{origin}: `{text}`: an included file cannot have sections")]
    IncludedSection {
        /// Location.
        origin: Origin,
        /// The line, shortened.
        text: String,
    },
    /// A `${NAME}` of an unset variable.
    #[error("{origin}: the environment variable `{variable}` is not set")]
    UnsetVariable {
        /// Location.
        origin: Origin,
        /// The variable, shortened.
        variable: String,
    },
    /// A value that a job file cannot express: a control character, or on the command line `;`,
    /// `#`, `${` or a keyword.
    #[error("{origin}: `{name}`: a job file cannot hold {what}")]
    Unprintable {
        /// Location.
        origin: Origin,
        /// The option or section.
        name: String,
        /// The offending part.
        what: &'static str,
    },
    /// A file that is not valid UTF-8.
    #[error("{origin}: not UTF-8 at byte {byte}")]
    NotUtf8 {
        /// Location.
        origin: Origin,
        /// Offset of the first invalid byte.
        byte: usize,
    },
    /// A limit was exceeded.
    #[error("{origin}: more than {max} {limit}")]
    TooMany {
        /// Location.
        origin: Origin,
        /// The limit.
        limit: Limit,
        /// Its value.
        max: usize,
    },
    /// `time_based` without `runtime`: the job would never end.
    #[error("{origin}: job `{job}` is time_based but has no runtime")]
    EndlessJob {
        /// Location of the job's section.
        origin: Origin,
        /// Name of the job.
        job: String,
    },
    /// Contradictory rates.
    #[error("{origin}: job `{job}`: {problem}")]
    Rates {
        /// Location of the job's section.
        origin: Origin,
        /// Name of the job.
        job: String,
        /// The contradiction.
        problem: &'static str,
    },
    /// A size in zones without `zonemode=zbd`.
    #[error("{origin}: job `{job}` has {option} in zones, which needs zonemode=zbd")]
    ZonesWithoutZbd {
        /// Location of the job's section.
        origin: Origin,
        /// Name of the job.
        job: String,
        /// The option.
        option: &'static str,
    },
    /// Several invalid options or jobs, in the order of the files.
    #[error("{}", joined(.errors))]
    Several {
        /// The errors, at least two.
        errors: Box<[JobError]>,
    },
    /// No section other than `[global]`.
    #[error("{origin}: no job is defined")]
    NoJobs {
        /// Location.
        origin: Origin,
    },
    /// A requested section that no file has.
    #[error("there is no section [{name}]")]
    NoSuchSection {
        /// Name of the section.
        name: String,
    },
    /// A command line argument that is not an option, where no job file is accepted.
    #[error("`{argument}` is not a job option")]
    NotAnOption {
        /// The argument, shortened.
        argument: String,
    },
    /// Options for all jobs before several job files. fio drops them after the first file.
    #[error(
        "options before several job files: fio applies them to the first one only; put them in the files"
    )]
    OptionsBeforeFiles,
}

impl JobError {
    /// Combines errors into one, or none.
    pub(super) fn all(mut errors: Vec<JobError>) -> Result<(), JobError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(JobError::Several { errors: errors.into() }),
        }
    }
}

fn joined(errors: &[JobError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

fn listed(options: &[&'static str]) -> String {
    match options {
        [begin @ .., last] if !begin.is_empty() => format!("{} and {last}", begin.join(", ")),
        _ => options.concat(),
    }
}

/// Maximum length of quoted input in an error, in characters.
const EXCERPT_CHARS: usize = 80;

/// Escapes and shortens input for an error message.
pub(super) fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        short.push_str("...");
    }
    short
}
