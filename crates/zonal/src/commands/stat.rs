//! `zonal stat`: the live counters of a running process, and what a file system tells of itself.

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

/// Show live counters of a running process, its file system, and its connections
///
/// Counters start at 0 when the device is opened. Connections are those of NVMe/TCP hosts, rings of virtual machines, and queues of the
/// ublk device. If no process has the device open, only the file system on it is shown; it is not changed.
#[derive(Args, Debug)]
#[command(after_help = counters_help())]
pub(crate) struct Stat {
    #[command(flatten)]
    target: Target,
    /// File with the metadata of a file system that no process has open, if they are beside the device
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print all figures in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
}

/// What there is to show.
struct Seen {
    /// Name of the device.
    device: String,
    /// Of a running process, its volume and the counters.
    volume: Option<(VolumeFacts, Value)>,
    files: Option<Status>,
    /// Of an exported device, a list of the connections of hosts, of rings and of queues.
    connections: Option<Value>,
}

impl Seen {
    fn of_process(path: &Path) -> Result<Seen, Failure> {
        let facts = control::info(path)?;
        let counters = serde_json::to_value(control::stat(path)?)?;
        let files = match control::files(path) {
            // A process of a version that knows of no files.
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

/// Looks at the file system on a device that no process has open.
fn look(arguments: &Stat, device: &str, no_process: Failure) -> Result<Seen, Failure> {
    let looked = files::look(device, arguments.metadata.clone());
    let status = looked.map_err(|why| {
        let error = anyhow::anyhow!(
            "{}; nor is there a file system to be looked at: {}",
            no_process.error,
            why.line()
        );
        Failure { exit: why.exit, error }
    })?;
    Ok(Seen { device: device.to_owned(), volume: None, files: Some(status), connections: None })
}

fn print_process(facts: &VolumeFacts, counters: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{:<WIDTH$} {}", "process", facts.pid)?;
    writeln!(out, "{:<WIDTH$} {}", "device", facts.device.name)?;
    writeln!(out, "{:<WIDTH$} {}: {}", "write mode", facts.mode, facts.reason)?;
    // The mode and the budget have lines of their own.
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

/// Characters of the names on the left.
const WIDTH: usize = 14;

/// The counters, in the order in which they are shown, and what they count.
const COUNTERS: [(&str, &str); 18] = [
    ("requests", "requests submitted"),
    ("sectors", "their sectors, of 512 bytes"),
    ("commands", "commands that the device took"),
    ("queued", "writes that waited in a plug"),
    ("merged", "writes that shared another's command"),
    ("parked", "writes that came before their predecessors and waited for them"),
    ("failed", "requests that ended with an error"),
    ("busy", "times that a queue of the device was full"),
    ("resyncs", "zones asked for their pointer after a failed write"),
    ("redriven", "failed writes that were sent again, each time"),
    ("read_back", "failed writes that were read back, because the pointer had passed them"),
    ("verified", "those of them that were found, whole"),
    ("slot_waits", "zones that waited for an open or active slot of the budget, each time"),
    ("evicted", "zones closed or finished to make room for others, each time"),
    ("plug_waits", "locks of the write path found taken"),
    ("plug_retries", "changes of a zone's plug that another thread's came before"),
    ("device_waits", "locks of the device found taken, as far as it counts them"),
    ("device_retries", "changes of a zone's state in the device that another thread's came before"),
];

fn counters_help() -> String {
    let lines = COUNTERS.map(|(name, about)| format!("  {name:<WIDTH$}  {about}\n"));
    format!("Counters:\n{}", lines.concat())
}

/// Zones that are named in a line; `--json` has all of them.
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
