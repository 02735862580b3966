//! Experiments on simulated drives, repeated with Linux: fio in the guest, on the SCSI disk that
//! `zonal serve` exports.
//!
//! Three figures stand side by side: the published one, that of the write path in virtual time, and
//! that of the published kernel on the same drive in real time. If the write path and Linux differ,
//! the host side of the write path is wrong; if both differ from the published figure, the drive's
//! model is.

use super::run::{Scale, figure};
use super::simulated;
use super::spec::{Experiment, Linux, Row};
use super::table;
use crate::bench::{machine, mean};
use crate::guest::{self, Guest};
use crate::program::NO_CONFIG;
use crate::program::served::Fronts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use zonal_bench::columns;

/// Identity of the disk, and its serial number, by which the guest finds it.
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0e8";

/// Memory of the guest, in MiB.
const MEMORY: u32 = 2048;

/// Pages of 2 MiB for the buffers of sixteen jobs of queue depth 32, including some spare ones for
/// each job.
const LARGE_PAGES: u32 = 16 * 20;

/// Descriptors of a queue: enough for a write of 1 MiB with scattered pages.
const QUEUE_SIZE: u32 = 512;

/// Longest time of a job including its setup, in seconds.
const JOB_TIME_MAX: usize = 240;

const HEADS: [&str; 9] =
    ["what", "how", "published", "unit", "write path", "Linux", "scheduler", "Linux to path", "idle"];

/// Text columns; the others hold numbers.
const WORDS: [usize; 4] = [0, 1, 3, 6];

/// Result of the experiment.
#[derive(Debug)]
pub struct MeasuredByLinux {
    experiment: Experiment,
    schedulers: Vec<String>,
    lines: Vec<Line>,
}

/// A row of an experiment in one write mode.
#[derive(Debug)]
struct Line {
    row: Row,
    mode: String,
    published: f64,
    /// Figure of the write path in virtual time: mean over the row's seeds, and the figure of each
    /// seed.
    path: f64,
    draws: Vec<f64>,
    /// Figures of Linux with each scheduler.
    linux: Vec<ByLinux>,
}

/// Figures of Linux for a row.
#[derive(Clone, Debug, Default)]
struct ByLinux {
    /// One figure for each draw.
    figures: Vec<f64>,
    /// Lowest idle share of the guest's processors.
    idle: f64,
}

/// Runs the experiments that `experiment` names, which must be among `all`, with the program
/// `zonal`. Linux takes as many of each row's seeds as there are rounds.
///
/// # Errors
/// The name of a missing experiment, or the output of a failed command.
///
/// # Panics
/// If the guest fails.
pub fn run(
    experiment: &Experiment,
    linux: &Linux,
    all: &[Experiment],
    zonal: &Path,
    scale: Scale,
) -> Result<MeasuredByLinux, String> {
    let mut lines = Vec::new();
    for name in &linux.experiments {
        let part = all.iter().find(|e| e.name == *name);
        let part = part.ok_or_else(|| format!("{}: unknown experiment {name}", experiment.name))?;
        lines.extend(part_lines(part.clone().published(), linux, zonal, scale)?);
    }
    for (n, scheduler) in linux.schedulers.iter().enumerate() {
        for mode in modes(&lines) {
            eprintln!("{}: Linux, {scheduler}, {mode}", experiment.name);
            boot(experiment, linux, scheduler, &mode, zonal, &mut lines, n)?;
        }
    }
    let lines = lines.into_iter().map(|(line, _)| line).collect();
    Ok(MeasuredByLinux { experiment: experiment.clone(), schedulers: linux.schedulers.clone(), lines })
}

/// A line, and the job files with which Linux repeats it.
type Task = (Line, Vec<String>);

/// Lines of one experiment, with the figures of the write path.
fn part_lines(part: Experiment, linux: &Linux, zonal: &Path, scale: Scale) -> Result<Vec<Task>, String> {
    let text = part.jobs.iter().map(|job| fs::read_to_string(part.folder.join(job)));
    let text = text.collect::<Result<String, _>>().map_err(|e| format!("{}: {e}", part.folder.display()))?;
    let mut tasks = Vec::new();
    for (row, cells) in simulated::run(&part, zonal, scale)? {
        for (variant, cell) in part.variants.iter().zip(cells) {
            let Some(&published) = row.published.get(&variant.name) else { continue };
            let mode = variant.mode.clone();
            let path = cell.figures.median();
            let draws = cell.simulated.map_or_else(Vec::new, |simulated| simulated.draws);
            let linux = vec![ByLinux::default(); linux.schedulers.len()];
            let jobs = fio_jobs(&text, &row, scale);
            tasks.push((Line { row: row.clone(), mode, published, path, draws, linux }, jobs));
        }
    }
    Ok(tasks)
}

fn modes(tasks: &[Task]) -> Vec<String> {
    let mut modes: Vec<String> = tasks.iter().map(|(line, _)| line.mode.clone()).collect();
    modes.sort();
    modes.dedup();
    modes
}

/// Job files of fio for a row, one for each seed that fits into the scale.
fn fio_jobs(text: &str, row: &Row, scale: Scale) -> Vec<String> {
    let mut options = vec!["filename=${DISK}", "direct=1", "ioengine=libaio", "mem=mmaphuge"];
    let mut section = "";
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with([';', '#'])) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => section = name,
            None if ["global", row.section.as_str()].contains(&section) => options.push(line),
            None => {}
        }
    }
    options.extend(row.set.iter().map(String::as_str));
    if scale == Scale::Tiny {
        options.push("runtime=1s");
    }
    let job = format!("[job]\n{}\n", options.join("\n"));
    match row.randseeds.as_slice() {
        [] => vec![job],
        // A seed changes fio's offsets only with `randrepeat=0`.
        seeds => seeds
            .iter()
            .take(scale.draws())
            .map(|seed| format!("{job}randrepeat=0\nrandseed={seed}\n"))
            .collect(),
    }
}

/// Boots the guest once to run the lines of one mode with one scheduler.
fn boot(
    experiment: &Experiment,
    linux: &Linux,
    scheduler: &str,
    mode: &str,
    zonal: &Path,
    tasks: &mut [Task],
    at: usize,
) -> Result<(), String> {
    let (dir, share) = (tempfile::tempdir().map_err(|e| e.to_string())?, guest::share());
    let socket = dir.path().join("disk");
    let mut serve = Command::new(zonal);
    serve.env(NO_CONFIG.0, NO_CONFIG.1).arg("serve").arg(&linux.device).args(["--uuid", UUID]);
    // Linux orders the writes of a zone; a write mode of the server would order them twice.
    serve.arg("--write-mode=direct").arg("--vhost-user-scsi").arg(&socket);
    let served = Fronts::start_as(serve, 1);
    let of_mode = tasks.iter().enumerate().filter(|(_, (line, _))| line.mode == mode);
    let jobs = of_mode.flat_map(|(index, (_, texts))| texts.iter().map(move |text| (index, text.as_str())));
    let jobs = write_jobs(share.path(), jobs).map_err(|e| format!("{}: {e}", share.path().display()))?;
    let seconds = u32::try_from(jobs.len() * JOB_TIME_MAX).expect("there are few jobs");
    let guest = Guest::at(&experiment.folder.join("guest.sh"), seconds).share(share.path());
    let guest =
        guest.shared_memory(MEMORY).scsi_disk(0, &socket, "", &format!(",virtqueue_size={QUEUE_SIZE}"));
    let guest = guest.set("SCSI", UUID.replace('-', "")).set("SCHEDULER", scheduler);
    let guest = guest.set("QD1", u8::from(mode == "qd1")).set("DEPTH", linux.queue_depth);
    let guest = guest.set("MAX_SECTORS_KB", linux.max_sectors_kb).set("LARGE_PAGES", LARGE_PAGES);
    let said = guest.lines();
    drop(served);
    take_reports(&share.path().join("reports"), &said, jobs, tasks, at)
        .map_err(|error| format!("{}: {error}", experiment.name))
}

/// Writes the job files for the guest. Returns the index of each file's task, by file name.
fn write_jobs<'a>(
    share: &Path,
    jobs: impl Iterator<Item = (usize, &'a str)>,
) -> io::Result<BTreeMap<String, usize>> {
    fs::create_dir(share.join("jobs"))?;
    fs::create_dir(share.join("reports"))?;
    let mut names = BTreeMap::new();
    for (index, text) in jobs {
        let name = format!("{:03}", names.len());
        fs::write(share.join("jobs").join(&name), text)?;
        names.insert(name, index);
    }
    Ok(names)
}

/// Stores the figures from fio's reports in each task, and the guest's idle time from its output.
fn take_reports(
    reports: &Path,
    said: &[String],
    mut jobs: BTreeMap<String, usize>,
    tasks: &mut [Task],
    at: usize,
) -> Result<(), String> {
    for line in said {
        let wrong = || format!("unexpected line from the guest: {line:?}");
        let (name, idle) = line.split_once(' ').ok_or_else(wrong)?;
        let idle: f64 = idle.parse().map_err(|_| wrong())?;
        let report = fs::read(reports.join(name)).map_err(|e| format!("{name}: {e}"))?;
        let report: Value = serde_json::from_slice(&report).map_err(|e| format!("{name}: {e}"))?;
        let (line, _) = &mut tasks[jobs.remove(name).ok_or_else(wrong)?];
        let by_linux = &mut line.linux[at];
        by_linux.idle = if by_linux.figures.is_empty() { idle } else { by_linux.idle.min(idle) };
        by_linux.figures.push(figure(&report, line.row.unit)?);
    }
    match jobs.first_key_value() {
        None => Ok(()),
        Some((name, _)) => Err(format!("no report from the guest for job {name}")),
    }
}

impl MeasuredByLinux {
    /// Formats the results as a table.
    ///
    /// # Panics
    /// Never: writing to a string cannot fail.
    pub fn to_text(&self) -> String {
        let experiment = &self.experiment;
        let mut out = format!("{}: {}\n", experiment.name, experiment.title);
        writeln!(out, "published: {}", experiment.source).expect("writing to a string");
        writeln!(out, "machine: {}", machine()).expect("writing to a string");
        writeln!(
            out,
            "write path in virtual time, Linux in real time; (error against the published figure) {{minimum..maximum of the draws}}\n"
        )
        .expect("writing to a string");
        let lines = self.lines.iter().flat_map(|line| line.to_columns(&self.schedulers));
        out += &columns(&[HEADS.map(String::from)].into_iter().chain(lines).collect::<Vec<_>>(), &WORDS);
        writeln!(out, "\n{}", experiment.about.trim()).expect("writing to a string");
        out
    }

    /// Formats the results as JSON.
    pub fn to_json(&self) -> Value {
        let experiment = &self.experiment;
        let rows: Vec<Value> = self.lines.iter().map(|line| line.to_json(&self.schedulers)).collect();
        json!({
            "name": experiment.name, "title": experiment.title, "source": experiment.source,
            "about": experiment.about.trim(), "machine": machine(), "rows": rows,
        })
    }
}

impl Line {
    /// One line for each scheduler.
    fn to_columns(&self, schedulers: &[String]) -> Vec<[String; 9]> {
        let beside = |own: f64, draws: &[f64]| {
            let draws = if draws.len() > 1 { format!(" {{{}}}", table::range(draws)) } else { String::new() };
            format!("{} ({:+.0}%){draws}", table::figure(own), (own / self.published - 1.0) * 100.0)
        };
        let of = |(scheduler, linux): (&String, &ByLinux)| {
            [
                self.row.name.clone(),
                self.mode.clone(),
                table::figure(self.published),
                self.row.unit.name().to_owned(),
                beside(self.path, &self.draws),
                beside(mean(&linux.figures), &linux.figures),
                scheduler.clone(),
                format!("{:.2}x", mean(&linux.figures) / self.path),
                format!("{:.0}%", linux.idle * 100.0),
            ]
        };
        schedulers.iter().zip(&self.linux).map(of).collect()
    }

    fn to_json(&self, schedulers: &[String]) -> Value {
        let linux = schedulers.iter().zip(&self.linux).map(|(scheduler, linux)| {
            json!({ "scheduler": scheduler, "measured": mean(&linux.figures), "draws": linux.figures, "idle": linux.idle })
        });
        json!({
            "what": self.row.name, "how": self.mode, "unit": self.row.unit.name(), "published": self.published,
            "path": self.path, "path_draws": self.draws, "randseeds": self.row.randseeds, "linux": linux.collect::<Vec<_>>(),
        })
    }
}
