//! Profiles: drives described by files.
//!
//! A profile has the properties and the timing of a drive, with the source of each value. No value
//! depends on how the drive is used: all of them hold for any queue depth and any number of jobs
//! and zones.
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
//! turn_us = { value = 8333, source = "datasheet", note = "7200 rpm" }
//! ```
//!
//! A drive that can be formatted with other logical blocks has a table `[format.BYTES]` for each such
//! format, with the values that differ.

mod error;
mod format;
mod standing;
mod values;
mod write;

pub use error::ProfileError;
pub use standing::{Aspect, CalibratedRuns, Standing, Workload};
pub use values::{DriveValues, FlashValues, HostValues, SmrValues, Source, Sourced, TimingValues};
pub(crate) use values::{MICROS, MICROS_MAX, nanos};

use crate::Timed;
use crate::model::Model;
use error::{Problem, REPLACED};
use format::Formats;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use toml::{Table, Value};
use zonal_core::Geometry;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null, OptionsError};
use zonal_io::image::PROFILES;

/// Maximum size of a profile, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Profile of a drive. See the module.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a profile")]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Description of the drive, in one line.
    pub title: String,
    /// True if the timing was fitted to measurements of this very drive. Otherwise results are a
    /// range at best.
    #[serde(default)]
    pub calibrated: bool,
    /// Block sizes, queue depths, zones and modes that the timing was fitted to. Set for calibrated
    /// profiles.
    #[serde(default)]
    pub calibrated_for: Option<String>,
    /// The same runs in a form that other runs are compared with. Empty: they are unknown.
    #[serde(default)]
    pub calibrated_runs: Vec<CalibratedRuns>,
    /// Largest error among the fitted runs of the calibration, in percent.
    #[serde(default)]
    pub worst_residual_percent: Option<f64>,
    /// Further remarks.
    #[serde(default)]
    pub about: String,
    /// Properties reported by the drive.
    pub drive: DriveValues,
    /// Timing of the drive.
    pub timing: TimingValues,
    /// Time per command of the host that it was measured with.
    pub host: HostValues,
}

impl Profile {
    /// Names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|(name, _)| *name)
    }

    /// Loads the profile of this name, or from the file at this path, with some values replaced
    /// (`key=value`).
    ///
    /// # Errors
    /// [`ProfileError`] with the file, the key and the problem.
    pub fn open(name: &str, changes: &[(&str, &str)]) -> Result<Profile, ProfileError> {
        Profile::parse(name, &Profile::text(name)?, changes)
    }

    /// Text of the profile, unchecked.
    ///
    /// # Errors
    /// [`ProfileError`] if it does not exist or cannot be read.
    pub fn text(name: &str) -> Result<String, ProfileError> {
        let is_path = name.contains(['/', '.']);
        match PROFILES.iter().find(|(built_in, _)| *built_in == name) {
            Some((_, text)) => Ok((*text).to_owned()),
            None if is_path => read(Path::new(name)),
            None => Err(ProfileError::new(name, Problem::Unknown)),
        }
    }

    /// Parses the profile in `text`. Errors refer to it as `name`.
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

    /// Loads a profile like [`Profile::open`] and returns the numerical quantities of its timing
    /// and host values.
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
        self.calibrated_runs.iter().try_for_each(CalibratedRuns::check)?;
        self.timing.check()
    }

    /// Options of the emulated device that determines the results of commands.
    pub fn emulated_options(&self) -> EmulatedOptions {
        self.drive.emulated_options()
    }

    /// Timing model of a drive with `geometry`.
    pub fn model(&self, geometry: Geometry) -> Box<dyn Model> {
        self.timing.model(geometry)
    }

    /// The simulated drive in virtual time, with this name.
    ///
    /// # Errors
    /// The geometry of the profile is rejected by the emulated device.
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
    // A format first, so that other changes apply to it.
    let formats = Formats::take_from(&mut table)?;
    let mut others = Vec::new();
    for (key, value) in changes {
        if !formats.select(&mut table, key, value)? {
            others.push((key, value));
        }
    }
    for (key, value) in others {
        change(&mut table, key, value)?;
    }
    // A capacity belongs to its zone size.
    let is_given = |key: &str| changes.iter().any(|(given, _)| *given == key);
    if is_given("zone_size") && !is_given("zone_capacity") && has_capacity(&table) {
        change(&mut table, "zone_capacity", "0")?;
    }
    Ok(table)
}

/// True if the zones have a capacity smaller than their size.
fn has_capacity(table: &Table) -> bool {
    let value = |key: &str| table.get("drive")?.get(key)?.get("value")?.as_integer();
    value("zone_capacity").is_some_and(|bytes| bytes != 0)
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

/// A numerical quantity of a profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantity {
    /// Key.
    pub key: String,
    /// Value.
    pub value: f64,
    /// True for an integer.
    pub is_whole: bool,
    /// Source.
    pub source: Source,
    /// Least and greatest values that fit equally well, if the profile has them.
    pub range: Option<[f64; 2]>,
}

impl Quantity {
    fn is_in_range(&self) -> bool {
        self.range.is_none_or(|[least, most]| (least..=most).contains(&self.value))
    }
}

/// Quantities of timing and host.
fn quantities(table: &Table) -> impl Iterator<Item = Quantity> {
    let values = ["timing", "host"].into_iter().filter_map(|section| table.get(section)?.as_table());
    values.flatten().filter_map(|(key, entry)| quantity(key, entry))
}

fn quantity(key: &str, entry: &Value) -> Option<Quantity> {
    // A seed is a number but not a quantity.
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

/// Replaces a value of the profile.
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

/// Parses `text` as a value of the same type as `old`.
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
