//! `zonal zone`: zones as a failing head makes them, of a running process or of an image.

use super::plugs::Target;
use crate::devices::{self, Overwrite};
use crate::exit::{Exit, Failure};
use anyhow::anyhow;
use clap::Args;
use std::io::Write;
use std::ops::RangeInclusive;
use zonal_core::{Op, Sector};
use zonal_io::changes::{UnknownSetting, ZoneSetting};
use zonal_io::control;
use zonal_io::device::set_zones;

/// Turn zones of an emulated device read-only or offline, as a failing head does, or restore them
///
/// It happens at once, in the process that has the device open. What is under way meets the zone before or after; the process
/// hears of it as of an event of its device. An image that no process has open is changed where it lies, for good.
///
/// A read-only zone keeps its data. Restored, it is empty, closed at its pointer, or full. If it would be active again and the
/// device has no active zone left, it stays read-only. An offline zone has lost its data: restored, it is empty.
#[derive(Args, Debug)]
pub(crate) struct Zone {
    #[command(flatten)]
    target: Target,
    /// The zone, or the first and the last of several, by their numbers from 0
    #[arg(long, value_name = "ZONE[-ZONE]", required = true, value_parser = zones)]
    zone: RangeInclusive<u32>,
    /// What becomes of them: read-only, offline or restored
    #[arg(long, value_name = "CONDITION", required = true, value_parser = setting)]
    set: ZoneSetting,
    #[command(flatten)]
    overwrite: Overwrite,
}

fn zones(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("not a zone's number, nor two with a minus sign between them".to_owned()),
    }
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
        .map_err(|e| anyhow!("{}: cannot make it durable: {e}", device.info().name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_a_number_or_two() {
        assert_eq!((zones("7"), zones("3-5")), (Ok(7..=7), Ok(3..=5)));
        for wrong in ["", "-", "5-3", "a", "1-", "-1", "4294967296"] {
            assert!(zones(wrong).is_err(), "{wrong}");
        }
    }
}
