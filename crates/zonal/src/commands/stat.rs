//! `zonal stat`: live counters of a running process, and the status of a file system.

mod files;
mod metrics;

use super::plugs::Target;
use crate::exit::{Exit, Failure};
use clap::Args;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use zonal_fs::Status;
use zonal_io::control::{self, ControlError, VolumeFacts};
use zonal_io::volume::{BudgetStatus, SlotStatus};

/// Show live counters of a running process and its file system
///
/// Counters start at 0 when the device is opened. Connections are those of NVMe/TCP hosts, rings of
/// virtual machines, and queues of the ublk device. If no process has the device open, only its
/// file system is shown, without changing it.
#[derive(Args, Debug)]
#[command(after_help = counters_help())]
pub(crate) struct Stat {
    #[command(flatten)]
    target: Target,
    /// Metadata file of a file system that no process has open, if there is one beside the device
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print all values in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
}

/// Data to show.
struct Seen {
    /// Name of the device.
    device: String,
    /// Volume and counters of a running process.
    volume: Option<(VolumeFacts, Value)>,
    files: Option<Status>,
    /// Connections of hosts, rings and queues of an exported device.
    connections: Option<Value>,
}

impl Seen {
    fn of_process(path: &Path) -> Result<Seen, Failure> {
        let facts = control::info(path)?;
        let counters = serde_json::to_value(control::stat(path)?)?;
        let files = match control::files(path) {
            // The version of the process does not have this query.
            Err(ControlError::Refused { .. }) => None,
            files => files?,
        };
        let files = files.map(serde_json::from_value).transpose()?;
        let connections = match control::connections(path) {
            Err(ControlError::Refused { .. }) => None,
            connections => connections?,
        };
        let device = facts.device.name.clone();
        Ok(Seen { device, volume: Some((facts, counters)), files, connections })
    }

    fn to_json(&self) -> Value {
        let (volume, counters) = self.volume.as_ref().map(|(facts, counters)| (facts, counters)).unzip();
        let connections = &self.connections;
        serde_json::json!({
            "volume": volume, "counters": counters, "files": self.files, "connections": connections,
        })
    }
}

pub(crate) fn run(arguments: &Stat, out: &mut dyn Write) -> Result<(), Failure> {
    let seen = match (arguments.target.find(), arguments.target.device()) {
        (Ok(path), _) => Seen::of_process(&path)?,
        (Err(nobody), Some(device)) if nobody.exit == Exit::Failed => look(arguments, device, nobody)?,
        (Err(nobody), _) => return Err(nobody),
    };
    if arguments.json {
        return Ok(writeln!(out, "{:#}", seen.to_json())?);
    }
    if arguments.metrics {
        return Ok(write!(out, "{}", metrics::of(&seen))?);
    }
    if let Some((facts, counters)) = &seen.volume {
        print_process(facts, counters, out)?;
    }
    if let Some(status) = &seen.files {
        files::print(status, out)?;
    }
    if let Some(connections) = &seen.connections {
        print_connections(connections, out)?;
    }
    Ok(())
}

fn print_connections(connections: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    let connections = connections.as_array().map_or(&[][..], Vec::as_slice);
    writeln!(out, "{:<WIDTH$} {}", "connections", connections.len())?;
    connections.iter().try_for_each(|connection| Ok(writeln!(out, "  {}", connection_line(connection))?))
}

fn connection_line(connection: &Value) -> String {
    let word = |key: &str| connection[key].as_str();
    let (queue, in_flight) = (&connection["queue"], &connection["in_flight"]);
    match (word("front"), word("host")) {
        (Some("vhost-user-scsi"), _) => {
            let broken = word("broken").map_or(String::new(), |how| format!(", broken: {how}"));
            format!("ring {queue} of a virtual machine: {in_flight} requests{broken}")
        }
        (Some("ublk"), _) => {
            format!("queue {queue} of {}: {in_flight} requests", word("disk").unwrap_or("a block device"))
        }
        (_, host) => {
            let controller = &connection["controller"];
            let whose = host.map_or("not connected to a queue".to_owned(), |host| {
                format!("controller {controller} queue {queue} of {host}")
            });
            format!("{whose}: {in_flight} commands, {} bytes to send", connection["unsent_bytes"])
        }
    }
}

/// Reads the status of the file system on a device that no process has open.
fn look(arguments: &Stat, device: &str, no_process: Failure) -> Result<Seen, Failure> {
    let looked = files::look(device, arguments.metadata.clone());
    let status = looked.map_err(|why| {
        let error = anyhow::anyhow!("{}; its file system cannot be shown: {}", no_process.error, why.line());
        Failure { exit: why.exit, error }
    })?;
    Ok(Seen { device: device.to_owned(), volume: None, files: Some(status), connections: None })
}

fn print_process(facts: &VolumeFacts, counters: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{:<WIDTH$} {}", "process", facts.pid)?;
    writeln!(out, "{:<WIDTH$} {}", "device", facts.device.name)?;
    writeln!(out, "{:<WIDTH$} {}: {}", "write mode", facts.mode, facts.reason)?;
    // The mode and the budget have their own lines.
    let has_line = |name: &str| name == "mode" || name == "budget" && facts.budget.is_some();
    for option in facts.options.iter().filter(|option| !has_line(&option.name)) {
        writeln!(out, "{:<WIDTH$} {}: {}", option.name, option.value, option.set_by)?;
    }
    if let Some(budget) = &facts.budget {
        print_budget(budget, out)?;
    }
    for (name, _) in COUNTERS {
        writeln!(out, "{name:<WIDTH$} {}", counters[name])?;
    }
    Ok(())
}

/// Width of the names on the left.
const WIDTH: usize = 14;

/// Counters in the order of display, with their meanings.
const COUNTERS: [(&str, &str); 19] = [
    ("requests", "requests submitted"),
    ("sectors", "their sectors, of 512 bytes"),
    ("commands", "commands accepted by the device"),
    ("queued", "writes that waited in a plug"),
    ("merged", "writes merged into the command of another one"),
    ("parked", "writes ahead of the write pointer that waited for their predecessors"),
    ("failed", "requests that failed"),
    ("busy", "times that a queue of the device was full"),
    ("resyncs", "reports of a zone after a failed write"),
    ("redriven", "resubmissions of failed writes"),
    ("read_back", "failed writes that were read back, because they were below the write pointer"),
    ("verified", "failed writes that were complete when read back"),
    ("slot_waits", "waits of zones for an open or active slot of the budget"),
    ("evicted", "zones closed or finished to make room for others"),
    ("plug_waits", "contended locks of the write path"),
    ("plug_retries", "changes of a plug repeated because another thread was first"),
    ("device_waits", "contended locks of the device, if it counts them"),
    ("device_retries", "changes of a zone's state in the device repeated because another thread was first"),
    ("device_copies", "commands whose data the device copied because of the alignment of their memory"),
];

fn counters_help() -> String {
    let lines = COUNTERS.map(|(name, about)| format!("  {name:<WIDTH$}  {about}\n"));
    format!("Counters:\n{}", lines.concat())
}

/// Maximum number of zones named in a line; `--json` has all of them.
const NAMED_MAX: usize = 16;

fn print_budget(budget: &BudgetStatus, out: &mut dyn Write) -> Result<(), Failure> {
    let BudgetStatus { policy, open_max, active_max, open, closed, waiting } = budget;
    let of = |held: usize, max: u32| if max == 0 { held.to_string() } else { format!("{held} of {max}") };
    let (open_slots, active_slots) = (of(open.len(), *open_max), of(open.len() + closed.len(), *active_max));
    writeln!(out, "{:<WIDTH$} {policy}; {open_slots} open, {active_slots} active", "budget")?;
    for (what, zones) in [("open zones", open), ("closed zones", closed), ("waiting", waiting)] {
        if !zones.is_empty() {
            writeln!(out, "{what:<WIDTH$} {}", name(zones))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::volume::Statistics;

    #[test]
    fn connection_of_each_front_has_its_line() {
        let line = |json: Value| connection_line(&json);
        let host = serde_json::json!({
            "front": "nvme-tcp", "host": "nqn.2020-01.example:host", "controller": 1, "queue": 2, "in_flight": 3, "unsent_bytes": 4,
        });
        assert_eq!(
            line(host),
            "controller 1 queue 2 of nqn.2020-01.example:host: 3 commands, 4 bytes to send"
        );
        let ring = serde_json::json!({
            "front": "vhost-user-scsi", "queue": 2, "in_flight": 5, "broken": "descriptor 9 of 8",
        });
        assert_eq!(line(ring), "ring 2 of a virtual machine: 5 requests, broken: descriptor 9 of 8");
        let queue = serde_json::json!({ "front": "ublk", "disk": "/dev/ublkb0", "queue": 1, "in_flight": 0 });
        assert_eq!(line(queue), "queue 1 of /dev/ublkb0: 0 requests");
    }

    #[test]
    fn counters_are_those_that_a_volume_has() {
        let counted = serde_json::to_value(Statistics::default()).unwrap();
        let mut counted: Vec<&str> = counted.as_object().unwrap().keys().map(String::as_str).collect();
        let mut shown = COUNTERS.map(|(name, _)| name);
        counted.sort_unstable();
        shown.sort_unstable();
        assert_eq!(counted, shown);
        assert!(shown.iter().all(|name| name.len() <= WIDTH));
    }
}
