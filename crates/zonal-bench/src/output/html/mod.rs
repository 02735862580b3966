//! A report as a self-contained HTML page, without network access or other files.
//!
//! Tables are static and work without scripts. Charts are drawn from two pieces of JSON: the
//! results, as given by [`Report::to_json`], and the series.
//!
//! # Untrusted input
//! Names of jobs and devices, the command line and messages may contain anything. The template
//! escapes them in text. In JSON, everything that could end the enclosing script element is escaped
//! ([`inert`]). A content security policy forbids everything that is not part of the page.

mod charts;
mod compared;
pub(crate) mod quantities;
mod tables;
mod zones;

use super::json::{Detail, calendar};
use crate::report::{ModeReport, Report};
use askama::Template;
use quantities::grouped;
use std::time::UNIX_EPOCH;
use tables::{Fact, Matrix, Row};
use zonal_io::device::DeviceInfo;

/// Information about a run that its results lack.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Command line, quoted for a shell.
    pub command: String,
    /// Text of the profile of a simulated device, with the changes made by its name.
    pub profile: Option<String>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    title: String,
    about: &'a About,
    facts: Vec<Fact>,
    modes: Vec<&'static str>,
    notes: Vec<String>,
    failures: Vec<String>,
    columns: [&'static str; 10],
    /// Groups of jobs, if one has several.
    groups: Vec<Row>,
    jobs: Vec<Row>,
    ratios: Vec<Matrix>,
    counters: Matrix,
    /// Statistics of the file system.
    files: Option<Matrix>,
    /// Movements of the disk's head.
    head: Option<Matrix>,
    /// Zones that are not empty at the end, by mode.
    used: Vec<Fact>,
    options: Vec<Fact>,
    has_series: bool,
    results: String,
    charts: String,
    style: &'static str,
    script: &'static str,
    plot_style: &'static str,
    plot_script: &'static str,
    plot_licence: &'static str,
}

impl Report {
    /// Formats the results as an HTML page. It has charts over time if the run kept series.
    pub fn to_html(&self, about: &About) -> String {
        let device = self.modes.first().map_or("no device", |mode| mode.device.as_str());
        let table = tables::Table::new(self);
        let page = Page {
            title: format!("zonal bench on {device}"),
            about,
            facts: self.facts(),
            modes: self.modes.iter().map(|mode| mode.mode.name()).collect(),
            notes: tables::notes(self),
            failures: tables::failures(self),
            columns: tables::COLUMNS,
            groups: table.rows(tables::TableRowKind::Group),
            jobs: table.rows(tables::TableRowKind::Job),
            ratios: table.ratios(),
            counters: tables::counters(self),
            files: tables::files(self),
            head: tables::head(self),
            used: zones::used(self),
            options: tables::options(self),
            has_series: self.modes.iter().any(|mode| mode.series.is_some()),
            results: inert(&self.to_compact_json(Detail::Plain)),
            charts: inert(&charts::to_json(self)),
            style: include_str!("../../../assets/report.css"),
            script: include_str!("../../../assets/report.js"),
            plot_style: include_str!("../../../assets/uplot/uPlot.min.css"),
            plot_script: include_str!("../../../assets/uplot/uPlot.iife.min.js"),
            plot_licence: include_str!("../../../assets/uplot/LICENSE"),
        };
        page.render().expect("a template whose parts are all there")
    }

    /// Facts about the run: device, jobs and time.
    fn facts(&self) -> Vec<Fact> {
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let fact = |name: &str, text: String| Fact { name: name.to_owned(), text };
        let mut facts = Vec::new();
        if let Some(mode) = self.modes.first() {
            facts.push(fact("Device", mode.device.clone()));
            facts.extend(mode.series.iter().map(|series| fact("Zones", describe(&series.device, mode))));
        }
        facts.push(fact(
            if self.modes.len() > 1 { "Write modes" } else { "Write mode" },
            self.modes_in_words(),
        ));
        facts.push(fact("Started", format!("{} UTC", calendar(since))));
        facts.push(fact("Version", concat!("zonal ", env!("CARGO_PKG_VERSION")).to_owned()));
        facts
    }

    /// The modes with the reasons for their choice.
    fn modes_in_words(&self) -> String {
        let reason = self.modes.first().map_or("", |mode| mode.mode_reason);
        let is_one = self.modes.iter().all(|mode| mode.mode_reason == reason);
        let names = self.modes.iter().map(|mode| match is_one {
            true => mode.mode.to_string(),
            false => format!("{} ({})", mode.mode, mode.mode_reason),
        });
        let names = names.collect::<Vec<_>>().join(", ");
        if is_one { format!("{names} ({reason})") } else { names }
    }
}

/// Describes the device of a mode in one line.
fn describe(info: &DeviceInfo, mode: &ModeReport) -> String {
    let geometry = &info.geometry;
    let mut parts =
        vec![format!("{} of {}", grouped(geometry.zones()), quantities::size(geometry.zone_size().bytes()))];
    let counted = [
        (geometry.conventional_zones(), "conventional"),
        (info.open_max, "open at most"),
        (info.active_max, "active at most"),
    ];
    parts.extend(counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", grouped(*n))));
    let traits = [
        (info.rotational, "rotational"),
        (info.keeps_order, "keeps the order of writes"),
        (mode.is_virtual, "in virtual time"),
    ];
    parts.extend(traits.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| (*what).to_owned()));
    parts.join(", ")
}

/// Escapes JSON for a script element: the result is equivalent, and nothing in it is markup.
fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_json_is_escaped_without_changing_its_value() {
        let hostile = serde_json::json!({ "</script><!--": ["a & b", "]]>\u{2028}"] });
        let text = inert(&hostile.to_string());
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), hostile);
    }
}
