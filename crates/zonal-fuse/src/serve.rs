//! Interface between a session's threads and its server: the memory of a request and the sending of
//! replies.

use crate::waiter::MountWaiter;
use crate::wire::layout::{InHeader, OutHeader, WriteIn};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;
use zonal_fs::format::HEADER_BYTES;
use zonal_io::buffer::{BufferPool, IoBuf};

/// A server of requests.
pub(crate) trait Serve: Send + Sync {
    /// Processes the request of `length` bytes in `buffer` and sends the reply.
    ///
    /// # Errors
    /// The device's error if it does not accept the reply.
    fn serve(
        &self,
        device: &OwnedFd,
        buffer: &mut Buffer,
        length: usize,
        waiter: &MountWaiter<'_>,
    ) -> io::Result<()>;
}

/// Memory of a thread, for one request and its reply.
///
/// Requests are placed so that the data of a write is block-aligned, with room before it for the
/// header that a drive gets. So the file system may pass the memory to the drive as it is and
/// replace it with another buffer.
pub(crate) struct Buffer {
    pub(crate) memory: IoBuf,
    pub(crate) reply: Vec<u8>,
    /// Source of memory.
    pub(crate) pool: BufferPool,
}

/// Offset of the data of a write.
pub(crate) const PAYLOAD_AT: usize = HEADER_BYTES;

/// Length of a write request before its data.
const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Offset of requests.
pub(crate) const REQUEST_AT: usize = PAYLOAD_AT - WRITE_HEAD_BYTES;

/// Maximum number of idle buffers: as many as there are requests of a mebibyte in flight to a drive
/// by default.
const IDLE_MAX: usize = 64;

/// Minimum memory that the kernel accepts for a request.
const PAYLOAD_MIN: u32 = 8192;

/// Pool of buffers for requests with up to `payload` bytes of data.
pub(crate) fn request_pool(payload: u32) -> BufferPool {
    BufferPool::new(PAYLOAD_AT as u32 + payload.max(PAYLOAD_MIN), IDLE_MAX)
}

impl Buffer {
    /// Takes a buffer from the pool.
    pub(crate) fn new(pool: &BufferPool) -> Buffer {
        Buffer { memory: pool.take(), reply: Vec::new(), pool: pool.clone() }
    }

    /// Memory for the next request.
    pub(crate) fn for_request(&mut self) -> &mut [u8] {
        &mut self.memory[REQUEST_AT..]
    }
}

/// Sends a reply to the kernel.
pub(crate) fn send(device: &OwnedFd, head: OutHeader, body: &[u8]) -> io::Result<()> {
    send_pieces(device, head, &[body])
}

/// Maximum number of pieces in one call. `IOV_MAX` of Linux is 1024.
const PIECES_MAX: usize = 1000;

/// Sends a reply with a body in several pieces.
pub(crate) fn send_pieces(device: &OwnedFd, head: OutHeader, body: &[&[u8]]) -> io::Result<()> {
    if body.len() > PIECES_MAX {
        return send(device, head, &body.concat());
    }
    let pieces = std::iter::once(head.as_bytes()).chain(body.iter().copied()).map(IoSlice::new);
    let pieces: SmallVec<[IoSlice<'_>; 8]> = pieces.collect();
    match rustix::io::writev(device, &pieces) {
        Ok(_) => Ok(()),
        // The caller was killed.
        Err(Errno::NOENT | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A file with every second block a hole has more pieces than fit in a call.
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
