//! The image as a device: opening, closing, and what it says of itself. The work is the [engine](super::engine)'s.

use crate::changes::{Changes, ZoneSetting};
use crate::device::{Command, Completed, Context, Device, DeviceInfo, Insight, OpenMode, Output, Submitted};
use crate::emulated::Zones;
use crate::image::backing::Backing;
use crate::image::engine::{Engine, Inline};
use crate::image::error::{Failure, ImageError};
use crate::image::format::Header;
use crate::image::open::{self, Opened};
use crate::news::Wakeups;
use crate::sync::Arc;
use crate::threads;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use zonal_core::{DeviceError, Nanos, Op, ZoneIndex};

/// How an image is opened. Names follow the Linux null block device where it has them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// For reading, the file is opened without the right to write, and shared with other readers.
    pub mode: OpenMode,
    /// Helper threads for file I/O; 0 executes in `submit`, which then blocks.
    pub threads: usize,
    /// Number of queues, at least 1.
    pub submit_queues: usize,
    /// Commands in flight on a queue beyond which it is busy, at least 1.
    pub hw_queue_depth: u32,
    /// Largest read or write, in sectors.
    pub max_sectors: u32,
    /// Whether to keep the order of each queue, so that several positional writes of a zone may be in flight.
    pub preserves_write_order: bool,
    /// Bytes of the file that reset zones keep at most while the image is open, so that the writes after a reset find their
    /// blocks allocated. Closing gives them back, and so does a write that finds the host's file system full.
    pub kept_max: u64,
}

zonal_core::setters! {
    OpenOptions
    /// For reading or for all.
    with_mode mode: OpenMode;
    /// Helper threads for file I/O; 0 executes in `submit`, which then blocks.
    with_threads threads: usize;
    /// Number of queues, at least 1.
    with_submit_queues submit_queues: usize;
    /// Commands in flight on a queue beyond which it is busy, at least 1.
    with_hw_queue_depth hw_queue_depth: u32;
    /// Largest read or write in sectors.
    with_max_sectors max_sectors: u32;
    /// Whether to keep the order of each queue.
    with_preserves_write_order preserves_write_order: bool;
    /// Bytes of the file that reset zones keep at most while the image is open.
    with_kept_max kept_max: u64;
}

/// Two zones of the largest profile: a writer that resets a zone before it writes it needs one. More would hold space that the
/// data does not explain.
const KEPT_MAX: u64 = 4 << 30;

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            mode: OpenMode::default(),
            threads: 1,
            submit_queues: 1,
            hw_queue_depth: 64,
            // 1 MiB, what host adapters commonly take.
            max_sectors: 2048,
            preserves_write_order: false,
            kept_max: KEPT_MAX,
        }
    }
}

/// An open image. Dropping it closes it as [`close`](ImageDevice::close) does, but cannot say what went wrong.
pub struct ImageDevice {
    engine: Arc<Engine>,
    workers: Vec<JoinHandle<()>>,
    path: PathBuf,
    header: Header,
    /// Neither closed nor abandoned.
    is_open: bool,
}

impl ImageDevice {
    /// Opens and locks the image at `path`. An image that this process may only read is opened for reading, whatever
    /// `options` say: see [`DeviceInfo::read_only`].
    ///
    /// # Errors
    /// [`ImageError`], naming what is wrong; then the file is as it was.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<ImageDevice, ImageError> {
        ImageDevice::start(open::open(path, options.mode, options.kept_max)?, options)
    }

    /// Opens the image that `backing` holds; `name` stands for a path in messages. For tests: nothing is locked.
    ///
    /// # Errors
    /// As [`ImageDevice::open`].
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
        let engine = Engine::new(info, &header, options.hw_queue_depth.max(1), backing, ledger, &states);
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

    /// What the image is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The zones, for inspection.
    pub fn zones(&self) -> &Zones {
        self.engine.zones()
    }

    /// Why the image takes no more changes, if a flush has failed.
    pub fn failure(&self) -> Option<ImageError> {
        let failure = self.engine.failure()?;
        Some(ImageError::Failed { path: self.path.clone(), failure })
    }

    /// Carries out what was submitted, makes everything durable and notes that the image was closed in order. Completions
    /// that were not polled are gone.
    ///
    /// # Errors
    /// [`ImageError::Failed`].
    pub fn close(mut self) -> Result<(), ImageError> {
        self.close_once().map_err(|failure| ImageError::Failed { path: self.path.clone(), failure })
    }

    /// Lets go of the image as a killed process would: what was submitted may or may not happen, and nothing is made
    /// durable.
    pub fn abandon(mut self) {
        self.is_open = false;
        self.engine.discard_jobs();
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
        self.engine.end_work();
        for worker in self.workers.drain(..) {
            // A worker dies only of a bug, whose message is out already.
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
            // No caller is left to be told.
            eprintln!("zonal: {}", ImageError::Failed { path: self.path.clone(), failure });
        }
    }
}

/// The name that opens the image at `path`.
fn name_of(path: &Path) -> String {
    let path = path.display().to_string();
    // After a comma come options, unless the path stands in brackets.
    let needs_brackets = path.contains(',') || path.starts_with('[');
    if needs_brackets { format!("image:[{path}]") } else { format!("image:{path}") }
}

fn info(path: &Path, header: &Header, options: &OpenOptions) -> DeviceInfo {
    let block = header.block_sectors;
    let zone_max = header.geometry.zone_capacity().0 as u32;
    let whole_blocks = |sectors: u32| sectors / block * block;
    let command_sectors_max = whole_blocks(options.max_sectors).max(block);
    DeviceInfo {
        name: name_of(path),
        identity: header.identity,
        cache: None,
        geometry: header.geometry,
        block_sectors: block,
        open_max: header.open_max,
        active_max: header.active_max,
        command_sectors_max,
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
        keeps_order: options.preserves_write_order,
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
        _now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        if self.info().read_only {
            match command.op {
                Op::Read | Op::Verify | Op::Report => {}
                // There is nothing to make durable.
                Op::Flush => return Submitted::Done(Ok(Output::Done)),
                _ => return Submitted::Done(Err(DeviceError::OpenedForReading)),
            }
        }
        let inline = if self.workers.is_empty() { Inline::Yes } else { Inline::No };
        self.engine.submit(queue, command, context, inline)
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
        Insight { misplaces: true, contention: self.engine.contention(), ..Insight::default() }
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
