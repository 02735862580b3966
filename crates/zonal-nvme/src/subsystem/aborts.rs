//! Abort of single commands (Base 5.1.1). The Abort arrives on the admin queue; the queue with the
//! command, possibly on another thread, ends the command. The Abort is answered after that, whether
//! or not the command was aborted.

use super::controller::Controller;
use crate::status::Status;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Abort commands outstanding per controller (Base 5.1.13.2.1, ACL).
pub(super) const ABORTS: usize = 4;

/// Bit 0 of dword 0 of the completion: the command was not aborted (Base 5.1.1).
pub(super) const NOT_ABORTED: u64 = 1;

/// Request to abort a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AbortRequest {
    /// Command identifier of the Abort on the admin queue.
    pub(crate) by: u16,
    /// Command identifier of the target command on its queue.
    pub(crate) cid: u16,
}

#[derive(Default)]
pub(super) struct Aborts {
    /// Queue of the command, the request, and whether the queue has taken it.
    asked: Vec<(u16, AbortRequest, bool)>,
    ended: VecDeque<(u16, u64)>,
}

impl Controller {
    /// Records an Abort of command `cid` on the connected queue `queue`.
    pub(super) fn ask_to_abort(&self, queue: u16, cid: u16, by: u16) -> Result<(), Status> {
        let mut aborts = self.aborts.lock();
        if aborts.asked.len() + aborts.ended.len() >= ABORTS {
            return Err(Status::ABORT_LIMIT);
        }
        aborts.asked.push((queue, AbortRequest { by, cid }, false));
        self.has_aborts.store(true, Ordering::Release);
        Ok(())
    }

    /// True if an Abort waits to be taken by its queue.
    pub(crate) fn has_aborts(&self) -> bool {
        self.has_aborts.load(Ordering::Acquire)
    }

    /// Takes the new Aborts for `queue`.
    pub(crate) fn aborts_of(&self, queue: u16) -> Vec<AbortRequest> {
        if !self.has_aborts() {
            return Vec::new();
        }
        let mut aborts = self.aborts.lock();
        let mut found = Vec::new();
        for (of, request, is_known) in &mut aborts.asked {
            if *of == queue && !std::mem::replace(is_known, true) {
                found.push(*request);
            }
        }
        let has_more = aborts.asked.iter().any(|(_, _, is_known)| !is_known);
        self.has_aborts.store(has_more, Ordering::Release);
        found
    }

    /// Records the end of the command that Abort `by` refers to.
    pub(crate) fn end_abort(&self, by: u16, was_aborted: bool) {
        let mut aborts = self.aborts.lock();
        if let Some(at) = aborts.asked.iter().position(|(_, request, _)| request.by == by) {
            aborts.asked.remove(at);
            aborts.ended.push_back((by, if was_aborted { 0 } else { NOT_ABORTED }));
        }
    }

    /// Next Abort to answer, with dword 0 of its completion.
    pub(crate) fn next_abort(&self) -> Option<(u16, u64)> {
        self.aborts.lock().ended.pop_front()
    }

    /// Ends all Aborts for a queue that is gone.
    pub(super) fn end_aborts_of(&self, queue: u16) {
        let mut aborts = self.aborts.lock();
        let Aborts { asked, ended } = &mut *aborts;
        let gone = asked.extract_if(.., |(of, _, _)| *of == queue);
        ended.extend(gone.map(|(_, request, _)| (request.by, NOT_ABORTED)));
    }
}
