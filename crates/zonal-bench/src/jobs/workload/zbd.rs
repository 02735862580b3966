//! Placement of reads and writes in `zonemode=zbd`.
//!
//! # Writes to sequential zones
//! A write goes to the write pointer of the zone that contains its offset. It moves to another zone
//! if that zone
//! - is not open and cannot be opened,
//! - is filled by writes in flight,
//! - takes no writes, or
//! - is full and must not be reset because its data is to be verified.
//!
//! It moves to an open zone, selected by the relative position of the offset in the range, or if
//! that zone has no room, to the next zone that can be opened. A full zone is reset first.
//!
//! # Reads
//! Only written data is read: a sequential read continues in the next zone with data, and a random
//! read takes the nearest zone with data in either direction. With `read_beyond_wp` every offset is
//! read as it is.
//!
//! # Differences from fio
//! - A zone whose remainder is smaller than a block counts as full in every respect. If open zones
//!   are limited, it is finished, so that it does not stay open forever.
//! - A random read may hit the last written block of a zone.
//! - A worker that finds no open zone in its range waits as long as another worker may close one.

use super::hold::Hold;
use super::zones::{Claim, Claimant, Locking, Room, Zones};
use super::{Dir, Io, Opener, Ordering, Placing, WorkerStep};
use crate::job::{Direction, Verify};
use crate::jobs::plan::WorkerPlan;
use zonal_core::{Geometry, Sector, Sectors, ZoneIndex};

/// A write that is being placed.
pub(super) struct ZbdWrite {
    /// Offset drawn for it.
    drawn: Sector,
    /// Desired size. The zone may have room for less, but for no less than one block.
    sectors: u32,
    /// Zone being tried.
    zone: ZoneIndex,
    stage: ZbdStage,
    /// True if this write was counted for `zone_reset_frequency`.
    is_counted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ZbdStage {
    /// Claim room in the zone.
    Claim,
    /// Find another zone.
    Convert,
    /// Acquire this zone, if zones have to be held.
    Take(Choice),
    /// Open a zone after this one, if zones have to be held.
    OpenOther(ZoneIndex),
    /// Take the zone's lock to reset or finish it.
    Lock(Manage),
    /// Wait, with the lock held, until the zone has nothing in flight.
    Drain(Manage),
    /// Wait for the reset or finish in flight.
    Under(Manage),
}

/// A zone that has to be held before it is examined, because until then others may change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    /// The open zone selected by the position of the offset in the range.
    Picked(ZoneIndex),
    /// A zone that is not open.
    Closed(ZoneIndex),
    /// An open zone with room.
    Fitting(ZoneIndex),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manage {
    /// The zone is full.
    ResetFull,
    /// A periodic reset is due.
    ResetDue,
    /// The zone is open but has no room for a block.
    Finish,
}

/// Outcome of a placement attempt.
pub(super) enum Placement {
    /// This I/O. The sector is its end, or where it would end if placed in order.
    Io(Io, u64),
    /// This step has to be taken first.
    Step(WorkerStep),
    /// No zone, unless another worker makes room.
    NoZone,
}

impl Choice {
    fn zone(self) -> ZoneIndex {
        match self {
            Choice::Picked(zone) | Choice::Closed(zone) | Choice::Fitting(zone) => zone,
        }
    }
}

impl ZbdWrite {
    pub(super) fn new(drawn: Sector, sectors: u32, zone: ZoneIndex) -> ZbdWrite {
        ZbdWrite { drawn, sectors, zone, stage: ZbdStage::Claim, is_counted: false }
    }

    /// Continues with the placement, with `in_flight` I/Os of the worker in flight.
    pub(super) fn place(
        &mut self,
        plan: &WorkerPlan,
        claimant: Claimant,
        zones: &Zones,
        hold: &mut Hold,
        in_flight: u32,
    ) -> Placement {
        // Each iteration claims room or changes the stage. It repeats if other workers fill a zone
        // in between.
        loop {
            match self.stage {
                ZbdStage::Claim if !hold.take(self.zone, in_flight, zones) => {
                    return Placement::Step(WorkerStep::Wait);
                }
                ZbdStage::Claim => {
                    if let Some(placement) = self.take_room(plan, claimant, zones) {
                        return placement;
                    }
                }
                ZbdStage::Convert if hold.is_kept() => self.stage = self.pick(plan, zones),
                ZbdStage::Take(choice) => {
                    if !hold.take(choice.zone(), in_flight, zones) {
                        return Placement::Step(WorkerStep::Wait);
                    }
                    self.judge(choice, plan, claimant, zones);
                }
                ZbdStage::OpenOther(from) => {
                    // The worker's own writes in flight may fill an open zone.
                    if in_flight > 0 && !zones.may_open(opener(plan, claimant)) {
                        return Placement::Step(WorkerStep::Wait);
                    }
                    if let Some(placement) = self.open_other(from, plan, claimant, zones) {
                        self.stage = ZbdStage::Claim;
                        return placement;
                    }
                }
                ZbdStage::Convert => {
                    if let Some(placement) = self.convert(plan, claimant, zones) {
                        // Its own zone may be available by then.
                        self.stage = ZbdStage::Claim;
                        return placement;
                    }
                }
                ZbdStage::Lock(_) if !hold.take(self.zone, in_flight, zones) => {
                    return Placement::Step(WorkerStep::Wait);
                }
                ZbdStage::Lock(manage) => {
                    if !self.lock(manage, claimant, zones) {
                        return Placement::Step(WorkerStep::Wait);
                    }
                }
                ZbdStage::Drain(_) if !zones.is_quiet(self.zone) || hold.is_kept() && in_flight > 0 => {
                    return Placement::Step(WorkerStep::Wait);
                }
                ZbdStage::Drain(manage) => return self.manage(manage, zones),
                ZbdStage::Under(_) => return Placement::Step(WorkerStep::Wait),
            }
        }
    }

    /// Claims room in its zone, which is held if required. `None` if the stage has changed.
    fn take_room(&mut self, plan: &WorkerPlan, claimant: Claimant, zones: &Zones) -> Option<Placement> {
        if self.reset_is_due(plan, zones) {
            self.stage = ZbdStage::Lock(Manage::ResetDue);
            return None;
        }
        let (claim, sectors) = zones.claim_up_to(self.zone, claimant, self.sectors);
        match claim {
            Claim::At(offset) => {
                let (io, end) = placed(self.zone, offset, sectors, zones);
                return Some(Placement::Io(io, end));
            }
            Claim::Busy => return Some(Placement::Step(WorkerStep::Wait)),
            // Now that the zone is open, it is claimed again.
            Claim::NotOpen if self.may_open(plan, claimant, zones) => {}
            Claim::Full if plan.spec.verify == Verify::None => self.stage = ZbdStage::Lock(Manage::ResetFull),
            Claim::NotOpen | Claim::Filling | Claim::Full | Claim::Dead => self.stage = ZbdStage::Convert,
        }
        None
    }

    /// Locks its zone, unless that is no longer necessary. False if another worker has the lock.
    fn lock(&mut self, manage: Manage, claimant: Claimant, zones: &Zones) -> bool {
        match zones.lock(self.zone, claimant.is_exclusive) {
            Locking::Taken => return false,
            Locking::Locked if self.is_needed(manage, claimant, zones) => {
                self.stage = ZbdStage::Drain(manage)
            }
            Locking::Locked => {
                zones.unlock(self.zone, claimant.is_exclusive);
                self.stage = ZbdStage::Claim;
            }
        }
        true
    }

    /// Returns the step that resets or finishes its zone, which is locked and has nothing in
    /// flight.
    fn manage(&mut self, manage: Manage, zones: &Zones) -> Placement {
        self.stage = ZbdStage::Under(manage);
        if manage == Manage::Finish {
            return Placement::Step(WorkerStep::Finish(self.zone));
        }
        zones.will_be_reset(self.zone);
        Placement::Step(WorkerStep::Reset(self.zone))
    }

    /// Continues after a reset or finish has ended, successful or not.
    pub(super) fn managed(&mut self) {
        self.stage = match self.stage {
            ZbdStage::Under(Manage::Finish) => ZbdStage::Convert,
            _ => ZbdStage::Claim,
        };
    }

    /// Releases the lock, if held.
    pub(super) fn abandon(self, zones: &Zones, is_exclusive: bool) {
        if let ZbdStage::Drain(_) | ZbdStage::Under(_) = self.stage {
            zones.unlock(self.zone, is_exclusive);
        }
    }

    /// Opens its zone, unless it is full and must not be reset.
    fn may_open(&self, plan: &WorkerPlan, claimant: Claimant, zones: &Zones) -> bool {
        zones.can_take(self.zone, claimant.sectors, room(plan))
            && zones.open(self.zone, opener(plan, claimant))
    }

    /// True if a periodic reset is due with this write. The zone need not be full.
    #[inline]
    fn reset_is_due(&mut self, plan: &WorkerPlan, zones: &Zones) -> bool {
        let Some(frequency) = plan.spec.zone_reset_frequency else { return false };
        let is_open = zones.open_max() == 0 || zones.is_open(self.zone);
        if self.is_counted || !is_open || plan.spec.verify != Verify::None {
            return false;
        }
        self.is_counted = true;
        let threshold = plan.spec.zone_reset_threshold.unwrap_or(0.0);
        let written = zones.written() as f64;
        let range = (plan.range.end - plan.range.start) as f64;
        // Saturates at 2^32 writes between resets: none will be due.
        written >= range * threshold && zones.reset_is_due((1.0 / frequency) as u32)
    }

    /// True if the zone that was just locked still has to be reset or finished. Another worker may
    /// have done so.
    fn is_needed(&self, manage: Manage, claimant: Claimant, zones: &Zones) -> bool {
        match manage {
            Manage::ResetFull => !zones.can_take(self.zone, claimant.sectors, Room::Now),
            Manage::ResetDue => zones.pointer(self.zone) > 0,
            Manage::Finish => zones.is_open(self.zone) && zones.has_remainder(self.zone, claimant.sectors),
        }
    }

    /// Chooses another zone to claim. Returns `None` on success, or the outcome that takes its
    /// place.
    fn convert(&mut self, plan: &WorkerPlan, claimant: Claimant, zones: &Zones) -> Option<Placement> {
        let sectors = claimant.sectors;
        let has_room = |zone| zones.can_take(zone, sectors, Room::Now);
        let from_start = u128::from(self.drawn.0 - plan.range.start);
        let range = u128::from(plan.range.end - plan.range.start);
        let share = |open: usize| (from_start * open as u128 / range) as usize;
        let candidate = match zones.open_max() {
            0 => None,
            _ => zones.find_open(&plan.zones, share, |_| true),
        };
        if let Some(zone) = candidate
            && has_room(zone)
        {
            return self.claim(zone);
        }
        if let Some(zone) = self.other_zone(candidate.unwrap_or(self.zone), plan, claimant, zones) {
            return self.claim(zone);
        }
        if candidate.is_some_and(|zone| zones.is_filling(zone)) {
            return Some(Placement::Step(WorkerStep::Wait));
        }
        if let Some(zone) = zones.find_open(&plan.zones, share, has_room) {
            return self.claim(zone);
        }
        let remainder = |zone| zones.has_remainder(zone, sectors) && zones.is_quiet(zone);
        if let Some(zone) = zones.find_open(&plan.zones, share, remainder) {
            self.zone = zone;
            self.stage = ZbdStage::Lock(Manage::Finish);
            return None;
        }
        Some(Placement::NoZone)
    }

    /// Open zone selected by the position of the offset in the range.
    fn picked(&self, plan: &WorkerPlan, zones: &Zones) -> Option<ZoneIndex> {
        let from_start = u128::from(self.drawn.0 - plan.range.start);
        let range = u128::from(plan.range.end - plan.range.start);
        let share = |open: usize| (from_start * open as u128 / range) as usize;
        if zones.open_max() == 0 { None } else { zones.find_open(&plan.zones, share, |_| true) }
    }

    /// Chooses another zone, if zones have to be held.
    fn pick(&self, plan: &WorkerPlan, zones: &Zones) -> ZbdStage {
        match self.picked(plan, zones) {
            Some(zone) => ZbdStage::Take(Choice::Picked(zone)),
            None => ZbdStage::OpenOther(self.zone),
        }
    }

    /// Examines a zone that is now held, and decides how to continue.
    fn judge(&mut self, choice: Choice, plan: &WorkerPlan, claimant: Claimant, zones: &Zones) {
        let zone = choice.zone();
        let has_room = zones.can_take(zone, claimant.sectors, Room::Now);
        let (suits, otherwise) = match choice {
            Choice::Picked(_) if self.picked(plan, zones) != Some(zone) => (false, ZbdStage::Convert),
            Choice::Picked(_) => (has_room, ZbdStage::OpenOther(zone)),
            Choice::Closed(_) => (!zones.is_open(zone), ZbdStage::OpenOther(zone)),
            Choice::Fitting(_) => (has_room && zones.is_open(zone), ZbdStage::Convert),
        };
        self.stage = otherwise;
        if suits {
            self.claim(zone);
        }
    }

    /// Moves to a zone after `from` that can be opened, or to an open zone with room. `None` on
    /// success.
    fn open_other(
        &mut self,
        from: ZoneIndex,
        plan: &WorkerPlan,
        claimant: Claimant,
        zones: &Zones,
    ) -> Option<Placement> {
        // The zone is opened only once it is held. Another worker may have filled or opened it by
        // then.
        if zones.may_open(opener(plan, claimant))
            && let Some(zone) = closed_zones(from, plan, claimant, zones).next()
        {
            self.stage = ZbdStage::Take(Choice::Closed(zone));
            return None;
        }
        let has_room = |zone| zones.can_take(zone, claimant.sectors, Room::Now);
        if let Some(zone) = zones.find_open(&plan.zones, |_| 0, has_room) {
            self.stage = ZbdStage::Take(Choice::Fitting(zone));
            return None;
        }
        let remainder = |zone| zones.has_remainder(zone, claimant.sectors) && zones.is_quiet(zone);
        if let Some(zone) = zones.find_open(&plan.zones, |_| 0, remainder) {
            self.zone = zone;
            self.stage = ZbdStage::Lock(Manage::Finish);
            return None;
        }
        Some(Placement::NoZone)
    }

    fn claim(&mut self, zone: ZoneIndex) -> Option<Placement> {
        self.zone = zone;
        self.stage = ZbdStage::Claim;
        None
    }

    /// Next zone after `from`, wrapping around in the range, that is not open but writable.
    fn other_zone(
        &self,
        from: ZoneIndex,
        plan: &WorkerPlan,
        claimant: Claimant,
        zones: &Zones,
    ) -> Option<ZoneIndex> {
        let opener = opener(plan, claimant);
        if !zones.may_open(opener) {
            return None;
        }
        closed_zones(from, plan, claimant, zones).find(|&zone| zones.open(zone, opener))
    }
}

/// Zones after `from`, wrapping around in the range, that are not open but writable.
fn closed_zones(
    from: ZoneIndex,
    plan: &WorkerPlan,
    claimant: Claimant,
    zones: &Zones,
) -> impl Iterator<Item = ZoneIndex> {
    let room = room(plan);
    let first = from.0.saturating_add(1).clamp(plan.zones.start, plan.zones.end);
    let round = (first..plan.zones.end).chain(plan.zones.start..first).map(ZoneIndex);
    round.filter(move |&zone| {
        !zones.geometry().is_conventional(zone)
            && !zones.is_open(zone)
            && zones.can_take(zone, claimant.sectors, room)
    })
}

fn opener(plan: &WorkerPlan, claimant: Claimant) -> Opener {
    Opener { is_exclusive: claimant.is_exclusive, ..plan.opener() }
}

/// Builds the write for the room claimed at `offset` of `zone`. Returns it with its end, or where
/// it would end if placed in order.
#[inline]
pub(super) fn placed(zone: ZoneIndex, offset: u32, sectors: u32, zones: &Zones) -> (Io, u64) {
    let start = zones.geometry().start_of(zone);
    let at = start + Sectors(u64::from(offset));
    let (placing, sector) = match zones.ordering() {
        Ordering::ByDevice => (Placing::Append, start),
        Ordering::BySubmission | Ordering::OneInFlight => (Placing::At, at),
    };
    (
        Io { dir: Dir::Write, placing, sector, sectors, is_claimed: true, is_held: false },
        at.0 + u64::from(sectors),
    )
}

/// Zones that must not be reset, because their data is to be verified, need room as they are.
fn room(plan: &WorkerPlan) -> Room {
    if plan.spec.verify == Verify::None { Room::AfterReset } else { Room::Now }
}

/// Builds a write to a conventional zone. It is cut at the first sequential zone, or moved down if
/// not even one block fits. `None` if it does not fit at all.
pub(super) fn write_conventional(
    plan: &WorkerPlan,
    geometry: &Geometry,
    sector: Sector,
    sectors: u32,
) -> Option<Io> {
    let block = u64::from(plan.write_sectors);
    let end = geometry.start_of(ZoneIndex(geometry.conventional_zones())).0;
    let last = end.checked_sub(block).filter(|&last| last >= plan.range.start)?;
    let sector = sector.0.min(last);
    let fit = (end - sector) / block * block;
    let sectors = u64::from(sectors).min(fit) as u32;
    Some(Io { dir: Dir::Write, placing: Placing::At, sector: Sector(sector), sectors, ..Io::NONE })
}

/// Builds a read of written data near `drawn`, of `wanted` sectors or as many whole blocks as there
/// are. `None` if there is no data.
#[inline]
pub(super) fn read(plan: &WorkerPlan, zones: &Zones, drawn: Sector, wanted: u32) -> Option<Io> {
    let geometry = zones.geometry();
    let block = plan.read_sectors;
    let io = |sector, sectors| Io { sector, sectors, ..Io::NONE };
    let zone = geometry.zone_of(drawn);
    if geometry.is_conventional(zone) || (plan.spec.read_beyond_wp && !zones.is_offline(zone)) {
        return Some(io(drawn, wanted));
    }
    let offset = geometry.offset_of(drawn);
    let written = zones.readable(zone);
    let random = plan.spec.pattern.random;
    let fits = written >= block && (random || offset + block <= written);
    let (zone, written) = match fits {
        true => (zone, written),
        false => {
            let zone = zone_with_data(plan, zones, zone)?;
            // It may have been reset since.
            (zone, zones.readable(zone).max(block))
        }
    };
    let offset = match (random, fits) {
        (false, true) => offset,
        (false, false) => 0,
        (true, _) => offset / block % (written.saturating_sub(wanted) / block + 1) * block,
    };
    let sectors = wanted.min((written - offset) / block * block);
    Some(io(geometry.start_of(zone) + Sectors(u64::from(offset)), sectors))
}

/// Nearest zone with at least one block of data: after `from` for a sequential job, otherwise in
/// either direction.
fn zone_with_data(plan: &WorkerPlan, zones: &Zones, from: ZoneIndex) -> Option<ZoneIndex> {
    let has_data = |zone: u32| zones.readable(ZoneIndex(zone)) >= plan.read_sectors;
    if !plan.spec.pattern.random {
        let until_offline = (from.0 + 1..plan.zones.end).take_while(|&z| !zones.is_offline(ZoneIndex(z)));
        return until_offline.into_iter().find(|&z| has_data(z)).map(ZoneIndex);
    }
    let (behind, before) = (plan.zones.end.saturating_sub(from.0 + 1), from.0 - plan.zones.start);
    (1..=behind.max(before)).find_map(|distance| {
        let behind = from.0.checked_add(distance).filter(|&z| z < plan.zones.end && has_data(z));
        let before = || from.0.checked_sub(distance).filter(|&z| z >= plan.zones.start && has_data(z));
        behind.or_else(before).map(ZoneIndex)
    })
}

/// True if a mixed job has to write first.
pub(super) fn has_nothing_to_read(plan: &WorkerPlan, zones: &Zones) -> bool {
    debug_assert!(matches!(plan.spec.pattern.direction, Direction::Mixed { .. }));
    let has_conventional = zones.geometry().conventional_zones() > plan.zones.start;
    !plan.spec.read_beyond_wp && !has_conventional && zones.written() == 0
}
