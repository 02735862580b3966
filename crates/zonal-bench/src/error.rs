//! Why a benchmark cannot run. What goes wrong while it runs belongs to a job and is in its report.

use std::path::PathBuf;
use zonal_core::{DeviceError, RequestError, Sector, ZoneIndex};
use zonal_io::fault::PlanMismatch;
use zonal_io::owner::Owned;
use zonal_io::volume::{OpenError, SwitchError};
use zonal_sim::executor::{Halt, Stopped};

/// An error of the function that opens devices.
pub type OpenerError = Box<dyn std::error::Error + Send + Sync>;

/// Why a benchmark cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The device cannot be opened.
    #[error("cannot open the device: {0}")]
    Device(#[source] OpenerError),
    /// The write path cannot be opened.
    #[error(transparent)]
    Volume(#[from] OpenError),
    /// The device does not describe its zones.
    #[error("{device}: cannot read the zones: {error}")]
    Zones {
        /// Device name.
        device: String,
        /// Its answer.
        error: DeviceError,
    },
    /// A zone cannot be brought to where the jobs need it before they start.
    #[error("{device}: cannot reset the zone at sector {sector}: {error}")]
    Prepare {
        /// Device name.
        device: String,
        /// First sector of the zone.
        sector: Sector,
        /// The device's answer.
        error: DeviceError,
    },
    /// Data of a known owner on the drive would be lost.
    #[error("{0}; --yes overwrites it")]
    Owned(Owned),
    /// A file system that is on the device cannot be made to count no more.
    #[error("{device}: cannot clear the superblock: {error}")]
    Forget {
        /// Device name.
        device: String,
        /// The device's answer.
        error: DeviceError,
    },
    /// The zones cannot be read again before a round.
    #[error("{device}: cannot read the zones: {error}")]
    Report {
        /// Device name.
        device: String,
        /// What the report ended with.
        error: RequestError,
    },
    /// The write path cannot reset a zone before a round.
    #[error("{device}: cannot reset the zone at sector {sector}: {error}")]
    Reset {
        /// Device name.
        device: String,
        /// First sector of the zone.
        sector: Sector,
        /// What the reset ended with.
        error: RequestError,
    },
    /// A job does not fit the device.
    #[error("job {job}: {error}")]
    Plan {
        /// Name of the job.
        job: String,
        /// What does not fit.
        error: PlanError,
    },
    /// Mode `pipelined` on a device that does not promise to keep the order of writes.
    #[error("{device}: {}; --force runs it all the same", SwitchError::NoOrder)]
    NoOrder {
        /// Device name.
        device: String,
    },
    /// A fault plan does not fit the device.
    #[error(transparent)]
    Faults(#[from] PlanMismatch),
    /// Blocks are to be verified on a device that keeps none.
    #[error("job {job}: verify needs a device that keeps data, and {device} does not")]
    NothingToVerify {
        /// Name of the job.
        job: String,
        /// Device name.
        device: String,
    },
    /// The file for a job's log cannot be made.
    #[error("job {job}: cannot write its log {}: {error}", path.display())]
    Iolog {
        /// Name of the job.
        job: String,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// In virtual time nothing will happen any more, and jobs wait for it.
    #[error("after {at:?} of virtual time nothing is left that could happen, and the run does not end: {}", jobs.join(", "))]
    Deadlock {
        /// Since the round began.
        at: std::time::Duration,
        /// The jobs, each with what it does.
        jobs: Vec<String>,
    },
    /// In virtual time something happens for ever, and leads nowhere.
    #[error("after {at:?} of virtual time the run does not get on: {why}; {}", jobs.join(", "))]
    Endless {
        /// Since the round began.
        at: std::time::Duration,
        /// What happens.
        why: &'static str,
        /// The jobs, each with what it does.
        jobs: Vec<String>,
    },
    /// The file system cannot be made, or its files cannot be laid out.
    #[error("the file system: {error}")]
    Files {
        /// Its words.
        error: String,
    },
    /// The operating system gives no thread.
    #[error("job {job}: {error}")]
    Thread {
        /// Name of the job.
        job: String,
        /// Its answer.
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

/// The zones by number and first sector, and how many of `active` are not among them.
fn first_zones(zones: &[(ZoneIndex, Sector)], active: usize) -> String {
    let named: Vec<String> = zones.iter().map(|(zone, start)| format!("{zone} (sector {start})")).collect();
    let word = if active == 1 { "zone" } else { "zones" };
    match active.saturating_sub(zones.len()) {
        0 => format!("{word} {}", named.join(", ")),
        more => format!("{word} {} and {more} more", named.join(", ")),
    }
}

/// The limit that holds where no job sets one.
fn held(limit: u32) -> String {
    if limit == 0 { "no limit".to_owned() } else { format!("the drive's limit of {limit}") }
}

/// Why a job does not fit a device.
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
    /// A number passes 64 bits.
    #[error("{option} passes 64 bits")]
    Overflow {
        /// The option.
        option: &'static str,
    },
    /// The job would start beyond the end of the device.
    #[error("clone {clone} starts at byte {offset}, but the device ends at {device_bytes}")]
    OffsetBeyondDevice {
        /// Which clone, from 0.
        clone: u32,
        /// Its offset in bytes.
        offset: u64,
        /// Size of the device in bytes.
        device_bytes: u64,
    },
    /// Not one block fits the range.
    #[error("a block of {block} bytes does not fit the range of {range} bytes")]
    BlockAboveRange {
        /// Block size of the job in bytes.
        block: u64,
        /// Length of its range in bytes.
        range: u64,
    },
    /// The range of a job that writes sequential zones holds no whole one.
    #[error("the range of {range} bytes holds no whole zone of {zone} bytes")]
    NoWholeZone {
        /// Length of the range in bytes.
        range: u64,
        /// Zone size in bytes.
        zone: u64,
    },
    /// The job states a zone size or capacity that is not the device's.
    #[error("{option} is {job} bytes, but the device's is {device}")]
    NotTheDevices {
        /// The option.
        option: &'static str,
        /// What the job says, in bytes.
        job: u64,
        /// What the device says, in bytes.
        device: u64,
    },
    /// More open zones are asked for than the device allows.
    #[error("max_open_zones of {asked} is above the device's limit of {limit}")]
    OpenZonesAboveDevice {
        /// What the job asks for.
        asked: u32,
        /// Limit of the device.
        limit: u32,
    },
    /// Two jobs of one device have different limits.
    #[error(
        "max_open_zones is {this}, but {other} in an earlier job: the limit holds over all jobs and belongs into [global]"
    )]
    OpenZonesDiffer {
        /// Of this job.
        this: u32,
        /// Of the earlier one.
        other: u32,
    },
    /// A job has a limit, and the first one has none of its own.
    #[error("max_open_zones is {this}, but the first job with zonemode=zbd sets none, so that {} holds over all jobs: the \
             option belongs into [global]", held(*limit))]
    OpenZonesNotInFirst {
        /// Of this job.
        this: u32,
        /// The device's limit; 0 is none.
        limit: u32,
    },
    /// A job has a limit of its own where there is none for all.
    #[error("job_max_open_zones needs a limit over all jobs, max_open_zones or the device's")]
    JobOpenZonesWithoutLimit,
    /// Two clones or jobs have one file for their logs.
    #[error("write_iolog={} is the log of another clone or job already", path.display())]
    SharedIolog {
        /// The file.
        path: PathBuf,
    },
    /// Active zones that no job writes use up the device's limit.
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
        /// The first of these, in ascending order, each with its first sector.
        zones: Vec<(ZoneIndex, Sector)>,
    },
    /// A write is larger than a zone can take.
    #[error("a block of {block} bytes is larger than the zone capacity of {capacity}")]
    BlockAboveZone {
        /// Block size of the job in bytes.
        block: u64,
        /// Zone capacity in bytes.
        capacity: u64,
    },
    /// A write is larger than a zone append can be.
    #[error(
        "a block of {block} bytes is larger than the largest zone append, {append} bytes; take a bs of at most that, or --write-mode per-zone"
    )]
    BlockAboveAppend {
        /// Block size of the job in bytes.
        block: u64,
        /// Largest append in bytes.
        append: u64,
    },
    /// The option has a meaning for files only.
    #[error("{option} is for jobs that work with files")]
    OfFiles {
        /// The option.
        option: &'static str,
    },
    /// The option has none for files.
    #[error("{option} is not for jobs that work with files")]
    NotOfFiles {
        /// The option.
        option: &'static str,
    },
    /// It is not said how large files are.
    #[error("files need filesize, or size and nrfiles")]
    NoFileSize,
    /// The file system has no room for the files.
    #[error("files of {files} bytes and more do not fit the file system of {room}")]
    FilesAboveRoom {
        /// Bytes of the files.
        files: u64,
        /// Bytes of the file system.
        room: u64,
    },
    /// Write mode `append` on a device without zone append.
    #[error(
        "write mode append needs native zone append, which the device does not have; take per-zone or qd1"
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
        /// Most blocks of a map.
        max: u64,
    },
    /// The buffers would be too large.
    #[error("the buffers of all jobs together would take {bytes} bytes, at most {max} are allowed")]
    Buffers {
        /// Their size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}
