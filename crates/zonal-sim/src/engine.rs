//! Queue of future events, ordered by time.
//!
//! Events at the same time stay in insertion order, so that runs are exactly reproducible.
//!
//! # Why a list and not a heap
//! A drive completes commands nearly in order of submission, and a disk has only two pending events
//! at a time. New events nearly always belong at the end, where a list appends and a heap would
//! sift.

use std::collections::VecDeque;
use zonal_core::Nanos;

/// Pending events.
#[derive(Debug)]
pub struct Agenda<E>(VecDeque<(Nanos, E)>);

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda(VecDeque::new())
    }
}

impl<E> Agenda<E> {
    /// Schedules `event` at `at`.
    #[inline]
    pub fn push(&mut self, at: Nanos, event: E) {
        if self.0.back().is_none_or(|(last, _)| *last <= at) {
            self.0.push_back((at, event));
        } else {
            let place = self.0.partition_point(|(other, _)| *other <= at);
            self.0.insert(place, (at, event));
        }
    }

    /// Time of the next event.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Removes the next event, if its time is no later than `until`.
    #[inline]
    pub fn pop(&mut self, until: Nanos) -> Option<(Nanos, E)> {
        self.0.pop_front_if(|(at, _)| *at <= until)
    }

    /// All events, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &(Nanos, E)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_arrival() {
        let mut agenda = Agenda::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            agenda.push(Nanos(at), event);
        }
        let until_eight: String = std::iter::from_fn(|| agenda.pop(Nanos(8)).map(|(_, e)| e)).collect();
        assert_eq!((until_eight.as_str(), agenda.next()), ("abcd", Some(Nanos(9))));
    }
}
