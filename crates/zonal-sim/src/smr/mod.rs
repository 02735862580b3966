//! Host-managed SMR disk with a native command queue and a write cache.
//!
//! A command waits in the queue until the link is free and, for a write, until the cache has room.
//! The link carries one command at a time. A write completes when it is in the cache or, if it must
//! be durable, on the medium. A single head writes from the cache and reads for the queue. Data
//! that continues at the head's last position takes only its transfer time.
//!
//! With the cache disabled, a write completes when it is safe from a power loss. On present drives
//! that is not the medium but a small buffer that the drive can still save then, so the cache is
//! limited to that size.

mod cache;
mod mechanics;
mod options;
mod queue;

pub use cache::{CacheLimits, Order, Policy};
pub use mechanics::{DiskPlace, Mechanics, MechanicsOptions};
pub use options::SmrOptions;

use crate::engine::Agenda;
use crate::model::{Job, Model, Span, Tag, Totals};
use cache::{Cache, CachedWrite, Head, Pressure, Stream};
use queue::{CommandStage, Queue, Waiting};
use zonal_core::{Geometry, Nanos, Op, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_io::device::HeadMoves;

/// Model of an SMR disk. See the module.
#[derive(Debug)]
pub struct SmrDisk {
    geometry: Geometry,
    options: SmrOptions,
    mechanics: Mechanics,
    events: Agenda<SmrEvent>,
    /// Commands waiting for the link.
    queue: Queue,
    /// Command on the link.
    link: Option<Waiting>,
    cache: Cache,
    head: Head,
    /// Current operation of the head.
    medium: Option<Task>,
    /// Time that the head has spent writing its stream since a write moved it there. Missed
    /// rotations and intervening reads do not end a stream.
    dwelt: Span,
    /// Number of reads since the last write to the medium.
    reads_in_a_row: u32,
    /// Number of writes in the cache or at the head that complete on the medium.
    durable: u32,
    /// Flushes, each waiting until all writes older than this number are on the medium.
    flushes: Vec<(u64, Tag)>,
    sequence: u64,
    totals: Totals,
}

#[derive(Clone, Copy, Debug)]
enum SmrEvent {
    /// The link has transferred its command.
    Carried,
    /// The head has finished its operation.
    Medium,
    /// A command without data is done.
    Managed(Tag),
}

/// Operation of the head.
#[derive(Clone, Copy, Debug)]
enum Task {
    Write(CachedWrite),
    Read(Tag),
}

impl SmrDisk {
    /// Creates a disk with `geometry`.
    pub fn new(geometry: Geometry, options: SmrOptions) -> SmrDisk {
        SmrDisk {
            geometry,
            mechanics: Mechanics::new(geometry, options.mechanics),
            events: Agenda::default(),
            queue: Queue::new(options.admits_in_order),
            link: None,
            cache: Cache::new(options.cache_limits(), geometry.zones()),
            head: Head { cylinder: 0.0, next: Sector(0), at: Nanos(0) },
            medium: None,
            dwelt: 0,
            reads_in_a_row: 0,
            durable: 0,
            flushes: Vec::new(),
            sequence: 0,
            totals: Totals::default(),
            options,
        }
    }

    fn zone_of(&self, sector: Sector) -> ZoneIndex {
        self.geometry.zone_of(sector)
    }

    /// Starts everything that can start now.
    fn start(&mut self, now: Nanos) {
        if self.link.is_none() {
            self.start_link(now);
        }
        if self.medium.is_none() {
            self.start_medium(now);
        }
    }

    fn start_link(&mut self, now: Nanos) {
        let Some(waiting) = self.queue.next(&self.cache) else { return };
        if waiting.is_write() {
            self.cache.reserve(waiting.zone, bytes(waiting.job.sectors));
        }
        self.events.push(Nanos(now.0 + waiting.link_time), SmrEvent::Carried);
        self.link = Some(waiting);
    }

    fn link_time(&self, job: &Job) -> Span {
        let carries = !job.refused && matches!(job.op, Op::Read | Op::Write | Op::Append);
        let data = if carries { bytes(job.sectors) as f64 * 1e9 / self.options.link_rate } else { 0.0 };
        self.options.command + data as u64
    }

    fn carried(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        let Some(Waiting { tag, job, .. }) = self.link.take() else { return };
        match job.op {
            _ if job.refused => answered(now, tag),
            Op::Read | Op::Verify => answered(now, tag),
            Op::Write | Op::WriteZeroes | Op::Append => self.cached(now, tag, &job, answered),
            Op::Flush if self.is_clean() => answered(now, tag),
            Op::Flush => self.flushes.push((self.sequence, tag)),
            Op::ZoneReset
            | Op::ZoneFinish
            | Op::ZoneOpen
            | Op::ZoneClose
            | Op::ZoneOffline
            | Op::ResetAll
            | Op::Report
            | Op::Discard => {
                self.events.push(Nanos(now.0 + self.options.manage), SmrEvent::Managed(tag));
            }
        }
    }

    /// A write has reached the cache.
    fn cached(&mut self, now: Nanos, tag: Tag, job: &Job, answered: &mut dyn FnMut(Nanos, Tag)) {
        let place = self.mechanics.place(job.sector, job.sectors);
        let entry = CachedWrite {
            sector: job.sector,
            sectors: job.sectors,
            place,
            arrived: now,
            sequence: self.sequence,
            tag: job.fua.then_some(tag),
        };
        self.sequence += 1;
        self.cache.insert(self.zone_of(job.sector), entry);
        match job.fua {
            true => self.durable += 1,
            false => answered(now, tag),
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
        let continues = entry.sector == self.head.next;
        self.dwelt = entry.place.transfer + if continues { self.dwelt } else { 0 };
        self.move_head(now, positioning, entry.sector, entry.sectors, &entry.place);
        self.medium = Some(Task::Write(entry));
        true
    }

    /// Demands on the head. Waiting writes are examined only if the options make a difference.
    fn pressure(&self, now: Nanos) -> Pressure {
        let Order { patience, dwell, .. } = self.options.order;
        let flush = self.flushes.first().map(|(until, _)| *until);
        if patience == 0 && dwell == 0 {
            return Pressure { flush, ..Pressure::default() };
        }
        let oldest = self.queue.writes().next();
        let is_urgent = patience != 0 && oldest.is_some_and(|w| now.0 - w.since.0 >= patience);
        let stream = match dwell {
            0 => Stream::Free,
            // A command that has waited for too long is next, wherever it is.
            _ if is_urgent => Stream::Free,
            _ if self.is_wanted_elsewhere() && self.has_paid_for_a_move() => Stream::Left,
            _ => Stream::Kept,
        };
        Pressure { is_urgent, stream, flush }
    }

    /// True if the head has written its stream for long enough to leave it.
    fn has_paid_for_a_move(&self) -> bool {
        let dwell = u64::from(self.options.order.dwell);
        let seek = self.cache.seek_away(&self.mechanics, &self.head);
        seek.is_some_and(|seek| self.dwelt.saturating_mul(1000) >= dwell.saturating_mul(seek))
    }

    /// True if a write for a zone other than the head's finds no room, or waits for an earlier
    /// write to find it.
    fn is_wanted_elsewhere(&self) -> bool {
        let here = self.mechanics.zone_of_head(self.head.next);
        // A stream that has reached the end of its zone continues in the next one, which is not
        // elsewhere.
        let end = self.cache.end_of(here).unwrap_or(self.head.next);
        let goes_on = if end == self.geometry.start_of(ZoneIndex(here.0 + 1)) { here.0 + 1 } else { here.0 };
        let is_elsewhere = |w: &Waiting| !(here.0..=goes_on).contains(&w.zone.0);
        self.queue.writes_without_room(&self.cache).any(is_elsewhere)
    }

    /// Starts the read with the shortest positioning time. The continuation of a sequential read
    /// has been read ahead.
    fn start_read(&mut self, now: Nanos) -> bool {
        if !self.queue.has_new_reads() {
            return false;
        }
        let timed = self.queue.new_reads().map(|(at, job)| {
            let place = self.mechanics.place(job.sector, job.sectors);
            (self.read_positioning(now, job.sector, &place), at, place)
        });
        let Some((positioning, at, place)) = timed.min_by_key(|(time, at, _)| (*time, *at)) else {
            return false;
        };
        let (tag, job) = self.queue.read_begins(at);
        self.reads_in_a_row += 1;
        let ahead = self.read_ahead(now, job.sector);
        // Data that passed the head in the meantime is in the buffer.
        let place = DiskPlace { transfer: place.transfer.saturating_sub(ahead), ..place };
        self.move_head(now, positioning, job.sector, job.sectors, &place);
        self.medium = Some(Task::Read(tag));
        true
    }

    /// Time for which the head has kept reading since its last read, if that continues at `sector`.
    fn read_ahead(&self, now: Nanos, sector: Sector) -> u64 {
        let idle = now.0 - self.head.at.0;
        if sector == self.head.next && self.reads_in_a_row > 0 && idle <= self.options.read_ahead {
            idle
        } else {
            0
        }
    }

    fn read_positioning(&self, now: Nanos, sector: Sector, place: &DiskPlace) -> Span {
        let is_ahead = sector == self.head.next
            && self.reads_in_a_row > 0
            && now.0 - self.head.at.0 <= self.options.read_ahead;
        if is_ahead { 0 } else { cache::positioning(now, &self.mechanics, &self.head, sector, place) }
    }

    fn move_head(&mut self, now: Nanos, positioning: Span, sector: Sector, sectors: u32, place: &DiskPlace) {
        let end = Nanos(now.0 + positioning + place.transfer);
        let continues = sector == self.head.next;
        let changes_zone = self.zone_of(sector) != self.mechanics.zone_of_head(self.head.next);
        let moves = &mut self.totals.moves;
        moves.seeks += u64::from(!continues);
        moves.zone_changes += u64::from(changes_zone);
        moves.missed_rotations += u64::from(continues && positioning > 0);
        moves.positioning_ns += positioning;
        self.totals.transferring += place.transfer;
        self.head = Head { cylinder: place.cylinder, next: Sector(sector.0 + u64::from(sectors)), at: end };
        self.events.push(end, SmrEvent::Medium);
    }

    /// The head has finished its operation.
    fn passed(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        self.queue.reconsider_all();
        match self.medium.take() {
            Some(Task::Write(entry)) => {
                self.cache.release(self.zone_of(entry.sector), bytes(entry.sectors));
                self.totals.written += u64::from(entry.sectors);
                if let Some(tag) = entry.tag {
                    self.durable -= 1;
                    answered(now, tag);
                }
                self.answer_flushes(now, answered);
            }
            Some(Task::Read(tag)) => {
                self.queue.read_ends(tag);
            }
            None => {}
        }
    }

    /// Earliest time of a completion that depends on the head, which is busy until `at`: at once
    /// for a durable write or a flush, but only after a link transfer for a write that finds room
    /// then.
    fn answers_from_medium(&self, at: Nanos) -> Option<Nanos> {
        if self.durable > 0 || !self.flushes.is_empty() {
            return Some(at);
        }
        self.queue.least_link_time().map(|time| Nanos(at.0 + time))
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
        let (zone, link_time) = (self.zone_of(job.sector), self.link_time(job));
        self.queue.push(Waiting { tag, job: *job, since: now, zone, stage: CommandStage::New, link_time });
        self.start(now);
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        while let Some((at, event)) = self.events.pop(now) {
            match event {
                SmrEvent::Carried => self.carried(at, answered),
                SmrEvent::Medium => self.passed(at, answered),
                SmrEvent::Managed(tag) => answered(at, tag),
            }
            self.start(at);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.events.next()
    }

    fn answers_from(&self) -> Option<Nanos> {
        let mut from = None;
        for (at, event) in self.events.iter() {
            if from.is_some_and(|from| from <= *at) {
                break;
            }
            let answers = match event {
                SmrEvent::Carried | SmrEvent::Managed(_) => Some(*at),
                SmrEvent::Medium => self.answers_from_medium(*at),
            };
            from = from.into_iter().chain(answers).min();
        }
        from
    }

    fn totals(&self) -> Totals {
        let queued = self.queue.sectors_written();
        Totals { held: queued + self.cache.bytes() / SECTOR_BYTES, ..self.totals }
    }

    fn is_rotational(&self) -> bool {
        true
    }

    fn has_volatile_cache(&self) -> bool {
        self.options.write_cache
    }

    fn head(&self) -> Option<Sector> {
        Some(self.head.next)
    }

    fn head_moves(&self) -> Option<HeadMoves> {
        Some(self.totals.moves)
    }
}

/// True if `job` reads from the medium.
fn reads(job: &Job) -> bool {
    job.op.is_read() && job.sectors != 0 && !job.refused
}

fn bytes(sectors: u32) -> u64 {
    u64::from(sectors) * SECTOR_BYTES
}
