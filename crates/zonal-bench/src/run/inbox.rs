//! Completions on their way to the worker that waits for them, and its buffers while they are idle.
//!
//! A completion function runs on whichever thread completes. Mostly that is the worker itself, inside its own submit or
//! poll: then the completion goes through a list of the thread, without a lock. Another thread leaves it under a lock,
//! where the worker finds it at its next look.
//!
//! # Why a list of numbers and not of completions
//! A completion is some ten words, put together field by field. To move it as a whole right afterwards stalls the
//! processor until every field has reached the cache: about 5 ns each time, a tenth of what a write may cost in all. So
//! buffers stay where they are, by slot, and only numbers travel.

use quanta::Clock;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{RequestError, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Output;
use zonal_io::sync::Mutex;
use zonal_io::volume::Completion;

/// What came of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Done,
    /// Appended here. Told only where places are kept, else it is [`Outcome::Done`].
    Appended(Sector),
    Failed(RequestError),
}

/// That a slot's request has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) slot: u32,
    /// Whether it ended as [`Outcome::Done`]; otherwise [`Inbox::outcome`] knows.
    pub(super) is_plain: bool,
    /// When, in the clock's raw units; 0 if times are not taken.
    pub(super) at: u64,
}

/// What belongs to the worker of a thread.
struct Own {
    endings: Vec<Ending>,
    /// Outcomes that are not plain.
    outcomes: Vec<(u32, Outcome)>,
    /// Idle buffers, by slot.
    buffers: Vec<IoBuf>,
}

impl Own {
    const EMPTY: Own = Own { endings: Vec::new(), outcomes: Vec::new(), buffers: Vec::new() };

    #[inline]
    fn end(&mut self, slot: u32, buffer: IoBuf, at: u64) {
        self.buffers[slot as usize] = buffer;
        self.endings.push(Ending { slot, is_plain: true, at });
    }

    #[cold]
    #[inline(never)]
    fn end_with(&mut self, slot: u32, buffer: IoBuf, at: u64, outcome: Outcome) {
        self.buffers[slot as usize] = buffer;
        self.outcomes.push((slot, outcome));
        self.endings.push(Ending { slot, is_plain: false, at });
    }
}

thread_local! {
    static OWNER: Cell<u64> = const { Cell::new(0) };
    static OWN: RefCell<Own> = const { RefCell::new(Own::EMPTY) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A completion that another thread left.
struct Foreign {
    slot: u32,
    outcome: Outcome,
    buffer: IoBuf,
    at: u64,
}

struct Shared {
    id: u64,
    clock: Option<Clock>,
    places: Places,
    has_foreign: AtomicBool,
    foreign: Mutex<Vec<Foreign>>,
}

/// Whether the places of appends matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Places {
    Kept,
    Dropped,
}

/// Where one worker's completions go. Made by the worker's thread.
pub(super) struct Inbox {
    shared: Arc<Shared>,
}

impl Inbox {
    /// An inbox of the calling thread, which has no other, with a buffer for each slot. `clock`: to note when
    /// completions come.
    pub(super) fn new(clock: Option<Clock>, places: Places, buffers: Vec<IoBuf>) -> Inbox {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let slots = buffers.len();
        OWNER.set(id);
        OWN.with_borrow_mut(|own| {
            own.endings.reserve(slots);
            own.buffers = buffers;
        });
        let (has_foreign, foreign) = (AtomicBool::new(false), Mutex::new(Vec::with_capacity(slots)));
        Inbox { shared: Arc::new(Shared { id, clock, places, has_foreign, foreign }) }
    }

    /// The completion function for this inbox's channel.
    pub(super) fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |completion| {
            let at = shared.clock.as_ref().map_or(0, Clock::raw);
            let Completion { token, result, buf } = completion;
            let slot = token as u32;
            let is_plain = match result {
                Ok(Output::Done | Output::Zones(_)) => true,
                Ok(Output::Appended(_)) => shared.places == Places::Dropped,
                Err(_) => false,
            };
            if OWNER.get() == shared.id && is_plain {
                return OWN.with_borrow_mut(|own| own.end(slot, buf, at));
            }
            let outcome = match result {
                _ if is_plain => Outcome::Done,
                Ok(Output::Appended(sector)) => Outcome::Appended(sector),
                Ok(_) => Outcome::Done,
                Err(error) => Outcome::Failed(error),
            };
            shared.leave(Foreign { slot, outcome, buffer: buf, at });
        }
    }

    /// The buffer of an idle slot, to be submitted.
    #[inline]
    pub(super) fn take_buffer(&self, slot: u32) -> IoBuf {
        OWN.with_borrow_mut(|own| std::mem::take(&mut own.buffers[slot as usize]))
    }

    /// Looks at the buffer of a slot whose request has ended.
    pub(super) fn with_buffer<R>(&self, slot: u32, look: impl FnOnce(&[u8]) -> R) -> R {
        OWN.with_borrow(|own| look(&own.buffers[slot as usize]))
    }

    /// The next ending, if there is one, and whether there are more.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(Ending, bool)> {
        if let Some(own) = pop() {
            return Some(own);
        }
        if !self.shared.has_foreign.load(Ordering::Acquire) {
            return None;
        }
        self.fetch();
        pop()
    }

    #[cold]
    #[inline(never)]
    fn fetch(&self) {
        let mut foreign = self.shared.foreign.lock();
        self.shared.has_foreign.store(false, Ordering::Release);
        OWN.with_borrow_mut(|own| {
            for Foreign { slot, outcome, buffer, at } in foreign.drain(..) {
                match outcome {
                    Outcome::Done => own.end(slot, buffer, at),
                    outcome => own.end_with(slot, buffer, at, outcome),
                }
            }
        });
    }

    /// What came of a slot's request, after an ending that is not plain.
    #[cold]
    pub(super) fn outcome(&self, slot: u32) -> Outcome {
        OWN.with_borrow_mut(|own| {
            let at = own.outcomes.iter().position(|(s, _)| *s == slot).expect("the ending was not plain");
            own.outcomes.swap_remove(at).1
        })
    }
}

#[inline]
fn pop() -> Option<(Ending, bool)> {
    OWN.with_borrow_mut(|own| own.endings.pop().map(|ending| (ending, !own.endings.is_empty())))
}

impl Shared {
    #[cold]
    #[inline(never)]
    fn leave(&self, Foreign { slot, outcome, buffer, at }: Foreign) {
        if OWNER.get() == self.id {
            return OWN.with_borrow_mut(|own| own.end_with(slot, buffer, at, outcome));
        }
        self.foreign.lock().push(Foreign { slot, outcome, buffer, at });
        self.has_foreign.store(true, Ordering::Release);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        OWNER.set(0);
        OWN.with_borrow_mut(|own| *own = Own::EMPTY);
    }
}
