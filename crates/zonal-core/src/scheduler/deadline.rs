//! Batches, directions and deadlines.

use super::Direction;
use super::lane::{Arrival, Entry, Key, Lane, MergeRules, sector};
use super::options::{Limits, Options};
use super::parts::Parts;
use super::pick::{next_write, oldest_write};
use crate::units::{Nanos, Sector, Sectors, ZoneIndex};

/// A read or write that is to wait for its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<T> {
    /// Which way.
    pub direction: Direction,
    /// Where it begins.
    pub sector: Sector,
    /// How long it is.
    pub sectors: Sectors,
    /// Its zone, if it is a write to a sequential one: it then waits while that is locked. Either all writes of a zone
    /// name it or none does.
    pub zone: Option<ZoneIndex>,
    /// Whether it may leave together with others.
    pub mergeable: bool,
    /// What the caller knows it by.
    pub token: T,
}

/// What became of a request that was put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// It waits on its own.
    Queued,
    /// It is now part of a request that waited.
    Merged,
}

/// What is to go to the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispatched<T> {
    /// Which way.
    pub direction: Direction,
    /// Where it begins.
    pub sector: Sector,
    /// How long it is, all parts together.
    pub sectors: Sectors,
    /// The zone that the caller locks until it has completed.
    pub zone: Option<ZoneIndex>,
    /// Its requests, in ascending address.
    pub parts: Parts<T>,
}

/// What waits, and the rules by which it leaves: those of the [module](super).
#[derive(Debug)]
pub struct Scheduler<T> {
    options: Options,
    limits: Limits,
    reads: Lane<T>,
    writes: Lane<T>,
    arrivals: Arrival,
    /// Direction of the running batch.
    last: Direction,
    /// Requests of the running batch that have left.
    batching: u32,
    /// How often reads went although writes could have gone.
    starved: u32,
}

impl<T> Scheduler<T> {
    /// With nothing waiting.
    ///
    /// # Panics
    /// If zones have no size.
    pub fn new(options: Options, limits: Limits) -> Scheduler<T> {
        assert!(limits.zone_size.0 > 0, "zones have a size");
        let (reads, writes) = (Lane::new(), Lane::new());
        // As in Linux, where the first decision is one about a batch of writes that was never begun.
        let last = Direction::Write;
        Scheduler { options, limits, reads, writes, arrivals: 0, last, batching: 0, starved: 0 }
    }

    /// The settings.
    pub const fn options(&self) -> Options {
        self.options
    }

    /// Changes the settings. Deadlines of what waits stay.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Number of waiting requests; those that have joined count as one.
    pub fn len(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// When the first of the oldest read and the oldest write expires. Nothing has to happen then: it only changes what
    /// the next batch begins with.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.reads.deadline().into_iter().chain(self.writes.deadline()).min()
    }

    /// Puts in a request. It may join a waiting one, and may make two of them join.
    ///
    /// # Panics
    /// If the request is empty, does not lie in the zone that it names, or goes beyond 2^64.
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

    /// What goes to the device now, if anything may. The caller locks its zone before it asks again.
    ///
    /// Answers nothing only if no read waits and every write is held back by a locked zone: its own, or on a rotational
    /// drive that of the write where its run begins. It is worth asking again once a zone was unlocked or something came.
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

    /// Takes back the writes of a sequential zone, in ascending address: it is going to be reset.
    pub fn remove_zone(&mut self, zone: ZoneIndex) -> Vec<T> {
        let sectors = self.limits.zone_start(zone)..self.limits.zone_end(zone);
        self.writes.remove_range(sectors).into_iter().flat_map(|entry| entry.parts).collect()
    }

    /// Compares the orders of address and of arrival with each other.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self) -> Result<(), String> {
        self.reads.check().and_then(|()| self.writes.check())
    }

    /// The next of the running batch.
    fn batched(&self, is_locked: &impl Fn(ZoneIndex) -> bool) -> Option<Key> {
        if self.batching >= self.options.fifo_batch { None } else { self.next(self.last, is_locked) }
    }

    /// Which way the next batch goes. Counts how often writes that could have gone did not.
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

    /// On from the last place, unless the oldest of this direction has expired, whether or not it may go, or nothing
    /// lies after that place.
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
        // A write of the same zone that comes later may lie lower, so the search continues from the zone's start.
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
