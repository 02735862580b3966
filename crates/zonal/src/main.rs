//! The `zonal` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    zonal::run(std::env::args_os())
}
