//! What happened when: rates, latencies and positions over the time of a run.
//!
//! Kept only where the caller asks for it ([`BenchOptions::series`](crate::BenchOptions::series)), in a memory that a
//! longer run does not let grow: [`Buckets`] become wider instead of more. A worker records its own series; afterwards
//! those of a job, and of all jobs, are added up.
//!
//! Times count from the beginning of the write mode, so that rounds follow one another on one axis.

mod buckets;
mod flow;
mod position;
mod zone_map;

pub use buckets::{BUCKETS_MAX, Bucket, Buckets};
pub use flow::{FlowBucket, FlowSeries};
pub use position::{PositionBucket, PositionSeries, ROWS_MAX};
pub use zone_map::{ZoneMap, ZoneRun};

use crate::measure::Dir;
use flow::FlowRecorder;
use std::ops::Range;
use zonal_core::{Nanos, SECTOR_BYTES, Sector};
use zonal_io::device::DeviceInfo;

/// Reads and writes of one job over time.
#[derive(Clone, Debug)]
pub struct JobSeries {
    /// How much, and how long it took.
    pub flows: [FlowSeries; 2],
    /// Where, as the job sent it.
    pub positions: [PositionSeries; 2],
}

impl JobSeries {
    /// How much was done in one direction.
    pub fn flow(&self, dir: Dir) -> &FlowSeries {
        &self.flows[dir as usize]
    }

    /// Where it was done.
    pub fn position(&self, dir: Dir) -> &PositionSeries {
        &self.positions[dir as usize]
    }

    /// Adds what another job of the mode did.
    pub fn add(&mut self, other: &JobSeries) {
        self.flows.iter_mut().zip(&other.flows).for_each(|(own, other)| own.add(other));
        self.positions.iter_mut().zip(&other.positions).for_each(|(own, other)| own.add(other));
    }
}

/// What a mode has in addition to the series of its jobs.
#[derive(Clone, Debug)]
pub struct ModeSeries {
    /// The device.
    pub device: DeviceInfo,
    /// Its zones at the end, if they could be had.
    pub zones: Option<ZoneMap>,
    /// Where the device's head was, if the device tells: it knows better than the workers that send it there.
    pub head: Option<PositionSeries>,
}

/// On what axes the series of a mode lie.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// What counts as zero: the mode's beginning, that far before the beginning of the round.
    pub(crate) before: Nanos,
    /// Sectors that the jobs work in.
    pub(crate) sectors: Range<Sector>,
}

/// A request that has ended well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When, counted from the beginning of the round.
    pub(crate) at: Nanos,
    /// How long it took, in nanoseconds.
    pub(crate) nanos: u64,
    /// Where it began.
    pub(crate) sector: Sector,
    /// How long it was.
    pub(crate) sectors: u32,
}

/// Series of one worker while it runs.
pub(crate) struct SeriesRecorder {
    before: Nanos,
    flows: [FlowRecorder; 2],
    positions: [PositionSeries; 2],
}

impl SeriesRecorder {
    pub(crate) fn new(frame: &Frame) -> SeriesRecorder {
        SeriesRecorder {
            before: frame.before,
            flows: [FlowRecorder::default(), FlowRecorder::default()],
            positions: [frame.sectors.clone(), frame.sectors.clone()].map(PositionSeries::new),
        }
    }

    pub(crate) fn record(&mut self, dir: Dir, sample: &Sample) {
        self.record_flow(dir, sample.at, sample.nanos, u64::from(sample.sectors) * SECTOR_BYTES);
        let at = Nanos(self.before.0.saturating_add(sample.at.0));
        self.positions[dir as usize].record(at, sample.sector);
    }

    /// A request that has no place on the device.
    pub(crate) fn record_flow(&mut self, dir: Dir, at: Nanos, nanos: u64, bytes: u64) {
        let at = Nanos(self.before.0.saturating_add(at.0));
        self.flows[dir as usize].record(at, nanos, bytes);
    }

    pub(crate) fn finish(self) -> JobSeries {
        JobSeries { flows: self.flows.map(FlowRecorder::finish), positions: self.positions }
    }
}
