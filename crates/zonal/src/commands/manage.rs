//! `zonal reset`, `open`, `close` and `finish`: zone management.

use super::range::{Extent, ZoneRange};
use crate::devices::{self, Overwrite, for_each_zone};
use crate::exit::{Exit, Failure, OrExit};
use anyhow::anyhow;
use clap::{ArgGroup, Args};
use std::io::Write;
use zonal_core::device::ZoneAction;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_io::device::Device;

/// Zones of a device.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["offset", "zone", "all"])))]
pub(crate) struct Zones {
    /// Device name; see `zonal help devices`
    device: String,
    #[command(flatten)]
    range: ZoneRange,
    // Each command sets its own help text.
    #[arg(long, conflicts_with_all = ["offset", "count", "length", "zone"])]
    all: bool,
    /// Print the changed zones
    #[arg(long, short)]
    verbose: bool,
}

/// Zones of a device, with consent to losing their data.
#[derive(Args, Debug)]
pub(crate) struct Overwritten {
    #[command(flatten)]
    zones: Zones,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// Opens or closes zones.
pub(crate) fn run(zones: &Zones, action: ZoneAction, out: &mut dyn Write) -> Result<(), Failure> {
    run_on(&*devices::open(&zones.device)?, zones, action, out)
}

/// Resets or finishes zones.
pub(crate) fn run_overwriting(
    arguments: &Overwritten,
    action: ZoneAction,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Overwritten { zones, overwrite } = arguments;
    run_on(&*devices::open_to_overwrite(&zones.device, *overwrite)?, zones, action, out)
}

fn run_on(
    device: &dyn Device,
    zones: &Zones,
    action: ZoneAction,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let chosen: Vec<ZoneIndex> = if zones.all {
        selected(device, action)?
    } else {
        let range = zones.range.of((&device.info().geometry).into(), Extent::Exact);
        let range = range.map_err(|e| anyhow!("{}: {e}", device.info().name)).or_exit(Exit::Usage)?;
        range.map(ZoneIndex).collect()
    };
    for &zone in &chosen {
        let start = device.info().geometry.start_of(zone);
        devices::run(device, operation(action), start).map_err(|e| {
            anyhow!("{}: cannot {} zone {zone}: {e}", device.info().name, operation(action).name())
        })?;
        if zones.verbose {
            writeln!(out, "{}: zone {zone}: {}", device.info().name, operation(action).name())?;
        }
    }
    // The states of zones may be in the volatile cache.
    devices::run(device, Op::Flush, Sector(0))
        .map_err(|e| anyhow!("{}: the change may not be durable: cannot flush: {e}", device.info().name))?;
    Ok(())
}

fn operation(action: ZoneAction) -> Op {
    match action {
        ZoneAction::Open => Op::ZoneOpen,
        ZoneAction::Close => Op::ZoneClose,
        ZoneAction::Finish => Op::ZoneFinish,
        ZoneAction::Reset => Op::ZoneReset,
        ZoneAction::Offline => Op::ZoneOffline,
    }
}

fn selected(device: &dyn Device, action: ZoneAction) -> Result<Vec<ZoneIndex>, Failure> {
    let mut zones = Vec::new();
    for_each_zone(device, Sector(0), u32::MAX, |zone| {
        if action.selects(zone.condition) {
            zones.push(*zone);
        }
        Ok(())
    })?;
    Ok(action.in_rounds(&zones).into_iter().flatten().map(|zone| zone.zone).collect())
}
