//! Reset and finish of one zone, reset of all, and resynchronisation on request.
//!
//! Reset and finish wait for what is at the device, abort what waits, and go out; later writes wait for them. A reset of
//! all zones does the same to every sequential zone at once: it holds each until all are quiet, sends one command, and
//! releases them.

use super::Volume;
use super::channel::{Counted, begin_call, end_call};
use super::counters::Counter;
use super::pending::Pending;
use super::submit::Fate;
use crate::device::{CommandResult, Context, ContextKind};
use crate::sync::Ordering;
use std::collections::VecDeque;
use zonal_core::plug::{Class, Next, Word};
use zonal_core::{Nanos, RequestError, ZoneIndex};

/// Resets of all zones: the one under way and those behind it.
#[derive(Default)]
pub(super) struct ResetAll {
    /// Taken when its command goes out.
    request: Option<Box<Pending>>,
    under_way: bool,
    /// Zones that are not quiet yet, and one for the walk over them.
    zones_left: u32,
    behind: VecDeque<Box<Pending>>,
}

impl Volume {
    /// Queues a reset or finish.
    pub(super) fn manage(&self, now: Nanos, zone: ZoneIndex, mut pending: Box<Pending>) -> Fate {
        // It has aborted others: what it waits for from here on, a full queue included, it has to wait for.
        pending.nowait = false;
        let mut aborted = Vec::new();
        let op = pending.op;
        let mut shard = self.shard(zone).lock();
        let word = self.update(zone, Word::recalling);
        shard.queue(zone).push_management(word, op, pending, &mut aborted);
        drop(shard);
        self.abort(zone, aborted);
        if word.in_flight() == 0 && !word.frozen() {
            self.kick(now, zone);
        }
        Fate::Later
    }

    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn abort(&self, zone: ZoneIndex, aborted: Vec<Box<Pending>>) {
        let failed = aborted.iter().filter(|p| p.is_first_to_fail()).count();
        self.counters.line().add(Counter::Failed, failed as u64);
        for p in aborted {
            p.end(Err(RequestError::Aborted { zone }), Counted::Yes);
        }
    }

    /// Begins a reset of all zones, or queues it behind the one under way.
    pub(super) fn reset_all(&self, now: Nanos, mut pending: Box<Pending>) -> Fate {
        pending.nowait = false;
        {
            let mut state = self.reset_all.lock();
            if state.under_way {
                state.behind.push_back(pending);
                return Fate::Later;
            }
            state.under_way = true;
            state.zones_left = 1;
            state.request = Some(pending);
        }
        self.hold_zones(now);
        Fate::Later
    }

    fn hold_zones(&self, now: Nanos) {
        for zone in self.sequential_zones() {
            let mut aborted = Vec::new();
            let mut shard = self.shard(zone).lock();
            // Read-only and offline ones too: what a zone is may turn out to be something else before the release.
            let word = self.update(zone, Word::recalling);
            self.reset_all.lock().zones_left += 1;
            shard.queue(zone).hold(word, &mut aborted);
            drop(shard);
            self.abort(zone, aborted);
            self.kick(now, zone);
        }
        // The walk's own share: the command goes out here if every zone was quiet at once.
        let mut slot = self.zone_is_quiet();
        if slot.is_some()
            && let Some(mut result) = self.issue(now, &mut slot)
        {
            self.completed(now, &mut slot, &mut result);
        }
    }

    /// One zone fewer to wait for; the command once it was the last.
    pub(super) fn zone_is_quiet(&self) -> Option<Context> {
        let mut state = self.reset_all.lock();
        state.zones_left -= 1;
        if state.zones_left > 0 {
            return None;
        }
        let pending = state.request.take().expect("a reset of all zones is under way");
        Some(Context(ContextKind::One(pending)))
    }

    /// Releases every zone. Those with waiters go on from the ready list.
    pub(super) fn finish_reset_all(&self, result: &CommandResult) {
        if self.mode == super::WriteMode::Direct {
            return;
        }
        let reset = result.is_ok();
        let may_come_late = matches!(result, Err(e) if e.may_come_late());
        for zone in self.sequential_zones() {
            let mut shard = self.shard(zone).lock();
            let word = self.load(zone);
            let queue = shard.queue(zone);
            let was_reset = reset && word.class() == Class::Sequential;
            let word = queue.release(word, was_reset.then_some(0));
            // A reset that failed may have reset some zones.
            let word = match (reset, may_come_late) {
                (true, _) => word,
                (false, true) => queue.unsettle(word),
                (false, false) => word.recovering(),
            };
            if queue.is_empty() && !word.recovers() {
                let (word, next) = queue.next(word, &self.rules(zone));
                debug_assert!(matches!(next, Next::Nothing));
                shard.drop_queue(zone);
                self.store(zone, word);
            } else {
                self.store(zone, word);
                self.ready.push(zone);
            }
        }
        let mut state = self.reset_all.lock();
        state.under_way = false;
        self.reset_all_behind.store(!state.behind.is_empty(), Ordering::Release);
    }

    /// Begins the next reset of all zones, if one waits and none is under way.
    pub(super) fn next_reset_all(&self, now: Nanos) {
        // Read first: an exchange at every poll would cost a locked operation.
        if !self.reset_all_behind.load(Ordering::Relaxed)
            || !self.reset_all_behind.swap(false, Ordering::AcqRel)
        {
            return;
        }
        let next = {
            let mut state = self.reset_all.lock();
            if state.under_way { None } else { state.behind.pop_front() }
        };
        if let Some(next) = next {
            self.reset_all(now, next);
        }
    }

    pub(super) fn sequential_zones(&self) -> impl Iterator<Item = ZoneIndex> + use<> {
        let geometry = &self.info.geometry;
        (geometry.conventional_zones()..geometry.zones()).map(ZoneIndex)
    }

    /// Asks the device where `zone` stands, once its writes in flight have ended: for zones that were written or reset
    /// behind the volume's back.
    pub fn resync(&self, now: Nanos, zone: ZoneIndex) {
        if zone.0 >= self.info.geometry.zones() || self.info.geometry.is_conventional(zone) {
            return;
        }
        let mut shard = self.shard(zone).lock();
        let word = self.update(zone, Word::recovering);
        shard.queue(zone).distrust(word);
        drop(shard);
        begin_call();
        self.kick(now, zone);
        end_call();
    }
}
