//! Watcher of the workers of a round: samples their rates and stops them at the end of their
//! runtime. Owns no clock.

use super::measure::Watch;
use crate::jobs::plan::WorkerPlan;
use crate::jobs::run::progress::Progress;
use crate::jobs::workload::Dir;
use crate::measure::Samples;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zonal_core::SECTOR_BYTES;
use zonal_io::sync::CachePadded;

/// Interval between samples of bandwidth and IOPS, as in fio.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Bandwidth and IOPS of both directions of a worker.
pub(super) type WorkerSamples = [(Samples, Samples); 2];

/// Watcher of a round.
pub(super) struct Watcher<'a> {
    round: usize,
    workers: &'a [WorkerPlan],
    watches: &'a [CachePadded<Watch>],
    /// Flag of the caller that ends the run.
    interrupt: Option<&'a AtomicBool>,
    samplers: Vec<Sampler>,
    next_sample: Duration,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        round: usize,
        workers: &'a [WorkerPlan],
        watches: &'a [CachePadded<Watch>],
        interrupt: Option<&'a AtomicBool>,
    ) -> Watcher<'a> {
        let samplers = watches.iter().map(|_| Sampler::default()).collect();
        Watcher { round, workers, watches, interrupt, samplers, next_sample: SAMPLE_EVERY }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }

    pub(super) fn all_are_over(&self) -> bool {
        self.watches.iter().all(|watch| watch.is_over.load(Ordering::Acquire))
    }

    /// Records that a worker ended, and whether its failure ends all others.
    pub(super) fn worker_ended(&self, worker: usize, fails_all: bool) {
        self.watches[worker].ends_all.store(fails_all, Ordering::Release);
        self.watches[worker].is_over.store(true, Ordering::Release);
    }

    pub(super) fn stop_all(&self) {
        self.watches.iter().for_each(|watch| watch.stop.store(true, Ordering::Release));
    }

    /// Stops the workers at the end of their runtime. Stops all if a job failed that ends the
    /// others, or if the run is interrupted. Returns the time of the next end of a runtime.
    pub(super) fn stop(&self, elapsed: Duration) -> Option<Duration> {
        if self.is_interrupted() || self.watches.iter().any(|watch| watch.ends_all.load(Ordering::Acquire)) {
            self.stop_all();
        }
        let mut next = None;
        for (worker, watch) in self.workers.iter().zip(self.watches) {
            let Some(runtime) = worker.spec.runtime else { continue };
            let end = runtime.saturating_add(worker.spec.pace.ramp_time);
            if end <= elapsed {
                watch.stop.store(true, Ordering::Release);
            } else if !watch.is_over.load(Ordering::Acquire) {
                next = Some(next.map_or(end, |next: Duration| next.min(end)));
            }
        }
        next
    }

    pub(super) fn next_sample(&self) -> Duration {
        self.next_sample
    }

    /// Samples each worker, if a sample is due.
    pub(super) fn sample(&mut self, elapsed: Duration) {
        if elapsed < self.next_sample {
            return;
        }
        for ((sampler, watch), worker) in self.samplers.iter_mut().zip(self.watches).zip(self.workers) {
            // A worker whose ramp ends at this moment starts counting after it.
            if elapsed <= worker.spec.pace.ramp_time {
                *sampler = Sampler { at: elapsed, ..Sampler::default() };
            } else if !watch.is_over.load(Ordering::Acquire) {
                sampler.sample(watch, elapsed);
            }
        }
        self.next_sample = elapsed + SAMPLE_EVERY;
    }

    pub(super) fn show(&self, progress: &mut Progress, elapsed: Duration) {
        progress.update(self.round, self.workers, self.watches, elapsed);
    }

    pub(super) fn into_samples(self) -> Vec<WorkerSamples> {
        self.samplers.into_iter().map(|sampler| sampler.samples).collect()
    }
}

/// Samples of one worker, with the time and counters of the last one.
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
                // A worker may restart its counters late after the ramp.
                let kib = sectors.saturating_sub(sectors_before) as f64 * SECTOR_BYTES as f64 / 1024.0;
                bandwidth.record(kib / seconds);
                rate.record(ios.saturating_sub(ios_before) as f64 / seconds);
            }
        }
    }
}
