//! Errors in plans, with their location.

use crate::badblocks::BadRangeError;
use std::fmt;
use std::ops::Range;

/// Maximum length of text quoted from a plan in messages.
const QUOTE_MAX: usize = 40;

/// Error of parsing a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    line: usize,
    column: usize,
    at: Range<usize>,
    quote: Box<str>,
    problem: PlanProblem,
}

/// Problem at the location [`PlanError::line`] and [`PlanError::column`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanProblem {
    /// Not TOML.
    #[error("{0}")]
    Syntax(Box<str>),
    /// Unknown key.
    #[error("no such key{}", suggestion(*nearest))]
    UnknownKey {
        /// The most similar known key.
        nearest: Option<&'static str>,
    },
    /// Not one of the words allowed here.
    #[error("has to be one of {}{}", choices.join(", "), suggestion(*nearest))]
    UnknownWord {
        /// Allowed words.
        choices: Box<[&'static str]>,
        /// The most similar one.
        nearest: Option<&'static str>,
    },
    /// A value of the wrong type.
    #[error("has to be {wanted}, not {found}")]
    WrongType {
        /// Expected type.
        wanted: &'static str,
        /// Actual type.
        found: &'static str,
    },
    /// A number out of range.
    #[error("has to be between {min} and {max}")]
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
    /// A required key of the rule is missing.
    #[error("a rule of this kind needs `{0}`")]
    Missing(&'static str),
    /// Two keys that are equivalent or exclude each other.
    #[error("`{0}` and `{1}` cannot be combined")]
    Conflict(&'static str, &'static str),
    /// A fault that applies to none of the rule's operations.
    #[error("this fault applies only to other operations: {0}")]
    CannotHappen(&'static str),
    /// More rules or a longer text than allowed.
    #[error("{what}: at most {max}")]
    TooMany {
        /// Counted item.
        what: &'static str,
        /// Limit.
        max: usize,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

impl PlanError {
    /// Creates an error for the bytes `at` of `text`.
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

    /// Location in the text, as byte range.
    pub fn place(&self) -> Range<usize> {
        self.at.clone()
    }

    /// Returns the problem at that location.
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

/// Error of a plan with a fault that the device does not support.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{device}: cannot have the fault `{fault}` of rule {rule}: only devices that keep data can lose and misdirect \
     writes: ram, images, and sim with keep=data; use one of them, or remove the rule"
)]
pub struct PlanMismatch {
    /// Device name.
    pub device: String,
    /// Number of the rule, from 1; rates follow the rules of a plan.
    pub rule: usize,
    /// Name of the fault.
    pub fault: &'static str,
}
