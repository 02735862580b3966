//! Prepares the device for the file system of a run by erasing it.

use crate::error::BenchError;
use crate::jobs::run::prepare;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_fs::superblocks::COPY_BLOCKS;
use zonal_fs::{BLOCK_BYTES, BLOCK_SECTORS};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Command, Device};
use zonal_io::owner::ZONAL_MAGIC;
use zonal_io::volume::{read_alone, run_alone};

/// Erases the device.
pub(super) fn empty(device: &dyn Device) -> Result<(), BenchError> {
    if has_file_system(device) {
        forget(device)?;
    }
    prepare::erase(device)
}

/// True if there is a copy of a superblock in the place for devices with conventional zones.
fn has_file_system(device: &dyn Device) -> bool {
    (0..COPY_BLOCKS).any(|copy| {
        let sector = Sector(u64::from(copy * BLOCK_SECTORS));
        let (block, result) = read_alone(device, sector, IoBuf::zeroed(BLOCK_BYTES));
        result.is_ok() && block.starts_with(&ZONAL_MAGIC)
    })
}

/// Destroys the superblock in conventional zones. One in a sequential zone is erased by the zone's
/// reset.
fn forget(device: &dyn Device) -> Result<(), BenchError> {
    let sectors = COPY_BLOCKS * BLOCK_SECTORS;
    let zeroes = Command::new(Op::WriteZeroes, Sector(0), sectors);
    if !device.info().geometry.is_conventional(ZoneIndex(0)) {
        return Ok(());
    }
    run_alone(device, &zeroes)
        .map(drop)
        .map_err(|error| BenchError::Forget { device: device.info().name.clone(), error })
}
