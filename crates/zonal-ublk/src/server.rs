//! Life cycle of a block device: created or taken over, served, and deleted.

mod takeover;
mod threads;

use crate::control::{Control, UblkError, disk, open_character_device};
use crate::parameters;
use crate::queue::{Drive, Reissued};
use crate::wire::{self, DeviceFacts, feature};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use threads::QueueThreads;
use zonal_io::Volume;
use zonal_io::clock::Clock;
use zonal_io::volume::{Part, PartKind, Request};

/// Queue depth.
const DEPTH: u16 = 128;

/// Interval at which the owner checks for a shutdown request.
const LOOK: Duration = Duration::from_millis(100);

/// Options of a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UblkOptions {
    /// Number of hardware queues, each with a thread: at least 1 and at most the number of
    /// processors.
    pub queues: u16,
    /// True if the threads poll instead of sleeping.
    pub polls: bool,
    /// True if the disk is read-only.
    pub read_only: bool,
}

impl Default for UblkOptions {
    /// One queue with a sleeping thread, for a writable disk.
    fn default() -> UblkOptions {
        UblkOptions { queues: 1, polls: false, read_only: false }
    }
}

zonal_core::setters! {
    UblkOptions
    /// Number of hardware queues.
    with_queues queues: u16;
    /// True if the threads poll instead of sleeping.
    with_polls polls: bool;
    /// True if the disk is read-only.
    with_read_only read_only: bool;
}

struct Shared {
    drive: Arc<Drive>,
    file: OwnedFd,
    clock: Clock,
    depth: u16,
    polls: bool,
    has_to_end: Arc<AtomicBool>,
    /// A thread has ended before the device.
    is_broken: AtomicBool,
    /// Requests in flight per queue, updated by each thread before it waits.
    in_flight: Arc<[AtomicU32]>,
}

/// Marks this thread and its later children as part of the memory write-back path: when they
/// allocate memory, the kernel does not wait for dirty pages of a disk, which in turn would wait
/// for these threads. A server calls this before it opens its device, because the device's threads
/// write as well. No effect without `CAP_SYS_RESOURCE`.
pub fn set_io_flusher() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Running server of a block device.
pub struct UblkServer {
    shared: Arc<Shared>,
    control: Control,
    device: u32,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl UblkServer {
    /// Serves `volume` as a block device until `has_to_end` is set. If the drive has an identity, a
    /// device left over by a killed server of the same drive is taken over, with its number and its
    /// users.
    ///
    /// Here and in [`UblkServer::join`], driver commands that wait for requests of the disk are
    /// issued from a forked process: see [`Control::command_in_child`].
    ///
    /// # Errors
    /// [`UblkError`].
    pub fn start(
        volume: Arc<Volume>,
        clock: Clock,
        options: UblkOptions,
        has_to_end: Arc<AtomicBool>,
    ) -> Result<UblkServer, UblkError> {
        let mut control = Control::open()?;
        set_io_flusher();
        let info = volume.info();
        let parameters = parameters::of(info, volume.append_sectors_max(), options.read_only)?;
        let mark = takeover::mark_of(info);
        let left = takeover::find(&mut control, mark, &parameters)?;
        let is_new = left.is_none();
        let facts = match left {
            Some(facts) => facts,
            None => add(&mut control, options.queues, mark, info.identity.is_some())?,
        };
        let start = || {
            // Acquire all resources first: Linux 6.12 does not cope with a server that fails after
            // some queues have started.
            let drive = drive(&volume, facts.bytes_max, !is_new);
            let threads = QueueThreads::start(&drive, &facts).map_err(UblkError::refused("its threads"))?;
            match is_new {
                true => control
                    .set_parameters(facts.device, &parameters)
                    .map_err(UblkError::refused("its parameters"))?,
                false => takeover::begin(&mut control, facts.device)?,
            }
            let shared = Arc::new(Shared {
                drive,
                file: open_character_device(facts.device)
                    .map_err(UblkError::refused("its character device"))?,
                clock,
                depth: facts.depth,
                polls: options.polls,
                has_to_end,
                is_broken: AtomicBool::new(false),
                in_flight: (0..facts.queues).map(|_| AtomicU32::new(0)).collect(),
            });
            let command = if is_new { wire::control::START } else { wire::control::END_RECOVERY };
            let threads = threads.begin(&shared).and_then(|threads| {
                control.command_in_child(command, facts.device, std::process::id().into())?;
                Ok(threads)
            });
            Ok((shared, threads.map_err(UblkError::refused("the start of its disk"))?))
        };
        match start() {
            Ok((shared, threads)) => Ok(UblkServer { shared, control, device: facts.device, threads }),
            Err(error) => {
                // The device is deleted with its threads. A taken-over device is left for another
                // process, as threads of this one may still use it.
                if is_new {
                    let _ = control.delete(facts.device);
                }
                Err(error)
            }
        }
    }

    /// Path of the block device.
    pub fn disk(&self) -> String {
        disk(self.device)
    }

    /// Returns a function that lists the number of kernel requests in flight per hardware queue.
    pub fn in_flight_source(&self) -> impl Fn() -> Vec<u32> + Send + Sync + 'static {
        let in_flight = self.shared.in_flight.clone();
        move || in_flight.iter().map(|in_flight| in_flight.load(Ordering::Relaxed)).collect()
    }

    /// Waits for shutdown: until it is requested, the disk is removed, requests at the drive have
    /// completed, and the volume is flushed. If a thread has failed, returns at once, as if the
    /// process was killed, because the kernel would wait for that thread's requests.
    ///
    /// # Errors
    /// Errors of a thread, the kernel, or the flush.
    pub fn join(mut self) -> io::Result<()> {
        while !self.shared.has_to_end.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK);
        }
        if self.shared.is_broken.load(Ordering::Acquire) {
            return Err(first_end(self.threads));
        }
        // The threads complete requests meanwhile, and end with the disk.
        let mut result = self.control.command_in_child(wire::control::STOP, self.device, 0);
        if result.is_err() && !self.threads.iter().all(JoinHandle::is_finished) {
            return result;
        }
        for thread in self.threads {
            result = result.and(end_of(thread));
        }
        let Shared { drive, clock, .. } = &*self.shared;
        let flush = drive.part().volume().call(clock, Request::flush());
        // Before Linux 6.9 the kernel deletes a device only once all its files are closed,
        // including this process's.
        drop(self.shared);
        let removed = self.control.delete(self.device);
        result.and(removed).and(flush.result.map(drop).map_err(io::Error::other))
    }
}

/// Adds a device. With `outlives` it stays when its server is killed, for a successor to find.
fn add(control: &mut Control, queues: u16, mark: u64, outlives: bool) -> Result<DeviceFacts, UblkError> {
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let recovery = if outlives { recovery } else { 0 };
    let mut facts = DeviceFacts {
        queues: queues.max(1),
        depth: DEPTH,
        bytes_max: parameters::BYTES_MAX,
        device: u32::MAX,
        pid: std::process::id() as i32,
        features: feature::IOCTL_ENCODE | feature::USER_COPY | feature::ZONED | recovery,
        mark,
        ..DeviceFacts::default()
    };
    control.add(&mut facts).map_err(UblkError::refused("a new device"))?;
    Ok(facts)
}

fn drive(volume: &Arc<Volume>, bytes_max: u32, is_taken_over: bool) -> Arc<Drive> {
    let zones = volume.info().geometry.zones();
    let part = Part::with(volume.clone(), 0..zones, PartKind::Drive).expect("a volume has its own zones");
    let bytes_max = bytes_max.min(wire::BYTES_MAX);
    Arc::new(Drive::new(part, bytes_max, is_taken_over.then(|| Reissued::new(zones))))
}

fn end_of(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().map_err(|_| io::Error::other("a thread of the server panicked"))?
}

/// Error of the first thread to end. Waits for one.
fn first_end(mut threads: Vec<JoinHandle<io::Result<()>>>) -> io::Error {
    loop {
        if let Some(place) = threads.iter().position(JoinHandle::is_finished) {
            let ended = end_of(threads.swap_remove(place));
            return ended.err().unwrap_or_else(|| io::Error::other("a thread of the server ended"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
