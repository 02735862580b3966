//! One round: workers that run at the same time, and whoever watches them.

use super::Done;
use super::gate::{Entry, Gate};
use super::iolog::IoLog;
use super::measure::Watch;
use super::samples::Samples;
use super::worker::{Environment, Worker};
use crate::error::BenchError;
use crate::plan::{Plan, WorkerPlan, sequential};
use crate::progress::Progress;
use crate::report::JobReport;
use crate::series::Frame;
use crate::verify::{Record, Recorder};
use crate::workload::zones::Room;
use crate::workload::{Dir, Workload, Zones};
use quanta::Clock;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Nanos, Op, RequestError, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_io::device::Output;
use zonal_io::sync::{CachePadded, Mutex};
use zonal_io::volume::{Request, Volume};

/// Time between two samples of bandwidth and rate, fio's default.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Zones asked for in one report.
const REPORT_ZONES: u32 = 1 << 16;

/// Time between two updates of the progress line.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What follows a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    GoOn,
    /// A job failed that ends all.
    EndAll,
}

/// One round of a plan.
pub(super) struct Round<'a> {
    pub(super) plan: &'a Plan,
    pub(super) index: usize,
    pub(super) volume: &'a Volume,
    pub(super) zones: &'a Zones,
    pub(super) has_data: bool,
    pub(super) record: &'a Arc<Record>,
    /// Whether it keeps series.
    pub(super) series: bool,
}

/// Bandwidth and rate of both directions of a worker.
type WorkerSamples = [(Samples, Samples); 2];

impl Round<'_> {
    fn range(&self) -> Range<usize> {
        self.plan.rounds[self.index].clone()
    }

    fn workers(&self) -> &[WorkerPlan] {
        &self.plan.workers[self.range()]
    }

    pub(super) fn run(self, done: &mut Done, progress: &mut Progress) -> Result<Outcome, BenchError> {
        self.refresh()?;
        let resets = self.reset_verified()?;
        let writers = self.workers().iter().filter(|worker| worker.writes_zones());
        self.zones.recount(writers.map(|worker| worker.zones.clone()));
        self.zones.restart_countdown();
        let clock = Clock::new();
        let gate = Gate::default();
        let watches: Vec<CachePadded<Watch>> =
            self.workers().iter().map(|_| CachePadded::default()).collect();
        let environment = Environment {
            volume: self.volume,
            zones: self.zones,
            epoch: clock.raw(),
            clock: &clock,
            has_data: self.has_data,
            gate: &gate,
            frame: self.series.then(|| self.frame(done.elapsed)),
        };
        let mut workloads = Vec::new();
        for worker in self.workers() {
            let misfit = |error| BenchError::Plan { job: worker.spec.name.clone(), error };
            workloads.push((Workload::new(worker).map_err(misfit)?, self.log_of(worker)?));
        }
        let results = Mutex::new(Vec::new());
        self.zones.moving_more(self.workers().len() as u32);
        let samples = std::thread::scope(|scope| {
            let watcher = std::thread::current();
            for ((plan, watch), (workload, log)) in self.workers().iter().zip(&watches).zip(workloads) {
                let (environment, results, watcher) = (&environment, &results, watcher.clone());
                let verified = plan.writes_verified() && plan.spec.do_verify;
                let recorder = verified.then(|| Recorder::new(plan, self.record.clone()));
                let work = move || {
                    let _over = Over { watch, watcher };
                    let worker = Worker::new(environment, plan, watch, workload, recorder).with_log(log);
                    if let Some(result) = worker.run() {
                        let fails_all = result.0.failure.is_some() && plan.spec.exitall_on_error;
                        watch.ends_all.store(fails_all, Ordering::Release);
                        results.lock().push((plan.number, result));
                    }
                };
                let builder = std::thread::Builder::new().name(plan.spec.name.chars().take(15).collect());
                if let Err(error) = builder.spawn_scoped(scope, work) {
                    gate.open(Entry::Closed);
                    return Err(BenchError::Thread { job: plan.spec.name.clone(), error });
                }
            }
            gate.wait_for(self.workers().len());
            gate.open(Entry::Open);
            Ok(self.watch(&watches, progress))
        })?;
        done.elapsed.0 += clock.delta_as_nanos(environment.epoch, clock.raw());
        let mut results = results.into_inner();
        results.sort_by_key(|(number, _)| *number);
        for ((number, (mut report, recorder)), samples) in results.into_iter().zip(samples) {
            for (dir, (bandwidth, rate)) in report.dirs.iter_mut().zip(samples) {
                (dir.bandwidth, dir.rate) = (bandwidth, rate);
            }
            if number == self.range().start {
                report.resets += resets;
            }
            done.recorders.extend(recorder);
            self.add_report(report, done);
        }
        let ends_all = watches.iter().any(|watch| watch.ends_all.load(Ordering::Acquire));
        Ok(if ends_all { Outcome::EndAll } else { Outcome::GoOn })
    }

    /// Where series of this round lie, when the rounds `before` took that long.
    fn frame(&self, before: Nanos) -> Frame {
        let ranges = || self.plan.workers.iter().map(|worker| &worker.range);
        let start = ranges().map(|range| range.start).min().unwrap_or(0);
        let end = ranges().map(|range| range.end).max().unwrap_or(0);
        Frame { before, sectors: Sector(start)..Sector(end) }
    }

    /// The log that a worker's job asks for.
    fn log_of(&self, worker: &WorkerPlan) -> Result<Option<IoLog>, BenchError> {
        let Some(path) = &worker.iolog else { return Ok(None) };
        let device = worker.spec.filename.as_ref().unwrap_or(&self.volume.info().name);
        let failed = |error| BenchError::Iolog { job: worker.spec.name.clone(), path: path.clone(), error };
        IoLog::create(path, device).map(Some).map_err(failed)
    }

    /// Adds a worker's report to the last one if they are reported together.
    fn add_report(&self, report: JobReport, done: &mut Done) {
        match done.jobs.last_mut() {
            Some(last) if report.spec.group_reporting && last.group == report.group => last.add(&report),
            _ => done.jobs.push(report),
        }
    }

    /// Resets what jobs with verification will write, before any of them begins: no reset may come in between.
    fn reset_verified(&self) -> Result<u64, BenchError> {
        let mut wanted = vec![false; self.zones.geometry().zones() as usize];
        for worker in self.workers().iter().filter(|w| w.writes_zones() && w.writes_verified()) {
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

    /// Brings the pointers in line with the device: jobs without `zonemode=zbd` move them unseen.
    fn refresh(&self) -> Result<(), BenchError> {
        let geometry = self.zones.geometry();
        let mut next = 0;
        while next < geometry.zones() {
            let request = Request::report(
                geometry.start_of(ZoneIndex(next)),
                REPORT_ZONES.min(geometry.zones() - next),
            );
            let zones = match self.carry_out(request) {
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

    /// Resets one zone while nobody else is at work.
    fn reset(&self, zone: ZoneIndex) -> Result<(), BenchError> {
        let sector = self.zones.geometry().start_of(zone);
        let device = || self.volume.info().name.clone();
        let reset = self.carry_out(Request::zone(Op::ZoneReset, sector));
        reset.map(|_| ()).map_err(|error| BenchError::Reset { device: device(), sector, error })
    }

    /// Carries out one request while nobody else is at work.
    fn carry_out(&self, request: Request) -> Result<Output, RequestError> {
        let answer = Arc::new(Mutex::new(None));
        let left = answer.clone();
        let channel = self.volume.channel(move |completion| *left.lock() = Some(completion.result));
        let begin = Instant::now();
        let now = || Nanos(begin.elapsed().as_nanos() as u64);
        self.volume.submit(now(), &channel, request);
        loop {
            if let Some(result) = answer.lock().take() {
                return result;
            }
            if self.volume.poll(now()).is_none() {
                self.volume.wait(Duration::from_millis(1));
            }
        }
    }

    /// Samples rates, shows progress and stops who has run for its time, until all are over.
    fn watch(&self, watches: &[CachePadded<Watch>], progress: &mut Progress) -> Vec<WorkerSamples> {
        let begin = Instant::now();
        let mut samples: Vec<Sampler> = watches.iter().map(|_| Sampler::default()).collect();
        let mut next_sample = SAMPLE_EVERY;
        let mut next_progress = PROGRESS_EVERY;
        loop {
            let elapsed = begin.elapsed();
            if watches.iter().all(|watch| watch.is_over.load(Ordering::Acquire)) {
                return samples.into_iter().map(|sampler| sampler.samples).collect();
            }
            if watches.iter().any(|watch| watch.ends_all.load(Ordering::Acquire)) {
                watches.iter().for_each(|watch| watch.stop.store(true, Ordering::Release));
            }
            let mut next_stop = Duration::MAX;
            for (worker, watch) in self.workers().iter().zip(watches) {
                match worker.spec.runtime.map(|runtime| runtime + worker.spec.pace.ramp_time) {
                    Some(runtime) if runtime <= elapsed => watch.stop.store(true, Ordering::Release),
                    Some(runtime) => next_stop = next_stop.min(runtime),
                    None => {}
                }
            }
            if elapsed >= next_sample {
                for ((sampler, watch), worker) in samples.iter_mut().zip(watches).zip(self.workers()) {
                    if elapsed < worker.spec.pace.ramp_time {
                        *sampler = Sampler { at: elapsed, ..Sampler::default() };
                    } else if !watch.is_over.load(Ordering::Acquire) {
                        sampler.sample(watch, elapsed);
                    }
                }
                next_sample = elapsed + SAMPLE_EVERY;
            }
            if progress.is_shown() && elapsed >= next_progress {
                progress.update(self.index, self.workers(), watches, elapsed);
                next_progress = elapsed + PROGRESS_EVERY;
            }
            let mut next = next_sample.min(next_stop);
            if progress.is_shown() {
                next = next.min(next_progress);
            }
            std::thread::park_timeout(next.saturating_sub(elapsed));
        }
    }
}

/// Tells the watcher that a worker is over, however it ends: one that panicked must not be waited for.
struct Over<'a> {
    watch: &'a Watch,
    watcher: Thread,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.watch.is_over.store(true, Ordering::Release);
        self.watcher.unpark();
    }
}

/// Samples of one worker, and where the last was taken.
#[derive(Default)]
struct Sampler {
    at: Duration,
    seen: [(u64, u64); 2],
    samples: WorkerSamples,
}

impl Sampler {
    fn sample(&mut self, watch: &Watch, now: Duration) {
        let seconds = (now - self.at).as_secs_f64();
        self.at = now;
        for dir in [Dir::Read, Dir::Write] {
            let (ios, sectors) = (watch.ios(dir), watch.sectors(dir));
            let (ios_before, sectors_before) =
                std::mem::replace(&mut self.seen[dir as usize], (ios, sectors));
            if ios > 0 {
                let (bandwidth, rate) = &mut self.samples[dir as usize];
                // A worker may be late to begin counting after its ramp.
                let kib = sectors.saturating_sub(sectors_before) as f64 * SECTOR_BYTES as f64 / 1024.0;
                bandwidth.record(kib / seconds);
                rate.record(ios.saturating_sub(ios_before) as f64 / seconds);
            }
        }
    }
}
