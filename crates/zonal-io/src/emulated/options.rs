//! What an emulated device is built from.

use crate::device::DeviceInfo;
use zonal_core::device::Limits;
use zonal_core::{Geometry, GeometryError, Personality, SECTOR_BYTES, Sectors};

/// How long a command blocks others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Locking {
    /// No longer than its change to its own zone.
    #[default]
    Zone,
    /// One command at a time on the whole device, reads included. A baseline to compare with.
    Device,
}

/// When a command is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompleteMode {
    /// From `submit`.
    #[default]
    Inline,
    /// From `poll`; until then it is in flight.
    Poll,
}

/// Options of the emulated devices, in the names and units of the Linux null block device where it has them; sizes are
/// bytes unless a name says sectors (of 512 bytes). A limit of 0 is none.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EmulatedOptions {
    /// Size of the device.
    pub size: u64,
    /// Size of a zone, a power of two.
    pub zone_size: u64,
    /// Writable part of a sequential zone; 0 is all of it.
    pub zone_capacity: u64,
    /// Number of conventional zones; they come first.
    pub zone_nr_conv: u32,
    /// Largest number of open zones.
    pub zone_max_open: u32,
    /// Largest number of active zones.
    pub zone_max_active: u32,
    /// Largest zone append; here 0 means that the device has none.
    pub zone_append_max_sectors: u32,
    /// Sequential zones start full instead of empty.
    pub zone_full: bool,
    /// Logical block, a power of two from 512 to 4096.
    pub blocksize: u32,
    /// Largest read or write.
    pub max_sectors: u32,
    /// Largest write-zeroes command; here 0 means that the device has none.
    pub write_zeroes_max_sectors: u32,
    /// Shortest time from submission to completion, in nanoseconds. Anything but 0 implies [`CompleteMode::Poll`].
    pub completion_nsec: u64,
    /// When commands are answered.
    pub complete: CompleteMode,
    /// Commands in flight on a queue beyond which it is busy; matters with [`CompleteMode::Poll`] only.
    pub hw_queue_depth: u32,
    /// Number of queues.
    pub submit_queues: u32,
    /// Whether single writes can be made durable.
    pub fua: bool,
    /// Whether to pass for a medium that turns.
    pub rotational: bool,
    /// Whether to keep the order of each queue, so that several positional writes of a zone may be in flight.
    pub preserves_write_order: bool,
    /// Which standard's rules to follow.
    pub personality: Personality,
    /// How long a command blocks others.
    pub lock: Locking,
}

zonal_core::setters! {
    EmulatedOptions
    /// Size of the device in bytes.
    with_size size: u64;
    /// Size of a zone in bytes, a power of two.
    with_zone_size zone_size: u64;
    /// Writable part of a sequential zone in bytes; 0 is all of it.
    with_zone_capacity zone_capacity: u64;
    /// Number of conventional zones; they come first.
    with_zone_nr_conv zone_nr_conv: u32;
    /// Largest number of open zones; 0 is no limit.
    with_zone_max_open zone_max_open: u32;
    /// Largest number of active zones; 0 is no limit.
    with_zone_max_active zone_max_active: u32;
    /// Largest zone append in sectors; 0: the device has none.
    with_zone_append_max_sectors zone_append_max_sectors: u32;
    /// Whether sequential zones start full instead of empty.
    with_zone_full zone_full: bool;
    /// Logical block in bytes, a power of two from 512 to 4096.
    with_blocksize blocksize: u32;
    /// Largest read or write in sectors.
    with_max_sectors max_sectors: u32;
    /// Largest write-zeroes command in sectors; 0: the device has none.
    with_write_zeroes_max_sectors write_zeroes_max_sectors: u32;
    /// Shortest time from submission to completion in nanoseconds.
    with_completion_nsec completion_nsec: u64;
    /// When commands are answered.
    with_complete complete: CompleteMode;
    /// Commands in flight on a queue beyond which it is busy.
    with_hw_queue_depth hw_queue_depth: u32;
    /// Number of queues.
    with_submit_queues submit_queues: u32;
    /// Whether single writes can be made durable.
    with_fua fua: bool;
    /// Whether to pass for a medium that turns.
    with_rotational rotational: bool;
    /// Whether to keep the order of each queue.
    with_preserves_write_order preserves_write_order: bool;
    /// Which standard's rules to follow.
    with_personality personality: Personality;
    /// How long a command blocks others.
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
            // 1 MiB, what host adapters commonly take.
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
    /// Defaults of a device that keeps data in memory: zones of the usual size, and a size that fits.
    pub fn in_memory() -> EmulatedOptions {
        EmulatedOptions { size: 8 << 30, ..EmulatedOptions::default() }
    }
}

/// Why options do not make a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The sectors cannot be divided this way.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The block size is not a power of two from 512 to 4096.
    #[error("blocksize of {0} bytes is not a power of two from 512 to 4096")]
    BlockSize(u32),
    /// A size is not a multiple of the block.
    #[error("{option} of {bytes} bytes is not a multiple of the block of {block}")]
    NotBlocks {
        /// The option.
        option: &'static str,
        /// Its value.
        bytes: u64,
        /// The block size.
        block: u32,
    },
    /// A number that has to be at least one is not, or is above what can be.
    #[error("{option} of {value} does not lie between {min} and {max}")]
    Range {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
}

/// Most zones of a device: 128 MiB of zone states, a hundred times the zones of the largest drives.
const ZONES_MAX: u64 = 1 << 24;

/// Most queues of a device: more than any machine has processors.
pub(crate) const QUEUES_MAX: u64 = 1 << 16;

/// Most commands in flight on a queue, what an NVMe queue can hold.
pub(crate) const QUEUE_DEPTH_MAX: u64 = 1 << 16;

impl EmulatedOptions {
    /// When commands are answered, in effect.
    pub const fn complete_mode(&self) -> CompleteMode {
        if self.completion_nsec != 0 { CompleteMode::Poll } else { self.complete }
    }

    /// How the device's sectors divide.
    ///
    /// # Errors
    /// [`OptionsError`] with the option that does not fit.
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

    /// What the device says of itself, as `name`.
    ///
    /// # Errors
    /// [`OptionsError`] with the option that does not fit.
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
