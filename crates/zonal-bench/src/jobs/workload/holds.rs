//! fio's rule of who may use a zone: one job at a time, from its first I/O there until its last one has ended.
//!
//! In fio each sequential zone has a mutex that a job locks when it places an I/O and unlocks when that has completed;
//! the job itself may lock it again meanwhile. A job that finds a zone locked by another first lets all of its own I/O
//! end (`io_u_quiesce`), which unlocks its other zones and so keeps two jobs from waiting for each other, and then waits.
//!
//! Here the mutex is a word a zone, [`Holds`], and the way to it is a state, [`Hold`], since nothing in a workload
//! blocks.
//!
//! # Who gets a zone that becomes free
//! The job that asks first, as with a mutex: the job that has just given it back has it again at once, if its next I/O
//! goes there. Of those that wait only the first in line may take it.

use super::zones::Zones;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::ZoneIndex;
use zonal_io::sync::Mutex;

/// How workers share zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostRules {
    /// As fio's jobs do, which is what a job file means: a zone is one worker's while I/O of it is in flight there.
    #[default]
    Fio,
    /// As the write path allows: any number of workers have writes of a zone in flight, which are submitted in the order
    /// of their places.
    Zonal,
}

/// Above the number of I/Os: the worker that has the zone, from 1.
const OWNER_ONE: u64 = 1 << 32;
const COUNT: u64 = OWNER_ONE - 1;

/// Who has which zone.
pub(super) struct Holds {
    /// A zone's owner and how many of its I/Os hold it; 0 of a free one.
    words: Box<[AtomicU64]>,
    /// Workers that wait for a zone, in order of arrival; no entry where no worker does.
    lines: Mutex<BTreeMap<u32, VecDeque<u32>>>,
}

impl Holds {
    pub(super) fn new(zones: u32) -> Holds {
        Holds { words: (0..zones).map(|_| AtomicU64::new(0)).collect(), lines: Mutex::default() }
    }

    fn word(&self, zone: ZoneIndex) -> &AtomicU64 {
        &self.words[zone.0 as usize]
    }

    /// Takes a zone once more, if no other worker has it.
    fn take(&self, zone: ZoneIndex, worker: u32) -> bool {
        let owner = (u64::from(worker) + 1) * OWNER_ONE;
        let word = self.word(zone);
        match word.load(Ordering::Acquire) {
            0 => word.compare_exchange(0, owner + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok(),
            // Only the owner changes the word of a zone that has one.
            held if held & !COUNT == owner => {
                word.store(held + 1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// Gives a zone back once, by its owner.
    pub(super) fn give_back(&self, zone: ZoneIndex) {
        let word = self.word(zone);
        let held = word.load(Ordering::Acquire);
        debug_assert!(held & COUNT > 0, "a zone is given back by who has it");
        word.store(if held & COUNT == 1 { 0 } else { held - 1 }, Ordering::Release);
    }

    /// The worker that has a zone.
    pub(super) fn owner(&self, zone: ZoneIndex) -> Option<u32> {
        let owner = self.word(zone).load(Ordering::Acquire) / OWNER_ONE;
        owner.checked_sub(1).map(|worker| worker as u32)
    }

    fn line_up(&self, zone: ZoneIndex, worker: u32) {
        self.lines.lock().entry(zone.0).or_default().push_back(worker);
    }

    /// Takes a zone if the worker is the first of those that wait for it.
    fn take_in_turn(&self, zone: ZoneIndex, worker: u32) -> bool {
        let is_first = self.lines.lock().get(&zone.0).and_then(|line| line.front()) == Some(&worker);
        let is_taken = is_first && self.take(zone, worker);
        if is_taken {
            self.leave(zone, worker);
        }
        is_taken
    }

    /// Whether a zone is free and this worker the first of those that wait for it.
    pub(super) fn is_next(&self, zone: ZoneIndex, worker: u32) -> bool {
        let is_free = self.word(zone).load(Ordering::Acquire) == 0;
        is_free && self.lines.lock().get(&zone.0).and_then(|line| line.front()) == Some(&worker)
    }

    fn leave(&self, zone: ZoneIndex, worker: u32) {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(&zone.0) {
            line.retain(|&other| other != worker);
            if line.is_empty() {
                lines.remove(&zone.0);
            }
        }
    }
}

/// Whether a worker waits for the zone that its next I/O will go to, or has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Apart,
    /// Lets its own I/O end before it waits for this zone.
    Draining(ZoneIndex),
    InLine(ZoneIndex),
    Has(ZoneIndex),
}

/// What ends a worker's wait, apart from the end of an I/O of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// Nothing else.
    Nothing,
    /// That it is the first in line for this zone and no worker has it.
    Zone(ZoneIndex),
    /// That another worker gets on.
    Others,
}

/// One worker's hold on the zone that its next I/O goes to.
pub(super) struct Hold {
    /// Whether it keeps to fio's rule at all.
    is_kept: bool,
    worker: u32,
    stage: Stage,
}

impl Hold {
    pub(super) fn new(is_kept: bool, worker: u32) -> Hold {
        Hold { is_kept, worker, stage: Stage::Apart }
    }

    /// What ends its wait.
    pub(super) fn awaits(&self) -> Awaits {
        match self.stage {
            Stage::Draining(_) => Awaits::Nothing,
            Stage::InLine(zone) => Awaits::Zone(zone),
            Stage::Apart | Stage::Has(_) => Awaits::Others,
        }
    }

    /// The zone that it waits for or has.
    pub(super) fn zone(&self) -> Option<ZoneIndex> {
        match self.stage {
            Stage::Apart => None,
            Stage::Draining(zone) | Stage::InLine(zone) | Stage::Has(zone) => Some(zone),
        }
    }

    /// Whether zones have to be held.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Takes the next step to a zone, with `in_flight` I/Os of its own, and gives up any other; whether it has it.
    pub(super) fn take(&mut self, zone: ZoneIndex, in_flight: u32, zones: &Zones) -> bool {
        let Some(holds) = zones.holds().filter(|_| self.is_kept) else { return true };
        match self.stage {
            Stage::Apart => {}
            Stage::Has(held) | Stage::Draining(held) | Stage::InLine(held) if held == zone => {}
            _ => self.give_up(zones),
        }
        if self.stage == Stage::Apart {
            let is_free = holds.take(zone, self.worker);
            self.stage = if is_free { Stage::Has(zone) } else { Stage::Draining(zone) };
        }
        if self.stage == Stage::Draining(zone) && in_flight == 0 {
            holds.line_up(zone, self.worker);
            self.stage = Stage::InLine(zone);
        }
        if self.stage == Stage::InLine(zone) && holds.take_in_turn(zone, self.worker) {
            self.stage = Stage::Has(zone);
        }
        self.stage == Stage::Has(zone)
    }

    /// The I/O that goes out now keeps the zone; whether there is one.
    pub(super) fn hand_over(&mut self) -> bool {
        let has_one = matches!(self.stage, Stage::Has(_));
        if has_one {
            self.stage = Stage::Apart;
        }
        has_one
    }

    /// Gives up what it has and what it waits for.
    pub(super) fn give_up(&mut self, zones: &Zones) {
        let Some(holds) = zones.holds() else { return };
        match std::mem::take(&mut self.stage) {
            Stage::Has(zone) => holds.give_back(zone),
            Stage::InLine(zone) => holds.leave(zone, self.worker),
            Stage::Apart | Stage::Draining(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const Z: ZoneIndex = ZoneIndex(3);

    #[test]
    fn zone_is_its_owners_until_given_back_as_often_as_taken() {
        let holds = Holds::new(8);
        assert!(holds.take(Z, 0) && holds.take(Z, 0));
        assert!(!holds.take(Z, 1) && holds.take(ZoneIndex(4), 1));
        holds.give_back(Z);
        assert_eq!(holds.owner(Z), Some(0));
        assert!(!holds.take(Z, 1));
        holds.give_back(Z);
        assert_eq!(holds.owner(Z), None);
        assert!(holds.take(Z, 1));
    }

    #[test]
    fn line_is_served_in_order_of_arrival() {
        let holds = Holds::new(8);
        assert!(holds.take(Z, 9));
        [2, 0, 1].iter().for_each(|&worker| holds.line_up(Z, worker));
        assert!(!holds.take_in_turn(Z, 2) && !holds.is_next(Z, 2), "it is not free");
        holds.give_back(Z);
        assert!(holds.is_next(Z, 2) && !holds.is_next(Z, 0));
        assert!(!holds.take_in_turn(Z, 0));
        assert!(holds.take_in_turn(Z, 2));
        holds.give_back(Z);
        holds.leave(Z, 0);
        assert!(holds.take_in_turn(Z, 1));
        assert!(holds.lines.lock().is_empty());
    }

    #[test]
    fn who_gave_it_back_has_it_again_before_those_in_line() {
        let holds = Holds::new(8);
        assert!(holds.take(Z, 0));
        holds.line_up(Z, 1);
        holds.give_back(Z);
        assert!(holds.take(Z, 0));
        assert!(!holds.take_in_turn(Z, 1));
    }
}
