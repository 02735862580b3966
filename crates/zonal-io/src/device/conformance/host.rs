//! Host of the device under test: it submits commands, polls, and checks every answer against the
//! contract of the [module](crate::device).

use crate::clock::Clock;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, Device, Output, Submitted};
use crate::sync::Mutex;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op, Sector, ZoneDescriptor, ZoneIndex};

/// Violation of the contract, in words.
pub(super) type Broken = String;

/// Bytes before and behind the payload of a command that no device may touch.
const GUARD: usize = 64;

/// Value of the guard bytes.
const GUARD_BYTE: u8 = 0xC3;

/// Polls at the same virtual time after which a device makes no progress.
const POLLS_MAX: u32 = 100_000;

/// Completions that a poll is asked for.
const BUDGET: usize = 3;

/// Memory of a command, with guard bytes around it.
pub(super) struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
    segments: Vec<Segment>,
}

impl Memory {
    fn new(len: usize, chance: &mut Pcg64Mcg) -> Memory {
        // Memory of virtual machines has any alignment and any division.
        let start = GUARD + (chance.next_u64() % 16) as usize * 4;
        let mut bytes = vec![GUARD_BYTE; start + len + GUARD];
        let (base, mut segments, mut at) = (bytes[start..].as_mut_ptr(), Vec::new(), 0);
        let pieces = if len >= 512 { 1 + chance.next_u64() as usize % 3 } else { 1 };
        for n in 0..pieces {
            let left = len - at;
            let piece = if n + 1 == pieces { left } else { left / 8 * 4 };
            segments.push(Segment::new(base.wrapping_add(at), piece));
            at += piece;
        }
        Memory { bytes, start, len, segments }
    }

    /// Memory with a payload.
    pub fn holding(payload: &[u8], chance: &mut Pcg64Mcg) -> Memory {
        let mut memory = Memory::new(payload.len(), chance);
        memory.payload().copy_from_slice(payload);
        memory
    }

    /// Memory for the payload of a read.
    pub fn blank(len: usize, chance: &mut Pcg64Mcg) -> Memory {
        let mut memory = Memory::new(len, chance);
        memory.payload().fill(0xEE);
        memory
    }

    pub fn none() -> Memory {
        Memory { bytes: Vec::new(), start: 0, len: 0, segments: Vec::new() }
    }

    pub fn payload(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    fn are_guards_whole(&self) -> bool {
        let end = (self.start + self.len).min(self.bytes.len());
        self.bytes[..self.start].iter().chain(&self.bytes[end..]).all(|&byte| byte == GUARD_BYTE)
    }
}

/// Command that the device has.
struct Flight {
    queue: usize,
    command: Command,
    memory: Memory,
    result: Option<CommandResult>,
}

/// Command to run.
pub(super) struct Order {
    pub queue: usize,
    pub op: Op,
    pub sector: Sector,
    pub sectors: u32,
    pub fua: bool,
    pub memory: Memory,
}

impl Order {
    pub fn new(op: Op, sector: Sector, sectors: u32) -> Order {
        Order { queue: 0, op, sector, sectors, fua: false, memory: Memory::none() }
    }

    pub fn with(self, memory: Memory) -> Order {
        Order { memory, ..self }
    }

    pub fn on(self, queue: usize) -> Order {
        Order { queue, ..self }
    }
}

/// Answer to a command, with its memory.
pub(super) type Answered = (CommandResult, Memory);

/// Answer of [`Host::offer`].
pub(super) enum Offered {
    /// The device has completed it inline.
    Done(Answered),
    /// The device has it, under this number.
    Taken(u64),
    /// The queue is full.
    Busy(Order),
}

enum Time {
    Real(Clock),
    /// In nanoseconds.
    Virtual(AtomicU64),
}

/// Host, shared by its threads.
pub(super) struct Host<'d> {
    pub device: &'d dyn Device,
    time: Time,
    /// Time after which an answer is overdue, in real time.
    patience: Duration,
    tokens: AtomicU64,
    flights: Mutex<HashMap<u64, Flight>>,
    /// First violation found in a poll.
    broken: Mutex<Option<Broken>>,
}

impl<'d> Host<'d> {
    pub fn new(device: &'d dyn Device, patience: Duration) -> Host<'d> {
        let time = match device.insight().virtual_time {
            true => Time::Virtual(AtomicU64::new(0)),
            false => Time::Real(Clock::start()),
        };
        Host {
            device,
            time,
            patience,
            tokens: AtomicU64::new(1),
            flights: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    pub fn is_virtual(&self) -> bool {
        matches!(self.time, Time::Virtual(_))
    }

    pub fn now(&self) -> Nanos {
        match &self.time {
            Time::Real(clock) => clock.now(),
            Time::Virtual(now) => Nanos(now.load(Ordering::SeqCst)),
        }
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Polls a queue, and lets a little time pass.
    pub fn rest(&self, queue: usize) -> Result<(), Broken> {
        let (_, due) = self.poll(queue)?;
        match &self.time {
            Time::Real(_) => self.sleep(queue, Duration::from_millis(1), || false),
            Time::Virtual(now) => self.advance(due.unwrap_or(Nanos(now.load(Ordering::SeqCst) + 1_000_000))),
        }
        Ok(())
    }

    fn advance(&self, to: Nanos) {
        if let Time::Virtual(now) = &self.time {
            now.fetch_max(to.0, Ordering::SeqCst);
        }
    }

    /// Number of commands that the device has.
    pub fn in_flight(&self) -> usize {
        self.flights.lock().values().filter(|flight| flight.result.is_none()).count()
    }

    /// Submits a command once.
    pub fn offer(&self, order: Order) -> Result<Offered, Broken> {
        let Order { queue, op, sector, sectors, fua, memory } = order;
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        // Registered first: another thread may poll the completion before `submit` returns.
        let command = Command { fua, ..Command::new(op, sector, sectors) };
        let mut flights = self.flights.lock();
        let flight = flights.entry(token).or_insert(Flight { queue, command, memory, result: None });
        let data = match flight.memory.segments.as_slice() {
            [] => Data::NONE,
            // SAFETY: the memory stays in the table, untouched, until the command has completed. A
            // host that is dropped before keeps it for ever.
            segments => unsafe { Data::many(&raw const *segments) },
        };
        drop(flights);
        let mut context = Some(Context::token(token));
        let submitted = self.device.submit(self.now(), queue, &Command { data, ..command }, &mut context);
        let takes = matches!(submitted, Submitted::Accepted);
        if takes == context.is_some() {
            return Err(format!(
                "{}: {submitted:?}, but the context was {}",
                Described(&command, queue),
                if takes { "left" } else { "taken" }
            ));
        }
        if context.is_some_and(|context| context.into_token() != token) {
            return Err(format!(
                "{}: another context was put in the place of its own",
                Described(&command, queue)
            ));
        }
        match submitted {
            Submitted::Accepted => Ok(Offered::Taken(token)),
            Submitted::Done(result) => {
                let flight = self.flights.lock().remove(&token).ok_or("a command completed twice")?;
                finished(&flight, &result)?;
                Ok(Offered::Done((result, flight.memory)))
            }
            Submitted::Busy => {
                let flight = self.flights.lock().remove(&token).ok_or("a refused command completed")?;
                let memory = flight.memory;
                Ok(Offered::Busy(Order { queue, op, sector, sectors, fua, memory }))
            }
        }
    }

    /// Polls a queue once. Returns the number of completions and the device's deadline.
    pub fn poll(&self, queue: usize) -> Result<(usize, Option<Nanos>), Broken> {
        self.poll_and(queue, || {})
    }

    /// Polls a queue once, and calls `in_poll` with each completion, before the poll returns.
    pub fn poll_and(
        &self,
        queue: usize,
        mut in_poll: impl FnMut(),
    ) -> Result<(usize, Option<Nanos>), Broken> {
        let (mut count, mut broken) = (0, None);
        let due = self.device.poll(self.now(), queue, BUDGET, &mut |completed| {
            count += 1;
            in_poll();
            let its = self.complete(queue, completed.context, completed.result);
            broken = broken.take().or(its.err());
        });
        if count > BUDGET {
            broken.get_or_insert(format!("a poll for {BUDGET} completions passed {count}"));
        }
        if count > 0 {
            // They may belong to threads that sleep.
            self.device.wakeups().ring_all();
        }
        match broken {
            Some(broken) => {
                self.broken.lock().get_or_insert(broken.clone());
                Err(broken)
            }
            None => Ok((count, due)),
        }
    }

    fn complete(&self, queue: usize, context: Context, result: CommandResult) -> Result<(), Broken> {
        if !context.is_token() {
            return Err(format!("queue {queue} returned a context that was never submitted: {context:?}"));
        }
        let token = context.into_token();
        let mut flights = self.flights.lock();
        let flight = flights.get_mut(&token);
        let flight =
            flight.ok_or_else(|| format!("queue {queue} returned number {token}, which it does not have"))?;
        if flight.result.is_some() {
            return Err(format!("{}: completed twice", Described(&flight.command, flight.queue)));
        }
        if flight.queue != queue {
            return Err(format!("{}: returned by queue {queue}", Described(&flight.command, flight.queue)));
        }
        finished(flight, &result)?;
        flight.result = Some(result);
        Ok(())
    }

    /// The answer to an accepted command, if it is there.
    pub fn take(&self, token: u64) -> Option<Answered> {
        let mut flights = self.flights.lock();
        flights.get(&token)?.result.as_ref()?;
        let flight = flights.remove(&token)?;
        Some((flight.result?, flight.memory))
    }

    /// Polls and sleeps until an accepted command is answered. Sleeps as a host does that has
    /// nothing else to do: until the deadline of the last poll, or until the device rings.
    pub fn wait_for(&self, token: u64, queue: usize) -> Result<Answered, Broken> {
        let begin = Instant::now();
        let mut polls = 0;
        // A sleep that lasted as long as it could, although a completion was there behind it.
        let mut overslept = None;
        loop {
            if let Some(answered) = self.take(token) {
                return match overslept {
                    Some(slept) if slept >= self.patience => {
                        Err(format!("queue {queue} slept for {slept:?} beside a completion: it was not rung"))
                    }
                    _ => Ok(answered),
                };
            }
            if let Some(broken) = self.broken.lock().clone() {
                return Err(broken);
            }
            let (count, due) = self.poll(queue)?;
            if count > 0 {
                continue;
            }
            overslept = None;
            let now = self.now();
            match (due, &self.time) {
                (Some(due), Time::Virtual(_)) if due > now => {
                    polls = 0;
                    self.advance(due);
                }
                (None, Time::Virtual(_)) if self.has_answer(token) => {}
                (None, Time::Virtual(_)) => {
                    return Err(format!("queue {queue} has a command, but no time at which to poll for it"));
                }
                (_, Time::Virtual(_)) => {
                    polls += 1;
                    if polls > POLLS_MAX {
                        return Err(format!("queue {queue} asks to be polled at once for ever"));
                    }
                }
                (Some(due), Time::Real(_)) if due <= now => {}
                (due, Time::Real(_)) => {
                    let left = due.map_or(self.patience, |due| Duration::from_nanos(due.0 - now.0));
                    let since = Instant::now();
                    self.sleep(queue, left.min(self.patience), || self.has_answer(token));
                    if due.is_none() {
                        overslept = Some(since.elapsed());
                    }
                }
            }
            if begin.elapsed() > self.patience * 6 {
                let flights = self.flights.lock();
                let what = flights.get(&token).map(|flight| Described(&flight.command, queue).to_string());
                return Err(format!("{}: no answer in {:?}", what.unwrap_or_default(), begin.elapsed()));
            }
        }
    }

    pub fn has_answer(&self, token: u64) -> bool {
        self.flights.lock().get(&token).is_some_and(|flight| flight.result.is_some())
    }

    /// Sleeps until `queue` rings, unless `is_there` or the device has news.
    pub fn sleep(&self, queue: usize, timeout: Duration, is_there: impl Fn() -> bool) {
        let device = self.device;
        device.wakeups().sleep(queue, || (!is_there() && !device.has_news(queue)).then_some(timeout));
    }

    /// Submits a command, again after each refusal, and waits for its answer.
    pub fn run(&self, order: Order) -> Result<Answered, Broken> {
        let queue = order.queue;
        match self.push(order)? {
            Ok(answered) => Ok(answered),
            Err(token) => self.wait_for(token, queue),
        }
    }

    /// Submits a command, again after each refusal. Returns its answer, or else its number.
    pub fn push(&self, mut order: Order) -> Result<Result<Answered, u64>, Broken> {
        let (queue, begin) = (order.queue, Instant::now());
        loop {
            order = match self.offer(order)? {
                Offered::Done(answered) => return Ok(Ok(answered)),
                Offered::Taken(token) => return Ok(Err(token)),
                Offered::Busy(order) => order,
            };
            let (count, due) = self.poll(queue)?;
            match (count, due) {
                (0, Some(due)) => self.advance(due),
                (0, None) if !self.is_virtual() => self.sleep(queue, Duration::from_millis(1), || false),
                _ => {}
            }
            if begin.elapsed() > self.patience * 6 {
                return Err(format!(
                    "queue {queue} refuses {} for {:?}, with {} commands in flight",
                    order.op.name(),
                    begin.elapsed(),
                    self.in_flight()
                ));
            }
        }
    }

    /// Runs a command without payload.
    pub fn simple(&self, op: Op, sector: Sector, sectors: u32) -> Result<CommandResult, Broken> {
        Ok(self.run(Order::new(op, sector, sectors))?.0)
    }

    /// Descriptor of one zone.
    pub fn zone(&self, zone: ZoneIndex) -> Result<ZoneDescriptor, Broken> {
        let start = self.device.info().geometry.start_of(zone);
        match self.simple(Op::Report, start, 1)? {
            Ok(Output::Zones(zones)) if zones.len() == 1 && zones[0].zone == zone => Ok(zones[0]),
            other => Err(format!("report of one zone, {zone}: {other:?}")),
        }
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        // The device may still write to the memory of commands that it has not returned.
        std::mem::forget(std::mem::take(&mut *self.flights.lock()));
    }
}

/// Checks the kind of an answer and the memory around the payload.
fn finished(flight: &Flight, result: &CommandResult) -> Result<(), Broken> {
    let described = Described(&flight.command, flight.queue);
    if !flight.memory.are_guards_whole() {
        return Err(format!("{described}: bytes outside of the payload were written"));
    }
    match (flight.command.op, result) {
        (_, Err(_)) | (Op::Append, Ok(Output::Appended(_))) | (Op::Report, Ok(Output::Zones(_))) => Ok(()),
        (Op::Append | Op::Report, Ok(_)) | (_, Ok(Output::Appended(_) | Output::Zones(_))) => {
            Err(format!("{described}: answered {result:?}"))
        }
        (_, Ok(Output::Done)) => Ok(()),
    }
}

/// Checks that a command without output has succeeded.
pub(super) fn done(answer: &CommandResult, what: impl std::fmt::Display) -> Result<(), Broken> {
    match answer {
        Ok(Output::Done) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    }
}

/// A command in a message.
pub(super) struct Described<'a>(pub &'a Command, pub usize);

impl std::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Command { op, sector, sectors, .. } = self.0;
        write!(f, "{} of {sectors} sectors at {sector} on queue {}", op.name(), self.1)
    }
}

/// Payload of `len` bytes that depends on `seed`.
pub(super) fn payload(len: usize, seed: u64) -> Vec<u8> {
    use rand_pcg::rand_core::SeedableRng;
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
