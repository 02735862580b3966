//! Completed requests, kept until their job takes them.
//!
//! A job is one thread. Its requests complete on that thread, within its own submit or poll, or on
//! the thread of another job that polls the same volume. The former go through fields used only by
//! the owner, the latter through a lock used only by them, so two jobs on separate zones share
//! nothing.
//!
//! # Invariants
//! - The fields below `owner` are accessed by the owner's thread only. They are atomic so that the
//!   inbox can be shared with its completion function without unsafe code, and all accesses are
//!   relaxed.
//! - A token is in one place: being submitted, in the ring, in the list of others, or taken.

use Ordering::{Acquire, Relaxed, Release};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Completion of a request. Layout of `struct zonal_fio_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FioEvent {
    /// The caller's token.
    pub token: u64,
    /// 0 or an error number.
    pub error: i32,
    /// Padding, so that the rest of the word is initialised.
    pub reserved: i32,
}

/// Never the token of a request, since tokens are addresses.
const NO_TOKEN: u64 = 0;

thread_local! {
    /// Number of the inbox owned by this thread.
    static OWNED: Cell<u64> = const { Cell::new(0) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Completions of one job.
pub(crate) struct Inbox {
    owner: u64,
    /// Request being submitted, until it completes.
    submitting: AtomicU64,
    /// Its result.
    answer: AtomicI32,
    /// Number of requests with events not taken yet.
    pending: AtomicUsize,
    /// Index of the oldest event in the ring, and the number of events.
    head: AtomicUsize,
    len: AtomicUsize,
    ring: Box<[(AtomicU64, AtomicI32)]>,
    has_others: AtomicBool,
    others: Mutex<Vec<FioEvent>>,
}

/// Outcome of [`Inbox::submit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// It will complete later, with an event.
    Queued,
    /// It has completed with this error number, or 0. There will be no event.
    Ended(i32),
}

impl Inbox {
    /// Creates an inbox of the calling thread for `depth` requests in flight.
    pub(crate) fn new(depth: usize) -> Inbox {
        let owner = NEXT_ID.fetch_add(1, Relaxed);
        OWNED.set(owner);
        Inbox {
            owner,
            submitting: AtomicU64::new(NO_TOKEN),
            answer: AtomicI32::new(0),
            pending: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            ring: (0..depth).map(|_| Default::default()).collect(),
            has_others: AtomicBool::new(false),
            others: Mutex::new(Vec::with_capacity(depth)),
        }
    }

    /// Calls `submit` to submit request `token`. Returns its result if it completes inline.
    #[inline(always)]
    pub(crate) fn submit(&self, token: u64, submit: impl FnOnce()) -> Left {
        self.submitting.store(token, Relaxed);
        submit();
        if self.submitting.load(Relaxed) == NO_TOKEN {
            return Left::Ended(self.answer.load(Relaxed));
        }
        self.submitting.store(NO_TOKEN, Relaxed);
        self.pending.store(self.pending() + 1, Relaxed);
        Left::Queued
    }

    /// Number of requests that have not completed or have an event not taken yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Records the completion of a request. May be called on any thread.
    #[inline]
    pub(crate) fn ended(&self, token: u64, error: i32) {
        if OWNED.get() != self.owner {
            return self.leave(token, error);
        }
        if self.submitting.load(Relaxed) == token {
            self.answer.store(error, Relaxed);
            return self.submitting.store(NO_TOKEN, Relaxed);
        }
        let len = self.len.load(Relaxed);
        if len == self.ring.len() {
            return self.leave(token, error);
        }
        let place = &self.ring[self.wrapped(self.head.load(Relaxed) + len)];
        place.0.store(token, Relaxed);
        place.1.store(error, Relaxed);
        self.len.store(len + 1, Relaxed);
    }

    /// Wraps `at`, which is less than twice the length of the ring.
    #[inline]
    fn wrapped(&self, at: usize) -> usize {
        if at < self.ring.len() { at } else { at - self.ring.len() }
    }

    #[cold]
    fn leave(&self, token: u64, error: i32) {
        self.others.lock().push(FioEvent { token, error, reserved: 0 });
        self.has_others.store(true, Release);
    }

    /// Moves as many events as fit to `to` and returns their number. Those of this thread are in
    /// order of completion: fio keeps the first error, which is the one that caused the others.
    pub(crate) fn take(&self, to: &mut [FioEvent]) -> usize {
        let mut taken = 0;
        while taken < to.len() {
            let Some(left) = self.len.load(Relaxed).checked_sub(1) else { break };
            let head = self.head.load(Relaxed);
            self.len.store(left, Relaxed);
            self.head.store(self.wrapped(head + 1), Relaxed);
            let (token, error) = &self.ring[head];
            to[taken] = FioEvent { token: token.load(Relaxed), error: error.load(Relaxed), reserved: 0 };
            taken += 1;
        }
        if taken < to.len() && self.has_others.load(Acquire) {
            taken += self.take_others(&mut to[taken..]);
        }
        self.pending.store(self.pending().saturating_sub(taken), Relaxed);
        taken
    }

    #[cold]
    fn take_others(&self, to: &mut [FioEvent]) -> usize {
        let mut others = self.others.lock();
        let taken = to.len().min(others.len());
        for (place, event) in to.iter_mut().zip(others.drain(..taken)) {
            *place = event;
        }
        self.has_others.store(!others.is_empty(), Release);
        taken
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if OWNED.get() == self.owner {
            OWNED.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: FioEvent = FioEvent { token: 0, error: 0, reserved: 0 };

    fn all(inbox: &Inbox) -> Vec<(u64, i32)> {
        let mut to = [NONE; 8];
        let n = inbox.take(&mut to);
        let mut events: Vec<_> = to[..n].iter().map(|e| (e.token, e.error)).collect();
        events.sort_unstable();
        events
    }

    #[test]
    fn request_that_ends_inside_submit_leaves_no_event() {
        let inbox = Inbox::new(2);
        assert_eq!(inbox.submit(7, || inbox.ended(7, 5)), Left::Ended(5));
        assert_eq!(all(&inbox), []);
    }

    #[test]
    fn another_that_ends_inside_submit_is_an_event() {
        let inbox = Inbox::new(2);
        assert_eq!(inbox.submit(7, || inbox.ended(8, 0)), Left::Queued);
        inbox.ended(7, 5);
        assert_eq!(inbox.pending(), 1);
        assert_eq!(all(&inbox), [(7, 5), (8, 0)]);
        assert_eq!(inbox.pending(), 0);
    }

    #[test]
    fn request_that_ends_on_another_thread_is_an_event() {
        let inbox = Inbox::new(2);
        let left = inbox.submit(7, || std::thread::scope(|s| drop(s.spawn(|| inbox.ended(7, 0)).join())));
        assert_eq!(left, Left::Queued);
        assert_eq!(all(&inbox), [(7, 0)]);
    }

    #[test]
    fn events_keep_their_order_across_ring_wraparound() {
        let inbox = Inbox::new(3);
        let mut two = [NONE; 2];
        let mut seen = Vec::new();
        for token in (1..=10).step_by(2) {
            inbox.ended(token, 0);
            inbox.ended(token + 1, 0);
            let taken = inbox.take(&mut two);
            seen.extend(two[..taken].iter().map(|e| e.token));
        }
        assert_eq!(seen, (1..=10).collect::<Vec<u64>>());
    }

    #[test]
    fn more_events_than_asked_for_are_kept() {
        let inbox = Inbox::new(2);
        for token in 1..=5 {
            inbox.ended(token, 0);
        }
        let mut two = [NONE; 2];
        assert_eq!((inbox.take(&mut two), inbox.take(&mut two), inbox.take(&mut two)), (2, 2, 1));
        assert_eq!(inbox.take(&mut two), 0);
    }
}
