//! Action on all zones to which it applies (ZBC 5.2, 5.3, 5.7): CLOSE on open zones, FINISH on
//! active ones, OPEN on closed ones.
//!
//! Zones are reported in pieces, and the zones of one piece are processed before the next is
//! requested. An action in several rounds visits all pieces in each round, because a zone in the
//! last piece may free a resource that a zone in the first one needs. OPEN is all or nothing: open
//! zones are counted first, and the zones opened so far are closed again if one cannot be opened.

use super::zone::is_refused_transition;
use super::{REPORT_ZONES, Step, op_of, zones_of};
use crate::disk::Disk;
use crate::sense::SenseCode;
use crate::status::Failure;
use crate::wire::ZoneAction;
use std::collections::VecDeque;
use zonal_core::{Op, Sector, ZoneCondition, ZoneDescriptor, ZoneIndex, device};
use zonal_io::volume::{Completion, Request};

/// Progress of an action on all zones.
pub(crate) struct AllZonesWork {
    action: ZoneAction,
    stage: AllZonesStage,
    /// Index into [`rounds`](zonal_core::device::ZoneAction::rounds).
    round: usize,
    /// First zone not yet reported.
    next: u32,
    /// Number of zones that are or will be explicitly open.
    stay_open: u64,
    /// Zones of the current piece to process.
    concerned: VecDeque<Sector>,
    /// Zones opened by this command, at most as many as may be open or were closed.
    opened: Vec<Sector>,
}

#[derive(Clone, Copy)]
enum AllZonesStage {
    /// Waiting for a report, to count zones that will be open.
    Counting,
    /// Waiting for a report, to find zones to process.
    Asking,
    /// Waiting for the action on this zone.
    Acting(Sector),
    /// Waiting for a zone to be closed again after this failure.
    Closing(Failure),
}

impl AllZonesWork {
    /// Creates the work. Not used for [`ZoneAction::Reset`], which is one request of the volume.
    pub(crate) fn new(action: ZoneAction) -> AllZonesWork {
        let stage = match action {
            ZoneAction::Open => AllZonesStage::Counting,
            _ => AllZonesStage::Asking,
        };
        let (concerned, opened) = (VecDeque::new(), Vec::new());
        AllZonesWork { action, stage, round: 0, next: 0, stay_open: 0, concerned, opened }
    }

    pub(super) fn step(&mut self, disk: &Disk, end: Option<Completion>) -> Step {
        let Some(end) = end else { return self.ask(disk) };
        match self.stage {
            AllZonesStage::Counting => match zones_of(end) {
                Ok(zones) => self.count(disk, &zones),
                Err(failure) => Step::End(Err(failure)),
            },
            AllZonesStage::Asking => match zones_of(end) {
                Ok(zones) => {
                    self.next += zones.len() as u32;
                    let round = rounds_of(self.action)[self.round];
                    let concerned = zones.iter().filter(|zone| round.contains(&zone.condition));
                    self.concerned.extend(concerned.map(|zone| zone.start));
                    self.act(disk)
                }
                Err(failure) => self.undo(failure),
            },
            AllZonesStage::Acting(zone) => self.acted(disk, zone, end),
            // A zone that cannot be closed is left as it is.
            AllZonesStage::Closing(failure) => self.undo(failure),
        }
    }

    fn ask(&self, disk: &Disk) -> Step {
        let start = disk.geometry().start_of(ZoneIndex(self.next));
        Step::Ask(Request::report(start, REPORT_ZONES))
    }

    /// OPEN is refused as a whole if not all zones can be open (ZBC 5.7).
    fn count(&mut self, disk: &Disk, zones: &[ZoneDescriptor]) -> Step {
        let stays_open =
            |zone: &&ZoneDescriptor| matches!(zone.condition, ZoneCondition::ExpOpen | ZoneCondition::Closed);
        self.stay_open += zones.iter().filter(stays_open).count() as u64;
        self.next += zones.len() as u32;
        if self.next < disk.geometry().zones() {
            return self.ask(disk);
        }
        let open_max = u64::from(disk.part().info().open_max);
        if open_max > 0 && self.stay_open > open_max {
            return Step::fail(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
        }
        (self.stage, self.next) = (AllZonesStage::Asking, 0);
        self.ask(disk)
    }

    /// Continues with the next zone of the piece, the next piece, or the next round.
    fn act(&mut self, disk: &Disk) -> Step {
        if let Some(zone) = self.concerned.pop_front() {
            self.stage = AllZonesStage::Acting(zone);
            return Step::Ask(Request::zone(op_of(self.action), zone));
        }
        if self.next >= disk.geometry().zones() {
            (self.round, self.next) = (self.round + 1, 0);
        }
        if self.round < rounds_of(self.action).len() {
            self.stage = AllZonesStage::Asking;
            return self.ask(disk);
        }
        Step::End(Ok(0))
    }

    fn acted(&mut self, disk: &Disk, zone: Sector, end: Completion) -> Step {
        match end.result {
            Ok(_) => {
                if self.action == ZoneAction::Open {
                    self.opened.push(zone);
                }
                self.act(disk)
            }
            // Another command has changed the zone since the report, so the action no longer
            // applies.
            Err(error) if is_refused_transition(&error) => self.act(disk),
            Err(error) => self.undo(Failure::of_request(&error, false)),
        }
    }

    fn undo(&mut self, failure: Failure) -> Step {
        match self.opened.pop() {
            Some(zone) => {
                self.stage = AllZonesStage::Closing(failure);
                Step::Ask(Request::zone(Op::ZoneClose, zone))
            }
            None => Step::End(Err(failure)),
        }
    }
}

fn rounds_of(action: ZoneAction) -> &'static [&'static [ZoneCondition]] {
    device::ZoneAction::of(op_of(action)).map_or(&[], device::ZoneAction::rounds)
}
