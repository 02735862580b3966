//! Small numbers for threads, so that each can have a line of its own in a table.

use super::local;
use std::cell::Cell;
use std::sync::Mutex;

/// Numbers given back by ended threads, and the next fresh one.
static SLOTS: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

const UNASSIGNED: usize = usize::MAX;

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

#[cold]
fn assign() -> usize {
    // A thread that is ending has no guard any more: it counts on the shared line, and keeps no number.
    let slot = GUARD.try_with(|g| g.0).unwrap_or(UNASSIGNED - 1);
    if slot < UNASSIGNED - 1 {
        SLOT.set(slot);
    }
    slot
}

struct SlotGuard(usize);

impl SlotGuard {
    fn take() -> SlotGuard {
        let mut slots = SLOTS.lock().expect("nothing panics under this lock");
        let (free, next) = &mut *slots;
        SlotGuard(free.pop().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        SLOT.set(UNASSIGNED);
        SLOTS.lock().expect("nothing panics under this lock").0.push(self.0);
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
