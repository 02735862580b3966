//! Completions on their way to a coroutine.
//!
//! They come from the write path's polls, which the executor makes, and from the submissions of all workers; each goes
//! to the worker it belongs to, in the order of completion, and wakes it.

use super::Common;
use crate::run::inbox::{Desk, Ending, Mail, Outcome, Places, is_plain, outcome_of};
use quanta::Clock;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_io::buffer::IoBuf;
use zonal_io::sync::Brief;
use zonal_io::volume::Completion;

/// That a request has ended.
struct Letter {
    slot: u32,
    outcome: Outcome,
    buffer: IoBuf,
    at: u64,
}

/// Where letters lie until their workers look, by worker. All on one thread: the locks are for the type's sake, and always
/// free.
pub(super) struct Post(Box<[Letterbox]>);

#[derive(Default)]
struct Letterbox {
    has_letters: AtomicBool,
    letters: Brief<VecDeque<Letter>>,
}

impl Post {
    /// For so many workers.
    pub(super) fn new(workers: usize) -> Post {
        Post((0..workers).map(|_| Letterbox::default()).collect())
    }
}

impl Letterbox {
    fn put(&self, letter: Letter) {
        self.letters.lock().push_back(letter);
        self.has_letters.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn has_letters(&self) -> bool {
        self.has_letters.load(Ordering::Relaxed)
    }

    /// Exchanges what has come for an empty list.
    #[inline(never)]
    fn fetch(&self, taken: &mut VecDeque<Letter>) {
        self.has_letters.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *self.letters.lock(), taken);
    }
}

/// The inbox of a worker in virtual time.
pub(super) struct Letters {
    common: Rc<Common>,
    worker: usize,
    clock: Option<Clock>,
    places: Places,
    desk: Desk,
    /// Taken from the box and not looked at yet.
    taken: VecDeque<Letter>,
}

impl Letters {
    pub(super) fn new(
        common: Rc<Common>,
        worker: usize,
        clock: Option<Clock>,
        places: Places,
        buffers: Vec<IoBuf>,
    ) -> Letters {
        let taken = VecDeque::with_capacity(buffers.len());
        Letters { common, worker, clock, places, taken, desk: Desk::new(buffers) }
    }
}

impl Mail for Letters {
    fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static {
        let (post, wakes, clock) =
            (self.common.post.clone(), self.common.signals.wakes.clone(), self.clock.clone());
        let (worker, places) = (self.worker, self.places);
        move |completion| {
            let at = clock.as_ref().map_or(0, Clock::raw);
            let Completion { token, result, buf } = completion;
            let buffer = buf.into_buf();
            let outcome = if is_plain(&result, places) { Outcome::Done } else { outcome_of(result) };
            post.0[worker].put(Letter { slot: token as u32, outcome, buffer, at });
            wakes.wake(worker);
        }
    }

    #[inline(always)]
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    /// Never told here: it is among what [`Mail::next`] gives.
    fn ended_just_now(&mut self, _: u32) -> Option<u64> {
        None
    }

    fn has_more(&self) -> bool {
        false
    }

    #[inline]
    fn next(&mut self) -> Option<Ending> {
        if self.taken.is_empty() {
            let letterbox = &self.common.post.0[self.worker];
            if !letterbox.has_letters() {
                return None;
            }
            letterbox.fetch(&mut self.taken);
        }
        let Letter { slot, outcome, buffer, at } = self.taken.pop_front()?;
        self.common.signals.happenings.one_more();
        self.desk.give_back(slot, buffer);
        let is_plain = matches!(outcome, Outcome::Done);
        if !is_plain {
            self.desk.keep(slot, outcome);
        }
        Some(Ending { slot, is_plain, at })
    }
}
