//! Cancelling: what a channel's requests still wait for does not happen.
//!
//! A request that waits ends with [`RequestError::Cancelled`]: in its zone's queue, parked, in the scheduler, for room in
//! the device's queue, or for a retry. A request at the device ends as it does there, and no further command of it goes
//! out, but for the flush that makes a write durable which was carried out. A cancelled write leaves the pointer where it stands.
//!
//! [`Volume::cancel`] goes over all that waits, once. What comes back later, from a chain or from recovery, meets the
//! channel's mark when it would go out ([`Shard::cancel`]). Steps look at marks only while a cancelled channel has
//! requests that have not ended. [`Volume::cancel_request`] does the same with a mark for one request, which its caller takes
//! away.

use super::channel::{Channel, Withdrawal, begin_call, end_call};
use super::pending::PendingRequest;
use super::turn::{Turn, Work};
use super::{Shard, Volume};
use crate::device::{Context, ContextKind};
use crate::sync::ShortLock;
use zonal_core::plug::Word;
use zonal_core::{DeviceError, Nanos, RequestError, Sectors, ZoneIndex};

impl Volume {
    /// Cancels all requests of `channel`. Each still ends once, by the channel's function: with [`RequestError::Cancelled`]
    /// if it waited, and otherwise as the device ends it. None of them issues another command.
    ///
    /// Positional writes after a cancelled one end as after a failed one; appends continue. The channel takes no more requests:
    /// they end with the same error.
    ///
    /// # Panics
    /// If a completion function that was called meanwhile did.
    pub fn cancel(&self, now: Nanos, channel: &Channel) {
        self.channels.mark_cancelled(channel);
        self.cancel_marked(now);
    }

    /// Cancels the requests of `channel` that have this token, and no others: see [`Volume::cancel`]. The caller keeps the answer
    /// until they have ended, and gives no other request their token before.
    ///
    /// # Panics
    /// If a completion function that was called meanwhile did.
    #[must_use = "what a step holds at this moment is cancelled later, while the answer lives"]
    pub fn cancel_request(&self, now: Nanos, channel: &Channel, token: u64) -> Withdrawal {
        let withdrawal = self.channels.withdraw(channel, token);
        self.cancel_marked(now);
        withdrawal
    }

    /// Ends what waits and is marked.
    fn cancel_marked(&self, now: Nanos) {
        begin_call();
        let mut turn = Turn::default();
        for shard in self.plugs.shards() {
            self.cancel_in_shard(now, shard, &mut turn);
        }
        self.cancel_stalled(now);
        self.cancel_elsewhere(&mut turn);
        turn.tell(self);
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
        // What waited after them may go, or nothing is left to wait for.
        for zone in moved {
            self.run(now, Work::Kick(zone));
        }
    }

    /// What met a full queue has not reached the device. Its zone takes that for a failure, asks for the pointer, and sends
    /// those again that share the command and are not cancelled.
    ///
    /// A command that a thread holds at this moment is found by the poll that would offer it again. Returns whether there
    /// was one.
    pub(super) fn cancel_stalled(&self, now: Nanos) -> bool {
        let mut is_any = false;
        for queue in 0..self.terms.info.queues {
            for context in self.stalled.take_if(queue, is_cancelled) {
                is_any = true;
                let mut slot = Some(context);
                if let Some(zone) = self.on_its_way(&slot) {
                    self.let_others_follow(now, zone);
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
    /// Ends what is cancelled of what waits in `zone`, which has this word; whether that was any.
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

/// Ends a request that would continue and is cancelled.
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

/// Whether a command is, or carries, a cancelled request. Those of recovery continue: their zone needs them.
fn is_cancelled(context: &Context) -> bool {
    match &context.0 {
        ContextKind::One(pending) => pending.is_cancelled(),
        ContextKind::Merged(merged) => merged.parts.iter().any(|part| part.is_cancelled()),
        _ => false,
    }
}
