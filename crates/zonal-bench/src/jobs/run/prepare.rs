//! State of the device before the first round and after the last: description, write pointers and
//! open zones.

use crate::error::{BenchError, PlanError};
use crate::jobs::plan::{Opener, Plan, WorkerPlan, ZonesOptions, sequential};
use crate::jobs::workload::zones::Zones;
use crate::measure::series::{ModeSeries, ZoneMap};
use zonal_core::{DeviceError, Op, Sector, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::device::{Command, Device, DeviceInfo};
use zonal_io::volume::{WriteMode, report, run_alone};

/// Number of zones per report command.
const REPORT_ZONES: u32 = 1 << 16;

/// Appends the write mode's name to each log file, for jobs that run in several modes.
pub(super) fn name_logs_by_mode(plan: &mut Plan, mode: WriteMode) {
    for path in plan.workers.iter_mut().filter_map(|worker| worker.iolog.as_mut()) {
        path.as_mut_os_string().push(format!(".{mode}"));
    }
}

fn command(device: &dyn Device, op: Op, sector: Sector) -> Result<(), DeviceError> {
    run_alone(device, &Command::new(op, sector, 0)).map(|_| ())
}

fn reset(device: &dyn Device, sector: Sector) -> Result<(), BenchError> {
    let device_name = || device.info().name.clone();
    command(device, Op::ZoneReset, sector).map_err(|error| BenchError::Prepare {
        device: device_name(),
        sector,
        error,
    })
}

/// Resets every zone that can be reset.
pub(crate) fn erase(device: &dyn Device) -> Result<(), BenchError> {
    if command(device, Op::ResetAll, Sector(0)).is_ok() {
        return Ok(());
    }
    for zone in descriptors(device)? {
        let is_written = zone.condition.is_active() || zone.condition == ZoneCondition::Full;
        if is_written {
            reset(device, zone.start)?;
        }
    }
    Ok(())
}

/// Reads the zone descriptors from the device.
pub(crate) fn descriptors(device: &dyn Device) -> Result<Vec<ZoneDescriptor>, BenchError> {
    let geometry = device.info().geometry;
    let failed = |error| BenchError::Zones { device: device.info().name.clone(), error };
    let mut zones: Vec<ZoneDescriptor> = Vec::with_capacity(geometry.zones() as usize);
    while zones.len() < geometry.zones() as usize {
        let next = ZoneIndex(zones.len() as u32);
        let some = report(device, geometry.start_of(next), REPORT_ZONES).map_err(failed)?;
        let is_in_order = |(n, zone): (usize, &ZoneDescriptor)| zone.zone.0 as usize == next.0 as usize + n;
        if some.is_empty() || !some.iter().enumerate().all(is_in_order) {
            return Err(failed(DeviceError::InvalidField));
        }
        zones.extend(some);
    }
    Ok(zones)
}

/// Maximum number of zones listed in an error.
const ZONES_NAMED_MAX: usize = 4;

/// Reads the zones from the device. Zones in the jobs' ranges that hold a slot of the device's
/// limits enter the open set: open zones first, then closed ones if active zones are limited. As in
/// fio, zones that exceed the set are reset; a closed zone only if its slot is needed.
pub(super) fn zones(
    device: &dyn Device,
    plan: &mut Plan,
    mut options: ZonesOptions,
) -> Result<Zones, BenchError> {
    let info = device.info();
    let descriptors = descriptors(device)?;
    let in_range = written_by_jobs(plan, device);
    let closed_max = limit_open(plan, info, &descriptors, &in_range, &mut options)?;
    let zones = Zones::new(info.geometry, &descriptors, options);
    for (worker, zone) in first_writers(plan, info, &descriptors, in_range.clone(), ZoneCondition::is_open) {
        if !zones.open(zone.zone, worker) {
            reset(device, zone.start)?;
            zones.was_reset(zone.zone, true);
        }
    }
    let Some(mut closed_left) = closed_max else { return Ok(zones) };
    let is_closed = |condition| condition == ZoneCondition::Closed;
    for (worker, zone) in first_writers(plan, info, &descriptors, in_range, is_closed) {
        if zones.open(zone.zone, worker) {
            continue;
        }
        match closed_left.checked_sub(1) {
            Some(left) => closed_left = left,
            None => {
                reset(device, zone.start)?;
                zones.was_reset(zone.zone, true);
            }
        }
    }
    Ok(zones)
}

/// Limits the open set to the slots not used by active zones outside the jobs' ranges. Returns the
/// number of closed zones in the ranges that may stay as they are in addition to a full set, or
/// `None` if active zones are not limited.
fn limit_open(
    plan: &mut Plan,
    info: &DeviceInfo,
    descriptors: &[ZoneDescriptor],
    in_range: &[bool],
    options: &mut ZonesOptions,
) -> Result<Option<usize>, BenchError> {
    // Jobs that write no zones by write pointer need no slot, and neither do jobs that leave the
    // limits to the device.
    let is_limited = info.active_max != 0
        && plan.open_max != 0
        && !plan.ignores_limits
        && plan.workers.iter().any(WorkerPlan::writes_zones);
    if !is_limited {
        return Ok(None);
    }
    let outside = || descriptors.iter().filter(|z| z.condition.is_active() && !in_range[z.zone.0 as usize]);
    let active = outside().count();
    let left = (info.active_max as usize).saturating_sub(active);
    options.open_max = plan.open_max.min(left as u32);
    if options.open_max == 0 {
        let job = plan.workers[0].spec.name.clone();
        let zones = outside().take(ZONES_NAMED_MAX).map(|z| (z.zone, z.start)).collect();
        let error = PlanError::NoActiveZoneLeft { limit: info.active_max, active, zones };
        return Err(BenchError::Plan { job, error });
    }
    if options.open_max < plan.open_max {
        plan.notes.push(format!(
            "open zones limited to {} of {}: {active} zones outside the ranges of the jobs are active",
            options.open_max, plan.open_max,
        ));
    }
    Ok(Some(left - options.open_max as usize))
}

/// Zones in a wanted condition that some job writes by write pointer, each with the first such
/// worker.
fn first_writers<'a>(
    plan: &'a Plan,
    info: &'a DeviceInfo,
    descriptors: &'a [ZoneDescriptor],
    mut left: Vec<bool>,
    is_wanted: impl Fn(ZoneCondition) -> bool + 'a,
) -> impl Iterator<Item = (Opener, &'a ZoneDescriptor)> {
    let writers = plan.workers.iter().filter(|worker| worker.writes_zones());
    let zones = writers.flat_map(move |worker| {
        let opener = Opener { is_exclusive: true, ..worker.opener() };
        sequential(&worker.zones, info).map(move |zone| (opener, &descriptors[zone.0 as usize]))
    });
    zones
        .filter(move |(_, zone)| is_wanted(zone.condition) && std::mem::take(&mut left[zone.zone.0 as usize]))
}

/// Builds the device part of a mode's series after its jobs have ended. A zone report that fails is
/// mentioned in `notes`.
pub(crate) fn mode_series(device: &dyn Device, info: DeviceInfo, notes: &mut Vec<String>) -> ModeSeries {
    let zones = match descriptors(device) {
        Ok(zones) => Some(ZoneMap::new(&zones)),
        Err(error) => {
            notes.push(format!("no map of the zones at the end: {error}"));
            None
        }
    };
    ModeSeries { device: info, zones, head: None }
}

/// Marks the zones that some job writes by write pointer.
fn written_by_jobs(plan: &Plan, device: &dyn Device) -> Vec<bool> {
    let info = device.info();
    let mut written = vec![false; info.geometry.zones() as usize];
    for worker in plan.workers.iter().filter(|worker| worker.writes_zones()) {
        sequential(&worker.zones, info).for_each(|zone| written[zone.0 as usize] = true);
    }
    written
}
