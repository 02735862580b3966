//! Tests of the scheduler: hand-written scenes, a naive model, and its guaranteed bounds.

mod bounds;
mod golden;
mod model;

use super::*;
use crate::units::{Nanos, Sector, Sectors, ZoneIndex};
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;
const ZONE_SIZE: u64 = 100;

fn limits(rotational: bool) -> Limits {
    Limits { zone_size: Sectors(ZONE_SIZE), sectors_max: Sectors(16), rotational }
}

/// A scheduler, its zones' locks, and the time in milliseconds.
struct SchedulerRig<T> {
    scheduler: Scheduler<T>,
    locked: BTreeSet<u32>,
    now: u64,
}

impl<T> SchedulerRig<T> {
    fn new(options: Options, rotational: bool) -> SchedulerRig<T> {
        let scheduler = Scheduler::new(options, limits(rotational));
        SchedulerRig { scheduler, locked: BTreeSet::new(), now: 0 }
    }

    fn insert(&mut self, kind: RequestKind, sector: u64, sectors: u64, token: T) -> Inserted {
        let request = kind.request(sector, sectors, token);
        self.scheduler.insert(Nanos(self.now * MS), request)
    }

    fn dispatch(&mut self) -> Option<Dispatched<T>> {
        self.scheduler.dispatch(Nanos(self.now * MS), |zone| self.locked.contains(&zone.0))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestKind {
    Read,
    /// To a sequential zone.
    Write,
    /// To a conventional zone.
    Anywhere,
    /// A write to a sequential zone that is never merged.
    Alone,
}

impl RequestKind {
    fn request<T>(self, sector: u64, sectors: u64, token: T) -> Request<T> {
        let sequential = matches!(self, RequestKind::Write | RequestKind::Alone);
        Request {
            direction: if self == RequestKind::Read { Direction::Read } else { Direction::Write },
            sector: Sector(sector),
            sectors: Sectors(sectors),
            zone: sequential.then_some(ZoneIndex((sector / ZONE_SIZE) as u32)),
            mergeable: self != RequestKind::Alone,
            token,
        }
    }
}
