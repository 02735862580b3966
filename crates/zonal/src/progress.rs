//! A line on a terminal that says how far a command is.
//!
//! It comes after a second, on standard error and only where that is a terminal, and goes when the command says something else or ends.

use crate::value::human;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zonal_io::volume::Volume;

/// A command that takes less says nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(200);

/// How far a command is.
pub(crate) struct Progress {
    what: &'static str,
    is_terminal: bool,
    begun: Instant,
    next: Instant,
    is_shown: bool,
    bytes: u64,
    files: u64,
}

impl Progress {
    /// Of a command that does `what`: the line begins so.
    pub(crate) fn new(what: &'static str) -> Progress {
        let begun = Instant::now();
        let is_terminal = io::stderr().is_terminal();
        Progress { what, is_terminal, begun, next: begun + PATIENCE, is_shown: false, bytes: 0, files: 0 }
    }

    /// This number of bytes more is done.
    pub(crate) fn bytes(&mut self, more: u64) {
        self.bytes += more;
        self.show_if_due();
    }

    /// One file more is done.
    pub(crate) fn file(&mut self) {
        self.files += 1;
        self.show_if_due();
    }

    /// Shows a line in the caller's words, if it is time.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        if self.is_terminal && Instant::now() >= self.next {
            self.next = Instant::now() + EVERY;
            self.is_shown = true;
            // Standard error may be closed.
            let _ = write!(io::stderr(), "\r\x1b[K{}: {}", self.what, line());
        }
    }

    fn show_if_due(&mut self) {
        let (bytes, files, begun) = (self.bytes, self.files, self.begun);
        self.show(|| {
            let rate = bytes as f64 / begun.elapsed().as_secs_f64();
            let rate = human(rate as u64 >> 20 << 20);
            if files > 0 {
                format!("{files} files, {}, {rate}/s", human(bytes))
            } else {
                format!("{}, {rate}/s", human(bytes))
            }
        });
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Shows how much a command has read and written, while it is at work in one long call.
pub(crate) struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Watch {
    /// Of all that goes through `volume` from now on.
    pub(crate) fn begin(what: &'static str, volume: &Arc<Volume>) -> Watch {
        let mut progress = Progress::new(what);
        if !progress.is_terminal {
            return Watch(None);
        }
        let (stop, stopped) = mpsc::channel();
        let volume = volume.clone();
        let bytes = move || volume.statistics().sectors * 512;
        let mut seen = bytes();
        let work = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                let now = bytes();
                progress.bytes(now - std::mem::replace(&mut seen, now));
            }
        };
        // Without a thread nothing is shown.
        let thread = zonal_io::threads::spawn("zonal-progress", work);
        Watch(thread.ok().map(|thread| (stop, thread)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
