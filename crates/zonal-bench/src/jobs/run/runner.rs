//! Whose time a run lives in: the world's, or virtual time, which its device says.

use crate::error::BenchError;
use quanta::Mock;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use zonal_core::RequestError;
use zonal_io::clock::Clock;
use zonal_io::control::Errands;
use zonal_io::device::Output;
use zonal_io::threads;
use zonal_io::volume::{Request, Volume};
use zonal_sim::executor::{Processor, Task, Timeline};

/// What runs tasks, in whose time.
pub(super) enum TaskRunner {
    /// The world's, with a thread for each worker.
    Real(Clock),
    /// What the device says, with all workers on one thread.
    Virtual(Box<VirtualClock>),
}

impl TaskRunner {
    /// The time of `volume`. A virtual one does `errands` in it.
    pub(super) fn of(volume: &Arc<Volume>, errands: &Errands) -> TaskRunner {
        match volume.device().insight().virtual_time {
            true => {
                let timeline = Timeline::new(volume.clone()).with_errands(errands);
                TaskRunner::Virtual(Box::new(VirtualClock::new(timeline)))
            }
            false => TaskRunner::Real(Clock::start()),
        }
    }

    /// Carries out one request while no worker is at work.
    pub(super) fn call(&self, volume: &Volume, request: Request) -> Result<Output, RequestError> {
        match self {
            TaskRunner::Real(clock) => volume.call(clock, request).result,
            TaskRunner::Virtual(clock) => clock.timeline.call(request),
        }
    }
}

/// The clock of a run in virtual time. It continues from round to round, because the device's does.
pub(super) struct VirtualClock {
    pub(super) timeline: Timeline,
    /// The same time, as workers read it.
    pub(super) clock: quanta::Clock,
    pub(super) hand: Arc<Mock>,
}

impl VirtualClock {
    fn new(timeline: Timeline) -> VirtualClock {
        let (clock, hand) = quanta::Clock::mock();
        VirtualClock { timeline, clock, hand }
    }

    /// Sets the workers' clock by the timeline.
    pub(super) fn follow(&self) {
        self.hand.increment(self.timeline.now().0 - self.clock.raw());
    }
}

/// Starts a thread for a job.
pub(super) fn thread<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    job: &str,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>, BenchError> {
    // Linux keeps 15 characters of a name.
    let builder = Builder::new().name(job.chars().take(15).collect());
    let spawned = builder.spawn_scoped(scope, work).map_err(threads::refused);
    spawned.map_err(|error| BenchError::Thread { job: job.to_owned(), error })
}

/// Makes a task of the executor for a job.
pub(super) fn fibre<C: 'static, R: 'static>(
    job: &str,
    work: impl FnOnce(&Processor<'_, C>) -> R + 'static,
) -> Result<Task<C, R>, BenchError> {
    Task::new(job, work).map_err(|error| BenchError::Thread { job: job.to_owned(), error })
}
