//! Drives as files.
//!
//! A profile says what a drive is and how long it takes, value by value, and of each value where it is from. Nothing in it
//! depends on how the drive is used: the same values hold at any depth, with any number of jobs and zones.
//!
//! ```toml
//! name = "smr-hdd-30t"
//! title = "30 TB host-managed SMR disk"
//!
//! [drive]
//! size = { value = 30_000_000_000_000, source = "datasheet" }
//!
//! [timing]
//! model = "smr-disk"
//! turn_us = { value = 8333, source = "datasheet", note = "7200 turns a minute" }
//! ```

mod error;
mod standing;
mod values;
mod write;

pub use error::ProfileError;
pub use standing::Standing;
pub use values::{DriveValues, FlashValues, HostValues, SmrValues, Source, Sourced, TimingValues};

use crate::Timed;
use crate::model::Model;
use error::{Problem, REPLACED};
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use toml::{Table, Value};
use zonal_core::Geometry;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null, OptionsError};
use zonal_io::image::PROFILES;

/// Largest profile that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// A drive. See the module.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a profile")]
pub struct Profile {
    /// What the profile is called.
    pub name: String,
    /// What the drive is, in a line.
    pub title: String,
    /// Whether its timing was fitted to measurements of this very drive; otherwise results are a range at best.
    #[serde(default)]
    pub calibrated: bool,
    /// What its timing was fitted to: sizes of blocks, depths, zones and modes. A calibrated profile says it.
    #[serde(default)]
    pub calibrated_for: Option<String>,
    /// The largest error of the runs that a calibration fitted it to, in per cent.
    #[serde(default)]
    pub worst_residual_percent: Option<f64>,
    /// What else there is to know.
    #[serde(default)]
    pub about: String,
    /// What the drive says of itself.
    pub drive: DriveValues,
    /// How long it takes.
    pub timing: TimingValues,
    /// How long the host takes that it was measured with.
    pub host: HostValues,
}

impl Profile {
    /// Names of the profiles that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|(name, _)| *name)
    }

    /// The profile of this name, or in the file of this path, with values of its own changed: `key=value`.
    ///
    /// # Errors
    /// [`ProfileError`] with file, key and what is wrong.
    pub fn open(name: &str, changes: &[(&str, &str)]) -> Result<Profile, ProfileError> {
        Profile::parse(name, &Profile::text(name)?, changes)
    }

    /// The profile of this name as it is written, unchecked.
    ///
    /// # Errors
    /// [`ProfileError`] if there is none, or it cannot be read.
    pub fn text(name: &str) -> Result<String, ProfileError> {
        let is_path = name.contains(['/', '.']);
        match PROFILES.iter().find(|(built_in, _)| *built_in == name) {
            Some((_, text)) => Ok((*text).to_owned()),
            None if is_path => read(Path::new(name)),
            None => Err(ProfileError::new(name, Problem::Unknown)),
        }
    }

    /// The profile in `text`, called `name` in errors.
    ///
    /// # Errors
    /// As [`Profile::open`].
    pub fn parse(name: &str, text: &str, changes: &[(&str, &str)]) -> Result<Profile, ProfileError> {
        let failed = |problem| ProfileError::new(name, problem);
        let table = table(text, changes).map_err(failed)?;
        let outside = quantities(&table).find(|quantity| !quantity.is_in_range());
        let profile: Profile = table.try_into().map_err(|e: toml::de::Error| failed(Problem::syntax(&e)))?;
        profile.check().map_err(failed)?;
        match outside {
            Some(quantity) => Err(failed(Problem::OutsideRange(quantity.key))),
            None => Ok(profile),
        }
    }

    /// The quantities among the values of timing and host of the profile that [`Profile::open`] opens: what a drive
    /// could have more or less of.
    ///
    /// # Errors
    /// As [`Profile::open`].
    pub fn quantities(name: &str, changes: &[(&str, &str)]) -> Result<Vec<Quantity>, ProfileError> {
        let text = Profile::text(name)?;
        Profile::parse(name, &text, changes)?;
        let table = table(&text, changes).map_err(|problem| ProfileError::new(name, problem))?;
        Ok(quantities(&table).collect())
    }

    fn check(&self) -> Result<(), Problem> {
        self.drive.check()?;
        self.emulated_options().info("").map_err(|e| Problem::Drive(e.to_string()))?;
        self.host.check()?;
        self.timing.check()
    }

    /// The emulated device that says how commands end.
    pub fn emulated_options(&self) -> EmulatedOptions {
        self.drive.emulated_options()
    }

    /// The model that says when, of a drive divided so.
    pub fn model(&self, geometry: Geometry) -> Box<dyn Model> {
        self.timing.model(geometry)
    }

    /// The drive itself, simulated, in virtual time, under this name.
    ///
    /// # Errors
    /// What the emulated device refuses of the profile's geometry.
    pub fn simulated(&self, name: &str) -> Result<Arc<dyn Device>, OptionsError> {
        let inner: Arc<dyn Device> = Arc::new(Emulated::new(name, &self.emulated_options(), Null)?);
        let model = self.model(inner.info().geometry);
        let timed = Timed::new(inner, model).named(name).in_virtual_time();
        Ok(Arc::new(timed.with_host(self.host.time())))
    }
}

fn table(text: &str, changes: &[(&str, &str)]) -> Result<Table, Problem> {
    let mut table: Table = text.parse().map_err(|e: toml::de::Error| Problem::syntax(&e))?;
    let timing = table.get("timing").and_then(Value::as_table);
    if timing.is_some_and(|values| values.contains_key(REPLACED)) {
        return Err(Problem::Replaced);
    }
    for (key, value) in changes {
        change(&mut table, key, value)?;
    }
    Ok(table)
}

fn read(path: &Path) -> Result<String, ProfileError> {
    use std::io::Read;
    let name = path.display().to_string();
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| ProfileError::new(&name, Problem::Unreadable(e)))?;
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 > FILE_MAX => Err(ProfileError::new(&name, Problem::TooLong(FILE_MAX))),
        Ok(_) => Ok(text),
        Err(e) => Err(ProfileError::new(&name, Problem::Unreadable(e))),
    }
}

/// A value of a profile that is more or less of something.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantity {
    /// Its key.
    pub key: String,
    /// How much.
    pub value: f64,
    /// Whether it is a number of things.
    pub is_whole: bool,
    /// Where it is from.
    pub source: Source,
    /// Least and most of the values that fit as well, if the profile names them.
    pub range: Option<[f64; 2]>,
}

impl Quantity {
    fn is_in_range(&self) -> bool {
        self.range.is_none_or(|[least, most]| (least..=most).contains(&self.value))
    }
}

/// The quantities of timing and host.
fn quantities(table: &Table) -> impl Iterator<Item = Quantity> {
    let values = ["timing", "host"].into_iter().filter_map(|section| table.get(section)?.as_table());
    values.flatten().filter_map(|(key, entry)| quantity(key, entry))
}

fn quantity(key: &str, entry: &Value) -> Option<Quantity> {
    // A seed is a number and no quantity.
    if key.ends_with("_seed") {
        return None;
    }
    let (value, is_whole) = match entry.get("value")? {
        Value::Integer(n) => (*n as f64, true),
        Value::Float(f) => (*f, false),
        _ => return None,
    };
    let source = entry.get("source")?.clone().try_into().ok()?;
    let range = entry.get("range").and_then(|range| range.clone().try_into().ok());
    Some(Quantity { key: key.to_owned(), value, is_whole, source, range })
}

/// Gives a value of the profile from outside.
fn change(table: &mut Table, key: &str, value: &str) -> Result<(), Problem> {
    if key == REPLACED {
        return Err(Problem::Replaced);
    }
    let mut known = Vec::new();
    for section in ["drive", "timing", "host"] {
        let Some(Value::Table(section)) = table.get_mut(section) else { continue };
        if let Some(Value::Table(entry)) = section.get_mut(key) {
            let old = entry.get("value");
            let new = given(old, value).ok_or_else(|| Problem::Value(key.into(), value.into()))?;
            entry.insert("value".into(), new);
            entry.insert("source".into(), Value::String("given".into()));
            entry.remove("range");
            return Ok(());
        }
        known.extend(section.keys().filter(|k| *k != "model").cloned());
    }
    Err(Problem::Key(key.into(), known))
}

/// `text` as a value of the kind that `old` is.
fn given(old: Option<&Value>, text: &str) -> Option<Value> {
    let size = || zonal_io::registry::parse_size(text).ok().and_then(|n| i64::try_from(n).ok());
    match old? {
        Value::Integer(_) => size().map(Value::Integer),
        Value::Float(_) => text.parse().ok().filter(|f: &f64| f.is_finite()).map(Value::Float),
        Value::Boolean(_) => match text {
            "1" | "true" | "on" => Some(Value::Boolean(true)),
            "0" | "false" | "off" => Some(Value::Boolean(false)),
            _ => None,
        },
        Value::String(_) => Some(Value::String(text.into())),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests;
