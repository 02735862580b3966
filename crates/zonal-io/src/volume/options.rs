//! Options of a volume: their names, their values as text, and which of its users has set each.
//!
//! Command lines, job files of fio, the control socket and files of kept options all write an option as `name=value`. All of
//! them read it here, so an option has one name, one range of values and one error.
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

/// Writes of a zone at the device in mode `pipelined`: as many as a zone's word counts. A write that the window keeps back costs
/// a turn in the zone's queue, a third of its time; a write that a full queue of the device turns away costs no more than that.
const WINDOW: u32 = IN_FLIGHT_MAX;

/// Largest number of tags of mode `zone-lock`: far more than any drive has.
const NR_REQUESTS_MAX: u32 = 65_536;

/// How a volume is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VolumeOptions {
    /// Write mode; `None`: what suits the device.
    pub mode: Option<WriteMode>,
    /// Whether waiting contiguous writes share commands.
    pub merge: bool,
    /// In mode `qd1`, what a zone may write before the next zone in line.
    pub qd1_quantum: Qd1Quantum,
    /// In mode `pipelined`, writes of a zone that are at the device at once at most, up to [`IN_FLIGHT_MAX`].
    pub window: u32,
    /// Whether mode `pipelined` is taken on also where the device does not promise order.
    pub force: bool,
    /// In mode `zone-lock`, requests that may wait in the scheduler or be at the device; others wait outside.
    pub nr_requests: u32,
    /// How the drive's limits of open and active zones are kept; `None`: by the drive alone. By default zones that are not in use are
    /// closed where others need their slots. A drive without limits has no budget, nor has mode `direct`.
    pub budget: Option<BudgetOptions>,
    /// How positional writes ahead of their zone's pointer wait for those before them; `None`: they fail. By default up to 1 MiB a
    /// zone waits until the zone has stood still for a second.
    pub park: Option<ParkOptions>,
    /// Which of its users has set each of them, for [`Volume::options`](super::Volume::options) to tell.
    pub setters: Setters,
}

zonal_core::setters! {
    VolumeOptions
    /// The write mode; `None`: what suits the device.
    with_mode mode: impl Into<Option<WriteMode>>;
    /// Whether waiting contiguous writes share commands.
    with_merge merge: bool;
    /// What a zone may write in mode `qd1` before the next zone in line.
    with_qd1_quantum qd1_quantum: Qd1Quantum;
    /// Writes of a zone that are at the device at once at most in mode `pipelined`, up to [`IN_FLIGHT_MAX`].
    with_window window: u32;
    /// Whether mode `pipelined` is taken on also where the device does not promise order.
    with_force force: bool;
    /// Requests that may wait in the scheduler of mode `zone-lock` or be at the device.
    with_nr_requests nr_requests: u32;
    /// How the drive's limits of open and active zones are kept.
    with_budget budget: impl Into<Option<BudgetOptions>>;
    /// How positional writes ahead of their zone's pointer wait for those before them.
    with_park park: impl Into<Option<ParkOptions>>;
    /// Which of its users has set each of them.
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
            budget: Some(BudgetOptions::default()),
            park: Some(ParkOptions::default()),
            setters: Setters::default(),
        }
    }
}

impl VolumeOptions {
    /// Without a budget: the drive alone keeps its limits of open and active zones.
    #[must_use]
    pub fn without_budget(self) -> VolumeOptions {
        self.with_budget(None)
    }

    /// Without parked writes: a positional write ahead of its zone's pointer fails.
    #[must_use]
    pub fn without_park(self) -> VolumeOptions {
        self.with_park(None)
    }

    /// An option's value as text; empty for a mode that the device chooses.
    pub fn text(&self, key: OptionKey) -> String {
        match key {
            OptionKey::Mode => self.mode.map_or(String::new(), |mode| mode.name().to_owned()),
            OptionKey::Merge => yes(self.merge),
            OptionKey::Qd1Quantum => quantum_text(self.qd1_quantum),
            OptionKey::Window => self.window.to_string(),
            OptionKey::Force => yes(self.force),
            OptionKey::NrRequests => self.nr_requests.to_string(),
            OptionKey::Budget => self.budget.map_or_else(none, budget_text),
            OptionKey::Park => self.park.map_or_else(none, park_text),
        }
    }
}

/// The options of a volume by name.
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
    /// [`VolumeOptions::budget`].
    Budget,
    /// [`VolumeOptions::park`].
    Park,
}

impl OptionKey {
    /// Every option.
    pub const ALL: [OptionKey; 8] = [
        OptionKey::Mode,
        OptionKey::Merge,
        OptionKey::Qd1Quantum,
        OptionKey::Window,
        OptionKey::Force,
        OptionKey::NrRequests,
        OptionKey::Budget,
        OptionKey::Park,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            OptionKey::Mode => "mode",
            OptionKey::Merge => "merge",
            OptionKey::Qd1Quantum => "qd1_quantum",
            OptionKey::Window => "window",
            OptionKey::Force => "force",
            OptionKey::NrRequests => "nr_requests",
            OptionKey::Budget => "budget",
            OptionKey::Park => "park",
        }
    }

    /// Whether `text` is a value of this option.
    ///
    /// # Errors
    /// What is wrong with it, without the option's name.
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

/// Which user of a volume has set an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum SetBy {
    /// None of them: it has the value that the program opens volumes with.
    #[default]
    Default,
    /// The caller of the program, on its command line or in a job.
    Caller,
    /// A file of options that are kept for the device.
    Kept,
    /// The control socket, while the volume was open.
    Running,
}

impl SetBy {
    const ALL: [SetBy; 4] = [SetBy::Default, SetBy::Caller, SetBy::Kept, SetBy::Running];

    /// In words.
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
    /// Who has set an option.
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
    /// [`VolumeOptions::budget`].
    pub budget: Option<Option<BudgetOptions>>,
    /// [`VolumeOptions::park`].
    pub park: Option<Option<ParkOptions>>,
}

impl OptionChanges {
    /// Adds `name=value`.
    ///
    /// # Errors
    /// [`OptionError`]: there is no such option, it has no such value, or it has one here already.
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
            OptionKey::Budget => self.budget = Some(or_none(text, parse_budget)?),
            OptionKey::Park => self.park = Some(or_none(text, parse_park)?),
        }
        Ok(())
    }

    /// Whether it has a value for `key`.
    pub fn has(&self, key: OptionKey) -> bool {
        match key {
            OptionKey::Mode => self.mode.is_some(),
            OptionKey::Merge => self.merge.is_some(),
            OptionKey::Qd1Quantum => self.qd1_quantum.is_some(),
            OptionKey::Window => self.window.is_some(),
            OptionKey::Force => self.force.is_some(),
            OptionKey::NrRequests => self.nr_requests.is_some(),
            OptionKey::Budget => self.budget.is_some(),
            OptionKey::Park => self.park.is_some(),
        }
    }

    /// Whether it has no value at all.
    pub fn is_empty(&self) -> bool {
        self.keys().next().is_none()
    }

    /// The options that it has values for.
    pub fn keys(&self) -> impl Iterator<Item = OptionKey> + '_ {
        OptionKey::ALL.into_iter().filter(|key| self.has(*key))
    }

    /// The options that it has values for, with these as text.
    pub fn pairs(&self) -> Vec<(OptionKey, String)> {
        let mut options = VolumeOptions::default();
        self.apply(&mut options, SetBy::Default);
        self.keys().map(|key| (key, options.text(key))).collect()
    }

    /// These, and where it has no value those of `below`.
    pub fn over(self, below: OptionChanges) -> OptionChanges {
        OptionChanges {
            mode: self.mode.or(below.mode),
            merge: self.merge.or(below.merge),
            qd1_quantum: self.qd1_quantum.or(below.qd1_quantum),
            window: self.window.or(below.window),
            force: self.force.or(below.force),
            nr_requests: self.nr_requests.or(below.nr_requests),
            budget: self.budget.or(below.budget),
            park: self.park.or(below.park),
        }
    }

    /// Puts its values into `options`, as set by `by`.
    pub fn apply(&self, options: &mut VolumeOptions, by: SetBy) {
        options.mode = self.mode.or(options.mode);
        options.merge = self.merge.unwrap_or(options.merge);
        options.qd1_quantum = self.qd1_quantum.unwrap_or(options.qd1_quantum);
        options.window = self.window.unwrap_or(options.window);
        options.force = self.force.unwrap_or(options.force);
        options.nr_requests = self.nr_requests.unwrap_or(options.nr_requests);
        options.budget = self.budget.unwrap_or(options.budget);
        options.park = self.park.unwrap_or(options.park);
        self.keys().for_each(|key| options.setters.set(key, by));
    }
}

impl FromStr for OptionChanges {
    type Err = OptionError;

    /// Pairs of `name=value`, with blanks or semicolons between them.
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

/// Why a text gives no options.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no option of this name.
    #[error("unknown option {name:?}{}; there are mode, merge, qd1_quantum, window, force, nr_requests, budget and park",
        .nearest.map(|known| format!(", did you mean {known}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The option whose name is the most like it.
        nearest: Option<&'static str>,
    },
    /// The option has no such value.
    #[error("option {key}: {why}")]
    Value {
        /// The option.
        key: OptionKey,
        /// What is wrong with it.
        why: String,
    },
    /// The option has two values.
    #[error("option {key} is set twice")]
    Twice {
        /// The option.
        key: OptionKey,
    },
    /// Not an option and its value.
    #[error("{text:?} is not an option and its value, as in window=16")]
    NoPair {
        /// The text.
        text: String,
    },
}

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A time: a whole number and its unit, ns, us, ms or s.
///
/// # Errors
/// A sentence that says how times are written.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let parse = |(unit, nanos): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(nanos).map(Nanos)
    };
    let found = UNITS.into_iter().find_map(parse);
    found.ok_or_else(|| format!("{text:?} is no time; write it as in 10ms, with ns, us, ms or s"))
}

/// A time as [`parse_time`] reads it: exact, in the largest unit that divides it.
pub fn time_text(time: Nanos) -> String {
    let (unit, nanos) =
        UNITS.into_iter().find(|(_, nanos)| time.0.is_multiple_of(*nanos)).expect("1 divides it");
    format!("{}{unit}", time.0 / nanos)
}

/// A size as [`parse_size`] reads it: exact, in the largest unit that divides it.
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
    let (bytes, time) = text.split_once(',').ok_or("not BYTES,TIME, as in 256M,350ms, or 0")?;
    Ok(Qd1Quantum { bytes: size(bytes)?, time: parse_time(time)? })
}

fn budget_text(BudgetOptions { policy, grace, .. }: BudgetOptions) -> String {
    format!("{},grace={}", policy.name(), time_text(grace))
}

fn parse_budget(text: &str) -> Result<BudgetOptions, String> {
    let (name, grace) = text.split_once(',').map_or((text, None), |(name, grace)| (name, Some(grace)));
    let policy = Policy::from_name(name)
        .ok_or_else(|| format!("{name:?} is no policy; there are wait, close, finish and fail, and none"))?;
    let mut options = BudgetOptions { policy, ..BudgetOptions::default() };
    if let Some(grace) = grace {
        let grace = grace.strip_prefix("grace=").ok_or("after the policy comes grace=TIME")?;
        options.grace = parse_time(grace)?;
    }
    Ok(options)
}

fn park_text(ParkOptions { sectors_max, time, .. }: ParkOptions) -> String {
    format!("{},{}", size_text(u64::from(sectors_max) * SECTOR_BYTES), time_text(time))
}

fn parse_park(text: &str) -> Result<ParkOptions, String> {
    let (bytes, time) = text.split_once(',').ok_or("not BYTES,TIME, as in 1M,1s, nor none")?;
    let sectors = size(bytes)? / SECTOR_BYTES;
    let sectors_max = u32::try_from(sectors).map_err(|_| format!("{bytes}: more than a zone can have"))?;
    Ok(ParkOptions::default().with_sectors_max(sectors_max).with_time(parse_time(time)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_text_reads_back_as_the_same_options() {
        for text in [
            "mode=qd1 merge=no qd1_quantum=256M,350ms window=16 force=yes nr_requests=8 budget=wait,grace=50ms park=1M,1s",
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
            ("window", "not an option and its value"),
            ("window=0", "option window: not a number from 1 to 255"),
            ("window=256", "from 1 to 255"),
            ("nr_requests=65537", "from 1 to 65536"),
            ("mode=fast", "unknown write mode"),
            ("merge=maybe", "neither yes nor no"),
            ("park=1M", "as in 1M,1s"),
            ("park=1M,", "is no time"),
            ("park=9999T,1s", "more than a zone can have"),
            ("qd1_quantum=1M", "256M,350ms"),
            ("qd1_quantum=1M,99999999999s", "is no time"),
            ("budget=open", "is no policy"),
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
