//! A command that is one request of the volume, whose memory is the transport's own.

use super::{Memory, Next, Work};
use crate::status::Failure;
use std::mem;
use zonal_io::volume::{Completion, Request};

/// Which of a command's memory a request has, and how many bytes count as moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// The device writes into the memory for the initiator.
    In(u32),
    /// The device reads the initiator's data.
    Out(u32),
    /// The disk has looked at the initiator's data, and the device needs none.
    Kept(u32),
    Nothing,
}

/// See the module.
pub(crate) struct OneRequest {
    /// Until it is asked.
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
    /// The request has no memory yet.
    pub(crate) fn new(request: Request, moved: Moved) -> OneRequest {
        OneRequest { is_read: request.op.is_read(), request: Some(request), moved }
    }

    pub(super) fn step(&mut self, memory: &mut Memory, end: Option<Completion>) -> Next {
        if let Some(mut request) = self.request.take() {
            match self.moved {
                Moved::In(_) => request.buf = mem::take(&mut memory.data_in),
                Moved::Out(_) => request.buf = mem::take(&mut memory.data_out),
                Moved::Kept(_) | Moved::Nothing => {}
            }
            return Next::Ask(request);
        }
        let Some(Completion { result, buf, .. }) = end else { return Next::fail(Failure::Aborted) };
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
        Next::End(result.map(|_| bytes).map_err(|error| Failure::of_request(&error, self.is_read)))
    }
}
