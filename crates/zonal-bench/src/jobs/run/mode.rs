//! Jobs in one write mode, whether they work with zones or with files: the device and the volume on it, one round after the
//! other, and the report.

use super::around::Control;
use super::options::{BenchOptions, Opener, Reopen};
use super::prepare::mode_series;
use super::runner::TaskRunner;
use crate::error::BenchError;
use crate::jobs::verify::check::check_device;
use crate::jobs::verify::{Recorder, VerifyReport};
use crate::jobs::workload::Zones;
use crate::measure::series::{ModeSeries, PositionSeries};
use crate::report::{Failure, FilesReport, JobReport, ModeReport};
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_io::control::{Errands, Teller};
use zonal_io::device::{Device, DeviceInfo};
use zonal_io::volume::{
    FLIGHT_RECORDS_MAX, SWITCHED, Statistics, Volume, VolumeOptions, WriteMode, keeps_data,
};

/// In what state a mode finds the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    AsItIs,
    Erased,
}

/// The device of a write mode, before there is a volume on it.
pub(super) struct Site<'a> {
    pub(super) options: &'a BenchOptions,
    pub(super) bare: Arc<dyn Device>,
    pub(super) info: DeviceInfo,
    /// Whether it keeps data.
    pub(super) has_data: bool,
}

/// The rounds of the jobs of one kind.
pub(super) trait Rounds {
    /// How many there are.
    fn count(&self) -> usize;

    /// What is told before all else.
    fn notes(&mut self) -> Vec<String>;

    /// What other processes see apart from the volume.
    fn status(&self) -> Option<Teller> {
        None
    }

    /// Runs a round.
    fn run(&mut self, index: usize, done: &mut Done) -> Result<Next, BenchError>;

    /// The mode that was chosen for these jobs, and why.
    fn chosen(&self) -> Option<(WriteMode, &'static str)> {
        None
    }

    /// Lets go of the volume. What is to be told of the end goes to `notes`; the zones, if they were kept.
    fn close(self, notes: &mut Vec<String>) -> Option<Arc<Zones>>;
}

/// What follows a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Round,
    /// A job failed that ends all.
    EndAll,
}

/// What the rounds leave.
#[derive(Default)]
pub(super) struct Done {
    /// As they are reported.
    pub(super) jobs: Vec<JobReport>,
    /// Of all workers whose blocks are to be verified.
    pub(super) recorders: Vec<Recorder>,
    /// How long they took together.
    pub(super) elapsed: Nanos,
    /// Where the device's head was, if that is known.
    pub(super) head: Option<PositionSeries>,
    /// The write path's.
    pub(super) statistics: Statistics,
    /// The file system's, if the jobs work with files.
    pub(super) files: Option<FilesReport>,
}

impl Done {
    /// Adds a clone's report to the last one if they are reported together.
    pub(super) fn add(&mut self, report: JobReport) {
        match self.jobs.last_mut() {
            Some(last) if report.spec.group_reporting && last.group == report.group => last.add(&report),
            _ => self.jobs.push(report),
        }
    }
}

impl<'a> Site<'a> {
    pub(super) fn open(open: &Opener<'_>, options: &'a BenchOptions) -> Result<Site<'a>, BenchError> {
        let bare = open().map_err(BenchError::Device)?;
        let (info, has_data) = (bare.info().clone(), keeps_data(&*bare));
        Ok(Site { options, bare, info, has_data })
    }

    /// Runs the rounds that `begin` makes ready, with a volume on `device`.
    pub(super) fn run<R: Rounds>(
        self,
        open: &Opener<'_>,
        device: Arc<dyn Device>,
        volume: VolumeOptions,
        begin: impl FnOnce(&Site<'_>, &Arc<Volume>, TaskRunner) -> Result<R, BenchError>,
    ) -> Result<ModeReport, BenchError> {
        let volume = Volume::open(device, volume)?;
        let volume = Arc::new(match &self.options.record {
            Some(directory) => volume.recording(directory.clone(), FLIGHT_RECORDS_MAX),
            None => volume,
        });
        let errands = Errands::default();
        let mut rounds = begin(&self, &volume, TaskRunner::of(&volume, &errands))?;
        let control = Control::start(self.options.control, &volume, rounds.status(), errands);
        let mut notes = rounds.notes();
        if self.bare.insight().virtual_time {
            notes.push("times are virtual: processor times and context switches are not measured".to_owned());
        }
        notes.extend(control.note());
        let mut done = Done::default();
        let ended = self.all_rounds(&mut rounds, &mut done, &mut notes);
        // Writes the last records, also those of a run that failed.
        notes.extend(volume.flight_note());
        ended?;
        let Done { jobs, recorders, head, statistics, files, .. } = done;
        let mut report = ModeReport { jobs, statistics, files, notes, ..ModeReport::of(&volume) };
        // Another process may have switched it, and back.
        let chosen =
            rounds.chosen().filter(|(mode, _)| *mode == report.mode && report.mode_reason != SWITCHED);
        if let Some((_, reason)) = chosen {
            report.mode_reason = reason;
        }
        // What is verified may be opened again, for which all that holds it has to go.
        drop((control, volume));
        let zones = rounds.close(&mut report.notes);
        if self.options.series {
            let series = mode_series(&*self.bare, self.info.clone(), &mut report.notes);
            report.series = Some(Box::new(ModeSeries { head, ..series }));
        }
        if let Some(zones) = zones.filter(|_| !recorders.is_empty()) {
            report.verify = Some(self.verify(open, &recorders, &zones, &mut report.jobs)?);
        }
        Ok(report)
    }

    /// Runs the rounds until one ends all.
    fn all_rounds(
        &self,
        rounds: &mut impl Rounds,
        done: &mut Done,
        notes: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        for index in 0..rounds.count() {
            let why = match rounds.run(index, done)? {
                _ if self.options.is_interrupted() => "the run was interrupted",
                Next::EndAll => "a job with exitall_on_error failed",
                Next::Round => continue,
            };
            let left = rounds.count() - index - 1;
            if left > 0 {
                notes.push(format!("{left} more rounds were not run: {why}"));
            }
            break;
        }
        Ok(())
    }

    /// Reads back what was acknowledged, and fails the jobs whose blocks are not there.
    fn verify(
        self,
        open: &Opener<'_>,
        recorders: &[Recorder],
        zones: &Zones,
        jobs: &mut [JobReport],
    ) -> Result<VerifyReport, BenchError> {
        let device = match self.options.reopen {
            Reopen::Same => self.bare,
            Reopen::Again => {
                drop(self.bare);
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
}
