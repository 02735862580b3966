//! Commands that have been executed and wait for `poll` to hand them out.
//!
//! Each queue has its own lock, held for the time of a few moves and never while the caller's code runs.

use super::zones::Placed;
use crate::device::{CommandResult, Completed, Context};
use crate::news::Wakeups;
use crate::sync::{AtomicU32, CachePadded, Ordering, ShortLock, waits_for};
use std::collections::VecDeque;
use zonal_core::Nanos;

/// A command's answer, and the place that a write keeps until the answer is out.
pub(crate) struct Executed {
    pub(crate) result: CommandResult,
    pub(crate) held: Option<Placed>,
}

struct Waiting {
    due: Nanos,
    context: Context,
    executed: Executed,
}

#[derive(Default)]
struct Queue {
    /// Places taken by [`Queues::reserve`] since the beginning, less those given back; wraps.
    reserved: AtomicU32,
    /// Commands delivered since the beginning; wraps. Changed under `waiting` only, so without a locked operation.
    delivered: AtomicU32,
    waiting: ShortLock<WaitingList>,
}

#[derive(Default)]
struct WaitingList {
    /// In the order of execution, which is also that of their deadlines.
    commands: VecDeque<Waiting>,
    /// Something is there that the last poll has not seen, or has not had the budget to take.
    has_news: bool,
}

/// All queues of a device.
pub(crate) struct Queues {
    queues: Box<[CachePadded<Queue>]>,
    depth: u32,
    delay: Nanos,
    wakeups: Wakeups,
}

impl Queues {
    pub(crate) fn new(queues: usize, depth: u32, delay: Nanos) -> Queues {
        Queues {
            queues: (0..queues).map(|_| CachePadded::default()).collect(),
            depth,
            delay,
            wakeups: Wakeups::new(queues),
        }
    }

    /// Takes a place among the commands in flight on `queue`, to be filled by [`Queues::add`]; `false` if all are taken.
    pub(crate) fn reserve(&self, queue: usize) -> bool {
        let Queue { reserved, delivered, .. } = &*self.queues[queue];
        let before = reserved.fetch_add(1, Ordering::Relaxed);
        let free = before.wrapping_sub(delivered.load(Ordering::Relaxed)) < self.depth;
        if !free {
            reserved.fetch_sub(1, Ordering::Relaxed);
        }
        free
    }

    /// Gives back a place of [`Queues::reserve`] that will not be filled.
    pub(crate) fn cancel(&self, queue: usize) {
        self.queues[queue].reserved.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds an executed command to `queue`.
    pub(crate) fn add(&self, now: Nanos, queue: usize, context: Context, executed: Executed) {
        let due = Nanos(now.0.saturating_add(self.delay.0));
        let mut waiting = self.queues[queue].waiting.lock();
        // Two threads may bring their times in the wrong order.
        let due = waiting.commands.back().map_or(due, |last| due.max(last.due));
        waiting.commands.push_back(Waiting { due, context, executed });
        let had_news = std::mem::replace(&mut waiting.has_news, true);
        drop(waiting);
        // A thread arms before it looks for news under this queue's lock: it sees them, or is seen here.
        if !had_news {
            self.wakeups.ring(queue);
        }
    }

    /// [`crate::device::Device::poll`]; `released` gets the places of writes just before their completions are out.
    pub(crate) fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        mut released: impl FnMut(Placed),
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let queue = &self.queues[queue];
        // The thread that is at it is done soon, and might not look at what this caller waits for. `done` runs under
        // the lock: it may not call the device.
        let Some(mut waiting) = queue.waiting.try_lock() else { return Some(now) };
        let mut taken = 0;
        while taken < budget
            && let Some(Waiting { context, executed, .. }) = waiting.commands.pop_front_if(|w| w.due <= now)
        {
            taken += 1;
            if let Some(placed) = executed.held {
                released(placed);
            }
            done(Completed { context, result: executed.result });
        }
        let next = waiting.commands.front().map(|w| w.due.max(now));
        waiting.has_news = next == Some(now);
        let delivered = queue.delivered.load(Ordering::Relaxed);
        queue.delivered.store(delivered.wrapping_add(taken as u32), Ordering::Relaxed);
        next
    }

    /// Whether no place of `queue` is taken.
    pub(crate) fn is_idle(&self, queue: usize) -> bool {
        let Queue { reserved, delivered, .. } = &*self.queues[queue];
        reserved.load(Ordering::Relaxed) == delivered.load(Ordering::Relaxed)
    }

    /// How often a queue was found taken by who had to have it.
    pub(crate) fn waits(&self) -> u64 {
        self.queues.iter().map(|q| u64::from(waits_for(&q.waiting))).sum()
    }

    /// They ring when something is added that no poll has seen.
    pub(crate) fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    /// Whether something was added to `queue` that no poll has seen.
    pub(crate) fn has_news(&self, queue: usize) -> bool {
        self.queues[queue].waiting.lock().has_news
    }
}
