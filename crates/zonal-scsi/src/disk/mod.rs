//! Host-managed zoned disk: one logical unit over a volume, with the semantics of its commands.
//!
//! The disk behaves like the bare drive. A write that is not at the write pointer of its zone fails
//! at once, and so does a write without a free open zone resource. Conventional and sequential
//! zones are on the same disk.
//!
//! A command is looked up in a single table of operations (`operations`), which also lists the bits
//! allowed in its descriptor. Its function then completes the command at once or returns work for
//! the volume (`work`).
//!
//! # Gaps
//! If zones have less capacity than size, the rest of each is a gap zone (ZBC 4.4.3.7). The length
//! of a zone is then its capacity, and zones start at multiples of their size. Linux supports such
//! a disk with zone alignment method 8.
//!
//! # Limitations
//! Reads with FUA return the newest data, wherever it is. IMMED is accepted, but commands complete
//! only when done. START STOP UNIT flushes; the disk stays ready.

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

/// Maximum transfer length of a command in sectors: 32 MiB. The volume splits transfers beyond the
/// drive's limit.
///
/// Larger than a single virtio-scsi transfer, because Linux does not split everything: a file
/// system's zone append becomes a write of up to the transport's limit or the zone size, whatever
/// limit the disk reports.
const TRANSFER_SECTORS_MAX: u32 = 1 << 16;

/// Options of a disk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskOptions {
    /// Source of the serial number and the designators.
    pub identity: Identity,
    /// True if initiators may only read.
    pub read_only: bool,
}

impl DiskOptions {
    /// Options for a writable disk with this identity.
    pub const fn new(identity: Identity) -> DiskOptions {
        DiskOptions { identity, read_only: false }
    }
}

zonal_core::setters! {
    DiskOptions
    /// True if initiators may only read.
    with_read_only read_only: bool;
}

/// Reason why a volume cannot be exported as a disk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The device has no sequential zones.
    #[error("{device}: no sequential zones, which a host-managed disk requires")]
    NotZoned {
        /// Device name.
        device: String,
    },
    /// The command limit of the device is smaller than its block.
    #[error("{device}: the command limit is smaller than a block of {block} bytes")]
    Command {
        /// Device name.
        device: String,
        /// Block size in bytes.
        block: u32,
    },
    /// Error of the volume's zones.
    #[error(transparent)]
    Part(#[from] LinearError),
}

/// Logical unit over a volume.
pub struct Disk {
    part: Part,
    identity: Identity,
    is_read_only: bool,
}

/// Command with its memory, as passed to its function.
pub(crate) struct Invocation<'a> {
    pub(crate) cdb: &'a Cdb,
    pub(crate) data_out: &'a IoBufs,
    /// Size of the transport's buffer for data to the initiator, in bytes.
    pub(crate) data_in_len: usize,
    /// True if the command may already have been executed.
    pub(crate) is_reissued: bool,
}

/// Result of starting a command.
pub(crate) enum Started {
    /// Success, with the number of bytes consumed from the initiator's data.
    Done(u32),
    /// Success, with data and the initiator's allocation length.
    Data(Vec<u8>, u32),
    /// Work for the volume.
    Working(Work),
}

impl Disk {
    /// Creates a disk over all zones of `volume`. The volume must not park writes or enforce a zone
    /// budget, because the disk behaves like the bare drive.
    ///
    /// # Errors
    /// [`DiskError`] if the device has no sequential zones or cannot transfer a single block.
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

    /// Volume of the disk. The driver has to poll it.
    pub fn volume(&self) -> &Arc<Volume> {
        self.part.volume()
    }

    /// Logical block size in bytes.
    pub fn block_len(&self) -> u32 {
        self.block_sectors() * 512
    }

    /// Number of logical blocks.
    pub fn blocks(&self) -> u64 {
        self.geometry().sectors().0 / u64::from(self.block_sectors())
    }

    /// Maximum transfer length of READ, WRITE and VERIFY, in logical blocks.
    pub fn transfer_blocks_max(&self) -> u32 {
        TRANSFER_SECTORS_MAX / self.block_sectors()
    }

    /// Command limit of the drive, in logical blocks.
    pub(crate) fn command_blocks_max(&self) -> u32 {
        self.part.info().command_sectors_max / self.block_sectors()
    }

    /// True if initiators may only read.
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

    /// Converts sectors to logical blocks.
    pub(crate) fn in_blocks(&self, sectors: u64) -> u64 {
        sectors / u64::from(self.block_sectors())
    }

    /// True if sequential zones end in a gap.
    pub(crate) fn has_gaps(&self) -> bool {
        self.geometry().zone_capacity() < self.geometry().zone_size()
    }

    /// True if blocks of conventional zones can be discarded.
    pub(crate) fn has_discard(&self) -> bool {
        self.part.info().discard_sectors_max > 0 && self.geometry().conventional_zones() > 0
    }

    /// End of the conventional zones, which are at the start.
    pub(crate) fn conventional_end(&self) -> Sector {
        let geometry = self.geometry();
        match geometry.conventional_zones() {
            conventional if conventional >= geometry.zones() => Sector(geometry.sectors().0),
            conventional => geometry.start_of(ZoneIndex(conventional)),
        }
    }

    /// Converts a logical block to a sector.
    ///
    /// # Errors
    /// [`SenseCode::LBA_OUT_OF_RANGE`].
    pub(crate) fn sector(&self, lba: u64) -> Result<Sector, CheckCondition> {
        match lba < self.blocks() {
            true => Ok(Sector(lba * u64::from(self.block_sectors()))),
            false => Err(SenseCode::LBA_OUT_OF_RANGE.into()),
        }
    }

    /// Converts a range of logical blocks to a sector and a number of sectors.
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

    /// Starts a command for unit `lun`.
    ///
    /// # Errors
    /// [`Failure`] if the command is refused regardless of zone state.
    pub(crate) fn begin(&self, lun: u16, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        if lun != 0 {
            return self.begin_missing_unit(invocation);
        }
        let operation = Operation::find(self, invocation.cdb)?;
        operation.check(invocation.cdb)?;
        if operation.is_change && self.is_read_only {
            return Err(SenseCode::WRITE_PROTECTED.into());
        }
        (operation.begin)(self, invocation)
    }
}
