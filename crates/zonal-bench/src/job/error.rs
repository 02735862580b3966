//! What can be wrong with a job, and where.

use std::fmt;
use std::sync::Arc;

/// Where a section or an option came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A line of a job file, counted from 1.
    File {
        /// Name of the file as the caller gave it.
        name: Arc<str>,
        /// Line number; 0 stands for the file as a whole.
        line: u32,
    },
    /// An argument of the command line.
    CommandLine,
    /// A call of [`JobFile::override_option`](super::JobFile::override_option).
    Override,
}

impl Origin {
    /// The place without a line: the file's name, or the words of [`Origin`]'s display form.
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

/// Which limit of the job language was passed.
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
    /// Clones of all jobs.
    Workers,
    /// Files that include each other.
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

/// What is wrong with the value of an option.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Not a number with a known suffix.
    #[error("not {expected}")]
    Malformed {
        /// What the option takes.
        expected: &'static str,
    },
    /// An arithmetic expression.
    #[error("arithmetic expressions are not supported, write the result")]
    Arithmetic,
    /// Passes 64 bits.
    #[error("too large for 64 bits")]
    Overflow,
    /// Outside the range of the option.
    #[error("out of range, from {min} to {max}")]
    OutOfRange {
        /// Smallest accepted value.
        min: u64,
        /// Largest accepted value.
        max: u64,
    },
    /// Not a number in the range of the option.
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
        /// Most values.
        max: usize,
    },
    /// fio means something else by this than it says.
    #[error("ambiguous: fio reads this as {fio}; write {instead}")]
    Ambiguous {
        /// What fio 3.33 makes of it.
        fio: String,
        /// A form without the trap.
        instead: String,
    },
    /// Shares of a whole that pass it.
    #[error("the percentages add up to {sum}, more than 100")]
    SharesAboveAll {
        /// What they add up to.
        sum: u32,
    },
    /// A text that is too long.
    #[error("more than {max} bytes long")]
    TooLong {
        /// Most bytes.
        max: usize,
    },
    /// Not among the words of the option.
    #[error("not one of {words}")]
    UnknownWord {
        /// The accepted words.
        words: &'static str,
    },
    /// A value that fio knows and this runner does not have.
    #[error("known to fio, not supported here: {why}")]
    Refused {
        /// Why not.
        why: &'static str,
    },
}

/// Why a job could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A name that fio does not know either.
    #[error("{origin}: unknown option `{name}`{}", hint(.nearest))]
    Unknown {
        /// Where.
        origin: Origin,
        /// The name, shortened.
        name: String,
        /// The nearest name that is known.
        nearest: Option<&'static str>,
    },
    /// The beginning of several names, on the command line.
    #[error("{origin}: `{name}` is the beginning of several options, {}{}", listed(.options), hint(.nearest))]
    SeveralOptions {
        /// Where.
        origin: Origin,
        /// The beginning.
        name: String,
        /// The options that begin so.
        options: Vec<&'static str>,
        /// The nearest name that is known.
        nearest: Option<&'static str>,
    },
    /// An option that fio has and this runner refuses.
    #[error("{origin}: `{name}` is a fio option that is not supported here: {why}")]
    Refused {
        /// Where.
        origin: Origin,
        /// The option.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// One of fio's own command line options, not one of a job.
    #[error("{origin}: `--{name}` is an option of the fio program, not of a job")]
    ProgramOption {
        /// Where.
        origin: Origin,
        /// The option.
        name: String,
    },
    /// An option that needs a value has none.
    #[error("{origin}: `{name}` needs a value")]
    MissingValue {
        /// Where.
        origin: Origin,
        /// The option.
        name: String,
    },
    /// A value that cannot be used.
    #[error("{origin}: {name}={value}: {problem}")]
    Value {
        /// Where.
        origin: Origin,
        /// The option.
        name: String,
        /// The value, shortened.
        value: String,
        /// What is wrong with it.
        #[source]
        problem: ValueError,
    },
    /// An option before the first section.
    #[error("{origin}: `{text}` stands outside of a [section]")]
    OutsideSection {
        /// Where.
        origin: Origin,
        /// The line, shortened.
        text: String,
    },
    /// A section header without `]`, without a name, or `global` with blanks, which fio takes for a job.
    #[error("{origin}: `{text}` is not a section header such as [name]")]
    SectionHeader {
        /// Where.
        origin: Origin,
        /// The line, shortened.
        text: String,
    },
    /// A file that cannot be included.
    #[error("{origin}: cannot include `{file}`: {reason}")]
    IncludeUnreadable {
        /// Where.
        origin: Origin,
        /// The file, shortened.
        file: String,
        /// Why not.
        reason: String,
    },
    /// A file that includes itself, perhaps by way of others.
    #[error("{origin}: include goes in circles: {chain}")]
    IncludeLoop {
        /// Where it comes back.
        origin: Origin,
        /// The files on the way.
        chain: String,
    },
    /// A section in an included file.
    #[error("{origin}: `{text}` begins a section, which an included file cannot")]
    IncludedSection {
        /// Where.
        origin: Origin,
        /// The line, shortened.
        text: String,
    },
    /// A `${NAME}` whose variable is not set.
    #[error("{origin}: the environment variable `{variable}` is not set")]
    UnsetVariable {
        /// Where.
        origin: Origin,
        /// The variable, shortened.
        variable: String,
    },
    /// A value that no job file can hold: control characters, or on the command line `;`, `#`, `${` or a keyword.
    #[error("{origin}: `{name}` holds {what}, which a job file cannot")]
    Unprintable {
        /// Where.
        origin: Origin,
        /// The option or section.
        name: String,
        /// What it holds.
        what: &'static str,
    },
    /// The file is not UTF-8.
    #[error("{origin}: not UTF-8 from byte {byte} on")]
    NotUtf8 {
        /// Where.
        origin: Origin,
        /// Offset of the first bad byte.
        byte: usize,
    },
    /// A limit was passed.
    #[error("{origin}: more than {max} {limit}")]
    TooMany {
        /// Where.
        origin: Origin,
        /// Which limit.
        limit: Limit,
        /// Its value.
        max: usize,
    },
    /// `time_based` without `runtime`: the job would not end.
    #[error("{origin}: job `{job}` is time_based but has no runtime")]
    EndlessJob {
        /// Where the job's section is.
        origin: Origin,
        /// Its name.
        job: String,
    },
    /// Rates that contradict each other.
    #[error("{origin}: job `{job}`: {problem}")]
    Rates {
        /// Where the job's section is.
        origin: Origin,
        /// Its name.
        job: String,
        /// How.
        problem: &'static str,
    },
    /// A size in zones without `zonemode=zbd`.
    #[error("{origin}: job `{job}` gives {option} in zones but is not zonemode=zbd")]
    ZonesWithoutZbd {
        /// Where the job's section is.
        origin: Origin,
        /// Its name.
        job: String,
        /// The option.
        option: &'static str,
    },
    /// No section but `[global]`.
    #[error("{origin}: no job is defined")]
    NoJobs {
        /// Where.
        origin: Origin,
    },
    /// A section was asked for that no file has.
    #[error("there is no section [{name}]")]
    NoSuchSection {
        /// The section.
        name: String,
    },
    /// A command line argument that is neither an option nor expected as a job file.
    #[error("`{argument}` is not a job option")]
    NotAnOption {
        /// The argument, shortened.
        argument: String,
    },
    /// Job options for all jobs, followed by several job files. fio drops them after the first file.
    #[error(
        "options before several job files: fio applies them to the first one only; put them in the files"
    )]
    OptionsBeforeFiles,
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

/// Longest piece of input quoted in an error, in characters.
const EXCERPT_CHARS: usize = 80;

/// A printable, shortened form of input for an error message.
pub(super) fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        short.push_str("...");
    }
    short
}
