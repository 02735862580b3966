//! Commands for the device: what a request's next one is, which queue takes it, and what becomes of those
//! that a full queue turns away.

use super::Volume;
use super::counters::Counter;
use super::event::PlugEvent;
use super::mode::WriteMode;
use super::pending::RequestStage;
use super::submit::take_one;
use super::turn::{Stack, Turn, Work};
use crate::device::{CommandResult, Context, ContextKind, Output, Submitted};
use zonal_core::{Nanos, RequestError};

impl Volume {
    pub(super) fn issue_and_stack(&self, now: Nanos, slot: &mut Option<Context>, stack: &mut Stack) {
        if self.terms.policy.is(WriteMode::Pipelined)
            && let Some(zone) = slot.as_ref().and_then(|c| self.terms.zone_of_write(c))
        {
            return self.issue_in_window(now, zone, slot, stack);
        }
        self.issue_one_by_one(now, slot, stack);
    }

    /// The same in the modes without a window.
    #[inline]
    pub(super) fn issue_one_by_one(&self, now: Nanos, slot: &mut Option<Context>, stack: &mut Stack) {
        if let Some(result) = self.issue(now, slot) {
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        }
    }

    /// Sends the command in `slot` to this thread's queue, after those that it turned away; returns its answer if it came
    /// at once.
    #[inline(always)]
    pub(super) fn issue(&self, now: Nanos, slot: &mut Option<Context>) -> Option<CommandResult> {
        let queue = self.reapers.own();
        // The commands that met the full queue go first.
        if !self.stalled.is_empty() && self.stalled.len_of(queue) > 0 {
            self.turned_away(now, queue, slot);
            return None;
        }
        match self.offer(now, queue, slot) {
            Submitted::Done(Ok(Output::Done)) => Some(Ok(Output::Done)),
            Submitted::Done(result) => Some(result),
            Submitted::Accepted => None,
            Submitted::Busy => {
                self.turned_away(now, queue, slot);
                None
            }
        }
    }

    /// Offers the command in `slot` to the device, which may turn it away.
    #[inline(always)]
    pub(super) fn offer(&self, now: Nanos, queue: usize, slot: &mut Option<Context>) -> Submitted {
        if let Some(Context(ContextKind::One(p))) = slot
            && p.stage == RequestStage::ZeroesAsWrites
        {
            *slot = Some(self.terms.with_zeroes(take_one(slot)));
        }
        let command = self.terms.command(slot.as_mut().expect("the caller has a command to issue"));
        let submitted = self.device.submit(now, queue, &command, slot);
        debug_assert_eq!(
            slot.is_none(),
            matches!(submitted, Submitted::Accepted),
            "a device keeps the context of what it answers later"
        );
        // Made again where it has no content: copying it would read back in one piece what was written in several.
        match submitted {
            Submitted::Busy => {
                self.counters.line().add(Counter::Busy, 1);
                Submitted::Busy
            }
            Submitted::Accepted => {
                self.counters.line().add(Counter::Commands, 1);
                Submitted::Accepted
            }
            Submitted::Done(Ok(Output::Done)) => {
                self.counters.line().add(Counter::Commands, 1);
                Submitted::Done(Ok(Output::Done))
            }
            done => {
                self.counters.line().add(Counter::Commands, 1);
                done
            }
        }
    }

    /// Keeps a command that met a full queue, or withdraws it if its request may not wait.
    #[cold]
    pub(super) fn turned_away(&self, now: Nanos, queue: usize, slot: &mut Option<Context>) {
        match slot.take().expect("a command that was turned away has its context").0 {
            ContextKind::One(mut p) if p.nowait && p.done == 0 && p.stage == RequestStage::Main => {
                let mut turn = Turn::default();
                // Management has lost its `nowait` on the way: what is plugged here is a write.
                if std::mem::take(&mut p.plugged) {
                    let zone = self.terms.info.geometry.zone_of(p.sector);
                    self.go_on(now, zone, PlugEvent::Withdrawn(p.sectors), &mut turn);
                }
                turn.end(p, Err(RequestError::WouldWait));
                turn.tell(self);
            }
            kind => {
                self.stalled.push_back(queue, Context(kind));
                // The queue may have been emptied meanwhile, by a poll that did not find the command.
                self.alarm.ring();
            }
        }
    }
}
