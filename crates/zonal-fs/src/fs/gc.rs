//! Makes zones free again: resets and collects them.
//!
//! There is no thread in here. A thread that waits for space does a background step, one thread at a time. A caller with
//! nothing else to do can do steps ahead of need. A step is a commit, a few resets, or a batch of copies, so that no thread is kept
//! by steps long after its space is there.
//!
//! # How a zone is collected
//! The collector chooses the closed zone with the least live data. It lists what files still have of it, in the order of
//! the drive. It moves this in batches: it reads, verifies, sorts by file and block, and writes to its own zone. A disk
//! moves between the two zones once a batch. When a copy has completed, the file gets it, unless a write has replaced the
//! block meanwhile. A zone without live data is reset once a commit that no longer refers to it is durable.

use super::core::{Core, Shared};
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

/// Units of a batch, which are read before they are written. They are enough to pay for the move between two zones of a
/// disk, and no more, because writers wait for a batch.
const BATCH_UNITS: u32 = 8;

/// Commands that the collector has in flight while no writer waits for space.
const DEPTH_MAX: u32 = 32;

/// The same while a writer waits: reads and writes of users are not to queue after them.
const DEPTH_MIN: u32 = 8;

/// Blocks that the collector reads along. Much of a victim is live, and on a disk a quarter of a mebibyte takes an eighth
/// of a rotation.
const ALONG_MAX: u32 = 64;

/// How urgent a background step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pressing {
    /// Not yet: the space that is left decides.
    Ahead,
    /// There is no zone to write to.
    Now,
    /// It was asked for.
    Asked,
}

/// A zone that is collected, as it is between two steps.
#[derive(Debug)]
pub(super) struct Collection {
    victim: ZoneIndex,
    /// What is not copied yet, in the order of the drive.
    pieces: VecDeque<Live>,
    headers: HeaderSums,
    progress: Progress,
}

/// Zones that are reset at once.
const RESETS_MAX: usize = 16;

impl Shared {
    /// Does one step towards free zones, if one is due and no other thread does one. Returns whether it did.
    pub(super) fn background_step(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.try_step(waiter, Pressing::Ahead)
    }

    /// The same, for a thread that found no zone: with reservations for all that is left, the accounts may show no
    /// shortage.
    pub(super) fn find_room(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.try_step(waiter, Pressing::Now)
    }

    /// Collects the zone that gains most, whether or not space is short. Returns whether it did a step.
    pub(super) fn collect_one(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        drop(self.lock_when(waiter, WaitsFor::Step, |core| {
            core.check_alive()?;
            let begins = !std::mem::replace(&mut core.is_step_running, true);
            if begins {
                core.room.step_begins();
            }
            Ok(begins)
        })?);
        self.run_step(waiter, Pressing::Asked)
    }

    fn try_step(&self, waiter: &dyn Wait, pressing: Pressing) -> Result<bool, FsError> {
        {
            let mut core = self.lock();
            core.check_alive()?;
            if std::mem::replace(&mut core.is_step_running, true) {
                return Ok(false);
            }
            core.room.step_begins();
        }
        self.run_step(waiter, pressing)
    }

    /// Does the step of a thread that has set `is_step_running`, and clears that.
    fn run_step(&self, waiter: &dyn Wait, pressing: Pressing) -> Result<bool, FsError> {
        let mut result = self.step_alone(waiter, pressing);
        while pressing == Pressing::Asked && matches!(result, Ok(true)) && self.lock().collection.is_some() {
            result = self.step_alone(waiter, pressing);
        }
        let mut core = self.core.lock();
        core.is_step_running = false;
        match &result {
            // A step that did something may be one of many.
            Ok(true) => {
                core.step_may_help();
                core.tell_of_room(self);
            }
            Ok(false) if core.room.may_step() => core.step_may_help(),
            Ok(false) => {}
            Err(error) => core.die(error),
        }
        core.room.tell_one(|what| what == WaitsFor::Step);
        result
    }

    fn step_alone(&self, waiter: &dyn Wait, pressing: Pressing) -> Result<bool, FsError> {
        self.hear_of_zones()?;
        let finished = self.finish_closed(waiter);
        if self.reset_dead(waiter)? || finished {
            return Ok(true);
        }
        let collection = self.lock().collection.take();
        if let Some(collection) = collection {
            return self.continue_collection(waiter, collection);
        }
        let (wanted, victim) = {
            let mut core = self.lock();
            let reason = core.needs_gc(self.options.low_space_percent);
            let reason = reason.or((pressing == Pressing::Now).then_some(Reason::Forced));
            let reason = reason.filter(|_| !core.gc_is_helpless);
            let reason = reason.or((pressing == Pressing::Asked).then_some(Reason::Forced));
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
            (wanted, victim)
        };
        if let Some(commit) = wanted {
            self.commit_up_to(waiter, commit)?;
            return Ok(true);
        }
        let Some((victim, reason)) = victim else { return Ok(false) };
        let collection = self.begin_collection(victim, reason)?;
        self.continue_collection(waiter, collection)
    }

    /// Resets zones that nothing durable refers to any more, and returns whether there was one.
    fn reset_dead(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        let zones: Vec<ZoneIndex> = {
            let core = self.lock();
            let mut space = self.space.lock();
            space.let_damaged_go(core.collection.as_ref().map(|collection| collection.victim))?;
            let committed = core.committed;
            let zones: Vec<_> = space
                .book
                .dead_zones(committed)
                .filter(|zone| !self.readers.is_reading(*zone))
                .take(RESETS_MAX)
                .collect();
            for zone in &zones {
                space.book.begin_reset(*zone, committed)?;
                // No read has the zone pinned, and the next ones find what comes after the reset.
                self.unit_sums.forget(zone.0);
            }
            zones
        };
        // A call without requests would tell the waiter that something was waited for.
        if zones.is_empty() {
            return Ok(false);
        }
        let resets = zones.iter().map(|zone| Request::zone(Op::ZoneReset, self.start_of(*zone)));
        let answers = self.drive.calls(waiter, resets);
        for (zone, (result, _)) in zones.iter().zip(answers) {
            // A zone that is written by none keeps its runs.
            let runs = map::runs(&self.reader, zone.0)?;
            let mut core = self.lock();
            match result {
                Ok(_) => {
                    runs.into_iter().for_each(|run| core.rows.delete(run));
                    self.space.lock().was_reset(*zone)?;
                    core.statistics.resets += 1;
                    core.gc_is_helpless = false;
                }
                Err(_) => self.space.lock().reset_failed(*zone)?,
            }
        }
        Ok(true)
    }

    /// Chooses `victim`, and lists what is live there.
    fn begin_collection(&self, victim: ZoneIndex, reason: Reason) -> Result<Collection, FsError> {
        let progress = {
            let mut core = self.lock();
            core.statistics.reason = Some(reason);
            core.statistics.gc_victims += 1;
            let mut space = self.space.lock();
            let account = *space.book.zone(victim)?;
            core.statistics.gc_victims_blocks += u64::from(account.used);
            // While it is collected it is no other collection's victim.
            space.book.pin(victim, Pin::Copy)?;
            space.collection_begins();
            // A lost zone frees nothing.
            let blocks = if reason == Reason::ReadOnlyZone { account.used } else { account.capacity };
            Progress::new(blocks, account.used)
        };
        let (pieces, headers) = map::live(&self.reader, victim.0)?;
        let pieces = VecDeque::from(pieces);
        {
            let mut core = self.lock();
            // What its runs do not know stays where it is: to collect the zone again would never gain anything. Files may have
            // left some of it since its pieces were listed.
            let used = u64::from(core.space.lock().book.zone(victim)?.used);
            let known: u64 = pieces.iter().map(|piece| u64::from(piece.at.extent.blocks)).sum();
            if known < used {
                core.leave_alone(victim, used - known);
            }
        }
        Ok(Collection { victim, pieces, headers, progress })
    }

    /// Copies a batch of what is live in a victim, or ends its collection if all is copied. Returns whether there was room.
    fn continue_collection(&self, waiter: &dyn Wait, mut collection: Collection) -> Result<bool, FsError> {
        let victim = collection.victim;
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
            // Zones that were kept for copies have failed.
            Err(FsError::NoSpace) => {
                core.space.lock().credit.gc_is_idle(false);
                core.gc_is_helpless = true;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    fn copy_batch(&self, waiter: &dyn Wait, collection: &mut Collection) -> Result<(), FsError> {
        let Collection { victim, pieces, headers, progress } = collection;
        let batch = take(pieces, BATCH_UNITS * (self.unit_blocks() - 1));
        for Live { ino, at, .. } in &batch {
            self.look_at_map(*ino, &(at.block..at.end()));
        }
        let blocks = blocks_of(&batch);
        let batch = {
            let mut core = self.lock();
            core.check_alive()?;
            core.still_held(batch)?
        };
        let (mut sound, fetched) = self.read_batch(waiter, *victim, headers, batch)?;
        // Not before, when writers have just had what the last copies brought: half a batch at a time is less of a burst.
        self.lock().space.lock().credit.earned(progress.continues(blocks));
        // A drive, or a mode, may finish the work of one zone before that of the next. It would come to users' zones
        // when the victim is done, which takes seconds.
        drop(self.lock_when(waiter, WaitsFor::Units, |core| {
            core.check_alive()?;
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

    /// Reads and verifies a batch. Returns its sound pieces, by file and block, and their bytes. Damaged pieces stay where
    /// they are.
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
        // What is copied leaves its zone: its checksums are not needed again.
        let source =
            From { depth, along_max: ALONG_MAX, known: None, headers: Some(headers), ..self.source() };
        let mut fetched = source.fetch(waiter, &spans);
        let mut damaged = 0;
        let mut sound = VecDeque::new();
        for (span, number) in spans.iter().zip(numbers) {
            match fetched.verify(span) {
                Ok(()) => sound.push_back(live_of(span, number)),
                Err(error) if error.is_damage() => damaged += u64::from(span.blocks),
                Err(error) => return Err(error),
            }
        }
        sound.make_contiguous().sort_unstable_by_key(|piece: &Live| (piece.ino, piece.at.block));
        if damaged > 0 {
            self.lock().leave_alone(victim, damaged);
        }
        Ok((sound, fetched))
    }

    /// Copies as many of `pieces` as fit a unit, and returns how many blocks.
    fn copy_unit(
        &self,
        waiter: &dyn Wait,
        pieces: &mut VecDeque<Live>,
        fetched: &Fetched<'_>,
    ) -> Result<u32, FsError> {
        let wanted = self.wanted(pieces);
        let mut placed: Option<Placed> = None;
        let mut core = self.lock_when(waiter, WaitsFor::Units, |core| {
            core.check_alive()?;
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

    /// How many blocks the next unit takes: no more pieces than its header has room for.
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

/// A span as a piece of its own.
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

/// Up to `blocks` data blocks from the front of `pieces`.
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
    /// The commit that a background step should do. It lets a dead zone be reset, so that free zones are as low as can be,
    /// or it bounds the changes in memory.
    fn commit_wanted(&self, changes_max: usize) -> Option<u64> {
        let changes = (self.rows.changes() > changes_max).then(|| self.rows.number());
        let wanted = self.space.lock().book.commit_wanted().max(changes);
        wanted.filter(|commit| *commit > self.committed)
    }

    /// Whether and why zones have to be collected.
    pub(super) fn needs_gc(&self, low_space_percent: u8) -> Option<Reason> {
        self.space.lock().needs_gc(low_space_percent)
    }

    /// Whether space can come free without a change by users.
    pub(super) fn is_reclaimable(&self) -> bool {
        let book = &self.space.lock().book;
        match self.gc_is_helpless {
            true => book.count(ZoneState::Dead) + book.count(ZoneState::Resetting) > 0,
            false => book.is_reclaimable(),
        }
    }

    /// Whether all copies have ended. Copies that failed and find no zone are given up once no unit is in flight: their
    /// data is still where it was.
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

    /// Commands that the collector may have in flight.
    fn depth(&self) -> u32 {
        if self.space.lock().credit.waiting() > 0 { DEPTH_MIN } else { DEPTH_MAX }
    }

    /// What files still have of a batch, with the numbers of its copies: files are written meanwhile.
    fn still_held(&mut self, batch: Vec<Live>) -> Result<Vec<Live>, FsError> {
        let mut still = Vec::with_capacity(batch.len());
        for Live { ino, at, number } in batch {
            still.extend(map::held(&self.rows, ino, &at)?.into_iter().map(|at| Live { ino, at, number }));
        }
        Ok(self.numbered(still))
    }

    /// Some blocks of a zone cannot be moved: it is not collected again before they are gone.
    fn leave_alone(&mut self, zone: ZoneIndex, blocks: u64) {
        self.statistics.damaged_blocks += blocks;
        self.space.lock().leave_alone(zone);
    }
}
