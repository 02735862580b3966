//! Completions on their way to the worker that waits for them.
//!
//! A completion function runs on whichever thread completes. Mostly that is the worker itself, inside its own submit or
//! poll: then the completion goes through a list of the thread, without a lock. Another thread leaves it under a lock,
//! where the worker finds it at its next look.

use quanta::Clock;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_io::sync::Mutex;
use zonal_io::volume::Completion;

/// A completion and when it came, in the clock's raw units; 0 if times are not taken.
pub(super) struct Finished {
    pub(super) completion: Completion,
    pub(super) at: u64,
}

thread_local! {
    static OWNER: Cell<u64> = const { Cell::new(0) };
    static OWN: RefCell<Vec<Finished>> = const { RefCell::new(Vec::new()) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

struct Shared {
    id: u64,
    clock: Option<Clock>,
    has_foreign: AtomicBool,
    foreign: Mutex<Vec<Finished>>,
}

/// Where one worker's completions go. Made by the worker's thread.
pub(super) struct Inbox {
    shared: Arc<Shared>,
    /// Foreign completions being handed out.
    taken: Vec<Finished>,
}

impl Inbox {
    /// An inbox of the calling thread, which has no other. `clock`: to note when completions come.
    pub(super) fn new(clock: Option<Clock>, depth: usize) -> Inbox {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        OWNER.set(id);
        OWN.with_borrow_mut(|own| own.reserve(depth));
        let (has_foreign, foreign) = (AtomicBool::new(false), Mutex::new(Vec::with_capacity(depth)));
        Inbox {
            shared: Arc::new(Shared { id, clock, has_foreign, foreign }),
            taken: Vec::with_capacity(depth),
        }
    }

    /// The completion function for this inbox's channel.
    pub(super) fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |completion| {
            let at = shared.clock.as_ref().map_or(0, Clock::raw);
            let finished = Finished { completion, at };
            if OWNER.get() == shared.id {
                OWN.with_borrow_mut(|own| own.push(finished));
            } else {
                shared.leave(finished);
            }
        }
    }

    /// The next completion, if there is one.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Finished> {
        if let Some(finished) = OWN.with_borrow_mut(Vec::pop) {
            return Some(finished);
        }
        if self.taken.is_empty() {
            if !self.shared.has_foreign.load(Ordering::Acquire) {
                return None;
            }
            self.fetch();
        }
        self.taken.pop()
    }

    #[cold]
    fn fetch(&mut self) {
        let mut foreign = self.shared.foreign.lock();
        std::mem::swap(&mut *foreign, &mut self.taken);
        self.shared.has_foreign.store(false, Ordering::Release);
    }
}

impl Shared {
    #[cold]
    fn leave(&self, finished: Finished) {
        let mut foreign = self.foreign.lock();
        foreign.push(finished);
        self.has_foreign.store(true, Ordering::Release);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        OWNER.set(0);
        OWN.with_borrow_mut(Vec::clear);
    }
}
