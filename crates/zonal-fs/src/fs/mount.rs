//! Opens a file system from its rows and a report of the zones.
//!
//! The rows are as of the last commit, but zones may have been written since. Blocks below a zone's
//! write pointer that no file refers to are garbage, and count as written. Nothing is replayed.

use super::beginnings::Beginnings;
use super::combine::CombinedUnits;
use super::commit::UnflushedUnits;
use super::core::{Core, CoreLock, MountOptions, Shared};
use super::create::Names;
use super::destroy::DeletedFiles;
use super::error::FsError;
use super::files::{self, FileCounter};
use super::known::KnownFiles;
use super::map::Tails;
use super::names::ROOT;
use super::node::Nodes;
use super::number::generation;
use super::readers::Readers;
use super::small_buffers::SmallBuffers;
use super::space::{Space, SpaceLock};
use super::stats::Statistics;
use super::turn::Turns;
use super::unit_sums::UnitSums;
use super::waiting::WaitingRoom;
use super::write_buffer::WriteBuffers;
use crate::BLOCK_SECTORS;
use crate::drive::Drive;
use crate::format::{
    Account, Attributes, FILES_END, FileKind, Header, Metadata, NUMBERS_END, NUMBERS_SKIPPED, Position,
    RowError, Superblock, key,
};
use crate::make::unit_blocks_max;
use crate::space::credits::{Drive as ReserveBasis, Reserve};
use crate::space::load::ZoneAtMount;
use crate::space::open::{LimitError, OPEN_MIN, OpenLimits, OpenZones, open_limit, plan_mount};
use crate::space::zone::ZoneState;
use crate::space::zones::ZoneBook;
use crate::space::{self, Finding, ZoneOrder};
use crate::store::backend::log::Log;
use crate::store::{Rows, View};
use crate::waiter::Wait;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use zonal_core::{ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::buffer::BufferPool;
use zonal_io::volume::Volume;

/// Maximum number of idle buffers kept for further units.
const IDLE_MAX: u64 = 1 << 14;

/// Reason why a file system cannot be opened.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Reading failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The metadata belongs to another file system, or to none.
    #[error("the metadata belongs to another file system")]
    OtherMetadata,
    /// Not the drive on which the file system was made.
    #[error("the drive has {found}, but the file system was made on one with {expected}")]
    OtherDrive {
        /// Shape of the drive found.
        found: String,
        /// Expected shape.
        expected: String,
    },
    /// The zones contradict the metadata.
    #[error("the zones contradict the metadata: {}; fsck may repair this", .0[0])]
    Zones(Vec<Finding>),
    /// The drive has too few zones, or allows too few open ones.
    #[error(transparent)]
    Limits(#[from] LimitError),
}

/// Writes the initial rows of a file system.
pub(super) fn make(rows: &mut Rows, superblock: &Superblock, now: i64) -> Result<(), FsError> {
    let root = Attributes::new(FileKind::Directory, 0o755, ROOT, Position::START, now);
    rows.put(key::inode(ROOT), root.encode());
    rows.put(key::counter("ino"), (ROOT + 1).to_le_bytes().to_vec());
    rows.put(key::counter("superblock"), superblock.encode().to_vec());
    files::put(rows, 1, 0);
    let sealed = rows.seal().expect("nothing is sealed yet");
    rows.settled(sealed.commit()?);
    Ok(())
}

/// Reads a counter of the file system, 0 if it does not exist yet. A number out of range is an
/// error, because numbers would be reused.
fn counter(rows: &Rows, name: &str, end: u64) -> Result<u64, FsError> {
    let key = key::counter(name);
    let Some(value) = rows.get(&key)? else { return Ok(0) };
    let number = value.try_into().ok().map(u64::from_le_bytes).filter(|number| *number < end);
    Ok(number.ok_or(RowError { key, what: "number out of range" })?)
}

/// Returns the number of the next file: above all existing ones even if the counter is wrong.
fn next_file(rows: &Rows) -> Result<u64, FsError> {
    let counted = counter(rows, "ino", FILES_END + 1)?;
    let last = rows.last(&key::inode(0), &key::inode(FILES_END - 1))?;
    let largest = last.map_or(ROOT, |(key, _)| key::parts(&key).0);
    Ok(counted.max(largest.max(ROOT) + 1))
}

/// Purpose of opening a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Normal use: inconsistencies are errors.
    Use,
    /// Inspection: inconsistent zones are treated in the way that is safe for reading.
    Look,
}

/// Returns the account of each zone, from its row. An unreadable row is an error, because its zone
/// would be reset if it counted as empty. For inspection it may, since nothing is written.
fn accounts(rows: &Rows, zones: u32, purpose: Purpose) -> Result<Vec<Account>, FsError> {
    let mut accounts = vec![Account::default(); zones as usize];
    let (from, end) = key::zones();
    let mut damaged = None;
    rows.scan(&from, &end, |key, value| {
        let (zone, _) = key::parts(key);
        match (Account::decode(key, value), accounts.get_mut(zone as usize)) {
            (Ok(account), Some(place)) => *place = account,
            (Ok(_), None) => {}
            (Err(error), _) => damaged = Some(error),
        }
        ControlFlow::Continue(())
    })?;
    match damaged.filter(|_| purpose == Purpose::Use) {
        Some(error) => Err(error.into()),
        None => Ok(accounts),
    }
}

/// Combines the drive's report and the rows for each zone.
fn found(
    superblock: &Superblock,
    report: &[ZoneDescriptor],
    accounts: &[Account],
    taken: &BTreeSet<ZoneIndex>,
) -> Vec<ZoneAtMount> {
    let each = |(zone, account): (&ZoneDescriptor, &Account)| {
        let is_ours = zone.zone.0 >= superblock.first_zone
            && zone.zone_type != ZoneType::Conventional
            && !taken.contains(&zone.zone);
        if !is_ours {
            return ZoneAtMount::Reserved;
        }
        let pointer = zone.write_pointer.unwrap_or(zone.start);
        let written = pointer.0.saturating_sub(zone.start.0).min(zone.capacity.0) as u32;
        ZoneAtMount::Data {
            capacity: zone.capacity.0 as u32 / BLOCK_SECTORS,
            pointer: written.div_ceil(BLOCK_SECTORS),
            condition: zone.condition,
            used: account.used,
        }
    };
    report.iter().zip(accounts).map(each).collect()
}

/// Returns an error if a superblock is of another drive: all values derived from it would be wrong.
pub(crate) fn check_drive(volume: &Volume, superblock: &Superblock) -> Result<(), OpenError> {
    let geometry = &volume.info().geometry;
    let shape = |[sectors, zone, capacity]: [u64; 3]| {
        format!("{sectors} sectors in zones of {zone}, of which {capacity} can be written")
    };
    let found = [geometry.sectors().0, geometry.size_of(ZoneIndex(0)).into(), geometry.zone_capacity().0];
    let expected = [superblock.sectors, superblock.zone_sectors, superblock.capacity_sectors];
    if found != expected {
        return Err(OpenError::OtherDrive { found: shape(found), expected: shape(expected) });
    }
    // Larger units would all fail, and each would close its zone.
    let (units, most) = (superblock.unit_blocks, unit_blocks_max(volume));
    let appends = |blocks: u32| format!("appends of up to {blocks} blocks of 4 KiB");
    match units <= most {
        true => Ok(()),
        false => Err(OpenError::OtherDrive { found: appends(most), expected: appends(units) }),
    }
}

/// Number of zones that the drive allows to be open for data; `None` if it has no limit. The store
/// keeps one zone open if it has zones, or may get some. Copies of the superblock may keep another.
fn device_limit(volume: &Volume, superblock: &Superblock) -> Option<u32> {
    let info = volume.info();
    let limit = [info.open_max, info.active_max].into_iter().filter(|max| *max > 0).min()?;
    let has_zones = match superblock.metadata {
        Metadata::Logged => true,
        Metadata::Conventional => limit > OPEN_MIN,
        Metadata::Beside => false,
    };
    // With the lowest limit there are no copies in zones: the metadata is in memory.
    let copies = u32::from(info.geometry.conventional_zones() == 0 && limit > OPEN_MIN);
    Some(limit.saturating_sub(u32::from(has_zones) + copies))
}

/// Opens the file system of `superblock` on `volume`, with its metadata in `rows`.
pub(super) fn open(
    volume: Arc<Volume>,
    rows: Rows,
    superblock: Superblock,
    options: MountOptions,
    has_data: bool,
    waiter: &dyn Wait,
    purpose: Purpose,
) -> Result<Shared, OpenError> {
    check_drive(&volume, &superblock)?;
    let own = rows.get(&key::counter("superblock")).map_err(FsError::from)?;
    if own.is_none_or(|row| row != superblock.encode()) {
        return Err(OpenError::OtherMetadata);
    }
    let drive = Drive::new(volume);
    // Subscribed before the report, to receive all later changes of zones.
    let events = drive.volume().events();
    let report = drive.report(waiter).map_err(FsError::from)?;
    let device = device_limit(drive.volume(), &superblock);
    let taken = rows.backend().log().map(Log::zones).unwrap_or_default().into_iter().collect();
    let accounts = accounts(&rows, report.len() as u32, purpose)?;
    // Small pieces need more headers than large ones, so the accounts assume the smallest units.
    let least = Header::records_max(superblock.unit_blocks - 1) as u32 + 1;
    let (least, found) = (superblock.unit_blocks.min(least), found(&superblock, &report, &accounts, &taken));
    let mut book = match purpose {
        Purpose::Use => ZoneBook::load(least, found).map_err(OpenError::Zones)?,
        Purpose::Look => ZoneBook::load_to_look(least, found),
    };
    for (zone, account) in (0..).map(ZoneIndex).zip(&accounts) {
        book.set_resets(zone, account.resets).map_err(FsError::from)?;
    }
    let zones = ZoneState::ALL.iter().filter(|s| **s != ZoneState::Reserved).map(|s| book.count(*s)).sum();
    let limit = open_limit(OpenLimits { option: options.max_open_zones, device, zones })?;
    let begun = Arc::new(Beginnings::new(&accounts));
    let mut core = core(rows, book, begun.clone(), limit, options.zone_order, &superblock)?;
    core.turns = turns(drive.volume(), &superblock, &options);
    let bytes = superblock.unit_blocks * crate::BLOCK_BYTES;
    let idle = (options.dirty_bytes / u64::from(bytes) + 8).min(IDLE_MAX) as usize;
    let pool = BufferPool::new(bytes, idle);
    let (channels, answers) = (Mutex::default(), Arc::default());
    let (reader, nodes) = (core.rows.reader(), core.nodes.clone());
    let (readers, names) = (core.readers.clone(), core.names.clone());
    let (space, units) = (core.space.clone(), core.units.clone());
    let (core, keeps_data) = (CoreLock::new(core), has_data);
    let small = SmallBuffers::new(superblock.unit_blocks / 2);
    let unit_sums = UnitSums::new(report.len() as u32, options.sums_bytes);
    let mut shared = Shared {
        drive,
        events,
        superblock,
        options,
        channels,
        answers,
        pool,
        small,
        unit_sums,
        begun,
        last_batch: Mutex::default(),
        compactions: AtomicU64::default(),
        syncs: AtomicU32::default(),
        keeps_data,
        reader,
        nodes,
        readers,
        names,
        space,
        units,
        core,
        waiters: OnceLock::new(),
    };
    // Not shared with other threads yet.
    shared.core.get_mut().rows.publish();
    Ok(shared)
}

fn turns(volume: &Volume, superblock: &Superblock, options: &MountOptions) -> Turns {
    let zone = if volume.info().rotational { superblock.capacity_sectors * 512 } else { 0 };
    Turns::new(options.turn_bytes.unwrap_or(zone).div_ceil(u64::from(crate::BLOCK_BYTES)))
}

fn core(
    rows: Rows,
    mut book: ZoneBook,
    begun: Arc<Beginnings>,
    limit: u32,
    order: ZoneOrder,
    superblock: &Superblock,
) -> Result<Core, OpenError> {
    let partial = book.iter().filter(|(_, zone)| zone.state == ZoneState::Open);
    let partial: Vec<_> = partial.map(|(zone, account)| (zone, account.allocated)).collect();
    let plan = plan_mount(partial.iter().copied(), limit, book.count(ZoneState::Free));
    let mut open = OpenZones::new(limit);
    for zone in &plan.finish {
        book.close(*zone).map_err(FsError::from)?;
    }
    let kept = partial.iter().map(|(zone, _)| *zone).filter(|zone| !plan.finish.contains(zone));
    open.remount(kept, plan.steal);
    let zone_blocks = (superblock.capacity_sectors / u64::from(BLOCK_SECTORS)) as u32;
    let reserve = Reserve::of(ReserveBasis {
        zones: book.iter().filter(|(_, zone)| zone.state != ZoneState::Reserved).count() as u64,
        zone_blocks,
        zone_data: book.data_blocks(zone_blocks),
        option: superblock.reserved_blocks,
    });
    let credit = space::initial_credits(&book, reserve);
    let readers = Readers::new(book.len());
    if book.count(ZoneState::Offline) > 0 {
        readers.note_lost();
    }
    let next_ino = next_file(&rows)?;
    let since = counter(&rows, "sequence", NUMBERS_END)?;
    let files = FileCounter::load(&rows)?;
    Ok(Core {
        rows,
        space: Arc::new(SpaceLock::new(Space::new(
            book,
            open,
            credit,
            begun,
            plan.finish,
            superblock.unit_blocks,
            order,
        ))),
        units: Arc::default(),
        tails: Tails::default(),
        nodes: Arc::new(Nodes::default()),
        readers: Arc::new(readers),
        known: KnownFiles::default(),
        deleted: DeletedFiles::default(),
        write_buffers: WriteBuffers::default(),
        combined: CombinedUnits::default(),
        names: Arc::new(Names::new(next_ino, generation(since + NUMBERS_SKIPPED))),
        files,
        next_sequence: since + NUMBERS_SKIPPED,
        since,
        unflushed: UnflushedUnits::default(),
        committed: 0,
        is_committing: false,
        is_growing: false,
        is_step_running: false,
        collection: None,
        room: WaitingRoom::default(),
        gc_has_no_space: false,
        lost: None,
        read_only: None,
        turns: Turns::new(0),
        statistics: Statistics::default(),
    })
}

impl Shared {
    /// Destroys unnamed files that were in use at a power cut; without a waiter, as far as this
    /// needs no commit.
    pub(super) fn destroy_orphans(&self, waiter: Option<&dyn Wait>) -> Result<(), FsError> {
        let (from, end) = key::orphans();
        let mut orphans = Vec::new();
        self.reader.scan(&from, &end, |key, _| {
            orphans.push(key::parts(key).0);
            ControlFlow::Continue(())
        })?;
        let gone = {
            let mut core = self.lock();
            orphans.into_iter().for_each(|ino| core.deleted.add_whole(ino));
            core.deleted.mark()
        };
        self.free_deleted(gone, waiter)?;
        self.lock().deleted.take_failure().map_or(Ok(()), Err)
    }
}
