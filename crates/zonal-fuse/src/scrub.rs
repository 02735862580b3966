//! A scrub of a mount: everything is read and verified, in a thread of its own, while programs work.
//!
//! The thread does a step, which takes the drive some time, and then sleeps so long that steps have the share of the time that was asked
//! for. Where the scrub is, is kept in the file system from time to time and when it stops; the next one continues there.

use crate::front::{Log, named};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, FsError, Scrub};
use zonal_io::clock::Clock;
use zonal_io::threads;

/// How often it is kept how far a scrub is.
const KEEP_EVERY: Duration = Duration::from_secs(30);

/// Findings that are kept in memory for a caller. The log has all.
const FOUND_MAX: usize = 10_000;

/// Findings in one answer at most.
const ANSWER_MAX: usize = 500;

/// How a scrub stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// It is under way.
    pub runs: bool,
    /// Bytes that were verified.
    pub bytes: u64,
    /// Bytes that there are now.
    pub total_bytes: u64,
    /// What was found damaged, from its beginning on.
    pub damaged: u64,
    /// When it had seen everything, in nanoseconds since 1970.
    pub ended: Option<i64>,
    /// Why it cannot continue.
    pub error: Option<String>,
    /// What was found since this mount began, from the one on that was asked for; not all of it if there is much.
    pub found: Vec<String>,
    /// Number of the next finding after these.
    pub next: u64,
}

/// Scrubs a file system when it is told to.
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
    /// Percent of the time that steps take.
    share: u8,
    /// It should run.
    is_wanted: bool,
    /// Its thread is there.
    runs: bool,
    /// The mount is over.
    is_over: bool,
    found: Vec<String>,
    error: Option<String>,
}

impl Scrubber {
    /// A scrubber that waits for orders. An interrupted scrub of an earlier mount is where it was.
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

    /// Begins a scrub, or continues the interrupted one, with `share` percent of the drive's time. A scrub that runs gets the new share.
    ///
    /// # Errors
    /// The operating system's, if it gives no thread.
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

    /// The same, from the beginning.
    ///
    /// # Errors
    /// As [`Scrubber::start`].
    pub fn restart(&self, share: u8) -> std::io::Result<()> {
        self.stop();
        self.0.state.lock().scrub = Scrub::default();
        self.start(share)
    }

    /// Stops it, and waits until it has kept where it is.
    pub fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_wanted = false;
        self.0.news.notify_all();
        while state.runs {
            self.0.news.wait(&mut state);
        }
    }

    /// Stops it for good.
    pub fn end(&self) {
        self.0.state.lock().is_over = true;
        self.stop();
    }

    /// How it stands, with findings from number `from` on.
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

    /// A file system that takes no changes keeps nothing: the next scrub begins where the last one did that was kept.
    fn keep(&self, waiter: &Polling, scrub: &Scrub) {
        match self.fs.keep_scrub(waiter, scrub).and_then(|()| self.fs.sync(waiter)) {
            Ok(()) | Err(FsError::ReadOnly(_)) => {}
            Err(error) => (self.log)(&format!("it cannot be kept how far the scrub is: {error}")),
        }
    }

    fn line(&self, error: &FsError) -> String {
        match error.file() {
            Some(ino) => format!("{}: {error}", named(&self.fs, ino)),
            None => error.to_string(),
        }
    }
}
