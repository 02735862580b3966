//! How threads that wait hear of the work that other threads leave for polls.
//!
//! A thread polls, is told when to poll again, and sleeps until then. Another thread may leave work for an earlier time, or for
//! now, once that poll has looked, and ring before the first thread has armed: then no ring is heard, and the time that the
//! first thread was told is out of date. So rings are counted. A thread keeps the count with which its last poll began, and
//! does not sleep once there have been more.
//!
//! The count that was seen is kept for each thread, not for each queue: a poll tells its own thread the deadline, and the
//! other threads of its queue nothing.

use super::watch::Watches;
use crate::news::Wakeups;
use crate::sync::{
    Arc, AtomicU64, CachePadded, ENDING_SLOT, IS_MODEL, Ordering, PlainU64, fence, thread_slot,
};
use zonal_core::Nanos;

/// Threads that keep a count of their own. Those beyond share one, and may look once too often or, in a short moment, sleep
/// for the time that they were told.
const THREADS: usize = if IS_MODEL { 4 } else { 256 };

/// The wake-ups of a volume, and how often it has rung.
pub(super) struct Alarm {
    wakeups: Wakeups,
    rings: CachePadded<AtomicU64>,
    /// For each thread, by its number, the rings that its last poll knew of. Each thread reads and writes its own.
    heard: Box<[PlainU64]>,
    /// For each queue, the time that the last poll of its threads was told; [`NEVER`] if none.
    told: Box<[CachePadded<PlainU64>]>,
    /// For each thread, by its number, the time that its last poll was told. A thread that polls takes the device's news along:
    /// another thread that was told a later time, or none, looks once more before it sleeps.
    knows: Box<[PlainU64]>,
    watches: Watches,
}

/// No time was told.
const NEVER: u64 = u64::MAX;

/// The rings that a poll knows of.
#[derive(Clone, Copy)]
pub(super) struct Rings(u64);

impl Alarm {
    /// Of a volume whose device has this number of queues.
    pub(super) fn new(wakeups: Wakeups, queues: usize) -> Arc<Alarm> {
        let heard = std::iter::repeat_with(|| PlainU64::new(0)).take(THREADS).collect();
        Arc::new(Alarm {
            wakeups,
            rings: CachePadded::new(AtomicU64::new(0)),
            heard,
            told: std::iter::repeat_with(|| CachePadded::new(PlainU64::new(NEVER))).take(queues).collect(),
            knows: std::iter::repeat_with(|| PlainU64::new(NEVER)).take(THREADS).collect(),
            watches: Watches::new(queues),
        })
    }

    pub(super) fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Wakes the thread with this number, if it sleeps: it has been left what it waits for.
    #[inline(never)]
    pub(super) fn wake(&self, thread: usize) {
        // The thread is seen to sleep, or looks for what it waits for after this and sees it.
        fence(Ordering::SeqCst);
        if !self.watches.wake(thread) && self.wakeups.has_sleepers() {
            match thread >= ENDING_SLOT {
                true => self.wakeups.ring_all(),
                false => self.wakeups.ring_one(thread),
            }
        }
    }

    /// A thread has left work for polls. Under no lock: it may write the descriptors of threads that sleep.
    pub(super) fn ring(&self) {
        // After the work: a poll that knows of this ring finds the work.
        self.rings.fetch_add(1, Ordering::AcqRel);
        self.wakeups.ring_all();
    }

    /// What a poll asks before it looks for work.
    #[inline]
    pub(super) fn rings(&self) -> Rings {
        Rings(self.rings.load(Ordering::Acquire))
    }

    /// The calling thread's poll has done what it found, and knows of `rings`. Last: a poll from inside one of its completion
    /// functions may know of more, and has not told this one.
    #[inline]
    pub(super) fn have_heard(&self, rings: Rings) {
        let heard = self.heard();
        if heard.load(Ordering::Relaxed) != rings.0 {
            heard.store(rings.0, Ordering::Relaxed);
        }
    }

    /// The calling thread's poll has told it this time, for `queue`, its own.
    #[inline]
    pub(super) fn have_told(&self, queue: usize, due: Option<Nanos>) {
        let due = due.map_or(NEVER, |due| due.0);
        let set = |place: &PlainU64| {
            if place.load(Ordering::Relaxed) != due {
                place.store(due, Ordering::Relaxed);
            }
        };
        set(&self.told[queue]);
        set(&self.knows[thread_slot() % self.knows.len()]);
    }

    /// Whether it has rung since the calling thread's last poll began, or another thread of its queue was told an earlier time: what
    /// a thread asks once a ring would wake it.
    pub(super) fn has_rung(&self, queue: usize) -> bool {
        let knows = self.knows[thread_slot() % self.knows.len()].load(Ordering::Relaxed);
        if self.told[queue].load(Ordering::Relaxed) < knows {
            return true;
        }

        #[cfg(any(feature = "loom", feature = "shuttle"))]
        if crate::sync::model::is_broken(crate::sync::model::Canary::Uncounted) {
            return false;
        }
        self.heard().load(Ordering::Relaxed) != self.rings().0
    }

    fn heard(&self) -> &PlainU64 {
        &self.heard[thread_slot() % self.heard.len()]
    }
}
