//! One round, as its workers see it in either time: what they have in common, what they begin with and what they leave.

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
    /// Whether it keeps series.
    pub(super) series: bool,
    /// What a request costs its worker in virtual time.
    pub(super) host_nanos_per_io: u64,
    /// The caller's flag: once it is set, the run ends.
    pub(super) interrupt: Option<&'a AtomicBool>,
}

impl<'a> Round<'a> {
    pub(super) fn workers(&self) -> &'a [WorkerPlan] {
        &self.plan.workers[self.plan.rounds[self.index].clone()]
    }
}

/// The workers of a round that have not begun.
pub(super) struct Ready {
    pub(super) watches: Arc<[CachePadded<Watch>]>,
    pub(super) jobs: Vec<ReadyJob>,
    /// Where their series lie, if they keep any.
    pub(super) frame: Option<Frame>,
}

/// What a worker begins with, apart from its plan.
pub(super) struct ReadyJob {
    pub(super) workload: Workload,
    pub(super) log: Option<IoLog>,
    pub(super) recorder: Option<Recorder>,
}

/// What a worker leaves.
pub(super) type Left = (JobReport, Option<Recorder>);

/// What the workers of a round leave, in no order, with their numbers, and their samples in order.
pub(super) struct Ran {
    pub(super) results: Vec<(usize, Left)>,
    pub(super) samples: Vec<WorkerSamples>,
    /// Where the device's head was meanwhile, if series are kept and it is known.
    pub(super) head: Option<PositionSeries>,
}
