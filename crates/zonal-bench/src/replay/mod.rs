//! Replay of traces: sends the requests recorded on one drive to another, through the write path.
//!
//! [`trace`] reads traces of other programs. A trace of an ordinary disk is laid out on the zones
//! as a log ([`LogOptions`]). A trace of a zoned drive can be replayed as it is. Requests are
//! issued at the recorded times, at a multiple of that speed, or as fast as possible. The result is
//! a [`ReplayReport`], similar to that of a benchmark. On a device with virtual time, the replay
//! uses that time.
//!
//! ```
//! use std::io::Cursor;
//! use std::sync::Arc;
//! use zonal_bench::replay::trace::{Trace, TraceOptions};
//! use zonal_bench::replay::{ReplayOptions, Speed, run};
//! use zonal_io::device::Device;
//! use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
//!
//! let text = "10,host,0,Write,0,4096\n20,host,0,Read,0,4096\n";
//! let mut trace = Trace::new(Box::new(Cursor::new(text)), "two requests", &TraceOptions::default())?;
//! let open = || {
//!     let options = EmulatedOptions::default().with_size(1 << 30).with_zone_size(1 << 20);
//!     Ok(Arc::new(Emulated::new("null", &options, Null)?) as Arc<dyn Device>)
//! };
//! let mut options = ReplayOptions::default();
//! options.speed = Speed::Max;
//! let report = run(&open, &mut trace, &options)?;
//! assert_eq!(report.replay.records, 2);
//! assert_eq!(report.replay.write_amplification(), Some(1.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod as_is;
mod buffers;
mod clock;
mod error;
mod ledger;
mod log;
mod player;
mod report;
mod series;
mod slots;
pub mod trace;

pub use error::ReplayError;
pub use log::{LogError, LogOptions, RESERVE_PERCENT};
pub use report::{Laid, Replay, ReplayReport};
pub use series::{Series, Span};

use crate::error::BenchError;
use crate::jobs::run::around::{Control, check_order, with_faults};
use crate::jobs::run::moves_since;
use crate::jobs::run::{Opener, as_a_kernel, prepare};
use crate::measure::Usage;
use crate::report::Ended;
use as_is::AsIs;
use clock::Clock;
use log::Log;
use player::{Layout, Player, Rules};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};
use trace::Trace;
use zonal_io::control::Errands;
use zonal_io::device::Device;
use zonal_io::fault;
use zonal_io::owner;
use zonal_io::volume::{Volume, VolumeOptions, WriteMode, keeps_data};

/// Default limit on records in flight at full speed.
pub const DEPTH_AT_FULL_SPEED: u32 = 32;

/// Default limit on records in flight at recorded times: high enough to never delay records on a
/// drive that roughly keeps up.
pub const DEPTH_AT_TIMES: u32 = 256;

/// Timing of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    /// At recorded times, accelerated by this factor.
    Times(f64),
    /// As soon as there is room for them.
    Max,
}

/// Options of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayOptions {
    /// Timing of requests.
    pub speed: Speed,
    /// Maximum number of records in flight; `None` for the default of the speed.
    pub depth: Option<u32>,
    /// Replay requests at their recorded places rather than on a log.
    pub as_is: bool,
    /// Layout of the log.
    pub log: LogOptions,
    /// Fold addresses beyond the end instead of refusing them.
    pub wrap: bool,
    /// Reset all zones first.
    pub reset: bool,
    /// Replay even if the device holds data of a known owner, which is then lost; see
    /// [`zonal_io::owner`].
    pub overwrite: bool,
    /// Maximum number of records.
    pub records_max: u64,
    /// Options of the write path, [`as_a_kernel`] by default.
    pub volume: VolumeOptions,
    /// Faults of the device during the replay.
    pub fault: Option<fault::Plan>,
    /// Let other processes inspect the open volume through a control socket.
    pub control: bool,
    /// Set by a signal handler or another thread to end the replay: no more records are issued,
    /// requests in flight complete, and the report covers the replay so far.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            speed: Speed::Times(1.0),
            depth: None,
            as_is: false,
            log: LogOptions::default(),
            wrap: false,
            reset: false,
            overwrite: false,
            records_max: u64::MAX,
            volume: as_a_kernel(),
            fault: None,
            control: false,
            interrupt: None,
        }
    }
}

impl ReplayOptions {
    /// Maximum number of records in flight.
    pub fn depth(&self) -> u32 {
        let suitable = if self.speed == Speed::Max { DEPTH_AT_FULL_SPEED } else { DEPTH_AT_TIMES };
        self.depth.unwrap_or(suitable).max(1)
    }
}

/// Counters of the player other than requests, in blocks unless noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    unmapped: u64,
    /// Reads of unwritten blocks only.
    unmapped_reads: u64,
    /// Sectors of these reads.
    unmapped_read_sectors: u64,
    edges: u64,
    checked: u64,
    discarded: u64,
    /// In records.
    discards_passed_over: u64,
    /// In records.
    waited: u64,
    /// In records.
    without_request: u64,
    resets_added: u64,
}

/// Replays `trace` on the device opened by `open`.
///
/// A request that fails ends the replay and is in its report.
///
/// # Errors
/// [`ReplayError`] if the trace or the device is not usable, the trace has no record to replay, or
/// a record does not fit the device.
pub fn run(
    open: &Opener<'_>,
    trace: &mut Trace,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    let started = SystemTime::now();
    let bare = open().map_err(BenchError::Device)?;
    if !options.overwrite {
        owner::check(&*bare).map_err(BenchError::Owned)?;
    }
    let has_data = keeps_data(&*bare);
    if options.reset {
        prepare::erase(&*bare)?;
    }
    let layout = layout(&*bare, options)?;
    let volume = Arc::new(open_volume(bare, options)?);
    let errands = Errands::default();
    let control = Control::start(options.control, &volume, None, errands.clone());
    let (mode, _) = volume.mode();
    let rules = Rules {
        speed: options.speed,
        depth: options.depth(),
        is_wrapped: options.wrap,
        appends: mode == WriteMode::Append,
        has_data,
        records_max: options.records_max,
        interrupt: options.interrupt.clone(),
    };
    let (usage, begin) = (Usage::now(), Instant::now());
    let moves = volume.device().insight().head_moves;
    let mut player = Player::new(&volume, Clock::of(&volume, &errands), trace, layout, rules);
    let elapsed = player.run()?;
    let took = begin.elapsed();
    let Player { layout, ledger, measured, rules, .. } = player;
    if ledger.begun == 0 && options.records_max > 0 && !rules.is_interrupted() {
        return Err(ReplayError::NothingPlayed {
            trace: trace.name().to_owned(),
            why: trace.why_no_record(),
        });
    }
    let mut notes = Vec::new();
    let ended = if rules.is_interrupted() { Ended::Interrupted } else { Ended::Done };
    if matches!(ended, Ended::Interrupted) {
        notes.push("interrupted before the end of the trace".to_owned());
    }
    notes.extend(control.note());
    let outcome =
        report::Outcome { started, usage: Usage::now().since(usage), took, elapsed, ledger, measured, notes };
    let mut report = report::report(outcome, &layout, &volume, trace, options);
    report.report.ended = ended;
    for mode in &mut report.report.modes {
        mode.head_moves = moves_since(&volume, moves);
    }
    Ok(report)
}

fn layout(device: &dyn Device, options: &ReplayOptions) -> Result<Layout, ReplayError> {
    let info = device.info();
    let zones = prepare::descriptors(device)?;
    if options.as_is {
        return Ok(Layout::AsIs(AsIs::new(info, &zones)));
    }
    let log = Log::new(info, &zones, options.log);
    log.map(|log| Layout::Log(Box::new(log)))
        .map_err(|error| ReplayError::Log { device: info.name.clone(), error })
}

fn open_volume(bare: Arc<dyn Device>, options: &ReplayOptions) -> Result<Volume, BenchError> {
    let in_effect = options.volume.mode.unwrap_or_else(|| WriteMode::for_device(&*bare).0);
    if !options.volume.force {
        check_order(bare.info(), [in_effect])?;
    }
    let device: Arc<dyn Device> = match with_faults(&bare, options.fault.as_ref())? {
        Some(faults) => faults,
        None => bare,
    };
    Ok(Volume::open(device, options.volume)?)
}
