//! Start and end of a request that travels as a command's context, and the wishes of its caller.

use super::channel::{Counted, deliver};
use super::request::Request;
use crate::buffer::IoBufs;
use crate::device::Output;
use crate::pending::SplitState;
pub(super) use crate::pending::{Merged, Owner, PendingRequest, ReadBack, RequestStage, Split};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::mem;
use zonal_core::budget::WriterClass;
use zonal_core::{RequestError, Sector};

impl PendingRequest {
    /// Inlined into the caller, so that the request is built in place: reading in one load what was
    /// just written in several stalls the processor.
    #[inline(always)]
    pub(super) fn new(owner: Owner, request: Request) -> Box<PendingRequest> {
        let mut p = PendingRequest::unused();
        debug_assert!(
            matches!(p.owner, Owner::Unused) && p.buf.is_empty(),
            "an unused request holds nothing"
        );
        // Both old values are empty, so a check for dropping them is skipped.
        mem::forget(mem::replace(&mut p.owner, owner));
        mem::forget(mem::replace(&mut p.buf, request.buf));
        p.token = request.token;
        p.sector = request.sector;
        p.sectors = request.sectors;
        p.done = 0;
        p.op = request.op;
        p.stage = RequestStage::Main;
        p.rounds = 0;
        p.plugged = false;
        p.fua = request.fua;
        p.nowait = request.nowait;
        p.awaited = request.awaited;
        p
    }

    /// True if an error of this request is the first failure of its caller's request; parts share
    /// one.
    #[cold]
    pub(super) fn is_first_to_fail(&self) -> bool {
        match &self.owner {
            Owner::Split(split) => !split.has_failed.swap(true, Ordering::Relaxed),
            Owner::Volume => false,
            _ => true,
        }
    }

    /// True if the request or its channel was cancelled, so it issues no more commands.
    #[cold]
    pub(super) fn is_cancelled(&self) -> bool {
        match &self.owner {
            Owner::Channel(channel) => channel.is_cancelled(self.token),
            Owner::Split(split) => split.channel.is_some_and(|channel| channel.is_cancelled(split.token)),
            Owner::Volume | Owner::Unused => false,
        }
    }

    /// True if the caller sees the zones as a drive, on which writes never wait for a slot.
    #[cold]
    pub(super) fn is_of_drive(&self) -> bool {
        match &self.owner {
            Owner::Channel(channel) => channel.is_of_drive(),
            Owner::Split(split) => split.channel.is_some_and(|channel| channel.is_of_drive()),
            Owner::Volume | Owner::Unused => false,
        }
    }

    /// Class of the caller.
    #[cold]
    pub(super) fn class(&self) -> WriterClass {
        match &self.owner {
            Owner::Channel(channel) => channel.class(),
            Owner::Split(split) => split.class,
            Owner::Volume | Owner::Unused => WriterClass::default(),
        }
    }

    /// Ends the request and notifies the caller, unless other parts of a split request are
    /// unfinished.
    #[inline(always)]
    pub(super) fn end(mut self: Box<PendingRequest>, result: Result<Output, RequestError>, counted: Counted) {
        if self.tag.is_some() {
            return self.end_with_tag(result);
        }
        let buf = mem::take(&mut self.buf);
        let (token, sector, sectors) = (self.token, self.sector, self.sectors);
        let owner = mem::take(&mut self.owner);
        // Before the completion function runs, so that its next request can reuse the memory.
        self.recycle();
        match owner {
            Owner::Channel(channel) => deliver(channel, token, result, buf, counted),
            Owner::Split(split) => split.end_part(sector, sectors, result),
            Owner::Volume => {}
            Owner::Unused => unreachable!("a request has an owner until it ends"),
        }
    }
}

impl PendingRequest {
    /// Ends a request that went through the scheduler. Its `submit` has counted it, whichever
    /// thread ends it.
    #[cold]
    #[inline(never)]
    fn end_with_tag(mut self: Box<PendingRequest>, result: Result<Output, RequestError>) {
        if let Some(scheduler) = self.tag.take() {
            let locked = std::mem::take(&mut self.locks_zone);
            scheduler.ended(locked.then_some(self.sector));
        }
        self.end(result, Counted::Yes);
    }
}

impl Split {
    pub(super) fn new(parts: u32, whole: Box<PendingRequest>, buf: IoBufs) -> Split {
        let (class, token) = (whole.class(), whole.token);
        let channel = match &whole.owner {
            Owner::Channel(channel) => Some(*channel),
            _ => None,
        };
        let whole = Some((whole, buf));
        let state =
            Mutex::new(SplitState { parts_left: parts, written: 0, is_uncertain: false, error: None, whole });
        Split { state, has_failed: AtomicBool::new(false), class, channel, token }
    }

    #[cold]
    fn end_part(&self, at: Sector, sectors: u32, result: Result<Output, RequestError>) {
        let mut state = self.state.lock();
        match result {
            Ok(_) => state.written += sectors,
            Err(error) => {
                state.written += error.sectors_written();
                state.is_uncertain |= error.is_uncertain();
                if state.error.is_none_or(|(lowest, _)| at < lowest) {
                    state.error = Some((at, error));
                }
            }
        }
        state.parts_left -= 1;
        if state.parts_left > 0 {
            return;
        }
        let (mut whole, buf) = state.whole.take().expect("the last part ends once");
        let result = match state.error {
            None => Ok(Output::Done),
            Some((sector, error)) if whole.op.is_write() && (state.written > 0 || state.is_uncertain) => {
                Err(RequestError::InPart { sector, written: state.written, error: error.as_device() })
            }
            Some((_, error)) => Err(error),
        };
        drop(state);
        whole.buf = buf;
        whole.end(result, Counted::Yes);
    }
}
