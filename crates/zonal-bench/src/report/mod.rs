//! Results of a run.

mod failure;
mod files;
mod verify;

pub use failure::{Failure, Lack, RateUnit, TooSlow};
pub(crate) use files::FilesPart;
pub use files::FilesReport;
pub use verify::{Expected, Found, MISMATCHES_MAX, Mismatch, VerifyReport};

use crate::error::BenchError;
use crate::job::{Direction, JobSpec, ZoneMode};
use crate::measure::series::{JobSeries, ModeSeries};
use crate::measure::{Dir, Latency, Samples};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use zonal_io::device::HeadMoves;
use zonal_io::volume::{OptionKey, SetBy, Statistics, Volume, WriteMode};

/// Results of a job in one direction.
#[derive(Clone, Debug, Default)]
pub struct DirReport {
    /// Successful requests.
    pub ios: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Run time in this direction; the maximum of merged jobs.
    pub runtime: Duration,
    /// Submission latency: from creation to submission. Not recorded for requests that complete
    /// inline.
    pub slat: Option<Box<Latency>>,
    /// Completion latency: from submission to completion.
    pub clat: Option<Box<Latency>>,
    /// Total latency: from creation to completion.
    pub lat: Option<Box<Latency>>,
    /// Samples of the bandwidth in KiB/s.
    pub bandwidth: Samples,
    /// Samples of the IOPS.
    pub rate: Samples,
}

impl DirReport {
    /// Requests per second.
    pub fn iops(&self) -> f64 {
        per_second(self.ios, self.runtime)
    }

    /// Bytes per second.
    pub fn bandwidth_bytes(&self) -> f64 {
        per_second(self.bytes, self.runtime)
    }

    /// Adds the results of a concurrent job.
    pub fn add(&mut self, other: &DirReport) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.runtime = self.runtime.max(other.runtime);
        add_times(&mut self.slat, &other.slat);
        add_times(&mut self.clat, &other.clat);
        add_times(&mut self.lat, &other.lat);
        self.bandwidth.add(&other.bandwidth);
        self.rate.add(&other.rate);
    }
}

/// Adds the latencies of another job, if it recorded any.
fn add_times(own: &mut Option<Box<Latency>>, other: &Option<Box<Latency>>) {
    if let Some(other) = other {
        own.get_or_insert_default().add(other);
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Number of requests by queue depth at submission: from 1, 2, 4, 8, 16, 32, and 64 on.
pub type Depths = [u64; 7];

/// Results of a job, or of several reported as one.
#[derive(Clone, Debug, Default)]
pub struct JobReport {
    /// Name.
    pub name: String,
    /// Specification; that of the first for merged jobs.
    pub spec: Arc<JobSpec>,
    /// Reporting group.
    pub group: u32,
    /// Number of merged jobs, clones included.
    pub jobs: u32,
    /// Reads and writes.
    pub dirs: [DirReport; 2],
    /// Successful flushes.
    pub flushes: u64,
    /// Latency of flushes.
    pub flush_lat: Option<Box<Latency>>,
    /// Zones reset.
    pub resets: u64,
    /// Zones finished.
    pub finishes: u64,
    /// True if writes were skipped because no zone of the range was writable: all were full or dead,
    /// or other zones used up the limit of open zones. The job is incomplete, but has no error, as in
    /// fio.
    pub lacked_zone: bool,
    /// True if a pass ended because its range had no data to read. Reported only if the job read
    /// nothing at all.
    pub lacked_data: bool,
    /// Number of errors.
    pub errors: u64,
    /// First error.
    pub failure: Option<Failure>,
    /// Time from start to end; the maximum of merged jobs.
    pub elapsed: Duration,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Context switches.
    pub switches: u64,
    /// Requests by queue depth.
    pub depths: Depths,
    /// Seed of the random generators.
    pub seed: u64,
    /// Results over time, if requested.
    pub series: Option<Box<JobSeries>>,
}

impl JobReport {
    /// Empty report of one job.
    pub(crate) fn new(spec: &Arc<JobSpec>, group: u32, seed: u64) -> JobReport {
        let (name, spec) = (spec.name.clone(), spec.clone());
        JobReport { name, spec, group, jobs: 1, seed, ..JobReport::default() }
    }

    /// Results in one direction.
    pub fn dir(&self, dir: Dir) -> &DirReport {
        &self.dirs[dir as usize]
    }

    /// True if the job violated the zone rules because it lacks `zonemode=zbd`.
    pub fn needs_zonemode(&self) -> bool {
        self.spec.zonemode == ZoneMode::None && self.failure.as_ref().is_some_and(Failure::breaks_zone_rule)
    }

    /// Reason why the job is incomplete without an error.
    pub fn lack(&self) -> Option<Lack> {
        match self.lacked_zone {
            true => Some(Lack::Zone),
            false => (self.lacked_data && self.dir(Dir::Read).ios == 0).then_some(Lack::Data),
        }
    }

    /// Consequence, cause and remedy of the lack.
    pub fn lack_in_words(&self) -> Option<String> {
        let what = match self.spec.pattern.direction {
            Direction::Mixed { .. } => "skipped writes",
            _ => "ended early",
        };
        Some(match self.lack()? {
            Lack::Zone => format!(
                "{what}: no writable zone in its range; its zones are full or dead, or zones left open outside of it use up \
                 the device's limit or max_open_zones (over all jobs); reset those zones, or raise max_open_zones in \
                 [global]"
            ),
            Lack::Data => {
                "read nothing: no data in its range; write the range first, or set read_beyond_wp".to_owned()
            }
        })
    }

    /// Merges the results of a concurrent clone or job.
    pub fn add(&mut self, other: &JobReport) {
        self.jobs += other.jobs;
        for (own, other) in self.dirs.iter_mut().zip(&other.dirs) {
            own.add(other);
        }
        self.flushes += other.flushes;
        add_times(&mut self.flush_lat, &other.flush_lat);
        self.resets += other.resets;
        self.finishes += other.finishes;
        self.lacked_zone |= other.lacked_zone;
        self.lacked_data |= other.lacked_data;
        self.errors += other.errors;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
        self.elapsed = self.elapsed.max(other.elapsed);
        self.user += other.user;
        self.system += other.system;
        self.switches += other.switches;
        for (own, other) in self.depths.iter_mut().zip(other.depths) {
            *own += other;
        }
        if let (Some(own), Some(other)) = (&mut self.series, &other.series) {
            own.add(other);
        }
    }
}

/// Results of all jobs in one write mode.
#[derive(Clone, Debug)]
pub struct ModeReport {
    /// Device name.
    pub device: String,
    /// Write mode.
    pub mode: WriteMode,
    /// Reason for the mode.
    pub mode_reason: &'static str,
    /// Other options of the write path that do not have their defaults, as in `--set`.
    pub options: Vec<(&'static str, String)>,
    /// Reported jobs; consecutive ones are merged if they request it.
    pub jobs: Vec<JobReport>,
    /// Counters of the write path.
    pub statistics: Statistics,
    /// Movements of the heads of simulated disks during the jobs; `None` for other devices.
    pub head_moves: Option<HeadMoves>,
    /// Notes, such as rounded sizes and skipped rounds.
    pub notes: Vec<String>,
    /// Result of the final verification on the bare device, if any.
    pub verify: Option<VerifyReport>,
    /// Data of the mode for charts over time, if series were requested.
    pub series: Option<Box<ModeSeries>>,
    /// True if all times are virtual. CPU times and context switches are then 0.
    pub is_virtual: bool,
    /// Statistics of the file system, for jobs on files.
    pub files: Option<FilesReport>,
}

impl ModeReport {
    /// Report of the mode and counters of `volume`, without jobs.
    pub(crate) fn of(volume: &Volume) -> ModeReport {
        let (mode, mode_reason) = volume.mode();
        let options = volume.options();
        let is_given =
            |key: &OptionKey| *key != OptionKey::Mode && options.setters.of(*key) != SetBy::Default;
        let given = OptionKey::ALL.into_iter().filter(is_given);
        ModeReport {
            device: volume.info().name.clone(),
            mode,
            mode_reason,
            options: given.map(|key| (key.name(), options.text(key))).collect(),
            jobs: Vec::new(),
            statistics: volume.statistics(),
            head_moves: None,
            notes: Vec::new(),
            verify: None,
            series: None,
            is_virtual: volume.device().insight().virtual_time,
            files: None,
        }
    }

    /// True if a job failed or verification found a mismatch.
    pub fn is_failed(&self) -> bool {
        self.jobs.iter().any(|job| job.failure.is_some())
            || self.verify.as_ref().is_some_and(VerifyReport::is_failed)
    }

    /// Device commands per write request; `None` without writes. Each read, reset and finish counts
    /// as one command. A read of a file may take several, so the result is also `None` if files were
    /// read.
    pub fn commands_per_write(&self) -> Option<f64> {
        if self.files.is_some() && self.jobs.iter().any(|job| job.dir(Dir::Read).ios > 0) {
            return None;
        }
        let writes: u64 = self.jobs.iter().map(|job| job.dir(Dir::Write).ios).sum();
        let others: u64 =
            self.jobs.iter().map(|job| job.dir(Dir::Read).ios + job.resets + job.finishes).sum();
        let commands = self.statistics.commands.saturating_sub(others);
        (writes > 0).then(|| commands as f64 / writes as f64)
    }
}

/// Results of a run: one or more write modes.
#[derive(Clone, Debug)]
pub struct Report {
    /// Start time.
    pub started: SystemTime,
    /// Reports in the requested order of modes, at least one.
    pub modes: Vec<ModeReport>,
    /// Outcome of the run.
    pub ended: Ended,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// Completed.
    Done,
    /// Ended by the caller's interrupt flag.
    Interrupted,
    /// A mode after the reported ones failed.
    BrokenOff(Arc<BenchError>),
}

impl Report {
    /// True if anything failed.
    pub fn is_failed(&self) -> bool {
        self.modes.iter().any(ModeReport::is_failed)
    }
}
