//! Submission of commands to the device: choice of the queue, and handling of full queues.

use super::Volume;
use super::counters::Counter;
use super::event::PlugEvent;
use super::mode::WriteMode;
use super::pending::RequestStage;
use super::submit::take_one;
use super::turn::{Stack, Turn, Work};
use crate::device::{Command, CommandResult, Context, ContextKind, Output, Submitted};
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

    /// Like [`Volume::issue_and_stack`], in the modes without a window.
    #[inline]
    pub(super) fn issue_one_by_one(&self, now: Nanos, slot: &mut Option<Context>, stack: &mut Stack) {
        if let Some(result) = self.issue(now, slot) {
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        }
    }

    /// Submits the command in `slot` to this thread's device queue, behind any stalled ones;
    /// returns the result if it completes inline.
    #[inline(always)]
    pub(super) fn issue(&self, now: Nanos, slot: &mut Option<Context>) -> Option<CommandResult> {
        let queue = self.reapers.own();
        // Stalled commands go first.
        if !self.stalled.is_empty() && self.stalled.len_of(queue) > 0 {
            self.stall_or_fail(now, queue, slot);
            return None;
        }
        match self.offer(now, queue, slot) {
            Submitted::Done(Ok(Output::Done)) => Some(Ok(Output::Done)),
            Submitted::Done(result) => Some(result),
            Submitted::Accepted => None,
            Submitted::Busy => {
                self.stall_or_fail(now, queue, slot);
                None
            }
        }
    }

    /// Submits the command in `slot` to the device, which may refuse it.
    #[inline(always)]
    pub(super) fn offer(&self, now: Nanos, queue: usize, slot: &mut Option<Context>) -> Submitted {
        if let Some(Context(ContextKind::One(p))) = slot
            && p.stage == RequestStage::ZeroesAsWrites
        {
            p.awaited = false;
            *slot = Some(self.terms.with_zeroes(take_one(slot)));
        }
        let context = slot.as_mut().expect("the caller has a command to issue");
        let command = self.terms.command(context);
        let submitted = match &mut context.0 {
            ContextKind::One(p) if p.awaited => self.offer_awaited(now, queue, &command, slot),
            _ => self.device.submit(now, queue, &command, slot),
        };
        debug_assert_eq!(
            slot.is_none(),
            matches!(submitted, Submitted::Accepted),
            "a device keeps the context of a command if and only if it accepts it"
        );
        // Rebuilt instead of copied if it has no payload: a copy would read in one load what was
        // just written in several stores, which stalls the processor.
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

    /// Submits the first command of a request for which the calling thread waits. Further commands
    /// may be issued by another thread.
    #[cold]
    fn offer_awaited(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        slot: &mut Option<Context>,
    ) -> Submitted {
        if let Some(Context(ContextKind::One(p))) = slot {
            p.awaited = false;
        }
        self.device.submit_awaited(now, queue, command, slot)
    }

    /// Stalls a command refused by a full queue, or fails it if its request is `nowait`.
    #[cold]
    pub(super) fn stall_or_fail(&self, now: Nanos, queue: usize, slot: &mut Option<Context>) {
        match slot.take().expect("a command that was turned away has its context").0 {
            ContextKind::One(mut p) if p.nowait && p.done == 0 && p.stage == RequestStage::Main => {
                let mut turn = Turn::default();
                // Management requests have lost `nowait` by now, so a plugged request is a write.
                if std::mem::take(&mut p.plugged) {
                    let zone = self.terms.info.geometry.zone_of(p.sector);
                    self.apply_event(now, zone, PlugEvent::Withdrawn(p.sectors), &mut turn);
                }
                turn.end(p, Err(RequestError::WouldWait));
                turn.notify(self);
            }
            mut kind => {
                if let ContextKind::One(p) = &mut kind {
                    p.awaited = false;
                }
                self.stalled.push(&self.terms, now, queue, Context(kind));
                // The queue may have drained meanwhile, in a poll that did not see this command.
                self.alarm.ring();
            }
        }
    }
}
