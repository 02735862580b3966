//! What is wrong with a device name, and where.

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// A device name that does not lead to a device.
#[derive(Debug)]
pub struct NameError {
    name: Box<str>,
    at: Range<usize>,
    problem: NameProblem,
}

/// What is wrong at the place that [`NameError::place`] gives.
#[derive(Debug)]
#[non_exhaustive]
pub enum NameProblem {
    /// There is no name.
    Empty,
    /// No device or wrapper of this kind is known.
    UnknownKind {
        /// The known kind that looks most like it.
        nearest: Option<&'static str>,
        /// The kinds and wrappers that there are.
        known: Box<[&'static str]>,
    },
    /// A wrapper without `+` and the name of a device.
    NothingWrapped,
    /// Something else than names of devices in brackets.
    NotBracketed,
    /// A bracket before a path that no other closes.
    OpenBracket,
    /// Something else than options after a path in brackets.
    AfterBracket,
    /// Nothing stands between two commas.
    EmptyOption,
    /// The kind has no such option.
    UnknownOption {
        /// The known option that looks most like it.
        nearest: Option<&'static str>,
        /// What it may have been instead of an option.
        hint: Option<&'static str>,
    },
    /// The option stands there twice.
    Repeated,
    /// The option needs a value.
    MissingValue,
    /// Not a size.
    NotASize,
    /// Not a whole number.
    NotANumber,
    /// 0, where there has to be one at least.
    Zero,
    /// Neither 0 nor 1.
    NotAFlag,
    /// Not one of the values that the option can have.
    NotAChoice {
        /// These are.
        choices: Box<[&'static str]>,
    },
    /// Larger than the option can be.
    TooLarge {
        /// Its largest value.
        max: u64,
    },
    /// The option exists elsewhere, but not for this kind of device.
    NotHere {
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// The device refuses its options, or cannot be opened.
    Refused(Box<dyn Error + Send + Sync>),
}

impl NameError {
    pub(super) fn new(name: &str, at: Range<usize>, problem: NameProblem) -> NameError {
        NameError { name: name.into(), at, problem }
    }

    /// The same in `whole`, of which the name is the beginning.
    pub(super) fn inside(self, whole: &str) -> NameError {
        NameError { name: whole.into(), ..self }
    }

    /// The same, with what an unknown option may have been.
    pub(super) fn hinting(mut self, text: &'static str) -> NameError {
        if let NameProblem::UnknownOption { hint, .. } = &mut self.problem {
            *hint = Some(text);
        }
        self
    }

    /// The whole name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where in the name, in bytes.
    pub fn place(&self) -> Range<usize> {
        self.at.clone()
    }

    /// What is wrong there.
    pub fn problem(&self) -> &NameProblem {
        &self.problem
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NameError { name, at, problem } = self;
        write!(f, "device name {name:?}")?;
        if !at.is_empty() && at.len() < name.len() {
            write!(f, ", at {:?}", &name[at.clone()])?;
        }
        let text = problem.to_string();
        write!(f, ": {}", unrepeated(&text, &name[at.clone()]))
    }
}

/// What a device says of itself, without the name with which it begins if that has just been said.
fn unrepeated<'a>(text: &'a str, place: &str) -> &'a str {
    let path = place.strip_prefix("image:").unwrap_or(place);
    match text.strip_prefix(path).and_then(|rest| rest.strip_prefix(": ")) {
        Some(rest) if !path.is_empty() => rest,
        _ => text,
    }
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameProblem::Empty => f.write_str("is empty"),
            NameProblem::UnknownKind { nearest, known } => {
                f.write_str("no such kind of device")?;
                match nearest {
                    Some(_) => suggest(f, *nearest),
                    None => write!(f, "; there are {}, and paths", known.join(", ")),
                }
            }
            NameProblem::NothingWrapped => {
                f.write_str("a wrapper needs a device to wrap: `wrapper:options+device`")
            }
            NameProblem::NotBracketed => {
                f.write_str("needs names of devices, each in brackets: `[name][name]`")
            }
            NameProblem::OpenBracket => {
                f.write_str("a path that begins with a bracket stands in brackets that match: `[PATH]`")
            }
            NameProblem::AfterBracket => f.write_str("after a path in brackets come a comma and options"),
            NameProblem::EmptyOption => f.write_str("an option is missing between commas"),
            NameProblem::UnknownOption { nearest: None, hint: Some(hint) } => {
                write!(f, "no such option; {hint}")
            }
            NameProblem::UnknownOption { nearest, .. } => {
                f.write_str("no such option")?;
                suggest(f, *nearest)
            }
            NameProblem::Repeated => f.write_str("the option is given twice"),
            NameProblem::MissingValue => f.write_str("the option needs a value: `option=value`"),
            NameProblem::NotASize => f.write_str(
                "not a size: a number of bytes, or a number with a unit such as 4K, 256MiB or 28TB",
            ),
            NameProblem::NotANumber => f.write_str("not a whole number"),
            NameProblem::Zero => f.write_str("has to be 1 at least"),
            NameProblem::NotAFlag => f.write_str("has to be 0 or 1"),
            NameProblem::NotAChoice { choices } => write!(f, "has to be one of {}", choices.join(", ")),
            NameProblem::TooLarge { max } => write!(f, "too large, the largest value is {max}"),
            NameProblem::NotHere { why } => f.write_str(why),
            NameProblem::Refused(error) => error.fmt(f),
        }
    }
}

fn suggest(f: &mut fmt::Formatter<'_>, nearest: Option<&str>) -> fmt::Result {
    match nearest {
        Some(nearest) => write!(f, "; did you mean {nearest:?}?"),
        None => Ok(()),
    }
}

impl Error for NameError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            // Its text is part of ours.
            NameProblem::Refused(error) => error.source(),
            _ => None,
        }
    }
}
