//! The `linear` wrapper and the `concat` device: a range of zones of a device, or several devices
//! in sequence, as one device.
//!
//! Owns the layout of its pieces and the commands that visit several of them. Addresses are
//! translated in commands, and in the answers of appends and reports. The combined device has the
//! smallest of all limits, and only the features that all its devices have, including the
//! preservation of order. Incompatible devices are refused.
//!
//! # Invariants
//! - No command reaches a zone outside the pieces: neither one that crosses the end of a piece, nor
//!   a reset of all zones.
//! - Only the wrapper uses its inner devices: another caller that polls one would take completions
//!   away.
//!
//! # Why a reset of all zones is a walk
//! The command for all zones would reach zones outside the range. Resetting zone by zone is slower
//! and, like the command that it replaces, not atomic.

mod stack;
mod task;

pub use stack::LinearError;

use crate::badblocks::{BadBlocks, BadRange};
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
use task::{Progress, Task};
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
    /// Piece to poll first, in rotation so that none starves the others.
    turn: AtomicUsize,
    wakeups: Wakeups,
}

struct Tasks {
    /// Tasks at a device.
    under_way: Slots<Task>,
    /// A command was issued since the start of the last poll.
    has_sent: bool,
    queues: Box<[Queue]>,
}

#[derive(Default)]
struct Queue {
    /// Started, then refused by a full queue.
    outbox: VecDeque<Task>,
    /// Completed, but not yet returned by a poll.
    ready: VecDeque<Completed>,
}

/// State of a task after driving it.
enum Driven {
    Ended(Context, CommandResult),
    UnderWay,
    Busy(Task),
}

/// A piece may consist of conventional zones only, a device may not.
fn with_sequential_zones(info: DeviceInfo) -> Result<DeviceInfo, GeometryError> {
    let (zones, conventional) = (info.geometry.zones(), info.geometry.conventional_zones());
    match conventional == zones {
        true => Err(GeometryError::Conventional { conventional, zones }),
        false => Ok(info),
    }
}

impl Linear {
    /// Creates a device of the zones `zones` of `device`.
    ///
    /// # Errors
    /// [`LinearError`] with the mismatch.
    pub fn range(device: Arc<dyn Device>, zones: Range<u32>) -> Result<Linear, LinearError> {
        let (piece, info) = LinearPiece::alone(device, zones)?;
        Ok(Linear::with(with_sequential_zones(info)?, vec![piece]))
    }

    /// Creates a device of all zones of `devices` in sequence.
    ///
    /// # Errors
    /// [`LinearError`] with the mismatch.
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

    /// Sets the device name to `name`.
    pub fn named(mut self, name: &str) -> Linear {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Index of the piece with `zone`, which has to be a zone of this device.
    fn piece_of(&self, zone: ZoneIndex) -> usize {
        self.pieces.partition_point(|p| p.first <= zone.0) - 1
    }

    /// Index of the piece in which `command` starts.
    ///
    /// # Errors
    /// The error that a device returns for a command outside its zones.
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
        match command.sector.0 + sectors.0 <= self.pieces[piece].outer_end() {
            true => Ok(piece),
            false => Err(ZoneError::Boundary.into()),
        }
    }

    /// True if the answer of `piece` to `command` needs no translation.
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

    /// Advances a task as long as devices answer inline.
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
                    Progress::End(context, result) => return Driven::Ended(context, result),
                    Progress::Continues(on) => task = on,
                },
            }
        }
    }

    /// Advances a task that was accepted earlier.
    fn resume(&self, tasks: &mut Tasks, now: Nanos, task: Task) {
        let queue = task.queue;
        match self.drive(tasks, now, task) {
            Driven::UnderWay => {}
            Driven::Busy(task) => tasks.queues[queue].outbox.push_back(task),
            Driven::Ended(context, result) => {
                tasks.queues[queue].ready.push_back(Completed { context, result });
            }
        }
    }

    /// Starts a command as a task.
    fn start(
        &self,
        now: Nanos,
        queue: usize,
        piece: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let mut tasks = self.tasks.lock();
        // Tasks that met a full queue take precedence.
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

    /// Polls all devices, forwards completions of commands that were passed on, and returns the
    /// tokens of tasks with their answers.
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
        // A token from the host would be mistaken for one of this wrapper's.
        if context.as_ref().is_some_and(Context::is_token) || !self.passes(piece, command) {
            return self.start(now, queue, at, command, context);
        }
        let sector = match command.op {
            Op::Flush | Op::ResetAll => command.sector,
            _ => piece.to_inner(command.sector),
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
        // Completions of tasks count towards the budget once, when their hosts receive them.
        let mut left = left + ours.len();
        let mut out = Vec::new();
        let mut tasks = self.tasks.lock();
        tasks.has_sent = false;
        for (slot, result) in ours {
            let task = tasks.under_way.take(slot);
            let at = task.queue;
            match task.answered(result, &self.pieces) {
                Progress::End(context, result) => {
                    tasks.queues[at].ready.push_back(Completed { context, result })
                }
                Progress::Continues(task) => self.resume(&mut tasks, now, task),
            }
        }
        for task in std::mem::take(&mut tasks.queues[queue].outbox) {
            self.resume(&mut tasks, now, task);
        }
        while left > 0
            && let Some(completed) = tasks.queues[queue].ready.pop_front()
        {
            left -= 1;
            out.push(completed);
        }
        // Commands just issued may be due earlier than the devices said before.
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

    fn commit(&self, queue: usize) {
        self.pieces.iter().for_each(|piece| piece.device.commit(queue));
    }

    fn is_idle(&self, queue: usize) -> bool {
        let Queue { outbox, ready } = &self.tasks.lock().queues[queue];
        outbox.is_empty() && ready.is_empty() && self.pieces.iter().all(|p| p.device.is_idle(queue))
    }

    fn settle(&self, now: Nanos, zone: ZoneIndex) -> Settled {
        let piece = &self.pieces[self.piece_of(zone)];
        piece.device.settle(now, piece.zone_to_inner(zone))
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        if zone.0 >= self.info.geometry.zones() {
            return Err(DeviceError::OutOfRange);
        }
        let piece = &self.pieces[self.piece_of(zone)];
        piece.device.set_zone(piece.zone_to_inner(zone), to)
    }

    fn badblocks(&self, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        if change.is_some_and(|change| change.last >= self.info.geometry.sectors().0) {
            return Err(DeviceError::OutOfRange);
        }
        let mut all = BadBlocks::default();
        for piece in &self.pieces {
            let theirs = change.and_then(|change| piece.range_to_inner(change));
            for (first, last) in piece.device.badblocks(theirs)? {
                let bad = BadRange { is_bad: true, first, last };
                piece.range_to_outer(bad).into_iter().for_each(|bad| all.change(bad));
            }
        }
        Ok(all.ranges().to_vec())
    }

    fn has_changes(&self) -> bool {
        self.pieces.iter().any(|piece| piece.device.has_changes())
    }

    fn take_changes(&self, into: &mut Changes) {
        for piece in self.pieces.iter().filter(|piece| piece.device.has_changes()) {
            let mut theirs = Changes::default();
            piece.device.take_changes(&mut theirs);
            into.merge(&theirs, |zone| piece.zones.contains(&zone.0).then(|| piece.zone_to_outer(zone)));
        }
    }

    fn gone_because(&self) -> Option<String> {
        self.pieces.iter().find_map(|piece| piece.device.gone_because())
    }

    fn insight(&self) -> Insight {
        let all: Vec<Insight> = self.pieces.iter().map(|piece| piece.device.insight()).collect();
        Insight {
            blocks_awaiting: false,
            virtual_time: all.iter().all(|its| its.virtual_time),
            begins_empty: all.iter().all(|its| its.begins_empty),
            misplaces: all.iter().all(|its| its.misplaces),
            host_time: all[0].host_time,
            head: None,
            head_moves: all.iter().filter_map(|its| its.head_moves).reduce(|sum, its| sum + its),
            contention: all.iter().fold(Contention::default(), |sum, its| sum + its.contention),
            copies: all.iter().map(|its| its.copies).sum(),
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
