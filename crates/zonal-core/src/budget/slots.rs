//! How many slots there are, and how many each class has.

use super::options::WriterClass;
use crate::device::{Limits, Needs};

/// What zones of one class hold, and how much of that is about to be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// Open zones.
    pub open: u32,
    /// Open and closed zones.
    pub active: u32,
    /// Of the open ones, those with a write or about to have one: it may fill them.
    pub busy: u32,
    /// Of the open ones, those that are being closed.
    pub closing: u32,
    /// Of the open ones, those that are being finished.
    pub finishing_open: u32,
    /// Of all, those that are being finished.
    pub finishing: u32,
}

impl Tally {
    pub fn add(&mut self, zone: Tally) {
        self.each(zone, |sum, n| sum + n);
    }

    pub fn remove(&mut self, zone: Tally) {
        self.each(zone, |sum, n| sum.checked_sub(n).expect("a zone is counted before it is not"));
    }

    fn each(&mut self, zone: Tally, f: impl Fn(u32, u32) -> u32) {
        self.open = f(self.open, zone.open);
        self.active = f(self.active, zone.active);
        self.busy = f(self.busy, zone.busy);
        self.closing = f(self.closing, zone.closing);
        self.finishing_open = f(self.finishing_open, zone.finishing_open);
        self.finishing = f(self.finishing, zone.finishing);
    }

    /// Open slots held once what is being closed or finished is.
    pub fn open_that_stay(&self) -> u32 {
        self.open - self.closing - self.finishing_open
    }

    /// Active slots held once what is being finished is.
    pub fn active_that_stay(&self) -> u32 {
        self.active - self.finishing
    }
}

/// Which slot is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lack {
    Active,
    Open,
}

/// When slots are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    Now,
    /// At best: once every zone with a write is full and every other that is about to go has gone.
    AtBest,
}

#[derive(Debug)]
pub(super) struct Slots {
    pub limits: Limits,
    minimums: Vec<u32>,
    tallies: Vec<Tally>,
}

impl Slots {
    pub fn new(limits: Limits, minimums: Vec<u32>) -> Slots {
        let tallies = vec![Tally::default(); minimums.len()];
        Slots { limits, minimums, tallies }
    }

    pub fn classes(&self) -> impl Iterator<Item = WriterClass> + use<> {
        (0..self.minimums.len()).map(|index| WriterClass(index as u8))
    }

    pub fn tally(&self, class: WriterClass) -> &Tally {
        &self.tallies[class.index()]
    }

    pub fn tally_mut(&mut self, class: WriterClass) -> &mut Tally {
        &mut self.tallies[class.index()]
    }

    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// What a zone of `class` lacks of `needs`. The active slot first, as at the drive.
    pub fn lack(&self, class: WriterClass, needs: Needs, when: When) -> Option<Lack> {
        let Limits { open_max, active_max } = self.limits;
        let active = |t: &Tally| match when {
            When::Now => t.active,
            When::AtBest => t.active_that_stay() - t.busy,
        };
        let open = |t: &Tally| match when {
            When::Now => t.open,
            When::AtBest => t.open_that_stay() - t.busy,
        };
        match needs {
            Needs::Nothing => None,
            Needs::ActiveAndOpen if !self.has_room(active_max, class, active) => Some(Lack::Active),
            _ if !self.has_room(open_max, class, open) => Some(Lack::Open),
            _ => None,
        }
    }

    /// Whether there is a slot beyond those held and those kept for other classes.
    fn has_room(&self, max: u32, class: WriterClass, held: impl Fn(&Tally) -> u32) -> bool {
        let taken = self.classes().map(|c| {
            let (held, minimum) = (held(self.tally(c)), self.minimums[c.index()]);
            u64::from(if c == class { held } else { held.max(minimum) })
        });
        max == 0 || taken.sum::<u64>() < u64::from(max)
    }

    /// Whether closing or finishing a zone of class `victim` makes room for `class`, and is not made up for by keeping
    /// the slot for the victim's class.
    pub fn may_evict(&self, victim: WriterClass, class: WriterClass, lack: Lack) -> bool {
        let (tally, minimum) = (self.tally(victim), self.minimums[victim.index()]);
        let stay = match lack {
            Lack::Active => tally.active_that_stay(),
            Lack::Open => tally.open_that_stay(),
        };
        victim == class || stay > minimum
    }
}
