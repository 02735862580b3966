//! Mode `zone-lock`: a deadline scheduler before the plugs, as Linux had it before zone write plugging.
//!
//! Every read and write takes a tag, of which there are `nr_requests`, and keeps it until it ends; who finds none waits
//! outside, in order of arrival. With a tag a request waits in the scheduler, sorted by address, and leaves it in batches;
//! a write locks its zone until it has ended, and others of that zone are passed over. So writes that wait for one zone can
//! take every tag and hold up reads: what plugs were made to end, and what they are to be compared with.
//!
//! Flushes, management and requests that do not wait go past it. A write that leaves the scheduler meets its zone's plug
//! like any other, so recovery, resets and switches of the mode are the same in every mode. When failed writes of a zone are
//! decided, those that wait for it leave the scheduler for the zone's queue: what they have to learn is known there.

use super::alarm::Alarm;
use super::channel::TURN_MAX;
use super::counters::Counter;
use super::mode::WriteMode;
use super::pending::Pending;
use super::submit::{Route, take_one};
use super::turn::Turn;
use super::{Shard, Volume};
use crate::device::{Context, DeviceInfo};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use zonal_core::plug::{Admission, Item, Kind, Word, WriteKind};
use zonal_core::scheduler::{Direction, Dispatched, Limits, Options, Request, Scheduler};
use zonal_core::{Geometry, Nanos, Op, Sector, Sectors, ZoneIndex};

/// Tags unless set otherwise: what the block layer gives a scheduler over a queue of 128.
pub(super) const NR_REQUESTS: u32 = 256;

/// The scheduler of a volume, and what waits for it.
pub(crate) struct ZoneLock {
    geometry: Geometry,
    /// Of the volume.
    alarm: Arc<Alarm>,
    state: Mutex<State>,
    /// Something may be dispatched or waits for a tag: what a poll reads.
    has_work: AtomicBool,
    /// Something was passed over for what has no tag, so that no thread tells when it ends: every poll looks.
    watches: AtomicBool,
    /// Something waits for commands that a full queue has turned away. The end of a command in that queue brings them on.
    waits_for_room: AtomicBool,
}

struct State {
    scheduler: Scheduler<Box<Pending>>,
    /// Without a tag, in order of arrival.
    outside: VecDeque<Box<Pending>>,
    tags: u32,
    tags_used: u32,
    /// Zones that a write has locked, and how many requests its command carries.
    locked: HashMap<ZoneIndex, u32>,
    /// Commands that have left the scheduler and not reached their zones' plugs: the threads that dispatch have them
    /// in hand.
    in_hand: u32,
    /// A switch to this mode waits for those.
    switch: Option<WriteMode>,
}

impl ZoneLock {
    pub(super) fn new(info: &DeviceInfo, tags: u32, alarm: Arc<Alarm>) -> Arc<ZoneLock> {
        let limits = Limits {
            zone_size: info.geometry.zone_size(),
            sectors_max: Sectors(info.command_sectors_max.into()),
            rotational: info.rotational,
        };
        let state = State {
            scheduler: Scheduler::new(Options::default(), limits),
            outside: VecDeque::new(),
            tags: tags.max(1),
            tags_used: 0,
            locked: HashMap::new(),
            in_hand: 0,
            switch: None,
        };
        Arc::new(ZoneLock {
            geometry: info.geometry,
            alarm,
            state: Mutex::new(state),
            has_work: AtomicBool::new(false),
            watches: AtomicBool::new(false),
            waits_for_room: AtomicBool::new(false),
        })
    }

    /// A request with a tag has ended; `locked` is a sector of the zone that it had locked.
    pub(super) fn ended(&self, locked: Option<Sector>) {
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
        self.has_work.store(true, Ordering::Release);
        self.alarm.ring();
    }

    /// Takes out the cancelled requests that have no tag. Those with a tag end when their turn comes, before they go out.
    pub(super) fn cancel(&self) -> VecDeque<Box<Pending>> {
        let mut state = self.state.lock();
        let (cancelled, left) =
            std::mem::take(&mut state.outside).into_iter().partition(|p| p.is_cancelled());
        state.outside = left;
        cancelled
    }

    /// Tags in use and in all.
    pub(super) fn tags(&self) -> (u32, u32) {
        let state = self.state.lock();
        (state.tags_used, state.tags)
    }

    /// Changes the number of tags. Requests that have one keep it, also where there are fewer now.
    pub(super) fn set_tags(&self, tags: u32) {
        self.state.lock().tags = tags.max(1);
        self.has_work.store(true, Ordering::Release);
    }

    pub(super) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// What a poll asks.
    pub(super) fn is_to_be_seen(&self) -> bool {
        self.has_work() || self.has_passed_over() || self.waits_for_room.load(Ordering::Relaxed)
    }

    /// Whether a request was passed over for what another thread does, whose end is not told.
    pub(super) fn has_passed_over(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }
}

impl State {
    /// Gives free tags to those that came first.
    fn admit(&mut self, volume: &Volume, now: Nanos) {
        while self.tags_used < self.tags
            && let Some(mut pending) = self.outside.pop_front()
        {
            self.tags_used += 1;
            pending.tag = Some(volume.zone_lock.clone());
            self.scheduler.insert(now, volume.scheduled(pending));
        }
    }
}

impl Volume {
    /// Whether a request goes through the scheduler.
    #[inline(never)]
    pub(super) fn is_scheduled(&self, route: &Route, request: &Pending) -> bool {
        let waits = (request.op.has_range() || request.op == Op::Append) && !request.nowait;
        waits && matches!(route, Route::Plain | Route::Plug(_)) && request.tag.is_none()
    }

    /// Puts a read or write in line; `false` if the mode has been switched meanwhile, and there is no line any more.
    pub(super) fn schedule(&self, now: Nanos, slot: &mut Option<Context>) -> bool {
        let mut state = self.zone_lock.state.lock();
        if !self.policy.is(WriteMode::ZoneLock) {
            return false;
        }
        state.outside.push_back(take_one(slot));
        drop(state);
        self.dispatch_scheduled(now);
        true
    }

    /// The zone whose plug a read or write meets, if it meets one.
    fn plugged_zone(&self, pending: &Pending) -> Option<ZoneIndex> {
        let zone = self.info.geometry.zone_of(pending.sector);
        (!pending.op.is_read() && !self.info.geometry.is_conventional(zone)).then_some(zone)
    }

    fn scheduled(&self, pending: Box<Pending>) -> Request<Box<Pending>> {
        let zone = self.plugged_zone(&pending);
        Request {
            direction: if pending.op.is_read() { Direction::Read } else { Direction::Write },
            sector: pending.sector,
            sectors: Sectors(pending.sectors.into()),
            zone,
            mergeable: zone.is_some() && self.is_mergeable(&pending),
            token: pending,
        }
    }

    /// Sends to the device what may go, up to a turn; returns whether anything went.
    pub(super) fn dispatch_scheduled(&self, now: Nanos) -> bool {
        let had_passed_over = self.zone_lock.has_passed_over();
        let sent = self.dispatch_turn(now);
        // The calling thread may never poll: those that sleep look in its place.
        if self.zone_lock.has_work() || self.zone_lock.has_passed_over() && !had_passed_over {
            self.alarm.ring();
        }
        sent
    }

    fn dispatch_turn(&self, now: Nanos) -> bool {
        let mut sent = 0;
        self.zone_lock.has_work.store(true, Ordering::Relaxed);
        while self.zone_lock.has_work.swap(false, Ordering::AcqRel) {
            while let Some(next) = self.next_scheduled(now) {
                let is_plugged = next.zone.is_some();
                self.dispatch(now, next);
                if is_plugged {
                    self.handed_over();
                }
                sent += 1;
                if sent >= TURN_MAX {
                    self.zone_lock.has_work.store(true, Ordering::Release);
                    return true;
                }
            }
        }
        sent > 0
    }

    /// The next request that may go, with its zone locked.
    fn next_scheduled(&self, now: Nanos) -> Option<Dispatched<Box<Pending>>> {
        let mut state = self.zone_lock.state.lock();
        let state = &mut *state;
        // In another mode what is left goes the way of that one.
        let is_on = self.policy.is(WriteMode::ZoneLock);
        state.admit(self, now);
        // What a full queue has turned away goes first: the device has no room for more.
        let waits_for_room = is_on && !self.stalled.is_empty();
        self.zone_lock.waits_for_room.store(waits_for_room, Ordering::Relaxed);
        if waits_for_room {
            return None;
        }
        let State { scheduler, locked, .. } = state;
        let watches = Cell::new(false);
        let is_locked = |zone: ZoneIndex| {
            let word = self.load(zone);
            // A zone in doubt takes one, which makes it ask again where it gave up.
            let waits = word.waits() && !word.recovers() && !word.has_parked();
            let by_others = word.in_flight() > 0 || waits;
            let by_tag = locked.contains_key(&zone);
            watches.set(watches.get() || is_on && by_others && !by_tag);
            is_on && (by_others || by_tag)
        };
        let next = scheduler.dispatch(now, is_locked);
        self.zone_lock.watches.store(watches.get(), Ordering::Relaxed);
        let next = next?;
        if let Some(zone) = next.zone {
            *locked.entry(zone).or_default() += next.parts.len() as u32;
            state.in_hand += 1;
        }
        Some(next)
    }

    /// A command that left the scheduler has reached its zone's plug. The last lets a switch of the mode continue.
    fn handed_over(&self) {
        let mut state = self.zone_lock.state.lock();
        state.in_hand -= 1;
        let switch = if state.in_hand == 0 { state.switch.take() } else { None };
        drop(state);
        if let Some(mode) = switch {
            self.change_mode(mode);
        }
    }

    fn dispatch(&self, now: Nanos, Dispatched { zone, sectors, parts, .. }: Dispatched<Box<Pending>>) {
        let mut parts: Vec<Box<Pending>> = parts.into_iter().collect();
        parts.iter_mut().for_each(|p| p.locks_zone = zone.is_some());
        if self.is_cancelling() && parts.iter().any(|part| part.is_cancelled()) {
            return self.dispatch_rest(now, zone, parts);
        }
        if let (Some(zone), 2..) = (zone, parts.len())
            && self.policy.is(WriteMode::ZoneLock)
        {
            return self.dispatch_merged(now, zone, sectors.0 as u32, parts);
        }
        for part in parts {
            let route = match zone {
                Some(zone) => Route::Plug(zone),
                None => Route::Plain,
            };
            self.take(now, route, &mut Some(Context::one(part)));
        }
    }

    /// Ends the cancelled ones of `parts`, and issues the others one by one.
    #[cold]
    fn dispatch_rest(&self, now: Nanos, zone: Option<ZoneIndex>, parts: Vec<Box<Pending>>) {
        let mut turn = Turn::default();
        for part in parts {
            let route = zone.map_or(Route::Plain, Route::Plug);
            match part.is_cancelled() {
                true => self.end_cancelled(part, &mut turn),
                false => _ = self.take(now, route, &mut Some(Context::one(part))),
            }
        }
        turn.tell(self);
    }

    /// Issues writes that share a command, if their zone takes them as one, and one by one otherwise.
    fn dispatch_merged(&self, now: Nanos, zone: ZoneIndex, sectors: u32, parts: Vec<Box<Pending>>) {
        let kind = WriteKind::At(self.info.geometry.offset_of(parts[0].sector));
        let word = self.load(zone);
        let admitted = match word.admit(kind, sectors, &self.rules(zone)) {
            Admission::Issue(next, at) => self.exchange(zone, word, next).is_ok().then_some(at),
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

    /// Changes the mode away from this one while all zones are held. The writes that wait here move to their zones' queues,
    /// in the order in which they would have gone; what no zone orders goes apart from them. A request that comes meanwhile
    /// waits for the lock, and then goes after them. Returns `false` if a thread has a write in hand, which goes before them:
    /// then the thread that hands over the last one changes the mode.
    pub(super) fn leave_scheduler(&self, mode: WriteMode) -> bool {
        let mut state = self.zone_lock.state.lock();
        if state.in_hand > 0 {
            state.switch = Some(mode);
            return false;
        }
        let mut all: Vec<Box<Pending>> = Vec::new();
        while let Some(next) = state.scheduler.dispatch(Nanos(0), |_| false) {
            all.extend(next.parts);
        }
        for mut pending in std::mem::take(&mut state.outside) {
            state.tags_used += 1;
            pending.tag = Some(self.zone_lock.clone());
            all.push(pending);
        }
        for pending in all {
            match self.plugged_zone(&pending) {
                Some(zone) => {
                    self.push_scheduled(&mut self.shard(zone).lock(), zone, self.load(zone), pending)
                }
                None => {
                    state.scheduler.insert(Nanos(0), self.scheduled(pending));
                }
            }
        }
        self.policy.switch(mode);
        drop(state);
        self.zone_lock.has_work.store(true, Ordering::Release);
        self.alarm.ring();
        true
    }

    /// A write from here waits in its zone's queue, under `word`, which waits.
    fn push_scheduled(&self, shard: &mut Shard, zone: ZoneIndex, word: Word, mut pending: Box<Pending>) {
        debug_assert!(word.waits(), "the zone is held, or a thread lets it continue");
        self.prefer_writes_of_zeroes(&mut pending);
        let (mergeable, sectors) = (self.is_mergeable(&pending), pending.sectors);
        let kind = Kind::Write(self.with_company(self.write_kind(&pending), &pending), sectors);
        shard.queue(zone).push(word, Item { kind, mergeable, token: pending });
        self.counters.line().add(Counter::Queued, 1);
    }

    /// Takes the writes of a zone that have not left the scheduler, or of all zones; each has a tag to end with.
    pub(super) fn take_scheduled(&self, zone: Option<ZoneIndex>) -> Vec<Box<Pending>> {
        let mut state = self.zone_lock.state.lock();
        let concerned = |p: &Pending| self.plugged_zone(p).is_some_and(|at| zone.is_none_or(|z| z == at));
        let mut taken = Vec::new();
        match zone {
            Some(zone) => taken.extend(state.scheduler.remove_zone(zone)),
            None => {
                let zones = self.info.geometry.conventional_zones()..self.info.geometry.zones();
                zones.for_each(|z| taken.extend(state.scheduler.remove_zone(ZoneIndex(z))));
            }
        }
        let (gone, stay) = std::mem::take(&mut state.outside).into_iter().partition(|p| concerned(p));
        state.outside = stay;
        let gone: VecDeque<Box<Pending>> = gone;
        // More than there are, for once: what ends with a tag ends like the others.
        state.tags_used += gone.len() as u32;
        drop(state);
        for mut pending in gone {
            pending.tag = Some(self.zone_lock.clone());
            taken.push(pending);
        }
        taken
    }

    /// Moves the writes of a zone that wait here to the zone's queue, whose failed writes are about to be decided: a write
    /// after a lost one learns of it there, as in every mode. Only for a caller that lets the zone continue then.
    pub(super) fn plug_scheduled(&self, zone: ZoneIndex) {
        if !self.policy.is(WriteMode::ZoneLock) {
            return;
        }
        let mut writes = self.take_scheduled(Some(zone));
        if writes.is_empty() {
            return;
        }
        // An append names no place, and goes where those with one leave the zone.
        writes.sort_by_key(|p| (p.op == Op::Append, p.sector));
        let mut shard = self.shard(zone).lock();
        let word = self.change(zone, Word::waiting);
        for pending in writes {
            self.push_scheduled(&mut shard, zone, word, pending);
        }
    }

    /// Tags of mode `zone-lock` in use, and how many there are.
    pub fn tags(&self) -> (u32, u32) {
        self.zone_lock.tags()
    }
}
