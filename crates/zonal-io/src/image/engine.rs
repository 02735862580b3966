//! Execution of an image's commands: checked and placed in the submitting thread, transferred in
//! helper threads.
//!
//! The zone rules are those of [`Zones`], as for all emulated devices. When a command is submitted
//! it is checked, and a write gets its place in its zone. Commands that need the file then wait in
//! a single queue for the helper threads. Zone management and reports need no file and complete
//! inline: a reset becomes durable with a flush, or with the first write to the zone.
//!
//! # Invariants
//! - A write's data is in the file before anything that a flush makes durable includes it
//!   ([`WritesInFlight`]).
//! - After a failed flush nothing can be changed until the image is reopened; reads continue to
//!   work.
//!
//! # Reads in `submit`
//! A short read of data in the host's page cache completes in `submit`, without blocking. All other
//! file accesses are left to the helper threads.
//!
//! # Commands of threads that wait for them
//! A thread that has nothing else to do executes its command in `submit` as well, unless others wait
//! for a helper thread: two thread switches take longer than most commands.
//!
//! # Without helper threads
//! Commands are executed in `submit`: those of one thread are executed in a fixed order, which
//! crash tests rely on.

use crate::badblocks::BadRange;
use crate::changes::{Notices, ZoneSetting};
use crate::device::{
    Command, CommandResult, Completed, Contention, Context, DeviceInfo, Landing, Output, Submitted,
};
use crate::emulated::check::{self, Payload};
use crate::emulated::{Bandwidth, Executed, Extent, Placed, Queues, WriteKind, Zones, elsewhere};
use crate::helpers::Jobs;
use crate::image::ahead::Ahead;
use crate::image::backing::Backing;
use crate::image::device::OpenOptions;
use crate::image::error::{Failure, errno};
use crate::image::flight::{self, Answer, FailedTransfer, Start, WritesInFlight};
use crate::image::format::{Header, Layout};
use crate::image::ledger::Ledger;
use crate::sync::{Arc, AtomicU64, Ordering};
use std::io;
use zonal_core::device::{Limits, ZoneAction, ZoneEvent, ZoneState};
use zonal_core::{DeviceError, Geometry, Nanos, Op, SECTOR_BYTES, Sector, Sectors, ZoneIndex};

/// Engine of an image; see the module.
pub(super) struct Engine {
    info: DeviceInfo,
    zones: Zones,
    flights: WritesInFlight,
    ledger: Ledger,
    backing: Arc<dyn Backing>,
    ahead: Ahead,
    layout: Layout,
    queues: Queues,
    /// Limit on the data that reads and writes transfer; with one, no command that needs the file
    /// completes in `submit`.
    bandwidth: Option<Bandwidth>,
    tickets: AtomicU64,
    jobs: Jobs<Job>,
    notices: Notices,
}

/// Bytes per read of a verify.
const VERIFY_BYTES: usize = 16 << 10;

/// Longest read executed by the submitting thread although there are helper threads: 32 KiB.
/// Copying that takes a few microseconds, about as long as waking a thread.
const AT_ONCE_SECTORS_MAX: u32 = 64;

/// Place of execution: in `submit`, or in helper threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inline {
    Yes,
    No,
}

/// A checked command that needs the file.
pub(super) struct Job {
    work: Work,
    command: Command,
    answer: Answer,
}

enum Work {
    Read,
    Verify,
    Sequential(Placed),
    Conventional,
    Flush,
}

/// Outcome of checking a command.
enum Checked {
    Answered(CommandResult),
    Needs(Work),
}

/// A completed command.
struct Ended {
    ticket: u64,
    queue: usize,
    /// Earliest time of the completion.
    due: Nanos,
    context: Context,
    result: CommandResult,
}

impl Engine {
    /// Creates an engine; `states` are the zone states of the ledger.
    pub(super) fn new(
        info: DeviceInfo,
        header: &Header,
        options: &OpenOptions,
        backing: Arc<dyn Backing>,
        ledger: Ledger,
        states: &[ZoneState],
    ) -> Engine {
        let limits = Limits { open_max: header.open_max, active_max: header.active_max };
        Engine {
            zones: Zones::new(header.geometry, header.personality, limits, |z| states[z.0 as usize]),
            queues: Queues::new(info.queues, options.hw_queue_depth.max(1), Nanos(0)),
            bandwidth: Bandwidth::of(options.mbps),
            info,
            flights: WritesInFlight::new(),
            ledger,
            backing,
            ahead: Ahead::new(),
            layout: header.layout(),
            tickets: AtomicU64::new(0),
            jobs: Jobs::default(),
            notices: Notices::default(),
        }
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(super) fn zones(&self) -> &Zones {
        &self.zones
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.ledger.failure()
    }

    fn geometry(&self) -> &Geometry {
        &self.info.geometry
    }

    /// State of `zone` to be stored in the ledger.
    fn durable_state(&self, zone: ZoneIndex) -> ZoneState {
        self.restarted(zone, self.flights.state(&self.zones, zone))
    }

    /// Converts the `state` of `zone` to its state after a restart.
    fn restarted(&self, zone: ZoneIndex, state: ZoneState) -> ZoneState {
        flight::restarted(self.info.personality, self.geometry().capacity_of(zone), state)
    }

    fn noted(&self, note: io::Result<()>) -> Result<(), DeviceError> {
        note.map_err(|e| DeviceError::Os(self.ledger.not_noted(&e).errno))
    }

    /// Makes everything durable and marks the image as cleanly closed. No work is in progress.
    pub(super) fn close(&self) -> Result<(), Failure> {
        self.ledger.close(&|zone| self.durable_state(zone))
    }
}

/// Submission.
impl Engine {
    pub(super) fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
        inline: Inline,
    ) -> Submitted {
        // Reserved first, because a write that got its place must be able to wait.
        if !self.queues.reserve(queue) {
            return Submitted::Busy;
        }
        let work = match self.check(command) {
            Checked::Needs(work) => work,
            Checked::Answered(result) => {
                self.queues.cancel(queue);
                return Submitted::Done(result);
            }
        };
        if inline == Inline::No
            && matches!(work, Work::Read)
            && self.bandwidth.is_none()
            && self.ledger.medium().is_sound()
            && let Some(result) = self.read_at_once(command)
        {
            self.queues.cancel(queue);
            return Submitted::Done(result);
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let context_taken = context.take().expect("a submitted command comes with its context");
        let due = self.bandwidth.as_ref().map_or(Nanos(0), |bandwidth| bandwidth.transfer(now, command));
        let answer = Answer { ticket, queue, due, context: context_taken, fua: command.fua };
        let job = Job { work, command: *command, answer };
        match inline {
            Inline::No => {
                self.jobs.add(job);
                Submitted::Accepted
            }
            Inline::Yes => self.submit_inline(job, ticket, context),
        }
    }

    fn submit_inline(&self, job: Job, ticket: u64, context: &mut Option<Context>) -> Submitted {
        let mut mine = None;
        self.execute(job, |ended| {
            if ended.ticket == ticket && self.bandwidth.is_none() {
                mine = Some(ended);
            } else {
                self.complete(ended);
            }
        });
        match mine {
            Some(ended) => {
                self.queues.cancel(ended.queue);
                *context = Some(ended.context);
                Submitted::Done(ended.result)
            }
            // Another thread's write precedes it in the zone; the thread that ends that write
            // completes this one as well. Or its data takes time.
            None => Submitted::Accepted,
        }
    }

    /// Executes commands that need no file, and assigns writes their place.
    fn check(&self, command: &Command) -> Checked {
        let checked = match command.op {
            Op::Report => Err(self.report(command)),
            Op::Read => self.check_read(command).map_err(Err),
            Op::Flush => self.check_alive().map(|()| Work::Flush).map_err(Err),
            Op::Write | Op::WriteZeroes => self.place_write(command).map_err(Err),
            Op::Append => self.place_append(command).map_err(Err),
            Op::Verify => self.check_verify(command).map_err(Err),
            Op::Discard => self.check_discard(command).map_err(Err),
            Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose | Op::ZoneOffline => {
                Err(self.manage(command).map(|()| Output::Done))
            }
            Op::ResetAll => Err(self.reset_all().map(|()| Output::Done)),
        };
        match checked {
            Ok(work) => Checked::Needs(work),
            Err(result) => Checked::Answered(result),
        }
    }

    fn check_alive(&self) -> Result<(), DeviceError> {
        self.ledger.failure().map_or(Ok(()), |failure| Err(DeviceError::Os(failure.errno)))
    }

    fn check_read(&self, command: &Command) -> Result<Work, DeviceError> {
        let (zone, offset) = check::locate_read(&self.info, command, Payload::Needed)?;
        self.zones.state(zone).readable(offset, command.sectors)?;
        check::fits_zone(self.geometry(), zone, offset, command.sectors)?;
        Ok(Work::Read)
    }

    fn check_verify(&self, command: &Command) -> Result<Work, DeviceError> {
        let (zone, offset) = check::locate_verify(&self.info, command)?;
        self.zones.state(zone).readable(offset, command.sectors)?;
        check::fits_zone(self.geometry(), zone, offset, command.sectors)?;
        Ok(Work::Verify)
    }

    fn check_discard(&self, command: &Command) -> Result<Work, DeviceError> {
        check::locate_discard(&self.info, command)?;
        self.check_alive()?;
        Ok(Work::Conventional)
    }

    fn place_write(&self, command: &Command) -> Result<Work, DeviceError> {
        let (zone, offset) = check::locate_write(&self.info, command, Payload::Needed)?;
        self.check_alive()?;
        if self.geometry().is_conventional(zone) {
            check::fits_zone(self.geometry(), zone, offset, command.sectors)?;
            return Ok(Work::Conventional);
        }
        let kind = check::write_kind(&self.info);
        self.place(kind, (zone, offset), command.sectors)
    }

    fn place_append(&self, command: &Command) -> Result<Work, DeviceError> {
        let zone = check::locate_append(&self.info, command, Payload::Needed)?;
        self.check_alive()?;
        self.place(WriteKind::Append, (zone, 0), command.sectors)
    }

    fn place(&self, kind: WriteKind, at: (ZoneIndex, u32), sectors: u32) -> Result<Work, DeviceError> {
        let good = |placed: &Placed| self.ledger.medium().good_part(self.sector_of(placed).0, sectors);
        Ok(Work::Sequential(self.flights.begin(&self.zones, kind, at, sectors, good)?))
    }

    fn manage(&self, command: &Command) -> Result<(), DeviceError> {
        let (zone, action) = check::locate_action(&self.info, command)?;
        self.check_alive()?;
        self.change_zone(zone, action.event())?;
        Ok(())
    }

    /// Applies `event` to `zone`. Returns true if the zone has changed.
    fn change_zone(&self, zone: ZoneIndex, event: ZoneEvent) -> Result<bool, DeviceError> {
        self.ledger.begin_change().map_err(|f| DeviceError::Os(f.errno))?;
        let losing = |written| self.ledger.resetting(zone, written);
        let note = |state| self.noted(self.ledger.current().changed(zone, self.restarted(zone, state)));
        let has_changed = self.flights.happen(&self.zones, zone, event, losing, note)?;
        self.ledger.changed(zone);
        Ok(has_changed)
    }

    /// Implements [`crate::device::Device::set_zone`].
    pub(super) fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        if zone.0 >= self.geometry().zones() {
            return Err(DeviceError::OutOfRange);
        }
        self.check_alive()?;
        if self.change_zone(zone, to.event())? {
            self.notices.note(|changes| changes.add_zone(zone));
            self.queues.wakeups().ring_all();
        }
        Ok(())
    }

    /// Implements [`crate::device::Device::badblocks`].
    pub(super) fn badblocks(&self, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        if change.is_none() {
            return self.ledger.medium().change(change);
        }
        self.check_alive()?;
        let bad = self.ledger.medium().change(change)?;
        self.ledger.keep_bad_blocks().map_err(|failure| DeviceError::Os(failure.errno))?;
        Ok(bad)
    }

    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    fn reset_all(&self) -> Result<(), DeviceError> {
        self.check_alive()?;
        for zone in (self.geometry().conventional_zones()..self.geometry().zones()).map(ZoneIndex) {
            if ZoneAction::Reset.selects(self.zones.state(zone).condition) {
                match self.change_zone(zone, ZoneEvent::Reset) {
                    // It became read-only or offline meanwhile; such zones are skipped.
                    Ok(_) | Err(DeviceError::Zone(_)) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    fn report(&self, command: &Command) -> CommandResult {
        self.zones.report(command.sector, command.sectors).map(Output::Zones)
    }
}

/// Execution.
impl Engine {
    pub(super) fn jobs(&self) -> &Jobs<Job> {
        &self.jobs
    }

    /// Executes jobs until the end of work.
    pub(super) fn work(&self) {
        while let Some(job) = self.jobs.next() {
            self.execute(job, |ended| self.complete(ended));
        }
    }

    fn execute(&self, job: Job, mut done: impl FnMut(Ended)) {
        let Job { work, command, answer } = job;
        let result = match work {
            Work::Sequential(placed) => return self.write_sequential(placed, &command, answer, done),
            Work::Conventional => self.write_conventional(&command),
            Work::Read => self.read(&command),
            Work::Verify => self.verify(&command),
            Work::Flush => self.flush(),
        };
        done(answer.with(result.map(|()| Output::Done)));
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.ahead.flushed();
        self.ledger.flush(&|zone| self.durable_state(zone)).map_err(|f| DeviceError::Os(f.errno))
    }

    fn write_conventional(&self, command: &Command) -> Result<(), DeviceError> {
        // A discard frees blocks, and touches no medium.
        let good = match command.op {
            Op::Discard => command.sectors,
            _ => self.ledger.medium().good_part(command.sector.0, command.sectors),
        };
        if good > 0 {
            self.transfer_first(good, command, command.sector)?;
        }
        if good < command.sectors {
            return Err(DeviceError::Medium);
        }
        if command.fua { self.flush() } else { Ok(()) }
    }

    fn write_sequential(
        &self,
        placed: Placed,
        command: &Command,
        answer: Answer,
        mut done: impl FnMut(Ended),
    ) {
        let result = match self.flights.start(&placed) {
            Start::Transfer => self.transfer_placed(&placed, command),
            // As if written before the reset.
            Start::Stale => Ok(()),
        };
        // The rest of it begins with a bad block.
        let is_cut = placed.sectors < command.sectors;
        let failed = FailedTransfer { arrived: placed.sectors, error: DeviceError::Medium };
        let result = result.and(if is_cut { Err(failed) } else { Ok(()) });
        let note =
            |state| self.noted(self.ledger.current().wrote(placed.zone, self.restarted(placed.zone, state)));
        let ended = self.flights.end(&self.zones, &placed, answer, result, note);
        self.ledger.changed(placed.zone);
        let mut durable = None;
        for write in ended {
            let result = write.result.and_then(|()| match write.answer.fua {
                true => *durable.get_or_insert_with(|| self.flush()),
                false => Ok(()),
            });
            let output = match write.placed.kind {
                WriteKind::Append => Output::Appended(self.sector_of(&write.placed)),
                WriteKind::Exclusive | WriteKind::Pipelined => Output::Done,
            };
            done(write.answer.with(result.map(|()| output)));
        }
    }

    fn sector_of(&self, placed: &Placed) -> Sector {
        self.geometry().start_of(placed.zone) + Sectors(u64::from(placed.offset))
    }

    /// Moves the payload of a write in a sequential zone to the file, as far as it has a place.
    fn transfer_placed(&self, placed: &Placed, command: &Command) -> Result<(), FailedTransfer> {
        if placed.sectors == 0 {
            return Ok(());
        }
        self.ledger
            .begin_change()
            .and_then(|()| {
                self.ledger.before_write(placed.zone, placed.offset, &|zone| self.durable_state(zone))
            })
            .map_err(|f| DeviceError::Os(f.errno))?;
        let to = self.sector_of(placed);
        let transfer = || self.transfer_first(placed.sectors, command, to);
        self.ahead.transfer(placed.zone, transfer).inspect_err(|_| {
            // If another write has a place behind it, a hole remains. It must not show data from
            // before the last reset, as far as the file can still be changed.
            let _ = self.backing.zero(self.layout.data(to), u64::from(placed.sectors) * SECTOR_BYTES);
        })?;
        self.write_ahead(placed);
        Ok(())
    }

    /// Preallocates blocks of the file behind `placed` if this is worthwhile.
    fn write_ahead(&self, placed: &Placed) {
        let (zone, end) = (placed.zone, placed.offset + placed.sectors);
        let is_last = || self.zones.state(zone).written == end && !self.ledger.promises(zone, end);
        self.ahead.wrote(placed, self.geometry().capacity_of(zone), is_last, |zeroes| {
            // A full file system does not fail this write.
            let at = self.sector_of(placed) + Sectors(u64::from(placed.sectors));
            let _ = self.backing.write_at(zeroes, self.layout.data(at));
        });
    }

    fn transfer_first(&self, sectors: u32, command: &Command, to: Sector) -> Result<(), DeviceError> {
        match sectors == command.sectors {
            true => self.transfer_good(command, to),
            false => command.run_first(sectors, |first| self.transfer_good(first, to)),
        }
    }

    fn transfer_good(&self, command: &Command, to: Sector) -> Result<(), DeviceError> {
        match command.landing {
            Landing::InPlace => {}
            Landing::Lost => return Ok(()),
            Landing::Misdirected(draw) => return self.misdirect(command, to, draw),
        }
        let at = self.layout.data(to);
        let mut result = self.move_in(command, at);
        // Free the blocks kept by reset zones, then try again.
        if is_full(&result) && self.ledger.give_back(&|zone| self.zones.state(zone).written) {
            result = self.move_in(command, at);
        }
        // Also after a failure: the readable part must not change once a flush has completed.
        self.ledger.wrote_data();
        result.map_err(|e| DeviceError::Os(errno(&e)))
    }

    /// Writes the payload of the write `own` over other data.
    #[cold]
    fn misdirect(&self, command: &Command, own: Sector, draw: u8) -> Result<(), DeviceError> {
        let (geometry, sectors) = (self.geometry(), command.sectors);
        let own =
            Extent { zone: geometry.zone_of(own), offset: geometry.offset_of(own), sectors, generation: 0 };
        let end_of =
            |zone| self.flights.state(&self.zones, zone).readable(0, geometry.capacity_of(zone)).unwrap_or(0);
        let Some((zone, offset)) = elsewhere(&self.info, own, draw, end_of) else { return Ok(()) };
        let at = self.layout.data(geometry.start_of(zone) + Sectors(offset.into()));
        let bytes = command.bytes();
        let write = || {
            self.flights.with_state(&self.zones, zone, |state| match state.readable(offset, sectors) {
                Ok(found) if found == sectors => self.backing.write_at(&bytes, at),
                // Reset meanwhile.
                _ => Ok(()),
            })
        };
        match geometry.is_conventional(zone) {
            true => write().map_err(|e| DeviceError::Os(errno(&e))),
            false => self
                .ledger
                .overwrite(zone, &|zone| self.durable_state(zone), write)
                .map_err(|f| DeviceError::Os(f.errno)),
        }
    }

    fn move_in(&self, command: &Command, at: u64) -> io::Result<()> {
        match command.op {
            Op::WriteZeroes | Op::Discard => self.backing.zero(at, u64::from(command.sectors) * SECTOR_BYTES),
            _ => command.data.with_slices(|pieces| match pieces {
                [piece] => self.backing.write_at(piece, at),
                pieces => self.backing.write_vectored_at(pieces, at),
            }),
        }
    }

    /// Number of bytes that `command` reads from the file; the rest reads as zeroes.
    fn bytes_in_file(&self, command: &Command) -> Result<usize, DeviceError> {
        let (zone, offset) =
            (self.geometry().zone_of(command.sector), self.geometry().offset_of(command.sector));
        let state = self.flights.state(&self.zones, zone);
        Ok(state.readable(offset, command.sectors)? as usize * SECTOR_BYTES as usize)
    }

    fn verify(&self, command: &Command) -> Result<(), DeviceError> {
        let start = self.layout.data(command.sector);
        let end = start + self.bytes_in_file(command)? as u64;
        if self.ledger.medium().good_part(command.sector.0, command.sectors) < command.sectors {
            return Err(DeviceError::Medium);
        }
        let mut piece = [0; VERIFY_BYTES];
        for at in (start..end).step_by(VERIFY_BYTES) {
            let n = (end - at).min(VERIFY_BYTES as u64) as usize;
            self.backing.read_at(&mut piece[..n], at).map_err(|e| DeviceError::Os(errno(&e)))?;
        }
        Ok(())
    }

    fn read(&self, command: &Command) -> Result<(), DeviceError> {
        let mut result = Ok(());
        self.read_pieces(command, |piece, at| {
            result = self.backing.read_at(piece, at);
            result.is_ok()
        })?;
        result.map_err(|e| DeviceError::Os(errno(&e)))
    }

    /// Reads data from the host's page cache in the submitting thread, because waking a helper
    /// thread costs more than copying a few pages. Returns `None` if the data is not cached, or if
    /// the read is long and would keep the submitter from other work.
    fn read_at_once(&self, command: &Command) -> Option<CommandResult> {
        if command.sectors > AT_ONCE_SECTORS_MAX {
            return None;
        }
        match self.read_pieces(command, |piece, at| self.backing.read_at_once(piece, at)) {
            Ok(true) => Some(Ok(Output::Done)),
            Ok(false) => None,
            Err(e) => Some(Err(e)),
        }
    }

    /// Fills the command's segments with `read` until it fails. Returns true if it never failed.
    fn read_pieces(
        &self,
        command: &Command,
        mut read: impl FnMut(&mut [u8], u64) -> bool,
    ) -> Result<bool, DeviceError> {
        let good = self.ledger.medium().good_part(command.sector.0, command.sectors);
        let from_file = self.bytes_in_file(command)?.min(good as usize * SECTOR_BYTES as usize);
        let start = self.layout.data(command.sector);
        let mut is_read = true;
        command.data.for_each_mut(|at, piece| {
            let n = from_file.saturating_sub(at).min(piece.len());
            is_read = is_read && (n == 0 || read(&mut piece[..n], start + at as u64));
            piece[n..].fill(0);
        });
        if good < command.sectors {
            return Err(DeviceError::Medium);
        }
        Ok(is_read)
    }
}

/// True if the host's file system is full or this user's quota is exhausted.
fn is_full(result: &io::Result<()>) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    result.as_ref().is_err_and(|e| matches!(e.kind(), StorageFull | QuotaExceeded))
}

/// Completion.
impl Engine {
    fn complete(&self, ended: Ended) {
        let executed = Executed { result: ended.result, held: None };
        self.queues.add(ended.due, ended.queue, ended.context, executed);
    }

    pub(super) fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        self.queues.poll(now, queue, budget, |_| unreachable!("places are given up when writes arrive"), done)
    }

    pub(super) fn contention(&self) -> Contention {
        self.zones.contention() + Contention { waits: self.queues.waits(), retries: 0 }
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl Answer {
    fn with(self, result: CommandResult) -> Ended {
        Ended { ticket: self.ticket, queue: self.queue, due: self.due, context: self.context, result }
    }
}
