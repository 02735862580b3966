//! A namespace of a remote controller as a device.
//!
//! Each of the device's queues is an I/O queue of the controller, on a connection of its own. The threads that submit and poll do
//! all the work of a queue: what they submit is sent by the next poll, so that many commands share a system call, or at once where a
//! thread sleeps. A helper thread ([`super::watch`]) tells sleeping threads when something has come.
//!
//! # A lost connection
//! The first queue that fails ends the device. What is in flight ends with [`DeviceError::Gone`], and so does every later command:
//! what became of the first is not known, and nothing of the others was carried out. There is no second attempt, because a drive that
//! comes back may be another one.

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
use zonal_core::{DeviceError, Nanos, Op, ZoneIndex};
use zonal_io::changes::{Changes, Notices};
use zonal_io::device::{Command, Completed, Context, Device, DeviceInfo, OpenMode, Output, Submitted};
use zonal_io::news::Wakeups;

/// Output of a queue that is sent at once.
const SEND_AT: usize = 64 << 10;

/// Reads of one poll.
const READS_MAX: usize = 4;

/// A namespace of a remote controller. See the module.
pub struct RemoteDevice {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
}

/// What the device's threads and its helper share.
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
    /// Commands that were not handed out.
    held: AtomicUsize,
}

struct QueueState {
    link: Link<Job>,
    /// Ended, and not handed out.
    ready: VecDeque<Completed>,
}

impl RemoteDevice {
    /// Attaches the namespace that `options` say, as a device called `name`.
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

    /// Why the device is gone, if it is.
    pub fn lost_because(&self) -> Option<String> {
        self.shared.reason.lock().clone()
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        self.shared.watch.end();
        if let Some(helper) = self.helper.take() {
            // A helper that panicked has nothing left to do.
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

    /// The device is gone. Each queue's next poll ends what is in flight there.
    pub(super) fn lose(&self, reason: &LinkError) {
        if self.is_lost.swap(true, Ordering::AcqRel) {
            return;
        }
        *self.reason.lock() = Some(reason.to_string());
        self.notices.note(|changes| changes.gone = true);
        self.wakeups.ring_all();
        self.watch.wake();
    }

    /// Sends and takes what there is. Returns whether there may be more.
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
                    // The command before has just left its place to this one.
                    if let Err(job) = link.queue.submit(command, job.of(context))
                        && let Some(context) = job.context
                    {
                        ready.push_back(Completed { context, result: Err(DeviceError::Aborted) });
                    }
                }
                (None, After::End(_)) => {}
            }
        }
        // What comes in reply to an R2T, and the next part of a report.
        link.flush()?;
        Ok(came == Came::Full)
    }

    /// Sees to it that a thread that sleeps hears of what comes. Under the queue's lock, after a look that has brought nothing.
    fn listen(&self, queue: usize, state: &QueueState) {
        if self.wakeups.has_sleepers() && !self.is_lost() {
            let has_output = !state.link.queue.output().is_empty();
            if let Err(error) = self.watch.listen(queue, &state.link.stream, has_output) {
                self.lose(&LinkError::Io(error));
            }
        }
    }

    /// The zones that a log of changed zones names (ZNS 4.1.4.1): all, where they are too many to be listed.
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

    /// Whether the device was opened for reading, and `op` is not for reading.
    fn refuses(&self, op: Op) -> bool {
        let only_looks = op.is_read() || matches!(op, Op::Report | Op::Flush);
        self.info.read_only && !only_looks
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
        if shared.refuses(command.op) {
            return Submitted::Done(Err(DeviceError::OpenedForReading));
        }
        if shared.info.read_only && command.op == Op::Flush {
            return Submitted::Done(Ok(Output::Done));
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
        let sleeps = shared.wakeups.has_sleepers();
        if sleeps || state.link.queue.output().len() >= SEND_AT {
            if let Err(reason) = state.link.flush() {
                shared.lose(&reason);
            }
            shared.listen(queue, &state);
        }
        Submitted::Accepted
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
        // The other thread is done soon, and may not look at what this one waits for.
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
