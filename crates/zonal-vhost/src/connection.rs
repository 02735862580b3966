//! Messages from a stream socket, with their file descriptors.
//!
//! A message consists of a header and a payload; its descriptors may arrive with any of its bytes.
//! No byte of the next message is read before a message is complete, so descriptors cannot be
//! attributed to the wrong message.

use crate::session::{Message, ProtocolError, Reply};
use crate::wire::message::{DESCRIPTORS_MAX, HEADER_LEN, Header, PAYLOAD_MAX};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use zerocopy::FromBytes;

/// Reason why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// Closed by the front end.
    #[error("front end disconnected")]
    Closed,
    /// Protocol violation by the front end.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The front end truncated a file of shared memory.
    #[error("the front end has truncated the guest's memory while in use")]
    MemoryLost,
    /// Error of the operating system.
    #[error("connection lost: {0}")]
    Lost(#[from] Errno),
}

/// Assembles messages from pieces.
#[derive(Default)]
pub struct Assembler {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Assembler {
    fn header(&self) -> Option<Header> {
        Header::read_from_prefix(&self.bytes).ok().map(|(header, _)| header)
    }

    /// Number of bytes missing from the header or payload in progress, at least one.
    pub fn wanted(&self) -> usize {
        let len = self.header().map_or(0, |header| (header.len.get() as usize).min(PAYLOAD_MAX));
        (HEADER_LEN + len).saturating_sub(self.bytes.len()).max(1)
    }

    /// Adds bytes that were read, at most as many as [wanted](Assembler::wanted). Returns the
    /// message once it is complete.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn put(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Option<Message>, ProtocolError> {
        self.bytes.extend_from_slice(bytes);
        self.descriptors.extend(descriptors);
        let Some(header) = self.header() else { return Ok(None) };
        let (request, len) = (header.request.get(), header.len.get() as usize);
        if len > PAYLOAD_MAX {
            return Err(ProtocolError::Length { request, len });
        }
        if self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(ProtocolError::Descriptors { request, descriptors: self.descriptors.len() });
        }
        if self.bytes.len() < HEADER_LEN + len {
            return Ok(None);
        }
        let payload = self.bytes[HEADER_LEN..].to_vec();
        self.bytes.clear();
        let descriptors = std::mem::take(&mut self.descriptors);
        Ok(Some(Message { request, flags: header.flags.get(), payload, descriptors }))
    }

    /// Reads until a message is complete or the socket has no more input.
    ///
    /// # Errors
    /// [`ConnectionEnd`].
    pub fn receive(&mut self, socket: &UnixStream) -> Result<Option<Message>, ConnectionEnd> {
        let mut bytes = [0; HEADER_LEN + PAYLOAD_MAX];
        loop {
            let wanted = self.wanted().min(bytes.len());
            let Some((len, descriptors)) = receive_some(socket, &mut bytes[..wanted])? else {
                return Ok(None);
            };
            if let Some(message) = self.put(&bytes[..len], descriptors)? {
                return Ok(Some(message));
            }
        }
    }
}

/// Reads available bytes into `bytes`; `None` if there are none at present.
fn receive_some(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> Result<Option<(usize, Vec<OwnedFd>)>, ConnectionEnd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        let descriptors = DESCRIPTORS_MAX + 1;
        return Err(ProtocolError::Descriptors { request: 0, descriptors }.into());
    }
    if received.bytes == 0 {
        return Err(ConnectionEnd::Closed);
    }
    Ok(Some((received.bytes, descriptors)))
}

/// Sends as much of a reply as the kernel accepts. Returns true if that was all of it.
///
/// # Errors
/// [`ConnectionEnd::Lost`].
pub fn send(socket: &UnixStream, reply: &mut Reply) -> Result<bool, ConnectionEnd> {
    while !reply.bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptor = reply.descriptor.as_ref().map(|descriptor| [descriptor.as_fd()]);
        if let Some(descriptor) = &descriptor {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptor));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(socket, &[IoSlice::new(&reply.bytes)], &mut ancillary, flags) {
            Ok(len) => {
                reply.bytes.drain(..len);
                reply.descriptor = None;
            }
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn message(request: u32, len: u32, payload: &[u8]) -> Vec<u8> {
        let header = Header { request: request.into(), flags: 1.into(), len: len.into() };
        [header.as_bytes(), payload].concat()
    }

    #[test]
    fn message_in_single_bytes_is_complete_with_its_last() {
        let bytes = message(7, 3, &[1, 2, 3]);
        let mut assembler = Assembler::default();
        for (n, byte) in bytes.iter().enumerate() {
            let whole = assembler.put(&[*byte], Vec::new()).unwrap();
            assert_eq!(whole.is_some(), n + 1 == bytes.len());
            if let Some(message) = whole {
                assert_eq!((message.request, &message.payload[..]), (7, &[1, 2, 3][..]));
            }
        }
        assert_eq!(assembler.wanted(), HEADER_LEN);
    }

    #[test]
    fn payload_longer_than_any_is_refused_before_it_is_read() {
        let mut assembler = Assembler::default();
        let error = assembler.put(&message(7, u32::MAX, &[]), Vec::new()).unwrap_err();
        assert_eq!(error, ProtocolError::Length { request: 7, len: u32::MAX as usize });
    }

    #[test]
    fn descriptors_arrive_with_their_own_message() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        for request in 1..=2 {
            let descriptor = (request == 1).then(|| std::sync::Arc::new(file.try_clone().unwrap()));
            let mut reply = Reply { bytes: message(request, 2, &[5, 6]), descriptor };
            assert_eq!(send(&there, &mut reply), Ok(true));
        }
        let mut assembler = Assembler::default();
        let numbers = [1, 2].map(|_| {
            let message = assembler.receive(&here).unwrap().unwrap();
            (message.request, message.descriptors.len())
        });
        assert_eq!(numbers, [(1, 1), (2, 0)]);
        assert!(assembler.receive(&here).unwrap().is_none());
        drop(there);
        assert_eq!(assembler.receive(&here).unwrap_err(), ConnectionEnd::Closed);
    }

    #[test]
    fn more_descriptors_than_a_message_has_end_the_connection() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let files = [file.as_fd(); DESCRIPTORS_MAX + 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&there, &[IoSlice::new(&message(5, 0, &[]))], &mut ancillary, SendFlags::empty()).unwrap();
        let end = Assembler::default().receive(&here).unwrap_err();
        assert!(matches!(end, ConnectionEnd::Protocol(ProtocolError::Descriptors { .. })), "{end:?}");
    }
}
