//! What concerns every sequential zone at once: a reset of all zones, a switch of the write mode.
//!
//! Each zone is held until nothing of it is in flight; what arrives meanwhile queues. Once all are quiet, a reset goes to
//! the device as one command, a switch takes effect at once, and the zones are released. A reset aborts what waits, a
//! switch leaves it where it is, to be issued in the new mode.
//!
//! One at a time; switches that come meanwhile wait for it, and a reset of all zones becomes one reset a zone.

use super::Volume;
use super::mode::{SwitchError, WriteMode};
use super::pending::PendingRequest;
use super::submit::Fate;
use crate::device::{CommandResult, Context, ContextKind};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::VecDeque;
use zonal_core::plug::{Next, Word, ZoneClass};
use zonal_core::{Nanos, ZoneIndex};

/// What the zones are made quiet for.
pub(super) enum Purpose {
    Reset(Box<PendingRequest>),
    Switch(WriteMode),
}

/// Who has the zones to itself, or is about to. Its own lock is taken with no other, and not under a shard's.
#[derive(Default)]
pub(super) struct Quiesce {
    state: Mutex<QuiesceState>,
    /// A switch waits and nothing is under way: what a poll reads.
    is_due: AtomicBool,
}

/// The one under way, and the switches that wait for it.
#[derive(Default)]
struct QuiesceState {
    /// Taken when every zone is quiet.
    purpose: Option<Purpose>,
    under_way: bool,
    /// Zones that are not quiet yet, and one for the walk over them.
    zones_left: u32,
    behind: VecDeque<WriteMode>,
}

impl Quiesce {
    /// Begins with the walk over the zones, unless something is under way: a switch waits for that, anything else is given back.
    fn begin(&self, purpose: Purpose) -> Result<(), Option<Purpose>> {
        let mut state = self.state.lock();
        match purpose {
            Purpose::Switch(mode) if state.under_way => {
                state.behind.push_back(mode);
                Err(None)
            }
            reset if state.under_way => Err(Some(reset)),
            purpose => {
                state.under_way = true;
                state.zones_left = 1;
                state.purpose = Some(purpose);
                Ok(())
            }
        }
    }

    /// One zone more to wait for.
    fn holds_zone(&self) {
        self.state.lock().zones_left += 1;
    }

    /// One zone fewer to wait for, or the walk has ended. With the last, what it was for.
    fn zone_is_quiet(&self) -> Option<Purpose> {
        let mut state = self.state.lock();
        state.zones_left -= 1;
        match state.zones_left {
            0 => Some(state.purpose.take().expect("the zones are made quiet for something")),
            _ => None,
        }
    }

    /// The zones are released.
    fn end(&self) {
        let mut state = self.state.lock();
        state.under_way = false;
        self.is_due.store(!state.behind.is_empty(), Ordering::Release);
    }

    /// A switch that the next poll begins.
    fn ask(&self, mode: WriteMode) {
        self.state.lock().behind.push_back(mode);
        self.is_due.store(true, Ordering::Release);
    }

    /// Whether a poll has to begin something.
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// The first switch that waits, if nothing is under way.
    fn next(&self) -> Option<WriteMode> {
        // Read first: an exchange at every poll would cost a locked operation.
        if !self.is_due.load(Ordering::Relaxed) || !self.is_due.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut state = self.state.lock();
        if state.under_way { None } else { state.behind.pop_front() }
    }
}

impl Volume {
    /// Begins a reset of all zones. While the zones are made quiet for something else, each is reset by a command of its own: it goes
    /// before the writes that come after it, which a reset that waited in line would erase.
    pub(super) fn reset_all(&self, now: Nanos, mut pending: Box<PendingRequest>) -> Fate {
        pending.nowait = false;
        match self.quiesce(now, Purpose::Reset(pending)) {
            Some(Purpose::Reset(pending)) => self.reset_part(now, self.plugs.sequential_range(), pending),
            _ => Fate::Later,
        }
    }

    /// Switches the write mode while running: issues nothing more in the old one, waits for what is in flight, and continues
    /// in the new one. What waits and what arrives meanwhile keeps its order. Returns at once; [`Volume::mode`] tells when
    /// it has taken effect, which takes polls.
    ///
    /// # Errors
    /// [`SwitchError`] if the device does not do it, or the mode is or was `direct` or `zone-lock`: the volume does not know what
    /// is in flight, or has a scheduler in front of it.
    pub fn switch_mode(&self, now: Nanos, mode: WriteMode) -> Result<(), SwitchError> {
        self.may_switch(mode, false)?;
        self.switch_mode_anyway(now, mode)
    }

    /// As [`Volume::switch_mode`], but to mode `pipelined` also where the device does not promise order: what it reorders is
    /// sent again, which is slow and not wrong.
    ///
    /// # Errors
    /// As [`Volume::switch_mode`], but for [`SwitchError::NoOrder`].
    pub fn switch_mode_anyway(&self, now: Nanos, mode: WriteMode) -> Result<(), SwitchError> {
        self.may_switch(mode, true)?;
        super::begin_call();
        self.quiesce(now, Purpose::Switch(mode));
        super::end_call();
        Ok(())
    }

    /// Asks for a switch of the write mode, which the next poll begins: for a thread that does not know the volume's time.
    /// With `force` as [`Volume::switch_mode_anyway`].
    ///
    /// # Errors
    /// As [`Volume::switch_mode`].
    pub fn request_mode(&self, mode: WriteMode, force: bool) -> Result<(), SwitchError> {
        self.may_switch(mode, force)?;
        self.quiesce.ask(mode);
        self.alarm.ring();
        Ok(())
    }

    /// Begins a switch that was requested, if the volume has nothing to do: then it issues no command, and needs no time.
    pub(crate) fn begin_request_if_idle(&self) {
        let is_idle = |zone| {
            let word = self.plugs.load(zone);
            word.in_flight() == 0 && !word.waits()
        };
        if self.plugs.sequential_zones().all(is_idle) {
            super::begin_call();
            self.next_quiesce(Nanos(0));
            super::end_call();
        }
    }

    pub(super) fn may_switch(&self, mode: WriteMode, force: bool) -> Result<(), SwitchError> {
        match [self.terms.policy.mode(), mode] {
            modes if modes.contains(&WriteMode::Direct) => return Err(SwitchError::Direct),
            modes if modes.contains(&WriteMode::ZoneLock) => return Err(SwitchError::ZoneLock),
            _ => {}
        }
        match mode.fits(&self.terms.info) {
            Err(SwitchError::NoOrder) if force || self.terms.settings.is_forced() => Ok(()),
            fits => fits,
        }
    }

    /// Gives a reset back that finds something under way. A switch waits for that.
    fn quiesce(&self, now: Nanos, purpose: Purpose) -> Option<Purpose> {
        let aborts = matches!(purpose, Purpose::Reset(_));
        if let Err(given_back) = self.quiesce.begin(purpose) {
            return given_back;
        }
        let front = self.front.as_ref().filter(|_| aborts);
        let scheduled = front.map(|front| front.take(self.plugs.sequential_range())).unwrap_or_default();
        let aborted = self.hold_zones(aborts);
        // All zones are held before a caller hears of what a reset aborts: what it writes then comes after the reset.
        for pending in scheduled {
            self.abort(self.terms.info.geometry.zone_of(pending.sector), vec![pending]);
        }
        self.begin_quiet(now, aborted);
        None
    }

    /// Holds every zone; what waited there, if that is to be aborted.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn hold_zones(&self, aborts: bool) -> Vec<(ZoneIndex, Vec<Box<PendingRequest>>)> {
        let mut all = Vec::new();
        for zone in self.plugs.sequential_zones() {
            let mut aborted = Vec::new();
            // Before the zone can be quiet, and not under the shard's lock, whose holders do not wait for mutexes.
            self.quiesce.holds_zone();
            let mut shard = self.plugs.shard(zone).lock();
            // Read-only and offline ones too: what a zone is may turn out to be something else before the release.
            let word = self.plugs.update(zone, Word::recalling);
            let queue = shard.queue(zone);
            if aborts {
                queue.hold(word, &mut aborted);
                shard.abort_parked(zone, &mut aborted);
            } else {
                queue.pause(word);
            }
            drop(shard);
            if !aborted.is_empty() {
                all.push((zone, aborted));
            }
        }
        all
    }

    /// Ends what is aborted, and sees which of the zones that are held are quiet.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn begin_quiet(&self, now: Nanos, aborted: Vec<(ZoneIndex, Vec<Box<PendingRequest>>)>) {
        aborted.into_iter().for_each(|(zone, aborted)| self.abort(zone, aborted));
        self.plugs.sequential_zones().for_each(|zone| self.kick(now, zone));
        // The walk's own share: what it was for continues here if every zone was quiet at once.
        let mut slot = self.zone_is_quiet();
        if slot.is_some()
            && let Some(mut result) = self.issue(now, &mut slot)
        {
            self.completed(now, &mut slot, &mut result);
        }
    }

    /// One zone fewer to wait for. Once it was the last, a switch takes effect, and a reset's command is returned.
    pub(super) fn zone_is_quiet(&self) -> Option<Context> {
        match self.quiesce.zone_is_quiet()? {
            Purpose::Reset(pending) => Some(Context(ContextKind::One(pending))),
            Purpose::Switch(mode) => {
                self.change_mode(mode);
                None
            }
        }
    }

    /// A switch takes effect, all zones being held.
    fn change_mode(&self, mode: WriteMode) {
        self.terms.settings.adopt_window();
        self.terms.policy.switch(mode);
        self.tokens.iter().for_each(|token| token.dismiss());
        self.release_zones(|_| Release::AsItWas);
    }

    /// Ends a reset of all zones.
    pub(super) fn finish_reset_all(&self, result: &CommandResult) {
        if self.mode().0 == WriteMode::Direct {
            return;
        }
        if result.is_ok() {
            self.slots.all_reset();
        }
        self.release_zones(|word| match result {
            Ok(_) if word.class() == ZoneClass::Sequential => Release::Reset,
            Ok(_) => Release::AsItWas,
            // A reset that failed may have reset some zones.
            Err(e) if e.may_come_late() => Release::Unsettled,
            Err(_) => Release::Unknown,
        });
    }

    /// Releases every zone. Those with waiters continue from the ready list.
    fn release_zones(&self, how: impl Fn(Word) -> Release) {
        let epoch = self.terms.policy.epoch();
        let has_budget = self.slots.are_counted();
        for zone in self.plugs.sequential_zones() {
            let mut shard = self.plugs.shard(zone).lock();
            let word = self.plugs.load(zone);
            let queue = shard.queue(zone);
            let how = how(word);
            let word = queue.release(word, matches!(how, Release::Reset).then_some(0)).in_epoch(epoch);
            let word = match how {
                Release::Reset if has_budget => word.without_slot(),
                Release::AsItWas | Release::Reset => word,
                Release::Unknown => word.recovering(),
                Release::Unsettled => queue.unsettle(word),
            };
            if queue.is_empty() && !word.recovers() && !queue.is_in_repair() && !word.has_parked() {
                let (word, next) = queue.next(word, &self.terms.rules(zone));
                debug_assert!(matches!(next, Next::Nothing));
                // What waited for a slot may have been cancelled while the zone was held.
                if !word.has_slot() {
                    self.slots.cancel(zone);
                }
                shard.drop_queue(zone);
                self.plugs.store(zone, word);
            } else {
                self.plugs.store(zone, word);
                self.ready.push(zone);
            }
        }
        self.quiesce.end();
        self.alarm.ring();
    }

    /// Begins the first switch that waits, if nothing is under way.
    pub(super) fn next_quiesce(&self, now: Nanos) {
        if let Some(mode) = self.quiesce.next() {
            self.quiesce(now, Purpose::Switch(mode));
        }
    }
}

/// How a zone continues.
enum Release {
    AsItWas,
    Reset,
    Unknown,
    /// The reset timed out and may come late.
    Unsettled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_wait_for_what_is_under_way_and_the_last_quiet_zone_tells() {
        let quiesce = Quiesce::default();
        assert!(quiesce.next().is_none() && quiesce.begin(Purpose::Switch(WriteMode::Qd1)).is_ok());
        assert!(matches!(quiesce.begin(Purpose::Switch(WriteMode::Append)), Err(None)));
        quiesce.holds_zone();
        assert!(quiesce.zone_is_quiet().is_none(), "the walk has not ended");
        assert!(matches!(quiesce.zone_is_quiet(), Some(Purpose::Switch(WriteMode::Qd1))));
        assert!(!quiesce.is_due() && quiesce.next().is_none(), "the zones are not released");
        quiesce.end();
        assert!(quiesce.is_due());
        quiesce.ask(WriteMode::PerZone);
        assert_eq!(quiesce.next(), Some(WriteMode::Append), "the first that asked");
        assert!(!quiesce.is_due(), "one at a time: its end brings on the next");
    }
}
