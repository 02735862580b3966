//! Writes that arrived before their predecessors, kept by offset until the zone's pointer reaches
//! them.
//!
//! Owns these writes, and appends that arrived in the meantime: an append would take the place that
//! the parked writes wait for. Owns no clock: the caller passes the time and the zone's pointer.
//!
//! # Time limit
//! A parked write waits as long as the zone makes progress. Once the zone has made none for the
//! allowed time, with nothing in flight and nothing issuable, the writes parked for that long are
//! given up. A write that arrives then has its own full time.

use super::item::Item;
use super::{RequestKind, WriteKind};
use crate::units::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// Limits for parked writes of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ParkOptions {
    /// Maximum number of sectors per zone.
    pub sectors_max: u32,
    /// Time without progress after which parked writes are given up. A zone counts as making
    /// progress while one of its writes is queued, in recovery or at the device.
    pub time: Nanos,
}

crate::setters! {
    ParkOptions
    /// Maximum number of sectors per zone.
    with_sectors_max sectors_max: u32;
    /// Time without progress after which parked writes are given up.
    with_time time: Nanos;
}

impl Default for ParkOptions {
    /// 1 MiB per zone, and one second, since the thread with the preceding write may wait that long
    /// for a processor.
    fn default() -> ParkOptions {
        ParkOptions { sectors_max: 2048, time: Nanos(1_000_000_000) }
    }
}

#[derive(Debug)]
struct Parked<T> {
    item: Item<T>,
    sectors: u32,
    since: Nanos,
}

/// Parked writes of one zone.
#[derive(Debug)]
pub struct ParkedWrites<T> {
    /// By offset; writes at the same offset in order of arrival.
    writes: BTreeMap<(u32, u64), Parked<T>>,
    /// Appends that arrived while writes were parked, in order.
    appends: VecDeque<Item<T>>,
    sectors: u32,
    arrivals: u64,
    /// Time and pointer of the last progress.
    still: (Nanos, u32),
}

impl<T> ParkedWrites<T> {
    /// Creates an empty set for a zone at `pointer`.
    pub fn new(now: Nanos, pointer: u32) -> ParkedWrites<T> {
        ParkedWrites {
            writes: BTreeMap::new(),
            appends: VecDeque::new(),
            sectors: 0,
            arrivals: 0,
            still: (now, pointer),
        }
    }

    /// Number of requests, appends included.
    pub fn len(&self) -> usize {
        self.writes.len() + self.appends.len()
    }

    /// True if no request is parked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if writes are parked, so that appends must wait.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// True if `sectors` more may be parked.
    pub fn has_room(&self, sectors: u32, options: &ParkOptions) -> bool {
        self.sectors.saturating_add(sectors) <= options.sectors_max
    }

    /// Parks a positional write, or an append that arrived while writes are parked.
    ///
    /// # Panics
    /// If it is not a write.
    pub fn park(&mut self, now: Nanos, item: Item<T>) {
        match item.kind {
            RequestKind::Write(WriteKind::At(offset) | WriteKind::Alone(offset), sectors) => {
                self.arrivals += 1;
                self.sectors += sectors;
                self.writes.insert((offset, self.arrivals), Parked { item, sectors, since: now });
            }
            RequestKind::Write(WriteKind::Append, _) => self.appends.push_back(item),
            RequestKind::Manage(op) => panic!("{op:?} is not parked"),
        }
    }

    /// Removes, in order, the requests that can be issued with the zone at `pointer`: writes with
    /// their place already taken, which will be refused; the write at the pointer and those that
    /// continue it; and the appends, once no write is left.
    pub fn take(&mut self, now: Nanos, pointer: u32) -> Vec<Item<T>> {
        if pointer != self.still.1 {
            self.still = (now, pointer);
        }
        let mut due = Vec::new();
        let mut end = pointer;
        while let Some(entry) = self.writes.first_entry() {
            let (offset, sectors) = (entry.key().0, entry.get().sectors);
            if offset > end {
                break;
            }
            if offset == end {
                end += sectors;
            } else if offset >= pointer {
                // A write issued now will take its place; it is refused after that.
                break;
            }
            due.push(entry.remove().item);
            self.sectors -= sectors;
        }
        if self.writes.is_empty() {
            due.extend(self.appends.drain(..));
        }
        due
    }

    /// Removes the writes with expired time and returns them in order of offset. `goes_on` is true
    /// if a write of the zone is queued, in recovery or in flight.
    pub fn overdue(&mut self, now: Nanos, pointer: u32, goes_on: bool, options: &ParkOptions) -> Vec<T> {
        if goes_on || pointer != self.still.1 {
            self.still = (now, pointer);
        }
        let still = self.still.0;
        let is_over = |p: &Parked<T>| p.since.max(still).0.saturating_add(options.time.0) <= now.0;
        let over: Vec<_> = self.writes.iter().filter(|(_, p)| is_over(p)).map(|(&key, _)| key).collect();
        let taken = over.iter().filter_map(|key| self.writes.remove(key));
        let taken = taken.inspect(|p| self.sectors -= p.sectors);
        taken.map(|p| p.item.token).collect()
    }

    /// Earliest time at which [`ParkedWrites::overdue`] may find an expired write.
    pub fn deadline(&self, options: &ParkOptions) -> Option<Nanos> {
        let since = self.writes.values().map(|p| p.since).min()?.max(self.still.0);
        Some(Nanos(since.0.saturating_add(options.time.0)))
    }

    /// Removes the requests that are cancelled: writes by offset, then appends.
    pub fn cancel(&mut self, is_cancelled: impl Fn(&T) -> bool, cancelled: &mut Vec<T>) {
        let taken = self.writes.extract_if(.., |_, parked| is_cancelled(&parked.item.token));
        for (_, parked) in taken {
            self.sectors -= parked.sectors;
            cancelled.push(parked.item.token);
        }
        for item in std::mem::take(&mut self.appends) {
            match is_cancelled(&item.token) {
                true => cancelled.push(item.token),
                false => self.appends.push_back(item),
            }
        }
    }

    /// Aborts all requests: writes by offset, then appends.
    pub fn abort(self, aborted: &mut Vec<T>) {
        aborted.extend(self.writes.into_values().map(|p| p.item.token));
        aborted.extend(self.appends.into_iter().map(|item| item.token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: ParkOptions = ParkOptions { sectors_max: 32, time: Nanos(10) };

    fn at(offset: u32, sectors: u32, token: u32) -> Item<u32> {
        Item { kind: RequestKind::Write(WriteKind::At(offset), sectors), mergeable: true, token }
    }

    fn append(token: u32) -> Item<u32> {
        Item { kind: RequestKind::Write(WriteKind::Append, 4), mergeable: false, token }
    }

    fn tokens(items: Vec<Item<u32>>) -> Vec<u32> {
        items.into_iter().map(|item| item.token).collect()
    }

    #[test]
    fn parked_writes_go_when_the_pointer_arrives_and_those_that_continue_them_with_them() {
        let mut parked_writes = ParkedWrites::new(Nanos(0), 0);
        for item in [at(12, 4, 3), at(4, 4, 1), at(8, 4, 2), at(20, 4, 5), append(9)] {
            parked_writes.park(Nanos(0), item);
        }
        assert_eq!(tokens(parked_writes.take(Nanos(1), 0)), []);
        assert_eq!(tokens(parked_writes.take(Nanos(1), 4)), [1, 2, 3]);
        assert_eq!(parked_writes.len(), 2);
        assert_eq!(tokens(parked_writes.take(Nanos(1), 20)), [5, 9], "the append behind the last write");
        assert!(parked_writes.is_empty());
    }

    #[test]
    fn parked_write_at_a_passed_address_is_released_to_be_refused() {
        let mut parked_writes = ParkedWrites::new(Nanos(0), 0);
        for item in [at(4, 4, 1), at(4, 8, 2), at(8, 4, 3)] {
            parked_writes.park(Nanos(0), item);
        }
        assert_eq!(
            tokens(parked_writes.take(Nanos(0), 4)),
            [1],
            "the other one of its place is refused once it is gone"
        );
        assert_eq!(tokens(parked_writes.take(Nanos(0), 8)), [2, 3]);
    }

    #[test]
    fn parked_write_is_given_up_after_its_zone_has_stood_still_for_the_time_allowed() {
        let mut parked_writes = ParkedWrites::new(Nanos(0), 0);
        parked_writes.park(Nanos(0), at(4, 4, 1));
        parked_writes.park(Nanos(7), at(8, 4, 2));
        assert_eq!(parked_writes.deadline(&OPTIONS), Some(Nanos(10)));
        assert_eq!(parked_writes.overdue(Nanos(5), 0, true, &OPTIONS), []);
        assert_eq!(parked_writes.overdue(Nanos(14), 0, false, &OPTIONS), [], "it went on until 5");
        assert_eq!(parked_writes.overdue(Nanos(15), 0, false, &OPTIONS), [1]);
        assert_eq!(parked_writes.deadline(&OPTIONS), Some(Nanos(17)));
        assert_eq!(parked_writes.overdue(Nanos(17), 0, false, &OPTIONS), [2]);
        assert_eq!(parked_writes.deadline(&OPTIONS), None);
    }

    #[test]
    fn parked_sectors_are_bounded_and_taking_frees_room() {
        let mut parked_writes = ParkedWrites::new(Nanos(0), 0);
        parked_writes.park(Nanos(0), at(4, 30, 1));
        assert!(
            parked_writes.has_room(2, &OPTIONS)
                && !parked_writes.has_room(3, &OPTIONS)
                && !parked_writes.has_room(u32::MAX, &OPTIONS)
        );
        parked_writes.take(Nanos(0), 4);
        assert!(parked_writes.has_room(32, &OPTIONS));
    }

    proptest! {
        /// Writes leave in order of offset for any order of arrival, and none is lost.
        #[test]
        fn writes_of_a_zone_leave_in_order_in_whatever_order_they_come(
            order in Just((0..40u32).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut parked_writes = ParkedWrites::new(Nanos(0), 0);
            let (mut pointer, mut left) = (0, Vec::new());
            for token in order {
                match token * 4 == pointer {
                    true => { pointer += 4; left.push(token); }
                    false => parked_writes.park(Nanos(0), at(token * 4, 4, token)),
                }
                let run = parked_writes.take(Nanos(0), pointer);
                pointer += 4 * run.len() as u32;
                left.extend(tokens(run));
            }
            prop_assert!(parked_writes.is_empty());
            prop_assert_eq!(left, (0..40).collect::<Vec<_>>());
        }
    }
}
