//! A volume with calls that wait for their answer.
//!
//! For metadata, for rare requests, and for callers with nothing else to do meanwhile. The data path submits its own
//! requests.

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

/// The lasting condition that an answer gives its zone: the drive will not write it any more, or not even read it.
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

/// Whether an answer to a read says that the bytes are not there any more. After any other answer the drive may give them the
/// next time.
pub(crate) fn is_lost(answer: &RequestError) -> bool {
    matches!(answer, RequestError::Device(DeviceError::Medium | DeviceError::Zone(_)))
}

/// Whether an answer says that the drive has no open or active zone to spare: nothing is wrong with the zone that was asked for.
pub(crate) fn is_for_want_of_zones(error: &RequestError) -> bool {
    let is_resource = |error: &DeviceError| {
        matches!(error, DeviceError::Zone(ZoneError::TooManyActive | ZoneError::TooManyOpen))
    };
    match error {
        RequestError::NoSlot { .. } => true,
        RequestError::Device(error) | RequestError::GaveUp { error, .. } => is_resource(error),
        _ => false,
    }
}

/// Zones that one report asks for.
const REPORT_ZONES: u32 = 8192;

/// Zones tried until one of them can be read.
const PROBED_ZONES_MAX: u32 = 64;

/// A volume, and a channel for calls that wait.
pub struct Drive {
    volume: Arc<Volume>,
    /// An owner has the metadata on it: a [`Claim`] lives.
    is_claimed: AtomicBool,
    /// Those that no thread uses now, in parts that threads keep to. To open a channel for each call costs more than a small read.
    callers: [CachePadded<Mutex<Vec<Caller>>>; STRIPES],
}

/// A channel, and where it puts the answers to one thread's calls.
struct Caller {
    channel: Channel,
    /// Each with its request's number.
    answers: Arc<Mutex<Vec<(u64, Answer)>>>,
}

/// The metadata on a drive are its owner's: there is no other claim while it lives.
pub(crate) struct Claim(Arc<Drive>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.is_claimed.store(false, Ordering::Release);
    }
}

/// The result of a call, with its buffer.
pub type Answer = (Result<Output, RequestError>, IoBuf);

/// Those of several calls: most are one or two.
pub type Answers = SmallVec<[Answer; 2]>;

impl Drive {
    /// Calls to `volume`.
    pub fn new(volume: Arc<Volume>) -> Drive {
        Drive { volume, is_claimed: AtomicBool::new(false), callers: Default::default() }
    }

    /// Claims the metadata on it, unless another owner has. Each of two writers would take the other's for garbage.
    pub(crate) fn claim(self: &Arc<Drive>) -> Option<Claim> {
        let was_claimed = self.is_claimed.swap(true, Ordering::Acquire);
        (!was_claimed).then(|| Claim(self.clone()))
    }

    /// The volume itself.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Submits `request` and waits for its end.
    pub fn call(&self, waiter: &dyn Wait, request: Request) -> Answer {
        self.calls(waiter, [request]).pop().expect("one request, one answer")
    }

    /// Submits `requests` in this order, waits for all of them, and gives their answers in this order.
    pub fn calls(&self, waiter: &dyn Wait, requests: impl IntoIterator<Item = Request>) -> Answers {
        let mut into = Answers::new();
        self.calls_into(waiter, requests, &mut into);
        into
    }

    /// The same, and adds the answers to `into`.
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
        for request in requests {
            self.volume.submit(waiter.now(), channel, request.token(submitted));
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
        // A thread that panics while it waits gives nothing back: late answers would be taken for another's.
        callers.lock().push(caller);
    }

    fn caller(&self) -> Caller {
        let answers: Arc<Mutex<Vec<(u64, Answer)>>> = Arc::default();
        let ended = answers.clone();
        let channel = self.volume.channel(move |Completion { token, result, buf }| {
            ended.lock().push((token, (result, buf.into_buf())));
        });
        Caller { channel, answers }
    }

    /// Whether reads fill their buffers. A device that keeps no data leaves them as they were.
    ///
    /// The read goes through the volume: another thread may poll it, and would get the answer to a request beside the
    /// volume.
    pub fn keeps_data(&self, waiter: &dyn Wait) -> bool {
        let info = self.volume.info();
        let is_touched = |zone: u32, canary: u8| {
            let mut buf = IoBuf::zeroed(info.block_sectors * SECTOR_BYTES as u32);
            buf.fill(canary);
            let start = info.geometry.start_of(ZoneIndex(zone));
            let (result, buf) = self.call(waiter, Request::read(start, info.block_sectors, buf));
            result.ok().map(|_| buf.iter().any(|byte| *byte != canary))
        };
        // Data that happens to be the one canary is not the other. An offline zone tells nothing.
        let zones = 0..info.geometry.zones().min(PROBED_ZONES_MAX);
        let mut told = zones.filter_map(|zone| Some(is_touched(zone, 0xA5)? || is_touched(zone, 0x5A)?));
        told.next().unwrap_or(true)
    }

    /// Reads `sectors` from `sector`. On a device that keeps no data the bytes are zeroes.
    ///
    /// # Errors
    /// The request's.
    pub fn read(&self, waiter: &dyn Wait, sector: Sector, sectors: u32) -> Result<IoBuf, RequestError> {
        let buf = IoBuf::zeroed(sectors * 512);
        let (result, buf) = self.call(waiter, Request::read(sector, sectors, buf));
        result.map(|_| buf)
    }

    /// Writes all of `buf` at `sector`.
    ///
    /// # Errors
    /// The request's.
    pub fn write(&self, waiter: &dyn Wait, sector: Sector, buf: IoBuf) -> Result<(), RequestError> {
        let sectors = (buf.len() / 512) as u32;
        self.call(waiter, Request::write(sector, sectors, buf)).0.map(drop)
    }

    /// Appends all of `buf` to the zone that starts at `start`, and returns where it went.
    ///
    /// # Errors
    /// The request's.
    pub fn append(&self, waiter: &dyn Wait, start: Sector, buf: IoBuf) -> Result<Sector, RequestError> {
        let sectors = (buf.len() / 512) as u32;
        match self.call(waiter, Request::append(start, sectors, buf)).0? {
            Output::Appended(at) => Ok(at),
            other => unreachable!("an append was answered with {other:?}"),
        }
    }

    /// Makes durable what was acknowledged.
    ///
    /// # Errors
    /// The request's.
    pub fn flush(&self, waiter: &dyn Wait) -> Result<(), RequestError> {
        self.call(waiter, Request::flush()).0.map(drop)
    }

    /// Resets, finishes, opens or closes a zone.
    ///
    /// # Errors
    /// The request's.
    pub fn zone(&self, waiter: &dyn Wait, op: Op, zone: ZoneIndex) -> Result<(), RequestError> {
        let start = self.volume.info().geometry.start_of(zone);
        self.call(waiter, Request::zone(op, start)).0.map(drop)
    }

    /// What a zone is now, if the drive says so.
    pub fn condition(&self, waiter: &dyn Wait, zone: ZoneIndex) -> Option<ZoneCondition> {
        let start = self.volume.info().geometry.start_of(zone);
        match self.call(waiter, Request::report(start, 1)).0 {
            Ok(Output::Zones(zones)) => zones.first().map(|zone| zone.condition),
            _ => None,
        }
    }

    /// Describes all zones.
    ///
    /// # Errors
    /// The request's.
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
