//! Mode `pipelined`: a window of writes per zone at the device, on devices that preserve order.
//!
//! A device that executes the commands of one queue in order of submission needs no gap between the
//! writes of a zone. A write is issued while others are in flight, at the resulting write pointer,
//! and all pending writes of a zone use one queue, whichever thread submits them:
//! [`Volume::queue_of`].
//!
//! # Submission in order
//! Writes have to be submitted to the device in the order of admission, yet no lock is held while
//! the device runs. The word that admits a write therefore says `issuing`, and no other write is
//! admitted until the issuing thread has submitted it and cleared the bit. A write that arrives
//! meanwhile waits in the zone's queue, or fails if it may not wait; the issuing thread then finds
//! that the zone has waiters and serves it ([`Work::Arrived`]). A command refused by a full queue
//! leaves the word at `issuing` until a poll has submitted it: at most one command per zone is
//! stalled, and no later one overtakes it.
//!
//! # Writes issued alone
//! Writes of several commands, since other writes could get between these, and writes of zeroes,
//! which may have to be repeated as ordinary writes. Merging is unaffected: writes that wait
//! because the window is full may share commands.
//!
//! # Devices that reorder
//! The device refuses writes that arrive early, as not at the write pointer. Recovery waits until
//! the window is empty and resubmits all of them in order. A write that was misplaced because an
//! earlier one failed is not charged with the round, so a window of any size behind one bad write
//! eventually succeeds, while the rounds of the bad write are bounded. For this reason the mode can
//! be forced on a device that promises no order: it is slow there, but correct.

use super::Volume;
use super::mode::WriteMode;
use super::plugs::{Admitted, Decision};
use super::submit::{Fate, one};
use super::turn::{Stack, Turn, Work};
use crate::device::{Context, Submitted};
use zonal_core::plug::{Word, WriteKind};
use zonal_core::{Nanos, ZoneIndex};

impl Volume {
    /// Submits a write to a sequential zone in mode `pipelined`.
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
                true => Decision::Leave(Admitted::OtherMode),
                false => Admitted::decision(word.admit(kind, pending.sectors, &self.terms.rules(zone))),
            }
        });
        match admitted {
            Admitted::At(at) => {
                self.terms.place(zone, at, pending);
                self.issue_admitted(now, zone, slot)
            }
            Admitted::Refused(error) => self.refuse_or_park(now, zone, kind, slot, error),
            // After a switch of the mode, the queue handles any mode.
            Admitted::Waits | Admitted::OtherMode => self.queue_write(now, zone, kind, slot),
        }
    }

    /// Issues a write that was just admitted, in any mode.
    pub(super) fn issue_admitted(&self, now: Nanos, zone: ZoneIndex, slot: &mut Option<Context>) -> Fate {
        // Read while the write is in flight, which excludes a switch of the mode.
        if !self.terms.policy.is(WriteMode::Pipelined) {
            let has_token = self.terms.policy.is(WriteMode::Qd1);
            return self.issue_first(now, zone, slot, has_token);
        }
        self.terms.prefer_writes_of_zeroes(one(slot));
        self.issue_and_go_on(now, slot);
        Fate::Later
    }

    /// Issues the command in `slot` and processes all immediate consequences.
    pub(super) fn issue_and_go_on(&self, now: Nanos, slot: &mut Option<Context>) {
        let (mut turn, mut stack) = (Turn::default(), Stack::new());
        self.issue_and_stack(now, slot, &mut stack);
        self.empty(now, &mut stack, &mut turn);
        turn.notify(self);
    }

    /// Submits a plugged write to its zone's device queue, and pushes its result and further work
    /// onto the stack.
    pub(super) fn issue_in_window(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        slot: &mut Option<Context>,
        stack: &mut Stack,
    ) {
        let queue = self.terms.queue_of(zone);
        // Read before the device has the command; afterwards the word may describe another write.
        let on_its_way = self.plugs.load(zone).issuing();
        let submitted = match self.stalled.is_empty() || self.stalled.len_of(queue) == 0 {
            true => self.offer(now, queue, slot),
            // Stalled commands go first.
            false => Submitted::Busy,
        };
        if matches!(submitted, Submitted::Busy) {
            return self.stall_or_fail(now, queue, slot);
        }
        // Below the result on the stack: a completion makes room for one write, the arrival looks
        // for all.
        if on_its_way && self.plugs.has_arrived(zone) {
            stack.push(Work::Arrived(zone));
        }
        if let Submitted::Done(result) = submitted {
            stack.push(Work::Finished(slot.take().expect("an answered command leaves its context"), result));
        }
    }

    /// Zone for which the write in `slot` is being issued in a window, for
    /// [`Volume::window_write_arrived`].
    pub(super) fn issuing_zone(&self, slot: &Option<Context>) -> Option<ZoneIndex> {
        if !self.terms.policy.is(WriteMode::Pipelined) {
            return None;
        }
        slot.as_ref()
            .and_then(|c| self.terms.zone_of_write(c))
            .filter(|&zone| self.plugs.load(zone).issuing())
    }

    /// Serves a zone after its stalled write has reached the device.
    pub(super) fn window_write_arrived(&self, now: Nanos, zone: ZoneIndex) {
        if self.plugs.has_arrived(zone) {
            self.run(now, Work::Arrived(zone));
        }
    }

    /// Updates the word after a write for which others waited has reached the device.
    pub(super) fn arrived(&self, zone: ZoneIndex) -> Word {
        self.plugs.change(zone, Word::has_issued)
    }
}
