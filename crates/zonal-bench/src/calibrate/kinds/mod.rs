//! Specifics of each kind of drive: its runs, the values they determine, and the starting points of
//! the search.

mod disk;
mod flash;

use super::Residual;
use super::error::CalibrateError;
use super::runs::{Outcome, Run, Runs};
use super::search::{Axis, Point};
use zonal_io::device::DeviceInfo;
use zonal_sim::Profile;
use zonal_sim::profile::TimingValues;

/// A kind of drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DriveKind {
    Disk,
    Flash,
}

impl DriveKind {
    pub(super) fn of(profile: &Profile) -> DriveKind {
        match profile.timing {
            TimingValues::SmrDisk(_) => DriveKind::Disk,
            TimingValues::Flash(_) => DriveKind::Flash,
        }
    }

    pub(super) fn runs(self, info: &DeviceInfo) -> Result<Vec<Run>, CalibrateError> {
        match self {
            DriveKind::Disk => disk::runs(info),
            DriveKind::Flash => flash::runs(info),
        }
    }

    /// Sets the values that follow directly from the measurements.
    pub(super) fn begin(self, profile: &mut Profile, runs: &Runs, measured: &[Outcome]) {
        if let TimingValues::SmrDisk(values) = &mut profile.timing {
            let zones = profile.drive.size.value / profile.drive.zone_size.value.max(1);
            disk::rates(values, zones, runs, measured);
        }
    }

    /// Indices of the runs used by the search.
    pub(super) fn searched(self, runs: &Runs) -> Vec<usize> {
        let is_searched = |run: &Run| !(self == DriveKind::Disk && disk::POSITIONS.contains(&run.name));
        (0..runs.list().len()).filter(|&at| is_searched(&runs.list()[at])).collect()
    }

    /// Weight of a run's error.
    pub(super) fn weight(self, run: &str) -> f64 {
        match self {
            DriveKind::Disk => disk::weight(run),
            DriveKind::Flash => 1.0,
        }
    }

    /// Root mean square error at which the search stops. The relative position of two zones on a
    /// disk is random and cannot be part of a profile; it alone makes runs differ by about this
    /// much.
    pub(super) fn error_enough(self) -> f64 {
        match self {
            DriveKind::Disk => 0.015,
            DriveKind::Flash => 0.002,
        }
    }

    pub(super) fn axes(self) -> Vec<Axis> {
        match self {
            DriveKind::Disk => disk::axes(),
            DriveKind::Flash => flash::axes(),
        }
    }

    /// Starting points of the search.
    pub(super) fn starts(self, profile: &Profile, runs: &Runs, measured: &[Outcome]) -> Vec<Point> {
        match &profile.timing {
            TimingValues::SmrDisk(values) => {
                disk::starts(values, profile.drive.command_max.value, runs, measured)
            }
            TimingValues::Flash(values) => flash::starts(values, profile.host.time().command, runs, measured),
        }
    }

    /// Makes equivalent points equal, and invalid points valid.
    pub(super) fn normalise(self, point: &mut Point) {
        match self {
            DriveKind::Disk => disk::normalise(point),
            DriveKind::Flash => {}
        }
    }

    pub(super) fn put(self, profile: &mut Profile, point: &Point) {
        match &mut profile.timing {
            TimingValues::SmrDisk(values) => disk::put(values, point),
            TimingValues::Flash(values) => flash::put(values, point),
        }
    }

    /// Corrects the media rates for the losses of the runs that measure them. True if there were
    /// any.
    pub(super) fn correct(self, profile: &mut Profile, residuals: &[Residual]) -> bool {
        match &mut profile.timing {
            TimingValues::SmrDisk(values) => disk::correct(values, residuals),
            TimingValues::Flash(_) => false,
        }
    }
}

impl Runs {
    /// Creates the runs for the drive described by `info`, to fit a profile of the kind of `base`.
    ///
    /// # Errors
    /// [`CalibrateError::TooSmall`], or [`CalibrateError::OtherKind`].
    pub fn new(info: &DeviceInfo, base: &Profile) -> Result<Runs, CalibrateError> {
        let kind = DriveKind::of(base);
        if (kind == DriveKind::Disk) != info.rotational {
            let name = |rotational| if rotational { "a disk" } else { "flash" };
            let (of, is) = (name(kind == DriveKind::Disk), name(info.rotational));
            return Err(CalibrateError::OtherKind { profile: base.name.clone(), of, is });
        }
        Ok(Runs::of(kind.runs(info)?))
    }
}
