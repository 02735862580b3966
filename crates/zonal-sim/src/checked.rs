//! A model that is watched for what no drive can do.
//!
//! The option `checked` of a simulated drive's name puts this around its model. What is found breaks off the run: it is a
//! mistake of the model or of the write path, and no answer of a drive.
//!
//! # What is watched
//! - Nothing gets lost or doubled: the sectors submitted are those written and those held, at any time.
//! - Writes of a zone come in ascending order without a gap, and are answered in that order; durable ones in theirs.
//! - No more writes are at the drive than the write path promises ([`Company`]).
//! - The head does one thing at a time: nothing begins before the last has ended. It goes nowhere without moving.
//! - Time does not run backwards, and every answer is one to a command.

use crate::model::{Job, Model, Span, Tag, Totals};
use std::collections::{HashMap, VecDeque};
use zonal_core::{Geometry, Nanos, Sector, ZoneIndex};

/// Which writes may be at the drive together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Company {
    /// Any, as in the modes `direct`, `pipelined` and `append`.
    Many,
    /// One a zone, as in `per-zone` and `zone-lock`.
    Zone,
    /// One, as in `qd1`.
    Drive,
}

impl Company {
    /// From the value of the option `checked`.
    pub fn from_name(name: &str) -> Option<Company> {
        match name {
            "many" => Some(Company::Many),
            "zone" => Some(Company::Zone),
            "drive" => Some(Company::Drive),
            _ => None,
        }
    }
}

/// Writes of a zone.
#[derive(Default)]
struct InZone {
    /// Where the next one begins, if one has come since the zone was written from its start.
    next: Option<Sector>,
    /// At the drive, in order; whether they have to be durable.
    unanswered: VecDeque<(Tag, bool)>,
}

/// See the module.
pub struct Checked {
    model: Box<dyn Model>,
    geometry: Geometry,
    company: Company,
    now: Nanos,
    commands: HashMap<Tag, Job>,
    zones: HashMap<ZoneIndex, InZone>,
    /// Answers of the time that is looked at; empty in between.
    answers: Vec<(Nanos, Tag)>,
    /// Writes at the drive.
    writes: usize,
    /// Sectors of all writes that were submitted.
    submitted: u64,
    seen: Totals,
    head: Option<Sector>,
    /// When the head is through with what it does.
    busy_until: Nanos,
}

/// Whether `job` changes what is on the medium.
fn writes(job: &Job) -> bool {
    job.op.is_write() && !job.refused
}

fn spent(totals: &Totals) -> Span {
    totals.positioning + totals.transferring
}

impl Checked {
    /// Watches `model`, a drive divided so.
    pub fn new(model: Box<dyn Model>, geometry: Geometry, company: Company) -> Checked {
        Checked {
            seen: model.totals(),
            head: model.head(),
            model,
            geometry,
            company,
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

    /// A write arrives.
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
        let together = match self.company {
            Company::Many => 1,
            Company::Zone => of_zone.unanswered.len(),
            Company::Drive => self.writes,
        };
        assert!(together == 1, "{together} writes are at the drive together, the last in {zone:?}");
    }

    /// A command is answered.
    fn leaves(&mut self, tag: Tag) {
        let job = self.commands.remove(&tag);
        let job = job.unwrap_or_else(|| panic!("an answer to {tag}, which is no command at the drive"));
        if writes(&job) {
            let zone = self.geometry.zone_of(job.sector);
            let unanswered = &mut self.zones.entry(zone).or_default().unanswered;
            // The cache answers at once what the medium has later: a write that is not durable may pass a durable one.
            let first = unanswered.iter().position(|(_, fua)| *fua == job.fua);
            let first = first.and_then(|at| unanswered.remove(at)).map(|(tag, _)| tag);
            assert_eq!(first, Some(tag), "{zone:?}: a write is answered before one that came earlier");
            self.writes -= 1;
        }
    }

    /// Looks at what the model says of itself, after each thing that happened in it.
    fn look(&mut self, at: Nanos) {
        let totals = self.model.totals();
        assert_eq!(totals.submitted, self.submitted, "sectors of writes that were submitted");
        assert_eq!(totals.submitted, totals.written + totals.held, "sectors written and held: {totals:?}");
        self.look_at_head(at, &totals);
        self.seen = totals;
    }

    fn look_at_head(&mut self, at: Nanos, totals: &Totals) {
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
        // A disk that needs no time for it goes anywhere.
        if totals.positioning > 0 && totals.positionings == self.seen.positionings {
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
        assert!((self.commands.len() as u32) < self.model.queue_depth(), "a command more than it holds");
        assert!(self.commands.insert(tag, *job).is_none(), "two commands are called {tag}");
        if writes(job) {
            self.arrives(tag, job);
        } else if job.op.is_write() {
            // What was refused may have moved the zone's pointer all the same.
            self.zones.entry(self.geometry.zone_of(job.sector)).or_default().next = None;
        }
        self.model.submit(now, tag, job);
        self.look(now);
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        self.passes(now);
        // One time after the other, so that each is seen.
        loop {
            let at = self.model.next().map_or(now, |next| next.min(now));
            let mut answers = std::mem::take(&mut self.answers);
            self.model.run(at, &mut |at, tag| answers.push((at, tag)));
            for (at, tag) in answers.drain(..) {
                self.leaves(tag);
                answered(at, tag);
            }
            self.answers = answers;
            self.look(at);
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

    fn has_volatile_cache(&self) -> bool {
        self.model.has_volatile_cache()
    }

    fn totals(&self) -> Totals {
        self.model.totals()
    }

    fn head(&self) -> Option<Sector> {
        self.model.head()
    }
}
