//! Block device as a drive.
//!
//! Reads and writes go to the kernel asynchronously: they are collected, and leave in one system
//! call with the next poll or [`commit`](Device::commit). Calls that block (reports, zone
//! management, flushes) are left to helper threads.
//!
//! # Failed writes
//! A helper thread reports the zone of a failed write before the write completes. Only then does
//! the kernel accept another write of the zone, and the host that asks for the zone finds its true
//! write pointer. If the kernel's own pointer is stale, it is set right: see [`stale`].
//!
//! # Errors
//! See [`errors`]. A command that the kernel has is never given up: the kernel may access its memory
//! until it ends.

use crate::errors::{self, Seen};
use crate::ioctl::condition::{CLOSED, EMPTY, FULL, OFFLINE, READ_ONLY};
use crate::ioctl::{self, Action, Source};
use crate::queue::{Queue, Returned, Slot};
use crate::say;
use crate::stale::{self, HealError, KernelTable, Stale};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Nanos, Op, Personality, Sector, ZoneError, ZoneIndex};
use zonal_io::changes::{Changes, Notices};
use zonal_io::device::{
    Command, CommandResult, Completed, Context, Device, DeviceInfo, Insight, Output, Submitted, Wakeups,
};
use zonal_io::emulated::check::{self, Payload};
use zonal_io::helpers::Jobs;
use zonal_io::threads;

/// Number of helper threads. A finish of a large zone takes a second, and others must not wait for
/// it.
const HELPERS: usize = 4;

/// Time without any completion after which a queue is reported to stand still.
const STANDSTILL: Duration = Duration::from_secs(30);

/// Delay after which a submission that the kernel had no room for is tried again, in nanoseconds.
const RETRY: u64 = 1_000_000;

/// Failures at the drive's own pointer after which the kernel's pointer is looked at. The first one
/// makes the kernel ask the drive, which mends everything but a stale pointer.
const REFUSALS_MAX: u32 = 2;

/// Error of a change of a zone in this condition, if it is worn.
fn worn(condition: u8) -> Option<DeviceError> {
    match condition {
        READ_ONLY => Some(ZoneError::ReadOnly.into()),
        OFFLINE => Some(ZoneError::Offline.into()),
        _ => None,
    }
}

/// An open block device.
pub struct BlockDevice {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Files that keep others from opening the device.
    _locks: Vec<File>,
}

/// State shared with the helper threads.
struct Shared {
    info: DeviceInfo,
    /// Kernel name, for messages.
    name: String,
    /// Directory of the device in `sysfs`.
    directory: PathBuf,
    file: File,
    /// Unit of writes in bytes.
    write_unit: u32,
    table: KernelTable,
    queues: Box<[Place]>,
    depth: usize,
    jobs: Jobs<Job>,
    /// Messages of threads that hold the lock of a queue, for a thread of their own: standard error may
    /// take them late, and helpers may all wait for the kernel.
    messages: Arc<Jobs<String>>,
    wakeups: Wakeups,
    notices: Notices,
    is_gone: AtomicBool,
    /// Zones whose pointer is being set right, by their first sector: their writes have to wait.
    healing: Mutex<Vec<u64>>,
    are_healing: AtomicUsize,
    /// Failures at the pointer that the drive had reported, by the zone's first sector.
    refusals: Mutex<HashMap<u64, (u64, u32)>>,
    healed: AtomicU64,
}

struct Place {
    state: Mutex<State>,
    /// Commands that were accepted and not handed out.
    held: AtomicUsize,
}

struct State {
    queue: Queue,
    /// The kernel had no room for all that was submitted.
    is_short_of_room: bool,
    /// First poll without a completion since the last one that had some. Not in the time of the caller,
    /// which stands still while a command is sent without a volume.
    still_since: Option<Instant>,
    stands_still: bool,
    /// Transfers that have just ended; empty between calls.
    returned: Vec<Returned>,
}

/// Work of a helper thread.
enum Job {
    /// A command that blocks.
    Command { queue: usize, command: Command, context: Context },
    /// A write that has failed, with its error.
    Failed { queue: usize, command: Command, context: Context, error: DeviceError },
}

/// What [`BlockDevice::start`] needs.
pub(crate) struct Parts {
    pub info: DeviceInfo,
    pub name: String,
    pub directory: PathBuf,
    pub file: File,
    pub locks: Vec<File>,
    pub write_unit: u32,
    pub table: KernelTable,
    pub queues: Vec<Queue>,
    pub depth: u32,
}

impl BlockDevice {
    pub(crate) fn start(parts: Parts) -> io::Result<BlockDevice> {
        let Parts { info, name, directory, file, locks, write_unit, table, queues, depth } = parts;
        let events = queues.iter().map(Queue::event).collect::<io::Result<Vec<_>>>()?;
        let place = |queue| Place {
            state: Mutex::new(State {
                queue,
                is_short_of_room: false,
                still_since: None,
                stands_still: false,
                returned: Vec::new(),
            }),
            held: AtomicUsize::new(0),
        };
        let shared = Arc::new(Shared {
            info,
            name,
            directory,
            file,
            write_unit,
            table,
            queues: queues.into_iter().map(place).collect(),
            depth: depth as usize,
            jobs: Jobs::default(),
            messages: Arc::default(),
            wakeups: Wakeups::watching(events),
            notices: Notices::default(),
            is_gone: AtomicBool::new(false),
            healing: Mutex::default(),
            are_healing: AtomicUsize::new(0),
            refusals: Mutex::default(),
            healed: AtomicU64::new(0),
        });
        let (name, messages) = (shared.info.name.clone(), shared.messages.clone());
        // Nobody waits for its end.
        drop(threads::spawn("zonal-blk-say", move || {
            while let Some(text) = messages.next() {
                say(&name, text);
            }
        })?);
        let mut device = BlockDevice { shared, helpers: Vec::new(), _locks: locks };
        for n in 0..HELPERS {
            let shared = device.shared.clone();
            device.helpers.push(threads::spawn(&format!("zonal-blk-{n}"), move || shared.help())?);
        }
        Ok(device)
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        self.shared.jobs.end();
        self.shared.messages.end();
        for helper in self.helpers.drain(..) {
            // A helper that panicked has printed its message.
            let _ = helper.join();
        }
        self.shared.queues.iter().for_each(|place| place.state.lock().queue.drain());
    }
}

/// Checks before the kernel is asked.
impl Shared {
    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Marks the device as gone.
    fn lose(&self) {
        if !self.is_gone.swap(true, Ordering::AcqRel) {
            self.messages.add("the drive is gone".into());
            self.notices.note(|changes| changes.gone = true);
            self.wakeups.ring_all();
        }
    }

    /// Result of a command that needs no kernel.
    fn refuse(&self, command: &Command) -> Option<CommandResult> {
        if self.is_gone() {
            return Some(Err(DeviceError::Gone));
        }
        if let Some(result) = self.info.answer_to_reader(command.op) {
            return Some(result);
        }
        self.check(command).err().map(Err)
    }

    /// Refuses what the kernel would fail with an error that means something else.
    fn check(&self, command: &Command) -> Result<(), DeviceError> {
        let geometry = &self.info.geometry;
        match command.op {
            Op::Read => {
                let (zone, offset) = check::locate_read(&self.info, command, Payload::Needed)?;
                Ok(check::fits_zone(geometry, zone, offset, command.sectors)?)
            }
            Op::Write => {
                let (zone, offset) = check::locate_write(&self.info, command, Payload::Needed)?;
                // The kernel may split a write that is too long, and write its beginning.
                match offset.saturating_add(command.sectors) <= geometry.capacity_of(zone) {
                    true => Ok(()),
                    false => Err(ZoneError::Boundary.into()),
                }
            }
            Op::Report if command.sector.0 >= geometry.sectors().0 => Err(DeviceError::OutOfRange),
            Op::ZoneReset | Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish => {
                let (zone, _) = check::locate_action(&self.info, command)?;
                match geometry.is_conventional(zone) {
                    true => Err(ZoneError::Conventional.into()),
                    false => Ok(()),
                }
            }
            Op::Report | Op::Flush | Op::ResetAll => Ok(()),
            Op::Append | Op::WriteZeroes | Op::Verify | Op::Discard | Op::ZoneOffline => {
                Err(DeviceError::Unsupported)
            }
        }
    }

    fn is_healing(&self, sector: Sector) -> bool {
        self.are_healing.load(Ordering::Acquire) > 0 && self.healing.lock().contains(&self.zone_start(sector))
    }

    fn zone_start(&self, sector: Sector) -> u64 {
        self.info.geometry.start_of(self.info.geometry.zone_of(sector)).0
    }

    /// Error of a command, after the size was asked for if it may be gone.
    fn error_of(&self, op: Op, seen: Seen) -> DeviceError {
        let size = errors::may_be_gone(op, seen).then(|| ioctl::size(&self.file).ok()).flatten();
        let error = errors::device_error(op, seen, size);
        if error == DeviceError::Gone {
            self.lose();
        }
        error
    }
}

/// Transfers.
impl Shared {
    /// Submits what waits and takes what has ended.
    fn advance(&self, number: usize, state: &mut State) {
        self.commit(number, state);
        let mut returned = std::mem::take(&mut state.returned);
        state.queue.reap(self.wakeups.has_sleepers(), |one| returned.push(one));
        returned.drain(..).for_each(|one| self.returned(number, state, one));
        state.returned = returned;
    }

    fn commit(&self, number: usize, state: &mut State) {
        let mut refused = Vec::new();
        state.is_short_of_room = !state.queue.commit(|one| refused.push(one));
        refused.into_iter().for_each(|one| self.returned(number, state, one));
    }

    fn returned(&self, number: usize, state: &mut State, returned: Returned) {
        let Returned { slot, was_sent, result } = returned;
        let wanted = slot.bytes();
        let seen = match result {
            Ok(bytes) if bytes == wanted => {
                slot.deliver();
                let Slot { context, .. } = slot;
                state.queue.ready.push_back(Completed { context, result: Ok(Output::Done) });
                return;
            }
            Ok(_) => Seen::Short,
            Err(number) => Seen::Failed(number),
        };
        let Slot { command, context, .. } = slot;
        let mut error = self.error_of(command.op, seen);
        if command.op == Op::Write && was_sent {
            error = errors::of_sent_write(error, seen);
        }
        let zone = self.info.geometry.zone_of(command.sector);
        let is_sequential = !self.info.geometry.is_conventional(zone);
        if command.op == Op::Write && is_sequential && was_sent && error != DeviceError::Gone {
            self.jobs.add(Job::Failed { queue: number, command, context, error });
        } else {
            state.queue.ready.push_back(Completed { context, result: Err(error) });
        }
    }

    /// Says once if a queue with commands has had no completion for a long time.
    fn watch(&self, number: usize, state: &mut State, has_moved: bool) {
        if has_moved || state.queue.in_flight() == 0 {
            if std::mem::take(&mut state.stands_still) {
                self.messages.add(format!("queue {number} moves again"));
            }
            state.still_since = None;
            return;
        }
        let since = *state.still_since.get_or_insert_with(Instant::now);
        if !state.stands_still && since.elapsed() > STANDSTILL {
            state.stands_still = true;
            let (waiting, name) = (state.queue.in_flight(), &self.name);
            let text = format!(
                "queue {number} waits for the kernel (commands: {waiting}), with no answer for 30 s; its messages about {name} may tell why: dmesg"
            );
            self.messages.add(text);
        }
    }
}

/// Blocking calls.
impl Shared {
    fn help(&self) {
        while let Some(job) = self.jobs.next() {
            let (queue, context, result) = match job {
                Job::Command { queue, command, context } => (queue, context, self.run(&command)),
                Job::Failed { queue, command, context, error } => {
                    (queue, context, Err(self.look_after(&command, error)))
                }
            };
            let mut state = self.queues[queue].state.lock();
            state.queue.ready.push_back(Completed { context, result });
            drop(state);
            self.wakeups.ring(queue);
        }
    }

    fn run(&self, command: &Command) -> CommandResult {
        let done = |result: io::Result<()>| match result {
            Ok(()) => Ok(Output::Done),
            Err(error) => Err(self.error_of(command.op, Seen::Failed(ioctl::errno(&error)))),
        };
        let manage = |action| {
            let size = self.info.geometry.size_of(self.info.geometry.zone_of(command.sector));
            match ioctl::manage(&self.file, action, command.sector.0, size.into()) {
                Ok(()) => Ok(Output::Done),
                Err(error) => self.explained(command, &error),
            }
        };
        match command.op {
            Op::Report => self.report(command),
            Op::Flush => done(self.file.sync_data()),
            Op::ZoneReset => manage(Action::Reset),
            Op::ZoneOpen => manage(Action::Open),
            Op::ZoneClose => manage(Action::Close),
            Op::ZoneFinish => manage(Action::Finish),
            Op::ResetAll => done(self.reset_all()),
            _ => Err(DeviceError::Unsupported),
        }
    }

    /// Result of a failed zone operation, by the zone's condition: the kernel has one error for all. There may
    /// also be nothing to do, which is no error by the rules of ZBC, and null_blk refuses it all the same.
    fn explained(&self, command: &Command, error: &io::Error) -> CommandResult {
        let zones = ioctl::report(&self.file, command.sector.0, 1, Source::Drive);
        let condition = zones.ok().and_then(|zones| Some(zones.first()?.condition)).unwrap_or_default();
        match (self.info.personality, command.op, condition) {
            (Personality::Zbc, Op::ZoneOpen, FULL)
            | (Personality::Zbc, Op::ZoneClose, EMPTY | CLOSED | FULL) => Ok(Output::Done),
            _ => Err(worn(condition)
                .unwrap_or_else(|| self.error_of(command.op, Seen::Failed(ioctl::errno(error))))),
        }
    }

    fn report(&self, command: &Command) -> CommandResult {
        let geometry = &self.info.geometry;
        let mut zones = Vec::new();
        let mut sector = self.zone_start(command.sector);
        while zones.len() < command.sectors as usize && sector < geometry.sectors().0 {
            let left = command.sectors as usize - zones.len();
            let some = ioctl::report(&self.file, sector, left, Source::Drive)
                .map_err(|error| self.error_of(Op::Report, Seen::Failed(ioctl::errno(&error))))?;
            if some.is_empty() {
                return Err(self.error_of(Op::Report, Seen::Short));
            }
            for zone in some {
                sector = zone.start + zone.sectors;
                zones.push(zone.descriptor(geometry).ok_or(DeviceError::InvalidField)?);
            }
        }
        Ok(Output::Zones(zones.into()))
    }

    /// Resets the sequential zones that are neither empty nor failed.
    fn reset_all(&self) -> io::Result<()> {
        let sectors = self.info.geometry.sectors().0;
        for zone in stale::report_all(&self.file, sectors, Source::Drive)? {
            // Open ones are 2 and 3.
            if zone.kind == 2 && matches!(zone.condition, 2..=CLOSED | FULL) {
                ioctl::manage(&self.file, Action::Reset, zone.start, zone.sectors)?;
            }
        }
        Ok(())
    }

    /// Reports the zone of a failed write, so that the kernel learns the drive's pointer, and sets
    /// the kernel's right if it is stale. Returns the error of the write.
    fn look_after(&self, write: &Command, error: DeviceError) -> DeviceError {
        let start = self.zone_start(write.sector);
        let zone = match ioctl::report(&self.file, start, 1, Source::Drive) {
            Ok(zones) if !zones.is_empty() => zones[0],
            Ok(_) => return self.error_of(Op::Report, Seen::Short),
            Err(failed) => {
                let seen = Seen::Failed(ioctl::errno(&failed));
                return match self.error_of(Op::Report, seen) {
                    DeviceError::Gone => DeviceError::Gone,
                    _ => error,
                };
            }
        };
        // Only a write at the drive's own pointer is refused because of the kernel's, and not for lack of
        // open or active zones.
        let is_refusal = !matches!(error, DeviceError::Zone(_));
        if !is_refusal
            || zone.written() != Some(write.sector.0 - start)
            || !matches!(zone.condition, EMPTY..=CLOSED)
        {
            self.refusals.lock().remove(&start);
            return error;
        }
        let refusals = {
            let mut refusals = self.refusals.lock();
            let known = refusals.entry(start).or_insert((write.sector.0, 0));
            *known = if known.0 == write.sector.0 { (known.0, known.1 + 1) } else { (write.sector.0, 1) };
            known.1
        };
        if refusals < REFUSALS_MAX {
            return error;
        }
        if let KernelTable::Hidden(_) = self.table {
            let text = format_args!(
                "the zone at sector {start} has refused {refusals} writes at its own write pointer, sector {}. \
                 Either the medium is bad there, or the kernel's write pointer is stale, which this kernel does not show; \
                 if writes succeed after the drive's driver was unbound and bound, it was stale",
                write.sector.0
            );
            say(&self.info.name, text);
        }
        let index = self.info.geometry.zone_of(write.sector).0;
        match self.table.stale_zone(&self.file, index, start) {
            Ok(Some(stale)) => self.heal(start, stale, error),
            _ => error,
        }
    }

    /// Sets the kernel's pointer of a zone right, while no other write of the zone is on its way.
    fn heal(&self, start: u64, stale: Stale, error: DeviceError) -> DeviceError {
        {
            let mut healing = self.healing.lock();
            if healing.contains(&start) {
                return error;
            }
            healing.push(start);
        }
        self.are_healing.fetch_add(1, Ordering::AcqRel);
        let others = self
            .queues
            .iter()
            .any(|place| place.state.lock().queue.writes(|sector| self.zone_start(sector) == start));
        let healed = match others {
            // Their completions come here, too.
            true => None,
            false => Some(stale::heal(
                &self.file,
                &self.table,
                &self.directory,
                self.info.geometry.zone_size().0,
                stale,
                self.write_unit,
            )),
        };
        self.healing.lock().retain(|other| *other != start);
        self.are_healing.fetch_sub(1, Ordering::AcqRel);
        // Writes of the zone that were refused as busy can be submitted again.
        self.wakeups.ring_all();
        match healed {
            None => error,
            Some(Ok(())) => {
                let healed = self.healed.fetch_add(1, Ordering::Relaxed) + 1;
                let text = format_args!(
                    "{stale}; the kernel has been told, {healed} times since the drive was opened"
                );
                say(&self.info.name, text);
                self.notices.note(|changes| changes.add_zone(ZoneIndex(stale.zone)));
                self.wakeups.ring_all();
                error
            }
            // Tried again after the next failure.
            Some(Err(HealError::Busy(_) | HealError::Moving(_))) => error,
            Some(Err(failed)) => {
                say(&self.info.name, failed);
                DeviceError::Stale
            }
        }
    }
}

impl Device for BlockDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn submit(
        &self,
        _now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let shared = &*self.shared;
        if let Some(result) = shared.refuse(command) {
            return Submitted::Done(result);
        }
        let Place { state, held } = &shared.queues[queue];
        let mut state = state.lock();
        // Under the lock that the healer takes to look for other writes of the zone.
        if command.op == Op::Write && shared.is_healing(command.sector) {
            return Submitted::Busy;
        }
        if held.load(Ordering::Relaxed) >= shared.depth || state.queue.is_full() {
            return Submitted::Busy;
        }
        let context = context.take().expect("a submitted command comes with its context");
        held.fetch_add(1, Ordering::Relaxed);
        if matches!(command.op, Op::Read | Op::Write) {
            state.queue.add(command, context);
        } else {
            drop(state);
            shared.jobs.add(Job::Command { queue, command: *command, context });
        }
        Submitted::Accepted
    }

    fn commit(&self, queue: usize) {
        let mut state = self.shared.queues[queue].state.lock();
        self.shared.commit(queue, &mut state);
        // What the kernel had no room for is submitted by a poll.
        let has_ended = !state.queue.ready.is_empty() || state.is_short_of_room;
        let is_busy = state.queue.in_flight() > 0;
        drop(state);
        match (has_ended, is_busy) {
            (true, _) => self.shared.wakeups.ring(queue),
            // The thread that commits may never poll, and others do not watch this queue's descriptor.
            (false, true) => self.shared.wakeups.ring_others(queue),
            (false, false) => {}
        }
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let shared = &*self.shared;
        let Place { state, held } = &shared.queues[queue];
        // The thread that holds the lock will finish soon, but may not see the completion that this
        // one waits for.
        let Some(mut state) = state.try_lock() else { return Some(now) };
        shared.advance(queue, &mut state);
        let taken = state.queue.ready.len().min(budget);
        shared.watch(queue, &mut state, taken > 0);
        state.queue.ready.drain(..taken).for_each(done);
        held.fetch_sub(taken, Ordering::Relaxed);
        if !state.queue.ready.is_empty() {
            return Some(now);
        }
        state.is_short_of_room.then(|| Nanos(now.0.saturating_add(RETRY)))
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.shared.queues[queue].held.load(Ordering::Relaxed) == 0
    }

    fn insight(&self) -> Insight {
        let copies = self.shared.queues.iter().map(|place| place.state.lock().queue.copies).sum();
        Insight { copies, ..Insight::default() }
    }

    fn has_changes(&self) -> bool {
        self.shared.notices.are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.shared.notices.take(into);
    }

    fn wakeups(&self) -> &Wakeups {
        &self.shared.wakeups
    }

    fn has_news(&self, queue: usize) -> bool {
        let mut state = self.shared.queues[queue].state.lock();
        self.shared.advance(queue, &mut state);
        !state.queue.ready.is_empty() || state.is_short_of_room
    }
}

impl std::fmt::Debug for BlockDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockDevice({:?}, {} queues)", self.shared.info.name, self.shared.queues.len())
    }
}
