//! Conformance kit: checks that a [`Device`] keeps the contract of the
//! [module](super).
//!
//! For authors of devices and wrappers, in tests. [`check`] submits commands from one thread and
//! from several, in real or virtual time, and returns the result of each check. **It erases the
//! device**, all of whose commands have to succeed: bad blocks, failed zones and injected faults are
//! found as violations.
//!
//! | check | what it tries |
//! |---|---|
//! | facts | [`DeviceInfo`] is consistent |
//! | reports | each zone once, in order, from any sector, and none behind the end |
//! | zone commands | random commands, one at a time: the answer and the zones afterwards, by the rules of the personality |
//! | capacity | writes and appends up to the last block of a zone, and none behind it |
//! | limits | more zones are opened than the limits allow |
//! | refusals | lengths, alignments and places that no zone accepts; the zones stay as they are |
//! | payloads | data read are those written, whatever the memory's alignment; no other memory is touched |
//! | full queues | a queue takes commands until it is full, returns each once, and [`is_idle`](Device::is_idle) |
//! | refused commands | a command that found its queue full has had no effect |
//! | order | writes submitted together take effect in order, if the device promises it |
//! | threads | several threads on each queue, every thread with a zone of its own |
//! | polls | a poll returns at once while another thread polls the queue |
//! | wake-ups | a thread that sleeps is woken by each completion, and [`has_news`](Device::has_news) tells of it |
//! | changes | zones that fail are reported once, and commands of the host never |
//! | settled | [`settle`](Device::settle) of zones without commands that timed out |
//!
//! Not tried: power cuts, and [`badblocks`](Device::badblocks).
//!
//! ```
//! use zonal_io::device::conformance::{Options, check};
//! use zonal_io::registry::Registry;
//!
//! let device = Registry::default().open("ram:size=16M,zone_size=1M,zone_max_open=4")?;
//! let report = check(&*device, &Options::default());
//! assert!(report.is_conformant(), "{report}");
//! # Ok::<(), zonal_io::registry::NameError>(())
//! ```

mod data;
mod host;
mod queues;
mod rules;

use super::{Device, DeviceInfo};
use host::{Broken, Host};
use std::fmt;
use std::time::Duration;
use zonal_core::device::Limits;

/// Required precision of errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Errors {
    /// A refused command fails with the error that the rules of [`zonal_core::device`] give.
    #[default]
    Exact,
    /// A refused command fails with some error: for a device behind a driver that does not pass on
    /// the reason.
    Any,
}

/// Settings of [`check`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of the random commands. The same seed gives the same commands of each thread.
    pub seed: u64,
    /// Commands of each random check. With few steps only the beginning of a large zone is written
    /// at random.
    pub steps: u32,
    /// Time after which a thread that sleeps beside a completion counts as not woken. A command has
    /// six times as long, in real time.
    pub patience: Duration,
    /// Required precision of errors.
    pub errors: Errors,
    /// True if the device may allow more open and active zones than it states, such as a
    /// concatenation, which states the lowest limits of its devices.
    pub allows_more: bool,
    /// True if the device may refuse a zone for lack of a resource that it could take from an
    /// implicitly open one, as Linux's null_blk does.
    pub refuses_more: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            steps: 400,
            patience: Duration::from_secs(5),
            errors: Errors::Exact,
            allows_more: false,
            refuses_more: false,
        }
    }
}

/// Result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The device keeps this part of the contract, as far as tried.
    Kept,
    /// The check does not apply to the device, for this reason.
    NotApplicable(String),
    /// The device violates the contract, as described.
    Broken(String),
}

/// Results of all checks on a device.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the device.
    pub device: String,
    /// Checks by name, in the order in which they ran. After a violation the device may still have
    /// commands, so the first [`Outcome::Broken`] is the last.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// True if no check found a violation.
    pub fn is_conformant(&self) -> bool {
        self.violation().is_none()
    }

    /// Name and description of the violation, if there is one.
    pub fn violation(&self) -> Option<(&'static str, &str)> {
        self.outcomes.iter().find_map(|(name, outcome)| match outcome {
            Outcome::Broken(broken) => Some((*name, broken.as_str())),
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.device)?;
        for (name, outcome) in &self.outcomes {
            match outcome {
                Outcome::Kept => writeln!(f, "  {name}: kept")?,
                Outcome::NotApplicable(reason) => writeln!(f, "  {name}: not applicable: {reason}")?,
                Outcome::Broken(broken) => writeln!(f, "  {name}: BROKEN: {broken}")?,
            }
        }
        Ok(())
    }
}

type Check = fn(&Host<'_>, &Options) -> Result<Option<String>, Broken>;

/// Name of each check of a device opened for writing, in order.
const CHECKS: [(&str, Check); 15] = [
    ("facts", |host, _| facts(host.device).map(|()| None)),
    ("reports", |host, _| rules::reports(host).map(|()| None)),
    ("zone commands", |host, options| rules::management(host, options).map(|()| None)),
    ("capacity", rules::capacity),
    ("limits", rules::limits),
    ("refusals", |host, options| rules::refusals(host, options).map(|()| None)),
    ("payloads", data::payloads),
    ("full queues", |host, options| queues::full(host, options).map(|()| None)),
    ("refused commands", |host, options| queues::busy(host, options).map(|()| None)),
    ("order", queues::order),
    ("threads", queues::threads),
    ("polls", queues::polls),
    ("wake-ups", queues::wakeups),
    ("changes", queues::changes),
    ("settled", |host, _| data::settled(host).map(|()| None)),
];

/// Checks of a device opened for reading.
const READING: [(&str, Check); 3] = [
    ("facts", |host, _| facts(host.device).map(|()| None)),
    ("reports", |host, _| rules::reports(host).map(|()| None)),
    ("opened for reading", |host, options| data::read_only(host, options).map(|()| None)),
];

/// Runs all checks on `device` until the first violation. Erases the device, unless it is opened
/// for reading.
///
/// All its sequential zones that can be reset are empty afterwards, unless there was a violation.
pub fn check(device: &dyn Device, options: &Options) -> Report {
    let checks: &[(&'static str, Check)] = if device.info().read_only { &READING } else { &CHECKS };
    run(device, options, checks)
}

/// Checks the promises about commands that time out, on a device whose writes, and only they, time
/// out now and then. Not a part of [`check`], because most checks need a device whose commands succeed. Erases
/// the device.
pub fn check_timeouts(device: &dyn Device, options: &Options) -> Report {
    run(device, options, &[("timeouts", data::timeouts)])
}

fn run(device: &dyn Device, options: &Options, checks: &[(&'static str, Check)]) -> Report {
    let host = Host::new(device, options.patience);
    let mut outcomes = Vec::new();
    for &(name, check) in checks {
        let outcome = match check(&host, options) {
            Ok(None) => Outcome::Kept,
            Ok(Some(reason)) => Outcome::NotApplicable(reason),
            Err(broken) => Outcome::Broken(broken),
        };
        let is_broken = matches!(outcome, Outcome::Broken(_));
        outcomes.push((name, outcome));
        if is_broken {
            break;
        }
    }
    Report { device: device.info().name.clone(), outcomes }
}

/// The properties of the device are consistent.
fn facts(device: &dyn Device) -> Result<(), Broken> {
    let info = device.info();
    let DeviceInfo { name, geometry, block_sectors, queues, spindles, .. } = info;
    let holds = |is_true: bool, what: &str| if is_true { Ok(()) } else { Err(format!("{what}: {info:?}")) };
    holds(!name.is_empty(), "no name")?;
    holds(*queues > 0, "no queue")?;
    holds(block_sectors.is_power_of_two(), "the block size is not a power of two")?;
    holds(info.command_sectors_max >= *block_sectors, "no block fits into a command")?;
    let has_whole_blocks = geometry.zone_capacity().0 % u64::from(*block_sectors) == 0;
    holds(has_whole_blocks, "the zone capacity is not a number of blocks")?;
    holds(spindles.is_sorted_by(|a, b| a < b), "the spindles are not in ascending order")?;
    holds(
        spindles.iter().all(|zone| (1..geometry.zones()).contains(&zone.0)),
        "a spindle beyond the device",
    )?;
    Limits::new(geometry, info.open_max, info.active_max).map_err(|error| error.to_string())?;
    Ok(())
}
