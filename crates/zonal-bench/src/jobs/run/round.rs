//! One round: workers that run at the same time, what comes before them and what they leave.

use super::Done;
use super::measure::Watch;
use super::threads::{self, Ran};
use super::virtual_time::{self, VirtualClock};
use super::worker::IoLog;
use crate::error::BenchError;
use crate::jobs::plan::{Plan, WorkerPlan, sequential};
use crate::jobs::run::progress::Progress;
use crate::jobs::verify::{Record, Recorder};
use crate::jobs::workload::zones::Room;
use crate::jobs::workload::{Workload, Zones};
use crate::measure::series::Frame;
use crate::report::JobReport;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use zonal_core::{DeviceError, Nanos, Op, RequestError, Sector, ZoneIndex};
use zonal_io::clock::Clock;
use zonal_io::control::Errands;
use zonal_io::device::Output;
use zonal_io::sync::CachePadded;
use zonal_io::volume::{Request, Volume};
use zonal_sim::executor::Timeline;

/// Zones asked for in one report.
const REPORT_ZONES: u32 = 1 << 16;

/// What follows a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    GoOn,
    /// A job failed that ends all.
    EndAll,
    /// The caller's interrupt flag ends the run.
    Interrupted,
}

/// One round of a plan.
pub(super) struct Round<'a> {
    pub(super) plan: &'a Plan,
    pub(super) index: usize,
    pub(super) volume: &'a Arc<Volume>,
    pub(super) zones: &'a Arc<Zones>,
    pub(super) has_data: bool,
    pub(super) record: &'a Arc<Record>,
    /// Whether it keeps series.
    pub(super) series: bool,
    pub(super) clockwork: &'a Clockwork,
    /// What a request costs its worker in virtual time.
    pub(super) host_nanos_per_io: u64,
    /// The caller's flag: once it is set, the run ends.
    pub(super) interrupt: Option<&'a AtomicBool>,
}

/// Where a run takes its time from.
pub(super) enum Clockwork {
    /// The world, with a thread for each worker.
    Real,
    /// What happens on the device.
    Virtual(Box<VirtualClock>),
}

impl Clockwork {
    /// The time of `volume`. One in virtual time does `errands` in it.
    pub(super) fn of(volume: &Arc<Volume>, errands: &Errands) -> Clockwork {
        match volume.info().virtual_time {
            true => {
                let timeline = Timeline::new(volume.clone()).with_errands(errands);
                Clockwork::Virtual(Box::new(VirtualClock::new(timeline)))
            }
            false => Clockwork::Real,
        }
    }
}

/// The workers of a round that have not begun.
pub(super) struct Ready {
    pub(super) watches: Arc<[CachePadded<Watch>]>,
    pub(super) jobs: Vec<ReadyJob>,
    /// Where their series lie, if they keep any.
    pub(super) frame: Option<Frame>,
}

/// What a worker begins with, apart from its plan.
pub(super) struct ReadyJob {
    pub(super) workload: Workload,
    pub(super) log: Option<IoLog>,
    pub(super) recorder: Option<Recorder>,
}

impl Round<'_> {
    fn range(&self) -> Range<usize> {
        self.plan.rounds[self.index].clone()
    }

    pub(super) fn workers(&self) -> &[WorkerPlan] {
        &self.plan.workers[self.range()]
    }

    pub(super) fn run(self, done: &mut Done, progress: &mut Progress) -> Result<Outcome, BenchError> {
        if self.may_be_behind(done) {
            self.refresh()?;
        }
        let resets = self.reset_verified()?;
        let writers = self.workers().iter().filter(|worker| worker.writes_zones());
        self.zones.recount(writers.map(|worker| worker.zones.clone()));
        self.zones.restart_countdown();
        let ready = self.ready(done)?;
        let watches = ready.watches.clone();
        self.zones.moving_more(self.workers().len() as u32);
        let begin = Instant::now();
        let Ran { mut results, samples, head } = match self.clockwork {
            Clockwork::Real => threads::run(&self, ready, progress)?,
            Clockwork::Virtual(clock) => virtual_time::run(&self, clock, ready, progress)?,
        };
        done.elapsed.0 += begin.elapsed().as_nanos() as u64;
        if let Some(head) = head {
            match &mut done.head {
                Some(before) => before.add(&head),
                None => done.head = Some(head),
            }
        }
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
        let is_interrupted = self.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed));
        Ok(match ends_all {
            _ if is_interrupted => Outcome::Interrupted,
            true => Outcome::EndAll,
            false => Outcome::GoOn,
        })
    }

    /// The workers as they begin.
    fn ready(&self, done: &Done) -> Result<Ready, BenchError> {
        let mut jobs = Vec::new();
        for plan in self.workers() {
            let misfit = |error| BenchError::Plan { job: plan.spec.name.clone(), error };
            let workload = Workload::new(plan).map_err(misfit)?;
            let verified = plan.writes_verified() && plan.spec.do_verify;
            let recorder = verified.then(|| Recorder::new(plan, self.record.clone()));
            jobs.push(ReadyJob { workload, log: self.log_of(plan)?, recorder });
        }
        let watches = self.workers().iter().map(|_| CachePadded::default()).collect();
        Ok(Ready { watches, jobs, frame: self.series.then(|| self.frame(done)) })
    }

    /// Where series of this round lie.
    fn frame(&self, done: &Done) -> Frame {
        let ranges = || self.plan.workers.iter().map(|worker| &worker.range);
        let start = ranges().map(|range| range.start).min().unwrap_or(0);
        let end = ranges().map(|range| range.end).max().unwrap_or(0);
        let before = match self.clockwork {
            Clockwork::Real => done.elapsed,
            // This clock continues from round to round.
            Clockwork::Virtual(_) => Nanos(0),
        };
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

    /// Whether the device's pointers may be elsewhere than the jobs before have left them: they were moved unseen, or
    /// something failed. Before the first round they have just been read. To read them again for each round of many
    /// takes longer than short rounds do.
    fn may_be_behind(&self, done: &Done) -> bool {
        let before = &self.plan.workers[..self.range().start];
        let moves_unseen = |worker: &WorkerPlan| worker.writes() && !worker.writes_zones();
        before.iter().any(moves_unseen) || done.jobs.iter().any(|job| job.failure.is_some())
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

    /// Resets one zone while no worker is at work.
    fn reset(&self, zone: ZoneIndex) -> Result<(), BenchError> {
        let sector = self.zones.geometry().start_of(zone);
        let device = || self.volume.info().name.clone();
        let reset = self.carry_out(Request::zone(Op::ZoneReset, sector));
        reset.map(|_| ()).map_err(|error| BenchError::Reset { device: device(), sector, error })
    }

    /// Carries out one request while no worker is at work.
    fn carry_out(&self, request: Request) -> Result<Output, RequestError> {
        match self.clockwork {
            Clockwork::Real => self.volume.call(&Clock::start(), request).result,
            Clockwork::Virtual(clock) => clock.timeline.call(request),
        }
    }
}
