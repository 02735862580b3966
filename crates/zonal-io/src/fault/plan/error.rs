//! What is wrong with a plan, and where.

use crate::fault::bad::BadRangeError;
use std::fmt;
use std::ops::Range;

/// Longest piece of a plan that a message repeats.
const QUOTE_MAX: usize = 40;

/// A text that is no plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    line: usize,
    column: usize,
    at: Range<usize>,
    quote: Box<str>,
    problem: PlanProblem,
}

/// What is wrong at the place that [`PlanError::line`] and [`PlanError::column`] give.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanProblem {
    /// Not TOML.
    #[error("{0}")]
    Syntax(Box<str>),
    /// No such key here.
    #[error("no such key{}", suggestion(*nearest))]
    UnknownKey {
        /// The known key that looks most like it.
        nearest: Option<&'static str>,
    },
    /// Not one of the words that may stand here.
    #[error("has to be one of {}{}", choices.join(", "), suggestion(*nearest))]
    UnknownWord {
        /// These may.
        choices: Box<[&'static str]>,
        /// The word that looks most like it.
        nearest: Option<&'static str>,
    },
    /// A value of another type.
    #[error("has to be {wanted}, not {found}")]
    WrongType {
        /// What belongs here.
        wanted: &'static str,
        /// What stands here.
        found: &'static str,
    },
    /// A number outside its bounds.
    #[error("has to lie between {min} and {max}")]
    OutOfBounds {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// Not a time.
    #[error("not a time: a whole number of nanoseconds, or one followed by ns, us, ms or s")]
    NotATime,
    /// Not a probability.
    #[error("not a rate: a number from 0 to 1, or \"1/1000\"")]
    NotARate,
    /// Not a number or a range.
    #[error("not a range: a number, \"first-last\" or \"first-\"")]
    NotARange,
    /// Not a range of bad blocks.
    #[error(transparent)]
    BadRange(#[from] BadRangeError),
    /// A rule without this key.
    #[error("a rule of this kind needs `{0}`")]
    Missing(&'static str),
    /// Two keys that say the same or exclude each other.
    #[error("`{0}` and `{1}` do not go together")]
    Conflict(&'static str, &'static str),
    /// A fault that cannot happen to any of the rule's operations.
    #[error("this fault happens to other operations only: {0}")]
    CannotHappen(&'static str),
    /// More rules, or a longer text, than a plan may have.
    #[error("{what}: at most {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// Limit.
        max: usize,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

impl PlanError {
    /// A problem with the bytes `at` of `text`.
    pub(super) fn new(text: &str, at: Range<usize>, problem: PlanProblem) -> PlanError {
        let start = text.floor_char_boundary(at.start.min(text.len()));
        let end = text.floor_char_boundary(at.end.clamp(start, text.len()));
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let quote = text[start..end].lines().next().unwrap_or_default();
        let short = quote.floor_char_boundary(quote.len().min(QUOTE_MAX));
        PlanError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            at: start..end,
            quote: quote[..short].into(),
            problem,
        }
    }

    /// Line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Where in the text, in bytes.
    pub fn place(&self) -> Range<usize> {
        self.at.clone()
    }

    /// What is wrong there.
    pub fn problem(&self) -> &PlanProblem {
        &self.problem
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanError { line, column, quote, problem, .. } = self;
        write!(f, "line {line}, column {column}")?;
        if !quote.is_empty() {
            write!(f, ", at `{quote}`")?;
        }
        write!(f, ": {problem}")
    }
}

impl std::error::Error for PlanError {}

/// A plan with a fault that a device cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{device}: cannot have the fault `{fault}` of rule {rule}: only devices that keep data can lose and misdirect \
     writes: ram, images, and sim with keep=data; use one of them, or remove the rule"
)]
pub struct PlanMismatch {
    /// Device name.
    pub device: String,
    /// Number of the rule, from 1; rates come after the rules of a plan.
    pub rule: usize,
    /// Word for the fault.
    pub fault: &'static str,
}
