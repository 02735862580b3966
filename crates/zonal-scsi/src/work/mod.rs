//! What a command does over one or several requests, one at a time: small machines without a volume.
//!
//! Each is stepped with the end of its last request, or with `None` at first, and says what comes next. A step looks at one
//! report of [`REPORT_ZONES`] zones or one piece of [`SCRATCH`] bytes at most.

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

/// Zones of one report to the volume: 256 KiB of descriptors.
const REPORT_ZONES: u32 = 4096;

/// Memory that one command has at most for blocks of its own, in bytes.
const SCRATCH: u32 = 256 << 10;

/// What a command does.
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

/// What comes after a step.
pub(crate) enum Next {
    /// This request; its end is the next step.
    Ask(Request),
    /// The end, with the number of bytes that were moved.
    End(Result<u32, Failure>),
}

impl Next {
    fn fail(failure: impl Into<Failure>) -> Next {
        Next::End(Err(failure.into()))
    }
}

impl Work {
    pub(crate) fn step(&mut self, disk: &Disk, memory: &mut Memory, end: Option<Completion>) -> Next {
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

    /// The task ends before `request`, which its last step has asked for. Others give their initiator's memory to their first one.
    pub(crate) fn leave(&self, memory: &mut Memory, request: Request) {
        if let Work::Reissued(work) = self {
            work.leave(memory, request);
        }
    }
}

/// The volume's operation of an action.
const fn op_of(action: ZoneAction) -> Op {
    match action {
        ZoneAction::Close => Op::ZoneClose,
        ZoneAction::Finish => Op::ZoneFinish,
        ZoneAction::Open => Op::ZoneOpen,
        ZoneAction::Reset => Op::ZoneReset,
    }
}

/// The zones of a report's end, which are at least one, in the conditions that this standard gives them.
fn zones_of(end: Completion) -> Result<Box<[ZoneDescriptor]>, Failure> {
    let mut zones = end.into_zones().map_err(|error| Failure::of_request(&error, true))?;
    for zone in &mut zones {
        // A zone that is closed without a written block is empty by ZBC. A device of the other standard has it closed.
        if zone.condition == ZoneCondition::Closed && zone.write_pointer == Some(zone.start) {
            zone.condition = ZoneCondition::Empty;
        }
    }
    // Without progress a report would never end.
    if zones.is_empty() { Err(SenseCode::INTERNAL_TARGET_FAILURE.into()) } else { Ok(zones) }
}
