//! Errors in profiles.

use super::Profile;
use std::fmt;

/// An invalid profile.
#[derive(Debug)]
pub struct ProfileError {
    name: String,
    problem: Problem,
}

#[derive(Debug)]
pub(super) enum Problem {
    Unknown,
    Unreadable(std::io::Error),
    TooLong(u64),
    Syntax(String),
    /// Unknown key, with the existing keys.
    Key(String, Vec<String>),
    /// A value of the wrong type for its key.
    Value(String, String),
    Range(&'static str, &'static str),
    /// Size of this key in bytes, which is not a multiple of the block size.
    NotBlocks(&'static str, u64, u32),
    Drive(String),
    /// Unknown format, with the existing ones.
    Format(String, Vec<String>),
    /// `format` is not a section of tables.
    NoFormats,
    /// The value of this key is outside of its range.
    OutsideRange(String),
    /// The obsolete key [`REPLACED`] is present.
    Replaced,
}

/// Obsolete key of disk profiles, replaced by `dwell`.
pub(super) const REPLACED: &str = "visit_bytes";

/// Types of values in the parser's words and in plain words.
const KINDS: [(&str, &str); 7] = [
    ("expected f64", "expected a number"),
    ("expected u64", "expected a whole number, 0 or more"),
    ("expected u32", "expected a whole number, 0 or more"),
    ("expected a boolean", "expected true or false"),
    ("expected a string", "expected text"),
    ("expected string or table", "expected text"),
    ("expected a map", "expected a section of values"),
];

impl Problem {
    /// Translates the parser's message into plain words.
    pub(super) fn syntax(error: &toml::de::Error) -> Problem {
        let text = error.to_string();
        Problem::Syntax(KINDS.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours)))
    }
}

impl ProfileError {
    pub(super) fn new(name: &str, problem: Problem) -> ProfileError {
        ProfileError { name: name.into(), problem }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile {:?}: ", self.name)?;
        match &self.problem {
            Problem::Unknown => {
                let names: Vec<_> = Profile::names().collect();
                write!(f, "no such profile; choose from {}, or give the path of a file", names.join(", "))
            }
            Problem::Unreadable(e) => write!(f, "cannot be read: {e}"),
            Problem::TooLong(max) => write!(f, "is longer than {max} bytes"),
            Problem::Syntax(e) => write!(f, "{}", e.trim_end()),
            Problem::Key(key, known) => {
                let nearest = known.iter().min_by_key(|k| strsim::damerau_levenshtein(k, key));
                write!(f, "unknown key {key:?}")?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean {nearest:?}?"),
                    None => Ok(()),
                }
            }
            Problem::Value(key, value) => write!(f, "{key}={value}: not a valid value for {key}"),
            Problem::Range(key, range) => write!(f, "{key} has to be {range}"),
            Problem::NotBlocks(key, bytes, block) => {
                write!(f, "{key} of {bytes} bytes is not a multiple of the block of {block}")
            }
            Problem::Drive(e) => write!(f, "{e}"),
            Problem::Format(format, known) => {
                write!(f, "format={format}: no such format; choose from {}", known.join(", "))
            }
            Problem::NoFormats => {
                write!(
                    f,
                    "format: expected tables such as [format.512], named after the size of the logical block"
                )
            }
            Problem::OutsideRange(key) => {
                write!(f, "the value of {key} is outside of its range")
            }
            Problem::Replaced => write!(
                f,
                "{REPLACED} was replaced by dwell: the time that the head writes a stream before it leaves it, in units of \
                 the shortest seek to another zone (0: the policy alone decides)"
            ),
        }
    }
}

impl std::error::Error for ProfileError {}
