//! Requests and their results: one side of the model.

use crate::random::face::Face;
use crate::random::tap::{Steps, Tag};
use parking_lot::Mutex;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use zonal_check::rig::tags;
use zonal_core::{Nanos, Op, RequestError, Sector};
use zonal_io::device::Output;
use zonal_io::volume::Completion;

/// A request and its result.
#[derive(Clone, Debug)]
pub struct Entry {
    pub op: Op,
    pub sector: Sector,
    pub sectors: u32,
    /// Face of the submitter. The numbers here are those of the volume.
    pub face: Face,
    /// True if it names sectors or zones that do not exist, so that the volume must refuse it.
    pub refused: bool,
    /// True if its caller has cancelled it, or has left and cancelled everything.
    pub cancelled: bool,
    /// True if only faults can make it fail.
    pub proper: bool,
    pub began: u64,
    /// Time of submission.
    pub born: Nanos,
    pub ended: Option<End>,
}

/// Result of a request.
#[derive(Clone, Debug)]
pub struct End {
    pub step: u64,
    /// Time of the notification.
    pub at: Nanos,
    pub result: Result<Output, RequestError>,
    /// Tags returned by a read.
    pub found: Vec<Tag>,
}

impl Entry {
    pub fn succeeded(&self) -> bool {
        self.ended.as_ref().is_some_and(|e| e.result.is_ok())
    }

    pub fn error(&self) -> Option<RequestError> {
        self.ended.as_ref()?.result.clone().err()
    }

    /// True if it has not ended, or ended after `step`.
    pub fn ends_after(&self, step: u64) -> bool {
        self.ended.as_ref().is_none_or(|e| e.step > step)
    }
}

/// Parameters of a request, in the volume's numbers.
pub struct Asked {
    pub op: Op,
    pub sector: Sector,
    pub sectors: u32,
    pub face: Face,
    pub refused: bool,
}

#[derive(Default)]
struct BookState {
    entries: Vec<Entry>,
    open: usize,
    log: DefaultHasher,
    wrong: Option<String>,
    polls: bool,
}

/// All requests of a run, numbered from 1.
#[derive(Default)]
pub struct Book {
    steps: Steps,
    /// Prints requests and results.
    is_shown: bool,
    state: Mutex<BookState>,
}

impl Book {
    pub fn new(steps: Steps) -> Book {
        Book { steps, is_shown: std::env::var_os("ZONAL_TRACE").is_some(), state: Mutex::default() }
    }

    /// Records a request that is about to be submitted, and returns its number.
    pub fn begin(&self, now: Nanos, asked: Asked, proper: bool) -> u64 {
        let Asked { op, sector, sectors, face, refused } = asked;
        let began = self.steps.next();
        if self.is_shown {
            let (token, name, zones) = (self.next(), op.name(), &face.zones);
            println!("{} request {token} {began} {name} @{sector}+{sectors} of zones {zones:?}", now.0);
        }
        let mut state = self.state.lock();
        state.open += 1;
        let (cancelled, born, ended) = (false, now, None);
        state.entries.push(Entry {
            op,
            sector,
            sectors,
            face,
            refused,
            cancelled,
            proper,
            began,
            born,
            ended,
        });
        state.entries.len() as u64
    }

    /// Records that a request is about to be cancelled by its caller.
    pub fn cancel(&self, token: u64) {
        self.state.lock().entries[token as usize - 1].cancelled = true;
    }

    /// Number of the next request.
    pub fn next(&self) -> u64 {
        self.state.lock().entries.len() as u64 + 1
    }

    /// Sets whether a poll is in progress.
    pub fn polls(&self, polls: bool) {
        self.state.lock().polls = polls;
    }

    /// Records the result of a request.
    pub fn end(&self, c: &Completion, deferred: bool, now: Nanos) {
        let step = self.steps.next();
        if self.is_shown {
            println!("{} request {} {step} ends: {:?}", now.0, c.token, c.result);
        }
        let mut state = self.state.lock();
        (c.token, now.0, format!("{:?}", c.result)).hash(&mut state.log);
        if deferred && !state.polls {
            let what = format!("request {} of a deferred channel ended outside a poll", c.token);
            state.wrong.get_or_insert(what);
        }
        let entry = &mut state.entries[c.token as usize - 1];
        let bytes = || c.buf.pieces().iter().flat_map(|piece| piece.to_vec()).collect::<Vec<_>>();
        let found = if entry.op == Op::Read { tags(&bytes()) } else { Vec::new() };
        let end = End { step, at: now, result: c.result.clone(), found };
        if entry.ended.replace(end).is_some() {
            let what = format!("request {} ended twice", c.token);
            state.wrong.get_or_insert(what);
        } else {
            state.open -= 1;
        }
    }

    /// Number of requests in flight.
    pub fn open(&self) -> usize {
        self.state.lock().open
    }

    pub fn has_ended(&self, token: u64) -> bool {
        self.state.lock().entries[token as usize - 1].ended.is_some()
    }

    /// Digest of all results in order.
    pub fn digest(&self) -> u64 {
        self.state.lock().log.finish()
    }

    pub fn verdict(&self) -> Result<(), String> {
        self.state.lock().wrong.clone().map_or(Ok(()), Err)
    }

    /// All requests so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.state.lock().entries.clone()
    }

    /// Describes the requests in flight, for a message.
    pub fn describe_open(&self) -> String {
        let state = self.state.lock();
        let mut text = String::new();
        for (n, e) in state.entries.iter().enumerate().filter(|(_, e)| e.ended.is_none()) {
            let _ = write!(text, " {}:{}@{}+{}", n + 1, e.op.name(), e.sector, e.sectors);
        }
        text
    }
}
