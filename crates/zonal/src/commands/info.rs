//! `zonal info`: properties of a device and its write mode.

use super::mode::object_of;
use super::plugs::Target;
use crate::devices;
use crate::exit::Failure;
use crate::kept::{Kept, key_here};
use crate::value::human;
use clap::Args;
use std::io::Write;
use std::path::Path;
use zonal_io::control::{self, DeviceFacts};
use zonal_io::device::Device;
use zonal_io::image;
use zonal_io::text::harmless;
use zonal_io::volume::{SetBy, WriteMode};
use zonal_linux::sysfs::Facts;

/// Show the properties of a device and its write mode
///
/// If a running process has the device open, the process provides them.
#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Device name; see `zonal help devices`
    device: String,
    /// Print one JSON object, with sizes in bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Info, out: &mut dyn Write) -> Result<(), Failure> {
    let (facts, mode, reason) = match devices::open_to_read(&arguments.device) {
        Ok(device) => of_device(&*device)?,
        Err(in_use) => of_process(&arguments.device).ok_or(in_use)?,
    };
    let kept = Kept::of(&facts.name)?;
    let files = files_of(&facts.name);
    let block = block_device_of(&facts.name);
    if arguments.json {
        let block = block.map(|block| {
            serde_json::json!({ "model": block.model, "serial": block.serial, "qd1_writes": block.qd1_writes })
        });
        let object = serde_json::json!({
            "device": facts, "mode": mode, "reason": reason, "kept": object_of(&kept), "files": files,
            "block_device": block,
        });
        return Ok(writeln!(out, "{object:#}")?);
    }
    for (name, value) in lines(&facts) {
        writeln!(out, "{name:<22} {value}")?;
    }
    if files.len() > 1 {
        writeln!(out, "{:<22} {}", "files", files.join(" "))?;
    }
    if let Some(block) = block {
        writeln!(out, "{:<22} {}", "drive", harmless(&block.label()))?;
        if block.qd1_writes == Some(true) {
            let what = "zoned_qd1_writes is on: one write at a time to the whole drive, in any write mode";
            writeln!(out, "{:<22} {what}", "kernel")?;
        }
    }
    writeln!(out, "{:<22} {mode}: {reason}", "write mode")?;
    if !kept.is_empty() {
        writeln!(out, "{:<22} {kept}", "kept for this device")?;
    }
    Ok(())
}

/// Properties of a device, its default mode, and the reason for that mode.
fn of_device(device: &dyn Device) -> Result<(DeviceFacts, String, String), Failure> {
    let info = device.info();
    let (mode, reason) = match Kept::of(&info.name)?.mode {
        Some(mode) => (mode, SetBy::Kept.name()),
        None => WriteMode::for_device(device),
    };
    Ok((DeviceFacts::from(info), mode.name().to_owned(), reason.to_owned()))
}

/// Properties of a device that a running process has open, with the mode in force and its reason.
fn of_process(name: &str) -> Option<(DeviceFacts, String, String)> {
    let path = Target::of_device(name).find().ok()?;
    let facts = control::info(&path).ok()?;
    Some((facts.device, facts.mode, facts.reason))
}

/// Files of the image `name`; none for other devices.
fn files_of(name: &str) -> Vec<String> {
    let key = key_here(name);
    let files = key.strip_prefix("image:").and_then(|path| image::files(Path::new(path)).ok());
    files.unwrap_or_default().iter().map(|file| file.display().to_string()).collect()
}

/// Properties of the block device `name` in the kernel; none for other devices.
fn block_device_of(name: &str) -> Option<Facts> {
    let path = name.strip_prefix("blk:")?;
    let path = path.strip_prefix('[').map_or_else(|| path.split(',').next(), |rest| rest.split(']').next());
    Facts::of(Path::new(path?)).ok()
}

/// Describes the last zone if it is smaller than the others.
fn last_zone(facts: &DeviceFacts) -> String {
    match facts.size % facts.zone_size {
        0 => String::new(),
        last if facts.zones == 1 => format!(", of which the only one has {}", human(last)),
        last => format!(", the last one {}", human(last)),
    }
}

/// Names and values to print.
fn lines(facts: &DeviceFacts) -> Vec<(&'static str, String)> {
    let limit = |n: u32| if n == 0 { "no limit".to_owned() } else { n.to_string() };
    let size = |bytes: u64| if bytes == 0 { "none".to_owned() } else { human(bytes) };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        ("device", facts.name.clone()),
        ("uuid", facts.uuid.clone().unwrap_or_else(|| "none".to_owned())),
        ("size", format!("{} ({} bytes)", human(facts.size), facts.size)),
        ("logical block", human(facts.blocksize)),
        ("zones", format!("{}, of which {} conventional", facts.zones, facts.zone_nr_conv)),
        ("zone size", human(facts.zone_size) + &last_zone(facts)),
        ("zone capacity", human(facts.zone_capacity)),
        ("open zones", limit(facts.zone_max_open)),
        ("active zones", limit(facts.zone_max_active)),
        ("largest command", human(facts.command_max)),
        ("largest append", size(facts.append_max)),
        ("largest write zeroes", size(facts.write_zeroes_max)),
        ("largest verify", size(facts.verify_max)),
        ("largest discard", size(facts.discard_max)),
        ("volatile cache", yes(facts.volatile_cache)),
        ("force unit access", yes(facts.fua)),
        ("rotational", yes(facts.rotational)),
        ("queues", facts.queues.to_string()),
        ("queues keep order", yes(facts.preserves_write_order)),
        ("personality", facts.personality.clone()),
    ]
}
