//! How the source reads: its words, and measures of its size and shape.
//!
//! The source is read as rustfmt leaves it, line by line: an item ends at the first closing brace of its own indent. The tests in
//! `tests/tree.rs` refuse words, `make measures` prints the table of `docs/HACKING.md`.

pub mod measures;
pub mod mutation;
pub mod words;

/// Where a comment begins in a line of code, if there is one: not within a string.
pub fn comment_at(line: &str) -> Option<usize> {
    let is_code = |at: &usize| line[..*at].replace("\\\"", "").matches('"').count().is_multiple_of(2);
    line.match_indices("//").map(|(at, _)| at).find(is_code)
}

/// Spaces before the first other character.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name at the start of `text`.
fn name_at(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
}
