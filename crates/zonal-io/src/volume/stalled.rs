//! Commands refused by a full device queue, waiting for room, by queue.
//!
//! Their plugs count them as in flight, so decisions made for them stay valid. While a queue has
//! stalled commands, new commands for it line up behind them: otherwise a zone with a long queue of
//! its own would take every free entry.
//!
//! Without a scheduler they leave in order of arrival. With one, reads and writes are sorted by
//! address with deadlines, as the block layer of Linux sorts what its plugs have issued and the
//! drive has no tag for yet. Other commands are not sorted, and take turns with those that are. A
//! command that the device has refused again goes first. The writes of one zone leave in ascending
//! order of address and appends in order of arrival, so the order that mode `pipelined` needs is
//! kept. Nothing is merged here.

use super::options::SchedulerKind;
use super::terms::{Terms, scheduler_limits};
use crate::device::Context;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::collections::VecDeque;
use zonal_core::Nanos;
use zonal_core::scheduler::{Options, Scheduler};

pub(super) struct Stalled {
    /// Total over all queues; the only field that the hot path reads.
    len: AtomicUsize,
    queues: Box<[Mutex<Line>]>,
}

/// Stalled commands of one queue.
#[derive(Default)]
struct Line {
    /// Those that the device has refused again.
    refused: VecDeque<Context>,
    /// Without a scheduler all others; otherwise those that are not sorted.
    unsorted: VecDeque<Context>,
    scheduler: Option<Scheduler<Context>>,
    /// True if it is the turn of a sorted command.
    is_sorted_next: bool,
}

impl Line {
    fn len(&self) -> usize {
        self.refused.len() + self.unsorted.len() + self.scheduler.as_ref().map_or(0, Scheduler::len)
    }

    fn push(&mut self, terms: &Terms, now: Nanos, context: Context) {
        self.adopt(terms, now);
        self.place(terms, now, context);
    }

    fn pop(&mut self, terms: &Terms, now: Nanos) -> Option<Context> {
        self.adopt(terms, now);
        self.next(now)
    }

    fn place(&mut self, terms: &Terms, now: Nanos, context: Context) {
        let Some(scheduler) = &mut self.scheduler else { return self.unsorted.push_back(context) };
        match terms.sorted(context) {
            Ok(request) => {
                scheduler.insert(now, request);
            }
            Err(context) => self.unsorted.push_back(context),
        }
    }

    fn next(&mut self, now: Nanos) -> Option<Context> {
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        let Line { unsorted, scheduler, is_sorted_next, .. } = self;
        let mut sorted = || scheduler.as_mut()?.dispatch(now, |_| false)?.parts.into_iter().next();
        // In turn, so that neither can hold up the other for ever.
        let next = match *is_sorted_next {
            true => sorted().or_else(|| unsorted.pop_front()),
            false => unsorted.pop_front().or_else(sorted),
        };
        *is_sorted_next = !*is_sorted_next;
        next
    }

    /// Puts a change of the scheduler into force. What waits is moved: into a scheduler with new
    /// deadlines, out of one in the order in which it would have left.
    fn adopt(&mut self, terms: &Terms, now: Nanos) {
        let wanted = terms.scheduler() == SchedulerKind::MqDeadline;
        if wanted == self.scheduler.is_some() {
            return;
        }
        let scheduler = wanted.then(|| Scheduler::new(Options::default(), scheduler_limits(&terms.info)));
        let mut before = std::mem::replace(self, Line { scheduler, ..Line::default() });
        while let Some(context) = before.next(now) {
            self.place(terms, now, context);
        }
    }
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

    pub(super) fn push(&self, terms: &Terms, now: Nanos, queue: usize, context: Context) {
        let mut line = self.queues[queue].lock();
        line.push(terms, now, context);
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a command back that was refused again.
    pub(super) fn push_front(&self, queue: usize, context: Context) {
        let mut line = self.queues[queue].lock();
        line.refused.push_front(context);
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the matching commands, those of one zone in order.
    pub(super) fn take_if(&self, queue: usize, fits: impl Fn(&Context) -> bool) -> VecDeque<Context> {
        let mut line = self.queues[queue].lock();
        let Line { refused, unsorted, .. } = &mut *line;
        let mut taken = VecDeque::new();
        for waiting in [refused, unsorted] {
            let (fitting, left): (VecDeque<_>, _) =
                std::mem::take(waiting).into_iter().partition(|context| fits(context));
            *waiting = left;
            taken.extend(fitting);
        }
        taken.extend(line.scheduler.iter_mut().flat_map(|scheduler| scheduler.remove_if(&fits)));
        self.len.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    pub(super) fn pop(&self, terms: &Terms, now: Nanos, queue: usize) -> Option<Context> {
        let mut line = self.queues[queue].lock();
        let next = line.pop(terms, now)?;
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(next)
    }
}
