//! A controller: one host's view of a target. Its queues lie on several connections and threads; what they share is here,
//! under one lock that no I/O command takes.

use super::features::Features;
use super::logs::ChangedZones;
use super::{IO_QUEUES, QUEUE_ENTRIES, Target};
use crate::status::Status;
use crate::wire::{Sqe, admin};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zonal_core::Nanos;
use zonal_io::volume::{DeviceEvent, Events};

/// Requests for events that a controller keeps.
pub(super) const EVENT_REQUESTS: u8 = 4;

/// Properties (Base 3.1.4).
mod property {
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1C;
    pub const CRTO: u32 = 0x68;
}

/// `VS`: 2.1.0.
pub(super) const VERSION: u32 = 0x0002_0100;

/// Time for a controller to be ready, in units of 500 ms: it is at once.
const TIMEOUT: u64 = 1;

const ENABLE: u32 = 1;
/// `CC` of a host: 64-byte commands, 16-byte completions, pages of 4 KiB, arbitration in turn; command sets apart.
const SHUTDOWN: u32 = 3 << 14;
const READY: u32 = 1;
const FATAL: u32 = 2;
const SHUT_DOWN: u32 = 2 << 2;

/// A queue's controller and its number there.
pub struct Association {
    controller: Arc<Controller>,
    qid: u16,
    /// Resets of the controller before the queue was connected.
    resets: u32,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Whether the host looks at the head of its submission queue.
    pub has_flow_control: bool,
}

impl Association {
    pub(super) fn new(
        controller: Arc<Controller>,
        qid: u16,
        entries: u16,
        has_flow_control: bool,
    ) -> Association {
        let resets = controller.resets.load(Ordering::Acquire);
        Association { controller, qid, resets, entries, has_flow_control }
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

    /// Its number: 0 is the admin queue.
    pub fn qid(&self) -> u16 {
        self.qid
    }
}

impl Drop for Association {
    fn drop(&mut self) {
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
    /// Nothing yet: it waits for an event.
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
    is_ready: AtomicBool,
    /// How often it was reset: queues that were connected before are gone.
    resets: AtomicU32,
    /// When the host was last heard, in nanoseconds.
    heard: AtomicU64,
    state: Mutex<State>,
}

struct State {
    cc: u32,
    csts: u32,
    /// The I/O queues that are connected.
    queues: BTreeSet<u16>,
    features: Features,
    /// Requests for events, by their numbers.
    waiting: VecDeque<u16>,
    /// Events that no request was there for, and what each of them was.
    unsent: VecDeque<u64>,
    events: Vec<Events>,
    changed: Vec<ChangedZones>,
    /// Namespaces whose size or limits have changed since the host has read the log.
    changed_namespaces: BTreeSet<u32>,
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
        let state = State {
            cc: 0,
            csts: 0,
            queues: BTreeSet::new(),
            features: Features::new(keep_alive, has_cache, host),
            waiting: VecDeque::new(),
            unsent: VecDeque::new(),
            changed: events.iter().map(|_| ChangedZones::default()).collect(),
            events,
            changed_namespaces: BTreeSet::new(),
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
            resets: AtomicU32::new(0),
            heard: AtomicU64::new(now.0),
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

    /// Takes an I/O queue's number. `false`: it is taken.
    pub(super) fn take_queue(&self, qid: u16) -> Result<bool, (Status, u32)> {
        let mut state = self.state.lock();
        match state.csts & READY {
            0 => Err((Status::SEQUENCE_ERROR, 0)),
            _ => Ok(state.queues.insert(qid)),
        }
    }

    /// A queue's connection is closed. Without its admin queue a controller is over.
    fn leave(&self, qid: u16) {
        match qid {
            0 => self.end(),
            qid => drop(self.state.lock().queues.remove(&qid)),
        }
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

    /// Property Get (Base 6.5): 4 bytes, or 8.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for what is no property, or has another length.
    pub fn property(&self, offset: u32, is_long: bool) -> Result<u64, Status> {
        let state = self.state.lock();
        let max = u64::from(QUEUE_ENTRIES) - 1;
        // Contiguous queues; command sets apart, and NVM.
        let cap = max | 1 << 16 | TIMEOUT << 24 | 1 << 37 | 1 << 43;
        Ok(match (offset, is_long) {
            (property::CAP, true) => cap,
            (property::VS, false) => VERSION.into(),
            (property::CC, false) => state.cc.into(),
            (property::CSTS, false) => state.csts.into(),
            (property::CRTO, false) => TIMEOUT | TIMEOUT << 16,
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Property Set (Base 6.6).
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for what a host may not set.
    pub fn set_property(&self, offset: u32, is_long: bool, value: u64) -> Result<(), Status> {
        if offset != property::CC || is_long {
            return Err(Status::INVALID_FIELD);
        }
        let cc = value as u32;
        let mut state = self.state.lock();
        let was = std::mem::replace(&mut state.cc, cc);
        if cc & SHUTDOWN != 0 && was & SHUTDOWN == 0 {
            state.csts |= SHUT_DOWN;
        }
        if cc & ENABLE != 0 && was & ENABLE == 0 {
            let (sets, page, arbitration) = (cc >> 4 & 7, cc >> 7 & 0xF, cc >> 11 & 7);
            // A host of the base set alone says 0; entry sizes concern no discovery controller.
            let is_right = matches!(sets, 0 | 6) && page == 0 && arbitration == 0;
            let has_sizes = self.is_discovery || cc >> 16 & 0xFF == 0x46;
            state.csts = if is_right && has_sizes { READY } else { FATAL };
        } else if cc & ENABLE == 0 && was & ENABLE != 0 {
            // A reset: its I/O queues are gone.
            state.csts = 0;
            state.waiting.clear();
            state.unsent.clear();
            self.resets.fetch_add(1, Ordering::AcqRel);
        }
        let is_ready = state.csts & (READY | SHUT_DOWN | FATAL) == READY;
        self.is_ready.store(is_ready, Ordering::Release);
        Ok(())
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
        match sqe.opcode {
            admin::IDENTIFY => self.identify(sqe).map(Reply::Data),
            admin::GET_LOG_PAGE => {
                let State { changed, changed_namespaces, .. } = &mut *state;
                self.log_page(sqe, changed, changed_namespaces).map(Reply::Data)
            }
            admin::KEEP_ALIVE => Ok(Reply::Done(0)),
            admin::ASYNC_EVENT_REQUEST => {
                if state.waiting.len() >= usize::from(EVENT_REQUESTS) {
                    return Err(Status::EVENT_LIMIT);
                }
                match state.unsent.pop_front() {
                    Some(event) => Ok(Reply::Done(event)),
                    None => {
                        state.waiting.push_back(sqe.cid.get());
                        Ok(Reply::Later)
                    }
                }
            }
            // What waits in the volume is ended with its connection only: the answer says that nothing was aborted here.
            admin::ABORT if !self.is_discovery => Ok(Reply::Done(1)),
            admin::GET_FEATURES => state.features.get(sqe, self.is_discovery),
            admin::SET_FEATURES => state.features.set(sqe, self.is_discovery).map(Reply::Done),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Bytes that the host sends with a command of the admin queue.
    pub fn admin_data(&self, sqe: &Sqe) -> u32 {
        Features::data(sqe)
    }

    /// An event for the host: the number of the request that it ends, and what it is.
    pub fn next_event(&self) -> Option<(u16, u64)> {
        let mut state = self.state.lock();
        self.take_device_events(&mut state);
        if state.waiting.is_empty() || state.unsent.is_empty() {
            return None;
        }
        state.waiting.pop_front().zip(state.unsent.pop_front())
    }

    fn take_device_events(&self, state: &mut State) {
        /// A notice, that the attributes of a namespace have changed, and the log that tells which.
        const NAMESPACE_CHANGED: u64 = 2 | 0x04 << 16;
        /// A notice, that a zone's descriptor has changed, and its log (ZNS 4.1.5).
        const ZONE_CHANGED: u64 = 2 | 0xEF << 8 | 0xBF << 16;
        for n in 0..state.events.len() {
            let namespace = &self.target.namespaces()[n];
            while let Some(event) = state.events[n].next() {
                match event {
                    DeviceEvent::Zone { zone, .. } if namespace.is_zoned() => {
                        let start = namespace.part().info().geometry.start_of(zone);
                        let is_first = state.changed[n].add(namespace.blocks(start.0));
                        if is_first && state.features.tells_zones() {
                            state.unsent.push_back(ZONE_CHANGED | u64::from(namespace.nsid()) << 32);
                        }
                    }
                    DeviceEvent::Limits | DeviceEvent::Size => {
                        let is_first = state.changed_namespaces.is_empty();
                        state.changed_namespaces.insert(namespace.nsid());
                        if is_first && state.features.tells_namespaces() {
                            state.unsent.push_back(NAMESPACE_CHANGED);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// I/O queues that a host gets, less one.
    pub(super) fn queues_granted() -> u32 {
        u32::from(IO_QUEUES) - 1
    }
}
