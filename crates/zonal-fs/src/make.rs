//! Makes and opens file systems on drives.
//!
//! # Layout
//! On a drive with conventional zones, copies of the superblock take the first blocks of these
//! zones, and pieces of the metadata store follow. On other drives, zones 0 and 1 hold the copies
//! in turn, and the store has its own zones. In both cases the caller can have the store in a file
//! beside the drive instead. See [`superblocks`] for the copies.
//!
//! The superblock is written last. Until then there is no file system.

use crate::drive::Drive;
use crate::format::{Anchor, DATA_BLOCKS_MAX, Metadata, Superblock, SuperblockError, Uuid};
use crate::fs::mount::check_drive;
use crate::fs::{FileSystem, FsError, MountOptions, OpenError};
use crate::space::open::{HOMES, ZONES_MIN};
use crate::store::backend::file;
use crate::store::backend::log::{self, NEW_PAGES_MIN, SEGMENTS_NEW, new_pages, plan_pieces};
use crate::store::backend::{BackendError, Store, StoreFile};
use crate::store::{Rows, StoreError};
use crate::superblocks::{self, COPY_BLOCKS, LocatedCopy, Writer, check_zones};
use crate::waiter::{Wait, Waiters, polling};
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::path::PathBuf;
use std::sync::Arc;
use zonal_core::{RequestError, Sector, ZoneCondition, ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::device::{Device, OpenMode};
use zonal_io::image::backing::Backing;
use zonal_io::owner::{self, Owner};
use zonal_io::volume::{Request, Volume, VolumeOptions};

/// Reason for refusing changes on a drive that is open for reading.
const READ_ONLY: &str = "the drive is open for reading only, by request or because its file is not writable";

/// Minimum number of pages of metadata for a usable file system.
const PAGES_MIN: u64 = 100;

/// Maximum number of zones in the store of a new file system.
const NEW_ZONES_MAX: u32 = 64;

/// On a drive with fewer zones, the store starts with the minimum number of zones.
const SMALL_DRIVE: u32 = 10;

/// Options for a new file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MakeOptions {
    /// Label for people.
    pub label: String,
    /// Size of the largest unit in bytes, header included. `None` for the drive's maximum, up to
    /// [`DATA_BLOCKS_MAX`] and a header.
    pub unit_bytes: Option<u32>,
    /// File for the metadata, instead of the drive.
    pub beside: Option<PathBuf>,
    /// Write data without checksums.
    pub is_unsummed: bool,
    /// Bytes that users never get, in addition to the reserve for garbage collection.
    pub reserved_bytes: u64,
    /// Initial number of metadata zones on a drive without conventional zones.
    pub log_zones: Option<u32>,
    /// Overwrite data on the drive.
    pub force: bool,
}

zonal_core::setters! {
    MakeOptions
    /// Label for people.
    with_label label: impl Into<String>;
    /// Size of the largest unit in bytes, header included. `None` for the drive's maximum.
    with_unit_bytes unit_bytes: impl Into<Option<u32>>;
    /// File for the metadata, instead of the drive.
    with_beside beside: impl Into<Option<PathBuf>>;
    /// True to write data without checksums.
    with_is_unsummed is_unsummed: bool;
    /// Bytes that users never get.
    with_reserved_bytes reserved_bytes: u64;
    /// Initial number of metadata zones on a drive without conventional zones.
    with_log_zones log_zones: impl Into<Option<u32>>;
    /// True to overwrite data on the drive.
    with_force force: bool;
}

/// Failure to make or open a file system.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum MakeError {
    /// The drive contains data.
    #[error("the drive contains {what}; it is overwritten only on request")]
    InUse {
        /// Description of the data.
        what: String,
    },
    /// The drive or an option is unsuitable.
    #[error("{0}")]
    Unfit(String),
    /// The drive cannot be opened as a volume.
    #[error(transparent)]
    Volume(zonal_io::volume::OpenError),
    /// There is no valid superblock.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// A copy of the superblock that may be the newest is damaged.
    #[error("zone {zone} block {block}: the newest copy of the superblock is damaged")]
    DamagedSuperblock {
        /// The zone.
        zone: ZoneIndex,
        /// The block in it.
        block: u32,
    },
    /// The metadata are in a file that was not given.
    #[error("the metadata are in a file beside the drive; name that file")]
    NeedsFile,
    /// The drive failed.
    #[error("the drive: {0}")]
    Drive(#[from] RequestError),
    /// The storage of the metadata failed.
    #[error("metadata: {0}")]
    Backend(#[from] BackendError),
    /// Reading or writing the rows failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file system was found but cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl MakeError {
    /// True if the file system exists and a repair may help: [`look`] may still work. Errors of the
    /// drive that may be transient do not count.
    pub fn needs_repair(&self) -> bool {
        let is_of_metadata = matches!(
            self,
            MakeError::Open(OpenError::Zones(_) | OpenError::Fs(_))
                | MakeError::Fs(_)
                | MakeError::Backend(_)
        );
        is_of_metadata && self.passing().is_none()
    }

    /// The drive's error for a request for metadata, if it caused this error and may be transient.
    /// An offline zone is not transient.
    pub fn passing(&self) -> Option<&RequestError> {
        let answer = match self {
            MakeError::Drive(answer) => Some(answer),
            MakeError::Backend(error) => error.answer(),
            MakeError::Fs(error) | MakeError::Open(OpenError::Fs(error)) => error.answer(),
            _ => None,
        };
        answer.filter(|answer| crate::drive::lasting_condition(answer).is_none())
    }
}

impl From<StoreError> for MakeError {
    fn from(error: StoreError) -> MakeError {
        MakeError::Fs(error.into())
    }
}

/// Opens a volume on a device for one file system, with waiters in real time.
pub(crate) fn for_threads(device: Arc<dyn Device>) -> Result<(Arc<Drive>, Waiters), MakeError> {
    // The file system enforces the limit of open zones itself.
    let options = VolumeOptions::default().without_budget();
    let volume = Volume::open(device, options).map_err(MakeError::Volume)?;
    Ok((Arc::new(Drive::new(Arc::new(volume))), polling(Clock::start())))
}

/// Finds the superblock.
///
/// # Errors
/// [`MakeError::Superblock`] if there is no valid one; [`MakeError::DamagedSuperblock`] if the
/// newest one may be damaged.
pub fn superblock(drive: &Drive, waiter: &dyn Wait) -> Result<Superblock, MakeError> {
    Ok(superblocks::find(drive, waiter)?.copy.superblock)
}

/// Storage of metadata beside the drive.
#[derive(Clone)]
pub enum Beside {
    /// A file.
    Path(PathBuf),
    /// Storage in memory with a single owner, for tests that cut the power.
    Backing(Arc<dyn Backing>),
}

impl From<PathBuf> for Beside {
    fn from(path: PathBuf) -> Beside {
        Beside::Path(path)
    }
}

impl Beside {
    fn create(&self, uuid: &Uuid) -> Result<StoreFile, BackendError> {
        match self {
            Beside::Path(path) => file::create(path, uuid),
            Beside::Backing(backing) => StoreFile::create(backing.clone(), uuid),
        }
    }

    fn open(&self, uuid: &Uuid, mode: OpenMode) -> Result<StoreFile, BackendError> {
        match self {
            Beside::Path(path) => file::open(path, uuid, mode),
            Beside::Backing(backing) => StoreFile::over(backing.clone(), uuid),
        }
    }
}

/// Makes a file system with the identity `uuid`.
///
/// # Errors
/// [`MakeError`]. If it fails before the first change, the drive is unchanged. After that, the
/// drive has no file system.
pub fn make(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    uuid: Uuid,
    options: &MakeOptions,
) -> Result<Superblock, MakeError> {
    let beside = options.beside.clone().map(Beside::Path);
    make_with(drive, waiters, uuid, options, beside.as_ref())
}

/// Like [`make`], with the metadata in `backing` instead of a file.
///
/// # Errors
/// As for [`make`].
pub fn make_in(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    uuid: Uuid,
    options: &MakeOptions,
    backing: Arc<dyn Backing>,
) -> Result<Superblock, MakeError> {
    let options = MakeOptions { beside: Some(PathBuf::new()), ..options.clone() };
    make_with(drive, waiters, uuid, &options, Some(&Beside::Backing(backing)))
}

fn make_with(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    uuid: Uuid,
    options: &MakeOptions,
    beside: Option<&Beside>,
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
            "it keeps no data, like null: and sim:; for files on it, use `zonal bench --target=fs`",
        ));
    }
    if !options.force {
        check_unused(drive, waiter, &report)?;
    }
    let anchor = plan_anchor(drive, &report, &superblock, options)?;
    let create = || {
        let writer = Writer::unmade(superblock.clone(), drive.volume(), anchor.clone());
        create_rows(drive, waiters, beside, &superblock, writer)
    };
    // If the file cannot be created, fail before the drive is changed.
    let there = beside.map(|beside| create().map(|rows| (beside, rows))).transpose()?;
    let (there, rows) = there.unzip();
    let made = clear(drive, waiter, &report).and_then(|()| {
        let rows = rows.map_or_else(create, Ok)?;
        fill(waiter, &superblock, rows)
    });
    if let (Err(_), Some(Beside::Path(path))) = (&made, there) {
        // The file belongs to no file system. The caller gets the first error.
        let _ = std::fs::remove_file(path);
    }
    made.map(|()| superblock)
}

/// Writes the first rows, and then the superblock.
fn fill(waiter: &dyn Wait, superblock: &Superblock, mut rows: Rows) -> Result<(), MakeError> {
    FileSystem::make(&mut rows, superblock, waiter)?;
    let backend = rows.close();
    Ok(backend.log().map_or(Ok(()), log::Log::make)?)
}

/// Creates a store without rows, replacing that of any existing file system. A file beside the drive
/// has to be new. `writer` determines the location.
pub(crate) fn create_rows(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<&Beside>,
    superblock: &Superblock,
    writer: Writer,
) -> Result<Rows, MakeError> {
    let file = match superblock.metadata {
        Metadata::Beside => Some(beside.ok_or(MakeError::NeedsFile)?.create(&superblock.uuid)?),
        Metadata::Conventional | Metadata::Logged => None,
    };
    let access = log::Access { drive: drive.clone(), waiters: waiters.clone(), file };
    let store = Store::create(access, superblock.uuid, writer)?;
    Ok(Rows::open(store, MountOptions::default().cache_bytes)?)
}

/// Opens the file system of a drive. `beside` names the file of its metadata, if they are in one.
/// If the drive was opened for reading, the file system refuses changes as with [`look`].
///
/// # Errors
/// [`MakeError`]. Files that were unnamed at a power cut may be deleted already; nothing else was changed.
pub fn open(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    options: MountOptions,
) -> Result<FileSystem, MakeError> {
    if drive.volume().info().read_only {
        return look_with_reason(READ_ONLY, drive, waiters, beside, options);
    }
    let waiter = &*waiters();
    let found = superblocks::find(drive, waiter)?;
    let rows = open_found(drive, waiters, beside.map(Beside::Path), &found, Access::Use(&options))?;
    let superblock = found.copy.superblock;
    let fs = FileSystem::open(drive.volume().clone(), rows, superblock, options, true, waiter)?;
    Ok(fs.with_waiters(waiters))
}

/// Opens the file system of a drive read-only. Nothing is written or flushed, neither on the drive
/// nor in the file of the metadata. A file system that needs a repair can be opened too, as far as
/// its metadata can be read and verified.
///
/// # Errors
/// [`MakeError`].
pub fn look(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    options: MountOptions,
) -> Result<FileSystem, MakeError> {
    look_with_reason("it is open for inspection only", drive, waiters, beside, options)
}

/// Like [`look`]. Changes are refused with an error that includes `why`.
///
/// # Errors
/// [`MakeError`].
pub fn look_with_reason(
    why: &str,
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<PathBuf>,
    options: MountOptions,
) -> Result<FileSystem, MakeError> {
    let waiter = &*waiters();
    let found = superblocks::find(drive, waiter)?;
    let rows = open_found(drive, waiters, beside.map(Beside::Path), &found, Access::Look(&options))?;
    let superblock = found.copy.superblock;
    let fs = FileSystem::look(drive.volume().clone(), rows, superblock, options, waiter, why)?;
    Ok(fs.with_waiters(waiters))
}

/// Purpose for which the rows of a file system are opened.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// To read and change them.
    Use(&'a MountOptions),
    /// To read them: changes stay in memory.
    Look(&'a MountOptions),
    /// Like `Look` for rows that may be damaged: every page is verified first.
    Verify,
}

/// Opens the rows of a file system.
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
    let found = superblocks::find(drive, &*waiters())?;
    if found.copy.superblock != *superblock {
        return Err(OpenError::OtherMetadata.into());
    }
    open_found(drive, waiters, beside.map(Beside::Path), &found, access)
}

/// Opens the rows of a file system with its metadata in `backing`.
///
/// # Errors
/// [`MakeError`].
pub fn open_rows_in(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    backing: Arc<dyn Backing>,
    access: Access<'_>,
) -> Result<Rows, MakeError> {
    let found = superblocks::find(drive, &*waiters())?;
    open_found(drive, waiters, Some(Beside::Backing(backing)), &found, access)
}

/// Opens the rows named by `found`.
pub(crate) fn open_found(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<Beside>,
    found: &LocatedCopy,
    access: Access<'_>,
) -> Result<Rows, MakeError> {
    Ok(match access {
        Access::Use(options) => Rows::open(open_store(drive, waiters, beside, found)?, options.cache_bytes)?,
        Access::Look(options) => {
            Rows::open(open_store_read_only(drive, waiters, beside, found)?, options.cache_bytes)?
        }
        Access::Verify => {
            let store = open_store_read_only(drive, waiters, beside, found)?;
            Rows::verified(store, MountOptions::default().cache_bytes)?
        }
    })
}

/// Opens the metadata store named by `found` for changes.
pub(crate) fn open_store(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<Beside>,
    found: &LocatedCopy,
) -> Result<Store, MakeError> {
    Ok(Store::open(reach(drive, waiters, beside, found, OpenMode::Writing)?, found)?)
}

/// Opens the metadata store named by `found` read-only.
pub(crate) fn open_store_read_only(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<Beside>,
    found: &LocatedCopy,
) -> Result<Store, MakeError> {
    Ok(Store::look(reach(drive, waiters, beside, found, OpenMode::Reading)?, found)?)
}

fn reach(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    beside: Option<Beside>,
    found: &LocatedCopy,
    mode: OpenMode,
) -> Result<log::Access, MakeError> {
    let superblock = &found.copy.superblock;
    check_drive(drive.volume(), superblock)?;
    check_zones(drive.volume(), superblock).map_err(OpenError::from)?;
    let file = match superblock.metadata {
        Metadata::Beside => Some(beside.ok_or(MakeError::NeedsFile)?.open(&superblock.uuid, mode)?),
        Metadata::Conventional | Metadata::Logged => None,
    };
    Ok(log::Access { drive: drive.clone(), waiters: waiters.clone(), file })
}

fn unfit(what: impl Into<String>) -> MakeError {
    MakeError::Unfit(what.into())
}

/// Plans the superblock of a new file system.
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
        return Err(unfit(format!(
            "appends of {wanted} whole blocks of 4 KiB; the drive takes 2 to {largest}"
        )));
    }
    let is_conventional = geometry.conventional_zones() > 0;
    let is_roomy = || {
        let (piece_blocks, most) = plan_pieces(Metadata::Conventional, drive);
        new_pieces(piece_blocks, most).is_ok()
    };
    let metadata = match &options.beside {
        Some(_) => Metadata::Beside,
        None if is_conventional && is_roomy() => Metadata::Conventional,
        None => Metadata::Logged,
    };
    let first_zone = match is_conventional {
        true => geometry.conventional_zones(),
        false => HOMES,
    };
    let store = if metadata == Metadata::Logged { new_zones(drive, options)? } else { 0 };
    let is_lost =
        |zone: &&ZoneDescriptor| matches!(zone.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
    let lost = report.iter().skip(first_zone as usize).filter(is_lost).count() as u32;
    let data = geometry.zones().saturating_sub(first_zone + store + lost);
    if data < ZONES_MIN {
        return Err(unfit(format!(
            "{data} zones are left for data; a file system needs {}: use a drive with more zones",
            ZONES_MIN
        )));
    }
    let superblock = Superblock {
        is_summed: !options.is_unsummed,
        reserved_blocks: options.reserved_bytes.div_ceil(BLOCK_BYTES.into()),
        label: options.label.clone(),
        ..Superblock::new(uuid, geometry, wanted, metadata, first_zone)
    };
    check_zones(drive.volume(), &superblock).map_err(|lack| unfit(lack.to_string()))?;
    Ok(superblock)
}

/// Plans the location of the metadata of a new file system.
pub(crate) fn plan_anchor(
    drive: &Drive,
    report: &[ZoneDescriptor],
    superblock: &Superblock,
    options: &MakeOptions,
) -> Result<Anchor, MakeError> {
    let (piece_blocks, most) = plan_pieces(superblock.metadata, drive);
    let pieces = match superblock.metadata {
        Metadata::Logged => 0,
        _ => new_pieces(piece_blocks, most)?,
    };
    let wanted = if superblock.metadata == Metadata::Logged { new_zones(drive, options)? } else { 0 };
    let is_sound =
        |zone: &&ZoneDescriptor| !matches!(zone.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
    let ours = report.iter().skip(superblock.first_zone as usize).filter(is_sound);
    let zones: Vec<ZoneIndex> = ours.take(wanted as usize).map(|zone| zone.zone).collect();
    let homes = match drive.volume().info().geometry.conventional_zones() {
        0 => [ZoneIndex(0), ZoneIndex(1)],
        _ => [ZoneIndex(0); 2],
    };
    Ok(Anchor { copy: 0, number: 0, batch: 0, homes, pieces, piece_blocks, zones })
}

/// Number of pieces that the store of a new file system starts with, of `most` available ones.
fn new_pieces(piece_blocks: u32, most: u64) -> Result<u32, MakeError> {
    let most = most.min(NEW_ZONES_MAX.into()) as u32;
    let pages = |pieces: u32| new_pages(pieces, piece_blocks.into());
    let enough = (SEGMENTS_NEW as u32..=most).find(|pieces| pages(*pieces) >= NEW_PAGES_MIN);
    match enough.unwrap_or(most) {
        pieces if piece_blocks >= log::SEGMENT_BLOCKS_MIN && pages(pieces) >= PAGES_MIN => Ok(pieces),
        pieces => Err(unfit(format!(
            "the conventional zones have room for {} pages of metadata; at least {PAGES_MIN} are needed",
            pages(pieces)
        ))),
    }
}

/// Number of zones that the store starts with: three, more if they are small, and two on the
/// smallest drives.
fn new_zones(drive: &Drive, options: &MakeOptions) -> Result<u32, MakeError> {
    let geometry = &drive.volume().info().geometry;
    let blocks = geometry.zone_capacity().0 / u64::from(BLOCK_SECTORS);
    let usual = if geometry.zones() < SMALL_DRIVE { log::SEGMENTS_MIN } else { SEGMENTS_NEW } as u32;
    let suits = |zones: &u32| new_pages(*zones, blocks) >= NEW_PAGES_MIN;
    let Some(fewest) = (usual..=NEW_ZONES_MAX).find(suits) else {
        return Err(unfit(format!("zones of {blocks} blocks of 4 KiB are too small for metadata")));
    };
    let zones = options.log_zones.unwrap_or(fewest);
    if !(fewest..=NEW_ZONES_MAX).contains(&zones) {
        return Err(unfit(format!(
            "{zones} zones for metadata; a file system on this drive takes {fewest} to {NEW_ZONES_MAX}"
        )));
    }
    Ok(zones)
}

/// Size in blocks of the largest unit that the drive accepts and a header can describe, which is
/// the default. Disks are fastest with large commands, and a file of one or two MiB should fit in
/// one unit.
pub fn unit_blocks_max(volume: &Volume) -> u32 {
    let sectors = volume.append_sectors_max().min(volume.info().command_sectors_max);
    (sectors / BLOCK_SECTORS).min(DATA_BLOCKS_MAX + 1)
}

/// Fails if there is any data on the drive.
fn check_unused(drive: &Drive, waiter: &dyn Wait, report: &[ZoneDescriptor]) -> Result<(), MakeError> {
    if let Some(owner) = owner::find(&**drive.volume().device()) {
        return Err(MakeError::InUse { what: owner.to_string() });
    }
    // The first zones of a file system may have failed. Its superblocks are elsewhere then.
    if let Ok(superblock) = superblock(drive, waiter) {
        return Err(MakeError::InUse { what: Owner::Zonal { label: superblock.label }.to_string() });
    }
    let is_written = |zone: &&ZoneDescriptor| {
        !matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::NotWp | ZoneCondition::Offline)
    };
    match report.iter().filter(is_written).count() {
        0 => Ok(()),
        zones => Err(MakeError::InUse { what: format!("data in {zones} zones") }),
    }
}

/// Resets all zones, and overwrites the copies of the superblock in conventional ones.
fn clear(drive: &Drive, waiter: &dyn Wait, report: &[ZoneDescriptor]) -> Result<(), MakeError> {
    if report[0].zone_type == ZoneType::Conventional {
        drive.write(waiter, Sector(0), IoBuf::zeroed(COPY_BLOCKS * BLOCK_BYTES))?;
    }
    drive.call(waiter, Request::reset_all()).0?;
    Ok(drive.flush(waiter)?)
}
