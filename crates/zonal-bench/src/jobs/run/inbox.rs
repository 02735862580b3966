//! Completions not yet taken by their worker, and its idle buffers.
//!
//! A completion function runs on whichever thread completes the request. Usually that is the worker
//! itself, inside its own submit or poll. Such a completion goes through thread-local variables,
//! without a lock. Other threads store it under a lock, and the worker finds it at its next check.
//!
//! # Why plain completions go through cells
//! A completion is some ten words, assembled field by field. Moving it as a whole right afterwards
//! stalls the processor until every field has reached the cache: about 5 ns each time, a tenth of
//! the budget for a write. So the relevant fields go one by one through plain thread-local cells,
//! which the worker checks right after its submit. Completions that do not fit there, because there
//! are too many or the outcome is not plain, go to a list.

use quanta::Clock;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{RequestError, Sector};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::device::Output;
use zonal_io::sync::Mutex;
use zonal_io::volume::Completion;

/// Outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Done,
    /// Address of an append. Used only where places are kept, otherwise [`Outcome::Done`].
    Appended(Sector),
    Failed(RequestError),
}

/// Completion of a slot's request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) slot: u32,
    /// True for [`Outcome::Done`]. For others, [`Desk::outcome`] has the outcome.
    pub(super) is_plain: bool,
    /// Time of completion in raw clock units, or [`NO_STAMP`] if the worker is to use the time of
    /// its own check, which has just taken place.
    pub(super) at: u64,
}

/// Marker for a time that was not read.
pub(super) const NO_STAMP: u64 = u64::MAX;

/// Inbox of one worker: receives its completions and keeps its buffers.
pub(super) trait Mail {
    /// Returns the completion function for this inbox's channel.
    fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static;

    /// Idle buffers, and outcomes of requests that did not complete plainly.
    fn desk(&mut self) -> &mut Desk;

    /// True if the request of `slot` was the last one to complete, and did so plainly inside
    /// submit. [`Mail::next`] then does not return it.
    fn ended_just_now(&mut self, slot: u32) -> bool;

    /// True if other requests have completed on this thread.
    fn has_more(&self) -> bool;

    /// Returns the next completion, if any.
    fn next(&mut self) -> Option<Ending>;
}

/// True if a result needs no separate outcome.
#[inline(always)]
pub(super) fn is_plain(result: &Result<Output, RequestError>, places: Places) -> bool {
    match result {
        Ok(Output::Done | Output::Zones(_)) => true,
        Ok(Output::Appended(_)) => places == Places::Dropped,
        Err(_) => false,
    }
}

/// Outcome of a request that did not complete plainly.
pub(super) fn outcome_of(result: Result<Output, RequestError>) -> Outcome {
    match result {
        Ok(Output::Appended(sector)) => Outcome::Appended(sector),
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Failed(error),
    }
}

/// Buffers and outcomes that a worker keeps between requests.
pub(super) struct Desk {
    /// Idle buffers by slot.
    buffers: Vec<IoBufs>,
    /// Outcomes that are not plain, of completions returned by [`Mail::next`].
    outcomes: Vec<(u32, Outcome)>,
}

impl Desk {
    pub(super) fn new(buffers: Vec<IoBuf>) -> Desk {
        Desk { buffers: buffers.into_iter().map(IoBufs::from).collect(), outcomes: Vec::new() }
    }

    /// Takes the buffer of an idle slot for submission.
    #[inline(always)]
    pub(super) fn take_buffer(&mut self, slot: u32) -> IoBufs {
        std::mem::take(&mut self.buffers[slot as usize])
    }

    /// Passes the buffer of a completed request to `look`.
    pub(super) fn with_buffer<R>(&self, slot: u32, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.buffers[slot as usize].pieces()[0])
    }

    #[inline(always)]
    pub(super) fn give_back(&mut self, slot: u32, buffer: impl Into<IoBufs>) {
        let empty = std::mem::replace(&mut self.buffers[slot as usize], buffer.into());
        debug_assert!(empty.is_empty(), "a buffer comes back once");
        // It is empty, so there is nothing to free, and checking each time is not worth it.
        std::mem::forget(empty);
    }

    /// Stores an outcome that is not plain.
    pub(super) fn keep(&mut self, slot: u32, outcome: Outcome) {
        self.outcomes.push((slot, outcome));
    }

    /// Returns the outcome of a slot's request, after a completion that is not plain.
    #[cold]
    pub(super) fn outcome(&mut self, slot: u32) -> Outcome {
        let at = self.outcomes.iter().position(|(s, _)| *s == slot).expect("the ending was not plain");
        self.outcomes.swap_remove(at).1
    }
}

/// Capacity of [`Recent`]: completions of a typical poll.
const RECENT_MAX: usize = 32;

/// Stack of plain completions that the worker of this thread has not seen. It has no destructor,
/// which avoids the checks of thread-local access; the inbox empties it.
struct Recent {
    len: Cell<usize>,
    slots: [Cell<u64>; RECENT_MAX],
    buffers: [Cell<ManuallyDrop<IoBufs>>; RECENT_MAX],
    /// Number of completions in [`OTHERS`].
    others: Cell<usize>,
}

impl Recent {
    const fn empty() -> Recent {
        Recent {
            len: Cell::new(0),
            slots: [const { Cell::new(0) }; RECENT_MAX],
            buffers: [const { Cell::new(ManuallyDrop::new(IoBufs::empty())) }; RECENT_MAX],
            others: Cell::new(0),
        }
    }

    /// Pushes a completion. `len` is the current length, below [`RECENT_MAX`].
    #[inline(always)]
    fn push(&self, len: usize, slot: u64, buffer: IoBufs) {
        self.slots[len].set(slot);
        self.buffers[len].set(ManuallyDrop::new(buffer));
        self.len.set(len + 1);
    }

    /// Slot on top of the stack.
    #[inline(always)]
    fn top(&self) -> Option<u64> {
        let last = self.len.get().checked_sub(1)?;
        Some(self.slots.get(last)?.get())
    }

    /// Pops the top and returns its buffer.
    #[inline(always)]
    fn pop(&self) -> IoBufs {
        let last = self.len.get() - 1;
        self.len.set(last);
        ManuallyDrop::into_inner(self.buffers[last].take())
    }
}

/// A completion that is not plain, came from another thread, or found the stack full.
struct Other {
    slot: u32,
    outcome: Outcome,
    buffer: IoBufs,
    at: u64,
}

thread_local! {
    static OWNER: Cell<u64> = const { Cell::new(0) };
    static RECENT: Recent = const { Recent::empty() };
    static OTHERS: RefCell<Vec<Other>> = const { RefCell::new(Vec::new()) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

struct Shared {
    id: u64,
    has_foreign: AtomicBool,
    foreign: Mutex<Vec<Other>>,
}

/// Handling of the addresses of appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Places {
    Kept,
    Dropped,
}

/// Inbox of a worker with its own thread, which also creates it.
pub(super) struct Inbox {
    shared: Arc<Shared>,
    clock: Option<Clock>,
    places: Places,
    desk: Desk,
}

impl Inbox {
    /// Creates the inbox of the calling thread, which must have no other, with a buffer for each
    /// slot. `clock` is used to stamp completions that the worker may not see at once.
    pub(super) fn new(clock: Option<Clock>, places: Places, buffers: Vec<IoBuf>) -> Inbox {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let slots = buffers.len();
        OWNER.set(id);
        OTHERS.with_borrow_mut(|others| others.reserve(slots));
        let (has_foreign, foreign) = (AtomicBool::new(false), Mutex::new(Vec::with_capacity(slots)));
        let shared = Arc::new(Shared { id, has_foreign, foreign });
        Inbox { shared, clock, places, desk: Desk::new(buffers) }
    }
}

impl Mail for Inbox {
    fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static {
        let (shared, clock, places, id) =
            (self.shared.clone(), self.clock.clone(), self.places, self.shared.id);
        move |completion| {
            let Completion { token, result, buf } = completion;
            let now = || clock.as_ref().map_or(NO_STAMP, Clock::raw);
            if is_plain(&result, places) {
                return RECENT.with(|recent| {
                    let len = recent.len.get();
                    match OWNER.get() == id && len < RECENT_MAX {
                        true => recent.push(len, token, buf),
                        false => shared.leave(token as u32, Outcome::Done, buf, now()),
                    }
                });
            }
            shared.leave(token as u32, outcome_of(result), buf, now());
        }
    }

    #[inline(always)]
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    #[inline(always)]
    fn ended_just_now(&mut self, slot: u32) -> bool {
        RECENT.with(|recent| {
            let is_last = recent.top() == Some(u64::from(slot));
            if is_last {
                self.desk.give_back(slot, recent.pop());
            }
            is_last
        })
    }

    #[inline(always)]
    fn has_more(&self) -> bool {
        RECENT.with(|recent| recent.len.get() | recent.others.get() != 0)
    }

    #[inline]
    fn next(&mut self) -> Option<Ending> {
        RECENT.with(|recent| match recent.top() {
            Some(slot) => {
                let slot = slot as u32;
                self.desk.give_back(slot, recent.pop());
                Some(Ending { slot, is_plain: true, at: NO_STAMP })
            }
            None if recent.others.get() > 0 || self.shared.has_foreign.load(Ordering::Acquire) => {
                self.next_other()
            }
            None => None,
        })
    }
}

impl Inbox {
    #[inline(never)]
    fn next_other(&mut self) -> Option<Ending> {
        if RECENT.with(|recent| recent.others.get() == 0) {
            self.shared.fetch();
        }
        let Other { slot, outcome, buffer, at } = pop()?;
        self.desk.give_back(slot, buffer);
        let is_plain = matches!(outcome, Outcome::Done);
        if !is_plain {
            self.desk.keep(slot, outcome);
        }
        Some(Ending { slot, is_plain, at })
    }
}

fn pop() -> Option<Other> {
    OTHERS.with_borrow_mut(|others| {
        let other = others.pop();
        RECENT.with(|recent| recent.others.set(others.len()));
        other
    })
}

impl Shared {
    #[inline(never)]
    fn leave(&self, slot: u32, outcome: Outcome, buffer: IoBufs, at: u64) {
        let other = Other { slot, outcome, buffer, at };
        if OWNER.get() != self.id {
            self.foreign.lock().push(other);
            return self.has_foreign.store(true, Ordering::Release);
        }
        OTHERS.with_borrow_mut(|others| {
            others.push(other);
            RECENT.with(|recent| recent.others.set(others.len()));
        });
    }

    /// Takes over the completions stored by other threads.
    #[cold]
    fn fetch(&self) {
        let mut foreign = self.foreign.lock();
        self.has_foreign.store(false, Ordering::Release);
        OTHERS.with_borrow_mut(|others| {
            others.append(&mut foreign);
            RECENT.with(|recent| recent.others.set(others.len()));
        });
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        OWNER.set(0);
        RECENT.with(|recent| {
            while recent.len.get() > 0 {
                drop(recent.pop());
            }
            recent.others.set(0);
        });
        OTHERS.with_borrow_mut(|others| *others = Vec::new());
    }
}
