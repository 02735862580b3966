//! Access of one job to its devices: a lane for each, and a common inbox.

use crate::clock;
use crate::inbox::{FioEvent, Inbox, Left};
use crate::shared::Shared;
use rustix::io::Errno;
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use zonal_core::{Nanos, Op, SECTOR_BYTES, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::errno;
use zonal_io::volume::{Backoff, Channel, Completion, Request};

/// Maximum number of consecutive requests completed inline with the same time: such a device does
/// not need it. After any other completion the next request reads the clock.
const AGE_MAX: u32 = 1024;

/// A job: requests of one thread, on any number of devices.
pub struct Job {
    inbox: Arc<Inbox>,
    lanes: Vec<Rc<Lane>>,
    backoff: Backoff,
}

/// Requests of a job on one device.
pub struct Lane {
    shared: Arc<Shared>,
    channel: Channel,
    inbox: Arc<Inbox>,
    /// Last reading of the clock.
    now: Cell<Nanos>,
    /// Number of requests since then.
    age: Cell<u32>,
}

/// A validated request from fio.
pub(crate) struct Io {
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) data: NonNull<u8>,
}

impl Io {
    /// # Safety
    /// As [`IoBuf::from_raw`], until the request ends.
    #[inline(always)]
    unsafe fn request(&self, token: u64) -> Option<Request> {
        let (op, buf, sectors) = match self.op {
            Op::Flush => return Some(Request::flush().token(token)),
            op => {
                let len = u32::try_from(self.len).ok()?;
                // SAFETY: the caller's promise.
                (op, unsafe { IoBuf::from_raw(self.data, len) }, len / SECTOR_BYTES as u32)
            }
        };
        if (self.offset | self.len) & (SECTOR_BYTES - 1) != 0 {
            return None;
        }
        let sector = Sector(self.offset / SECTOR_BYTES);
        Some(Request {
            op,
            fua: false,
            nowait: false,
            awaited: false,
            sector,
            sectors,
            buf: buf.into(),
            token,
        })
    }
}

impl Job {
    /// Creates a job of the calling thread with at most `depth` requests in flight.
    pub(crate) fn new(depth: usize) -> Job {
        Job { inbox: Arc::new(Inbox::new(depth)), lanes: Vec::new(), backoff: Backoff::default() }
    }

    /// Adds a lane to `shared`. Its address is stable for the life of the job.
    pub(crate) fn lane(&mut self, shared: Arc<Shared>) -> &Rc<Lane> {
        let channel = shared.volume.channel(completion_function(&shared, &self.inbox));
        let (inbox, now, age) = (self.inbox.clone(), Cell::new(clock::now()), Cell::new(AGE_MAX));
        self.lanes.push(Rc::new(Lane { shared, channel, inbox, now, age }));
        &self.lanes[self.lanes.len() - 1]
    }

    /// Waits for at least `min` events, but no longer than `timeout`. Moves the available ones to
    /// `to` and returns their number. With a `min` of 0, checks once.
    pub(crate) fn events(&mut self, min: usize, timeout: Option<Duration>, to: &mut [FioEvent]) -> usize {
        let begin = timeout.map(|_| clock::instant());
        let min = min.min(to.len());
        let mut taken = self.inbox.take(to);
        while taken < min.max(1) {
            let now = clock::now();
            let due = self.lanes.iter().filter_map(|lane| lane.shared.volume.poll(now)).min();
            let came = self.inbox.take(&mut to[taken..]);
            taken += came;
            let is_late = begin.is_some_and(|begin| Some(begin.elapsed()) >= timeout);
            if min == 0 || taken >= min || is_late {
                break;
            }
            match (came, self.lanes.first()) {
                (0, Some(lane)) => self.backoff.pause(&lane.shared.volume, now, due),
                _ => self.backoff.reset(),
            }
        }
        if taken > 0 {
            self.backoff.reset();
        }
        taken
    }
}

impl Drop for Job {
    /// Waits for requests in flight: their buffers belong to the caller, who is about to free them.
    fn drop(&mut self) {
        let mut events = [FioEvent { token: 0, error: 0, reserved: 0 }; 16];
        while self.inbox.pending() > 0 {
            self.events(1, None, &mut events);
        }
    }
}

/// Completion function of a lane's requests.
fn completion_function(
    shared: &Arc<Shared>,
    inbox: &Arc<Inbox>,
) -> impl Fn(Completion) + Send + Sync + 'static {
    let (inbox, shared) = (inbox.clone(), Arc::downgrade(shared));
    move |completion| {
        let Completion { token, result, buf } = completion;
        // The memory belongs to fio, so there is nothing to free.
        std::mem::forget(buf);
        let error = match &result {
            Ok(_) => 0,
            Err(error) => {
                if let Some(shared) = shared.upgrade() {
                    shared.tell("a request", error);
                }
                errno::of(error)
            }
        };
        inbox.ended(token, error);
    }
}

impl Lane {
    /// Submits `io` as the request `token`.
    ///
    /// # Safety
    /// The bytes of `io` are valid, and no other code uses them, until the request has ended.
    #[inline(always)]
    pub(crate) unsafe fn submit(&self, io: &Io, token: u64) -> Left {
        // SAFETY: the caller's promise.
        let Some(request) = (unsafe { io.request(token) }) else {
            return Left::Ended(Errno::INVAL.raw_os_error());
        };
        let now = self.time();
        let left = self.inbox.submit(token, || self.shared.volume.submit(now, &self.channel, request));
        if left == Left::Queued {
            self.age.set(AGE_MAX);
        }
        left
    }

    #[inline(always)]
    fn time(&self) -> Nanos {
        let age = self.age.get();
        if age >= AGE_MAX {
            self.now.set(clock::now());
            self.age.set(0);
        }
        self.age.set(self.age.get() + 1);
        self.now.get()
    }
}
