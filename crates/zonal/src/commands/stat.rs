//! `zonal stat`: the live counters of a running process.

use super::plugs::Target;
use crate::exit::Failure;
use clap::Args;
use std::io::Write;
use zonal_io::control;

/// Show the live counters of a running process, from the opening of its device on
#[derive(Args, Debug)]
pub(crate) struct Stat {
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Stat, out: &mut dyn Write) -> Result<(), Failure> {
    let path = arguments.target.find()?;
    let facts = control::info(&path)?;
    let counters = serde_json::to_value(control::stat(&path)?)?;
    if arguments.json {
        let object = serde_json::json!({ "volume": facts, "counters": counters });
        return Ok(writeln!(out, "{object:#}")?);
    }
    writeln!(out, "{:<12} {}", "process", facts.pid)?;
    writeln!(out, "{:<12} {}", "device", facts.device.name)?;
    writeln!(out, "{:<12} {}: {}", "write mode", facts.mode, facts.reason)?;
    for (name, value) in counters.as_object().into_iter().flatten() {
        writeln!(out, "{name:<12} {value}")?;
    }
    Ok(())
}
