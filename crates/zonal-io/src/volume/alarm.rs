//! Wakeups of waiting threads for work that other threads leave to polls.
//!
//! A thread polls, gets a deadline for the next poll, and sleeps until then. Another thread may
//! leave earlier work just after that poll, and ring before the first thread has armed: the ring
//! then wakes nobody, and the deadline is out of date. Rings are therefore counted. Each thread
//! keeps the count as of the start of its last poll, and does not sleep if the count has changed
//! since.
//!
//! The count is kept per thread, not per queue, since a poll returns its deadline only to its own
//! thread.

use super::watch::Watches;
use crate::news::Wakeups;
use crate::sync::{
    Arc, AtomicU64, CachePadded, ENDING_SLOT, IS_MODEL, Ordering, PlainU64, fence, thread_slot,
};
use zonal_core::Nanos;

/// Number of threads with a count of their own. Later threads share one, and may poll once too
/// often or, in a short window, sleep until their deadline.
const THREADS: usize = if IS_MODEL { 4 } else { 256 };

/// Wakeups of a volume, and the number of rings so far.
pub(super) struct Alarm {
    wakeups: Wakeups,
    rings: CachePadded<AtomicU64>,
    /// Rings covered by the last poll of each thread, by thread number. Accessed only by that
    /// thread.
    rings_seen: Box<[PlainU64]>,
    /// Deadline returned by the last poll on each queue; [`NEVER`] if none.
    queue_deadline: Box<[CachePadded<PlainU64>]>,
    /// Deadline returned by the last poll of each thread, by thread number. A poll consumes the
    /// device's news: another thread of the queue with a later deadline, or none, has to poll once
    /// more before it sleeps.
    thread_deadline: Box<[PlainU64]>,
    watches: Watches,
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Number of rings covered by a poll.
#[derive(Clone, Copy)]
pub(super) struct Rings(u64);

impl Alarm {
    /// Creates the alarm of a volume with this number of device queues.
    pub(super) fn new(wakeups: Wakeups, queues: usize) -> Arc<Alarm> {
        let rings_seen = std::iter::repeat_with(|| PlainU64::new(0)).take(THREADS).collect();
        Arc::new(Alarm {
            wakeups,
            rings: CachePadded::new(AtomicU64::new(0)),
            rings_seen,
            queue_deadline: std::iter::repeat_with(|| CachePadded::new(PlainU64::new(NEVER)))
                .take(queues)
                .collect(),
            thread_deadline: std::iter::repeat_with(|| PlainU64::new(NEVER)).take(THREADS).collect(),
            watches: Watches::new(queues),
        })
    }

    pub(super) fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Wakes the thread with this number, if it sleeps, after a completion for it was stored.
    #[inline(never)]
    pub(super) fn wake(&self, thread: usize) {
        // Either the sleeper is visible here, or it checks for its completion after this fence and
        // sees it.
        fence(Ordering::SeqCst);
        if !self.watches.wake(thread) && self.wakeups.has_sleepers() {
            match thread >= ENDING_SLOT {
                true => self.wakeups.ring_all(),
                false => self.wakeups.ring_one(thread),
            }
        }
    }

    /// Wakes pollers for new work. Not under a lock, since it may write the descriptors of sleeping
    /// threads.
    pub(super) fn ring(&self) {
        // After the work was stored, so that a poll that covers this ring finds it.
        self.rings.fetch_add(1, Ordering::AcqRel);
        self.wakeups.ring_all();
    }

    /// Number of rings, read by a poll before it looks for work.
    #[inline]
    pub(super) fn rings(&self) -> Rings {
        Rings(self.rings.load(Ordering::Acquire))
    }

    /// Records that the calling thread's poll has covered `rings`. Called last: a nested poll in
    /// one of its completion functions may have covered more, unknown to this one.
    #[inline]
    pub(super) fn record_rings(&self, rings: Rings) {
        let last = self.last_rings();
        if last.load(Ordering::Relaxed) != rings.0 {
            last.store(rings.0, Ordering::Relaxed);
        }
    }

    /// Records the deadline that the calling thread's poll returns, for its own `queue`.
    #[inline]
    pub(super) fn record_deadline(&self, queue: usize, due: Option<Nanos>) {
        let due = due.map_or(NEVER, |due| due.0);
        let set = |place: &PlainU64| {
            if place.load(Ordering::Relaxed) != due {
                place.store(due, Ordering::Relaxed);
            }
        };
        set(&self.queue_deadline[queue]);
        set(&self.thread_deadline[thread_slot() % self.thread_deadline.len()]);
    }

    /// True if the alarm has rung since the start of the calling thread's last poll, or another
    /// thread of its queue got an earlier deadline. Checked by a thread after it has armed.
    pub(super) fn has_rung(&self, queue: usize) -> bool {
        let own = self.thread_deadline[thread_slot() % self.thread_deadline.len()].load(Ordering::Relaxed);
        if self.queue_deadline[queue].load(Ordering::Relaxed) < own {
            return true;
        }

        #[cfg(any(feature = "loom", feature = "shuttle"))]
        if crate::sync::model::is_broken(crate::sync::model::Canary::Uncounted) {
            return false;
        }
        self.last_rings().load(Ordering::Relaxed) != self.rings().0
    }

    fn last_rings(&self) -> &PlainU64 {
        &self.rings_seen[thread_slot() % self.rings_seen.len()]
    }
}
