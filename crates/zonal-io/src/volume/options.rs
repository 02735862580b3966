//! Options of a volume: names, values as text, and the origin of each value.
//!
//! Command lines, fio job files, the control socket and saved option files all write an option as
//! `name=value`. All of them are parsed here, so each option has one name, one range of values and
//! one error.
//!
//! ```
//! use zonal_io::volume::{OptionChanges, SetBy, VolumeOptions};
//! let changes: OptionChanges = "window=16 park=none".parse()?;
//! let mut options = VolumeOptions::default();
//! changes.apply(&mut options, SetBy::Caller);
//! assert_eq!((options.window, options.park), (16, None));
//! let error = "window=0".parse::<OptionChanges>().unwrap_err();
//! assert_eq!(error.to_string(), "option window: not a number from 1 to 255");
//! # Ok::<(), zonal_io::volume::OptionError>(())
//! ```

use super::budget::BudgetOptions;
use super::front::NR_REQUESTS;
use super::mode::{UnknownMode, WriteMode};
use super::token::Qd1Quantum;
use crate::registry::parse_size;
use crate::words::nearest;
use std::fmt;
use std::str::FromStr;
use zonal_core::budget::Policy;
use zonal_core::plug::{IN_FLIGHT_MAX, ParkOptions};
use zonal_core::{Nanos, SECTOR_BYTES};

/// Default window of mode `pipelined`: the largest count that fits into a zone's word. A write held
/// back by the window has to pass through the zone's queue, a third of its cost; a write refused by
/// a full device queue costs no more than that.
const WINDOW: u32 = IN_FLIGHT_MAX;

/// Largest number of tags of mode `zone-lock`, far above that of any drive.
const NR_REQUESTS_MAX: u32 = 65_536;

/// Options with which a volume is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VolumeOptions {
    /// Write mode; `None`: the default for the device.
    pub mode: Option<WriteMode>,
    /// Merge contiguous waiting writes into one command.
    pub merge: bool,
    /// Amount that a zone may write in mode `qd1` before the next waiting zone.
    pub qd1_quantum: Qd1Quantum,
    /// Maximum of writes per zone at the device in mode `pipelined`, up to [`IN_FLIGHT_MAX`].
    pub window: u32,
    /// Permit mode `pipelined` even if the device does not promise to preserve order.
    pub force: bool,
    /// Requests that may wait in the scheduler of mode `zone-lock` or be at the device. More wait
    /// outside.
    pub nr_requests: u32,
    /// Order in which commands wait for room in the device's queues.
    pub scheduler: SchedulerKind,
    /// Enforcement of the drive's limits of open and active zones; `None`: left to the drive. By
    /// default, idle zones are closed when others need their slots. Drives without limits and mode
    /// `direct` have no budget.
    pub budget: Option<BudgetOptions>,
    /// Limits for parking positional writes ahead of their zone's write pointer; `None`: such
    /// writes fail. By default up to 1 MiB per zone waits, until the zone has made no progress for
    /// a second.
    pub park: Option<ParkOptions>,
    /// Origin of each option, as reported by [`Volume::options`](super::Volume::options).
    pub setters: Setters,
}

zonal_core::setters! {
    VolumeOptions
    /// Write mode; `None`: the default for the device.
    with_mode mode: impl Into<Option<WriteMode>>;
    /// Merge contiguous waiting writes into one command.
    with_merge merge: bool;
    /// Amount that a zone may write in mode `qd1` before the next waiting zone.
    with_qd1_quantum qd1_quantum: Qd1Quantum;
    /// Maximum of writes per zone at the device in mode `pipelined`, up to [`IN_FLIGHT_MAX`].
    with_window window: u32;
    /// Permit mode `pipelined` even if the device does not promise to preserve order.
    with_force force: bool;
    /// Requests that may wait in the scheduler of mode `zone-lock` or be at the device.
    with_nr_requests nr_requests: u32;
    /// Order in which commands wait for room in the device's queues.
    with_scheduler scheduler: SchedulerKind;
    /// Enforcement of the drive's limits of open and active zones.
    with_budget budget: impl Into<Option<BudgetOptions>>;
    /// Limits for parking positional writes ahead of their zone's write pointer.
    with_park park: impl Into<Option<ParkOptions>>;
    /// Origin of each option.
    with_setters setters: Setters;
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            mode: None,
            merge: true,
            qd1_quantum: Qd1Quantum::default(),
            window: WINDOW,
            force: false,
            nr_requests: NR_REQUESTS,
            scheduler: SchedulerKind::None,
            budget: Some(BudgetOptions::default()),
            park: Some(ParkOptions::default()),
            setters: Setters::default(),
        }
    }
}

impl VolumeOptions {
    /// Without a budget: the drive's limits of open and active zones are left to the drive.
    #[must_use]
    pub fn without_budget(self) -> VolumeOptions {
        self.with_budget(None)
    }

    /// Without parking: a positional write ahead of its zone's write pointer fails.
    #[must_use]
    pub fn without_park(self) -> VolumeOptions {
        self.with_park(None)
    }

    /// Value of an option as text; empty if the mode is left to the device.
    pub fn text(&self, key: OptionKey) -> String {
        match key {
            OptionKey::Mode => self.mode.map_or(String::new(), |mode| mode.name().to_owned()),
            OptionKey::Merge => yes(self.merge),
            OptionKey::Qd1Quantum => quantum_text(self.qd1_quantum),
            OptionKey::Window => self.window.to_string(),
            OptionKey::Force => yes(self.force),
            OptionKey::NrRequests => self.nr_requests.to_string(),
            OptionKey::Scheduler => self.scheduler.name().to_owned(),
            OptionKey::Budget => self.budget.map_or_else(none, budget_text),
            OptionKey::Park => self.park.map_or_else(none, park_text),
        }
    }
}

/// Names of the options of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum OptionKey {
    /// [`VolumeOptions::mode`].
    Mode,
    /// [`VolumeOptions::merge`].
    Merge,
    /// [`VolumeOptions::qd1_quantum`].
    Qd1Quantum,
    /// [`VolumeOptions::window`].
    Window,
    /// [`VolumeOptions::force`].
    Force,
    /// [`VolumeOptions::nr_requests`].
    NrRequests,
    /// [`VolumeOptions::scheduler`].
    Scheduler,
    /// [`VolumeOptions::budget`].
    Budget,
    /// [`VolumeOptions::park`].
    Park,
}

impl OptionKey {
    /// All options.
    pub const ALL: [OptionKey; 9] = [
        OptionKey::Mode,
        OptionKey::Merge,
        OptionKey::Qd1Quantum,
        OptionKey::Window,
        OptionKey::Force,
        OptionKey::NrRequests,
        OptionKey::Scheduler,
        OptionKey::Budget,
        OptionKey::Park,
    ];

    /// Name, as in `name=value`.
    pub const fn name(self) -> &'static str {
        match self {
            OptionKey::Mode => "mode",
            OptionKey::Merge => "merge",
            OptionKey::Qd1Quantum => "qd1_quantum",
            OptionKey::Window => "window",
            OptionKey::Force => "force",
            OptionKey::NrRequests => "nr_requests",
            OptionKey::Scheduler => "scheduler",
            OptionKey::Budget => "budget",
            OptionKey::Park => "park",
        }
    }

    /// Checks that `text` is a valid value of this option.
    ///
    /// # Errors
    /// Description of the problem, without the option's name.
    pub fn check(self, text: &str) -> Result<(), String> {
        OptionChanges::default().set_value(self, text)
    }
}

impl fmt::Display for OptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OptionKey {
    type Err = OptionError;
    fn from_str(name: &str) -> Result<OptionKey, OptionError> {
        let unknown = || {
            let known = OptionKey::ALL.map(OptionKey::name);
            OptionError::Unknown { name: name.to_owned(), nearest: nearest(name, &known) }
        };
        OptionKey::ALL.into_iter().find(|key| key.name() == name).ok_or_else(unknown)
    }
}

/// Order in which commands wait for room in the device's queues, between the plugs and the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum SchedulerKind {
    /// In order of arrival.
    #[default]
    None,
    /// Sorted by address, with deadlines, reads first: the scheduler of
    /// [`zonal_core::scheduler`]. The writes of a zone keep their order. Commands wait, and are
    /// sorted, only while the device's queue is full.
    MqDeadline,
}

impl SchedulerKind {
    /// All schedulers, each at its place in the enum.
    pub const ALL: [SchedulerKind; 2] = [SchedulerKind::None, SchedulerKind::MqDeadline];

    /// Name, that of Linux.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerKind::None => "none",
            SchedulerKind::MqDeadline => "mq-deadline",
        }
    }
}

impl FromStr for SchedulerKind {
    type Err = String;
    fn from_str(name: &str) -> Result<SchedulerKind, String> {
        let found = SchedulerKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("unknown scheduler {name:?}; there are none and mq-deadline"))
    }
}

/// Origin of an option's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum SetBy {
    /// The default with which the program opens volumes.
    #[default]
    Default,
    /// The command line or a job.
    Caller,
    /// The options saved for the device.
    Kept,
    /// The control socket, while the volume was open.
    Running,
}

impl SetBy {
    const ALL: [SetBy; 4] = [SetBy::Default, SetBy::Caller, SetBy::Kept, SetBy::Running];

    /// Description for listings.
    pub const fn name(self) -> &'static str {
        match self {
            SetBy::Default => "default",
            SetBy::Caller => "set by the caller",
            SetBy::Kept => "kept for this device",
            SetBy::Running => "set while running",
        }
    }

    pub(super) fn from_number(number: u8) -> SetBy {
        SetBy::ALL[usize::from(number)]
    }
}

/// [`SetBy`] for each option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setters([SetBy; OptionKey::ALL.len()]);

impl Setters {
    /// Origin of an option's value.
    pub fn of(&self, key: OptionKey) -> SetBy {
        self.0[key as usize]
    }

    pub(super) fn set(&mut self, key: OptionKey, by: SetBy) {
        self.0[key as usize] = by;
    }
}

/// Values for some of the options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OptionChanges {
    /// [`VolumeOptions::mode`].
    pub mode: Option<WriteMode>,
    /// [`VolumeOptions::merge`].
    pub merge: Option<bool>,
    /// [`VolumeOptions::qd1_quantum`].
    pub qd1_quantum: Option<Qd1Quantum>,
    /// [`VolumeOptions::window`].
    pub window: Option<u32>,
    /// [`VolumeOptions::force`].
    pub force: Option<bool>,
    /// [`VolumeOptions::nr_requests`].
    pub nr_requests: Option<u32>,
    /// [`VolumeOptions::scheduler`].
    pub scheduler: Option<SchedulerKind>,
    /// [`VolumeOptions::budget`].
    pub budget: Option<Option<BudgetOptions>>,
    /// [`VolumeOptions::park`].
    pub park: Option<Option<ParkOptions>>,
}

impl OptionChanges {
    /// Adds `name=value`.
    ///
    /// # Errors
    /// [`OptionError`] if the option does not exist, the value is invalid, or the option is already
    /// set.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let key: OptionKey = name.parse()?;
        if self.has(key) {
            return Err(OptionError::Twice { key });
        }
        self.set_value(key, value).map_err(|why| OptionError::Value { key, why })
    }

    fn set_value(&mut self, key: OptionKey, text: &str) -> Result<(), String> {
        match key {
            OptionKey::Mode => self.mode = Some(text.parse().map_err(|e: UnknownMode| e.to_string())?),
            OptionKey::Merge => self.merge = Some(parse_yes(text)?),
            OptionKey::Qd1Quantum => self.qd1_quantum = Some(parse_quantum(text)?),
            OptionKey::Window => self.window = Some(parse_number(text, IN_FLIGHT_MAX)?),
            OptionKey::Force => self.force = Some(parse_yes(text)?),
            OptionKey::NrRequests => self.nr_requests = Some(parse_number(text, NR_REQUESTS_MAX)?),
            OptionKey::Scheduler => self.scheduler = Some(text.parse()?),
            OptionKey::Budget => self.budget = Some(or_none(text, parse_budget)?),
            OptionKey::Park => self.park = Some(or_none(text, parse_park)?),
        }
        Ok(())
    }

    /// True if `key` has a value.
    pub fn has(&self, key: OptionKey) -> bool {
        match key {
            OptionKey::Mode => self.mode.is_some(),
            OptionKey::Merge => self.merge.is_some(),
            OptionKey::Qd1Quantum => self.qd1_quantum.is_some(),
            OptionKey::Window => self.window.is_some(),
            OptionKey::Force => self.force.is_some(),
            OptionKey::NrRequests => self.nr_requests.is_some(),
            OptionKey::Scheduler => self.scheduler.is_some(),
            OptionKey::Budget => self.budget.is_some(),
            OptionKey::Park => self.park.is_some(),
        }
    }

    /// True if no option has a value.
    pub fn is_empty(&self) -> bool {
        self.keys().next().is_none()
    }

    /// Options that have a value.
    pub fn keys(&self) -> impl Iterator<Item = OptionKey> + '_ {
        OptionKey::ALL.into_iter().filter(|key| self.has(*key))
    }

    /// Options that have a value, and the values as text.
    pub fn pairs(&self) -> Vec<(OptionKey, String)> {
        let mut options = VolumeOptions::default();
        self.apply(&mut options, SetBy::Default);
        self.keys().map(|key| (key, options.text(key))).collect()
    }

    /// Merges two sets of values; `self` takes precedence over `below`.
    pub fn over(self, below: OptionChanges) -> OptionChanges {
        OptionChanges {
            mode: self.mode.or(below.mode),
            merge: self.merge.or(below.merge),
            qd1_quantum: self.qd1_quantum.or(below.qd1_quantum),
            window: self.window.or(below.window),
            force: self.force.or(below.force),
            nr_requests: self.nr_requests.or(below.nr_requests),
            scheduler: self.scheduler.or(below.scheduler),
            budget: self.budget.or(below.budget),
            park: self.park.or(below.park),
        }
    }

    /// Copies the values into `options`, with `by` as their origin.
    pub fn apply(&self, options: &mut VolumeOptions, by: SetBy) {
        options.mode = self.mode.or(options.mode);
        options.merge = self.merge.unwrap_or(options.merge);
        options.qd1_quantum = self.qd1_quantum.unwrap_or(options.qd1_quantum);
        options.window = self.window.unwrap_or(options.window);
        options.force = self.force.unwrap_or(options.force);
        options.nr_requests = self.nr_requests.unwrap_or(options.nr_requests);
        options.scheduler = self.scheduler.unwrap_or(options.scheduler);
        options.budget = self.budget.unwrap_or(options.budget);
        options.park = self.park.unwrap_or(options.park);
        self.keys().for_each(|key| options.setters.set(key, by));
    }
}

impl FromStr for OptionChanges {
    type Err = OptionError;

    /// Parses pairs of `name=value` separated by blanks or semicolons.
    fn from_str(text: &str) -> Result<OptionChanges, OptionError> {
        let mut changes = OptionChanges::default();
        let pairs = text.split(|c: char| c.is_whitespace() || c == ';');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let no_pair = || OptionError::NoPair { text: pair.to_owned() };
            let (name, value) = pair.split_once('=').ok_or_else(no_pair)?;
            changes.set(name, value)?;
        }
        Ok(changes)
    }
}

impl fmt::Display for OptionChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (key, value)) in self.pairs().into_iter().enumerate() {
            write!(f, "{}{key}={value}", if n > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// Error in the text of an option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no option of this name.
    #[error("unknown option {name:?}{}; there are mode, merge, qd1_quantum, window, force, nr_requests, scheduler, budget and park",
        .nearest.map(|known| format!(", did you mean {known}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The existing option with the most similar name.
        nearest: Option<&'static str>,
    },
    /// The value is invalid.
    #[error("option {key}: {why}")]
    Value {
        /// The option.
        key: OptionKey,
        /// Description of the problem.
        why: String,
    },
    /// The option is set twice.
    #[error("option {key} is set twice")]
    Twice {
        /// The option.
        key: OptionKey,
    },
    /// The text is not of the form `name=value`.
    #[error("{text:?} is not of the form NAME=VALUE, as in window=16")]
    NoPair {
        /// The text.
        text: String,
    },
}

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Parses a time: a whole number and a unit, ns, us, ms or s.
///
/// # Errors
/// Description of the expected format.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let parse = |(unit, nanos): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(nanos).map(Nanos)
    };
    let found = UNITS.into_iter().find_map(parse);
    found.ok_or_else(|| format!("invalid time {text:?}; write it as in 10ms, with ns, us, ms or s"))
}

/// Formats a time for [`parse_time`]: exact, in the largest unit that divides it.
pub fn time_text(time: Nanos) -> String {
    let (unit, nanos) =
        UNITS.into_iter().find(|(_, nanos)| time.0.is_multiple_of(*nanos)).expect("1 divides it");
    format!("{}{unit}", time.0 / nanos)
}

/// Formats a size for [`parse_size`]: exact, in the largest unit that divides it.
pub fn size_text(bytes: u64) -> String {
    const SIZES: [(u32, &str); 4] = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match SIZES.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

fn none() -> String {
    "none".to_owned()
}

fn or_none<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "none" { Ok(None) } else { parse(text).map(Some) }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn parse_yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "1" => Ok(true),
        "no" | "0" => Ok(false),
        _ => Err("neither yes nor no".to_owned()),
    }
}

fn parse_number(text: &str, max: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=max).contains(n));
    number.ok_or_else(|| format!("not a number from 1 to {max}"))
}

fn quantum_text(quantum: Qd1Quantum) -> String {
    match quantum {
        Qd1Quantum::NONE => "0".to_owned(),
        Qd1Quantum { bytes, time } => format!("{},{}", size_text(bytes), time_text(time)),
    }
}

fn parse_quantum(text: &str) -> Result<Qd1Quantum, String> {
    if text == "0" {
        return Ok(Qd1Quantum::NONE);
    }
    let (bytes, time) = text.split_once(',').ok_or("expected BYTES,TIME, as in 256M,350ms, or 0")?;
    Ok(Qd1Quantum { bytes: size(bytes)?, time: parse_time(time)? })
}

fn budget_text(BudgetOptions { policy, grace, .. }: BudgetOptions) -> String {
    format!("{},grace={}", policy.name(), time_text(grace))
}

fn parse_budget(text: &str) -> Result<BudgetOptions, String> {
    let (name, grace) = text.split_once(',').map_or((text, None), |(name, grace)| (name, Some(grace)));
    let policy = Policy::from_name(name)
        .ok_or_else(|| format!("unknown policy {name:?}; there are wait, close, finish, fail and none"))?;
    let mut options = BudgetOptions { policy, ..BudgetOptions::default() };
    if let Some(grace) = grace {
        let grace = grace.strip_prefix("grace=").ok_or("expected grace=TIME, as in wait,grace=50ms")?;
        options.grace = parse_time(grace)?;
    }
    Ok(options)
}

fn park_text(ParkOptions { sectors_max, time, .. }: ParkOptions) -> String {
    format!("{},{}", size_text(u64::from(sectors_max) * SECTOR_BYTES), time_text(time))
}

fn parse_park(text: &str) -> Result<ParkOptions, String> {
    let (bytes, time) = text.split_once(',').ok_or("expected BYTES,TIME, as in 1M,1s, or none")?;
    let sectors = size(bytes)? / SECTOR_BYTES;
    let sectors_max = u32::try_from(sectors).map_err(|_| format!("{bytes}: larger than any zone"))?;
    Ok(ParkOptions::default().with_sectors_max(sectors_max).with_time(parse_time(time)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_text_reads_back_as_the_same_options() {
        for text in [
            "mode=qd1 merge=no qd1_quantum=256M,350ms window=16 force=yes nr_requests=8 scheduler=mq-deadline budget=wait,grace=50ms park=1M,1s",
            "merge=yes qd1_quantum=0 budget=none park=none",
            "qd1_quantum=0,1us park=512,1ns",
            "",
        ] {
            let changes: OptionChanges = text.parse().unwrap();
            assert_eq!(changes.to_string(), text);
            assert_eq!(changes.is_empty(), text.is_empty());
        }
        let of = |text: &str| text.parse::<OptionChanges>();
        assert_eq!(of("budget=close"), of(" ;budget=close,grace=1s; "));
        assert_eq!(of("merge=1 force=0"), of("merge=yes;force=no"));
    }

    #[test]
    fn options_that_are_none_are_named_with_their_range() {
        for (text, said) in [
            ("windo=3", "did you mean window?"),
            ("window", "not of the form NAME=VALUE"),
            ("window=0", "option window: not a number from 1 to 255"),
            ("window=256", "from 1 to 255"),
            ("nr_requests=65537", "from 1 to 65536"),
            ("mode=fast", "unknown write mode"),
            ("scheduler=bfq", "there are none and mq-deadline"),
            ("merge=maybe", "neither yes nor no"),
            ("park=1M", "as in 1M,1s"),
            ("park=1M,", "invalid time"),
            ("park=9999T,1s", "larger than any zone"),
            ("qd1_quantum=1M", "256M,350ms"),
            ("qd1_quantum=1M,99999999999s", "invalid time"),
            ("budget=open", "unknown policy"),
            ("budget=wait,50ms", "grace=TIME"),
            ("merge=1 merge=1", "option merge is set twice"),
        ] {
            let error = text.parse::<OptionChanges>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn option_that_is_applied_has_its_setter() {
        let mut options = VolumeOptions::default();
        let below: OptionChanges = "window=8 merge=no".parse().unwrap();
        below.apply(&mut options, SetBy::Kept);
        "window=9".parse::<OptionChanges>().unwrap().apply(&mut options, SetBy::Caller);
        assert_eq!((options.window, options.merge), (9, false));
        let by = |key| options.setters.of(key);
        assert_eq!(
            [OptionKey::Window, OptionKey::Merge, OptionKey::Park].map(by),
            [SetBy::Caller, SetBy::Kept, SetBy::Default]
        );
        assert_eq!("window=9".parse::<OptionChanges>().unwrap().over(below).to_string(), "merge=no window=9");
    }
}
