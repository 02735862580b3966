//! Running jobs, in real time or, on a device that lives in it, in virtual time.
//!
//! A run goes over its write modes, a mode over its rounds, a round starts all its workers at once and watches them:
//! it samples rates, shows progress and stops who has run for its time. Afterwards the write path is closed, and what is
//! to be verified is read back from the bare device.
//!
//! ```
//! use std::sync::Arc;
//! use zonal_bench::job::JobFile;
//! use zonal_bench::{BenchOptions, run};
//! use zonal_io::device::Device;
//! use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
//!
//! let jobs = JobFile::parse_inline(["--name=fill", "--rw=write", "--zonemode=zbd", "--size=2z", "--bs=64k"])?;
//! let open = || {
//!     let options = EmulatedOptions { size: 1 << 30, zone_size: 1 << 20, ..Default::default() };
//!     Ok(Arc::new(Emulated::new("null", &options, Null)?) as Arc<dyn Device>)
//! };
//! let report = run(&open, &BenchOptions::new(jobs))?;
//! assert_eq!(report.modes[0].jobs[0].dirs[1].ios, 32);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod files;
mod gate;
mod inbox;
mod measure;
pub(crate) mod prepare;
mod progress;
mod round;
mod threads;
mod virtual_time;
mod watcher;
mod worker;

pub use files::{FilesOptions, MetadataPlace};

use crate::error::{BenchError, OpenerError};
use crate::job::{JobFile, Verify};
use crate::jobs::plan::{Plan, default_of_jobs};
use crate::jobs::verify::check::check_device;
use crate::jobs::verify::{Record, Recorder, VerifyReport};
use crate::jobs::workload::{HostRules, Zones};
use crate::measure::series::{ModeSeries, PositionSeries};
use crate::report::{Ended, Failure, JobReport, ModeReport, Report};
use progress::Progress;
use round::{Clockwork, Round};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use zonal_core::Nanos;
use zonal_io::control::{ControlServer, Errands};
use zonal_io::device::{Device, DeviceInfo, HostTime};
use zonal_io::fault::{self, Fault};
use zonal_io::volume::{SwitchError, Volume, VolumeOptions, WriteMode, keeps_data};

/// Opens a device, once a write mode and once more where [`Reopen::Again`] asks for it.
pub type Opener<'a> = dyn Fn() -> Result<Arc<dyn Device>, OpenerError> + 'a;

/// How the bare device is had once the write path is closed, to verify it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reopen {
    /// It is closed and opened again: nothing that only the write path remembers can help.
    #[default]
    Again,
    /// It stays open, for devices that lose their data when they are closed.
    Same,
}

/// What to run and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BenchOptions {
    /// The jobs.
    pub jobs: JobFile,
    /// Write modes to run them in, one after the other; none is what suits the device. With more than one every zone
    /// of the device is reset before each, so that all begin alike.
    pub modes: Vec<WriteMode>,
    /// How the bare device is had to verify it.
    pub reopen: Reopen,
    /// Faults of the device while the jobs run. What they leave is verified on the device without them.
    pub fault: Option<fault::Plan>,
    /// How the write path is opened, as [`as_a_kernel`] unless set otherwise. Its mode counts where `modes` is empty.
    pub volume: VolumeOptions,
    /// Show progress on standard error, if that is a terminal.
    pub progress: bool,
    /// Let other processes look into the open volume through a control socket.
    pub control: bool,
    /// Keep series of rates, latencies and positions over time, for [`Report::to_html`]. It takes the time of every
    /// request, also where the jobs spare that.
    pub series: bool,
    /// What each request costs the processor of its worker in virtual time: so much later it is with the write path than
    /// it was made. `None`: what the device says, with a scheduler's share in mode `zone-lock`. In real time it takes
    /// what it takes.
    pub host_nanos_per_io: Option<u64>,
    /// How workers share zones.
    pub host: HostRules,
    /// The jobs work with files, on a file system that is made so.
    pub files: Option<FilesOptions>,
    /// Set by a signal handler or another thread to end the run: no job continues, what is in flight ends, and the
    /// report is of what was done until then.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// Options of a write path that does what a kernel's does: the drive alone keeps its limits, and writes that come before their
/// predecessors fail.
pub fn as_a_kernel() -> VolumeOptions {
    VolumeOptions { budget: None, park: None, ..VolumeOptions::default() }
}

impl BenchOptions {
    /// `jobs` in the mode that suits the device, without progress.
    pub fn new(jobs: JobFile) -> BenchOptions {
        BenchOptions {
            jobs,
            modes: Vec::new(),
            reopen: Reopen::default(),
            fault: None,
            volume: as_a_kernel(),
            progress: false,
            control: false,
            series: false,
            host_nanos_per_io: None,
            host: HostRules::default(),
            files: None,
            interrupt: None,
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }
}

/// Runs jobs on the device that `open` opens.
///
/// What goes wrong in a job is in its report; see [`Report::is_failed`].
///
/// # Errors
/// [`BenchError`] if it cannot run at all: the device does not open, or a job does not fit it. An error that comes after
/// the first mode costs no results: it is in the report, as how the run [ended](Ended).
pub fn run(open: &Opener<'_>, options: &BenchOptions) -> Result<Report, BenchError> {
    let started = SystemTime::now();
    let wanted: Vec<Option<WriteMode>> = match options.modes.as_slice() {
        [] => vec![options.volume.mode],
        modes => modes.iter().copied().map(Some).collect(),
    };
    let start = if wanted.len() > 1 { Start::Erased } else { Start::AsItIs };
    let mut report = Report { started, modes: Vec::new(), ended: Ended::Done };
    for mode in wanted {
        match run_mode(open, options, mode, start) {
            Ok(of_mode) => report.modes.push(of_mode),
            Err(error) if report.modes.is_empty() => return Err(error),
            Err(error) => report.ended = Ended::BrokenOff(Arc::new(error)),
        }
        if options.is_interrupted() {
            report.ended = Ended::Interrupted;
        }
        if !matches!(report.ended, Ended::Done) {
            note_what_is_missing(&mut report, &options.modes);
            break;
        }
    }
    Ok(report)
}

/// A reader of the results of some modes sees that there should be more, and why there are not.
fn note_what_is_missing(report: &mut Report, wanted: &[WriteMode]) {
    let missing = wanted.get(report.modes.len()..).unwrap_or_default();
    let names: Vec<&str> = missing.iter().map(|mode| mode.name()).collect();
    let Some(last) = report.modes.last_mut() else { return };
    let more = if names.is_empty() { String::new() } else { format!("; not run: {}", names.join(", ")) };
    match &report.ended {
        Ended::Done => {}
        Ended::Interrupted => last.notes.push(format!("interrupted before its end{more}")),
        Ended::BrokenOff(error) => last.notes.push(format!("the next mode broke off: {error}{more}")),
    }
}

/// In what state a mode finds the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    AsItIs,
    Erased,
}

fn run_mode(
    open: &Opener<'_>,
    options: &BenchOptions,
    mode: Option<WriteMode>,
    start: Start,
) -> Result<ModeReport, BenchError> {
    if let Some(files) = &options.files {
        return files::run_mode(open, options, mode, files);
    }
    let bare = open().map_err(BenchError::Device)?;
    let info = bare.info().clone();
    let of_jobs = if mode.is_none() { default_of_jobs(options.jobs.jobs(), &info) } else { None };
    let mode = mode.or(of_jobs.map(|(mode, _)| mode));
    let in_effect = mode.unwrap_or_else(|| WriteMode::for_device(&info).0);
    let mut plan = Plan::new(options.jobs.jobs(), &info, in_effect)
        .map_err(|(job, error)| BenchError::Plan { job, error })?;
    plan.keep_to(options.host, in_effect);
    if start == Start::Erased {
        prepare::tell_logs_apart(&mut plan, in_effect);
    }
    let has_data = keeps_data(&*bare);
    check_verify(&plan, &info, has_data)?;
    if start == Start::Erased {
        check_modes(options, &info)?;
    }
    let faults = options.fault.clone().map(|faults| Arc::new(Fault::new(bare.clone(), faults)));
    let device: Arc<dyn Device> = match &faults {
        Some(faults) => faults.clone(),
        None => bare.clone(),
    };
    let keeps_no_order = |mode: &WriteMode| mode.fits(device.info()) == Err(SwitchError::NoOrder);
    if !options.volume.force && [in_effect].iter().chain(&options.modes).any(keeps_no_order) {
        return Err(BenchError::NoOrder { device: info.name });
    }
    if start == Start::Erased {
        prepare::erase(&*bare)?;
    }
    let zones_options = plan.zones_options(in_effect);
    let zones = Arc::new(prepare::zones(&*bare, &mut plan, zones_options)?);
    let volume = Arc::new(Volume::open(device, VolumeOptions { mode, ..options.volume })?);
    let errands = Errands::default();
    let control = options.control.then(|| ControlServer::start_with(volume.clone(), None, errands.clone()));
    if let Some(Err(error)) = &control {
        plan.notes.push(format!("there is no control socket: {error}"));
    }
    plan.notes.extend(without_effect(options, in_effect));
    let mut progress = Progress::new(options.progress, &plan);
    let mut done = Done { jobs: Vec::new(), recorders: Vec::new(), elapsed: Nanos(0), head: None };
    let record = Arc::new(Record::default());
    let clockwork = Clockwork::of(&volume, &errands);
    let host_nanos_per_io = options.host_nanos_per_io.unwrap_or_else(|| host_nanos(&info, in_effect));
    if info.virtual_time {
        plan.notes
            .push("times are virtual: processor times and context switches are not measured".to_owned());
    }
    for index in 0..plan.rounds.len() {
        let round = Round {
            plan: &plan,
            index,
            volume: &volume,
            zones: &zones,
            has_data,
            record: &record,
            series: options.series,
            clockwork: &clockwork,
            host_nanos_per_io,
            interrupt: options.interrupt.as_deref(),
        };
        let why = match round.run(&mut done, &mut progress)? {
            round::Outcome::GoOn => continue,
            round::Outcome::EndAll => "a job with exitall_on_error failed",
            round::Outcome::Interrupted => "the run was interrupted",
        };
        let left = plan.rounds.len() - index - 1;
        if left > 0 {
            plan.notes.push(format!("{left} more rounds were not run: {why}"));
        }
        break;
    }
    progress.finish();
    // It holds the bare device, which may have to be closed before it is verified.
    plan.notes.extend(faults.and_then(|faults| note_of(&faults)));
    let (mode, mode_reason) = match (volume.mode(), of_jobs) {
        // Another process may have switched it.
        ((mode, _), Some((before, reason))) if mode == before => (mode, reason),
        (now, _) => now,
    };
    let mut report = ModeReport {
        device: info.name.clone(),
        mode,
        mode_reason,
        jobs: done.jobs,
        statistics: volume.statistics(),
        notes: plan.notes,
        verify: None,
        series: None,
        is_virtual: info.virtual_time,
        files: None,
    };
    drop((clockwork, control, volume));
    if options.series {
        let series = prepare::mode_series(&*bare, info, &mut report.notes);
        report.series = Some(Box::new(ModeSeries { head: done.head, ..series }));
    }
    if !done.recorders.is_empty() {
        report.verify = Some(verify(open, options, bare, &done.recorders, &zones, &mut report.jobs)?);
    }
    Ok(report)
}

/// What a request costs a host like the host that the device was measured with.
fn host_nanos(info: &DeviceInfo, mode: WriteMode) -> u64 {
    let HostTime { command, scheduler } = info.host_time;
    if mode == WriteMode::ZoneLock { command + scheduler } else { command }
}

/// How often the rules of a plan took effect: a plan that misses every command looks like a device that stood it all.
fn note_of(faults: &Fault) -> Option<String> {
    let fired: Vec<String> = faults.fired_each().iter().map(u64::to_string).collect();
    (!fired.is_empty()).then(|| format!("faults, by the rules of the plan: {}", fired.join(", ")))
}

/// What the rounds leave.
pub(crate) struct Done {
    /// As they are reported.
    pub(crate) jobs: Vec<JobReport>,
    /// Of all workers whose blocks are to be verified.
    pub(crate) recorders: Vec<Recorder>,
    /// How long they took together.
    pub(crate) elapsed: Nanos,
    /// Where the device's head was, if that is known.
    pub(crate) head: Option<PositionSeries>,
}

/// Whether the jobs fit the device in each mode: what does not is told before the first one runs, and not after it.
fn check_modes(options: &BenchOptions, info: &DeviceInfo) -> Result<(), BenchError> {
    for mode in &options.modes {
        Plan::new(options.jobs.jobs(), info, *mode)
            .map_err(|(job, error)| BenchError::Plan { job, error })?;
    }
    Ok(())
}

/// What was asked for and does not exist in a mode.
fn without_effect(options: &BenchOptions, mode: WriteMode) -> impl Iterator<Item = String> {
    let has_budget = mode != WriteMode::Direct;
    let parks = !matches!(mode, WriteMode::Direct | WriteMode::ZoneLock);
    let budget = options.volume.budget.is_some() && !has_budget;
    let park = options.volume.park.is_some() && !parks;
    let budget =
        budget.then(|| format!("mode {mode} keeps no budget: the drive's limits are left to the drive"));
    budget
        .into_iter()
        .chain(park.then(|| format!("mode {mode} parks nothing: writes that come too early fail")))
}

fn check_verify(plan: &Plan, info: &DeviceInfo, has_data: bool) -> Result<(), BenchError> {
    match plan.workers.iter().find(|worker| worker.spec.verify != Verify::None) {
        Some(worker) if !has_data => {
            Err(BenchError::NothingToVerify { job: worker.spec.name.clone(), device: info.name.clone() })
        }
        _ => Ok(()),
    }
}

/// Reads back what was acknowledged, and fails the jobs whose blocks are not there.
fn verify(
    open: &Opener<'_>,
    options: &BenchOptions,
    device: Arc<dyn Device>,
    recorders: &[Recorder],
    zones: &Zones,
    jobs: &mut [JobReport],
) -> Result<VerifyReport, BenchError> {
    let device = match options.reopen {
        Reopen::Same => device,
        Reopen::Again => {
            drop(device);
            open().map_err(BenchError::Device)?
        }
    };
    let report = check_device(&*device, recorders, zones);
    for mismatch in &report.first {
        if let Some(job) = jobs.iter_mut().find(|job| job.name == mismatch.job) {
            job.errors += 1;
            job.failure.get_or_insert_with(|| Failure::Verify { first: mismatch.clone() });
        }
    }
    Ok(report)
}
