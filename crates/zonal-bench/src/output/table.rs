//! Comparison of the jobs in several write modes.

use super::columns;
use crate::measure::Dir;
use crate::report::{JobReport, Lack, Report};
use std::fmt;
use zonal_io::volume::WriteMode;

/// One direction of a job in one write mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the job.
    pub job: String,
    /// Direction.
    pub dir: Dir,
    /// Write mode.
    pub mode: WriteMode,
    /// Requests per second.
    pub iops: f64,
    /// Megabytes (10^6) per second.
    pub megabytes: f64,
    /// Median completion latency in nanoseconds; `None` if not measured.
    pub clat_p50: Option<u64>,
    /// 99th percentile of the completion latency in nanoseconds; `None` if not measured.
    pub clat_p99: Option<u64>,
    /// Device commands per write in this mode, over all jobs.
    pub commands_per_write: Option<f64>,
    /// IOPS relative to the first mode; `None` if either job is incomplete.
    pub ratio: Option<f64>,
    /// True if the job failed.
    pub is_failed: bool,
    /// Reason why the job is incomplete, if it did not fail.
    pub lack: Option<Lack>,
}

/// All rows by job and mode. Prints as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The rows.
    pub rows: Vec<Row>,
}

impl Row {
    /// Ratio of the row, or the reason why it has none.
    fn verdict(&self) -> String {
        match self.ratio {
            _ if self.is_failed => "failed".to_owned(),
            Some(ratio) => format!("{ratio:.2}x"),
            None => self.lack.map_or("-", Lack::mark).to_owned(),
        }
    }
}

impl Report {
    /// Compares the jobs in all write modes.
    pub fn comparison(&self) -> Comparison {
        let mut rows = Vec::new();
        let jobs = self.modes.iter().map(|mode| mode.jobs.len()).max().unwrap_or(0);
        for index in 0..jobs {
            for dir in [Dir::Read, Dir::Write] {
                self.add_rows(index, dir, &mut rows);
            }
        }
        Comparison { rows }
    }

    /// Formats [`Report::comparison`] as text.
    pub fn comparison_table(&self) -> String {
        self.comparison().to_string()
    }

    fn add_rows(&self, index: usize, dir: Dir, rows: &mut Vec<Row>) {
        let mut first = None;
        for mode in &self.modes {
            let Some(job) = mode.jobs.get(index).filter(|job| is_shown(job, dir)) else { continue };
            let report = job.dir(dir);
            let iops = report.iops();
            let is_whole = job.failure.is_none() && job.lack().is_none();
            let first = *first.get_or_insert(is_whole.then_some(iops));
            let percentile = |percent| {
                let clat = report.clat.as_ref().filter(|clat| clat.count() > 0);
                clat.map(|clat| clat.percentile(percent))
            };
            rows.push(Row {
                job: job.name.clone(),
                dir,
                mode: mode.mode,
                iops,
                megabytes: report.bandwidth_bytes() / 1e6,
                clat_p50: percentile(50.0),
                clat_p99: percentile(99.0),
                commands_per_write: mode.commands_per_write().filter(|_| dir == Dir::Write),
                ratio: first.filter(|_| is_whole).map(|first| if first > 0.0 { iops / first } else { 0.0 }),
                is_failed: job.failure.is_some(),
                lack: job.lack(),
            });
        }
    }
}

/// True for a direction that the job used, or would have used if it had not failed.
pub(super) fn is_shown(job: &JobReport, dir: Dir) -> bool {
    use crate::job::Direction;
    let asked = match job.spec.pattern.direction {
        Direction::Read => dir == Dir::Read,
        Direction::Write => dir == Dir::Write,
        Direction::Mixed { .. } => true,
    };
    asked || job.dir(dir).ios > 0
}

impl Comparison {
    /// True if this row is the only one with the commands per write of its mode. The figure covers
    /// the whole mode, and next to one of several jobs it would be mistaken for that job's.
    fn is_alone(&self, row: &Row) -> bool {
        let of_mode = self.rows.iter().filter(|other| (other.mode, other.dir) == (row.mode, row.dir));
        of_mode.count() == 1
    }

    fn line(&self, row: &Row) -> [String; 9] {
        let micros =
            |nanos: Option<u64>| nanos.map_or("-".to_owned(), |n| format!("{:.2}", n as f64 / 1000.0));
        let dir = match row.dir {
            Dir::Read => "read",
            Dir::Write => "write",
        };
        let commands = row.commands_per_write.filter(|_| self.is_alone(row));
        [
            row.job.clone(),
            dir.to_owned(),
            row.mode.to_string(),
            format!("{:.0}", row.iops),
            format!("{:.1}", row.megabytes),
            micros(row.clat_p50),
            micros(row.clat_p99),
            commands.map_or("-".to_owned(), |n| format!("{n:.3}")),
            row.verdict(),
        ]
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["job", "rw", "mode", "IOPS", "MB/s", "p50 us", "p99 us", "cmds/write", "ratio"];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(|row| self.line(row)));
        f.write_str(&columns(&lines, &[0, 1, 2]))?;
        let mut of_modes: Vec<(WriteMode, f64)> = Vec::new();
        for row in self.rows.iter().filter(|row| !self.is_alone(row)) {
            if let Some(commands) = row.commands_per_write
                && of_modes.iter().all(|(mode, _)| *mode != row.mode)
            {
                of_modes.push((row.mode, commands));
            }
        }
        if !of_modes.is_empty() {
            let each = of_modes.iter().map(|(mode, commands)| format!("{mode} {commands:.3}"));
            writeln!(f, "cmds/write, all jobs of a mode: {}", each.collect::<Vec<_>>().join(", "))?;
        }
        if self.rows.iter().any(|row| row.lack.is_some()) {
            writeln!(f, "no zone, no data: incomplete jobs, excluded from the comparison; see above")?;
        }
        Ok(())
    }
}
