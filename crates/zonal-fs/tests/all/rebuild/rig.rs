//! A file system on a drive with a backing that forgets unsynced data, and the loss of its
//! metadata.

use crate::common::{contents, waiter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::fsck::{Finding, Options, check};
use zonal_fs::make::{Access, MakeError, MakeOptions, make, open, open_rows, superblock};
use zonal_fs::rebuild::{RebuildError, RebuildOptions, Rebuilt, rebuild};
use zonal_fs::superblocks;
use zonal_fs::waiter::{Waiters, polling};
use zonal_fs::{FileSystem, MountOptions};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

pub const UUID: [u8; 16] = *b"lost its metadat";
pub const BLOCK: usize = 4096;
pub const ZONE_BYTES: u64 = 512 << 10;

/// Location of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    Conventional,
    Logged,
    Beside,
}

pub const EVERYWHERE: [Where; 3] = [Where::Conventional, Where::Logged, Where::Beside];

/// Paths, and the bytes of files.
pub type Contents = BTreeMap<String, Option<Vec<u8>>>;

pub struct Rig {
    pub place: Where,
    pub backing: Arc<CutBacking>,
    directory: TempDir,
}

pub fn waiters() -> Waiters {
    polling(Clock::start())
}

impl Rig {
    /// A drive of 40 zones with an empty file system. 16 zones are conventional if the metadata are
    /// in conventional zones.
    pub fn new(place: Where, seed: u64) -> Rig {
        Rig::with(place, seed, MakeOptions::default())
    }

    pub fn with(place: Where, seed: u64, options: MakeOptions) -> Rig {
        let backing = Arc::new(CutBacking::new(seed));
        let image = ImageOptions::default()
            .with_size(40 * ZONE_BYTES)
            .with_zone_size(ZONE_BYTES)
            .with_zone_nr_conv(if place == Where::Conventional { 16 } else { 0 })
            .with_blocksize(4096)
            .with_creation([9; 16]);
        image.format(&*backing).unwrap();
        let rig = Rig { place, backing, directory: tempfile::tempdir().unwrap() };
        let options = options.with_unit_bytes(8 * BLOCK as u32).with_beside(rig.beside());
        make(&rig.drive(), &waiters(), UUID, &options).unwrap();
        rig.backing.sync().unwrap();
        rig
    }

    pub fn beside(&self) -> Option<PathBuf> {
        (self.place == Where::Beside).then(|| self.directory.path().join("rows"))
    }

    pub fn drive(&self) -> Arc<Drive> {
        self.reach().unwrap()
    }

    pub fn reach(&self) -> Result<Arc<Drive>, String> {
        self.reach_through(|device| device)
    }

    /// Opens the drive through a wrapper.
    pub fn reach_through(
        &self,
        wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> Result<Arc<Drive>, String> {
        let options = OpenOptions::default().with_threads(0);
        let device = ImageDevice::open_backing(Path::new("twin"), self.backing.clone(), &options);
        let options = VolumeOptions::default().without_budget();
        let volume = Volume::open(wrap(Arc::new(device.map_err(|e| e.to_string())?)), options);
        Ok(Arc::new(Drive::new(Arc::new(volume.map_err(|e| e.to_string())?))))
    }

    pub fn open(&self) -> FileSystem {
        let options = MountOptions::default().with_cache_bytes(1 << 20);
        open(&self.drive(), &waiters(), self.beside(), options).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn contents(&self) -> Contents {
        contents(&self.open()).unwrap()
    }

    /// Cuts the power and restores it.
    pub fn cut(&mut self, seed: u64) {
        if self.backing.is_on() {
            self.backing.cut();
        }
        self.backing = Arc::new(self.backing.restart(seed));
    }

    /// Cuts the power, and returns the drive after it is restored.
    pub fn restarted(mut self, seed: u64) -> Rig {
        self.cut(seed);
        self
    }

    /// Overwrites blocks of zone 0, or of the conventional zones.
    pub fn scribble(&self, block: u64, blocks: u32) {
        let mut buf = IoBuf::zeroed(blocks * BLOCK as u32);
        buf.fill(0x5A);
        let drive = self.drive();
        drive.write(&waiter(), Sector(block * 8), buf).unwrap();
        drive.flush(&waiter()).unwrap();
    }

    /// Makes everything on the drive durable, without a commit.
    pub fn drive_flush(&self, fs: &FileSystem) {
        Drive::new(fs.volume().clone()).flush(&waiter()).unwrap();
    }

    pub fn reset(&self, zone: u32) {
        let drive = self.drive();
        drive.zone(&waiter(), Op::ZoneReset, ZoneIndex(zone)).unwrap();
        drive.flush(&waiter()).unwrap();
    }

    /// Destroys the metadata.
    pub fn lose_metadata(&self) {
        match self.place {
            Where::Conventional => (0..16).for_each(|zone| self.scribble(4 + zone * 100, 100)),
            Where::Logged => {
                let found = superblocks::find(&self.drive(), &waiter()).unwrap();
                found.copy.anchor.zones.iter().for_each(|zone| self.reset(zone.0));
            }
            Where::Beside => std::fs::remove_file(self.beside().unwrap()).unwrap(),
        }
    }

    /// Destroys all copies of the superblock.
    pub fn lose_superblock(&self) {
        match self.place {
            Where::Conventional => self.scribble(0, 4),
            _ => (0..2).for_each(|zone| self.reset(zone)),
        }
    }

    pub fn rebuild(&self) -> Result<Rebuilt, RebuildError> {
        self.rebuild_with(RebuildOptions::default())
    }

    pub fn rebuild_with(&self, options: RebuildOptions) -> Result<Rebuilt, RebuildError> {
        rebuild(&self.drive(), &waiters(), &options.with_beside(self.beside()))
    }

    /// Findings of fsck, with all data read.
    pub fn findings(&self) -> Vec<Finding> {
        self.try_findings().unwrap()
    }

    /// Findings of fsck, or the error that keeps it from opening the file system.
    pub fn try_findings(&self) -> Result<Vec<Finding>, MakeError> {
        let (drive, waiters) = (self.drive(), waiters());
        let superblock = superblock(&drive, &waiter())?;
        let rows = open_rows(&drive, &waiters, self.beside(), &superblock, Access::Verify)?;
        Ok(check(&rows, &superblock, &drive, &waiter(), Options::default().with_data(true))?)
    }

    /// A drive of this kind with these bytes, and the given bytes in the file beside it.
    pub fn copied(&self, drive: &[u8], file: &[u8]) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let copy = Rig { place: self.place, backing: Arc::new(CutBacking::with_bytes(drive, 1)), directory };
        if let Some(path) = copy.beside() {
            std::fs::write(path, file).unwrap();
        }
        copy
    }
}
