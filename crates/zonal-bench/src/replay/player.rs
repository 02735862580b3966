//! Player of a replay: issues each record when it is due, and handles completions.
//!
//! One thread, one loop: completions are handled, the cleaner continues, due records are issued,
//! and the clock waits for the next arrival or for the write path, whichever is first. Only the
//! clock distinguishes real from virtual time. In virtual time, repeated replays are identical to
//! the bit.
//!
//! # Records and requests
//! A record turns into requests: usually one, several if its blocks are in several places, none if
//! there is nothing to do. It is in flight from its arrival until the last of them has completed. A
//! record that cannot continue (no free zone, or a zone that must have nothing in flight) blocks
//! the records behind it, which preserves their order. Reads that wait for a write do not block
//! others.

mod cleaning;
mod endings;
mod sending;

use super::as_is::AsIs;
use super::buffers::Buffers;
use super::clock::Clock;
use super::error::ReplayError;
use super::ledger::Ledger;
use super::log::{Extent, Log, Move, Run, WritePiece};
use super::series::Series;
use super::slots::Slots;
use super::trace::{Record, Trace};
use super::{Counts, Speed};
use crate::measure::Latency;
use crate::report::{Depths, Failure};
use cleaning::Cleaning;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_core::{Nanos, Op, Sector, ZoneIndex};
use zonal_io::sync::Mutex;
use zonal_io::volume::{Channel, Completion, Volume};

/// Mapping from the trace's addresses to the device's.
pub(super) enum Layout {
    AsIs(AsIs),
    Log(Box<Log>),
}

/// A record in flight.
struct Task {
    number: u64,
    record: Record,
    arrived: Nanos,
    /// Time at which its first request was issued.
    sent: Option<Nanos>,
    in_flight: u32,
    stage: TaskStage,
    /// Total work, in blocks on a log and in sectors otherwise.
    total: u64,
    /// Amount issued.
    next: u64,
    /// Amount completed.
    done: u64,
    /// First block on the disk, on a log.
    block: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskStage {
    /// Before a write: read the rest of partly covered blocks, reset zones that it starts over.
    Before,
    Main,
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// A record, or part of one, at its recorded place.
    AsIs {
        units: u64,
    },
    /// A reset before a write.
    ResetBefore,
    /// A flush record on a log.
    Flush,
    Piece(WritePiece),
    Extent {
        extent: Extent,
        is_edge: bool,
    },
    ReadRun(Run),
    Move {
        moved: Move,
        run: u64,
    },
    ResetCleaned(ZoneIndex),
}

struct Sent {
    /// Task of the record; `None` for the cleaner.
    task: Option<u64>,
    purpose: Purpose,
    op: Op,
    sector: Sector,
    sectors: u32,
}

/// Result of advancing a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    GoesOn,
    /// The task has to be tried again, and the tasks behind it wait.
    Blocked,
}

/// Measurements of a replay.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) ios: [u64; 2],
    pub(super) sectors: [u64; 2],
    pub(super) flushes: u64,
    pub(super) resets: u64,
    pub(super) finishes: u64,
    /// Latencies from the arrival to the first request, from there to the end, and in total.
    pub(super) latencies: [[Latency; 3]; 2],
    pub(super) flush: Latency,
    pub(super) depths: Depths,
    pub(super) series: Series,
    pub(super) counts: Counts,
    pub(super) errors: u64,
    pub(super) failure: Option<Failure>,
}

/// Parameters of the player.
pub(super) struct Rules {
    pub(super) speed: Speed,
    /// Maximum number of records in flight.
    pub(super) depth: u32,
    pub(super) is_wrapped: bool,
    /// True if writes to the log are native or emulated appends.
    pub(super) appends: bool,
    pub(super) has_data: bool,
    pub(super) records_max: u64,
    /// Set by the caller to end the replay.
    pub(super) interrupt: Option<Arc<AtomicBool>>,
}

impl Rules {
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }
}

type Inbox = Arc<Mutex<VecDeque<Completion>>>;

pub(super) struct Player<'a> {
    volume: &'a Volume,
    trace: &'a mut Trace,
    pub(super) rules: Rules,
    pub(super) layout: Layout,
    clock: Clock,
    channel: Channel,
    inbox: Inbox,
    buffers: Buffers,
    tasks: Slots<Task>,
    sent: Slots<Sent>,
    /// Tasks to be tried again, in order.
    blocked: VecDeque<u64>,
    /// Tasks that wait for a write of the log, by its number.
    waiting: HashMap<u64, Vec<u64>>,
    cleaning: Cleaning,
    /// The next record, already read but not yet due.
    ahead: Option<Record>,
    last: Option<Record>,
    pub(super) ledger: Ledger,
    pub(super) measured: Measured,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        volume: &'a Volume,
        clock: Clock,
        trace: &'a mut Trace,
        layout: Layout,
        rules: Rules,
    ) -> Player<'a> {
        let inbox = Inbox::default();
        let entry = inbox.clone();
        Player {
            channel: volume.channel(move |completion| entry.lock().push_back(completion)),
            clock,
            volume,
            trace,
            rules,
            layout,
            inbox,
            buffers: Buffers::default(),
            tasks: Slots::default(),
            sent: Slots::default(),
            blocked: VecDeque::new(),
            waiting: HashMap::new(),
            cleaning: Cleaning::default(),
            ahead: None,
            last: None,
            ledger: Ledger::default(),
            measured: Measured::default(),
        }
    }

    /// Replays the trace to its end or to the first failed request. Returns the elapsed time.
    pub(super) fn run(&mut self) -> Result<Nanos, ReplayError> {
        loop {
            self.take_in()?;
            self.clean();
            self.admit()?;
            if !self.inbox.lock().is_empty() {
                self.clock.progress();
                continue;
            }
            if self.is_over()? {
                break;
            }
            self.wait()?;
        }
        let now = self.clock.now();
        self.measured.series.set(now, 0);
        let is_whole = self.ledger.is_balanced() || self.measured.failure.is_some();
        let Ledger { begun, ended, .. } = self.ledger;
        match is_whole {
            true => Ok(now),
            false => Err(ReplayError::Unbalanced { trace: self.trace.name().to_owned(), begun, ended }),
        }
    }

    fn is_over(&mut self) -> Result<bool, ReplayError> {
        if !self.sent.is_empty() {
            return Ok(false);
        }
        if self.measured.failure.is_some() {
            return Ok(true);
        }
        if !self.tasks.is_empty() {
            // With nothing at the device, no completion can unblock them.
            return Err(self.stalled());
        }
        Ok(self.peek()?.is_none())
    }

    fn stalled(&self) -> ReplayError {
        let place = self.last.map_or(super::trace::TracePlace::Line(0), |record| record.place);
        ReplayError::Stalled { trace: self.trace.name().to_owned(), place }
    }

    fn wait(&mut self) -> Result<(), ReplayError> {
        let due = self.clock.poll(self.volume);
        if !self.inbox.lock().is_empty() {
            self.clock.progress();
            return Ok(());
        }
        // Records that wait for a free slot wait for completions, not for a time.
        let may_begin = self.blocked.is_empty() && self.has_place() && self.measured.failure.is_none();
        let arrival = if may_begin { self.peek()?.map(|record| self.arrival(&record)) } else { None };
        let due = due.filter(|_| !self.sent.is_empty());
        self.clock.wait(self.volume, arrival, due).map_err(|_| self.stalled())
    }

    fn has_place(&self) -> bool {
        self.tasks.len() < self.rules.depth as usize
    }

    /// Returns the next record, if any. An interrupted replay is at its end.
    fn peek(&mut self) -> Result<Option<Record>, ReplayError> {
        if self.rules.is_interrupted() {
            self.ahead = None;
            return Ok(None);
        }
        if self.ahead.is_none() && self.ledger.begun < self.rules.records_max {
            self.ahead = self.trace.next().transpose()?;
        }
        Ok(self.ahead)
    }

    /// Time at which a record is due.
    fn arrival(&self, record: &Record) -> Nanos {
        match self.rules.speed {
            Speed::Max => self.clock.now(),
            Speed::Times(1.0) => record.at,
            Speed::Times(factor) => Nanos((record.at.0 as f64 / factor) as u64),
        }
    }

    /// Issues all requests that can be issued now.
    fn admit(&mut self) -> Result<(), ReplayError> {
        loop {
            if self.measured.failure.is_some() {
                return Ok(());
            }
            while let Some(&task) = self.blocked.front() {
                if self.advance(task)? == Flow::Blocked {
                    return Ok(());
                }
                self.blocked.pop_front();
            }
            if !self.has_place() {
                return Ok(());
            }
            let Some(record) = self.peek()? else { return Ok(()) };
            let arrived = self.arrival(&record);
            if arrived > self.clock.now() {
                return Ok(());
            }
            self.begin(record, arrived)?;
            // Requests that complete inline make room, and affect the next record.
            if !self.inbox.lock().is_empty() {
                self.take_in()?;
                self.clean();
            }
        }
    }

    fn begin(&mut self, record: Record, arrived: Nanos) -> Result<(), ReplayError> {
        (self.ahead, self.last) = (None, Some(record));
        let folded = self.fold(&record)?;
        let (block, total) = self.range_of(&folded);
        let number = self.ledger.begin(&folded);
        let task = Task {
            number,
            record: folded,
            arrived,
            sent: None,
            in_flight: 0,
            stage: TaskStage::Before,
            total,
            next: 0,
            done: 0,
            block,
        };
        let key = self.tasks.insert(task);
        let bucket = (self.tasks.len() as u32).ilog2().min(6);
        self.measured.depths[bucket as usize] += 1;
        self.note_depth();
        if self.advance(key)? == Flow::Blocked {
            self.blocked.push_back(key);
        }
        Ok(())
    }

    fn note_depth(&mut self) {
        let now = self.clock.now();
        self.measured.series.set(now, self.tasks.len() as u32);
    }
}
