//! Calibration: a few short runs on a drive, and the profile that explains them.
//!
//! [`Runs`] are chosen by the kind of drive and its zones, and go through the write path like any job. [`measure`] makes
//! them on the drive itself. [`fit`] makes the same ones on simulated drives, in virtual time, until the values of a
//! profile are found with which they come out as they did: data rates in closed form, the rest by a [`search`](mod@search)
//! without derivatives and without chance, so that the same measurements give the same profile.
//!
//! # What a run tells
//! Its data rate, everything flushed, and the share of its time that the last flush took: how full the drive's cache was,
//! which is what tells a large cache from a good order.

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

/// The usual budget of [`fit`]: the most sets of runs that it simulates.
pub const SIMULATED_MAX: usize = 700;

/// Largest error of a run with which a profile is called calibrated: what is beyond it the model does not explain.
pub const RESIDUAL_MAX: f64 = 0.1;

/// Weight of the flush's share of a run's time, compared with that of its rate.
const FLUSH_WEIGHT: f64 = 0.5;

/// A run as it was measured and as the fitted profile simulates it.
#[derive(Clone, Debug)]
pub struct Residual {
    /// Which run.
    pub run: &'static str,
    /// What it did on the drive.
    pub measured: Outcome,
    /// What it does on the profile.
    pub simulated: Outcome,
}

impl Residual {
    /// Error of the simulated rate.
    pub fn error(&self) -> f64 {
        self.simulated.megabytes_a_second() / self.measured.megabytes_a_second() - 1.0
    }

    /// What counts of it.
    fn cost(&self) -> f64 {
        let rate = (1.0 + self.error()).max(1e-9).ln();
        let flush = self.simulated.flushing_share() - self.measured.flushing_share();
        rate * rate + FLUSH_WEIGHT * flush * flush
    }
}

/// A profile that was fitted, and how well.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The profile, which is called calibrated if no run is further off than [`RESIDUAL_MAX`]. Values that the runs do not
    /// show are those of the profile that it began with.
    pub profile: Profile,
    /// Of each run.
    pub residuals: Vec<Residual>,
    /// Sets of runs that were simulated.
    pub simulated: usize,
}

/// How far [`fit`] is.
#[derive(Clone, Copy, Debug)]
pub struct Fitting {
    /// Sets of runs that have been simulated.
    pub simulated: usize,
    /// Most that will be.
    pub simulated_max: usize,
    /// Root mean square of the errors of the best so far.
    pub error: f64,
}

/// The profile that explains `measured`, which [`measure`] has of the drive that `info` describes. What the runs do not
/// show is taken from `base`, which is of the same kind of drive.
///
/// # Errors
/// [`CalibrateError`] if `base` is of another kind than the runs are for, or a simulated run fails.
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
    /// The point of the search that costs least.
    fn search(&mut self, start: &Profile, budget: usize, progress: &mut dyn FnMut(Fitting)) -> Point {
        let kind = self.kind;
        let starts = kind.starts(start, self.runs, self.measured);
        let mut best = f64::INFINITY;
        let normalise = |point: &mut Point| kind.normalise(point);
        let mut search =
            Search::new(kind.axes(), budget, &normalise).content_with(kind.error_enough().powi(2));
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

    /// Mean cost of the runs that the search is about.
    fn cost(&mut self, profile: &Profile) -> Result<f64, CalibrateError> {
        let searched: Vec<usize> = self.kind.searched(self.runs);
        let residuals = self.residuals(profile, &searched)?;
        let weight = |residual: &Residual| self.kind.weight(residual.run);
        let sum: f64 = residuals.iter().map(|r| weight(r) * r.cost()).sum();
        Ok(sum / residuals.iter().map(weight).sum::<f64>())
    }

    /// Simulates these of the runs.
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

    /// Corrects the rates by what runs at these rates lose, and says how well all came out.
    fn finish(mut self, mut profile: Profile) -> Result<Calibrated, CalibrateError> {
        let all: Vec<usize> = (0..self.runs.list().len()).collect();
        let mut residuals = self.residuals(&profile, &all)?;
        if self.kind.correct(&mut profile, &residuals) {
            residuals = self.residuals(&profile, &all)?;
        }
        let worst = residuals.iter().map(|residual| residual.error().abs()).fold(0.0, f64::max);
        profile.calibrated = worst <= RESIDUAL_MAX;
        profile.calibrated_for = Some(self.runs.to_string());
        profile.worst_residual_percent = Some((worst * 1000.0).round().min(1e9) / 10.0);
        Ok(Calibrated { profile, residuals, simulated: self.simulated })
    }
}

/// What the drive says of itself, as a profile has it.
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
        personality: Sourced::measured(if is_zbc { "zbc" } else { "zns" }.into(), SAID),
    }
}

/// The profile that a drive's calibration begins with if the user names no other.
pub fn base_for(info: &DeviceInfo) -> &'static str {
    match (info.rotational, info.keeps_order) {
        (true, _) => "smr-hdd-30t",
        (false, true) => "ufs-zoned",
        (false, false) => "zns-1t",
    }
}

#[cfg(test)]
mod tests;
