//! Write left unanswered by a killed process: reads the contents of its zone, then writes the
//! missing part.

use super::{Memory, Step};
use crate::status::Failure;
use std::mem;
use zonal_io::buffer::IoBuf;
use zonal_io::volume::{Completion, ReissuedWrite, Remaining, Request, copied_from};

/// Progress of a reissued write.
pub(crate) struct ReissuedWork {
    write: ReissuedWrite,
    step: ReissuedStep,
}

/// Request in flight.
enum ReissuedStep {
    None,
    Read,
    /// The original write, with the initiator's memory.
    AsAsked,
    /// The rest of the write, or a flush.
    Rest,
}

impl ReissuedWork {
    pub(crate) fn new(write: ReissuedWrite) -> ReissuedWork {
        ReissuedWork { write, step: ReissuedStep::None }
    }

    pub(super) fn step(&mut self, memory: &mut Memory, end: Option<Completion>) -> Step {
        let moved = self.write.bytes();
        let Some(Completion { result, buf, .. }) = end else {
            self.step = ReissuedStep::Read;
            return Step::Ask(self.write.read(IoBuf::zeroed(self.write.held_len())));
        };
        match self.step {
            ReissuedStep::None | ReissuedStep::Read => {
                let held = buf.into_buf();
                let remaining = self.write.remaining(result.ok().map(|_| &held[..]), &memory.data_out);
                match self.rest(remaining, memory) {
                    Some(request) => Step::Ask(request),
                    None => Step::End(Ok(moved)),
                }
            }
            ReissuedStep::AsAsked => {
                memory.data_out = buf;
                Step::End(result.map(|_| moved).map_err(|error| Failure::of_request(&error, false)))
            }
            ReissuedStep::Rest => {
                Step::End(result.map(|_| moved).map_err(|error| Failure::of_request(&error, false).in_part()))
            }
        }
    }

    /// Recovers the initiator's memory from a request that will not be submitted.
    pub(super) fn abandon(&self, memory: &mut Memory, request: Request) {
        if matches!(self.step, ReissuedStep::AsAsked) {
            memory.data_out = request.buf;
        }
    }

    fn rest(&mut self, remaining: Remaining, memory: &mut Memory) -> Option<Request> {
        self.step = ReissuedStep::Rest;
        match remaining {
            Remaining::Nothing => None,
            Remaining::Flush => Some(Request::flush()),
            Remaining::Everything => {
                self.step = ReissuedStep::AsAsked;
                Some(self.write.whole(mem::take(&mut memory.data_out)))
            }
            Remaining::Rest { done, .. } => self.write.rest(copied_from(&memory.data_out, done)),
        }
    }
}
