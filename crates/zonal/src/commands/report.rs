//! `zonal report`: the zones of a device, one a line.

use crate::devices::{self, for_each_zone};
use crate::exit::{Exit, Failure, OrExit};
use crate::value;
use clap::Args;
use std::io::Write;
use zonal_core::{Sector, ZoneCondition, ZoneDescriptor, ZoneType};

/// List the zones of a device, in the format of util-linux's `blkzone report`
///
/// Numbers are 512-byte sectors. A full zone's pointer is given as its length; where a pointer has no meaning it is 0.
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Device name; see `zonal help devices`
    device: String,
    /// Begin with the zone that holds this sector
    #[arg(long, short, value_name = "SECTOR", value_parser = value::sector, default_value = "0")]
    offset: Sector,
    /// List at most ZONES zones
    #[arg(long, short, value_name = "ZONES")]
    count: Option<u32>,
    /// Print one JSON object, with sizes and addresses in bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Report, out: &mut dyn Write) -> Result<(), Failure> {
    let device = devices::open_to_read(&arguments.device)?;
    let info = device.info();
    if arguments.offset.0 >= info.geometry.sectors().0 {
        let what = format!(
            "{}: sector {} lies beyond its end, which is at {}",
            info.name,
            arguments.offset,
            info.geometry.sectors()
        );
        return Err(anyhow::Error::msg(what)).or_exit(Exit::Usage);
    }
    let count = arguments.count.unwrap_or(u32::MAX);
    if !arguments.json {
        return for_each_zone(&*device, arguments.offset, count, |zone| Ok(writeln!(out, "{}", line(zone))?));
    }
    // Written as it comes: a large disk has a hundred thousand zones.
    write!(out, "{{\"device\":{},\"zones\":[", serde_json::json!(info.name))?;
    let mut comma = "";
    for_each_zone(&*device, arguments.offset, count, |zone| {
        write!(out, "{comma}\n{}", object(zone))?;
        comma = ",";
        Ok(())
    })?;
    Ok(writeln!(out, "\n]}}")?)
}

fn line(zone: &ZoneDescriptor) -> String {
    let (kind, kind_name) = match zone.zone_type {
        ZoneType::Conventional => (1, "CONVENTIONAL"),
        ZoneType::SequentialWriteRequired => (2, "SEQ_WRITE_REQUIRED"),
    };
    let pointer = match zone.condition {
        ZoneCondition::Full => zone.size.0,
        _ => zone.write_pointer.map_or(0, |p| (p - zone.start).0),
    };
    format!(
        "  start: 0x{:09x}, len 0x{:06x}, cap 0x{:06x}, wptr 0x{pointer:06x} reset:0 non-seq:0, zcond:{:2}({}) \
         [type: {kind}({kind_name})]",
        zone.start.0,
        zone.size.0,
        zone.capacity.0,
        zone.condition as u8,
        abbreviation(zone.condition),
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

fn object(zone: &ZoneDescriptor) -> serde_json::Value {
    serde_json::json!({
        "zone": zone.zone.0,
        "type": match zone.zone_type {
            ZoneType::Conventional => "conventional",
            ZoneType::SequentialWriteRequired => "sequential",
        },
        "condition": zone.condition.name(),
        "start": zone.start.bytes(),
        "size": zone.size.bytes(),
        "capacity": zone.capacity.bytes(),
        "write_pointer": zone.write_pointer.map(Sector::bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Sectors, ZoneIndex};

    fn zone(condition: ZoneCondition, write_pointer: Option<u64>) -> ZoneDescriptor {
        ZoneDescriptor {
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
        }
    }

    /// Lines as `blkzone report` of util-linux 2.38 prints them for such zones.
    #[test]
    fn lines_are_those_of_blkzone() {
        let head = "  start: 0x000080000, len 0x080000, cap 0x07d000, wptr";
        assert_eq!(
            line(&zone(ZoneCondition::ImpOpen, Some(0x80008))),
            format!("{head} 0x000008 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]")
        );
        assert_eq!(
            line(&zone(ZoneCondition::Full, None)),
            format!("{head} 0x080000 reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]")
        );
        assert_eq!(
            line(&zone(ZoneCondition::NotWp, None)),
            format!("{head} 0x000000 reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]")
        );
    }
}
