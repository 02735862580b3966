//! Transports between a host and a controller.

use super::address;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use zonal_core::Nanos;
use zonal_io::buffer::BufferPools;
use zonal_nvme::connection::Connection;
use zonal_nvme::subsystem::Target;

pub trait Link {
    fn send(&mut self, bytes: &[u8]);

    /// Appends input to `received`.
    fn take(&mut self, received: &mut Vec<u8>);

    /// Drives the controller, or waits for it briefly.
    fn poll(&mut self);

    /// Opens another link to the same controller.
    fn another(&self) -> Self;
}

/// Connection on the calling thread, with a clock set by the test.
pub struct Direct {
    pub connection: Connection,
    pub target: Arc<Target>,
    pub now: Nanos,
    /// Bytes delivered at a time.
    pub step: usize,
}

impl Direct {
    pub fn new(target: &Arc<Target>) -> Direct {
        let connection = Connection::new(target.clone(), address(), Rc::new(BufferPools::new()));
        Direct { connection, target: target.clone(), now: Nanos(0), step: usize::MAX }
    }
}

impl Link for Direct {
    fn send(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.step.min(bytes.len()).max(1)) {
            match self.connection.room() {
                Some(room) if room.len() >= piece.len() => {
                    room[..piece.len()].copy_from_slice(piece);
                    self.connection.has_received(self.now, piece.len());
                }
                _ => self.connection.receive(self.now, piece),
            }
        }
    }

    fn take(&mut self, received: &mut Vec<u8>) {
        let output = self.connection.output();
        while !output.is_empty() {
            let before = received.len();
            for slice in output.slices() {
                received.extend_from_slice(&slice);
            }
            output.has_sent(received.len() - before);
        }
    }

    fn poll(&mut self) {
        self.target.volume().poll(self.now);
        self.connection.poll(self.now);
    }

    fn another(&self) -> Direct {
        Direct::new(&self.target)
    }
}

/// Socket to a server.
pub struct Socket {
    pub stream: TcpStream,
    address: SocketAddr,
    /// Closed by the server.
    pub is_closed: bool,
    received: Vec<u8>,
}

impl Socket {
    pub fn connect(address: SocketAddr) -> Socket {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Socket { stream, address, is_closed: false, received: Vec::new() }
    }
}

impl Link for Socket {
    fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                self.is_closed = true;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn take(&mut self, received: &mut Vec<u8>) {
        received.append(&mut self.received);
    }

    fn poll(&mut self) {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.is_closed = true,
            Ok(len) => self.received.extend_from_slice(&bytes[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.is_closed = true,
            Err(error) => panic!("{error}"),
        }
    }

    fn another(&self) -> Socket {
        Socket::connect(self.address)
    }
}
