//! Errors that prevent a benchmark from running. Failures during the run belong to a job and are in
//! its report.

use std::path::PathBuf;
use zonal_core::{DeviceError, RequestError, Sector, ZoneIndex};
use zonal_io::fault::PlanMismatch;
use zonal_io::owner::Owned;
use zonal_io::volume::{OpenError, SwitchError};
use zonal_sim::executor::{Halt, Stopped};

/// Error of the function that opens devices.
pub type OpenerError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why a benchmark cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The device cannot be opened.
    #[error("cannot open the device: {0}")]
    Device(#[source] OpenerError),
    /// The write path cannot be opened.
    #[error(transparent)]
    Volume(#[from] OpenError),
    /// The device cannot report its zones.
    #[error("{device}: cannot read the zones: {error}")]
    Zones {
        /// Device name.
        device: String,
        /// Error of the device.
        error: DeviceError,
    },
    /// A zone cannot be prepared for the jobs.
    #[error("{device}: cannot reset the zone at sector {sector}: {error}")]
    Prepare {
        /// Device name.
        device: String,
        /// First sector of the zone.
        sector: Sector,
        /// Error of the device.
        error: DeviceError,
    },
    /// The drive has data of a known owner, which would be lost.
    #[error("{0}; --yes overwrites it")]
    Owned(Owned),
    /// The superblock of a file system on the device cannot be destroyed.
    #[error("{device}: cannot clear the superblock: {error}")]
    Forget {
        /// Device name.
        device: String,
        /// Error of the device.
        error: DeviceError,
    },
    /// The zones cannot be reread before a round.
    #[error("{device}: cannot read the zones: {error}")]
    Report {
        /// Device name.
        device: String,
        /// Error of the report.
        error: RequestError,
    },
    /// The write path cannot reset a zone before a round.
    #[error("{device}: cannot reset the zone at sector {sector}: {error}")]
    Reset {
        /// Device name.
        device: String,
        /// First sector of the zone.
        sector: Sector,
        /// Error of the reset.
        error: RequestError,
    },
    /// A job does not fit the device.
    #[error("job {job}: {error}")]
    Plan {
        /// Name of the job.
        job: String,
        /// Reason why it does not fit.
        error: PlanError,
    },
    /// Mode `pipelined` on a device that does not guarantee the order of writes.
    #[error("{device}: {}; --force runs it anyway", SwitchError::NoOrder)]
    NoOrder {
        /// Device name.
        device: String,
    },
    /// A fault plan does not fit the device.
    #[error(transparent)]
    Faults(#[from] PlanMismatch),
    /// Verification on a device that does not keep data.
    #[error("job {job}: verify needs a device that keeps data; {device} does not")]
    NothingToVerify {
        /// Name of the job.
        job: String,
        /// Device name.
        device: String,
    },
    /// The log file of a job cannot be created.
    #[error("job {job}: cannot write its log {}: {error}", path.display())]
    Iolog {
        /// Name of the job.
        job: String,
        /// The file.
        path: PathBuf,
        /// Error of the file system.
        error: std::io::Error,
    },
    /// Deadlock in virtual time: jobs wait, and no event is left.
    #[error("deadlock after {at:?} of virtual time: {}", jobs.join(", "))]
    Deadlock {
        /// Virtual time since the start of the round.
        at: std::time::Duration,
        /// Waiting jobs, each with its state.
        jobs: Vec<String>,
    },
    /// No progress in virtual time: events repeat endlessly, or the next one is too far away.
    #[error("no progress after {at:?} of virtual time: {why}; {}", jobs.join(", "))]
    Endless {
        /// Virtual time since the start of the round.
        at: std::time::Duration,
        /// Cause.
        why: &'static str,
        /// Jobs, each with its state.
        jobs: Vec<String>,
    },
    /// The file system cannot be made, or its files cannot be laid out.
    #[error("file system: {error}")]
    Files {
        /// Message of the file system.
        error: String,
    },
    /// The operating system refuses to create a thread.
    #[error("job {job}: {error}")]
    Thread {
        /// Name of the job.
        job: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
}

impl From<Stopped> for BenchError {
    fn from(Stopped { at, why, tasks: jobs }: Stopped) -> BenchError {
        match why {
            Halt::Deadlock => BenchError::Deadlock { at, jobs },
            Halt::Endless(why) => BenchError::Endless { at, why, jobs },
        }
    }
}

/// Formats zones as number and first sector, with the count of further `active` zones not listed.
fn first_zones(zones: &[(ZoneIndex, Sector)], active: usize) -> String {
    let named: Vec<String> = zones.iter().map(|(zone, start)| format!("{zone} (sector {start})")).collect();
    let word = if active == 1 { "zone" } else { "zones" };
    match active.saturating_sub(zones.len()) {
        0 => format!("{word} {}", named.join(", ")),
        more => format!("{word} {} and {more} more", named.join(", ")),
    }
}

/// Describes the limit that applies if no job sets one.
fn held(limit: u32) -> String {
    if limit == 0 { "no limit".to_owned() } else { format!("the drive's limit of {limit}") }
}

/// Reason why a job does not fit a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A size or position is not a multiple of the device's block.
    #[error("{option} of {bytes} bytes is not a multiple of the device's block of {block} bytes")]
    Unaligned {
        /// The option.
        option: &'static str,
        /// Its value.
        bytes: u64,
        /// Logical block of the device, in bytes.
        block: u64,
    },
    /// A number exceeds 64 bits.
    #[error("{option} exceeds 64 bits")]
    Overflow {
        /// The option.
        option: &'static str,
    },
    /// The job would start beyond the end of the device.
    #[error("clone {clone} starts at byte {offset}, but the device ends at {device_bytes}")]
    OffsetBeyondDevice {
        /// Index of the clone, from 0.
        clone: u32,
        /// Its offset in bytes.
        offset: u64,
        /// Size of the device in bytes.
        device_bytes: u64,
    },
    /// Not even one block fits into the range.
    #[error("a block of {block} bytes does not fit the range of {range} bytes")]
    BlockAboveRange {
        /// Block size of the job in bytes.
        block: u64,
        /// Length of its range in bytes.
        range: u64,
    },
    /// The range of a job that writes sequential zones contains no whole zone.
    #[error("the range of {range} bytes holds no whole zone of {zone} bytes")]
    NoWholeZone {
        /// Length of the range in bytes.
        range: u64,
        /// Zone size in bytes.
        zone: u64,
    },
    /// The job specifies a zone size or capacity other than the device's.
    #[error("{option} is {job} bytes, but the device's is {device}")]
    NotTheDevices {
        /// The option.
        option: &'static str,
        /// Value given by the job, in bytes.
        job: u64,
        /// Value of the device, in bytes.
        device: u64,
    },
    /// The job requests more open zones than the device allows.
    #[error("max_open_zones of {asked} is above the device's limit of {limit}")]
    OpenZonesAboveDevice {
        /// Number requested by the job.
        asked: u32,
        /// Limit of the device.
        limit: u32,
    },
    /// Two jobs on one device have different limits.
    #[error(
        "max_open_zones is {this}, but {other} in an earlier job: the limit applies to all jobs; set it in [global]"
    )]
    OpenZonesDiffer {
        /// Limit of this job.
        this: u32,
        /// Limit of the earlier job.
        other: u32,
    },
    /// A job sets a limit, but the first one does not.
    #[error("max_open_zones is {this}, but the first job with zonemode=zbd sets none, so {} applies to all jobs: set the \
             option in [global]", held(*limit))]
    OpenZonesNotInFirst {
        /// Limit of this job.
        this: u32,
        /// Limit of the device; 0 is no limit.
        limit: u32,
    },
    /// A job has a limit of its own, but there is no overall limit.
    #[error("job_max_open_zones needs an overall limit, max_open_zones or the device's")]
    JobOpenZonesWithoutLimit,
    /// Two clones or jobs use one log file.
    #[error("write_iolog={} is already the log of another clone or job", path.display())]
    SharedIolog {
        /// The file.
        path: PathBuf,
    },
    /// Active zones outside the jobs' ranges use up the device's limit.
    #[error(
        "{active} active zones lie outside the ranges that the jobs write, and the device allows {limit}: {}; `zonal finish` \
         fills such a zone and keeps its data, `zonal reset` empties it",
        first_zones(zones, *active)
    )]
    NoActiveZoneLeft {
        /// Limit of the device.
        limit: u32,
        /// Active zones outside the ranges.
        active: usize,
        /// The first of these zones in ascending order, each with its first sector.
        zones: Vec<(ZoneIndex, Sector)>,
    },
    /// A block is larger than the zone capacity.
    #[error("a block of {block} bytes is larger than the zone capacity of {capacity}")]
    BlockAboveZone {
        /// Block size of the job in bytes.
        block: u64,
        /// Zone capacity in bytes.
        capacity: u64,
    },
    /// A block is larger than the largest zone append.
    #[error(
        "a block of {block} bytes is larger than the largest zone append, {append} bytes; use a smaller bs or --write-mode per-zone"
    )]
    BlockAboveAppend {
        /// Block size of the job in bytes.
        block: u64,
        /// Largest append in bytes.
        append: u64,
    },
    /// An option that applies to files only.
    #[error("{option} is only for jobs on files")]
    OfFiles {
        /// The option.
        option: &'static str,
    },
    /// An option that does not apply to files.
    #[error("{option} is not supported for jobs on files")]
    NotOfFiles {
        /// The option.
        option: &'static str,
    },
    /// The size of the files is not specified.
    #[error("files need filesize, or size and nrfiles")]
    NoFileSize,
    /// The files do not fit into the file system.
    #[error("the files need at least {files} bytes, but the file system has {room}")]
    FilesAboveRoom {
        /// Bytes of the files.
        files: u64,
        /// Bytes of the file system.
        room: u64,
    },
    /// Write mode `append` on a device without zone append.
    #[error(
        "write mode append needs native zone append, which the device does not have; use per-zone or qd1"
    )]
    NoAppend,
    /// Verification needs blocks that tile the zones.
    #[error("verify needs a block that divides the zone size; {block} does not divide {zone} (bytes)")]
    BlockDoesNotTile {
        /// Block size of the job in bytes.
        block: u64,
        /// Zone size in bytes.
        zone: u64,
    },
    /// Verification needs blocks of one size.
    #[error("verify needs blocks of one size, not bsrange or bssplit")]
    VerifiedSizesDiffer,
    /// The map of random blocks would be too large.
    #[error("the map of {blocks} random blocks is too large (at most {max}); use norandommap or a larger bs")]
    RandomMap {
        /// Blocks in the range.
        blocks: u64,
        /// Maximum number of blocks in a map.
        max: u64,
    },
    /// The buffers would be too large.
    #[error("the buffers of all jobs together would take {bytes} bytes, at most {max} are allowed")]
    Buffers {
        /// Size of the buffers in bytes.
        bytes: u64,
        /// Limit in bytes.
        max: u64,
    },
}
