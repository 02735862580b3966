//! Operations on all sequential zones: reset of all zones, and switch of the write mode.
//!
//! Each zone is held until nothing of it is in flight; requests that arrive meanwhile are queued.
//! Once all zones are quiet, a reset is issued as one command, or a switch takes effect, and the
//! zones are released. A reset aborts waiting writes; a switch leaves them queued for the new mode.
//!
//! One operation at a time: a switch waits for the current one, while a reset of all zones falls
//! back to one reset per zone.

use super::Volume;
use super::mode::{SwitchError, WriteMode};
use super::pending::PendingRequest;
use super::submit::Fate;
use crate::device::{CommandResult, Context, ContextKind};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::VecDeque;
use zonal_core::plug::{Next, Word, ZoneClass};
use zonal_core::{Nanos, ZoneIndex};

/// Operation for which the zones are made quiet.
pub(super) enum Purpose {
    Reset(Box<PendingRequest>),
    Switch(WriteMode),
}

/// State of the operation on all zones. Its lock is taken neither together with another nor under a
/// shard's.
#[derive(Default)]
pub(super) struct Quiesce {
    state: Mutex<QuiesceState>,
    /// True if a switch waits and no operation is in progress; polled without the lock.
    is_due: AtomicBool,
}

/// Operation in progress, and the switches waiting for it.
#[derive(Default)]
struct QuiesceState {
    /// Taken when every zone is quiet.
    purpose: Option<Purpose>,
    under_way: bool,
    /// Number of zones that are not quiet, plus 1 for the walk over the zones.
    zones_left: u32,
    behind: VecDeque<WriteMode>,
}

impl Quiesce {
    /// Starts the walk over the zones. If an operation is in progress, a switch is queued, and any
    /// other purpose is returned.
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

    /// Adds a zone to wait for.
    fn holds_zone(&self) {
        self.state.lock().zones_left += 1;
    }

    /// Ends the wait for a zone, or the walk. Returns the purpose after the last one.
    fn zone_is_quiet(&self) -> Option<Purpose> {
        let mut state = self.state.lock();
        state.zones_left -= 1;
        match state.zones_left {
            0 => Some(state.purpose.take().expect("the zones are made quiet for something")),
            _ => None,
        }
    }

    /// Ends the operation after the zones were released.
    fn end(&self) {
        let mut state = self.state.lock();
        state.under_way = false;
        self.is_due.store(!state.behind.is_empty(), Ordering::Release);
    }

    /// Queues a switch to be started by the next poll.
    fn ask(&self, mode: WriteMode) {
        self.state.lock().behind.push_back(mode);
        self.is_due.store(true, Ordering::Release);
    }

    /// True if a poll has to start an operation.
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Takes the first queued switch if no operation is in progress.
    fn next(&self) -> Option<WriteMode> {
        // Plain load first: a swap in every poll would be an expensive atomic operation.
        if !self.is_due.load(Ordering::Relaxed) || !self.is_due.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut state = self.state.lock();
        if state.under_way { None } else { state.behind.pop_front() }
    }
}

impl Volume {
    /// Starts a reset of all zones. If another operation is in progress, each zone is reset by its
    /// own command, ahead of the writes submitted later, which a queued reset would erase.
    pub(super) fn reset_all(&self, now: Nanos, mut pending: Box<PendingRequest>) -> Fate {
        pending.nowait = false;
        match self.quiesce(now, Purpose::Reset(pending)) {
            Some(Purpose::Reset(pending)) => self.reset_part(now, self.plugs.sequential_range(), pending),
            _ => Fate::Later,
        }
    }

    /// Switches the write mode of an open volume: no more commands are issued in the old mode,
    /// those in flight complete, and the new mode takes over. Requests that wait or arrive
    /// meanwhile keep their order. Returns at once; the switch requires polls, and [`Volume::mode`]
    /// shows the mode in force.
    ///
    /// # Errors
    /// [`SwitchError`] if the device does not support the mode, or one of the two modes is `direct`
    /// or `zone-lock`: the former does not count commands in flight, the latter has a scheduler in
    /// front of the volume.
    pub fn switch_mode(&self, now: Nanos, mode: WriteMode) -> Result<(), SwitchError> {
        self.may_switch(mode, false)?;
        self.switch_mode_anyway(now, mode)
    }

    /// Like [`Volume::switch_mode`], but permits mode `pipelined` even if the device does not
    /// promise to preserve order. Reordered writes are resubmitted, which is slow but correct.
    ///
    /// # Errors
    /// As for [`Volume::switch_mode`], except [`SwitchError::NoOrder`].
    pub fn switch_mode_anyway(&self, now: Nanos, mode: WriteMode) -> Result<(), SwitchError> {
        self.may_switch(mode, true)?;
        super::begin_call();
        self.quiesce(now, Purpose::Switch(mode));
        super::end_call();
        Ok(())
    }

    /// Requests a switch of the write mode, to be started by the next poll. For threads without the
    /// volume's clock. `force` as in [`Volume::switch_mode_anyway`].
    ///
    /// # Errors
    /// As for [`Volume::switch_mode`].
    pub fn request_mode(&self, mode: WriteMode, force: bool) -> Result<(), SwitchError> {
        self.may_switch(mode, force)?;
        self.quiesce.ask(mode);
        self.alarm.ring();
        Ok(())
    }

    /// Starts a requested switch if the volume is idle: it then issues no command and needs no
    /// clock.
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

    /// Starts an operation. Returns a reset if another operation is in progress; a switch is
    /// queued.
    fn quiesce(&self, now: Nanos, purpose: Purpose) -> Option<Purpose> {
        let aborts = matches!(purpose, Purpose::Reset(_));
        if let Err(given_back) = self.quiesce.begin(purpose) {
            return given_back;
        }
        let front = self.front.as_ref().filter(|_| aborts);
        let scheduled = front.map(|front| front.take(self.plugs.sequential_range())).unwrap_or_default();
        let aborted = self.hold_zones(aborts);
        // All zones are held before a caller learns of an abort, so its next writes follow the
        // reset.
        for pending in scheduled {
            self.abort(self.terms.info.geometry.zone_of(pending.sector), vec![pending]);
        }
        self.begin_quiet(now, aborted);
        None
    }

    /// Holds every zone. Returns the aborted writes if waiting writes are to be aborted.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn hold_zones(&self, aborts: bool) -> Vec<(ZoneIndex, Vec<Box<PendingRequest>>)> {
        let mut all = Vec::new();
        for zone in self.plugs.sequential_zones() {
            let mut aborted = Vec::new();
            // Before the zone can become quiet, and without the shard's lock, whose holders never
            // wait for a mutex.
            self.quiesce.holds_zone();
            let mut shard = self.plugs.shard(zone).lock();
            // Including read-only and offline zones, which may change their state before the
            // release.
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

    /// Ends the aborted writes and checks which zones are already quiet.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn begin_quiet(&self, now: Nanos, aborted: Vec<(ZoneIndex, Vec<Box<PendingRequest>>)>) {
        aborted.into_iter().for_each(|(zone, aborted)| self.abort(zone, aborted));
        self.plugs.sequential_zones().for_each(|zone| self.kick(now, zone));
        // End of the walk: the operation continues here if all zones are already quiet.
        let mut slot = self.zone_is_quiet();
        if slot.is_some()
            && let Some(mut result) = self.issue(now, &mut slot)
        {
            self.completed(now, &mut slot, &mut result);
        }
    }

    /// Ends the wait for one zone. After the last, a switch takes effect, or the command of a reset
    /// is returned.
    pub(super) fn zone_is_quiet(&self) -> Option<Context> {
        match self.quiesce.zone_is_quiet()? {
            Purpose::Reset(pending) => Some(Context(ContextKind::One(pending))),
            Purpose::Switch(mode) => {
                self.change_mode(mode);
                None
            }
        }
    }

    /// Performs a switch while all zones are held.
    fn change_mode(&self, mode: WriteMode) {
        self.terms.settings.adopt_window();
        self.terms.policy.switch(mode);
        self.tokens.iter().for_each(|token| token.dismiss());
        self.release_zones(|_| Release::AsItWas);
    }

    /// Completes a reset of all zones.
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
            // A failed reset may have reset some zones.
            Err(e) if e.may_execute_late() => Release::Unsettled,
            Err(_) => Release::Unknown,
        });
    }

    /// Releases every zone. Zones with waiters continue from the ready list.
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
                // A request that waited for a slot may have been cancelled meanwhile.
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

    /// Starts the first queued switch if no operation is in progress.
    pub(super) fn next_quiesce(&self, now: Nanos) {
        if let Some(mode) = self.quiesce.next() {
            self.quiesce(now, Purpose::Switch(mode));
        }
    }
}

/// State in which a zone is released.
enum Release {
    AsItWas,
    Reset,
    Unknown,
    /// The reset timed out and may still take effect.
    Unsettled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_switches_queue_up_and_start_once_the_last_zone_is_quiet() {
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
