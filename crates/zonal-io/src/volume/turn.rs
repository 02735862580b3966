//! Commands to the device, their completions, and what a zone does next.
//!
//! Everything that follows from one completion is a loop over a small stack of [`Work`], never recursion: a command that
//! completes at once goes back on the stack. A turn issues at most [`TURN_MAX`] commands; a zone that could go on then
//! is left on the ready list for the next poll, so that nobody is held by the writes of others.

use super::channel::{Delivery, TURN_MAX, deliver};
use super::counters::{Counter, thread_slot};
use super::pending::{Merged, Pending, Stage};
use super::{Volume, plug_state};
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, ContextKind, Output, Submitted};
use arrayvec::ArrayVec;
use zonal_core::plug::{Item, Kind, Next, Resync, Word, WriteKind};
use zonal_core::{DeviceError, Nanos, Op, RequestError, SECTOR_BYTES, Sector, Sectors, ZoneIndex};

/// Zeroes for devices without write-zeroes; commands repeat it.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Depth of the work stack: a completion leaves at most a durability flush and one next command of its zone.
const WORK_MAX: usize = 4;

/// Something to be looked at in this turn.
pub(super) enum Work {
    /// A command ended.
    Finished(Context, CommandResult),
    /// A zone may be able to go on.
    Kick(ZoneIndex),
}

/// What happened to a zone.
enum Event {
    /// A write succeeded.
    Completed,
    /// A write failed: the pointer is not known.
    Failed,
    /// A write failed in a way that its next stage mends, as soon as the pointer is known.
    Retry(Pending),
    /// A command of so many sectors met a full queue and was withdrawn.
    Withdrawn(u32),
    /// The device said where the zone stands.
    Resynced(CommandResult),
    /// A reset or finish ended; where the zone stands if it succeeded.
    Managed(Option<u32>),
    /// Nothing.
    Kick,
}

/// Deliveries of one turn, in order.
#[derive(Default)]
struct Turn {
    first: Option<Delivery>,
    rest: Vec<Delivery>,
    issued: usize,
}

impl Turn {
    fn push(&mut self, delivery: Option<Delivery>) {
        match delivery {
            Some(d) if self.first.is_none() => self.first = Some(d),
            Some(d) => self.rest.push(d),
            None => {}
        }
    }
}

impl Volume {
    /// Deals with a finished command and all that follows at once.
    pub(super) fn completed(&self, now: Nanos, context: Context, result: CommandResult) {
        self.run(now, Work::Finished(context, result));
    }

    pub(super) fn run(&self, now: Nanos, work: Work) {
        let mut turn = Turn::default();
        let mut stack: ArrayVec<Work, WORK_MAX> = ArrayVec::new();
        stack.push(work);
        while let Some(work) = stack.pop() {
            match work {
                Work::Kick(zone) => self.serve(now, zone, Event::Kick, &mut turn, &mut stack),
                Work::Finished(context, result) => self.finished(now, context, result, &mut turn, &mut stack),
            }
        }
        if let Some(d) = turn.first {
            deliver(d);
        }
        turn.rest.into_iter().for_each(deliver);
    }

    fn finished(
        &self,
        now: Nanos,
        context: Context,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        match context.0 {
            ContextKind::One(pending) => self.finished_one(now, pending, result, turn, stack),
            ContextKind::Merged(merged) => self.finished_merged(now, *merged, result, turn, stack),
            ContextKind::Resync(zone) => self.serve(now, zone, Event::Resynced(result), turn, stack),
            ContextKind::Token(_) => panic!("a direct user's context reached a volume"),
        }
    }

    fn finished_one(
        &self,
        now: Nanos,
        mut pending: Pending,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        match pending.op {
            Op::ResetAll if !pending.plugged => {
                self.finish_reset_all(result.is_ok());
                return self.end(pending, result, turn);
            }
            Op::ZoneReset | Op::ZoneFinish if pending.plugged => {
                return self.finished_management(now, pending, result, turn, stack);
            }
            _ => {}
        }
        let output = match result {
            Ok(output) => output,
            Err(e) => return self.failed(now, pending, e, turn, stack),
        };
        let in_main = pending.stage != Stage::FlushBehind;
        if in_main && (pending.op == Op::Read || pending.op.is_write()) {
            pending.done += self.next_sectors(&pending);
            if pending.done < pending.sectors {
                return self.issue_and_stack(now, Context(ContextKind::One(pending)), turn, stack);
            }
        }
        let zone = pending.plugged.then(|| self.info.geometry.zone_of(pending.sector));
        pending.plugged = false;
        let behind =
            in_main && pending.op.is_write() && pending.fua && self.info.volatile_cache && !self.info.fua;
        if let Some(zone) = zone {
            self.serve(now, zone, Event::Completed, turn, stack);
        }
        if behind && pending.op != Op::Append {
            pending.stage = Stage::FlushBehind;
            self.issue_and_stack(now, Context(ContextKind::One(pending)), turn, stack);
        } else {
            let output = self.output(&pending, output);
            self.end(pending, Ok(output), turn);
        }
    }

    fn finished_management(
        &self,
        now: Nanos,
        pending: Pending,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        let zone = self.info.geometry.zone_of(pending.sector);
        let pointer = match pending.op {
            Op::ZoneReset => 0,
            _ => self.info.geometry.capacity_of(zone),
        };
        self.serve(now, zone, Event::Managed(result.is_ok().then_some(pointer)), turn, stack);
        self.end(pending, result, turn);
    }

    fn finished_merged(
        &self,
        now: Nanos,
        mut merged: Merged,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        if merged.parts.len() == 1 {
            // One request's zeroes: its stage tells how it goes on.
            let pending = merged.parts.remove(0);
            return self.finished_one(now, pending, result, turn, stack);
        }
        let zone = self.info.geometry.zone_of(merged.parts[0].sector);
        let event = if result.is_ok() { Event::Completed } else { Event::Failed };
        self.serve(now, zone, event, turn, stack);
        for mut part in merged.parts {
            part.plugged = false;
            self.end(part, result.clone(), turn);
        }
    }

    fn failed(
        &self,
        now: Nanos,
        mut pending: Pending,
        error: DeviceError,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        let zeroes = error == DeviceError::Unsupported
            && pending.op == Op::WriteZeroes
            && pending.stage == Stage::Main
            && pending.done == 0;
        if zeroes {
            pending.stage = Stage::ZeroesAsWrites;
        }
        match (pending.plugged, zeroes) {
            (true, true) => {
                let zone = self.info.geometry.zone_of(pending.sector);
                self.serve(now, zone, Event::Retry(pending), turn, stack);
            }
            (false, true) => self.issue_and_stack(now, Context(ContextKind::One(pending)), turn, stack),
            (true, false) => {
                let zone = self.info.geometry.zone_of(pending.sector);
                self.serve(now, zone, Event::Failed, turn, stack);
                self.end(pending, Err(error), turn);
            }
            (false, false) => self.end(pending, Err(error), turn),
        }
    }

    fn end(&self, pending: Pending, result: CommandResult, turn: &mut Turn) {
        self.end_with(pending, result.map_err(RequestError::Device), turn);
    }

    fn end_with(&self, pending: Pending, result: Result<Output, RequestError>, turn: &mut Turn) {
        if result.is_err() {
            self.counters.line().add(Counter::Failed, 1);
        }
        turn.push(pending.end(result));
    }

    /// A successful request's output: an append's address, wherever it comes from.
    #[inline]
    pub(super) fn output(&self, pending: &Pending, output: Output) -> Output {
        match (pending.op, output) {
            (Op::Append, Output::Done) => Output::Appended(pending.sector),
            (_, output) => output,
        }
    }

    /// Applies `event` to a zone and issues what may go next.
    fn serve(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        event: Event,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        if matches!(event, Event::Completed) && self.complete_unqueued(zone) {
            return;
        }
        let Some(context) = self.next_of(zone, event, turn) else { return };
        turn.issued += 1;
        // Appends go several at a time: look again. After anything else only its completion brings news.
        if let ContextKind::One(Pending { op: Op::Append, .. }) = context.0
            && self.appends_in_flight_max > 0
        {
            stack.push(Work::Kick(zone));
        }
        self.issue_and_stack(now, context, turn, stack);
    }

    /// Completes a write of a zone where nobody waits.
    #[inline]
    fn complete_unqueued(&self, zone: ZoneIndex) -> bool {
        let mut word = self.load(zone);
        while !word.waits() {
            match self.exchange(zone, word, word.completed()) {
                Ok(()) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// The zone's next command, if it has one, and the requests that end without.
    fn next_of(&self, zone: ZoneIndex, event: Event, turn: &mut Turn) -> Option<Context> {
        let rules = self.rules(zone);
        let mut shard = self.shard(zone).lock();
        let mut word = self.apply(zone, event, &mut shard, turn);
        if !word.waits() {
            return None;
        }
        let mut merged = Vec::new();
        let queue = shard.queue(zone);
        loop {
            if turn.issued >= TURN_MAX && word.is_issuable() {
                self.ready.push(zone);
                break;
            }
            let (next_word, next) = queue.next(word, &rules, &mut merged);
            word = next_word;
            let context = match next {
                Next::Nothing => break,
                Next::Fail { token, error } => {
                    self.end_with(token, Err(error), turn);
                    continue;
                }
                Next::Held => {
                    self.store(zone, word);
                    drop(shard);
                    return self.zone_is_quiet();
                }
                Next::Issue { token, at, sectors, .. } => self.context_of(zone, at, sectors, token, merged),
                Next::Manage { mut token, .. } => {
                    token.plugged = true;
                    Context(ContextKind::One(token))
                }
                Next::Resync => {
                    self.counters.line().add(Counter::Resyncs, 1);
                    Context(ContextKind::Resync(zone))
                }
            };
            self.store(zone, word);
            return Some(context);
        }
        if !word.waits() {
            shard.drop_queue(zone);
        }
        self.store(zone, word);
        None
    }

    /// Brings an event to the zone's word. With the result waiting, the word is the shard holder's.
    fn apply(&self, zone: ZoneIndex, event: Event, shard: &mut super::Shard, turn: &mut Turn) -> Word {
        match event {
            Event::Kick => self.load(zone),
            Event::Completed => self.update(zone, Word::completed),
            Event::Failed => self.update(zone, |w| w.completed().recovering()),
            Event::Withdrawn(sectors) => self.update(zone, |w| w.unissued(sectors)),
            Event::Retry(mut pending) => {
                pending.plugged = false;
                let word = self.update(zone, |w| w.completed().recovering());
                let offset = self.info.geometry.offset_of(pending.sector);
                let kind = Kind::Write(WriteKind::At(offset), pending.sectors);
                shard.queue(zone).push_front(word, Item { kind, mergeable: false, token: pending })
            }
            Event::Managed(pointer) => shard.queue(zone).managed(self.load(zone), pointer),
            Event::Resynced(result) => self.resynced(zone, result, shard, turn),
        }
    }

    fn resynced(
        &self,
        zone: ZoneIndex,
        result: CommandResult,
        shard: &mut super::Shard,
        turn: &mut Turn,
    ) -> Word {
        let word = self.load(zone);
        let queue = shard.queue(zone);
        let state = match result {
            Ok(Output::Zones(zones)) => {
                let described = zones.first().filter(|z| z.zone == zone);
                described.and_then(|z| plug_state(&self.info, z)).ok_or(DeviceError::InvalidField)
            }
            Ok(_) => Err(DeviceError::InvalidField),
            Err(e) => Err(e),
        };
        match state {
            Ok((class, pointer)) => queue.resynced(word, Resync { class, pointer }),
            Err(e) => {
                let mut failed = Vec::new();
                queue.resync_failed(&mut failed);
                failed.into_iter().for_each(|p| self.end_with(p, Err(e.into()), turn));
                word
            }
        }
    }

    /// Changes the word whoever else may be changing it.
    pub(super) fn update(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> Word {
        let mut word = self.load(zone);
        loop {
            let next = change(word);
            match self.exchange(zone, word, next) {
                Ok(()) => return next,
                Err(seen) => word = seen,
            }
        }
    }

    /// Sets the word; only for the holder of the shard of a zone that waits.
    pub(super) fn store(&self, zone: ZoneIndex, word: Word) {
        self.words.word(zone.0).store(word.0, super::Ordering::Release);
    }

    fn context_of(
        &self,
        zone: ZoneIndex,
        at: u32,
        sectors: u32,
        mut token: Pending,
        merged: Vec<Pending>,
    ) -> Context {
        self.place(zone, at, &mut token);
        if merged.is_empty() {
            return Context(ContextKind::One(token));
        }
        self.counters.line().add(Counter::Merged, merged.len() as u64);
        let mut parts = Vec::with_capacity(merged.len() + 1);
        parts.push(token);
        parts.extend(merged);
        parts.iter_mut().for_each(|p| p.plugged = true);
        let segments = parts.iter().map(|p| p.segment(p.sectors)).collect();
        Context(ContextKind::Merged(Box::new(Merged { parts, segments, sectors })))
    }

    fn issue_and_stack(
        &self,
        now: Nanos,
        context: Context,
        turn: &mut Turn,
        stack: &mut ArrayVec<Work, WORK_MAX>,
    ) {
        if let Some((context, result)) = self.issue(now, context) {
            let _ = turn;
            stack.push(Work::Finished(context, result));
        }
    }

    /// Sends a command to this thread's queue; returns its answer if it came at once.
    #[inline]
    pub(super) fn issue(&self, now: Nanos, context: Context) -> Option<(Context, CommandResult)> {
        let queue = match self.info.queues {
            1 => 0,
            n => thread_slot() % n,
        };
        self.issue_on(now, queue, context)
    }

    #[inline]
    pub(super) fn issue_on(
        &self,
        now: Nanos,
        queue: usize,
        context: Context,
    ) -> Option<(Context, CommandResult)> {
        let context = self.with_zeroes(context);
        let command = self.command(&context);
        let mut slot = Some(context);
        match self.device.submit(now, queue, &command, &mut slot) {
            Submitted::Done(result) => {
                self.counters.line().add(Counter::Commands, 1);
                Some((slot.take().expect("a command that is done leaves its context"), result))
            }
            Submitted::Pending => {
                debug_assert!(slot.is_none(), "a device that answers later keeps the context");
                self.counters.line().add(Counter::Commands, 1);
                None
            }
            Submitted::Busy => self.busy(now, queue, slot.take().expect("a busy device leaves the context")),
        }
    }

    /// Keeps a command that met a full queue, or withdraws it if its request may not wait.
    #[cold]
    fn busy(&self, now: Nanos, queue: usize, context: Context) -> Option<(Context, CommandResult)> {
        match context.0 {
            ContextKind::One(mut p) if p.nowait && p.done == 0 && p.stage == Stage::Main => {
                let mut turn = Turn::default();
                let mut stack = ArrayVec::new();
                if p.plugged {
                    let zone = self.info.geometry.zone_of(p.sector);
                    p.plugged = false;
                    self.serve(now, zone, Event::Withdrawn(p.sectors), &mut turn, &mut stack);
                }
                self.end_with(p, Err(RequestError::WouldWait), &mut turn);
                turn.first.into_iter().chain(turn.rest).for_each(deliver);
                stack.into_iter().for_each(|work| self.run(now, work));
            }
            kind => self.push_stalled(queue, Context(kind)),
        }
        None
    }

    /// Gives a write of zeroes its payload.
    #[inline]
    fn with_zeroes(&self, context: Context) -> Context {
        match context.0 {
            ContextKind::One(p) if p.stage == Stage::ZeroesAsWrites => {
                let sectors = self.next_sectors(&p);
                let mut left = sectors as usize * SECTOR_BYTES as usize;
                let mut segments = Vec::with_capacity(left.div_ceil(ZEROES.len()));
                while left > 0 {
                    let len = left.min(ZEROES.len());
                    segments.push(Segment::new(ZEROES.as_ptr().cast_mut(), len));
                    left -= len;
                }
                Context(ContextKind::Merged(Box::new(Merged { parts: vec![p], segments, sectors })))
            }
            kind => Context(kind),
        }
    }

    /// Largest command of this operation, in sectors.
    #[inline]
    pub(super) fn command_max(&self, op: Op) -> u32 {
        match op {
            Op::Read | Op::Write => self.info.command_sectors_max,
            Op::WriteZeroes => self.info.write_zeroes_sectors_max,
            _ => u32::MAX,
        }
    }

    /// Sectors of the request's next command.
    #[inline]
    fn next_sectors(&self, p: &Pending) -> u32 {
        let op = if p.stage == Stage::ZeroesAsWrites { Op::Write } else { p.op };
        (p.sectors - p.done).min(self.command_max(op))
    }

    #[inline]
    fn command(&self, context: &Context) -> Command {
        match &context.0 {
            ContextKind::One(p) if p.stage == Stage::FlushBehind => {
                Command { op: Op::Flush, fua: false, sectors: 0, sector: Sector(0), data: Data::NONE }
            }
            ContextKind::One(p) => {
                let sectors = self.next_sectors(p);
                let data = match p.op {
                    // SAFETY: the buffer travels with the command in its context and is not touched until it is back.
                    Op::Read | Op::Write | Op::Append => unsafe { Data::one(p.segment(sectors)) },
                    _ => Data::NONE,
                };
                let op = if p.op == Op::Append && p.plugged && self.appends_in_flight_max == 0 {
                    Op::Write
                } else {
                    p.op
                };
                Command { op, fua: self.fua(p), sectors, sector: p.sector + Sectors(p.done.into()), data }
            }
            ContextKind::Merged(m) => {
                let first = &m.parts[0];
                Command {
                    op: Op::Write,
                    fua: self.fua(first),
                    sectors: m.sectors,
                    sector: first.sector + Sectors(first.done.into()),
                    // SAFETY: the buffers and the list travel with the command in its boxed context; zeroes are static
                    // and a write does not change them.
                    data: unsafe { Data::many(&raw const *m.segments) },
                }
            }
            ContextKind::Resync(zone) => {
                let sector = self.info.geometry.start_of(*zone);
                Command { op: Op::Report, fua: false, sectors: 1, sector, data: Data::NONE }
            }
            ContextKind::Token(_) => panic!("a direct user's context reached a volume"),
        }
    }

    /// Durability with the write itself, where the device has a cache and knows how to pass it.
    fn fua(&self, p: &Pending) -> bool {
        p.fua && p.op.is_write() && self.info.volatile_cache && self.info.fua
    }
}
