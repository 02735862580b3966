//! Values of profiles, with their sources.

use super::error::Problem;
use crate::flash::{ByFill, FlashDrive, FlashOptions, Service, ShortWrites};
use crate::hibernation::Hibernation;
use crate::model::{Model, Span};
use crate::smr::{CacheLimits, MechanicsOptions, Order, Policy, SmrDisk, SmrOptions};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::ops::RangeInclusive;
use toml::Table;
use zonal_core::{Geometry, Personality, SECTOR_BYTES};
use zonal_io::device::HostTime;
use zonal_io::emulated::EmulatedOptions;

/// Source of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The manufacturer's data sheet.
    Datasheet,
    /// A published measurement.
    Published,
    /// Fitted to measurements, which are listed in `rows`.
    Fitted,
    /// Measured on this very drive by calibration.
    Measured,
    /// A guess.
    Assumed,
    /// Given in the device's name.
    Given,
}

/// A value with its source.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a value with its source, as in { value = 1, source = \"assumed\" }"
)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Source.
    pub source: Source,
    /// Measurements that it was fitted to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rows: String,
    /// Least and greatest values that fit equally well, with all other values unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[T; 2]>,
    /// Remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl<T> Sourced<T> {
    /// A value measured by a calibration with these runs.
    pub fn measured(value: T, runs: &str) -> Sourced<T> {
        Sourced { value, source: Source::Measured, rows: runs.into(), range: None, note: String::new() }
    }
}

/// Properties reported by a drive. Sizes are in bytes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a section of values, as under [drive]")]
pub struct DriveValues {
    /// Size. An incomplete last zone is dropped.
    pub size: Sourced<u64>,
    /// Zone size.
    pub zone_size: Sourced<u64>,
    /// Zone capacity. 0: the zone size.
    pub zone_capacity: Sourced<u64>,
    /// Number of conventional zones, at the start.
    pub zone_nr_conv: Sourced<u32>,
    /// Maximum number of open zones. 0: no limit.
    pub zone_max_open: Sourced<u32>,
    /// Maximum number of active zones. 0: no limit.
    pub zone_max_active: Sourced<u32>,
    /// Maximum size of a native zone append. 0: not supported.
    pub zone_append_max: Sourced<u64>,
    /// Logical block size.
    pub blocksize: Sourced<u32>,
    /// Maximum size of a command, as limited by the adapter.
    pub command_max: Sourced<u64>,
    /// True for a rotational drive.
    pub rotational: Sourced<bool>,
    /// True if the drive keeps the order of commands within a queue.
    pub preserves_write_order: Sourced<bool>,
    /// Number of queues, each of which keeps its order. 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<Sourced<u32>>,
    /// `zns` or `zbc`.
    pub personality: Sourced<String>,
}

impl DriveValues {
    /// Checks what the emulated device does not check, or checks under a different name.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if !["zns", "zbc"].contains(&self.personality.value.as_str()) {
            return Err(Problem::Range("personality", "zns or zbc"));
        }
        // Checked here because the emulated device gets a size rounded to it.
        let (bytes, block) = (self.zone_size.value, self.blocksize.value);
        if block > 0 && !bytes.is_multiple_of(block.into()) {
            return Err(Problem::NotBlocks("zone_size", bytes, block));
        }
        if self.command_max.value < self.blocksize.value.into() {
            return Err(Problem::Range("command_max", "at least a block"));
        }
        let queues = self.queues.as_ref().map_or(1, |queues| queues.value);
        within("queues", queues.into(), 1.0..=65536.0, "from 1 to 65,536")
    }

    /// Options of the emulated device with these values.
    pub fn emulated_options(&self) -> EmulatedOptions {
        let sectors = |bytes: u64| u32::try_from(bytes / zonal_core::SECTOR_BYTES).unwrap_or(u32::MAX);
        let zone_size = self.zone_size.value.max(1);
        EmulatedOptions::default()
            .with_size(self.size.value / zone_size * zone_size)
            .with_zone_size(self.zone_size.value)
            .with_zone_capacity(self.zone_capacity.value)
            .with_zone_nr_conv(self.zone_nr_conv.value)
            .with_zone_max_open(self.zone_max_open.value)
            .with_zone_max_active(self.zone_max_active.value)
            .with_zone_append_max_sectors(sectors(self.zone_append_max.value))
            .with_blocksize(self.blocksize.value)
            .with_max_sectors(sectors(self.command_max.value))
            .with_rotational(self.rotational.value)
            .with_preserves_write_order(self.preserves_write_order.value)
            .with_submit_queues(self.queues.as_ref().map_or(1, |queues| queues.value))
            .with_personality(if self.personality.value == "zbc" {
                Personality::Zbc
            } else {
                Personality::Zns
            })
    }
}

/// CPU time per command of a host, in microseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a section of values, as under [host]")]
pub struct HostValues {
    /// To submit a command and to process its completion.
    pub io_us: Sourced<f64>,
    /// Additional time of a scheduler, as in mode `zone-lock`.
    pub scheduler_us: Sourced<f64>,
}

impl HostValues {
    /// As a property of a device.
    pub fn time(&self) -> HostTime {
        HostTime { command: nanos(self.io_us.value), scheduler: nanos(self.scheduler_us.value) }
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        within("io_us", self.io_us.value, 0.0..=MICROS_MAX, MICROS)?;
        within("scheduler_us", self.scheduler_us.value, 0.0..=MICROS_MAX, MICROS)
    }
}

/// Timing of a drive.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum TimingValues {
    /// [`SmrDisk`].
    SmrDisk(Box<SmrValues>),
    /// [`FlashDrive`].
    Flash(Box<FlashValues>),
}

/// Implemented by hand because serde's derived code for tagged enums does not name the wrong key.
impl<'de> Deserialize<'de> for TimingValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimingValues, D::Error> {
        let mut table = Table::deserialize(deserializer)?;
        let model = table.remove("model").ok_or_else(|| D::Error::missing_field("model"))?;
        let values = match model.as_str() {
            Some("smr-disk") => table.try_into().map(|values| TimingValues::SmrDisk(Box::new(values))),
            Some("flash") => table.try_into().map(|values| TimingValues::Flash(Box::new(values))),
            _ => {
                return Err(D::Error::custom(format!("model = {model}: use \"smr-disk\" or \"flash\"")));
            }
        };
        values.map_err(|error| D::Error::custom(error.to_string().trim_end()))
    }
}

/// Values of a flash drive: fields of [`FlashOptions`], with times in microseconds and rates in
/// 10^6 bytes per second. A rate of 0 is infinite. Absent times of a reset or finish are
/// `manage_us`; what else is absent is 0 or `false`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a section of values, as under [timing]")]
#[expect(missing_docs, reason = "as in FlashOptions")]
pub struct FlashValues {
    pub queue_depth: Sourced<u32>,
    pub link_us: Sourced<f64>,
    pub link_mb_s: Sourced<f64>,
    pub drive_us: Sourced<f64>,
    pub drive_mb_s: Sourced<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_bytes: Option<Sourced<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_us: Option<Sourced<f64>>,
    pub zone_us: Sourced<f64>,
    pub zone_mb_s: Sourced<f64>,
    pub read_us: Sourced<f64>,
    pub read_mb_s: Sourced<f64>,
    pub dies: Sourced<u32>,
    pub answer_us: Sourced<f64>,
    pub manage_us: Sourced<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_empty_us: Option<Sourced<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_full_us: Option<Sourced<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_empty_us: Option<Sourced<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_full_us: Option<Sourced<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernate_after_us: Option<Sourced<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_us: Option<Sourced<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernate_reorders: Option<Sourced<bool>>,
}

impl FlashValues {
    fn check(&self) -> Result<(), Problem> {
        for (key, value) in [
            ("link_us", &self.link_us),
            ("drive_us", &self.drive_us),
            ("zone_us", &self.zone_us),
            ("read_us", &self.read_us),
            ("answer_us", &self.answer_us),
            ("manage_us", &self.manage_us),
        ] {
            within(key, value.value, 0.0..=MICROS_MAX, MICROS)?;
        }
        for (key, value) in [
            ("short_us", &self.short_us),
            ("reset_empty_us", &self.reset_empty_us),
            ("reset_full_us", &self.reset_full_us),
            ("finish_empty_us", &self.finish_empty_us),
            ("finish_full_us", &self.finish_full_us),
            ("hibernate_after_us", &self.hibernate_after_us),
            ("wake_us", &self.wake_us),
        ] {
            let value = value.as_ref().map_or(0.0, |value| value.value);
            within(key, value, 0.0..=MICROS_MAX, MICROS)?;
        }
        for (key, value) in [
            ("link_mb_s", &self.link_mb_s),
            ("drive_mb_s", &self.drive_mb_s),
            ("zone_mb_s", &self.zone_mb_s),
            ("read_mb_s", &self.read_mb_s),
        ] {
            // At lower rates, times would overflow.
            let range = if value.value == 0.0 { 0.0..=0.0 } else { 0.001..=1e6 };
            within(key, value.value, range, "0 (infinite), or from 0.001 to 1,000,000 MB/s")?;
        }
        within("dies", self.dies.value.into(), 1.0..=65536.0, "from 1 to 65,536")?;
        within("queue_depth", self.queue_depth.value.into(), 1.0..=65536.0, "from 1 to 65,536")
    }

    /// Converts to options.
    pub fn options(&self) -> FlashOptions {
        let time = |value: &Option<Sourced<f64>>, default: &Sourced<f64>| {
            nanos(value.as_ref().unwrap_or(default).value)
        };
        let time_or_none =
            |value: &Option<Sourced<f64>>| value.as_ref().map_or(0, |value| nanos(value.value));
        let by_fill =
            |empty, full| ByFill { empty: time(empty, &self.manage_us), full: time(full, &self.manage_us) };
        let hibernation = Hibernation {
            after: time_or_none(&self.hibernate_after_us),
            wake: time_or_none(&self.wake_us),
            reorders: self.hibernate_reorders.as_ref().is_some_and(|value| value.value),
        };
        let service = |fixed: &Sourced<f64>, rate: &Sourced<f64>| Service {
            fixed: nanos(fixed.value),
            rate: if rate.value == 0.0 { f64::INFINITY } else { rate.value * 1e6 },
        };
        FlashOptions {
            queue_depth: self.queue_depth.value,
            link: service(&self.link_us, &self.link_mb_s),
            drive: service(&self.drive_us, &self.drive_mb_s),
            short: ShortWrites {
                unit: self.short_bytes.as_ref().map_or(0, |value| value.value / SECTOR_BYTES as u32),
                time: time_or_none(&self.short_us),
            },
            zone: service(&self.zone_us, &self.zone_mb_s),
            read: service(&self.read_us, &self.read_mb_s),
            dies: self.dies.value,
            answer: nanos(self.answer_us.value),
            manage: nanos(self.manage_us.value),
            reset: by_fill(&self.reset_empty_us, &self.reset_full_us),
            finish: by_fill(&self.finish_empty_us, &self.finish_full_us),
            hibernation: (hibernation.after > 0).then_some(hibernation),
        }
    }
}

/// Values of an SMR disk: fields of [`SmrOptions`], with times in microseconds and rates in 10^6
/// bytes per second.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a section of values, as under [timing]")]
#[expect(missing_docs, reason = "as in SmrOptions and MechanicsOptions")]
pub struct SmrValues {
    pub outer_rate_mb_s: Sourced<f64>,
    pub inner_ratio: Sourced<f64>,
    pub turn_us: Sourced<f64>,
    pub seek_single_us: Sourced<f64>,
    pub seek_third_us: Sourced<f64>,
    pub seek_full_us: Sourced<f64>,
    pub layout_seed: Sourced<u64>,
    pub queue_depth: Sourced<u32>,
    pub link_mb_s: Sourced<f64>,
    pub command_us: Sourced<f64>,
    pub manage_us: Sourced<f64>,
    pub write_cache: Sourced<bool>,
    pub cache_bytes: Sourced<u64>,
    pub cache_commands: Sourced<u32>,
    pub cache_zone_bytes: Sourced<u64>,
    pub cache_zone_commands: Sourced<u32>,
    pub admits_in_order: Sourced<bool>,
    pub protected_bytes: Sourced<u64>,
    pub policy: Sourced<Policy>,
    pub alpha: Sourced<f64>,
    pub window: Sourced<u32>,
    pub patience_us: Sourced<f64>,
    pub dwell: Sourced<f64>,
    pub read_ahead_us: Sourced<f64>,
    pub reads_before_write: Sourced<u32>,
}

impl TimingValues {
    /// Checks that the values describe a possible drive.
    pub(super) fn check(&self) -> Result<(), Problem> {
        match self {
            TimingValues::SmrDisk(values) => values.check(),
            TimingValues::Flash(values) => values.check(),
        }
    }

    /// Timing model of a drive with `geometry`.
    pub fn model(&self, geometry: Geometry) -> Box<dyn Model> {
        match self {
            TimingValues::SmrDisk(values) => Box::new(SmrDisk::new(geometry, values.options())),
            TimingValues::Flash(values) => Box::new(FlashDrive::new(geometry, values.options())),
        }
    }
}

/// Fails if the value is out of range or not a number.
pub(super) fn within(
    key: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
    words: &'static str,
) -> Result<(), Problem> {
    if range.contains(&value) { Ok(()) } else { Err(Problem::Range(key, words)) }
}

/// Maximum time in a profile, in microseconds: 100 seconds.
pub(crate) const MICROS_MAX: f64 = 1e8;
pub(crate) const MICROS: &str = "from 0 to 100,000,000 microseconds";

pub(crate) fn nanos(micros: f64) -> Span {
    (micros * 1e3).round() as Span
}

impl SmrValues {
    fn check(&self) -> Result<(), Problem> {
        for (key, value) in [
            ("turn_us", &self.turn_us),
            ("seek_single_us", &self.seek_single_us),
            ("seek_third_us", &self.seek_third_us),
            ("seek_full_us", &self.seek_full_us),
            ("command_us", &self.command_us),
            ("manage_us", &self.manage_us),
            ("read_ahead_us", &self.read_ahead_us),
            ("patience_us", &self.patience_us),
        ] {
            within(key, value.value, 0.0..=MICROS_MAX, MICROS)?;
        }
        for (key, value) in [("outer_rate_mb_s", &self.outer_rate_mb_s), ("link_mb_s", &self.link_mb_s)] {
            within(key, value.value, 0.001..=1e6, "from 0.001 to 1,000,000 MB/s")?;
        }
        within("inner_ratio", self.inner_ratio.value, 0.01..=0.999, "from 0.01 to 0.999")?;
        within("alpha", self.alpha.value, 0.0..=1000.0, "from 0 to 1000")?;
        within("dwell", self.dwell.value, 0.0..=1000.0, "from 0 to 1000")?;
        within("queue_depth", self.queue_depth.value.into(), 1.0..=65536.0, "from 1 to 65,536")
    }

    /// Converts to options.
    pub fn options(&self) -> SmrOptions {
        SmrOptions {
            mechanics: MechanicsOptions {
                outer_rate: self.outer_rate_mb_s.value * 1e6,
                inner_ratio: self.inner_ratio.value,
                rotation: nanos(self.turn_us.value),
                seek_single: nanos(self.seek_single_us.value),
                seek_third: nanos(self.seek_third_us.value),
                seek_full: nanos(self.seek_full_us.value),
                seed: self.layout_seed.value,
            },
            queue_depth: self.queue_depth.value,
            link_rate: self.link_mb_s.value * 1e6,
            command: nanos(self.command_us.value),
            manage: nanos(self.manage_us.value),
            write_cache: self.write_cache.value,
            cache: CacheLimits {
                bytes: self.cache_bytes.value,
                commands: self.cache_commands.value,
                zone_bytes: self.cache_zone_bytes.value,
                zone_commands: self.cache_zone_commands.value,
            },
            admits_in_order: self.admits_in_order.value,
            protected_bytes: self.protected_bytes.value,
            order: Order {
                policy: self.policy.value,
                alpha: (self.alpha.value * 1000.0).round() as u32,
                window: self.window.value,
                patience: nanos(self.patience_us.value),
                dwell: (self.dwell.value * 1000.0).round() as u32,
            },
            read_ahead: nanos(self.read_ahead_us.value),
            reads_before_write: self.reads_before_write.value,
        }
    }
}
