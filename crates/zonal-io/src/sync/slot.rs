//! Small numbers for threads, so that each can have a line of its own in a table.

use super::local;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Numbers given back by ended threads, and the next fresh one.
struct Slots {
    free: BTreeSet<usize>,
    next: usize,
}

impl Slots {
    /// The smallest number that no thread has, so that a model's threads have the same ones in each schedule.
    fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
static SLOTS: Mutex<Slots> = Mutex::new(Slots { free: BTreeSet::new(), next: 0 });

#[cfg(any(feature = "loom", feature = "shuttle"))]
std::thread_local! {
    // All threads of a model run on the thread that runs the model, and other models have numbers of their own.
    static MODEL_SLOTS: Mutex<Slots> = const { Mutex::new(Slots { free: BTreeSet::new(), next: 0 }) };
}

fn with_slots<R>(change: impl FnOnce(&mut Slots) -> R) -> R {
    let change = |slots: &Mutex<Slots>| change(&mut slots.lock().expect("nothing panics under this lock"));
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    return change(&SLOTS);
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    MODEL_SLOTS.with(change)
}

const UNASSIGNED: usize = usize::MAX;

/// From this number on, threads that are ending: they share what they have for a number.
pub(crate) const ENDING_SLOT: usize = UNASSIGNED - 1;

local! {
    // Apart from the guard, so that the hot path reads a plain cell.
    static SLOT: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static GUARD: SlotGuard = SlotGuard::take();
}

/// A small number that no other living thread has.
#[inline]
pub(crate) fn thread_slot() -> usize {
    match SLOT.get() {
        UNASSIGNED => assign(),
        slot => slot,
    }
}

/// The thread's number, or some number if it has not asked for one yet.
#[inline]
pub(crate) fn slot_if_any() -> usize {
    SLOT.get()
}

/// Whether the calling thread has this number.
#[inline]
pub(crate) fn is_mine(slot: usize) -> bool {
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    if super::model::is_broken(super::model::Canary::Mine) {
        return true;
    }
    slot_if_any() == slot
}

#[cold]
fn assign() -> usize {
    // A thread that is ending has no guard any more: it counts on the shared line, and keeps no number.
    let slot = GUARD.try_with(|g| g.0).unwrap_or(ENDING_SLOT);
    if slot < ENDING_SLOT {
        SLOT.set(slot);
    }
    slot
}

struct SlotGuard(usize);

impl SlotGuard {
    fn take() -> SlotGuard {
        SlotGuard(with_slots(Slots::take))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        SLOT.set(UNASSIGNED);
        with_slots(|slots| slots.free.insert(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_slots_of_living_threads_differ_and_are_reused() {
        let mine = thread_slot();
        let theirs = std::thread::spawn(thread_slot).join().unwrap();
        assert_ne!(mine, theirs);
        assert_eq!(mine, thread_slot());
    }
}
