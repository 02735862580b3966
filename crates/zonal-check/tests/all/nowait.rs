//! Requests that may not wait, from several threads to the same zones, on a drive with full queues.
//! Each refused request is submitted again by its caller. A trace of the drive shows that no write
//! ever reached it out of place.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op, RequestError, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::device::{Device, Output};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use zonal_io::sync::Mutex;
use zonal_io::trace::{Trace, TraceEvent, TraceLog};
use zonal_io::volume::{Channel, Request, Volume, VolumeOptions, WriteMode};

const THREADS: u64 = 4;
/// Requests of a thread.
const EACH: u64 = 120;
/// Requests in flight of a thread.
const DEPTH: usize = 8;
/// Sectors of a zone; it has space for everything.
const ZONE: u64 = 2048;
/// Zones whose writes have places given by the callers, and one for appends only.
const ORDERED: u64 = 2;
/// Longest time without progress.
const PATIENCE: Duration = Duration::from_secs(20);

const MODES: [WriteMode; 5] =
    [WriteMode::ZoneLock, WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined, WriteMode::Append];

type End = Result<Output, RequestError>;

fn drive(queues: u32) -> (Arc<dyn Device>, TraceLog) {
    let options = EmulatedOptions::default()
        .with_size((ORDERED + 1) * ZONE * 512)
        .with_zone_size(ZONE * 512)
        .with_complete(CompleteMode::Poll)
        .with_submit_queues(queues)
        .with_hw_queue_depth(2)
        .with_preserves_write_order(true);
    let ram = Ram::new(&options.geometry().unwrap());
    let (trace, log) = Trace::to_memory(Arc::new(Emulated::new("nowait", &options, ram).unwrap()));
    (Arc::new(trace), log)
}

/// Data of the request `token`.
fn payload(token: u64, sectors: u32) -> IoBuf {
    let mut buf = IoBuf::zeroed(sectors * 512);
    buf.chunks_exact_mut(8).zip(token * 1000..).for_each(|(to, n)| to.copy_from_slice(&n.to_le_bytes()));
    buf
}

/// A request that was accepted, and its place if the caller knows it.
struct Sent {
    token: u64,
    op: Op,
    sectors: u32,
    at: Option<Sector>,
}

/// One thread's requests.
struct Caller<'v> {
    volume: &'v Volume,
    channel: Channel,
    ends: Arc<Mutex<HashMap<u64, End>>>,
    sent: Vec<Sent>,
    refused: u64,
    next: u64,
    since: Instant,
}

impl Caller<'_> {
    fn new(volume: &Volume, thread: u64) -> Caller<'_> {
        let ends: Arc<Mutex<HashMap<u64, End>>> = Arc::default();
        let all = ends.clone();
        let channel = volume.channel(move |c| {
            assert!(all.lock().insert(c.token, c.result).is_none(), "request {} ended twice", c.token);
        });
        let (sent, next) = (Vec::new(), thread << 32);
        Caller { volume, channel, ends, sent, refused: 0, next, since: Instant::now() }
    }

    fn poll(&self) {
        self.volume.poll(Nanos(0));
        assert!(
            self.since.elapsed() < PATIENCE,
            "stuck in {}: {:?}",
            self.volume.mode().0,
            self.volume.plugs()
        );
    }

    /// Submits a request until it is accepted.
    fn send(&mut self, op: Op, at: Sector, sectors: u32, waits: bool, place: Option<Sector>) {
        while self.sent.len() - self.ends.lock().len() >= DEPTH {
            self.poll();
        }
        let token = self.next;
        self.next += 1;
        self.since = Instant::now();
        loop {
            let buf = payload(token, sectors);
            let request = match op {
                Op::Append => Request::append(at, sectors, buf),
                _ => Request::write(at, sectors, buf),
            };
            let request = if waits { request } else { request.nowait() };
            self.volume.submit(Nanos(0), &self.channel, request.token(token));
            // A refusal is reported by the call that submits.
            if self.ends.lock().get(&token) != Some(&Err(RequestError::WouldWait)) {
                self.sent.push(Sent { token, op, sectors, at: place });
                return;
            }
            self.ends.lock().remove(&token);
            assert!(!waits);
            self.refused += 1;
            self.poll();
        }
    }

    /// Waits for all requests and returns their places.
    fn finish(mut self) -> (Vec<(Sent, Sector)>, u64) {
        self.since = Instant::now();
        while self.ends.lock().len() < self.sent.len() {
            self.poll();
        }
        let mut ends = self.ends.lock();
        let placed = |sent: Sent| {
            let at = match (sent.op, ends.remove(&sent.token)) {
                (Op::Append, Some(Ok(Output::Appended(at)))) => at,
                (Op::Write, Some(Ok(Output::Done))) => sent.at.unwrap(),
                (op, end) => panic!("{}: {op:?}: {end:?}", self.volume.mode().0),
            };
            assert_eq!(
                sent.at.unwrap_or(at),
                at,
                "{}: an append takes the place after the requests before it",
                self.volume.mode().0
            );
            (sent, at)
        };
        (self.sent.into_iter().map(placed).collect(), self.refused)
    }
}

/// Requests of one thread: to the ordered zones under their locks, which hold the next places, and
/// appends in any order to the last zone.
fn work(volume: &Volume, thread: u64, places: &[Mutex<u64>]) -> (Vec<(Sent, Sector)>, u64) {
    let mut caller = Caller::new(volume, thread);
    let is_native = volume.mode().0 == WriteMode::Append;
    // The scheduler of this mode sorts by address, and an append has the address of its zone.
    let sorts = volume.mode().0 == WriteMode::ZoneLock;
    for n in 0..EACH {
        let (sectors, waits) = (1 + (n % 4) as u32, n % 7 == 0);
        if n % 3 == 2 {
            caller.send(Op::Append, Sector(ORDERED * ZONE), sectors, waits, None);
            continue;
        }
        let zone = (n + thread) % ORDERED;
        let mut place = loop {
            match places[zone as usize].try_lock() {
                Some(place) => break place,
                None => caller.poll(),
            }
        };
        let at = Sector(zone * ZONE + *place);
        match n % 5 {
            // Native appends of several threads may overtake each other.
            0 if is_native => caller.send(Op::Append, Sector(zone * ZONE), sectors, waits, None),
            0 if !sorts => caller.send(Op::Append, Sector(zone * ZONE), sectors, waits, Some(at)),
            _ => caller.send(Op::Write, at, sectors, waits, Some(at)),
        }
        *place += u64::from(sectors);
    }
    caller.finish()
}

#[test]
fn h17_refused_requests_of_many_threads_are_submitted_again_in_order() {
    for (mode, queues) in MODES.into_iter().flat_map(|mode| [1, 3].map(|queues| (mode, queues))) {
        let (device, log) = drive(queues);
        let volume = Volume::open(device, VolumeOptions::default().with_mode(mode)).unwrap();
        let places: [Mutex<u64>; ORDERED as usize] = Default::default();
        let done: Vec<_> = std::thread::scope(|scope| {
            let spawn = |thread| {
                scope.spawn({
                    let (volume, places) = (&volume, &places);
                    move || work(volume, thread, places)
                })
            };
            let threads: Vec<_> = (0..THREADS).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(done.iter().map(|(_, refused)| refused).sum::<u64>() > 0, "{mode}: some would have waited");
        let records = log.records();
        let wrong: Vec<_> = records.iter().filter(|r| matches!(r.event, TraceEvent::Failed(_))).collect();
        assert!(wrong.is_empty(), "{mode}: {wrong:?}");
        // The other modes have too few writes at the drive to fill a queue.
        if matches!(mode, WriteMode::Pipelined | WriteMode::Append) {
            assert!(records.iter().any(|r| r.event == TraceEvent::Busy), "{mode}: queues were full");
        }
        assert_eq!(volume.statistics().resyncs, 0, "{mode}");
        let mut placed: Vec<_> = done.into_iter().flat_map(|(sent, _)| sent).collect();
        placed.sort_by_key(|(_, at)| at.0);
        let mut ends = HashMap::new();
        for (sent, at) in placed {
            let zone = at.0 / ZONE;
            let next = ends.entry(zone).or_insert(zone * ZONE);
            assert_eq!(at.0, *next, "{mode}: no gap and no overlap");
            *next += u64::from(sent.sectors);
            let buf = IoBuf::zeroed(sent.sectors * 512);
            let found = volume.call(&Clock::start(), Request::read(at, sent.sectors, buf)).buf.into_buf();
            assert!(found[..] == payload(sent.token, sent.sectors)[..], "{mode}: data at {at}");
        }
    }
}
