//! `zonal mode`: the write mode of a running process.

use super::plugs::Target;
use crate::exit::Failure;
use clap::Args;
use std::io::Write;
use zonal_io::control;
use zonal_io::volume::WriteMode;

/// Show or switch the write mode of a running process
///
/// A switch stops issuing, waits for what is in flight, and goes on in the new mode. What waits and what arrives meanwhile
/// keeps its order. If what is in flight does not end within a second, the answer says that the new mode is still to come.
#[derive(Args, Debug)]
pub(crate) struct Mode {
    #[command(flatten)]
    target: Target,
    /// Switch to this mode: zone-lock, per-zone, qd1, pipelined or append; see `zonal help modes`
    #[arg(long, value_name = "MODE")]
    set: Option<WriteMode>,
    /// Switch to pipelined also on a device that does not promise to keep the order of writes
    #[arg(long, requires = "set")]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Mode, out: &mut dyn Write) -> Result<(), Failure> {
    let path = arguments.target.find()?;
    let facts = match arguments.set {
        Some(mode) if arguments.force => control::switch_mode_anyway(&path, mode)?,
        Some(mode) => control::switch_mode(&path, mode)?,
        None => control::info(&path)?,
    };
    if arguments.json {
        let mut object = serde_json::json!({ "mode": facts.mode, "reason": facts.reason });
        if let Some(pending) = &facts.pending {
            object["pending"] = pending.as_str().into();
        }
        return Ok(writeln!(out, "{object}")?);
    }
    if let Some(pending) = &facts.pending {
        let (mode, reason) = (&facts.mode, &facts.reason);
        return Ok(writeln!(
            out,
            "{pending}: once what is in flight has ended; until then {mode}: {reason}"
        )?);
    }
    Ok(writeln!(out, "{}: {}", facts.mode, facts.reason)?)
}
