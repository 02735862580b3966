//! A thread's wait in the waiting room: between two looks at the core it sleeps, or polls the volume for all.

use super::core::{Core, CoreGuard, Shared};
use super::waiting::{Part, WaitsFor};
use crate::waiter::Wait;
use zonal_core::Nanos;

/// After this time a thread tries a step also if nothing has changed: what only time changes is seen then.
const TRIES_AFTER: u64 = 100_000_000;

/// The wait of one thread. A waiter that may not sleep is never in the room: it polls, and tries each step itself.
pub(super) struct Seat<'a> {
    shared: &'a Shared,
    waiter: &'a dyn Wait,
    waits_for: WaitsFor,
    part: Part,
    /// When it last tried a step.
    tried: Option<Nanos>,
    has_done_chores: bool,
}

impl<'a> Seat<'a> {
    pub(super) fn new(shared: &'a Shared, waiter: &'a dyn Wait, waits_for: WaitsFor) -> Seat<'a> {
        Seat { shared, waiter, waits_for, part: Part::Outside, tried: None, has_done_chores: false }
    }

    /// The wait has ended.
    pub(super) fn leave(&mut self, core: &mut Core) {
        core.room.leave(std::mem::take(&mut self.part));
        self.waiter.done();
    }

    /// The thread has looked and found nothing. Returns when it is worth looking again.
    pub(super) fn wait(&mut self, mut core: CoreGuard<'_>) {
        let volume = self.shared.drive.volume();
        if !self.waiter.may_sleep() {
            drop(core);
            self.shared.resend(self.waiter);
            return self.waiter.wait(volume);
        }
        if core.has_chores() && !self.has_done_chores {
            // It may have to wait for them.
            self.step_out(core);
            self.shared.resend(self.waiter);
            self.has_done_chores = true;
            return;
        }
        self.has_done_chores = false;
        if let WaitsFor::File(ino) = self.waits_for
            && core.is_first_to_await(ino)
        {
            // The file's tail may have come back since the look.
            return;
        }
        self.part = core.room.enter(self.waits_for, std::mem::take(&mut self.part));
        drop(core);
        match &self.part {
            Part::Asleep(bell) => self.waiter.sleep(bell),
            _ => self.waiter.wait(volume),
        }
    }

    /// Whether the thread should try a step before it waits: no thread does one, and it may find what to do.
    pub(super) fn should_step(&self, core: &Core) -> bool {
        let is_time = || {
            let since = |tried: Nanos| self.waiter.now().0.saturating_sub(tried.0);
            self.tried.is_none_or(|tried| since(tried) >= TRIES_AFTER)
        };
        !self.waiter.may_sleep() || !core.is_step_running && (core.room.may_step() || is_time())
    }

    /// The thread is about to try a step, which may take long: another one gets the watch.
    pub(super) fn step_out(&mut self, mut core: CoreGuard<'_>) {
        core.room.leave(std::mem::take(&mut self.part));
    }

    /// It has tried a step, and found nothing to do.
    pub(super) fn found_no_step(&mut self) {
        match self.waiter.may_sleep() {
            true => self.tried = Some(self.waiter.now()),
            false => self.waiter.wait(self.shared.drive.volume()),
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // An error has ended the wait.
        if !matches!(self.part, Part::Outside) {
            self.shared.core.lock().room.leave(std::mem::take(&mut self.part));
        }
    }
}

impl Core {
    /// Notes that a thread waits for a file's tail; whether none did. If one did, no tail has come back meanwhile: its writer would
    /// have taken the note away.
    fn is_first_to_await(&self, ino: u64) -> bool {
        self.nodes.here(ino).is_some_and(|mut node| !std::mem::replace(&mut node.is_awaited, true))
    }

    /// Whether units wait to be sent again, or zones to be finished.
    fn has_chores(&self) -> bool {
        self.units.lock().has_failed() || self.space.lock().has_closed()
    }
}
