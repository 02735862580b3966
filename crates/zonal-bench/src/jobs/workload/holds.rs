//! fio's rule of zone ownership: a zone belongs to one job at a time, from its first I/O until its
//! last one has completed.
//!
//! In fio each sequential zone has a mutex. A job locks it when it places an I/O and unlocks it on
//! completion; it may lock it repeatedly in between. A job that finds a zone locked by another
//! first waits for all of its own I/O (`io_u_quiesce`). That unlocks its other zones, so two jobs
//! cannot wait for each other. Then it waits for the zone.
//!
//! Here the mutex is a word per zone, [`Holds`]. Acquiring it is a state machine, `Hold`, because a
//! workload never blocks.
//!
//! # Order of acquisition
//! A free zone goes to the first job that asks, as with a mutex: a job that has just released it
//! gets it back at once if its next I/O goes there. Among the waiting jobs only the first in the
//! queue may take it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::ZoneIndex;
use zonal_io::sync::Mutex;

/// Unit of the owner field above the count of I/Os. The field is the worker's index plus 1.
const OWNER_ONE: u64 = 1 << 32;
const COUNT: u64 = OWNER_ONE - 1;

/// Owners of the zones.
pub(super) struct Holds {
    /// Owner of each zone and its number of I/Os; 0 if the zone is free.
    words: Box<[AtomicU64]>,
    /// Waiting workers of each zone in order of arrival. Zones without waiting workers have no
    /// entry.
    lines: Mutex<BTreeMap<u32, VecDeque<u32>>>,
}

impl Holds {
    pub(super) fn new(zones: u32) -> Holds {
        Holds { words: (0..zones).map(|_| AtomicU64::new(0)).collect(), lines: Mutex::default() }
    }

    fn word(&self, zone: ZoneIndex) -> &AtomicU64 {
        &self.words[zone.0 as usize]
    }

    /// Acquires one more reference to a zone, unless another worker holds it.
    pub(super) fn take(&self, zone: ZoneIndex, worker: u32) -> bool {
        let owner = (u64::from(worker) + 1) * OWNER_ONE;
        let word = self.word(zone);
        match word.load(Ordering::Acquire) {
            0 => word.compare_exchange(0, owner + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok(),
            // Only the owner changes the word of a held zone.
            held if held & !COUNT == owner => {
                word.store(held + 1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// Releases one reference. Called by the owner only.
    pub(super) fn give_back(&self, zone: ZoneIndex) {
        let word = self.word(zone);
        let held = word.load(Ordering::Acquire);
        debug_assert!(held & COUNT > 0, "a zone is given back by who has it");
        word.store(if held & COUNT == 1 { 0 } else { held - 1 }, Ordering::Release);
    }

    /// Index of the worker that holds a zone.
    pub(super) fn owner(&self, zone: ZoneIndex) -> Option<u32> {
        let owner = self.word(zone).load(Ordering::Acquire) / OWNER_ONE;
        owner.checked_sub(1).map(|worker| worker as u32)
    }

    pub(super) fn enqueue(&self, zone: ZoneIndex, worker: u32) {
        self.lines.lock().entry(zone.0).or_default().push_back(worker);
    }

    /// Acquires a zone if the worker is first in its queue.
    pub(super) fn acquire_if_first(&self, zone: ZoneIndex, worker: u32) -> bool {
        let is_first = self.lines.lock().get(&zone.0).and_then(|line| line.front()) == Some(&worker);
        let is_taken = is_first && self.take(zone, worker);
        if is_taken {
            self.leave(zone, worker);
        }
        is_taken
    }

    /// True if a zone is free and this worker is first in its queue.
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
        [2, 0, 1].iter().for_each(|&worker| holds.enqueue(Z, worker));
        assert!(!holds.acquire_if_first(Z, 2) && !holds.is_next(Z, 2), "it is not free");
        holds.give_back(Z);
        assert!(holds.is_next(Z, 2) && !holds.is_next(Z, 0));
        assert!(!holds.acquire_if_first(Z, 0));
        assert!(holds.acquire_if_first(Z, 2));
        holds.give_back(Z);
        holds.leave(Z, 0);
        assert!(holds.acquire_if_first(Z, 1));
        assert!(holds.lines.lock().is_empty());
    }

    #[test]
    fn who_gave_it_back_has_it_again_before_those_in_line() {
        let holds = Holds::new(8);
        assert!(holds.take(Z, 0));
        holds.enqueue(Z, 1);
        holds.give_back(Z);
        assert!(holds.take(Z, 0));
        assert!(!holds.acquire_if_first(Z, 1));
    }
}
