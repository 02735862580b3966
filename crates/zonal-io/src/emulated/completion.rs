//! Commands that have been executed and wait for `poll` to hand them out.
//!
//! Each queue has its own lock, held for the time of a few moves and never while the caller's code runs.

use super::zones::Placed;
use crate::device::{CommandResult, Completed, Context};
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use zonal_core::Nanos;

/// Completions taken from a queue at a time: enough to spread the cost of its lock, few enough for the stack.
const BATCH: usize = 16;

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
    /// Commands between [`Queues::reserve`] and delivery.
    outstanding: AtomicU32,
    /// Something was added since the last poll that saw everything. Changed only under `waiting`.
    news: AtomicBool,
    /// In the order of execution, which with one delay for all is that of their deadlines.
    waiting: Mutex<VecDeque<Waiting>>,
}

/// All queues of a device.
pub(crate) struct Queues {
    queues: Box<[CachePadded<Queue>]>,
    depth: u32,
    delay: Nanos,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Queues {
    pub(crate) fn new(queues: usize, depth: u32, delay: Nanos) -> Queues {
        Queues {
            queues: (0..queues).map(|_| CachePadded::default()).collect(),
            depth,
            delay,
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Takes a place among the commands in flight on `queue`, to be filled by [`Queues::add`]; `false` if all are taken.
    pub(crate) fn reserve(&self, queue: usize) -> bool {
        let outstanding = &self.queues[queue].outstanding;
        let free = outstanding.fetch_add(1, Ordering::Relaxed) < self.depth;
        if !free {
            outstanding.fetch_sub(1, Ordering::Relaxed);
        }
        free
    }

    /// Gives back a place of [`Queues::reserve`] that will not be filled.
    pub(crate) fn cancel(&self, queue: usize) {
        self.queues[queue].outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds an executed command to `queue`.
    pub(crate) fn add(&self, now: Nanos, queue: usize, context: Context, executed: Executed) {
        let due = Nanos(now.0.saturating_add(self.delay.0));
        let queue = &self.queues[queue];
        let mut waiting = queue.waiting.lock();
        waiting.push_back(Waiting { due, context, executed });
        // A sleeper registers before it looks for news, this looks for sleepers after it made some: one sees the other.
        let was_news = queue.news.swap(true, Ordering::SeqCst);
        drop(waiting);
        if !was_news && self.sleepers.load(Ordering::SeqCst) != 0 {
            drop(self.sleep.lock());
            self.wake.notify_all();
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
        let mut left = budget;
        loop {
            let mut batch = [const { None }; BATCH];
            // Whoever is at it is done in no time, and may not look at what this caller waits for.
            let Some(mut waiting) = queue.waiting.try_lock() else { return Some(now) };
            let mut taken = 0;
            while taken < BATCH.min(left) && waiting.front().is_some_and(|w| w.due <= now) {
                batch[taken] = waiting.pop_front();
                taken += 1;
            }
            left -= taken;
            let next = waiting.front().map(|w| w.due);
            let is_finished = left == 0 || next.is_none_or(|due| due > now);
            if is_finished {
                queue.news.store(next.is_some_and(|due| due <= now), Ordering::SeqCst);
            }
            drop(waiting);
            queue.outstanding.fetch_sub(taken as u32, Ordering::Relaxed);
            for Waiting { context, executed, .. } in batch.into_iter().flatten() {
                if let Some(placed) = executed.held {
                    released(placed);
                }
                done(Completed { context, result: executed.result });
            }
            if is_finished {
                return next.map(|due| due.max(now));
            }
        }
    }

    /// Sleeps until something is added that no poll has seen, or for `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut sleep = self.sleep.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !self.queues.iter().any(|q| q.news.load(Ordering::SeqCst)) {
            self.wake.wait_for(&mut sleep, timeout);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
