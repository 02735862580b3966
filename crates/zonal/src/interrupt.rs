//! Ctrl-C and termination, for commands that have results to lose, or files to tidy up.
//!
//! The first signal asks the run to end: what is in flight ends, the results are written, the control socket goes. The
//! second ends the process at once. Commands that do not listen end with the first one.

use crate::exit::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The signals that end a run.
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// A run was ended from outside, by this signal.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; {left}")]
pub(crate) struct Interrupted {
    signal: usize,
    /// What is left of the run.
    left: String,
}

impl Interrupted {
    /// What a shell reports for a program that a signal ended.
    pub(crate) fn code(&self) -> u8 {
        exit_code(self.signal as i32) as u8
    }
}

const fn exit_code(signal: i32) -> i32 {
    128 + signal
}

/// Whether a signal has come, and which.
#[derive(Clone)]
pub(crate) struct Interrupt {
    has_come: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Listens from now on.
    ///
    /// # Errors
    /// The operating system's, if it does not let a process listen.
    pub(crate) fn listen() -> io::Result<Interrupt> {
        let interrupt = Interrupt { has_come: Arc::default(), signal: Arc::default() };
        for signal in SIGNALS {
            // In this order: the first signal finds the flag not yet set.
            flag::register_conditional_shutdown(signal, exit_code(signal), interrupt.has_come.clone())?;
            flag::register_usize(signal, interrupt.signal.clone(), signal as usize)?;
            flag::register(signal, interrupt.has_come.clone())?;
        }
        Ok(interrupt)
    }

    /// What is set when a signal has come.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.has_come.clone()
    }

    /// The failure of a run that a signal ended, whose results are written.
    pub(crate) fn failure(&self) -> Failure {
        self.failure_leaving("the results are those of what was done until then")
    }

    /// The failure of a command that a signal ended, if one has come, and what is `left`.
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
