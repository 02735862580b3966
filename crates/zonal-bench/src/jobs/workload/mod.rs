//! What a worker does next: the pure part of a benchmark.
//!
//! A [`Workload`] is one worker's generator. It is asked for a [`WorkerStep`] and told what became of it; it owns no clock,
//! no payload, no thread and no device, so that a runner in real time and a simulation in virtual time draw the same
//! requests from it. The zones that workers share are in [`Zones`].
//!
//! # Driving contract
//! 1. [`Workload::next`] gives a step. It never blocks: where fio's threads would wait for each other, it says
//!    [`WorkerStep::Wait`], and the driver asks again after a completion or after a moment.
//! 2. A [`WorkerStep::Io`] is submitted and then reported with [`Workload::submitted`], at once: others may wait for it.
//! 3. After [`WorkerStep::NotBefore`] and [`WorkerStep::SpinUntil`] it is told the time with [`Workload::time_is`] when that has
//!    come. Where nothing depends on time, it never asks.
//! 4. Each I/O, flush, reset and finish is reported with [`Workload::ended`] when it has ended, in any order.
//!
//! # Passes
//! A pass goes over the range once. Another follows while loops, an amount of its own (`io_size`) or time are left.
//! Each begins at the start of the range and, unless the job asks for different numbers, with the same seeds.

mod erase;
mod floor;
mod hold;
mod holds;
mod mix;
mod pace;
mod random;
mod sequence;
mod varied;
mod zbd;
pub mod zones;

pub use crate::jobs::plan::{HostRules, Opener, Ordering, ZonesOptions};
pub use crate::measure::Dir;
pub use crate::report::{RateUnit, TooSlow};
pub use floor::{Done, RateFloor};
pub use hold::Awaits;
pub use random::{Purpose, RANDOM_MAP_BLOCKS_MAX, RandomMap, Stream};
pub use zones::Zones;

use crate::error::PlanError;
use crate::job::{Direction, Verify, ZoneMode};
use crate::jobs::plan::WorkerPlan;
use erase::Erase;
use hold::Hold;
use mix::Mix;
use pace::Pace;
use sequence::Sequence;
use varied::Varied;
use zbd::{Way, ZbdWrite};
use zonal_core::{Nanos, Sector, ZoneIndex};
use zones::Claimant;

/// How a write is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// At its sector.
    At,
    /// By the device, in the zone that starts at its sector.
    Append,
}

/// One read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Which.
    pub dir: Dir,
    /// How it is placed.
    pub placing: Placing,
    /// First sector; of an append, the zone's.
    pub sector: Sector,
    /// Length.
    pub sectors: u32,
    /// Whether it has taken room in its zone.
    pub is_claimed: bool,
    /// Whether it keeps its zone for its worker until it ends.
    pub is_held: bool,
}

impl Io {
    /// Nothing, at the start.
    pub const NONE: Io = Io {
        dir: Dir::Read,
        placing: Placing::At,
        sector: Sector(0),
        sectors: 0,
        is_claimed: false,
        is_held: false,
    };
}

/// Something that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A read or write.
    Io(Io),
    /// A reset, and whether it succeeded.
    Reset(ZoneIndex, bool),
    /// A finish, and whether it succeeded.
    Finish(ZoneIndex, bool),
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerStep {
    /// Submit this.
    Io(Io),
    /// Submit this and log it, at [`Workload::place_of`].
    Logged(Io),
    /// Make what was written durable.
    Flush,
    /// Reset this zone. Nothing of it is in flight.
    Reset(ZoneIndex),
    /// Finish this zone. Nothing of it is in flight.
    Finish(ZoneIndex),
    /// Nothing, until a request has ended.
    Wait,
    /// Nothing before this time. It may have passed: then this asks for the time.
    NotBefore(Nanos),
    /// Keep the processor busy until this time.
    SpinUntil(Nanos),
    /// What was done so far does not count: measuring begins here.
    RampOver,
    /// The pass is over. [`Workload::next_pass`] begins the next, once nothing is in flight.
    PassOver,
}

/// What has its direction and draw, but no place yet.
enum UnplacedIo {
    /// Here, of this number of sectors.
    Read(Sector, u32),
    Write(ZbdWrite),
    /// A write to a conventional zone.
    Conventional(Sector, u32),
    /// The range is used up.
    PassOver,
}

/// What became of a read that looks for its place.
enum Held {
    Now(Io),
    /// Another worker has the zone.
    Later,
}

/// Generator of one worker.
pub struct Workload {
    plan: WorkerPlan,
    claimant: Claimant,
    hold: Hold,
    is_zbd: bool,
    /// Whether it flushes now and then, draws sizes or is held back: then each step is looked at more closely.
    is_unusual: bool,
    /// Whether a write to a zone is looked at more closely: zones are reset now and then or have to be held, or the job
    /// keeps a log.
    looks_at_writes: bool,
    /// Whether a pass ends by its amount: a time-based job continues within a pass, except that verification comes
    /// between passes.
    ends_by_amount: bool,
    sequence: Sequence,
    /// Takes the place of `sequence` where sizes are drawn.
    varied: Option<Box<Varied>>,
    pace: Option<Box<Pace>>,
    mix: Mix,
    /// Resets before a pass whose data is to be verified.
    erase: Option<Erase>,
    pending: Option<UnplacedIo>,
    stalled: bool,
    /// A pass ended because no zone could be written.
    lacked_zone: bool,
    /// A pass ended because nothing was written that could be read.
    lacked_data: bool,
    /// Reads and writes that have not ended.
    in_flight: u32,
    /// Where the last write that looked for its zone ends, or would, if it were placed in order.
    end: u64,
    issued: [u64; 2],
    /// Sectors that the present pass may still issue.
    left: u64,
    /// What `left` was at its beginning.
    pass_sectors: u64,
    /// Sectors issued in passes before.
    earlier_sectors: u64,
    passes: u64,
    since_flush: bool,
}

impl Workload {
    /// The generator of `plan`, at the start of its first pass.
    ///
    /// # Errors
    /// [`PlanError::RandomMap`].
    pub fn new(plan: &WorkerPlan) -> Result<Workload, PlanError> {
        let mut workload = Workload {
            is_zbd: plan.spec.zonemode == ZoneMode::Zbd,
            is_unusual: false,
            looks_at_writes: plan.spec.zone_reset_frequency.is_some()
                || plan.iolog.is_some()
                || plan.holds_zones,
            hold: Hold::new(plan.holds_zones, plan.number as u32),
            ends_by_amount: !plan.spec.time_based || plan.spec.verify != Verify::None,
            claimant: Claimant { sectors: plan.write_sectors, is_alone: plan.is_alone },
            sequence: if plan.draws_sizes() { Sequence::unused() } else { Sequence::new(plan)? },
            varied: if plan.draws_sizes() { Some(Box::new(Varied::new(plan)?)) } else { None },
            pace: Pace::new(plan),
            mix: Mix::new(plan),
            erase: None,
            pending: None,
            stalled: false,
            lacked_zone: false,
            lacked_data: false,
            in_flight: 0,
            end: 0,
            issued: [0; 2],
            left: 0,
            pass_sectors: 0,
            earlier_sectors: 0,
            passes: 0,
            since_flush: false,
            plan: plan.clone(),
        };
        workload.is_unusual = workload.is_to_be_looked_at();
        workload.begin_pass();
        Ok(workload)
    }

    fn is_to_be_looked_at(&self) -> bool {
        let spec = &self.plan.spec;
        let flushes = spec.fsync != 0 || spec.fdatasync != 0;
        flushes || self.varied.is_some() || self.pace.is_some() || self.plan.iolog.is_some()
    }

    fn begin_pass(&mut self) {
        let left = self.plan.total_sectors.saturating_sub(self.earlier_sectors);
        self.left = if self.ends_by_amount { left.min(self.plan.pass_sectors) } else { left };
        self.pass_sectors = self.left;
    }

    /// What it was made from.
    pub fn plan(&self) -> &WorkerPlan {
        &self.plan
    }

    /// Passes begun after the first.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Whether a pass ended early because no zone of its range could be written: all were full or dead, or not open
    /// with no other to be opened.
    pub fn lacked_zone(&self) -> bool {
        self.lacked_zone
    }

    /// Whether a pass ended because its range had nothing written to read.
    pub fn lacked_data(&self) -> bool {
        self.lacked_data
    }

    /// What to do next.
    pub fn next(&mut self, zones: &Zones) -> WorkerStep {
        match self.next_io(zones) {
            Some(io) => WorkerStep::Io(io),
            None => self.next_unusual(zones),
        }
    }

    /// The usual next step: an I/O that finds its place at once. `None` if it is another, which
    /// [`Workload::next_unusual`] has to be asked for.
    // Always inlined, and apart from the unusual, so that it is taken apart in registers: a step that comes through
    // memory is written in small pieces and read in large ones, which stalls.
    #[inline(always)]
    pub(crate) fn next_io(&mut self, zones: &Zones) -> Option<Io> {
        if self.pending.is_some() || self.erase.is_some() || self.left == 0 {
            return None;
        }
        if self.is_unusual && self.is_unusual_now() {
            return None;
        }
        let dir = self.drawn_direction();
        let dir = self.adjusted(dir, zones);
        self.io_of(dir, zones)
    }

    /// The next I/O of this direction, if it finds its place at once; otherwise it is pending.
    #[inline(always)]
    fn io_of(&mut self, dir: Dir, zones: &Zones) -> Option<Io> {
        let Some(sector) = self.sequence.next(dir, &self.plan, zones) else {
            self.pending = Some(UnplacedIo::PassOver);
            return None;
        };
        let io = match self.is_zbd {
            false => self.plain(dir, sector, self.sectors(dir), zones),
            true => self.placed_at_once(dir, sector, zones)?,
        };
        Some(self.issue(io, zones))
    }

    /// An I/O of `zonemode=zbd`, if it is a write that its zone takes at once; otherwise it is pending.
    #[inline(always)]
    fn placed_at_once(&mut self, dir: Dir, sector: Sector, zones: &Zones) -> Option<Io> {
        let zone = zones.geometry().zone_of(sector);
        // Where resets are counted, a write is looked at from the start.
        let is_simple = dir == Dir::Write && !zones.geometry().is_conventional(zone) && !self.looks_at_writes;
        if is_simple && let Some(offset) = zones.claim_at_once(zone, self.claimant) {
            let (io, end) = zbd::placed(zone, offset, self.claimant.sectors, zones);
            self.sequence.moved(Dir::Write, end);
            return Some(io);
        }
        self.pending = Some(self.to_be_placed(dir, sector, self.sectors(dir), zones));
        None
    }

    #[inline(never)]
    fn to_be_placed(&self, dir: Dir, sector: Sector, sectors: u32, zones: &Zones) -> UnplacedIo {
        let zone = zones.geometry().zone_of(sector);
        match dir {
            Dir::Read => UnplacedIo::Read(sector, sectors),
            Dir::Write if zones.geometry().is_conventional(zone) => UnplacedIo::Conventional(sector, sectors),
            Dir::Write => UnplacedIo::Write(ZbdWrite::new(sector, sectors, zone)),
        }
    }

    /// What to do next after [`Workload::next_io`] gave nothing.
    #[inline(never)]
    pub(crate) fn next_unusual(&mut self, zones: &Zones) -> WorkerStep {
        let step = match self.pending.take() {
            Some(pending) => self.go_on(pending, zones),
            None => self.next_without_pending(zones),
        };
        let WorkerStep::Io(io) = &step else { return step };
        if let Some(varied) = &mut self.varied {
            let end = if io.is_claimed { self.end } else { io.sector.0 + u64::from(io.sectors) };
            varied.issued(io, end, &self.plan);
        }
        if let Some(pace) = &mut self.pace {
            pace.issued(io.dir, io.sectors);
        }
        if self.plan.iolog.is_some() { WorkerStep::Logged(*io) } else { step }
    }

    /// Where the I/O of the last step is, or of an append, the place that is kept for it.
    #[cold]
    pub fn place_of(&self, io: &Io) -> Sector {
        match io.placing {
            Placing::At => io.sector,
            Placing::Append => Sector(self.end - u64::from(io.sectors)),
        }
    }

    /// The time that [`WorkerStep::NotBefore`] or [`WorkerStep::SpinUntil`] asked for.
    #[cold]
    pub fn time_is(&mut self, now: Nanos) {
        if let Some(pace) = &mut self.pace {
            pace.time_is(now);
        }
    }

    fn next_without_pending(&mut self, zones: &Zones) -> WorkerStep {
        if let Some(step) = self.pace.as_mut().and_then(|pace| pace.hold(self.in_flight)) {
            if step == WorkerStep::RampOver {
                self.end_ramp();
            }
            return step;
        }
        if let Some(erase) = &mut self.erase {
            if let Some(step) = erase.next(self.claimant.is_alone, zones) {
                return step;
            }
            self.erase = None;
        } else if self.flush_is_due() {
            self.since_flush = false;
            return WorkerStep::Flush;
        }
        if self.left == 0 {
            return WorkerStep::PassOver;
        }
        let dir = match self.turn() {
            Ok(dir) => self.adjusted(dir, zones),
            Err(step) => return step,
        };
        if self.varied.is_some() { self.next_varied(dir, zones) } else { self.next_of(dir, zones) }
    }

    /// fio starts its counts again here, also for what is due after a number of writes.
    fn end_ramp(&mut self) {
        self.issued = [0; 2];
        self.since_flush = false;
        self.mix.restart_count();
        if self.pace.as_ref().is_some_and(|pace| pace.is_spent()) {
            self.pace = None;
            self.is_unusual = self.is_to_be_looked_at();
        }
    }

    /// The next direction that the rates allow, or when they will.
    fn turn(&mut self) -> Result<Dir, WorkerStep> {
        let waiting = self.pace.as_ref().and_then(|pace| pace.waiting());
        let wanted = waiting.unwrap_or_else(|| self.drawn_direction());
        let Some(pace) = &mut self.pace else { return Ok(wanted) };
        let dir = pace.turn(wanted, self.mix.percent(wanted.other()))?;
        self.mix.turn(dir);
        Ok(dir)
    }

    /// The next of this direction, of the size that jobs without drawn sizes have.
    fn next_of(&mut self, dir: Dir, zones: &Zones) -> WorkerStep {
        match self.io_of(dir, zones) {
            Some(io) => WorkerStep::Io(io),
            None => self.go_on_with_pending(zones),
        }
    }

    fn next_varied(&mut self, dir: Dir, zones: &Zones) -> WorkerStep {
        let drawn = self.varied.as_mut().and_then(|varied| varied.next(dir, &self.plan, zones));
        let Some((sector, sectors)) = drawn else { return WorkerStep::PassOver };
        if !self.is_zbd {
            let io = self.plain(dir, sector, sectors, zones);
            return WorkerStep::Io(self.issue(io, zones));
        }
        let pending = self.to_be_placed(dir, sector, sectors, zones);
        self.go_on(pending, zones)
    }

    fn go_on_with_pending(&mut self, zones: &Zones) -> WorkerStep {
        match self.pending.take() {
            Some(pending) => self.go_on(pending, zones),
            None => WorkerStep::PassOver,
        }
    }

    fn is_unusual_now(&self) -> bool {
        self.varied.is_some() || self.pace.is_some() || self.plan.iolog.is_some() || self.flush_is_due()
    }

    fn flush_is_due(&self) -> bool {
        let spec = &self.plan.spec;
        let writes = self.issued[Dir::Write as usize];
        let due = |every: u32| every != 0 && writes.is_multiple_of(u64::from(every));
        self.since_flush && (due(spec.fsync) || due(spec.fdatasync))
    }

    #[inline]
    fn drawn_direction(&mut self) -> Dir {
        match self.plan.spec.pattern.direction {
            Direction::Read => Dir::Read,
            Direction::Write => Dir::Write,
            Direction::Mixed { .. } => self.mix.next(&self.issued),
        }
    }

    /// A mixed job has to write before it can read.
    #[inline]
    fn adjusted(&self, dir: Dir, zones: &Zones) -> Dir {
        let is_mixed = || matches!(self.plan.spec.pattern.direction, Direction::Mixed { .. });
        let may_have_to = dir == Dir::Read && self.is_zbd && is_mixed();
        if may_have_to && zbd::has_nothing_to_read(&self.plan, zones) { Dir::Write } else { dir }
    }

    #[inline]
    fn sectors(&self, dir: Dir) -> u32 {
        match dir {
            Dir::Read => self.plan.read_sectors,
            Dir::Write => self.plan.write_sectors,
        }
    }

    fn plain(&mut self, dir: Dir, sector: Sector, sectors: u32, zones: &Zones) -> Io {
        let geometry = zones.geometry();
        let zone = geometry.zone_of(sector);
        let fits = geometry.offset_of(sector) + sectors <= geometry.size_of(zone);
        let appends = dir == Dir::Write
            && zones.ordering() == Ordering::ByDevice
            && !geometry.is_conventional(zone)
            && fits;
        let (placing, sector) = match appends {
            true => {
                self.end = sector.0 + u64::from(sectors);
                (Placing::Append, geometry.start_of(zone))
            }
            false => (Placing::At, sector),
        };
        Io { dir, placing, sector, sectors, ..Io::NONE }
    }

    /// Finds a place for what has none yet.
    #[inline(never)]
    fn go_on(&mut self, pending: UnplacedIo, zones: &Zones) -> WorkerStep {
        match pending {
            UnplacedIo::Read(sector, sectors) => match self.held_read(sector, sectors, zones) {
                Some(Held::Now(io)) => WorkerStep::Io(self.issue(io, zones)),
                Some(Held::Later) => {
                    self.pending = Some(UnplacedIo::Read(sector, sectors));
                    WorkerStep::Wait
                }
                // What is in flight can be read once it has ended; other jobs' writes are not waited for.
                None if self.plan.writes() && zones.written() > 0 && !self.stall(zones) => {
                    self.pending = Some(UnplacedIo::Read(sector, sectors));
                    WorkerStep::Wait
                }
                None => {
                    self.lacked_data = true;
                    WorkerStep::PassOver
                }
            },
            UnplacedIo::Write(mut write) => match self.way(&mut write, zones) {
                Way::Io(io, end) => {
                    self.end = end;
                    self.sequence.moved(Dir::Write, end);
                    let io = Io { is_held: self.hold.hand_over(), ..io };
                    WorkerStep::Io(self.issue(io, zones))
                }
                Way::Step(step) => {
                    self.pending = Some(UnplacedIo::Write(write));
                    step
                }
                Way::NoZone if self.stall(zones) => {
                    self.lacked_zone = true;
                    WorkerStep::PassOver
                }
                Way::NoZone => {
                    self.pending = Some(UnplacedIo::Write(write));
                    WorkerStep::Wait
                }
            },
            UnplacedIo::Conventional(sector, sectors) => {
                match zbd::write_conventional(&self.plan, zones.geometry(), sector, sectors) {
                    Some(io) => WorkerStep::Io(self.issue(io, zones)),
                    None => WorkerStep::PassOver,
                }
            }
            UnplacedIo::PassOver => WorkerStep::PassOver,
        }
    }

    /// What ends the wait of the last step, if that was [`WorkerStep::Wait`].
    pub fn awaits(&self, zones: &Zones) -> Awaits {
        match self.pending {
            Some(UnplacedIo::Write(_)) => self.hold.awaits(),
            // Other reads are judged again from the zone that they were drawn in.
            Some(UnplacedIo::Read(sector, _))
                if self.hold.zone() == Some(zones.geometry().zone_of(sector)) =>
            {
                self.hold.awaits()
            }
            _ => Awaits::Others,
        }
    }

    fn way(&mut self, write: &mut ZbdWrite, zones: &Zones) -> Way {
        write.go_on(&self.plan, self.claimant, zones, &mut self.hold, self.in_flight)
    }

    /// A read of written data near `sector`, with its zone held if it has to be; `None` if there is none.
    fn held_read(&mut self, sector: Sector, sectors: u32, zones: &Zones) -> Option<Held> {
        if !self.hold.is_kept() || self.plan.spec.read_beyond_wp {
            return zbd::read(&self.plan, zones, sector, sectors).map(Held::Now);
        }
        // What a zone has is judged once it is held: until then another may write or reset it.
        let mut zone = zones.geometry().zone_of(sector);
        loop {
            let is_free = zones.geometry().is_conventional(zone);
            if !is_free && !self.hold.take(zone, self.in_flight, zones) {
                return Some(Held::Later);
            }
            let Some(io) = zbd::read(&self.plan, zones, sector, sectors) else {
                self.hold.give_up(zones);
                return None;
            };
            let found = zones.geometry().zone_of(io.sector);
            if found == zone {
                return Some(Held::Now(Io { is_held: !is_free && self.hold.hand_over(), ..io }));
            }
            zone = found;
        }
    }

    /// Notes that nothing can be done until another worker gets on; whether none will.
    #[cold]
    fn stall(&mut self, zones: &Zones) -> bool {
        self.hold.give_up(zones);
        if self.in_flight > 0 {
            return false;
        }
        if !self.stalled {
            self.stalled = true;
            zones.moving_less();
        }
        !zones.any_moving()
    }

    #[inline(always)]
    fn issue(&mut self, io: Io, zones: &Zones) -> Io {
        if self.stalled {
            self.go_on_moving(zones);
        }
        self.in_flight += 1;
        self.issued[io.dir as usize] += 1;
        self.left = self.left.saturating_sub(u64::from(io.sectors));
        if io.dir == Dir::Write {
            self.since_flush = true;
        }
        if !io.is_claimed && io.placing == Placing::At {
            self.sequence.moved(io.dir, io.sector.0 + u64::from(io.sectors));
        }
        io
    }

    #[cold]
    fn go_on_moving(&mut self, zones: &Zones) {
        self.stalled = false;
        zones.moving_more(1);
    }

    /// The I/O is with the write path.
    #[inline]
    pub fn submitted(&self, io: &Io, zones: &Zones) {
        if io.is_claimed {
            zones.submitted(zones.geometry().zone_of(io.sector), self.claimant);
        }
    }

    /// A read or write has ended, well or not.
    #[inline]
    pub fn io_ended(&mut self, io: &Io, zones: &Zones) {
        self.in_flight -= 1;
        if io.is_claimed {
            zones.ended(zones.geometry().zone_of(io.sector), self.claimant);
        }
        if io.is_held
            && let Some(holds) = zones.holds()
        {
            holds.give_back(zones.geometry().zone_of(io.sector));
        }
    }

    /// Something has ended, well or not.
    pub fn ended(&mut self, ended: &Ended, zones: &Zones) {
        match *ended {
            Ended::Io(io) => self.io_ended(&io, zones),
            Ended::Reset(zone, true) => {
                zones.was_reset(zone, self.claimant.is_alone);
                self.managed();
            }
            Ended::Finish(zone, true) => {
                zones.was_finished(zone, self.claimant.is_alone);
                self.managed();
            }
            Ended::Reset(zone, false) | Ended::Finish(zone, false) => {
                zones.unlock(zone, self.claimant.is_alone);
                self.managed();
            }
        }
    }

    fn managed(&mut self) {
        if let Some(UnplacedIo::Write(write)) = &mut self.pending {
            write.managed();
        }
        if let Some(erase) = &mut self.erase {
            erase.managed();
        }
    }

    /// Ends the worker: gives up what it was about to do. Nothing may be in flight.
    ///
    /// Each worker counts as moving ([`Zones::moving_more`]) from before its round until this.
    pub fn end(&mut self, zones: &Zones) {
        if let Some(UnplacedIo::Write(write)) = self.pending.take() {
            write.abandon(zones, self.claimant.is_alone);
        }
        if let Some(erase) = self.erase.take() {
            erase.abandon(zones, self.claimant.is_alone);
        }
        self.hold.give_up(zones);
        if !self.stalled {
            zones.moving_less();
        }
    }

    /// Begins another pass if one is due; nothing may be in flight.
    pub fn next_pass(&mut self, zones: &Zones) -> bool {
        let issued = self.pass_sectors - self.left;
        self.earlier_sectors = self.earlier_sectors.saturating_add(issued);
        let plan = &self.plan;
        let largest = u64::from(plan.sectors_max.read.max(plan.sectors_max.write));
        let left = plan.total_sectors.saturating_sub(self.earlier_sectors);
        let loops_left = self.passes + 1 < u64::from(plan.spec.loops);
        let amount_left = plan.is_amount_given && left >= largest;
        let goes_on = plan.spec.time_based || (left > 0 && loops_left) || amount_left;
        if !goes_on || issued == 0 {
            return false;
        }
        self.passes += 1;
        self.since_flush = false;
        let repeats = plan.spec.randrepeat || plan.spec.allrandrepeat;
        let pass = if repeats { 0 } else { self.passes };
        if plan.writes_zones() && plan.spec.verify != Verify::None {
            self.erase = Some(Erase::new(plan.zones.clone()));
        }
        zones.restart_countdown();
        match &mut self.varied {
            Some(varied) => varied.restart(plan, pass),
            None => self.sequence.restart(plan, pass),
        }
        self.mix.restart(plan, pass);
        self.begin_pass();
        true
    }
}

#[cfg(test)]
mod tests;
