//! A database in a log of sequential zones: for drives that have no conventional ones.
//!
//! Owns a fixed list of zones, all of them its own. What a sync makes durable is one *batch*: heads that list pages with
//! their checksums, and the pages behind them. A page table in memory says where each page's newest copy is. docs/FS.md draws
//! the bytes.
//!
//! # Why a batch is atomic
//! A batch counts if all of its heads and pages are there with the right checksums. Each head names the batch that was
//! durable before: so only the last one has to be read through when the log is opened, all others are vouched for by their
//! successor, which was begun after their flush had returned. That is why a batch needs no block behind it that says so.
//!
//! # Zones
//! One zone is written at a time, the *current* one, and only that one is open; one that is left before it is full is
//! finished. A zone begins with a checkpoint, the page table as it was before the batch in whose midst the zone was opened;
//! to open the log, the newest checkpoint is read and the batches behind it. Zones that have parts of these are *needed*:
//! they are not reset, however little is live in them.
//!
//! A zone in which a write failed is left like one that is full, and used again once it could be reset: that a command failed
//! says little of the next. After some failures without a batch that got through it is *bad*, as it is at once if the drive
//! says that it takes no writes any more.
//!
//! # Room
//! Batches leave a zone free if they can. Where that is one of few, pages of the zone with the fewest live ones come along
//! with the next batches; where that is not enough, they are moved before it in batches of their own. A zone is reset after
//! the flush of the batch that took its last page.

mod format;
mod open;
mod space;
mod table;
mod write;

use super::disk::Disk;
use super::error::{BackendError, Damage, Place};
use super::paged::{Durable, Medium, PAGE, Paged, Snapshot};
use super::room::Room as FileRoom;
use crate::BLOCK_SECTORS;
use crate::drive::Drive;
use crate::format::Uuid;
use crate::format::crc32c;
use crate::waiter::Waiters;
use parking_lot::Mutex;
pub use space::pages_of_new;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use table::{Entry, Spot, Table};
use zonal_core::{Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Fewest zones of a log: the current one, one that is collected, and a free one.
pub const ZONES_MIN: usize = 3;

/// Most zones of a log, so that no checkpoint takes more than an eighth of a zone.
pub const ZONES_MAX: usize = 64;

/// Fewest blocks of a zone.
const ZONE_BLOCKS_MIN: u32 = 16;

/// Failures of a zone after which it is not written any more, if no batch has got through in it meanwhile.
const FAILURES_MAX: u8 = 3;

/// Tries to read pages that are being moved.
const READS_MAX: u32 = 8;

/// A database in a log.
pub type Logged = Paged<Log>;

/// A log of pages in sequential zones. See the module.
pub struct Log {
    disk: Disk,
    uuid: Uuid,
    zones: Vec<ZoneIndex>,
    /// Blocks that can be written in each zone.
    zone_blocks: u32,
    state: Mutex<State>,
}

/// What is known of the log. Changed by one store at a time, and read by all.
struct State {
    table: Table,
    len: u64,
    slots: Vec<Slot>,
    current: Option<Current>,
    /// The last durable batch.
    batch: u64,
    batch_next: u64,
    /// The last zone's opening.
    opening: u64,
    opening_next: u64,
    statistics: Statistics,
}

/// A zone of the log.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    /// Blocks below the write pointer, as far as is known where a write failed: 0 only if it is empty.
    written: u32,
    /// Writes and resets that failed since a batch got through.
    failures: u8,
    /// Opening the log would need it.
    is_needed: bool,
    /// It takes no writes.
    is_bad: bool,
    /// Some page of it cannot be read, so that it cannot be emptied.
    is_stuck: bool,
    /// It is partly written, and counts against the drive's limit of active zones.
    is_active: bool,
}

/// The zone that is written.
#[derive(Clone, Copy, Debug)]
struct Current {
    slot: usize,
    /// The next block.
    block: u32,
    opening: u64,
}

/// What a log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Batches that became durable.
    pub batches: u64,
    /// Pages that were asked to be written.
    pub pages_written: u64,
    /// Pages that were moved to empty a zone.
    pub pages_moved: u64,
    /// Zones that were begun.
    pub zones_opened: u64,
    /// Zones that were reset.
    pub zones_reset: u64,
    /// Writes that failed and went elsewhere.
    pub writes_failed: u64,
}

/// How a zone of a log begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Which of all beginnings of zones in the log it is.
    pub opening: u64,
    /// The last batch that is in its checkpoint.
    pub batch: u64,
    /// Bytes of the database then.
    pub len: u64,
}

/// Reads how a zone begins: its block 0, which is at `place`, in the log of the file system `uuid`.
///
/// # Errors
/// What is wrong with it.
pub fn begun(block: &[u8], uuid: &Uuid, place: Place) -> Result<Begun, Damage> {
    let head = format::Head::parse(block, uuid, place)?;
    match head.kind {
        format::HeadKind::Checkpoint(format::Checkpoint { batch, len, .. }) => {
            Ok(Begun { opening: head.opening, batch, len })
        }
        format::HeadKind::Part(_) => Err(Damage::Field("kind")),
    }
}

/// How full a log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Pages of the file that take room.
    pub pages: u64,
    /// Pages that may, those of the largest batch counted twice.
    pub usable: u64,
    /// Zones that can be written from their start.
    pub zones_free: u32,
    /// Zones that take no writes any more.
    pub zones_bad: u32,
}

impl Logged {
    /// Makes an empty log in `zones`, whatever is in them: they are reset.
    ///
    /// # Errors
    /// [`BackendError::Unfit`] or [`BackendError::UnfitZone`], then nothing was changed; the drive's.
    pub fn create(
        drive: Arc<Drive>,
        waiters: Waiters,
        zones: Vec<ZoneIndex>,
        uuid: Uuid,
    ) -> Result<Logged, BackendError> {
        let (disk, zone_blocks) = fit(drive, waiters, &zones)?;
        let slots = survey(&disk, &zones, zone_blocks)?.iter().map(|seen| seen.slot).collect::<Vec<_>>();
        if slots.iter().filter(|slot| !slot.is_bad).count() < ZONES_MIN {
            return Err(BackendError::Unfit("a log needs three zones that can be written"));
        }
        let state = State {
            table: Table::new(zones.len(), zone_blocks),
            len: 0,
            slots,
            current: None,
            batch: 0,
            batch_next: 1,
            opening: 0,
            opening_next: 1,
            statistics: Statistics::default(),
        };
        let log = Log { disk, uuid, zones, zone_blocks, state: Mutex::new(state) };
        log.begin()?;
        Ok(Paged::new(log, 0))
    }

    /// Opens the log in `zones`, the list it was made with, which has to be the file system `uuid`'s. Writes nothing.
    ///
    /// # Errors
    /// [`BackendError::Damaged`] where the log is not there or has lost what was durable; [`BackendError::Unfit`] and
    /// [`BackendError::UnfitZone`]; the drive's.
    pub fn open(
        drive: Arc<Drive>,
        waiters: Waiters,
        zones: Vec<ZoneIndex>,
        uuid: Uuid,
    ) -> Result<Logged, BackendError> {
        let (disk, zone_blocks) = fit(drive, waiters, &zones)?;
        // What is read below may be in the drive's cache only, and is built upon.
        disk.flush()?;
        let seen = survey(&disk, &zones, zone_blocks)?;
        let state = open::Opening::new(&disk, &uuid, &zones, zone_blocks, seen).run()?;
        let len = state.len;
        Ok(Paged::new(Log { disk, uuid, zones, zone_blocks, state: Mutex::new(state) }, len))
    }

    /// What the log has done since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.medium.state.lock().statistics
    }

    /// How full it is.
    pub fn room(&self) -> Room {
        self.medium.state.lock().room(self.medium.zone_blocks)
    }
}

/// The drive to use, and the blocks of each of `zones`.
fn fit(drive: Arc<Drive>, waiters: Waiters, zones: &[ZoneIndex]) -> Result<(Disk, u32), BackendError> {
    let geometry = drive.volume().info().geometry;
    if !(ZONES_MIN..=ZONES_MAX).contains(&zones.len()) {
        return Err(BackendError::Unfit("a log has 3 to 64 zones"));
    }
    let mut known = HashSet::new();
    for &zone in zones {
        let why = match zone {
            _ if zone.0 >= geometry.zones() => "is not on the drive",
            _ if geometry.is_conventional(zone) => "is conventional",
            _ if geometry.capacity_of(zone) != geometry.capacity_of(zones[0]) => "has another capacity",
            _ if !known.insert(zone) => "is given twice",
            _ => continue,
        };
        return Err(BackendError::UnfitZone { zone, why });
    }
    let blocks = geometry.capacity_of(zones[0]) / BLOCK_SECTORS;
    if blocks < ZONE_BLOCKS_MIN || u64::from(blocks) * zones.len() as u64 > u64::from(u32::MAX / 2) {
        return Err(BackendError::Unfit("zones of a log have 64 KiB at least, and 8 TiB together at most"));
    }
    Ok((Disk::new(drive, waiters)?, blocks))
}

/// A zone of the log as the drive describes it.
struct Seen {
    slot: Slot,
    /// It can be read.
    is_readable: bool,
    /// It can be written at the block `written`.
    is_appendable: bool,
}

fn survey(disk: &Disk, zones: &[ZoneIndex], zone_blocks: u32) -> Result<Vec<Seen>, BackendError> {
    let report = disk.report()?;
    Ok(zones.iter().map(|zone| see(&report[zone.0 as usize], zone_blocks)).collect())
}

fn see(zone: &ZoneDescriptor, zone_blocks: u32) -> Seen {
    let offset = zone.write_pointer.map(|pointer| (pointer - zone.start).0);
    let blocks = offset.map(|offset| (offset / u64::from(BLOCK_SECTORS)) as u32);
    let is_bad = matches!(zone.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
    let written = match zone.condition {
        ZoneCondition::Empty | ZoneCondition::Offline => 0,
        _ => blocks.unwrap_or(zone_blocks).min(zone_blocks),
    };
    Seen {
        slot: Slot { written, is_bad, is_active: zone.condition.is_active(), ..Slot::default() },
        is_readable: zone.condition != ZoneCondition::Offline,
        is_appendable: offset.is_some_and(|offset| offset % u64::from(BLOCK_SECTORS) == 0) && !is_bad,
    }
}

/// Where block `block` of `zone` begins.
fn sector_of(disk: &Disk, zone: ZoneIndex, block: u32) -> Sector {
    let start = disk.drive().volume().info().geometry.start_of(zone);
    start + Sectors(u64::from(block) * u64::from(BLOCK_SECTORS))
}

impl Log {
    fn place(&self, spot: Spot) -> Place {
        Place { zone: self.zones[spot.slot], block: spot.block }
    }

    fn entries(&self, first: u64, pages: usize) -> Vec<Option<Entry>> {
        let state = self.state.lock();
        (first..first + pages as u64).map(|page| state.table.get(page)).collect()
    }

    /// Reads the pages that lie at `entries`, and checks them.
    fn read(&self, entries: &[Option<Entry>], out: &mut [u8]) -> Result<(), BackendError> {
        let mut begin = 0;
        while begin < entries.len() {
            let end = begin + run(&entries[begin..]);
            let bytes = &mut out[begin * PAGE..end * PAGE];
            match entries[begin] {
                None => bytes.fill(0),
                Some(Entry { spot, .. }) => {
                    self.disk.read(sector_of(&self.disk, self.zones[spot.slot], spot.block), bytes)?;
                    self.check(&entries[begin..end], bytes)?;
                }
            }
            begin = end;
        }
        Ok(())
    }

    fn check(&self, entries: &[Option<Entry>], bytes: &[u8]) -> Result<(), BackendError> {
        let wrong = entries
            .iter()
            .flatten()
            .zip(bytes.chunks(PAGE))
            .find(|(entry, bytes)| entry.crc != crc32c(bytes));
        match wrong {
            None => Ok(()),
            Some((entry, _)) => Err(BackendError::Damaged {
                place: self.place(entry.spot),
                what: "a page of metadata",
                damage: Damage::Checksum,
            }),
        }
    }
}

/// How many of `entries`, from the first, can be read at once.
fn run(entries: &[Option<Entry>]) -> usize {
    let follows = |pair: &&[Option<Entry>]| match (pair[0], pair[1]) {
        (None, None) => true,
        (Some(Entry { spot: a, .. }), Some(Entry { spot: b, .. })) => {
            a.slot == b.slot && a.block + 1 == b.block
        }
        _ => false,
    };
    1 + entries.windows(2).take_while(follows).count()
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("disk", &self.disk).field("zones", &self.zones).finish_non_exhaustive()
    }
}

impl Medium for Log {
    /// A page may be moved, and its zone reset, while it is read. Then its entry has changed, and it is read anew.
    fn load(&self, first: u64, out: &mut [u8]) -> Result<(), BackendError> {
        let mut entries = self.entries(first, out.len() / PAGE);
        for _ in 1..READS_MAX {
            let result = self.read(&entries, out);
            if result.is_ok() {
                return result;
            }
            let now = self.entries(first, out.len() / PAGE);
            if now == entries {
                return result;
            }
            entries = now;
        }
        self.read(&entries, out)
    }

    fn store(&self, snapshot: &Snapshot, _when: Durable) -> Result<(), BackendError> {
        self.store_batch(snapshot)
    }

    fn has(&self, page: u64) -> bool {
        self.state.lock().table.get(page).is_some()
    }

    fn admit(&self, waiting: u64, fresh: u64) -> Result<(), BackendError> {
        self.state.lock().admit(waiting, fresh, self.zone_blocks)
    }

    fn admit_len(&self, pages: u64) -> Result<(), BackendError> {
        let usable = self.zones.len() as u64 * u64::from(self.zone_blocks);
        if pages > usable { Err(BackendError::Full { needed: pages, usable }) } else { Ok(()) }
    }

    fn room(&self, pages: u64) -> FileRoom {
        self.state.lock().file_room(pages, self.zone_blocks)
    }

    fn wait(&self) {
        self.disk.wait();
    }
}

#[cfg(test)]
mod tests;
