//! Chains: waiting writes of a zone that are issued by completions without another look at the
//! queue.
//!
//! Emulated appends, and positional writes that cannot be merged, are issued one at a time. The
//! thread that locks the zone's shard to issue one also takes the writes behind it, as a list
//! attached to the write at the device. Each completion issues the next write of the list. A chain
//! therefore takes the lock once and changes the zone's word twice.
//!
//! While a chain runs, one write is in flight, so later writes queue behind it. If the queue is
//! found empty meanwhile, the zone stops waiting; completing the last issued write of the chain
//! makes it wait again. A failure, a reset, or an unknown write pointer breaks the chain: its
//! unissued writes return to the queue in order, or are aborted.

use super::channel::TURN_MAX;
use super::event::PlugEvent;
use super::pending::PendingRequest;
use super::turn::{Stack, Turn};
use super::{Shard, Volume};
use crate::device::Context;
use crate::sync::IS_MODEL;
use zonal_core::plug::{Item, RequestKind, Rules, Word};
use zonal_core::{Nanos, Op, RequestError, ZoneIndex};

/// Maximum of writes behind the first: amortizes the lock, yet lets a zone's turn end.
pub(super) const CHAIN_MAX: usize = if IS_MODEL { 2 } else { 16 };

impl Volume {
    /// Attaches to `first`, which is about to be issued, the writes that can follow it. Returns the
    /// zone's word.
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

    /// Issues the next write of a chain after the one before it succeeded, unless the chain has to
    /// break.
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
        if !self.plugs.load(zone).chain_may_continue() || turn.issued >= TURN_MAX || is_cancelled {
            return self.serve(now, zone, PlugEvent::Broken(behind), turn, stack);
        }
        turn.issued += 1;
        let mut slot = Some(Context::one(behind));
        // The mode has no window, since a switch to one waits for the end of the chain.
        self.issue_one_by_one(now, &mut slot, stack);
    }

    /// Returns the unissued writes of a chain to the queue, or aborts them.
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
                // It loses its position. It may be issued natively, which requires the zone's
                // start.
                pending.sector = self.terms.info.geometry.start_of(zone);
            }
            let kind = self.terms.queued_kind(self.terms.write_kind(&pending), &pending);
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
