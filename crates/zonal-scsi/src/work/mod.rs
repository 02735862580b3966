//! Commands of one or more requests in sequence, as small state machines without a volume.
//!
//! Each is stepped with the completion of its last request, or `None` at first, and returns the
//! next action. A step processes at most one report of [`REPORT_ZONES`] zones or one piece of
//! [`SCRATCH`] bytes.

mod all_zones;
mod compare;
mod fill;
pub(crate) mod memory;
mod one;
mod reissued;
mod report;
mod unmap;
mod zone;

pub(crate) use all_zones::AllZonesWork;
pub(crate) use compare::CompareWork;
pub(crate) use fill::FillWork;
pub(crate) use memory::Memory;
pub(crate) use one::{Moved, OneRequest};
pub(crate) use reissued::ReissuedWork;
pub(crate) use report::ReportWork;
pub(crate) use unmap::UnmapWork;
pub(crate) use zone::ZoneWork;

use crate::disk::Disk;
use crate::sense::SenseCode;
use crate::status::Failure;
use crate::wire::ZoneAction;
use zonal_core::{Op, ZoneCondition, ZoneDescriptor};
use zonal_io::volume::{Completion, Request};

/// Zones per report from the volume: 256 KiB of descriptors.
const REPORT_ZONES: u32 = 4096;

/// Maximum buffer of one command, in bytes.
const SCRATCH: u32 = 256 << 10;

/// Work of a command.
pub(crate) enum Work {
    One(OneRequest),
    Compare(CompareWork),
    Reissued(ReissuedWork),
    Fill(FillWork),
    Unmap(UnmapWork),
    Report(ReportWork),
    Zone(ZoneWork),
    AllZones(AllZonesWork),
}

/// Next action after a step.
pub(crate) enum Step {
    /// Submit this request, and step again on its completion.
    Ask(Request),
    /// Complete, with the number of bytes transferred.
    End(Result<u32, Failure>),
}

impl Step {
    fn fail(failure: impl Into<Failure>) -> Step {
        Step::End(Err(failure.into()))
    }
}

impl Work {
    pub(crate) fn step(&mut self, disk: &Disk, memory: &mut Memory, end: Option<Completion>) -> Step {
        match self {
            Work::One(work) => work.step(memory, end),
            Work::Compare(work) => work.step(memory, end),
            Work::Reissued(work) => work.step(memory, end),
            Work::Fill(work) => work.step(end),
            Work::Unmap(work) => work.step(end),
            Work::Report(work) => work.step(disk, memory, end),
            Work::Zone(work) => work.step(end),
            Work::AllZones(work) => work.step(disk, end),
        }
    }

    /// Ends the task without submitting `request` from its last step, and recovers the initiator's
    /// memory. Other kinds of work pass that memory only to their first request.
    pub(crate) fn abandon(&self, memory: &mut Memory, request: Request) {
        if let Work::Reissued(work) = self {
            work.abandon(memory, request);
        }
    }
}

/// Volume operation of an action.
const fn op_of(action: ZoneAction) -> Op {
    match action {
        ZoneAction::Close => Op::ZoneClose,
        ZoneAction::Finish => Op::ZoneFinish,
        ZoneAction::Open => Op::ZoneOpen,
        ZoneAction::Reset => Op::ZoneReset,
    }
}

/// Zones of a completed report, at least one, in their ZBC conditions.
fn zones_of(end: Completion) -> Result<Box<[ZoneDescriptor]>, Failure> {
    let mut zones = end.into_zones().map_err(|error| Failure::of_request(&error, true))?;
    for zone in &mut zones {
        // In ZBC a closed zone without data is empty. A device of another standard reports it as
        // closed.
        if zone.condition == ZoneCondition::Closed && zone.write_pointer == Some(zone.start) {
            zone.condition = ZoneCondition::Empty;
        }
    }
    // Without progress a report would never end.
    if zones.is_empty() { Err(SenseCode::INTERNAL_TARGET_FAILURE.into()) } else { Ok(zones) }
}
