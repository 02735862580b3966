//! The event heap.
//!
//! Events come out by time, those of one time in the order in which they went in: runs are repeated to the byte.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use zonal_core::Nanos;

/// Events that are to come.
#[derive(Debug)]
pub struct Heap<E> {
    events: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.sequence)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Heap<E> {
    fn default() -> Heap<E> {
        Heap { events: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> Heap<E> {
    /// `event` happens at `at`.
    pub fn push(&mut self, at: Nanos, event: E) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.events.push(Reverse(Entry { at, sequence, event }));
    }

    /// When the next event happens.
    pub fn next(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next event, if it happens no later than `until`.
    pub fn pop(&mut self, until: Nanos) -> Option<(Nanos, E)> {
        if self.next()? > until {
            return None;
        }
        self.events.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_at_one_time_in_order_of_arrival() {
        let mut heap = Heap::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            heap.push(Nanos(at), event);
        }
        let until_eight: String = std::iter::from_fn(|| heap.pop(Nanos(8)).map(|(_, e)| e)).collect();
        assert_eq!((until_eight.as_str(), heap.next()), ("abcd", Some(Nanos(9))));
    }
}
