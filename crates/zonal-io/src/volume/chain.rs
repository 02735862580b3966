//! Chains: waiting writes of a zone that follow the one at the device without another look at the zone's queue.
//!
//! Emulated appends, and positional writes that do not merge, go one at a time. The thread that takes the zone's
//! lock to let one out takes those after it along, as a list that hangs on the write at the device. The thread that
//! completes that write issues the next. So the lock is taken once a chain, and the zone's word changes twice.
//!
//! While a chain runs one write is in flight, so later writes queue after it; the zone need not wait, if a thread has found
//! its queue empty meanwhile. It does again from the end of the last write on that goes out. A failure, a reset or a doubt
//! about the pointer breaks the chain, and what has not gone out is back in the queue, in its order, or aborted.

use super::channel::TURN_MAX;
use super::event::PlugEvent;
use super::pending::PendingRequest;
use super::turn::{Stack, Turn};
use super::{Shard, Volume};
use crate::device::Context;
use crate::sync::IS_MODEL;
use zonal_core::plug::{Item, RequestKind, Rules, Word};
use zonal_core::{Nanos, Op, RequestError, ZoneIndex};

/// Most writes that follow one: long enough to make the lock cheap, short enough for a zone's turn to end.
pub(super) const CHAIN_MAX: usize = if IS_MODEL { 2 } else { 16 };

impl Volume {
    /// Hangs on the write in `first`, which is about to go out, those that may follow it. Returns the zone's word.
    #[inline]
    pub(super) fn chain(
        &self,
        mut word: Word,
        rules: &Rules,
        shard: &mut Shard,
        first: &mut PendingRequest,
    ) -> Word {
        let queue = shard.queue(rules.zone);
        let mut last = first;
        for _ in 0..CHAIN_MAX {
            let Some((next, at)) = queue.follow(word, rules) else { break };
            if !queue.front().is_some_and(|p| self.terms.ends_with_this_command(p)) {
                break;
            }
            word = next;
            let behind = last.behind.insert(queue.pop());
            self.terms.place(rules.zone, at, behind);
            last = behind;
        }
        word
    }

    /// The write in `slot` has succeeded and others follow it: issues the next, unless something keeps it from that.
    #[inline]
    pub(super) fn follow(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        behind: Box<PendingRequest>,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        let is_cancelled = self.channels.is_cancelling() && behind.is_cancelled();
        if !self.plugs.load(zone).chain_goes_on() || turn.issued >= TURN_MAX || is_cancelled {
            return self.serve(now, zone, PlugEvent::Broken(behind), turn, stack);
        }
        turn.issued += 1;
        let mut slot = Some(Context::one(behind));
        // Its mode has no window: a switch to one waits for the chain's end.
        self.issue_one_by_one(now, &mut slot, stack);
    }

    /// Takes back what was to follow a write that has ended.
    pub(super) fn unchain(
        &self,
        zone: ZoneIndex,
        word: Word,
        behind: Box<PendingRequest>,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let mut rest = Vec::with_capacity(CHAIN_MAX);
        let mut next = Some(behind);
        while let Some(mut pending) = next {
            next = pending.behind.take();
            pending.plugged = false;
            if pending.op == Op::Append {
                // It gives its place up. It may go out natively, and then has to name its zone.
                pending.sector = self.terms.info.geometry.start_of(zone);
            }
            let kind = self.terms.with_company(self.terms.write_kind(&pending), &pending);
            let kind = RequestKind::Write(kind, pending.sectors);
            rest.push(Item { kind, mergeable: false, token: pending });
        }
        let mut aborted = Vec::new();
        let word = shard.queue(zone).break_chain(word, rest.into_iter(), &mut aborted);
        for pending in aborted {
            turn.end(pending, Err(RequestError::Aborted { zone }));
        }
        word
    }
}
