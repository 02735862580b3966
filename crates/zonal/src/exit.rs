//! Exit codes, and failures that carry one.

use crate::interrupt::Interrupted;
use crate::output::ClosedPipe;
use crate::text::harmless;
use std::fmt::{self, Write};
use std::io;
use std::process::ExitCode;

/// Exit code when the reader of standard output went away: what a shell reports for a program ended by SIGPIPE.
pub const CLOSED_PIPE: u8 = 128 + 13;

/// Exit code of a run that Ctrl-C ended: what a shell reports for a program ended by SIGINT.
pub const INTERRUPTED: u8 = 128 + 2;

/// Exit code of a run that was asked to end, the same for SIGTERM.
pub const TERMINATED: u8 = 128 + 15;

/// What the program exits with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// All is done.
    Ok = 0,
    /// Something could not be done.
    Failed = 1,
    /// The command line or a job cannot be understood.
    Usage = 2,
    /// Data that was read back is not what was written.
    Verify = 3,
    /// A device or an image cannot be opened or created.
    Device = 4,
}

impl Exit {
    /// Every code.
    pub const ALL: [Exit; 5] = [Exit::Ok, Exit::Failed, Exit::Usage, Exit::Verify, Exit::Device];

    /// The code's meaning, as the documentation has it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "Done.",
            Exit::Failed => {
                "The operation failed: the device refused or failed a command, or the result could not be written."
            }
            Exit::Usage => "Usage: an unknown option, a value that makes no sense, an unreadable job file.",
            Exit::Verify => "Verification failed: data that was read back is not what was written.",
            Exit::Device => {
                "The device or image cannot be opened or created: missing, in use, damaged, or an option it refuses; or it holds data that --yes would overwrite."
            }
        }
    }

    /// Meaning of [`CLOSED_PIPE`].
    pub const CLOSED_PIPE_MEANING: &str = "The reader of standard output went away, as in `zonal report DEVICE | head -1`. Nothing is said about it.";

    /// Meaning of [`INTERRUPTED`].
    pub const INTERRUPTED_MEANING: &str = "Ended by Ctrl-C. `bench` and `replay` write the results of what was done until then; a second Ctrl-C ends them at once.";

    /// Meaning of [`TERMINATED`].
    pub const TERMINATED_MEANING: &str = "Ended by a signal to terminate, in the same way.";
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error and what to exit with.
#[derive(Debug)]
pub struct Failure {
    /// What to exit with.
    pub exit: Exit,
    /// What went wrong.
    pub error: anyhow::Error,
}

impl Failure {
    /// A command line that cannot be understood.
    pub fn usage(error: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Usage, error: anyhow::Error::msg(error.to_string()) }
    }

    /// Whether the reader of standard output went away.
    pub fn is_closed_pipe(&self) -> bool {
        let is = |e: &(dyn std::error::Error + 'static)| {
            e.downcast_ref::<io::Error>().and_then(io::Error::get_ref).is_some_and(|e| e.is::<ClosedPipe>())
        };
        self.error.chain().any(is)
    }

    /// What the process exits with.
    pub(crate) fn code(&self) -> ExitCode {
        let interrupted = self.error.downcast_ref::<Interrupted>();
        interrupted.map_or_else(|| self.exit.into(), |interrupted| ExitCode::from(interrupted.code()))
    }

    /// The error and its causes in one line.
    pub fn line(&self) -> String {
        let mut line = String::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            // Many errors quote their cause already.
            if line.ends_with(&text) {
                continue;
            }
            let colon = if line.is_empty() { "" } else { ": " };
            let _ = write!(line, "{colon}{text}");
        }
        // Names of files and devices may have anything in them.
        harmless(&line.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { exit: Exit::Failed, error: error.into() }
    }
}

/// Gives an error the code to exit with.
pub(crate) trait OrExit<T> {
    /// The value, or the error with this code.
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|e| Failure { exit, error: e.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn line_has_every_cause_once() {
        let inner = io::Error::other("disk on\n fire");
        let failure = Failure::from(Err::<(), _>(inner).context("out.json").unwrap_err());
        assert_eq!(failure.line(), "out.json: disk on fire");
        let steering = Failure::from(anyhow::Error::msg("a\u{1b}[2Jb: no such file"));
        assert_eq!(steering.line(), "a\\u{1b}[2Jb: no such file");
        let twice = anyhow::Error::msg("no such file").context("x: no such file");
        assert_eq!(Failure::from(twice).line(), "x: no such file");
    }

    #[test]
    fn closed_pipe_is_told_from_other_broken_pipes() {
        let closed = io::Error::new(io::ErrorKind::BrokenPipe, ClosedPipe);
        assert!(Failure::from(closed).is_closed_pipe());
        let socket = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(!Failure::from(socket).is_closed_pipe());
    }

    #[test]
    fn codes_are_their_places() {
        assert!(Exit::ALL.iter().enumerate().all(|(i, &e)| i == e as usize));
    }
}
