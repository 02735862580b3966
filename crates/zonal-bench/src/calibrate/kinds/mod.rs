//! What is particular to a kind of drive: its runs, the values that they show, and where to begin to look for them.

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

    /// Values that follow from the measurements as they are.
    pub(super) fn begin(self, profile: &mut Profile, runs: &Runs, measured: &[Outcome]) {
        if let TimingValues::SmrDisk(values) = &mut profile.timing {
            let zones = profile.drive.size.value / profile.drive.zone_size.value.max(1);
            disk::rates(values, zones, runs, measured);
        }
    }

    /// Indices of the runs that the search is about.
    pub(super) fn searched(self, runs: &Runs) -> Vec<usize> {
        let is_searched = |run: &Run| !(self == DriveKind::Disk && disk::POSITIONS.contains(&run.name));
        (0..runs.list().len()).filter(|&at| is_searched(&runs.list()[at])).collect()
    }

    /// How much a run's error counts.
    pub(super) fn weight(self, run: &str) -> f64 {
        match self {
            DriveKind::Disk => disk::weight(run),
            DriveKind::Flash => 1.0,
        }
    }

    /// Root mean square of the errors that is good enough. Where two zones of a disk happen to lie to each other is chance,
    /// which a profile cannot have in common with its drive, and makes runs differ by about as much.
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

    /// Where the search begins.
    pub(super) fn starts(self, profile: &Profile, runs: &Runs, measured: &[Outcome]) -> Vec<Point> {
        match &profile.timing {
            TimingValues::SmrDisk(values) => {
                disk::starts(values, profile.drive.command_max.value, runs, measured)
            }
            TimingValues::Flash(values) => flash::starts(values, profile.host.time().command, runs, measured),
        }
    }

    /// Makes points equal that are the same drive, and drives out of those that are none.
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

    /// Takes off what runs at the rates of the medium lose beside them; whether there are any.
    pub(super) fn correct(self, profile: &mut Profile, residuals: &[Residual]) -> bool {
        match &mut profile.timing {
            TimingValues::SmrDisk(values) => disk::correct(values, residuals),
            TimingValues::Flash(_) => false,
        }
    }
}

impl Runs {
    /// The runs that suit the drive that `info` describes, to fit a profile of the kind of `base`.
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
