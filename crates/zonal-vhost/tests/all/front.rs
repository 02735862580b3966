//! Front end: messages over a socket.

use crate::guest::{Driver, Guest};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};
use zonal_vhost::session::{FEATURES, FEATURES_OF_PROTOCOL};
use zonal_vhost::wire::message::*;

/// Connected front end.
pub struct FrontEnd {
    pub socket: UnixStream,
}

impl FrontEnd {
    pub fn connect(path: &Path) -> FrontEnd {
        let since = Instant::now();
        loop {
            match UnixStream::connect(path) {
                Ok(socket) => {
                    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                    return FrontEnd { socket };
                }
                Err(error) => assert!(since.elapsed() < Duration::from_secs(10), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn send(&mut self, request: u32, flags: u32, payload: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let len = payload.len() as u32;
        let header = Header { request: request.into(), flags: (VERSION | flags).into(), len: len.into() };
        let bytes = [header.as_bytes(), payload].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let sent =
            rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(bytes.len()));
    }

    pub fn reply(&mut self, request: u32) -> (Vec<u8>, Option<OwnedFd>) {
        let mut header = [0; HEADER_LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut header)],
            &mut ancillary,
            RecvFlags::WAITALL,
        );
        assert_eq!(received.unwrap().bytes, HEADER_LEN, "the connection is closed");
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let header = Header::read_from_bytes(&header).unwrap();
        assert_eq!((header.request.get(), header.flags.get()), (request, VERSION | REPLY));
        let mut payload = vec![0; header.len.get() as usize];
        self.socket.read_exact(&mut payload).unwrap();
        (payload, descriptor)
    }

    /// Sends a message with acknowledgement. Returns true on success.
    pub fn ask(&mut self, request: u32, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        self.send(request, NEED_REPLY, payload, descriptors);
        self.reply(request).0 == [0; 8]
    }

    pub fn get(&mut self, request: u32) -> u64 {
        self.send(request, 0, &[], &[]);
        u64::from_le_bytes(self.reply(request).0.try_into().unwrap())
    }

    pub fn set(&mut self, request: u32, queue: u16, number: u32) -> bool {
        let payload = QueueNumber { queue: u32::from(queue).into(), number: number.into() };
        self.ask(request, payload.as_bytes(), &[])
    }

    /// Negotiates all offered features, and sets the guest's memory.
    pub fn begin(&mut self, guest: &Guest) {
        assert_eq!(self.get(request::GET_FEATURES), FEATURES);
        assert_eq!(self.get(request::GET_PROTOCOL_FEATURES), FEATURES_OF_PROTOCOL);
        self.send(request::SET_PROTOCOL_FEATURES, 0, &FEATURES_OF_PROTOCOL.to_le_bytes(), &[]);
        self.send(request::SET_OWNER, 0, &[], &[]);
        assert!(self.ask(request::SET_FEATURES, &FEATURES.to_le_bytes(), &[]));
        self.memory([&guest.file, &guest.file]);
    }

    /// Sets the two regions of a guest, located in these files.
    pub fn memory(&mut self, files: [&OwnedFd; 2]) {
        let table = MemoryTable { regions: 2.into(), padding: 0.into() };
        let payload = [table.as_bytes(), Guest::regions().as_bytes()].concat();
        assert!(self.ask(request::SET_MEMORY, &payload, &files.map(AsFd::as_fd)));
    }

    /// Starts queue `number`.
    pub fn start(&mut self, number: u16, driver: &Driver, base: u16) {
        let setup = driver.setup();
        assert!(self.set(request::SET_NUMBER, number, u32::from(setup.num)));
        assert!(self.set(request::SET_BASE, number, u32::from(base)));
        let addresses = QueueAddresses {
            queue: u32::from(number).into(),
            flags: 0.into(),
            descriptors: setup.descriptors.into(),
            used: setup.used.into(),
            available: setup.available.into(),
            log: 0.into(),
        };
        assert!(self.ask(request::SET_ADDRESSES, addresses.as_bytes(), &[]));
        let number_of = u64::from(number).to_le_bytes();
        assert!(self.ask(request::SET_CALL, &number_of, &[driver.call.as_fd()]));
        assert!(self.ask(request::SET_KICK, &number_of, &[driver.kick.as_fd()]));
        assert!(self.set(request::SET_ENABLED, number, 1));
    }

    /// Stops queue `number`. Returns the base for continuing.
    pub fn stop(&mut self, number: u16) -> u16 {
        let payload = QueueNumber { queue: u32::from(number).into(), number: 0.into() };
        self.send(request::GET_BASE, 0, payload.as_bytes(), &[]);
        let reply = QueueNumber::read_from_bytes(&self.reply(request::GET_BASE).0).unwrap();
        assert_eq!(reply.queue.get(), u32::from(number));
        reply.number.get() as u16
    }

    /// True if the peer closes the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
