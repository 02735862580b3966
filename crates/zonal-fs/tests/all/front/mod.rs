//! What a front of a kernel asks for: calls that do in one step what several would do with gaps between them.

mod files;
mod known;
mod ranges;
mod refused;
mod setattr;
mod xattrs;

use crate::common::{device, make_with, reopen, superblock, volume, waiter};
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::format::{Kind, Superblock};
use zonal_fs::fsck::{Finding, Options, check};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, MountOptions, NewFile, ROOT};
use zonal_io::volume::Volume;

/// A drive and the place of its metadata, which outlive the file system.
struct Made {
    volume: Arc<Volume>,
    superblock: Superblock,
    memory: Memory,
}

impl Made {
    fn new() -> (Made, FileSystem) {
        let volume = volume(device("ram:size=16M,zone_size=512K,blocksize=4096"));
        let (superblock, memory) = (superblock(&volume, 0, 8), Memory::new());
        let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
        (Made { volume, superblock, memory }, fs)
    }

    fn open(&self) -> FileSystem {
        let (volume, superblock) = (self.volume.clone(), self.superblock.clone());
        reopen(volume, superblock, self.memory.clone(), MountOptions::default()).unwrap()
    }

    /// What fsck finds while the file system is closed.
    fn findings(&self) -> Vec<Finding> {
        let rows = Rows::open(self.memory.clone(), 1 << 22).unwrap();
        let drive = Drive::new(self.volume.clone());
        check(&rows, &self.superblock, &drive, &waiter(), Options { data: true }).unwrap()
    }
}

fn new_file() -> NewFile {
    NewFile::new(Kind::File, 0o644)
}

fn file(fs: &FileSystem, name: &[u8]) -> u64 {
    fs.create(&waiter(), ROOT, name, &new_file()).unwrap()
}
