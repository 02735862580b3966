//! Zones that wait for slots, in order.

use super::options::WriterClass;
use crate::device::Needs;
use crate::units::{Nanos, ZoneIndex};
use std::collections::BTreeMap;

/// Order of arrival. Unique in a budget.
pub(super) type Arrival = u64;

/// Waiting zones of one class. Those that hold an active slot already wait apart: they may go where the others may not.
#[derive(Debug, Default)]
struct Line {
    empty: BTreeMap<Arrival, ZoneIndex>,
    closed: BTreeMap<Arrival, ZoneIndex>,
    /// Empty zones that came before this one have been passed by a closed one: not again.
    passed_until: Arrival,
    /// Victims that were asked for on behalf of this class and are still being closed or finished.
    asked: u32,
    /// Since when nothing could end the wait of the oldest.
    stuck_since: Option<Nanos>,
}

/// A zone in line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WaitingZone {
    pub arrival: Arrival,
    pub zone: ZoneIndex,
}

#[derive(Debug)]
pub(super) struct Waiters {
    lines: Vec<Line>,
}

impl Waiters {
    pub fn new(classes: usize) -> Waiters {
        Waiters { lines: std::iter::repeat_with(Line::default).take(classes).collect() }
    }

    pub fn insert(&mut self, class: WriterClass, needs: Needs, waiter: WaitingZone) {
        let line = &mut self.lines[class.index()];
        let list = if needs == Needs::Open { &mut line.closed } else { &mut line.empty };
        list.insert(waiter.arrival, waiter.zone);
    }

    pub fn remove(&mut self, class: WriterClass, arrival: Arrival) {
        let line = &mut self.lines[class.index()];
        line.empty.remove(&arrival);
        line.closed.remove(&arrival);
        if line.empty.is_empty() && line.closed.is_empty() {
            line.stuck_since = None;
        }
    }

    /// Those of a class that may be served before all others of it, the older one first, with what they need.
    ///
    /// Order is strict but for one thing. A closed zone needs no active slot, so it may go before empty zones that lack
    /// one; writing it may even be what frees the slot that they lack. Each of them is passed like that once at most.
    pub fn heads(&self, class: WriterClass) -> impl Iterator<Item = (WaitingZone, Needs)> + use<> {
        let line = &self.lines[class.index()];
        let head = |list: &BTreeMap<Arrival, ZoneIndex>, needs| {
            let (&arrival, &zone) = list.first_key_value()?;
            Some((WaitingZone { arrival, zone }, needs))
        };
        let empty = head(&line.empty, Needs::ActiveAndOpen);
        let may_not_pass = |(closed, _): &(WaitingZone, Needs)| {
            empty.is_some_and(|(e, _)| e.arrival < closed.arrival && e.arrival < line.passed_until)
        };
        let closed = head(&line.closed, Needs::Open).filter(|closed| !may_not_pass(closed));
        let closed_first = closed.is_some_and(|(c, _)| empty.is_none_or(|(e, _)| c.arrival < e.arrival));
        let order = if closed_first { [closed, empty] } else { [empty, closed] };
        order.into_iter().flatten()
    }

    /// `waiter` gets its slots: takes it out, and notes whom it passes.
    pub fn serve(&mut self, class: WriterClass, waiter: WaitingZone) {
        let line = &mut self.lines[class.index()];
        if line.empty.first_key_value().is_some_and(|(&oldest, _)| oldest < waiter.arrival) {
            line.passed_until = line.passed_until.max(waiter.arrival);
        }
        self.remove(class, waiter.arrival);
        self.lines[class.index()].stuck_since = None;
    }

    /// Whether more zones wait than victims are being closed or finished for them.
    pub fn wants_victim(&self, class: WriterClass) -> bool {
        let line = &self.lines[class.index()];
        (line.asked as usize) < line.empty.len() + line.closed.len()
    }

    pub fn asked(&mut self, class: WriterClass) {
        self.lines[class.index()].asked += 1;
    }

    pub fn answered(&mut self, class: WriterClass) {
        self.lines[class.index()].asked -= 1;
    }

    /// Notes whether the oldest of a class is stuck. Returns since when.
    pub fn stuck(&mut self, class: WriterClass, is_stuck: bool, now: Nanos) -> Option<Nanos> {
        let since = &mut self.lines[class.index()].stuck_since;
        *since = is_stuck.then(|| since.unwrap_or(now));
        *since
    }

    /// The earliest moment since which a class is stuck.
    pub fn stuck_since(&self) -> Option<Nanos> {
        self.lines.iter().filter_map(|line| line.stuck_since).min()
    }

    /// All that stand in line, for checks.
    pub fn all(&self) -> impl Iterator<Item = (WriterClass, Needs, WaitingZone)> {
        self.lines.iter().enumerate().flat_map(|(index, line)| {
            let class = WriterClass(index as u8);
            let list = |list: &BTreeMap<Arrival, ZoneIndex>, needs| {
                let waiters = list.iter().map(|(&arrival, &zone)| WaitingZone { arrival, zone });
                waiters.map(|waiter| (class, needs, waiter)).collect::<Vec<_>>()
            };
            [list(&line.empty, Needs::ActiveAndOpen), list(&line.closed, Needs::Open)].concat()
        })
    }

    /// Victims that are being closed or finished for a class, for checks.
    pub fn victims_asked(&self, class: WriterClass) -> u32 {
        self.lines[class.index()].asked
    }
}
