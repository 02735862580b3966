//! The `linear` wrapper and the `concat` device: zones of one device, or of several one after the other, as a device.
//!
//! Owns where its pieces are and the commands that visit several of them. Addresses are translated on the way in, and on
//! the way out where an answer has any: appends and reports. What was made of devices has the smallest of their limits,
//! keeps order only if all of them do, and lacks what one of them lacks; devices that do not fit are refused.
//!
//! # Invariants
//! - No command reaches a zone outside: not a command that crosses a piece's end, and not a reset of all zones.
//! - A device inside belongs to its wrapper alone: another caller that polled it would take away completions.
//!
//! # Why a reset of all zones is a walk
//! The command for all zones would reach those outside the range. Zone by zone it is slower, and as little of one
//! instant as the command that it stands for.

mod stack;
mod task;

pub use stack::LinearError;

use crate::changes::{Changes, ZoneSetting};
use crate::device::{
    Command, CommandResult, Completed, Contention, Context, Device, DeviceInfo, Insight, Settled, Submitted,
};
use crate::news::Wakeups;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::wrap::Slots;
pub(crate) use stack::LinearPiece;
use std::collections::VecDeque;
use std::ops::Range;
use task::{After, Task};
use zonal_core::{DeviceError, GeometryError, Nanos, Op, Sectors, ZoneError, ZoneIndex};

/// Zones of one or several devices as one device. See the module.
///
/// ```
/// use zonal_io::linear::Linear;
/// use zonal_io::registry::Registry;
/// let open = |name| Registry::default().open(name);
/// let both = Linear::concat([open("null:size=1G")?, open("null:size=2G")?]).unwrap();
/// let end = Linear::range(std::sync::Arc::new(both), 4..12).unwrap();
/// # use zonal_io::device::Device;
/// assert_eq!(end.info().geometry.zones(), 8);
/// # Ok::<(), zonal_io::registry::NameError>(())
/// ```
pub struct Linear {
    info: DeviceInfo,
    pieces: Box<[LinearPiece]>,
    tasks: Mutex<Tasks>,
    /// The piece that is polled first: each in turn, so that none starves the others.
    turn: AtomicUsize,
    wakeups: Wakeups,
}

struct Tasks {
    /// At some device.
    under_way: Slots<Task>,
    /// A command has gone out since the last poll began.
    has_sent: bool,
    queues: Box<[Queue]>,
}

#[derive(Default)]
struct Queue {
    /// Begun, and then met a full queue.
    outbox: VecDeque<Task>,
    /// Ended, and not handed out.
    ready: VecDeque<Completed>,
}

/// What has become of a task.
enum Driven {
    Ended(Context, CommandResult),
    UnderWay,
    Busy(Task),
}

/// A part may have conventional zones only, a device may not.
fn with_sequential_zones(info: DeviceInfo) -> Result<DeviceInfo, GeometryError> {
    let (zones, conventional) = (info.geometry.zones(), info.geometry.conventional_zones());
    match conventional == zones {
        true => Err(GeometryError::Conventional { conventional, zones }),
        false => Ok(info),
    }
}

impl Linear {
    /// The zones `zones` of `device`.
    ///
    /// # Errors
    /// [`LinearError`] with what does not fit.
    pub fn range(device: Arc<dyn Device>, zones: Range<u32>) -> Result<Linear, LinearError> {
        let (piece, info) = LinearPiece::alone(device, zones)?;
        Ok(Linear::with(with_sequential_zones(info)?, vec![piece]))
    }

    /// All zones of `devices`, one device after the other.
    ///
    /// # Errors
    /// [`LinearError`] with what does not fit.
    pub fn concat(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<Linear, LinearError> {
        let mut name = "concat:".to_owned();
        let mut pieces = Vec::new();
        for device in devices {
            name += &format!("[{}]", device.info().name);
            let zones = 0..device.info().geometry.zones();
            pieces.push(LinearPiece::new(device, zones)?);
        }
        Linear::of(&name, pieces)
    }

    fn of(name: &str, mut pieces: Vec<LinearPiece>) -> Result<Linear, LinearError> {
        let info = stack::stack(name, &mut pieces)?;
        Ok(Linear::with(with_sequential_zones(info)?, pieces))
    }

    fn with(info: DeviceInfo, pieces: Vec<LinearPiece>) -> Linear {
        let queues = (0..info.queues).map(|_| Queue::default()).collect();
        let tasks = Mutex::new(Tasks { under_way: Slots::default(), has_sent: false, queues });
        let theirs = pieces.iter().map(|piece| piece.device.wakeups().clone());
        let wakeups = Wakeups::joining(info.queues, theirs);
        Linear { info, pieces: pieces.into(), tasks, turn: AtomicUsize::new(0), wakeups }
    }

    /// Calls the device `name`.
    pub fn named(mut self, name: &str) -> Linear {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Number of the piece that holds `zone`, which has to be one of ours.
    fn piece_of(&self, zone: ZoneIndex) -> usize {
        self.pieces.partition_point(|p| p.first <= zone.0) - 1
    }

    /// Number of the piece where `command` begins.
    ///
    /// # Errors
    /// What the device answers if it begins or ends in none.
    fn locate(&self, command: &Command) -> Result<usize, DeviceError> {
        if matches!(command.op, Op::Flush | Op::ResetAll) {
            return Ok(0);
        }
        let geometry = &self.info.geometry;
        let has_length = command.op.is_write() || command.op.has_range();
        let sectors = Sectors(if has_length { command.sectors.into() } else { 1 });
        if !geometry.contains(command.sector, sectors) || command.sector.0 >= geometry.sectors().0 {
            return Err(DeviceError::OutOfRange);
        }
        let piece = self.piece_of(geometry.zone_of(command.sector));
        match command.sector.0 + sectors.0 <= self.pieces[piece].end_here() {
            true => Ok(piece),
            false => Err(ZoneError::Boundary.into()),
        }
    }

    /// Whether the answer to `command` at `piece` is the host's as it is.
    fn passes(&self, piece: &LinearPiece, command: &Command) -> bool {
        match command.op {
            Op::Read | Op::Write | Op::WriteZeroes | Op::Verify | Op::Discard => true,
            Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose | Op::ZoneOffline => true,
            Op::Append => piece.is_in_place(),
            Op::Flush => self.pieces.len() == 1,
            Op::ResetAll => self.pieces.len() == 1 && piece.is_whole(),
            Op::Report => false,
        }
    }

    /// Moves a task on as far as devices answer at once.
    fn drive(&self, tasks: &mut Tasks, now: Nanos, mut task: Task) -> Driven {
        loop {
            let (piece, queue) = (task.piece, task.queue);
            let command = task.command(&self.pieces);
            let slot = tasks.under_way.put(task);
            let mut context = Some(Context::token(slot));
            match self.pieces[piece].device.submit(now, queue, &command, &mut context) {
                Submitted::Accepted => {
                    tasks.has_sent = true;
                    return Driven::UnderWay;
                }
                Submitted::Busy => return Driven::Busy(tasks.under_way.take(slot)),
                Submitted::Done(result) => match tasks.under_way.take(slot).answered(result, &self.pieces) {
                    After::End(context, result) => return Driven::Ended(context, result),
                    After::Goes(on) => task = on,
                },
            }
        }
    }

    /// Moves a task on whose host has been told to wait.
    fn go_on(&self, tasks: &mut Tasks, now: Nanos, task: Task) {
        let queue = task.queue;
        match self.drive(tasks, now, task) {
            Driven::UnderWay => {}
            Driven::Busy(task) => tasks.queues[queue].outbox.push_back(task),
            Driven::Ended(context, result) => {
                tasks.queues[queue].ready.push_back(Completed { context, result });
            }
        }
    }

    /// Starts a command that has to be looked after.
    fn start(
        &self,
        now: Nanos,
        queue: usize,
        piece: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let mut tasks = self.tasks.lock();
        // Those that met a full queue come first.
        if !tasks.queues[queue].outbox.is_empty() {
            return Submitted::Busy;
        }
        let mine = context.take().expect("a submitted command comes with its context");
        let task = Task::new(mine, queue, piece, *command, &self.pieces);
        match self.drive(&mut tasks, now, task) {
            Driven::UnderWay => Submitted::Accepted,
            Driven::Ended(mine, result) => {
                *context = Some(mine);
                Submitted::Done(result)
            }
            Driven::Busy(task) if task.has_begun => {
                tasks.queues[queue].outbox.push_back(task);
                Submitted::Accepted
            }
            Driven::Busy(task) => {
                *context = Some(task.context);
                Submitted::Busy
            }
        }
    }

    /// Polls every device, passes on what was passed on, and returns our own tokens with their answers.
    fn reap(
        &self,
        now: Nanos,
        queue: usize,
        budget: &mut usize,
        done: &mut dyn FnMut(Completed),
    ) -> (Vec<(u64, CommandResult)>, Option<Nanos>) {
        let mut ours = Vec::new();
        let mut due = None;
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.pieces.len();
        for piece in self.pieces[first..].iter().chain(&self.pieces[..first]) {
            if *budget == 0 {
                due = Some(now);
                break;
            }
            let mut taken = 0;
            let its = piece.device.poll(now, queue, *budget, &mut |c| {
                taken += 1;
                match c.context.is_token() {
                    true => ours.push((c.context.into_token(), c.result)),
                    false => done(c),
                }
            });
            *budget -= taken;
            due = earliest(due, its);
        }
        (ours, due)
    }
}

impl Device for Linear {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let at = match self.locate(command) {
            Ok(at) => at,
            Err(error) => return Submitted::Done(Err(error)),
        };
        let piece = &self.pieces[at];
        // A token would be taken for one of ours.
        if context.as_ref().is_some_and(Context::is_token) || !self.passes(piece, command) {
            return self.start(now, queue, at, command, context);
        }
        let sector = match command.op {
            Op::Flush | Op::ResetAll => command.sector,
            _ => piece.there(command.sector),
        };
        piece.device.submit(now, queue, &Command { sector, ..*command }, context)
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let mut left = budget;
        let (ours, mut due) = self.reap(now, queue, &mut left, done);
        // What tasks brought back counts once, when their hosts get it.
        let mut left = left + ours.len();
        let mut out = Vec::new();
        let mut tasks = self.tasks.lock();
        tasks.has_sent = false;
        for (slot, result) in ours {
            let task = tasks.under_way.take(slot);
            let at = task.queue;
            match task.answered(result, &self.pieces) {
                After::End(context, result) => {
                    tasks.queues[at].ready.push_back(Completed { context, result })
                }
                After::Goes(task) => self.go_on(&mut tasks, now, task),
            }
        }
        for task in std::mem::take(&mut tasks.queues[queue].outbox) {
            self.go_on(&mut tasks, now, task);
        }
        while left > 0
            && let Some(completed) = tasks.queues[queue].ready.pop_front()
        {
            left -= 1;
            out.push(completed);
        }
        // What has just gone out may be due before what the devices said.
        if tasks.has_sent || !tasks.queues[queue].ready.is_empty() {
            due = Some(now);
        }
        let others = |&other: &usize| other != queue && !tasks.queues[other].ready.is_empty();
        let others: Vec<usize> = (0..tasks.queues.len()).filter(others).collect();
        drop(tasks);
        others.into_iter().for_each(|other| self.wakeups.ring(other));
        out.into_iter().for_each(done);
        due
    }

    fn is_idle(&self, queue: usize) -> bool {
        let Queue { outbox, ready } = &self.tasks.lock().queues[queue];
        outbox.is_empty() && ready.is_empty() && self.pieces.iter().all(|p| p.device.is_idle(queue))
    }

    fn settle(&self, now: Nanos, zone: ZoneIndex) -> Settled {
        let piece = &self.pieces[self.piece_of(zone)];
        piece.device.settle(now, piece.zone_there(zone))
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        if zone.0 >= self.info.geometry.zones() {
            return Err(DeviceError::OutOfRange);
        }
        let piece = &self.pieces[self.piece_of(zone)];
        piece.device.set_zone(piece.zone_there(zone), to)
    }

    fn has_changes(&self) -> bool {
        self.pieces.iter().any(|piece| piece.device.has_changes())
    }

    fn take_changes(&self, into: &mut Changes) {
        for piece in self.pieces.iter().filter(|piece| piece.device.has_changes()) {
            let mut theirs = Changes::default();
            piece.device.take_changes(&mut theirs);
            into.merge(&theirs, |zone| piece.zones.contains(&zone.0).then(|| piece.zone_here(zone)));
        }
    }

    fn insight(&self) -> Insight {
        let all: Vec<Insight> = self.pieces.iter().map(|piece| piece.device.insight()).collect();
        Insight {
            virtual_time: all.iter().all(|its| its.virtual_time),
            begins_empty: all.iter().all(|its| its.begins_empty),
            misplaces: all.iter().all(|its| its.misplaces),
            host_time: all[0].host_time,
            head: None,
            contention: all.iter().fold(Contention::default(), |sum, its| sum + its.contention),
        }
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    fn has_news(&self, queue: usize) -> bool {
        !self.tasks.lock().queues[queue].ready.is_empty()
            || self.pieces.iter().any(|piece| piece.device.has_news(queue))
    }
}

fn earliest(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
