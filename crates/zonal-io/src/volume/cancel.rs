//! Cancellation of a channel's waiting requests.
//!
//! A request that waits ends with [`RequestError::Cancelled`], be it in its zone's queue, parked,
//! in the scheduler, stalled by a full device queue, or between retries. A request at the device
//! ends as the device ends it and issues no further command, except for the flush that makes an
//! executed write durable. A cancelled write does not move the write pointer.
//!
//! [`Volume::cancel`] visits all waiting requests once. Those that return later, from a chain or
//! from recovery, meet the channel's mark when they are about to be issued ([`Shard::cancel`]).
//! Steps check marks only while a cancelled channel has unfinished requests.
//! [`Volume::cancel_request`] does the same with a mark for one request, which its caller removes.

use super::channel::{Channel, Withdrawal, begin_call, end_call};
use super::pending::PendingRequest;
use super::turn::{Turn, Work};
use super::{Shard, Volume};
use crate::device::{Context, ContextKind};
use crate::sync::ShortLock;
use zonal_core::plug::Word;
use zonal_core::{DeviceError, Nanos, RequestError, Sectors, ZoneIndex};

impl Volume {
    /// Cancels all requests of `channel`. Each still ends once, through the channel: with
    /// [`RequestError::Cancelled`] if it was waiting, otherwise as the device ends it. None of them
    /// issues another command.
    ///
    /// Positional writes behind a cancelled one end as behind a failed one; appends continue. The
    /// channel accepts no more requests: they end with the same error.
    ///
    /// # Panics
    /// If a completion function called meanwhile panics.
    pub fn cancel(&self, now: Nanos, channel: &Channel) {
        self.channels.mark_cancelled(channel);
        self.cancel_marked(now);
    }

    /// Cancels the requests of `channel` with this token: see [`Volume::cancel`]. The caller keeps
    /// the returned value until they have ended, and does not reuse their token before.
    ///
    /// # Panics
    /// If a completion function called meanwhile panics.
    #[must_use = "requests held by a running step are cancelled later, and only while this value exists"]
    pub fn cancel_request(&self, now: Nanos, channel: &Channel, token: u64) -> Withdrawal {
        let withdrawal = self.channels.withdraw(channel, token);
        self.cancel_marked(now);
        withdrawal
    }

    /// Ends all waiting requests that are marked.
    fn cancel_marked(&self, now: Nanos) {
        begin_call();
        let mut turn = Turn::default();
        for shard in self.plugs.shards() {
            self.cancel_in_shard(now, shard, &mut turn);
        }
        self.cancel_stalled(now);
        self.cancel_elsewhere(&mut turn);
        turn.notify(self);
        end_call();
        self.alarm.ring();
    }

    fn cancel_in_shard(&self, now: Nanos, shard: &ShortLock<Shard>, turn: &mut Turn) {
        let mut moved = Vec::new();
        let mut shard = shard.lock();
        for zone in shard.zones() {
            let word = self.plugs.load(zone);
            if shard.cancel(zone, word, turn) {
                moved.push(zone);
            }
        }
        drop(shard);
        // Requests behind the cancelled ones may now be issued, or the zone has no waiters left.
        for zone in moved {
            self.run(now, Work::Kick(zone));
        }
    }

    /// Cancels stalled commands, which have not reached the device. Their zones treat this as a
    /// failure: they reread the write pointer and resubmit those requests of the command that are
    /// not cancelled.
    ///
    /// A command held by a thread at this moment is found by the poll that would resubmit it.
    /// Returns true if any command was cancelled.
    pub(super) fn cancel_stalled(&self, now: Nanos) -> bool {
        let mut is_any = false;
        for queue in 0..self.terms.info.queues {
            for context in self.stalled.take_if(queue, is_cancelled) {
                is_any = true;
                let mut slot = Some(context);
                if let Some(zone) = self.issuing_zone(&slot) {
                    self.window_write_arrived(now, zone);
                }
                self.completed(now, &mut slot, &mut Err(DeviceError::Aborted));
            }
        }
        is_any
    }

    fn cancel_elsewhere(&self, turn: &mut Turn) {
        let mut cancelled = self.delayed.cancel(is_cancelled);
        cancelled.extend(self.front.iter().flat_map(|front| front.cancel()));
        cancelled.into_iter().for_each(|pending| end_cancelled(pending, turn));
    }
}

impl Shard {
    /// Ends the cancelled requests that wait in `zone`, which has this word; returns true if there
    /// were any.
    pub(super) fn cancel(&mut self, zone: ZoneIndex, word: Word, turn: &mut Turn) -> bool {
        let mut cancelled = Vec::new();
        self.queue(zone).cancel(word, |pending| pending.is_cancelled(), &mut cancelled);
        if let Some(parked_writes) = self.parked_writes.get_mut(&zone.0) {
            parked_writes.cancel(|pending| pending.is_cancelled(), &mut cancelled);
        }
        let is_any = !cancelled.is_empty();
        cancelled.into_iter().for_each(|pending| end_cancelled(pending, turn));
        is_any
    }
}

/// Ends a cancelled request before its next command.
#[cold]
pub(super) fn end_cancelled(pending: Box<PendingRequest>, turn: &mut Turn) {
    let error = match pending.done {
        written if written > 0 && pending.op.is_write() => RequestError::InPart {
            sector: pending.sector + Sectors(written.into()),
            written,
            error: DeviceError::Aborted,
        },
        _ => RequestError::Cancelled,
    };
    turn.end(pending, Err(error));
}

/// True if a command is or contains a cancelled request. Commands of recovery continue, since their
/// zone needs them.
fn is_cancelled(context: &Context) -> bool {
    match &context.0 {
        ContextKind::One(pending) => pending.is_cancelled(),
        ContextKind::Merged(merged) => merged.parts.iter().any(|part| part.is_cancelled()),
        _ => false,
    }
}
