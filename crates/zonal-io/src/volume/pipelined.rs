//! Mode `pipelined`: a window of a zone's writes at the device at once, where the device keeps their order.
//!
//! A device that takes the commands of one queue in the order of their submission needs no gap between the writes of a
//! zone. So a write goes out while others are in flight, at the pointer that they leave, and all that is pending of a zone
//! uses one queue, whichever thread submits: [`Volume::queue_of`].
//!
//! # One at a time to the device
//! What is admitted first has to be submitted first, and no lock is held while the device runs. So the word that admits a
//! write says `issuing`, and no other write is admitted until the thread that brings it to the device has cleared that. A
//! write that comes meanwhile waits in the zone's queue, or hears that it would have to; the issuing thread finds the word
//! waiting and lets it go ([`Work::Arrived`]). A command that meets a full queue keeps the word `issuing` until a poll has
//! got it in: of a zone at most one is stalled, and nothing that was admitted later passes it.
//!
//! # What goes alone
//! A write of several commands, since their gaps cannot be filled, and one of zeroes, which the device may not know and
//! then gets as data. Merging continues as ever: what waits because the window is full may share commands.
//!
//! # When the device reorders
//! It refuses the writes that come early, as not at the pointer. Recovery waits until the window is empty, and sends all of
//! them again in order. A write that was misplaced because another failed before it does not count the round against
//! itself, so a window of any size after one unlucky write succeeds in the end; the unlucky one is bounded. That is also
//! why the mode can be forced upon a device that promises nothing: it is slow there, not wrong.

use super::Volume;
use super::mode::WriteMode;
use super::pending::Pending;
use super::submit::{Fate, one};
use super::turn::{Stack, Turn, Work};
use crate::device::{Context, ContextKind, Submitted};
use zonal_core::plug::{Admission, Word, WriteKind};
use zonal_core::{Nanos, Op, ZoneIndex};

impl Volume {
    /// A write to a sequential zone in mode `pipelined`.
    pub(super) fn write_in_window(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        kind: WriteKind,
        slot: &mut Option<Context>,
    ) -> Fate {
        let pending = one(slot);
        let mut word = self.load(zone);
        let at = loop {
            match word.admit(kind, pending.sectors, &self.rules(zone)) {
                Admission::Issue(next, at) => match self.exchange(zone, word, next) {
                    Ok(()) => break at,
                    // The mode was switched: the queue knows what to do in every one.
                    Err(_) if self.policy.is(WriteMode::Qd1) => {
                        return self.queue_write(now, zone, kind, slot);
                    }
                    Err(seen) => word = seen,
                },
                Admission::Refuse(e) => return self.refuse_or_park(now, zone, kind, slot, e),
                Admission::Wait => return self.queue_write(now, zone, kind, slot),
            }
        };
        self.place(zone, at, pending);
        self.issue_admitted(now, zone, slot)
    }

    /// Issues a write that was just admitted in whatever mode.
    pub(super) fn issue_admitted(&self, now: Nanos, zone: ZoneIndex, slot: &mut Option<Context>) -> Fate {
        // Read while the write is in flight: the mode is not switched then.
        if !self.policy.is(WriteMode::Pipelined) {
            let has_token = self.policy.is(WriteMode::Qd1);
            return self.issue_first(now, zone, slot, has_token);
        }
        self.prefer_writes_of_zeroes(one(slot));
        self.issue_and_go_on(now, slot);
        Fate::Later
    }

    /// Issues the command in `slot`, and deals with all that follows at once.
    pub(super) fn issue_and_go_on(&self, now: Nanos, slot: &mut Option<Context>) {
        let (mut turn, mut stack) = (Turn::default(), Stack::new());
        self.issue_and_stack(now, slot, &mut stack);
        self.empty(now, &mut stack, &mut turn);
        turn.tell(self);
    }

    /// Sends a plugged write to its zone's queue, and leaves its answer and what may follow it on the stack.
    pub(super) fn issue_in_window(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        slot: &mut Option<Context>,
        stack: &mut Stack,
    ) {
        let queue = self.queue_of(zone);
        // Asked before the device has it: afterwards the word may speak of another.
        let on_its_way = self.load(zone).issuing();
        let submitted = match self.stalled.is_empty() || self.stalled.len_of(queue) == 0 {
            true => self.offer(now, queue, slot),
            // The commands that met the full queue go first.
            false => Submitted::Busy,
        };
        if matches!(submitted, Submitted::Busy) {
            return self.turned_away(now, queue, slot);
        }
        // Below its answer: an end makes room for one, the arrival looks for all.
        if on_its_way && self.has_arrived(zone) {
            stack.push(Work::Arrived(zone));
        }
        if let Submitted::Done(result) = submitted {
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        }
    }

    /// The zone whose write in `slot` is being issued in a window, for [`Volume::let_others_follow`].
    pub(super) fn on_its_way(&self, slot: &Option<Context>) -> Option<ZoneIndex> {
        if !self.policy.is(WriteMode::Pipelined) {
            return None;
        }
        slot.as_ref().and_then(|c| self.zone_of_write(c)).filter(|&zone| self.load(zone).issuing())
    }

    /// A write that had met a full queue has reached the device.
    pub(super) fn let_others_follow(&self, now: Nanos, zone: ZoneIndex) {
        if self.has_arrived(zone) {
            self.run(now, Work::Arrived(zone));
        }
    }

    /// The write of `zone` that was being issued has reached the device. Returns whether others wait: then the word is
    /// not to be changed here, and the caller has to do that with the shard's lock.
    fn has_arrived(&self, zone: ZoneIndex) -> bool {
        let mut word = self.load(zone);
        while !word.waits() {
            match self.exchange(zone, word, word.has_issued()) {
                Ok(()) => return false,
                Err(seen) => word = seen,
            }
        }
        true
    }

    /// The zone of a command that a plug counts as a write in flight.
    pub(super) fn zone_of_write(&self, context: &Context) -> Option<ZoneIndex> {
        let first = match &context.0 {
            ContextKind::One(p) => p,
            ContextKind::Merged(m) => &m.parts[0],
            _ => return None,
        };
        (first.plugged && first.op.is_write()).then(|| self.info.geometry.zone_of(first.sector))
    }

    /// The queue of a zone's writes. The same for every thread: the writes of a thread that moves, or that continues
    /// where another stopped, stay after what is pending.
    pub(super) fn queue_of(&self, zone: ZoneIndex) -> usize {
        zone.0 as usize % self.info.queues
    }

    /// What a write that is queued, or goes into a window, is to the plug.
    #[inline]
    pub(super) fn with_company(&self, kind: WriteKind, pending: &Pending) -> WriteKind {
        let left = pending.sectors - pending.done;
        let alone = pending.op == Op::WriteZeroes || left > self.info.command_sectors_max;
        match kind {
            WriteKind::At(offset) if alone => WriteKind::Alone(offset),
            kind => kind,
        }
    }

    /// The word's change when a write has arrived for which others waited.
    pub(super) fn arrived(&self, zone: ZoneIndex) -> Word {
        self.change(zone, Word::has_issued)
    }
}
