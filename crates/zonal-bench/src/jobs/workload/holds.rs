//! fio's rule of who may use a zone: one job at a time, from its first I/O there until its last one has ended.
//!
//! In fio each sequential zone has a mutex that a job locks when it places an I/O and unlocks when that has completed;
//! the job itself may lock it again meanwhile. A job that finds a zone locked by another first lets all of its own I/O
//! end (`io_u_quiesce`), which unlocks its other zones and so keeps two jobs from waiting for each other, and then waits.
//!
//! Here the mutex is a word a zone, [`Holds`], and the way to it is a state, `Hold`, since nothing in a workload
//! blocks.
//!
//! # Who gets a zone that becomes free
//! The job that asks first, as with a mutex: the job that has just given it back has it again at once, if its next I/O
//! goes there. Of those that wait only the first in line may take it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::ZoneIndex;
use zonal_io::sync::Mutex;

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
    pub(super) fn take(&self, zone: ZoneIndex, worker: u32) -> bool {
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

    pub(super) fn line_up(&self, zone: ZoneIndex, worker: u32) {
        self.lines.lock().entry(zone.0).or_default().push_back(worker);
    }

    /// Takes a zone if the worker is the first of those that wait for it.
    pub(super) fn take_in_turn(&self, zone: ZoneIndex, worker: u32) -> bool {
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

    pub(super) fn leave(&self, zone: ZoneIndex, worker: u32) {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(&zone.0) {
            line.retain(|&other| other != worker);
            if line.is_empty() {
                lines.remove(&zone.0);
            }
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
