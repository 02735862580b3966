//! Synchronous calls to a volume.
//!
//! They serve metadata, rare requests, and callers that have nothing else to do meanwhile. The data
//! path submits its own requests.

use crate::waiter::Wait;
use crate::{STRIPES, stripe};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_core::{
    DeviceError, Op, RequestError, SECTOR_BYTES, Sector, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex,
};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Output;
use zonal_io::volume::{Channel, Completion, Request, Volume};

/// The permanent condition of a zone that an error reports: read-only or offline.
pub(crate) fn lasting_condition(error: &RequestError) -> Option<ZoneCondition> {
    match error {
        RequestError::ZoneReadOnly { .. } | RequestError::Device(DeviceError::Zone(ZoneError::ReadOnly)) => {
            Some(ZoneCondition::ReadOnly)
        }
        RequestError::ZoneOffline { .. } | RequestError::Device(DeviceError::Zone(ZoneError::Offline)) => {
            Some(ZoneCondition::Offline)
        }
        _ => None,
    }
}

/// True if the error of a read means that the data is gone. After any other error the drive may
/// return it the next time.
pub(crate) fn is_lost(answer: &RequestError) -> bool {
    matches!(answer, RequestError::Device(DeviceError::Medium | DeviceError::Zone(_)))
}

/// True if the error means that the drive has no open or active zone to spare. The zone itself is
/// fine.
pub(crate) fn is_zone_limit_exceeded(error: &RequestError) -> bool {
    let is_resource = |error: &DeviceError| {
        matches!(error, DeviceError::Zone(ZoneError::TooManyActive | ZoneError::TooManyOpen))
    };
    match error {
        RequestError::NoSlot { .. } => true,
        RequestError::Device(error) | RequestError::GaveUp { error, .. } => is_resource(error),
        _ => false,
    }
}

/// Number of zones per report command.
const REPORT_ZONES: u32 = 8192;

/// Maximum number of zones tried until one can be read.
const PROBED_ZONES_MAX: u32 = 64;

/// A volume with a pool of channels for synchronous calls.
pub struct Drive {
    volume: Arc<Volume>,
    /// True if the drive executes a request in the thread that waits for it.
    blocks_awaiting: bool,
    /// True while a [`Claim`] on the metadata exists.
    is_claimed: AtomicBool,
    /// Idle channels, striped by thread. Opening a channel for each call costs more than a small
    /// read.
    callers: [CachePadded<Mutex<Vec<Caller>>>; STRIPES],
}

/// A channel, and the inbox for answers to one thread's calls.
struct Caller {
    channel: Channel,
    /// Answers, each with the number of its request.
    answers: Arc<Mutex<Vec<(u64, Answer)>>>,
}

/// Exclusive ownership of the metadata on a drive.
pub(crate) struct Claim(Arc<Drive>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.is_claimed.store(false, Ordering::Release);
    }
}

/// The result of a call, with its buffer.
pub type Answer = (Result<Output, RequestError>, IoBuf);

/// Results of several calls, usually one or two.
pub type Answers = SmallVec<[Answer; 2]>;

impl Drive {
    /// Wraps `volume`.
    pub fn new(volume: Arc<Volume>) -> Drive {
        let blocks_awaiting = volume.device().insight().blocks_awaiting;
        Drive { volume, blocks_awaiting, is_claimed: AtomicBool::new(false), callers: Default::default() }
    }

    /// Claims the metadata, unless they are already claimed. Two writers would treat each other's
    /// data as garbage.
    pub(crate) fn claim(self: &Arc<Drive>) -> Option<Claim> {
        let was_claimed = self.is_claimed.swap(true, Ordering::Acquire);
        (!was_claimed).then(|| Claim(self.clone()))
    }

    /// The underlying volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Submits `request` and waits until it completes.
    pub fn call(&self, waiter: &dyn Wait, request: Request) -> Answer {
        self.calls(waiter, [request]).pop().expect("one request, one answer")
    }

    /// Submits `requests` in order, waits for all of them, and returns their results in the same
    /// order.
    pub fn calls(&self, waiter: &dyn Wait, requests: impl IntoIterator<Item = Request>) -> Answers {
        let mut into = Answers::new();
        self.calls_into(waiter, requests, &mut into);
        into
    }

    /// Like `calls`, but appends the results to `into`.
    pub fn calls_into(
        &self,
        waiter: &dyn Wait,
        requests: impl IntoIterator<Item = Request>,
        into: &mut Answers,
    ) {
        let callers = &self.callers[stripe()];
        let idle = callers.lock().pop();
        let caller = idle.unwrap_or_else(|| self.caller());
        let Caller { channel, answers } = &caller;
        let mut submitted = 0;
        let mut requests = requests.into_iter().peekable();
        while let Some(request) = requests.next() {
            let mut request = request.token(submitted);
            if requests.peek().is_none() {
                request = self.awaited(waiter, request);
            }
            self.volume.submit(waiter.now(), channel, request);
            submitted += 1;
        }
        loop {
            {
                let mut answers = answers.lock();
                if answers.len() as u64 == submitted {
                    answers.sort_unstable_by_key(|(number, _)| *number);
                    for (_, answer) in answers.drain(..) {
                        into.push(answer);
                    }
                    break;
                }
            }
            waiter.wait(&self.volume);
        }
        waiter.done();
        // A thread that panics while waiting does not return its caller: late completions would be
        // taken for those of another call.
        callers.lock().push(caller);
    }

    /// Marks a request for which the calling thread waits next, unless it is a read: many threads
    /// of a mount may read, and each of them would need another one in its place.
    pub(crate) fn awaited(&self, waiter: &dyn Wait, request: Request) -> Request {
        if !self.blocks_awaiting || request.op == Op::Read {
            return request;
        }
        waiter.begin_blocking();
        request.awaited()
    }

    fn caller(&self) -> Caller {
        let answers: Arc<Mutex<Vec<(u64, Answer)>>> = Arc::default();
        let ended = answers.clone();
        let channel = self.volume.channel(move |Completion { token, result, buf }| {
            ended.lock().push((token, (result, buf.into_buf())));
        });
        Caller { channel, answers }
    }

    /// True if reads fill their buffers. A device that keeps no data leaves them unchanged.
    ///
    /// The read goes through the volume, because another thread may poll it and would get the
    /// completion of a request that bypassed the volume.
    pub fn keeps_data(&self, waiter: &dyn Wait) -> bool {
        let info = self.volume.info();
        let is_touched = |zone: u32, canary: u8| {
            let mut buf = IoBuf::zeroed(info.block_sectors * SECTOR_BYTES as u32);
            buf.fill(canary);
            let start = info.geometry.start_of(ZoneIndex(zone));
            let (result, buf) = self.call(waiter, Request::read(start, info.block_sectors, buf));
            result.ok().map(|_| buf.iter().any(|byte| *byte != canary))
        };
        // Data that happens to equal one canary differs from the other. An offline zone gives no
        // answer.
        let zones = 0..info.geometry.zones().min(PROBED_ZONES_MAX);
        let mut told = zones.filter_map(|zone| Some(is_touched(zone, 0xA5)? || is_touched(zone, 0x5A)?));
        told.next().unwrap_or(true)
    }

    /// Reads `sectors` from `sector`. On a device that keeps no data, the bytes are zeroes.
    ///
    /// # Errors
    /// Those of the request.
    pub fn read(&self, waiter: &dyn Wait, sector: Sector, sectors: u32) -> Result<IoBuf, RequestError> {
        let buf = IoBuf::zeroed(sectors * 512);
        let (result, buf) = self.call(waiter, Request::read(sector, sectors, buf));
        result.map(|_| buf)
    }

    /// Writes all of `buf` at `sector`.
    ///
    /// # Errors
    /// Those of the request.
    pub fn write(&self, waiter: &dyn Wait, sector: Sector, buf: IoBuf) -> Result<(), RequestError> {
        let sectors = (buf.len() / 512) as u32;
        self.call(waiter, Request::write(sector, sectors, buf)).0.map(drop)
    }

    /// Appends all of `buf` to the zone that starts at `start`, and returns its position.
    ///
    /// # Errors
    /// Those of the request.
    pub fn append(&self, waiter: &dyn Wait, start: Sector, buf: IoBuf) -> Result<Sector, RequestError> {
        let sectors = (buf.len() / 512) as u32;
        match self.call(waiter, Request::append(start, sectors, buf)).0? {
            Output::Appended(at) => Ok(at),
            other => unreachable!("an append was answered with {other:?}"),
        }
    }

    /// Makes all acknowledged writes durable.
    ///
    /// # Errors
    /// Those of the request.
    pub fn flush(&self, waiter: &dyn Wait) -> Result<(), RequestError> {
        self.call(waiter, Request::flush()).0.map(drop)
    }

    /// Resets, finishes, opens or closes a zone.
    ///
    /// # Errors
    /// Those of the request.
    pub fn zone(&self, waiter: &dyn Wait, op: Op, zone: ZoneIndex) -> Result<(), RequestError> {
        let start = self.volume.info().geometry.start_of(zone);
        self.call(waiter, Request::zone(op, start)).0.map(drop)
    }

    /// Current condition of a zone, if the drive reports it.
    pub fn condition(&self, waiter: &dyn Wait, zone: ZoneIndex) -> Option<ZoneCondition> {
        let start = self.volume.info().geometry.start_of(zone);
        match self.call(waiter, Request::report(start, 1)).0 {
            Ok(Output::Zones(zones)) => zones.first().map(|zone| zone.condition),
            _ => None,
        }
    }

    /// Reports all zones.
    ///
    /// # Errors
    /// Those of the request.
    pub fn report(&self, waiter: &dyn Wait) -> Result<Vec<ZoneDescriptor>, RequestError> {
        let geometry = &self.volume.info().geometry;
        let mut zones: Vec<ZoneDescriptor> = Vec::with_capacity(geometry.zones() as usize);
        while (zones.len() as u32) < geometry.zones() {
            let next = geometry.start_of(ZoneIndex(zones.len() as u32));
            match self.call(waiter, Request::report(next, REPORT_ZONES)).0? {
                Output::Zones(more) if !more.is_empty() => zones.extend(more),
                other => unreachable!("a report was answered with {other:?}"),
            }
        }
        Ok(zones)
    }
}
