//! Request generator of a worker: the pure part of a benchmark.
//!
//! A [`Workload`] generates the requests of one worker. Its driver asks for a [`WorkerStep`] and
//! reports the results. It owns no clock, no payload, no thread and no device, so a runner in real
//! time and a simulation in virtual time draw identical requests. Zones shared by workers are in
//! [`Zones`].
//!
//! # Driving contract
//! 1. [`Workload::next`] returns a step. It never blocks: where threads of fio would wait for each
//!    other, it returns [`WorkerStep::Wait`], and the driver asks again after a completion or a
//!    short delay.
//! 2. A [`WorkerStep::Io`] is submitted and then reported with [`Workload::submitted`] without
//!    delay, because others may wait for it.
//! 3. After [`WorkerStep::NotBefore`] and [`WorkerStep::SpinUntil`] the driver waits for that time
//!    and reports it with [`Workload::time_is`]. Jobs that do not depend on time never return them.
//! 4. The end of each I/O, flush, reset and finish is reported with [`Workload::ended`], in any
//!    order.
//!
//! # Passes
//! A pass covers the range once. Another one follows as long as there are loops, amount (`io_size`)
//! or time left. Each starts at the beginning of the range and uses the same seeds, unless the job
//! asks for different ones.

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
pub use floor::{Completed, RateFloor};
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
use zbd::{Placement, ZbdWrite};
use zonal_core::{Nanos, Sector, ZoneIndex};
use zones::Claimant;

/// Placement of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// At its sector.
    At,
    /// Chosen by the device, in the zone that starts at its sector.
    Append,
}

/// One read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Direction.
    pub dir: Dir,
    /// Placement.
    pub placing: Placing,
    /// First sector; for an append, the first sector of the zone.
    pub sector: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// True if it has claimed room in its zone.
    pub is_claimed: bool,
    /// True if it holds its zone for the worker until it completes.
    pub is_held: bool,
}

impl Io {
    /// An empty read at sector 0, as a base for updates.
    pub const NONE: Io = Io {
        dir: Dir::Read,
        placing: Placing::At,
        sector: Sector(0),
        sectors: 0,
        is_claimed: false,
        is_held: false,
    };
}

/// An operation that has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A read or write.
    Io(Io),
    /// A reset; true if it succeeded.
    Reset(ZoneIndex, bool),
    /// A finish; true if it succeeded.
    Finish(ZoneIndex, bool),
}

/// Next action of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerStep {
    /// Submit this I/O.
    Io(Io),
    /// Submit this I/O and log it at [`Workload::place_of`].
    Logged(Io),
    /// Flush the device.
    Flush,
    /// Reset this zone, which has nothing in flight.
    Reset(ZoneIndex),
    /// Finish this zone, which has nothing in flight.
    Finish(ZoneIndex),
    /// Wait until a request has completed.
    Wait,
    /// Wait until this time. If it has passed, only the current time is requested.
    NotBefore(Nanos),
    /// Busy-wait until this time.
    SpinUntil(Nanos),
    /// End of the ramp: measurement begins here.
    RampOver,
    /// End of the pass. [`Workload::next_pass`] starts the next one, once nothing is in flight.
    PassOver,
}

/// An I/O with direction and offset drawn, but not yet placed.
enum UnplacedIo {
    /// A read at this sector, of this many sectors.
    Read(Sector, u32),
    Write(ZbdWrite),
    /// A write to a conventional zone.
    Conventional(Sector, u32),
    /// The range is exhausted.
    PassOver,
}

/// Result of placing a read.
enum ReadPlacement {
    Now(Io),
    /// Another worker holds the zone.
    Busy,
}

/// Request generator of one worker.
pub struct Workload {
    plan: WorkerPlan,
    claimant: Claimant,
    hold: Hold,
    is_zbd: bool,
    /// True if the job flushes periodically, has random block sizes or is paced. Each step then
    /// takes the slow path.
    needs_slow_path: bool,
    /// True if writes to zones take the slow path: zones are reset periodically or have to be held,
    /// or the job keeps a log.
    slow_writes: bool,
    /// True if a pass ends by amount. A time-based job continues within a pass, unless it verifies,
    /// which happens between passes.
    ends_by_amount: bool,
    sequence: Sequence,
    /// Replaces `sequence` if block sizes are random.
    varied: Option<Box<Varied>>,
    pace: Option<Box<Pace>>,
    mix: Mix,
    /// Resets before a pass with verification.
    erase: Option<Erase>,
    pending: Option<UnplacedIo>,
    stalled: bool,
    /// True if a pass ended because no zone was writable.
    lacked_zone: bool,
    /// True if a pass ended because there was no data to read.
    lacked_data: bool,
    /// Reads and writes in flight.
    in_flight: u32,
    /// End of the last zone write to be placed, or where it would end if placed in order.
    end: u64,
    issued: [u64; 2],
    /// Sectors left in the current pass.
    left: u64,
    /// Value of `left` at the start of the pass.
    pass_sectors: u64,
    /// Sectors issued in earlier passes.
    earlier_sectors: u64,
    passes: u64,
    since_flush: bool,
}

impl Workload {
    /// Creates the generator for `plan`, at the start of its first pass.
    ///
    /// # Errors
    /// [`PlanError::RandomMap`].
    pub fn new(plan: &WorkerPlan) -> Result<Workload, PlanError> {
        let mut workload = Workload {
            is_zbd: plan.spec.zonemode == ZoneMode::Zbd,
            needs_slow_path: false,
            slow_writes: plan.spec.zone_reset_frequency.is_some() || plan.iolog.is_some() || plan.holds_zones,
            hold: Hold::new(plan.holds_zones, plan.number as u32),
            ends_by_amount: !plan.spec.time_based || plan.spec.verify != Verify::None,
            claimant: Claimant { sectors: plan.write_sectors, is_exclusive: plan.is_exclusive },
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
        workload.needs_slow_path = workload.requires_slow_path();
        workload.begin_pass();
        Ok(workload)
    }

    fn requires_slow_path(&self) -> bool {
        let spec = &self.plan.spec;
        let flushes = spec.fsync != 0 || spec.fdatasync != 0;
        flushes || self.varied.is_some() || self.pace.is_some() || self.plan.iolog.is_some()
    }

    fn begin_pass(&mut self) {
        let left = self.plan.total_sectors.saturating_sub(self.earlier_sectors);
        self.left = if self.ends_by_amount { left.min(self.plan.pass_sectors) } else { left };
        self.pass_sectors = self.left;
    }

    /// Plan of the worker.
    pub fn plan(&self) -> &WorkerPlan {
        &self.plan
    }

    /// Passes started after the first.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// True if a pass ended early because no zone of its range was writable: all were full or dead,
    /// or could not be opened.
    pub fn lacked_zone(&self) -> bool {
        self.lacked_zone
    }

    /// True if a pass ended because its range had no data to read.
    pub fn lacked_data(&self) -> bool {
        self.lacked_data
    }

    /// Returns the next step.
    pub fn next(&mut self, zones: &Zones) -> WorkerStep {
        match self.next_io(zones) {
            Some(io) => WorkerStep::Io(io),
            None => self.next_slow(zones),
        }
    }

    /// Fast path: returns an I/O that can be placed at once. `None` if the next step is another
    /// one; the caller then has to use [`Workload::next_slow`].
    // Always inlined, and separate from the slow path, so that the result stays in registers. A
    // step returned through memory is written in small pieces and read in large ones, which stalls.
    #[inline(always)]
    pub(crate) fn next_io(&mut self, zones: &Zones) -> Option<Io> {
        if self.pending.is_some() || self.erase.is_some() || self.left == 0 {
            return None;
        }
        if self.needs_slow_path && self.slow_path_due() {
            return None;
        }
        let dir = self.drawn_direction();
        let dir = self.adjusted(dir, zones);
        self.io_of(dir, zones)
    }

    /// Returns the next I/O of this direction if it can be placed at once; otherwise it becomes
    /// pending.
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

    /// Returns a `zonemode=zbd` write if its zone has room at once; any other I/O becomes pending.
    #[inline(always)]
    fn placed_at_once(&mut self, dir: Dir, sector: Sector, zones: &Zones) -> Option<Io> {
        let zone = zones.geometry().zone_of(sector);
        // If resets are counted, writes take the slow path from the start.
        let is_simple = dir == Dir::Write && !zones.geometry().is_conventional(zone) && !self.slow_writes;
        if is_simple && let Some(offset) = zones.claim_at_once(zone, self.claimant) {
            let (io, end) = zbd::placed(zone, offset, self.claimant.sectors, zones);
            self.sequence.moved(Dir::Write, end);
            return Some(io);
        }
        self.pending = Some(self.unplaced(dir, sector, self.sectors(dir), zones));
        None
    }

    #[inline(never)]
    fn unplaced(&self, dir: Dir, sector: Sector, sectors: u32, zones: &Zones) -> UnplacedIo {
        let zone = zones.geometry().zone_of(sector);
        match dir {
            Dir::Read => UnplacedIo::Read(sector, sectors),
            Dir::Write if zones.geometry().is_conventional(zone) => UnplacedIo::Conventional(sector, sectors),
            Dir::Write => UnplacedIo::Write(ZbdWrite::new(sector, sectors, zone)),
        }
    }

    /// Slow path, after [`Workload::next_io`] returned `None`.
    #[inline(never)]
    pub(crate) fn next_slow(&mut self, zones: &Zones) -> WorkerStep {
        let step = match self.pending.take() {
            Some(pending) => self.place(pending, zones),
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

    /// Returns the position of the last I/O. For an append, this is the place reserved for it.
    #[cold]
    pub fn place_of(&self, io: &Io) -> Sector {
        match io.placing {
            Placing::At => io.sector,
            Placing::Append => Sector(self.end - u64::from(io.sectors)),
        }
    }

    /// Reports the time requested by [`WorkerStep::NotBefore`] or [`WorkerStep::SpinUntil`].
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
            if let Some(step) = erase.next(self.claimant.is_exclusive, zones) {
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

    /// Restarts all counts as fio does, including those towards periodic flushes.
    fn end_ramp(&mut self) {
        self.issued = [0; 2];
        self.since_flush = false;
        self.mix.restart_count();
        if self.pace.as_ref().is_some_and(|pace| pace.is_spent()) {
            self.pace = None;
            self.needs_slow_path = self.requires_slow_path();
        }
    }

    /// Returns the next direction that the rates allow, or the step that waits for it.
    fn turn(&mut self) -> Result<Dir, WorkerStep> {
        let waiting = self.pace.as_ref().and_then(|pace| pace.waiting());
        let wanted = waiting.unwrap_or_else(|| self.drawn_direction());
        let Some(pace) = &mut self.pace else { return Ok(wanted) };
        let dir = pace.turn(wanted, self.mix.percent(wanted.other()))?;
        self.mix.turn(dir);
        Ok(dir)
    }

    /// Returns the next step in this direction, for jobs with fixed block sizes.
    fn next_of(&mut self, dir: Dir, zones: &Zones) -> WorkerStep {
        match self.io_of(dir, zones) {
            Some(io) => WorkerStep::Io(io),
            None => self.place_pending(zones),
        }
    }

    fn next_varied(&mut self, dir: Dir, zones: &Zones) -> WorkerStep {
        let drawn = self.varied.as_mut().and_then(|varied| varied.next(dir, &self.plan, zones));
        let Some((sector, sectors)) = drawn else { return WorkerStep::PassOver };
        if !self.is_zbd {
            let io = self.plain(dir, sector, sectors, zones);
            return WorkerStep::Io(self.issue(io, zones));
        }
        let pending = self.unplaced(dir, sector, sectors, zones);
        self.place(pending, zones)
    }

    fn place_pending(&mut self, zones: &Zones) -> WorkerStep {
        match self.pending.take() {
            Some(pending) => self.place(pending, zones),
            None => WorkerStep::PassOver,
        }
    }

    fn slow_path_due(&self) -> bool {
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

    /// Places a pending I/O.
    #[inline(never)]
    fn place(&mut self, pending: UnplacedIo, zones: &Zones) -> WorkerStep {
        match pending {
            UnplacedIo::Read(sector, sectors) => match self.held_read(sector, sectors, zones) {
                Some(ReadPlacement::Now(io)) => WorkerStep::Io(self.issue(io, zones)),
                Some(ReadPlacement::Busy) => {
                    self.pending = Some(UnplacedIo::Read(sector, sectors));
                    WorkerStep::Wait
                }
                // Wait for this worker's writes in flight, which can be read afterwards, but not
                // for those of other jobs.
                None if self.plan.writes() && zones.written() > 0 && !self.stall(zones) => {
                    self.pending = Some(UnplacedIo::Read(sector, sectors));
                    WorkerStep::Wait
                }
                None => {
                    self.lacked_data = true;
                    WorkerStep::PassOver
                }
            },
            UnplacedIo::Write(mut write) => match self.write_placement(&mut write, zones) {
                Placement::Io(io, end) => {
                    self.end = end;
                    self.sequence.moved(Dir::Write, end);
                    let io = Io { is_held: self.hold.hand_over(), ..io };
                    WorkerStep::Io(self.issue(io, zones))
                }
                Placement::Step(step) => {
                    self.pending = Some(UnplacedIo::Write(write));
                    step
                }
                Placement::NoZone if self.stall(zones) => {
                    self.lacked_zone = true;
                    WorkerStep::PassOver
                }
                Placement::NoZone => {
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

    /// Event that ends a wait, if the last step was [`WorkerStep::Wait`].
    pub fn awaits(&self, zones: &Zones) -> Awaits {
        match self.pending {
            Some(UnplacedIo::Write(_)) => self.hold.awaits(),
            // Other reads start again from the zone drawn for them.
            Some(UnplacedIo::Read(sector, _))
                if self.hold.zone() == Some(zones.geometry().zone_of(sector)) =>
            {
                self.hold.awaits()
            }
            _ => Awaits::Others,
        }
    }

    fn write_placement(&mut self, write: &mut ZbdWrite, zones: &Zones) -> Placement {
        write.place(&self.plan, self.claimant, zones, &mut self.hold, self.in_flight)
    }

    /// Returns a read of written data near `sector`, holding its zone if required. `None` if there
    /// is no data.
    fn held_read(&mut self, sector: Sector, sectors: u32, zones: &Zones) -> Option<ReadPlacement> {
        if !self.hold.is_kept() || self.plan.spec.read_beyond_wp {
            return zbd::read(&self.plan, zones, sector, sectors).map(ReadPlacement::Now);
        }
        // The zone's content is examined only once it is held, because others may write or reset it
        // until then.
        let mut zone = zones.geometry().zone_of(sector);
        loop {
            let is_free = zones.geometry().is_conventional(zone);
            if !is_free && !self.hold.take(zone, self.in_flight, zones) {
                return Some(ReadPlacement::Busy);
            }
            let Some(io) = zbd::read(&self.plan, zones, sector, sectors) else {
                self.hold.give_up(zones);
                return None;
            };
            let found = zones.geometry().zone_of(io.sector);
            if found == zone {
                return Some(ReadPlacement::Now(Io { is_held: !is_free && self.hold.hand_over(), ..io }));
            }
            zone = found;
        }
    }

    /// Records that the worker cannot continue before another one does. True if none will.
    #[cold]
    fn stall(&mut self, zones: &Zones) -> bool {
        self.hold.give_up(zones);
        if self.in_flight > 0 {
            return false;
        }
        if !self.stalled {
            self.stalled = true;
            zones.remove_runnable();
        }
        !zones.any_runnable()
    }

    #[inline(always)]
    fn issue(&mut self, io: Io, zones: &Zones) -> Io {
        if self.stalled {
            self.run_again(zones);
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
    fn run_again(&mut self, zones: &Zones) {
        self.stalled = false;
        zones.add_runnable(1);
    }

    /// Reports that the I/O was submitted.
    #[inline]
    pub fn submitted(&self, io: &Io, zones: &Zones) {
        if io.is_claimed {
            zones.submitted(zones.geometry().zone_of(io.sector), self.claimant);
        }
    }

    /// Reports the end of a read or write, successful or not.
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

    /// Reports the end of any operation, successful or not.
    pub fn ended(&mut self, ended: &Ended, zones: &Zones) {
        match *ended {
            Ended::Io(io) => self.io_ended(&io, zones),
            Ended::Reset(zone, true) => {
                zones.was_reset(zone, self.claimant.is_exclusive);
                self.managed();
            }
            Ended::Finish(zone, true) => {
                zones.was_finished(zone, self.claimant.is_exclusive);
                self.managed();
            }
            Ended::Reset(zone, false) | Ended::Finish(zone, false) => {
                zones.unlock(zone, self.claimant.is_exclusive);
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

    /// Ends the worker and releases whatever it holds. Nothing may be in flight.
    ///
    /// Each worker counts as runnable ([`Zones::add_runnable`]) from before its round until this
    /// call.
    pub fn end(&mut self, zones: &Zones) {
        if let Some(UnplacedIo::Write(write)) = self.pending.take() {
            write.abandon(zones, self.claimant.is_exclusive);
        }
        if let Some(erase) = self.erase.take() {
            erase.abandon(zones, self.claimant.is_exclusive);
        }
        self.hold.give_up(zones);
        if !self.stalled {
            zones.remove_runnable();
        }
    }

    /// Starts another pass if one is due. Nothing may be in flight.
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
