//! Ctrl-C and SIGTERM, for commands that have results to write or files to clean up.
//!
//! The first signal asks the run to stop: requests in flight complete, the results are written, and
//! the control socket is removed. The second one ends the process at once. Other commands end with
//! the first signal.

use crate::exit::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals that end a run.
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Error of a run that was ended by a signal.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; {left}")]
pub(crate) struct Interrupted {
    signal: usize,
    /// Description of the state after the run.
    left: String,
}

impl Interrupted {
    /// Exit code that a shell reports for a program ended by this signal.
    pub(crate) fn code(&self) -> u8 {
        exit_code(self.signal as i32) as u8
    }
}

const fn exit_code(signal: i32) -> i32 {
    128 + signal
}

/// Signal that has arrived, if any.
#[derive(Clone)]
pub(crate) struct Interrupt {
    has_come: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Listens for signals from now on.
    ///
    /// # Errors
    /// Error of the operating system if a signal handler cannot be installed.
    pub(crate) fn listen() -> io::Result<Interrupt> {
        let interrupt = Interrupt { has_come: Arc::default(), signal: Arc::default() };
        for signal in SIGNALS {
            // In this order, so that the first signal finds the flag unset.
            flag::register_conditional_shutdown(signal, exit_code(signal), interrupt.has_come.clone())?;
            flag::register_usize(signal, interrupt.signal.clone(), signal as usize)?;
            flag::register(signal, interrupt.has_come.clone())?;
        }
        Ok(interrupt)
    }

    /// Returns the flag that is set once a signal has arrived.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.has_come.clone()
    }

    /// Failure of an interrupted run whose results have been written.
    pub(crate) fn failure(&self) -> Failure {
        self.failure_leaving("the results cover what was done until then")
    }

    /// Fails if a signal has arrived. `left` describes the state after the command.
    pub(crate) fn check(&self, left: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.has_come.load(Ordering::Acquire) {
            true => Err(self.failure_leaving(left())),
            false => Ok(()),
        }
    }

    fn failure_leaving(&self, left: impl Into<String>) -> Failure {
        Failure::from(Interrupted { signal: self.signal.load(Ordering::Relaxed), left: left.into() })
    }
}
