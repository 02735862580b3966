//! Entry of requests: checks, splitting at zone boundaries, and the uncontended path through a
//! plug.

use super::channel::{Channel, ChannelRef, Counted, begin_call, end_call};
use super::counters::Counter;
use super::mode::WriteMode;
use super::pending::{Owner, PendingRequest, Split};
use super::plugs::{Admitted, Decision};
use super::request::Request;
use super::{Volume, budget::SlotAnswer, turn::Work};
use crate::buffer::IoBufs;
use crate::device::{Context, ContextKind, Output};
use crate::sync::Arc;
use std::ops::Range;
use zonal_core::plug::{Admission, Item, RequestKind, Word, WriteKind};
use zonal_core::{Nanos, Op, RequestError, SECTOR_BYTES, Sector, ZoneIndex};

/// Route of a checked request.
pub(super) enum Route {
    /// Directly to the device.
    Plain,
    /// Through the plug of this zone.
    Plug(ZoneIndex),
    /// In parts, one for each zone.
    Split,
    /// Through the plug of this zone, as its reset or finish.
    Manage(ZoneIndex),
    /// Through every plug.
    ResetAll,
    /// Through the plugs of these zones.
    ResetPart(Range<u32>),
    /// Complete at once; nothing to do.
    Done,
}

/// State of a request when `submit` returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Ended on this thread, unseen by any other thread.
    Ended,
    /// Will end later, or was ended elsewhere.
    Later,
}

impl Volume {
    /// Accepts a request. Each request ends exactly once, with a call of the channel's completion
    /// function; this includes refused requests. The order of a zone's writes is the order in which
    /// calls of `submit` take effect.
    ///
    /// # Panics
    /// If a completion function called meanwhile panics.
    #[inline(always)]
    pub fn submit(&self, now: Nanos, channel: &Channel, request: Request) {
        let owner = Owner::Channel(ChannelRef::of(channel));
        self.submit_pending(now, channel, PendingRequest::new(owner, request));
    }

    fn submit_pending(&self, now: Nanos, channel: &Channel, mut pending: Box<PendingRequest>) {
        begin_call();
        // The length of a report is a number of zones.
        let sectors = if pending.op == Op::Report { 0 } else { pending.sectors };
        self.counters.line().add_request(sectors);
        let route = match self.channels.takes(channel) {
            true => self.terms.check(&pending),
            false => self.check_of_part(channel, &mut pending),
        };
        let mut slot = Some(Context::one(pending));
        let fate = match route {
            Ok(route) => self.take(now, route, &mut slot),
            Err(e) => self.refuse(&mut slot, e),
        };
        if fate == Fate::Later {
            ChannelRef::count_issued(channel);
        }
        // A thread that polls would pass the commands on, but one that sleeps does not know of them.
        if self.alarm.wakeups().has_sleepers() {
            self.device.commit(self.reapers.own());
        }
        end_call();
    }

    /// Sends a checked request along its route. `slot` holds the request on entry and is empty on
    /// return.
    #[inline(always)]
    pub(super) fn take(&self, now: Nanos, route: Route, slot: &mut Option<Context>) -> Fate {
        if let Some(front) = &self.front {
            if front.takes(&route, one(slot)) {
                front.schedule(self, now, slot);
                return Fate::Later;
            }
            if front.is_ahead(&route, one(slot)) {
                return self.refuse(slot, RequestError::WouldWait);
            }
        }
        match route {
            Route::Plug(zone) => self.write(now, zone, slot),
            Route::Plain => self.pass(now, slot),
            Route::Manage(zone) => self.manage(now, zone, take_one(slot)),
            Route::ResetAll => self.reset_all(now, take_one(slot)),
            Route::ResetPart(zones) => self.reset_part(now, zones, take_one(slot)),
            Route::Done => end_here(slot, Ok(Output::Done)),
            Route::Split => self.split(now, take_one(slot)),
        }
    }

    /// Ends a request that has nothing to do.
    pub(super) fn end_submitted(&self, pending: Box<PendingRequest>) -> Fate {
        pending.end(Ok(Output::Done), Counted::No);
        Fate::Ended
    }

    /// Sends a request to the device without a plug.
    #[inline]
    fn pass(&self, now: Nanos, slot: &mut Option<Context>) -> Fate {
        if self.recovering.has_unsettleable()
            && self.terms.changes_conventional_zone(one(slot))
            && let Some(error) =
                self.recovering.unsettleable_error(self.terms.info.geometry.zone_of(one(slot).sector))
        {
            return self.refuse(slot, error.into());
        }
        self.terms.prefer_writes_of_zeroes(one(slot));
        match self.issue(now, slot) {
            None => Fate::Later,
            // The common result has an arm of its own, so that it is not copied.
            Some(Ok(Output::Done)) if single(slot).is_some_and(|p| self.terms.ends_with_this_command(p)) => {
                end_here(slot, Ok(Output::Done))
            }
            Some(mut result) => {
                self.completed(now, slot, &mut result);
                Fate::Later
            }
        }
    }

    /// Submits a write to a sequential zone: at most two atomic read-modify-write operations if no
    /// other thread uses the zone, except in modes `qd1` and `pipelined`.
    #[inline(always)]
    pub(super) fn write(&self, now: Nanos, zone: ZoneIndex, slot: &mut Option<Context>) -> Fate {
        let pending = one(slot);
        let kind = self.terms.write_kind(pending);
        let sectors = pending.sectors;
        let admitted = self.plugs.admit(zone, self.plugs.load(zone), |word| {
            // The mode is read after the word: a switch in between makes the exchange fail. A
            // failed exchange may therefore be due to a switch as well as to another write.
            if self.terms.policy.has_own_issue_path() {
                return Decision::Leave(Admitted::OtherMode);
            }
            Admitted::decision(word.admit(kind, sectors, &self.terms.rules_one_by_one(zone)))
        });
        match admitted {
            Admitted::At(at) => {
                self.terms.place(zone, at, pending);
                // The successful exchange implies a mode without a token, and no switch happens
                // while the write is in flight.
                self.issue_first(now, zone, slot, false)
            }
            Admitted::Refused(error) => self.refuse_or_park(now, zone, kind, slot, error),
            Admitted::Waits => self.queue_write(now, zone, kind, slot),
            Admitted::OtherMode => self.write_apart(now, zone, kind, slot),
        }
    }

    #[inline(never)]
    fn write_apart(&self, now: Nanos, zone: ZoneIndex, kind: WriteKind, slot: &mut Option<Context>) -> Fate {
        let kind = self.terms.queued_kind(kind, one(slot));
        match self.terms.policy.is(WriteMode::Qd1) {
            true => self.write_with_token(now, zone, kind, slot),
            false => self.write_in_window(now, zone, kind, slot),
        }
    }

    /// Submits a write in mode `qd1`: issued at once if the token is free and nothing else prevents
    /// it, otherwise queued.
    fn write_with_token(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        kind: WriteKind,
        slot: &mut Option<Context>,
    ) -> Fate {
        if !self.tokens.of(zone).take() {
            return self.queue_write(now, zone, kind, slot);
        }
        let pending = one(slot);
        let mut word = self.plugs.load(zone);
        if !word.has_slot()
            && !word.waits()
            && matches!(word.admit(kind, pending.sectors, &self.terms.rules(zone)), Admission::Wait)
            && let SlotAnswer::Has(next) = self.slots.claim(&self.plugs, now, zone, word, pending)
        {
            word = next;
        }
        match word.admit(kind, pending.sectors, &self.terms.rules(zone)) {
            Admission::Issue(next, at) if self.plugs.exchange(zone, word, next).is_ok() => {
                self.terms.place(zone, at, pending);
                // The mode was switched before the word was read: the token is useless, and no
                // other step would release it.
                if !self.terms.policy.is(WriteMode::Qd1) {
                    self.pass_token(now, zone);
                }
                self.issue_admitted(now, zone, slot)
            }
            Admission::Refuse(e) => {
                self.pass_token(now, zone);
                self.refuse_or_park(now, zone, kind, slot, e)
            }
            _ => {
                let fate = self.queue_write(now, zone, kind, slot);
                self.pass_token(now, zone);
                fate
            }
        }
    }

    /// Passes the token of `zone` to the next waiting zone and serves that zone.
    pub(super) fn pass_token(&self, now: Nanos, zone: ZoneIndex) {
        if let Some(zone) = self.tokens.of(zone).pass(now) {
            self.run(now, Work::Turn(zone));
        }
    }

    pub(super) fn refuse(&self, slot: &mut Option<Context>, error: RequestError) -> Fate {
        if one(slot).is_first_to_fail() {
            self.counters.line().add(Counter::Failed, 1);
        }
        end_here(slot, Err(error))
    }

    #[inline(always)]
    pub(super) fn issue_first(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        slot: &mut Option<Context>,
        has_token: bool,
    ) -> Fate {
        self.terms.prefer_writes_of_zeroes(one(slot));
        match self.issue(now, slot) {
            None => Fate::Later,
            Some(Ok(Output::Done))
                if let Some(p) = single(slot)
                    && self.terms.transfer_ends_with_this_command(p)
                    && self.plugs.complete_unqueued(zone) =>
            {
                if has_token {
                    self.pass_token(now, zone);
                }
                if one(slot).op == Op::Append {
                    end_append_here(slot)
                } else {
                    end_here(slot, Ok(Output::Done))
                }
            }
            Some(mut result) => {
                self.completed(now, slot, &mut result);
                Fate::Later
            }
        }
    }

    /// Contended path: decides again under the shard's lock, and queues the write if it still has
    /// to wait.
    #[inline(never)]
    pub(super) fn queue_write(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        kind: WriteKind,
        slot: &mut Option<Context>,
    ) -> Fate {
        let pending = one(slot);
        let kind = self.terms.queued_kind(kind, pending);
        let mut shard = self.plugs.shard(zone).lock();
        let mut word = self.plugs.load(zone);
        let mut asked_for_slot = false;
        // While the zone has waiters, only the holder of the lock changes its word.
        if !word.waits() {
            match self.decide_again(now, zone, kind, word, pending) {
                Again::Wait(seen) => {
                    word = seen;
                    asked_for_slot = !word.has_slot();
                }
                Again::Issue(at) => {
                    drop(shard);
                    self.terms.place(zone, at, pending);
                    return self.issue_admitted(now, zone, slot);
                }
                Again::Refuse(error) => {
                    drop(shard);
                    return self.refuse(slot, error);
                }
            }
        }
        if pending.nowait {
            // If the device could not report the write pointer, this thread has to trigger another
            // attempt.
            let unknown = word.recovers() && word.in_flight() == 0;
            if unknown {
                shard.queue(zone).invalidate_pointer(word);
            }
            drop(shard);
            self.ring_for_slot(asked_for_slot);
            if unknown {
                self.kick(now, zone);
            }
            return self.refuse(slot, RequestError::WouldWait);
        }
        pending.awaited = false;
        self.terms.prefer_writes_of_zeroes(pending);
        let mergeable = self.terms.is_mergeable(pending);
        let kind = RequestKind::Write(kind, pending.sectors);
        shard.queue(zone).push(word, Item { kind, mergeable, token: take_one(slot) });
        drop(shard);
        self.ring_for_slot(asked_for_slot);
        self.counters.line().add(Counter::Queued, 1);
        // A completion in flight resumes the queue; without one, this thread has to.
        if !word.completion_resumes(self.terms.writes_in_flight_max()) && !word.frozen() {
            self.kick(now, zone);
        }
        Fate::Later
    }

    /// Wakes pollers for a write that has requested a slot without getting one.
    fn ring_for_slot(&self, has_asked: bool) {
        if has_asked {
            self.alarm.ring();
        }
    }

    /// Decides about a write to a zone without waiters, under the shard's lock. If the write waits,
    /// the zone is marked as waiting, unless the request is `nowait`.
    #[inline(never)]
    fn decide_again(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        kind: WriteKind,
        word: Word,
        pending: &PendingRequest,
    ) -> Again {
        // In mode `qd1` the holder of the token issues.
        let may_issue = !self.terms.policy.is(WriteMode::Qd1);
        self.plugs.admit(zone, word, |word| {
            if word.waits() {
                return Decision::Leave(Again::Wait(word));
            }
            let wait = Decision::Change(word.waiting(), Again::Wait(word.waiting()));
            match word.admit(kind, pending.sectors, &self.terms.rules(zone)) {
                Admission::Refuse(e) if self.terms.parks(&e, pending).is_some() => wait,
                Admission::Refuse(e) => Decision::Leave(Again::Refuse(e)),
                Admission::Issue(next, at) if may_issue => Decision::Change(next, Again::Issue(at)),
                Admission::Wait if !word.has_slot() => {
                    match self.slots.claim(&self.plugs, now, zone, word, pending) {
                        SlotAnswer::Has(next) | SlotAnswer::Raced(next) => Decision::Again(next),
                        SlotAnswer::Denied(e) => Decision::Leave(Again::Refuse(e)),
                        SlotAnswer::Waits if pending.nowait => Decision::Leave(Again::Wait(word)),
                        SlotAnswer::Waits => wait,
                    }
                }
                _ if pending.nowait => Decision::Leave(Again::Wait(word)),
                _ => wait,
            }
        })
    }

    /// Splits a request that spans zones into one part for each zone, submitted in ascending order.
    #[cold]
    fn split(&self, now: Nanos, mut whole: Box<PendingRequest>) -> Fate {
        let geometry = self.terms.info.geometry;
        let PendingRequest { op, fua, sector, sectors, token, .. } = *whole;
        let end = sector.0 + u64::from(sectors);
        let zones = geometry.zone_of(sector).0..=geometry.zone_of(Sector(end - 1)).0;
        let buf = std::mem::take(&mut whole.buf);
        let parts: Vec<Request> = zones
            .map(|zone| {
                let zone_start = geometry.start_of(ZoneIndex(zone));
                let from = zone_start.0.max(sector.0);
                let sectors = ((zone_start + geometry.zone_size()).0.min(end) - from) as u32;
                let buf = match op {
                    Op::Read | Op::Write => {
                        let bytes = [from - sector.0, sectors.into()].map(|n| (n * SECTOR_BYTES) as usize);
                        // SAFETY: the parts are disjoint ranges of the request's memory, which is
                        // returned only when the last part has ended.
                        unsafe { buf.lend(bytes[0], bytes[1]) }
                    }
                    _ => IoBufs::empty(),
                };
                Request { fua, token, ..Request::new(op, Sector(from), sectors, buf) }
            })
            .collect();
        let split = Arc::new(Split::new(parts.len() as u32, whole, buf));
        for part in parts {
            let route = self.terms.route_in_zone(op, geometry.zone_of(part.sector));
            let mut slot = Some(Context::one(PendingRequest::new(Owner::Split(split.clone()), part)));
            self.take(now, route, &mut slot);
        }
        Fate::Later
    }

    /// Advances `zone` as far as possible now.
    pub(super) fn kick(&self, now: Nanos, zone: ZoneIndex) {
        self.run(now, Work::Kick(zone));
    }
}

/// Result of deciding again about a write.
enum Again {
    /// Wait under this word (or fail, for a `nowait` request).
    Wait(Word),
    /// Issue at this offset.
    Issue(u32),
    Refuse(RequestError),
}

/// Returns the request in `slot`, unless it has been turned into another kind of command.
#[inline(always)]
fn single(slot: &Option<Context>) -> Option<&PendingRequest> {
    match slot {
        Some(Context(ContextKind::One(pending))) => Some(pending),
        _ => None,
    }
}

/// Returns the request in `slot`. Panics if there is none.
#[inline(always)]
pub(super) fn one(slot: &mut Option<Context>) -> &mut PendingRequest {
    match slot {
        Some(Context(ContextKind::One(pending))) => pending,
        _ => unreachable!("the slot holds a single request until it is issued"),
    }
}

/// Takes the request out of `slot`.
#[inline(always)]
pub(super) fn take_one(slot: &mut Option<Context>) -> Box<PendingRequest> {
    match slot.take() {
        Some(Context(ContextKind::One(pending))) => pending,
        _ => unreachable!("the slot holds a single request until it is issued"),
    }
}

/// Ends an emulated append inside `submit`. Separate, so that the usual path has a constant result.
#[inline(never)]
fn end_append_here(slot: &mut Option<Context>) -> Fate {
    let sector = one(slot).sector;
    end_here(slot, Ok(Output::Appended(sector)))
}

/// Ends a request inside `submit`, unseen by other threads.
#[inline(always)]
fn end_here(slot: &mut Option<Context>, result: Result<Output, RequestError>) -> Fate {
    take_one(slot).end(result, Counted::No);
    Fate::Ended
}
