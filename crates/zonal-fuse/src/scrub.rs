//! Scrub of a mounted file system: reads and verifies all data in a background thread.
//!
//! After each step, the thread sleeps for long enough to keep to the configured share of the
//! drive's time. The position is stored in the file system from time to time and at the end of the
//! mount, and the next scrub continues there.

use crate::front::{Log, named};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, FsError, Scrub};
use zonal_io::clock::Clock;
use zonal_io::threads;

/// Interval for storing the position.
const KEEP_EVERY: Duration = Duration::from_secs(30);

/// Maximum number of findings kept in memory. The log has all of them.
const FOUND_MAX: usize = 10_000;

/// Maximum number of findings in one status.
const ANSWER_MAX: usize = 500;

/// Status of a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// True while it runs.
    pub runs: bool,
    /// Verified bytes.
    pub bytes: u64,
    /// Present amount of data, in bytes.
    pub total_bytes: u64,
    /// Number of damaged items since its start.
    pub damaged: u64,
    /// Time at which it was complete, in nanoseconds since 1970.
    pub ended: Option<i64>,
    /// Reason why it cannot continue.
    pub error: Option<String>,
    /// Findings of this mount, starting with the requested number. May be incomplete if there are
    /// many.
    pub found: Vec<String>,
    /// Number of the next finding.
    pub next: u64,
}

/// Controls the scrub of a file system.
#[derive(Clone)]
pub struct Scrubber(Arc<Shared>);

struct Shared {
    fs: FileSystem,
    clock: Clock,
    log: Log,
    state: Mutex<ScrubState>,
    news: Condvar,
}

struct ScrubState {
    scrub: Scrub,
    /// Share of the time spent on steps, in percent.
    share: u8,
    /// The scrub should run.
    is_wanted: bool,
    /// The thread exists.
    runs: bool,
    /// The mount has ended.
    is_over: bool,
    found: Vec<String>,
    error: Option<String>,
}

impl Scrubber {
    /// Creates an idle scrubber, with the position of an interrupted scrub of an earlier mount.
    pub fn new(fs: FileSystem, clock: Clock, log: Log) -> Scrubber {
        let scrub = fs.scrub().ok().flatten().unwrap_or_default();
        let state = ScrubState {
            scrub,
            share: 100,
            is_wanted: false,
            runs: false,
            is_over: false,
            found: Vec::new(),
            error: None,
        };
        Scrubber(Arc::new(Shared { fs, clock, log, state: Mutex::new(state), news: Condvar::new() }))
    }

    /// Starts a scrub, or continues an interrupted one, with `share` percent of the drive's time.
    /// For a running scrub, changes only the share.
    ///
    /// # Errors
    /// The operating system's error if the thread cannot be started.
    pub fn start(&self, share: u8) -> std::io::Result<()> {
        let mut state = self.0.state.lock();
        state.share = share.clamp(1, 100);
        self.0.news.notify_all();
        if state.is_over || state.is_wanted && state.runs {
            return Ok(());
        }
        if state.scrub.ended.is_some() {
            state.scrub = Scrub::default();
        }
        (state.is_wanted, state.error) = (true, None);
        if !std::mem::replace(&mut state.runs, true) {
            let shared = self.0.clone();
            let started = threads::spawn("zonal-scrub", move || shared.run());
            if started.is_err() {
                (state.is_wanted, state.runs) = (false, false);
            }
            started?;
        }
        Ok(())
    }

    /// Starts a scrub from the beginning.
    ///
    /// # Errors
    /// As [`Scrubber::start`].
    pub fn restart(&self, share: u8) -> std::io::Result<()> {
        self.stop();
        self.0.state.lock().scrub = Scrub::default();
        self.start(share)
    }

    /// Stops it, and waits until the position is stored.
    pub fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_wanted = false;
        self.0.news.notify_all();
        while state.runs {
            self.0.news.wait(&mut state);
        }
    }

    /// Stops it permanently.
    pub fn end(&self) {
        self.0.state.lock().is_over = true;
        self.stop();
    }

    /// Status, with the findings from number `from` on.
    pub fn status(&self, from: u64) -> ScrubStatus {
        let total_bytes = self.0.fs.scrub_bytes();
        let state = self.0.state.lock();
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(state.found.len());
        let found = state.found[from..].iter().take(ANSWER_MAX).cloned().collect::<Vec<_>>();
        let Scrub { bytes, damaged, ended, .. } = state.scrub;
        let next = (from + found.len()) as u64;
        ScrubStatus {
            runs: state.runs,
            bytes,
            total_bytes,
            damaged,
            ended,
            error: state.error.clone(),
            found,
            next,
        }
    }
}

impl Shared {
    fn run(&self) {
        let waiter = Polling::new(self.clock);
        let mut kept = Instant::now();
        loop {
            let mut scrub = {
                let state = self.state.lock();
                if !state.is_wanted {
                    break;
                }
                state.scrub
            };
            let begin = Instant::now();
            let mut found = Vec::new();
            let result = self.fs.scrub_step(&waiter, &mut scrub, |error| found.push(self.line(error)));
            let busy = begin.elapsed();
            for line in &found {
                (self.log)(&format!("scrub: {line}"));
            }
            let mut state = self.state.lock();
            state.scrub = scrub;
            found.truncate(FOUND_MAX.saturating_sub(state.found.len()));
            state.found.append(&mut found);
            if let Err(error) = result {
                (self.log)(&format!("the scrub cannot continue: {error}"));
                state.error = Some(error.to_string());
                break;
            }
            if scrub.ended.is_some() {
                break;
            }
            if kept.elapsed() >= KEEP_EVERY {
                drop(state);
                self.keep(&waiter, &scrub);
                kept = Instant::now();
                state = self.state.lock();
            }
            let until = |share: u8| begin + busy + busy * u32::from(100 - share) / u32::from(share);
            while state.is_wanted && Instant::now() < until(state.share) {
                let until = until(state.share);
                self.news.wait_until(&mut state, until);
            }
        }
        let scrub = self.state.lock().scrub;
        self.keep(&waiter, &scrub);
        let mut state = self.state.lock();
        (state.runs, state.is_wanted) = (false, false);
        self.news.notify_all();
    }

    /// Stores the position. A read-only file system cannot: the next scrub then starts at the last
    /// stored position.
    fn keep(&self, waiter: &Polling, scrub: &Scrub) {
        match self.fs.keep_scrub(waiter, scrub).and_then(|()| self.fs.sync(waiter)) {
            Ok(()) | Err(FsError::ReadOnly(_)) => {}
            Err(error) => (self.log)(&format!("the position of the scrub cannot be stored: {error}")),
        }
    }

    fn line(&self, error: &FsError) -> String {
        match error.file() {
            Some(ino) => format!("{}: {error}", named(&self.fs, ino)),
            None => error.to_string(),
        }
    }
}
