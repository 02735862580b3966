//! Replay of traces: what was recorded of one drive, sent to another through the write path.
//!
//! [`trace`] reads what others recorded. A trace of an ordinary disk is laid on the zones as a log ([`LogOptions`]); one
//! of a zoned drive can be played as it is. Requests go out at the recorded times, at a multiple of that speed, or as
//! fast as they can; what they took is a [`ReplayReport`], in the shape of a benchmark's. On a device that lives in
//! virtual time the replay does, too.
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

/// Records under way at most when they go out as fast as they can.
pub const DEPTH_AT_FULL_SPEED: u32 = 32;

/// The same when they go out at their times: enough that a drive which keeps up somehow is never waited for.
pub const DEPTH_AT_TIMES: u32 = 256;

/// When requests go out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    /// At their times, this many times as fast as recorded.
    Times(f64),
    /// As soon as there is a place for them.
    Max,
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayOptions {
    /// When requests go out.
    pub speed: Speed,
    /// Records under way at most; `None`: what suits the speed.
    pub depth: Option<u32>,
    /// Whether requests go where they went, and not to a log.
    pub as_is: bool,
    /// How a log is laid.
    pub log: LogOptions,
    /// Whether addresses beyond the end are folded back rather than refused.
    pub wrap: bool,
    /// Whether all zones are reset before.
    pub reset: bool,
    /// Replay although the device holds data of a known owner, which is lost; see [`zonal_io::owner`].
    pub overwrite: bool,
    /// Records at most.
    pub records_max: u64,
    /// How the write path is opened, as [`as_a_kernel`] unless set otherwise.
    pub volume: VolumeOptions,
    /// Faults of the device while the trace is played.
    pub fault: Option<fault::Plan>,
    /// Let other processes look into the open volume through a control socket.
    pub control: bool,
    /// Set by a signal handler or another thread to end the replay: no more records are sent, what is under way ends,
    /// and the report is of what was done until then.
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
    /// Records under way at most.
    pub fn depth(&self) -> u32 {
        let suitable = if self.speed == Speed::Max { DEPTH_AT_FULL_SPEED } else { DEPTH_AT_TIMES };
        self.depth.unwrap_or(suitable).max(1)
    }
}

/// What the player counts apart from requests, in blocks unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    unmapped: u64,
    /// Reads of nothing but blocks that were never written.
    unmapped_reads: u64,
    /// Sectors of these reads.
    unmapped_read_sectors: u64,
    edges: u64,
    checked: u64,
    discarded: u64,
    /// Records.
    discards_passed_over: u64,
    /// Records.
    waited: u64,
    /// Records.
    without_request: u64,
    resets_added: u64,
}

/// Replays `trace` on the device that `open` opens.
///
/// A request that fails ends the replay and is in its report.
///
/// # Errors
/// [`ReplayError`] if the trace or the device cannot be used, no record of the trace is played, or a record does not fit the device.
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
    let in_effect = options.volume.mode.unwrap_or_else(|| WriteMode::for_device(bare.info()).0);
    if !options.volume.force {
        check_order(bare.info(), [in_effect])?;
    }
    let device: Arc<dyn Device> = match with_faults(&bare, options.fault.as_ref())? {
        Some(faults) => faults,
        None => bare,
    };
    Ok(Volume::open(device, options.volume)?)
}
