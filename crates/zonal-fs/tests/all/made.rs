//! A file system with its metadata in memory, so that it can be closed, inspected and reopened.

use crate::common::{Impatient, device, impatient, make_with, reopen, superblock, volume, waiter};
use std::cell::Cell;
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_fs::drive::Drive;
use zonal_fs::format::Superblock;
use zonal_fs::fsck::{Finding, Options, check};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, MountOptions};
use zonal_io::volume::Volume;

/// A waiter with a wall clock set by the test.
pub struct At {
    usual: Impatient,
    pub wall: Cell<i64>,
    /// Step of the clock at each query.
    step: i64,
}

impl At {
    pub fn new(wall: i64) -> At {
        At { usual: impatient(), wall: Cell::new(wall), step: 0 }
    }

    /// The first answer is later than `wall`, and each later than the previous one.
    pub fn ticking(wall: i64) -> At {
        At { step: 1, ..At::new(wall) }
    }
}

impl Wait for At {
    fn now(&self) -> Nanos {
        self.usual.now()
    }

    fn wall(&self) -> i64 {
        self.wall.set(self.wall.get() + self.step);
        self.wall.get()
    }

    fn wait(&self, volume: &Volume) {
        self.usual.wait(volume);
    }

    fn done(&self) {
        self.usual.done();
    }
}

/// A drive in memory and its metadata, which outlive the file system.
pub struct Made {
    volume: Arc<Volume>,
    pub superblock: Superblock,
    pub memory: Memory,
}

impl Made {
    pub fn new() -> (Made, FileSystem) {
        Made::on("ram:size=16M,zone_size=512K,blocksize=4096")
    }

    pub fn on(drive: &str) -> (Made, FileSystem) {
        let volume = volume(device(drive));
        let (superblock, memory) = (superblock(&volume, 0, 8), Memory::new());
        let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
        (Made { volume, superblock, memory }, fs)
    }

    pub fn open(&self) -> FileSystem {
        let (volume, superblock) = (self.volume.clone(), self.superblock.clone());
        reopen(volume, superblock, self.memory.clone(), MountOptions::default()).unwrap()
    }

    /// Findings of fsck while the file system is closed.
    pub fn findings(&self) -> Vec<Finding> {
        let rows = Rows::open(self.memory.clone(), 1 << 22).unwrap();
        let drive = Drive::new(self.volume.clone());
        check(&rows, &self.superblock, &drive, &waiter(), Options::default().with_data(true)).unwrap()
    }
}
