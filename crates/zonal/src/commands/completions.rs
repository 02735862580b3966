//! `zonal completions`: completion scripts, from the definitions.

use crate::cli;
use crate::exit::Failure;
use clap::Args;
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Shell to print it for
    shell: Shell,
}

pub(crate) fn run(arguments: &Completions, out: &mut dyn Write) -> Result<(), Failure> {
    // Not straight to `out`: the generator panics where writing fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "zonal", &mut script);
    Ok(out.write_all(&script)?)
}
