//! Time series: rates, latencies and positions over the duration of a run.
//!
//! Kept only on request ([`BenchOptions::series`](crate::BenchOptions::series)). The memory does
//! not grow with the run's duration: [`Buckets`] become wider rather than more. Each worker records
//! its own series; those of a job and of all jobs are added afterwards.
//!
//! Times count from the start of the write mode, so rounds follow each other on one axis.

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
    /// Throughput and latencies of reads and of writes.
    pub flows: [FlowSeries; 2],
    /// Positions of reads and of writes, as issued by the job.
    pub positions: [PositionSeries; 2],
}

impl JobSeries {
    /// Throughput and latencies of one direction.
    pub fn flow(&self, dir: Dir) -> &FlowSeries {
        &self.flows[dir as usize]
    }

    /// Positions of one direction.
    pub fn position(&self, dir: Dir) -> &PositionSeries {
        &self.positions[dir as usize]
    }

    /// Adds the series of another job of the mode.
    pub fn add(&mut self, other: &JobSeries) {
        self.flows.iter_mut().zip(&other.flows).for_each(|(own, other)| own.add(other));
        self.positions.iter_mut().zip(&other.positions).for_each(|(own, other)| own.add(other));
    }
}

/// Data of a mode in addition to the series of its jobs.
#[derive(Clone, Debug)]
pub struct ModeSeries {
    /// The device.
    pub device: DeviceInfo,
    /// Zones at the end, if available.
    pub zones: Option<ZoneMap>,
    /// Positions of the device's head, if the device reports them. These are more accurate than the
    /// positions issued by workers.
    pub head: Option<PositionSeries>,
}

/// Axes of the series of a mode.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Time from the start of the mode, which is zero on the axis, to the start of the round.
    pub(crate) before: Nanos,
    /// Range of sectors used by the jobs.
    pub(crate) sectors: Range<Sector>,
}

/// A successful request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Completion time since the start of the round.
    pub(crate) at: Nanos,
    /// Latency in nanoseconds.
    pub(crate) nanos: u64,
    /// First sector.
    pub(crate) sector: Sector,
    /// Length in sectors.
    pub(crate) sectors: u32,
}

/// Recorder of the series of a running worker.
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

    /// Records a request without a position on the device.
    pub(crate) fn record_flow(&mut self, dir: Dir, at: Nanos, nanos: u64, bytes: u64) {
        let at = Nanos(self.before.0.saturating_add(at.0));
        self.flows[dir as usize].record(at, nanos, bytes);
    }

    pub(crate) fn finish(self) -> JobSeries {
        JobSeries { flows: self.flows.map(FlowRecorder::finish), positions: self.positions }
    }
}
