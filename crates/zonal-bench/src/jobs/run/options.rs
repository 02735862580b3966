//! What to run and how.

use crate::error::OpenerError;
use crate::job::{Direction, JobFile};
use crate::jobs::plan::HostRules;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_fs::MountOptions;
use zonal_fs::space::ZoneOrder;
use zonal_io::device::Device;
use zonal_io::fault;
use zonal_io::volume::{VolumeOptions, WriteMode};

/// Opens a device, once a write mode and once more where [`Reopen::Again`] asks for it.
pub type Opener<'a> = dyn Fn() -> Result<Arc<dyn Device>, OpenerError> + 'a;

/// How the bare device is had once the write path is closed, to verify it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reopen {
    /// It is closed and opened again: nothing that only the write path remembers can help.
    #[default]
    Again,
    /// It stays open, for devices that lose their data when they are closed.
    Same,
}

/// What to run and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BenchOptions {
    /// The jobs.
    pub jobs: JobFile,
    /// Write modes to run them in, one after the other; none is what suits the device. With more than one every zone
    /// of the device is reset before each, so that all begin alike.
    pub modes: Vec<WriteMode>,
    /// How the bare device is had to verify it.
    pub reopen: Reopen,
    /// Faults of the device while the jobs run. What they leave is verified on the device without them.
    pub fault: Option<fault::Plan>,
    /// How the write path is opened, as [`as_a_kernel`] unless set otherwise. Its mode counts where `modes` is empty.
    pub volume: VolumeOptions,
    /// Directory for a flight record of each zone that loses a write, see [`Volume::recording`](zonal_io::volume::Volume::recording).
    pub record: Option<PathBuf>,
    /// Show progress on standard error, if that is a terminal.
    pub progress: bool,
    /// Let other processes look into the open volume through a control socket.
    pub control: bool,
    /// Keep series of rates, latencies and positions over time, for [`Report::to_html`](crate::report::Report::to_html). It takes the time of every
    /// request, also where the jobs spare that.
    pub series: bool,
    /// What each request costs the processor of its worker in virtual time: so much later it is with the write path than
    /// it was made. `None`: what the device says, with a scheduler's share in mode `zone-lock`. In real time it takes
    /// what it takes.
    pub host_nanos_per_io: Option<u64>,
    /// How workers share zones.
    pub host: HostRules,
    /// Run jobs that write although the device holds data of a known owner, which is lost; see [`zonal_io::owner`].
    pub overwrite: bool,
    /// The jobs work with files, on a file system that is made so.
    pub files: Option<FilesOptions>,
    /// Set by a signal handler or another thread to end the run: no job continues, what is in flight ends, and the
    /// report is of what was done until then.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// Options of a write path that does what a kernel's does: the drive alone keeps its limits, and writes that come before their
/// predecessors fail.
pub fn as_a_kernel() -> VolumeOptions {
    VolumeOptions::default().without_budget().without_park()
}

impl BenchOptions {
    /// `jobs` in the mode that suits the device, without progress.
    pub fn new(jobs: JobFile) -> BenchOptions {
        BenchOptions {
            jobs,
            modes: Vec::new(),
            reopen: Reopen::default(),
            fault: None,
            volume: as_a_kernel(),
            record: None,
            progress: false,
            control: false,
            series: false,
            host_nanos_per_io: None,
            host: HostRules::default(),
            overwrite: false,
            files: None,
            interrupt: None,
        }
    }

    /// True if a run changes the device: a job writes, files are made, or the device is erased between write modes.
    pub fn writes(&self) -> bool {
        self.files.is_some()
            || self.modes.len() > 1
            || self.jobs.specs().any(|job| job.pattern.direction != Direction::Read)
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }
}

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
            metadata: MetadataPlace::default(),
        }
    }
}
