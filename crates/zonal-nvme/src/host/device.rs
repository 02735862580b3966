//! Namespace of a remote controller as a device.
//!
//! Each queue of the device is an I/O queue of the controller on its own connection. The threads
//! that submit and poll do all the work of a queue. Submitted commands are sent by the next poll
//! or [`commit`](Device::commit), so that many share a system call. A helper thread
//! ([`super::watch`]) wakes sleeping threads when input arrives.
//!
//! # Lost connections
//! The first queue that fails ends the device. Commands in flight and all later ones fail with
//! [`DeviceError::Gone`]: the outcome of the former is unknown, the latter are not executed. The
//! device does not reconnect, because the drive that answers could be a different one.

use super::AttachOptions;
use super::attach::{self, Attached};
use super::commands::{After, Job, Start};
use super::errors::AttachError;
use super::identify::NamespaceFacts;
use super::link::{Came, Link, LinkError};
use super::watch::Watch;
use crate::wire::ChangedZoneList;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use zerocopy::FromBytes;
use zonal_core::{DeviceError, Nanos, ZoneIndex};
use zonal_io::changes::{Changes, Notices};
use zonal_io::device::{Command, Completed, Context, Device, DeviceInfo, OpenMode, Submitted};
use zonal_io::news::Wakeups;

/// Output of a queue that is sent without waiting for a poll.
const SEND_AT: usize = 64 << 10;

/// Maximum reads per poll.
const READS_MAX: usize = 4;

/// Namespace of a remote controller.
pub struct RemoteDevice {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
}

/// State shared by the device's threads and its helper.
pub(super) struct Shared {
    info: DeviceInfo,
    namespace: NamespaceFacts,
    queues: Box<[IoQueue]>,
    pub(super) wakeups: Wakeups,
    pub(super) notices: Notices,
    pub(super) watch: Watch,
    is_lost: AtomicBool,
    reason: Mutex<Option<String>>,
}

struct IoQueue {
    state: Mutex<QueueState>,
    /// Commands in flight or completed but not yet handed out.
    held: AtomicUsize,
}

struct QueueState {
    link: Link<Job>,
    /// Completed but not yet handed out.
    ready: VecDeque<Completed>,
}

impl RemoteDevice {
    /// Attaches the namespace selected by `options` as a device named `name`.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(name: &str, options: &AttachOptions, mode: OpenMode) -> Result<RemoteDevice, AttachError> {
        let Attached { admin, mut io, namespace } = attach::attach(options)?;
        let mut info = namespace.info(name, options, io.len());
        info.read_only |= mode == OpenMode::Reading;
        let mut watch = Watch::new(&admin.stream)?;
        for link in &mut io {
            link.set_nonblocking()?;
            watch.add(&link.stream)?;
        }
        let queue = |link| IoQueue {
            state: Mutex::new(QueueState { link, ready: VecDeque::new() }),
            held: AtomicUsize::new(0),
        };
        let shared = Arc::new(Shared {
            wakeups: Wakeups::new(io.len()),
            queues: io.into_iter().map(queue).collect(),
            notices: Notices::default(),
            watch,
            is_lost: AtomicBool::new(false),
            reason: Mutex::default(),
            info,
            namespace,
        });
        let helper = Watch::start(shared.clone(), admin)?;
        Ok(RemoteDevice { shared, helper: Some(helper) })
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        self.shared.watch.end();
        if let Some(helper) = self.helper.take() {
            // A helper that panicked needs no further handling.
            let _ = helper.join();
        }
    }
}

impl Shared {
    pub(super) fn nsid(&self) -> u32 {
        self.namespace.nsid
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Marks the device as gone. The next poll of each queue fails its commands in flight.
    pub(super) fn lose(&self, reason: &LinkError) {
        if self.is_lost.swap(true, Ordering::AcqRel) {
            return;
        }
        *self.reason.lock() = Some(reason.to_string());
        self.notices.note(|changes| changes.gone = true);
        self.wakeups.ring_all();
        self.watch.wake();
    }

    /// Sends output and processes input. Returns true if there may be more input.
    fn advance(&self, state: &mut QueueState) -> bool {
        let moved = match self.is_lost() {
            true => Ok(false),
            false => self.transfer(state),
        };
        if let Err(reason) = &moved {
            self.lose(reason);
        }
        if self.is_lost() {
            let gone =
                |job: Job| job.context.map(|context| Completed { context, result: Err(DeviceError::Gone) });
            state.ready.extend(state.link.queue.take_all().filter_map(gone));
        }
        moved.unwrap_or(false)
    }

    fn transfer(&self, state: &mut QueueState) -> Result<bool, LinkError> {
        let QueueState { link, ready } = state;
        link.flush()?;
        if link.queue.in_flight() == 0 {
            return Ok(false);
        }
        let mut came = Came::Full;
        for _ in 0..READS_MAX {
            if came == Came::Full {
                came = link.fill()?;
            }
        }
        while let Some(ended) = link.queue.next_ended() {
            match self.namespace.after(ended) {
                (Some(context), After::End(result)) => ready.push_back(Completed { context, result }),
                (context, After::Next(command, job)) => {
                    // The completed command has just freed a slot.
                    if let Err(job) = link.queue.submit(command, job.of(context))
                        && let Some(context) = job.context
                    {
                        ready.push_back(Completed { context, result: Err(DeviceError::Aborted) });
                    }
                }
                (None, After::End(_)) => {}
            }
        }
        // Replies to R2Ts, and next commands of reports.
        link.flush()?;
        Ok(came == Came::Full)
    }

    /// Sends output as far as the connection takes it.
    fn send(&self, queue: usize, state: &mut QueueState) {
        if let Err(reason) = state.link.flush() {
            self.lose(&reason);
        }
        self.listen(queue, state);
    }

    /// Arranges a wake-up of sleeping threads on the next input. Called under the queue's lock
    /// after a read without input.
    fn listen(&self, queue: usize, state: &QueueState) {
        if self.wakeups.has_sleepers() && !self.is_lost() {
            let has_output = !state.link.queue.output().is_empty();
            if let Err(error) = self.watch.listen(queue, &state.link.stream, has_output) {
                self.lose(&LinkError::Io(error));
            }
        }
    }

    /// Zones in a changed zone log (ZNS 4.1.4.1); all zones if they were too many to list.
    pub(super) fn changed_zones(&self, log: &[u8]) -> Vec<ZoneIndex> {
        let geometry = self.info.geometry;
        let (log, _) = ChangedZoneList::ref_from_prefix(log).expect("4096 bytes");
        match log.count.get() {
            ChangedZoneList::TOO_MANY => (0..geometry.zones()).map(ZoneIndex).collect(),
            count => log
                .starts
                .iter()
                .take(count.into())
                .map(|start| self.namespace.sector(start.get()))
                .filter(|start| start.0 < geometry.sectors().0)
                .map(|start| geometry.zone_of(start))
                .collect(),
        }
    }
}

impl Device for RemoteDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn submit(
        &self,
        _now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let shared = &*self.shared;
        if shared.is_lost() {
            return Submitted::Done(Err(DeviceError::Gone));
        }
        if let Some(result) = shared.info.answer_to_reader(command.op) {
            return Submitted::Done(result);
        }
        let (sqe, job) = match shared.namespace.start(command) {
            Start::Send(sqe, job) => (sqe, job),
            Start::Answered(result) => return Submitted::Done(result),
        };
        let IoQueue { state, held } = &shared.queues[queue];
        let mut state = state.lock();
        if state.link.queue.is_full() {
            return Submitted::Busy;
        }
        let job = job.of(context.take());
        if let Err(job) = state.link.queue.submit(sqe, job) {
            *context = job.context;
            return Submitted::Busy;
        }
        held.fetch_add(1, Ordering::Relaxed);
        if state.link.queue.output().len() >= SEND_AT {
            shared.send(queue, &mut state);
        }
        Submitted::Accepted
    }

    fn commit(&self, queue: usize) {
        let shared = &*self.shared;
        let mut state = shared.queues[queue].state.lock();
        if !shared.is_lost() && !state.link.queue.output().is_empty() {
            shared.send(queue, &mut state);
        }
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let shared = &*self.shared;
        let IoQueue { state, held } = &shared.queues[queue];
        // The thread that holds the lock will finish soon, but may not see the completion that this
        // one waits for.
        let Some(mut state) = state.try_lock() else { return Some(now) };
        let has_more = shared.advance(&mut state);
        let taken = state.ready.len().min(budget);
        state.ready.drain(..taken).for_each(done);
        held.fetch_sub(taken, Ordering::Relaxed);
        if has_more || !state.ready.is_empty() {
            return Some(now);
        }
        shared.listen(queue, &state);
        None
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.shared.queues[queue].held.load(Ordering::Relaxed) == 0
    }

    fn gone_because(&self) -> Option<String> {
        self.shared.reason.lock().clone()
    }

    fn has_changes(&self) -> bool {
        self.shared.notices.are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.shared.notices.take(into);
    }

    fn wakeups(&self) -> &Wakeups {
        &self.shared.wakeups
    }

    fn has_news(&self, queue: usize) -> bool {
        let mut state = self.shared.queues[queue].state.lock();
        self.shared.advance(&mut state);
        self.shared.listen(queue, &state);
        !state.ready.is_empty()
    }
}

impl std::fmt::Debug for RemoteDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteDevice({:?}, {} queues)", self.shared.info.name, self.shared.queues.len())
    }
}
