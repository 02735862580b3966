//! Abort of single commands (Base 5.1.1). The admin queue asks, and the queue that has the command ends it, perhaps on another
//! thread. An Abort is answered after its command has ended, whichever way.

use super::controller::Controller;
use crate::status::Status;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Aborts that a controller takes at once (Base 5.1.13.2.1, ACL).
pub(super) const ABORTS: usize = 4;

/// What an Abort answers if its command was not aborted: bit 0 of dword 0 (Base 5.1.1).
pub(super) const NOT_ABORTED: u64 = 1;

/// A command that is to be aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AbortRequest {
    /// Number of the Abort on the admin queue.
    pub(crate) by: u16,
    /// Number of the command on its queue.
    pub(crate) cid: u16,
}

#[derive(Default)]
pub(super) struct Aborts {
    /// With the queue of the command, and whether that queue knows of it.
    asked: Vec<(u16, AbortRequest, bool)>,
    ended: VecDeque<(u16, u64)>,
}

impl Controller {
    /// Notes an Abort of command `cid` of `queue`, which is connected.
    pub(super) fn ask_to_abort(&self, queue: u16, cid: u16, by: u16) -> Result<(), Status> {
        let mut aborts = self.aborts.lock();
        if aborts.asked.len() + aborts.ended.len() >= ABORTS {
            return Err(Status::ABORT_LIMIT);
        }
        aborts.asked.push((queue, AbortRequest { by, cid }, false));
        self.has_aborts.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether some queue has an Abort that it does not know of.
    pub(crate) fn has_aborts(&self) -> bool {
        self.has_aborts.load(Ordering::Acquire)
    }

    /// What `queue` is to abort and did not know of.
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

    /// The command of the Abort `by` has ended.
    pub(crate) fn end_abort(&self, by: u16, was_aborted: bool) {
        let mut aborts = self.aborts.lock();
        if let Some(at) = aborts.asked.iter().position(|(_, request, _)| request.by == by) {
            aborts.asked.remove(at);
            aborts.ended.push_back((by, if was_aborted { 0 } else { NOT_ABORTED }));
        }
    }

    /// An Abort that is to be answered, and with what.
    pub(crate) fn next_abort(&self) -> Option<(u16, u64)> {
        self.aborts.lock().ended.pop_front()
    }

    /// A queue is gone, and its commands with it.
    pub(super) fn end_aborts_of(&self, queue: u16) {
        let mut aborts = self.aborts.lock();
        let Aborts { asked, ended } = &mut *aborts;
        let gone = asked.extract_if(.., |(of, _, _)| *of == queue);
        ended.extend(gone.map(|(_, request, _)| (request.by, NOT_ABORTED)));
    }
}
