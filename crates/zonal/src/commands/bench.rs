//! `zonal bench`: workloads in fio's job language.

use crate::exit::Failure;
use clap::Args;
use std::io::Write;

/// Run workloads in fio's job language
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Device, for jobs that name none
    #[arg(long)]
    device: Option<String>,
    /// Format of the results
    #[arg(long)]
    output_format: Option<String>,
    /// Job files and options of the job language
    #[arg(last = true, value_name = "JOBFILE | --OPTION=VALUE")]
    job: Vec<String>,
}

pub(crate) fn run(_arguments: &Bench, _out: &mut dyn Write) -> Result<(), Failure> {
    Ok(())
}
