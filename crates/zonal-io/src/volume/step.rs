//! Next step of a zone, under its shard's lock.
//!
//! After a [`PlugEvent`] has updated the zone's word, the head of the queue passes a series of
//! gates: parking, the thread's turn, the slot, the token of mode `qd1`, and finally the queue
//! itself ([`zonal_core::plug::Queue::next`]). Each gate admits the head, ends it, or stops the
//! step. In the last case, the resource that the gate waits for resumes the zone.
//!
//! The order of the gates matters. A used-up turn stops the step before the zone acquires anything
//! that others wait for, and a zone without a slot does not take the token.

use super::budget::{SlotAnswer, deny};
use super::channel::TURN_MAX;
use super::counters::Counter;
use super::event::PlugEvent;
use super::mode::WriteMode;
use super::submit::one;
use super::token::Qd1Quantum;
use super::turn::Turn;
use super::verdict::abandon;
use super::{Shard, Volume};
use crate::device::{Context, ContextKind};
use zonal_core::plug::{Next, Rules, Word};
use zonal_core::{Nanos, RequestError, ZoneIndex};

/// Step of a zone with waiters; holds the lock of its shard.
struct ZoneStep<'a> {
    volume: &'a Volume,
    now: Nanos,
    zone: ZoneIndex,
    rules: Rules,
    word: Word,
    shard: &'a mut Shard,
    turn: &'a mut Turn,
    is_qd1: bool,
    /// Mode `qd1`: this step has the token; the zone already had a write with it.
    has_token: &'a mut bool,
    continues: bool,
}

/// Answer of a gate to the head of the queue.
enum Gate {
    Open,
    /// The head has ended; look at the next.
    Again,
    /// The zone has to wait.
    Shut,
}

/// Result for the head of the queue.
enum Head {
    /// Became a command.
    Out,
    /// Ended or parked; look at the next.
    Gone,
    /// No request can be issued.
    Stays,
    /// The zone is quiet, and held for an operation on all zones.
    Held,
}

impl Volume {
    /// Applies `event` to a zone, moves the zone's next command, if any, into `slot`, and ends the
    /// requests that cannot continue.
    ///
    /// `has_token`, in mode `qd1`: on entry, true if this step has the token; on return, true if it
    /// still has it.
    #[inline]
    pub(super) fn next_of(
        &self,
        now: Nanos,
        zone: ZoneIndex,
        event: PlugEvent,
        turn: &mut Turn,
        slot: &mut Option<Context>,
        has_token: &mut bool,
    ) {
        let (continues, decides) = (!matches!(event, PlugEvent::Turn), event.decides());
        let mut shard = self.plugs.shard(zone).lock();
        let word = self.apply(zone, event, &mut shard, turn);
        if decides && turn.has_lost_write() {
            self.recorder.keep(shard.queue(zone), &self.terms.rules(zone));
        }
        if !word.waits() {
            return;
        }
        if self.channels.is_cancelling() {
            shard.cancel(zone, word, turn);
        }
        // Under the lock, so that they match the mode that the zone is in.
        let (rules, is_qd1) = (self.terms.rules(zone), self.terms.policy.is(WriteMode::Qd1));
        let mut step = ZoneStep {
            volume: self,
            now,
            zone,
            rules,
            word,
            shard: &mut shard,
            turn,
            is_qd1,
            has_token,
            continues,
        };
        match step.run(slot) {
            Head::Held => {
                drop(shard);
                // Without the lock: the last zone to become quiet performs the switch, under a
                // mutex.
                *slot = self.zone_is_quiet();
            }
            Head::Out | Head::Gone | Head::Stays => {}
        }
    }
}

impl ZoneStep<'_> {
    /// Processes heads of the queue until one becomes a command.
    #[inline]
    fn run(&mut self, slot: &mut Option<Context>) -> Head {
        loop {
            if self.word.has_parked() {
                self.word = self.volume.terms.unpark(self.now, self.zone, self.word, self.shard);
            }
            if self.turn_is_over() {
                break;
            }
            match self.slot() {
                Gate::Open if self.may_have_token() => {}
                Gate::Again => continue,
                Gate::Open | Gate::Shut => break,
            }
            match self.head(slot) {
                Head::Gone => {}
                Head::Stays => break,
                done => {
                    // A write keeps the token until it completes.
                    if self.is_qd1 && self.word.in_flight() > 0 {
                        *self.has_token = false;
                    }
                    self.volume.plugs.store(self.zone, self.word);
                    return done;
                }
            }
        }
        self.rest();
        Head::Stays
    }

    /// True if the thread has used up its turn. The next poll of any thread then serves the zone,
    /// which keeps the token if it has it.
    #[inline]
    fn turn_is_over(&mut self) -> bool {
        if self.turn.issued < TURN_MAX || !self.word.is_issuable(&self.rules) {
            return false;
        }
        match std::mem::take(self.has_token) {
            true => self.volume.tokens.of(self.zone).park(self.zone),
            false => self.volume.ready.push(self.zone),
        }
        self.turn.request_poll();
        true
    }

    /// Obtains the slot that the head needs, if the zone has none.
    #[inline]
    fn slot(&mut self) -> Gate {
        let queue = self.shard.queue(self.zone);
        if self.word.has_slot() || !queue.wants_slot(self.word, &self.rules) {
            return Gate::Open;
        }
        let class = queue.front().map(|pending| pending.class()).unwrap_or_default();
        let (slots, plugs) = (&self.volume.slots, &self.volume.plugs);
        match slots.for_head(plugs, self.now, self.zone, self.word, class) {
            SlotAnswer::Has(granted) => {
                self.word = granted;
                Gate::Open
            }
            SlotAnswer::Denied(error) => {
                deny(queue, error, self.turn);
                Gate::Again
            }
            SlotAnswer::Waits | SlotAnswer::Raced(_) => {
                self.turn.request_poll();
                Gate::Shut
            }
        }
    }

    /// Obtains the token of mode `qd1` if the head is a write; otherwise enlists the zone for it.
    #[inline]
    fn may_have_token(&mut self) -> bool {
        if !self.is_qd1 || !self.shard.queue(self.zone).would_write(self.word) {
            return true;
        }
        let token = self.volume.tokens.of(self.zone);
        let may = match *self.has_token {
            true if self.continues => {
                token.may_continue(self.now, self.zone, self.volume.terms.settings.qd1_quantum())
            }
            true => true,
            false => token.take_or_enlist(self.now, self.zone),
        };
        *self.has_token |= may;
        may
    }

    /// Lets the queue decide about its head.
    #[inline]
    fn head(&mut self, slot: &mut Option<Context>) -> Head {
        let volume = self.volume;
        let queue = self.shard.queue(self.zone);
        let (word, next) = queue.next(self.word, &self.rules);
        self.word = word;
        match next {
            Next::Nothing => return Head::Stays,
            Next::Fail(error) => return self.refuse(error),
            // A reset of all zones gives up failed writes; a switch leaves them to be decided in
            // the new mode.
            Next::Held => {
                abandon(self.shard.queue(self.zone), self.turn);
                return Head::Held;
            }
            Next::Issue { at, parts: 1, .. } => {
                *slot = Some(Context::one(queue.pop()));
                self.issue_alone(at, slot);
            }
            Next::Issue { at, sectors, parts } => {
                if self.is_qd1 {
                    volume.tokens.of(self.zone).wrote(sectors);
                }
                *slot = Some(volume.merge((0..parts).map(|_| queue.pop()), at, sectors));
            }
            Next::Manage(_) => {
                if !word.has_slot() {
                    volume.slots.cancel(self.zone);
                }
                *slot = Some(Context::one(queue.pop()));
                one(slot).plugged = true;
                abandon(self.shard.queue(self.zone), self.turn);
            }
            // No command is issued: polls ask the drive whether timed-out commands may still take
            // effect.
            Next::Settle => {
                volume.recovering.settle(self.zone);
                self.turn.request_poll();
            }
            Next::ReadBack => {
                volume.counters.line().add(Counter::ReadBack, 1);
                let read_back = volume.terms.begin_read_back(word, queue.take_covered());
                *slot = Some(Context(ContextKind::ReadBack(read_back)));
            }
            Next::Resync => {
                volume.counters.line().add(Counter::Resyncs, 1);
                *slot = Some(Context(ContextKind::Resync(self.zone, 0)));
            }
        }
        Head::Out
    }

    /// Assigns a position to the write in `slot`, and to the writes that can follow it in a chain.
    #[inline]
    fn issue_alone(&mut self, at: u32, slot: &mut Option<Context>) {
        let (volume, first) = (self.volume, one(slot));
        volume.terms.place_again(self.zone, at, first);
        if self.is_qd1 {
            volume.tokens.of(self.zone).wrote(first.sectors);
        }
        // A chain does not check for other waiting zones.
        let is_watched = self.is_qd1
            && volume.tokens.of(self.zone).has_line()
            && volume.terms.settings.qd1_quantum() != Qd1Quantum::NONE;
        if !self.word.appending() && !is_watched {
            self.word = volume.chain(self.word, &self.rules, self.shard, first);
        }
    }

    /// Parks or refuses the head, which cannot be issued at the zone's write pointer.
    fn refuse(&mut self, error: RequestError) -> Head {
        let volume = self.volume;
        match volume.park(self.now, self.zone, self.word, self.shard, &error, self.turn) {
            Some(parked) => self.word = parked,
            None => self.turn.end(self.shard.queue(self.zone).pop(), Err(error)),
        }
        Head::Gone
    }

    /// Ends a step that issues nothing. A zone without waiters releases its queue.
    #[inline]
    fn rest(&mut self) {
        if self.word.has_parked() && !self.word.waits() {
            // No other write waits, so a write submitted from now on was not behind the lost one.
            self.shard.queue(self.zone).forget_loss();
            self.word = self.word.waiting();
        }
        if !self.word.waits() {
            if !self.word.has_slot() {
                self.volume.slots.cancel(self.zone);
            }
            self.shard.drop_queue(self.zone);
        }
        self.volume.plugs.store(self.zone, self.word);
    }
}
