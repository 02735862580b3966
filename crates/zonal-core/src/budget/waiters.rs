//! Zones waiting for slots, in order.

use super::options::WriterClass;
use crate::device::Needs;
use crate::units::{Nanos, ZoneIndex};
use std::collections::BTreeMap;

/// Order of arrival, unique within a budget.
pub(super) type Arrival = u64;

/// Waiting zones of one class. Zones that already hold an active slot are kept apart, since they
/// can be served when others cannot.
#[derive(Debug, Default)]
struct Line {
    empty: BTreeMap<Arrival, ZoneIndex>,
    closed: BTreeMap<Arrival, ZoneIndex>,
    /// Empty zones that arrived before this have been overtaken by a closed one and must not be
    /// again.
    passed_until: Arrival,
    /// Victims being closed or finished on behalf of this class.
    asked: u32,
    /// Time since when nothing in flight could end the wait of the oldest zone.
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

    /// Zones of a class that are next to be served, oldest first, with their needs.
    ///
    /// The order is strict, with one exception. A closed zone needs no active slot, so it may
    /// overtake empty zones that lack one; its write may even free the slot that they lack. Each of
    /// them is overtaken in this way at most once.
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

    /// Removes `waiter`, which gets its slots, and records the zones that it overtakes.
    pub fn serve(&mut self, class: WriterClass, waiter: WaitingZone) {
        let line = &mut self.lines[class.index()];
        if line.empty.first_key_value().is_some_and(|(&oldest, _)| oldest < waiter.arrival) {
            line.passed_until = line.passed_until.max(waiter.arrival);
        }
        self.remove(class, waiter.arrival);
        self.lines[class.index()].stuck_since = None;
    }

    /// True if more zones wait than victims are being closed or finished for them.
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

    /// Records if the oldest zone of a class is stuck. Returns the time since when it is.
    pub fn stuck(&mut self, class: WriterClass, is_stuck: bool, now: Nanos) -> Option<Nanos> {
        let since = &mut self.lines[class.index()].stuck_since;
        *since = is_stuck.then(|| since.unwrap_or(now));
        *since
    }

    /// Earliest time since when a class is stuck.
    pub fn stuck_since(&self) -> Option<Nanos> {
        self.lines.iter().filter_map(|line| line.stuck_since).min()
    }

    /// All zones in line, for checks.
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

    /// Victims being closed or finished on behalf of a class, for checks.
    pub fn victims_asked(&self, class: WriterClass) -> u32 {
        self.lines[class.index()].asked
    }
}
