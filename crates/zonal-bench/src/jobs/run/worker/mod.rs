//! A worker: keeps up to `iodepth` requests of its workload in flight at the write path.
//!
//! # Inner loop
//! A request costs one step of the generator, one submit and one completion, and nothing else: no
//! allocation (buffers and slots are allocated before the start), no clock unless latencies are
//! measured or the device completes asynchronously, and no lock but the zone's bit. Without
//! latencies, the clock is read only now and then. With them, one reading serves as the end of one
//! interval and the start of the next, so the generator's time in between, some 10 ns, counts as
//! latency.
//!
//! # Waiting
//! In real time a waiting worker polls. At first it polls continuously, because most completions
//! are near. Then it yields to other threads, and it sleeps only while the write path has nothing
//! due soon. In virtual time it yields to the scheduler instead. The difference is confined to
//! [`Time`].

mod hold;
mod iolog;
mod slot;
mod time;

pub(super) use iolog::IoLog;
pub(super) use time::{Awaited, Real, Time};

use super::inbox::{Ending, Mail, NO_STAMP, Outcome, Places};
use super::measure::{Measure, Stamps, Watch};
use crate::job::Verify;
use crate::jobs::plan::WorkerPlan;
use crate::jobs::verify::{Blocks, Expected, Mismatch, Recorder, Ticket, check_block};
use crate::jobs::workload::{
    Dir, Ended, Io, Placing, Purpose, RateFloor, Stream, WorkerStep, Workload, Zones,
};
use crate::measure::series::Frame;
use crate::report::{Failure, JobReport};
use hold::Begin;
use quanta::Clock;
use slot::{RequestSlot, SlotKind};
use std::time::Duration;
use zonal_core::{Nanos, Op, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::volume::{Channel, Request, Volume};

/// Number of requests that share a clock reading if no latencies are measured. A device that
/// completes asynchronously sees delays that are too short by the time to submit these, a
/// microsecond or two.
const AGE_MAX: u32 = 16;

/// As [`AGE_MAX`], for a device that completes inside submit and does not use the time.
const INLINE_AGE_MAX: u32 = 1024;

/// State shared by the workers of a round.
pub(super) struct Environment<'a> {
    pub(super) volume: &'a Volume,
    pub(super) zones: &'a Zones,
    pub(super) clock: &'a Clock,
    /// Clock reading that counts as time zero.
    pub(super) epoch: u64,
    /// True if writes carry data that a later read may return.
    pub(super) has_data: bool,
    /// Frame of the series, if requested.
    pub(super) frame: Option<Frame>,
}

impl Environment<'_> {
    /// Creates empty measurements for a worker.
    pub(super) fn measure(&self, plan: &WorkerPlan) -> Measure {
        Measure::new(plan, self.clock.clone(), self.epoch, self.frame.as_ref())
    }
}

/// One worker.
pub(super) struct Worker<'a, T: Time> {
    pub(super) time: T,
    pub(super) environment: &'a Environment<'a>,
    pub(super) plan: &'a WorkerPlan,
    pub(super) watch: &'a Watch,
    pub(super) workload: Workload,
    channel: Channel,
    inbox: T::Inbox,
    slots: Vec<RequestSlot>,
    /// Tickets of writes with verification and of checking reads, by slot; empty without
    /// verification.
    tickets: Vec<Ticket>,
    /// Idle slots.
    free: Vec<u32>,
    /// Requests at the write path.
    pub(super) in_flight: u32,
    pub(super) measure: Measure,
    recorder: Option<Recorder>,
    blocks: Option<Blocks>,
    /// Last reading of the clock.
    pub(super) last: u64,
    /// Time since the epoch at the last reading.
    pub(super) now: Nanos,
    /// Requests submitted since the last reading.
    age: u32,
    /// True if nothing has happened since the last reading that takes time.
    is_fresh: bool,
    /// True if the last request completed inside submit.
    is_inline: bool,
    stamp: u64,
    failure: Option<Failure>,
    errors: u64,
    pub(super) resets: u64,
    pub(super) finishes: u64,
    /// Start of the measurement.
    begin: Begin,
    /// True once its `ramp_time` is over.
    pub(super) is_measured: bool,
    pub(super) floor: Option<RateFloor>,
    pub(super) log: Option<IoLog>,
}

impl<'a, T: Time> Worker<'a, T> {
    /// Creates a worker of the calling thread.
    pub(super) fn new(
        time: T,
        environment: &'a Environment<'a>,
        plan: &'a WorkerPlan,
        watch: &'a Watch,
        workload: Workload,
        recorder: Option<Recorder>,
    ) -> Worker<'a, T> {
        let measure = environment.measure(plan);
        let depth = plan.spec.iodepth;
        let buffers = match T::MAKES_BUFFERS_LATE && !environment.has_data {
            true => (0..depth).map(|_| IoBuf::empty()).collect(),
            false => buffers(environment, plan),
        };
        let clock = measure.is_timed.then(|| environment.clock.clone());
        let places = if recorder.is_some() { Places::Kept } else { Places::Dropped };
        let inbox = time.inbox(clock, places, buffers);
        let blocks = (plan.spec.verify != Verify::None).then(|| Blocks::new(plan));
        let tickets = if blocks.is_some() { depth as usize } else { 0 };
        Worker {
            time,
            channel: environment.volume.channel(inbox.completion_function()),
            slots: vec![RequestSlot::IDLE; depth as usize],
            tickets: vec![Ticket::default(); tickets],
            free: (0..depth).rev().collect(),
            in_flight: 0,
            blocks,
            last: environment.epoch,
            now: Nanos(0),
            age: u32::MAX,
            is_fresh: false,
            is_inline: false,
            stamp: 0,
            failure: None,
            errors: 0,
            resets: 0,
            finishes: 0,
            begin: Begin::default(),
            is_measured: plan.spec.pace.ramp_time.is_zero(),
            floor: RateFloor::new(plan),
            log: None,
            environment,
            plan,
            watch,
            workload,
            inbox,
            measure,
            recorder,
        }
    }

    /// Adds a log of its requests.
    pub(super) fn with_log(mut self, log: Option<IoLog>) -> Self {
        self.log = log;
        self
    }

    /// Runs the job. Returns its report and the record of its writes.
    pub(super) fn run(mut self) -> (JobReport, Option<Recorder>) {
        let clock = self.environment.clock;
        self.begin = Begin::now::<T>(clock);
        loop {
            self.log_action("open");
            let pass = clock.raw();
            self.pass();
            let took = clock.delta(pass.max(self.begin.at), clock.raw());
            self.begin.writing += took;
            self.begin.reading += took;
            if self.is_over() {
                break;
            }
            if self.plan.writes_verified() && self.plan.spec.do_verify {
                let check = clock.raw();
                self.check_pass();
                self.begin.reading += clock.delta(check, clock.raw());
            }
            self.log_action("close");
            if self.is_over() || !self.workload.next_pass(self.environment.zones) {
                break;
            }
        }
        self.finish_log();
        self.workload.end(self.environment.zones);
        self.report()
    }

    /// Builds the report of the completed job.
    fn report(mut self) -> (JobReport, Option<Recorder>) {
        let clock = self.environment.clock;
        let elapsed = clock.delta(self.begin.at, clock.raw());
        let usage = T::usage().since(self.begin.usage);
        let times = [self.begin.reading, self.begin.writing];
        let dirs = [Dir::Read, Dir::Write].map(|dir| {
            let mut report = self.measure.take(dir, self.watch);
            report.runtime = if report.ios == 0 { Duration::ZERO } else { times[dir as usize] };
            report
        });
        let report = JobReport {
            dirs,
            flushes: self.measure.flushes,
            flush_lat: self.measure.flush.take(),
            resets: self.resets,
            finishes: self.finishes,
            lacked_zone: self.workload.lacked_zone(),
            lacked_data: self.workload.lacked_data(),
            errors: self.errors,
            failure: self.failure,
            elapsed,
            user: usage.user,
            system: usage.system,
            switches: usage.switches,
            depths: self.measure.depths,
            series: self.measure.take_series(),
            ..JobReport::new(&self.plan.spec, self.plan.group, self.plan.seed)
        };
        (report, self.recorder)
    }

    pub(super) fn is_over(&self) -> bool {
        self.failure.is_some() && !self.continues_after_failure() || self.watch.is_stopped()
    }

    /// True if the job continues after its failure: a verification error fails it, but ends it at
    /// once only with `verify_fatal`.
    fn continues_after_failure(&self) -> bool {
        matches!(self.failure, Some(Failure::Verify { .. })) && !self.plan.spec.verify_fatal
    }

    /// Runs one pass of the workload. Nothing is in flight afterwards.
    fn pass(&mut self) {
        loop {
            if self.is_over() {
                break;
            }
            let Some(&slot) = self.free.last() else {
                T::wait(self, Awaited::Ending);
                continue;
            };
            match self.workload.next_io(self.environment.zones) {
                Some(io) => self.submit_io(slot, io),
                None if self.step_slow(slot) => {}
                None => break,
            }
        }
        self.drain();
        if self.plan.spec.end_fsync && self.plan.writes() && !self.is_over() {
            self.submit_other(SlotKind::Flush, Request::flush());
            self.drain();
        }
    }

    /// Slow path of a step, for anything but a plain next I/O. True if the pass continues.
    #[inline(never)]
    fn step_slow(&mut self, slot: u32) -> bool {
        self.time_has_passed();
        let step = self.workload.next_slow(self.environment.zones);
        match step {
            WorkerStep::Io(io) => self.submit_io(slot, io),
            WorkerStep::Wait => {
                let awaits = self.workload.awaits(self.environment.zones);
                T::wait(self, Awaited::Or(awaits));
            }
            WorkerStep::Logged(io) => self.submit_logged(slot, io),
            WorkerStep::NotBefore(_) | WorkerStep::SpinUntil(_) | WorkerStep::RampOver => self.hold(step),
            WorkerStep::Flush => {
                self.log_flush();
                self.submit_other(SlotKind::Flush, Request::flush());
            }
            WorkerStep::Reset(zone) => self.manage(SlotKind::Reset, Op::ZoneReset, zone),
            WorkerStep::Finish(zone) => self.manage(SlotKind::Finish, Op::ZoneFinish, zone),
            WorkerStep::PassOver => return false,
        }
        true
    }

    fn drain(&mut self) {
        while self.in_flight > 0 {
            T::wait(self, Awaited::Ending);
        }
    }

    /// Time of a request about to be issued.
    #[inline]
    fn time(&mut self) -> Nanos {
        let age_max = if self.is_inline { INLINE_AGE_MAX } else { AGE_MAX };
        match self.measure.is_timed {
            true => self.read_clock_again(),
            false if self.age >= age_max => self.read_clock(),
            false => {}
        }
        self.age = self.age.saturating_add(1);
        self.now
    }

    /// Reads the clock, unless the last reading is still valid.
    #[inline]
    pub(super) fn read_clock_again(&mut self) {
        if !self.is_fresh {
            self.read_clock();
        }
    }

    #[inline]
    pub(super) fn read_clock(&mut self) {
        let Environment { clock, epoch, .. } = *self.environment;
        self.last = clock.raw();
        self.now = Nanos(clock.delta_as_nanos(epoch, self.last));
        self.age = 0;
        self.is_fresh = T::ONE_READING_SERVES_TWICE;
    }

    /// Marks the last clock reading as too old for further use.
    #[inline]
    pub(super) fn time_has_passed(&mut self) {
        self.is_fresh = false;
    }

    /// Timestamp for a completion without one, which is now.
    #[inline]
    fn stamp(&mut self) -> u64 {
        match self.measure.is_timed {
            true => {
                self.read_clock();
                self.last
            }
            false => NO_STAMP,
        }
    }

    #[inline(always)]
    fn submit_io(&mut self, slot: u32, io: Io) {
        let mut buffer = self.inbox.desk().take_buffer(slot);
        if T::MAKES_BUFFERS_LATE && buffer.is_empty() {
            buffer = IoBuf::untouched(buffer_bytes(self.plan)).into();
        }
        let op = op_of(&io);
        if op != Op::Read && self.environment.has_data {
            self.fill(slot, &mut buffer.pieces_mut()[0], &io);
        }
        let kind = match io.dir {
            Dir::Read if self.blocks.is_some() => self.kind_of_read(slot),
            _ => SlotKind::Io,
        };
        self.submit(slot, op, &io, buffer);
        self.workload.submitted(&io, self.environment.zones);
        self.after_submit(slot, kind, io);
    }

    #[cold]
    #[inline(never)]
    fn submit_logged(&mut self, slot: u32, io: Io) {
        let place = self.workload.place_of(&io);
        self.log_io(&io, place);
        self.time_has_passed();
        self.submit_io(slot, io);
    }

    #[inline(always)]
    fn submit(&mut self, slot: u32, op: Op, io: &Io, buffer: IoBufs) {
        self.measure.depth(self.in_flight + 1);
        let now = self.time();
        let now = T::issue_time(self, now);
        let Io { sector, sectors, .. } = *io;
        let token = u64::from(slot);
        // As with fio's synchronous engines, which are for this depth.
        let awaited = self.plan.spec.iodepth == 1;
        let request = Request { op, fua: false, nowait: false, awaited, sector, sectors, buf: buffer, token };
        self.environment.volume.submit(now, &self.channel, request);
    }

    /// Only jobs without writes check their reads. Those of a mixed job may find data written by
    /// others.
    #[cold]
    fn kind_of_read(&mut self, slot: u32) -> SlotKind {
        self.tickets[slot as usize] = Ticket::default();
        if self.plan.writes() { SlotKind::Io } else { SlotKind::Check }
    }

    /// Fills a write's payload: a block that can be verified, or bytes unlike those of any other
    /// block.
    #[inline]
    fn fill(&mut self, slot: u32, buffer: &mut IoBuf, io: &Io) {
        match &mut self.blocks {
            Some(blocks) => {
                let zone = self.environment.zones.geometry().zone_of(io.sector);
                let generation = self.environment.zones.generation(zone);
                let block = &mut buffer[..bytes_of(io.sectors)];
                let ticket = blocks.fill(block, io, zone, generation, self.recorder.as_ref());
                self.tickets[slot as usize] = ticket;
                self.time_has_passed();
            }
            None => {
                for sector in buffer.chunks_exact_mut(SECTOR_BYTES as usize) {
                    self.stamp += 1;
                    sector[..8].copy_from_slice(&self.stamp.to_le_bytes());
                }
            }
        }
    }

    /// Handles completions inside submit. Only other requests occupy a slot, since nothing examines
    /// slots in between.
    #[inline(always)]
    fn after_submit(&mut self, slot: u32, kind: SlotKind, io: Io) {
        if kind == SlotKind::Io && self.recorder.is_none() && self.inbox.ended_just_now(slot) {
            self.is_inline = true;
            let stamps = Stamps { made: self.last, submitted: 0 };
            let at = self.stamp();
            self.io_succeeded(&io, &stamps, at);
            if self.inbox.has_more() {
                self.reap();
            }
            return;
        }
        self.occupy(slot, kind, io);
    }

    /// Keeps a request in its slot until it completes, and notes the time of its submission.
    #[inline(never)]
    fn occupy(&mut self, slot: u32, kind: SlotKind, io: Io) {
        self.free.pop();
        self.in_flight += 1;
        self.slots[slot as usize] =
            RequestSlot { kind, io, stamps: Stamps { made: self.last, submitted: 0 } };
        self.reap();
        self.is_inline = self.slots[slot as usize].kind == SlotKind::Idle;
        if !self.is_inline && self.measure.is_timed {
            self.read_clock();
            let entry = &mut self.slots[slot as usize];
            entry.stamps.submitted = self.last;
            self.measure.submitted(entry.io.dir, &entry.stamps);
        }
    }

    #[cold]
    fn manage(&mut self, kind: SlotKind, op: Op, zone: ZoneIndex) {
        let start = self.environment.zones.geometry().start_of(zone);
        self.submit_other(kind, Request::zone(op, start));
    }

    /// Submits a request without payload. It carries the slot's buffer, which comes back with the
    /// completion.
    #[cold]
    fn submit_other(&mut self, kind: SlotKind, request: Request) {
        let slot = self.free.pop().expect("a slot is free");
        let buffer = self.inbox.desk().take_buffer(slot);
        self.read_clock();
        let made = self.last;
        let now = T::issue_time(self, self.now);
        self.in_flight += 1;
        let stamps = Stamps { made, submitted: 0 };
        self.slots[slot as usize] =
            RequestSlot { kind, io: Io { sector: request.sector, ..Io::NONE }, stamps };
        let request = Request { buf: buffer, token: u64::from(slot), ..request };
        self.environment.volume.submit(now, &self.channel, request);
        self.reap();
    }

    /// Handles completions and returns their number.
    #[inline(always)]
    pub(super) fn reap(&mut self) -> usize {
        let (mut reaped, mut now) = (0, NO_STAMP);
        while let Some(mut ending) = self.inbox.next() {
            if ending.at == NO_STAMP {
                if now == NO_STAMP {
                    now = self.stamp();
                }
                ending.at = now;
            }
            self.finish(ending);
            reaped += 1;
        }
        if reaped > 1 {
            self.time_has_passed();
        }
        reaped
    }

    #[inline(always)]
    fn finish(&mut self, ending: Ending) {
        let Ending { slot, is_plain, at } = ending;
        let entry = &mut self.slots[slot as usize];
        let kind = std::mem::replace(&mut entry.kind, SlotKind::Idle);
        self.in_flight -= 1;
        self.free.push(slot);
        if kind != SlotKind::Io || !is_plain || self.recorder.is_some() {
            return self.finish_unusual(kind, ending);
        }
        let (io, stamps) = (entry.io, entry.stamps);
        self.io_succeeded(&io, &stamps, at);
    }

    #[inline(always)]
    fn io_succeeded(&mut self, io: &Io, stamps: &Stamps, at: u64) {
        self.workload.io_ended(io, self.environment.zones);
        self.watch.count(io.dir, io.sectors);
        if self.measure.is_timed {
            self.measure.ended(io.dir, stamps, at);
            if self.measure.has_series() {
                self.note(io, stamps, at);
            }
        }
    }

    /// Adds a request to the series. The address of an append is not available here; the zone's
    /// write pointer is used instead.
    #[cold]
    #[inline(never)]
    fn note(&mut self, io: &Io, stamps: &Stamps, at: u64) {
        self.time_has_passed();
        let zones = self.environment.zones;
        let place = match io.placing {
            Placing::At => io.sector,
            Placing::Append => {
                let pointer = zones.pointer(zones.geometry().zone_of(io.sector));
                Sector(io.sector.0 + u64::from(pointer.saturating_sub(io.sectors)))
            }
        };
        self.measure.note(io, place, stamps, at);
    }

    #[cold]
    #[inline(never)]
    fn finish_unusual(&mut self, kind: SlotKind, ending: Ending) {
        self.time_has_passed();
        let zones = self.environment.zones;
        let RequestSlot { io, stamps, .. } = self.slots[ending.slot as usize];
        let outcome = if ending.is_plain { Outcome::Done } else { self.inbox.desk().outcome(ending.slot) };
        let is_ok = !matches!(outcome, Outcome::Failed(_));
        let zone = zones.geometry().zone_of(io.sector);
        match kind {
            SlotKind::Idle => unreachable!("a completion without a request"),
            SlotKind::Io | SlotKind::Check => self.finish_io(kind, ending, &io, &stamps, outcome),
            SlotKind::Flush if is_ok => self.measure.flushed(&stamps, ending.at),
            SlotKind::Flush => {}
            SlotKind::Reset => {
                self.resets += u64::from(is_ok);
                self.workload.ended(&Ended::Reset(zone, is_ok), zones);
            }
            SlotKind::Finish => {
                self.finishes += u64::from(is_ok);
                self.workload.ended(&Ended::Finish(zone, is_ok), zones);
            }
        }
        if let Outcome::Failed(error) = outcome {
            let op = match kind {
                SlotKind::Io | SlotKind::Check | SlotKind::Idle => op_of(&io),
                SlotKind::Flush => Op::Flush,
                SlotKind::Reset => Op::ZoneReset,
                SlotKind::Finish => Op::ZoneFinish,
            };
            self.fail(Failure::Request { op, sector: io.sector, sectors: io.sectors, error });
        }
    }

    fn finish_io(&mut self, kind: SlotKind, ending: Ending, io: &Io, stamps: &Stamps, outcome: Outcome) {
        let slot = ending.slot as usize;
        // A read of the check after a pass does not belong to the workload.
        let is_of_workload = kind == SlotKind::Io || self.tickets[slot].expected.is_none();
        if is_of_workload {
            self.workload.io_ended(io, self.environment.zones);
        }
        let at = match outcome {
            Outcome::Failed(_) => {
                if let Some(recorder) = &mut self.recorder
                    && io.dir == Dir::Write
                {
                    recorder.failed(io, &self.tickets[slot], self.environment.zones.geometry());
                }
                return;
            }
            Outcome::Appended(sector) => sector,
            Outcome::Done => io.sector,
        };
        self.watch.count(io.dir, io.sectors);
        if self.measure.is_timed {
            self.measure.ended(io.dir, stamps, ending.at);
            self.measure.note(io, at, stamps, ending.at);
        }
        if kind == SlotKind::Check {
            self.check(ending.slot, io);
        } else if io.dir == Dir::Write {
            self.acknowledge(slot, io, at);
        }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.errors += 1;
        if self.failure.as_ref().is_none_or(|first| first.is_consequence() && !failure.is_consequence()) {
            self.failure = Some(failure);
        }
    }

    /// Records a write that was placed at `at`.
    fn acknowledge(&mut self, slot: usize, io: &Io, at: Sector) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Err(max) =
            recorder.acknowledged(at, io, &self.tickets[slot], self.environment.zones.geometry())
        {
            self.fail(Failure::RecordFull { max });
        }
    }

    /// Checks the block read into a slot's buffer.
    fn check(&mut self, slot: u32, io: &Io) {
        let geometry = self.environment.zones.geometry();
        let expected = self.tickets[slot as usize].expected;
        let problem = self.inbox.desk().with_buffer(slot, |bytes| {
            check_block(&bytes[..bytes_of(io.sectors)], io.sector, geometry, expected.as_ref())
        });
        if let Some((expected, found)) = problem {
            let zone = geometry.zone_of(io.sector);
            // Another job may have reset the zone since the read was issued.
            let current = self.environment.zones.generation(zone);
            if expected.generation.is_some_and(|generation| generation != current) {
                return;
            }
            let job = self.plan.spec.name.clone();
            let first = Mismatch { job, sector: io.sector, zone, sectors: io.sectors, expected, found };
            self.fail(Failure::Verify { first });
        }
    }

    /// Reads back the data of the last pass, as far as it still exists.
    fn check_pass(&mut self) {
        let Some(mut recorder) = self.recorder.take() else { return };
        self.log_action("close");
        self.log_action("open");
        let zones = self.environment.zones;
        for (sector, expected) in recorder.of_pass(zones) {
            while self.free.is_empty() {
                T::wait(self, Awaited::Ending);
            }
            if self.is_over() {
                break;
            }
            self.submit_check(sector, expected);
        }
        self.drain();
        recorder.end_pass();
        self.recorder = Some(recorder);
    }

    fn submit_check(&mut self, sector: Sector, expected: Expected) {
        let slot = *self.free.last().expect("a slot is free");
        let buffer = self.inbox.desk().take_buffer(slot);
        self.tickets[slot as usize] = Ticket { expected: Some(expected), ..Ticket::default() };
        let io = Io { sector, sectors: self.plan.write_sectors, ..Io::NONE };
        self.log_io(&io, sector);
        self.submit(slot, Op::Read, &io, buffer);
        self.after_submit(slot, SlotKind::Check, io);
    }
}

fn buffer_bytes(plan: &WorkerPlan) -> u32 {
    u32::try_from(plan.buffer_bytes()).expect("a block has at most 1 GiB")
}

/// Allocates a buffer for each slot, filled with incompressible bytes if the device may keep them.
fn buffers(environment: &Environment<'_>, plan: &WorkerPlan) -> Vec<IoBuf> {
    let bytes = buffer_bytes(plan);
    let mut stream = Stream::new(plan.seed, plan.number as u64, 0, Purpose::Payload);
    let buffers = (0..plan.spec.iodepth).map(|_| {
        let mut buffer = IoBuf::zeroed(bytes);
        if environment.has_data && plan.writes() {
            buffer.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&stream.bits().to_le_bytes()));
        }
        buffer
    });
    buffers.collect()
}

#[inline]
fn op_of(io: &Io) -> Op {
    match (io.dir, io.placing) {
        (Dir::Read, _) => Op::Read,
        (Dir::Write, Placing::At) => Op::Write,
        (Dir::Write, Placing::Append) => Op::Append,
    }
}

/// Bytes of `sectors` sectors of one block.
fn bytes_of(sectors: u32) -> usize {
    sectors as usize * SECTOR_BYTES as usize
}
