//! Completions on their way to a coroutine.
//!
//! They come from the write path's polls, which the scheduler makes, and from the submissions of all workers; each goes
//! to the worker it belongs to, in the order of completion, and wakes it.

use super::Common;
use crate::run::inbox::{Desk, Ending, Mail, Outcome, Places, is_plain, outcome_of};
use quanta::Clock;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_io::buffer::IoBuf;
use zonal_io::sync::Mutex;
use zonal_io::volume::Completion;

/// Workers to whom letters have come that they have not seen, in order of arrival.
#[derive(Default)]
pub(super) struct Awake(Mutex<VecDeque<usize>>);

impl Awake {
    /// Takes the first.
    pub(super) fn pop(&self) -> Option<usize> {
        self.0.lock().pop_front()
    }
}

/// That a request has ended.
struct Letter {
    slot: u32,
    outcome: Outcome,
    buffer: IoBuf,
    at: u64,
}

/// Where a worker's letters lie until it looks. All on one thread: the lock is for the type's sake, and always free.
struct Letterbox {
    number: usize,
    awake: Arc<Awake>,
    has_letters: AtomicBool,
    letters: Mutex<VecDeque<Letter>>,
}

impl Letterbox {
    fn put(&self, letter: Letter) {
        let mut letters = self.letters.lock();
        letters.push_back(letter);
        let had = self.has_letters.load(Ordering::Relaxed);
        self.has_letters.store(true, Ordering::Relaxed);
        drop(letters);
        if !had {
            self.awake.0.lock().push_back(self.number);
        }
    }
}

/// The inbox of a worker in virtual time.
pub(super) struct Letters {
    common: Rc<Common>,
    shared: Arc<Letterbox>,
    clock: Option<Clock>,
    places: Places,
    desk: Desk,
    /// Taken from the box and not looked at yet.
    taken: VecDeque<Letter>,
}

impl Letters {
    pub(super) fn new(
        common: Rc<Common>,
        number: usize,
        clock: Option<Clock>,
        places: Places,
        buffers: Vec<IoBuf>,
    ) -> Letters {
        let list = || VecDeque::with_capacity(buffers.len());
        let awake = common.awake.clone();
        let has_letters = AtomicBool::new(false);
        let shared = Arc::new(Letterbox { number, awake, has_letters, letters: Mutex::new(list()) });
        Letters { common, shared, clock, places, taken: list(), desk: Desk::new(buffers) }
    }

    #[inline(never)]
    fn fetch(&mut self) {
        let mut letters = self.shared.letters.lock();
        self.shared.has_letters.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *letters, &mut self.taken);
    }
}

impl Mail for Letters {
    fn completion_function(&self) -> impl Fn(Completion) + Send + Sync + 'static {
        let (shared, clock, places) = (self.shared.clone(), self.clock.clone(), self.places);
        move |completion| {
            let at = clock.as_ref().map_or(0, Clock::raw);
            let Completion { token, result, buf: buffer } = completion;
            let outcome = if is_plain(&result, places) { Outcome::Done } else { outcome_of(result) };
            shared.put(Letter { slot: token as u32, outcome, buffer, at });
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
            if !self.shared.has_letters.load(Ordering::Relaxed) {
                return None;
            }
            self.fetch();
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
