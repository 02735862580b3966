//! Commands refused by a full device queue, waiting for room in order, by queue.
//!
//! Their plugs count them as in flight, so decisions made for them stay valid. While a queue has
//! stalled commands, new commands for it line up behind them: otherwise a zone with a long queue of
//! its own would take every free entry.

use crate::device::Context;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::collections::VecDeque;

pub(super) struct Stalled {
    /// Total over all queues; the only field that the hot path reads.
    len: AtomicUsize,
    queues: Box<[Mutex<VecDeque<Context>>]>,
}

impl Stalled {
    pub(super) fn new(queues: usize) -> Stalled {
        let queues = std::iter::repeat_with(Default::default).take(queues).collect();
        Stalled { len: AtomicUsize::new(0), queues }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Number of commands stalled on one queue.
    #[cold]
    pub(super) fn len_of(&self, queue: usize) -> usize {
        self.queues[queue].lock().len()
    }

    pub(super) fn push_back(&self, queue: usize, context: Context) {
        let mut commands = self.queues[queue].lock();
        commands.push_back(context);
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a command back that was refused again.
    pub(super) fn push_front(&self, queue: usize, context: Context) {
        let mut commands = self.queues[queue].lock();
        commands.push_front(context);
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the matching commands, in order.
    pub(super) fn take_if(&self, queue: usize, fits: impl Fn(&Context) -> bool) -> VecDeque<Context> {
        let mut commands = self.queues[queue].lock();
        let (taken, left) = std::mem::take(&mut *commands).into_iter().partition(|context| fits(context));
        *commands = left;
        let taken: VecDeque<Context> = taken;
        self.len.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    pub(super) fn pop(&self, queue: usize) -> Option<Context> {
        let mut commands = self.queues[queue].lock();
        let first = commands.pop_front()?;
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(first)
    }
}
