//! What a worker counts and times.

use crate::job::JobSpec;
use crate::jobs::plan::WorkerPlan;
use crate::jobs::workload::{Dir, Io};
use crate::measure::Latency;
use crate::measure::series::{Frame, JobSeries, Sample, SeriesRecorder};
use crate::report::{Depths, DirReport};
use quanta::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{Nanos, Sector};

/// What a worker shares with the watcher, which watches and stops it. Counters are written by the worker alone.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    pub(super) stop: AtomicBool,
    pub(super) is_over: AtomicBool,
    /// The job failed, and with it all.
    pub(super) ends_all: AtomicBool,
    /// Reads and writes that succeeded.
    ios: [AtomicU64; 2],
    /// Sectors of these.
    sectors: [AtomicU64; 2],
}

impl Watch {
    #[inline]
    pub(super) fn count(&self, dir: Dir, sectors: u32) {
        let add = |counter: &AtomicU64, n: u64| {
            // One writer: nothing is lost between load and store.
            counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        };
        add(&self.ios[dir as usize], 1);
        add(&self.sectors[dir as usize], u64::from(sectors));
    }

    /// Counts from zero.
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

/// Times of one direction, each if it is wanted.
#[derive(Default)]
struct Times {
    slat: Option<Box<Latency>>,
    clat: Option<Box<Latency>>,
    lat: Option<Box<Latency>>,
    /// Of what was answered inside submit, if both are wanted, which are the same then.
    both: Option<Box<Latency>>,
}

impl Times {
    /// For a direction that the job uses, or does not.
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

/// When a request was made and when it was with the write path, in the clock's raw units.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stamps {
    pub(super) made: u64,
    pub(super) submitted: u64,
}

/// A worker's measurements.
pub(super) struct Measure {
    clock: Clock,
    /// Reading of the clock that counts as time zero.
    epoch: u64,
    /// Whether any time is taken.
    pub(super) is_timed: bool,
    /// Kept if asked for, which takes times too.
    series: Option<Box<SeriesRecorder>>,
    times: [Times; 2],
    pub(super) flush: Option<Box<Latency>>,
    pub(super) flushes: u64,
    pub(super) depths: Depths,
}

impl Measure {
    /// `epoch`: the reading of the clock that series count from; `frame`: where they lie, if they are wanted.
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

    /// A request goes out as one of `in_flight`.
    #[inline]
    pub(super) fn depth(&mut self, in_flight: u32) {
        let bucket = in_flight.max(1).ilog2().min(6);
        self.depths[bucket as usize] += 1;
    }

    /// A request was submitted and has not ended yet.
    #[inline]
    pub(super) fn submitted(&mut self, dir: Dir, stamps: &Stamps) {
        if let Some(slat) = &mut self.times[dir as usize].slat {
            slat.record(self.clock.delta_as_nanos(stamps.made, stamps.submitted));
        }
    }

    /// A request has ended well.
    #[inline]
    pub(super) fn ended(&mut self, dir: Dir, stamps: &Stamps, at: u64) {
        let times = &mut self.times[dir as usize];
        if stamps.submitted == 0
            && let Some(both) = &mut times.both
        {
            return both.record(self.clock.delta_as_nanos(stamps.made, at.max(stamps.made)));
        }
        if let Some(clat) = &mut times.clat {
            // What was answered inside submit completes from when it was made.
            let from = if stamps.submitted == 0 { stamps.made } else { stamps.submitted };
            clat.record(self.clock.delta_as_nanos(from, at.max(from)));
        }
        if let Some(lat) = &mut times.lat {
            lat.record(self.clock.delta_as_nanos(stamps.made, at.max(stamps.made)));
        }
    }

    /// Whether series are kept.
    #[inline]
    pub(super) fn has_series(&self) -> bool {
        self.series.is_some()
    }

    /// Notes a request that has ended well in the series. `place`: where it went.
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

    /// The series, at the end.
    pub(super) fn take_series(&mut self) -> Option<Box<JobSeries>> {
        self.series.take().map(|series| Box::new(series.finish()))
    }

    /// A flush has ended well.
    pub(super) fn flushed(&mut self, stamps: &Stamps, at: u64) {
        self.flushes += 1;
        if self.is_timed {
            let nanos = self.clock.delta_as_nanos(stamps.made, at.max(stamps.made));
            self.flush.get_or_insert_default().record(nanos);
        }
    }

    /// What was measured of one direction, without its runtime and samples.
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
