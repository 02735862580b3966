//! Options of a run.

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

/// Opens a device, once per write mode, and again for [`Reopen::Again`].
pub type Opener<'a> = dyn Fn() -> Result<Arc<dyn Device>, OpenerError> + 'a;

/// Access to the bare device for verification, after the write path is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reopen {
    /// Close and reopen it, so that state kept only by the write path cannot help.
    #[default]
    Again,
    /// Keep it open, for devices that lose their data when closed.
    Same,
}

/// Options of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BenchOptions {
    /// Jobs to run.
    pub jobs: JobFile,
    /// Write modes to run the jobs in, one after the other. If empty, the device's default. With
    /// more than one, every zone of the device is reset before each mode, so that all start alike.
    pub modes: Vec<WriteMode>,
    /// Access to the bare device for verification.
    pub reopen: Reopen,
    /// Faults of the device while the jobs run. Verification uses the device without them.
    pub fault: Option<fault::Plan>,
    /// Options of the write path, [`as_a_kernel`] by default. Its mode is used if `modes` is empty.
    pub volume: VolumeOptions,
    /// Directory for a flight record of each zone that loses a write, see
    /// [`Volume::recording`](zonal_io::volume::Volume::recording).
    pub record: Option<PathBuf>,
    /// Show progress on standard error, if that is a terminal.
    pub progress: bool,
    /// Let other processes inspect the open volume through a control socket.
    pub control: bool,
    /// Keep series of rates, latencies and positions for
    /// [`Report::to_html`](crate::report::Report::to_html). This reads the clock for every request,
    /// even if the jobs disable latencies.
    pub series: bool,
    /// Processor time of a worker per request in virtual time. It delays the request from its
    /// creation to its submission. `None` uses the device's value, including a scheduler's share in
    /// mode `zone-lock`. No effect in real time.
    pub host_nanos_per_io: Option<u64>,
    /// Rules by which workers share zones.
    pub host: HostRules,
    /// Run jobs that write even if the device holds data of a known owner, which is then lost; see
    /// [`zonal_io::owner`].
    pub overwrite: bool,
    /// Run the jobs on files, on a file system made with these options.
    pub files: Option<FilesOptions>,
    /// Set by a signal handler or another thread to end the run: no job continues, requests in
    /// flight complete, and the report covers the run so far.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// Options of a write path that behaves like a kernel's: the drive enforces its own limits, and
/// writes submitted before their predecessors fail.
pub fn as_a_kernel() -> VolumeOptions {
    VolumeOptions::default().without_budget().without_park()
}

impl BenchOptions {
    /// Runs `jobs` in the device's default mode, without progress.
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

    /// True if a run changes the device: a job writes, files are created, or the device is erased
    /// between write modes.
    pub fn writes(&self) -> bool {
        self.files.is_some()
            || self.modes.len() > 1
            || self.jobs.specs().any(|job| job.pattern.direction != Direction::Read)
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }
}

/// Options of the file system of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilesOptions {
    /// Maximum number of open zones; `None` for the drive's limit, at most 128.
    pub max_open_zones: Option<u32>,
    /// Order in which free zones are opened.
    pub zone_order: ZoneOrder,
    /// Maximum size of an append in bytes, including its header, limited by the drive; `None` for
    /// the drive's maximum.
    pub unit_bytes: Option<u64>,
    /// Limit on buffered and in-flight bytes, above which writers wait.
    pub dirty_bytes: u64,
    /// Lay out files until this percentage of the file system is used.
    pub fill_percent: Option<u8>,
    /// Storage of the metadata.
    pub metadata: MetadataPlace,
}

/// Storage of the metadata of a file system made for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MetadataPlace {
    /// In memory, at no cost to the drive.
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
