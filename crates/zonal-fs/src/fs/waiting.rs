//! Waiting room: threads that wait for the file system. One keeps watch for all, the others sleep.
//!
//! The thread on watch polls the volume and processes answers, as a single waiter would. Each other
//! thread is listed with its condition, and sleeps on its own bell. A thread that changes something
//! notifies those that wait for it. A volume does the same for its callers (`zonal_io::volume`).
//!
//! Owns the list and the bells to be rung, but no lock: it is guarded by the core's.
//!
//! # Invariants
//! - A thread checks its condition and is listed in one critical section. Changes and notifications
//!   are made under the same lock, so none is missed.
//! - While a thread is listed, one thread has the watch. A thread hands over the watch before it
//!   leaves, and before it does a step.
//! - A thread is in the list, or it has been notified. Bells are rung after the lock is released;
//!   otherwise sleepers would wake only to wait for the lock.
//! - No sleep is longer than its waiter allows, so conditions that depend on time are noticed.

use crate::waiter::Bell;
use std::collections::VecDeque;
use zonal_io::sync::Arc;

/// Condition for which a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitsFor {
    /// Space: the ticket with this number is answered. Also notified if a step may be worthwhile
    /// and no thread is doing one.
    Space(u64),
    /// Room for another unit in flight, of the file with this number if it needs the write quantum.
    Room(Option<u64>),
    /// Completion of units in flight.
    Units,
    /// Writes or the write buffer of this file.
    File(u64),
    /// Right to change this file's data.
    Hold(u64),
    /// A commit of the layer with this number, or the right to commit it.
    Commit(u64),
    /// Growth of the store.
    Growth,
    /// End of a collector's step.
    Step,
}

impl WaitsFor {
    /// True for [`WaitsFor::Commit`].
    pub(super) fn is_commit(self) -> bool {
        matches!(self, WaitsFor::Commit(_))
    }
}

/// List of waiting threads.
#[derive(Debug, Default)]
pub(super) struct WaitingRoom {
    is_watched: bool,
    sleepers: VecDeque<Sleeper>,
    to_ring: Vec<Arc<Bell>>,
    /// True if something has changed since the last step began, so another one may be useful.
    may_step: bool,
}

#[derive(Debug)]
struct Sleeper {
    waits_for: WaitsFor,
    bell: Arc<Bell>,
}

/// Role of a thread in the room.
#[derive(Debug, Default)]
pub(super) enum Part {
    /// Not in the room.
    #[default]
    Outside,
    /// On watch.
    Watch,
    /// Listed with this bell, or notified.
    Asleep(Arc<Bell>),
}

impl WaitingRoom {
    /// Enters a thread that has to wait. Returns its role: on watch if no other thread is.
    pub(super) fn enter(&mut self, waits_for: WaitsFor, part: Part) -> Part {
        let part = self.awake(part);
        if matches!(part, Part::Watch) || !std::mem::replace(&mut self.is_watched, true) {
            return Part::Watch;
        }
        let bell = Arc::new(Bell::default());
        self.sleepers.push_back(Sleeper { waits_for, bell: bell.clone() });
        Part::Asleep(bell)
    }

    /// Removes a thread from the room, and hands over its watch if it has it.
    pub(super) fn leave(&mut self, part: Part) {
        if matches!(self.awake(part), Part::Watch) {
            self.hand_on();
        }
    }

    /// Removes a woken thread from the list.
    fn awake(&mut self, part: Part) -> Part {
        let Part::Asleep(bell) = part else { return part };
        self.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, &bell));
        if bell.has_watch() { Part::Watch } else { Part::Outside }
    }

    /// Hands the watch to the thread that has slept longest.
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

    /// Wakes all threads with a condition that satisfies `is_meant`.
    pub(super) fn wake_all(&mut self, is_meant: impl Fn(WaitsFor) -> bool) {
        let mut place = 0;
        while let Some(sleeper) = self.sleepers.get(place) {
            match is_meant(sleeper.waits_for) {
                true => self.wake(place),
                false => place += 1,
            }
        }
    }

    /// Wakes the longest waiting thread with a condition that satisfies `is_meant`. Returns false
    /// if none.
    pub(super) fn wake_one(&mut self, is_meant: impl Fn(WaitsFor) -> bool) -> bool {
        let place = self.sleepers.iter().position(|sleeper| is_meant(sleeper.waits_for));
        place.map(|place| self.wake(place)).is_some()
    }

    /// Wakes the threads that waited for the commit of the layers up to `number`, and one of the others, which makes the next commit.
    pub(super) fn committed(&mut self, number: u64) {
        self.wake_all(|what| matches!(what, WaitsFor::Commit(target) if target <= number));
        self.wake_one(WaitsFor::is_commit);
    }

    fn wake(&mut self, place: usize) {
        let Some(Sleeper { bell, .. }) = self.sleepers.remove(place) else { return };
        bell.wake(false);
        self.to_ring.push(bell);
    }

    /// Notes a change that may give a step something to do. Unless a step is running, wakes a
    /// thread that waits for space.
    pub(super) fn step_may_help(&mut self, is_step_running: bool) {
        self.may_step = true;
        if !is_step_running {
            self.wake_one(|what| matches!(what, WaitsFor::Space(_)));
        }
    }

    /// True if something has changed since the last step began.
    pub(super) fn may_step(&self) -> bool {
        self.may_step
    }

    /// Marks all changes as seen by the step that begins.
    pub(super) fn step_begins(&mut self) {
        self.may_step = false;
    }

    /// True if no thread sleeps.
    pub(super) fn is_empty(&self) -> bool {
        self.sleepers.is_empty()
    }

    /// Takes the bells to be rung after the lock is released.
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
        // It keeps the watch when it has to wait again, and hands it over when it leaves.
        let first = room.enter(WaitsFor::File(1), first);
        assert!(matches!(first, Part::Watch) && bells(&mut room) == 0);
        room.leave(first);
        assert_eq!(bells(&mut room), 1);
        room.leave(second);
        assert!(room.is_empty() && !room.is_watched && bells(&mut room) == 0);
    }

    #[test]
    fn change_wakes_only_its_waiters() {
        let mut room = WaitingRoom::default();
        let _watch = enter(&mut room, WaitsFor::Units);
        for what in [WaitsFor::File(1), WaitsFor::Commit(3), WaitsFor::File(1), WaitsFor::File(2)] {
            let _asleep = enter(&mut room, what);
        }
        room.wake_all(|what| what == WaitsFor::File(1));
        assert_eq!((bells(&mut room), room.sleepers.len()), (2, 2));
        assert!(room.wake_one(|what| what == WaitsFor::Commit(3)));
        assert!(!room.wake_one(|what| what == WaitsFor::Commit(3)));
        assert_eq!((bells(&mut room), room.sleepers.len()), (1, 1));
    }

    #[test]
    fn thread_that_times_out_leaves_the_waiting_list() {
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
