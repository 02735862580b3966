//! A drive over a twin that forgets, and the storages on it.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op, Sector, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::store::backend::{BackendError, Conventional, Logged};
use zonal_fs::waiter::{Waiters, polling};
use zonal_io::device::{Command, Completed, Context, Device, DeviceInfo, Submitted};
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

pub const UUID: [u8; 16] = *b"a file system id";

/// What an image is like.
#[derive(Clone, Copy)]
pub struct Shape {
    pub zone_bytes: u64,
    pub capacity_bytes: u64,
    pub zones: u64,
    pub conventional: u32,
    pub block_bytes: u32,
}

/// Eight conventional zones and five others, of 1 MiB.
pub const SMALL: Shape =
    Shape { zone_bytes: 1 << 20, capacity_bytes: 1 << 20, zones: 13, conventional: 8, block_bytes: 4096 };

/// Only three zones for a log, which end before the next one begins and in the midst of a block of 4 KiB.
pub const TIGHT: Shape = Shape {
    zone_bytes: 2 << 20,
    capacity_bytes: (1 << 20) + 3 * 512,
    zones: 7,
    conventional: 4,
    block_bytes: 512,
};

impl Shape {
    pub fn log_zones(&self) -> Vec<ZoneIndex> {
        (self.conventional..self.zones as u32).map(ZoneIndex).collect()
    }

    pub fn format(&self, backing: &CutBacking) {
        let options = ImageOptions {
            size: Some(self.zones * self.zone_bytes),
            zone_size: Some(self.zone_bytes),
            zone_capacity: Some(self.capacity_bytes),
            zone_nr_conv: Some(self.conventional),
            zone_max_open: Some(1),
            zone_max_active: Some(1),
            blocksize: Some(self.block_bytes),
            creation: Some([9; 16]),
            ..Default::default()
        };
        options.format(backing).unwrap();
    }
}

pub fn image(backing: &Arc<CutBacking>) -> ImageDevice {
    let options = OpenOptions { threads: 0, ..Default::default() };
    ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options).unwrap()
}

pub fn drive(device: Arc<dyn Device>) -> Arc<Drive> {
    Arc::new(Drive::new(Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())))
}

pub fn waiters() -> Waiters {
    polling(Instant::now())
}

/// A device that notes what it is asked to do.
pub struct Watched {
    inner: Arc<dyn Device>,
    seen: Mutex<Vec<Op>>,
    info: DeviceInfo,
}

impl Watched {
    pub fn new(inner: Arc<dyn Device>) -> Watched {
        // Without a cache nobody would flush.
        let info = DeviceInfo { volatile_cache: true, ..inner.info().clone() };
        Watched { inner, seen: Mutex::default(), info }
    }

    pub fn seen(&self) -> Vec<Op> {
        self.seen.lock().clone()
    }
}

impl Device for Watched {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        self.seen.lock().push(command.op);
        self.inner.submit(now, queue, command, context)
    }
    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        self.inner.poll(now, queue, budget, done)
    }
    fn wait(&self, timeout: Duration) {
        self.inner.wait(timeout);
    }
}

/// How a storage is reached: to be made, or as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Create,
    Open,
}

pub fn logged(drive: Arc<Drive>, zones: Vec<ZoneIndex>, access: Access) -> Result<Logged, BackendError> {
    match access {
        Access::Create => Logged::create(drive, waiters(), zones, UUID),
        Access::Open => Logged::open(drive, waiters(), zones, UUID),
    }
}

pub fn conventional(drive: Arc<Drive>, access: Access) -> Result<Conventional, BackendError> {
    let geometry = drive.volume().info().geometry;
    let sectors = Sector(8)..geometry.start_of(ZoneIndex(geometry.conventional_zones()));
    match access {
        Access::Create => Conventional::create(drive, waiters(), sectors, UUID),
        Access::Open => Conventional::open(drive, waiters(), sectors, UUID),
    }
}
