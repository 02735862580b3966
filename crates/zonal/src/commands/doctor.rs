//! `zonal doctor`: problems of a drive or of this machine.

use crate::exit::{Exit, Failure, OrExit};
use crate::text::{harmless, shown_word};
use crate::value::human;
use crate::wrap::{columns, hanging};
use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use zonal_core::SECTOR_BYTES;
use zonal_linux::doctor::{Evidence, Finding, Machine, Severity, Uses, examine, examine_machine, gather};
use zonal_linux::stale::{self, Stale};
use zonal_linux::sysfs::Facts;

/// Find problems of a zoned block device, or of this machine
///
/// Prints each finding with its evidence, the reason why it matters, and the command that mends it.
/// Without findings it prints one line. The exit code is 1 if there are findings, and 4 if the
/// drive, or any drive of this machine, cannot be used. Some checks need root: without it, the zones
/// and the kernel log may be inaccessible.
///
/// Nothing is written without --heal. --heal corrects stale write pointers of the kernel: it writes
/// a block at the kernel's pointer, which the drive refuses, and reports the zone. No data is
/// changed. A drive in use is not healed.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Block device, such as /dev/sda; without it, this machine is examined
    device: Option<PathBuf>,
    /// Correct stale write pointers of the kernel
    #[arg(long, requires = "device")]
    heal: bool,
    /// Also print notes: properties worth knowing that need no action
    #[arg(long)]
    notes: bool,
    /// Print one JSON object, notes included
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Doctor, out: &mut dyn Write) -> Result<(), Failure> {
    let Some(name) = &arguments.device else {
        let machine = gather::machine();
        let report = Report::of_machine(&machine);
        return report.print(arguments, out);
    };
    let path = &path_of(name)?;
    if matches!(path.try_exists(), Ok(false)) {
        return Report::of_nothing(path).print(arguments, out);
    }
    let mut evidence = evidence_of(path)?;
    let mut found = examine(&evidence);
    let stale = found.iter().find_map(|finding| match finding {
        Finding::StalePointers { zones } => Some(zones.clone()),
        _ => None,
    });
    if let Some(stale) = stale.filter(|_| arguments.heal) {
        heal_drive(path, &evidence.facts, &evidence.uses, &stale)?;
        evidence = evidence_of(path)?;
        found = examine(&evidence);
    }
    Report::of_drive(path, &evidence, found).print(arguments, out)
}

/// Path of the device file: the argument, or that in a name `blk:PATH,OPTION...`.
fn path_of(name: &Path) -> Result<PathBuf, Failure> {
    let Some((scheme, rest)) = name.to_str().and_then(|name| name.split_once(':')) else {
        return Ok(name.to_owned());
    };
    match scheme {
        "blk" => Ok(rest.split(',').next().unwrap_or(rest).into()),
        _ if name.exists() || scheme.contains('/') => Ok(name.to_owned()),
        _ => Err(anyhow!(
            "{}: only block devices are examined; `zonal info` and `zonal fsck` are for all devices",
            shown_word(name.as_os_str())
        ))
        .or_exit(Exit::Usage),
    }
}

fn evidence_of(path: &Path) -> Result<Evidence, Failure> {
    gather::drive(path).with_context(|| shown_word(path.as_os_str())).or_exit(Exit::Device)
}

/// Corrects stale pointers of a drive, unless it is in use: a writer would be refused, or the block
/// of the correction would not.
fn heal_drive(path: &Path, facts: &Facts, uses: &Uses, stale: &[Stale]) -> Result<(), Failure> {
    let name = || shown_word(path.as_os_str());
    if !uses.is_empty() {
        return Err(anyhow!("{}: in use ({}); a drive in use is not healed", name(), uses))
            .or_exit(Exit::Device);
    }
    stale::heal_device(path, facts, stale).with_context(name).or_exit(Exit::Device)
}

/// Findings about a drive or a machine.
struct Report {
    /// Path of the device; `None` for the machine.
    device: Option<String>,
    /// Kernel name; empty for the machine.
    name: String,
    /// Description for the line of a healthy drive.
    summary: String,
    findings: Vec<Finding>,
}

impl Report {
    fn of_drive(path: &Path, evidence: &Evidence, findings: Vec<Finding>) -> Report {
        let facts = &evidence.facts;
        Report {
            device: Some(shown_word(path.as_os_str())),
            name: facts.name.clone(),
            summary: summary(facts),
            findings,
        }
    }

    /// Report on a device that does not exist.
    fn of_nothing(path: &Path) -> Report {
        Report {
            device: Some(shown_word(path.as_os_str())),
            name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            summary: "no such device".to_owned(),
            findings: vec![Finding::NoDevice],
        }
    }

    fn of_machine(machine: &Machine) -> Report {
        let zoned = match machine.zoned {
            1 => "1 zoned block device".to_owned(),
            zoned => format!("{zoned} zoned block devices"),
        };
        Report {
            device: None,
            name: String::new(),
            summary: format!("Linux {}, {zoned}", machine.release),
            findings: examine_machine(machine),
        }
    }

    fn title(&self) -> &str {
        self.device.as_deref().unwrap_or("this machine")
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity() == severity).count()
    }

    /// Prints the findings, and fails if there are any.
    fn print(&self, arguments: &Doctor, out: &mut dyn Write) -> Result<(), Failure> {
        match arguments.json {
            true => writeln!(out, "{:#}", self.object())?,
            false => self.print_text(arguments.notes, out)?,
        }
        out.flush()?;
        let title = self.title();
        let found =
            |count: usize| if count == 1 { "1 finding".to_owned() } else { format!("{count} findings") };
        match (self.count(Severity::Unusable), self.count(Severity::Finding)) {
            (0, 0) => Ok(()),
            (0, count) => Err(anyhow!("{title}: {}", found(count)).into()),
            (unusable, others) => {
                let healed = if arguments.heal { "; nothing was healed" } else { "" };
                Err(anyhow!("{title}: unusable; {}{healed}", found(unusable + others))).or_exit(Exit::Device)
            }
        }
    }

    fn print_text(&self, notes: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let is_fit = self.count(Severity::Note) == self.findings.len();
        if is_fit {
            let hidden = match self.count(Severity::Note) {
                0 => String::new(),
                _ if notes => String::new(),
                1 => "; 1 note, see --notes".to_owned(),
                count => format!("; {count} notes, see --notes"),
            };
            writeln!(out, "{}: fit: {}{hidden}", self.title(), self.summary)?;
        }
        let shown = self.findings.iter().filter(|finding| notes || finding.severity() > Severity::Note);
        for (index, finding) in shown.enumerate() {
            if index > 0 || is_fit {
                writeln!(out)?;
            }
            let text = finding.text(&self.name);
            let severity = match finding.severity() {
                Severity::Note => "note: ",
                Severity::Finding => "",
                Severity::Unusable => "unusable: ",
            };
            let rows = format!(
                "{}: {severity}{} ({})\n  evidence  {}\n  why       {}\n",
                self.title(),
                text.what,
                finding.key(),
                harmless(&text.evidence),
                text.why
            );
            write!(out, "{}", hanging(&rows, columns()))?;
            // On one line, so that it can be copied.
            if !text.command.is_empty() {
                writeln!(out, "  command   {}", harmless(&text.command))?;
            }
        }
        Ok(())
    }

    fn object(&self) -> serde_json::Value {
        let findings: Vec<_> = self.findings.iter().map(|finding| object_of(finding, &self.name)).collect();
        json!({
            "device": self.device,
            "summary": self.summary,
            "fit": self.count(Severity::Note) == self.findings.len(),
            "findings": findings,
        })
    }
}

/// Model, size and zones of a drive.
fn summary(facts: &Facts) -> String {
    let bytes = |sectors: u64| human(sectors * SECTOR_BYTES);
    let zones = match facts.zones {
        0 => "no zones".to_owned(),
        zones => format!("{zones} zones of {}", bytes(facts.zone_sectors)),
    };
    format!("{}, {}, {zones}", harmless(&facts.label()), bytes(facts.sectors))
}

fn object_of(finding: &Finding, name: &str) -> serde_json::Value {
    let text = finding.text(name);
    let mut object = json!({
        "key": finding.key(),
        "severity": finding.severity().name(),
        "what": text.what,
        "evidence": text.evidence,
        "why": text.why,
        "command": (!text.command.is_empty()).then_some(text.command),
    });
    if let Finding::StalePointers { zones } = finding {
        let zone = |stale: &Stale| json!({ "zone": stale.zone, "drive": stale.drive * SECTOR_BYTES, "kernel": stale.kernel * SECTOR_BYTES });
        object["zones"] = zones.iter().map(zone).collect();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Finding>) -> Report {
        Report {
            device: Some("/dev/sda".to_owned()),
            name: "sda".to_owned(),
            summary: "model".to_owned(),
            findings,
        }
    }

    /// Output, and exit code of a failure.
    fn printed(findings: Vec<Finding>, notes: bool) -> (String, Option<Exit>) {
        let arguments = Doctor { device: None, heal: false, notes, json: false };
        let mut out = Vec::new();
        let result = report(findings).print(&arguments, &mut out);
        (String::from_utf8(out).unwrap(), result.err().map(|failure| failure.exit))
    }

    #[test]
    fn fit_drive_prints_one_line_and_its_notes_on_request() {
        assert_eq!(printed(vec![], false), ("/dev/sda: fit: model\n".to_owned(), None));
        let (short, exit) = printed(vec![Finding::AppendEmulated], false);
        assert_eq!((short.as_str(), exit), ("/dev/sda: fit: model; 1 note, see --notes\n", None));
        let (long, exit) = printed(vec![Finding::AppendEmulated], true);
        assert!(long.contains("note: the kernel reports no zone append (append-emulated)"), "{long}");
        assert_eq!(exit, None);
    }

    #[test]
    fn findings_have_their_rows_and_exit_codes() {
        let (text, exit) = printed(vec![Finding::ReadOnly], false);
        let expected = "\
/dev/sda: the device is read-only (read-only)
  evidence  the kernel's attribute ro is 1
  why       every write fails
  command   sudo blockdev --setrw /dev/sda
";
        assert_eq!((text.as_str(), exit), (expected, Some(Exit::Failed)));
        assert_eq!(printed(vec![Finding::NotZoned, Finding::ReadOnly], false).1, Some(Exit::Device));
    }

    #[test]
    fn stale_zones_are_in_the_json_in_bytes() {
        let zones = vec![Stale { zone: 7, drive: 8, kernel: 16 }];
        let object = report(vec![Finding::StalePointers { zones }]).object();
        assert_eq!(object["fit"], false);
        assert_eq!(object["findings"][0]["key"], "stale-pointer");
        assert_eq!(object["findings"][0]["zones"][0], json!({ "zone": 7, "drive": 4096, "kernel": 8192 }));
    }
}
