//! Calibration: derives the profile of a drive from a few short runs.
//!
//! [`Runs`] depend on the kind of drive and its zones, and use the write path like any job.
//! [`measure`] executes them on the drive. [`fit`] executes them on simulated drives, in virtual
//! time, until it has found profile values that reproduce the measurements: data rates in closed
//! form, the rest by a [`search`](mod@search) that is derivative-free and deterministic, so that
//! equal measurements give equal profiles.
//!
//! # Results of a run
//! The data rate including flushes, and the fraction of time spent in the last flush. The latter
//! shows how full the drive's cache was, which distinguishes a large cache from good scheduling.

mod error;
mod kinds;
mod runs;
pub mod search;

pub use error::CalibrateError;
pub use runs::{Outcome, Run, Runs, ZonesUsed, measure};

use kinds::DriveKind;
use search::{Point, Search};
use zonal_io::device::DeviceInfo;
use zonal_sim::profile::Sourced;
use zonal_sim::{Profile, profile};

/// Default budget of [`fit`]: the maximum number of simulations, each of all runs.
pub const SIMULATED_MAX: usize = 700;

/// Maximum error of a run in a profile marked as calibrated. Larger errors are not explained by the
/// model.
pub const RESIDUAL_MAX: f64 = 0.1;

/// Weight of the flush's share of a run's time, relative to that of its rate.
const FLUSH_WEIGHT: f64 = 0.5;

/// A run as measured, and as simulated with the fitted profile.
#[derive(Clone, Debug)]
pub struct Residual {
    /// Name of the run.
    pub run: &'static str,
    /// Outcome on the drive.
    pub measured: Outcome,
    /// Outcome with the profile.
    pub simulated: Outcome,
}

impl Residual {
    /// Relative error of the simulated rate.
    pub fn error(&self) -> f64 {
        self.simulated.megabytes_a_second() / self.measured.megabytes_a_second() - 1.0
    }

    /// Contribution to the cost.
    fn cost(&self) -> f64 {
        let rate = (1.0 + self.error()).max(1e-9).ln();
        let flush = self.simulated.flushing_share() - self.measured.flushing_share();
        rate * rate + FLUSH_WEIGHT * flush * flush
    }
}

/// A fitted profile with its errors.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The profile, marked as calibrated if no error exceeds [`RESIDUAL_MAX`]. Values not
    /// determined by the runs are those of the initial profile.
    pub profile: Profile,
    /// Residual of each run.
    pub residuals: Vec<Residual>,
    /// Number of simulations.
    pub simulated: usize,
}

/// Progress of [`fit`].
#[derive(Clone, Copy, Debug)]
pub struct Fitting {
    /// Simulations so far.
    pub simulated: usize,
    /// Maximum number of simulations.
    pub simulated_max: usize,
    /// Root mean square error of the best point so far.
    pub error: f64,
}

/// Fits a profile to `measured`, the result of [`measure`] on the drive described by `info`. Values
/// not determined by the runs are taken from `base`, which is for the same kind of drive.
///
/// # Errors
/// [`CalibrateError`] if `base` is for another kind of drive than the runs, or a simulated run
/// fails.
pub fn fit(
    info: &DeviceInfo,
    base: &Profile,
    runs: &Runs,
    measured: &[Outcome],
    budget: usize,
    progress: &mut dyn FnMut(Fitting),
) -> Result<Calibrated, CalibrateError> {
    let mut fitter = Fitter { runs, measured, kind: DriveKind::of(base), failure: None, simulated: 0 };
    let mut start = base.clone();
    start.drive = drive_values(info);
    fitter.kind.begin(&mut start, runs, measured);
    let searched = fitter.search(&start, budget, progress);
    let mut profile = start;
    fitter.kind.put(&mut profile, &searched);
    if let Some(failure) = fitter.failure.take() {
        return Err(failure);
    }
    fitter.finish(profile)
}

struct Fitter<'a> {
    runs: &'a Runs,
    measured: &'a [Outcome],
    kind: DriveKind,
    failure: Option<CalibrateError>,
    simulated: usize,
}

impl Fitter<'_> {
    /// Finds the point with the lowest cost.
    fn search(&mut self, start: &Profile, budget: usize, progress: &mut dyn FnMut(Fitting)) -> Point {
        let kind = self.kind;
        let starts = kind.starts(start, self.runs, self.measured);
        let mut best = f64::INFINITY;
        let normalise = |point: &mut Point| kind.normalise(point);
        let mut search = Search::new(kind.axes(), budget, &normalise).stop_at(kind.error_enough().powi(2));
        search.run(starts, &mut |point| {
            if self.failure.is_some() {
                return f64::INFINITY;
            }
            let mut profile = start.clone();
            kind.put(&mut profile, point);
            let cost = self.cost(&profile).unwrap_or_else(|failure| {
                self.failure = Some(failure);
                f64::INFINITY
            });
            best = best.min(cost);
            progress(Fitting { simulated: self.simulated, simulated_max: budget, error: best.sqrt() });
            cost
        })
    }

    /// Weighted mean cost of the runs used by the search.
    fn cost(&mut self, profile: &Profile) -> Result<f64, CalibrateError> {
        let searched: Vec<usize> = self.kind.searched(self.runs);
        let residuals = self.residuals(profile, &searched)?;
        let weight = |residual: &Residual| self.kind.weight(residual.run);
        let sum: f64 = residuals.iter().map(|r| weight(r) * r.cost()).sum();
        Ok(sum / residuals.iter().map(weight).sum::<f64>())
    }

    /// Simulates the selected runs.
    fn residuals(&mut self, profile: &Profile, which: &[usize]) -> Result<Vec<Residual>, CalibrateError> {
        self.simulated += 1;
        let device = profile.simulated("sim:").map_err(|e| CalibrateError::Drive(e.to_string()))?;
        let runs = self.runs.only(which);
        let outcomes = measure(&device, &runs)?;
        let residuals = which.iter().zip(outcomes).map(|(&at, simulated)| Residual {
            run: self.runs.list()[at].name,
            measured: self.measured[at].clone(),
            simulated,
        });
        Ok(residuals.collect())
    }

    /// Corrects the rates for the losses of the runs that measure them, and computes the final
    /// residuals.
    fn finish(mut self, mut profile: Profile) -> Result<Calibrated, CalibrateError> {
        let all: Vec<usize> = (0..self.runs.list().len()).collect();
        let mut residuals = self.residuals(&profile, &all)?;
        if self.kind.correct(&mut profile, &residuals) {
            residuals = self.residuals(&profile, &all)?;
        }
        let worst = residuals.iter().map(|residual| residual.error().abs()).fold(0.0, f64::max);
        profile.calibrated = worst <= RESIDUAL_MAX;
        profile.calibrated_for = Some(self.runs.to_string());
        profile.calibrated_runs = self.runs.calibrated();
        profile.worst_residual_percent = Some((worst * 1000.0).round().min(1e9) / 10.0);
        Ok(Calibrated { profile, residuals, simulated: self.simulated })
    }
}

/// Values reported by the drive, as part of a profile.
fn drive_values(info: &DeviceInfo) -> profile::DriveValues {
    const SAID: &str = "as the drive reports it";
    let geometry = &info.geometry;
    let bytes = |sectors: u32| u64::from(sectors) * zonal_core::SECTOR_BYTES;
    let is_zbc = info.personality == zonal_core::Personality::Zbc;
    let capacity = geometry.zone_capacity();
    profile::DriveValues {
        size: Sourced::measured(geometry.sectors().bytes(), SAID),
        zone_size: Sourced::measured(geometry.zone_size().bytes(), SAID),
        zone_capacity: Sourced::measured(
            if capacity == geometry.zone_size() { 0 } else { capacity.bytes() },
            SAID,
        ),
        zone_nr_conv: Sourced::measured(geometry.conventional_zones(), SAID),
        zone_max_open: Sourced::measured(info.open_max, SAID),
        zone_max_active: Sourced::measured(info.active_max, SAID),
        zone_append_max: Sourced::measured(bytes(info.append_sectors_max), SAID),
        blocksize: Sourced::measured(bytes(info.block_sectors) as u32, SAID),
        command_max: Sourced::measured(bytes(info.command_sectors_max), SAID),
        rotational: Sourced::measured(info.rotational, SAID),
        preserves_write_order: Sourced::measured(info.keeps_order, SAID),
        queues: (info.queues > 1).then(|| Sourced::measured(info.queues as u32, SAID)),
        personality: Sourced::measured(if is_zbc { "zbc" } else { "zns" }.into(), SAID),
    }
}

/// Default initial profile for a drive.
pub fn base_for(info: &DeviceInfo) -> &'static str {
    match (info.rotational, info.keeps_order) {
        (true, _) => "smr-hdd-30t",
        (false, true) => "ufs-zoned",
        (false, false) => "zns-1t",
    }
}

#[cfg(test)]
mod tests;
