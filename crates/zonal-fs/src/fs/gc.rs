//! Garbage collection: copies live data out of zones, and resets zones.
//!
//! This module has no thread of its own. Threads that wait for space do background steps, one
//! thread at a time, and idle callers can do steps ahead of need. A step is a commit, a few resets,
//! or a batch of copies, which bounds how long a thread keeps working after its space is available.
//!
//! # Collecting a zone
//! The victim is the closed zone with the least live data. Its live pieces are listed in address
//! order and moved in batches: read, verified, sorted by file and block, and written to a zone of
//! the collector. A disk seeks between the two zones once per batch. When a copy completes, it
//! replaces the original in the file's map, unless a write has replaced the block meanwhile. A zone
//! without live data is reset once a commit that no longer refers to it is durable.

use super::core::{Core, Shared};
use super::destroy::PIECE_EXTENTS;
use super::error::FsError;
use super::fetch::{Fetched, Source as From, Span};
use super::flight::{AppendUnit, Carried, Source};
use super::map::{self, HeaderSums, Live, Mapped};
use super::read::spans;
use super::room::Touched;
use super::space::Placed;
use super::waiting::WaitsFor;
use crate::BLOCK_BYTES;
use crate::format::{BlockPlace, Extent, Header};
use crate::space::evacuation;
use crate::space::pace::Progress;
use crate::space::victims::Reason;
use crate::space::zone::{Pin, ZoneState};
use crate::waiter::Wait;
use std::collections::VecDeque;
use zonal_core::{Op, ZoneIndex};
use zonal_io::volume::Request;

/// Units of a batch, which is read completely before it is written. Enough to amortise the seek
/// between two zones of a disk, and no more, because writers wait for a batch.
const BATCH_UNITS: u32 = 8;

/// Maximum number of collector commands in flight while no writer waits for space.
const DEPTH_MAX: u32 = 32;

/// Maximum while a writer waits, to keep user I/O from queueing behind the collector's.
const DEPTH_MIN: u32 = 8;

/// Maximum gap in blocks that the collector reads along. Much of a victim is live, and 256 KiB
/// takes an eighth of a rotation on a disk.
const ALONG_MAX: u32 = 64;

/// Urgency of a background step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GcUrgency {
    /// Ahead of need: depends on the remaining space.
    Ahead,
    /// No zone is left to write to.
    NoZone,
    /// Requested by the user.
    Requested,
}

/// Zone being collected, between two steps.
#[derive(Debug)]
pub(super) struct Collection {
    victim: ZoneIndex,
    /// Pieces not copied yet, in address order.
    pieces: VecDeque<Live>,
    headers: HeaderSums,
    progress: Progress,
}

/// Zones reset in one step.
const RESETS_MAX: usize = 16;

impl Shared {
    /// Does one step towards free zones, if one is due and no other thread is doing one. Returns
    /// true if it did.
    pub(super) fn background_step(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.try_step(waiter, GcUrgency::Ahead)
    }

    /// Does a step for a thread that found no zone. If reservations cover all remaining space, the
    /// accounts may show no shortage.
    pub(super) fn find_room(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.try_step(waiter, GcUrgency::NoZone)
    }

    /// Collects the best victim even if space is not short. Returns true if it did a step.
    pub(super) fn collect_one(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        drop(self.lock_when(waiter, WaitsFor::Step, |core| {
            core.check_writable()?;
            let begins = !std::mem::replace(&mut core.is_step_running, true);
            if begins {
                core.room.step_begins();
            }
            Ok(begins)
        })?);
        self.run_step(waiter, GcUrgency::Requested)
    }

    fn try_step(&self, waiter: &dyn Wait, urgency: GcUrgency) -> Result<bool, FsError> {
        {
            let mut core = self.lock();
            core.check_writable()?;
            if std::mem::replace(&mut core.is_step_running, true) {
                return Ok(false);
            }
            core.room.step_begins();
        }
        self.run_step(waiter, urgency)
    }

    /// Runs the step of a thread that has set `is_step_running`, and clears the flag.
    fn run_step(&self, waiter: &dyn Wait, urgency: GcUrgency) -> Result<bool, FsError> {
        let mut result = self.step_alone(waiter, urgency);
        while urgency == GcUrgency::Requested
            && matches!(result, Ok(true))
            && self.lock().collection.is_some()
        {
            result = self.step_alone(waiter, urgency);
        }
        let mut core = self.core.lock();
        core.is_step_running = false;
        match &result {
            // More steps may follow a productive one.
            Ok(true) => {
                core.step_may_help();
                core.notify_room(self);
            }
            Ok(false) if core.room.may_step() => core.step_may_help(),
            Ok(false) => {}
            Err(error) => core.make_read_only(error),
        }
        core.room.wake_one(|what| what == WaitsFor::Step);
        result
    }

    fn step_alone(&self, waiter: &dyn Wait, urgency: GcUrgency) -> Result<bool, FsError> {
        self.process_zone_events()?;
        let finished = self.finish_closed(waiter);
        if self.reset_dead(waiter)? || finished {
            return Ok(true);
        }
        if !self.lock().deleted.is_empty() {
            self.admit_step(waiter)?;
            self.free_next_piece()?;
            return Ok(true);
        }
        let collection = self.lock().collection.take();
        if let Some(collection) = collection {
            return self.continue_collection(waiter, collection);
        }
        let (wanted, begun) = {
            let mut core = self.lock();
            let reason = core.needs_gc(self.options.low_space_percent);
            let reason = reason.or((urgency == GcUrgency::NoZone).then_some(Reason::Forced));
            let reason = reason.filter(|_| !core.gc_has_no_space);
            let reason = reason.or((urgency == GcUrgency::Requested).then_some(Reason::Forced));
            let victim = {
                let space = self.space.lock();
                evacuation::to_collect(&space.book, &space.credit, reason)
            };
            let wanted = core.commit_wanted(self.options.changes_max);
            if wanted.is_none() && victim.is_none() {
                let is_reclaimable = core.is_reclaimable();
                if !is_reclaimable && core.close_for_room()? {
                    return Ok(true);
                }
                core.space.lock().credit.gc_is_idle(is_reclaimable);
            }
            let begun = match victim.filter(|_| wanted.is_none()) {
                Some((victim, reason)) => Some((victim, core.begin_collection(victim, reason)?)),
                None => None,
            };
            (wanted, begun)
        };
        if let Some(commit) = wanted {
            self.commit_up_to(waiter, commit)?;
            return Ok(true);
        }
        let Some((victim, progress)) = begun else { return Ok(false) };
        let collection = self.list_pieces(victim, progress)?;
        self.continue_collection(waiter, collection)
    }

    /// Resets zones that no durable metadata refers to. Returns true if there were any.
    fn reset_dead(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        let zones: Vec<ZoneIndex> = {
            let core = self.lock();
            let mut space = self.space.lock();
            space.unpin_damaged(core.collection.as_ref().map(|collection| collection.victim))?;
            let committed = core.committed;
            let zones: Vec<_> = space
                .book
                .dead_zones(committed)
                .filter(|zone| !self.readers.is_reading(*zone) && !space.is_finishing(*zone))
                .take(RESETS_MAX)
                .collect();
            for zone in &zones {
                space.book.begin_reset(*zone, committed)?;
                // No read pins the zone, and later reads find the data written after the reset.
                self.unit_sums.forget(zone.0);
            }
            zones
        };
        // An empty batch of calls would signal to the waiter that something was waited for.
        if zones.is_empty() {
            return Ok(false);
        }
        let resets = zones.iter().map(|zone| Request::zone(Op::ZoneReset, self.start_of(*zone)));
        let answers = self.drive.calls(waiter, resets);
        for (zone, (result, _)) in zones.iter().zip(answers) {
            if result.is_ok() {
                self.delete_runs(waiter, *zone)?;
            }
            let mut core = self.lock();
            if !self.is_resetting(*zone)? {
                continue;
            }
            match result {
                Ok(_) => {
                    self.space.lock().was_reset(*zone)?;
                    core.statistics.resets += 1;
                    core.gc_has_no_space = false;
                }
                // A zone that can no longer be written keeps its runs.
                Err(_) => self.space.lock().reset_failed(*zone)?,
            }
        }
        Ok(true)
    }

    /// Deletes the runs of a zone that was reset. An opening tolerates them in an empty zone.
    fn delete_runs(&self, waiter: &dyn Wait, zone: ZoneIndex) -> Result<(), FsError> {
        let runs = map::runs(&self.reader, zone.0)?;
        for piece in runs.chunks(PIECE_EXTENTS) {
            self.admit_step(waiter)?;
            let mut core = self.lock();
            if !self.is_resetting(zone)? {
                return Ok(());
            }
            piece.iter().for_each(|run| core.rows.delete(run.clone()));
            core.yield_to_waiters();
        }
        Ok(())
    }

    /// False if a read has found out meanwhile that a zone that was to be reset is offline.
    fn is_resetting(&self, zone: ZoneIndex) -> Result<bool, FsError> {
        Ok(self.space.lock().book.zone(zone)?.state == ZoneState::Resetting)
    }

    /// Lists the live pieces of a pinned victim.
    fn list_pieces(&self, victim: ZoneIndex, progress: Progress) -> Result<Collection, FsError> {
        let (pieces, headers) = map::live(&self.reader, victim.0)?;
        let pieces = VecDeque::from(pieces);
        {
            let mut core = self.lock();
            // Blocks that are missing from the runs cannot be moved, and collecting the zone again
            // would never gain anything. Files may have freed some since the pieces were listed.
            let used = u64::from(core.space.lock().book.zone(victim)?.used);
            let known: u64 = pieces.iter().map(|piece| u64::from(piece.at.extent.blocks)).sum();
            if known < used {
                core.exclude_from_gc(victim, used - known);
            }
        }
        Ok(Collection { victim, pieces, headers, progress })
    }

    /// Copies a batch of live pieces, or ends the collection after the last one. Returns true if
    /// there was space.
    fn continue_collection(&self, waiter: &dyn Wait, mut collection: Collection) -> Result<bool, FsError> {
        let victim = collection.victim;
        if self.is_offline(victim)? {
            // The remaining pieces are lost.
            collection.pieces.clear();
        }
        let mut result = Ok(());
        if !collection.pieces.is_empty() {
            result = self.copy_batch(waiter, &mut collection);
            if result.is_ok() {
                self.lock().collection = Some(collection);
                return Ok(true);
            }
        }
        let mut core = self.lock_when(waiter, WaitsFor::Units, |core| Ok(core.copies_have_ended()))?;
        self.space.lock().collection_ended(victim)?;
        match result {
            // Zones reserved for copies have failed.
            Err(FsError::NoSpace) => {
                core.gc_has_no_space = true;
                let is_reclaimable = core.is_reclaimable();
                core.space.lock().credit.gc_is_idle(is_reclaimable);
                // A zone may have died meanwhile. The next step resets it.
                Ok(is_reclaimable)
            }
            other => other.map(|()| true),
        }
    }

    fn copy_batch(&self, waiter: &dyn Wait, collection: &mut Collection) -> Result<(), FsError> {
        let Collection { victim, pieces, headers, progress } = collection;
        let batch = take(pieces, BATCH_UNITS * (self.unit_blocks() - 1));
        for Live { ino, at, .. } in &batch {
            self.prefetch_map(*ino, &(at.block..at.end()));
        }
        let blocks = blocks_of(&batch);
        let batch = {
            let mut core = self.lock();
            core.check_writable()?;
            core.still_held(batch)?
        };
        let (mut sound, fetched) = self.read_batch(waiter, *victim, headers, batch)?;
        // Credit is granted only now, because writers have just had that of the last copies: half a
        // batch at a time makes smaller bursts.
        self.lock().space.lock().credit.earned(progress.continues(blocks));
        // Drives and write modes may complete the commands of one zone before those of the next.
        // User zones would then be served only after the victim, seconds later.
        drop(self.lock_when(waiter, WaitsFor::Units, |core| {
            core.check_writable()?;
            Ok(core.units.lock().blocks() == 0 || core.copies_have_ended())
        })?);
        while !sound.is_empty() {
            self.admit(waiter, Touched::Changed)?;
            let blocks = self.copy_unit(waiter, &mut sound, &fetched)?;
            self.lock().space.lock().credit.earned(progress.continues(blocks));
        }
        if pieces.is_empty() {
            self.lock().space.lock().credit.earned(progress.ends());
        }
        Ok(())
    }

    /// Reads and verifies a batch. Returns its intact pieces, sorted by file and block, with their
    /// bytes. Damaged pieces stay in place.
    fn read_batch<'a>(
        &'a self,
        waiter: &dyn Wait,
        victim: ZoneIndex,
        headers: &'a HeaderSums,
        batch: Vec<Live>,
    ) -> Result<(VecDeque<Live>, Fetched<'a>), FsError> {
        let parts =
            batch.iter().flat_map(|piece| spans(piece.ino, &piece.at).map(|span| (span, piece.number)));
        let (spans, numbers): (Vec<Span>, Vec<u64>) = parts.unzip();
        let depth = self.lock().depth() as usize;
        // The data is leaving this zone, so its checksums are not worth caching.
        let source =
            From { depth, along_max: ALONG_MAX, known: None, headers: Some(headers), ..self.source() };
        let mut fetched = source.fetch(waiter, &spans);
        let (mut damaged, mut unread) = (0, None);
        let mut sound = VecDeque::new();
        for (span, number) in spans.iter().zip(numbers) {
            match fetched.verify(span) {
                Ok(()) => sound.push_back(live_of(span, number)),
                Err(error) if error.is_damage() => {
                    damaged += u64::from(span.blocks);
                    if matches!(error, FsError::Read { .. }) {
                        unread = Some(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = unread {
            self.note_lost_zone(waiter, &error)?;
        }
        sound.make_contiguous().sort_unstable_by_key(|piece: &Live| (piece.ino, piece.at.block));
        if damaged > 0 && !self.is_offline(victim)? {
            self.lock().exclude_from_gc(victim, damaged);
        }
        Ok((sound, fetched))
    }

    fn is_offline(&self, zone: ZoneIndex) -> Result<bool, FsError> {
        Ok(self.space.lock().book.zone(zone)?.state == ZoneState::Offline)
    }

    /// Copies as many of `pieces` as fit in a unit, and returns the number of blocks.
    fn copy_unit(
        &self,
        waiter: &dyn Wait,
        pieces: &mut VecDeque<Live>,
        fetched: &Fetched<'_>,
    ) -> Result<u32, FsError> {
        let wanted = self.wanted(pieces);
        let mut placed: Option<Placed> = None;
        let mut core = self.lock_when(waiter, WaitsFor::Units, |core| {
            core.check_writable()?;
            let copies = self.units.lock().copies();
            if copies < core.depth() {
                placed = self.space.lock().place_copy(wanted)?;
            }
            if placed.is_none() && self.units.lock().is_empty() && !self.space.lock().has_closed() {
                return Err(FsError::NoSpace);
            }
            Ok(placed.is_some())
        })?;
        let Placed { opened, blocks } = placed.expect("it was waited for");
        let unit = take(pieces, blocks);
        for piece in &unit {
            core.space.lock().book.pin(ZoneIndex(piece.at.extent.zone), Pin::Copy)?;
        }
        core.statistics.gc_blocks += u64::from(blocks);
        drop(core);
        let buf = self.buffer(|data| {
            let spans = unit.iter().flat_map(|piece| spans(piece.ino, &piece.at));
            let bytes = spans.flat_map(|span| fetched.data(&span).chunks_exact(BLOCK_BYTES as usize));
            data.chunks_exact_mut(BLOCK_BYTES as usize)
                .zip(bytes)
                .for_each(|(to, from)| to.copy_from_slice(from));
        });
        self.send(waiter, AppendUnit::new(opened.zone, unit.into_iter().map(carried).collect()), buf);
        Ok(blocks)
    }

    /// Returns the number of blocks for the next unit, limited to the pieces that fit in a header.
    fn wanted(&self, pieces: &VecDeque<Live>) -> u32 {
        let most = self.unit_blocks() - 1;
        let pieces = pieces.iter().take(Header::records_max(most));
        let blocks: u64 = pieces.map(|piece| u64::from(piece.at.extent.blocks)).sum();
        blocks.min(u64::from(most)) as u32
    }
}

fn blocks_of<'a>(pieces: impl IntoIterator<Item = &'a Live>) -> u32 {
    pieces.into_iter().map(|piece| piece.at.extent.blocks).sum()
}

fn carried(piece: Live) -> Carried {
    let Live { ino, at: Mapped { block, extent }, number } = piece;
    Carried { ino, block, blocks: extent.blocks, number, source: Source::Copy(extent) }
}

/// Returns a span as a piece.
fn live_of(span: &Span, number: u64) -> Live {
    let BlockPlace { zone, unit, index } = span.place;
    let (skip, blocks) = (index as u16, span.blocks);
    let unit_blocks = (index + blocks) as u16;
    Live {
        ino: span.ino,
        at: Mapped { block: span.block, extent: Extent { zone, unit, unit_blocks, skip, blocks } },
        number,
    }
}

/// Takes up to `blocks` data blocks from the front of `pieces`.
fn take(pieces: &mut VecDeque<Live>, blocks: u32) -> Vec<Live> {
    let mut taken = Vec::new();
    let mut left = blocks;
    while left > 0 {
        let Some(mut piece) = pieces.pop_front() else { break };
        let extent = piece.at.extent;
        let now = extent.blocks.min(left);
        if now < extent.blocks {
            let rest =
                Mapped { block: piece.at.block + u64::from(now), extent: extent.part(now..extent.blocks) };
            pieces.push_front(Live { at: rest, ..piece });
            piece.at.extent = extent.part(0..now);
        }
        left -= now;
        taken.push(piece);
    }
    taken
}

impl Core {
    /// Pins `victim` under the lock under which it was chosen: another thread may find out that it
    /// is offline.
    fn begin_collection(&mut self, victim: ZoneIndex, reason: Reason) -> Result<Progress, FsError> {
        self.statistics.reason = Some(reason);
        self.statistics.gc_victims += 1;
        let mut space = self.space.lock();
        let account = *space.book.zone(victim)?;
        self.statistics.gc_victims_blocks += u64::from(account.used);
        // Prevents another collection of this zone.
        space.book.pin(victim, Pin::Copy)?;
        space.collection_begins();
        // Collecting a lost zone frees no space.
        let blocks = if reason == Reason::ReadOnlyZone { account.used } else { account.capacity };
        Ok(Progress::new(blocks, account.used))
    }

    /// Returns the commit that a background step should do: one that allows a dead zone to be
    /// reset, to keep low-numbered zones free, or one that bounds the uncommitted changes in
    /// memory.
    fn commit_wanted(&self, changes_max: usize) -> Option<u64> {
        let changes = (self.rows.changes() > changes_max).then(|| self.rows.number());
        let wanted = self.space.lock().book.commit_wanted().max(changes);
        wanted.filter(|commit| *commit > self.committed)
    }

    /// Returns the reason for garbage collection, if it is needed.
    pub(super) fn needs_gc(&self, low_space_percent: u8) -> Option<Reason> {
        self.space.lock().needs_gc(low_space_percent)
    }

    /// True if space can become free without changes by users.
    pub(super) fn is_reclaimable(&self) -> bool {
        if !self.deleted.is_empty() {
            return true;
        }
        let book = &self.space.lock().book;
        if self.gc_has_no_space { book.is_freeing() } else { book.is_reclaimable() }
    }

    /// True once all copies have ended. Failed copies that find no zone are given up once no unit
    /// is in flight; their data is still at its old place.
    fn copies_have_ended(&mut self) -> bool {
        let mut units = self.units.lock();
        if units.copies() == 0 {
            return true;
        }
        let failed = if units.is_empty() { units.take_failed_copies() } else { Vec::new() };
        drop(units);
        for append in failed {
            self.give_up(&append, super::error::Lost::NoZone);
        }
        self.units.lock().copies() == 0
    }

    /// Maximum number of collector commands in flight.
    fn depth(&self) -> u32 {
        if self.space.lock().credit.waiting() > 0 { DEPTH_MIN } else { DEPTH_MAX }
    }

    /// Returns the part of a batch that files still have, with the numbers of its copies. Files may
    /// have been written meanwhile.
    fn still_held(&mut self, batch: Vec<Live>) -> Result<Vec<Live>, FsError> {
        let mut still = Vec::with_capacity(batch.len());
        for Live { ino, at, number } in batch {
            still.extend(map::held(&self.rows, ino, &at)?.into_iter().map(|at| Live { ino, at, number }));
        }
        Ok(self.numbered(still))
    }

    /// Excludes a zone from collection until its immovable blocks are gone.
    fn exclude_from_gc(&mut self, zone: ZoneIndex, blocks: u64) {
        self.statistics.damaged_blocks += blocks;
        self.space.lock().exclude_from_gc(zone);
    }
}
