//! Tests of the budget: a table of states and events, scenes, and a naive model.

mod golden;
mod model;
mod scenes;

use super::*;
use crate::device::Limits;
use crate::units::{Nanos, ZoneIndex};
use crate::zone::ZoneCondition;

const CAPACITY: u32 = 100;

fn budget(open_max: u32, active_max: u32, policy: Policy) -> Budget {
    let options = Options { policy, ..Options::default() };
    Budget::new(Limits { open_max, active_max }, options).unwrap()
}

const fn fill(written: u32) -> Fill {
    Fill { written, capacity: CAPACITY }
}

/// Shorthands for tests. Every call is checked.
trait Play {
    fn ask(&mut self, zone: u32) -> Acquired;
    /// Acquires slots for a zone and starts a write.
    fn write(&mut self, zone: u32);
    fn end(&mut self, zone: u32, written: u32);
    fn is_now(&mut self, zone: u32, condition: ZoneCondition);
    /// Applies [`Budget::next`] until it returns `None`.
    fn steps(&mut self) -> Vec<BudgetStep>;
    fn failed(&mut self, now: u64) -> Vec<(u32, Vec<u32>)>;
}

fn zones(of: impl IntoIterator<Item = ZoneIndex>) -> Vec<u32> {
    of.into_iter().map(|zone| zone.0).collect()
}

impl Play for Budget {
    fn ask(&mut self, zone: u32) -> Acquired {
        let answer = self.acquire(ZoneIndex(zone), WriterClass(0), Nanos(0));
        assert_eq!(self.check(), Ok(()));
        answer
    }

    fn write(&mut self, zone: u32) {
        assert_eq!(self.ask(zone), Acquired::Granted);
        self.write_started(ZoneIndex(zone));
        assert_eq!(self.check(), Ok(()));
    }

    fn end(&mut self, zone: u32, written: u32) {
        self.write_ended(ZoneIndex(zone), fill(written));
        if written == CAPACITY {
            self.is_now(zone, ZoneCondition::Full);
        }
        assert_eq!(self.check(), Ok(()));
    }

    fn is_now(&mut self, zone: u32, condition: ZoneCondition) {
        self.set_condition(ZoneIndex(zone), condition, fill(10));
        assert_eq!(self.check(), Ok(()));
    }

    fn steps(&mut self) -> Vec<BudgetStep> {
        let steps = std::iter::from_fn(|| self.next()).collect();
        assert_eq!(self.check(), Ok(()));
        steps
    }

    fn failed(&mut self, now: u64) -> Vec<(u32, Vec<u32>)> {
        let failed = std::iter::from_fn(|| self.expire(Nanos(now)));
        let failed = failed.map(|r| (r.zone.0, zones(r.holders))).collect();
        assert_eq!(self.check(), Ok(()));
        failed
    }
}

fn wake(zone: u32) -> BudgetStep {
    BudgetStep::Wake(ZoneIndex(zone))
}

fn close(zone: u32) -> BudgetStep {
    BudgetStep::Close(ZoneIndex(zone))
}

fn finish(zone: u32) -> BudgetStep {
    BudgetStep::Finish(ZoneIndex(zone))
}

fn refused(zone: u32, holders: &[u32]) -> Acquired {
    let holders = holders.iter().map(|&z| ZoneIndex(z)).collect();
    Acquired::Fail(Refusal { zone: ZoneIndex(zone), holders })
}
