//! Errors in device names, with their location.

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// Error of a device name that cannot be parsed or opened.
#[derive(Debug)]
pub struct NameError {
    name: Box<str>,
    at: Range<usize>,
    problem: NameProblem,
}

/// Problem at the location returned by [`NameError::place`].
#[derive(Debug)]
#[non_exhaustive]
pub enum NameProblem {
    /// The name is empty.
    Empty,
    /// The kind of device or wrapper is unknown.
    UnknownKind {
        /// The most similar known kind.
        nearest: Option<&'static str>,
        /// All known kinds and wrappers.
        known: Box<[&'static str]>,
    },
    /// A wrapper is not followed by `+` and the name of a device.
    NothingWrapped,
    /// Device names in brackets were expected.
    NotBracketed,
    /// The bracket in front of a path is never closed.
    OpenBracket,
    /// The path in brackets is followed by something other than options.
    AfterBracket,
    /// Nothing between two commas.
    EmptyOption,
    /// The kind does not have this option.
    UnknownOption {
        /// The most similar known option.
        nearest: Option<&'static str>,
        /// Another possible meaning of the text.
        hint: Option<&'static str>,
    },
    /// The option occurs twice.
    Repeated,
    /// The option needs a value.
    MissingValue,
    /// Not a size.
    NotASize,
    /// Not a whole number.
    NotANumber,
    /// Not a list of numbers and ranges.
    NotRanges,
    /// 0, where at least 1 is required.
    Zero,
    /// Neither 0 nor 1.
    NotAFlag,
    /// Not one of the option's values.
    NotAChoice {
        /// Valid values.
        choices: Box<[&'static str]>,
    },
    /// The value exceeds the maximum.
    TooLarge {
        /// Maximum value.
        max: u64,
    },
    /// The option exists, but not for this kind of device.
    NotHere {
        /// Reason, and the alternative.
        why: &'static str,
    },
    /// The device rejects its options or cannot be opened.
    Refused(Box<dyn Error + Send + Sync>),
}

impl NameError {
    pub(super) fn new(name: &str, at: Range<usize>, problem: NameProblem) -> NameError {
        NameError { name: name.into(), at, problem }
    }

    /// Moves the error to `whole`, which begins with the present name.
    pub(super) fn inside(self, whole: &str) -> NameError {
        NameError { name: whole.into(), ..self }
    }

    /// Adds a hint about an unknown option.
    pub fn hinting(mut self, text: &'static str) -> NameError {
        if let NameProblem::UnknownOption { hint, .. } = &mut self.problem {
            *hint = Some(text);
        }
        self
    }

    /// Returns the whole name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Location of the problem, as byte range in the name.
    pub fn place(&self) -> Range<usize> {
        self.at.clone()
    }

    /// Returns the problem at that location.
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

/// Error text of a device without its leading name, if that has just been printed.
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
                    None => write!(f, "; known kinds: {}; or give a path", known.join(", ")),
                }
            }
            NameProblem::NothingWrapped => {
                f.write_str("a wrapper needs a device to wrap: `wrapper:options+device`")
            }
            NameProblem::NotBracketed => {
                f.write_str("needs names of devices, each in brackets: `[name][name]`")
            }
            NameProblem::OpenBracket => {
                f.write_str("a path that begins with a bracket needs matching brackets around it: `[PATH]`")
            }
            NameProblem::AfterBracket => f.write_str("after the brackets, expected a comma and options"),
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
            NameProblem::NotRanges => f.write_str("not a list of numbers and ranges, such as 7 or 7-9:12-15"),
            NameProblem::Zero => f.write_str("has to be at least 1"),
            NameProblem::NotAFlag => f.write_str("has to be 0 or 1"),
            NameProblem::NotAChoice { choices } => write!(f, "has to be one of {}", choices.join(", ")),
            NameProblem::TooLarge { max } => write!(f, "too large: at most {max}"),
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
            // Its text is already part of this error's text.
            NameProblem::Refused(error) => error.source(),
            _ => None,
        }
    }
}
