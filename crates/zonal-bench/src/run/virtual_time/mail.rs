//! Completions on their way to a coroutine.
//!
//! They come from the write path's polls, which the scheduler makes, and from the submissions of all workers; each goes
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

/// Where letters lie until their workers look. All on one thread: the lock is for the type's sake, and always free.
pub(super) struct Post {
    /// Workers to whom letters have come that they have not seen.
    has_letters: Box<[AtomicBool]>,
    has_awake: AtomicBool,
    sorted: Brief<Sorted>,
}

struct Sorted {
    boxes: Box<[VecDeque<Letter>]>,
    /// The same workers, in order of arrival, but those that were told.
    awake: VecDeque<usize>,
}

impl Post {
    /// For so many workers.
    pub(super) fn new(workers: usize) -> Post {
        let boxes = (0..workers).map(|_| VecDeque::new()).collect();
        Post {
            has_letters: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            has_awake: AtomicBool::new(false),
            sorted: Brief::new(Sorted { boxes, awake: VecDeque::new() }),
        }
    }

    /// Takes the first worker to whom a letter has come.
    #[inline]
    pub(super) fn awake(&self) -> Option<usize> {
        if !self.has_awake.load(Ordering::Relaxed) {
            return None;
        }
        let mut sorted = self.sorted.lock();
        let first = sorted.awake.pop_front();
        self.has_awake.store(!sorted.awake.is_empty(), Ordering::Relaxed);
        first
    }

    fn put(&self, worker: usize, letter: Letter) {
        let mut sorted = self.sorted.lock();
        sorted.boxes[worker].push_back(letter);
        if !self.has_letters[worker].load(Ordering::Relaxed) {
            self.has_letters[worker].store(true, Ordering::Relaxed);
            self.has_awake.store(true, Ordering::Relaxed);
            sorted.awake.push_back(worker);
        }
    }

    #[inline]
    fn has_letters(&self, worker: usize) -> bool {
        self.has_letters[worker].load(Ordering::Relaxed)
    }

    /// Exchanges what has come for an empty list.
    #[inline(never)]
    fn fetch(&self, worker: usize, taken: &mut VecDeque<Letter>) {
        let mut sorted = self.sorted.lock();
        self.has_letters[worker].store(false, Ordering::Relaxed);
        std::mem::swap(&mut sorted.boxes[worker], taken);
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
        let (post, clock) = (self.common.post.clone(), self.clock.clone());
        let (worker, places) = (self.worker, self.places);
        move |completion| {
            let at = clock.as_ref().map_or(0, Clock::raw);
            let Completion { token, result, buf } = completion;
            let buffer = buf.into_buf();
            let outcome = if is_plain(&result, places) { Outcome::Done } else { outcome_of(result) };
            post.put(worker, Letter { slot: token as u32, outcome, buffer, at });
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
            if !self.common.post.has_letters(self.worker) {
                return None;
            }
            self.common.post.fetch(self.worker, &mut self.taken);
        }
        let Letter { slot, outcome, buffer, at } = self.taken.pop_front()?;
        self.common.happenings.one_more();
        self.desk.give_back(slot, buffer);
        let is_plain = matches!(outcome, Outcome::Done);
        if !is_plain {
            self.desk.keep(slot, outcome);
        }
        Some(Ending { slot, is_plain, at })
    }
}
