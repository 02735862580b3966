//! `zonal mode`: the write mode of a running process and its other options, and options that are kept for a device.

use super::plugs::Target;
use crate::devices;
use crate::exit::{Exit, Failure, OrExit};
use crate::kept::{Kept, key_here, key_of};
use anyhow::anyhow;
use clap::Args;
use std::io::Write;
use std::path::Path;
use zonal_io::control::{self, VolumeFacts};
use zonal_io::volume::{OptionChanges, SwitchError, WriteMode};

/// Show or change the write mode and options of a running process, or keep them for a device
///
/// A switch of the mode stops issuing, waits for what is in flight, and continues in the new mode. What waits and what arrives
/// meanwhile keeps its order. If what is in flight does not end within a second, the answer says that the new mode is still
/// to come.
///
/// Options are mode, merge, qd1_quantum, window, force, nr_requests, budget and park, with values as `zonal bench` takes
/// them; merge and force are yes or no. A running process changes all of them but the budget;
/// the modes direct and zone-lock are chosen when the device is opened, and stay.
///
/// What is kept for a device counts for every later command that writes to it, unless an option of that command says
/// otherwise. It lies in zonal/devices.toml in $XDG_CONFIG_HOME, or else in ~/.config.
#[derive(Args, Debug)]
pub(crate) struct Mode {
    #[command(flatten)]
    target: Target,
    /// Set an option, or switch to a mode: per-zone, qd1, pipelined or append; see `zonal help modes`
    #[arg(long, value_name = "MODE|OPTION=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Switch to pipelined also on a device that does not promise to keep the order of writes
    #[arg(long, requires = "set")]
    force: bool,
    /// Keep what is set for this device, whether a process has it open or not
    #[arg(long, requires = "set", requires = "device")]
    keep: bool,
    /// Keep nothing more for this device
    #[arg(long, conflicts_with_all = ["set", "socket"], requires = "device")]
    forget: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `OPTION=VALUE`, or a mode alone.
fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or(("mode", text));
    match OptionChanges::default().set(name, value) {
        Ok(()) => Ok((name.to_owned(), value.to_owned())),
        // Of a mode without its option's name, the mode alone is what is wrong.
        Err(_) if !text.contains('=') => Err(text.parse::<WriteMode>().unwrap_err().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn run(arguments: &Mode, out: &mut dyn Write) -> Result<(), Failure> {
    let mut changes = OptionChanges::default();
    for (name, value) in &arguments.set {
        changes.set(name, value).or_exit(Exit::Usage)?;
    }
    if arguments.force {
        changes.force = Some(true);
    }
    if arguments.forget {
        return forget(arguments, out);
    }
    if !changes.is_empty() {
        arguments.target.check_named("mode --set")?;
    }
    let path = match (arguments.target.find(), arguments.target.device()) {
        (Ok(path), _) => path,
        (Err(nobody), Some(name)) if arguments.keep && nobody.exit == Exit::Failed => {
            return keep_closed(arguments, name, changes, out);
        }
        (Err(nobody), _) => return Err(nobody),
    };
    // Of a process that runs, a budget that is to be kept counts from the next one on.
    let budget = if arguments.keep { changes.budget.take() } else { None };
    let facts =
        if changes.is_empty() { control::info(&path)? } else { control::set_options(&path, &changes)? };
    let key = key_of_process(&facts);
    let kept = match arguments.keep {
        true => Kept::keep(&key, OptionChanges { budget, ..changes })?,
        false => Kept::of(&key)?,
    };
    show(arguments, &facts, &kept, out)
}

/// The name by which options of a process's device are kept: its directory may be another than ours.
fn key_of_process(facts: &VolumeFacts) -> String {
    let directory = format!("/proc/{}/cwd", facts.pid);
    key_of(&facts.device.name, Path::new(&directory))
}

fn show(
    arguments: &Mode,
    facts: &VolumeFacts,
    kept: &OptionChanges,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if arguments.json {
        let mut object = serde_json::json!({ "mode": facts.mode, "reason": facts.reason });
        if let Some(pending) = &facts.pending {
            object["pending"] = pending.as_str().into();
        }
        object["options"] = serde_json::to_value(&facts.options)?;
        object["kept"] = object_of(kept);
        return Ok(writeln!(out, "{object}")?);
    }
    let (mode, reason) = (&facts.mode, &facts.reason);
    match &facts.pending {
        Some(pending) => {
            writeln!(out, "{pending}: once what is in flight has ended; until then {mode}: {reason}")?;
        }
        None => writeln!(out, "{mode}: {reason}")?,
    }
    for option in facts.options.iter().filter(|option| option.name != "mode") {
        writeln!(out, "  {:<12} {:<18} {}", option.name, option.value, option.set_by)?;
    }
    if !kept.is_empty() {
        writeln!(out, "kept for this device: {kept}")?;
    }
    Ok(())
}

/// Options as one JSON object of texts.
pub(crate) fn object_of(changes: &OptionChanges) -> serde_json::Value {
    let pairs = changes.pairs().into_iter().map(|(key, value)| (key.name().to_owned(), value.into()));
    serde_json::Value::Object(pairs.collect())
}

/// Keeps options for a device that no process has open.
fn keep_closed(
    arguments: &Mode,
    name: &str,
    changes: OptionChanges,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let device = devices::open_to_read(name)?;
    if let Some(mode) = changes.mode {
        match mode.fits(device.info()) {
            Err(SwitchError::NoOrder) if changes.force == Some(true) => {}
            fits => fits.map_err(|error| anyhow!("{name}: {error}"))?,
        }
    }
    let kept = Kept::keep(&key_here(&device.info().name), changes)?;
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "kept": object_of(&kept) }))?);
    }
    Ok(writeln!(out, "kept for this device: {kept}")?)
}

fn forget(arguments: &Mode, out: &mut dyn Write) -> Result<(), Failure> {
    let name = arguments.target.device().unwrap_or_default();
    let kept = Kept::forget(&key_here(name))?;
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "forgotten": kept.as_ref().map(object_of) }))?);
    }
    match kept {
        Some(kept) => writeln!(out, "no longer kept for this device: {kept}")?,
        None => writeln!(out, "nothing was kept for this device")?,
    }
    Ok(())
}
