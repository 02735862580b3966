//! Reset and finish of one zone, and resynchronisation on request.
//!
//! A reset or finish waits for the commands at the device, aborts the waiting writes, and is then
//! issued; later writes wait for it. With a budget, open and close are queued as well: earlier
//! writes are issued first, and an open waits for a slot.

use super::Volume;
use super::channel::{Counted, begin_call, end_call};
use super::counters::Counter;
use super::pending::PendingRequest;
use super::submit::Fate;
use zonal_core::plug::{Item, RequestKind, Word};
use zonal_core::{Nanos, Op, RequestError, ZoneIndex};

/// Reset or finish in its zone's queue. See [`Volume::queue_management`].
#[expect(clippy::vec_box, reason = "requests move on as boxes")]
pub(super) struct Queued {
    zone: ZoneIndex,
    /// The zone's word at that time.
    word: Word,
    aborted: Vec<Box<PendingRequest>>,
}

impl Volume {
    /// Queues a reset or finish, or with a budget an open or close.
    pub(super) fn manage(&self, now: Nanos, zone: ZoneIndex, pending: Box<PendingRequest>) -> Fate {
        let queued = self.queue_management(zone, pending);
        self.begin_management(now, queued);
        Fate::Later
    }

    /// Queues the command in its zone and removes the writes that it aborts. Later writes to the
    /// zone wait for it.
    pub(super) fn queue_management(&self, zone: ZoneIndex, mut pending: Box<PendingRequest>) -> Queued {
        // It has aborted other requests, so from here on it has to wait, for a full device queue
        // too.
        pending.nowait = false;
        let op = pending.op;
        let aborts = matches!(op, Op::ZoneReset | Op::ZoneFinish);
        let mut aborted = Vec::new();
        if aborts && let Some(front) = &self.front {
            aborted = front.take(zone.0..zone.0 + 1);
        }
        let mut shard = self.plugs.shard(zone).lock();
        let word = if aborts {
            let word = self.plugs.update(zone, Word::recalling);
            shard.queue(zone).push_management(word, op, pending, &mut aborted);
            shard.abort_parked(zone, &mut aborted);
            word
        } else {
            let word = self.plugs.update(zone, Word::waiting);
            shard
                .queue(zone)
                .push(word, Item { kind: RequestKind::Manage(op), mergeable: false, token: pending })
        };
        drop(shard);
        Queued { zone, word, aborted }
    }

    /// Completes the aborted requests, and issues the command if nothing is ahead of it.
    pub(super) fn begin_management(&self, now: Nanos, queued: Queued) {
        let Queued { zone, word, aborted } = queued;
        self.abort(zone, aborted);
        if word.in_flight() == 0 && !word.frozen() {
            self.kick(now, zone);
        }
    }

    #[expect(clippy::vec_box, reason = "requests move on as boxes")]
    pub(super) fn abort(&self, zone: ZoneIndex, aborted: Vec<Box<PendingRequest>>) {
        let failed = aborted.iter().filter(|p| p.is_first_to_fail()).count();
        self.counters.line().add(Counter::Failed, failed as u64);
        for p in aborted {
            p.end(Err(RequestError::Aborted { zone }), Counted::Yes);
        }
    }

    /// Rereads the write pointer of `zone` from the device once its writes in flight have
    /// completed. For zones that were written or reset past the volume.
    pub fn resync(&self, now: Nanos, zone: ZoneIndex) {
        if zone.0 >= self.terms.info.geometry.zones() || self.terms.info.geometry.is_conventional(zone) {
            return;
        }
        begin_call();
        self.request_report(now, zone);
        end_call();
    }

    /// Like [`Volume::resync`], for a sequential zone, inside a call of the volume.
    pub(super) fn request_report(&self, now: Nanos, zone: ZoneIndex) {
        let mut shard = self.plugs.shard(zone).lock();
        let word = self.plugs.update(zone, Word::recovering);
        shard.queue(zone).invalidate_report(word);
        drop(shard);
        self.kick(now, zone);
    }
}
