//! Runs of a calibration: their zones, their jobs and their outcomes.
//!
//! A run is executed at several places of the drive, one after the other, so that it does not
//! depend on the relative position of two zones. At each place every zone has its own job, which
//! writes it sequentially at queue depth 1 in mode `per-zone`. One run writes to zones at random,
//! which exposes drives that delay all zones for one. Another has jobs that share their zones, in
//! mode `qd1`, whose ordering lets the queue length at the drive vary. Random numbers have a fixed
//! seed, so the same runs on the same drive issue the same writes.

use super::error::CalibrateError;
use crate::job::JobFile;
use crate::jobs::run::{BenchOptions, run};
use crate::measure::Dir;
use crate::report::JobReport;
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use zonal_core::{Op, Sector, ZoneCondition, ZoneIndex};
use zonal_io::device::{Command, Device};
use zonal_io::volume::{WriteMode, report, run_alone};
use zonal_sim::CalibratedRuns;

/// Equidistant zones that are written concurrently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ZoneSpread {
    pub(super) first: u32,
    pub(super) apart: u32,
    pub(super) zones: u32,
    /// Neighbouring zones per job.
    pub(super) in_a_row: u32,
}

/// Order of a job's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Sequential, at queue depth 1.
    Sequential,
    /// To its zones in a reproducible random order, at this queue depth.
    Random { depth: u32 },
    /// Random order, with `jobs` jobs that share all zones of a place.
    Shared { jobs: u32, depth: u32 },
}

impl Order {
    /// Value of a job's option `rw`.
    fn rw(self) -> &'static str {
        match self {
            Order::Sequential => "write",
            Order::Random { .. } | Order::Shared { .. } => "randwrite",
        }
    }

    /// Queue depth of a job.
    fn depth(self) -> u32 {
        match self {
            Order::Sequential => 1,
            Order::Random { depth } | Order::Shared { depth, .. } => depth,
        }
    }
}

impl ZoneSpread {
    pub(super) fn of(first: u32, apart: u32, zones: u32) -> ZoneSpread {
        ZoneSpread { first, apart, zones, in_a_row: 1 }
    }

    fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        let ZoneSpread { first, apart, zones, in_a_row } = *self;
        (0..zones).map(move |n| first + n * apart..first + n * apart + in_a_row)
    }
}

/// One run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Name.
    pub name: &'static str,
    /// Bytes per write.
    pub block: u64,
    /// Bytes written by each job.
    pub bytes: u64,
    pub(super) places: Vec<ZoneSpread>,
    pub(super) order: Order,
    pub(super) mode: WriteMode,
}

impl Run {
    /// Bytes written by all of its jobs.
    pub fn total_bytes(&self) -> u64 {
        self.bytes * self.places.iter().map(|place| u64::from(self.jobs_at(place))).sum::<u64>()
    }

    fn jobs_at(&self, place: &ZoneSpread) -> u32 {
        match self.order {
            Order::Shared { jobs, .. } => jobs,
            Order::Sequential | Order::Random { .. } => place.zones,
        }
    }

    /// Appends the run in the job language, with a section per place.
    fn jobs(&self, text: &mut String) {
        let order = match self.order {
            Order::Sequential => format!("rw={}", self.order.rw()),
            Order::Random { depth } | Order::Shared { depth, .. } => {
                format!("rw={}\nrandseed=1\niodepth={depth}", self.order.rw())
            }
        };
        for (n, place) in self.places.iter().enumerate() {
            let ZoneSpread { first, apart, in_a_row, .. } = place;
            let jobs = self.jobs_at(place);
            let Run { name, block, bytes, .. } = self;
            let _ = write!(
                text,
                "[{name}-{n}]\nstonewall\n{order}\nbs={block}\noffset={first}z\noffset_increment={apart}z\nsize={in_a_row}z\n\
                 io_size={bytes}\nnumjobs={jobs}\n"
            );
        }
    }
}

/// Options common to all runs. Each run leaves its zones partly written, more than some drives can
/// keep open; such drives close zones by themselves.
const COMMON: &str = "[global]\nzonemode=zbd\ndirect=1\niodepth=1\nthread\ngroup_reporting\nend_fsync=1\n\
                      ignore_zone_limits=1\n";

/// Modes of the runs in their order of execution.
const MODES: [WriteMode; 2] = [WriteMode::PerZone, WriteMode::Qd1];

/// Written before the runs of the second mode. The time of a simulated drive continues across
/// modes, but each mode has its own clock: its first write waits until that clock has caught up
/// with the drive.
const SETTLE: &str = "[settle]\nrw=write\nbs=4k\nsize=1z\nio_size=4k\n";

/// Zones written by runs, in ascending order. Prints as ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZonesUsed(pub Vec<ZoneIndex>);

impl fmt::Display for ZonesUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_next = |a: &ZoneIndex, b: &ZoneIndex| a.0 + 1 == b.0;
        for (n, row) in self.0.chunk_by(is_next).enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            match row {
                [one] => write!(f, "{comma}{one}")?,
                _ => write!(f, "{comma}{}-{}", row[0], row[row.len() - 1])?,
            }
        }
        Ok(())
    }
}

/// Runs for a drive, in the order of their modes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runs {
    list: Vec<Run>,
}

/// Summary in one line: sizes of writes, queue depths, concurrent zones, modes.
impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks: BTreeSet<u64> = self.list.iter().map(|run| run.block).collect();
        let depths: BTreeSet<u32> = self.list.iter().map(|run| run.order.depth()).collect();
        let zones: BTreeSet<u32> = self
            .list
            .iter()
            .flat_map(|run| run.places.iter().map(|place| place.zones * place.in_a_row))
            .collect();
        let modes = MODES.iter().filter(|mode| self.list.iter().any(|run| run.mode == **mode));
        let joined = |words: Vec<String>| words.join(", ");
        write!(
            f,
            "writes of {} KiB, {} under way a job, in {} zones, modes {}",
            joined(blocks.iter().map(|bytes| (bytes / 1024).to_string()).collect()),
            joined(depths.iter().map(u32::to_string).collect()),
            joined(zones.iter().map(u32::to_string).collect()),
            joined(modes.map(|mode| mode.to_string()).collect()),
        )
    }
}

impl Runs {
    /// The runs by order and mode, for the profile.
    pub(super) fn calibrated(&self) -> Vec<CalibratedRuns> {
        let mut all: Vec<CalibratedRuns> = Vec::new();
        for run in &self.list {
            let (rw, mode, depth) = (run.order.rw(), run.mode.name(), run.order.depth());
            match all.iter_mut().find(|runs| runs.rw == [rw] && runs.modes == [mode]) {
                Some(CalibratedRuns { block_bytes, depth: depths, .. }) => {
                    *block_bytes = [block_bytes[0].min(run.block), block_bytes[1].max(run.block)];
                    *depths = [depths[0].min(depth), depths[1].max(depth)];
                }
                None => all.push(CalibratedRuns {
                    rw: vec![rw.to_owned()],
                    modes: vec![mode.to_owned()],
                    block_bytes: [run.block; 2],
                    depth: [depth; 2],
                }),
            }
        }
        all
    }

    pub(super) fn of(list: Vec<Run>) -> Runs {
        Runs { list }
    }

    /// All runs.
    pub fn list(&self) -> &[Run] {
        &self.list
    }

    /// Selects runs by index.
    pub(super) fn only(&self, which: &[usize]) -> Runs {
        Runs { list: which.iter().map(|&at| self.list[at].clone()).collect() }
    }

    /// Index of the run with this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|run| run.name == name)
    }

    /// All zones written by the runs.
    pub fn zones(&self) -> ZonesUsed {
        let places = self.list.iter().flat_map(|run| &run.places);
        let mut zones: Vec<ZoneIndex> =
            places.flat_map(ZoneSpread::ranges).flatten().map(ZoneIndex).collect();
        zones.sort_unstable();
        zones.dedup();
        ZonesUsed(zones)
    }

    /// Zones of [`Runs::zones`] that are not empty on `device`.
    ///
    /// # Errors
    /// [`CalibrateError::Zones`].
    pub fn zones_with_data(&self, device: &dyn Device) -> Result<ZonesUsed, CalibrateError> {
        let geometry = device.info().geometry;
        let mut found = Vec::new();
        for zone in self.zones().0 {
            let described = report(device, geometry.start_of(zone), 1).map_err(CalibrateError::Zones)?;
            if described.first().is_none_or(|zone| zone.condition != ZoneCondition::Empty) {
                found.push(zone);
            }
        }
        Ok(ZonesUsed(found))
    }

    /// True if a block is written before the runs.
    fn settles(&self) -> bool {
        self.list.first().is_some_and(|run| run.mode != MODES[0])
    }

    /// Runs in this mode.
    fn in_mode(&self, mode: WriteMode) -> Runs {
        Runs { list: self.list.iter().filter(|run| run.mode == mode).cloned().collect() }
    }

    fn jobs(&self) -> Result<JobFile, CalibrateError> {
        let mut text = COMMON.to_owned();
        if self.settles() {
            let _ = writeln!(text, "{SETTLE}offset={}z", self.list[0].places[0].first);
        }
        self.list.iter().for_each(|run| run.jobs(&mut text));
        Ok(JobFile::parse(&text, "calibration")?)
    }
}

/// Result of a run over all its places.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Bytes written.
    pub bytes: u64,
    /// Duration in seconds, including flushes.
    pub seconds: f64,
    /// Part of the duration spent in the last flushes.
    pub flushing: f64,
}

impl Outcome {
    /// Data rate including flushes, in 10^6 bytes per second.
    pub fn megabytes_a_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    /// Fraction of the duration spent in the last flushes.
    pub fn flushing_share(&self) -> f64 {
        self.flushing / self.seconds
    }
}

/// Executes the runs on `device`, in the device's time. Their zones are reset before and
/// afterwards.
///
/// # Errors
/// [`CalibrateError`] with the failed run and the reason.
pub fn measure(device: &Arc<dyn Device>, runs: &Runs) -> Result<Vec<Outcome>, CalibrateError> {
    reset(&**device, runs)?;
    let outcomes: Result<Vec<_>, _> = MODES.iter().map(|mode| measure_in(*mode, device, runs)).collect();
    // Failed runs have written, too.
    let emptied = reset(&**device, runs);
    let outcomes = outcomes?.concat();
    emptied.map(|()| outcomes)
}

/// Executes the runs in one mode, without resets.
fn measure_in(
    mode: WriteMode,
    device: &Arc<dyn Device>,
    runs: &Runs,
) -> Result<Vec<Outcome>, CalibrateError> {
    let runs = runs.in_mode(mode);
    if runs.list.is_empty() {
        return Ok(Vec::new());
    }
    let mut options = BenchOptions::new(runs.jobs()?);
    // The caller of a measurement has accepted the loss of the zones' data.
    options.overwrite = true;
    options.modes = vec![mode];
    options.volume.merge = false;
    options.progress = true;
    let report = run(&|| Ok(device.clone()), &options)?;
    let jobs = report.modes.iter().flat_map(|mode| &mode.jobs);
    let mut jobs = jobs.skip(usize::from(runs.settles()));
    runs.list.iter().map(|run| outcome(run, jobs.by_ref().take(run.places.len()))).collect()
}

fn outcome<'a>(run: &Run, jobs: impl Iterator<Item = &'a JobReport>) -> Result<Outcome, CalibrateError> {
    let mut outcome = Outcome { bytes: 0, seconds: 0.0, flushing: 0.0 };
    for job in jobs {
        if let Some(failure) = &job.failure {
            return Err(CalibrateError::Failed { run: run.name, failure: Box::new(failure.clone()) });
        }
        outcome.bytes += job.dir(Dir::Write).bytes;
        outcome.seconds += job.elapsed.as_secs_f64();
        // The flush that started last is the shortest.
        outcome.flushing += job.flush_lat.as_ref().map_or(0.0, |lat| lat.min() as f64 / 1e9);
    }
    let wanted = run.total_bytes();
    if outcome.bytes != wanted {
        return Err(CalibrateError::Short { run: run.name, written: outcome.bytes, wanted });
    }
    Ok(outcome)
}

/// Resets the zones of the runs that are not empty.
fn reset(device: &dyn Device, runs: &Runs) -> Result<(), CalibrateError> {
    for zone in runs.zones_with_data(device)?.0 {
        let sector: Sector = device.info().geometry.start_of(zone);
        let command = Command::new(Op::ZoneReset, sector, 0);
        run_alone(device, &command).map_err(|error| CalibrateError::Reset { zone, error })?;
    }
    Ok(())
}
