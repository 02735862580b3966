//! Ended requests, kept until the job that waits for them takes them.
//!
//! A job is one thread. Its requests end on that thread, inside its own submit or poll, or on another job's that polls
//! the same volume. The first go through plain places that only the owner uses; the others through a lock that only
//! they take, so two jobs on zones of their own share nothing.
//!
//! # Invariants
//! - The fields below `owner` are read and written by the owner's thread alone. They are atomics so that sharing the
//!   inbox with its completion function needs no unsafe code, and are only ever used relaxed.
//! - A token is in one place: being submitted, in the ring, in the list of others', or taken.

use Ordering::{Acquire, Relaxed, Release};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// That a request has ended. The same as `struct zonal_fio_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FioEvent {
    /// The caller's number.
    pub token: u64,
    /// 0 or an error number.
    pub error: i32,
    /// Nothing; without it the rest of the word would be undefined.
    pub reserved: i32,
}

/// No request has this token: it is the address of one.
const NO_TOKEN: u64 = 0;

thread_local! {
    /// The inbox that this thread owns, by its number.
    static OWNED: Cell<u64> = const { Cell::new(0) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Where one job's requests end.
pub(crate) struct Inbox {
    owner: u64,
    /// The request that is being submitted, until it ends.
    submitting: AtomicU64,
    /// What came of it.
    answer: AtomicI32,
    /// Requests whose event has not been taken.
    pending: AtomicUsize,
    /// Where in the ring the oldest event is, and how many there are.
    head: AtomicUsize,
    len: AtomicUsize,
    ring: Box<[(AtomicU64, AtomicI32)]>,
    has_others: AtomicBool,
    others: Mutex<Vec<FioEvent>>,
}

/// How a request left [`Inbox::submit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// It will end later, with an event.
    Queued,
    /// It has ended with this error number, or 0. There will be no event.
    Ended(i32),
}

impl Inbox {
    /// An inbox of the calling thread for `depth` requests at a time.
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

    /// Calls `submit`, which submits the request `token`, and says whether it ended inside.
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

    /// Requests that have not ended, or whose event has not been taken.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Takes note that a request has ended. On any thread.
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

    /// `at`, which is less than two rounds, in the ring.
    #[inline]
    fn wrapped(&self, at: usize) -> usize {
        if at < self.ring.len() { at } else { at - self.ring.len() }
    }

    #[cold]
    fn leave(&self, token: u64, error: i32) {
        self.others.lock().push(FioEvent { token, error, reserved: 0 });
        self.has_others.store(true, Release);
    }

    /// Moves events to `to`, as many as fit; how many. Those of this thread come in the order in which they happened: fio
    /// keeps the first error, and that is the one which led to the others.
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
    fn events_come_in_their_order_round_the_ring() {
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
