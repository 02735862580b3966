//! Live counters, cheap enough for the hot path: a thread adds to a line of its own, without a locked operation.

use crate::sync::{CachePadded, Ordering, Tally, local};
use std::cell::Cell;
use std::sync::Mutex;

/// Threads with a line of their own; later ones share the last line with locked additions.
const LINES: usize = 64;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $field:ident,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum Counter { $($name,)* }

        /// A sum of the live counters, from the volume's opening on.
        ///
        /// Taken while others count, so figures that belong together may differ by what is in flight.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct Statistics { $($(#[$doc])* pub $field: u64,)* }

        const COUNTERS: usize = [$(Counter::$name),*].len();

        impl Statistics {
            fn from_sums(sums: [u64; COUNTERS]) -> Statistics {
                Statistics { $($field: sums[Counter::$name as usize],)* }
            }
        }
    };
}

counters! {
    /// Requests submitted.
    Requests requests,
    /// Sectors of these requests.
    Sectors sectors,
    /// Commands that the device took.
    Commands commands,
    /// Writes that waited in a plug.
    Queued queued,
    /// Writes that shared another's command.
    Merged merged,
    /// Requests that ended with an error; one that spans zones counts once, however many of its parts fail.
    Failed failed,
    /// Times that the device's queue was full.
    Busy busy,
    /// Zones that were asked for their pointer after a failed write.
    Resyncs resyncs,
    /// Failed writes that were sent again, each time.
    Redriven redriven,
    /// Failed writes that were read back, because the zone's pointer had passed them.
    ReadBack read_back,
    /// Those of them that were found, whole.
    Verified verified,
    /// Writes that came before their predecessors and waited for them.
    Parked parked,
    /// Zones that had to wait for an open or active slot, each time.
    SlotWaits slot_waits,
    /// Zones closed or finished to make room for others, each time.
    Evicted evicted,
}

pub(crate) struct Counters {
    lines: Box<[CachePadded<[Tally; COUNTERS]>]>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let lines = std::iter::repeat_with(Default::default).take(LINES).collect();
        Counters { lines }
    }

    /// The calling thread's line.
    #[inline(always)]
    pub(crate) fn line(&self) -> Line<'_> {
        let slot = thread_slot();
        let own = slot < LINES - 1;
        Line { counters: &self.lines[if own { slot } else { LINES - 1 }], own }
    }

    pub(crate) fn sum(&self) -> Statistics {
        let mut sums = [0; COUNTERS];
        for line in &self.lines {
            for (sum, counter) in sums.iter_mut().zip(line.iter()) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        Statistics::from_sums(sums)
    }
}

/// One thread's counters.
pub(crate) struct Line<'a> {
    counters: &'a [Tally; COUNTERS],
    own: bool,
}

impl Line<'_> {
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let c = &self.counters[counter as usize];
        if self.own {
            // Only this thread writes the line, so nothing is lost between load and store.
            c.store(c.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        } else {
            c.fetch_add(n, Ordering::Relaxed);
        }
    }
}

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
    fn counters_of_more_threads_than_lines_lose_nothing() {
        let counters = Counters::new();
        std::thread::scope(|s| {
            for _ in 0..2 * LINES {
                s.spawn(|| (0..1000).for_each(|_| counters.line().add(Counter::Queued, 2)));
            }
        });
        assert_eq!(counters.sum().queued, 2 * LINES as u64 * 2000);
    }

    #[test]
    fn thread_slots_of_living_threads_differ_and_are_reused() {
        let mine = thread_slot();
        let theirs = std::thread::spawn(thread_slot).join().unwrap();
        assert_ne!(mine, theirs);
        assert_eq!(mine, thread_slot());
    }
}
