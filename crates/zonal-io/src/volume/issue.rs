//! Commands for the device: what a request's next one is, which queue takes it, and what becomes of those
//! that a full queue turns away.

use super::Volume;
use super::counters::Counter;
use super::event::Event;
use super::mode::WriteMode;
use super::pending::{Merged, Pending, Stage};
use super::submit::take_one;
use super::turn::{Stack, Turn, Work};
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, ContextKind, Output, Submitted};
use zonal_core::{Nanos, Op, RequestError, SECTOR_BYTES, Sector, Sectors};

/// Zeroes for devices without write-zeroes; commands repeat it.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

impl Volume {
    pub(super) fn issue_and_stack(&self, now: Nanos, slot: &mut Option<Context>, stack: &mut Stack) {
        if self.policy.is(WriteMode::Pipelined)
            && let Some(zone) = slot.as_ref().and_then(|c| self.zone_of_write(c))
        {
            return self.issue_in_window(now, zone, slot, stack);
        }
        self.issue_one_by_one(now, slot, stack);
    }

    /// The same in the modes without a window.
    #[inline]
    pub(super) fn issue_one_by_one(&self, now: Nanos, slot: &mut Option<Context>, stack: &mut Stack) {
        if let Some(result) = self.issue(now, slot) {
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        }
    }

    /// Sends the command in `slot` to this thread's queue, after those that it turned away; returns its answer if it came
    /// at once.
    #[inline(always)]
    pub(super) fn issue(&self, now: Nanos, slot: &mut Option<Context>) -> Option<CommandResult> {
        let queue = self.reapers.own();
        // The commands that met the full queue go first.
        if !self.stalled.is_empty() && self.stalled.len_of(queue) > 0 {
            self.turned_away(now, queue, slot);
            return None;
        }
        match self.offer(now, queue, slot) {
            Submitted::Done(Ok(Output::Done)) => Some(Ok(Output::Done)),
            Submitted::Done(result) => Some(result),
            Submitted::Pending => None,
            Submitted::Busy => {
                self.turned_away(now, queue, slot);
                None
            }
        }
    }

    /// Offers the command in `slot` to the device, which may turn it away.
    #[inline(always)]
    pub(super) fn offer(&self, now: Nanos, queue: usize, slot: &mut Option<Context>) -> Submitted {
        if let Some(Context(ContextKind::One(p))) = slot
            && p.stage == Stage::ZeroesAsWrites
        {
            *slot = Some(self.with_zeroes(take_one(slot)));
        }
        let command = self.command(slot.as_mut().expect("the caller has a command to issue"));
        let submitted = self.device.submit(now, queue, &command, slot);
        debug_assert_eq!(
            slot.is_none(),
            matches!(submitted, Submitted::Pending),
            "a device keeps the context of what it answers later"
        );
        // Made again where it has no content: copying it would read back in one piece what was written in several.
        match submitted {
            Submitted::Busy => {
                self.counters.line().add(Counter::Busy, 1);
                Submitted::Busy
            }
            Submitted::Pending => {
                self.counters.line().add(Counter::Commands, 1);
                Submitted::Pending
            }
            Submitted::Done(Ok(Output::Done)) => {
                self.counters.line().add(Counter::Commands, 1);
                Submitted::Done(Ok(Output::Done))
            }
            done => {
                self.counters.line().add(Counter::Commands, 1);
                done
            }
        }
    }

    /// Keeps a command that met a full queue, or withdraws it if its request may not wait.
    #[cold]
    pub(super) fn turned_away(&self, now: Nanos, queue: usize, slot: &mut Option<Context>) {
        match slot.take().expect("a command that was turned away has its context").0 {
            ContextKind::One(mut p) if p.nowait && p.done == 0 && p.stage == Stage::Main => {
                let mut turn = Turn::default();
                // Management has lost its `nowait` on the way: what is plugged here is a write.
                if std::mem::take(&mut p.plugged) {
                    let zone = self.info.geometry.zone_of(p.sector);
                    self.go_on(now, zone, Event::Withdrawn(p.sectors), &mut turn);
                }
                self.end_with(p, Err(RequestError::WouldWait), &mut turn);
                turn.tell(self);
            }
            kind => {
                self.stalled.push_back(queue, Context(kind));
                // The queue may have been emptied meanwhile, by a poll that did not find the command.
                self.alarm.ring();
            }
        }
    }

    /// Gives a write of zeroes its payload.
    #[cold]
    fn with_zeroes(&self, p: Box<Pending>) -> Context {
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

    /// Largest command of this operation, in sectors.
    #[inline]
    pub(super) fn command_max(&self, op: Op) -> u32 {
        match op {
            Op::Read | Op::Write => self.info.command_sectors_max,
            Op::Append => u32::MAX,
            op => self.rare_command_max(op),
        }
    }

    #[cold]
    fn rare_command_max(&self, op: Op) -> u32 {
        match op {
            Op::WriteZeroes => self.info.write_zeroes_sectors_max,
            Op::Verify => self.info.verify_sectors_max,
            Op::Discard => self.info.discard_sectors_max,
            _ => u32::MAX,
        }
    }

    /// Sectors of the request's next command.
    #[inline]
    pub(super) fn next_sectors(&self, p: &Pending) -> u32 {
        let op = if p.stage == Stage::ZeroesAsWrites { Op::Write } else { p.op };
        (p.sectors - p.done).min(self.command_max(op))
    }

    #[inline(always)]
    fn command(&self, context: &mut Context) -> Command {
        match &mut context.0 {
            ContextKind::One(p) if p.stage == Stage::FlushBehind => {
                Command { op: Op::Flush, fua: false, sectors: 0, sector: Sector(0), data: Data::NONE }
            }
            ContextKind::One(p) => {
                let sectors = self.next_sectors(p);
                let data = match p.op {
                    // SAFETY: the buffer travels with the command in its context and is not touched until it is back.
                    Op::Read | Op::Write | Op::Append => unsafe { p.data(sectors) },
                    _ => Data::NONE,
                };
                // The rest of a torn append has its place.
                let is_write = || self.policy.appends_in_flight_max() == 0 || p.done > 0;
                let op = if p.op == Op::Append && p.plugged && is_write() { Op::Write } else { p.op };
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
            ContextKind::Resync(zone, _) => {
                let sector = self.info.geometry.start_of(*zone);
                Command { op: Op::Report, fua: false, sectors: 1, sector, data: Data::NONE }
            }
            ContextKind::ReadBack(r) => self.read_back_command(r),
            ContextKind::Token(_) => panic!("a direct user's context reached a volume"),
        }
    }

    /// Durability with the write itself, where the device has a cache and knows how to pass it.
    fn fua(&self, p: &Pending) -> bool {
        p.fua && p.op.is_write() && self.info.volatile_cache && self.info.fua
    }
}
