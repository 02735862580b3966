//! Counters and latencies of a worker.

use crate::job::JobSpec;
use crate::jobs::plan::WorkerPlan;
use crate::jobs::workload::{Dir, Io};
use crate::measure::Latency;
use crate::measure::series::{Frame, JobSeries, Sample, SeriesRecorder};
use crate::report::{Depths, DirReport};
use quanta::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{Nanos, Sector};

/// State shared by a worker and its watcher, which monitors and stops it. Only the worker writes
/// the counters.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    pub(super) stop: AtomicBool,
    pub(super) is_over: AtomicBool,
    /// The job failed, and all others end with it.
    pub(super) ends_all: AtomicBool,
    /// Successful reads and writes.
    ios: [AtomicU64; 2],
    /// Their sectors.
    sectors: [AtomicU64; 2],
}

impl Watch {
    #[inline]
    pub(super) fn count(&self, dir: Dir, sectors: u32) {
        let add = |counter: &AtomicU64, n: u64| {
            // There is a single writer, so nothing is lost between load and store.
            counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        };
        add(&self.ios[dir as usize], 1);
        add(&self.sectors[dir as usize], u64::from(sectors));
    }

    /// Resets the counters to zero.
    pub(super) fn restart(&self) {
        self.ios.iter().chain(&self.sectors).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    pub(crate) fn ios(&self, dir: Dir) -> u64 {
        self.ios[dir as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn sectors(&self, dir: Dir) -> u64 {
        self.sectors[dir as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Requested latencies of one direction.
#[derive(Default)]
struct Times {
    slat: Option<Box<Latency>>,
    clat: Option<Box<Latency>>,
    lat: Option<Box<Latency>>,
    /// Completion and total latency of requests answered inside submit, where they are equal, if
    /// both are requested.
    both: Option<Box<Latency>>,
}

impl Times {
    /// Creates the histograms of a direction; none if the job does not use it.
    fn new(spec: &JobSpec, is_used: bool) -> Times {
        let wanted = |is_wanted: bool| (is_wanted && is_used).then(Box::<Latency>::default);
        Times {
            slat: wanted(spec.measures_slat()),
            clat: wanted(spec.measures_clat()),
            lat: wanted(spec.measures_lat()),
            both: wanted(spec.measures_clat() && spec.measures_lat()),
        }
    }
}

/// Times in raw clock units at which a request was created and was accepted by the write path.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stamps {
    pub(super) made: u64,
    pub(super) submitted: u64,
}

/// Measurements of a worker.
pub(super) struct Measure {
    clock: Clock,
    /// Clock reading that counts as time zero.
    epoch: u64,
    /// True if any latency is measured.
    pub(super) is_timed: bool,
    /// Series, if requested. They need times, too.
    series: Option<Box<SeriesRecorder>>,
    times: [Times; 2],
    pub(super) flush: Option<Box<Latency>>,
    pub(super) flushes: u64,
    pub(super) depths: Depths,
}

impl Measure {
    /// Creates the measurements. `epoch` is the clock reading from which series count, `frame`
    /// their position if requested.
    pub(super) fn new(plan: &WorkerPlan, clock: Clock, epoch: u64, frame: Option<&Frame>) -> Measure {
        let spec = &plan.spec;
        let is_timed = spec.measures_lat() || spec.measures_clat() || spec.measures_slat();
        Measure {
            clock,
            epoch,
            is_timed: is_timed || frame.is_some(),
            series: frame.map(|frame| Box::new(SeriesRecorder::new(frame))),
            times: [
                Times::new(spec, plan.reads() || plan.writes_verified()),
                Times::new(spec, plan.writes()),
            ],
            flush: None,
            flushes: 0,
            depths: [0; 7],
        }
    }

    /// Counts a request issued as one of `in_flight`.
    #[inline]
    pub(super) fn depth(&mut self, in_flight: u32) {
        let bucket = in_flight.max(1).ilog2().min(6);
        self.depths[bucket as usize] += 1;
    }

    /// Records the submission of a request that has not completed yet.
    #[inline]
    pub(super) fn submitted(&mut self, dir: Dir, stamps: &Stamps) {
        if let Some(slat) = &mut self.times[dir as usize].slat {
            slat.record(self.clock.delta_as_nanos(stamps.made, stamps.submitted));
        }
    }

    /// Records a successful request.
    #[inline]
    pub(super) fn ended(&mut self, dir: Dir, stamps: &Stamps, at: u64) {
        let times = &mut self.times[dir as usize];
        if stamps.submitted == 0
            && let Some(both) = &mut times.both
        {
            return both.record(self.clock.delta_as_nanos(stamps.made, at.max(stamps.made)));
        }
        if let Some(clat) = &mut times.clat {
            // For requests answered inside submit, completion latency counts from creation.
            let from = if stamps.submitted == 0 { stamps.made } else { stamps.submitted };
            clat.record(self.clock.delta_as_nanos(from, at.max(from)));
        }
        if let Some(lat) = &mut times.lat {
            lat.record(self.clock.delta_as_nanos(stamps.made, at.max(stamps.made)));
        }
    }

    /// True if series are kept.
    #[inline]
    pub(super) fn has_series(&self) -> bool {
        self.series.is_some()
    }

    /// Adds a successful request at `place` to the series.
    #[inline(never)]
    pub(super) fn note(&mut self, io: &Io, place: Sector, stamps: &Stamps, at: u64) {
        let Some(series) = &mut self.series else { return };
        let from = if stamps.submitted == 0 { stamps.made } else { stamps.submitted };
        let sample = Sample {
            at: Nanos(self.clock.delta_as_nanos(self.epoch, at.max(self.epoch))),
            nanos: self.clock.delta_as_nanos(from, at.max(from)),
            sector: place,
            sectors: io.sectors,
        };
        series.record(io.dir, &sample);
    }

    /// Returns the series at the end of the run.
    pub(super) fn take_series(&mut self) -> Option<Box<JobSeries>> {
        self.series.take().map(|series| Box::new(series.finish()))
    }

    /// Records a successful flush.
    pub(super) fn flushed(&mut self, stamps: &Stamps, at: u64) {
        self.flushes += 1;
        if self.is_timed {
            let nanos = self.clock.delta_as_nanos(stamps.made, at.max(stamps.made));
            self.flush.get_or_insert_default().record(nanos);
        }
    }

    /// Returns the measurements of one direction, without runtime and samples.
    pub(super) fn take(&mut self, dir: Dir, watch: &Watch) -> DirReport {
        let Times { slat, mut clat, mut lat, both } = std::mem::take(&mut self.times[dir as usize]);
        if let Some(both) = both {
            [&mut clat, &mut lat].into_iter().flatten().for_each(|times| times.add(&both));
        }
        DirReport {
            ios: watch.ios(dir),
            bytes: watch.sectors(dir) * zonal_core::SECTOR_BYTES,
            slat,
            clat,
            lat,
            ..DirReport::default()
        }
    }
}
