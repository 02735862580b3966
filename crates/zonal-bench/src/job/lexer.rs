//! Splits a job file into sections and settings, without interpreting them.

use std::sync::Arc;

use super::error::{JobError, Limit, Origin, excerpt};
use super::limits::{LINE_BYTES_MAX, TEXT_BYTES_MAX};

/// A `name=value` or `name`, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub name: String,
    /// Value without surrounding blanks and comment, or `None` if there is no `=`.
    pub value: Option<String>,
    /// True if blanks follow the `=`. fio keeps them, and then misreads numbers.
    pub blank_before_value: bool,
    pub origin: Origin,
}

/// A section: its header without brackets, and its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub name: String,
    pub origin: Origin,
    pub settings: Vec<Setting>,
    /// True for the first section of the second and each further job file: globals start afresh,
    /// and its first job waits.
    pub starts_file: bool,
}

impl Section {
    pub fn new(name: &str, origin: Origin) -> Self {
        Self { name: name.to_owned(), origin, settings: Vec::new(), starts_file: false }
    }

    /// True if this section sets defaults for the sections after it.
    pub fn is_global(&self) -> bool {
        self.name == GLOBAL
    }
}

/// Header of a section with defaults.
pub(super) const GLOBAL: &str = "global";

/// Keyword of a line that includes another file.
pub(super) const INCLUDE: &str = "include";

/// Splits a job file into sections.
pub(super) fn sections(text: &str, source: &str) -> Result<Vec<Section>, JobError> {
    let name: Arc<str> = source.into();
    let origin = |line: u32| Origin::File { name: name.clone(), line };
    if text.len() > TEXT_BYTES_MAX {
        return Err(JobError::TooMany { origin: origin(0), limit: Limit::TextBytes, max: TEXT_BYTES_MAX });
    }
    let mut sections: Vec<Section> = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, number) in text.lines().zip(1..) {
        let origin = origin(number);
        match read_line(line, origin.clone())? {
            Line::Blank => {}
            Line::Header(name) => sections.push(Section::new(name, origin)),
            Line::Setting(setting) => sections
                .last_mut()
                .ok_or_else(|| JobError::OutsideSection { origin, text: excerpt(line) })?
                .settings
                .push(setting),
        }
    }
    Ok(sections)
}

/// Reads the settings of an included file.
pub(super) fn included(text: &str, source: &str) -> Result<Vec<Setting>, JobError> {
    let name: Arc<str> = source.into();
    let origin = |line: u32| Origin::File { name: name.clone(), line };
    if text.len() > TEXT_BYTES_MAX {
        return Err(JobError::TooMany { origin: origin(0), limit: Limit::TextBytes, max: TEXT_BYTES_MAX });
    }
    let mut settings = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, number) in text.lines().zip(1..) {
        match read_line(line, origin(number))? {
            Line::Blank => {}
            Line::Header(_) => {
                return Err(JobError::IncludedSection { origin: origin(number), text: excerpt(line) });
            }
            Line::Setting(setting) => settings.push(setting),
        }
    }
    Ok(settings)
}

enum Line<'a> {
    Blank,
    Header(&'a str),
    Setting(Setting),
}

fn read_line(line: &str, origin: Origin) -> Result<Line<'_>, JobError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(JobError::TooMany { origin, limit: Limit::LineBytes, max: LINE_BYTES_MAX });
    }
    // fio ends a line at the first comment character, even within a file name.
    let content = line.split([';', '#']).next().unwrap_or_default().trim();
    if content.is_empty() {
        return Ok(Line::Blank);
    }
    if content.chars().any(|c| c.is_control() && c != '\t') {
        let what = "a control character";
        return Err(JobError::Unprintable { origin, name: excerpt(content), what });
    }
    if content.starts_with('[') {
        return header(content, origin).map(Line::Header);
    }
    if let Some(setting) = include(content, &origin) {
        return Ok(Line::Setting(setting));
    }
    Ok(Line::Setting(split_setting(content, origin)))
}

/// Parses `include NAME`. fio takes a blank or `=` as the separator.
fn include(content: &str, origin: &Origin) -> Option<Setting> {
    let rest = content.strip_prefix(INCLUDE)?;
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let (value, origin) = (rest.trim(), origin.clone());
    (!value.starts_with('=')).then(|| Setting {
        name: INCLUDE.to_owned(),
        value: Some(value.to_owned()),
        blank_before_value: false,
        origin,
    })
}

fn header(content: &str, origin: Origin) -> Result<&str, JobError> {
    let inner = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    let name = inner.trim();
    // fio keeps the blanks, which makes `[ global ]` a job. That is hardly intended.
    if name.is_empty() || (name == GLOBAL && inner != GLOBAL) {
        return Err(JobError::SectionHeader { origin, text: excerpt(content) });
    }
    Ok(name)
}

/// Splits `name=value` at the first `=`.
pub(super) fn split_setting(text: &str, origin: Origin) -> Setting {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    Setting {
        name: name.trim().to_owned(),
        value: value.map(|value| value.trim().to_owned()),
        blank_before_value: value.is_some_and(|value| value.starts_with(char::is_whitespace)),
        origin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Vec<(String, Option<String>)> {
        let sections = sections(&format!("[a]\n{text}"), "t").unwrap();
        sections[0].settings.iter().map(|setting| (setting.name.clone(), setting.value.clone())).collect()
    }

    #[test]
    fn setting_is_split_at_the_first_equals_sign() {
        let pairs = [
            ("rw=write", "rw", Some("write")),
            ("  rw = write  ", "rw", Some("write")),
            ("time_based", "time_based", None),
            ("filename=null:size=1T", "filename", Some("null:size=1T")),
            ("size=", "size", Some("")),
            ("=1", "", Some("1")),
            ("rw=write ; why", "rw", Some("write")),
            ("rw=write# why", "rw", Some("write")),
            ("filename=a b", "filename", Some("a b")),
            ("rw=write\r", "rw", Some("write")),
        ];
        for (text, name, value) in pairs {
            assert_eq!(settings(text), [(name.to_owned(), value.map(str::to_owned))], "{text}");
        }
        for text in ["", "  ", "; rw=write", "#rw=write", "   ; x"] {
            assert_eq!(settings(text), [], "{text}");
        }
    }

    #[test]
    fn header_is_everything_between_the_outer_brackets() {
        for (text, name) in
            [("[a]", "a"), (" [a b] ; c", "a b"), ("[a[b]]", "a[b]"), ("\u{feff}[a]\r\n", "a")]
        {
            assert_eq!(sections(text, "t").unwrap()[0].name, name, "{text}");
        }
        for text in ["[", "[a", "[]", "[ ]", "[a]b", "[a;b]", "[ global ]"] {
            let error = sections(text, "t").unwrap_err();
            assert!(matches!(error, JobError::SectionHeader { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn origin_counts_lines_from_one() {
        let sections = sections("; c\n[a]\n\nrw=read\n", "dir/x.fio").unwrap();
        assert_eq!(sections[0].origin.to_string(), "dir/x.fio:2");
        assert_eq!(sections[0].settings[0].origin.to_string(), "dir/x.fio:4");
    }

    #[test]
    fn line_that_is_no_setting_is_an_error_with_its_place() {
        let long = format!("[a]\ndescription={}", "x".repeat(LINE_BYTES_MAX));
        let cases = [
            ("rw=read", "t:1: `rw=read` is outside of a [section]"),
            ("[a]\nname=x\u{7}y", "t:2: `name=x\\u{7}y`: a job file cannot hold a control character"),
            (&long, "t:2: more than 8192 bytes in a line"),
        ];
        for (text, message) in cases {
            assert_eq!(sections(text, "t").unwrap_err().to_string(), message);
        }
        let error = sections(&"\n".repeat(TEXT_BYTES_MAX + 1), "t").unwrap_err();
        assert_eq!(error.to_string(), "t: more than 1048576 bytes in a job file");
    }
}
