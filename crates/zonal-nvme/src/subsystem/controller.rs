//! A controller: one host's view of a target. Its queues lie on several connections and threads; what they share is here,
//! under one lock that no I/O command takes unless it fails.

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

/// A queue's controller and its number there.
pub struct Association {
    controller: Arc<Controller>,
    qid: u16,
    /// Resets of the controller before the queue was connected.
    resets: u32,
    counts: Arc<QueueCounts>,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Whether the host looks at the head of its submission queue.
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

    /// Whether the connection closes: with its controller, or because that was reset.
    pub fn is_over(&self) -> bool {
        let is_reset = self.qid > 0 && self.resets != self.controller.resets.load(Ordering::Acquire);
        is_reset || self.controller.is_over()
    }

    /// The controller.
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// What it has moved.
    pub fn counts(&self) -> &QueueCounts {
        &self.counts
    }

    /// Its number: 0 is the admin queue.
    pub fn qid(&self) -> u16 {
        self.qid
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.controller.target.counts.close(&self.counts);
        self.controller.leave(self.qid);
    }
}

/// What a command of the admin queue answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Its end, with dwords 0 and 1.
    Done(u64),
    /// Its end, with data: at most as many bytes as the host takes.
    Data(Vec<u8>),
    /// Nothing yet: it waits for an event, or for another command's end.
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
    /// It is enabled, and neither shut down nor broken: what I/O commands look at, without the lock.
    pub(super) is_ready: AtomicBool,
    /// Its host has enabled the Zoned Namespace command set.
    pub(super) has_zones: AtomicBool,
    /// A shutdown waits for what some I/O queue has at the device.
    pub(super) is_draining: AtomicBool,
    /// How often it was reset: queues that were connected before are gone.
    pub(super) resets: AtomicU32,
    /// When the host was last heard, in nanoseconds.
    heard: AtomicU64,
    /// Some queue has an Abort that it does not know of: what queues look at without the lock.
    pub(super) has_aborts: AtomicBool,
    /// Taken under `state`, or alone.
    pub(super) aborts: Mutex<Aborts>,
    pub(super) state: Mutex<ControllerState>,
}

pub(super) struct ControllerState {
    pub(super) cc: u32,
    /// As commands see it. What a host reads is [`ControllerState::status`].
    pub(super) csts: u32,
    /// Shutdowns that the host has asked for.
    pub(super) shutdowns: u32,
    /// The I/O queues that are connected.
    pub(super) queues: BTreeSet<u16>,
    /// Those that may have commands at the device, for which a shutdown waits.
    pub(super) draining: BTreeSet<u16>,
    pub(super) features: Features,
    pub(super) notices: Notices,
    /// Requests for events that a reset has ended.
    pub(super) withdrawn: VecDeque<u16>,
    pub(super) errors: ErrorLog,
}

/// Carries out a command of the admin queue.
type AdminCommand = fn(&Controller, &Sqe, &mut ControllerState) -> Result<Reply, Status>;

/// The admin commands, by their opcodes.
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
    #[allow(clippy::too_many_arguments, reason = "what a connect command says, once")]
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
            heard: AtomicU64::new(now.0),
            has_aborts: AtomicBool::new(false),
            aborts: Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// Its number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// What it is a controller of.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// The name of its host.
    pub fn host_nqn(&self) -> &str {
        &self.host_nqn
    }

    /// I/O queues that are connected.
    pub fn io_queues(&self) -> usize {
        self.state.lock().queues.len()
    }

    /// Whether it only tells where subsystems are.
    pub fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    /// Where its host has connected to.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn is_of(&self, host: &[u8; 16], nqn: &str) -> bool {
        self.host == *host && self.host_nqn == nqn
    }

    /// Whether it is at its end: its connections close.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Its connections close.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether I/O commands are taken.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Whether commands of the Zoned Namespace command set are taken (Base 3.1.4.5, CSS).
    pub(crate) fn has_zones(&self) -> bool {
        self.has_zones.load(Ordering::Acquire)
    }

    /// Takes an I/O queue's number, and tells how often the controller was reset before. `None`: it is taken.
    pub(super) fn take_queue(&self, qid: u16) -> Result<Option<u32>, (Status, u32)> {
        let mut state = self.state.lock();
        if state.csts & READY == 0 {
            return Err((Status::SEQUENCE_ERROR, 0));
        }
        // Under the lock: a reset that comes next closes this queue.
        Ok(state.queues.insert(qid).then(|| self.resets.load(Ordering::Acquire)))
    }

    /// A queue's connection is closed. Without its admin queue a controller is over.
    fn leave(&self, qid: u16) {
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

    /// When the host was last heard.
    pub(super) fn heard(&self) -> Nanos {
        Nanos(self.heard.load(Ordering::Relaxed))
    }

    /// The host has sent something.
    pub fn hear(&self, now: Nanos) {
        self.heard.store(now.0, Ordering::Relaxed);
    }

    /// When the host has to be heard at the latest (Base 3.9); `None` without a limit.
    pub fn keep_alive_until(&self) -> Option<Nanos> {
        let ms = self.state.lock().features.keep_alive();
        let heard = self.heard.load(Ordering::Relaxed);
        (ms > 0).then(|| Nanos(heard.saturating_add(u64::from(ms) * 1_000_000)))
    }

    /// Looks at the time. A host that was not heard for too long has lost its controller.
    pub fn look_at_time(&self, now: Nanos) {
        if self.keep_alive_until().is_some_and(|until| until <= now) {
            self.state.lock().csts |= FATAL;
            self.is_ready.store(false, Ordering::Release);
            self.end();
        }
    }

    /// Carries out a command of the admin queue.
    ///
    /// # Errors
    /// A status.
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

    /// Bytes that the host sends with a command of the admin queue.
    pub fn admin_data(&self, sqe: &Sqe) -> u32 {
        Features::data(sqe)
    }

    /// A request for an event that ends, and what with.
    pub fn next_event(&self) -> Option<(u16, Result<u64, Status>)> {
        let mut state = self.state.lock();
        if let Some(cid) = state.withdrawn.pop_front() {
            return Some((cid, Err(Status::ABORT_REQUESTED)));
        }
        let ControllerState { notices, features, .. } = &mut *state;
        notices.next(&self.target, features).map(|(cid, event)| (cid, Ok(event)))
    }

    /// Takes back a request for an event, if `cid` is a request that waits.
    pub(crate) fn withdraw_event_request(&self, cid: u16) -> bool {
        let waiting = &mut self.state.lock().notices.waiting;
        let at = waiting.iter().position(|other| *other == cid);
        at.and_then(|at| waiting.remove(at)).is_some()
    }

    /// Notes a command that has failed, for the error log.
    pub(crate) fn note_error(&self, queue: u16, sqe: &Sqe, status: Status) {
        self.state.lock().errors.add(queue, sqe, status);
    }

    /// I/O queues that a host gets, less one.
    pub(super) fn queues_granted() -> u32 {
        u32::from(IO_QUEUES) - 1
    }
}
