//! A thread's wait in the waiting room: between two looks at the core it sleeps, or polls the
//! volume for all threads.

use super::core::{Core, CoreGuard, Shared};
use super::waiting::{Part, WaitingRoom, WaitsFor};
use crate::waiter::{Bell, Wait};
use zonal_core::Nanos;
use zonal_io::sync::Arc;

/// Time after which a thread tries a step even if nothing has changed, for the sake of conditions
/// that depend on time.
const TRIES_AFTER: u64 = 100_000_000;

/// Wait of one thread. A waiter that may not sleep never enters the room: it polls and tries steps.
pub(super) struct Seat<'a> {
    shared: &'a Shared,
    waiter: &'a dyn Wait,
    waits_for: WaitsFor,
    place: Place,
    /// Time of the last attempted step.
    tried: Option<Nanos>,
}

/// A thread's place in the waiting room, and its share of the chores.
#[derive(Default)]
struct Place {
    part: Part,
    /// True if the thread has done chores and not polled since.
    has_done_chores: bool,
}

/// Next action of a thread that has looked and found nothing.
enum Pause {
    /// Resubmit units and finish zones, outside the room.
    Chores,
    /// Poll the volume for all threads, as the one on watch.
    Poll,
    /// Sleep until the bell is rung.
    Sleep(Arc<Bell>),
}

impl Place {
    /// True if the thread does the chores now. They may take long, so it leaves the room, and
    /// another thread gets the watch.
    ///
    /// A thread polls between two rounds of chores, because chores may wait for an answer that only
    /// a poll processes. If each thread on watch did chores first, the watch would be passed around
    /// forever and no thread would poll.
    fn start_chores(&mut self, room: &mut WaitingRoom, has_chores: bool) -> bool {
        let takes = has_chores && !self.has_done_chores;
        if takes {
            self.has_done_chores = true;
            room.leave(std::mem::take(&mut self.part));
        }
        takes
    }

    /// Enters the room, or stays in it.
    fn enter(&mut self, room: &mut WaitingRoom, waits_for: WaitsFor) -> Pause {
        self.part = room.enter(waits_for, std::mem::take(&mut self.part));
        if let Part::Asleep(bell) = &self.part {
            return Pause::Sleep(bell.clone());
        }
        self.has_done_chores = false;
        Pause::Poll
    }
}

impl<'a> Seat<'a> {
    pub(super) fn new(shared: &'a Shared, waiter: &'a dyn Wait, waits_for: WaitsFor) -> Seat<'a> {
        Seat { shared, waiter, waits_for, place: Place::default(), tried: None }
    }

    /// Ends the wait.
    pub(super) fn leave(&mut self, core: &mut Core) {
        core.room.leave(std::mem::take(&mut self.place.part));
        self.waiter.done();
    }

    /// Waits after a look that found nothing. Returns when it is worth looking again.
    pub(super) fn wait(&mut self, mut core: CoreGuard<'_>) {
        let volume = self.shared.drive.volume();
        if !self.waiter.may_sleep() {
            drop(core);
            self.shared.resend(self.waiter);
            return self.waiter.wait(volume);
        }
        match self.pause(&mut core) {
            None => {}
            Some(Pause::Chores) => {
                drop(core);
                self.shared.resend(self.waiter);
            }
            Some(Pause::Poll) => {
                drop(core);
                self.waiter.wait(volume);
            }
            Some(Pause::Sleep(bell)) => {
                drop(core);
                self.waiter.sleep(&bell);
            }
        }
    }

    /// Returns the next action; `None` to look again at once.
    fn pause(&mut self, core: &mut Core) -> Option<Pause> {
        let has_chores = core.has_chores();
        if self.place.start_chores(&mut core.room, has_chores) {
            return Some(Pause::Chores);
        }
        if let WaitsFor::File(ino) = self.waits_for
            && core.is_first_to_await(ino)
        {
            // The file's tail may have been returned since the look.
            return None;
        }
        Some(self.place.enter(&mut core.room, self.waits_for))
    }

    /// True if the thread should try a step before it waits: no other thread is doing one, and this
    /// one may find something to do.
    pub(super) fn should_step(&self, core: &Core) -> bool {
        let is_time = || {
            let since = |tried: Nanos| self.waiter.now().0.saturating_sub(tried.0);
            self.tried.is_none_or(|tried| since(tried) >= TRIES_AFTER)
        };
        !self.waiter.may_sleep() || !core.is_step_running && (core.room.may_step() || is_time())
    }

    /// Leaves the room before a step, which may take long, so that another thread gets the watch.
    pub(super) fn step_out(&mut self, mut core: CoreGuard<'_>) {
        core.room.leave(std::mem::take(&mut self.place.part));
    }

    /// Notes that a step found nothing to do.
    pub(super) fn found_no_step(&mut self) {
        match self.waiter.may_sleep() {
            true => self.tried = Some(self.waiter.now()),
            false => self.waiter.wait(self.shared.drive.volume()),
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // The wait was ended by an error.
        if !matches!(self.place.part, Part::Outside) {
            self.shared.core.lock().room.leave(std::mem::take(&mut self.place.part));
        }
    }
}

impl Core {
    /// Notes that a thread waits for a file's tail. Returns true if it is the first. If it is not,
    /// the tail has not been returned meanwhile, because its writer would have cleared the note.
    fn is_first_to_await(&self, ino: u64) -> bool {
        self.nodes.here(ino).is_some_and(|mut node| !std::mem::replace(&mut node.is_awaited, true))
    }

    /// True if units wait to be resubmitted, or zones to be finished.
    fn has_chores(&self) -> bool {
        self.units.lock().has_failed() || self.space.lock().has_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Runs three waiting threads round-robin, with conditions that never become true and chores
    /// that never end. Each thread runs until it sleeps, and again once it is woken.
    #[test]
    fn threads_with_chores_poll_between_them() {
        let mut room = WaitingRoom::default();
        let mut places: [Place; 3] = Default::default();
        let mut awake = VecDeque::from([0, 1, 2]);
        let (mut polls, mut chores) = (0, 0);
        for _ in 0..60 {
            let thread = awake.pop_front().expect("one thread has the watch");
            let place = &mut places[thread];
            let rests = match place.start_chores(&mut room, true) {
                true => None,
                false => Some(place.enter(&mut room, WaitsFor::Units)),
            };
            chores += usize::from(rests.is_none());
            polls += usize::from(matches!(rests, Some(Pause::Poll)));
            let is_woken = |bells: &[Arc<Bell>], place: &Place| match &place.part {
                Part::Asleep(bell) => bells.iter().any(|rung| Arc::ptr_eq(rung, bell)),
                _ => false,
            };
            let bells = room.take_bells();
            awake.extend((0..3).filter(|&thread| is_woken(&bells, &places[thread])));
            if !matches!(rests, Some(Pause::Sleep(_))) {
                awake.push_back(thread);
            }
        }
        assert!(polls >= 10 && chores >= 10, "{polls} polls, {chores} turns of chores");
    }
}
