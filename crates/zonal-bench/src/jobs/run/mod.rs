//! Execution of jobs, in real time or, on a device with virtual time, in virtual time.
//!
//! A run consists of write modes, and each mode of rounds (`mode`). Jobs on zones (`zones`) and
//! jobs on files (`files`) differ in the preparation of the device and in the content of a round. A
//! round on zones starts all its workers together and watches them: it samples rates, shows
//! progress and stops workers at the end of their runtime. Afterwards the write path is closed, and
//! data to be verified is read back from the bare device.
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
//!     let options = EmulatedOptions::default().with_size(1 << 30).with_zone_size(1 << 20);
//!     Ok(Arc::new(Emulated::new("null", &options, Null)?) as Arc<dyn Device>)
//! };
//! let report = run(&open, &BenchOptions::new(jobs))?;
//! assert_eq!(report.modes[0].jobs[0].dirs[1].ios, 32);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod around;
mod files;
mod gate;
mod inbox;
mod measure;
mod mode;
mod options;
pub(crate) mod prepare;
mod progress;
mod round;
mod runner;
mod threads;
mod virtual_time;
mod watcher;
mod worker;
mod zones;

pub use options::{BenchOptions, FilesOptions, MetadataPlace, Opener, Reopen, as_a_kernel};

use crate::error::BenchError;
use crate::report::{Ended, ModeReport, Report};
use files::FileRounds;
pub(crate) use mode::moves_since;
use mode::{Site, Start};
use std::sync::Arc;
use std::time::SystemTime;
use zonal_io::device::Device;
use zonal_io::owner::{self, Owned};
use zonal_io::volume::WriteMode;
use zones::PreparedZones;

/// Runs jobs on the device opened by `open`.
///
/// Failures of a job are in its report; see [`Report::is_failed`].
///
/// # Errors
/// [`BenchError`] if nothing can run: the device does not open, or a job does not fit it. An error
/// after the first mode does not discard results: the report has it as the way the run
/// [ended](Ended).
pub fn run(open: &Opener<'_>, options: &BenchOptions) -> Result<Report, BenchError> {
    let started = SystemTime::now();
    let wanted: Vec<Option<WriteMode>> = match options.modes.as_slice() {
        [] => vec![options.volume.mode],
        modes => modes.iter().copied().map(Some).collect(),
    };
    let start = if wanted.len() > 1 { Start::Erased } else { Start::AsItIs };
    let mut report = Report { started, modes: Vec::new(), ended: Ended::Done };
    // Later modes find the data of earlier ones.
    let mut guard = (options.writes() && !options.overwrite).then_some(owner::check as Guard);
    for mode in wanted {
        match run_mode(open, options, mode, start, guard.take()) {
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

/// Notes in the report of the last mode that further modes are missing, and why.
fn note_what_is_missing(report: &mut Report, wanted: &[WriteMode]) {
    let missing = wanted.get(report.modes.len()..).unwrap_or_default();
    let names: Vec<&str> = missing.iter().map(|mode| mode.name()).collect();
    let Some(last) = report.modes.last_mut() else { return };
    let more = if names.is_empty() { String::new() } else { format!("; not run: {}", names.join(", ")) };
    match &report.ended {
        Ended::Done => {}
        Ended::Interrupted => last.notes.push(format!("interrupted before its end{more}")),
        Ended::BrokenOff(error) => last.notes.push(format!("the next mode failed: {error}{more}")),
    }
}

/// Check that refuses a device with data that a run would overwrite.
type Guard = fn(&dyn Device) -> Result<(), Owned>;

/// Runs the jobs of `options` in one write mode.
fn run_mode(
    open: &Opener<'_>,
    options: &BenchOptions,
    mode: Option<WriteMode>,
    start: Start,
    guard: Option<Guard>,
) -> Result<ModeReport, BenchError> {
    let site = Site::open(open, options)?;
    if let Some(check) = guard {
        check(&*site.bare).map_err(BenchError::Owned)?;
    }
    match options.files {
        Some(files) => {
            let volume = files::ready(&site, mode)?;
            let device = site.bare.clone();
            site.run(open, device, volume, |site, volume, runner| {
                FileRounds::new(site, files, volume, runner)
            })
        }
        None => {
            let prepared = PreparedZones::new(&site, mode, start)?;
            let (device, volume) = prepared.volume(&site);
            site.run(open, device, volume, |site, volume, runner| prepared.begin(site, volume, runner))
        }
    }
}
