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
use zonal_io::volume::{Statistics, Volume, WriteMode};

/// What a job did in one direction.
#[derive(Clone, Debug, Default)]
pub struct DirReport {
    /// Requests that succeeded.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time spent on this direction, the longest of the merged jobs.
    pub runtime: Duration,
    /// From being made to being with the write path. Requests that were answered at once have none.
    pub slat: Option<Box<Latency>>,
    /// From being with the write path to their completion.
    pub clat: Option<Box<Latency>>,
    /// From being made to their completion.
    pub lat: Option<Box<Latency>>,
    /// Bandwidth in KiB/s, sampled.
    pub bandwidth: Samples,
    /// Requests a second, sampled.
    pub rate: Samples,
}

impl DirReport {
    /// Requests a second.
    pub fn iops(&self) -> f64 {
        per_second(self.ios, self.runtime)
    }

    /// Bytes a second.
    pub fn bandwidth_bytes(&self) -> f64 {
        per_second(self.bytes, self.runtime)
    }

    /// Adds what another job did at the same time.
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

/// Adds the times of another job, if it took any.
fn add_times(own: &mut Option<Box<Latency>>, other: &Option<Box<Latency>>) {
    if let Some(other) = other {
        own.get_or_insert_default().add(other);
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Share of requests by depth of the queue they met: 1, 2, 4, 8, 16, 32, 64 and more.
pub type Depths = [u64; 7];

/// What one job did, or several that are reported as one.
#[derive(Clone, Debug, Default)]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// What it was asked to do; of merged jobs, the first's.
    pub spec: Arc<JobSpec>,
    /// Group in which it is reported.
    pub group: u32,
    /// How many clones are in it.
    pub jobs: u32,
    /// Reads and writes.
    pub dirs: [DirReport; 2],
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Time of each flush.
    pub flush_lat: Option<Box<Latency>>,
    /// Zones reset.
    pub resets: u64,
    /// Zones finished.
    pub finishes: u64,
    /// Whether it left out writes because no zone of its range could be written: all were full or dead, or other zones
    /// used up the limit of open ones. As in fio that is no error, but what it did is not what it was asked for.
    pub lacked_zone: bool,
    /// Whether it ended a pass because its range had nothing written to read. It is told if it read nothing at all.
    pub lacked_data: bool,
    /// Errors counted.
    pub errors: u64,
    /// The first of them.
    pub failure: Option<Failure>,
    /// From its start to its end, the longest of the merged jobs.
    pub elapsed: Duration,
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Context switches.
    pub switches: u64,
    /// Requests by the depth they met.
    pub depths: Depths,
    /// Seed of its generators.
    pub seed: u64,
    /// What it did when, if that was asked for.
    pub series: Option<Box<JobSeries>>,
}

impl JobReport {
    /// Of one job that has done nothing.
    pub(crate) fn new(spec: &Arc<JobSpec>, group: u32, seed: u64) -> JobReport {
        let (name, spec) = (spec.name.clone(), spec.clone());
        JobReport { name, spec, group, jobs: 1, seed, ..JobReport::default() }
    }

    /// What it did in one direction.
    pub fn dir(&self, dir: Dir) -> &DirReport {
        &self.dirs[dir as usize]
    }

    /// Whether it failed by a rule of zones that it does not look at: `zonemode=zbd` is missing.
    pub fn needs_zonemode(&self) -> bool {
        self.spec.zonemode == ZoneMode::None && self.failure.as_ref().is_some_and(Failure::breaks_zone_rule)
    }

    /// What it lacked, if it did not do what it was asked for and yet did not fail.
    pub fn lack(&self) -> Option<Lack> {
        match self.lacked_zone {
            true => Some(Lack::Zone),
            false => (self.lacked_data && self.dir(Dir::Read).ios == 0).then_some(Lack::Data),
        }
    }

    /// What became of it for that lack, and what helps.
    pub fn lack_in_words(&self) -> Option<String> {
        let what = match self.spec.pattern.direction {
            Direction::Mixed { .. } => "lost writes",
            _ => "ended early",
        };
        Some(match self.lack()? {
            Lack::Zone => format!(
                "{what}: its range had no zone that could be written: they are full or dead, or max_open_zones, over all \
                 jobs, or the device's limit is used up by zones outside of it that were left open; reset those zones, or \
                 raise max_open_zones in [global]"
            ),
            Lack::Data => {
                "read nothing: nothing is written there to read; write its range first, or set read_beyond_wp"
                    .to_owned()
            }
        })
    }

    /// Merges what another clone or job did at the same time.
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
    /// Why this mode.
    pub mode_reason: &'static str,
    /// The jobs as they are reported: clones and neighbours merged where the jobs ask for it.
    pub jobs: Vec<JobReport>,
    /// The write path's counters.
    pub statistics: Statistics,
    /// What was rounded or left out.
    pub notes: Vec<String>,
    /// The final check of the bare device, if there was one.
    pub verify: Option<VerifyReport>,
    /// What goes with the series of the jobs, if these were asked for.
    pub series: Option<Box<ModeSeries>>,
    /// Whether all times are virtual: then processor times and context switches are none.
    pub is_virtual: bool,
    /// What the file system tells, if the jobs worked with files.
    pub files: Option<FilesReport>,
}

impl ModeReport {
    /// Of the mode of `volume` and its counters, without jobs.
    pub(crate) fn of(volume: &Volume) -> ModeReport {
        let (mode, mode_reason) = volume.mode();
        ModeReport {
            device: volume.info().name.clone(),
            mode,
            mode_reason,
            jobs: Vec::new(),
            statistics: volume.statistics(),
            notes: Vec::new(),
            verify: None,
            series: None,
            is_virtual: volume.device().insight().virtual_time,
            files: None,
        }
    }

    /// Whether a job failed or a block did not read back.
    pub fn is_failed(&self) -> bool {
        self.jobs.iter().any(|job| job.failure.is_some())
            || self.verify.as_ref().is_some_and(VerifyReport::is_failed)
    }

    /// Device commands a write request took; `None` without writes. Reads and flushes count as one command each; of
    /// files a read may be many, so beside reads of them there is none.
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
    /// When it began.
    pub started: SystemTime,
    /// In the order in which the modes were asked for. At least one.
    pub modes: Vec<ModeReport>,
    /// How it came to its end.
    pub ended: Ended,
}

/// How a run came to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// All was done.
    Done,
    /// The caller's interrupt flag ended it.
    Interrupted,
    /// A mode after the reported ones could not be run, or not to its end.
    BrokenOff(Arc<BenchError>),
}

impl Report {
    /// Whether anything failed.
    pub fn is_failed(&self) -> bool {
        self.modes.iter().any(ModeReport::is_failed)
    }
}
