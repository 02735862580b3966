//! Limits, and the slots held by each class.

use super::options::WriterClass;
use crate::device::{Limits, Needs};

/// Slots held by the zones of one class, and the share of them about to be released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// Open zones.
    pub open: u32,
    /// Open and closed zones.
    pub active: u32,
    /// Open zones with a write in flight or about to be: it may fill them.
    pub busy: u32,
    /// Open zones being closed.
    pub closing: u32,
    /// Open zones being finished.
    pub finishing_open: u32,
    /// Open and closed zones being finished.
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

    /// Open slots still held once zones being closed or finished are.
    pub fn open_remaining(&self) -> u32 {
        self.open - self.closing - self.finishing_open
    }

    /// Active slots still held once zones being finished are.
    pub fn active_remaining(&self) -> u32 {
        self.active - self.finishing
    }
}

/// Missing slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MissingSlot {
    Active,
    Open,
}

/// Point in time at which slots are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Horizon {
    Now,
    /// In the best case: once every zone with a write is full, and every zone being closed or
    /// finished is.
    BestCase,
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

    /// Returns the slot of `needs` that a zone of `class` lacks. The active one is checked first,
    /// as on the drive.
    pub fn missing_slot(&self, class: WriterClass, needs: Needs, when: Horizon) -> Option<MissingSlot> {
        let Limits { open_max, active_max } = self.limits;
        let active = |t: &Tally| match when {
            Horizon::Now => t.active,
            Horizon::BestCase => t.active_remaining() - t.busy,
        };
        let open = |t: &Tally| match when {
            Horizon::Now => t.open,
            Horizon::BestCase => t.open_remaining() - t.busy,
        };
        match needs {
            Needs::Nothing => None,
            Needs::ActiveAndOpen if !self.has_room(active_max, class, active) => Some(MissingSlot::Active),
            _ if !self.has_room(open_max, class, open) => Some(MissingSlot::Open),
            _ => None,
        }
    }

    /// True if a slot is free that is not reserved for another class.
    fn has_room(&self, max: u32, class: WriterClass, held: impl Fn(&Tally) -> u32) -> bool {
        let taken = self.classes().map(|c| {
            let (held, minimum) = (held(self.tally(c)), self.minimums[c.index()]);
            u64::from(if c == class { held } else { held.max(minimum) })
        });
        max == 0 || taken.sum::<u64>() < u64::from(max)
    }

    /// True if closing or finishing a zone of class `victim` makes room for `class`. It does not if
    /// the slot would be reserved for the victim's class.
    pub fn may_evict(&self, victim: WriterClass, class: WriterClass, missing: MissingSlot) -> bool {
        let (tally, minimum) = (self.tally(victim), self.minimums[victim.index()]);
        let stay = match missing {
            MissingSlot::Active => tally.active_remaining(),
            MissingSlot::Open => tally.open_remaining(),
        };
        victim == class || stay > minimum
    }
}
