//! The device that a file system is made on for a run: emptied, whatever was there, unless that was a file system with files of a user.

use crate::error::BenchError;
use crate::jobs::run::prepare;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_fs::format::Superblock;
use zonal_fs::superblocks::COPY_BLOCKS;
use zonal_fs::{BLOCK_BYTES, BLOCK_SECTORS};
use zonal_io::buffer::IoBuf;
use zonal_io::data::Data;
use zonal_io::device::{Command, Device};
use zonal_io::volume::{read_alone, run_alone};

/// Empties the device. A file system that is there is lost only if the caller asks for that.
pub(super) fn empty(device: &dyn Device, overwrite: bool) -> Result<(), BenchError> {
    if let Some(label) = file_system(device) {
        if !overwrite {
            return Err(BenchError::InUse { device: device.info().name.clone(), label });
        }
        forget(device)?;
    }
    prepare::erase(device)
}

/// The name of the file system on `device`, if there is one.
fn file_system(device: &dyn Device) -> Option<String> {
    let block = |copy: u32| {
        let sector = Sector(u64::from(copy * BLOCK_SECTORS));
        let (block, result) = read_alone(device, sector, IoBuf::zeroed(BLOCK_BYTES));
        result.ok().and_then(|()| Superblock::decode(&block).ok())
    };
    (0..COPY_BLOCKS).find_map(block).map(|superblock| superblock.label)
}

/// Makes it no file system any more. One in a sequential zone goes when that is reset.
fn forget(device: &dyn Device) -> Result<(), BenchError> {
    let sectors = COPY_BLOCKS * BLOCK_SECTORS;
    let zeroes = Command { op: Op::WriteZeroes, fua: false, sectors, sector: Sector(0), data: Data::NONE };
    if !device.info().geometry.is_conventional(ZoneIndex(0)) {
        return Ok(());
    }
    run_alone(device, &zeroes)
        .map(drop)
        .map_err(|error| BenchError::Forget { device: device.info().name.clone(), error })
}
