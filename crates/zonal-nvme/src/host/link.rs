//! Host queue on its socket.

use super::errors::AttachError;
use super::queue::{Ended, HostData, HostOptions, HostQueue, QueueError};
use crate::wire::Sqe;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Timeout for connecting, and for responses during set-up.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Size of one read in bytes.
const READ_LEN: usize = 256 << 10;

/// Reason why a connection is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the controller has closed the connection")]
    Closed,
    #[error("the controller does not answer keep alives")]
    Silent,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl From<LinkError> for AttachError {
    fn from(error: LinkError) -> AttachError {
        match error {
            LinkError::Closed => AttachError::Io(ErrorKind::UnexpectedEof.into()),
            LinkError::Silent => AttachError::Io(ErrorKind::TimedOut.into()),
            LinkError::Io(error) => AttachError::Io(error),
            LinkError::Queue(error) => AttachError::Queue(error),
        }
    }
}

/// Result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    Nothing,
    Some,
    /// A full buffer; there may be more.
    Full,
}

pub(super) struct Link<D> {
    pub(super) stream: TcpStream,
    pub(super) queue: HostQueue<D>,
    bytes: Box<[u8]>,
}

impl<D: HostData> Link<D> {
    /// Connects and negotiates. The link is in blocking mode until
    /// [`set_nonblocking`](Link::set_nonblocking).
    pub(super) fn connect(
        address: SocketAddr,
        entries: u16,
        options: HostOptions,
    ) -> Result<Link<D>, AttachError> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)
            .map_err(|source| AttachError::Connect { address, source })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let queue = HostQueue::new(entries, options);
        let mut link = Link { stream, queue, bytes: vec![0; READ_LEN].into() };
        link.wait_until(|queue| queue.is_open())?;
        Ok(link)
    }

    /// Switches to non-blocking mode.
    pub(super) fn set_nonblocking(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// Switches to blocking mode with this timeout.
    pub(super) fn set_blocking(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(timeout))
    }

    /// Sends as much output as the socket accepts.
    pub(super) fn flush(&mut self) -> Result<(), LinkError> {
        while !self.queue.output().is_empty() {
            match self.stream.write(self.queue.output()) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(len) => self.queue.has_sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads and processes input once.
    pub(super) fn fill(&mut self) -> Result<Came, LinkError> {
        let len = loop {
            match self.stream.read(&mut self.bytes) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(len) => break len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Came::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        };
        let received = self.queue.receive(&self.bytes[..len]);
        if received.is_err() {
            // Report the protocol error to the controller, if it still listens.
            let _ = self.flush();
        }
        received?;
        Ok(if len == self.bytes.len() { Came::Full } else { Came::Some })
    }

    fn wait_until(&mut self, mut has_come: impl FnMut(&mut HostQueue<D>) -> bool) -> Result<(), AttachError> {
        let since = Instant::now();
        while !has_come(&mut self.queue) {
            self.flush()?;
            let came = self.fill()?;
            if came == Came::Nothing || since.elapsed() > ANSWER_MAX {
                return Err(AttachError::Io(ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }

    /// Sends a command and waits for its completion, in blocking mode. Drops completions of other
    /// commands.
    pub(super) fn call(&mut self, command: Sqe, data: D) -> Result<Ended<D>, AttachError> {
        let busy = |_| AttachError::Io(ErrorKind::ResourceBusy.into());
        let cid = self.queue.submit(command, data).map_err(busy)?;
        let mut ended = None;
        self.wait_until(|queue| {
            ended = std::iter::from_fn(|| queue.next_ended()).find(|ended| ended.cid == cid);
            ended.is_some()
        })?;
        ended.ok_or(AttachError::Io(ErrorKind::TimedOut.into()))
    }
}
