//! Jobs on files: runs them on a file system, in real or in virtual time.
//!
//! The device is erased, and a file system is made on it, with its metadata in memory by default.
//! The files are those of the jobs, named as in fio. Files that have to exist before a job starts
//! are written first and not measured. While the jobs run, a separate task does the background work
//! on zones ahead of need: resets, commits and garbage collection.

mod erase;
mod job;
mod plan;
mod tasks;

use crate::error::BenchError;
use crate::jobs::plan::Schedule;
use crate::jobs::run::mode::{self, Next, RunTotals, Site};
use crate::jobs::run::options::{FilesOptions, MetadataPlace};
use crate::jobs::run::runner::TaskRunner;
use crate::jobs::workload::Zones;
use crate::measure::series::{Frame, SeriesRecorder};
use crate::report::FilesReport;
use job::{CloneResult, Job};
use plan::{Clone, Room, plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tasks::Task;
use zonal_core::{Nanos, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{DATA_BLOCKS_MAX, Metadata, Superblock};
use zonal_fs::make::{self, MakeError, MakeOptions, unit_blocks_max};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{BLOCK_BYTES, FileSystem, MountOptions};
use zonal_io::control::StatusSource;
use zonal_io::volume::{OptionKey, SetBy, Volume, VolumeOptions, WriteMode};

/// Memory for the database's read cache, in bytes.
const CACHE_BYTES: usize = 256 << 20;

/// Erases the device and returns the options of the volume on it.
pub(in crate::jobs::run) fn ready(
    site: &Site<'_>,
    mode: Option<WriteMode>,
) -> Result<VolumeOptions, BenchError> {
    erase::empty(&*site.bare)?;
    let mut volume = site.options.volume.with_mode(mode);
    if volume.setters.of(OptionKey::Park) == SetBy::Default {
        volume.park = VolumeOptions::default().park;
    }
    Ok(volume)
}

/// Rounds of jobs on files.
pub(in crate::jobs::run) struct FileRounds {
    plan: Schedule<Clone>,
    runner: TaskRunner,
    volume: Arc<Volume>,
    fs: FileSystem,
    /// Storage of the metadata, unless on the drive.
    memory: Option<Memory>,
    has_data: bool,
    files: FilesOptions,
    keeps_series: bool,
    /// Set by the caller to end the run.
    interrupt: Option<Arc<AtomicBool>>,
}

impl FileRounds {
    /// Makes the file system and resolves the jobs against it.
    pub(in crate::jobs::run) fn new(
        site: &Site<'_>,
        files: FilesOptions,
        volume: &Arc<Volume>,
        runner: TaskRunner,
    ) -> Result<FileRounds, BenchError> {
        if files.metadata == MetadataPlace::Drive && !site.has_data {
            let error = "metadata needs a drive that keeps data; use sim:PROFILE,keep=data".to_owned();
            return Err(BenchError::Files { error });
        }
        let memory = (files.metadata == MetadataPlace::Memory).then(Memory::new);
        let fs = mount(&runner, volume, memory.clone(), &files, site.has_data)?;
        let bytes = fs.usage().free * u64::from(BLOCK_BYTES);
        let room = Room { bytes, zone_bytes: zone_bytes(volume) };
        let plan = plan(site.options.jobs.jobs(), room, &files)
            .map_err(|(job, error)| BenchError::Plan { job, error })?;
        Ok(FileRounds {
            plan,
            runner,
            volume: volume.clone(),
            fs,
            memory,
            has_data: site.has_data,
            files,
            keeps_series: site.options.series,
            interrupt: site.options.interrupt.clone(),
        })
    }
}

impl mode::Rounds for FileRounds {
    fn count(&self) -> usize {
        self.plan.rounds.len()
    }

    fn notes(&mut self) -> Vec<String> {
        let place = match self.memory {
            Some(_) => "metadata is in memory, at no cost to the drive",
            None => "metadata is on the drive; in virtual time, jobs pause while it is written",
        };
        vec![place.to_owned()]
    }

    fn status(&self) -> Option<StatusSource> {
        let fs = self.fs.clone();
        Some(Arc::new(move || serde_json::to_value(fs.status()).unwrap_or_default()))
    }

    fn run(&mut self, index: usize, done: &mut RunTotals) -> Result<Next, BenchError> {
        done.files.get_or_insert_default();
        // Laying out files for a round may take long.
        if self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Ok(Next::Round);
        }
        let clones = &self.plan.clones[self.plan.rounds[index].clone()];
        let jobs = self.lay_out(clones, self.keeps_series.then_some(done.elapsed))?;
        self.fs.take_statistics();
        let (before, moves) = (self.volume.statistics(), self.volume.device().insight().head_moves);
        let (of_round, results) = self.measure(clones, jobs)?;
        done.statistics += self.volume.statistics().since(before);
        done.add_head_moves(&self.volume, moves);
        let files = done.files.get_or_insert_default();
        files.add(&of_round);
        files.files += results.iter().map(|result| result.files).sum::<u64>();
        let elapsed = results.iter().map(|result| result.report.elapsed.as_nanos() as u64).max();
        done.elapsed.0 += elapsed.unwrap_or(0);
        results.into_iter().for_each(|result| done.add(result.report));
        Ok(Next::Round)
    }

    fn close(self, _: &mut Vec<String>) -> Option<Arc<Zones>> {
        None
    }
}

fn zone_bytes(volume: &Volume) -> u64 {
    u64::from(volume.info().geometry.size_of(ZoneIndex(0))) * SECTOR_BYTES
}

/// UUID of the file systems made for runs.
const UUID: &[u8; 16] = b"zonal-bench-unit";

/// Makes and mounts a file system, with its metadata in `memory` if given.
fn mount(
    runner: &TaskRunner,
    volume: &Arc<Volume>,
    memory: Option<Memory>,
    options: &FilesOptions,
    has_data: bool,
) -> Result<FileSystem, BenchError> {
    let superblock = superblock(volume, options)?;
    let mount = MountOptions::default()
        .with_max_open_zones(options.max_open_zones)
        .with_zone_order(options.zone_order)
        .with_dirty_bytes(options.dirty_bytes)
        .with_cache_bytes(CACHE_BYTES);
    let (on, waiters) = (volume.clone(), runner.waiters());
    let made = runner.alone(move |waiter| -> Result<FileSystem, MakeError> {
        let Some(memory) = memory else {
            let unit_bytes = Some(superblock.unit_blocks * BLOCK_BYTES);
            let drive = Arc::new(Drive::new(on));
            let options = MakeOptions::default().with_unit_bytes(unit_bytes).with_force(true);
            make::make(&drive, &waiters, *UUID, &options)?;
            return make::open(&drive, &waiters, None, mount);
        };
        let mut rows = Rows::open(memory, CACHE_BYTES).map_err(zonal_fs::FsError::from)?;
        FileSystem::make(&mut rows, &superblock, waiter)?;
        Ok(FileSystem::open(on, rows, superblock, mount, has_data, waiter)?)
    })?;
    made.map_err(|error| BenchError::Files { error: error.to_string() })
}

fn superblock(volume: &Volume, options: &FilesOptions) -> Result<Superblock, BenchError> {
    let largest = unit_blocks_max(volume);
    let block = u64::from(BLOCK_BYTES);
    let unit_blocks = options.unit_bytes.map_or(largest, |bytes| (bytes / block).min(largest.into()) as u32);
    let is_odd = |bytes: u64| bytes / block > u64::from(DATA_BLOCKS_MAX) + 1 || !bytes.is_multiple_of(block);
    if unit_blocks < 2 || options.unit_bytes.is_some_and(is_odd) {
        let bytes = options.unit_bytes.unwrap_or(u64::from(largest) * block);
        let most = u64::from(DATA_BLOCKS_MAX + 1) * block / 1024;
        let error = format!("a unit of {bytes} bytes is not possible: use 8K to {most}K, in steps of 4K");
        return Err(BenchError::Files { error });
    }
    let geometry = &volume.info().geometry;
    Ok(Superblock::new(*UUID, geometry, unit_blocks, Metadata::Beside, 0))
}

impl FileRounds {
    /// Writes and syncs the files that have to exist before a round. `before` is the time taken by
    /// earlier rounds, if series are kept.
    fn lay_out(&self, clones: &[Clone], before: Option<Nanos>) -> Result<Vec<Job>, BenchError> {
        let tasks = clones.iter().map(|clone| {
            let mut job = Job::new(clone.clone(), self.fs.clone(), self.has_data, self.files.dirty_bytes);
            job.interrupt = self.interrupt.clone();
            job.series = before.map(|before| SeriesRecorder::new(&self.frame(before)));
            let is_laid_out = clone.is_laid_out;
            Task::new(&clone.spec.name, move |waiter| {
                let laid_out = if is_laid_out { job.lay_out(waiter) } else { Ok(()) };
                laid_out.map(|()| job)
            })
        });
        let jobs = self.runner.run(tasks.collect(), Some(&self.fs))?;
        let failed =
            |error: zonal_fs::FsError| BenchError::Files { error: format!("laying out files: {error}") };
        let jobs = jobs.into_iter().collect::<Result<Vec<Job>, _>>().map_err(failed)?;
        let fs = self.fs.clone();
        self.runner.alone(move |waiter| fs.sync(waiter))?.map_err(failed)?;
        Ok(jobs)
    }

    fn measure(
        &self,
        clones: &[Clone],
        jobs: Vec<Job>,
    ) -> Result<(FilesReport, Vec<CloneResult>), BenchError> {
        let used = self.fs.usage().used;
        let names = clones.iter().map(|clone| &clone.spec.name);
        let tasks = names.zip(jobs).map(|(name, job)| Task::new(name, move |waiter| job.run(waiter)));
        let results = self.runner.run(tasks.collect(), Some(&self.fs))?;
        let pages = self.fs.usage().metadata.map_or(0, |fill| fill.pages);
        let metadata_bytes = self.memory.as_ref().map_or(pages * u64::from(BLOCK_BYTES), Memory::footprint);
        let report = FilesReport { used, metadata_bytes, ..FilesReport::of(&self.fs) };
        Ok((report, results))
    }

    /// Frame of the series: after earlier rounds, excluding the time spent laying out files.
    fn frame(&self, before: Nanos) -> Frame {
        Frame { before, sectors: Sector(0)..Sector(self.volume.info().geometry.sectors().0) }
    }
}
