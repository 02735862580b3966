//! `zonal zone`: simulates a failing head by changing zones of a running process or of an image.

use super::plugs::Target;
use crate::devices::{self, Overwrite};
use crate::exit::{Exit, Failure};
use crate::value;
use anyhow::anyhow;
use clap::Args;
use std::io::Write;
use std::ops::RangeInclusive;
use zonal_core::{Op, Sector};
use zonal_io::changes::{UnknownSetting, ZoneSetting};
use zonal_io::control;
use zonal_io::device::set_zones;

/// Set zones of an emulated drive read-only or offline, or restore them
///
/// Simulates a failing head. If a process has the drive open, the change takes effect there at
/// once, and the drive reports it as an event; commands in flight are executed before or after it.
/// Otherwise the image is changed permanently.
///
/// A read-only zone keeps its data. Restoring it makes it empty, closed or full, by its write
/// pointer; it stays read-only if it would become active and the drive is at its limit of active
/// zones. An offline zone loses its data, and is empty after restoring it.
#[derive(Args, Debug)]
pub(crate) struct Zone {
    #[command(flatten)]
    target: Target,
    /// Number of a zone, starting at 0, or first and last number of a range
    #[arg(long, value_name = "ZONE[-ZONE]", required = true, value_parser = value::zones)]
    zone: RangeInclusive<u32>,
    /// Condition: read-only, offline or restored
    #[arg(long, value_name = "CONDITION", required = true, value_parser = setting)]
    set: ZoneSetting,
    #[command(flatten)]
    overwrite: Overwrite,
}

fn setting(text: &str) -> Result<ZoneSetting, String> {
    text.parse().map_err(|e: UnknownSetting| e.to_string())
}

pub(crate) fn run(arguments: &Zone, out: &mut dyn Write) -> Result<(), Failure> {
    let Zone { target, zone, set, overwrite } = arguments;
    target.check_named("zone --set")?;
    match (target.find(), target.device()) {
        (Ok(path), _) => control::set_zones(&path, zone.clone(), *set)?,
        (Err(none), Some(name)) if none.exit == Exit::Failed => {
            set_closed(name, zone.clone(), *set, *overwrite)?;
        }
        (Err(none), _) => return Err(none),
    }
    match (zone.start(), zone.end()) {
        (first, last) if first == last => writeln!(out, "zone {first}: {set}")?,
        (first, last) => writeln!(out, "zones {first} to {last}: {set}")?,
    }
    Ok(())
}

/// Sets zones of a device that no process has open.
fn set_closed(
    name: &str,
    zones: RangeInclusive<u32>,
    to: ZoneSetting,
    overwrite: Overwrite,
) -> Result<(), Failure> {
    let device = match to {
        ZoneSetting::Offline => devices::open_to_overwrite(name, overwrite)?,
        _ => devices::open(name)?,
    };
    set_zones(&*device, zones, to).map_err(|e| anyhow!("{}: {e}", device.info().name))?;
    devices::run(&*device, Op::Flush, Sector(0))
        .map_err(|e| anyhow!("{}: the change may not be durable: cannot flush: {e}", device.info().name))?;
    Ok(())
}
