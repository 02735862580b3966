//! What keeps free zones coming: zones reset, collected.
//!
//! There is no thread in here. Whoever waits for space tends the zones, one at a time; a caller who does nothing else can do
//! it ahead of need.
//!
//! # How a zone is collected
//! The closed zone with the least live data is chosen. What files still have of it is listed, sorted by file and block, read,
//! verified, and written to the collector's own zone. When a copy has landed the file gets it, unless it has written the
//! block meanwhile. A zone without live data is reset once a commit that no longer refers to it is durable.

use super::core::{Core, Shared};
use super::error::FsError;
use super::flight::{Carried, Flight, Placed, Source};
use super::map::{self, Live, Mapped};
use super::read::{Span, spans};
use super::room::Touched;
use crate::BLOCK_BYTES;
use crate::format::{Extent, Header, Place};
use crate::space::cost::Need;
use crate::space::open::Wish;
use crate::space::victims::Reason;
use crate::space::zone::{Lost, Pin, ZoneState};
use crate::space::{self, Urgency};
use crate::waiter::Waiter;
use std::collections::VecDeque;
use zonal_core::{Op, ZoneIndex};
use zonal_io::volume::Request;

/// Units that the collector has on their way while nobody waits for space.
const COPIES_MAX: u32 = 4;

/// The same while somebody does: reads and writes of users are not to queue behind it.
const COPIES_MIN: u32 = 1;

/// How much somebody needs it that zones are tended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pressing {
    /// Not yet: whether they are is a matter of how much is left.
    Ahead,
    /// There is no zone to write to.
    Now,
    /// It was asked for.
    Asked,
}

/// Failed resets after which a zone is given up.
const RESET_FAILURES_MAX: u32 = 3;

/// Zones that are reset at once.
const RESETS_MAX: usize = 16;

impl Shared {
    /// Does one thing that keeps free zones coming, if anything is to be done and nobody else does; whether it did.
    pub(super) fn tend(&self, waiter: &dyn Waiter) -> Result<bool, FsError> {
        self.tend_because(waiter, Pressing::Ahead)
    }

    /// The same, of somebody who found no zone: with reservations for all that is left, none may be short by the accounts.
    pub(super) fn find_room(&self, waiter: &dyn Waiter) -> Result<bool, FsError> {
        self.tend_because(waiter, Pressing::Now)
    }

    /// Collects the zone that gains most, whether or not space is short; whether there was one.
    pub(super) fn collect_one(&self, waiter: &dyn Waiter) -> Result<bool, FsError> {
        drop(self.lock_when(waiter, |core| {
            core.check_alive()?;
            Ok(!std::mem::replace(&mut core.is_tended, true))
        })?);
        self.tend_to_the_end(waiter, Pressing::Asked)
    }

    fn tend_because(&self, waiter: &dyn Waiter, pressing: Pressing) -> Result<bool, FsError> {
        {
            let mut core = self.lock();
            core.check_alive()?;
            if std::mem::replace(&mut core.is_tended, true) {
                return Ok(false);
            }
        }
        self.tend_to_the_end(waiter, pressing)
    }

    /// Of who has said that he tends: does it, and says that it is over.
    fn tend_to_the_end(&self, waiter: &dyn Waiter, pressing: Pressing) -> Result<bool, FsError> {
        let result = self.tend_alone(waiter, pressing);
        let mut core = self.core.lock();
        core.is_tended = false;
        if let Err(error) = &result {
            core.die(error);
        }
        result
    }

    fn tend_alone(&self, waiter: &dyn Waiter, pressing: Pressing) -> Result<bool, FsError> {
        let finished = self.finish_closed(waiter);
        if self.reset_dead(waiter)? || finished {
            return Ok(true);
        }
        let (wanted, reason, victim) = {
            let mut core = self.lock();
            let reason = core.needs_gc(self.options.low_space_percent);
            let reason = reason.or((pressing == Pressing::Now).then_some(Reason::Forced));
            let reason = reason.filter(|_| !core.gc_is_helpless);
            let reason = reason.or((pressing == Pressing::Asked).then_some(Reason::Forced));
            let victim = reason.and_then(|_| core.book.victim());
            let wanted = core.commit_wanted(self.options.changes_max);
            if wanted.is_none() && victim.is_none() {
                let is_reclaimable = core.is_reclaimable();
                core.credit.gc_is_idle(is_reclaimable);
            }
            (wanted, reason, victim)
        };
        if let Some(commit) = wanted {
            self.commit_up_to(waiter, commit)?;
            return Ok(true);
        }
        let (Some(reason), Some(victim)) = (reason, victim) else { return Ok(false) };
        self.collect(waiter, victim, reason)
    }

    /// Resets zones that nothing durable refers to any more; whether there was one.
    fn reset_dead(&self, waiter: &dyn Waiter) -> Result<bool, FsError> {
        let zones: Vec<ZoneIndex> = {
            let mut core = self.lock();
            core.let_damaged_go()?;
            let committed = core.committed;
            let zones: Vec<_> = core.book.dead_zones(committed).take(RESETS_MAX).collect();
            for zone in &zones {
                core.book.begin_reset(*zone, committed)?;
            }
            zones
        };
        // Nobody is to be told that something was waited for.
        if zones.is_empty() {
            return Ok(false);
        }
        let resets = zones.iter().map(|zone| Request::zone(Op::ZoneReset, self.start_of(*zone)));
        let answers = self.drive.calls(waiter, resets);
        let mut core = self.lock();
        for (zone, (result, _)) in zones.iter().zip(answers) {
            match result {
                Ok(_) => {
                    map::forget_runs(&mut core.rows, zone.0)?;
                    let blocks = core.book.end_reset(*zone)?;
                    core.credit.made_available(blocks.into());
                    core.changed.insert(*zone);
                    core.statistics.resets += 1;
                    core.gc_is_helpless = false;
                    core.to_finish.forget(*zone);
                }
                Err(_) => core.reset_failed(*zone)?,
            }
        }
        Ok(true)
    }

    /// Copies what is live in `victim` elsewhere; whether there was room for it.
    fn collect(&self, waiter: &dyn Waiter, victim: ZoneIndex, reason: Reason) -> Result<bool, FsError> {
        let mut pieces: VecDeque<Live> = {
            let mut core = self.lock();
            core.credit.gc_runs();
            core.statistics.reason = Some(reason);
            core.statistics.gc_victims += 1;
            core.statistics.gc_victims_blocks += u64::from(core.book.zone(victim)?.used);
            // As long as it is collected it is nobody else's victim.
            core.book.pin(victim, Pin::Copy)?;
            map::live(&core.rows, victim.0)?.into()
        };
        let mut result = Ok(());
        while !pieces.is_empty() && result.is_ok() {
            result = self.copy_unit(waiter, victim, &mut pieces);
        }
        let mut core = self.lock_when(waiter, |core| Ok(core.copies_have_ended()))?;
        // What could not be read keeps its zone: the pin stays.
        if !core.is_damaged(victim) {
            core.book.unpin(victim, Pin::Copy)?;
        }
        match result {
            // Zones have failed that were kept for it.
            Err(FsError::NoSpace) => {
                core.credit.gc_is_idle(false);
                core.gc_is_helpless = true;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Copies as many of `pieces` as go into a unit.
    fn copy_unit(
        &self,
        waiter: &dyn Waiter,
        victim: ZoneIndex,
        pieces: &mut VecDeque<Live>,
    ) -> Result<(), FsError> {
        self.admit(waiter, Touched::Changed)?;
        let wanted = self.wanted(pieces);
        let mut placed: Option<Placed> = None;
        let mut core = self.lock_when(waiter, |core| {
            core.check_alive()?;
            let most = if core.credit.waiting() > 0 { COPIES_MIN } else { COPIES_MAX };
            if core.copies_in_flight() < most {
                placed = core.place_copy(self, wanted)?;
            }
            if placed.is_none() && core.flights.is_empty() && core.to_finish.is_empty() {
                return Err(FsError::NoSpace);
            }
            Ok(placed.is_some())
        })?;
        let Placed { opened, blocks } = placed.expect("it was waited for");
        let carried = take(pieces, blocks);
        for carried in &carried {
            let Source::Copy(from) = carried.source else { unreachable!("all are copies") };
            core.book.pin(ZoneIndex(from.zone), Pin::Copy)?;
        }
        core.statistics.gc_blocks += u64::from(blocks);
        drop(core);
        self.send_copy(waiter, victim, Flight::new(opened.zone, carried), pieces)
    }

    /// Reads what a unit is to carry, and sends it.
    fn send_copy(
        &self,
        waiter: &dyn Waiter,
        victim: ZoneIndex,
        flight: Flight,
        pieces: &mut VecDeque<Live>,
    ) -> Result<(), FsError> {
        let all: Vec<Span> = flight.carried.iter().flat_map(spans_of).collect();
        let mut result = Ok(());
        let buf = self.buffer(|data| {
            let mut at = 0;
            result = self.fetch_all(waiter, &all, |_, bytes| {
                data[at..at + bytes.len()].copy_from_slice(bytes);
                at += BLOCK_BYTES as usize;
            });
        });
        if !self.has_data() {
            result = self.fetch_all(waiter, &all, |_, _| {});
        }
        match result {
            Ok(()) => self.send(waiter, flight, buf),
            Err(error) if is_damage(&error) => self.sort_out(waiter, victim, &flight, &all, pieces)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A unit cannot be copied because some of its data is damaged: what is not goes back to `pieces`, the rest stays where it
    /// is.
    fn sort_out(
        &self,
        waiter: &dyn Waiter,
        victim: ZoneIndex,
        flight: &Flight,
        all: &[Span],
        pieces: &mut VecDeque<Live>,
    ) -> Result<(), FsError> {
        for span in all {
            match self.fetch_all(waiter, std::slice::from_ref(span), |_, _| {}) {
                Ok(()) => pieces.push_front(live_of(span)),
                Err(error) if is_damage(&error) => {
                    let mut core = self.lock();
                    core.statistics.damaged_blocks += u64::from(span.blocks);
                    core.damaged.insert(victim);
                }
                Err(error) => return Err(error),
            }
        }
        self.lock().cannot_copy(flight)
    }

    /// How many blocks the next unit takes: no more pieces than its header has room for.
    fn wanted(&self, pieces: &VecDeque<Live>) -> u32 {
        let most = self.unit_blocks() - 1;
        let pieces = pieces.iter().take(Header::records_max(most));
        let blocks: u64 = pieces.map(|piece| u64::from(piece.at.extent.blocks)).sum();
        blocks.min(u64::from(most)) as u32
    }
}

fn is_damage(error: &FsError) -> bool {
    matches!(error, FsError::Read { .. } | FsError::Checksum { .. } | FsError::Unit { .. })
}

fn spans_of(carried: &Carried) -> Vec<Span> {
    let Source::Copy(extent) = carried.source else { unreachable!("the collector copies") };
    spans(carried.ino, &Mapped { block: carried.block, extent })
}

/// The piece that a span is, by itself.
fn live_of(span: &Span) -> Live {
    let Place { zone, unit, index } = span.place;
    let (skip, blocks) = (index as u16, span.blocks);
    let unit_blocks = (index + blocks) as u16;
    Live {
        ino: span.ino,
        at: Mapped { block: span.block, extent: Extent { zone, unit, unit_blocks, skip, blocks } },
    }
}

/// The pieces of a unit of `blocks` data blocks, from the front of `pieces`.
fn take(pieces: &mut VecDeque<Live>, blocks: u32) -> Vec<Carried> {
    let mut carried = Vec::new();
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
        let Mapped { block, extent } = piece.at;
        carried.push(Carried { ino: piece.ino, block, blocks: now, source: Source::Copy(extent) });
    }
    carried
}

impl Core {
    /// The commit that somebody should see to: one that lets a dead zone be reset, because the lowest free zone is to be the
    /// lowest there can be, or one that keeps what memory holds of changes within bounds.
    fn commit_wanted(&self, changes_max: usize) -> Option<u64> {
        let changes = (self.rows.changes() > changes_max).then(|| self.rows.number());
        let wanted = self.book.commit_wanted().max(changes);
        wanted.filter(|commit| *commit > self.committed)
    }

    /// Whether and why zones have to be collected.
    pub(super) fn needs_gc(&self, low_space_percent: u8) -> Option<Reason> {
        space::victims::needs_gc(space::pressure(&self.book, &self.open, &self.credit, low_space_percent))
    }

    pub(super) fn copies_in_flight(&self) -> u32 {
        let flights = self.flights.values().chain(self.redo.iter().map(|(flight, _)| flight));
        flights.filter(|flight| flight.is_copy()).count() as u32
    }

    /// Whether space can come without anything being freed.
    pub(super) fn is_reclaimable(&self) -> bool {
        match self.gc_is_helpless {
            true => self.book.count(ZoneState::Dead) + self.book.count(ZoneState::Resetting) > 0,
            false => self.book.is_reclaimable(),
        }
    }

    /// Whether all copies have ended. Those that failed and find no zone are given up once nothing else is under way: what
    /// they carry is still where it was.
    fn copies_have_ended(&mut self) -> bool {
        if self.flights.is_empty() {
            for (flight, _) in self.redo.extract_if(.., |(flight, _)| flight.is_copy()).collect::<Vec<_>>() {
                self.give_up(&flight, super::error::Lost::NoZone);
            }
        }
        self.copies_in_flight() == 0
    }

    /// Room for a unit of copies, from the pool that is kept for them.
    fn place_copy(&mut self, shared: &Shared, blocks: u32) -> Result<Option<Placed>, FsError> {
        let need = Need { extents: 0, available: u64::from(blocks) + 1 };
        let Ok(mut reservation) = self.credit.reserve(need, Urgency::Gc) else { return Ok(None) };
        let placed = self.place(shared, Wish::Gc, blocks)?;
        if let Some(placed) = placed {
            self.spend(&mut reservation, 0, u64::from(placed.blocks) + 1)?;
        }
        self.credit.give_back(reservation);
        Ok(placed)
    }

    /// Of what a unit was to carry something cannot be read: it does not go out, and its zone, which now has a gap, is closed.
    fn cannot_copy(&mut self, flight: &Flight) -> Result<(), FsError> {
        for carried in &flight.carried {
            if let Source::Copy(from) = carried.source {
                self.book.unpin(ZoneIndex(from.zone), Pin::Copy)?;
            }
        }
        let blocks = flight.blocks() + 1;
        self.book.end(flight.zone, blocks, 0)?;
        self.blocks_in_flight -= u64::from(blocks);
        self.close(flight.zone)
    }

    /// A zone was not reset. It is tried again a few times, while others go on; then it is left alone.
    fn reset_failed(&mut self, zone: ZoneIndex) -> Result<(), FsError> {
        self.book.fail_reset(zone)?;
        let failures = self.reset_failures.entry(zone).or_default();
        *failures += 1;
        if *failures == RESET_FAILURES_MAX {
            let lost = self.book.lose(zone, Lost::ReadOnly)?;
            self.credit.lost(lost);
        }
        Ok(())
    }

    /// Zones that were left alone for data that could not be read, and that nobody has any more, need not be.
    fn let_damaged_go(&mut self) -> Result<(), FsError> {
        let is_over = |zone: &ZoneIndex| self.book.zone(*zone).is_ok_and(|account| account.used == 0);
        for zone in self.damaged.extract_if(.., is_over).collect::<Vec<_>>() {
            self.book.unpin(zone, Pin::Copy)?;
        }
        Ok(())
    }

    fn is_damaged(&self, zone: ZoneIndex) -> bool {
        self.damaged.contains(&zone)
    }
}
