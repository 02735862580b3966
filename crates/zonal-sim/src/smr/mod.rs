//! A host-managed SMR disk with a native command queue and a write cache.
//!
//! A command waits in the queue until the link is free and, if it is a write, the cache has room for it; links carry one
//! command at a time. A write is answered when the cache has it, or when it is on the medium if it has to be durable. One
//! head writes what the cache gives it and reads what the queue asks for. Data that goes on where the head has just been
//! costs its transfer only.
//!
//! With the cache switched off a write is answered when it is safe from a loss of power, which on today's drives is not the
//! medium but a small buffer that the drive can still save then: the cache is as small as that.

mod cache;
mod mechanics;
mod options;

pub use cache::{CacheLimits, Order, Policy};
pub use mechanics::{Mechanics, MechanicsOptions, Place};
pub use options::SmrOptions;

use crate::engine::Heap;
use crate::model::{Job, Model, Span, Tag, Totals};
use cache::{Cache, Entry, Head, Pressure};
use std::collections::VecDeque;
use zonal_core::{Geometry, Nanos, Op, SECTOR_BYTES, Sector, ZoneIndex};

/// See the module.
#[derive(Debug)]
pub struct SmrDisk {
    geometry: Geometry,
    options: SmrOptions,
    mechanics: Mechanics,
    events: Heap<Event>,
    /// Commands that the link has not carried yet, in order of arrival.
    queue: VecDeque<Waiting>,
    link_is_busy: bool,
    cache: Cache,
    head: Head,
    /// What the head is at.
    medium: Option<Task>,
    /// Bytes that the head has written since it moved last.
    visited: u64,
    /// Reads since the last write went to the medium.
    reads_in_a_row: u32,
    /// Flushes that wait until all that is older than this is on the medium.
    flushes: Vec<(u64, Tag)>,
    sequence: u64,
    totals: Totals,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The link has carried this command.
    Carried(Waiting),
    /// The head is through with its task.
    Medium,
    /// A command that touches no data is done.
    Managed(Tag),
}

/// A command in the queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: Tag,
    job: Job,
    since: Nanos,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    /// A read that the head is at.
    Reading,
    /// A read whose data is in the drive's buffer.
    HasData,
}

/// What the head does.
#[derive(Clone, Copy, Debug)]
enum Task {
    Write(Entry),
    Read(Tag),
}

impl SmrDisk {
    /// A disk divided so.
    pub fn new(geometry: Geometry, options: SmrOptions) -> SmrDisk {
        SmrDisk {
            geometry,
            mechanics: Mechanics::new(geometry, options.mechanics),
            events: Heap::default(),
            queue: VecDeque::new(),
            link_is_busy: false,
            cache: Cache::new(options.cache_limits()),
            head: Head { cylinder: 0.0, next: Sector(0), at: Nanos(0) },
            medium: None,
            visited: 0,
            reads_in_a_row: 0,
            flushes: Vec::new(),
            sequence: 0,
            totals: Totals::default(),
            options,
        }
    }

    fn zone_of(&self, sector: Sector) -> ZoneIndex {
        self.geometry.zone_of(sector)
    }

    /// Starts whatever can start now.
    fn start(&mut self, now: Nanos) {
        if !self.link_is_busy {
            self.start_link(now);
        }
        if self.medium.is_none() {
            self.start_medium(now);
        }
    }

    /// Whether a write of `zone` waits in the queue before the place `at`: a small one would fit where that does not.
    fn waits_for_one_of(&self, zone: ZoneIndex, at: usize) -> bool {
        let is_one =
            |w: &Waiting| w.job.op.is_write() && !w.job.refused && self.zone_of(w.job.sector) == zone;
        self.queue.iter().take(at).any(is_one)
    }

    fn start_link(&mut self, now: Nanos) {
        let mut is_held_up = false;
        let goes = |(at, w): (usize, &Waiting)| match (w.job.op, w.stage) {
            _ if w.job.refused || w.job.sectors == 0 => true,
            (Op::Read, stage) => stage == Stage::HasData,
            _ => {
                let zone = self.zone_of(w.job.sector);
                let has_room = !is_held_up && self.cache.has_room(zone, bytes(w.job.sectors));
                is_held_up = self.options.admits_in_order && !has_room;
                has_room && !self.waits_for_one_of(zone, at)
            }
        };
        let mut waiting = self.queue.iter().enumerate();
        let Some(at) = waiting.position(goes) else { return };
        let Some(waiting) = self.queue.remove(at) else { return };
        let Job { op, sector, sectors, refused, .. } = waiting.job;
        let carries = !refused && matches!(op, Op::Read | Op::Write | Op::Append);
        if !refused && sectors != 0 && op != Op::Read {
            self.cache.reserve(self.zone_of(sector), bytes(sectors));
        }
        self.link_is_busy = true;
        let data = if carries { bytes(sectors) as f64 * 1e9 / self.options.link_rate } else { 0.0 };
        self.events.push(Nanos(now.0 + self.options.command + data as u64), Event::Carried(waiting));
    }

    fn carried(&mut self, now: Nanos, waiting: Waiting, answered: &mut dyn FnMut(Nanos, Tag)) {
        self.link_is_busy = false;
        let Waiting { tag, job, .. } = waiting;
        match job.op {
            _ if job.refused => answered(now, tag),
            Op::Read => answered(now, tag),
            Op::Write | Op::WriteZeroes | Op::Append => self.cached(now, tag, &job, answered),
            Op::Flush if self.is_clean() => answered(now, tag),
            Op::Flush => self.flushes.push((self.sequence, tag)),
            Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose | Op::ResetAll | Op::Report => {
                self.events.push(Nanos(now.0 + self.options.manage), Event::Managed(tag));
            }
        }
    }

    /// A write is in the cache.
    fn cached(&mut self, now: Nanos, tag: Tag, job: &Job, answered: &mut dyn FnMut(Nanos, Tag)) {
        let place = self.mechanics.place(job.sector, job.sectors);
        let entry = Entry {
            sector: job.sector,
            sectors: job.sectors,
            place,
            arrived: now,
            sequence: self.sequence,
            tag: job.fua.then_some(tag),
        };
        self.sequence += 1;
        self.cache.insert(self.zone_of(job.sector), entry);
        if !job.fua {
            answered(now, tag);
        }
    }

    fn is_clean(&self) -> bool {
        self.cache.oldest().is_none() && !matches!(self.medium, Some(Task::Write(_)))
    }

    fn start_medium(&mut self, now: Nanos) {
        let reads_first = self.reads_in_a_row < self.options.reads_before_write;
        let started = match reads_first {
            true => self.start_read(now) || self.start_write(now),
            false => self.start_write(now) || self.start_read(now),
        };
        debug_assert!(started || self.medium.is_none());
    }

    fn start_write(&mut self, now: Nanos) -> bool {
        let order = &self.options.order;
        let pressure = self.pressure(now);
        let Some((entry, positioning)) = self.cache.next(now, order, &self.mechanics, &self.head, pressure)
        else {
            return false;
        };
        self.reads_in_a_row = 0;
        self.visited = bytes(entry.sectors) + if positioning == 0 { self.visited } else { 0 };
        self.move_head(now, positioning, entry.sector, entry.sectors, &entry.place);
        self.medium = Some(Task::Write(entry));
        true
    }

    /// What the writes in the queue ask of the head. Where nothing is asked for they are not looked at.
    fn pressure(&self, now: Nanos) -> Pressure {
        let Order { patience, visit_bytes, .. } = self.options.order;
        let is_long = visit_bytes != 0 && self.visited >= visit_bytes;
        if patience == 0 && !is_long {
            return Pressure::default();
        }
        let mut waiting = self.queue.iter().filter(|w| w.job.op.is_write() && !w.job.refused);
        let oldest = waiting.clone().next();
        let is_urgent = patience != 0 && oldest.is_some_and(|w| now.0 - w.since.0 >= patience);
        let here = self.mechanics.zone_of_head(self.head.next);
        // A stream that has come to its zone's end goes on in the next one, which is no other place.
        let end = self.cache.end_of(here).unwrap_or(self.head.next);
        let goes_on = if end == self.geometry.start_of(ZoneIndex(here.0 + 1)) { here.0 + 1 } else { here.0 };
        let is_elsewhere = |w: &Waiting| !(here.0..=goes_on).contains(&self.zone_of(w.job.sector).0);
        Pressure { is_urgent, moves_on: is_long && !is_urgent && waiting.any(is_elsewhere) }
    }

    /// Reads what is under the head first. What a stream goes on with has been read ahead.
    fn start_read(&mut self, now: Nanos) -> bool {
        let new = self.queue.iter().enumerate().filter(|(_, w)| {
            w.job.op == Op::Read && w.job.sectors != 0 && !w.job.refused && w.stage == Stage::New
        });
        let timed = new.map(|(at, w)| {
            let place = self.mechanics.place(w.job.sector, w.job.sectors);
            (self.read_positioning(now, w.job.sector, &place), at, place)
        });
        let Some((positioning, at, place)) = timed.min_by_key(|(time, at, _)| (*time, *at)) else {
            return false;
        };
        let waiting = &mut self.queue[at];
        waiting.stage = Stage::Reading;
        let Waiting { tag, job, .. } = *waiting;
        self.reads_in_a_row += 1;
        let ahead = self.read_ahead(now, job.sector);
        // What went past the head meanwhile is in the buffer.
        let place = Place { transfer: place.transfer.saturating_sub(ahead), ..place };
        self.move_head(now, positioning, job.sector, job.sectors, &place);
        self.medium = Some(Task::Read(tag));
        true
    }

    /// For how long the head has gone on reading behind its last read, if that is where `sector` is.
    fn read_ahead(&self, now: Nanos, sector: Sector) -> u64 {
        let idle = now.0 - self.head.at.0;
        if sector == self.head.next && self.reads_in_a_row > 0 && idle <= self.options.read_ahead {
            idle
        } else {
            0
        }
    }

    fn read_positioning(&self, now: Nanos, sector: Sector, place: &Place) -> Span {
        let is_ahead = sector == self.head.next
            && self.reads_in_a_row > 0
            && now.0 - self.head.at.0 <= self.options.read_ahead;
        if is_ahead { 0 } else { cache::positioning(now, &self.mechanics, &self.head, sector, place) }
    }

    fn move_head(&mut self, now: Nanos, positioning: Span, sector: Sector, sectors: u32, place: &Place) {
        let end = Nanos(now.0 + positioning + place.transfer);
        self.totals.positionings += u64::from(positioning > 0);
        self.totals.positioning += positioning;
        self.totals.transferring += place.transfer;
        self.head = Head { cylinder: place.cylinder, next: Sector(sector.0 + u64::from(sectors)), at: end };
        self.events.push(end, Event::Medium);
    }

    /// The head is through.
    fn passed(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        match self.medium.take() {
            Some(Task::Write(entry)) => {
                self.cache.release(self.zone_of(entry.sector), bytes(entry.sectors));
                self.totals.written += u64::from(entry.sectors);
                if let Some(tag) = entry.tag {
                    answered(now, tag);
                }
                self.answer_flushes(now, answered);
            }
            Some(Task::Read(tag)) => {
                if let Some(waiting) = self.queue.iter_mut().find(|w| w.tag == tag) {
                    waiting.stage = Stage::HasData;
                }
            }
            None => {}
        }
    }

    fn answer_flushes(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        if self.flushes.is_empty() {
            return;
        }
        let oldest = self.cache.oldest().unwrap_or(u64::MAX);
        self.flushes.retain(|&(until, tag)| {
            let waits = oldest < until;
            if !waits {
                answered(now, tag);
            }
            waits
        });
    }
}

impl Model for SmrDisk {
    fn queue_depth(&self) -> u32 {
        self.options.queue_depth
    }

    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job) {
        if job.op.is_write() && !job.refused {
            self.totals.submitted += u64::from(job.sectors);
        }
        self.queue.push_back(Waiting { tag, job: *job, since: now, stage: Stage::New });
        self.start(now);
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        while let Some((at, event)) = self.events.pop(now) {
            match event {
                Event::Carried(waiting) => self.carried(at, waiting, answered),
                Event::Medium => self.passed(at, answered),
                Event::Managed(tag) => answered(at, tag),
            }
            self.start(at);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.events.next()
    }

    fn totals(&self) -> Totals {
        let queued: u64 = self
            .queue
            .iter()
            .filter(|w| w.job.op.is_write() && !w.job.refused)
            .map(|w| u64::from(w.job.sectors))
            .sum();
        Totals { held: queued + self.cache.bytes() / SECTOR_BYTES, ..self.totals }
    }

    fn has_volatile_cache(&self) -> bool {
        self.options.write_cache
    }

    fn head(&self) -> Option<Sector> {
        Some(self.head.next)
    }
}

fn bytes(sectors: u32) -> u64 {
    u64::from(sectors) * SECTOR_BYTES
}
