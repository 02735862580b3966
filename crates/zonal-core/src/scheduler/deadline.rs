//! Batches, directions and deadlines.

use super::Direction;
use super::lane::{Arrival, Entry, Key, Lane, MergeRules, sector};
use super::options::{Limits, Options};
use super::parts::Parts;
use super::pick::{next_write, oldest_write};
use crate::units::{Nanos, Sector, Sectors, ZoneIndex};

/// A read or write to be scheduled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<T> {
    /// Direction of the transfer.
    pub direction: Direction,
    /// First sector.
    pub sector: Sector,
    /// Length.
    pub sectors: Sectors,
    /// Zone of a write to a sequential zone: the write waits while that zone is locked. Set it for
    /// all writes of a zone or for none.
    pub zone: Option<ZoneIndex>,
    /// True if it may be merged with others.
    pub mergeable: bool,
    /// The caller's token.
    pub token: T,
}

/// Result of inserting a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// The request waits on its own.
    Queued,
    /// The request was merged into a waiting one.
    Merged,
}

/// A request for the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispatched<T> {
    /// Direction of the transfer.
    pub direction: Direction,
    /// First sector.
    pub sector: Sector,
    /// Total length of all parts.
    pub sectors: Sectors,
    /// Zone to be locked by the caller until completion.
    pub zone: Option<ZoneIndex>,
    /// The merged requests, in ascending order of address.
    pub parts: Parts<T>,
}

/// Waiting requests, dispatched by the rules of the [module](super).
#[derive(Debug)]
pub struct Scheduler<T> {
    options: Options,
    limits: Limits,
    reads: Lane<T>,
    writes: Lane<T>,
    arrivals: Arrival,
    /// Direction of the current batch.
    last: Direction,
    /// Number of requests of the current batch dispatched so far.
    batching: u32,
    /// Number of times that reads were preferred to issuable writes.
    starved: u32,
}

impl<T> Scheduler<T> {
    /// Creates an empty scheduler.
    ///
    /// # Panics
    /// If the zone size is 0.
    pub fn new(options: Options, limits: Limits) -> Scheduler<T> {
        assert!(limits.zone_size.0 > 0, "zones have a size");
        let (reads, writes) = (Lane::new(), Lane::new());
        // As in Linux: the first decision is made as if a batch of writes had ended.
        let last = Direction::Write;
        Scheduler { options, limits, reads, writes, arrivals: 0, last, batching: 0, starved: 0 }
    }

    /// Options in effect.
    pub const fn options(&self) -> Options {
        self.options
    }

    /// Changes the options. Deadlines of waiting requests stay.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Number of waiting requests; merged ones count as one.
    pub fn len(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Earliest deadline among the oldest read and the oldest write. No call is required at that
    /// time: an expired request only affects the start of the next batch.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.reads.deadline().into_iter().chain(self.writes.deadline()).min()
    }

    /// Inserts a request. It may be merged with a waiting one, and may connect two of them.
    ///
    /// # Panics
    /// If the request is empty, extends beyond its zone, or extends beyond 2^64.
    pub fn insert(&mut self, now: Nanos, request: Request<T>) -> Inserted {
        let Request { direction, sector, sectors, zone, mergeable, token } = request;
        assert!(sectors.0 > 0, "a request has a length");
        let end = sector.checked_add(sectors).expect("a request lies on a device");
        if let Some(zone) = zone {
            let within = self.limits.zone_start(zone) <= sector.0 && end.0 <= self.limits.zone_end(zone);
            assert!(within, "sectors {sector} to {end} are not in zone {zone}");
        }
        let expire = match direction {
            Direction::Read => self.options.read_expire,
            Direction::Write => self.options.write_expire,
        };
        let deadline = Nanos(now.0.saturating_add(expire.0));
        let entry = Entry { sectors, zone, mergeable, deadline, parts: Parts::new(token) };
        let rules = MergeRules { sectors_max: self.limits.sectors_max, front: self.options.front_merges };
        let key = (sector.0, self.arrivals);
        self.arrivals += 1;
        match self.lane_mut(direction).merge_or_insert(key, entry, rules) {
            true => Inserted::Merged,
            false => Inserted::Queued,
        }
    }

    /// Returns the next request for the device, if any may be issued. The caller locks its zone
    /// before the next call.
    ///
    /// Returns `None` only if no read waits and every write is blocked by a locked zone: its own,
    /// or on a rotational drive the zone at the start of its run. Call again after a zone was
    /// unlocked or a request was inserted.
    pub fn dispatch(&mut self, now: Nanos, is_locked: impl Fn(ZoneIndex) -> bool) -> Option<Dispatched<T>> {
        let key = match self.batched(&is_locked) {
            Some(key) => key,
            None => {
                let direction = self.direction(&is_locked)?;
                let key = self.first_of_batch(now, direction, &is_locked)?;
                (self.last, self.batching) = (direction, 0);
                key
            }
        };
        self.batching += 1;
        Some(self.take(key))
    }

    /// True if a write of a sequential zone waits.
    pub fn has_writes(&self, zone: ZoneIndex) -> bool {
        let first = self.writes.from(self.limits.zone_start(zone));
        first.is_some_and(|key| key.0 < self.limits.zone_end(zone))
    }

    /// Removes the writes of a sequential zone that is about to be reset, in ascending order of
    /// address.
    pub fn remove_zone(&mut self, zone: ZoneIndex) -> Vec<T> {
        let sectors = self.limits.zone_start(zone)..self.limits.zone_end(zone);
        self.writes.remove_range(sectors).into_iter().flat_map(|entry| entry.parts).collect()
    }

    /// Removes the requests that match, reads first, each direction in ascending order of address.
    /// Merged requests match as one, by the part with the lowest address.
    pub fn remove_if(&mut self, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = self.reads.remove_if(&fits);
        removed.extend(self.writes.remove_if(&fits));
        removed.into_iter().flat_map(|entry| entry.parts).collect()
    }

    /// Compares the order by address with the order by arrival.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self) -> Result<(), String> {
        self.reads.check().and_then(|()| self.writes.check())
    }

    /// Next request of the current batch.
    fn batched(&self, is_locked: &impl Fn(ZoneIndex) -> bool) -> Option<Key> {
        if self.batching >= self.options.fifo_batch { None } else { self.next(self.last, is_locked) }
    }

    /// Direction of the next batch. Counts how often issuable writes were passed over.
    fn direction(&mut self, is_locked: &impl Fn(ZoneIndex) -> bool) -> Option<Direction> {
        if !self.reads.is_empty() {
            if self.oldest(Direction::Write, is_locked).is_none() {
                return Some(Direction::Read);
            }
            if self.starved < self.options.writes_starved {
                self.starved += 1;
                return Some(Direction::Read);
            }
        } else if self.writes.is_empty() {
            return None;
        }
        self.starved = 0;
        Some(Direction::Write)
    }

    /// First request of a batch: the next one in address order, or the oldest issuable one if none
    /// follows, or if the oldest of this direction has expired, issuable or not.
    fn first_of_batch(
        &self,
        now: Nanos,
        direction: Direction,
        is_locked: &impl Fn(ZoneIndex) -> bool,
    ) -> Option<Key> {
        let expired = self.lane(direction).deadline().is_some_and(|deadline| deadline <= now);
        let next = if expired { None } else { self.next(direction, is_locked) };
        next.or_else(|| self.oldest(direction, is_locked))
    }

    fn next(&self, direction: Direction, is_locked: &impl Fn(ZoneIndex) -> bool) -> Option<Key> {
        match direction {
            Direction::Read => self.reads.from(self.reads.latest),
            Direction::Write => next_write(&self.writes, &self.limits, is_locked),
        }
    }

    fn oldest(&self, direction: Direction, is_locked: &impl Fn(ZoneIndex) -> bool) -> Option<Key> {
        match direction {
            Direction::Read => self.reads.by_age().next(),
            Direction::Write => oldest_write(&self.writes, &self.limits, is_locked),
        }
    }

    fn take(&mut self, key: Key) -> Dispatched<T> {
        let (direction, limits) = (self.last, self.limits);
        let lane = self.lane_mut(direction);
        let Entry { sectors, zone, parts, .. } = lane.remove(key);
        // A later write of the same zone may have a lower address, so the search continues from the
        // zone's start.
        lane.latest = zone.map_or(key.0, |zone| limits.zone_start(zone));
        Dispatched { direction, sector: sector(key), sectors, zone, parts }
    }

    fn lane(&self, direction: Direction) -> &Lane<T> {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    fn lane_mut(&mut self, direction: Direction) -> &mut Lane<T> {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }
}
