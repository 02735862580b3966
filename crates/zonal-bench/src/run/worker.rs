//! One worker in real time: keeps up to `iodepth` requests of its workload with the write path.
//!
//! # The inner loop
//! A request costs one turn of the generator, one submit and one completion, and nothing else: no allocation (buffers
//! and slots are made before the start), no clock unless times are taken or the device answers later, no lock but the
//! zone's bit. A device that answers inside submit has no use for the time, so it gets the last one read.
//!
//! # Waiting
//! Whoever waits polls. A worker polls at once for a while, because most answers are near; then it lets other threads
//! run; and it sleeps only while the write path says that nothing is due soon.

use super::cpu::Usage;
use super::gate::{Entry, Gate};
use super::inbox::{Finished, Inbox};
use super::measure::{Measure, Stamps, Watch};
use super::plan::WorkerPlan;
use crate::job::Verify;
use crate::report::{Failure, JobReport};
use crate::verify::{Blocks, Expected, Mismatch, Recorder, Ticket, check_block};
use crate::workload::{Dir, Ended, Io, Placing, Purpose, Step, Stream, Workload, Zones};
use quanta::Clock;
use std::time::Duration;
use zonal_core::{Nanos, Op, RequestError, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Output;
use zonal_io::volume::{Channel, Request, Volume};

/// Polls without a result before other threads get the processor.
const SPINS_MAX: u32 = 200;

/// Polls without a result before the worker may sleep.
const YIELDS_MAX: u32 = 2000;

/// Longest sleep: bounds how late a completion is seen that another thread reaped, and a stop.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// How much earlier than due a sleeper wakes: the kernel's timers are about that late.
const SLEEP_MARGIN: Duration = Duration::from_micros(60);

/// What all workers of a round have in common.
pub(super) struct Environment<'a> {
    pub(super) volume: &'a Volume,
    pub(super) zones: &'a Zones,
    pub(super) clock: &'a Clock,
    /// Reading of the clock that counts as time zero.
    pub(super) epoch: u64,
    /// Whether writes carry bytes that somebody may read.
    pub(super) has_data: bool,
    /// Opens when every worker is ready.
    pub(super) gate: &'a Gate,
}

/// What a slot's request is.
#[derive(Clone, Copy)]
enum Job {
    Idle,
    Io(Io),
    Check(Io),
    Flush,
    Reset(ZoneIndex),
    Finish(ZoneIndex),
}

#[derive(Clone, Copy)]
struct Slot {
    job: Job,
    stamps: Stamps,
}

/// One worker.
pub(super) struct Worker<'a> {
    environment: &'a Environment<'a>,
    plan: &'a WorkerPlan,
    watch: &'a Watch,
    workload: Workload,
    channel: Channel,
    inbox: Inbox,
    slots: Vec<Slot>,
    /// Of writes to be verified and reads that check, by slot; empty where nothing is verified.
    tickets: Vec<Ticket>,
    free: Vec<(u32, IoBuf)>,
    /// Requests with the write path.
    in_flight: u32,
    measure: Measure,
    recorder: Option<Recorder>,
    blocks: Option<Blocks>,
    /// Last reading of the clock.
    last: u64,
    /// Whether the last request was answered inside submit.
    is_inline: bool,
    idle: u32,
    stamp: u64,
    failure: Option<Failure>,
    errors: u64,
    resets: u64,
    finishes: u64,
}

impl<'a> Worker<'a> {
    /// A worker of the calling thread.
    pub(super) fn new(
        environment: &'a Environment<'a>,
        plan: &'a WorkerPlan,
        watch: &'a Watch,
        workload: Workload,
        recorder: Option<Recorder>,
    ) -> Worker<'a> {
        let measure = Measure::new(&plan.spec, environment.clock.clone());
        let depth = plan.spec.iodepth;
        let inbox = Inbox::new(measure.is_timed.then(|| environment.clock.clone()), depth as usize);
        let idle = Slot { job: Job::Idle, stamps: Stamps::default() };
        let blocks = (plan.spec.verify != Verify::None).then(|| Blocks::new(plan));
        let tickets = if blocks.is_some() { depth as usize } else { 0 };
        let bytes = u32::try_from(plan.buffer_bytes()).expect("a block has at most 1 GiB");
        let mut stream = Stream::new(plan.seed, plan.number as u64, 0, Purpose::Payload);
        let mut buffer = || {
            let mut buffer = IoBuf::zeroed(bytes);
            if environment.has_data && plan.writes() {
                buffer.chunks_mut(8).for_each(|c| c.copy_from_slice(&stream.bits().to_le_bytes()[..c.len()]));
            }
            buffer
        };
        Worker {
            channel: environment.volume.channel(inbox.completion_function()),
            slots: vec![idle; depth as usize],
            tickets: vec![Ticket::default(); tickets],
            free: (0..depth).rev().map(|slot| (slot, buffer())).collect(),
            in_flight: 0,
            blocks,
            last: environment.epoch,
            is_inline: false,
            idle: 0,
            stamp: 0,
            failure: None,
            errors: 0,
            resets: 0,
            finishes: 0,
            environment,
            plan,
            watch,
            workload,
            inbox,
            measure,
            recorder,
        }
    }

    /// Runs the job; what it did, and the record of what it wrote.
    ///
    /// `None` if the round does not begin.
    pub(super) fn run(mut self) -> Option<(JobReport, Option<Recorder>)> {
        if self.environment.gate.enter() == Entry::Closed {
            return None;
        }
        let clock = self.environment.clock;
        let usage = Usage::now();
        let begin = clock.raw();
        let mut writing = Duration::ZERO;
        let mut reading = Duration::ZERO;
        loop {
            let pass = clock.raw();
            self.pass();
            let took = clock.delta(pass, clock.raw());
            writing += took;
            reading += took;
            if self.is_over() {
                break;
            }
            if self.plan.writes_verified() && self.plan.spec.do_verify {
                let check = clock.raw();
                self.check_pass();
                reading += clock.delta(check, clock.raw());
            }
            if self.is_over() || !self.workload.next_pass() {
                break;
            }
        }
        self.workload.end(self.environment.zones);
        let elapsed = clock.delta(begin, clock.raw());
        let usage = Usage::now().since(usage);
        let times = [reading, writing];
        let dirs = [Dir::Read, Dir::Write].map(|dir| {
            let mut report = self.measure.take(dir, self.watch);
            report.runtime = if report.ios == 0 { Duration::ZERO } else { times[dir as usize] };
            report
        });
        let report = JobReport {
            name: self.plan.spec.name.clone(),
            spec: self.plan.spec.clone(),
            group: self.plan.group,
            jobs: 1,
            dirs,
            flushes: self.measure.flushes,
            flush_lat: self.measure.flush.take(),
            resets: self.resets,
            finishes: self.finishes,
            errors: self.errors,
            failure: self.failure,
            elapsed,
            user: usage.user,
            system: usage.system,
            switches: usage.switches,
            depths: self.measure.depths,
            seed: self.plan.seed,
        };
        Some((report, self.recorder))
    }

    fn is_over(&self) -> bool {
        self.failure.is_some() && !self.goes_on_after_failure() || self.watch.is_stopped()
    }

    /// A block that does not read back fails the job, but ends it at once only if asked to.
    fn goes_on_after_failure(&self) -> bool {
        matches!(self.failure, Some(Failure::Verify { .. })) && !self.plan.spec.verify_fatal
    }

    /// One pass of the workload; nothing is in flight afterwards.
    fn pass(&mut self) {
        loop {
            if self.is_over() {
                break;
            }
            let Some((slot, buffer)) = self.free.pop() else {
                self.wait();
                continue;
            };
            match self.workload.next(self.environment.zones) {
                Step::Io(io) => self.submit_io(slot, buffer, io),
                Step::Wait => {
                    self.free.push((slot, buffer));
                    self.wait();
                }
                Step::Flush => self.submit_other(slot, buffer, Job::Flush, Request::flush()),
                Step::Reset(zone) => self.manage(slot, buffer, Job::Reset(zone), Op::ZoneReset, zone),
                Step::Finish(zone) => self.manage(slot, buffer, Job::Finish(zone), Op::ZoneFinish, zone),
                Step::PassOver => {
                    self.free.push((slot, buffer));
                    break;
                }
            }
        }
        self.drain();
        if self.plan.spec.end_fsync && self.plan.writes() && !self.is_over() {
            let (slot, buffer) = self.free.pop().expect("nothing is in flight");
            self.submit_other(slot, buffer, Job::Flush, Request::flush());
            self.drain();
        }
    }

    fn drain(&mut self) {
        while self.in_flight > 0 {
            self.wait();
        }
    }

    #[inline]
    fn nanos(&self, raw: u64) -> Nanos {
        Nanos(self.environment.clock.delta_as_nanos(self.environment.epoch, raw))
    }

    /// The time for a request that goes out now.
    #[inline]
    fn now(&mut self) -> Nanos {
        if self.measure.is_timed || !self.is_inline {
            self.last = self.environment.clock.raw();
        }
        self.nanos(self.last)
    }

    #[inline]
    fn submit_io(&mut self, slot: u32, mut buffer: IoBuf, io: Io) {
        let (op, fills) = match (io.dir, io.placing) {
            (Dir::Read, _) => (Op::Read, false),
            (Dir::Write, Placing::At) => (Op::Write, self.environment.has_data),
            (Dir::Write, Placing::Append) => (Op::Append, self.environment.has_data),
        };
        if fills {
            self.fill(slot, &mut buffer, &io);
        }
        self.in_flight += 1;
        self.measure.depth(self.in_flight);
        let now = self.now();
        let stamps = Stamps { made: self.last, submitted: 0 };
        let job = match self.blocks {
            Some(_) if io.dir == Dir::Read && !self.plan.writes() => {
                self.tickets[slot as usize] = Ticket::default();
                Job::Check(io)
            }
            _ => Job::Io(io),
        };
        self.slots[slot as usize] = Slot { job, stamps };
        let request = Request {
            op,
            fua: false,
            nowait: false,
            sector: io.sector,
            sectors: io.sectors,
            buf: buffer,
            token: u64::from(slot),
        };
        self.environment.volume.submit(now, &self.channel, request);
        self.workload.submitted(&io, self.environment.zones);
        self.after_submit(slot, io.dir);
    }

    /// Payload of a write: a block that can be verified, or bytes that no other block has.
    #[inline]
    fn fill(&mut self, slot: u32, buffer: &mut IoBuf, io: &Io) {
        match &mut self.blocks {
            Some(blocks) => {
                let zone = self.environment.zones.geometry().zone_of(io.sector);
                let generation = self.environment.zones.generation(zone);
                let block = &mut buffer[..bytes_of(io.sectors)];
                let ticket = blocks.fill(block, io, zone, generation, self.recorder.as_ref());
                self.tickets[slot as usize] = ticket;
            }
            None => {
                for sector in buffer.chunks_exact_mut(SECTOR_BYTES as usize) {
                    self.stamp += 1;
                    sector[..8].copy_from_slice(&self.stamp.to_le_bytes());
                }
            }
        }
    }

    #[inline]
    fn after_submit(&mut self, slot: u32, dir: Dir) {
        self.reap();
        self.is_inline = matches!(self.slots[slot as usize].job, Job::Idle);
        if !self.is_inline && self.measure.is_timed {
            let stamps = &mut self.slots[slot as usize].stamps;
            stamps.submitted = self.environment.clock.raw();
            self.measure.submitted(dir, stamps);
        }
    }

    #[cold]
    fn manage(&mut self, slot: u32, buffer: IoBuf, job: Job, op: Op, zone: ZoneIndex) {
        let start = self.environment.zones.geometry().start_of(zone);
        self.submit_other(slot, buffer, job, Request::zone(op, start));
    }

    #[cold]
    fn submit_other(&mut self, slot: u32, buffer: IoBuf, job: Job, request: Request) {
        self.last = self.environment.clock.raw();
        self.in_flight += 1;
        let stamps = Stamps { made: self.last, submitted: 0 };
        self.slots[slot as usize] = Slot { job, stamps };
        // These requests have no payload, but the slot's buffer has to come back with the completion.
        let request = Request { buf: buffer, token: u64::from(slot), ..request };
        self.environment.volume.submit(self.nanos(self.last), &self.channel, request);
        self.reap();
    }

    /// Takes in what has ended; how much.
    #[inline]
    fn reap(&mut self) -> u32 {
        let mut reaped = 0;
        while let Some(finished) = self.inbox.next() {
            self.finish(finished);
            reaped += 1;
        }
        reaped
    }

    #[inline]
    fn finish(&mut self, finished: Finished) {
        let Finished { completion, at } = finished;
        let slot = &mut self.slots[completion.token as usize];
        let Slot { job, stamps } = *slot;
        slot.job = Job::Idle;
        self.in_flight -= 1;
        match (job, &completion.result) {
            (Job::Io(io), Ok(output)) => {
                self.workload.ended(&Ended::Io(io), self.environment.zones);
                self.watch.count(io.dir, io.sectors);
                if self.measure.is_timed {
                    self.measure.ended(io.dir, &stamps, at);
                }
                if self.recorder.is_some() && io.dir == Dir::Write {
                    self.acknowledge(completion.token as usize, &io, output);
                }
            }
            (Job::Check(io), Ok(_)) => {
                self.finish_check(completion.token as usize, &io, &completion.buf, &stamps, at)
            }
            _ => self.finish_other(completion.token as usize, job, &completion.result, &stamps, at),
        }
        self.free.push((completion.token as u32, completion.buf));
    }

    #[cold]
    fn finish_other(
        &mut self,
        slot: usize,
        job: Job,
        result: &Result<Output, RequestError>,
        stamps: &Stamps,
        at: u64,
    ) {
        let zones = self.environment.zones;
        let is_ok = result.is_ok();
        match job {
            Job::Idle => unreachable!("a completion without a request"),
            Job::Io(io) => {
                self.workload.ended(&Ended::Io(io), zones);
                if let Some(recorder) = &mut self.recorder
                    && io.dir == Dir::Write
                {
                    recorder.failed(&io, &self.tickets[slot], zones.geometry());
                }
            }
            Job::Check(io) => self.workload.ended(&Ended::Io(io), zones),
            Job::Flush if is_ok => self.measure.flushed(stamps, at),
            Job::Flush => {}
            Job::Reset(zone) => {
                self.resets += u64::from(is_ok);
                self.workload.ended(&Ended::Reset(zone, is_ok), zones);
            }
            Job::Finish(zone) => {
                self.finishes += u64::from(is_ok);
                self.workload.ended(&Ended::Finish(zone, is_ok), zones);
            }
        }
        if let Err(error) = *result {
            let (op, sector, sectors) = self.describe(job);
            self.fail(Failure::Request { op, sector, sectors, error });
        }
    }

    fn describe(&self, job: Job) -> (Op, Sector, u32) {
        let start = |zone| self.environment.zones.geometry().start_of(zone);
        match job {
            Job::Io(io) | Job::Check(io) => {
                let op = match (io.dir, io.placing) {
                    (Dir::Read, _) => Op::Read,
                    (Dir::Write, Placing::At) => Op::Write,
                    (Dir::Write, Placing::Append) => Op::Append,
                };
                (op, io.sector, io.sectors)
            }
            Job::Reset(zone) => (Op::ZoneReset, start(zone), 0),
            Job::Finish(zone) => (Op::ZoneFinish, start(zone), 0),
            Job::Flush | Job::Idle => (Op::Flush, Sector(0), 0),
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.errors += 1;
        self.failure.get_or_insert(failure);
    }

    #[cold]
    fn acknowledge(&mut self, slot: usize, io: &Io, output: &Output) {
        let at = match output {
            Output::Appended(sector) => *sector,
            _ => io.sector,
        };
        let Some(recorder) = &mut self.recorder else { return };
        if let Err(max) =
            recorder.acknowledged(at, io, &self.tickets[slot], self.environment.zones.geometry())
        {
            self.fail(Failure::RecordFull { max });
        }
    }

    fn finish_check(&mut self, slot: usize, io: &Io, bytes: &[u8], stamps: &Stamps, at: u64) {
        let expected = self.tickets[slot].expected;
        // A read of the workload is counted by it; one of a pass's check is not.
        if expected.is_none() {
            self.workload.ended(&Ended::Io(*io), self.environment.zones);
        }
        self.watch.count(Dir::Read, io.sectors);
        if self.measure.is_timed {
            self.measure.ended(Dir::Read, stamps, at);
        }
        let geometry = self.environment.zones.geometry();
        let block = &bytes[..bytes_of(io.sectors)];
        let problem = check_block(block, io.sector, geometry, expected.as_ref());
        if let Some((expected, found)) = problem {
            let zone = geometry.zone_of(io.sector);
            let job = self.plan.spec.name.clone();
            let first = Mismatch { job, sector: io.sector, zone, sectors: io.sectors, expected, found };
            self.fail(Failure::Verify { first });
        }
    }

    /// Reads back what the last pass wrote and is still there.
    fn check_pass(&mut self) {
        let Some(mut recorder) = self.recorder.take() else { return };
        let zones = self.environment.zones;
        for (sector, expected) in recorder.of_pass(zones) {
            while self.free.is_empty() {
                self.wait();
            }
            if self.is_over() {
                break;
            }
            let (slot, buffer) = self.free.pop().expect("a slot is free");
            self.submit_check(slot, buffer, sector, expected);
        }
        self.drain();
        recorder.end_pass();
        self.recorder = Some(recorder);
    }

    fn submit_check(&mut self, slot: u32, buffer: IoBuf, sector: Sector, expected: Expected) {
        let sectors = self.plan.write_sectors;
        let io = Io { dir: Dir::Read, placing: Placing::At, sector, sectors, claimed: None };
        self.in_flight += 1;
        self.measure.depth(self.in_flight);
        let now = self.now();
        let stamps = Stamps { made: self.last, submitted: 0 };
        self.tickets[slot as usize] = Ticket { expected: Some(expected), ..Ticket::default() };
        self.slots[slot as usize] = Slot { job: Job::Check(io), stamps };
        let request = Request::read(sector, sectors, buffer).token(u64::from(slot));
        self.environment.volume.submit(now, &self.channel, request);
        self.after_submit(slot, Dir::Read);
    }

    /// Lets the write path get on, and sleeps if that is pointless; returns after anything of interest may have
    /// happened.
    fn wait(&mut self) {
        let volume = self.environment.volume;
        self.last = self.environment.clock.raw();
        let now = self.nanos(self.last);
        let due = volume.poll(now);
        if self.reap() > 0 {
            self.idle = 0;
            return;
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle <= SPINS_MAX {
            return std::hint::spin_loop();
        }
        let sleep = match due {
            Some(due) => Duration::from_nanos(due.0.saturating_sub(now.0)).saturating_sub(SLEEP_MARGIN),
            None => SLEEP_MAX,
        };
        if self.in_flight == 0 || self.idle <= YIELDS_MAX && due.is_none() || sleep.is_zero() {
            return std::thread::yield_now();
        }
        volume.wait(sleep.min(SLEEP_MAX));
    }
}

/// Bytes of so many sectors of one block.
fn bytes_of(sectors: u32) -> usize {
    sectors as usize * SECTOR_BYTES as usize
}
