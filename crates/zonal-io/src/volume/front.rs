//! Mode `zone-lock`: a deadline scheduler in front of the volume, as in Linux before zone write
//! plugging.
//!
//! Every read and write takes one of `nr_requests` tags and keeps it until it ends; requests
//! without a tag wait outside, in order of arrival. With a tag, a request waits in the scheduler,
//! sorted by address, and is issued in batches. A write locks its zone until it has ended, and
//! other writes to that zone are skipped. Writes waiting for one zone can therefore take all tags
//! and hold up reads. This is the problem that plugs solve, and the mode exists for comparison with
//! them.
//!
//! The front is created when the volume is opened, or never. Requests that leave the scheduler are
//! handled as in mode `per-zone`; plugs do not deal with tags. There are three exceptions. Flushes,
//! zone management and `nowait` requests bypass the front, but a `nowait` write is refused if a
//! write to its zone is here, which it must not overtake ([`Front::is_ahead`]). A reset removes the
//! writes that it aborts ([`Front::take`]). When failed writes of a zone are about to be decided,
//! the writes waiting for it move from the scheduler to the zone's queue ([`Front::plug`]), where
//! the decision affects them.

use super::Volume;
use super::alarm::Alarm;
use super::cancel::end_cancelled;
use super::channel::TURN_MAX;
use super::counters::Counter;
use super::pending::PendingRequest;
use super::submit::{Route, take_one};
use super::terms::scheduler_limits;
use super::turn::Turn;
use crate::device::{Context, DeviceInfo};
use crate::pending::Scheduled;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use zonal_core::plug::{Admission, Word, WriteKind};
use zonal_core::scheduler::{Dispatched, Options, Scheduler};
use zonal_core::{Geometry, Nanos, Op, Sector, ZoneIndex};

/// Default number of tags: that of a scheduler in the Linux block layer over a queue of 128.
pub(super) const NR_REQUESTS: u32 = 256;

/// Scheduler in front of a volume, and the requests waiting for it.
pub(crate) struct Front {
    geometry: Geometry,
    /// The volume's alarm.
    alarm: Arc<Alarm>,
    state: Mutex<FrontState>,
    /// True if a request may be dispatched or waits for a tag; polled without the lock.
    has_work: AtomicBool,
    /// True if a request was skipped because of a command without a tag. The completion of that
    /// command is not signalled, so every poll checks.
    watches: AtomicBool,
    /// True if requests wait behind stalled commands; a completion on that device queue resumes
    /// them.
    waits_for_room: AtomicBool,
}

struct FrontState {
    scheduler: Scheduler<Box<PendingRequest>>,
    /// Requests without a tag, in order of arrival.
    outside: VecDeque<Box<PendingRequest>>,
    tags_used: u32,
    /// Zones locked by a write, with the number of requests in its command.
    locked: HashMap<ZoneIndex, u32>,
}

impl Front {
    pub(super) fn new(info: &DeviceInfo, alarm: Arc<Alarm>) -> Arc<Front> {
        let state = FrontState {
            scheduler: Scheduler::new(Options::default(), scheduler_limits(info)),
            outside: VecDeque::new(),
            tags_used: 0,
            locked: HashMap::new(),
        };
        Arc::new(Front {
            geometry: info.geometry,
            alarm,
            state: Mutex::new(state),
            has_work: AtomicBool::new(false),
            watches: AtomicBool::new(false),
            waits_for_room: AtomicBool::new(false),
        })
    }

    /// True if a request goes through the scheduler.
    #[inline(never)]
    pub(super) fn takes(&self, route: &Route, request: &PendingRequest) -> bool {
        let waits = (request.op.has_range() || request.op == Op::Append) && !request.nowait;
        waits && matches!(route, Route::Plain | Route::Plug(_)) && request.tag.is_none()
    }

    /// True if a `nowait` write would overtake one to its zone that waits here or is being issued.
    #[inline(never)]
    pub(super) fn is_ahead(&self, route: &Route, request: &PendingRequest) -> bool {
        let Route::Plug(zone) = *route else { return false };
        if !request.nowait {
            return false;
        }
        let state = self.state.lock();
        let is_of_zone = |p: &PendingRequest| plugged_zone(&self.geometry, p) == Some(zone);
        // Between the scheduler and the zone's plug a write is in neither, but its zone is locked.
        state.locked.contains_key(&zone)
            || state.scheduler.has_writes(zone)
            || state.outside.iter().any(|p| is_of_zone(p))
    }

    /// Queues a read or write, and dispatches all requests that can be issued.
    pub(super) fn schedule(self: &Arc<Front>, volume: &Volume, now: Nanos, slot: &mut Option<Context>) {
        let mut pending = take_one(slot);
        pending.awaited = false;
        self.state.lock().outside.push_back(pending);
        self.dispatch(volume, now);
    }

    /// Removes the cancelled requests without a tag. Those with a tag end when they are dispatched.
    pub(super) fn cancel(&self) -> VecDeque<Box<PendingRequest>> {
        let mut state = self.state.lock();
        let (cancelled, left) =
            std::mem::take(&mut state.outside).into_iter().partition(|p| p.is_cancelled());
        state.outside = left;
        cancelled
    }

    fn tags_used(&self) -> u32 {
        self.state.lock().tags_used
    }

    /// Makes the next poll dispatch, after a change of the number of tags. Requests keep their tag
    /// even if there are fewer now.
    pub(super) fn request_dispatch(&self) {
        self.has_work.store(true, Ordering::Release);
    }

    pub(super) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// True if a poll has to dispatch.
    pub(super) fn needs_dispatch(&self) -> bool {
        self.has_work() || self.has_passed_over() || self.waits_for_room.load(Ordering::Relaxed)
    }

    /// True if a request was skipped because of another thread's command, the end of which is not
    /// signalled.
    pub(super) fn has_passed_over(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// Passes requests to the volume, up to one turn; returns true if there were any.
    pub(super) fn dispatch(self: &Arc<Front>, volume: &Volume, now: Nanos) -> bool {
        let had_passed_over = self.has_passed_over();
        let sent = self.dispatch_turn(volume, now);
        // The calling thread may never poll, so wake the sleeping threads to check in its place.
        if self.has_work() || self.has_passed_over() && !had_passed_over {
            self.alarm.ring();
        }
        sent
    }

    fn dispatch_turn(self: &Arc<Front>, volume: &Volume, now: Nanos) -> bool {
        let mut sent = 0;
        self.has_work.store(true, Ordering::Relaxed);
        while self.has_work.swap(false, Ordering::AcqRel) {
            while let Some(next) = self.next(volume, now) {
                volume.take_scheduled(now, next);
                sent += 1;
                if sent >= TURN_MAX {
                    self.request_dispatch();
                    return true;
                }
            }
        }
        sent > 0
    }

    /// Takes the next request that can be issued, and locks its zone.
    fn next(self: &Arc<Front>, volume: &Volume, now: Nanos) -> Option<Dispatched<Box<PendingRequest>>> {
        let mut state = self.state.lock();
        self.admit(&mut state, volume, now);
        // Stalled commands go first, as the device has no room for more.
        let waits_for_room = !volume.stalled.is_empty();
        self.waits_for_room.store(waits_for_room, Ordering::Relaxed);
        if waits_for_room {
            return None;
        }
        let FrontState { scheduler, locked, .. } = &mut *state;
        let watches = Cell::new(false);
        let is_locked = |zone: ZoneIndex| {
            let word = volume.plugs.load(zone);
            // A zone in recovery accepts one, which makes it reread its write pointer if that
            // failed before.
            let waits = word.waits() && !word.recovers();
            let by_others = word.in_flight() > 0 || waits;
            let by_tag = locked.contains_key(&zone);
            watches.set(watches.get() || by_others && !by_tag);
            by_others || by_tag
        };
        let next = scheduler.dispatch(now, is_locked);
        self.watches.store(watches.get(), Ordering::Relaxed);
        let next = next?;
        if let Some(zone) = next.zone {
            *locked.entry(zone).or_default() += next.parts.len() as u32;
        }
        Some(next)
    }

    /// Gives free tags to the oldest requests outside.
    fn admit(self: &Arc<Front>, state: &mut FrontState, volume: &Volume, now: Nanos) {
        let tags = volume.terms.settings.nr_requests();
        while state.tags_used < tags
            && let Some(mut pending) = state.outside.pop_front()
        {
            state.tags_used += 1;
            pending.tag = Some(self.clone());
            state.scheduler.insert(now, volume.terms.scheduled(pending));
        }
    }

    /// Removes the writes to these zones that have not left the scheduler, each with a tag.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    pub(super) fn take(self: &Arc<Front>, zones: std::ops::Range<u32>) -> Vec<Box<PendingRequest>> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        zones.clone().for_each(|zone| taken.extend(state.scheduler.remove_zone(ZoneIndex(zone))));
        let is_concerned =
            |p: &PendingRequest| plugged_zone(&self.geometry, p).is_some_and(|z| zones.contains(&z.0));
        let (gone, stay): (Vec<_>, _) =
            std::mem::take(&mut state.outside).into_iter().partition(|p| is_concerned(p));
        state.outside = stay.into();
        // This may exceed the limit once: every request that ends here has to have a tag.
        state.tags_used += gone.len() as u32;
        drop(state);
        taken.extend(gone.into_iter().map(|mut pending| {
            pending.tag = Some(self.clone());
            pending
        }));
        taken
    }

    /// Moves the writes of a zone that wait here to its queue, before the failed writes of the zone
    /// are decided: a write behind a lost one fails there, as in every mode. The caller then serves
    /// the zone.
    #[cold]
    pub(super) fn plug(self: &Arc<Front>, volume: &Volume, zone: ZoneIndex) {
        let mut writes = self.take(zone.0..zone.0 + 1);
        if writes.is_empty() {
            return;
        }
        // Appends are placed after all positional writes.
        writes.sort_by_key(|p| (p.op == Op::Append, p.sector));
        let mut shard = volume.plugs.shard(zone).lock();
        let word = volume.plugs.change(zone, Word::waiting);
        for mut pending in writes {
            volume.terms.prefer_writes_of_zeroes(&mut pending);
            shard.queue(zone).push(word, volume.terms.item(pending));
            volume.counters.line().add(Counter::Queued, 1);
        }
    }
}

impl Scheduled for Front {
    /// Releases the tag of an ended request, and the zone lock; `locked` is a sector of that zone.
    fn ended(&self, locked: Option<Sector>) {
        let mut state = self.state.lock();
        state.tags_used -= 1;
        if let Some(zone) = locked.map(|s| self.geometry.zone_of(s))
            && let Some(left) = state.locked.get_mut(&zone)
        {
            *left -= 1;
            if *left == 0 {
                state.locked.remove(&zone);
            }
        }
        drop(state);
        self.request_dispatch();
        self.alarm.ring();
    }
}

/// Zone with the plug for a read or write, if any.
pub(super) fn plugged_zone(geometry: &Geometry, pending: &PendingRequest) -> Option<ZoneIndex> {
    let zone = geometry.zone_of(pending.sector);
    (!pending.op.is_read() && !geometry.is_conventional(zone)).then_some(zone)
}

impl Volume {
    /// Accepts requests from the scheduler: cancelled ones end here, the others are issued.
    fn take_scheduled(&self, now: Nanos, dispatched: Dispatched<Box<PendingRequest>>) {
        let Dispatched { zone, sectors, parts, .. } = dispatched;
        let is_cancelled = |p: &PendingRequest| self.channels.is_cancelling() && p.is_cancelled();
        let (mut cancelled, mut parts): (Vec<_>, Vec<_>) = parts.into_iter().partition(|p| is_cancelled(p));
        parts.iter_mut().chain(&mut cancelled).for_each(|p| p.locks_zone = zone.is_some());
        match zone {
            Some(zone) if cancelled.is_empty() && parts.len() > 1 => {
                self.take_merged(now, zone, sectors.0 as u32, parts);
            }
            _ => {
                let mut turn = Turn::default();
                cancelled.into_iter().for_each(|part| end_cancelled(part, &mut turn));
                turn.notify(self);
                for part in parts {
                    let route = zone.map_or(Route::Plain, Route::Plug);
                    self.take(now, route, &mut Some(Context::one(part)));
                }
            }
        }
    }

    /// Issues a merged write if its zone admits it as one, and its parts one by one otherwise.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn take_merged(&self, now: Nanos, zone: ZoneIndex, sectors: u32, parts: Vec<Box<PendingRequest>>) {
        let kind = WriteKind::At(self.terms.info.geometry.offset_of(parts[0].sector));
        let word = self.plugs.load(zone);
        let admitted = match word.admit(kind, sectors, &self.terms.rules(zone)) {
            Admission::Issue(next, at) => self.plugs.exchange(zone, word, next).is_ok().then_some(at),
            Admission::Wait | Admission::Refuse(_) => None,
        };
        match admitted {
            Some(at) => {
                let command = self.merge(parts.into_iter(), at, sectors);
                self.issue_and_go_on(now, &mut Some(command));
            }
            None => parts.into_iter().for_each(|part| {
                self.write(now, zone, &mut Some(Context::one(part)));
            }),
        }
    }

    /// Number of tags of mode `zone-lock` in use, and in total.
    pub fn tags(&self) -> (u32, u32) {
        (self.front.as_ref().map_or(0, |front| front.tags_used()), self.terms.settings.nr_requests())
    }
}
