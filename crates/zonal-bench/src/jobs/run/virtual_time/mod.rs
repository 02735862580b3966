//! Workers in virtual time: all on one thread, on a device that derives its time from the times of
//! its requests.
//!
//! Each worker is a task of the executor, with the same [`Worker`] as in real time. Instead of
//! polling and sleeping it yields to the [`executor`](zonal_sim::executor), which resumes the tasks
//! that can run and otherwise advances the clock. Nothing depends on the speed of the machine or on
//! threads: the same jobs on the same device give the same results, to the nanosecond and to the
//! byte of the report.
//!
//! # Costs
//! Only the device, pauses and rates take time. A worker takes no time to create a request, unless
//! `BenchOptions::host_nanos_per_io` says otherwise. With that, a worker is a processor that does
//! one thing at a time: each request reaches the write path that much after its creation, and at
//! least that much after the previous one.

mod host;
mod mail;

use super::inbox::Places;
use super::round::{Ready, Round, RoundResult, WorkerResult};
use super::runner::{VirtualClock, fibre};
use super::watcher::Watcher;
use super::worker::{Awaited, Environment, Time, Worker};
use crate::error::BenchError;
use crate::jobs::run::progress::Progress;
use crate::jobs::workload::Awaits;
use crate::measure::Usage;
use host::RoundHost;
use mail::{Letters, Post};
use quanta::Clock;
use std::rc::Rc;
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;
use zonal_sim::executor::{Executor, Pause, Processor, Signals};

/// Number of a worker's requests that may complete at one instant before others get their turn.
const TURN_REQUESTS: u32 = 1 << 16;

/// State shared by the workers of a round.
struct Common {
    signals: Signals,
    post: Arc<Post>,
    /// Nanoseconds that a worker takes to create a request.
    host_nanos: u64,
}

/// Virtual time as seen by a worker.
struct Virtual<'a> {
    processor: &'a Processor<'a, Awaits>,
    common: Rc<Common>,
    /// Index of the worker in its round.
    number: usize,
    /// Requests left until others get their turn.
    left: u32,
}

impl Virtual<'_> {
    fn pause(worker: &mut Worker<'_, Self>, pause: Pause<Awaits>) {
        worker.time.processor.leave(pause);
        worker.read_clock();
    }
}

impl Time for Virtual<'_> {
    type Inbox = Letters;

    const MAKES_BUFFERS_LATE: bool = true;

    fn inbox(&self, clock: Option<Clock>, places: Places, buffers: Vec<IoBuf>) -> Letters {
        Letters::new(self.common.clone(), self.number, clock, places, buffers)
    }

    /// Processor time is not part of virtual time.
    fn usage() -> Usage {
        Usage::default()
    }

    #[inline]
    fn issue_time(worker: &mut Worker<'_, Self>, now: Nanos) -> Nanos {
        worker.time.left -= 1;
        if worker.time.left > 0 && worker.time.common.host_nanos == 0 {
            return now;
        }
        let made = worker.last;
        if worker.time.left == 0 {
            worker.time.left = TURN_REQUESTS;
            Self::pause(worker, Pause::Turn);
        }
        // Others may wait for the lock that it has taken.
        worker.time.common.signals.events.increment();
        let until = Nanos(now.0.saturating_add(worker.time.common.host_nanos));
        while worker.now < until {
            Self::pause(worker, Pause::Until(until));
        }
        worker.last = made;
        worker.now
    }

    fn wait(worker: &mut Worker<'_, Self>, awaited: Awaited) {
        if worker.reap() == 0 {
            let pause = match awaited {
                Awaited::Ending => Pause::Answer,
                Awaited::Or(awaits) => Pause::Or(awaits),
            };
            Self::pause(worker, pause);
            worker.reap();
        }
    }

    fn rest(worker: &mut Worker<'_, Self>, time: Nanos) {
        if worker.reap() == 0 {
            Self::pause(worker, Pause::Until(time));
            worker.reap();
        }
    }

    fn spin(worker: &mut Worker<'_, Self>, time: Nanos) {
        Self::pause(worker, Pause::Until(time));
    }
}

/// Runs the workers of a round until all have ended.
pub(super) fn run(
    round: &Round<'_>,
    clock: &VirtualClock,
    ready: Ready,
    progress: &mut Progress,
) -> Result<RoundResult, BenchError> {
    let Ready { watches, jobs, frame } = ready;
    clock.follow();
    let common = Rc::new(Common {
        signals: Signals::new(jobs.len()),
        post: Arc::new(Post::new(jobs.len())),
        host_nanos: round.host_nanos_per_io,
    });
    let mut tasks = Vec::new();
    for (number, job) in jobs.into_iter().enumerate() {
        let plan = round.workers()[number].clone();
        let (volume, zones, watches) = (round.volume.clone(), round.zones.clone(), watches.clone());
        let (common, clock, has_data) = (common.clone(), clock.clock.clone(), round.has_data);
        let frame = frame.clone();
        let work = move |processor: &Processor<'_, Awaits>| -> WorkerResult {
            let environment =
                Environment { volume: &volume, zones: &zones, clock: &clock, epoch: 0, has_data, frame };
            let time = Virtual { processor, common, number, left: TURN_REQUESTS };
            let watch = &watches[number];
            let worker = Worker::new(time, &environment, &plan, watch, job.workload, job.recorder);
            worker.with_log(job.log).run()
        };
        tasks.push(fibre(&round.workers()[number].spec.name, work)?);
    }
    let watcher = Watcher::new(round.index, round.workers(), &watches, round.interrupt);
    let mut host = RoundHost::new(round, clock, watcher, progress);
    Executor::new(&clock.timeline, tasks, common.signals.clone(), &mut host).run()?;
    Ok(host.finish())
}
