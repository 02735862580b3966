//! Options of emulated devices.

use super::bandwidth::MBPS_MAX;
use crate::badblocks::{BadBlocks, RANGES_MAX};
use crate::device::DeviceInfo;
use std::ops::RangeInclusive;
use zonal_core::device::Limits;
use zonal_core::{Geometry, GeometryError, Personality, SECTOR_BYTES, Sectors, ZoneIndex};

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
    /// Sequential zones that are read-only from the start.
    pub zone_readonly: Vec<RangeInclusive<u32>>,
    /// Sequential zones that are offline from the start.
    pub zone_offline: Vec<RangeInclusive<u32>>,
    /// Sectors that are bad from the start.
    pub badblocks: Vec<RangeInclusive<u64>>,
    /// True if a bad range becomes good once a command has hit it.
    pub badblocks_once: bool,
    /// True to transfer the blocks before the first bad one.
    pub badblocks_partial_io: bool,
    /// Logical block size, a power of two from 512 to 4096.
    pub blocksize: u32,
    /// Largest read or write.
    pub max_sectors: u32,
    /// Largest write-zeroes command; 0 means not supported.
    pub write_zeroes_max_sectors: u32,
    /// Minimum time from submission to completion, in nanoseconds. Anything but 0 implies
    /// [`CompleteMode::Poll`].
    pub completion_nsec: u64,
    /// Bandwidth of reads, writes and appends together, in MiB/s; 0 means no limit. Anything else
    /// implies [`CompleteMode::Poll`].
    pub mbps: u32,
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
    /// Sequential zones that are read-only from the start.
    with_zone_readonly zone_readonly: Vec<RangeInclusive<u32>>;
    /// Sequential zones that are offline from the start.
    with_zone_offline zone_offline: Vec<RangeInclusive<u32>>;
    /// Sectors that are bad from the start.
    with_badblocks badblocks: Vec<RangeInclusive<u64>>;
    /// True if a bad range becomes good once a command has hit it.
    with_badblocks_once badblocks_once: bool;
    /// True to transfer the blocks before the first bad one.
    with_badblocks_partial_io badblocks_partial_io: bool;
    /// Logical block size in bytes, a power of two from 512 to 4096.
    with_blocksize blocksize: u32;
    /// Largest read or write in sectors.
    with_max_sectors max_sectors: u32;
    /// Largest write-zeroes command in sectors; 0 means not supported.
    with_write_zeroes_max_sectors write_zeroes_max_sectors: u32;
    /// Minimum time from submission to completion in nanoseconds.
    with_completion_nsec completion_nsec: u64;
    /// Bandwidth of reads, writes and appends together in MiB/s; 0 means no limit.
    with_mbps mbps: u32;
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
            zone_readonly: Vec::new(),
            zone_offline: Vec::new(),
            badblocks: Vec::new(),
            badblocks_once: false,
            badblocks_partial_io: false,
            blocksize: 512,
            // 1 MiB, the usual limit of host adapters.
            max_sectors: 2048,
            write_zeroes_max_sectors: u32::MAX,
            completion_nsec: 0,
            mbps: 0,
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
    /// A zone cannot become read-only or offline: it is conventional, or not there.
    #[error("{option}: zone {zone} is not a sequential zone of the drive")]
    NotSequential {
        /// Name of the option.
        option: &'static str,
        /// First such zone.
        zone: ZoneIndex,
    },
    /// A bad block is not there.
    #[error("badblocks: sector {sector} is beyond the end of the drive, which has {sectors} sectors")]
    NoSector {
        /// Last sector of the range.
        sector: u64,
        /// Sectors of the drive.
        sectors: u64,
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
        if self.completion_nsec != 0 || self.mbps != 0 { CompleteMode::Poll } else { self.complete }
    }

    /// Bad blocks at the start.
    pub fn bad_blocks(&self) -> BadBlocks {
        let (once, partial_io) = (self.badblocks_once, self.badblocks_partial_io);
        BadBlocks { once, partial_io, ..BadBlocks::new(self.badblocks.iter().cloned()) }
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
        in_range("mbps", self.mbps.into(), 0, MBPS_MAX)?;
        are_sequential(&geometry, "zone_readonly", &self.zone_readonly)?;
        are_sequential(&geometry, "zone_offline", &self.zone_offline)?;
        are_sectors(&geometry, &self.bad_blocks())?;
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
            label: None,
            memory_align: 1,
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

/// Checks that `option` names only sequential zones.
pub(crate) fn are_sequential(
    geometry: &Geometry,
    option: &'static str,
    zones: &[RangeInclusive<u32>],
) -> Result<(), OptionsError> {
    let not = |zone| Err(OptionsError::NotSequential { option, zone: ZoneIndex(zone) });
    for range in zones {
        if geometry.is_conventional(ZoneIndex(*range.start())) {
            return not(*range.start());
        }
        if *range.end() >= geometry.zones() {
            return not(geometry.zones().max(*range.start()));
        }
    }
    Ok(())
}

/// Checks that the drive has the sectors that are bad, in not too many ranges.
pub(crate) fn are_sectors(geometry: &Geometry, bad: &BadBlocks) -> Result<(), OptionsError> {
    let sectors = geometry.sectors().0;
    match bad.ranges().last() {
        Some(&(_, sector)) if sector >= sectors => Err(OptionsError::NoSector { sector, sectors }),
        _ => in_range("number of separate badblocks", bad.ranges().len() as u64, 0, RANGES_MAX as u64),
    }
}
