//! `zonal zone`: simulates a failing drive by changing zones and sectors of a running process or of
//! an image.

use super::plugs::Target;
use crate::devices::{self, Overwrite};
use crate::exit::{Exit, Failure};
use crate::value;
use anyhow::anyhow;
use clap::{ArgAction, Args};
use std::io::Write;
use std::ops::RangeInclusive;
use zonal_core::{Op, Sector};
use zonal_io::badblocks::{BadRange, BadRangeError};
use zonal_io::changes::{UnknownSetting, ZoneSetting};
use zonal_io::control;
use zonal_io::device::{Device, set_zones};

/// Set zones of an emulated drive read-only or offline, or restore them; make sectors bad or good
///
/// Simulates a failing drive. If a process has the drive open, the change takes effect there at
/// once, and the drive reports that of a zone as an event; commands in flight are executed before
/// or after it. Otherwise the image is changed permanently.
///
/// A read-only zone keeps its data. Restoring it makes it empty, closed or full, by its write
/// pointer; it stays read-only if it would become active and the drive is at its limit of active
/// zones. An offline zone loses its data, and is empty after restoring it.
///
/// Reads and writes of a bad sector fail with a medium error, and the write pointer stays in front
/// of it. The options badblocks_once and badblocks_partial_io of the drive decide if the first error
/// makes a range good, and if a command transfers the blocks before it.
#[derive(Args, Debug)]
pub(crate) struct Zone {
    #[command(flatten)]
    target: Target,
    /// Number of a zone, starting at 0, or first and last number of a range
    #[arg(
        long,
        value_name = "ZONE[-ZONE]",
        required_unless_present = "badblocks",
        requires = "set",
        value_parser = value::zones
    )]
    zone: Option<RangeInclusive<u32>>,
    /// Condition: read-only, offline or restored
    #[arg(
        long,
        value_name = "CONDITION",
        required_unless_present = "badblocks",
        requires = "zone",
        value_parser = setting
    )]
    set: Option<ZoneSetting>,
    /// Make a range of sectors bad (+FIRST-LAST) or good (-FIRST-LAST), and list all bad ranges; without a value only list them
    #[arg(
        long,
        value_name = "CHANGE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        action = ArgAction::Append,
        conflicts_with_all = ["zone", "set"],
        value_parser = change
    )]
    badblocks: Vec<Change>,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// Change to the bad blocks; `None` only lists them.
#[derive(Clone, Copy, Debug)]
struct Change(Option<BadRange>);

fn change(text: &str) -> Result<Change, String> {
    let change = (!text.is_empty()).then(|| text.parse());
    change.transpose().map(Change).map_err(|e: BadRangeError| e.to_string())
}

fn setting(text: &str) -> Result<ZoneSetting, String> {
    text.parse().map_err(|e: UnknownSetting| e.to_string())
}

pub(crate) fn run(arguments: &Zone, out: &mut dyn Write) -> Result<(), Failure> {
    match (&arguments.zone, arguments.set) {
        (Some(zones), Some(to)) => set(arguments, zones, to, out),
        _ => badblocks(arguments, out),
    }
}

fn set(
    arguments: &Zone,
    zones: &RangeInclusive<u32>,
    to: ZoneSetting,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Zone { target, overwrite, .. } = arguments;
    target.check_named("zone --set")?;
    match (target.find(), target.device()) {
        (Ok(path), _) => control::set_zones(&path, zones.clone(), to)?,
        (Err(none), Some(name)) if none.exit == Exit::Failed => {
            set_closed(name, zones.clone(), to, *overwrite, none)?;
        }
        (Err(none), _) => return Err(none),
    }
    match (zones.start(), zones.end()) {
        (first, last) if first == last => writeln!(out, "zone {first}: {to}")?,
        (first, last) => writeln!(out, "zones {first} to {last}: {to}")?,
    }
    Ok(())
}

/// Sets zones of a device that no process has open.
fn set_closed(
    name: &str,
    zones: RangeInclusive<u32>,
    to: ZoneSetting,
    overwrite: Overwrite,
    not_open: Failure,
) -> Result<(), Failure> {
    let device = match to {
        ZoneSetting::Offline => devices::open_to_overwrite(name, overwrite)?,
        _ => devices::open(name)?,
    };
    keeps_changes(&*device, not_open)?;
    set_zones(&*device, zones, to).map_err(|e| anyhow!("{}: {e}", device.info().name))?;
    flush(&*device)
}

/// Changes and lists bad blocks.
fn badblocks(arguments: &Zone, out: &mut dyn Write) -> Result<(), Failure> {
    let Zone { target, badblocks, .. } = arguments;
    target.check_named("zone --badblocks")?;
    let mut bad = Vec::new();
    match (target.find(), target.device()) {
        (Ok(path), _) => {
            for Change(change) in badblocks {
                bad = control::badblocks(&path, *change)?;
            }
        }
        (Err(none), Some(name)) if none.exit == Exit::Failed => {
            bad = badblocks_closed(name, badblocks, none)?;
        }
        (Err(none), _) => return Err(none),
    }
    if bad.is_empty() {
        writeln!(out, "no bad blocks")?;
    }
    for (first, last) in bad {
        writeln!(out, "sectors {first} to {last}: bad")?;
    }
    Ok(())
}

/// Changes and lists bad blocks of a device that no process has open.
fn badblocks_closed(name: &str, changes: &[Change], not_open: Failure) -> Result<Vec<(u64, u64)>, Failure> {
    let only_lists = changes.iter().all(|change| change.0.is_none());
    let device = if only_lists { devices::open_to_read(name)? } else { devices::open(name)? };
    keeps_changes(&*device, not_open)?;
    let mut bad = Vec::new();
    for Change(change) in changes {
        let what = change.map_or_else(String::new, |change| format!(" {change}"));
        bad = device
            .badblocks(*change)
            .map_err(|e| anyhow!("{}: bad blocks{what}: {e}", device.info().name))?;
    }
    if !only_lists {
        flush(&*device)?;
    }
    Ok(bad)
}

/// Fails with `not_open` for a device that exists only while a process has it open.
fn keeps_changes(device: &dyn Device, not_open: Failure) -> Result<(), Failure> {
    if device.insight().begins_empty { Err(not_open) } else { Ok(()) }
}

fn flush(device: &dyn Device) -> Result<(), Failure> {
    devices::run(device, Op::Flush, Sector(0))
        .map_err(|e| anyhow!("{}: the change may not be durable: cannot flush: {e}", device.info().name))?;
    Ok(())
}
