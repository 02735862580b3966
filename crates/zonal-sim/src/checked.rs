//! A model with checks for behaviour that no drive can have.
//!
//! The option `checked` of a simulated drive's name wraps its model in this. A violation aborts the
//! run: it is a bug in the model or in the write path, not an error of the drive.
//!
//! # Checks
//! - No sector is lost or duplicated: the submitted sectors are those written and those held, at
//!   any time.
//! - The writes of a zone arrive in ascending order without gaps and complete in that order;
//!   durable ones complete in order among themselves.
//! - There are no more concurrent writes at the drive than the write mode allows ([`Concurrency`]).
//! - The head does one thing at a time, and does not jump without a seek.
//! - Time does not run backwards, and every completion belongs to a command.

use crate::hibernation::Hibernation;
use crate::model::{Job, Model, Span, Tag, Totals};
use std::collections::{HashMap, VecDeque};
use zonal_core::{Geometry, Nanos, Sector, ZoneIndex};
use zonal_io::device::HeadMoves;

/// Writes allowed at the drive at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concurrency {
    /// Any number, as in modes `direct`, `pipelined` and `append`.
    Many,
    /// One per zone, as in `per-zone` and `zone-lock`.
    Zone,
    /// One in total, as in `qd1`.
    Drive,
}

impl Concurrency {
    /// Parses the value of the option `checked`.
    pub fn from_name(name: &str) -> Option<Concurrency> {
        match name {
            "many" => Some(Concurrency::Many),
            "zone" => Some(Concurrency::Zone),
            "drive" => Some(Concurrency::Drive),
            _ => None,
        }
    }
}

/// Writes of a zone.
#[derive(Default)]
struct InZone {
    /// Offset of the next write, if there was one since the zone was last written from its start.
    next: Option<Sector>,
    /// Writes at the drive, in order. True for durable ones.
    unanswered: VecDeque<(Tag, bool)>,
}

/// A model with checks. See the module.
pub struct Checked {
    model: Box<dyn Model>,
    geometry: Geometry,
    concurrency: Concurrency,
    now: Nanos,
    commands: HashMap<Tag, Job>,
    zones: HashMap<ZoneIndex, InZone>,
    /// Completions at the time being checked. Empty in between.
    answers: Vec<(Nanos, Tag)>,
    /// Number of writes at the drive.
    writes: usize,
    /// Sectors of all submitted writes.
    submitted: u64,
    seen: Totals,
    head: Option<Sector>,
    /// End of the head's current operation.
    busy_until: Nanos,
}

/// True if `job` writes to the medium.
fn writes(job: &Job) -> bool {
    job.op.is_write() && !job.refused
}

fn spent(totals: &Totals) -> Span {
    totals.moves.positioning_ns + totals.transferring
}

impl Checked {
    /// Checks `model`, a drive with `geometry`.
    pub fn new(model: Box<dyn Model>, geometry: Geometry, concurrency: Concurrency) -> Checked {
        Checked {
            seen: model.totals(),
            head: model.head(),
            model,
            geometry,
            concurrency,
            now: Nanos(0),
            commands: HashMap::new(),
            zones: HashMap::new(),
            answers: Vec::new(),
            writes: 0,
            submitted: 0,
            busy_until: Nanos(0),
        }
    }

    fn passes(&mut self, now: Nanos) {
        assert!(now >= self.now, "time runs backwards, from {:?} to {now:?}", self.now);
        self.now = now;
    }

    /// A write is submitted.
    fn arrives(&mut self, tag: Tag, job: &Job) {
        let zone = self.geometry.zone_of(job.sector);
        let of_zone = self.zones.entry(zone).or_default();
        let is_next =
            of_zone.next.is_none_or(|next| next == job.sector) || self.geometry.is_conventional(zone);
        let starts = job.sector == self.geometry.start_of(zone);
        assert!(is_next || starts, "{zone:?}: a write at {:?} where {:?} is next", job.sector, of_zone.next);
        of_zone.next = Some(Sector(job.sector.0 + u64::from(job.sectors)));
        of_zone.unanswered.push_back((tag, job.fua));
        self.writes += 1;
        self.submitted += u64::from(job.sectors);
        let together = match self.concurrency {
            Concurrency::Many => 1,
            Concurrency::Zone => of_zone.unanswered.len(),
            Concurrency::Drive => self.writes,
        };
        assert!(together == 1, "{together} writes are at the drive together, the last in {zone:?}");
    }

    /// A command completes.
    fn completed(&mut self, tag: Tag) {
        let job = self.commands.remove(&tag);
        let job = job.unwrap_or_else(|| panic!("an answer to {tag}, which is no command at the drive"));
        if writes(&job) {
            let zone = self.geometry.zone_of(job.sector);
            let unanswered = &mut self.zones.entry(zone).or_default().unanswered;
            // The cache completes a write before the medium has it, so a write that is not durable
            // may overtake a durable one.
            let first = unanswered.iter().position(|(_, fua)| *fua == job.fua);
            let first = first.and_then(|at| unanswered.remove(at)).map(|(tag, _)| tag);
            assert_eq!(first, Some(tag), "{zone:?}: a write is answered before one that came earlier");
            self.writes -= 1;
        }
    }

    /// Checks the model's totals after each of its events.
    fn check_totals(&mut self, at: Nanos) {
        let totals = self.model.totals();
        assert_eq!(totals.submitted, self.submitted, "sectors of writes that were submitted");
        assert_eq!(totals.submitted, totals.written + totals.held, "sectors written and held: {totals:?}");
        self.check_head(at, &totals);
        self.seen = totals;
    }

    fn check_head(&mut self, at: Nanos, totals: &Totals) {
        let busy = spent(totals) - spent(&self.seen);
        if busy > 0 {
            assert!(
                at >= self.busy_until,
                "the head begins at {at:?} and is busy until {:?}",
                self.busy_until
            );
            self.busy_until = Nanos(at.0 + busy);
        }
        let head = self.model.head();
        // Without positioning times, the head may jump.
        if totals.moves.positioning_ns > 0 && totals.moves.seeks == self.seen.moves.seeks {
            let went_on = head >= self.head;
            assert!(went_on, "the head went from {:?} to {head:?} without moving", self.head);
        }
        self.head = head;
    }
}

impl Model for Checked {
    fn queue_depth(&self) -> u32 {
        self.model.queue_depth()
    }

    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job) {
        self.passes(now);
        assert!(
            (self.commands.len() as u32) < self.model.queue_depth(),
            "more commands than the queue depth"
        );
        assert!(self.commands.insert(tag, *job).is_none(), "two commands have tag {tag}");
        if writes(job) {
            self.arrives(tag, job);
        } else if job.op.is_write() {
            // A rejected write may still have moved the zone's pointer.
            self.zones.entry(self.geometry.zone_of(job.sector)).or_default().next = None;
        }
        self.model.submit(now, tag, job);
        self.check_totals(now);
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        self.passes(now);
        // Advances one event at a time, so that each is checked.
        loop {
            let at = self.model.next().map_or(now, |next| next.min(now));
            let mut answers = std::mem::take(&mut self.answers);
            self.model.run(at, &mut |at, tag| answers.push((at, tag)));
            for (at, tag) in answers.drain(..) {
                self.completed(tag);
                answered(at, tag);
            }
            self.answers = answers;
            self.check_totals(at);
            if at == now {
                break;
            }
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.model.next()
    }

    fn answers_from(&self) -> Option<Nanos> {
        self.model.answers_from()
    }

    fn is_rotational(&self) -> bool {
        self.model.is_rotational()
    }

    fn has_volatile_cache(&self) -> bool {
        self.model.has_volatile_cache()
    }

    fn totals(&self) -> Totals {
        self.model.totals()
    }

    fn head(&self) -> Option<Sector> {
        self.model.head()
    }

    fn depends_on_data(&self) -> bool {
        self.model.depends_on_data()
    }

    fn zone_has(&mut self, zone: ZoneIndex, written: u32) {
        self.model.zone_has(zone, written);
    }

    fn hibernation(&self) -> Option<Hibernation> {
        self.model.hibernation()
    }

    fn head_moves(&self) -> Option<HeadMoves> {
        self.model.head_moves()
    }
}
