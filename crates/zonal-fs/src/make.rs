//! File systems on drives: made, and found again.
//!
//! # What lies where
//! The superblock lies twice at the start of zone 0. Where the drive has conventional zones, the metadata follow it there.
//! Where it has none, zone 0 has nothing else, and the next zones are the log of the metadata. In both cases, if it is
//! wanted so, the metadata are in a file beside the drive instead.
//!
//! The superblock is written last: what was not made to its end is no file system.

use crate::drive::Drive;
use crate::format::{DATA_BLOCKS_MAX, Metadata, Superblock, SuperblockError, Uuid};
use crate::fs::mount::check_drive;
use crate::fs::{FileSystem, FsError, MountOptions, OpenError};
use crate::space::open::OPEN_MIN;
use crate::store::backend::logged::{ZONES_MAX, ZONES_MIN, pages_of_new};
use crate::store::backend::{Aside, Backend, BackendError, Conventional, FileBeside, Logged, PAGES_OF_NEW};
use crate::store::{Rows, StoreError};
use crate::waiter::{Waiter, Waiters};
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::{Op, RequestError, Sector, ZoneCondition, ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::{Request, Volume};

/// Zones of the metadata's log: one in so many of the drive's, as far as a log can have them.
const LOG_SHARE: u32 = 512;

/// Why nothing is changed on a drive that is open for reading.
const READ_ONLY: &str = "the drive is open for reading only, as asked or because its file may not be written";

/// Copies of the superblock, from block 0 on.
pub const COPIES: u32 = 2;

/// How a file system is to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MakeOptions {
    /// Its name for people.
    pub label: String,
    /// Bytes of the largest unit; its header included; `None`: what the drive takes, at most [`DATA_BLOCKS_MAX`] and the header.
    pub unit_bytes: Option<u32>,
    /// Keep the metadata in this file instead of on the drive.
    pub beside: Option<PathBuf>,
    /// Write data without checksums.
    pub is_unsummed: bool,
    /// Bytes that users never get, beside what collecting takes.
    pub reserved_bytes: u64,
    /// Zones of the metadata's log, where there is one.
    pub log_zones: Option<u32>,
    /// Although there is data on the drive.
    pub force: bool,
}

/// Why a file system cannot be made or found.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum MakeError {
    /// Somebody's data would be lost.
    #[error("there is {what} on the drive; it is not overwritten unless that is asked for")]
    InUse {
        /// What is there.
        what: String,
    },
    /// The drive, or a wish, does not suit.
    #[error("{0}")]
    Unfit(String),
    /// There is none.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The metadata are in a file, which was not named.
    #[error("the metadata are in a file beside the drive, which has to be named")]
    NeedsFile,
    /// The drive failed.
    #[error("the drive: {0}")]
    Drive(#[from] RequestError),
    /// The place of the metadata.
    #[error("metadata: {0}")]
    Backend(#[from] BackendError),
    /// The rows.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// What is there cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<StoreError> for MakeError {
    fn from(error: StoreError) -> MakeError {
        MakeError::Fs(error.into())
    }
}

/// Finds the superblock.
///
/// # Errors
/// [`MakeError::Superblock`] if there is none, or none that counts.
pub fn superblock(drive: &Drive, waiter: &dyn Waiter) -> Result<Superblock, MakeError> {
    let mut first = None;
    for found in superblocks(drive, waiter) {
        match found {
            Ok(superblock) => return Ok(superblock),
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.expect("there are copies"))
}

/// Each copy of the superblock, or what keeps it from being one.
pub fn superblocks(drive: &Drive, waiter: &dyn Waiter) -> Vec<Result<Superblock, MakeError>> {
    let copy = |copy: u32| {
        let block = drive.read(waiter, Sector(u64::from(copy * BLOCK_SECTORS)), BLOCK_SECTORS)?;
        Ok(Superblock::decode(&block)?)
    };
    (0..COPIES).map(copy).collect()
}

/// Makes a file system with this name for itself.
///
/// # Errors
/// [`MakeError`]. After one there is no file system on the drive; before anything is touched it is found whether there can
/// be.
pub fn make(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    uuid: Uuid,
    options: &MakeOptions,
) -> Result<Superblock, MakeError> {
    let waiter = &*waiters();
    drop(drive.claim().ok_or(BackendError::Claimed)?);
    if drive.volume().info().read_only {
        return Err(unfit(READ_ONLY));
    }
    let report = drive.report(waiter)?;
    let superblock = plan(drive, &report, uuid, options)?;
    if !drive.keeps_data(waiter) {
        return Err(unfit(
            "it keeps no data, such as null: and sim: do; `zonal bench --target=fs` works with files on it",
        ));
    }
    if !options.force {
        check_unused(drive, waiter, &report)?;
    }
    let create = || create_rows(drive, waiters, options.beside.as_deref(), &superblock);
    // A file that cannot be made is found out while all is as it was.
    let beside = options.beside.as_deref().map(|path| create().map(|rows| (path, rows))).transpose()?;
    let (path, rows) = beside.unzip();
    let made = clear(drive, waiter, &report).and_then(|()| {
        let rows = rows.map_or_else(create, Ok)?;
        fill(drive, waiter, &superblock, rows, report[0].zone_type)
    });
    if let (Err(_), Some(path)) = (&made, path) {
        // It belongs to nothing. The first error is the one to tell.
        let _ = std::fs::remove_file(path);
    }
    made.map(|()| superblock)
}

/// Writes the first rows, and then the superblock.
fn fill(
    drive: &Drive,
    waiter: &dyn Waiter,
    superblock: &Superblock,
    mut rows: Rows,
    first: ZoneType,
) -> Result<(), MakeError> {
    FileSystem::make(&mut rows, superblock, waiter)?;
    drop(rows);
    write_superblock(drive, waiter, superblock)?;
    if first != ZoneType::Conventional {
        // Nothing more comes into it, and partly written it would count against the drive's active zones for ever.
        drive.zone(waiter, Op::ZoneFinish, ZoneIndex(0))?;
        drive.flush(waiter)?;
    }
    Ok(())
}

/// An empty database where that of a file system lies, whatever is there; a file beside has to be a new one.
pub(crate) fn create_rows(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<&Path>,
    superblock: &Superblock,
) -> Result<Rows, MakeError> {
    let (drive, waiters, uuid) = (drive.clone(), waiters.clone(), superblock.uuid);
    let options = MountOptions::default();
    let access = Access::Use(&options);
    match superblock.metadata {
        Metadata::Beside => access.rows(FileBeside::create(beside.ok_or(MakeError::NeedsFile)?, uuid)?),
        Metadata::Conventional => {
            let range = conventional(&drive);
            access.rows(Conventional::create(drive, waiters, range, uuid)?)
        }
        Metadata::Logged => access.rows(Logged::create(drive, waiters, log_zones(superblock), uuid)?),
    }
}

/// Opens the file system of a drive; `beside` names the file of its metadata, if they are in one. On a drive that was opened
/// for reading it takes no changes, and says why: see [`look`].
///
/// # Errors
/// [`MakeError`]; nothing was changed.
pub fn open(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    options: MountOptions,
) -> Result<FileSystem, MakeError> {
    if drive.volume().info().read_only {
        return look_because(READ_ONLY, drive, waiters, beside, options);
    }
    let waiter = &*waiters();
    let superblock = superblock(drive, waiter)?;
    let rows = open_rows(drive, waiters, beside, &superblock, Access::Use(&options))?;
    Ok(FileSystem::open(drive.volume().clone(), rows, superblock, options, true, waiter)?)
}

/// Opens the file system of a drive to look at it: it takes no changes, and nothing is written to the drive or to the file of
/// its metadata.
///
/// # Errors
/// [`MakeError`].
pub fn look(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    options: MountOptions,
) -> Result<FileSystem, MakeError> {
    look_because("it is only looked at", drive, waiters, beside, options)
}

/// The same, and `why` it takes no changes.
fn look_because(
    why: &str,
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    options: MountOptions,
) -> Result<FileSystem, MakeError> {
    let waiter = &*waiters();
    let superblock = superblock(drive, waiter)?;
    let rows = open_rows(drive, waiters, beside, &superblock, Access::Look(&options))?;
    let fs = FileSystem::open(drive.volume().clone(), rows, superblock, options, true, waiter)?;
    fs.forbid_changes(why);
    Ok(fs)
}

/// What the rows of a file system are opened for.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// To be used and changed.
    Use(&'a MountOptions),
    /// To be looked at: nothing changes where they are, whatever is done with them.
    Look(&'a MountOptions),
    /// The same, though they may be damaged: every page is verified first.
    Verify,
}

impl Access<'_> {
    fn rows(self, backend: impl Backend) -> Result<Rows, MakeError> {
        let aside = |backend| Aside::new(backend).map_err(redb::StorageError::from).map_err(StoreError::from);
        Ok(match self {
            Access::Use(options) => Rows::open(backend, options.cache_bytes)?,
            Access::Look(options) => Rows::open(aside(backend)?, options.cache_bytes)?,
            Access::Verify => Rows::verified(aside(backend)?, MountOptions::default().cache_bytes)?,
        })
    }
}

/// The rows of a file system.
///
/// # Errors
/// [`MakeError`].
pub fn open_rows(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    superblock: &Superblock,
    access: Access<'_>,
) -> Result<Rows, MakeError> {
    check_drive(drive.volume(), superblock)?;
    let (drive, waiters, uuid) = (drive.clone(), waiters.clone(), superblock.uuid);
    match superblock.metadata {
        Metadata::Beside => {
            let path = beside.ok_or(MakeError::NeedsFile)?;
            match access {
                Access::Use(_) => access.rows(FileBeside::open(&path, uuid)?),
                Access::Look(_) | Access::Verify => access.rows(FileBeside::open_to_read(&path, uuid)?),
            }
        }
        Metadata::Conventional => {
            let range = conventional(&drive);
            access.rows(Conventional::open(drive, waiters, range, uuid)?)
        }
        Metadata::Logged => access.rows(Logged::open(drive, waiters, log_zones(superblock), uuid)?),
    }
}

/// Where metadata in conventional zones lie.
pub(crate) fn conventional(drive: &Drive) -> Range<Sector> {
    let geometry = &drive.volume().info().geometry;
    let first = Sector(u64::from(COPIES * BLOCK_SECTORS));
    first..geometry.start_of(ZoneIndex(geometry.conventional_zones()))
}

/// The zones of the metadata's log.
pub(crate) fn log_zones(superblock: &Superblock) -> Vec<ZoneIndex> {
    // A superblock that lies may say that there are any number.
    let end = superblock.first_zone.min(ZONES_MAX as u32 + 2);
    (1..end).map(ZoneIndex).collect()
}

fn unfit(what: impl Into<String>) -> MakeError {
    MakeError::Unfit(what.into())
}

/// What the file system will be.
pub(crate) fn plan(
    drive: &Drive,
    report: &[ZoneDescriptor],
    uuid: Uuid,
    options: &MakeOptions,
) -> Result<Superblock, MakeError> {
    let info = drive.volume().info();
    let geometry = &info.geometry;
    if info.block_sectors > BLOCK_SECTORS {
        return Err(unfit("its blocks are larger than 4096 bytes"));
    }
    if options.label.len() > 64 {
        return Err(unfit("the label is longer than 64 bytes"));
    }
    let largest = unit_blocks_max(drive.volume());
    let wanted = options.unit_bytes.map_or(largest, |bytes| bytes / BLOCK_BYTES);
    if !(2..=largest).contains(&wanted) {
        return Err(unfit(format!("units of {wanted} blocks of 4 KiB; the drive takes 2 to {largest}")));
    }
    let is_conventional = report.first().is_some_and(|zone| zone.zone_type == ZoneType::Conventional);
    let (metadata, first_zone) = match (&options.beside, is_conventional) {
        (Some(_), true) => (Metadata::Beside, geometry.conventional_zones()),
        (Some(_), false) => (Metadata::Beside, 1),
        (None, true) => {
            check_conventional(drive)?;
            (Metadata::Conventional, geometry.conventional_zones())
        }
        (None, false) => (Metadata::Logged, 1 + log_zones_of(drive, options)?),
    };
    let data = geometry.zones().saturating_sub(first_zone);
    if data < crate::space::open::ZONES_MIN {
        return Err(unfit(format!(
            "{data} zones are left for data; a file system needs {}",
            crate::space::open::ZONES_MIN
        )));
    }
    check_limits(drive, metadata)?;
    Ok(Superblock {
        is_summed: !options.is_unsummed,
        reserved_blocks: options.reserved_bytes.div_ceil(BLOCK_BYTES.into()),
        label: options.label.clone(),
        ..Superblock::new(uuid, geometry, wanted, metadata, first_zone)
    })
}

/// An error if the drive lets too few zones be open.
fn check_limits(drive: &Drive, metadata: Metadata) -> Result<(), MakeError> {
    let info = drive.volume().info();
    let log = u32::from(metadata == Metadata::Logged);
    let needed = OPEN_MIN + log;
    match [info.open_max, info.active_max].into_iter().filter(|max| *max > 0).min() {
        Some(limit) if limit < needed => Err(unfit(format!(
            "it lets {limit} zones be open; a file system needs {OPEN_MIN} for data and {log} for metadata"
        ))),
        _ => Ok(()),
    }
}

/// An error if the conventional zones have no room for metadata.
fn check_conventional(drive: &Drive) -> Result<(), MakeError> {
    let pages = Conventional::pages_of(&conventional(drive));
    if pages < PAGES_OF_NEW {
        return Err(unfit(format!(
            "the conventional zones have room for {pages} pages of metadata; it takes {PAGES_OF_NEW}"
        )));
    }
    Ok(())
}

/// How many zones the log gets: one in so many, and enough for a new database.
fn log_zones_of(drive: &Drive, options: &MakeOptions) -> Result<u32, MakeError> {
    let geometry = &drive.volume().info().geometry;
    let blocks = geometry.capacity_of(ZoneIndex(0)) / BLOCK_SECTORS;
    let (fewest, most) = (ZONES_MIN as u32, ZONES_MAX as u32);
    let suits = |zones: &u32| pages_of_new(*zones, blocks) >= PAGES_OF_NEW;
    let Some(fewest) = (fewest..=most).find(suits) else {
        return Err(unfit(format!("zones of {blocks} blocks of 4 KiB are too small for a log of metadata")));
    };
    let zones = options.log_zones.unwrap_or((geometry.zones() / LOG_SHARE).clamp(fewest, most));
    if !(fewest..=most).contains(&zones) {
        return Err(unfit(format!("a log of {zones} zones; on this drive it takes {fewest} to {most}")));
    }
    Ok(zones)
}

/// Blocks of the largest unit that a drive takes and a header has room for, which is what units are unless somebody wants it
/// otherwise: a disk is fastest with large commands, and a file of a mebibyte or two is to be one.
pub fn unit_blocks_max(volume: &Volume) -> u32 {
    let sectors = volume.append_sectors_max().min(volume.info().command_sectors_max);
    (sectors / BLOCK_SECTORS).min(DATA_BLOCKS_MAX + 1)
}

/// An error if there is anything on the drive.
fn check_unused(drive: &Drive, waiter: &dyn Waiter, report: &[ZoneDescriptor]) -> Result<(), MakeError> {
    if let Ok(superblock) = superblock(drive, waiter) {
        return Err(MakeError::InUse { what: format!("the file system `{}`", superblock.label) });
    }
    let is_written = |zone: &&ZoneDescriptor| {
        !matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::NotWp | ZoneCondition::Offline)
    };
    match report.iter().filter(is_written).count() {
        0 => Ok(()),
        zones => Err(MakeError::InUse { what: format!("data in {zones} zones") }),
    }
}

/// Makes all zones empty, and a superblock that is there count no more.
fn clear(drive: &Drive, waiter: &dyn Waiter, report: &[ZoneDescriptor]) -> Result<(), MakeError> {
    if report[0].zone_type == ZoneType::Conventional {
        drive.write(waiter, Sector(0), IoBuf::zeroed(COPIES * BLOCK_BYTES))?;
    }
    drive.call(waiter, Request::reset_all()).0?;
    Ok(drive.flush(waiter)?)
}

pub(crate) fn write_superblock(
    drive: &Drive,
    waiter: &dyn Waiter,
    superblock: &Superblock,
) -> Result<(), MakeError> {
    let mut buf = IoBuf::zeroed(COPIES * BLOCK_BYTES);
    for copy in buf.chunks_exact_mut(BLOCK_BYTES as usize) {
        copy.copy_from_slice(&superblock.encode());
    }
    drive.write(waiter, Sector(0), buf)?;
    Ok(drive.flush(waiter)?)
}
