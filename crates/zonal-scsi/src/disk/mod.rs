//! A host-managed zoned disk: one logical unit over a volume, and what commands to it mean.
//!
//! The export is the drive and nothing else. A write that is not at its zone's pointer fails at once, and so does a write for
//! which no open zone is left. Conventional zones and sequential ones are on the same disk.
//!
//! A command is looked up in the one table of operations (`operations`). What it may have set, that table says. Then its
//! function decides: an answer at once, or work for the volume (`work`).
//!
//! # Gaps
//! Where zones have less capacity than size, the rest of each is a gap zone (ZBC 4.4.3.7). A zone's length is its capacity then,
//! and zones begin at multiples of their size. Linux takes a disk of this kind with the alignment method 8.
//!
//! # What is left out
//! Reads with FUA come from wherever the newest data are. IMMED is taken, and the answer comes once all is done. START STOP UNIT
//! flushes, and the disk stays ready.

mod identify;
mod logs;
mod modes;
pub(crate) mod operations;
mod supported;
mod transfer;
mod zones;

pub(crate) use operations::Operation;
pub(crate) use zones::ZoneFilter;

use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::Cdb;
use crate::work::Work;
use std::sync::Arc;
use zonal_core::{Geometry, Sector, ZoneIndex};
use zonal_io::Volume;
use zonal_io::buffer::IoBufs;
use zonal_io::identity::Identity;
use zonal_io::linear::LinearError;
use zonal_io::volume::{Part, PartKind};

/// Longest transfer of one command, in sectors: 32 MiB. A volume makes several commands of what is longer than the drive's longest.
///
/// It is more than virtio-scsi moves at once, because Linux does not divide all that it sends: what a file system appends becomes a
/// write of up to what the transport takes, or a zone, whatever the disk says here.
const TRANSFER_SECTORS_MAX: u32 = 1 << 16;

/// What a disk is called, and what may be done to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskOptions {
    /// Its serial number and its designators are made of this.
    pub identity: Identity,
    /// Whether initiators may only read.
    pub read_only: bool,
}

impl DiskOptions {
    /// A disk of this identity, which initiators may write.
    pub const fn new(identity: Identity) -> DiskOptions {
        DiskOptions { identity, read_only: false }
    }
}

zonal_core::setters! {
    DiskOptions
    /// Whether initiators may only read.
    with_read_only read_only: bool;
}

/// Why a volume is no disk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The device has no sequential zones.
    #[error("{device}: a host-managed disk has sequential zones, and the device has none")]
    NotZoned {
        /// Device name.
        device: String,
    },
    /// The device's largest command is shorter than its block.
    #[error("{device}: its largest command is shorter than its block of {block} bytes")]
    Command {
        /// Device name.
        device: String,
        /// Bytes of a block.
        block: u32,
    },
    /// The volume's zones.
    #[error(transparent)]
    Part(#[from] LinearError),
}

/// One logical unit over a volume. See the module.
pub struct Disk {
    part: Part,
    identity: Identity,
    is_read_only: bool,
}

/// A command and its memory, as its function sees it.
pub(crate) struct Invocation<'a> {
    pub(crate) cdb: &'a Cdb,
    pub(crate) data_out: &'a IoBufs,
    /// Bytes that the transport has for data to the initiator.
    pub(crate) data_in_len: usize,
    /// Whether it may have been carried out before.
    pub(crate) is_reissued: bool,
}

/// What becomes of a command.
pub(crate) enum Begun {
    /// It has succeeded, and has taken this number of bytes of its data.
    Done(u32),
    /// It has succeeded with these data, of which the initiator takes so much.
    Data(Vec<u8>, u32),
    /// The volume has to do something.
    Working(Work),
}

impl Disk {
    /// The disk over all zones of `volume`, which neither parks nor keeps a budget: the disk is the drive.
    ///
    /// # Errors
    /// [`DiskError`] if the device has no sequential zones, or cannot move a block.
    pub fn new(volume: Arc<Volume>, options: DiskOptions) -> Result<Disk, DiskError> {
        let info = volume.info();
        let geometry = info.geometry;
        if geometry.sequential_zones() == 0 {
            return Err(DiskError::NotZoned { device: info.name.clone() });
        }
        if info.command_sectors_max < info.block_sectors {
            let block = info.block_sectors * 512;
            return Err(DiskError::Command { device: info.name.clone(), block });
        }
        let is_read_only = options.read_only || info.read_only;
        let part = Part::with(volume, 0..geometry.zones(), PartKind::Drive)?;
        Ok(Disk { part, identity: options.identity, is_read_only })
    }

    /// The volume: the driver polls it.
    pub fn volume(&self) -> &Arc<Volume> {
        self.part.volume()
    }

    /// Bytes of a logical block.
    pub fn block_len(&self) -> u32 {
        self.block_sectors() * 512
    }

    /// Logical blocks of the disk.
    pub fn blocks(&self) -> u64 {
        self.geometry().sectors().0 / u64::from(self.block_sectors())
    }

    /// Most logical blocks of one READ, WRITE or VERIFY.
    pub fn transfer_blocks_max(&self) -> u32 {
        TRANSFER_SECTORS_MAX / self.block_sectors()
    }

    /// Logical blocks of the drive's longest command.
    pub(crate) fn command_blocks_max(&self) -> u32 {
        self.part.info().command_sectors_max / self.block_sectors()
    }

    /// Whether initiators may only read.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(crate) fn part(&self) -> &Part {
        &self.part
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.part.info().geometry
    }

    pub(crate) fn block_sectors(&self) -> u32 {
        self.part.info().block_sectors
    }

    /// Sectors as blocks.
    pub(crate) fn in_blocks(&self, sectors: u64) -> u64 {
        sectors / u64::from(self.block_sectors())
    }

    /// Whether the rest of each sequential zone is a gap.
    pub(crate) fn has_gaps(&self) -> bool {
        self.geometry().zone_capacity() < self.geometry().zone_size()
    }

    /// Whether blocks of conventional zones can be forgotten.
    pub(crate) fn has_discard(&self) -> bool {
        self.part.info().discard_sectors_max > 0 && self.geometry().conventional_zones() > 0
    }

    /// Sectors of the conventional zones, which come first.
    pub(crate) fn conventional_end(&self) -> Sector {
        let geometry = self.geometry();
        match geometry.conventional_zones() {
            conventional if conventional >= geometry.zones() => Sector(geometry.sectors().0),
            conventional => geometry.start_of(ZoneIndex(conventional)),
        }
    }

    /// The block as a sector of the disk.
    ///
    /// # Errors
    /// [`SenseCode::LBA_OUT_OF_RANGE`].
    pub(crate) fn sector(&self, lba: u64) -> Result<Sector, CheckCondition> {
        match lba < self.blocks() {
            true => Ok(Sector(lba * u64::from(self.block_sectors()))),
            false => Err(SenseCode::LBA_OUT_OF_RANGE.into()),
        }
    }

    /// Blocks from `lba` on, as a sector and a number of sectors.
    ///
    /// # Errors
    /// [`SenseCode::LBA_OUT_OF_RANGE`].
    pub(crate) fn range(&self, lba: u64, blocks: u32) -> Result<(Sector, u64), CheckCondition> {
        let sector = self.sector(lba)?;
        let sectors = u64::from(blocks) * u64::from(self.block_sectors());
        match u64::from(blocks) <= self.blocks() - lba {
            true => Ok((sector, sectors)),
            false => Err(SenseCode::LBA_OUT_OF_RANGE.into()),
        }
    }

    /// What becomes of a command to the unit `lun`.
    ///
    /// # Errors
    /// [`Failure`], for a command that is refused whatever the zones are.
    pub(crate) fn begin(&self, lun: u16, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        if lun != 0 {
            return self.begin_elsewhere(invocation);
        }
        let operation = Operation::find(self, invocation.cdb)?;
        operation.check(invocation.cdb)?;
        if operation.is_change && self.is_read_only {
            return Err(SenseCode::WRITE_PROTECTED.into());
        }
        (operation.begin)(self, invocation)
    }
}
