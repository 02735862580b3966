//! Workers in real time, one thread each.

use super::gate::{Gate, RoundStart};
use super::measure::Watch;
use super::round::{Ready, Round, RoundResult};
use super::runner::thread;
use super::watcher::{Watcher, WorkerSamples};
use super::worker::{Environment, Real, Worker};
use crate::error::BenchError;
use crate::jobs::run::progress::{PROGRESS_EVERY, Progress};
use quanta::Clock;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::{Duration, Instant};
use zonal_io::sync::{CachePadded, Mutex};

/// Runs the workers of a round until all have ended.
pub(super) fn run(
    round: &Round<'_>,
    ready: Ready,
    progress: &mut Progress,
) -> Result<RoundResult, BenchError> {
    let Ready { watches, jobs, frame } = ready;
    let (clock, gate) = (Clock::new(), Gate::default());
    let environment = Environment {
        volume: round.volume,
        zones: round.zones,
        epoch: clock.raw(),
        clock: &clock,
        has_data: round.has_data,
        frame,
    };
    let results = Mutex::new(Vec::new());
    let samples = std::thread::scope(|scope| {
        let watcher = std::thread::current();
        for ((plan, watch), job) in round.workers().iter().zip(watches.iter()).zip(jobs) {
            let (environment, results, watcher, gate) = (&environment, &results, watcher.clone(), &gate);
            let work = move || {
                let _over = WorkerEnd { watch, watcher };
                let worker =
                    Worker::new(Real::default(), environment, plan, watch, job.workload, job.recorder);
                let worker = worker.with_log(job.log);
                if gate.enter() == RoundStart::Closed {
                    return;
                }
                let result = worker.run();
                let fails_all = result.0.failure.is_some() && plan.spec.exitall_on_error;
                watch.ends_all.store(fails_all, Ordering::Release);
                results.lock().push((plan.number, result));
            };
            thread(scope, &plan.spec.name, work).inspect_err(|_| gate.open(RoundStart::Closed))?;
        }
        gate.wait_for(round.workers().len());
        gate.open(RoundStart::Open);
        Ok::<_, BenchError>(watch(round, &watches, progress))
    })?;
    Ok(RoundResult { results: results.into_inner(), samples, head: None })
}

/// Samples rates, shows progress and stops workers at the end of their runtime, until all have
/// ended.
fn watch(round: &Round<'_>, watches: &[CachePadded<Watch>], progress: &mut Progress) -> Vec<WorkerSamples> {
    let begin = Instant::now();
    let mut watcher = Watcher::new(round.index, round.workers(), watches, round.interrupt);
    let mut next_progress = PROGRESS_EVERY;
    while !watcher.all_are_over() {
        let elapsed = begin.elapsed();
        let next_stop = watcher.stop(elapsed);
        watcher.sample(elapsed);
        let mut next = watcher.next_sample().min(next_stop.unwrap_or(Duration::MAX));
        if progress.is_shown() {
            if elapsed >= next_progress {
                watcher.show(progress, elapsed);
                next_progress = elapsed + PROGRESS_EVERY;
            }
            next = next.min(next_progress);
        }
        std::thread::park_timeout(next.saturating_sub(elapsed));
    }
    watcher.into_samples()
}

/// Notifies the watcher when a worker ends in any way: it must not wait for a worker that panicked.
struct WorkerEnd<'a> {
    watch: &'a Watch,
    watcher: Thread,
}

impl Drop for WorkerEnd<'_> {
    fn drop(&mut self) {
        self.watch.is_over.store(true, Ordering::Release);
        self.watcher.unpark();
    }
}
