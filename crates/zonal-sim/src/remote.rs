//! A drive at a distance: each command and each completion is on the way for half of a round trip.
//!
//! The way has no capacity, so any number of commands and completions are on it at once, and it
//! keeps their order. A command that finds the drive's queue full waits in front of it.

use crate::hibernation::Hibernation;
use crate::model::{Job, Model, Span, Tag, Totals};
use std::collections::VecDeque;
use zonal_core::{Nanos, Sector, ZoneIndex};
use zonal_io::device::HeadMoves;

/// Commands at the drive and on the way, for drives with a shorter queue. Far more than the jobs
/// of a benchmark have in flight.
const COMMANDS_MAX: u32 = 4096;

/// A model at a distance. See the module.
pub struct Remote {
    model: Box<dyn Model>,
    /// Time of a command to the drive.
    there: Span,
    /// Time of a completion back.
    back: Span,
    /// Time until which the model has run.
    now: Nanos,
    /// Commands on the way or in front of the drive, with the times at which they arrive there.
    commands: VecDeque<(Nanos, Tag, Job)>,
    /// Number of commands that the drive has accepted and not completed.
    at_drive: u32,
    /// Completions on the way, with the times at which they arrive at the host.
    answers: VecDeque<(Nanos, Tag)>,
}

impl Remote {
    /// Puts `model` at a distance of `round_trip` nanoseconds there and back.
    pub fn new(model: Box<dyn Model>, round_trip: Span) -> Remote {
        let there = round_trip / 2;
        Remote {
            model,
            there,
            back: round_trip - there,
            now: Nanos(0),
            commands: VecDeque::new(),
            at_drive: 0,
            answers: VecDeque::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.at_drive < self.model.queue_depth()
    }

    /// Runs the model until `now`.
    fn run_model(&mut self, now: Nanos) {
        self.now = now;
        let Remote { model, back, at_drive, answers, .. } = self;
        model.run(now, &mut |at, tag| {
            *at_drive -= 1;
            answers.push_back((Nanos(at.0 + *back), tag));
        });
    }

    /// Time of the drive's next step up to `now` after which a command may enter its queue; `now`
    /// if there is none.
    fn next_step(&self, now: Nanos) -> Nanos {
        match self.commands.front() {
            Some((at, ..)) if *at <= now && self.has_room() => self.now.max(*at),
            Some((at, ..)) if *at <= now => self.model.next().map_or(now, |next| next.min(now)),
            _ => now,
        }
    }
}

/// Time after `delay`.
fn after(time: Option<Nanos>, delay: Span) -> Option<Nanos> {
    time.map(|time| Nanos(time.0 + delay))
}

impl Model for Remote {
    fn queue_depth(&self) -> u32 {
        self.model.queue_depth().max(COMMANDS_MAX)
    }

    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job) {
        self.commands.push_back((Nanos(now.0 + self.there), tag, *job));
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        loop {
            let step = self.next_step(now);
            self.run_model(step);
            while self.has_room()
                && let Some((_, tag, job)) = self.commands.pop_front_if(|(at, ..)| *at <= step)
            {
                self.at_drive += 1;
                self.model.submit(step, tag, &job);
            }
            if step == now {
                break;
            }
        }
        while let Some((at, tag)) = self.answers.pop_front_if(|(at, _)| *at <= now) {
            answered(at, tag);
        }
    }

    fn next(&self) -> Option<Nanos> {
        let arrives = self.commands.front().filter(|_| self.has_room()).map(|(at, ..)| *at);
        let answer = self.answers.front().map(|(at, _)| *at);
        arrives.into_iter().chain(self.model.next()).chain(answer).min()
    }

    fn answers_from(&self) -> Option<Nanos> {
        if let Some((at, _)) = self.answers.front() {
            return Some(*at);
        }
        // While the drive's queue is full, a command arrives there after the drive's next answer.
        let arrives = self.commands.front().filter(|_| self.has_room()).map(|(at, ..)| *at);
        after(arrives, self.back).into_iter().chain(after(self.model.answers_from(), self.back)).min()
    }

    fn totals(&self) -> Totals {
        self.model.totals()
    }

    fn is_rotational(&self) -> bool {
        self.model.is_rotational()
    }

    fn has_volatile_cache(&self) -> bool {
        self.model.has_volatile_cache()
    }

    fn head(&self) -> Option<Sector> {
        self.model.head()
    }

    fn head_moves(&self) -> Option<HeadMoves> {
        self.model.head_moves()
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
}
