//! A device controlled by a test, which checks every command that it receives.
//!
//! Every command stays pending until the test finishes it, in any order and with any [`Answer`],
//! unless the current [`Style`] completes it inline or rejects it as if the queue were full. The
//! zone states are implemented here, independently of the emulated devices, so that those and the
//! write path cannot share a mistake.
//!
//! # Checks
//! For the commands in flight to a sequential zone, from `submit` until `poll` has delivered the
//! completion:
//! - A positional write is alone, or, on a device that preserves order, with others of its queue.
//!   Appends are in flight with appends only. A reset or finish is alone.
//! - A positional write begins at the write pointer, or at the end of the write in flight before
//!   it. An append names the start of the zone.
//! - No command is larger than the device's limit, and none crosses the end of its zone.
//!
//! A violation panics immediately. [`Script::allow_together`] and [`Script::allow_misplaced`]
//! permit what would otherwise be violations, for a volume without plugs and for zones written
//! without the volume's knowledge.

mod zones;

use parking_lot::Mutex;
use std::collections::VecDeque;
use zonal_core::{
    DeviceError, Geometry, Nanos, Op, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex,
};
use zonal_io::changes::{Changes, Notices};
use zonal_io::device::{
    Command, CommandResult, Completed, Context, Device, DeviceInfo, Insight, Output, Settled, Submitted,
};
use zonal_io::news::Wakeups;
use zones::Zones;

/// Sectors of a zone of [`info`].
pub const ZONE: u64 = 64;
/// Writable sectors of such a zone.
pub const CAPACITY: u32 = 48;

/// A small device: one conventional and seven sequential zones of [`ZONE`] sectors, [`CAPACITY`] of
/// them writable; commands of at most 16 sectors, appends of 8; no volatile cache; its clock jumps
/// from one deadline to the next. Tests change it as they need.
pub fn info() -> DeviceInfo {
    let geometry = Geometry::new(Sectors(8 * ZONE), Sectors(ZONE), Sectors(CAPACITY.into()), 1)
        .expect("a geometry that fits");
    DeviceInfo {
        command_sectors_max: 16,
        label: None,
        memory_align: 1,
        append_sectors_max: 8,
        write_zeroes_sectors_max: 16,
        verify_sectors_max: 16,
        ..DeviceInfo::new("script", geometry)
    }
}

/// A command that the device accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Number in order of arrival, from 0.
    pub id: u64,
    /// Queue of its submission.
    pub queue: usize,
    /// Operation.
    pub op: Op,
    /// Zone of its first sector.
    pub zone: ZoneIndex,
    /// First sector, relative to the zone.
    pub offset: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// True for force unit access.
    pub fua: bool,
    /// True if the volume sent it by itself, after a failed write.
    pub resync: bool,
}

impl Seen {
    /// Operation, zone, offset and length, which most tests compare.
    pub fn brief(&self) -> (Op, u32, u32, u32) {
        (self.op, self.zone.0, self.offset, self.sectors)
    }
}

/// Outcome of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Executed by the rules of the zone.
    Obey,
    /// Not executed, with this error.
    Refuse(DeviceError),
    /// The first sectors are written, as many as given, with this error.
    Torn(u32, DeviceError),
    /// Not executed, with this reply.
    Reply(CommandResult),
    /// Not executed yet, with a time-out. The command is executed by [`Script::execute_late`], or
    /// when the device settles it.
    Late,
}

/// Handling of a command at submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Style {
    /// It stays pending.
    Later,
    /// It completes in `submit`.
    Now(Answer),
    /// The queue is full.
    Busy,
}

/// The scripted device. See the module.
pub struct Script {
    info: DeviceInfo,
    wakeups: Wakeups,
    notices: Notices,
    state: Mutex<ScriptState>,
}

type Chooser = Box<dyn FnMut(&Seen) -> Style + Send>;

struct ScriptState {
    zones: Zones,
    flights: Vec<CommandInFlight>,
    log: Vec<Seen>,
    done: Vec<VecDeque<Done>>,
    style: Chooser,
    depth: usize,
    /// Number of commands rejected because of a full queue.
    busy: u64,
    allow_together: bool,
    allow_misplaced: bool,
    settled: Settled,
    /// Number of times the volume asked to settle commands.
    settles: u64,
}

struct CommandInFlight {
    seen: Seen,
    /// The command with its context, until it is finished.
    pending: Option<(Command, Context)>,
}

struct Done {
    id: u64,
    completed: Completed,
}

impl Script {
    /// A device of empty zones that leaves all commands pending.
    pub fn new(info: DeviceInfo) -> Script {
        let state = ScriptState {
            zones: Zones::new(info.geometry),
            flights: Vec::new(),
            log: Vec::new(),
            done: std::iter::repeat_with(VecDeque::new).take(info.queues).collect(),
            style: Box::new(|_| Style::Later),
            depth: usize::MAX,
            busy: 0,
            allow_together: false,
            allow_misplaced: false,
            settled: Settled::Yes,
            settles: 0,
        };
        Script {
            wakeups: Wakeups::new(info.queues),
            notices: Notices::default(),
            info,
            state: Mutex::new(state),
        }
    }

    /// Sets the handling of commands from now on, including resyncs.
    pub fn style(&self, choose: impl FnMut(&Seen) -> Style + Send + 'static) {
        self.state.lock().style = Box::new(choose);
    }

    /// Limits the commands in flight; beyond that, the queues are full.
    pub fn depth(&self, depth: usize) {
        self.state.lock().depth = depth;
    }

    /// Allows commands of a zone to be in flight together.
    pub fn allow_together(&self) {
        self.state.lock().allow_together = true;
    }

    /// Allows a positional write anywhere, so that the rules of the zone refuse it.
    pub fn allow_misplaced(&self) {
        self.state.lock().allow_misplaced = true;
    }

    /// Sets the answer when the volume asks to settle timed-out commands. With [`Settled::Yes`],
    /// late ones are executed at that point.
    pub fn settle_with(&self, settled: Settled) {
        self.state.lock().settled = settled;
    }

    /// Number of times the volume asked to settle commands.
    pub fn settles(&self) -> u64 {
        self.state.lock().settles
    }

    /// Executes the commands that were answered late, ignoring their results. Returns the number
    /// that were not refused.
    pub fn execute_late(&self) -> usize {
        self.state.lock().zones.execute_late(None)
    }

    /// Drops the commands that were answered late, so that they are never executed.
    pub fn forget_late(&self) {
        self.state.lock().zones.forget_late();
    }

    /// Unfinished commands in order of arrival.
    pub fn pending(&self) -> Vec<Seen> {
        let state = self.state.lock();
        state.flights.iter().filter(|f| f.pending.is_some()).map(|f| f.seen.clone()).collect()
    }

    /// All accepted commands in order of arrival.
    pub fn log(&self) -> Vec<Seen> {
        self.state.lock().log.clone()
    }

    /// Number of commands rejected because of a full queue.
    pub fn turned_away(&self) -> u64 {
        self.state.lock().busy
    }

    /// Finishes a pending command; the next poll of its queue delivers the completion.
    ///
    /// # Panics
    /// If no such command is pending.
    pub fn finish(&self, id: u64, answer: Answer) {
        let mut state = self.state.lock();
        let ScriptState { zones, flights, done, .. } = &mut *state;
        let flight = flights.iter_mut().find(|f| f.seen.id == id).expect("the command is in flight");
        let (command, context) = flight.pending.take().expect("the command is pending");
        let result = zones.execute(&command, answer);
        done[flight.seen.queue].push_back(Done { id, completed: Completed { context, result } });
    }

    /// Condition and write pointer of a zone, as the device would report them.
    pub fn zone(&self, zone: u32) -> (ZoneCondition, u32) {
        self.state.lock().zones.state(ZoneIndex(zone))
    }

    /// Sets the state of a zone, as another initiator or a worn medium would.
    pub fn set_zone(&self, zone: u32, condition: ZoneCondition, pointer: u32) {
        self.state.lock().zones.set(ZoneIndex(zone), condition, pointer);
    }

    /// Notifies the host of changes that none of its commands made.
    pub fn notice(&self, change: impl FnOnce(&mut Changes)) {
        self.notices.note(change);
        self.wakeups.ring_all();
    }

    /// Bytes from `sector` on; zeroes beyond the write pointer.
    pub fn bytes(&self, sector: Sector, sectors: u32) -> Vec<u8> {
        self.state.lock().zones.bytes(sector, sectors)
    }

    /// Descriptor of a zone, as the device would report it.
    pub fn describe(&self, zone: u32) -> ZoneDescriptor {
        self.state.lock().zones.describe(ZoneIndex(zone))
    }
}

impl ScriptState {
    fn insist(&self, info: &DeviceInfo, seen: &Seen) {
        let geometry = &info.geometry;
        let most = match seen.op {
            Op::Read | Op::Write => info.command_sectors_max,
            Op::WriteZeroes => info.write_zeroes_sectors_max,
            Op::Append => info.append_sectors_max,
            Op::Verify => info.verify_sectors_max,
            Op::Discard => info.discard_sectors_max,
            _ => u32::MAX,
        };
        assert!(seen.sectors <= most, "{seen:?} is larger than {most} sectors");
        let moves_data = seen.op.has_range() || seen.op.is_write();
        let size = geometry.size_of(seen.zone);
        assert!(!moves_data || seen.offset + seen.sectors <= size, "{seen:?} leaves its zone");
        if !self.allow_together {
            for other in self.flights.iter().map(|f| &f.seen) {
                let together =
                    may_be_together(geometry, seen, other) || info.keeps_order && may_follow(seen, other);
                assert!(together, "{seen:?} while {other:?} is in flight");
            }
        }
        assert!(seen.op != Op::Append || seen.offset == 0, "{seen:?} does not name its zone");
        let positional = matches!(seen.op, Op::Write | Op::WriteZeroes);
        if positional && !geometry.is_conventional(seen.zone) && !self.allow_misplaced {
            let before =
                self.flights.iter().rev().map(|f| &f.seen).find(|s| s.zone == seen.zone && is_write_at(s));
            let expected = before.map_or_else(|| self.zones.state(seen.zone).1, |s| s.offset + s.sectors);
            assert_eq!(seen.offset, expected, "{seen:?} is not at the write pointer");
        }
    }
}

fn is_write_at(seen: &Seen) -> bool {
    matches!(seen.op, Op::Write | Op::WriteZeroes)
}

/// True if a command may be issued while another is in flight, on a device that preserves order.
fn may_follow(seen: &Seen, before: &Seen) -> bool {
    is_write_at(seen) && is_write_at(before) && seen.queue == before.queue
}

/// True if two commands may be in flight together.
fn may_be_together(geometry: &Geometry, a: &Seen, b: &Seen) -> bool {
    let is_all = |s: &Seen| s.op == Op::ResetAll;
    let in_one_zone = a.zone == b.zone || is_all(a) || is_all(b);
    let orders = |s: &Seen| {
        let sequential = !geometry.is_conventional(s.zone);
        let changes =
            s.op.is_write() || matches!(s.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneOffline) || s.resync;
        is_all(s) || sequential && changes
    };
    let appends = a.op == Op::Append && b.op == Op::Append;
    !in_one_zone || !orders(a) || !orders(b) || appends
}

impl Device for Script {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn insight(&self) -> Insight {
        Insight { virtual_time: true, ..Insight::default() }
    }

    fn submit(&self, _: Nanos, queue: usize, command: &Command, context: &mut Option<Context>) -> Submitted {
        let mut state = self.state.lock();
        let geometry = &self.info.geometry;
        let seen = Seen {
            id: state.log.len() as u64,
            queue,
            op: command.op,
            zone: geometry.zone_of(command.sector),
            offset: geometry.offset_of(command.sector),
            sectors: command.sectors,
            fua: command.fua,
            resync: format!("{context:?}").contains("resync"),
        };
        let style = (state.style)(&seen);
        if style == Style::Busy || style == Style::Later && state.flights.len() >= state.depth {
            state.busy += 1;
            return Submitted::Busy;
        }
        state.insist(&self.info, &seen);
        state.log.push(seen.clone());
        match style {
            Style::Now(answer) => Submitted::Done(state.zones.execute(command, answer)),
            _ => {
                let context = context.take().expect("a command comes with its context");
                state.flights.push(CommandInFlight { seen, pending: Some((*command, context)) });
                Submitted::Accepted
            }
        }
    }

    fn poll(&self, _: Nanos, queue: usize, budget: usize, done: &mut dyn FnMut(Completed)) -> Option<Nanos> {
        for _ in 0..budget {
            let mut state = self.state.lock();
            let Some(Done { id, completed }) = state.done[queue].pop_front() else { break };
            state.flights.retain(|f| f.seen.id != id);
            drop(state);
            done(completed);
        }
        None
    }

    fn settle(&self, _: Nanos, zone: ZoneIndex) -> Settled {
        let mut state = self.state.lock();
        state.settles += 1;
        if state.settled == Settled::Yes {
            state.zones.execute_late(Some(zone));
        }
        state.settled
    }

    fn has_changes(&self) -> bool {
        self.notices.are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.notices.take(into);
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    /// Only the test completes commands, so a wait would never end.
    fn has_news(&self, _queue: usize) -> bool {
        false
    }
}

/// Reply with the descriptor of one zone.
pub fn reported(descriptor: ZoneDescriptor) -> Answer {
    Answer::Reply(Ok(Output::Zones(Box::new([descriptor]))))
}
