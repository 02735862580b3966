//! Who reaps a queue of the device, so that others leave it alone for a moment.
//!
//! What one completion leads to touches the zone, the queue and the requests of everybody who writes there. Two threads
//! that reap in turn take all of that away from each other with every completion, which costs several times the work
//! itself. So a thread that sees another at it holds back, and finds its own completions delivered.
//!
//! It is a hint and no lock: whoever is at it may have lost its processor, or be in a completion function that takes its
//! time. Others hold back a few times only, and then reap side by side with it.

use crate::sync::{AtomicUsize, CachePadded, IS_MODEL, Ordering, local, thread_slot};
use std::cell::Cell;

/// How often in a row a thread holds back.
const PATIENCE: u32 = if IS_MODEL { 1 } else { 32 };

/// Looks at the processor's pace each time: together some microseconds, as long as a turn takes.
const SPINS: u32 = 16;

local! {
    /// How often this thread has held back since it last reaped.
    static HELD_BACK: Cell<u32> = const { Cell::new(0) };
}

/// Nobody reaps the queue.
const NOBODY: usize = 0;

/// For each queue the thread that was the last to begin to reap it, if it has not ended.
pub(super) struct Reapers(Box<[CachePadded<AtomicUsize>]>);

impl Reapers {
    pub(super) fn new(queues: usize) -> Reapers {
        Reapers((0..queues).map(|_| CachePadded::default()).collect())
    }

    /// Whether the calling thread is to reap `queue` now; if so, [`Reapers::end`] is owed.
    #[inline]
    pub(super) fn begin(&self, queue: usize) -> bool {
        let reaper = &self.0[queue];
        let other = reaper.load(Ordering::Relaxed);
        // From a completion function one may poll again.
        if other != NOBODY && other != me() && hold_back() {
            return false;
        }
        // No more than a hint, so no locked operation: two that begin together both reap.
        reaper.store(me(), Ordering::Relaxed);
        true
    }

    #[inline]
    pub(super) fn end(&self, queue: usize) {
        let reaper = &self.0[queue];
        // Whoever began later is still at it.
        if reaper.load(Ordering::Relaxed) == me() {
            reaper.store(NOBODY, Ordering::Relaxed);
        }
    }
}

#[inline]
fn me() -> usize {
    thread_slot() + 1
}

#[cold]
fn hold_back() -> bool {
    let times = HELD_BACK.get();
    if times == PATIENCE {
        HELD_BACK.set(0);
        return false;
    }
    HELD_BACK.set(times + 1);
    (0..SPINS).for_each(|_| std::hint::spin_loop());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
    use crate::sync::{Arc, AtomicBool};
    use crate::volume::{Request, Volume, VolumeOptions};
    use std::sync::mpsc;
    use zonal_core::{Nanos, Sector};

    fn polled() -> Volume {
        let options = EmulatedOptions { size: 1 << 30, complete: CompleteMode::Poll, ..Default::default() };
        let device: Arc<dyn Device> = Arc::new(Emulated::new("null", &options, Null).unwrap());
        Volume::open(device, VolumeOptions::default()).unwrap()
    }

    #[test]
    fn reaper_at_it_others_hold_back_a_while_and_then_do_not() {
        let reapers = Arc::new(Reapers::new(1));
        assert!(reapers.begin(0));
        assert!(reapers.begin(0), "from a completion function");
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!((0..PATIENCE).all(|_| !reapers.begin(0)));
                assert!(reapers.begin(0));
            });
        });
        reapers.end(0);
        assert!(!reapers.begin(0), "the other is still at it");
    }

    /// The reaper is in a completion function that takes as long as the other thread needs.
    #[test]
    fn reaper_is_held_up_another_thread_gets_its_completions() {
        let volume = polled();
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = crate::sync::Mutex::new(released);
        std::thread::scope(|s| {
            s.spawn(|| {
                let channel = volume.channel(move |_| {
                    held.send(()).unwrap();
                    released.lock().recv().unwrap();
                });
                volume.submit(Nanos(0), &channel, Request::report(Sector(0), 1));
                volume.poll(Nanos(0));
            });
            is_held.recv().unwrap();
            let done = Arc::new(AtomicBool::new(false));
            let set = done.clone();
            let channel = volume.channel(move |_| set.store(true, Ordering::Relaxed));
            volume.submit(Nanos(0), &channel, Request::report(Sector(0), 1));
            let polls = (0..2 * PATIENCE).find(|_| {
                volume.poll(Nanos(0));
                done.load(Ordering::Relaxed)
            });
            release.send(()).unwrap();
            assert!(polls.is_some(), "held back for ever");
        });
    }
}
