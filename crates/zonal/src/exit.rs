//! Exit codes, and failures that carry one.

use crate::interrupt::Interrupted;
use crate::output::ClosedPipe;
use crate::text::harmless;
use std::fmt::{self, Write};
use std::io;
use std::process::ExitCode;

/// Exit code after the reader of standard output closed the pipe: the shell's code for a program ended by SIGPIPE.
pub const CLOSED_PIPE: u8 = 128 + 13;

/// Exit code of a run ended by Ctrl-C: the shell's code for a program ended by SIGINT.
pub const INTERRUPTED: u8 = 128 + 2;

/// Exit code of a run ended by SIGTERM, by the same rule.
pub const TERMINATED: u8 = 128 + 15;

/// Exit codes of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// An operation failed.
    Failed = 1,
    /// The command line or a job is invalid.
    Usage = 2,
    /// Data differs from the data written.
    Verify = 3,
    /// A device or an image cannot be opened, created or overwritten.
    Device = 4,
}

impl Exit {
    /// Every code.
    pub const ALL: [Exit; 5] = [Exit::Ok, Exit::Failed, Exit::Usage, Exit::Verify, Exit::Device];

    /// Meaning of the code, for the documentation.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "Success.",
            Exit::Failed => {
                "The operation failed: the device failed or refused a command, fsck has findings left or doctor has findings, or the result could not be written."
            }
            Exit::Usage => "Usage error: an unknown option, an invalid value, an unreadable job file.",
            Exit::Verify => {
                "Verification failed: data read by bench, get, cat, tar or scrub differs from the data written, or is lost. fsck reports that with 1."
            }
            Exit::Device => {
                "The device or image cannot be opened or created: it is missing, in use or damaged, or refuses an option; or it contains a file system or data, and --yes was not given; or doctor finds that the drive cannot be used."
            }
        }
    }
}

/// Every code that the program exits with, and its meaning, in ascending order.
pub(crate) fn codes() -> impl Iterator<Item = (u8, &'static str)> {
    let signals = [
        (
            INTERRUPTED,
            "Interrupted by Ctrl-C. `bench` and `replay` write their results so far. A second Ctrl-C ends the program at once.",
        ),
        (
            CLOSED_PIPE,
            "The reader of standard output closed the pipe, as in `zonal report DEVICE | head -1`. Nothing is printed.",
        ),
        (TERMINATED, "Ended by SIGTERM, in the same way as by Ctrl-C."),
    ];
    Exit::ALL.into_iter().map(|exit| (exit as u8, exit.meaning())).chain(signals)
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Error of a command, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// Cause.
    pub error: anyhow::Error,
}

impl Failure {
    /// Failure for an invalid command line.
    pub fn usage(error: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Usage, error: anyhow::Error::msg(error.to_string()) }
    }

    /// True if the reader of standard output closed the pipe.
    pub fn is_closed_pipe(&self) -> bool {
        let is = |e: &(dyn std::error::Error + 'static)| {
            e.downcast_ref::<io::Error>().and_then(io::Error::get_ref).is_some_and(|e| e.is::<ClosedPipe>())
        };
        self.error.chain().any(is)
    }

    /// Exit code of the process.
    pub(crate) fn code(&self) -> ExitCode {
        let interrupted = self.error.downcast_ref::<Interrupted>();
        interrupted.map_or_else(|| self.exit.into(), |interrupted| ExitCode::from(interrupted.code()))
    }

    /// Error and causes in one line.
    pub fn line(&self) -> String {
        let mut line = String::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            // Many errors already end with their cause.
            if line.ends_with(&text) {
                continue;
            }
            let colon = if line.is_empty() { "" } else { ": " };
            let _ = write!(line, "{colon}{text}");
        }
        // Names of files and devices may contain control characters.
        harmless(&line.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { exit: Exit::Failed, error: error.into() }
    }
}

/// Conversion of errors to failures with an exit code.
pub(crate) trait OrExit<T> {
    /// Returns the value, or the error with this exit code.
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
    fn closed_pipe_is_distinguished_from_other_broken_pipes() {
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
