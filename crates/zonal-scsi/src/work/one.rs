//! Command consisting of one request, with the transport's memory.

use super::{Memory, Step, Work};
use crate::status::Failure;
use std::mem;
use zonal_io::volume::{Completion, Request};

/// Memory used by the request, and number of bytes counted as transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// Read into the initiator's buffer.
    In(u32),
    /// Write of the initiator's data.
    Out(u32),
    /// Data consumed by the disk itself; the request has none.
    Kept(u32),
    Nothing,
}

/// Progress of a single request.
pub(crate) struct OneRequest {
    /// Request until it is submitted.
    request: Option<Request>,
    moved: Moved,
    is_read: bool,
}

impl From<OneRequest> for Work {
    fn from(work: OneRequest) -> Work {
        Work::One(work)
    }
}

impl OneRequest {
    /// Creates the work from a request without memory.
    pub(crate) fn new(request: Request, moved: Moved) -> OneRequest {
        OneRequest { is_read: request.op.is_read(), request: Some(request), moved }
    }

    pub(super) fn step(&mut self, memory: &mut Memory, end: Option<Completion>) -> Step {
        if let Some(mut request) = self.request.take() {
            match self.moved {
                Moved::In(_) => request.buf = mem::take(&mut memory.data_in),
                Moved::Out(_) => request.buf = mem::take(&mut memory.data_out),
                Moved::Kept(_) | Moved::Nothing => {}
            }
            return Step::Ask(request);
        }
        let Some(Completion { result, buf, .. }) = end else { return Step::fail(Failure::Aborted) };
        let bytes = match self.moved {
            Moved::In(bytes) => {
                memory.data_in = buf;
                bytes
            }
            Moved::Out(bytes) => {
                memory.data_out = buf;
                bytes
            }
            Moved::Kept(bytes) => bytes,
            Moved::Nothing => 0,
        };
        Step::End(result.map(|_| bytes).map_err(|error| Failure::of_request(&error, self.is_read)))
    }
}
