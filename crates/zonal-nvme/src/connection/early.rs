//! Commands that end before their time: by an Abort (Base 5.1.1) or because their queue is deleted (Base 6.4).
//!
//! What waits for memory, for its place among the writes, or in the volume ends at once, and is not executed later. What is at the
//! device ends as it does there, and the Abort says so. A command whose data the host was asked for ends at once as well; its slot
//! stays until the host has sent these data, which are discarded.

use super::{CommandStage, Connection};
use crate::status::Status;
use crate::wire::admin;
use zonal_core::{DeviceError, Nanos, RequestError};
use zonal_io::volume::Withdrawal;

/// Why a command ends early.
pub(super) struct EarlyEnd {
    /// What it then answers.
    pub(super) status: Status,
    /// The Aborts that have asked for it, by their numbers on the admin queue.
    by: Vec<u16>,
    /// Keeps what the volume comes across later from going out.
    pub(super) withdrawal: Option<Withdrawal>,
}

impl EarlyEnd {
    /// Whether a request has ended like this for that reason.
    pub(super) fn is_reason_of(error: &RequestError) -> bool {
        matches!(error, RequestError::Cancelled | RequestError::InPart { error: DeviceError::Aborted, .. })
    }
}

impl Connection {
    /// Looks for commands to abort, and for Aborts to answer. Returns whether there was something.
    pub(super) fn look_at_aborts(&mut self, now: Nanos) -> bool {
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

    /// The command with this number of the host's.
    pub(super) fn find(&self, cid: u16) -> Option<u16> {
        let is_it = |command: &super::Command| {
            command.sqe.cid.get() == cid && !matches!(command.stage, CommandStage::Discarding(_))
        };
        let slot = self.commands.iter().position(|command| command.as_ref().is_some_and(|c| is_it(c)))?;
        Some(slot as u16)
    }

    /// The command with this number and opcode that the controller has. A host may have given its number to another one as well,
    /// whose data are perhaps still coming.
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

    /// Of the admin queue's commands that wait only requests for events can be aborted.
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

    /// Cancels what the volume has of a command. Its end comes as others do.
    fn cancel_requests(&mut self, now: Nanos, slot: u16) {
        let place = usize::from(self.command(slot).place);
        let Some(inbox) = &self.inboxes[place] else { return };
        let withdrawal = self.target.volume().cancel_request(now, inbox.channel(), slot.into());
        if let Some(early) = &mut self.command(slot).early {
            early.withdrawal = Some(withdrawal);
        }
    }

    /// Ends a command that the volume does not have.
    fn end_early(&mut self, now: Nanos, slot: u16, status: Status) {
        match self.command(slot).stage {
            // Its capsule is still coming, and after that it ends.
            CommandStage::Arriving => self.command(slot).status = status,
            CommandStage::WaitingForMemory => {
                self.waiting_for_memory.retain(|other| *other != slot);
                self.finish(now, slot, Err(status));
            }
            CommandStage::Receiving(_) | CommandStage::Ready => self.finish(now, slot, Err(status)),
            CommandStage::Submitted | CommandStage::Discarding(_) => {}
        }
    }

    /// Tells the admin queue, perhaps on another thread, how an Abort has ended.
    fn answer_abort(&mut self, by: u16, was_aborted: bool) {
        if let Some(queue) = &self.queue {
            queue.controller().end_abort(by, was_aborted);
        }
        self.wakes_others = true;
    }

    /// A command has ended: those that wanted that hear of it.
    pub(super) fn tell_aborts(&mut self, early: EarlyEnd, status: Status) {
        for by in early.by {
            self.answer_abort(by, status == early.status);
        }
    }

    /// Deletes this queue (Base 6.4): what waits ends, and then the command in `slot`.
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

    /// Ends a Disconnect once no other command is left, and the connection with it.
    pub(super) fn end_disconnect(&mut self, now: Nanos) {
        if let Some(slot) = self.disconnect
            && self.in_flight == 1
        {
            self.disconnect = None;
            self.finish(now, slot, Ok(0));
            self.is_over = true;
        }
    }

    /// Whether connections of other threads have something to do because of this one. Asked once.
    pub fn takes_wake(&mut self) -> bool {
        std::mem::take(&mut self.wakes_others)
    }
}
