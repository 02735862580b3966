//! The image as a device: opening, closing, and its description. Commands are executed by the
//! [engine](super::engine).

use crate::badblocks::BadRange;
use crate::changes::{Changes, ZoneSetting};
use crate::device::{Command, Completed, Context, Device, DeviceInfo, Insight, OpenMode, Submitted};
use crate::emulated::Zones;
use crate::image::backing::Backing;
use crate::image::engine::{Engine, Inline};
use crate::image::error::{Failure, ImageError};
use crate::image::format::Header;
use crate::image::open::{self, Opened};
use crate::image::profile::Profile;
use crate::news::Wakeups;
use crate::sync::Arc;
use crate::threads;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use zonal_core::{DeviceError, Nanos, ZoneIndex};

/// Options for opening an image. Names follow the Linux null block device where possible.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// For reading, the file is opened read-only and shared with other readers.
    pub mode: OpenMode,
    /// Number of helper threads for file I/O; with 0, `submit` executes commands and blocks.
    pub threads: usize,
    /// Number of queues, at least 1.
    pub submit_queues: usize,
    /// Commands in flight on a queue before it is busy, at least 1.
    pub hw_queue_depth: u32,
    /// Bandwidth of reads, writes and appends together, in MiB/s; 0 means no limit.
    pub mbps: u32,
    /// Largest read or write in sectors; by default that of the image's profile, or 1 MiB without
    /// one.
    pub max_sectors: Option<u32>,
    /// True to preserve the order of each queue, so that several positional writes of a zone may be
    /// in flight; by default according to the image's profile, or false without one.
    pub preserves_write_order: Option<bool>,
    /// Maximum number of bytes that reset zones keep allocated in the file while the image is open,
    /// so that rewriting them needs no allocation. They are freed when the image is closed, and
    /// when a write finds the host's file system full.
    pub kept_max: u64,
}

zonal_core::setters! {
    OpenOptions
    /// Mode of opening: reading or writing.
    with_mode mode: OpenMode;
    /// Number of helper threads for file I/O; with 0, `submit` executes commands and blocks.
    with_threads threads: usize;
    /// Number of queues, at least 1.
    with_submit_queues submit_queues: usize;
    /// Commands in flight on a queue before it is busy, at least 1.
    with_hw_queue_depth hw_queue_depth: u32;
    /// Bandwidth of reads, writes and appends together in MiB/s; 0 means no limit.
    with_mbps mbps: u32;
    /// Largest read or write in sectors.
    with_max_sectors max_sectors: u32;
    /// True to preserve the order of each queue.
    with_preserves_write_order preserves_write_order: bool;
    /// Maximum number of bytes that reset zones keep allocated while the image is open.
    with_kept_max kept_max: u64;
}

/// Two zones of the largest profile; a writer that resets a zone before rewriting it needs one.
/// More would keep space that the amount of data does not justify.
const KEPT_MAX: u64 = 4 << 30;

/// Largest command in sectors of an image without a profile: 1 MiB, the usual limit of host adapters.
const MAX_SECTORS: u32 = 2048;

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            mode: OpenMode::default(),
            threads: 1,
            submit_queues: 1,
            hw_queue_depth: 64,
            mbps: 0,
            max_sectors: None,
            preserves_write_order: None,
            kept_max: KEPT_MAX,
        }
    }
}

/// An open image. Dropping it is like [`close`](ImageDevice::close), but cannot return an error.
pub struct ImageDevice {
    engine: Arc<Engine>,
    workers: Vec<JoinHandle<()>>,
    path: PathBuf,
    header: Header,
    /// False once closed or abandoned.
    is_open: bool,
}

impl ImageDevice {
    /// Opens and locks the image at `path`. If this process has no write permission, the image is
    /// opened for reading whatever `options` say: see [`DeviceInfo::read_only`].
    ///
    /// # Errors
    /// [`ImageError`] with the problem; the file is unchanged.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<ImageDevice, ImageError> {
        ImageDevice::start(open::open(path, options.mode, options.kept_max)?, options)
    }

    /// Opens the image in `backing`; messages use `name` as its path. For tests: nothing is locked.
    ///
    /// # Errors
    /// As for [`ImageDevice::open`].
    pub fn open_backing(
        name: &Path,
        backing: Arc<dyn Backing>,
        options: &OpenOptions,
    ) -> Result<ImageDevice, ImageError> {
        ImageDevice::start(open::open_backing(name, backing, options.mode, options.kept_max)?, options)
    }

    fn start(opened: Opened, options: &OpenOptions) -> Result<ImageDevice, ImageError> {
        let Opened { path, header, backing, ledger, states, mode } = opened;
        let info = DeviceInfo {
            read_only: mode == OpenMode::Reading,
            cache: backing.cache(),
            ..info(&path, &header, options)
        };
        let engine = Engine::new(info, &header, options, backing, ledger, &states);
        let mut device =
            ImageDevice { engine: Arc::new(engine), workers: Vec::new(), path, header, is_open: true };
        for n in 0..options.threads {
            let engine = device.engine.clone();
            let name = format!("zonal-image-{n}");
            let worker = threads::spawn(&name, move || engine.work()).map_err(|source| ImageError::Io {
                path: device.path.clone(),
                doing: "starting a helper thread",
                source,
            })?;
            device.workers.push(worker);
        }
        Ok(device)
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the zones, for inspection.
    pub fn zones(&self) -> &Zones {
        self.engine.zones()
    }

    /// Failure of a flush after which the image accepts no more changes.
    pub fn failure(&self) -> Option<ImageError> {
        let failure = self.engine.failure()?;
        Some(ImageError::Failed { path: self.path.clone(), failure })
    }

    fn submit_to(
        &self,
        inline: Inline,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        match self.info().answer_to_reader(command.op) {
            Some(result) => Submitted::Done(result),
            None => self.engine.submit(now, queue, command, context, inline),
        }
    }

    /// Executes submitted commands, makes everything durable, and marks the image as cleanly
    /// closed. Completions that were not polled are dropped.
    ///
    /// # Errors
    /// [`ImageError::Failed`].
    pub fn close(mut self) -> Result<(), ImageError> {
        self.close_once().map_err(|failure| ImageError::Failed { path: self.path.clone(), failure })
    }

    /// Abandons the image like a killed process: submitted commands may or may not be executed, and
    /// nothing is made durable.
    pub fn abandon(mut self) {
        self.is_open = false;
        self.engine.jobs().discard();
        self.join();
    }

    fn close_once(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        self.join();
        if self.info().read_only { Ok(()) } else { self.engine.close() }
    }

    fn join(&mut self) {
        self.engine.jobs().end();
        for worker in self.workers.drain(..) {
            // A worker can only end by a panic, which has printed its message.
            let _ = worker.join();
        }
    }
}

impl Drop for ImageDevice {
    fn drop(&mut self) {
        let was_known = self.engine.failure().is_some();
        if let Err(failure) = self.close_once()
            && !was_known
        {
            // No caller is left to return the error to.
            eprintln!("zonal: {}", ImageError::Failed { path: self.path.clone(), failure });
        }
    }
}

/// Device name for the image at `path`.
fn name_of(path: &Path) -> String {
    let path = path.display().to_string();
    // Options follow a comma unless the path is in brackets.
    let needs_brackets = path.contains(',') || path.starts_with('[');
    if needs_brackets { format!("image:[{path}]") } else { format!("image:{path}") }
}

fn info(path: &Path, header: &Header, options: &OpenOptions) -> DeviceInfo {
    let block = header.block_sectors;
    let zone_max = header.geometry.zone_capacity().0 as u32;
    let whole_blocks = |sectors: u32| sectors / block * block;
    let profile = Profile::named(&header.profile);
    let max_sectors = options.max_sectors.or(profile.map(|p| p.max_sectors)).unwrap_or(MAX_SECTORS);
    let preserves_order = options.preserves_write_order.or(profile.map(|p| p.preserves_write_order));
    let command_sectors_max = whole_blocks(max_sectors).max(block);
    DeviceInfo {
        name: name_of(path),
        identity: header.identity,
        cache: None,
        geometry: header.geometry,
        block_sectors: block,
        open_max: header.open_max,
        active_max: header.active_max,
        command_sectors_max,
        label: None,
        memory_align: 1,
        append_sectors_max: whole_blocks(header.append_sectors_max.min(command_sectors_max).min(zone_max)),
        write_zeroes_sectors_max: whole_blocks(zone_max),
        verify_sectors_max: command_sectors_max,
        discard_sectors_max: match header.geometry.conventional_zones() {
            0 => 0,
            _ => header.geometry.zone_size().0 as u32,
        },
        volatile_cache: true,
        fua: true,
        rotational: header.rotational,
        spindles: Vec::new(),
        read_only: false,
        keeps_order: preserves_order.unwrap_or(false),
        personality: header.personality,
        queues: options.submit_queues.max(1),
    }
}

impl Device for ImageDevice {
    fn info(&self) -> &DeviceInfo {
        self.engine.info()
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let inline = if self.workers.is_empty() { Inline::Yes } else { Inline::No };
        self.submit_to(inline, now, queue, command, context)
    }

    fn submit_awaited(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        // Not ahead of commands that wait for a helper thread.
        let inline = if self.engine.jobs().is_empty() { Inline::Yes } else { Inline::No };
        self.submit_to(inline, now, queue, command, context)
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        self.engine.poll(now, queue, budget, done)
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        match self.info().read_only {
            true => Err(DeviceError::OpenedForReading),
            false => self.engine.set_zone(zone, to),
        }
    }

    fn badblocks(&self, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        match self.info().read_only && change.is_some() {
            true => Err(DeviceError::OpenedForReading),
            false => self.engine.badblocks(change),
        }
    }

    fn has_changes(&self) -> bool {
        self.engine.notices().are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.engine.notices().take(into);
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.engine.queues().is_idle(queue)
    }

    fn insight(&self) -> Insight {
        Insight {
            misplaces: true,
            blocks_awaiting: true,
            contention: self.engine.contention(),
            ..Insight::default()
        }
    }

    fn wakeups(&self) -> &Wakeups {
        self.engine.queues().wakeups()
    }

    fn has_news(&self, queue: usize) -> bool {
        self.engine.queues().has_news(queue)
    }
}

#[cfg(test)]
mod tests;
