//! Formats of a drive with other logical blocks.
//!
//! A table `[format.BYTES]` replaces values of the sections `[drive]` and `[timing]` in the format
//! with logical blocks of this size. `format=BYTES` or `blocksize=BYTES` in the name of a device
//! selects it. The profile itself describes the format with its own `blocksize`.

use super::error::Problem;
use toml::{Table, Value};

/// Keys that hold for the format of the profile only.
const CALIBRATION: [&str; 3] = ["calibrated", "calibrated_for", "worst_residual_percent"];

/// Formats other than that of the profile itself.
pub(super) struct Formats(Table);

impl Formats {
    /// Removes the formats from a profile.
    pub(super) fn take_from(profile: &mut Table) -> Result<Formats, Problem> {
        match profile.remove("format") {
            None => Ok(Formats(Table::new())),
            Some(Value::Table(formats)) if formats.values().all(Value::is_table) => Ok(Formats(formats)),
            Some(_) => Err(Problem::NoFormats),
        }
    }

    /// Selects a format if this change of a value does so; otherwise returns `false`.
    pub(super) fn select(&self, profile: &mut Table, key: &str, value: &str) -> Result<bool, Problem> {
        let own = own_blocksize(profile).map(|bytes| bytes.to_string());
        let text = zonal_io::registry::parse_size(value).map_or(value.to_owned(), |bytes| bytes.to_string());
        match (key, self.0.get(&text).and_then(Value::as_table)) {
            ("format" | "blocksize", Some(values)) => replace(profile, &text, values).map(|()| true),
            ("format", None) if own.as_ref() == Some(&text) => Ok(true),
            ("format", None) => Err(Problem::Format(
                value.to_owned(),
                own.into_iter().chain(self.0.keys().cloned()).collect(),
            )),
            _ => Ok(false),
        }
    }
}

fn own_blocksize(profile: &Table) -> Option<i64> {
    profile.get("drive")?.get("blocksize")?.get("value")?.as_integer()
}

/// Replaces values of the profile by those of a format, for which it is not calibrated.
fn replace(profile: &mut Table, bytes: &str, values: &Table) -> Result<(), Problem> {
    CALIBRATION.iter().for_each(|key| drop(profile.remove(*key)));
    for (key, value) in values {
        let is_of_drive = profile.get("drive").is_some_and(|drive| drive.get(key).is_some());
        let name = if is_of_drive { "drive" } else { "timing" };
        if let Some(Value::Table(section)) = profile.get_mut(name) {
            section.insert(key.clone(), value.clone());
        }
    }
    let bytes = bytes.parse().map_err(|_| Problem::NoFormats)?;
    if let Some(Value::Table(drive)) = profile.get_mut("drive")
        && let Some(Value::Table(blocksize)) = drive.get_mut("blocksize")
    {
        blocksize.insert("value".into(), Value::Integer(bytes));
    }
    Ok(())
}
