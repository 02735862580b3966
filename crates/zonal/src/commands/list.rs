//! `zonal list`: zoned block devices of this machine, and running processes.

use super::mount::place::elsewhere;
use super::plugs::mounted_device;
use crate::exit::{Exit, Failure, OrExit};
use crate::text::{harmless, shown_word};
use crate::value::human;
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use zonal_core::SECTOR_BYTES;
use zonal_io::control::{self, Endpoint, VolumeFacts};
use zonal_linux::doctor::Uses;
use zonal_linux::ioctl::Source;
use zonal_linux::stale;
use zonal_linux::sysfs::Facts;

/// List the zoned block devices of this machine, and the running processes of Zonal
///
/// A drive is listed with its model, serial number, size, zone model, zones and users. The number
/// of conventional zones is `?` if the device cannot be opened. A process is listed with the device
/// that it has open, its write mode, and the directory of a mount. `zonal doctor` explains why a
/// drive is missing here.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Print one JSON object, with sizes in bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &List, out: &mut dyn Write) -> Result<(), Failure> {
    let drives: Vec<Drive> = Facts::all_zoned().or_exit(Exit::Failed)?.into_iter().map(Drive::of).collect();
    let processes: Vec<Process> = control::list()?.into_iter().filter_map(Process::of).collect();
    if arguments.json {
        let drives: Vec<_> = drives.iter().map(Drive::object).collect();
        let processes: Vec<_> = processes.iter().map(Process::object).collect();
        return Ok(writeln!(out, "{:#}", json!({ "drives": drives, "processes": processes }))?);
    }
    if drives.is_empty() && processes.is_empty() {
        return Ok(writeln!(out, "no zoned block devices, and no running process of Zonal")?);
    }
    print(&table(&DRIVE_COLUMNS, drives.iter().map(Drive::row)), out)?;
    if !drives.is_empty() && !processes.is_empty() {
        writeln!(out)?;
    }
    print(&table(&PROCESS_COLUMNS, processes.iter().map(Process::row)), out)
}

/// Zoned block device.
struct Drive {
    facts: Facts,
    /// Number of conventional zones, if they can be reported.
    conventional: Option<u32>,
    uses: Uses,
}

const DRIVE_COLUMNS: [&str; 8] =
    ["DEVICE", "MODEL", "SERIAL", "SIZE", "ZONE MODEL", "ZONES", "CONVENTIONAL", "USED BY"];

impl Drive {
    fn of(facts: Facts) -> Drive {
        let path = Drive::path(&facts);
        let zones =
            File::open(path).and_then(|file| stale::report_all(&file, facts.sectors, Source::Drive)).ok();
        let conventional = zones.map(|zones| zones.iter().take_while(|zone| zone.kind == 1).count() as u32);
        Drive { uses: Uses::of(&facts), conventional, facts }
    }

    /// Path of the device file. A slash in the name of a device is an exclamation mark in `sysfs`.
    fn path(facts: &Facts) -> String {
        format!("/dev/{}", facts.name.replace('!', "/"))
    }

    fn zone_model(&self) -> &'static str {
        self.facts.zoned.map_or("none", |zoned| zoned.name())
    }

    fn row(&self) -> Vec<String> {
        let facts = &self.facts;
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { harmless(text) };
        let users = self.uses.to_string();
        vec![
            Drive::path(facts),
            or_none(&facts.model),
            or_none(&facts.serial),
            human(facts.sectors * SECTOR_BYTES),
            self.zone_model().to_owned(),
            format!("{} x {}", facts.zones, human(facts.zone_sectors * SECTOR_BYTES)),
            self.conventional.map_or("?".to_owned(), |zones| zones.to_string()),
            or_none(&users),
        ]
    }

    fn object(&self) -> serde_json::Value {
        let Drive { facts, conventional, uses } = self;
        json!({
            "device": Drive::path(facts),
            "model": facts.model,
            "serial": facts.serial,
            "uuid": facts.identity.map(|identity| identity.to_string()),
            "size": facts.sectors * SECTOR_BYTES,
            "zone_model": self.zone_model(),
            "zones": facts.zones,
            "zone_size": facts.zone_sectors * SECTOR_BYTES,
            "zone_nr_conv": conventional,
            "used_by": {
                "mounts": uses.mounts,
                "swap": uses.swap,
                "holders": uses.holders,
                "processes": uses.processes,
            },
        })
    }
}

/// Process of Zonal that has a device open.
struct Process {
    endpoint: Endpoint,
    facts: VolumeFacts,
    /// Directory at which it has mounted a file system.
    mounted: Option<PathBuf>,
}

const PROCESS_COLUMNS: [&str; 4] = ["PROCESS", "DEVICE", "MODE", "MOUNTED AT"];

impl Process {
    /// Asks a process; `None` if it ended meanwhile, or does not answer.
    fn of(endpoint: Endpoint) -> Option<Process> {
        let facts = control::info(&endpoint.path).ok()?;
        let mounted = mounted_device(&endpoint).and_then(elsewhere);
        Some(Process { endpoint, facts, mounted })
    }

    fn row(&self) -> Vec<String> {
        let mounted = self.mounted.as_ref().map_or("-".to_owned(), |dir| shown_word(dir.as_os_str()));
        let pid = self.endpoint.pid.to_string();
        vec![pid, harmless(&self.facts.device.name), self.facts.mode.clone(), mounted]
    }

    fn object(&self) -> serde_json::Value {
        json!({
            "pid": self.endpoint.pid,
            "device": self.facts.device.name,
            "mode": self.facts.mode,
            "socket": self.endpoint.path,
            "mounted": self.mounted,
        })
    }
}

/// Lines of a table with a heading; none if there are no rows. The last column is not padded.
fn table(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let mut lines: Vec<Vec<String>> = rows.collect();
    if lines.is_empty() {
        return Vec::new();
    }
    lines.insert(0, heading.iter().map(|word| (*word).to_owned()).collect());
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let padded = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(padded).collect()
}

fn print(lines: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    lines.iter().try_for_each(|line| Ok(writeln!(out, "{line}")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_aligned_columns() {
        let rows = [["/dev/sda", "1"], ["/dev/nvme0n1", "22"]].map(|row| row.map(str::to_owned).to_vec());
        let lines = table(&["DEVICE", "N"], rows.into_iter());
        assert_eq!(lines, ["DEVICE        N", "/dev/sda      1", "/dev/nvme0n1  22"]);
        assert_eq!(table(&["DEVICE"], std::iter::empty()), Vec::<String>::new());
    }
}
