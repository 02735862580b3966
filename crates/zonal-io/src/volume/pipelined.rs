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
use super::plugs::{Admitted, Look};
use super::submit::{Fate, one};
use super::turn::{Stack, Turn, Work};
use crate::device::{Context, Submitted};
use zonal_core::plug::{Word, WriteKind};
use zonal_core::{Nanos, ZoneIndex};

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
        let admitted = self.plugs.admit(zone, self.plugs.load(zone), |word| {
            match self.terms.policy.is(WriteMode::Qd1) {
                true => Look::Leave(Admitted::OtherMode),
                false => Admitted::look(word.admit(kind, pending.sectors, &self.terms.rules(zone))),
            }
        });
        match admitted {
            Admitted::At(at) => {
                self.terms.place(zone, at, pending);
                self.issue_admitted(now, zone, slot)
            }
            Admitted::Refused(error) => self.refuse_or_park(now, zone, kind, slot, error),
            // Where the mode was switched, the queue knows what to do in every one.
            Admitted::Waits | Admitted::OtherMode => self.queue_write(now, zone, kind, slot),
        }
    }

    /// Issues a write that was just admitted in whatever mode.
    pub(super) fn issue_admitted(&self, now: Nanos, zone: ZoneIndex, slot: &mut Option<Context>) -> Fate {
        // Read while the write is in flight: the mode is not switched then.
        if !self.terms.policy.is(WriteMode::Pipelined) {
            let has_token = self.terms.policy.is(WriteMode::Qd1);
            return self.issue_first(now, zone, slot, has_token);
        }
        self.terms.prefer_writes_of_zeroes(one(slot));
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
        let queue = self.terms.queue_of(zone);
        // Asked before the device has it: afterwards the word may speak of another.
        let on_its_way = self.plugs.load(zone).issuing();
        let submitted = match self.stalled.is_empty() || self.stalled.len_of(queue) == 0 {
            true => self.offer(now, queue, slot),
            // The commands that met the full queue go first.
            false => Submitted::Busy,
        };
        if matches!(submitted, Submitted::Busy) {
            return self.turned_away(now, queue, slot);
        }
        // Below its answer: an end makes room for one, the arrival looks for all.
        if on_its_way && self.plugs.has_arrived(zone) {
            stack.push(Work::Arrived(zone));
        }
        if let Submitted::Done(result) = submitted {
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        }
    }

    /// The zone whose write in `slot` is being issued in a window, for [`Volume::let_others_follow`].
    pub(super) fn on_its_way(&self, slot: &Option<Context>) -> Option<ZoneIndex> {
        if !self.terms.policy.is(WriteMode::Pipelined) {
            return None;
        }
        slot.as_ref()
            .and_then(|c| self.terms.zone_of_write(c))
            .filter(|&zone| self.plugs.load(zone).issuing())
    }

    /// A write that had met a full queue has reached the device.
    pub(super) fn let_others_follow(&self, now: Nanos, zone: ZoneIndex) {
        if self.plugs.has_arrived(zone) {
            self.run(now, Work::Arrived(zone));
        }
    }

    /// The word's change when a write has arrived for which others waited.
    pub(super) fn arrived(&self, zone: ZoneIndex) -> Word {
        self.plugs.change(zone, Word::has_issued)
    }
}
