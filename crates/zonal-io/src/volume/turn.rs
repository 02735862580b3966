//! Processing of completions, and the next command of a zone.
//!
//! All consequences of a completion are processed in a loop over a small stack of [`Work`], never
//! by recursion: a command that completes inline is pushed onto the stack. A turn issues at most
//! [`TURN_MAX`] commands. A zone that could continue after that is put on the ready list for the
//! next poll, so that a thread does not work for others without end.

use super::Volume;
use super::cancel::end_cancelled;
use super::channel::Counted;
use super::completion::{FailureAction, NextStep, failure_action};
use super::counters::Counter;
use super::event::PlugEvent;
use super::handover;
use super::mode::WriteMode;
use super::pending::{Merged, PendingRequest, RequestStage};
use super::recovery::Lost;
use super::retry::is_retried;
use super::submit::{one, take_one};
use crate::device::{CommandResult, Context, ContextKind, Output};
use crate::sync::local;
use arrayvec::ArrayVec;
use std::cell::Cell;
use zonal_core::{DeviceError, Nanos, Op, RequestError, ZoneIndex};

/// Depth of the work stack: a completion leaves at most a flush and one next command of its zone.
const WORK_MAX: usize = 4;

pub(super) type Stack = ArrayVec<Work, WORK_MAX>;

/// Item of work for this turn.
pub(super) enum Work {
    /// A command has completed.
    Finished(Context, CommandResult),
    /// A zone may be able to continue.
    Kick(ZoneIndex),
    /// Like `Kick`, for the zone that has received the token.
    Turn(ZoneIndex),
    /// A zone's write has reached the device, and others wait for that.
    Arrived(ZoneIndex),
}

/// Effects of one turn: the number of commands issued, and the ended requests in order.
///
/// Callers are notified only after the zone's next command has been issued.
#[derive(Default)]
pub(super) struct Turn {
    ended: Vec<(Box<PendingRequest>, Result<Output, RequestError>)>,
    pub(super) issued: usize,
    /// Polls have to continue with the rest.
    needs_poll: bool,
    /// The event of this step has lost a write permanently.
    has_lost_write: bool,
}

impl Turn {
    /// Records the end of a request.
    pub(super) fn end(&mut self, pending: Box<PendingRequest>, result: Result<Output, RequestError>) {
        self.ended.push((pending, result));
    }

    /// Records that a write is lost permanently.
    pub(super) fn loses_write(&mut self) {
        self.has_lost_write = true;
    }

    /// Returns true if a write was lost since the last call.
    pub(super) fn has_lost_write(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_write)
    }

    /// Requests a wakeup of polling threads at the end of the turn, when no shard lock is held.
    pub(super) fn request_poll(&mut self) {
        self.needs_poll = true;
    }

    /// Notifies callers and wakes pollers; returns true if commands were issued.
    #[inline]
    pub(super) fn notify(self, volume: &Volume) -> bool {
        let has_issued = self.issued > 0;
        // Most turns end only the request that started them.
        match self.ended.is_empty() && !self.needs_poll {
            true => std::mem::forget(self),
            false => self.notify_all(volume),
        }
        has_issued
    }

    fn notify_all(self, volume: &Volume) {
        if self.needs_poll {
            volume.alarm.ring();
        }
        for (pending, result) in self.ended {
            if result.is_err() && pending.is_first_to_fail() {
                volume.counters.line().add(Counter::Failed, 1);
            }
            pending.end(result, Counted::Yes);
        }
    }
}

/// Ends a request whose command succeeded without output.
#[inline]
fn end_done(p: Box<PendingRequest>) {
    if p.op == Op::Append {
        let sector = p.sector;
        p.end(Ok(Output::Appended(sector)), Counted::Yes);
    } else {
        p.end(Ok(Output::Done), Counted::Yes);
    }
}

local! {
    /// Memory of the last merged command, for reuse.
    static SPARE: Cell<Option<Box<Merged>>> = const { Cell::new(None) };
}

impl Volume {
    /// Processes a completed command, with its context in `slot`, and all immediate consequences.
    /// Returns true if more commands were issued, which may already have completed.
    #[inline]
    pub(super) fn completed(
        &self,
        now: Nanos,
        slot: &mut Option<Context>,
        result: &mut CommandResult,
    ) -> bool {
        // Matched in place: only unusual results are worth a copy.
        match (slot.as_ref().map(|c| &c.0), &*result) {
            (Some(ContextKind::One(p)), Ok(Output::Done))
                if self.terms.ends_with_this_command(p) && !p.is_management() =>
            {
                let mut turn = Turn::default();
                if p.plugged {
                    let zone = self.terms.info.geometry.zone_of(p.sector);
                    // The next write of a chain has its position and is issued without the lock.
                    let behind = one(slot).behind.take();
                    if let Some(behind) = behind {
                        let mut stack = Stack::new();
                        self.follow(now, zone, behind, &mut turn, &mut stack);
                        self.empty(now, &mut stack, &mut turn);
                    } else {
                        self.write_ended(now, zone, &mut turn);
                    }
                }
                end_done(take_one(slot));
                turn.notify(self)
            }
            // A native append: its position is from the device. Never part of a chain.
            (Some(ContextKind::One(p)), Ok(Output::Appended(at)))
                if p.plugged && self.terms.ends_with_this_command(p) =>
            {
                let (zone, at) = (self.terms.info.geometry.zone_of(p.sector), *at);
                let mut turn = Turn::default();
                self.write_ended(now, zone, &mut turn);
                take_one(slot).end(Ok(Output::Appended(at)), Counted::Yes);
                turn.notify(self)
            }
            (Some(ContextKind::Merged(m)), Ok(_)) if m.parts.len() > 1 => {
                let zone = self.terms.info.geometry.zone_of(m.parts[0].sector);
                let mut turn = Turn::default();
                self.write_ended(now, zone, &mut turn);
                if let Some(Context(ContextKind::Merged(mut m))) = slot.take() {
                    m.parts.drain(..).for_each(|p| p.end(Ok(Output::Done), Counted::Yes));
                    m.segments.clear();
                    SPARE.set(Some(m));
                }
                turn.notify(self)
            }
            _ => {
                let context = slot.take().expect("a finished command has its context");
                let result = std::mem::replace(result, Ok(Output::Done));
                self.run(now, Work::Finished(context, result))
            }
        }
    }

    /// Handles a successful write that is not followed in a chain. In mode `qd1` the token has to
    /// be passed on even if no write of the zone waits.
    #[inline(always)]
    fn write_ended(&self, now: Nanos, zone: ZoneIndex, turn: &mut Turn) {
        if self.terms.policy.is(WriteMode::Qd1) || !self.plugs.complete_unqueued(zone) {
            self.apply_event(now, zone, PlugEvent::Completed, turn);
        }
    }

    /// Processes `work` and all immediate consequences.
    pub(super) fn run(&self, now: Nanos, work: Work) -> bool {
        let mut turn = Turn::default();
        let mut stack = Stack::new();
        stack.push(work);
        self.empty(now, &mut stack, &mut turn);
        turn.notify(self)
    }

    /// Applies `event` to a zone and processes all consequences. Inlined, since callers pass a
    /// constant event.
    #[inline(always)]
    pub(super) fn apply_event(&self, now: Nanos, zone: ZoneIndex, event: PlugEvent, turn: &mut Turn) {
        let mut stack = Stack::new();
        self.serve(now, zone, event, turn, &mut stack);
        self.empty(now, &mut stack, turn);
    }

    #[inline]
    pub(super) fn empty(&self, now: Nanos, stack: &mut Stack, turn: &mut Turn) {
        while let Some(work) = stack.pop() {
            match work {
                Work::Kick(zone) => self.serve(now, zone, PlugEvent::Kick, turn, stack),
                Work::Turn(zone) => self.serve(now, zone, PlugEvent::Turn, turn, stack),
                Work::Arrived(zone) => self.serve(now, zone, PlugEvent::Arrived, turn, stack),
                Work::Finished(context, result) => self.finished(now, context, result, turn, stack),
            }
        }
    }

    fn finished(
        &self,
        now: Nanos,
        context: Context,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        match context.0 {
            ContextKind::One(pending) => self.finished_one(now, pending, result, turn, stack),
            ContextKind::Merged(merged) => self.finished_merged(now, *merged, result, turn, stack),
            ContextKind::Resync(zone, retries) => {
                if is_retried(retries, &result) {
                    let again = Context(ContextKind::Resync(zone, retries + 1));
                    return self.retry_later(now, again, retries + 1, stack);
                }
                self.zone_described(zone, &result);
                self.serve(now, zone, PlugEvent::Resynced(result), turn, stack);
            }
            ContextKind::ReadBack(r) => self.piece_read(now, r, &result, turn, stack),
            ContextKind::Token(token) => handover::leave_answer(token, result),
        }
    }

    fn finished_one(
        &self,
        now: Nanos,
        mut pending: Box<PendingRequest>,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        self.apply_zone_information(&pending, &result);
        match pending.op {
            Op::ResetAll if !pending.plugged => {
                self.finish_reset_all(&result);
                self.recovering.zone_closed();
                return turn.end(pending, result.map_err(RequestError::Device));
            }
            op if op.is_zone_management() && pending.plugged => {
                return self.finished_management(now, pending, result, turn, stack);
            }
            _ => {}
        }
        let output = match result {
            Ok(output) => output,
            Err(e) => return self.failed(now, pending, e, turn, stack),
        };
        match self.terms.next_step(&mut pending, self.channels.is_cancelling()) {
            NextStep::Next => self.issue_and_stack(now, &mut Some(Context::one(pending)), stack),
            // The zone's write pointer shows how much was written.
            NextStep::Cancelled if pending.plugged => {
                self.failed(now, pending, DeviceError::Aborted, turn, stack);
            }
            NextStep::Cancelled => end_cancelled(pending, turn),
            NextStep::Flush => {
                self.leave_zone(now, &mut pending, turn, stack);
                pending.stage = RequestStage::FlushBehind;
                if let Output::Appended(sector) = output {
                    pending.sector = sector;
                }
                self.issue_and_stack(now, &mut Some(Context::one(pending)), stack);
            }
            NextStep::End => {
                self.leave_zone(now, &mut pending, turn, stack);
                let output = self.output(&pending, output);
                turn.end(pending, Ok(output).map_err(RequestError::Device));
            }
        }
    }

    /// Applies other information about zones in a command's result.
    fn apply_zone_information(&self, pending: &PendingRequest, result: &CommandResult) {
        match (pending.op, result) {
            (Op::ZoneOffline, Ok(_)) => {
                self.watch.taken_offline(self.terms.info.geometry.zone_of(pending.sector));
            }
            (Op::Report, Ok(Output::Zones(zones))) => self.compare_report(zones),
            // A slot is free: writes that failed for lack of one may be resubmitted.
            (Op::ZoneClose, _) => self.recovering.zone_closed(),
            _ => {}
        }
    }

    /// Releases the plug after the last command of a write and serves the next write.
    fn leave_zone(&self, now: Nanos, pending: &mut PendingRequest, turn: &mut Turn, stack: &mut Stack) {
        let was_plugged = std::mem::take(&mut pending.plugged);
        let behind = pending.behind.take();
        if was_plugged {
            let zone = self.terms.info.geometry.zone_of(pending.sector);
            match behind {
                Some(next) => self.follow(now, zone, next, turn, stack),
                None => self.serve(now, zone, PlugEvent::Completed, turn, stack),
            }
        }
    }

    fn finished_management(
        &self,
        now: Nanos,
        pending: Box<PendingRequest>,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        let zone = self.terms.info.geometry.zone_of(pending.sector);
        let pointer = match pending.op {
            Op::ZoneReset => 0,
            _ => self.terms.info.geometry.capacity_of(zone),
        };
        if result.is_ok() && self.slots.managed(zone, self.plugs.load(zone), pending.op) {
            turn.request_poll();
        }
        let moves_pointer = matches!(pending.op, Op::ZoneReset | Op::ZoneFinish);
        let event = match result {
            Ok(_) if pending.op == Op::ZoneOffline => PlugEvent::TakenOffline,
            Ok(_) => PlugEvent::Managed(Some(pointer).filter(|_| moves_pointer)),
            // A budget has to find out what the zone holds now.
            Err(e) if e.is_uncertain() || self.slots.are_counted() => PlugEvent::ManagedInDoubt(e),
            Err(_) => PlugEvent::Managed(None),
        };
        self.serve(now, zone, event, turn, stack);
        turn.end(pending, result.map_err(RequestError::Device));
    }

    fn finished_merged(
        &self,
        now: Nanos,
        mut merged: Merged,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        if merged.parts.len() == 1 {
            // Write of zeroes for a single request; its stage determines the next step.
            let pending = merged.parts.remove(0);
            return self.finished_one(now, pending, result, turn, stack);
        }
        let zone = self.terms.info.geometry.zone_of(merged.parts[0].sector);
        if let Err(error) = result {
            let lost = Lost { writes: merged.parts, error };
            return self.serve(now, zone, PlugEvent::Failed(lost), turn, stack);
        }
        self.serve(now, zone, PlugEvent::Completed, turn, stack);
        for part in merged.parts {
            turn.end(part, result.clone().map_err(RequestError::Device));
        }
    }

    fn failed(
        &self,
        now: Nanos,
        mut pending: Box<PendingRequest>,
        error: DeviceError,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        if error == DeviceError::Gone {
            self.device_gone();
        }
        let zone = pending.plugged.then(|| self.terms.info.geometry.zone_of(pending.sector));
        match (failure_action(&mut pending, error, self.channels.is_cancelling()), zone) {
            (FailureAction::Send, Some(zone)) => {
                self.serve(now, zone, PlugEvent::Retry(pending), turn, stack)
            }
            (FailureAction::Send, None) => self.issue_and_stack(now, &mut Some(Context::one(pending)), stack),
            (_, Some(zone)) => {
                let lost = Lost { writes: vec![pending], error };
                self.serve(now, zone, PlugEvent::Failed(lost), turn, stack);
            }
            (FailureAction::Cancelled, None) => end_cancelled(pending, turn),
            (FailureAction::Later(retries), None) => {
                self.retry_later(now, Context::one(pending), retries, stack)
            }
            (FailureAction::End, None)
                if error.may_execute_late() && self.terms.changes_conventional_zone(&pending) =>
            {
                self.end_once_settled(now, pending, turn);
            }
            (FailureAction::End, None) => turn.end(pending, Err(error.into())),
        }
    }

    /// Output of a successful request; for an append, the address, native or emulated.
    #[inline]
    pub(super) fn output(&self, pending: &PendingRequest, output: Output) -> Output {
        match (pending.op, output) {
            (Op::Append, Output::Done) => Output::Appended(pending.sector),
            (_, output) => output,
        }
    }

    /// Applies `event` to a zone and issues its next command, if any.
    #[inline]
    pub(super) fn serve(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        event: PlugEvent,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        let is_turn = matches!(event, PlugEvent::Turn);
        let mut has_token = is_turn || self.terms.policy.is(WriteMode::Qd1) && event.returns_token();
        if matches!(event, PlugEvent::Completed) && self.plugs.complete_unqueued(zone) {
            return self.leave_token(now, zone, has_token, stack);
        }
        if let Some(front) = self.front.as_ref().filter(|_| event.decides()) {
            front.plug(self, zone);
        }
        let mut slot = None;
        self.next_of(now, zone, event, turn, &mut slot, &mut has_token);
        self.leave_token(now, zone, has_token, stack);
        let Some(context) = &slot else { return };
        turn.issued += 1;
        if self.terms.policy.is(WriteMode::Pipelined) {
            return self.issue_and_stack(now, &mut slot, stack);
        }
        let is_append = matches!(&context.0, ContextKind::One(p) if p.op == Op::Append);
        if let Some(result) = self.issue(now, &mut slot) {
            // Its completion serves the next write, so the stack stays flat however long the chain
            // is.
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        } else if is_append && self.terms.policy.appends_in_flight_max() > 0 {
            // Several appends may be in flight, so look again. Otherwise wait for the completion.
            stack.push(Work::Kick(zone));
        }
    }

    /// Passes on the token of `zone` if this step still has it.
    #[inline]
    fn leave_token(&self, now: Nanos, zone: ZoneIndex, has_token: bool, stack: &mut Stack) {
        if has_token && let Some(zone) = self.tokens.of(zone).pass(now) {
            stack.push(Work::Turn(zone));
        }
    }

    /// Builds one command of `sectors` at offset `at` from contiguous writes.
    pub(super) fn merge(
        &self,
        writes: impl Iterator<Item = Box<PendingRequest>>,
        mut at: u32,
        sectors: u32,
    ) -> Context {
        let mut merged = SPARE.take().unwrap_or_default();
        merged.sectors = sectors;
        for mut pending in writes {
            pending.plugged = true;
            pending.at = at;
            at += pending.sectors;
            pending.push_segments(&mut merged.segments);
            merged.parts.push(pending);
        }
        self.counters.line().add(Counter::Merged, merged.parts.len() as u64 - 1);
        Context(ContextKind::Merged(merged))
    }
}
