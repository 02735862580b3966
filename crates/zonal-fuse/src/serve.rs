//! What a thread of a session and the server that answers for it have in common: the memory of a request, and how its answer is sent.

use crate::waiter::MountWaiter;
use crate::wire::layout::{InHeader, OutHeader, WriteIn};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;
use zonal_io::buffer::IoBuf;

/// What answers requests.
pub(crate) trait Serve: Send + Sync {
    /// Answers the request of `length` bytes that was read into `buffer`.
    ///
    /// # Errors
    /// The device's, if it does not take the answer.
    fn serve(
        &self,
        device: &OwnedFd,
        buffer: &mut Buffer,
        length: usize,
        waiter: &MountWaiter<'_>,
    ) -> io::Result<()>;
}

/// The memory of a thread: one request at a time, and the answer to it.
///
/// The head of a request lies so that the payload of a write, and of the answer to a read, begins at a block of memory.
pub(crate) struct Buffer {
    pub(crate) memory: IoBuf,
    pub(crate) reply: Vec<u8>,
}

/// Where payloads begin.
pub(crate) const PAYLOAD_AT: usize = 4096;

/// Bytes of a write's request before its payload.
const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Where requests begin.
pub(crate) const REQUEST_AT: usize = PAYLOAD_AT - WRITE_HEAD_BYTES;

/// The least memory that the kernel takes for a request.
const PAYLOAD_MIN: u32 = 8192;

impl Buffer {
    /// Memory for requests with payloads of `payload` bytes.
    pub(crate) fn new(payload: u32) -> Buffer {
        let memory = IoBuf::zeroed(PAYLOAD_AT as u32 + payload.max(PAYLOAD_MIN));
        Buffer { memory, reply: Vec::new() }
    }

    /// Where the next request goes.
    pub(crate) fn for_request(&mut self) -> &mut [u8] {
        &mut self.memory[REQUEST_AT..]
    }
}

/// Gives the kernel an answer.
pub(crate) fn send(device: &OwnedFd, head: OutHeader, body: &[u8]) -> io::Result<()> {
    let pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(body)];
    match rustix::io::writev(device, &pieces) {
        Ok(_) => Ok(()),
        // Its caller is gone.
        Err(Errno::NOENT | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
