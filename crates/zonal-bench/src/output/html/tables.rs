//! Tables of the page: jobs and groups of jobs by write mode, ratios of modes, counters and
//! options.

use super::super::table::is_shown;
use super::quantities::{amount, grouped, size, time};
use crate::measure::Dir;
use crate::report::{DirReport, JobReport, Lack, ModeReport, Report};
use serde_json::Value;

/// Replaces a ratio if the job failed.
const FAILED: &str = "failed";

/// A name with a text.
pub(super) struct Fact {
    pub(super) name: String,
    pub(super) text: String,
}

/// A number in its JSON and its human-readable form.
pub(super) struct Cell {
    pub(super) value: String,
    pub(super) text: String,
}

impl Cell {
    fn new(value: impl ToString, text: String) -> Cell {
        Cell { value: value.to_string(), text }
    }
}

/// Subject of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableRowKind {
    Job,
    /// The jobs of a reporting group.
    Group,
}

/// One direction of a job or group in one mode.
pub(super) struct Row {
    /// Index of a job in the JSON.
    pub(super) index: Option<usize>,
    pub(super) label: String,
    pub(super) dir: &'static str,
    pub(super) mode: &'static str,
    pub(super) cells: Vec<Option<Cell>>,
    /// Mark of a failed or incomplete job.
    pub(super) mark: Option<&'static str>,
    /// True for the first row of its label.
    pub(super) is_first: bool,
}

/// A table with a column per mode.
pub(super) struct Matrix {
    pub(super) label: String,
    pub(super) lines: Vec<Line>,
}

/// A row of a [`Matrix`].
pub(super) struct Line {
    pub(super) label: String,
    pub(super) cells: Vec<Option<Share>>,
}

/// A cell with the length of its bar in percent.
pub(super) struct Share {
    pub(super) cell: Cell,
    pub(super) percent: f64,
}

/// Results of one label in one mode.
struct Counted<'a> {
    mode: &'a ModeReport,
    index: Option<usize>,
    dir: DirReport,
    mark: Option<&'static str>,
}

/// A label with its results in all modes.
struct Entry<'a> {
    kind: TableRowKind,
    label: String,
    dir: Dir,
    counted: Vec<Option<Counted<'a>>>,
}

/// Content of the tables of jobs.
pub(super) struct Table<'a> {
    entries: Vec<Entry<'a>>,
}

pub(super) fn name_of(dir: Dir) -> &'static str {
    match dir {
        Dir::Read => "read",
        Dir::Write => "write",
    }
}

/// Names of a mode's jobs, numbered if they are not unique.
pub(super) fn labels(mode: &ModeReport) -> Vec<String> {
    let names = || mode.jobs.iter().map(|job| job.name.as_str());
    let label = |(n, name): (usize, &str)| {
        let before = names().take(n).filter(|other| *other == name).count();
        let all = names().filter(|other| *other == name).count();
        if all > 1 { format!("{name} #{}", before + 1) } else { name.to_owned() }
    };
    names().enumerate().map(label).collect()
}

impl<'a> Table<'a> {
    pub(super) fn new(report: &'a Report) -> Table<'a> {
        let longest = report.modes.iter().max_by_key(|mode| mode.jobs.len());
        let Some(longest) = longest else { return Table { entries: Vec::new() } };
        let mut entries = Vec::new();
        let mut groups: Vec<u32> = longest.jobs.iter().map(|job| job.group).collect();
        groups.dedup();
        // If each job is a group of its own, rows of groups would repeat those of the jobs.
        let shown = if groups.len() < longest.jobs.len() { groups.as_slice() } else { &[] };
        for &group in shown {
            let jobs: Vec<_> = longest.jobs.iter().filter(|job| job.group == group).collect();
            let which = if shown.len() > 1 { format!("group {group}: ") } else { String::new() };
            let label = match jobs.as_slice() {
                [job] => format!("{which}{}", job.name),
                jobs => format!("{which}all {} jobs", jobs.len()),
            };
            add(&mut entries, report, (TableRowKind::Group, &label), |mode, _| Tally::of_group(mode, group));
        }
        for (n, label) in labels(longest).iter().enumerate() {
            add(&mut entries, report, (TableRowKind::Job, label), |mode, before| {
                mode.jobs.get(n).map(|job| Tally::of_job(job, Some(before + n)))
            });
        }
        Table { entries }
    }

    /// Rows of all jobs, or of all groups.
    pub(super) fn rows(&self, kind: TableRowKind) -> Vec<Row> {
        let mut rows = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.kind == kind) {
            let mut is_first = true;
            for counted in entry.counted.iter().flatten() {
                rows.push(Row {
                    index: counted.index,
                    label: entry.label.clone(),
                    dir: name_of(entry.dir),
                    mode: counted.mode.mode.name(),
                    cells: cells(counted, entry.dir),
                    mark: counted.mark,
                    is_first: std::mem::take(&mut is_first),
                });
            }
        }
        rows
    }

    /// IOPS of every mode relative to the first, if there are several modes.
    pub(super) fn ratios(&self) -> Vec<Matrix> {
        let modes = self.entries.iter().map(|entry| entry.counted.len()).max().unwrap_or(0);
        if modes < 2 {
            return Vec::new();
        }
        let kinds = [(TableRowKind::Group, "Groups"), (TableRowKind::Job, "Jobs")];
        let tables = kinds.map(|(kind, label)| {
            let entries = self.entries.iter().filter(|entry| entry.kind == kind);
            Matrix { label: label.to_owned(), lines: entries.map(ratio).collect() }
        });
        tables.into_iter().filter(|matrix| !matrix.lines.is_empty()).collect()
    }
}

/// Results of a job or a group in one mode.
struct Tally {
    index: Option<usize>,
    dirs: [DirReport; 2],
    is_shown: [bool; 2],
    mark: Option<&'static str>,
}

/// Returns the mark of a failed or incomplete job.
fn mark_of(job: &JobReport) -> Option<&'static str> {
    match job.failure {
        Some(_) => Some(FAILED),
        None => job.lack().map(Lack::mark),
    }
}

impl Tally {
    fn of_job(job: &JobReport, index: Option<usize>) -> Tally {
        Tally {
            index,
            dirs: job.dirs.clone(),
            is_shown: [Dir::Read, Dir::Write].map(|dir| is_shown(job, dir)),
            mark: mark_of(job),
        }
    }

    fn of_group(mode: &ModeReport, group: u32) -> Option<Tally> {
        let mut jobs = mode.jobs.iter().filter(|job| job.group == group);
        let mut sum = Tally::of_job(jobs.next()?, None);
        for job in jobs {
            sum.dirs.iter_mut().zip(&job.dirs).for_each(|(sum, dir)| sum.add(dir));
            for dir in [Dir::Read, Dir::Write] {
                sum.is_shown[dir as usize] |= is_shown(job, dir);
            }
            if sum.mark != Some(FAILED) {
                sum.mark = mark_of(job).or(sum.mark);
            }
        }
        Some(sum)
    }
}

/// Adds both directions of a label for the modes that have them. `of` returns its results in a
/// mode, given the number of jobs in the preceding modes.
fn add<'a>(
    entries: &mut Vec<Entry<'a>>,
    report: &'a Report,
    (kind, label): (TableRowKind, &str),
    of: impl Fn(&'a ModeReport, usize) -> Option<Tally>,
) {
    let mut before = 0;
    let mut tallies = Vec::new();
    for mode in &report.modes {
        tallies.push(of(mode, before).map(|tally| (mode, tally)));
        before += mode.jobs.len();
    }
    for dir in [Dir::Read, Dir::Write] {
        let counted = tallies.iter_mut().map(|tally| {
            let (mode, tally) = tally.as_mut().filter(|(_, tally)| tally.is_shown[dir as usize])?;
            let (index, mark) = (tally.index, tally.mark);
            Some(Counted { mode, index, dir: std::mem::take(&mut tally.dirs[dir as usize]), mark })
        });
        let counted: Vec<_> = counted.collect();
        if counted.iter().any(Option::is_some) {
            entries.push(Entry { kind, label: label.to_owned(), dir, counted });
        }
    }
}

/// Headings of the columns filled by [`cells`].
pub(super) const COLUMNS: [&str; 10] =
    ["requests", "bytes", "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "max", "cmds/write"];

fn cells(counted: &Counted<'_>, dir: Dir) -> Vec<Option<Cell>> {
    let report = &counted.dir;
    let clat = report.clat.as_ref().filter(|clat| clat.count() > 0);
    let nanos = |nanos: u64| Cell::new(nanos, time(nanos as f64));
    let percentile = |percent| clat.map(|clat| nanos(clat.percentile(percent)));
    let commands = counted.mode.commands_per_write().filter(|_| dir == Dir::Write);
    let bandwidth = report.bandwidth_bytes();
    vec![
        Some(Cell::new(report.ios, amount(report.ios as f64, ""))),
        Some(Cell::new(report.bytes, size(report.bytes))),
        Some(Cell::new(report.iops(), amount(report.iops(), ""))),
        Some(Cell::new(bandwidth as u64, amount(bandwidth, "B/s"))),
        clat.map(|clat| Cell::new(clat.mean(), time(clat.mean()))),
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
        clat.map(|clat| nanos(clat.max())),
        commands.map(|n| Cell::new(n, format!("{n:.3}"))),
    ]
}

fn ratio(entry: &Entry<'_>) -> Line {
    let iops = || entry.counted.iter().flatten().map(|counted| counted.dir.iops());
    // Failed and incomplete jobs are not used as a reference.
    let first = entry.counted.iter().flatten().next().filter(|counted| counted.mark.is_none());
    let first = first.map(|counted| counted.dir.iops());
    let most = iops().fold(0.0, f64::max);
    let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let cells = entry.counted.iter().map(|counted| {
        let counted = counted.as_ref()?;
        let cell = match (counted.mark, first) {
            (Some(mark), _) => Cell::new("", mark.to_owned()),
            (None, None) => Cell::new("", "–".to_owned()),
            (None, Some(first)) => {
                let ratio = of(counted.dir.iops(), first);
                Cell::new(ratio, format!("{ratio:.2}×"))
            }
        };
        Some(Share { cell, percent: of(counted.dir.iops(), most) * 100.0 })
    });
    Line { label: format!("{}, {}", entry.label, name_of(entry.dir)), cells: cells.collect() }
}

/// Counters of the write path that are not zero in all modes, and results of verification.
pub(super) fn counters(report: &Report) -> Matrix {
    let of = |mode: &ModeReport| {
        let counters = serde_json::to_value(mode.statistics).unwrap_or_default();
        let counters: Vec<(String, u64)> = counters
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.replace('_', " "), value.as_u64().unwrap_or(0)))
            .collect();
        let verified = mode.verify.as_ref().map_or([0; 2], |verify| [verify.blocks, verify.mismatches]);
        let verified = ["blocks verified", "blocks that differ"].map(str::to_owned).into_iter().zip(verified);
        counters.into_iter().chain(verified).collect::<Vec<_>>()
    };
    let modes: Vec<_> = report.modes.iter().map(of).collect();
    let names = modes.first().map(Vec::as_slice).unwrap_or_default().iter().map(|(name, _)| name);
    let line = |(n, name): (usize, &String)| {
        let values: Vec<u64> = modes.iter().map(|mode| mode[n].1).collect();
        let cell = |value: &u64| Some(Share { cell: Cell::new(value, grouped(*value)), percent: 0.0 });
        let cells = values.iter().map(cell).collect();
        values.iter().any(|value| *value > 0).then(|| Line { label: name.clone(), cells })
    };
    Matrix { label: "Write path".to_owned(), lines: names.enumerate().filter_map(line).collect() }
}

/// Figures of the file system to be shown first.
const FIGURES_FIRST: [&str; 6] =
    ["used_percent", "written_bytes", "write_amplification", "victims", "moved_bytes", "stalls"];

/// Statistics of the file system, for jobs on files.
pub(super) fn files(report: &Report) -> Option<Matrix> {
    figures(report, |mode| serde_json::to_value(mode.files.as_ref()?.part()).ok())
}

/// Movements of the heads of simulated disks.
pub(super) fn head(report: &Report) -> Option<Matrix> {
    figures(report, |mode| serde_json::to_value(mode.head_moves?).ok())
}

/// Table of the members of an object, for the modes that have it.
fn figures(report: &Report, of: impl Fn(&ModeReport) -> Option<Value>) -> Option<Matrix> {
    let object = |mode: &ModeReport| of(mode)?.as_object().cloned();
    let modes: Vec<_> = report.modes.iter().map(object).collect();
    let mut names: Vec<String> = modes.iter().flatten().next()?.keys().cloned().collect();
    // The most important figures are shown first.
    let rank = |name: &String| FIGURES_FIRST.iter().position(|first| first == name).unwrap_or(usize::MAX);
    names.sort_by_key(rank);
    let line = |name: &String| {
        let cell = |value: &Value| Share { cell: Cell::new(value, figure(name, value)), percent: 0.0 };
        let cells = modes.iter().map(|mode| mode.as_ref()?.get(name).map(cell)).collect();
        Line { label: words_of(name), cells }
    };
    Some(Matrix { label: "figure".to_owned(), lines: names.iter().map(line).collect() })
}

/// Converts a name to words without its unit, which is shown with the figure.
fn words_of(name: &str) -> String {
    if name == "victims_bytes" {
        return "size of victims".to_owned();
    }
    let bare = ["_bytes", "_ns", "_percent"].iter().find_map(|unit| name.strip_suffix(unit));
    bare.unwrap_or(name).replace('_', " ")
}

/// Formats a figure in the unit at the end of its name.
fn figure(name: &str, value: &Value) -> String {
    let (whole, number) = (value.as_u64().unwrap_or(0), value.as_f64().unwrap_or(0.0));
    match name {
        _ if name.ends_with("_bytes") => size(whole),
        _ if name.ends_with("_ns") => time(number),
        _ if name.ends_with("_percent") => format!("{number:.1}%"),
        _ if value.is_f64() => format!("{number:.3}"),
        _ => grouped(whole),
    }
}

/// Notes of the modes. Notes common to all modes are listed once.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for mode in &report.modes {
        for note in &mode.notes {
            let is_everywhere = report.modes.iter().all(|mode| mode.notes.contains(note));
            let note = if is_everywhere { note.clone() } else { format!("{}: {note}", mode.mode) };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// The first failure of each job, its lack of zones or data, and verification errors.
pub(super) fn failures(report: &Report) -> Vec<String> {
    let mut failures = Vec::new();
    for mode in &report.modes {
        for job in &mode.jobs {
            let failure =
                job.failure.iter().map(|failure| format!("{}, job {}: {failure}", mode.mode, job.name));
            failures.extend(failure);
            failures
                .extend(job.lack_in_words().map(|lack| format!("{}, job {}: {lack}", mode.mode, job.name)));
        }
        for verify in mode.verify.iter().filter(|verify| verify.mismatches > 0) {
            failures.push(format!("{}: {} blocks do not read back as written", mode.mode, verify.mismatches));
        }
    }
    failures
}

/// Options of each job.
pub(super) fn options(report: &Report) -> Vec<Fact> {
    let Some(mode) = report.modes.first() else { return Vec::new() };
    let options = |job: &JobReport| {
        let options = job.spec.options().into_iter().map(|(name, value)| format!("{name}={value}"));
        options.collect::<Vec<_>>().join(" ")
    };
    labels(mode).into_iter().zip(&mode.jobs).map(|(name, job)| Fact { name, text: options(job) }).collect()
}
