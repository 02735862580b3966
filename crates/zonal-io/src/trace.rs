//! The `trace` wrapper: passes everything through and records each submission and completion.
//!
//! Owns the records and, while a command is at the inner device, its context. Owns no queue and
//! makes no decisions.
//!
//! # Meaning of the counts
//! A submission is recorded before the inner device receives the command, a completion after the
//! device has answered and before the host is notified. Records and counts change together under
//! one lock. So the records are in a possible order of events, and a count is never below the true
//! number in flight. For a host that waits for each answer before it sends the next command, it is
//! exact.

use crate::device::{Command, CommandResult, Completed, Context, Device, DeviceInfo, Output, Submitted};
use crate::sync::{Arc, Mutex};
use crate::wrap::Slots;
use hashbrown::HashMap;
use std::fmt;
use std::io::{self, Write};
use zonal_core::{DeviceError, Nanos, Op, Sector, ZoneIndex};

/// First line of a trace: the names of the columns.
const HEADER: &str = "# time_ns event queue op sector sectors zone_in_flight result";

/// One line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time passed by the host.
    pub time: Nanos,
    /// Queue index.
    pub queue: usize,
    /// Operation.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// Commands in flight in the same zone after this event, or 0 if the command does not belong to
    /// a single zone.
    pub in_flight: u32,
    /// The event.
    pub event: TraceEvent,
}

/// Event of a [`Record`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceEvent {
    /// The command is passed to the device.
    Submitted,
    /// The device's queue was full and the command was not executed.
    Busy,
    /// The command succeeded; for an append, with its first sector.
    Done(Option<Sector>),
    /// The command was refused or failed.
    Failed(DeviceError),
}

impl TraceEvent {
    fn of(result: &CommandResult) -> TraceEvent {
        match result {
            Ok(Output::Appended(at)) => TraceEvent::Done(Some(*at)),
            Ok(_) => TraceEvent::Done(None),
            Err(error) => TraceEvent::Failed(*error),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { time, queue, op, sector, sectors, in_flight, event } = self;
        let word = if *event == TraceEvent::Submitted { "submit" } else { "complete" };
        write!(f, "{} {word} {queue} {} {sector} {sectors} {in_flight} ", time.0, op.name())?;
        match event {
            TraceEvent::Submitted => f.write_str("-"),
            TraceEvent::Busy => f.write_str("busy"),
            TraceEvent::Done(None) => f.write_str("ok"),
            TraceEvent::Done(Some(at)) => write!(f, "ok@{at}"),
            TraceEvent::Failed(error) => f.write_str(error.word()),
        }
    }
}

/// A device that passes everything to another device and records it.
pub struct Trace {
    info: DeviceInfo,
    inner: Arc<dyn Device>,
    state: Arc<Mutex<TraceState>>,
}

struct TraceState {
    sink: Sink,
    /// Number of commands in flight by zone; no entry if 0.
    in_flight: HashMap<ZoneIndex, u32>,
    /// Commands accepted by the inner device, by their token there.
    taken: Slots<Taken>,
}

enum Sink {
    Memory(Vec<Record>),
    /// Until a write fails: a full disk ends the trace, not the work.
    Writer(Box<dyn Write + Send>),
    Failed(io::Error),
}

impl Sink {
    fn record(&mut self, record: Record) {
        match self {
            Sink::Memory(records) => records.push(record),
            Sink::Writer(writer) => {
                if let Err(error) = writeln!(writer, "{record}") {
                    *self = Sink::Failed(error);
                }
            }
            Sink::Failed(_) => {}
        }
    }
}

/// Properties of a command needed when it completes.
#[derive(Clone, Copy)]
struct Traced {
    queue: usize,
    op: Op,
    sector: Sector,
    sectors: u32,
    zone: Option<ZoneIndex>,
}

struct Taken {
    traced: Traced,
    /// The host's context; absent until the inner device has accepted the command.
    context: Option<Context>,
}

impl Trace {
    /// Traces `inner` to `writer`, one line per record. Wrap a file in a [`io::BufWriter`].
    ///
    /// # Errors
    /// If the first line cannot be written. Later failures end the trace: see [`Trace::finish`].
    pub fn to_writer(inner: Arc<dyn Device>, mut writer: Box<dyn Write + Send>) -> io::Result<Trace> {
        writeln!(writer, "{HEADER}")?;
        Ok(Trace::new(inner, Sink::Writer(writer)))
    }

    /// Traces `inner` to memory.
    pub fn to_memory(inner: Arc<dyn Device>) -> (Trace, TraceLog) {
        let trace = Trace::new(inner, Sink::Memory(Vec::new()));
        let log = TraceLog { state: trace.state.clone() };
        (trace, log)
    }

    fn new(inner: Arc<dyn Device>, sink: Sink) -> Trace {
        let state = TraceState { sink, in_flight: HashMap::new(), taken: Slots::default() };
        Trace { info: inner.info().clone(), inner, state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the device name to `name` instead of the inner device's name.
    pub fn named(mut self, name: &str) -> Trace {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Writes buffered records to the file.
    ///
    /// # Errors
    /// The first write failure; records after it are missing.
    pub fn finish(&self) -> io::Result<()> {
        match &mut self.state.lock().sink {
            Sink::Memory(_) => Ok(()),
            Sink::Writer(writer) => writer.flush(),
            Sink::Failed(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }

    /// Returns the zone that `command` is counted in, if it belongs to a single one.
    fn zone_of(&self, command: &Command) -> Option<ZoneIndex> {
        let is_of_one_zone = !matches!(command.op, Op::Flush | Op::ResetAll | Op::Report);
        let is_there = command.sector.0 < self.info.geometry.sectors().0;
        (is_of_one_zone && is_there).then(|| self.info.geometry.zone_of(command.sector))
    }
}

impl TraceState {
    fn record(&mut self, time: Nanos, traced: Traced, event: TraceEvent) {
        let Traced { queue, op, sector, sectors, zone } = traced;
        let in_flight = zone.map_or(0, |zone| self.count(zone, &event));
        self.sink.record(Record { time, queue, op, sector, sectors, in_flight, event });
    }

    fn count(&mut self, zone: ZoneIndex, event: &TraceEvent) -> u32 {
        let count = self.in_flight.entry(zone).or_insert(0);
        match event {
            TraceEvent::Submitted => *count += 1,
            _ => *count -= 1,
        }
        let now = *count;
        if now == 0 {
            self.in_flight.remove(&zone);
        }
        now
    }
}

impl crate::device::Wrapper for Trace {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let Command { op, sector, sectors, .. } = *command;
        let traced = Traced { queue, op, sector, sectors, zone: self.zone_of(command) };
        // The command may complete on another thread before the inner device returns, so its
        // context is stored first.
        let token = {
            let mut state = self.state.lock();
            state.record(now, traced, TraceEvent::Submitted);
            state.taken.put(Taken { traced, context: context.take() })
        };
        let submitted = self.inner.submit(now, queue, command, &mut Some(Context::token(token)));
        let event = match &submitted {
            Submitted::Accepted => return Submitted::Accepted,
            Submitted::Busy => TraceEvent::Busy,
            Submitted::Done(result) => TraceEvent::of(result),
        };
        let mut state = self.state.lock();
        *context = state.taken.take(token).context;
        state.record(now, traced, event);
        submitted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        self.inner.poll(now, queue, budget, &mut |Completed { context, result }| {
            let mut state = self.state.lock();
            let Taken { traced, context } = state.taken.take(context.into_token());
            state.record(now, traced, TraceEvent::of(&result));
            drop(state);
            let context = context.expect("a submitted command comes with its context");
            done(Completed { context, result });
        })
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // A caller that needs the result calls `finish` first.
        let _ = self.finish();
    }
}

/// Records of a [`Trace`] to memory, for tests.
#[derive(Clone)]
pub struct TraceLog {
    state: Arc<Mutex<TraceState>>,
}

impl TraceLog {
    /// Returns the records so far.
    pub fn records(&self) -> Vec<Record> {
        match &self.state.lock().sink {
            Sink::Memory(records) => records.clone(),
            Sink::Writer(_) | Sink::Failed(_) => unreachable!("a log belongs to a trace to memory"),
        }
    }

    /// Discards the records so far; the counts in flight continue.
    pub fn clear(&self) {
        if let Sink::Memory(records) = &mut self.state.lock().sink {
            records.clear();
        }
    }

    /// Number of accepted commands of this kind (busy ones excluded).
    pub fn commands(&self, op: Op) -> usize {
        let of = |event: fn(&TraceEvent) -> bool| move |r: &&Record| r.op == op && event(&r.event);
        let records = self.records();
        let submitted = records.iter().filter(of(|e| *e == TraceEvent::Submitted)).count();
        submitted - records.iter().filter(of(|e| *e == TraceEvent::Busy)).count()
    }

    /// Maximum number of commands in flight at once within a group. Includes the commands for which
    /// `counts` is true, grouped by `group`: by zone, by queue, or all together.
    ///
    /// ```
    /// # use zonal_io::trace::{Record, TraceLog};
    /// # fn check(log: TraceLog, zone_of: impl Fn(&Record) -> u32) {
    /// let writes_a_zone = log.max_in_flight(|r| r.op.is_write(), zone_of);
    /// assert!(writes_a_zone <= 1);
    /// # }
    /// ```
    pub fn max_in_flight<G: std::hash::Hash + Eq>(
        &self,
        counts: impl Fn(&Record) -> bool,
        group: impl Fn(&Record) -> G,
    ) -> u32 {
        let mut now: HashMap<G, u32> = HashMap::new();
        let mut max = 0;
        for record in self.records().iter().filter(|r| counts(r)) {
            let count = now.entry(group(record)).or_insert(0);
            match record.event {
                TraceEvent::Submitted => *count += 1,
                _ => *count -= 1,
            }
            max = max.max(*count);
        }
        max
    }
}

#[cfg(test)]
mod tests;
