//! The waiting room: threads that wait for the file system. One of them keeps watch for all, the others sleep.
//!
//! The thread with the watch polls the volume and takes in answers, as a single waiter would. Each other thread is listed with what
//! it waits for, and sleeps on its own bell. The thread that changes something tells those that wait for it. A volume does the same
//! for its callers (`zonal_io::volume`).
//!
//! Owns the list and the bells to be rung, and no lock: the core's lock guards it.
//!
//! # Invariants
//! - A thread looks for what it waits for and is listed under one hold of the lock. The change is made and told under that
//!   lock. So no change comes between.
//! - While a thread is listed, one thread has the watch. A thread hands the watch on before it leaves, and before it does a step.
//! - A thread is in the list, or it has been told. A bell is rung after the lock is left, or its sleeper would wake to wait for it.
//! - No sleep is longer than its waiter allows: what only time changes is seen then.

use crate::waiter::Bell;
use std::collections::VecDeque;
use zonal_io::sync::Arc;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitsFor {
    /// Space: the ticket with this number is answered. Or a step may be worth while, and no thread does one.
    Space(u64),
    /// Room for one more unit in flight, of the file with this number if it needs the write quantum.
    Room(Option<u64>),
    /// Units in flight complete.
    Units,
    /// Writes or the write buffer of this file.
    File(u64),
    /// The right to change this file's data.
    Hold(u64),
    /// A commit ends.
    Commit,
    /// The store has grown.
    Growth,
    /// A step of the collector ends.
    Step,
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct WaitingRoom {
    is_watched: bool,
    sleepers: VecDeque<Sleeper>,
    to_ring: Vec<Arc<Bell>>,
    /// Something has changed since the last step began: one more may find what to do.
    may_step: bool,
}

#[derive(Debug)]
struct Sleeper {
    waits_for: WaitsFor,
    bell: Arc<Bell>,
}

/// What a thread is in the room.
#[derive(Debug, Default)]
pub(super) enum Part {
    /// It is not in the room.
    #[default]
    Outside,
    /// It has the watch.
    Watch,
    /// It is listed with this bell, or was told.
    Asleep(Arc<Bell>),
}

impl WaitingRoom {
    /// A thread finds that it has to wait. Returns its part: it gets the watch if no other thread has it.
    pub(super) fn enter(&mut self, waits_for: WaitsFor, part: Part) -> Part {
        let part = self.awake(part);
        if matches!(part, Part::Watch) || !std::mem::replace(&mut self.is_watched, true) {
            return Part::Watch;
        }
        let bell = Arc::new(Bell::default());
        self.sleepers.push_back(Sleeper { waits_for, bell: bell.clone() });
        Part::Asleep(bell)
    }

    /// A thread waits no more, or not in here: it hands on the watch if it has it.
    pub(super) fn leave(&mut self, part: Part) {
        if matches!(self.awake(part), Part::Watch) {
            self.hand_on();
        }
    }

    /// A thread is awake, and sleeps in the list no more.
    fn awake(&mut self, part: Part) -> Part {
        let Part::Asleep(bell) = part else { return part };
        self.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, &bell));
        if bell.has_watch() { Part::Watch } else { Part::Outside }
    }

    /// The thread that has slept for longest gets the watch.
    fn hand_on(&mut self) {
        #[cfg(feature = "shuttle")]
        if zonal_io::sync::model::is_broken(zonal_io::sync::model::Canary::Unwatched) {
            self.is_watched = false;
            return;
        }
        match self.sleepers.pop_front() {
            Some(heir) => {
                heir.bell.wake(true);
                self.to_ring.push(heir.bell);
            }
            None => self.is_watched = false,
        }
    }

    /// Tells all that wait for what `is_meant`.
    pub(super) fn tell(&mut self, is_meant: impl Fn(WaitsFor) -> bool) {
        let mut place = 0;
        while let Some(sleeper) = self.sleepers.get(place) {
            match is_meant(sleeper.waits_for) {
                true => self.wake(place),
                false => place += 1,
            }
        }
    }

    /// Tells the thread that has waited for longest of those that wait for what `is_meant`. Returns whether there is one.
    pub(super) fn tell_one(&mut self, is_meant: impl Fn(WaitsFor) -> bool) -> bool {
        let place = self.sleepers.iter().position(|sleeper| is_meant(sleeper.waits_for));
        place.map(|place| self.wake(place)).is_some()
    }

    fn wake(&mut self, place: usize) {
        let Some(Sleeper { bell, .. }) = self.sleepers.remove(place) else { return };
        bell.wake(false);
        self.to_ring.push(bell);
    }

    /// Something has changed that a step may make use of. Unless a step runs, a thread that waits for space is told.
    pub(super) fn step_may_help(&mut self, is_step_running: bool) {
        self.may_step = true;
        if !is_step_running {
            self.tell_one(|what| matches!(what, WaitsFor::Space(_)));
        }
    }

    /// Whether something has changed since the last step began.
    pub(super) fn may_step(&self) -> bool {
        self.may_step
    }

    /// A step begins, and looks at all that has changed.
    pub(super) fn step_begins(&mut self) {
        self.may_step = false;
    }

    /// Whether no thread sleeps.
    pub(super) fn is_empty(&self) -> bool {
        self.sleepers.is_empty()
    }

    /// The bells to be rung once the lock is left.
    pub(super) fn take_bells(&mut self) -> Vec<Arc<Bell>> {
        std::mem::take(&mut self.to_ring)
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(room: &mut WaitingRoom, what: WaitsFor) -> Part {
        room.enter(what, Part::Outside)
    }

    fn bells(room: &mut WaitingRoom) -> usize {
        room.take_bells().len()
    }

    #[test]
    fn first_thread_has_the_watch_and_its_heir_slept_for_longest() {
        let mut room = WaitingRoom::default();
        let watch = enter(&mut room, WaitsFor::Units);
        let [first, second] = [1, 2].map(|ino| enter(&mut room, WaitsFor::File(ino)));
        assert!(matches!((&watch, &first, &second), (Part::Watch, Part::Asleep(_), Part::Asleep(_))));
        room.leave(watch);
        assert_eq!(bells(&mut room), 1);
        // It stays the watch when it has to wait again, and hands it on when it leaves.
        let first = room.enter(WaitsFor::File(1), first);
        assert!(matches!(first, Part::Watch) && bells(&mut room) == 0);
        room.leave(first);
        assert_eq!(bells(&mut room), 1);
        room.leave(second);
        assert!(room.is_empty() && !room.is_watched && bells(&mut room) == 0);
    }

    #[test]
    fn change_tells_those_that_wait_for_it_and_no_other() {
        let mut room = WaitingRoom::default();
        let _watch = enter(&mut room, WaitsFor::Units);
        for what in [WaitsFor::File(1), WaitsFor::Commit, WaitsFor::File(1), WaitsFor::File(2)] {
            let _asleep = enter(&mut room, what);
        }
        room.tell(|what| what == WaitsFor::File(1));
        assert_eq!((bells(&mut room), room.sleepers.len()), (2, 2));
        assert!(room.tell_one(|what| what == WaitsFor::Commit));
        assert!(!room.tell_one(|what| what == WaitsFor::Commit));
        assert_eq!((bells(&mut room), room.sleepers.len()), (1, 1));
    }

    #[test]
    fn thread_whose_sleep_ended_by_its_time_leaves_the_list() {
        let mut room = WaitingRoom::default();
        let watch = enter(&mut room, WaitsFor::Units);
        let asleep = enter(&mut room, WaitsFor::Space(7));
        room.leave(asleep);
        assert!(room.is_empty());
        room.leave(watch);
        assert!(!room.is_watched && bells(&mut room) == 0);
    }

    #[test]
    fn change_during_a_step_is_kept_for_the_next() {
        let mut room = WaitingRoom::default();
        let _watch = enter(&mut room, WaitsFor::Units);
        let _asleep = enter(&mut room, WaitsFor::Space(7));
        room.step_begins();
        room.step_may_help(true);
        assert!(room.may_step() && bells(&mut room) == 0);
        room.step_may_help(false);
        assert_eq!(bells(&mut room), 1);
        room.step_begins();
        assert!(!room.may_step());
    }
}
