//! Jobs that work with files: the file system on the device, in real or in virtual time.
//!
//! A file system is made on the device, which is erased, with its metadata in memory. Its files are those of the jobs, as fio
//! names them. What has to be there before a job begins is written first and not measured. While the jobs run, a task
//! of its own tends the zones ahead of need.

mod ground;
mod job;
mod plan;
mod world;

use crate::error::BenchError;
use crate::jobs::run::{BenchOptions, Opener, prepare};
use crate::measure::series::{Frame, SeriesRecorder};
use crate::report::{FilesReport, JobReport, ModeReport};
use job::{Job, Left};
use plan::{Plan, Room};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use world::{Task, World};
use zonal_core::{Nanos, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{DATA_BLOCKS_MAX, Metadata, Superblock};
use zonal_fs::make::{self, MakeError, MakeOptions, unit_blocks_max};
use zonal_fs::space::ZoneOrder;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{BLOCK_BYTES, FileSystem, MountOptions};
use zonal_io::control::{ControlError, ControlServer, Errands};
use zonal_io::volume::{OptionKey, SetBy, Statistics, Volume, VolumeOptions, WriteMode, keeps_data};

/// How the file system is made and used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilesOptions {
    /// Zones open at once; `None`: what the drive allows, 128 at most.
    pub max_open_zones: Option<u32>,
    /// Which free zone is opened.
    pub zone_order: ZoneOrder,
    /// Bytes of the largest append, its header included, less where the drive does not take as much; `None`: what it takes.
    pub unit_bytes: Option<u64>,
    /// Bytes in write buffers or in flight before writers wait.
    pub dirty_bytes: u64,
    /// Files are laid out until this share of the file system is used.
    pub fill_percent: Option<u8>,
    /// Although there is a file system on the device, which is lost.
    pub overwrite: bool,
    /// Where its metadata are.
    pub metadata: MetadataPlace,
}

/// Where the metadata of a file system are that is made for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MetadataPlace {
    /// In memory: they take no time of the drive.
    #[default]
    Memory,
    /// On the drive, which has to keep data.
    Drive,
}

impl Default for FilesOptions {
    fn default() -> FilesOptions {
        FilesOptions {
            max_open_zones: None,
            zone_order: ZoneOrder::default(),
            unit_bytes: None,
            dirty_bytes: MountOptions::default().dirty_bytes,
            fill_percent: None,
            overwrite: false,
            metadata: MetadataPlace::default(),
        }
    }
}

/// Memory that the database may take for what it has read.
const CACHE_BYTES: usize = 256 << 20;

/// What all rounds did, without what they found.
#[derive(Default)]
struct Measured {
    jobs: Vec<JobReport>,
    files: FilesReport,
    /// The write path's.
    statistics: Statistics,
}

/// What is the same for all rounds.
struct Site {
    world: World,
    volume: Arc<Volume>,
    fs: FileSystem,
    /// Where its metadata are, unless on the drive.
    memory: Option<Memory>,
    has_data: bool,
    options: FilesOptions,
    /// Set from outside to end the run.
    interrupt: Option<Arc<AtomicBool>>,
}

/// Runs the jobs of `options` on files, in one write mode.
pub(crate) fn run_mode(
    open: &Opener<'_>,
    options: &BenchOptions,
    mode: Option<WriteMode>,
    files: &FilesOptions,
) -> Result<ModeReport, BenchError> {
    let device = open().map_err(BenchError::Device)?;
    let info = device.info().clone();
    let has_data = keeps_data(&*device);
    ground::empty(&*device, files.overwrite)?;
    let mut volume = VolumeOptions { mode, ..options.volume };
    if volume.setters.of(OptionKey::Park) == SetBy::Default {
        volume.park = VolumeOptions::default().park;
    }
    let volume = Arc::new(Volume::open(device.clone(), volume)?);
    let errands = Errands::default();
    let world = World::of(&volume, &errands);
    if files.metadata == MetadataPlace::Drive && !has_data {
        let error = "metadata on a drive that keeps no data; sim:PROFILE,keep=data does".to_owned();
        return Err(BenchError::Files { error });
    }
    let memory = (files.metadata == MetadataPlace::Memory).then(Memory::new);
    let fs = mount(&world, &volume, memory.clone(), files, has_data)?;
    let interrupt = options.interrupt.clone();
    let site = Site { world, volume, fs, memory, has_data, options: *files, interrupt };
    let room =
        Room { bytes: site.fs.usage().free * u64::from(BLOCK_BYTES), zone_bytes: zone_bytes(&site.volume) };
    let plan = Plan::new(options.jobs.jobs(), room, files)
        .map_err(|(job, error)| BenchError::Plan { job, error })?;
    let control = options.control.then(|| site.control(&errands));
    let Measured { jobs, files, statistics } = site.run(&plan, options.series)?;
    let mut notes = site.notes();
    if let Some(Err(error)) = &control {
        notes.push(format!("there is no control socket: {error}"));
    }
    drop(control);
    let (mode, mode_reason) = site.volume.mode();
    drop(site);
    let series = options.series.then(|| Box::new(prepare::mode_series(&*device, info.clone(), &mut notes)));
    Ok(ModeReport {
        device: info.name,
        mode,
        mode_reason,
        jobs,
        statistics,
        notes,
        verify: None,
        series,
        is_virtual: info.virtual_time,
        files: Some(files),
    })
}

fn zone_bytes(volume: &Volume) -> u64 {
    u64::from(volume.info().geometry.size_of(ZoneIndex(0))) * SECTOR_BYTES
}

/// The file systems of runs are called so.
const UUID: &[u8; 16] = b"zonal-bench-unit";

/// A new file system, open, with its metadata in `memory`, if that is given.
fn mount(
    world: &World,
    volume: &Arc<Volume>,
    memory: Option<Memory>,
    options: &FilesOptions,
    has_data: bool,
) -> Result<FileSystem, BenchError> {
    let superblock = superblock(volume, options)?;
    let mount = MountOptions {
        max_open_zones: options.max_open_zones,
        zone_order: options.zone_order,
        dirty_bytes: options.dirty_bytes,
        cache_bytes: CACHE_BYTES,
        ..MountOptions::default()
    };
    let (on, waiters) = (volume.clone(), world.waiters());
    let made = world.alone(move |waiter| -> Result<FileSystem, MakeError> {
        let Some(memory) = memory else {
            let unit_bytes = Some(superblock.unit_blocks * BLOCK_BYTES);
            let drive = Arc::new(Drive::new(on));
            let options = MakeOptions { unit_bytes, force: true, ..MakeOptions::default() };
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
        let error = format!("a unit of {bytes} bytes: it takes 8K to {most}K, in steps of 4K");
        return Err(BenchError::Files { error });
    }
    let geometry = &volume.info().geometry;
    Ok(Superblock::new(*UUID, geometry, unit_blocks, Metadata::Beside, 0))
}

impl Measured {
    /// Adds what a clone has left, to the report before it if they are reported together.
    fn add(&mut self, Left { report, files }: Left) {
        self.files.files += files;
        match self.jobs.last_mut() {
            Some(last) if report.spec.group_reporting && last.group == report.group => last.add(&report),
            _ => self.jobs.push(report),
        }
    }
}

impl Site {
    fn run(&self, plan: &Plan, keeps_series: bool) -> Result<Measured, BenchError> {
        let mut done = Measured::default();
        let mut elapsed = Nanos(0);
        for round in &plan.rounds {
            if self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                break;
            }
            let frame = keeps_series.then_some(elapsed);
            let laid_out = self.lay_out(plan, round, frame)?;
            self.fs.take_statistics();
            let before = self.volume.statistics();
            let (files, left) = self.measure(plan, round, laid_out)?;
            done.statistics += self.volume.statistics().since(before);
            done.files.add(&files);
            elapsed.0 += left.iter().map(|left| left.report.elapsed.as_nanos() as u64).max().unwrap_or(0);
            left.into_iter().for_each(|left| done.add(left));
        }
        Ok(done)
    }

    /// Writes the files that have to be there before a round, and makes them durable. `before`: the time that rounds have
    /// taken, if series are kept.
    fn lay_out(
        &self,
        plan: &Plan,
        round: &Range<usize>,
        before: Option<Nanos>,
    ) -> Result<Vec<Job>, BenchError> {
        let tasks = plan.clones[round.clone()].iter().map(|clone| {
            let mut job = Job::new(clone.clone(), self.fs.clone(), self.has_data, self.options.dirty_bytes);
            job.interrupt = self.interrupt.clone();
            job.series = before.map(|before| SeriesRecorder::new(&self.frame(before)));
            let is_laid_out = clone.is_laid_out;
            Task::new(&clone.spec.name, move |waiter| {
                let laid_out = if is_laid_out { job.lay_out(waiter) } else { Ok(()) };
                laid_out.map(|()| job)
            })
        });
        let jobs = self.world.run(tasks.collect(), Some(&self.fs))?;
        let failed =
            |error: zonal_fs::FsError| BenchError::Files { error: format!("laying out files: {error}") };
        let jobs = jobs.into_iter().collect::<Result<Vec<Job>, _>>().map_err(failed)?;
        let fs = self.fs.clone();
        self.world.alone(move |waiter| fs.sync(waiter))?.map_err(failed)?;
        Ok(jobs)
    }

    fn measure(
        &self,
        plan: &Plan,
        round: &Range<usize>,
        jobs: Vec<Job>,
    ) -> Result<(FilesReport, Vec<Left>), BenchError> {
        let used = self.fs.usage().used;
        let names = plan.clones[round.clone()].iter().map(|clone| &clone.spec.name);
        let tasks = names.zip(jobs).map(|(name, job)| Task::new(name, move |waiter| job.run(waiter)));
        let left = self.world.run(tasks.collect(), Some(&self.fs))?;
        let pages = self.fs.usage().metadata.map_or(0, |fill| fill.pages);
        let metadata_bytes = self.memory.as_ref().map_or(pages * u64::from(BLOCK_BYTES), Memory::footprint);
        let report = FilesReport { used, metadata_bytes, ..FilesReport::of(&self.fs) };
        Ok((report, left))
    }

    /// Where series lie: after the rounds before, without the time in which files were laid out.
    fn frame(&self, before: Nanos) -> Frame {
        Frame { before, sectors: Sector(0)..Sector(self.volume.info().geometry.sectors().0) }
    }

    /// Lets other processes look at the volume and the file system on it.
    fn control(&self, errands: &Errands) -> Result<ControlServer, ControlError> {
        let fs = self.fs.clone();
        let tell = move || serde_json::to_value(fs.status()).unwrap_or_default();
        ControlServer::start_with(self.volume.clone(), Some(Arc::new(tell)), errands.clone())
    }

    fn notes(&self) -> Vec<String> {
        let place = match self.memory {
            Some(_) => "metadata is in memory, and takes no time of the drive",
            None => "metadata is on the drive; while it is written, jobs stand still in virtual time",
        };
        let mut notes = vec![place.to_owned()];
        if matches!(self.world, World::Virtual(_)) {
            notes.push("times are virtual: processor times and context switches are not measured".to_owned());
        }
        notes
    }
}
