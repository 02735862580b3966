//! Jobs on simulated drives.

use crate::error::BenchError;
use crate::job::{Environment, JobError, JobParser};
use crate::jobs::run::{BenchOptions, Reopen, run};
use crate::report::Report;
use zonal_io::registry::{NameError, Registry};
use zonal_io::volume::WriteMode;

/// Reason why a job cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The job is invalid. The error names the line and the option.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The name of the device is invalid. The error names the part that is at fault.
    #[error(transparent)]
    Device(#[from] NameError),
    /// The device works in real time.
    #[error("{device} is not a simulated drive; name one, such as sim:smr-hdd-30t, or use zonal_bench::run")]
    NotSimulated {
        /// Name of the device.
        device: String,
    },
    /// The job does not fit the drive, or cannot go on.
    #[error(transparent)]
    Run(#[from] BenchError),
}

impl SimulateError {
    /// True if another job is needed.
    pub fn is_job(&self) -> bool {
        matches!(self, Self::Job(_) | Self::Run(BenchError::Plan { .. } | BenchError::NothingToVerify { .. }))
    }

    /// True if another device is needed.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device(_) | Self::NotSimulated { .. })
    }
}

/// Simulates jobs on a drive in virtual time, and returns what they measured.
///
/// - `job`: text of a job file in fio's language. The option `filename` is ignored. Environment
///   variables and `include` are not available, and the values of `$ncpus`, `$pagesize` and
///   `$mb_memory` are fixed ([`Environment::fixed`]).
/// - `device`: name of a simulated drive, as on the command line: `sim:PROFILE`, with options.
/// - `mode`: the write mode; `None` for the drive's default.
///
/// The results depend on the arguments and the version alone, so they are the same on every machine.
/// Only [`Report::started`] differs. [`run`] has more options, and takes devices in real time.
///
/// # Errors
/// [`SimulateError`]. A job that fails while it runs is no error: see [`Report::is_failed`].
///
/// ```
/// use zonal_bench::{Dir, simulate};
/// use zonal_io::volume::WriteMode;
///
/// let job = "[stream]\nrw=write\nbs=1M\niodepth=32\nsize=1G\nzonemode=zbd\n";
/// let report = simulate(job, "sim:smr-hdd-30t", Some(WriteMode::Qd1))?;
/// let stream = &report.modes[0].jobs[0];
/// println!("{:.0} MB/s", stream.dir(Dir::Write).bandwidth_bytes() / 1e6);
/// # assert!(!report.is_failed() && stream.dir(Dir::Write).bandwidth_bytes() > 1e8);
/// # Ok::<(), zonal_bench::SimulateError>(())
/// ```
pub fn simulate(job: &str, device: &str, mode: Option<WriteMode>) -> Result<Report, SimulateError> {
    let mut parser = JobParser::new(Environment::fixed());
    parser.file(job, "the job")?;
    let mut jobs = parser.finish()?;
    let mut registry = Registry::default();
    zonal_sim::register(&mut registry);
    if !registry.open(device)?.insight().virtual_time {
        return Err(SimulateError::NotSimulated { device: device.to_owned() });
    }
    if jobs.specs().any(|job| job.filename.as_ref().is_some_and(|name| name != device)) {
        jobs.override_option("filename", device)?;
    }
    let mut options = BenchOptions::new(jobs);
    options.modes = mode.into_iter().collect();
    options.reopen = Reopen::Same;
    Ok(run(&|| Ok(registry.open(device)?), &options)?)
}
