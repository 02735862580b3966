//! Small numbers for threads, so that each can have its own line in a table.

use super::local;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Numbers returned by ended threads, and the next new one.
struct Slots {
    free: BTreeSet<usize>,
    next: usize,
}

impl Slots {
    /// Smallest free number, so that the threads of a model have the same numbers in each schedule.
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
    // All threads of a model run on the thread that runs the model, and other models have numbers
    // of their own.
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

/// Numbers from here on belong to exiting threads, which share them.
pub(crate) const ENDING_SLOT: usize = UNASSIGNED - 1;

local! {
    // Separate from the guard, so that the hot path reads a plain cell.
    static SLOT: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static GUARD: SlotGuard = SlotGuard::take();
}

/// Small number that no other living thread has.
#[inline]
pub(crate) fn thread_slot() -> usize {
    match SLOT.get() {
        UNASSIGNED => assign(),
        slot => slot,
    }
}

/// Number of the thread, or an arbitrary one if none was assigned yet.
#[inline]
pub(crate) fn slot_if_any() -> usize {
    SLOT.get()
}

/// True if this is the calling thread's number.
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
    // An exiting thread has lost its guard: it counts on the shared line and keeps no number.
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
