//! Parking: a positional write ahead of its zone's write pointer waits for its predecessors instead
//! of failing.
//!
//! [`zonal_core::plug::ParkedWrites`] holds these writes of a zone. It belongs to the shard, next
//! to the zone's queue, and exists only while it is not empty. The zone's word records this
//! ([`Word::has_parked`]) and marks the zone as waiting, so that completions and new writes take
//! the path through the queue. Writes to zones without parked writes are not affected.
//!
//! Parking is limited by size per zone and by time: polls fail writes that have waited too long,
//! see [`zonal_core::plug::ParkOptions`]. Not in mode `zone-lock`, which serves as a comparison,
//! nor in `direct`.

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

/// No zone has to be checked.
const NEVER: u64 = u64::MAX;

/// State of parked writes for polls.
pub(super) struct Parking {
    /// Zones with parked writes. Taken inside a shard's lock.
    zones: ShortLock<BTreeSet<ZoneIndex>>,
    /// Time of the next check.
    next: AtomicU64,
    /// Number of threads that are checking the zones; until they are done, `next` covers only some
    /// zones.
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
    /// Makes the next poll check every zone with parked writes.
    pub(super) fn request_check(&self) {
        self.next.store(0, Ordering::Release);
    }

    /// Returns the parked writes of a zone, for a write parked at `now`. For the holder of the
    /// shard's lock. Polls check the zone after `time`.
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
        // Last: a poll that has just started a check resets the time, and may have missed the zone.
        self.next.fetch_min(now.0.saturating_add(time.0), Ordering::AcqRel);
        parked_writes
    }

    /// True if a poll has to check the zones at `now`; otherwise updates the deadline.
    #[inline]
    fn is_due(&self, now: Nanos, deadline: &mut Option<Nanos>) -> bool {
        let next = self.next.load(Ordering::Acquire);
        // A deadline that is too late would be fatal if this is the last thread that polls.
        if now.0 < next && self.looking.load(Ordering::Acquire) > 0 {
            *deadline = Some(now);
            return false;
        }
        if now.0 < next && next != NEVER {
            *deadline = earliest(*deadline, Some(Nanos(next)));
        }
        next <= now.0 && next != NEVER
    }

    /// Calls `over` for each zone with expired parked writes, with these writes.
    #[cold]
    fn expire(
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
    /// Moves the parked writes of `zone` to `aborted`.
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
    /// Moves the parked writes of a zone that can be issued to the head of its queue, and parks
    /// appends that are in their way.
    #[cold]
    pub(super) fn unpark(&self, now: Nanos, zone: ZoneIndex, word: Word, shard: &mut Shard) -> Word {
        let Some(mut parked_writes) = shard.parked_writes.remove(&zone.0) else {
            return word.without_parked();
        };
        let queue = shard.queue(zone);
        if !word.is_busy() && !word.frozen() && !word.recovers() {
            // Writes that continue the one at the head are issued with it.
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
    /// Parks or refuses a new write that cannot be issued at the write pointer.
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

    /// Parks the write at the head of a zone's queue, which would otherwise fail with `error`.
    /// Returns the zone's word, or `None` if the write has to fail.
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
        turn.request_poll();
        Some(word.with_parked())
    }

    /// Fails the parked writes that have expired.
    #[inline]
    pub(super) fn expire_parked(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        let mut progress = Progress::None;
        if self.parking.is_due(now, deadline) {
            let options = self.terms.settings.park();
            self.parking.expire(now, deadline, &self.plugs, &options, |zone, over| {
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
        turn.notify(self);
    }
}
