//! Segments that the log takes, and gives back.
//!
//! # Order
//! A segment is named by two updates of the superblock before it is begun, and is missing from two before anything else lies
//! there. So the update before the last one says the same of all segments that are in use, and a copy that is lost costs
//! nothing.

use super::super::error::{BackendError, SegmentId, Stop};
use super::{Log, LogState, SegmentSlot};
use crate::drive::{Drive, is_zone_limit_exceeded};
use crate::format::{Anchor, STORE_ZONES_MAX};
use crate::space::open::{OPEN_MIN, ZONES_MIN};
use crate::superblocks::{self, COPY_BLOCKS, Site};
use crate::waiter::Wait;
use crate::{BLOCK_SECTORS, format::Metadata};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zonal_core::{RequestError, Sector, ZoneCondition, ZoneIndex};

/// How much a zone is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneNeed {
    /// There are others, or other ways.
    More,
    /// Nothing can be written without it.
    Last,
}

/// Gives sequential zones to the store, and to homes of the superblock.
pub trait ZoneSource: Send + Sync {
    /// The lowest free zone that the store can have at once, which is the store's from then on; not one of `taken`. If `need` is
    /// [`ZoneNeed::Last`], nothing can be committed without it.
    fn take(
        &self,
        drive: &Drive,
        waiter: &dyn Wait,
        taken: &[ZoneIndex],
        need: ZoneNeed,
    ) -> Option<ZoneIndex>;
}

/// Where no file system is at work on the drive: zones that are empty are free.
pub(super) struct EmptyZones;

impl ZoneSource for EmptyZones {
    fn take(&self, drive: &Drive, waiter: &dyn Wait, taken: &[ZoneIndex], _: ZoneNeed) -> Option<ZoneIndex> {
        let report = drive.report(waiter).ok()?;
        let is_free = |zone: &&zonal_core::ZoneDescriptor| {
            zone.condition == ZoneCondition::Empty && !taken.contains(&zone.zone)
        };
        report.iter().find(is_free).map(|zone| zone.zone)
    }
}

/// True if there is a zone that a store, or a home of the superblock, can have.
pub(crate) fn has_empty_zone(drive: &Drive, waiter: &dyn Wait, anchor: &Anchor) -> bool {
    let taken: Vec<ZoneIndex> = anchor.zones.iter().chain(&anchor.homes).copied().collect();
    EmptyZones.take(drive, waiter, &taken, ZoneNeed::Last).is_some()
}

/// Pages of the smallest commit: a table of one row, and the root.
pub(super) const SMALLEST_BATCH: u64 = 5;

/// What a growing log takes next.
enum Next {
    Piece(u32),
    Zone,
    /// It has all that it can have.
    Nothing,
}

impl Log {
    /// The waiter of this thread, and the drive.
    fn with_drive<R>(&self, call: impl FnOnce(&Drive, &dyn Wait) -> R) -> R {
        let disk = self.segments.disk();
        call(disk.drive(), &*disk.waiter())
    }

    /// Takes the writer of the superblock, once no other thread has it.
    fn borrow_writer(&self) -> superblocks::Writer {
        loop {
            if let Some(writer) = self.writer.lock().take() {
                return writer;
            }
            self.segments.disk().wait();
        }
    }

    /// Writes `times` updates of the superblock that say what `change` makes of it.
    pub(super) fn record(&self, times: u32, change: impl Fn(&mut Anchor)) -> Result<(), BackendError> {
        self.write_superblock(|writer, site| {
            (0..times).try_for_each(|_| {
                let mut anchor = writer.anchor().clone();
                change(&mut anchor);
                writer.record(site, anchor)
            })
        })
    }

    /// Tells the superblock how far the store has come. Where the drive has no active zone to spare for that, the next batch
    /// does it: until then an older store is not found out.
    pub(super) fn record_number(&self, number: u64) -> Result<(), BackendError> {
        if number <= self.state.lock().recorded {
            return Ok(());
        }
        if is_recorded(self.record(1, |anchor| anchor.number = number))? {
            self.state.lock().recorded = number;
        }
        Ok(())
    }

    /// Last durable batch.
    pub(crate) fn batch(&self) -> u64 {
        self.state.lock().batch
    }

    /// Writes the number of the last batch to the superblock. From then on a store without this batch is refused. Does nothing if the drive has
    /// no active zone to spare.
    ///
    /// # Errors
    /// The drive's.
    pub(crate) fn name_batch(&self) -> Result<(), BackendError> {
        let (batch, named) = {
            let state = self.state.lock();
            (state.batch, state.named)
        };
        if self.is_read_only || named.is_none_or(|named| batch <= named) {
            return Ok(());
        }
        if is_recorded(self.record(1, |anchor| anchor.batch = anchor.batch.max(batch)))? {
            let mut state = self.state.lock();
            state.named = state.named.max(Some(batch));
        }
        Ok(())
    }

    /// What the superblock says of the store.
    pub(super) fn anchor(&self) -> Anchor {
        self.anchor.lock().clone()
    }

    /// What a superblock has to say of the store as it is.
    pub(crate) fn anchor_now(&self) -> Anchor {
        let state = self.state.lock();
        Anchor { number: state.durable_number, batch: state.batch, ..self.anchor() }
    }

    /// Writes the copies of the superblock that make a file system of what was made.
    ///
    /// # Errors
    /// The drive's: then there is no file system.
    pub(crate) fn make(&self) -> Result<(), BackendError> {
        self.write_superblock(|writer, site| writer.make(site))?;
        self.state.lock().named = Some(0);
        Ok(())
    }

    /// Calls `write` with the writer of the superblock, and with what its updates need.
    fn write_superblock(
        &self,
        write: impl FnOnce(&mut superblocks::Writer, &Site<'_>) -> Result<(), RequestError>,
    ) -> Result<(), BackendError> {
        let mut writer = self.borrow_writer();
        let source = self.source.lock().clone();
        let result = self.with_drive(|drive, waiter| {
            let anchor = writer.anchor();
            let taken: Vec<ZoneIndex> = anchor.zones.iter().chain(&anchor.homes).copied().collect();
            let taken = RefCell::new(taken);
            let free = || {
                let zone = source.take(drive, waiter, &taken.borrow(), ZoneNeed::More)?;
                taken.borrow_mut().push(zone);
                Some(zone)
            };
            write(&mut writer, &Site { drive, waiter, free: &free })
        });
        *self.anchor.lock() = writer.anchor().clone();
        *self.writer.lock() = Some(writer);
        result.map_err(|error| BackendError::Request {
            doing: "writing the superblock",
            sector: Sector(0),
            error,
        })
    }

    /// Where zones come from from now on.
    pub(crate) fn attach(&self, source: Arc<dyn ZoneSource>) {
        *self.source.lock() = source;
    }

    /// What the store would take next.
    fn next(&self, anchor: &Anchor) -> Next {
        let first = self.state.lock().slots.first().map(|slot| slot.segment);
        let is_file = first.is_some_and(|segment| segment == SegmentId::file(0));
        if is_file {
            return Next::Piece(anchor.pieces);
        }
        let geometry = self.segments.disk().drive().volume().info().geometry;
        let blocks = geometry.start_of(ZoneIndex(geometry.conventional_zones())).0 / u64::from(BLOCK_SECTORS);
        let end = u64::from(COPY_BLOCKS) + u64::from(anchor.pieces + 1) * u64::from(anchor.piece_blocks);
        let info = self.segments.disk().drive().volume().info();
        let limit = [info.open_max, info.active_max].into_iter().filter(|max| *max > 0).min();
        match anchor.zones.len() {
            _ if anchor.pieces > 0 && end <= blocks => Next::Piece(anchor.pieces),
            // The data needs all open zones that the drive allows.
            _ if anchor.pieces > 0 && limit.is_some_and(|limit| limit <= OPEN_MIN) => Next::Nothing,
            STORE_ZONES_MAX.. => Next::Nothing,
            _ => Next::Zone,
        }
    }

    /// Blocks of the pieces that the log can take at once, and whether it takes zones instead.
    pub(super) fn growth(&self) -> (u64, bool) {
        let anchor = self.anchor();
        match self.next(&anchor) {
            Next::Nothing => (0, false),
            Next::Zone => (0, true),
            Next::Piece(piece) => (self.segments.blocks_left(piece), false),
        }
    }

    /// Why no batch can be written, if none can: the segments that take writes have no room for the smallest, and there are no
    /// others to take.
    pub(crate) fn stop(&self) -> Option<Stop> {
        let anchor = self.anchor();
        let can_grow = match self.next(&anchor) {
            Next::Nothing => false,
            Next::Piece(piece) => self.segments.blocks_left(piece) > 0,
            Next::Zone => self.with_drive(|drive, waiter| {
                let geometry = drive.volume().info().geometry;
                let conventional = (0..geometry.conventional_zones()).map(ZoneIndex);
                let reserved: BTreeSet<ZoneIndex> =
                    conventional.chain(anchor.zones.iter().chain(&anchor.homes).copied()).collect();
                let data = geometry.zones() - reserved.len() as u32;
                data > ZONES_MIN && has_empty_zone(drive, waiter, &anchor)
            }),
        };
        match self.state.lock().admit(SMALLEST_BATCH, 0) {
            Err(BackendError::Full { needed, usable }) if !can_grow => {
                Some(Stop::Store { pages: needed, usable })
            }
            _ => None,
        }
    }

    /// Takes the next piece of the conventional zones or of the file, if there is one. Whether there was.
    pub(crate) fn take_piece(&self) -> Result<bool, BackendError> {
        match self.next(&self.anchor()) {
            Next::Piece(_) if !self.is_read_only => self.take_segment_once(),
            _ => Ok(false),
        }
    }

    /// The same as [`Log::take_segment`], for many threads: one of them does it for all that come meanwhile.
    pub(super) fn take_segment_once(&self) -> Result<bool, BackendError> {
        if self.is_growing.swap(true, Ordering::Acquire) {
            while self.is_growing.load(Ordering::Acquire) {
                self.segments.disk().wait();
            }
            return Ok(true);
        }
        let result = self.take_segment();
        self.is_growing.store(false, Ordering::Release);
        result
    }

    /// Takes the next segment: a piece if there is one, else a zone that the source gives at once. Whether there was one.
    pub(super) fn take_segment(&self) -> Result<bool, BackendError> {
        let anchor = self.anchor();
        match self.next(&anchor) {
            Next::Nothing => Ok(false),
            Next::Piece(piece) => {
                if self.segments.allocate(piece).is_err() {
                    // The host's disk is full: nothing has changed.
                    return Ok(false);
                }
                if !is_recorded(self.record(2, |anchor| anchor.pieces = piece + 1))? {
                    return Ok(false);
                }
                self.add(self.segments.of(&Anchor { pieces: piece + 1, ..anchor })[piece as usize])?;
                Ok(true)
            }
            Next::Zone => {
                let source = self.source.lock().clone();
                let taken: Vec<ZoneIndex> = anchor.zones.iter().chain(&anchor.homes).copied().collect();
                let need = match self.state.lock().admit(SMALLEST_BATCH, 0) {
                    Ok(()) => ZoneNeed::More,
                    Err(_) => ZoneNeed::Last,
                };
                let zone = self.with_drive(|drive, waiter| source.take(drive, waiter, &taken, need));
                let Some(zone) = zone else { return Ok(false) };
                is_recorded(self.take_zone(zone))
            }
        }
    }

    /// Takes a zone that nothing else has.
    pub(crate) fn take_zone(&self, zone: ZoneIndex) -> Result<(), BackendError> {
        self.record(2, |anchor| {
            if let Err(place) = anchor.zones.binary_search(&zone) {
                anchor.zones.insert(place, zone);
            }
        })?;
        self.add(SegmentId::zone(zone))
    }

    fn add(&self, segment: SegmentId) -> Result<(), BackendError> {
        if self.state.lock().slots.iter().any(|slot| slot.segment == segment) {
            return Err(BackendError::Unfit("the next segment is one that the log has already"));
        }
        let seen = self.segments.survey(&[segment])?;
        let slot = SegmentSlot::found(segment, self.segments.blocks(segment), &seen[0]);
        let mut state = self.state.lock();
        state.statistics.segments_taken += 1;
        state.add(slot);
        Ok(())
    }

    /// True if the store grows by zones that a file system has to give it.
    pub(crate) fn wants_zones(&self) -> bool {
        !self.is_read_only && matches!(self.next(&self.anchor()), Next::Zone)
    }

    /// Gives a zone back that the store does not need, emptied, once no copy of the superblock names it.
    ///
    /// # Errors
    /// The drive's; then the zone is still the store's.
    pub(crate) fn give_back(&self) -> Result<Option<ZoneIndex>, BackendError> {
        if self.is_read_only {
            return Ok(None);
        }
        let found = {
            let mut state = self.state.lock();
            let found = state.spare();
            if let Some((slot, _)) = found {
                state.slots[slot].is_leaving = true;
            }
            found
        };
        let Some((slot, zone)) = found else { return Ok(None) };
        let is_empty = self.state.lock().slots[slot].written == 0;
        if !is_empty && self.empty_segment(slot).is_err() {
            self.state.lock().slots[slot].is_leaving = false;
            return Ok(None);
        }
        let result = self.record(2, |anchor| anchor.zones.retain(|other| *other != zone));
        // If only one update got through, the zone is of no use to anything before the next opening.
        let mut state = self.state.lock();
        let gone = &mut state.slots[slot];
        (gone.segment, gone.blocks, gone.beginning, gone.is_leaving) = (SegmentId::NONE, 0, 0, false);
        state.statistics.segments_given_back += 1;
        result.map(|()| Some(zone))
    }

    /// The sequential zones that hold no data: the store's, and the homes of the superblock.
    pub(crate) fn zones(&self) -> Vec<ZoneIndex> {
        let Anchor { zones, homes, .. } = self.anchor();
        zones.into_iter().chain(homes).collect()
    }
}

/// Returns false if an update of the superblock failed because the drive has no active zone to spare.
fn is_recorded(result: Result<(), BackendError>) -> Result<bool, BackendError> {
    match result {
        Err(BackendError::Request { error, .. }) if is_zone_limit_exceeded(&error) => Ok(false),
        result => result.map(|()| true),
    }
}

impl LogState {
    /// Takes a segment in. It gets the number of a segment that was given back, if there is such a number.
    fn add(&mut self, slot: SegmentSlot) {
        let live = |n: &usize| self.table.live(*n) == 0 && self.slots[*n].is_gone();
        match (0..self.slots.len()).find(live) {
            Some(place) => self.slots[place] = slot,
            None => {
                self.slots.push(slot);
                self.table.add_slot();
            }
        }
    }
}

/// Where the metadata of a new file system lie.
pub(crate) fn plan_pieces(metadata: Metadata, drive: &Drive) -> (u32, u64) {
    let geometry = drive.volume().info().geometry;
    let block = u64::from(BLOCK_SECTORS);
    match metadata {
        Metadata::Logged => (0, 0),
        Metadata::Conventional => {
            let blocks = geometry.start_of(ZoneIndex(geometry.conventional_zones())).0 / block;
            let blocks = blocks.saturating_sub(COPY_BLOCKS.into());
            let piece = (blocks / PIECES_MIN).min(PIECE_BLOCKS_MAX);
            (piece as u32, blocks.checked_div(piece).unwrap_or(0))
        }
        Metadata::Beside => {
            let piece = ((geometry.sectors().0 / block) >> 11).clamp(PIECE_BLOCKS_MIN, PIECE_BLOCKS_MAX);
            (piece as u32, u64::MAX)
        }
    }
}

/// Pieces of conventional zones at least: two of them are no room, so that fewer would waste more.
const PIECES_MIN: u64 = 8;

/// Blocks of the smallest piece of a file: 512 KiB.
const PIECE_BLOCKS_MIN: u64 = 128;

/// Blocks of the largest piece, 64 MiB: a search for the end of the log reads as much.
const PIECE_BLOCKS_MAX: u64 = 16384;
