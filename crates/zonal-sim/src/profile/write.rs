//! Output of profiles as text, one value per line.

use super::Profile;
use serde::Serialize;
use std::fmt::Write;
use toml::{Table, Value};

impl Profile {
    /// Writes the profile as the text of a file, which [`Profile::parse`] reads back unchanged.
    /// `comments` precede it, one per line.
    pub fn to_toml<'a>(&self, comments: impl IntoIterator<Item = &'a str>) -> String {
        let mut text = String::new();
        for comment in comments {
            let _ = writeln!(text, "{}", format!("# {comment}").trim_end());
        }
        pair(&mut text, "name", &Value::String(self.name.clone()));
        pair(&mut text, "title", &Value::String(self.title.clone()));
        if self.calibrated {
            pair(&mut text, "calibrated", &Value::Boolean(true));
        }
        if let Some(what) = &self.calibrated_for {
            pair(&mut text, "calibrated_for", &Value::String(what.clone()));
        }
        if !self.calibrated_runs.is_empty() {
            let runs = self.calibrated_runs.iter().map(|runs| {
                let value = Value::try_from(runs).expect("runs are lists of words and numbers");
                format!("    {value},\n")
            });
            let _ = writeln!(text, "calibrated_runs = [\n{}]", runs.collect::<String>());
        }
        if let Some(percent) = self.worst_residual_percent {
            pair(&mut text, "worst_residual_percent", &Value::Float(percent));
        }
        if !self.about.is_empty() {
            pair(&mut text, "about", &Value::String(self.about.clone()));
        }
        section(&mut text, "drive", &self.drive);
        section(&mut text, "timing", &self.timing);
        section(&mut text, "host", &self.host);
        text
    }
}

fn pair(text: &mut String, key: &str, value: &Value) {
    let _ = writeln!(text, "{key} = {value}");
}

fn section(text: &mut String, name: &str, values: &impl Serialize) {
    let values = Table::try_from(values).expect("values of profiles are numbers, words and yes or no");
    let _ = writeln!(text, "\n[{name}]");
    for (key, value) in &values {
        pair(text, key, value);
    }
}
