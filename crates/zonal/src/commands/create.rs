//! `zonal create`: a drive in a file.

use crate::exit::Failure;
use crate::value;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// Create a drive in a file
#[derive(Args, Debug)]
pub(crate) struct Create {
    /// File to make; it must not exist
    path: PathBuf,
    /// Size of the drive
    #[arg(long, value_parser = value::size)]
    size: Option<u64>,
}

pub(crate) fn run(_arguments: &Create, _out: &mut dyn Write) -> Result<(), Failure> {
    Ok(())
}
