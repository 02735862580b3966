//! `zonal reset`, `open`, `close` and `finish`: zone management.

use crate::devices::{self, Overwrite, for_each_zone};
use crate::exit::{Exit, Failure, OrExit};
use crate::value;
use anyhow::anyhow;
use clap::{ArgGroup, Args};
use zonal_core::device::ZoneAction;
use zonal_core::{Geometry, Op, Sector, ZoneIndex};
use zonal_io::device::Device;

/// Which zones of which device.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["offset", "all"])))]
pub(crate) struct Zones {
    /// Device name; see `zonal help devices`
    device: String,
    /// First zone, by its first sector; see `zonal help sizes`
    #[arg(long, short, value_name = "SECTOR", value_parser = value::sector)]
    offset: Option<Sector>,
    /// Number of zones from there on
    #[arg(long, short, value_name = "ZONES", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    // Each command says for itself which these are.
    #[arg(long, conflicts_with_all = ["offset", "count"])]
    all: bool,
}

/// Zones that lose data.
#[derive(Args, Debug)]
pub(crate) struct Overwritten {
    #[command(flatten)]
    zones: Zones,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// Opens or closes zones.
pub(crate) fn run(zones: &Zones, action: ZoneAction) -> Result<(), Failure> {
    run_on(&*devices::open(&zones.device)?, zones, action)
}

/// Resets or finishes zones.
pub(crate) fn run_overwriting(arguments: &Overwritten, action: ZoneAction) -> Result<(), Failure> {
    let Overwritten { zones, overwrite } = arguments;
    run_on(&*devices::open_to_overwrite(&zones.device, *overwrite)?, zones, action)
}

fn run_on(device: &dyn Device, zones: &Zones, action: ZoneAction) -> Result<(), Failure> {
    let chosen = match zones.offset {
        None => selected(device, action)?,
        Some(offset) => range(&device.info().geometry, offset, zones.count)
            .map_err(|e| anyhow!("{}: {e}", device.info().name))
            .or_exit(Exit::Usage)?,
    };
    for &zone in &chosen {
        let start = device.info().geometry.start_of(zone);
        devices::run(device, operation(action), start).map_err(|e| {
            anyhow!("{}: cannot {} zone {zone}: {e}", device.info().name, operation(action).name())
        })?;
    }
    // The device may keep states in a cache like data.
    devices::run(device, Op::Flush, Sector(0))
        .map_err(|e| anyhow!("{}: cannot make it durable: {e}", device.info().name))?;
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

/// The zones from `offset` on, every one of which has to be there.
fn range(geometry: &Geometry, offset: Sector, count: u32) -> Result<Vec<ZoneIndex>, String> {
    if offset.0 >= geometry.sectors().0 {
        return Err(format!("sector {offset} lies beyond its end, which is at {}", geometry.sectors()));
    }
    if geometry.offset_of(offset) != 0 {
        let start = geometry.start_of(geometry.zone_of(offset));
        return Err(format!("sector {offset} is not the start of a zone; its zone starts at {start}"));
    }
    let first = geometry.zone_of(offset).0;
    if count > geometry.zones() - first {
        return Err(format!(
            "there are {} zones from zone {first} on, not {count}",
            geometry.zones() - first
        ));
    }
    Ok((first..first + count).map(ZoneIndex).collect())
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
