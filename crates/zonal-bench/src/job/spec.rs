//! Typed options of one job, after the globals have been applied.

use std::time::Duration;

use super::blocks::{BlockMix, PerDirection};
use super::pace::Pace;

/// Position or length on a device, not yet resolved against its geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Bytes.
    Bytes(u64),
    /// Percent of the device, 1 to 100; for `io_size`, percent of the job's `size`, which may be more
    /// than 100.
    Percent(u16),
    /// Whole zones, by zone size rather than capacity.
    Zones(u64),
    /// Everything: the rest of the device from the offset on; for `io_size`, the job's `size`.
    Fill,
}

impl Extent {
    /// Resolves this extent to bytes.
    ///
    /// `whole` is the base for percent and [`Extent::Fill`], `zone_bytes` the zone size, both in
    /// bytes. The result is neither capped nor aligned; fio aligns an offset in percent up to the
    /// smaller block size. `None` if it exceeds 64 bits.
    pub fn bytes(self, whole: u64, zone_bytes: u64) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => u64::try_from(u128::from(whole) * u128::from(percent) / 100).ok(),
            Self::Zones(zones) => zones.checked_mul(zone_bytes),
            Self::Fill => Some(whole),
        }
    }
}

/// Types of commands issued by a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Reads and writes.
    Mixed {
        /// Percentage of reads, 0 to 100.
        read_percent: u8,
    },
}

/// `rw`: direction and order of a job's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Types of commands.
    pub direction: Direction,
    /// True for random offsets. With [`ZoneMode::Zbd`] the zones are random, and each zone is
    /// written sequentially.
    pub random: bool,
}

/// `bs` in bytes. fio's third value, for trims, is checked and dropped, since there are no trims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    /// Bytes per read.
    pub read: u32,
    /// Bytes per write.
    pub write: u32,
}

/// `zonemode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMode {
    /// The job works on a plain range of bytes.
    None,
    /// The job is zone-aware: it writes at write pointers and resets full zones.
    Zbd,
}

/// `verify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// No verification.
    None,
    /// Each block has a header with a CRC-32C.
    Crc32c,
}

/// Options of one job.
///
/// The fields are named after fio's options and have the same meaning. [`JobSpec::default`] has
/// fio's defaults.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobSpec {
    /// Name in reports: the section's `name`, or its header.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// Device, or `None` if the file leaves it to the command line.
    pub filename: Option<String>,
    /// `rw`, `rwmixread`, `rwmixwrite`.
    pub pattern: Pattern,
    /// `bs`.
    pub block_size: BlockSize,
    /// `bsrange` and `bssplit`. A direction with `None` has blocks of `block_size` only.
    pub block_mix: PerDirection<Option<BlockMix>>,
    /// Length of the job's range.
    pub size: Extent,
    /// Bytes transferred per loop; [`Extent::Fill`] for `size`. May exceed `size`.
    pub io_size: Extent,
    /// Start of the range.
    pub offset: Extent,
    /// Added to `offset` for each preceding clone of the job.
    pub offset_increment: Extent,
    /// Number of files per clone, at least 1, for jobs that work on files.
    pub nrfiles: u32,
    /// Minimum and maximum of the random size of a file, in bytes.
    pub filesize: Option<(u64, u64)>,
    /// Write the files before the job begins.
    pub overwrite: bool,
    /// Queue depth, at least 1.
    pub iodepth: u32,
    /// Number of clones, at least 1.
    pub numjobs: u32,
    /// Number of rounds, at least 1.
    pub loops: u32,
    /// Time limit, or with `time_based` the duration; `None` if unlimited.
    pub runtime: Option<Duration>,
    /// Repeat until `runtime` has elapsed. Implies that `runtime` is set.
    pub time_based: bool,
    /// Rates, pauses and `ramp_time`.
    pub pace: Pace,
    /// `verify`.
    pub verify: Verify,
    /// Read back and check after the write phase, if `verify` is set.
    pub do_verify: bool,
    /// Stop at the first block that fails verification.
    pub verify_fatal: bool,
    /// `randseed`, if given. See [`JobSpec::seed`].
    pub randseed: Option<u64>,
    /// Use the same seed for offsets in each run.
    pub randrepeat: bool,
    /// Use the same seed for all other generators, too.
    pub allrandrepeat: bool,
    /// Allow repeated random offsets before the whole range is covered.
    pub norandommap: bool,
    /// `zonemode`.
    pub zonemode: ZoneMode,
    /// Zone size in bytes that the device has to have; `None` for any.
    pub zonesize: Option<u64>,
    /// Zone capacity in bytes that the device has to have; `None` for any.
    pub zonecapacity: Option<u64>,
    /// Maximum number of open zones over all jobs of the device; `None` for the device's limit.
    pub max_open_zones: Option<u32>,
    /// Maximum number of open zones that one clone has opened; `None` if only the overall limit
    /// applies.
    pub job_max_open_zones: Option<u32>,
    /// Leave zone limits to the device. The first job with [`ZoneMode::Zbd`] decides for all.
    pub ignore_zone_limits: bool,
    /// Fraction of written blocks, 0 to 1, above which zones are reset.
    pub zone_reset_threshold: Option<f64>,
    /// Resets per write above the threshold, 0 to 1.
    pub zone_reset_frequency: Option<f64>,
    /// Allow reads beyond the write pointer of a zone.
    pub read_beyond_wp: bool,
    /// Writes between flushes; 0 for none.
    pub fsync: u32,
    /// Like `fsync`, for data only; 0 for none.
    pub fdatasync: u32,
    /// Flush at the end.
    pub end_fsync: bool,
    /// Wait for all earlier jobs before starting.
    pub stonewall: bool,
    /// File for a log of the issued requests, in fio's format.
    pub write_iolog: Option<String>,
    /// Report clones and neighbouring jobs as one, up to a stonewall.
    pub group_reporting: bool,
    /// Start a new reporting group.
    pub new_group: bool,
    /// Stop all jobs if this one fails.
    pub exitall_on_error: bool,
    /// Do not measure total latency.
    pub disable_lat: bool,
    /// Do not measure completion latency.
    pub disable_clat: bool,
    /// Do not measure submission latency.
    pub disable_slat: bool,
    /// Do not measure latency at all.
    pub gtod_reduce: bool,
    /// Report percentiles of completion latency.
    pub clat_percentiles: bool,
    /// Report percentiles of total latency.
    pub lat_percentiles: bool,
    /// Report percentiles of submission latency.
    pub slat_percentiles: bool,
    /// Percentiles to report, in ascending order, each from 0 to 100.
    pub percentile_list: Vec<f64>,
}

impl JobSpec {
    /// Seed used for fio's `randrepeat`.
    pub const REPEATABLE_SEED: u64 = 0x89;

    /// Returns the job's seed, or `None` if the runner has to draw and report one.
    pub fn seed(&self) -> Option<u64> {
        self.randseed.or((self.randrepeat || self.allrandrepeat).then_some(Self::REPEATABLE_SEED))
    }

    /// Smallest block size of each direction, in bytes.
    pub fn block_min(&self) -> BlockSize {
        let BlockSize { read, write } = self.block_size;
        let PerDirection { read: reads, write: writes } = &self.block_mix;
        BlockSize {
            read: reads.as_ref().map_or(read, BlockMix::min),
            write: writes.as_ref().map_or(write, BlockMix::min),
        }
    }

    /// Largest block size of each direction, in bytes.
    pub fn block_max(&self) -> BlockSize {
        let BlockSize { read, write } = self.block_size;
        let PerDirection { read: reads, write: writes } = &self.block_mix;
        BlockSize {
            read: reads.as_ref().map_or(read, BlockMix::max),
            write: writes.as_ref().map_or(write, BlockMix::max),
        }
    }

    /// True if total latency is measured.
    pub fn measures_lat(&self) -> bool {
        !(self.disable_lat || self.gtod_reduce)
    }

    /// True if completion latency is measured.
    pub fn measures_clat(&self) -> bool {
        !(self.disable_clat || self.gtod_reduce)
    }

    /// True if submission latency is measured.
    pub fn measures_slat(&self) -> bool {
        !(self.disable_slat || self.gtod_reduce)
    }
}

/// fio's default percentiles.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

impl Default for JobSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: None,
            filename: None,
            pattern: Pattern { direction: Direction::Read, random: false },
            block_size: BlockSize { read: 4096, write: 4096 },
            block_mix: PerDirection::default(),
            size: Extent::Fill,
            io_size: Extent::Fill,
            offset: Extent::Bytes(0),
            offset_increment: Extent::Bytes(0),
            nrfiles: 1,
            filesize: None,
            overwrite: false,
            iodepth: 1,
            numjobs: 1,
            loops: 1,
            runtime: None,
            time_based: false,
            pace: Pace::default(),
            verify: Verify::None,
            do_verify: true,
            verify_fatal: false,
            randseed: None,
            randrepeat: true,
            allrandrepeat: false,
            norandommap: false,
            zonemode: ZoneMode::None,
            zonesize: None,
            zonecapacity: None,
            max_open_zones: None,
            job_max_open_zones: None,
            ignore_zone_limits: false,
            zone_reset_threshold: None,
            zone_reset_frequency: None,
            read_beyond_wp: false,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            stonewall: false,
            write_iolog: None,
            group_reporting: false,
            new_group: false,
            exitall_on_error: false,
            disable_lat: false,
            disable_clat: false,
            disable_slat: false,
            gtod_reduce: false,
            clat_percentiles: true,
            lat_percentiles: false,
            slat_percentiles: false,
            percentile_list: PERCENTILES.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_resolves_against_the_whole_and_the_zone() {
        let zone = 256 << 20;
        assert_eq!(Extent::Bytes(5).bytes(100, zone), Some(5));
        assert_eq!(Extent::Percent(100).bytes(u64::MAX, zone), Some(u64::MAX));
        assert_eq!(Extent::Percent(33).bytes(10, zone), Some(3));
        assert_eq!(Extent::Zones(3).bytes(0, zone), Some(3 * zone));
        assert_eq!(Extent::Zones(u64::MAX).bytes(0, 2), None);
        assert_eq!(Extent::Fill.bytes(77, zone), Some(77));
    }

    #[test]
    fn seed_prefers_randseed_then_randrepeat() {
        let job = JobSpec::default();
        assert_eq!(job.seed(), Some(JobSpec::REPEATABLE_SEED));
        let job = JobSpec { randrepeat: false, ..job };
        assert_eq!(job.seed(), None);
        let job = JobSpec { randseed: Some(7), ..job };
        assert_eq!(job.seed(), Some(7));
    }

    #[test]
    fn gtod_reduce_turns_every_latency_off() {
        let job = JobSpec { gtod_reduce: true, ..JobSpec::default() };
        assert!(!job.measures_lat() && !job.measures_clat() && !job.measures_slat());
    }
}
