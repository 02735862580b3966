//! A round as seen by its workers, in real or virtual time: shared state, inputs and results.

use super::measure::Watch;
use super::watcher::WorkerSamples;
use super::worker::IoLog;
use crate::jobs::plan::{Plan, WorkerPlan};
use crate::jobs::verify::Recorder;
use crate::jobs::workload::{Workload, Zones};
use crate::measure::series::{Frame, PositionSeries};
use crate::report::JobReport;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use zonal_io::sync::CachePadded;
use zonal_io::volume::Volume;

/// One round of a plan.
#[derive(Clone, Copy)]
pub(super) struct Round<'a> {
    pub(super) plan: &'a Plan,
    pub(super) index: usize,
    pub(super) volume: &'a Arc<Volume>,
    pub(super) zones: &'a Arc<Zones>,
    pub(super) has_data: bool,
    /// True if series are kept.
    pub(super) series: bool,
    /// Processor time per request of a worker in virtual time.
    pub(super) host_nanos_per_io: u64,
    /// Flag of the caller that ends the run.
    pub(super) interrupt: Option<&'a AtomicBool>,
}

impl<'a> Round<'a> {
    pub(super) fn workers(&self) -> &'a [WorkerPlan] {
        &self.plan.workers[self.plan.rounds[self.index].clone()]
    }
}

/// Workers of a round before their start.
pub(super) struct Ready {
    pub(super) watches: Arc<[CachePadded<Watch>]>,
    pub(super) jobs: Vec<ReadyJob>,
    /// Frame of their series, if kept.
    pub(super) frame: Option<Frame>,
}

/// Inputs of a worker in addition to its plan.
pub(super) struct ReadyJob {
    pub(super) workload: Workload,
    pub(super) log: Option<IoLog>,
    pub(super) recorder: Option<Recorder>,
}

/// Results of a worker.
pub(super) type WorkerResult = (JobReport, Option<Recorder>);

/// Results of the workers of a round in any order, with their indices, and their samples in order.
pub(super) struct RoundResult {
    pub(super) results: Vec<(usize, WorkerResult)>,
    pub(super) samples: Vec<WorkerSamples>,
    /// Positions of the device's head, if series are kept and they are known.
    pub(super) head: Option<PositionSeries>,
}
