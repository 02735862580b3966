//! A device with completion times determined by a model.
//!
//! The inner device gets each command at once and determines its result; the model determines the
//! time of its completion. So zone states follow the inner device, in order of submission, and its
//! errors (as with the wrapper `fault` inside) are reported at the drive's speed.
//!
//! While the drive's link wakes up from hibernation, both get no command. Commands wait here and are
//! passed on afterwards, so their order there is also the order in which the zones see them.

use crate::hibernation::Link;
use crate::model::{Job, Model, Tag, Totals};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use zonal_core::{Geometry, Nanos, Op, Sector, Sectors, ZoneIndex};
use zonal_io::device::{
    Command, CommandResult, Completed, Context, Device, DeviceInfo, HostTime, Insight, Output, Submitted,
    Wrapper,
};
use zonal_io::sync::ShortLock;

/// A device in the time of a model.
pub struct Timed {
    info: DeviceInfo,
    virtual_time: bool,
    host_time: HostTime,
    inner: Arc<dyn Device>,
    depth: u32,
    state: ShortLock<TimedState>,
}

struct TimedState {
    model: Box<dyn Model>,
    now: Nanos,
    slots: Vec<CommandSlot>,
    free: Vec<Tag>,
    /// Completed by both inner device and model, but not polled yet. Per queue.
    ready: Vec<VecDeque<Completed>>,
    /// Commands were submitted since the last poll, which may complete before the deadline that it
    /// returned. Per queue.
    has_news: Vec<bool>,
    /// Number of commands that the inner device has not completed.
    awaited: u32,
    /// End of the data of each zone that was written to, as far as known: the place of an append
    /// whose result is not known yet.
    ends: HashMap<ZoneIndex, Sector>,
    /// The link, if it hibernates.
    link: Option<Link>,
}

/// A command at the drive.
#[derive(Default)]
struct CommandSlot {
    context: Option<Context>,
    queue: usize,
    /// Result of the inner device.
    result: Option<CommandResult>,
    /// The model has completed it.
    is_due: bool,
}

impl Timed {
    /// Runs `inner` in the time of `model`.
    pub fn new(inner: Arc<dyn Device>, model: Box<dyn Model>) -> Timed {
        let mut info = inner.info().clone();
        info.volatile_cache |= model.has_volatile_cache();
        info.rotational |= model.is_rotational();
        // The model is a single drive, whatever the inner device is.
        info.spindles.clear();
        let depth = model.queue_depth();
        let state = TimedState {
            now: Nanos(0),
            slots: (0..depth).map(|_| CommandSlot::default()).collect(),
            free: (0..depth).rev().collect(),
            ready: (0..info.queues).map(|_| VecDeque::new()).collect(),
            has_news: vec![false; info.queues],
            awaited: 0,
            ends: HashMap::new(),
            link: model.hibernation().map(Link::new),
            model,
        };
        let Insight { virtual_time, host_time, .. } = inner.insight();
        Timed { info, virtual_time, host_time, inner, depth, state: ShortLock::new(state) }
    }

    /// Sets the name of the device.
    #[must_use]
    pub fn named(mut self, name: &str) -> Timed {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Uses virtual time, which is advanced by the caller's polls.
    #[must_use]
    pub fn in_virtual_time(mut self) -> Timed {
        self.virtual_time = true;
        self
    }

    /// Sets the host's time per command.
    #[must_use]
    pub fn with_host(mut self, time: HostTime) -> Timed {
        self.host_time = time;
        self
    }

    /// Work done by the drive so far.
    pub fn totals(&self) -> Totals {
        self.state.lock().model.totals()
    }
}

/// Converts a command for the model, given its result.
fn job(command: &Command, result: Option<&CommandResult>) -> Job {
    let sector = match result {
        Some(Ok(Output::Appended(at))) => *at,
        _ => command.sector,
    };
    // The length of a report is a number of zones, and a discard does not use the medium.
    let sectors = if matches!(command.op, Op::Report | Op::Discard) { 0 } else { command.sectors };
    let refused = matches!(result, Some(Err(_)));
    Job { op: command.op, sector, sectors, fua: command.fua, refused }
}

impl TimedState {
    #[inline]
    fn run(&mut self, now: Nanos, inner: &dyn Device) {
        let before = self.now;
        self.now = before.max(now);
        if let Some(awake) = self.link.as_ref().and_then(Link::due).filter(|awake| *awake <= self.now) {
            let at = awake.max(before);
            self.run_model(at);
            self.pass_on_held(at, inner);
        }
        self.run_model(self.now);
    }

    fn run_model(&mut self, until: Nanos) {
        let TimedState { model, slots, free, ready, link, .. } = self;
        model.run(until, &mut |at, tag| {
            slots[tag as usize].is_due = true;
            finish(slots, free, ready, tag);
            if let Some(link) = link {
                link.completed(at);
            }
        });
    }

    /// Starts a command in slot `tag`. Returns `false`, and does nothing, if the inner device is busy.
    #[inline]
    fn start(&mut self, now: Nanos, queue: usize, tag: Tag, command: &Command, inner: &dyn Device) -> bool {
        let result = match inner.submit(now, queue, command, &mut Some(Context::token(tag.into()))) {
            Submitted::Busy => return false,
            Submitted::Done(result) => Some(result),
            Submitted::Accepted => {
                self.awaited += 1;
                None
            }
        };
        let mut job = job(command, result.as_ref());
        self.place(&mut job, result.is_none(), &inner.info().geometry);
        self.slots[tag as usize].result = result;
        self.model.submit(now, tag, &job);
        true
    }

    /// Places an append that the inner device has not completed yet behind the written part of its
    /// zone, if it fits there. Records the written part of each zone.
    fn place(&mut self, job: &mut Job, is_awaited: bool, geometry: &Geometry) {
        if job.refused {
            return;
        }
        let (zone, sectors) = (geometry.zone_of(job.sector), Sectors(job.sectors.into()));
        match job.op {
            Op::Append if is_awaited => {
                let end = self.ends.get(&zone).copied().unwrap_or(job.sector);
                if end + sectors > geometry.start_of(zone) + Sectors(geometry.capacity_of(zone).into()) {
                    return;
                }
                job.sector = end;
            }
            Op::ZoneReset => drop(self.ends.remove(&zone)),
            Op::ResetAll => self.ends.clear(),
            _ => {}
        }
        if job.op.is_write() && !geometry.is_conventional(zone) {
            self.ends.insert(zone, job.sector + sectors);
        }
    }

    /// Passes on the commands that waited for the link, as far as the inner device takes them.
    #[cold]
    fn pass_on_held(&mut self, now: Nanos, inner: &dyn Device) {
        let Some(mut link) = self.link.take() else { return };
        link.open();
        while let Some((tag, queue, command)) = link.first()
            && self.start(now, queue, tag, &command, inner)
        {
            link.passed();
        }
        self.link = Some(link);
    }
}

/// Moves a command to the ready list once both have completed it.
fn finish(slots: &mut [CommandSlot], free: &mut Vec<Tag>, ready: &mut [VecDeque<Completed>], tag: Tag) {
    let slot = &mut slots[tag as usize];
    if !slot.is_due || slot.result.is_none() {
        return;
    }
    if let (Some(context), Some(result)) = (slot.context.take(), slot.result.take()) {
        slot.is_due = false;
        free.push(tag);
        ready[slot.queue].push_back(Completed { context, result });
    }
}

impl Wrapper for Timed {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

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
        let mut state = self.state.lock();
        state.run(now, &*self.inner);
        let has_no_commands = state.free.len() == state.slots.len();
        let Some(tag) = state.free.pop() else { return Submitted::Busy };
        let now = state.now;
        let is_held =
            state.link.as_mut().is_some_and(|link| link.holds(now, has_no_commands, (tag, queue, *command)));
        if !is_held && !state.start(now, queue, tag, command, &*self.inner) {
            state.free.push(tag);
            return Submitted::Busy;
        }
        let slot = &mut state.slots[tag as usize];
        (slot.context, slot.queue) = (context.take(), queue);
        let had_news = std::mem::replace(&mut state.has_news[queue], true);
        drop(state);
        // A thread arms its wake-up before it checks under this lock: either it sees the news, or
        // it is rung here.
        if !had_news {
            self.inner.wakeups().ring(queue);
        }
        Submitted::Accepted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        // Completions are passed on under the lock, so another poll does not wait for it.
        let Some(mut state) = self.state.try_lock() else { return Some(now) };
        let mut due = None;
        if state.awaited > 0 {
            let TimedState { slots, free, ready, awaited, ends, .. } = &mut *state;
            let geometry = &self.info.geometry;
            due = self.inner.poll(now, queue, usize::MAX, &mut |Completed { context, result }| {
                let tag = context.into_token() as Tag;
                if let Ok(Output::Appended(at)) = result {
                    // Behind it at least: the zone may have had data before.
                    let end = ends.entry(geometry.zone_of(at)).or_insert(at);
                    *end = at.max(*end);
                }
                slots[tag as usize].result = Some(result);
                *awaited -= 1;
                finish(slots, free, ready, tag);
            });
        }
        state.run(now, &*self.inner);
        state.has_news[queue] = false;
        for _ in 0..budget {
            let Some(completed) = state.ready[queue].pop_front() else { break };
            done(completed);
        }
        if !state.ready[queue].is_empty() {
            return Some(now);
        }
        let awake = state.link.as_ref().and_then(Link::due);
        due.into_iter().chain(state.model.answers_from()).chain(awake).min()
    }

    fn is_idle(&self, queue: usize) -> bool {
        let state = self.state.lock();
        let is_held = |slot: &CommandSlot| slot.context.is_some() && slot.queue == queue;
        state.ready[queue].is_empty() && !state.slots.iter().any(is_held)
    }

    fn insight(&self) -> Insight {
        let Timed { virtual_time, host_time, .. } = *self;
        let (head, head_moves) = {
            let model = &self.state.lock().model;
            (model.head(), model.head_moves())
        };
        Insight { virtual_time, host_time, head, head_moves, ..self.inner.insight() }
    }

    fn has_news(&self, queue: usize) -> bool {
        let state = self.state.lock();
        state.has_news[queue] || !state.ready[queue].is_empty() || self.inner.has_news(queue)
    }
}

impl std::fmt::Debug for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timed({:?}, {} commands)", self.info.name, self.depth)
    }
}
