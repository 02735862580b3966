//! Executed commands that wait for `poll` to return them.
//!
//! Each queue has its own lock, held only for a few moves and never while calling the submitter's
//! code.

use super::zones::Placed;
use crate::device::{CommandResult, Completed, Context};
use crate::news::Wakeups;
use crate::sync::{AtomicU32, CachePadded, Ordering, ShortLock, waits_for};
use std::collections::VecDeque;
use zonal_core::Nanos;

/// Result of a command, and the place that a write holds until its completion is returned.
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
    /// Places ever reserved by [`Queues::reserve`], less those cancelled; wraps.
    reserved: AtomicU32,
    /// Commands ever returned; wraps. Written only under `waiting`, so no atomic read-modify-write
    /// is needed.
    delivered: AtomicU32,
    waiting: ShortLock<WaitingList>,
}

#[derive(Default)]
struct WaitingList {
    /// In order of execution, and therefore of deadline.
    commands: VecDeque<Waiting>,
    /// True if the last poll has not seen everything, or left something due because of its budget.
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

    /// Reserves a place among the commands in flight on `queue`, to be filled by [`Queues::add`].
    /// Returns false if all are taken.
    pub(crate) fn reserve(&self, queue: usize) -> bool {
        let Queue { reserved, delivered, .. } = &*self.queues[queue];
        let before = reserved.fetch_add(1, Ordering::Relaxed);
        let free = before.wrapping_sub(delivered.load(Ordering::Relaxed)) < self.depth;
        if !free {
            reserved.fetch_sub(1, Ordering::Relaxed);
        }
        free
    }

    /// Cancels a reservation by [`Queues::reserve`].
    pub(crate) fn cancel(&self, queue: usize) {
        self.queues[queue].reserved.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds an executed command to `queue`.
    pub(crate) fn add(&self, now: Nanos, queue: usize, context: Context, executed: Executed) {
        let due = Nanos(now.0.saturating_add(self.delay.0));
        let mut waiting = self.queues[queue].waiting.lock();
        // Two threads may arrive with their times out of order.
        let due = waiting.commands.back().map_or(due, |last| due.max(last.due));
        waiting.commands.push_back(Waiting { due, context, executed });
        let had_news = std::mem::replace(&mut waiting.has_news, true);
        drop(waiting);
        // A sleeping thread arms its wake-up before it checks for news under this queue's lock, so
        // it either sees this news or is woken here.
        if !had_news {
            self.wakeups.ring(queue);
        }
    }

    /// Implements [`crate::device::Device::poll`]. `released` receives the place of each write just
    /// before its completion is returned.
    pub(crate) fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        mut released: impl FnMut(Placed),
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let queue = &self.queues[queue];
        // Another thread holds the lock briefly and may not return what this caller waits for, so
        // poll again. `done` runs under the lock, so it must not call the device.
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

    /// True if no command is in flight on `queue`.
    pub(crate) fn is_idle(&self, queue: usize) -> bool {
        let Queue { reserved, delivered, .. } = &*self.queues[queue];
        reserved.load(Ordering::Relaxed) == delivered.load(Ordering::Relaxed)
    }

    /// Number of times that a thread had to wait for a queue's lock.
    pub(crate) fn waits(&self) -> u64 {
        self.queues.iter().map(|q| u64::from(waits_for(&q.waiting))).sum()
    }

    /// Wake-ups that ring when something is added that no poll has seen.
    pub(crate) fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    /// True if something was added to `queue` that no poll has seen.
    pub(crate) fn has_news(&self, queue: usize) -> bool {
        self.queues[queue].waiting.lock().has_news
    }
}
