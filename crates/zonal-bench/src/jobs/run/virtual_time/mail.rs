//! Completions not yet taken by their coroutine.
//!
//! They result from polls of the write path by the executor, and from submissions of all workers.
//! Each is delivered to its worker, in order of completion, and wakes it.

use super::Common;
use crate::jobs::run::inbox::{Desk, Ending, Mail, NO_STAMP, Outcome, Places, is_plain, outcome_of};
use quanta::Clock;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_io::buffer::IoBuf;
use zonal_io::sync::ShortLock;
use zonal_io::volume::Completion;

/// A completed request.
struct Letter {
    slot: u32,
    /// True for a plain outcome. Other outcomes are in a separate list.
    is_plain: bool,
    buffer: IoBuf,
    at: u64,
}

/// Completions waiting for their workers, one box per worker. All access is from one thread: the
/// locks only satisfy the type system and are always free.
pub(super) struct Post(Box<[Letterbox]>);

#[derive(Default)]
struct Letterbox {
    has_letters: AtomicBool,
    letters: ShortLock<VecDeque<Letter>>,
    outcomes: ShortLock<Vec<(u32, Outcome)>>,
}

impl Post {
    /// Creates the boxes of `workers` workers.
    pub(super) fn new(workers: usize) -> Post {
        Post((0..workers).map(|_| Letterbox::default()).collect())
    }
}

impl Letterbox {
    #[inline]
    fn put(&self, letter: Letter) {
        self.letters.lock().push_back(letter);
        self.has_letters.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn take(&self) -> Option<Letter> {
        if !self.has_letters.load(Ordering::Relaxed) {
            return None;
        }
        let mut letters = self.letters.lock();
        let letter = letters.pop_front();
        self.has_letters.store(!letters.is_empty(), Ordering::Relaxed);
        letter
    }

    #[cold]
    fn put_outcome(&self, slot: u32, outcome: Outcome) {
        self.outcomes.lock().push((slot, outcome));
    }

    #[cold]
    fn take_outcome(&self, slot: u32) -> Option<Outcome> {
        let mut outcomes = self.outcomes.lock();
        let at = outcomes.iter().position(|(s, _)| *s == slot)?;
        Some(outcomes.swap_remove(at).1)
    }
}

/// Inbox of a worker in virtual time.
pub(super) struct Letters {
    common: Rc<Common>,
    worker: usize,
    clock: Option<Clock>,
    places: Places,
    desk: Desk,
}

impl Letters {
    pub(super) fn new(
        common: Rc<Common>,
        worker: usize,
        clock: Option<Clock>,
        places: Places,
        buffers: Vec<IoBuf>,
    ) -> Letters {
        common.post.0[worker].letters.lock().reserve(buffers.len());
        Letters { common, worker, clock, places, desk: Desk::new(buffers) }
    }
}

impl Mail for Letters {
    fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static {
        let (post, wakes, clock) =
            (self.common.post.clone(), self.common.signals.wakes.clone(), self.clock.clone());
        let (worker, places) = (self.worker, self.places);
        move |completion| {
            let at = clock.as_ref().map_or(NO_STAMP, Clock::raw);
            let Completion { token, result, buf } = completion;
            let buffer = buf.into_buf();
            let (letterbox, slot) = (&post.0[worker], token as u32);
            let mut is_plain = is_plain(&result, places);
            if !is_plain {
                let outcome = outcome_of(result);
                is_plain = matches!(outcome, Outcome::Done);
                if !is_plain {
                    letterbox.put_outcome(slot, outcome);
                }
            }
            letterbox.put(Letter { slot, is_plain, buffer, at });
            wakes.wake(worker);
        }
    }

    #[inline(always)]
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    /// Always false: [`Mail::next`] returns every completion.
    fn ended_just_now(&mut self, _: u32) -> bool {
        false
    }

    fn has_more(&self) -> bool {
        false
    }

    #[inline]
    fn next(&mut self) -> Option<Ending> {
        let letterbox = &self.common.post.0[self.worker];
        let Letter { slot, is_plain, buffer, at } = letterbox.take()?;
        self.common.signals.events.increment();
        self.desk.give_back(slot, buffer);
        if !is_plain && let Some(outcome) = letterbox.take_outcome(slot) {
            self.desk.keep(slot, outcome);
        }
        Some(Ending { slot, is_plain, at })
    }
}
