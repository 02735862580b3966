//! What a thread of a session and the server that answers for it have in common: the memory of a request, and how its answer is sent.

use crate::waiter::MountWaiter;
use crate::wire::layout::{InHeader, OutHeader, WriteIn};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;
use zonal_fs::format::HEADER_BYTES;
use zonal_io::buffer::{BufferPool, IoBuf};

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
/// The head of a request lies so that the payload of a write begins at a block of memory, after room for the header that a drive gets before
/// it: the file system may send the memory to the drive as it is, and leave another in its place.
pub(crate) struct Buffer {
    pub(crate) memory: IoBuf,
    pub(crate) reply: Vec<u8>,
    /// Where memory comes from.
    pub(crate) pool: BufferPool,
}

/// Where payloads begin.
pub(crate) const PAYLOAD_AT: usize = HEADER_BYTES;

/// Bytes of a write's request before its payload.
const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Where requests begin.
pub(crate) const REQUEST_AT: usize = PAYLOAD_AT - WRITE_HEAD_BYTES;

/// Buffers that wait for their next use at most. As many as bytes are in flight to a drive by default, in requests of a mebibyte.
const IDLE_MAX: usize = 64;

/// The least memory that the kernel takes for a request.
const PAYLOAD_MIN: u32 = 8192;

/// Memory of threads for requests with payloads of `payload` bytes.
pub(crate) fn request_pool(payload: u32) -> BufferPool {
    BufferPool::new(PAYLOAD_AT as u32 + payload.max(PAYLOAD_MIN), IDLE_MAX)
}

impl Buffer {
    /// Memory of a pool for requests.
    pub(crate) fn new(pool: &BufferPool) -> Buffer {
        Buffer { memory: pool.take(), reply: Vec::new(), pool: pool.clone() }
    }

    /// Where the next request goes.
    pub(crate) fn for_request(&mut self) -> &mut [u8] {
        &mut self.memory[REQUEST_AT..]
    }
}

/// Gives the kernel an answer.
pub(crate) fn send(device: &OwnedFd, head: OutHeader, body: &[u8]) -> io::Result<()> {
    send_pieces(device, head, &[body])
}

/// Pieces that one call writes at most: `IOV_MAX` of Linux is 1024.
const PIECES_MAX: usize = 1000;

/// The same, with a body that lies in several places.
pub(crate) fn send_pieces(device: &OwnedFd, head: OutHeader, body: &[&[u8]]) -> io::Result<()> {
    if body.len() > PIECES_MAX {
        return send(device, head, &body.concat());
    }
    let pieces = std::iter::once(head.as_bytes()).chain(body.iter().copied()).map(IoSlice::new);
    let pieces: SmallVec<[IoSlice<'_>; 8]> = pieces.collect();
    match rustix::io::writev(device, &pieces) {
        Ok(_) => Ok(()),
        // Its caller is gone.
        Err(Errno::NOENT | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A file whose every second block is a hole is more pieces than a call takes.
    #[test]
    fn answer_of_any_number_of_pieces_is_one() {
        for count in [0, 1, PIECES_MAX, PIECES_MAX + 1, 3000] {
            let kind = SocketType::SEQPACKET;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::empty(), None).unwrap();
            let bytes: Vec<u8> = (0..count).map(|n| n as u8).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
            send_pieces(&ours, crate::wire::reply::header(7, count), &pieces).unwrap();
            let mut got = vec![0; 8000];
            let length = rustix::io::read(&theirs, &mut got[..]).unwrap();
            assert!(got[size_of::<OutHeader>()..length] == bytes, "{count}");
        }
    }
}
