//! The program: parses the command line, runs the command, and reports the result.
//!
//! The definitions in [`cli`] are the only source of parsing, help, completions and manual pages. A
//! command writes its results to a writer, and returns a [`Failure`] with its [`Exit`] code on
//! error. Only [`run`] touches the process.
//!
//! # Guarantees
//! - Results go to standard output. An error is one line on standard error, `zonal: what: why`.
//! - If the reader closes the pipe, the program ends quietly; see [`CLOSED_PIPE`].
//! - No input makes it panic.

use crate::exit::{CLOSED_PIPE, Exit, Failure};
use crate::{cli, commands, output};
use clap::error::ErrorKind;
use signal_hook::consts::SIGXFSZ;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Parses arbitrary bytes as an archive, like `zonal tar`, and returns the number of files in it.
///
/// # Panics
/// If the archive violates an invariant of the reader, which is a bug.
#[doc(hidden)]
pub fn fuzz_archive(bytes: &[u8]) -> usize {
    commands::files::tar::fuzz(bytes)
}

/// Runs the program with its arguments, of which the first is its name, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // A write beyond `ulimit -f` would kill the process without a message. With a handler the write
    // fails, as at the limit of the file system.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let mut out = output::Output::stdout();
    let result = execute(arguments.into_iter().collect(), &mut out);
    let result = result.and_then(|()| out.flush().map_err(Failure::from));
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(failure) if failure.is_closed_pipe() => ExitCode::from(CLOSED_PIPE),
        Err(failure) => {
            // Standard error may be closed, too.
            let _ = writeln!(io::stderr(), "zonal: {}", failure.line());
            failure.code()
        }
    }
}

fn execute(arguments: Vec<OsString>, out: &mut dyn Write) -> Result<(), Failure> {
    let arguments = match commands::mount::helper::translate(&arguments) {
        // Nothing to do.
        Some(none) if none.is_empty() => return Ok(()),
        Some(translated) => translated,
        None => arguments,
    };
    let command = arguments.get(1).and_then(|command| command.to_str()).unwrap_or_default().to_owned();
    match cli::parse(cli::separate_job_options(arguments)) {
        Ok(cli) => commands::run(cli.command, out),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(write!(out, "{}", error.render())?)
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::usage("no command given; see `zonal help`"))
        }
        Err(error) => Err(Failure::usage(cli::explained(&error, &command))),
    }
}
