//! Jobs on zones: preparation before the first round and between rounds, and collection of results.

use super::around::{check_order, with_faults};
use super::mode::{self, Next, RunTotals, Site, Start};
use super::options::BenchOptions;
use super::prepare;
use super::progress::Progress;
use super::round::{Ready, ReadyJob, Round, RoundResult};
use super::runner::TaskRunner;
use super::threads;
use super::virtual_time;
use super::worker::IoLog;
use crate::error::BenchError;
use crate::job::Verify;
use crate::jobs::plan::{Plan, WorkerPlan, default_of_jobs, sequential};
use crate::jobs::verify::{Record, Recorder};
use crate::jobs::workload::zones::Room;
use crate::jobs::workload::{Workload, Zones};
use crate::measure::series::Frame;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use zonal_core::{DeviceError, Nanos, Op, RequestError, Sector, ZoneIndex};
use zonal_io::device::{Device, DeviceInfo, HostTime, Output};
use zonal_io::fault::Fault;
use zonal_io::sync::CachePadded;
use zonal_io::volume::{Request, SchedulerKind, Volume, VolumeOptions, WriteMode};

/// Number of zones per report request.
const REPORT_ZONES: u32 = 1 << 16;

/// Zones prepared for the jobs.
pub(super) struct PreparedZones {
    plan: Plan,
    zones: Arc<Zones>,
    faults: Option<Arc<Fault>>,
    /// Requested mode, or the one that suits the jobs; `None` for the device's default.
    mode: Option<WriteMode>,
    in_effect: WriteMode,
    chosen: Option<(WriteMode, &'static str)>,
}

impl PreparedZones {
    /// Resolves the jobs against the device and prepares its zones.
    pub(super) fn new(
        site: &Site<'_>,
        mode: Option<WriteMode>,
        start: Start,
    ) -> Result<PreparedZones, BenchError> {
        let Site { options, bare, info, has_data } = site;
        let default = mode.unwrap_or_else(|| WriteMode::for_device(&**bare).0);
        let chosen = if mode.is_none() { default_of_jobs(options.jobs.jobs(), info, default) } else { None };
        let mode = mode.or(chosen.map(|(mode, _)| mode));
        let in_effect = mode.unwrap_or(default);
        let mut plan = plan_of(options, info, in_effect)?;
        plan.set_rules(options.host, in_effect);
        if start == Start::Erased {
            prepare::name_logs_by_mode(&mut plan, in_effect);
        }
        check_verify(&plan, info, *has_data)?;
        if start == Start::Erased {
            // Report misfits before the first mode runs, not after it.
            options.modes.iter().try_for_each(|mode| plan_of(options, info, *mode).map(drop))?;
        }
        let faults = with_faults(bare, options.fault.as_ref())?;
        if !options.volume.force {
            let info = faults.as_ref().map_or(info, |faults| faults.info());
            check_order(info, [in_effect].into_iter().chain(options.modes.iter().copied()))?;
        }
        if start == Start::Erased {
            prepare::erase(&**bare)?;
        }
        let zones_options = plan.zones_options(in_effect);
        let zones = Arc::new(prepare::zones(&**bare, &mut plan, zones_options)?);
        Ok(PreparedZones { plan, zones, faults, mode, in_effect, chosen })
    }
}

/// Resolves the jobs against the device in a mode.
fn plan_of(options: &BenchOptions, info: &DeviceInfo, mode: WriteMode) -> Result<Plan, BenchError> {
    Plan::new(options.jobs.jobs(), info, mode).map_err(|(job, error)| BenchError::Plan { job, error })
}

fn check_verify(plan: &Plan, info: &DeviceInfo, has_data: bool) -> Result<(), BenchError> {
    match plan.workers.iter().find(|worker| worker.spec.verify != Verify::None) {
        Some(worker) if !has_data => {
            Err(BenchError::NothingToVerify { job: worker.spec.name.clone(), device: info.name.clone() })
        }
        _ => Ok(()),
    }
}

impl PreparedZones {
    /// Returns the device of the volume and the options to open it with.
    pub(super) fn volume(&self, site: &Site<'_>) -> (Arc<dyn Device>, VolumeOptions) {
        let device: Arc<dyn Device> = match &self.faults {
            Some(faults) => faults.clone(),
            None => site.bare.clone(),
        };
        (device, site.options.volume.with_mode(self.mode))
    }

    /// Prepares the first round.
    pub(super) fn begin(
        self,
        site: &Site<'_>,
        volume: &Arc<Volume>,
        runner: TaskRunner,
    ) -> Result<ZoneRounds, BenchError> {
        let PreparedZones { mut plan, zones, faults, in_effect, chosen, .. } = self;
        plan.notes.extend(without_effect(site.options, in_effect));
        let host_nanos = || host_nanos(&*site.bare, in_effect, site.options.volume.scheduler);
        Ok(ZoneRounds {
            progress: Progress::new(site.options.progress, &plan),
            plan,
            zones,
            faults,
            chosen,
            volume: volume.clone(),
            runner,
            has_data: site.has_data,
            series: site.options.series,
            host_nanos_per_io: site.options.host_nanos_per_io.unwrap_or_else(host_nanos),
            interrupt: site.options.interrupt.clone(),
            record: Arc::default(),
        })
    }
}

/// Processor time per request on a host like the one on which the device was measured.
fn host_nanos(device: &dyn Device, mode: WriteMode, scheduler: SchedulerKind) -> u64 {
    let is_scheduled =
        mode == WriteMode::ZoneLock || mode.takes_scheduler() && scheduler != SchedulerKind::None;
    let HostTime { command, scheduler } = device.insight().host_time;
    if is_scheduled { command + scheduler } else { command }
}

/// Notes on requested options that have no effect in a mode.
fn without_effect(options: &BenchOptions, mode: WriteMode) -> impl Iterator<Item = String> {
    let has_budget = mode != WriteMode::Direct;
    let parks = !matches!(mode, WriteMode::Direct | WriteMode::ZoneLock);
    let budget = options.volume.budget.is_some() && !has_budget;
    let park = options.volume.park.is_some() && !parks;
    let budget =
        budget.then(|| format!("mode {mode} has no budget: the drive's limits are enforced by the drive"));
    let scheduler = !mode.takes_scheduler() && options.volume.scheduler != SchedulerKind::None;
    budget
        .into_iter()
        .chain(park.then(|| format!("mode {mode} does not park: writes ahead of the write pointer fail")))
        .chain(scheduler.then(|| format!("mode {mode} takes no scheduler: it has an order of its own")))
}

/// Rounds of jobs on zones.
pub(super) struct ZoneRounds {
    plan: Plan,
    zones: Arc<Zones>,
    faults: Option<Arc<Fault>>,
    chosen: Option<(WriteMode, &'static str)>,
    volume: Arc<Volume>,
    runner: TaskRunner,
    has_data: bool,
    series: bool,
    /// Processor time per request of a worker in virtual time.
    host_nanos_per_io: u64,
    interrupt: Option<Arc<AtomicBool>>,
    record: Arc<Record>,
    progress: Progress,
}

impl mode::Rounds for ZoneRounds {
    fn count(&self) -> usize {
        self.plan.rounds.len()
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.plan.notes)
    }

    fn run(&mut self, index: usize, done: &mut RunTotals) -> Result<Next, BenchError> {
        let range = self.plan.rounds[index].clone();
        let resets = self.before(&range, done)?;
        let ready = self.ready(&range, done)?;
        let watches = ready.watches.clone();
        let (begin, moves) = (Instant::now(), self.volume.device().insight().head_moves);
        let result = self.work(index, ready)?;
        done.elapsed.0 += begin.elapsed().as_nanos() as u64;
        done.add_head_moves(&self.volume, moves);
        take_in(result, resets, done);
        done.statistics = self.volume.statistics();
        let ends_all = watches.iter().any(|watch| watch.ends_all.load(Ordering::Acquire));
        Ok(if ends_all { Next::EndAll } else { Next::Round })
    }

    fn chosen(&self) -> Option<(WriteMode, &'static str)> {
        self.chosen
    }

    fn close(self, notes: &mut Vec<String>) -> Option<Arc<Zones>> {
        self.progress.finish();
        notes.extend(self.faults.and_then(|faults| note_of(&faults)));
        Some(self.zones)
    }
}

/// Number of times each rule of the plan took effect. A plan that matches no command is otherwise
/// indistinguishable from a device that survived it.
fn note_of(faults: &Fault) -> Option<String> {
    let fired: Vec<String> = faults.fired_each().iter().map(u64::to_string).collect();
    (!fired.is_empty()).then(|| format!("faults, by rule of the plan: {}", fired.join(", ")))
}

/// Collects the results of a round in the order of the workers. Resets before the round are
/// attributed to the first one.
fn take_in(result: RoundResult, mut resets: u64, done: &mut RunTotals) {
    let RoundResult { mut results, samples, head } = result;
    match (&mut done.head, head) {
        (Some(before), Some(head)) => before.add(&head),
        (before @ None, head) => *before = head,
        (Some(_), None) => {}
    }
    results.sort_by_key(|(number, _)| *number);
    for ((_, (mut report, recorder)), samples) in results.into_iter().zip(samples) {
        for (dir, (bandwidth, rate)) in report.dirs.iter_mut().zip(samples) {
            (dir.bandwidth, dir.rate) = (bandwidth, rate);
        }
        report.resets += std::mem::take(&mut resets);
        done.recorders.extend(recorder);
        done.add(report);
    }
}

impl ZoneRounds {
    /// Prepares zones and pointers for a round. Returns the number of zones reset.
    fn before(&self, range: &Range<usize>, done: &RunTotals) -> Result<u64, BenchError> {
        if self.may_be_out_of_date(range, done) {
            self.refresh()?;
        }
        let workers = &self.plan.workers[range.clone()];
        let resets = self.reset_verified(workers)?;
        let writers = workers.iter().filter(|worker| worker.writes_zones());
        self.zones.recount(writers.map(|worker| worker.zones.clone()));
        self.zones.restart_countdown();
        Ok(resets)
    }

    /// Runs the workers of a round until all have ended.
    fn work(&mut self, index: usize, ready: Ready) -> Result<RoundResult, BenchError> {
        self.zones.add_runnable(ready.jobs.len() as u32);
        let round = Round {
            plan: &self.plan,
            index,
            volume: &self.volume,
            zones: &self.zones,
            has_data: self.has_data,
            series: self.series,
            host_nanos_per_io: self.host_nanos_per_io,
            interrupt: self.interrupt.as_deref(),
        };
        match &self.runner {
            TaskRunner::Real(_) => threads::run(&round, ready, &mut self.progress),
            TaskRunner::Virtual(clock) => virtual_time::run(&round, clock, ready, &mut self.progress),
        }
    }

    /// Creates the workers of a round.
    fn ready(&self, range: &Range<usize>, done: &RunTotals) -> Result<Ready, BenchError> {
        let mut jobs = Vec::new();
        let workers = &self.plan.workers[range.clone()];
        for plan in workers {
            let misfit = |error| BenchError::Plan { job: plan.spec.name.clone(), error };
            let workload = Workload::new(plan).map_err(misfit)?;
            let verified = plan.writes_verified() && plan.spec.do_verify;
            let recorder = verified.then(|| Recorder::new(plan, self.record.clone()));
            jobs.push(ReadyJob { workload, log: self.log_of(plan)?, recorder });
        }
        let watches = workers.iter().map(|_| CachePadded::default()).collect();
        Ok(Ready { watches, jobs, frame: self.series.then(|| self.frame(done)) })
    }

    /// Frame of this round's series.
    fn frame(&self, done: &RunTotals) -> Frame {
        let ranges = || self.plan.workers.iter().map(|worker| &worker.range);
        let start = ranges().map(|range| range.start).min().unwrap_or(0);
        let end = ranges().map(|range| range.end).max().unwrap_or(0);
        let before = match self.runner {
            TaskRunner::Real(_) => done.elapsed,
            // Virtual time continues across rounds.
            TaskRunner::Virtual(_) => Nanos(0),
        };
        Frame { before, sectors: Sector(start)..Sector(end) }
    }

    /// Opens the log of a worker, if its job has one.
    fn log_of(&self, worker: &WorkerPlan) -> Result<Option<IoLog>, BenchError> {
        let Some(path) = &worker.iolog else { return Ok(None) };
        let device = worker.spec.filename.as_ref().unwrap_or(&self.volume.info().name);
        let failed = |error| BenchError::Iolog { job: worker.spec.name.clone(), path: path.clone(), error };
        IoLog::create(path, device).map(Some).map_err(failed)
    }

    /// Resets the zones to be written by jobs with verification before any of them starts, because
    /// no reset may happen later.
    fn reset_verified(&self, workers: &[WorkerPlan]) -> Result<u64, BenchError> {
        let mut wanted = vec![false; self.zones.geometry().zones() as usize];
        for worker in workers.iter().filter(|w| w.writes_zones() && w.writes_verified()) {
            for zone in sequential(&worker.zones, self.volume.info()) {
                wanted[zone.0 as usize] =
                    self.zones.pointer(zone) > 0 && self.zones.can_take(zone, 0, Room::AfterReset);
            }
        }
        let mut resets = 0;
        for zone in (0..self.zones.geometry().zones()).map(ZoneIndex).filter(|z| wanted[z.0 as usize]) {
            self.zones.will_be_reset(zone);
            self.reset(zone)?;
            self.zones.was_reset(zone, true);
            resets += 1;
        }
        Ok(resets)
    }

    /// True if the device's write pointers may differ from the jobs' state: they were moved by
    /// untracked writes, or something failed. Before the first round they have just been read.
    /// Rereading them for every round would take longer than short rounds do.
    fn may_be_out_of_date(&self, range: &Range<usize>, done: &RunTotals) -> bool {
        let before = &self.plan.workers[..range.start];
        let moves_unseen = |worker: &WorkerPlan| worker.writes() && !worker.writes_zones();
        before.iter().any(moves_unseen) || done.jobs.iter().any(|job| job.failure.is_some())
    }

    /// Rereads the write pointers from the device, since jobs without `zonemode=zbd` move them
    /// untracked.
    fn refresh(&self) -> Result<(), BenchError> {
        let geometry = self.zones.geometry();
        let mut next = 0;
        while next < geometry.zones() {
            let request = Request::report(
                geometry.start_of(ZoneIndex(next)),
                REPORT_ZONES.min(geometry.zones() - next),
            );
            let zones = match self.runner.call(&self.volume, request) {
                Ok(Output::Zones(zones)) if !zones.is_empty() => zones,
                Ok(_) => return Err(self.no_zones(RequestError::Device(DeviceError::InvalidField))),
                Err(error) => return Err(self.no_zones(error)),
            };
            zones.iter().for_each(|zone| self.zones.refresh(zone));
            next += zones.len() as u32;
        }
        Ok(())
    }

    fn no_zones(&self, error: RequestError) -> BenchError {
        BenchError::Report { device: self.volume.info().name.clone(), error }
    }

    /// Resets one zone while no worker is running.
    fn reset(&self, zone: ZoneIndex) -> Result<(), BenchError> {
        let sector = self.zones.geometry().start_of(zone);
        let device = || self.volume.info().name.clone();
        let reset = self.runner.call(&self.volume, Request::zone(Op::ZoneReset, sector));
        reset.map(|_| ()).map_err(|error| BenchError::Reset { device: device(), sector, error })
    }
}
