//! `zonal mode`: write mode and options of a running process, and options kept for a device.

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

/// Show or change the write mode and options of a process or a device
///
/// A switch of the mode stops issuing, waits for the commands in flight, and continues in the new
/// mode. Waiting and arriving writes keep their order. If the commands in flight do not complete
/// within a second, the answer says that the switch is pending.
///
/// The options are mode, merge, qd1_quantum, window, force, nr_requests, scheduler, budget and park,
/// with the values of `zonal bench`; merge and force are yes or no. A running process can change all
/// of them but the budget, and in modes direct and zone-lock the scheduler. These two modes are fixed
/// when the device is opened.
///
/// Options kept with --keep apply to every later command that writes to the device, unless its own
/// options override them. They are stored in zonal/devices.toml in $XDG_CONFIG_HOME, or else in
/// ~/.config.
#[derive(Args, Debug)]
pub(crate) struct Mode {
    #[command(flatten)]
    target: Target,
    /// Set an option, or switch to a mode: per-zone, qd1, pipelined or append; see `zonal help modes`
    #[arg(long, value_name = "MODE|OPTION=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Switch to pipelined even if the device does not guarantee the order of writes
    #[arg(long, requires = "set")]
    force: bool,
    /// Keep the settings for this device, whether or not a process has it open
    #[arg(long, requires = "set", requires = "device")]
    keep: bool,
    /// Remove the kept options of this device
    #[arg(long, conflicts_with_all = ["set", "socket"], requires = "device")]
    forget: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Parses `OPTION=VALUE`, or a mode alone.
fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or(("mode", text));
    match OptionChanges::default().set(name, value) {
        Ok(()) => Ok((name.to_owned(), value.to_owned())),
        // A word without `=` is a mode: report the mode as invalid.
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
    // A running process cannot change its budget; a kept one applies from the next process on.
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

/// Key of the kept options of a process's device. Its working directory may differ from ours.
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
            writeln!(out, "{pending}: pending until the commands in flight complete; now {mode}: {reason}")?;
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

/// Options as a JSON object of strings.
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
