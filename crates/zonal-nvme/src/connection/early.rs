//! Commands that are ended early, by an Abort (Base 5.1.1) or because their queue is deleted (Base
//! 6.4).
//!
//! Commands waiting for memory, for their turn among the writes, or in the volume end at once and
//! are not executed later. Commands at the device complete normally, and the Abort reports that. A
//! command with requested data also ends at once; its slot stays in use until the host has sent the
//! data, which is discarded.

use super::{CommandStage, Connection};
use crate::status::Status;
use crate::wire::admin;
use zonal_core::{DeviceError, Nanos, RequestError};
use zonal_io::volume::Withdrawal;

/// Early end of a command.
pub(super) struct EarlyEnd {
    /// Status for the host.
    pub(super) status: Status,
    /// Command identifiers of the Aborts on the admin queue.
    by: Vec<u16>,
    /// Keeps the volume from issuing requests of the command that it encounters later.
    pub(super) withdrawal: Option<Withdrawal>,
}

impl EarlyEnd {
    /// True if `error` is the result of such a cancellation.
    pub(super) fn is_reason_of(error: &RequestError) -> bool {
        matches!(error, RequestError::Cancelled | RequestError::InPart { error: DeviceError::Aborted, .. })
    }
}

impl Connection {
    /// Processes new Aborts, and answers those that are done. Returns true if there was any.
    pub(super) fn poll_aborts(&mut self, now: Nanos) -> bool {
        let Some(queue) = &self.queue else { return false };
        let qid = queue.qid();
        if qid > 0 && !queue.controller().has_aborts() {
            return false;
        }
        let controller = queue.controller().clone();
        let requests = controller.aborts_of(qid);
        let mut is_busy = !requests.is_empty();
        for request in requests {
            match self.find(request.cid) {
                Some(slot) => self.abort(now, slot, request.by),
                None => self.answer_abort(request.by, false),
            }
        }
        while qid == 0
            && let Some((cid, result)) = controller.next_abort()
        {
            is_busy = true;
            if let Some(slot) = self.find_waiting(cid, admin::ABORT) {
                self.finish(now, slot, Ok(result));
            }
        }
        is_busy
    }

    /// Slot of the command with this identifier.
    pub(super) fn find(&self, cid: u16) -> Option<u16> {
        let is_it = |command: &super::Command| {
            command.sqe.cid.get() == cid && !matches!(command.stage, CommandStage::Discarding(_))
        };
        let slot = self.commands.iter().position(|command| command.as_ref().is_some_and(|c| is_it(c)))?;
        Some(slot as u16)
    }

    /// Slot of the submitted command with this identifier and opcode. The host may have reused the
    /// identifier for a command with data still arriving.
    pub(super) fn find_waiting(&self, cid: u16, opcode: u8) -> Option<u16> {
        let is_it = |command: &super::Command| {
            let is_waiting = command.stage == CommandStage::Submitted;
            is_waiting && command.sqe.cid.get() == cid && command.sqe.opcode == opcode
        };
        let slot = self.commands.iter().position(|command| command.as_ref().is_some_and(|c| is_it(c)))?;
        Some(slot as u16)
    }

    fn abort(&mut self, now: Nanos, slot: u16, by: u16) {
        let status = Status::ABORT_REQUESTED;
        let new = || EarlyEnd { status, by: Vec::new(), withdrawal: None };
        self.command(slot).early.get_or_insert_with(new).by.push(by);
        let is_submitted = self.command(slot).stage == CommandStage::Submitted;
        match (is_submitted, self.is_io()) {
            (false, _) => self.end_early(now, slot, status),
            (true, true) => self.cancel_requests(now, slot),
            (true, false) => self.abort_admin(now, slot, by),
        }
    }

    /// Aborts an admin command. Of those in progress, only event requests can be aborted.
    fn abort_admin(&mut self, now: Nanos, slot: u16, by: u16) {
        let cid = self.command(slot).sqe.cid.get();
        let is_withdrawn =
            self.queue.as_ref().is_some_and(|queue| queue.controller().withdraw_event_request(cid));
        if is_withdrawn {
            return self.finish(now, slot, Err(Status::ABORT_REQUESTED));
        }
        self.command(slot).early = None;
        self.answer_abort(by, false);
    }

    /// Cancels the requests of a command in the volume. They complete as usual.
    fn cancel_requests(&mut self, now: Nanos, slot: u16) {
        let place = usize::from(self.command(slot).place);
        let Some(inbox) = &self.inboxes[place] else { return };
        let withdrawal = self.target.volume().cancel_request(now, inbox.channel(), slot.into());
        if let Some(early) = &mut self.command(slot).early {
            early.withdrawal = Some(withdrawal);
        }
    }

    /// Ends a command that is not in the volume.
    fn end_early(&mut self, now: Nanos, slot: u16, status: Status) {
        match self.command(slot).stage {
            // Ends when its capsule is complete.
            CommandStage::Arriving => self.command(slot).status = status,
            CommandStage::WaitingForMemory => {
                self.waiting_for_memory.retain(|other| *other != slot);
                self.finish(now, slot, Err(status));
            }
            CommandStage::Receiving(_) | CommandStage::Ready => self.finish(now, slot, Err(status)),
            CommandStage::Submitted | CommandStage::Discarding(_) => {}
        }
    }

    /// Reports the result of an Abort to the admin queue, possibly on another thread.
    fn answer_abort(&mut self, by: u16, was_aborted: bool) {
        if let Some(queue) = &self.queue {
            queue.controller().end_abort(by, was_aborted);
        }
        self.needs_wake_others = true;
    }

    /// Answers the Aborts of a command that has completed.
    pub(super) fn complete_aborts(&mut self, early: EarlyEnd, status: Status) {
        for by in early.by {
            self.answer_abort(by, status == early.status);
        }
    }

    /// Deletes this queue (Base 6.4): ends waiting commands, then the Disconnect in `slot`.
    pub(super) fn begin_disconnect(&mut self, now: Nanos, slot: u16) {
        self.command(slot).stage = CommandStage::Submitted;
        self.disconnect = Some(slot);
        self.cancel(now);
        let others: Vec<u16> = (0..self.commands.len() as u16).filter(|other| *other != slot).collect();
        for other in others {
            let Some(command) = &mut self.commands[usize::from(other)] else { continue };
            let status = Status::ABORTED_QUEUE_DELETED;
            command.early.get_or_insert(EarlyEnd { status, by: Vec::new(), withdrawal: None });
            self.end_early(now, other, status);
        }
    }

    /// Completes a Disconnect once no other command is left, and ends the connection.
    pub(super) fn end_disconnect(&mut self, now: Nanos) {
        if let Some(slot) = self.disconnect
            && self.in_flight == 1
        {
            self.disconnect = None;
            self.finish(now, slot, Ok(0));
            self.is_over = true;
        }
    }

    /// True if this connection made work for connections on other threads. Cleared by the call.
    pub fn take_wake_others(&mut self) -> bool {
        std::mem::take(&mut self.needs_wake_others)
    }
}
