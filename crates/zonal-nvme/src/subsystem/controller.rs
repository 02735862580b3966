//! Controller: one host's view of a target. Its queues are on several connections and threads.
//! Their shared state is behind one lock, which I/O commands take only when they fail.

use super::aborts::{Aborts, NOT_ABORTED};
use super::counts::QueueCounts;
use super::errors::ErrorLog;
use super::features::Features;
use super::notices::{EVENT_REQUESTS, Notices};
use super::{IO_QUEUES, Target};
use crate::status::Status;
use crate::wire::csts::{FATAL, READY};
use crate::wire::{Sqe, admin};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zonal_core::Nanos;
use zonal_io::volume::Events;

/// Association of a queue with its controller.
pub struct Association {
    controller: Arc<Controller>,
    qid: u16,
    /// Controller resets before the queue was connected.
    resets: u32,
    counts: Arc<QueueCounts>,
    /// Entries of the submission queue.
    pub entries: u16,
    /// True if the host uses submission queue flow control.
    pub has_flow_control: bool,
}

impl Association {
    pub(super) fn new(
        controller: Arc<Controller>,
        (qid, resets): (u16, u32),
        entries: u16,
        has_flow_control: bool,
    ) -> Association {
        let counts = controller.target.counts.open();
        Association { controller, qid, resets, counts, entries, has_flow_control }
    }

    /// True if the connection has to close: the controller is over or was reset.
    pub fn is_over(&self) -> bool {
        let is_reset = self.qid > 0 && self.resets != self.controller.resets.load(Ordering::Acquire);
        is_reset || self.controller.is_over()
    }

    /// The controller.
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// Transfer counters of the queue.
    pub fn counts(&self) -> &QueueCounts {
        &self.counts
    }

    /// Queue number; 0 is the admin queue.
    pub fn qid(&self) -> u16 {
        self.qid
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.controller.target.counts.close(&self.counts);
        self.controller.remove_queue(self.qid);
    }
}

/// Reply to an admin command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Success, with dwords 0 and 1.
    Done(u64),
    /// Success, with data of at most the length that the host accepts.
    Data(Vec<u8>),
    /// No reply yet: waiting for an event or for the end of another command.
    Later,
}

/// A controller.
pub struct Controller {
    id: u16,
    target: Arc<Target>,
    is_discovery: bool,
    host: [u8; 16],
    host_nqn: String,
    local: SocketAddr,
    is_over: AtomicBool,
    /// Enabled, not shut down and not failed. I/O commands read this without the lock.
    pub(super) is_ready: AtomicBool,
    /// The host has enabled the Zoned Namespace command set.
    pub(super) has_zones: AtomicBool,
    /// A shutdown waits for commands of an I/O queue at the device.
    pub(super) is_draining: AtomicBool,
    /// Number of resets. Queues connected before the last one are gone.
    pub(super) resets: AtomicU32,
    /// Time of the last message from the host, in nanoseconds.
    last_message: AtomicU64,
    /// An Abort waits to be taken by its queue. Queues read this without the lock.
    pub(super) has_aborts: AtomicBool,
    /// Locked after `state` or alone.
    pub(super) aborts: Mutex<Aborts>,
    pub(super) state: Mutex<ControllerState>,
}

pub(super) struct ControllerState {
    pub(super) cc: u32,
    /// `CSTS` as seen by commands. Hosts read [`ControllerState::status`].
    pub(super) csts: u32,
    /// Number of shutdown requests.
    pub(super) shutdowns: u32,
    /// Connected I/O queues.
    pub(super) queues: BTreeSet<u16>,
    /// Queues that may have commands at the device, on which a shutdown waits.
    pub(super) draining: BTreeSet<u16>,
    pub(super) features: Features,
    pub(super) notices: Notices,
    /// Event requests ended by a reset.
    pub(super) withdrawn: VecDeque<u16>,
    pub(super) errors: ErrorLog,
}

/// Handler of an admin command.
type AdminCommand = fn(&Controller, &Sqe, &mut ControllerState) -> Result<Reply, Status>;

/// Handler for an admin opcode.
pub(super) fn admin_command(opcode: u8) -> Option<AdminCommand> {
    let command: AdminCommand = match opcode {
        admin::IDENTIFY => |controller, sqe, _| controller.identify(sqe).map(Reply::Data),
        admin::GET_LOG_PAGE => |controller, sqe, state| controller.log_page(sqe, state).map(Reply::Data),
        admin::KEEP_ALIVE => |_, _, _| Ok(Reply::Done(0)),
        admin::ASYNC_EVENT_REQUEST => Controller::request_event,
        admin::ABORT => Controller::abort,
        admin::GET_FEATURES => |controller, sqe, state| state.features.get(sqe, controller.is_discovery),
        admin::SET_FEATURES => Controller::set_features,
        _ => return None,
    };
    Some(command)
}

impl Controller {
    #[allow(clippy::too_many_arguments, reason = "parameters of a Connect command, with one caller")]
    pub(super) fn new(
        id: u16,
        target: Arc<Target>,
        is_discovery: bool,
        (host, host_nqn): ([u8; 16], &str),
        local: SocketAddr,
        keep_alive: u32,
        now: Nanos,
        events: Vec<Events>,
    ) -> Controller {
        let has_cache = target.volume().info().volatile_cache;
        let state = ControllerState {
            cc: 0,
            csts: 0,
            shutdowns: 0,
            queues: BTreeSet::new(),
            draining: BTreeSet::new(),
            features: Features::new(keep_alive, has_cache, host),
            notices: Notices::new(events),
            withdrawn: VecDeque::new(),
            errors: ErrorLog::default(),
        };
        Controller {
            id,
            target,
            is_discovery,
            host,
            host_nqn: host_nqn.to_owned(),
            local,
            is_over: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
            has_zones: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            resets: AtomicU32::new(0),
            last_message: AtomicU64::new(now.0),
            has_aborts: AtomicBool::new(false),
            aborts: Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// Controller number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Target of the controller.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// NQN of the host.
    pub fn host_nqn(&self) -> &str {
        &self.host_nqn
    }

    /// Number of connected I/O queues.
    pub fn io_queues(&self) -> usize {
        self.state.lock().queues.len()
    }

    /// True for a discovery controller.
    pub fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    /// Local address of the host's connection.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn is_of(&self, host: &[u8; 16], nqn: &str) -> bool {
        self.host == *host && self.host_nqn == nqn
    }

    /// True if the controller has ended; its connections then close.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the controller, which closes its connections.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// True if I/O commands are accepted.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// True if commands of the Zoned Namespace command set are accepted (Base 3.1.4.5, CSS).
    pub(crate) fn has_zones(&self) -> bool {
        self.has_zones.load(Ordering::Acquire)
    }

    /// Claims an I/O queue number. Returns the number of resets so far, or `None` if it is in use.
    pub(super) fn take_queue(&self, qid: u16) -> Result<Option<u32>, (Status, u32)> {
        let mut state = self.state.lock();
        if state.csts & READY == 0 {
            return Err((Status::SEQUENCE_ERROR, 0));
        }
        // Read under the lock, so that a later reset closes this queue.
        Ok(state.queues.insert(qid).then(|| self.resets.load(Ordering::Acquire)))
    }

    /// Removes a queue when its connection closes. Removing the admin queue ends the controller.
    fn remove_queue(&self, qid: u16) {
        match qid {
            0 => {
                self.end();
                self.target.forget(self.id);
            }
            qid => {
                self.state.lock().queues.remove(&qid);
                self.has_drained(qid);
                self.end_aborts_of(qid);
            }
        }
    }

    /// Time of the last message from the host.
    pub(super) fn last_message(&self) -> Nanos {
        Nanos(self.last_message.load(Ordering::Relaxed))
    }

    /// Records a message from the host.
    pub fn touch(&self, now: Nanos) {
        self.last_message.store(now.0, Ordering::Relaxed);
    }

    /// Keep alive deadline (Base 3.9); `None` without a timeout.
    pub fn keep_alive_until(&self) -> Option<Nanos> {
        let ms = self.state.lock().features.keep_alive();
        let heard = self.last_message.load(Ordering::Relaxed);
        (ms > 0).then(|| Nanos(heard.saturating_add(u64::from(ms) * 1_000_000)))
    }

    /// Checks the keep alive deadline. If it has passed, the controller fails and ends.
    pub fn check_keep_alive(&self, now: Nanos) {
        if self.keep_alive_until().is_some_and(|until| until <= now) {
            self.state.lock().csts |= FATAL;
            self.is_ready.store(false, Ordering::Release);
            self.end();
        }
    }

    /// Executes an admin command.
    ///
    /// # Errors
    /// Status of the completion.
    pub fn admin(&self, sqe: &Sqe) -> Result<Reply, Status> {
        let mut state = self.state.lock();
        if state.csts & READY == 0 && sqe.opcode != admin::KEEP_ALIVE {
            return Err(Status::SEQUENCE_ERROR);
        }
        admin_command(sqe.opcode).ok_or(Status::INVALID_OPCODE)?(self, sqe, &mut state)
    }

    fn request_event(&self, sqe: &Sqe, state: &mut ControllerState) -> Result<Reply, Status> {
        if state.notices.waiting.len() >= usize::from(EVENT_REQUESTS) {
            return Err(Status::EVENT_LIMIT);
        }
        state.notices.waiting.push_back(sqe.cid.get());
        Ok(Reply::Later)
    }

    fn abort(&self, sqe: &Sqe, state: &mut ControllerState) -> Result<Reply, Status> {
        if self.is_discovery {
            return Err(Status::INVALID_OPCODE);
        }
        let (queue, cid) = (sqe.dword(10) as u16, (sqe.dword(10) >> 16) as u16);
        if queue > 0 && !state.queues.contains(&queue) {
            return Ok(Reply::Done(NOT_ABORTED));
        }
        self.ask_to_abort(queue, cid, sqe.cid.get())?;
        Ok(Reply::Later)
    }

    fn set_features(&self, sqe: &Sqe, state: &mut ControllerState) -> Result<Reply, Status> {
        let has_queues = !state.queues.is_empty();
        state.features.set(sqe, self.is_discovery, has_queues).map(Reply::Done)
    }

    /// Bytes of data from the host with this admin command.
    pub fn admin_data(&self, sqe: &Sqe) -> u32 {
        Features::data(sqe)
    }

    /// Next event request to complete, with its result.
    pub fn next_event(&self) -> Option<(u16, Result<u64, Status>)> {
        let mut state = self.state.lock();
        if let Some(cid) = state.withdrawn.pop_front() {
            return Some((cid, Err(Status::ABORT_REQUESTED)));
        }
        let ControllerState { notices, features, .. } = &mut *state;
        notices.next(&self.target, features).map(|(cid, event)| (cid, Ok(event)))
    }

    /// Withdraws event request `cid`. Returns false if there is none.
    pub(crate) fn withdraw_event_request(&self, cid: u16) -> bool {
        let waiting = &mut self.state.lock().notices.waiting;
        let at = waiting.iter().position(|other| *other == cid);
        at.and_then(|at| waiting.remove(at)).is_some()
    }

    /// Adds a failed command to the error log.
    pub(crate) fn note_error(&self, queue: u16, sqe: &Sqe, status: Status) {
        self.state.lock().errors.add(queue, sqe, status);
    }

    /// I/O queues granted to a host, zero-based.
    pub(super) fn queues_granted() -> u32 {
        u32::from(IO_QUEUES) - 1
    }
}
