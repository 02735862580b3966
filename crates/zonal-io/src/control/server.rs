//! Server side: one thread serves all connections in turn, one query each.

use super::errands::Errands;
use super::place::{self, SocketState};
use super::{
    ANSWER_BYTES_MAX, Answer, CONNECTION_TIME_MAX, ControlError, ERRAND_TIME_MAX, Query, REQUEST_BYTES_MAX,
    SWITCH_TIME_MAX, ScrubQuery, VolumeFacts, ZONES_MAX, ZoneFacts,
};
use crate::badblocks::BadRange;
use crate::device::set_zones;
use crate::sync::Arc;
use crate::threads;
use crate::volume::{OptionChanges, OptionError, Volume, report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zonal_core::ZoneIndex;

/// Maximum number of open connections. For another one, the connection that has been silent for
/// longest is closed.
const CLIENTS_MAX: usize = 64;

/// Connections that may wait while a query is answered.
const BACKLOG: i32 = CLIENTS_MAX as i32;

/// Pause in accepting connections after the kernel has refused one.
const ACCEPT_REST: Duration = Duration::from_millis(10);

/// Time without a poll after which the server assumes that no thread polls the volume.
const UNPOLLED_TIME: Duration = Duration::from_millis(100);

/// Maximum number of volumes with one device name in a process; more indicate another problem.
const SAME_NAME_MAX: u32 = 1000;

/// Interval at which the server checks whether a thread still attends to its errands.
const LOOK_TIME: Duration = Duration::from_millis(1);

/// Returns the state of a user of the volume: a file system, or connections, rings and queues.
/// Called by the thread that executes the server's errands, or by the server's.
pub type StatusSource = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Executes an order to a scrub and returns its progress.
pub type ScrubHandler = Arc<dyn Fn(ScrubQuery) -> serde_json::Value + Send + Sync>;

/// Sources of information from above the volume.
#[derive(Clone, Default)]
pub(super) struct StatusSources {
    pub(super) files: Option<StatusSource>,
    pub(super) connections: Option<StatusSource>,
    pub(super) scrub: Option<ScrubHandler>,
}

/// Answers queries about a volume until it is dropped, which removes the socket.
///
/// Keeps the volume open meanwhile.
pub struct ControlServer {
    path: PathBuf,
    /// Closing this end stops the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Opens a socket in [`directory`](super::directory), named after this process and the device.
    ///
    /// # Errors
    /// [`ControlError`]; the volume works regardless.
    pub fn start(volume: Arc<Volume>) -> Result<ControlServer, ControlError> {
        ControlServer::start_with(volume, None, Errands::default())
    }

    /// Opens a socket for a volume that is exported.
    ///
    /// # Errors
    /// As for [`ControlServer::start`].
    pub fn start_for_export(
        volume: Arc<Volume>,
        connections: StatusSource,
    ) -> Result<ControlServer, ControlError> {
        let sources = StatusSources { connections: Some(connections), ..StatusSources::default() };
        ControlServer::start_in(&place::directory()?, volume, sources, Errands::default())
    }

    /// Opens a socket for a volume with a mounted file system.
    ///
    /// # Errors
    /// As for [`ControlServer::start`].
    pub fn start_for_mount(
        volume: Arc<Volume>,
        files: StatusSource,
        scrub: ScrubHandler,
    ) -> Result<ControlServer, ControlError> {
        let sources = StatusSources { files: Some(files), scrub: Some(scrub), ..StatusSources::default() };
        ControlServer::start_in(&place::directory()?, volume, sources, Errands::default())
    }

    /// Opens a socket for a volume with a file system, or for the volume of a run, which uses it
    /// exclusively and executes the server's errands.
    ///
    /// # Errors
    /// As for [`ControlServer::start`].
    pub fn start_with(
        volume: Arc<Volume>,
        files: Option<StatusSource>,
        errands: Errands,
    ) -> Result<ControlServer, ControlError> {
        let sources = StatusSources { files, ..StatusSources::default() };
        ControlServer::start_in(&place::directory()?, volume, sources, errands)
    }

    pub(super) fn start_in(
        dir: &Path,
        volume: Arc<Volume>,
        sources: StatusSources,
        errands: Errands,
    ) -> Result<ControlServer, ControlError> {
        let pid = std::process::id();
        let mut n = 0;
        let (path, listener) = loop {
            let path = dir.join(place::file_name(pid, &volume.info().name, n));
            match bind(&path) {
                Err(ControlError::InUse { .. }) if n < SAME_NAME_MAX => n += 1,
                bound => break (path, bound?),
            }
        };
        ControlServer::serve(&path, listener, volume, sources, errands)
    }

    /// Opens a socket at `path`, in any directory.
    ///
    /// # Errors
    /// [`ControlError::InUse`] if the path exists and is not a stale socket.
    pub fn start_at(path: &Path, volume: Arc<Volume>) -> Result<ControlServer, ControlError> {
        ControlServer::serve(path, bind(path)?, volume, StatusSources::default(), Errands::default())
    }

    fn serve(
        path: &Path,
        listener: UnixListener,
        volume: Arc<Volume>,
        sources: StatusSources,
        errands: Errands,
    ) -> Result<ControlServer, ControlError> {
        let remove_and = |doing| {
            move |source: io::Error| {
                let _ = std::fs::remove_file(path);
                ControlError::io(path, doing, source)
            }
        };
        let (stop, stopped) = UnixStream::pair().map_err(remove_and("cannot create a socket pair"))?;
        let service = Service { stopped, volume, sources, errands };
        let thread = threads::spawn("zonal-control", move || service.serve(&listener)).map_err(|source| {
            let _ = std::fs::remove_file(path);
            ControlError::Thread { path: path.to_owned(), source }
        })?;
        Ok(ControlServer { path: path.to_owned(), stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ControlServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlServer").field("path", &self.path).finish_non_exhaustive()
    }
}

fn bind(path: &Path) -> Result<UnixListener, ControlError> {
    let fail = |doing| move |e: Errno| ControlError::io(path, doing, e);
    if matches!(place::probe(path), SocketState::Living | SocketState::Other) {
        return Err(ControlError::InUse { path: path.to_owned() });
    }
    place::remove_stale(path);
    let fd = place::socket().map_err(fail("cannot create a socket"))?;
    // On Linux the file inherits the socket's mode, so others can never connect.
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(fail("cannot restrict access to the socket"))?;
    let address = SocketAddrUnix::new(path).map_err(fail("not a valid socket path"))?;
    rustix::net::bind(&fd, &address).map_err(|e| match e {
        Errno::ADDRINUSE => ControlError::InUse { path: path.to_owned() },
        e => fail("cannot bind the socket")(e),
    })?;
    rustix::net::listen(&fd, BACKLOG).map_err(fail("cannot listen"))?;
    let listener = UnixListener::from(fd);
    listener.set_nonblocking(true).map_err(|e| ControlError::io(path, "cannot set non-blocking mode", e))?;
    Ok(listener)
}

struct Service {
    stopped: UnixStream,
    volume: Arc<Volume>,
    sources: StatusSources,
    errands: Errands,
}

/// A connection; one query at a time is answered.
struct Client {
    stream: UnixStream,
    /// Received and not yet answered.
    input: Vec<u8>,
    /// Answer that is not completely sent, or empty.
    output: Vec<u8>,
    sent: usize,
    /// Deadline for sending the next query or reading the answer.
    deadline: Instant,
    /// The connection is closed after the answer.
    is_over: bool,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        let deadline = Instant::now() + CONNECTION_TIME_MAX;
        Ok(Client { stream, input: Vec::new(), output: Vec::new(), sent: 0, deadline, is_over: false })
    }

    /// True if a query is waiting to be answered.
    fn has_query(&self) -> bool {
        self.output.is_empty() && self.input.contains(&b'\n')
    }

    fn events(&self) -> PollFlags {
        if self.output.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Reads or writes as much as possible. Returns false if the connection is to be closed.
    fn step(&mut self) -> bool {
        let result = if self.output.is_empty() { self.read() } else { self.write() };
        match result {
            Ok(stays) => stays,
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; 1024];
        let len = self.stream.read(&mut piece)?;
        self.input.extend_from_slice(&piece[..len]);
        // End of input; queries received before it are still answered.
        self.is_over |= len == 0;
        if self.input.len() >= REQUEST_BYTES_MAX && !self.input.contains(&b'\n') {
            let what = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            self.is_over = true;
            return self.send_answer(&Answer::Error(what));
        }
        Ok(!self.is_over || self.has_query())
    }

    /// Starts sending an answer. Returns false if the connection is to be closed.
    fn send_answer(&mut self, answer: &Answer) -> io::Result<bool> {
        self.output = serde_json::to_vec(answer)?;
        self.output.push(b'\n');
        self.deadline = Instant::now() + CONNECTION_TIME_MAX;
        self.write()
    }

    fn write(&mut self) -> io::Result<bool> {
        // Rust's runtime ignores SIGPIPE, so a disconnected client is an ordinary error here.
        self.sent += self.stream.write(&self.output[self.sent..])?;
        if self.sent == self.output.len() {
            (self.output, self.sent) = (Vec::new(), 0);
        }
        Ok(!self.output.is_empty() || !self.is_over || self.has_query())
    }
}

impl Service {
    fn serve(&self, listener: &UnixListener) {
        let mut clients: Vec<Client> = Vec::new();
        let mut accepts_from = Instant::now();
        loop {
            let now = Instant::now();
            clients.retain(|client| client.has_query() || client.deadline > now);
            let accepts = accepts_from <= now;
            let Some(ready) = self.wait(listener, accepts, accepts_from, &clients) else { return };
            let mut ready = ready.into_iter();
            // All clients are served once before any is served again.
            clients.retain_mut(|client| {
                let is_ready = ready.next().is_some_and(|is_ready| is_ready);
                (!is_ready || client.step()) && (!client.has_query() || self.answer_next(client))
            });
            // Bounds the memory for answers that are not read.
            while clients.len() > 1
                && clients.iter().map(|c| c.output.len()).sum::<usize>() > ANSWER_BYTES_MAX
            {
                let unsent = (0..clients.len()).filter(|n| !clients[*n].output.is_empty());
                unsent.min_by_key(|n| clients[*n].deadline).map(|n| clients.remove(n));
            }
            if !accepts {
                continue;
            }
            match accept_all(listener, &mut clients) {
                Ok(()) => {}
                // For instance out of descriptors: do not spin until some are free.
                Err(_) => accepts_from = Instant::now() + ACCEPT_REST,
            }
        }
    }

    /// Sleeps until there is work or a deadline passes. Returns for each client whether it is
    /// ready, or `None` once the server is dropped.
    fn wait(
        &self,
        listener: &UnixListener,
        accepts: bool,
        accepts_from: Instant,
        clients: &[Client],
    ) -> Option<Vec<bool>> {
        let first =
            clients.iter().map(|client| client.deadline).chain((!accepts).then_some(accepts_from)).min();
        let left = first.map(|first| first.saturating_duration_since(Instant::now()));
        let left = if clients.iter().any(Client::has_query) { Some(Duration::ZERO) } else { left };
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let listens = if accepts { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(listener, listens)];
        fds.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.events())));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if !fds[0].revents().is_empty() => None,
            Ok(_) => Some(fds[2..].iter().map(|fd| !fd.revents().is_empty()).collect()),
            // Without memory for the call, no client is ready.
            Err(_) => Some(vec![false; clients.len()]),
        }
    }

    /// Answers the next query of a client. Returns false if the connection is to be closed.
    fn answer_next(&self, client: &mut Client) -> bool {
        let Some(end) = client.input.iter().position(|&b| b == b'\n') else { return true };
        let answer = self.answer(&client.input[..end]);
        client.input.drain(..=end);
        match client.send_answer(&answer) {
            Ok(stays) => stays,
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn answer(&self, line: &[u8]) -> Answer {
        let answer = match serde_json::from_slice(line) {
            Ok(Query::Plugs) => self.ask(|volume| Answer::Plugs(volume.plugs())),
            Ok(Query::Stat) => self.ask(|volume| Answer::Stat(volume.statistics())),
            Ok(Query::Info) => self.ask(|volume| Answer::Info(Box::new(VolumeFacts::of(volume)))),
            Ok(Query::Files) => {
                let files = self.sources.files.clone();
                self.ask(move |_| Answer::Files(files.map(|tell| tell())))
            }
            Ok(Query::Connections) => {
                let connections = self.sources.connections.clone();
                self.ask(move |_| Answer::Connections(connections.map(|tell| tell())))
            }
            Ok(Query::Scrub(query)) => {
                let scrub = self.sources.scrub.clone();
                self.ask(move |_| Answer::Scrub(scrub.map(|tell| tell(query))))
            }
            Ok(Query::Zones { first, count }) => self
                .ask(move |volume| zones_of(volume, first, count))
                .and_then(|zones| zones.map(Answer::Zones)),
            Ok(Query::Zone { first, last, set }) => self
                .ask(move |volume| set_zones(&**volume.device(), first..=last, set))
                .and_then(|outcome| outcome.map(|()| Answer::Zone(set)).map_err(|error| error.to_string())),
            Ok(Query::Badblocks { change }) => self.badblocks(change).map(Answer::Badblocks),
            Ok(Query::Set { options }) => self.set(&options).and_then(|pending| {
                self.ask(|volume| Answer::Info(Box::new(VolumeFacts { pending, ..VolumeFacts::of(volume) })))
            }),
            Err(e) => Err(e.to_string()),
        };
        answer.unwrap_or_else(Answer::Error)
    }

    /// Lets the thread that executes the errands run `question` at the volume's time.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&Volume) -> R + Send + 'static,
    ) -> Result<R, String> {
        let (tell, told) = sync_channel(1);
        let volume = self.volume.clone();
        self.errands.post(move || _ = tell.send(question(&volume)));
        let begun = Instant::now();
        while begun.elapsed() < ERRAND_TIME_MAX {
            match told.recv_timeout(LOOK_TIME) {
                Ok(answer) => return Ok(answer),
                // The run may have ended.
                Err(RecvTimeoutError::Timeout) => self.errands.do_unless_attended(|| {}),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.errands.withdraw();
        Err("the run does not respond".to_owned())
    }

    fn badblocks(&self, change: Option<String>) -> Result<Vec<(u64, u64)>, String> {
        let change =
            change.map(|change| change.parse::<BadRange>()).transpose().map_err(|e| e.to_string())?;
        self.ask(move |volume| volume.device().badblocks(change))?.map_err(|error| error.to_string())
    }

    /// Changes options and waits for them, for as long as one client may delay others. Returns the
    /// option that takes effect later, if any.
    fn set(&self, options: &str) -> Result<Option<String>, String> {
        let changes: OptionChanges = options.parse().map_err(|e: OptionError| e.to_string())?;
        // The next poll starts a switch, in the volume's time. If no thread polls, it is started
        // here once the volume is idle.
        self.ask(move |volume| volume.set_options(&changes).map_err(|e| e.to_string()))??;
        let begun = Instant::now();
        loop {
            let now = self.volume.options();
            let pending = match (changes.mode, changes.window) {
                (Some(mode), _) if now.mode != Some(mode) => mode.name().to_owned(),
                (_, Some(window)) if now.window != window => format!("window={window}"),
                _ => return Ok(None),
            };
            if begun.elapsed() >= SWITCH_TIME_MAX {
                return Ok(Some(pending));
            }
            if begun.elapsed() >= UNPOLLED_TIME {
                self.errands.do_unless_attended(|| self.volume.begin_request_if_idle());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Describes zones of the volume's device, as its drive reports them.
fn zones_of(volume: &Volume, first: u32, count: u32) -> Result<Vec<ZoneFacts>, String> {
    let device = &**volume.device();
    if device.insight().virtual_time {
        return Err(
            "the drive is simulated in virtual time, where zones cannot be listed during a run".to_owned()
        );
    }
    let geometry = &device.info().geometry;
    if first >= geometry.zones() {
        return Ok(Vec::new());
    }
    let count = count.min(ZONES_MAX).min(geometry.zones() - first);
    let zones = report(device, geometry.start_of(ZoneIndex(first)), count);
    zones.map(|zones| zones.iter().map(ZoneFacts::from).collect()).map_err(|error| error.to_string())
}

/// Accepts all waiting connections. At the limit it closes the oldest silent one, or if none is
/// silent the oldest.
fn accept_all(listener: &UnixListener, clients: &mut Vec<Client>) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let Ok(client) = Client::new(stream) else { continue };
                if clients.len() >= CLIENTS_MAX {
                    let age =
                        |client: &Client| (!client.output.is_empty() || client.has_query(), client.deadline);
                    let oldest = (0..clients.len()).min_by_key(|n| age(&clients[*n]));
                    oldest.map(|n| clients.remove(n));
                }
                clients.push(client);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(e) => return Err(e),
        }
    }
}
