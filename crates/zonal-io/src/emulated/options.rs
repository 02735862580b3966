//! Options of emulated devices.

use crate::device::DeviceInfo;
use zonal_core::device::Limits;
use zonal_core::{Geometry, GeometryError, Personality, SECTOR_BYTES, Sectors};

/// Scope of locking while a command executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Locking {
    /// Per zone, only while its state changes.
    #[default]
    Zone,
    /// One command at a time on the whole device, reads included. A baseline for comparison.
    Device,
}

/// Completion mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompleteMode {
    /// From `submit`.
    #[default]
    Inline,
    /// From `poll`; the command is in flight until then.
    Poll,
}

/// Options of the emulated devices. Names and units are those of the Linux null block device where
/// it has the option. Sizes are in bytes unless the name says sectors (of 512 bytes). A limit of 0
/// means none.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EmulatedOptions {
    /// Size of the device.
    pub size: u64,
    /// Zone size, a power of two.
    pub zone_size: u64,
    /// Writable part of a sequential zone; 0 means all of it.
    pub zone_capacity: u64,
    /// Number of conventional zones; they precede all others.
    pub zone_nr_conv: u32,
    /// Maximum number of open zones.
    pub zone_max_open: u32,
    /// Maximum number of active zones.
    pub zone_max_active: u32,
    /// Largest zone append; 0 means not supported.
    pub zone_append_max_sectors: u32,
    /// True if sequential zones start full instead of empty.
    pub zone_full: bool,
    /// Logical block size, a power of two from 512 to 4096.
    pub blocksize: u32,
    /// Largest read or write.
    pub max_sectors: u32,
    /// Largest write-zeroes command; 0 means not supported.
    pub write_zeroes_max_sectors: u32,
    /// Minimum time from submission to completion, in nanoseconds. Anything but 0 implies
    /// [`CompleteMode::Poll`].
    pub completion_nsec: u64,
    /// Completion mode.
    pub complete: CompleteMode,
    /// Commands in flight on a queue before it is busy; only relevant with [`CompleteMode::Poll`].
    pub hw_queue_depth: u32,
    /// Number of queues.
    pub submit_queues: u32,
    /// True if single writes can be made durable.
    pub fua: bool,
    /// True to report a rotational medium.
    pub rotational: bool,
    /// True to preserve the order of each queue, so that several positional writes of a zone may be
    /// in flight.
    pub preserves_write_order: bool,
    /// Standard to follow.
    pub personality: Personality,
    /// Scope of locking while a command executes.
    pub lock: Locking,
}

zonal_core::setters! {
    EmulatedOptions
    /// Size of the device in bytes.
    with_size size: u64;
    /// Zone size in bytes, a power of two.
    with_zone_size zone_size: u64;
    /// Writable part of a sequential zone in bytes; 0 means all of it.
    with_zone_capacity zone_capacity: u64;
    /// Number of conventional zones; they precede all others.
    with_zone_nr_conv zone_nr_conv: u32;
    /// Maximum number of open zones; 0 means no limit.
    with_zone_max_open zone_max_open: u32;
    /// Maximum number of active zones; 0 means no limit.
    with_zone_max_active zone_max_active: u32;
    /// Largest zone append in sectors; 0 means not supported.
    with_zone_append_max_sectors zone_append_max_sectors: u32;
    /// True if sequential zones start full instead of empty.
    with_zone_full zone_full: bool;
    /// Logical block size in bytes, a power of two from 512 to 4096.
    with_blocksize blocksize: u32;
    /// Largest read or write in sectors.
    with_max_sectors max_sectors: u32;
    /// Largest write-zeroes command in sectors; 0 means not supported.
    with_write_zeroes_max_sectors write_zeroes_max_sectors: u32;
    /// Minimum time from submission to completion in nanoseconds.
    with_completion_nsec completion_nsec: u64;
    /// Completion mode.
    with_complete complete: CompleteMode;
    /// Commands in flight on a queue before it is busy.
    with_hw_queue_depth hw_queue_depth: u32;
    /// Number of queues.
    with_submit_queues submit_queues: u32;
    /// True if single writes can be made durable.
    with_fua fua: bool;
    /// True to report a rotational medium.
    with_rotational rotational: bool;
    /// True to preserve the order of each queue.
    with_preserves_write_order preserves_write_order: bool;
    /// Standard to follow.
    with_personality personality: Personality;
    /// Scope of locking while a command executes.
    with_lock lock: Locking;
}

impl Default for EmulatedOptions {
    fn default() -> EmulatedOptions {
        EmulatedOptions {
            size: 250 << 30,
            zone_size: 256 << 20,
            zone_capacity: 0,
            zone_nr_conv: 0,
            zone_max_open: 0,
            zone_max_active: 0,
            zone_append_max_sectors: u32::MAX,
            zone_full: false,
            blocksize: 512,
            // 1 MiB, the usual limit of host adapters.
            max_sectors: 2048,
            write_zeroes_max_sectors: u32::MAX,
            completion_nsec: 0,
            complete: CompleteMode::Inline,
            hw_queue_depth: 64,
            submit_queues: 1,
            fua: true,
            rotational: false,
            preserves_write_order: false,
            personality: Personality::Zns,
            lock: Locking::Zone,
        }
    }
}

impl EmulatedOptions {
    /// Defaults for a device that keeps its data in memory: zones of the usual size, and a device
    /// size that fits.
    pub fn in_memory() -> EmulatedOptions {
        EmulatedOptions { size: 8 << 30, ..EmulatedOptions::default() }
    }
}

/// Error of invalid options.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The sectors cannot be divided in this way.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The block size is not a power of two from 512 to 4096.
    #[error("blocksize of {0} bytes is not a power of two from 512 to 4096")]
    BlockSize(u32),
    /// A size is not a multiple of the block size.
    #[error("{option} of {bytes} bytes is not a multiple of the block size of {block}")]
    NotBlocks {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        bytes: u64,
        /// The block size.
        block: u32,
    },
    /// A number is out of range.
    #[error("{option} of {value} is not between {min} and {max}")]
    Range {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
}

/// Maximum number of zones: 128 MiB of zone states, a hundred times the zones of the largest
/// drives.
const ZONES_MAX: u64 = 1 << 24;

/// Maximum number of queues: more than any machine has processors.
pub(crate) const QUEUES_MAX: u64 = 1 << 16;

/// Maximum number of commands in flight on a queue, as for an NVMe queue.
pub(crate) const QUEUE_DEPTH_MAX: u64 = 1 << 16;

impl EmulatedOptions {
    /// Completion mode in effect.
    pub const fn complete_mode(&self) -> CompleteMode {
        if self.completion_nsec != 0 { CompleteMode::Poll } else { self.complete }
    }

    /// Geometry of the device.
    ///
    /// # Errors
    /// [`OptionsError`] with the invalid option.
    pub fn geometry(&self) -> Result<Geometry, OptionsError> {
        let block = self.blocksize;
        if !block.is_power_of_two() || !(512..=4096).contains(&block) {
            return Err(OptionsError::BlockSize(block));
        }
        let blocks = |option, bytes: u64| match bytes.is_multiple_of(u64::from(block)) {
            true => Ok(Sectors(bytes / SECTOR_BYTES)),
            false => Err(OptionsError::NotBlocks { option, bytes, block }),
        };
        let size = blocks("size", self.size)?;
        let zone_size = blocks("zone_size", self.zone_size)?;
        let capacity = blocks("zone_capacity", self.zone_capacity)?;
        let geometry = Geometry::new(size, zone_size, capacity, self.zone_nr_conv)?;
        in_range("number of zones", geometry.zones().into(), 1, ZONES_MAX)?;
        Ok(geometry)
    }

    /// Description of the device, with name `name`.
    ///
    /// # Errors
    /// [`OptionsError`] with the invalid option.
    pub fn info(&self, name: &str) -> Result<DeviceInfo, OptionsError> {
        let geometry = self.geometry()?;
        let limits = Limits::new(&geometry, self.zone_max_open, self.zone_max_active)?;
        let block_sectors = self.blocksize / SECTOR_BYTES as u32;
        let max_sectors = self.max_sectors / block_sectors * block_sectors;
        in_range("max_sectors", max_sectors.into(), 1, u64::from(u32::MAX))?;
        in_range("submit_queues", self.submit_queues.into(), 1, QUEUES_MAX)?;
        in_range("hw_queue_depth", self.hw_queue_depth.into(), 1, QUEUE_DEPTH_MAX)?;
        let zone_max = geometry.zone_capacity().0 as u32;
        let whole_blocks = |sectors: u32| sectors.min(zone_max) / block_sectors * block_sectors;
        Ok(DeviceInfo {
            name: name.to_owned(),
            identity: None,
            cache: None,
            geometry,
            block_sectors,
            open_max: limits.open_max,
            active_max: limits.active_max,
            command_sectors_max: max_sectors,
            append_sectors_max: whole_blocks(self.zone_append_max_sectors).min(max_sectors),
            write_zeroes_sectors_max: whole_blocks(self.write_zeroes_max_sectors),
            verify_sectors_max: max_sectors,
            discard_sectors_max: if self.zone_nr_conv == 0 { 0 } else { geometry.zone_size().0 as u32 },
            volatile_cache: false,
            fua: self.fua,
            rotational: self.rotational,
            spindles: Vec::new(),
            keeps_order: self.preserves_write_order,
            read_only: false,
            personality: self.personality,
            queues: self.submit_queues as usize,
        })
    }
}

fn in_range(option: &'static str, value: u64, min: u64, max: u64) -> Result<(), OptionsError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(OptionsError::Range { option, value, min, max }) }
}
