//! Tasks of the first thread: the socket, and the session of the connected front end.

use super::Shared;
use super::place::VhostListener;
use super::post::{Confirmation, Order};
use super::thread::{LISTENER, SOCKET};
use crate::connection::{Assembler, ConnectionEnd, send};
use crate::queue::{Management, ManagementEnd, Queue};
use crate::session::{Change, Reply, Session};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Messages processed before queues are served.
const MESSAGES_BUDGET: usize = 16;

/// Connection of a front end.
struct Connection {
    socket: UnixStream,
    assembler: Assembler,
    session: Session,
    reply: Option<Reply>,
    /// A stop of a queue is awaited to answer the front end.
    awaits_base: Option<u16>,
}

/// Task management function executed by all threads.
#[derive(Default)]
struct Managing {
    confirmed: usize,
    has_found: bool,
}

pub(super) struct Front<'a> {
    shared: &'a Shared,
    epoll: Rc<OwnedFd>,
    listener: VhostListener,
    connection: Option<Connection>,
    /// Number of unconfirmed queue changes.
    unconfirmed: usize,
    /// The socket or the listener may have input.
    has_news: bool,
    managing: BTreeMap<u64, Managing>,
}

impl<'a> Front<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        epoll: Rc<OwnedFd>,
        listener: VhostListener,
    ) -> io::Result<Front<'a>> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&*epoll, listener.socket(), epoll::EventData::new_u64(LISTENER), flags)?;
        let managing = BTreeMap::new();
        Ok(Front { shared, epoll, listener, connection: None, unconfirmed: 0, has_news: true, managing })
    }

    /// Records an event of the socket or the listener.
    pub(super) fn has_news(&mut self) {
        self.has_news = true;
    }

    /// Hands a task management function to all threads.
    pub(super) fn manage(&mut self, management: Management) {
        self.managing.insert(management.id, Managing::default());
        for thread in 0..self.shared.post.threads() {
            self.shared.post.order(thread, Order::Manage(management));
        }
    }

    pub(super) fn take_confirmations(&mut self, mut control: Option<&mut Queue>) {
        for confirmation in self.shared.post.confirmations() {
            match confirmation {
                Confirmation::Changed => self.unconfirmed -= 1,
                Confirmation::Stopped(base) => {
                    self.unconfirmed -= 1;
                    if let Some(connection) = &mut self.connection
                        && let Some(queue) = connection.awaits_base.take()
                    {
                        connection.reply = Some(connection.session.stopped(queue, base));
                    }
                }
                Confirmation::Managed(end) => {
                    if let Some(end) = self.queue_done(end)
                        && let Some(control) = &mut control
                    {
                        control.end_management(end);
                    }
                }
            }
        }
    }

    fn queue_done(&mut self, end: ManagementEnd) -> Option<ManagementEnd> {
        let managing = self.managing.get_mut(&end.id)?;
        managing.confirmed += 1;
        managing.has_found |= end.has_found;
        if managing.confirmed < self.shared.post.threads() {
            return None;
        }
        let has_found = managing.has_found;
        self.managing.remove(&end.id);
        Some(ManagementEnd { id: end.id, has_found })
    }

    /// Processes and answers messages. Returns true if more work can be done at once.
    pub(super) fn run_once(&mut self) -> bool {
        for _ in 0..MESSAGES_BUDGET {
            if self.unconfirmed > 0 {
                // The last confirmation triggers the next turn.
                return false;
            }
            if self.connection.is_none() && !self.accept() {
                return false;
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(end) => {
                    if end == ConnectionEnd::MemoryLost {
                        let socket = self.listener.path().display();
                        eprintln!(
                            "zonal: {socket}: connection closed: {end}; start the virtual machine again"
                        );
                    }
                    self.close();
                }
            }
        }
        true
    }

    /// Sends the reply, or processes one message. Returns true if there was progress.
    fn step(&mut self) -> Result<bool, ConnectionEnd> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        if connection.session.is_lost() {
            return Err(ConnectionEnd::MemoryLost);
        }
        if let Some(reply) = &mut connection.reply {
            if !send(&connection.socket, reply)? {
                return Ok(false);
            }
            connection.reply = None;
        }
        if !self.has_news {
            return Ok(false);
        }
        let Some(message) = connection.assembler.receive(&connection.socket)? else {
            self.has_news = false;
            return Ok(false);
        };
        let outcome = connection.session.take(message)?;
        (connection.reply, connection.awaits_base) = (outcome.reply, outcome.awaits_base);
        self.order(outcome.changes);
        Ok(true)
    }

    fn order(&mut self, changes: Vec<(u16, Change)>) {
        self.unconfirmed += changes.len();
        for (queue, change) in changes {
            self.shared.post.order(self.shared.post.thread_of(queue), Order::Change(queue, change));
        }
    }

    fn accept(&mut self) -> bool {
        let Ok((socket, _)) = self.listener.socket().accept() else {
            // Out of descriptors or memory; the front end retries.
            self.has_news = false;
            return false;
        };
        let events =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(SOCKET);
        if socket.set_nonblocking(true).is_err() || epoll::add(&*self.epoll, &socket, data, events).is_err() {
            return true;
        }
        self.has_news = true;
        self.shared.is_connected.store(true, Ordering::Relaxed);
        let (assembler, session) = (Assembler::default(), Session::default());
        self.connection = Some(Connection { socket, assembler, session, reply: None, awaits_base: None });
        true
    }

    /// Closes the connection. Its requests in flight complete before another front end is served.
    fn close(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let _ = epoll::delete(&*self.epoll, &connection.socket);
        self.shared.is_connected.store(false, Ordering::Relaxed);
        self.order(connection.session.close());
    }
}
