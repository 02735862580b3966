//! Parking: a positional write ahead of its zone's pointer waits for those before it, instead of failing.
//!
//! [`zonal_core::plug::ParkedWrites`] keeps such writes of a zone; it is the shard's, beside the zone's queue, and exists only while
//! something is in it. The zone's word says so ([`Word::has_parked`]) and has the zone wait, so that the threads that
//! complete its writes or bring new ones come by. A write to a zone without parked writes goes its usual way.
//!
//! Bounded in sectors a zone and in time: polls give up what has waited too long, see [`zonal_core::plug::ParkOptions`].
//! Not in mode `zone-lock`, which is there to be compared with, nor in `direct`.

use super::counters::Counter;
use super::pending::PendingRequest;
use super::plugs::Plugs;
use super::submit::Fate;
use super::terms::Terms;
use super::turn::Turn;
use super::{Progress, Shard, Volume, earliest};
use crate::device::Context;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, ShortLock};
use std::collections::BTreeSet;
use zonal_core::plug::{ParkOptions, ParkedWrites, Word, WriteKind};
use zonal_core::{Nanos, RequestError, ZoneIndex};

/// No zone has to be looked at.
const NEVER: u64 = u64::MAX;

/// What polls know of parked writes.
pub(super) struct Parking {
    /// Zones with parked writes. Taken inside a shard's lock.
    zones: ShortLock<BTreeSet<ZoneIndex>>,
    /// When one of them has to be looked at.
    next: AtomicU64,
    /// Threads that go over the zones: until they have, `next` knows only of some.
    looking: AtomicUsize,
}

impl Default for Parking {
    fn default() -> Parking {
        Parking {
            zones: ShortLock::new(BTreeSet::new()),
            next: AtomicU64::new(NEVER),
            looking: AtomicUsize::new(0),
        }
    }
}

impl Parking {
    /// The next poll looks at every zone with parked writes.
    pub(super) fn look_soon(&self) {
        self.next.store(0, Ordering::Release);
    }

    /// The parked writes of a zone for a write that is parked at `now`, for the holder of its shard. Polls look at it after `time`.
    fn parked_writes<'a>(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        word: Word,
        shard: &'a mut Shard,
        time: Nanos,
    ) -> &'a mut ParkedWrites<Box<PendingRequest>> {
        let parked_writes = shard.parked_writes.entry(zone.0).or_insert_with(|| {
            self.zones.lock().insert(zone);
            Box::new(ParkedWrites::new(now, word.pointer()))
        });
        // Last: a poll that has just begun to look forgets the time, and may not have seen the zone.
        self.next.fetch_min(now.0.saturating_add(time.0), Ordering::AcqRel);
        parked_writes
    }

    /// Whether a poll has to go over the zones at `now`; until then it need not look again.
    #[inline]
    fn is_due(&self, now: Nanos, deadline: &mut Option<Nanos>) -> bool {
        let next = self.next.load(Ordering::Acquire);
        // A poll that is told a time too late may belong to the last thread that polls.
        if now.0 < next && self.looking.load(Ordering::Acquire) > 0 {
            *deadline = Some(now);
            return false;
        }
        if now.0 < next && next != NEVER {
            *deadline = earliest(*deadline, Some(Nanos(next)));
        }
        next <= now.0 && next != NEVER
    }

    /// `over` gets each zone with parked writes whose time is over, and them.
    #[cold]
    fn look(
        &self,
        now: Nanos,
        deadline: &mut Option<Nanos>,
        plugs: &Plugs,
        options: &ParkOptions,
        mut over: impl FnMut(ZoneIndex, Vec<Box<PendingRequest>>),
    ) {
        self.looking.fetch_add(1, Ordering::AcqRel);
        self.next.store(NEVER, Ordering::Release);
        let zones: Vec<ZoneIndex> = self.zones.lock().iter().copied().collect();
        for zone in zones {
            let writes = self.overdue(now, zone, plugs, options);
            if !writes.is_empty() {
                over(zone, writes);
            }
        }
        self.looking.fetch_sub(1, Ordering::AcqRel);
        let next = self.next.load(Ordering::Acquire);
        *deadline = earliest(*deadline, Some(Nanos(next)).filter(|_| next != NEVER));
    }

    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn overdue(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        plugs: &Plugs,
        options: &ParkOptions,
    ) -> Vec<Box<PendingRequest>> {
        let mut shard = plugs.shard(zone).lock();
        let word = plugs.load(zone);
        if !shard.parked_writes.contains_key(&zone.0) {
            self.zones.lock().remove(&zone);
            return Vec::new();
        }
        let is_waiting = !shard.queue(zone).is_empty();
        let goes_on = word.is_busy() || word.frozen() || word.recovers() || is_waiting;
        let Some(parked_writes) = shard.parked_writes.get_mut(&zone.0) else { return Vec::new() };
        let over = parked_writes.overdue(now, word.pointer(), goes_on, options);
        if let Some(next) = parked_writes.deadline(options) {
            self.next.fetch_min(next.0, Ordering::AcqRel);
        }
        over
    }
}

impl Shard {
    /// What is parked in `zone` goes to `aborted`.
    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    pub(super) fn abort_parked(&mut self, zone: ZoneIndex, aborted: &mut Vec<Box<PendingRequest>>) {
        if let Some(parked_writes) = self.parked_writes.remove(&zone.0) {
            parked_writes.abort(aborted);
        }
    }

    /// Number of requests parked in `zone`.
    pub(super) fn parked(&self, zone: ZoneIndex) -> usize {
        self.parked_writes.get(&zone.0).map_or(0, |parked_writes| parked_writes.len())
    }
}

impl Terms {
    /// Brings what is parked in a zone and can go now to the head of its queue, and takes appends out of its way.
    #[cold]
    pub(super) fn unpark(&self, now: Nanos, zone: ZoneIndex, word: Word, shard: &mut Shard) -> Word {
        let Some(mut parked_writes) = shard.parked_writes.remove(&zone.0) else {
            return word.without_parked();
        };
        let queue = shard.queue(zone);
        if !word.is_busy() && !word.frozen() && !word.recovers() {
            // What continues the write at the head goes out with it.
            let leads = |p: &PendingRequest| {
                let is_new = p.done == 0 && p.rounds == 0 && p.op.is_write();
                is_new && self.write_kind(p) == WriteKind::At(word.pointer())
            };
            let leads = queue.front().filter(|p| leads(p)).map(|p| p.sectors);
            let leader = leads.map(|_| queue.pop());
            let due = parked_writes.take(now, word.pointer() + leads.unwrap_or(0));
            for item in due.into_iter().rev() {
                queue.push_front(word, item);
            }
            if let Some(leader) = leader {
                let item = self.item(leader);
                queue.push_front(word, item);
            }
        }
        while parked_writes.has_writes() && queue.head_append(word) {
            parked_writes.park(now, self.item(queue.pop()));
        }
        if parked_writes.is_empty() {
            return word.without_parked();
        }
        shard.parked_writes.insert(zone.0, parked_writes);
        word
    }
}

impl Volume {
    /// A write that just arrived and cannot go out as it is: it is parked or refused.
    #[cold]
    pub(super) fn refuse_or_park(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        kind: WriteKind,
        slot: &mut Option<Context>,
        error: RequestError,
    ) -> Fate {
        match self.terms.parks(&error, super::submit::one(slot)) {
            Some(_) => self.queue_write(now, zone, kind, slot),
            None => self.refuse(slot, error),
        }
    }

    /// Parks the write at the head of a zone's queue, which `error` would refuse. Returns the zone's word, or `None` if it
    /// is refused indeed.
    #[cold]
    pub(super) fn park(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        word: Word,
        shard: &mut Shard,
        error: &RequestError,
        turn: &mut Turn,
    ) -> Option<Word> {
        let request = shard.queue(zone).front()?;
        let options = self.terms.parks(error, request)?;
        let sectors = request.sectors;
        if shard.parked_writes.get(&zone.0).is_some_and(|parked| !parked.has_room(sectors, &options)) {
            return None;
        }
        let request = shard.queue(zone).pop();
        let parked_writes = self.parking.parked_writes(now, zone, word, shard, options.time);
        parked_writes.park(now, self.terms.item(request));
        self.counters.line().add(Counter::Parked, 1);
        turn.leaves_work();
        Some(word.with_parked())
    }

    /// Gives up parked writes whose time is over.
    #[inline]
    pub(super) fn look_after_parked(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        let mut progress = Progress::None;
        if self.parking.is_due(now, deadline) {
            let options = self.terms.settings.park();
            self.parking.look(now, deadline, &self.plugs, &options, |zone, over| {
                progress = Progress::Some;
                self.give_up_parked(zone, over);
                // Appends may have waited for them.
                self.kick(now, zone);
            });
        }
        progress
    }

    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    fn give_up_parked(&self, zone: ZoneIndex, over: Vec<Box<PendingRequest>>) {
        let write_pointer = self.plugs.load(zone).pointer();
        let mut turn = Turn::default();
        for request in over {
            let offset = self.terms.info.geometry.offset_of(request.sector);
            let error = RequestError::PredecessorMissing { zone, write_pointer, offset };
            turn.end(request, Err(error));
        }
        turn.tell(self);
    }
}
