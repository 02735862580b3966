//! Jobs in one write mode, on zones or on files: opens the device and the volume on it, runs the
//! rounds, and builds the report.

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
use zonal_io::control::{Errands, StatusSource};
use zonal_io::device::{Device, DeviceInfo, HeadMoves};
use zonal_io::volume::{
    FLIGHT_RECORDS_MAX, SWITCHED, Statistics, Volume, VolumeOptions, WriteMode, keeps_data,
};

/// State of the device at the start of a mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    AsItIs,
    Erased,
}

/// Device of a write mode, before a volume is opened on it.
pub(super) struct Site<'a> {
    pub(super) options: &'a BenchOptions,
    pub(super) bare: Arc<dyn Device>,
    pub(super) info: DeviceInfo,
    /// True if it keeps data.
    pub(super) has_data: bool,
}

/// Rounds of one kind of jobs.
pub(super) trait Rounds {
    /// Number of rounds.
    fn count(&self) -> usize;

    /// Notes for the beginning of the report.
    fn notes(&mut self) -> Vec<String>;

    /// Status shown to other processes besides the volume's.
    fn status(&self) -> Option<StatusSource> {
        None
    }

    /// Runs a round.
    fn run(&mut self, index: usize, done: &mut RunTotals) -> Result<Next, BenchError>;

    /// Mode chosen for these jobs, with the reason.
    fn chosen(&self) -> Option<(WriteMode, &'static str)> {
        None
    }

    /// Releases the volume and returns the zones, if kept. Notes about the end are added to
    /// `notes`.
    fn close(self, notes: &mut Vec<String>) -> Option<Arc<Zones>>;
}

/// Continuation after a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Round,
    /// A job failed that ends all others.
    EndAll,
}

/// Results of the rounds.
#[derive(Default)]
pub(super) struct RunTotals {
    /// Reports of the jobs.
    pub(super) jobs: Vec<JobReport>,
    /// Recorders of all workers with verification.
    pub(super) recorders: Vec<Recorder>,
    /// Total duration.
    pub(super) elapsed: Nanos,
    /// Positions of the device's head, if known.
    pub(super) head: Option<PositionSeries>,
    /// Statistics of the write path.
    pub(super) statistics: Statistics,
    /// Movements of the device's heads, if it has any.
    pub(super) head_moves: Option<HeadMoves>,
    /// Statistics of the file system, for jobs on files.
    pub(super) files: Option<FilesReport>,
}

impl RunTotals {
    /// Adds a clone's report, merging it into the last one if they are reported together.
    pub(super) fn add(&mut self, report: JobReport) {
        match self.jobs.last_mut() {
            Some(last) if report.spec.group_reporting && last.group == report.group => last.add(&report),
            _ => self.jobs.push(report),
        }
    }

    /// Adds the head movements of a round on `volume`, since the value `before` it.
    pub(super) fn add_head_moves(&mut self, volume: &Volume, before: Option<HeadMoves>) {
        let moves = moves_since(volume, before);
        self.head_moves = self.head_moves.into_iter().chain(moves).reduce(|sum, moves| sum + moves);
    }
}

/// Head movements of a volume's device since the value `before`.
pub(crate) fn moves_since(volume: &Volume, before: Option<HeadMoves>) -> Option<HeadMoves> {
    Some(volume.device().insight().head_moves?.since(before?))
}

impl<'a> Site<'a> {
    pub(super) fn open(open: &Opener<'_>, options: &'a BenchOptions) -> Result<Site<'a>, BenchError> {
        let bare = open().map_err(BenchError::Device)?;
        let (info, has_data) = (bare.info().clone(), keeps_data(&*bare));
        Ok(Site { options, bare, info, has_data })
    }

    /// Runs the rounds prepared by `begin`, with a volume on `device`.
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
        let mut done = RunTotals::default();
        let ended = self.all_rounds(&mut rounds, &mut done, &mut notes);
        // Writes the last flight records, even if the run failed.
        notes.extend(volume.flight_note());
        ended?;
        let RunTotals { jobs, recorders, head, statistics, head_moves, files, .. } = done;
        let mut report = ModeReport { jobs, statistics, head_moves, files, notes, ..ModeReport::of(&volume) };
        // Another process may have switched the mode and switched it back.
        let chosen =
            rounds.chosen().filter(|(mode, _)| *mode == report.mode && report.mode_reason != SWITCHED);
        if let Some((_, reason)) = chosen {
            report.mode_reason = reason;
        }
        // Verification may reopen the device, so every reference to it has to be dropped.
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

    /// Runs the rounds until one of them ends the run.
    fn all_rounds(
        &self,
        rounds: &mut impl Rounds,
        done: &mut RunTotals,
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

    /// Reads back acknowledged writes, and fails the jobs with missing blocks.
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
