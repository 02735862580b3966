//! What can be wrong with a profile.

use super::Profile;
use std::fmt;

/// A profile that cannot be used.
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
    /// No such key, and those that there are.
    Key(String, Vec<String>),
    /// Key and value that do not go together.
    Value(String, String),
    Range(&'static str, &'static str),
    /// Bytes of this key that are no whole blocks, and the bytes of a block.
    NotBlocks(&'static str, u64, u32),
    Drive(String),
    /// The value of this key is none of its range.
    OutsideRange(String),
    /// The key [`REPLACED`] is there.
    Replaced,
}

/// The key of a disk's profile that `dwell` took the place of.
pub(super) const REPLACED: &str = "visit_bytes";

/// Kinds of values as the parser names them, and as people do.
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
    /// What the parser says, without its names of kinds.
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
                write!(
                    f,
                    "there is no such profile; there are {}, or give the path of a file",
                    names.join(", ")
                )
            }
            Problem::Unreadable(e) => write!(f, "cannot be read: {e}"),
            Problem::TooLong(max) => write!(f, "is longer than {max} bytes"),
            Problem::Syntax(e) => write!(f, "{}", e.trim_end()),
            Problem::Key(key, known) => {
                let nearest = known.iter().min_by_key(|k| strsim::damerau_levenshtein(k, key));
                write!(f, "it has no value {key:?}")?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean {nearest:?}?"),
                    None => Ok(()),
                }
            }
            Problem::Value(key, value) => write!(f, "{key}={value}: not a value of the kind that {key} has"),
            Problem::Range(key, range) => write!(f, "{key} has to be {range}"),
            Problem::NotBlocks(key, bytes, block) => {
                write!(f, "{key} of {bytes} bytes is not a multiple of the block of {block}")
            }
            Problem::Drive(e) => write!(f, "{e}"),
            Problem::OutsideRange(key) => {
                write!(f, "the value of {key} has to lie in its range, from least to most")
            }
            Problem::Replaced => write!(
                f,
                "{REPLACED} is no value of a disk any more: dwell replaces it, how long the head writes a stream before it \
                 leaves it, in shortest seeks to another zone; 0: the policy alone decides"
            ),
        }
    }
}

impl std::error::Error for ProfileError {}
