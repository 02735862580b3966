//! A drive on a backing that forgets unsynced data, and the storages on it.

use std::path::Path;
use std::sync::Arc;
use zonal_core::ZoneIndex;
use zonal_fs::drive::Drive;
use zonal_fs::format::{Anchor, Metadata, Superblock};
use zonal_fs::make::{MakeError, MakeOptions, make, make_in};
use zonal_fs::store::backend::{BackendError, Store, StoreFile, log};
use zonal_fs::superblocks::{self, Writer};
use zonal_fs::waiter::{Waiters, polling};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageError, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

pub const UUID: [u8; 16] = *b"a file system id";

/// Properties of an image.
#[derive(Clone, Copy)]
pub struct Shape {
    pub zone_bytes: u64,
    pub capacity_bytes: u64,
    pub zones: u64,
    pub conventional: u32,
    pub block_bytes: u32,
    /// Maximum number of active zones, 0 for no limit.
    pub active: u32,
}

/// Eight conventional and five sequential zones of 1 MiB.
pub const SMALL: Shape = Shape {
    zone_bytes: 1 << 20,
    capacity_bytes: 1 << 20,
    zones: 13,
    conventional: 8,
    block_bytes: 4096,
    active: 0,
};

/// Only three zones for a log. Their capacity is smaller than their size, and ends in the middle of
/// a block of 4 KiB.
pub const TIGHT: Shape = Shape {
    zone_bytes: 2 << 20,
    capacity_bytes: (1 << 20) + 3 * 512,
    zones: 7,
    conventional: 4,
    block_bytes: 512,
    active: 1,
};

impl Shape {
    /// All zones except conventional ones and homes of the superblock.
    pub fn log_zones(&self) -> Vec<ZoneIndex> {
        let first = if self.conventional > 0 { self.conventional } else { 2 };
        (first..self.zones as u32).map(ZoneIndex).collect()
    }

    pub fn format(&self, backing: &CutBacking) {
        let options = ImageOptions::default()
            .with_size(self.zones * self.zone_bytes)
            .with_zone_size(self.zone_bytes)
            .with_zone_capacity(self.capacity_bytes)
            .with_zone_nr_conv(self.conventional)
            .with_zone_max_open(self.active)
            .with_zone_max_active(self.active)
            .with_blocksize(self.block_bytes)
            .with_creation([9; 16]);
        options.format(backing).unwrap();
    }
}

pub fn image(backing: &Arc<CutBacking>) -> ImageDevice {
    try_image(backing).unwrap()
}

pub fn try_image(backing: &Arc<CutBacking>) -> Result<ImageDevice, ImageError> {
    let options = OpenOptions::default().with_threads(0);
    ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options)
}

pub fn drive(device: Arc<dyn Device>) -> Arc<Drive> {
    let options = VolumeOptions::default().without_budget();
    Arc::new(Drive::new(Arc::new(Volume::open(device, options).unwrap())))
}

pub fn waiters() -> Waiters {
    polling(Clock::start())
}

/// Location of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorePlace {
    File,
    Conventional,
    Zones,
}

impl StorePlace {
    pub const ALL: [StorePlace; 3] = [StorePlace::File, StorePlace::Conventional, StorePlace::Zones];
}

fn access(drive: Arc<Drive>, file: Option<StoreFile>) -> log::Access {
    log::Access { drive, waiters: waiters(), file }
}

/// The first segments of a store in these zones.
pub fn anchor(drive: &Drive, zones: Vec<ZoneIndex>) -> Anchor {
    let is_conventional = drive.volume().info().geometry.conventional_zones() > 0;
    let homes = if is_conventional { [ZoneIndex(0); 2] } else { [ZoneIndex(0), ZoneIndex(1)] };
    Anchor { homes, zones, ..Anchor::default() }
}

/// Creates a store in `zones`, and a superblock that names it.
pub fn create(drive: Arc<Drive>, zones: Vec<ZoneIndex>) -> Result<Store, BackendError> {
    let anchor = anchor(&drive, zones);
    create_at(drive, anchor, Metadata::Logged, None)
}

/// Creates a store at the location of `anchor`.
pub fn create_at(
    drive: Arc<Drive>,
    anchor: Anchor,
    metadata: Metadata,
    file: Option<StoreFile>,
) -> Result<Store, BackendError> {
    let superblock = Superblock::new(UUID, &drive.volume().info().geometry, 8, metadata, 2);
    let writer = Writer::unmade(superblock, drive.volume(), anchor);
    let store = Store::create(access(drive, file), UUID, writer)?;
    store.make()?;
    Ok(store)
}

/// Opens the store named by the superblock.
pub fn open(drive: Arc<Drive>) -> Result<Store, MakeError> {
    let found = superblocks::find(&drive, &*waiters()())?;
    Ok(Store::open(access(drive, None), &found)?)
}

/// Makes a file system on the drive.
pub fn made(drive: &Arc<Drive>, file: Option<Arc<dyn Backing>>) -> Result<(), MakeError> {
    let options = MakeOptions::default().with_unit_bytes(8 * 4096);
    match file {
        Some(file) => make_in(drive, &waiters(), UUID, &options, file),
        None => make(drive, &waiters(), UUID, &options),
    }
    .map(drop)
}
