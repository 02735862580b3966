//! Opening devices by name, and running single commands on them.

use crate::commands::mount::place::elsewhere;
use crate::commands::plugs::mounted_device;
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown_word;
use clap::Args;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use zonal_core::{DeviceError, Op, Sector, ZoneDescriptor};
use zonal_io::control;
use zonal_io::device::{Command, Device, Output};
use zonal_io::image::ImageError;
use zonal_io::lock::Held;
use zonal_io::owner;
use zonal_io::registry::{NameError, NameProblem};
use zonal_io::volume::{report, run_alone};

/// Zones fetched at a time.
const REPORT_ZONES: u32 = 4096;

/// Opens the device `name`.
pub(crate) fn open(name: &str) -> Result<Arc<dyn Device>, Failure> {
    crate::open(name).map_err(|error| explained(name, error))
}

/// Opens the device `name` for reading.
pub(crate) fn open_to_read(name: &str) -> Result<Arc<dyn Device>, Failure> {
    crate::all_devices().open_to_read(name).map_err(|error| explained(name, error))
}

/// Adds the remedy to the error of an image that is missing or in use.
fn explained(name: &str, error: NameError) -> Failure {
    let image = match error.problem() {
        NameProblem::Refused(refused) => refused.downcast_ref(),
        _ => None,
    };
    let error = match image {
        Some(ImageError::Io { path, source, .. }) if source.kind() == ErrorKind::NotFound => {
            let is_device = path.starts_with("/dev");
            let path = shown_word(path.as_os_str());
            if is_device {
                let error =
                    anyhow::anyhow!("{path}: no such device; `zonal list` shows the drives of this machine");
                return Failure { exit: Exit::Device, error };
            }
            anyhow::anyhow!(
                "{path}: no such file; `zonal create` creates a drive, and `zonal help devices` lists the names of devices"
            )
        }
        Some(ImageError::Locked { held, .. }) => match in_use(held) {
            Some(doing) => InUse { name: name.to_owned(), held: held.clone(), doing }.into(),
            None => error.into(),
        },
        _ => error.into(),
    };
    Failure { exit: Exit::Device, error }
}

/// Error of a device that another process of Zonal's has open.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {held} {doing}")]
pub(crate) struct InUse {
    name: String,
    /// The process.
    pub(crate) held: Held,
    /// What it does with the device, and how to end that.
    doing: String,
}

/// Command of the only process that has a file open, if that is another one of Zonal's.
fn in_use(held: &Held) -> Option<String> {
    match held.holders() {
        [holder] if holder.pid != std::process::id() => doing(holder.pid),
        _ => None,
    }
}

/// Opens the device `name` to overwrite or reset it. Without consent in `overwrite`, a device that
/// contains data of a known owner is refused.
pub(crate) fn open_to_overwrite(name: &str, overwrite: Overwrite) -> Result<Arc<dyn Device>, Failure> {
    let device = open(name)?;
    if !overwrite.yes {
        let checked = owner::check(&*device);
        checked.map_err(|owned| anyhow::anyhow!("{owned}; --yes overwrites it")).or_exit(Exit::Device)?;
    }
    Ok(device)
}

/// Describes the use of a device by a process of Zonal, and how to end it.
fn doing(pid: u32) -> Option<String> {
    let endpoints = control::list().unwrap_or_default();
    let mut own = endpoints.iter().filter(|endpoint| endpoint.pid == pid);
    if let Some(dir) = own.find_map(|endpoint| mounted_device(endpoint).and_then(elsewhere)) {
        let dir = shown_word(dir.as_os_str());
        return Some(format!("(mounted at {dir}); `zonal unmount {dir}` unmounts it"));
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    let program = Path::new(OsStr::from_bytes(words.next()?)).file_name()?;
    let command = shown_word(OsStr::from_bytes(words.next()?));
    (program == "zonal").then(|| format!("(`zonal {command}`)"))
}

/// Consent to losing data.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Overwrite {
    /// Proceed even if the device contains a file system or a partition table, which is lost
    #[arg(long, aliases = ["force", "fs-overwrite"])]
    pub(crate) yes: bool,
}

/// Opens the device `name`, for reading or for all commands. It must run in real time, because
/// other programs use it.
pub(crate) fn open_in_real_time(name: &str, read_only: bool) -> Result<Arc<dyn Device>, Failure> {
    let device = if read_only { open_to_read(name)? } else { open(name)? };
    if device.insight().virtual_time {
        let error = anyhow::anyhow!(
            "{name}: runs in virtual time, which other programs cannot use; use timing:PROFILE+NAME instead"
        );
        return Err(Failure { exit: Exit::Device, error });
    }
    Ok(device)
}

/// Runs a command without payload and waits for it.
pub(crate) fn run(device: &dyn Device, op: Op, sector: Sector) -> Result<Output, DeviceError> {
    run_alone(device, &Command::new(op, sector, 0))
}

/// Calls `take` with up to `count` zones, in order, starting with the zone that contains `sector`.
pub(crate) fn for_each_zone(
    device: &dyn Device,
    sector: Sector,
    count: u32,
    mut take: impl FnMut(&ZoneDescriptor) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let geometry = device.info().geometry;
    let first = geometry.zone_of(sector).0;
    let end = first.saturating_add(count).min(geometry.zones());
    let mut next = first;
    while next < end {
        let start = geometry.start_of(zonal_core::ZoneIndex(next));
        let zones = report(device, start, REPORT_ZONES.min(end - next)).map_err(|e| {
            anyhow::anyhow!("{}: cannot report the zones from {next} on: {e}", device.info().name)
        })?;
        if zones.is_empty() {
            return Err(
                anyhow::anyhow!("{}: the device did not report zone {next}", device.info().name).into()
            );
        }
        for zone in &zones {
            take(zone)?;
            next += 1;
        }
    }
    Ok(())
}
