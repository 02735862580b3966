//! Driver of connections: sockets, threads and the clock.
//!
//! Each thread owns its connections and drives the volume. It sleeps until a socket or the volume
//! has work, or never if polling is enabled. After a response it spins briefly for the next command
//! before it sleeps (`spin`).
//!
//! # Misbehaving clients
//! At most [`CONNECTIONS_MAX`] connections are open; further ones are closed at once. A closing
//! connection has [`CLOSING_MAX`] to receive pending output and is then closed. Its input is
//! discarded meanwhile: unread input would keep waking the thread, and closing a socket with unread
//! bytes makes the kernel send a reset, after which not every host reads the earlier data. A
//! panicking thread ends the server. TCP keepalive detects hosts that vanished silently
//! ([`SILENT_MAX`]).

mod seats;
mod spin;
mod vanished;

use crate::connection::{Connection, MEMORY_MAX};
use crate::subsystem::{Association, Target};
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use seats::{Seat, Seats};
use spin::Spin;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
pub use vanished::SILENT_MAX;
use zonal_core::Nanos;
use zonal_io::buffer::BufferPools;
use zonal_io::clock::Clock;
use zonal_io::threads;
use zonal_io::volume::Request;

/// Bytes read from one connection before others are served.
const READ_BUDGET: usize = 1 << 20;

/// Size of one read, except for long data.
const READ_LEN: usize = 128 << 10;

/// Unsent bytes above which a connection stops reading.
const UNSENT_MAX: usize = MEMORY_MAX;

/// Longest sleep. Bounds the delay until a shutdown request is noticed, however it is made.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Limit for commands at the device to complete at shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Limit for clients to receive pending output at shutdown.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// Most connections of a server: 64 hosts with 63 I/O queues each. Lower if the limit on open files
/// is.
pub const CONNECTIONS_MAX: usize = 4096;

/// Limit for a closing connection to receive pending output and close.
pub const CLOSING_MAX: Duration = Duration::from_secs(2);

/// Connections accepted before others are served.
const ACCEPT_BUDGET: usize = 64;

/// Pause after the kernel refused a connection for lack of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

const LISTENER: u64 = u64::MAX;
const NEWS: u64 = u64::MAX - 1;
const HAND_OVER: u64 = u64::MAX - 2;

/// Options of a server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Number of threads, at least 1.
    pub threads: usize,
    /// True if the threads poll instead of sleeping.
    pub polls: bool,
}

impl Default for ServerOptions {
    /// One sleeping thread.
    fn default() -> ServerOptions {
        ServerOptions { threads: 1, polls: false }
    }
}

zonal_core::setters! {
    ServerOptions
    /// Number of threads, at least 1.
    with_threads threads: usize;
    /// True if the threads poll instead of sleeping.
    with_polls polls: bool;
}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    address: SocketAddr,
}

/// Connections that the first thread has accepted for another thread.
struct HandOver {
    streams: Mutex<Vec<(TcpStream, Seat)>>,
    bell: OwnedFd,
}

struct Shared {
    target: Arc<Target>,
    clock: Clock,
    options: ServerOptions,
    has_to_end: Arc<AtomicBool>,
    hand_over: Vec<HandOver>,
    seats: Seats,
    gauges: Mutex<Vec<Arc<Gauge>>>,
}

/// State of a connection as published by its thread. Other threads may read slightly stale values.
struct Gauge {
    /// Controller and queue number, or [`NOT_CONNECTED`].
    queue: AtomicU32,
    in_flight: AtomicUsize,
    unsent: AtomicUsize,
}

/// Not a valid queue: its controller number is the one that requests a new controller (Base 6.3).
const NOT_CONNECTED: u32 = u32::MAX;

impl Gauge {
    fn new() -> Gauge {
        Gauge {
            queue: AtomicU32::new(NOT_CONNECTED),
            in_flight: AtomicUsize::default(),
            unsent: AtomicUsize::default(),
        }
    }

    fn set(&self, connection: &mut Connection) {
        if let Some(queue) = connection.queue() {
            let queue = u32::from(queue.controller().id()) << 16 | u32::from(queue.qid());
            self.queue.store(queue, Ordering::Relaxed);
        }
        self.in_flight.store(connection.in_flight(), Ordering::Relaxed);
        self.unsent.store(connection.output().len(), Ordering::Relaxed);
    }
}

/// Snapshot of a connection, possibly slightly stale.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionFacts {
    /// NQN of the host, once connected.
    pub host: Option<String>,
    /// Controller number and queue number, once connected. Queue 0 is the admin queue.
    pub queue: Option<(u16, u16)>,
    /// Commands in flight, including outstanding event requests.
    pub in_flight: usize,
    /// Bytes not sent yet.
    pub unsent: usize,
}

impl Shared {
    fn connections(&self) -> Vec<ConnectionFacts> {
        let hosts = self.target.hosts();
        let facts = |gauge: &Arc<Gauge>| {
            let queue = gauge.queue.load(Ordering::Relaxed);
            let queue = (queue != NOT_CONNECTED).then_some(((queue >> 16) as u16, queue as u16));
            ConnectionFacts {
                host: queue.and_then(|(controller, _)| hosts.get(&controller).cloned()),
                queue,
                in_flight: gauge.in_flight.load(Ordering::Relaxed),
                unsent: gauge.unsent.load(Ordering::Relaxed),
            }
        };
        self.gauges.lock().iter().map(facts).collect()
    }

    fn wake_all(&self) {
        for other in &self.hand_over {
            // Fails only if the bell is already readable.
            let _ = rustix::io::write(&other.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Server {
    /// Serves `target` to the clients of `listener` until `has_to_end` is set.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn start(
        target: Arc<Target>,
        listener: TcpListener,
        clock: Clock,
        options: ServerOptions,
        has_to_end: Arc<AtomicBool>,
    ) -> io::Result<Server> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        // With a full backlog the kernel drops the first packet of a connection, and the host
        // retries after a second. The default of 128 is too small for 64 hosts with one queue per
        // core.
        rustix::net::listen(&listener, CONNECTIONS_MAX as i32)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bells = (0..options.threads.max(1)).map(|_| eventfd(0, flags)).collect::<Result<Vec<_>, _>>()?;
        let hand_over = bells.into_iter().map(|bell| HandOver { streams: Mutex::default(), bell }).collect();
        let seats = Seats::new(seats::possible(CONNECTIONS_MAX));
        let gauges = Mutex::default();
        let shared = Arc::new(Shared { target, clock, options, has_to_end, hand_over, seats, gauges });
        let mut listener = Some(listener);
        let threads = (0..options.threads.max(1)).map(|n| {
            let (shared, listener) = (shared.clone(), listener.take());
            threads::spawn(&format!("nvme-tcp-{n}"), move || {
                let _end = EndOfThread(&shared);
                Thread::new(&shared, n, listener)?.run()
            })
        });
        let threads = threads.collect::<io::Result<Vec<_>>>();
        if threads.is_err() {
            // Ends the threads that were started.
            drop(EndOfThread(&shared));
        }
        Ok(Server { threads: threads?, shared, address })
    }

    /// Address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Open connections, in the order of connecting.
    pub fn connections(&self) -> Vec<ConnectionFacts> {
        self.shared.connections()
    }

    /// Returns a function that lists the connections, for threads without access to the server.
    pub fn connections_source(&self) -> impl Fn() -> Vec<ConnectionFacts> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.connections()
    }

    /// Requests shutdown.
    pub fn end(&self) {
        self.shared.has_to_end.store(true, Ordering::Release);
        self.shared.wake_all();
    }

    /// Waits for shutdown: until it is requested, no new commands are accepted, commands at the
    /// device have completed, and the volume is flushed.
    ///
    /// # Errors
    /// Errors of a thread or of the flush.
    pub fn join(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let ended = thread.join().map_err(|_| io::Error::other("a thread of the server panicked"));
            result = result.and(ended.and_then(|ended| ended));
        }
        let flush = self.shared.target.volume().call(&self.shared.clock, Request::flush());
        result.and(flush.result.map(drop).map_err(io::Error::other))
    }
}

/// Ends the whole server when one of its threads ends unexpectedly. A server that accepts
/// connections but serves only some of them would be worse than none.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        self.0.has_to_end.store(true, Ordering::Release);
        self.0.wake_all();
    }
}

struct Client {
    stream: TcpStream,
    _seat: Seat,
    connection: Connection,
    gauge: Arc<Gauge>,
    /// Events registered with epoll.
    watched: epoll::EventFlags,
    /// Set once the connection is over: deadline for receiving pending output and closing.
    closes_until: Option<Nanos>,
    is_shut: bool,
    is_lost: bool,
}

struct Thread<'a> {
    shared: &'a Shared,
    number: usize,
    listener: Option<TcpListener>,
    /// Time before which no connection is accepted.
    accepts_again: Option<Nanos>,
    epoll: OwnedFd,
    pools: Rc<BufferPools>,
    clients: BTreeMap<u64, Client>,
    last: u64,
    bytes: Vec<u8>,
    /// Thread for the next connection.
    turn: usize,
    spin: Spin,
    /// Something was sent since the last wait.
    has_sent: bool,
}

impl Thread<'_> {
    fn new(shared: &Shared, number: usize, listener: Option<TcpListener>) -> io::Result<Thread<'_>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let input = epoll::EventFlags::IN;
        if let Some(listener) = &listener {
            epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), input)?;
        }
        let bell = &shared.hand_over[number].bell;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(HAND_OVER), input)?;
        Ok(Thread {
            shared,
            number,
            listener,
            accepts_again: None,
            epoll,
            pools: Rc::default(),
            clients: BTreeMap::new(),
            last: 0,
            bytes: vec![0; READ_LEN],
            turn: 0,
            spin: Spin::new(shared.clock.now()),
            has_sent: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let volume = self.shared.target.volume().clone();
        let mut news = volume.news()?;
        let input = epoll::EventFlags::IN;
        epoll::add(&self.epoll, news.as_fd(), epoll::EventData::new_u64(NEWS), input)?;
        let polls = self.shared.options.polls;
        let mut events = Vec::with_capacity(64);
        let mut ends_since: Option<Nanos> = None;
        let mut now = self.now();
        loop {
            let has_to_end = self.shared.has_to_end.load(Ordering::Acquire);
            if has_to_end && ends_since.is_none() {
                ends_since = Some(now);
                self.listener = None;
            }
            self.poll_listener(now)?;
            if !polls {
                news.arm();
            }
            let due = volume.poll(now);
            let is_busy = self.poll_clients(now, has_to_end);
            if ends_since.is_some_and(|since| self.has_ended(since)) {
                return Ok(());
            }
            events.clear();
            match is_busy || polls {
                true => self.poll_events(&mut events, Duration::ZERO)?,
                false => self.wait(&mut events, due)?,
            }
            news.disarm();
            // One clock reading serves the whole iteration.
            now = self.now();
            for event in &events {
                self.take_event(now, event.data.u64(), event.flags, has_to_end)?;
            }
        }
    }

    fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    /// True if a thread asked to end at `since` may abandon remaining work.
    fn has_ended(&self, since: Nanos) -> bool {
        let passed = Duration::from_nanos(self.now().0.saturating_sub(since.0));
        let has_requests = || self.clients.values().any(|client| client.connection.has_requests());
        self.clients.is_empty() || passed >= DRAIN_MAX || passed >= FAREWELL_MAX && !has_requests()
    }

    /// Waits for an event or until `due`. After a response it spins first.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, due: Option<Nanos>) -> io::Result<()> {
        let mut now = self.now();
        let begun = now;
        if std::mem::take(&mut self.has_sent)
            && let Some(until) = self.spin.until(begun)
        {
            let until = due.map_or(until, |due| until.min(due));
            while events.is_empty() && now < until {
                self.poll_events(events, Duration::ZERO)?;
                now = self.now();
            }
            self.spin.end(begun, now, !events.is_empty());
        }
        match events.is_empty() {
            // News of the volume has been enabled since before the spin, so changes during it are
            // events.
            true => self.poll_events(events, self.sleep_until(due, now)),
            false => Ok(()),
        }
    }

    fn poll_events(&self, events: &mut Vec<epoll::Event>, sleep: Duration) -> io::Result<()> {
        let sleep = Timespec::try_from(sleep).ok();
        match epoll::wait(&self.epoll, spare_capacity(events), sleep.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sleep_until(&self, due: Option<Nanos>, now: Nanos) -> Duration {
        let deadlines = self.clients.values().filter_map(Client::deadline);
        let first = deadlines.chain(due).chain(self.accepts_again).min();
        let left = first.map_or(SLEEP_MAX, |at| Duration::from_nanos(at.0.saturating_sub(now.0)));
        left.min(SLEEP_MAX)
    }

    fn take_event(
        &mut self,
        now: Nanos,
        place: u64,
        flags: epoll::EventFlags,
        has_to_end: bool,
    ) -> io::Result<()> {
        match place {
            NEWS => {}
            LISTENER => self.accept(),
            HAND_OVER => {
                let _ = rustix::io::read(&self.shared.hand_over[self.number].bell, &mut [0; 8]);
                let streams = std::mem::take(&mut *self.shared.hand_over[self.number].streams.lock());
                streams.into_iter().for_each(|(stream, seat)| self.begin(stream, seat));
            }
            place if !has_to_end => {
                if let Some(client) = self.clients.get_mut(&place) {
                    match client.closes_until {
                        Some(_) => client.discard(&mut self.bytes),
                        None => client.read(now, &mut self.bytes),
                    }
                    // With too much unsent output the input is not read, and its end would go
                    // unnoticed.
                    let ended = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP);
                    client.is_lost |= ended && client.connection.output().len() >= UNSENT_MAX;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPT_BUDGET {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, _)) => self.hand_over(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // The connection stays in the backlog and would wake this thread continuously.
                Err(_) => {
                    self.accepts_again = Some(Nanos(self.now().0 + ACCEPT_REST.as_nanos() as u64));
                    let _ = self.listen_for(epoll::EventFlags::empty());
                    return;
                }
            }
        }
    }

    fn hand_over(&mut self, stream: TcpStream) {
        // Over the limit: closed here. The host retries later.
        let Some(seat) = self.shared.seats.take() else { return };
        let hand_over = &self.shared.hand_over[self.turn % self.shared.hand_over.len()];
        self.turn += 1;
        hand_over.streams.lock().push((stream, seat));
        let _ = rustix::io::write(&hand_over.bell, &1u64.to_ne_bytes());
    }

    fn listen_for(&self, what: epoll::EventFlags) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        Ok(epoll::modify(&self.epoll, listener, epoll::EventData::new_u64(LISTENER), what)?)
    }

    fn poll_listener(&mut self, now: Nanos) -> io::Result<()> {
        if self.accepts_again.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.accepts_again = None;
        self.listen_for(epoll::EventFlags::IN)
    }

    fn begin(&mut self, stream: TcpStream, seat: Seat) {
        let data = epoll::EventData::new_u64(self.last + 1);
        let watched = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let set_up = || {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            vanished::enable_keepalive(&stream)?;
            epoll::add(&self.epoll, &stream, data, watched)?;
            stream.local_addr()
        };
        // The peer may be gone already, or the kernel out of memory.
        let Ok(local) = set_up() else { return };
        self.last += 1;
        let connection = Connection::new(self.shared.target.clone(), local, self.pools.clone());
        let gauge = Arc::new(Gauge::new());
        self.shared.gauges.lock().push(gauge.clone());
        let client = Client {
            stream,
            _seat: seat,
            connection,
            gauge,
            watched,
            closes_until: None,
            is_shut: false,
            is_lost: false,
        };
        self.clients.insert(self.last, client);
    }

    /// Handles completions and sends output. Returns true if there was anything to do.
    fn poll_clients(&mut self, now: Nanos, has_to_end: bool) -> bool {
        let mut is_busy = false;
        let mut wakes_others = false;
        let mut lost = Vec::new();
        for (&place, client) in &mut self.clients {
            is_busy |= client.connection.poll(now);
            wakes_others |= client.poll_closing(now);
            self.has_sent |= client.write();
            is_busy |= client.connection.wants_poll();
            wakes_others |= client.connection.take_wake_others();
            client.gauge.set(&mut client.connection);
            client.watch(&self.epoll, place);
            if client.is_lost || has_to_end && client.is_done() {
                lost.push(place);
            }
        }
        for place in lost {
            is_busy = true;
            let Some(mut client) = self.clients.remove(&place) else { continue };
            client.connection.close(now);
            let _ = epoll::delete(&self.epoll, &client.stream);
            self.shared.gauges.lock().retain(|gauge| !Arc::ptr_eq(gauge, &client.gauge));
            drop(client);
            // When the admin queue ends, the controller's other connections close as well, possibly
            // on other threads. The admin queue in turn may wait for another queue to end, to
            // answer an Abort or to close.
            wakes_others = true;
        }
        if wakes_others {
            self.shared.wake_all();
        }
        is_busy
    }
}

impl Client {
    /// Time of the next required check.
    fn deadline(&self) -> Option<Nanos> {
        self.closes_until.or_else(|| self.connection.deadline())
    }

    /// Starts to close a connection that is over, and drops it at the deadline. Returns true when
    /// closing starts, as other connections of the controller may wait for that.
    fn poll_closing(&mut self, now: Nanos) -> bool {
        match self.closes_until {
            Some(until) => self.is_lost |= until <= now,
            None if self.connection.is_over() => {
                self.connection.close(now);
                self.closes_until = Some(Nanos(now.0.saturating_add(CLOSING_MAX.as_nanos() as u64)));
                return true;
            }
            None => {}
        }
        false
    }

    /// Discards input.
    fn discard(&mut self, bytes: &mut [u8]) {
        match self.stream.read(bytes) {
            Ok(0) => self.is_lost = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_lost = true,
        }
    }

    /// True if nothing is left to send or to wait for.
    fn is_done(&mut self) -> bool {
        // The controller's other queues, on any thread, end with the admin queue.
        let is_needed = |queue: &Association| queue.qid() == 0 && queue.controller().io_queues() > 0;
        let is_needed = self.connection.queue().is_some_and(is_needed);
        !is_needed && !self.connection.has_requests() && self.connection.output().is_empty()
    }

    fn read(&mut self, now: Nanos, bytes: &mut [u8]) {
        let mut budget = READ_BUDGET;
        while budget > 0 && !self.connection.is_over() && self.connection.output().len() < UNSENT_MAX {
            let is_direct = self.connection.room().is_some();
            let read = match self.connection.room() {
                Some(room) => self.stream.read(room),
                None => self.stream.read(bytes),
            };
            match read {
                Ok(0) => {
                    self.is_lost = true;
                    return;
                }
                Ok(len) => {
                    budget = budget.saturating_sub(len);
                    match is_direct {
                        true => self.connection.has_received(now, len),
                        false => self.connection.receive(now, &bytes[..len]),
                    }
                    if !is_direct && len < bytes.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_lost = true;
                    return;
                }
            }
        }
    }

    /// Sends as much output as the kernel accepts. Returns true if any was sent.
    fn write(&mut self) -> bool {
        let output = self.connection.output();
        let before = output.len();
        while !output.is_empty() {
            match self.stream.write_vectored(&output.slices()) {
                Ok(len) if len > 0 => output.has_sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return output.len() < before,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.is_lost = true;
                    return false;
                }
            }
        }
        // The client sees the end of the stream and closes.
        if self.closes_until.is_some() && !std::mem::replace(&mut self.is_shut, true) {
            self.is_lost |= self.stream.shutdown(Shutdown::Write).is_err();
        }
        before > 0
    }

    /// Registers for writability while there is unsent output, and suspends input while there is
    /// too much of it.
    fn watch(&mut self, epoll: &OwnedFd, place: u64) {
        let unsent = self.connection.output().len();
        let mut watched = epoll::EventFlags::RDHUP;
        watched.set(epoll::EventFlags::OUT, unsent > 0);
        watched.set(epoll::EventFlags::IN, unsent < UNSENT_MAX || self.closes_until.is_some());
        if watched == self.watched {
            return;
        }
        self.watched = watched;
        if epoll::modify(epoll, &self.stream, epoll::EventData::new_u64(place), watched).is_err() {
            self.is_lost = true;
        }
    }
}
