//! The metadata store: pages in a log over segments.
//!
//! What a sync makes durable is one *batch*: heads that list pages with their sums, and the pages that follow them. A page
//! table in memory says where each page's newest copy is. Each page is verified when it is read. A small commit is a batch of
//! rows instead (`rows.rs`). docs/FS.md draws the bytes.
//!
//! Owns a list of segments, which grows and shrinks, and through [`superblocks`] the part of the superblock that names them.
//!
//! # Why a batch is atomic
//! A batch counts if all of its heads and pages are there with the right sums. Each head names the batch that was durable
//! before. So only the last batch has to be read through when the log is opened; its successor vouches for any other one,
//! because it was begun after the flush had returned. That is why a batch needs no block that says that it is complete.
//!
//! # Segments
//! One segment is written at a time, the *current* one. It begins with a checkpoint: the list of segments, and mostly the page
//! table. To open the log, the newest table is read, and the batches that follow it. Segments that have parts of these are
//! *needed*: they are not begun again.
//!
//! Each beginning has a number that only rises. Heads and pages are bound to it, so that what an earlier use of the segment
//! left there never counts. The superblock knows the number too, so that a store which was put back is found out.
//!
//! A segment in which a write failed is left like a full segment, and is used again after a reset: one failed command says
//! little of the next. After some failures without a batch that got through it is *suspect*: its pages move, and it is the
//! last to be begun again. If the drive says that it takes no writes any more, it is *bad*. Then another segment replaces
//! it, if the store can get one.
//!
//! # Room
//! Batches leave a segment free if they can. Where that is one of few, pages of the segment with the fewest live ones come
//! along with the next batches. Where that is not enough, they are moved first, in batches of their own. A segment comes free
//! after the flush of the batch that took its last page. With two segments only, all live pages move when the current one is
//! full.

mod ahead;
mod format;
mod grow;
mod open;
mod rows;
mod space;
mod table;
mod write;

use super::disk::Disk;
use super::error::{BackendError, Damage, SegmentId, SegmentPlace};
use super::paged::{Medium, PAGE, Paged, Snapshot};
use super::room::Room as FileRoom;
use super::segment::{Seen, Segments, StoreFile};
use crate::drive::Drive;
use crate::format::{Anchor, UnitPlace, Uuid, crc32c};
use crate::superblocks;
use crate::waiter::Waiters;
use ahead::Ahead;
use grow::EmptyZones;
pub(crate) use grow::has_empty_zone;
pub(crate) use grow::plan_pieces;
pub use grow::{ZoneNeed, ZoneSource};
use parking_lot::Mutex;
pub use rows::BatchRows;
use rows::LoggedRows;
pub(in crate::insides::store) use rows::after;
pub(crate) use rows::{UNITS_BLOCKS_MAX, UNITS_MAX};
pub use space::{NEW_PAGES_MIN, new_pages};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use table::{Entry, Spot, Table};
use zonal_core::{Op, ZoneDescriptor};

/// Fewest segments of a log: the current one and a free one.
pub const SEGMENTS_MIN: usize = 2;

/// Segments that a new log has, where there are enough: with three, each batch moves a part of the live pages only.
pub const SEGMENTS_NEW: usize = 3;

/// Fewest blocks of a segment.
pub const SEGMENT_BLOCKS_MIN: u32 = 16;

/// Failures of a segment after which it is suspect, if no batch has got through in it meanwhile.
const FAILURES_MAX: u8 = 3;

/// Tries to read pages that are being moved.
const READS_MAX: u32 = 8;

/// Pages in a log.
pub type Store = Paged<Log>;

/// A log of pages in segments. See the module.
pub struct Log {
    segments: Segments,
    ahead: Ahead,
    uuid: Uuid,
    /// Writes the superblock. Taken out while a thread writes it: no lock is held while a drive works.
    writer: Mutex<Option<superblocks::Writer>>,
    /// What the writer says.
    anchor: Mutex<Anchor>,
    source: Mutex<Arc<dyn ZoneSource>>,
    is_read_only: bool,
    /// A thread takes a segment.
    is_growing: AtomicBool,
    state: Mutex<LogState>,
}

/// What is known of the log. Changed by one batch at a time, and read by all threads.
struct LogState {
    table: Table,
    len: u64,
    slots: Vec<SegmentSlot>,
    current: Option<Current>,
    /// The last durable batch.
    batch: u64,
    batch_next: u64,
    /// How far the store has come: the highest number of a beginning or of an opening.
    number: u64,
    /// Segments that were begun, and those of them that a durable batch vouches for.
    begun: Beginnings,
    committed: Beginnings,
    /// The same, as far as durable batches say it.
    durable_number: u64,
    /// The number that the superblock knows.
    recorded: u64,
    /// Batch that the superblock names; `None` before there is a superblock.
    named: Option<u64>,
    /// The first batch of this opening has got its number.
    is_numbered: bool,
    /// Blocks of the segments that were begun since the last table.
    since_table: u64,
    /// Logged rows.
    rows: LoggedRows,
    statistics: Statistics,
}

/// Numbers of beginnings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Beginnings {
    /// The newest.
    newest: u64,
    /// The newest that has a table.
    table: u64,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug)]
struct SegmentSlot {
    segment: SegmentId,
    /// Blocks that can be written.
    blocks: u32,
    /// The number of its beginning, 0 if it has none.
    beginning: u64,
    /// Blocks below the write pointer, as far as is known where a write failed: 0 only if it is empty.
    written: u32,
    /// Writes and resets that failed since a batch got through.
    failures: u8,
    /// Opening the log would need it.
    is_needed: bool,
    /// The drive says that it takes no writes.
    is_bad: bool,
    /// Some page of it cannot be read, so that it cannot be emptied.
    is_stuck: bool,
    /// It is partly written, and counts against the drive's limit of active zones.
    is_active: bool,
    /// It is about to be given back.
    is_leaving: bool,
}

impl SegmentSlot {
    /// The segment as it is found, before it is known what lies there.
    fn found(segment: SegmentId, blocks: u32, seen: &Seen) -> SegmentSlot {
        SegmentSlot {
            segment,
            blocks,
            beginning: 0,
            written: seen.written.unwrap_or(0),
            failures: 0,
            is_needed: false,
            is_bad: seen.is_bad,
            is_stuck: false,
            is_active: seen.is_active,
            is_leaving: false,
        }
    }

    /// True if it was given back.
    fn is_gone(&self) -> bool {
        self.segment == SegmentId::NONE
    }

    /// True if it may take writes, now or after a reset.
    fn is_usable(&self) -> bool {
        !self.is_bad && !self.is_gone()
    }

    /// True if it has failed often.
    fn is_suspect(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

/// The segment that is written.
#[derive(Clone, Copy, Debug)]
struct Current {
    slot: usize,
    /// The next block.
    block: u32,
    beginning: u64,
}

/// What a log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Batches that became durable.
    pub batches: u64,
    /// Pages that were asked to be written.
    pub pages_written: u64,
    /// Pages that were moved to empty a segment.
    pub pages_moved: u64,
    /// Segments that were begun.
    pub segments_begun: u64,
    /// Segments that were emptied.
    pub segments_emptied: u64,
    /// Segments that were taken into the log, and given back.
    pub segments_taken: u64,
    /// See `segments_taken`.
    pub segments_given_back: u64,
    /// Writes that failed and went elsewhere.
    pub writes_failed: u64,
}

/// How a segment of a log begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Which of all beginnings of segments in the log it is.
    pub beginning: u64,
    /// The last batch that is in its checkpoint.
    pub batch: u64,
    /// Bytes of all pages then.
    pub len: u64,
}

/// Reads how a segment begins: its block 0, in the log of the file system `uuid`.
///
/// # Errors
/// What is wrong with it.
pub fn begun(block: &[u8], uuid: &Uuid, segment: SegmentId) -> Result<Begun, Damage> {
    let head = format::Head::parse(block, uuid, SegmentPlace { segment, block: 0 })?;
    match head.kind {
        format::HeadKind::Checkpoint(format::Checkpoint { batch, len, .. }) => {
            Ok(Begun { beginning: head.beginning, batch, len })
        }
        format::HeadKind::Part(_) => Err(Damage::Field("kind")),
    }
}

/// True if `block` is one of the log of the file system `uuid`, in its file beside the drive.
pub(super) fn is_in_file_of(block: &[u8], uuid: &Uuid) -> bool {
    format::Head::is_in_file_of(block, uuid)
}

/// How full a log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Pages of the file that take room.
    pub pages: u64,
    /// Pages that may, those of the largest batch counted twice.
    pub usable: u64,
    /// Segments that the log has.
    pub segments: u32,
    /// Segments that can be written from their start.
    pub segments_free: u32,
    /// Segments that take no writes any more.
    pub segments_bad: u32,
    /// Segments that have failed often.
    pub segments_suspect: u32,
}

/// Where a store lies, and how it is reached.
pub struct Access {
    /// The drive.
    pub drive: Arc<Drive>,
    /// How to wait for it.
    pub waiters: Waiters,
    /// The file beside the drive that holds the store.
    pub file: Option<StoreFile>,
}

impl Store {
    /// Makes an empty log in the segments that the anchor of `writer` names, whatever is in them: zones are reset. Its numbers
    /// begin above the anchor's.
    ///
    /// # Errors
    /// [`BackendError::Unfit`] or [`BackendError::UnfitZone`], then nothing was changed; the drive's.
    pub fn create(access: Access, uuid: Uuid, writer: superblocks::Writer) -> Result<Store, BackendError> {
        let anchor = writer.anchor().clone();
        let segments = reach(&access, &anchor)?;
        let (slots, _) = slots(&segments, &anchor)?;
        if slots.iter().filter(|slot| slot.is_usable()).count() < SEGMENTS_MIN {
            return Err(BackendError::Unfit("a log needs two segments that can be written"));
        }
        for piece in 0..anchor.pieces {
            segments.allocate(piece)?;
        }
        let stride = segments.stride(anchor.pieces > 0);
        let state = LogState {
            table: Table::new(slots.len(), stride),
            len: 0,
            slots,
            current: None,
            batch: 0,
            batch_next: 1,
            number: anchor.number,
            durable_number: anchor.number,
            begun: Beginnings { newest: anchor.number, table: anchor.number },
            committed: Beginnings { newest: anchor.number, table: anchor.number },
            recorded: anchor.number,
            named: None,
            is_numbered: true,
            since_table: 0,
            rows: LoggedRows::default(),
            statistics: Statistics::default(),
        };
        let log = Log::new(segments, uuid, anchor, Some(writer), state);
        log.begin()?;
        Ok(Paged::new(log, 0))
    }

    /// Opens the log that `found` names, to write it. Writes nothing yet.
    ///
    /// # Errors
    /// [`BackendError::Damaged`] where the log is not there or has lost what was durable; [`BackendError::Unfit`] and
    /// [`BackendError::UnfitZone`]; the drive's.
    pub fn open(access: Access, found: &superblocks::LocatedCopy) -> Result<Store, BackendError> {
        let writer = superblocks::Writer::after(found);
        Store::reach(access, found, Some(writer))
    }

    /// Opens the log that `found` names, to read it. Nothing is written, not even a flush.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn look(access: Access, found: &superblocks::LocatedCopy) -> Result<Store, BackendError> {
        Store::reach(access, found, None)
    }

    fn reach(
        access: Access,
        found: &superblocks::LocatedCopy,
        mut writer: Option<superblocks::Writer>,
    ) -> Result<Store, BackendError> {
        let (mut anchor, uuid) = (found.copy.anchor.clone(), found.copy.superblock.uuid);
        if let Some(file) = &access.file {
            // The file grows before the superblock says so.
            anchor.pieces = anchor.pieces.max(file.pieces(anchor.piece_blocks)?);
            if let Some(writer) = &mut writer {
                writer.raise_pieces(anchor.pieces);
            }
        }
        let segments = reach(&access, &anchor)?;
        if writer.is_some() {
            // What is read next may be in the drive's cache only, and is built upon.
            segments.disk().flush()?;
            segments.flush()?;
            finish_surplus(segments.disk(), &anchor)?;
        }
        let (slots, seen) = slots(&segments, &anchor)?;
        let stride = segments.stride(anchor.pieces > 0);
        let state =
            open::Opening::new(&segments, &uuid, slots, seen, stride).run(anchor.number, anchor.batch)?;
        let len = state.len;
        let log = Log::new(segments, uuid, anchor, writer, state);
        Ok(Paged::new(log, len))
    }

    /// What the log has done since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.medium.state.lock().statistics
    }

    /// How full it is.
    pub fn room(&self) -> Room {
        self.medium.state.lock().room()
    }

    /// Writes the superblock that makes a file system of what was made.
    ///
    /// # Errors
    /// The drive's.
    pub fn make(&self) -> Result<(), BackendError> {
        self.medium.make()
    }
}

/// Names the last batch, so that a store without it is refused.
impl Drop for Log {
    fn drop(&mut self) {
        // A failure leaves the state that a crash would.
        let _ = self.name_batch();
    }
}

/// Finishes zones that others left active, as far as the store and copies of the superblock would have none: those with least
/// room first. It is more than a file system leaves, and comes of zones that could not be finished.
fn finish_surplus(disk: &Disk, anchor: &Anchor) -> Result<(), BackendError> {
    let info = disk.drive().volume().info();
    let Some(limit) = [info.open_max, info.active_max].into_iter().filter(|max| *max > 0).min() else {
        return Ok(());
    };
    let report = disk.report()?;
    let is_other = |zone: &&ZoneDescriptor| {
        zone.condition.is_active() && !anchor.zones.contains(&zone.zone) && !anchor.homes.contains(&zone.zone)
    };
    let mut others: Vec<&ZoneDescriptor> = report.iter().filter(is_other).collect();
    others.sort_unstable_by_key(|zone| {
        zone.write_pointer.map_or(0, |at| zone.start.0 + zone.capacity.0 - at.0)
    });
    let surplus = (others.len() as u32).saturating_sub(limit.saturating_sub(2));
    for zone in others.into_iter().take(surplus as usize) {
        // If it cannot be finished, the store is told so when it needs a zone.
        let _ = disk.manage(Op::ZoneFinish, zone.zone);
    }
    Ok(())
}

/// The segments that `anchor` names.
fn reach(access: &Access, anchor: &Anchor) -> Result<Segments, BackendError> {
    let Access { drive, waiters, file } = access;
    let geometry = drive.volume().info().geometry;
    let segments =
        Segments::new(Disk::new(drive.clone(), waiters.clone())?, file.clone(), anchor.piece_blocks);
    if let Some(zone) = anchor.zones.iter().copied().find(|zone| geometry.is_conventional(*zone)) {
        return Err(BackendError::UnfitZone { zone, why: "is conventional" });
    }
    let all = segments.of(anchor);
    let conventional =
        u64::from(geometry.conventional_zones()) * u64::from(geometry.size_of(zonal_core::ZoneIndex(0)));
    let pieces =
        u64::from(anchor.pieces) * u64::from(anchor.piece_blocks) + u64::from(superblocks::COPY_BLOCKS);
    if access.file.is_none() && anchor.pieces > 0 && pieces * u64::from(crate::BLOCK_SECTORS) > conventional {
        return Err(BackendError::Unfit("its pieces lie beyond the conventional zones"));
    }
    if all.is_empty() {
        return Err(BackendError::Unfit("the superblock names no segments"));
    }
    let is_small = all.iter().any(|segment| segments.blocks(*segment) < SEGMENT_BLOCKS_MIN);
    let stride = segments.stride(anchor.pieces > 0);
    if is_small || u64::from(stride) * all.len() as u64 > u64::from(u32::MAX) {
        return Err(BackendError::Unfit("segments have 64 KiB at least, and 16 TiB together at most"));
    }
    Ok(segments)
}

/// The segments that `anchor` names, as they are found.
fn slots(segments: &Segments, anchor: &Anchor) -> Result<(Vec<SegmentSlot>, Vec<Seen>), BackendError> {
    let all = segments.of(anchor);
    let seen = segments.survey(&all)?;
    let slot =
        |(segment, seen): (&SegmentId, &Seen)| SegmentSlot::found(*segment, segments.blocks(*segment), seen);
    Ok((all.iter().zip(&seen).map(slot).collect(), seen))
}

impl Log {
    fn new(
        segments: Segments,
        uuid: Uuid,
        anchor: Anchor,
        writer: Option<superblocks::Writer>,
        state: LogState,
    ) -> Log {
        let source: Arc<dyn ZoneSource> = Arc::new(EmptyZones);
        Log {
            is_read_only: writer.is_none(),
            ahead: Ahead::new(&segments),
            segments,
            uuid,
            writer: Mutex::new(writer),
            anchor: Mutex::new(anchor),
            source: Mutex::new(source),
            is_growing: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// The next read of each page is one of the drive.
    pub(crate) fn forget_kept(&self) {
        self.ahead.clear();
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
                    let SegmentSlot { segment, beginning, written, .. } = self.state.lock().slots[spot.slot];
                    let at = SegmentPlace { segment, block: spot.block };
                    let entries = &entries[begin..end];
                    if self.ahead.read(&self.segments, at, written, bytes)
                        && self.check(entries, at, beginning, bytes).is_ok()
                    {
                        begin = end;
                        continue;
                    }
                    self.ahead.forget(at);
                    self.segments.read(at, bytes)?;
                    self.check(entries, at, beginning, bytes)?;
                }
            }
            begin = end;
        }
        Ok(())
    }

    /// Compares pages that lie from `at` on with their sums.
    fn check(
        &self,
        entries: &[Option<Entry>],
        at: SegmentPlace,
        beginning: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        for ((entry, bytes), block) in entries.iter().flatten().zip(bytes.chunks(PAGE)).zip(at.block..) {
            let place = SegmentPlace { block, ..at };
            if entry.sum != format::page_sum(crc32c(bytes), &self.uuid, place, beginning) {
                let damage = Damage::Checksum;
                return Err(BackendError::Damaged { place, what: "a page of metadata", damage });
            }
        }
        Ok(())
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
        f.debug_struct("Log").field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl Medium for Log {
    /// A page may be moved, and its segment begun again, while it is read. Then its entry has changed, and it is read again.
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

    fn store(&self, snapshot: &Snapshot) -> Result<(), BackendError> {
        if self.is_read_only {
            return Err(BackendError::ReadOnly);
        }
        self.store_batch(snapshot)
    }

    fn discard(&self, pages: Range<u64>) {
        self.state.lock().table.discard(pages);
    }

    /// No page lies in a zone that was reset since.
    fn check(&self) -> Result<(), BackendError> {
        let state = self.state.lock();
        let is_gone = |spot: &Spot| {
            let slot = &state.slots[spot.slot];
            // The pages of an offline zone are there as far as anyone knows.
            let is_offline = slot.is_bad && slot.written == 0;
            slot.is_gone() || slot.segment.as_zone().is_some() && !is_offline && spot.block >= slot.written
        };
        let gone = state.table.spots().find(is_gone);
        gone.map_or(Ok(()), |spot| {
            let place = SegmentPlace { segment: state.slots[spot.slot].segment, block: spot.block };
            let damage = Damage::Missing("what was durable");
            Err(BackendError::Damaged { place, what: "a page of metadata", damage })
        })
    }

    fn has(&self, page: u64) -> bool {
        self.state.lock().table.get(page).is_some()
    }

    fn admit(&self, waiting: u64, fresh: u64) -> Result<(), BackendError> {
        self.state.lock().admit(waiting, fresh)
    }

    /// A page that was never written takes no room: only the numbers of pages bound the length of the file.
    fn admit_len(&self, pages: u64) -> Result<(), BackendError> {
        let usable = u64::from(u32::MAX);
        if pages > usable { Err(BackendError::Full { needed: pages, usable }) } else { Ok(()) }
    }

    fn grow(&self) -> Result<bool, BackendError> {
        if self.is_read_only { Ok(false) } else { self.take_segment_once() }
    }

    fn row_room(&self) -> usize {
        if self.is_read_only { 0 } else { self.state.lock().row_room() }
    }

    fn append_rows(&self, units: &[UnitPlace], rows: &[u8]) -> Result<(), BackendError> {
        if self.is_read_only {
            return Err(BackendError::ReadOnly);
        }
        self.store_rows(units, rows)
    }

    fn room(&self) -> FileRoom {
        let room = self.state.lock().file_room();
        let (growth, takes_zones) = if self.is_read_only { (0, false) } else { self.growth() };
        FileRoom { growth, takes_zones, ..room }
    }

    fn as_log(&self) -> Option<&Log> {
        Some(self)
    }

    fn wait(&self) {
        self.segments.disk().wait();
    }
}

#[cfg(test)]
mod tests;
