//! `zonal report`: the zones of a device, one per line.

use super::plugs::Target;
use super::range::{Extent, ZoneRange};
use crate::devices::{self, for_each_zone};
use crate::exit::{Exit, Failure, OrExit};
use crate::value::ZonedSize;
use anyhow::anyhow;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::{SECTOR_BYTES, ZoneCondition, ZoneIndex};
use zonal_io::control::{self, ZONES_MAX, ZoneFacts};
use zonal_io::device::Device;

/// List the zones of a device, in the format of util-linux's `blkzone report`
///
/// Numbers are 512-byte sectors. The write pointer is relative to the start of the zone; it is the
/// zone's length if the zone is full, and 0 if the zone has no valid write pointer. If a process
/// has the device open, that process reports the zones.
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Device name; see `zonal help devices`
    device: String,
    #[command(flatten)]
    range: ZoneRange,
    /// List only zones in these states, separated by commas: empty, open, closed, full, read-only,
    /// offline, conventional, active, or an abbreviation as printed
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = states)]
    state: Vec<States>,
    /// Print the number of zones first
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Print one JSON object, with sizes and addresses in bytes
    #[arg(long)]
    json: bool,
}

/// Conditions selected by one word.
type States = Vec<ZoneCondition>;

/// Words that [`states`] takes besides the abbreviations and names of conditions.
pub(super) const STATES: [&str; 8] =
    ["empty", "open", "closed", "full", "read-only", "offline", "conventional", "active"];

fn states(word: &str) -> Result<States, String> {
    let word = word.to_ascii_lowercase().replace('_', "-");
    let is_meant = |condition: &ZoneCondition| match word.as_str() {
        "open" => condition.is_open(),
        "active" => condition.is_active(),
        "conventional" => *condition == ZoneCondition::NotWp,
        "read-only" => *condition == ZoneCondition::ReadOnly,
        word => word == abbreviation(*condition) || word == condition.name().to_lowercase().replace('_', "-"),
    };
    let conditions: States = ZoneCondition::ALL.into_iter().filter(is_meant).collect();
    match conditions.is_empty() {
        true => Err(format!("not a state, which is one of {}", STATES.join(", "))),
        false => Ok(conditions),
    }
}

/// Source of a report: the device, or a process that has it open.
enum Source {
    Device(Arc<dyn Device>),
    Process { socket: PathBuf, name: String, size: ZonedSize },
}

impl Source {
    /// Opens the device, or finds the process that has it open.
    fn of(name: &str) -> Result<Source, Failure> {
        let in_use = match devices::open_to_read(name) {
            Ok(device) => return Ok(Source::Device(device)),
            Err(error) => error,
        };
        Target::of_device(name).find().ok().and_then(|socket| Source::of_process(&socket).ok()).ok_or(in_use)
    }

    fn of_process(socket: &Path) -> anyhow::Result<Source> {
        let facts = control::info(socket)?.device;
        let size =
            ZonedSize { sectors: facts.size / SECTOR_BYTES, zone_sectors: facts.zone_size / SECTOR_BYTES };
        Ok(Source::Process { socket: socket.to_owned(), name: facts.name, size })
    }

    fn name(&self) -> &str {
        match self {
            Source::Device(device) => &device.info().name,
            Source::Process { name, .. } => name,
        }
    }

    fn size(&self) -> ZonedSize {
        match self {
            Source::Device(device) => (&device.info().geometry).into(),
            Source::Process { size, .. } => *size,
        }
    }

    /// Calls `take` with each zone of the range, in order.
    fn for_each(
        &self,
        range: std::ops::Range<u32>,
        mut take: impl FnMut(&ZoneFacts) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Source::Device(device) => {
                let start = device.info().geometry.start_of(ZoneIndex(range.start));
                for_each_zone(&**device, start, range.end - range.start, |zone| take(&zone.into()))
            }
            Source::Process { socket, name, .. } => {
                let mut next = range.start;
                while next < range.end {
                    let zones = control::zones(socket, next, ZONES_MAX.min(range.end - next));
                    let zones = zones.map_err(|e| anyhow!("{name}: cannot list zones: {e}"))?;
                    if zones.is_empty() {
                        return Err(anyhow!("{name}: the process did not return zone {next}").into());
                    }
                    zones.iter().try_for_each(&mut take)?;
                    next += zones.len() as u32;
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn run(arguments: &Report, out: &mut dyn Write) -> Result<(), Failure> {
    let source = Source::of(&arguments.device)?;
    let range = arguments.range.of(source.size(), Extent::Touched);
    let range = range.map_err(|e| anyhow!("{}: {e}", source.name())).or_exit(Exit::Usage)?;
    let states: Vec<ZoneCondition> = arguments.state.iter().flatten().copied().collect();
    let is_listed = |zone: &ZoneFacts| {
        states.is_empty() || zone.zone_condition().is_some_and(|condition| states.contains(&condition))
    };
    if !arguments.json {
        let mut lines = Vec::new();
        if arguments.verbose {
            // Collected, because their number is printed first.
            source.for_each(range.clone(), |zone| {
                lines.extend(is_listed(zone).then(|| line(zone)));
                Ok(())
            })?;
            let start = u64::from(range.start) * source.size().zone_sectors;
            writeln!(out, "Found {} zones from 0x{start:x}", lines.len())?;
            return lines.iter().try_for_each(|line| Ok(writeln!(out, "{line}")?));
        }
        return source.for_each(range, |zone| match is_listed(zone) {
            true => Ok(writeln!(out, "{}", line(zone))?),
            false => Ok(()),
        });
    }
    // Printed zone by zone, because a large disk has a hundred thousand zones.
    write!(out, "{{\"device\":{},\"zones\":[", serde_json::json!(source.name()))?;
    let mut comma = "";
    source.for_each(range, |zone| {
        if is_listed(zone) {
            write!(out, "{comma}\n{}", serde_json::to_string(zone)?)?;
            comma = ",";
        }
        Ok(())
    })?;
    Ok(writeln!(out, "\n]}}")?)
}

fn line(zone: &ZoneFacts) -> String {
    let (kind, kind_name) = match zone.kind.as_str() {
        "conventional" => (1, "CONVENTIONAL"),
        _ => (2, "SEQ_WRITE_REQUIRED"),
    };
    let condition = zone.zone_condition();
    let pointer = zone.write_pointer.map_or_else(
        || "N/A".to_owned(),
        |pointer| format!("0x{:06x}", (pointer - zone.start) / SECTOR_BYTES),
    );
    let [start, size, capacity] = [zone.start, zone.size, zone.capacity].map(|bytes| bytes / SECTOR_BYTES);
    format!(
        "  start: 0x{start:09x}, len 0x{size:06x}, cap 0x{capacity:06x}, wptr {pointer} reset:0 non-seq:0, zcond:{:2}({}) \
         [type: {kind}({kind_name})]",
        condition.map_or(0, |condition| condition as u8),
        condition.map_or("??", abbreviation),
    )
}

fn abbreviation(condition: ZoneCondition) -> &'static str {
    match condition {
        ZoneCondition::NotWp => "nw",
        ZoneCondition::Empty => "em",
        ZoneCondition::ImpOpen => "oi",
        ZoneCondition::ExpOpen => "oe",
        ZoneCondition::Closed => "cl",
        ZoneCondition::ReadOnly => "ro",
        ZoneCondition::Full => "fu",
        ZoneCondition::Offline => "of",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Sector, Sectors, ZoneDescriptor, ZoneType};

    fn zone(condition: ZoneCondition, write_pointer: Option<u64>) -> ZoneFacts {
        ZoneFacts::from(&ZoneDescriptor {
            zone: ZoneIndex(1),
            start: Sector(0x80000),
            size: Sectors(0x80000),
            capacity: Sectors(0x7d000),
            zone_type: match condition {
                ZoneCondition::NotWp => ZoneType::Conventional,
                _ => ZoneType::SequentialWriteRequired,
            },
            condition,
            write_pointer: write_pointer.map(Sector),
        })
    }

    /// Expected lines are those of `blkzone report` from util-linux 2.41; 2.38 has numbers instead of N/A.
    #[test]
    fn lines_are_those_of_blkzone() {
        let head = "  start: 0x000080000, len 0x080000, cap 0x07d000, wptr";
        assert_eq!(
            line(&zone(ZoneCondition::ImpOpen, Some(0x80008))),
            format!("{head} 0x000008 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]")
        );
        assert_eq!(
            line(&zone(ZoneCondition::Full, None)),
            format!("{head} N/A reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]")
        );
        assert_eq!(
            line(&zone(ZoneCondition::NotWp, None)),
            format!("{head} N/A reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]")
        );
    }
}
