//! `zonal stat`: the live counters of a running process.

use super::plugs::Target;
use crate::exit::Failure;
use clap::Args;
use std::io::Write;
use zonal_io::control;
use zonal_io::volume::{BudgetStatus, SlotStatus};

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
    if let Some(budget) = &facts.budget {
        print_budget(budget, out)?;
    }
    for (name, value) in counters.as_object().into_iter().flatten() {
        writeln!(out, "{name:<12} {value}")?;
    }
    Ok(())
}

/// Zones that are named in a line; `--json` has all of them.
const NAMED_MAX: usize = 16;

fn print_budget(budget: &BudgetStatus, out: &mut dyn Write) -> Result<(), Failure> {
    let BudgetStatus { policy, open_max, active_max, open, closed, waiting } = budget;
    let of = |held: usize, max: u32| if max == 0 { held.to_string() } else { format!("{held} of {max}") };
    let (open_slots, active_slots) = (of(open.len(), *open_max), of(open.len() + closed.len(), *active_max));
    writeln!(out, "{:<12} {policy}; {open_slots} open, {active_slots} active", "budget")?;
    for (what, zones) in [("open zones", open), ("closed zones", closed), ("waiting", waiting)] {
        if !zones.is_empty() {
            writeln!(out, "{what:<12} {}", name(zones))?;
        }
    }
    Ok(())
}

fn name(zones: &[SlotStatus]) -> String {
    let mut names: Vec<String> = zones.iter().take(NAMED_MAX).map(|s| s.zone.to_string()).collect();
    if zones.len() > NAMED_MAX {
        names.push(format!("and {} more", zones.len() - NAMED_MAX));
    }
    names.join(" ")
}
