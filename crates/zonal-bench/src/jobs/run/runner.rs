//! Time base of a run: real time, or virtual time defined by its device.

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

/// Runner of tasks in a time base.
pub(super) enum TaskRunner {
    /// Real time, with a thread per worker.
    Real(Clock),
    /// Virtual time of the device, with all workers on one thread.
    Virtual(Box<VirtualClock>),
}

impl TaskRunner {
    /// Chooses the time base of `volume`. In virtual time the runner also carries out `errands`.
    pub(super) fn of(volume: &Arc<Volume>, errands: &Errands) -> TaskRunner {
        match volume.device().insight().virtual_time {
            true => {
                let timeline = Timeline::new(volume.clone()).with_errands(errands);
                TaskRunner::Virtual(Box::new(VirtualClock::new(timeline)))
            }
            false => TaskRunner::Real(Clock::start()),
        }
    }

    /// Executes one request while no worker is running.
    pub(super) fn call(&self, volume: &Volume, request: Request) -> Result<Output, RequestError> {
        match self {
            TaskRunner::Real(clock) => volume.call(clock, request).result,
            TaskRunner::Virtual(clock) => clock.timeline.call(request),
        }
    }
}

/// Clock of a run in virtual time. Like the device's, it continues across rounds.
pub(super) struct VirtualClock {
    pub(super) timeline: Timeline,
    /// Clock with this time for the workers.
    pub(super) clock: quanta::Clock,
    pub(super) hand: Arc<Mock>,
}

impl VirtualClock {
    fn new(timeline: Timeline) -> VirtualClock {
        let (clock, hand) = quanta::Clock::mock();
        VirtualClock { timeline, clock, hand }
    }

    /// Advances the workers' clock to the timeline's time.
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
    // Linux truncates names to 15 characters.
    let builder = Builder::new().name(job.chars().take(15).collect());
    let spawned = builder.spawn_scoped(scope, work).map_err(threads::refused);
    spawned.map_err(|error| BenchError::Thread { job: job.to_owned(), error })
}

/// Creates a task of the executor for a job.
pub(super) fn fibre<C: 'static, R: 'static>(
    job: &str,
    work: impl FnOnce(&Processor<'_, C>) -> R + 'static,
) -> Result<Task<C, R>, BenchError> {
    Task::new(job, work).map_err(|error| BenchError::Thread { job: job.to_owned(), error })
}
