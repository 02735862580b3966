//! What a zone does next, under its shard's lock.
//!
//! A [`PlugEvent`] has changed the zone's word. Now the head of its queue passes the gates, one after the other: parking, the turn of
//! the thread, the slot, the token of mode `qd1`, and last the queue itself ([`zonal_core::plug::Queue::next`]). A gate lets it
//! through, ends it, or stops the step: then what the gate waits for brings the zone on again.
//!
//! The order of the gates matters. A turn that is over takes nothing with it that others wait for. A zone without a slot does not
//! keep the token from others.

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

/// A zone that waits, while its shard is locked.
struct ZoneStep<'a> {
    volume: &'a Volume,
    now: Nanos,
    zone: ZoneIndex,
    rules: Rules,
    word: Word,
    shard: &'a mut Shard,
    turn: &'a mut Turn,
    is_qd1: bool,
    /// Mode `qd1`: whether the step has the token, and whether the zone had a write with it before.
    has_token: &'a mut bool,
    continues: bool,
}

/// What a gate says to the head of the queue.
enum Gate {
    Open,
    /// The head has ended: the next one is asked.
    Again,
    /// The zone waits.
    Shut,
}

/// What has become of the head of the queue.
enum Head {
    /// It is a command now.
    Out,
    /// It has ended or was parked: the next one is asked.
    Gone,
    /// There is none that may go.
    Stays,
    /// The zone is quiet, and held for what concerns all zones.
    Held,
}

impl Volume {
    /// Brings `event` to a zone, and puts the zone's next command into `slot`, if it has one; ends the requests that go no further.
    ///
    /// `has_token`, in mode `qd1`: whether this step has the token; afterwards, whether it is left with it.
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
        // Under the lock, so that they are those of the mode that the zone is in.
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
                // Without the lock: the last zone to be quiet has the switch take effect, under a mutex.
                *slot = self.zone_is_quiet();
            }
            Head::Out | Head::Gone | Head::Stays => {}
        }
    }
}

impl ZoneStep<'_> {
    /// Goes through the heads of the queue up to the first that becomes a command.
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
                    // A write keeps the token until it ends.
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

    /// This thread has done its share. The next poll of any thread serves the zone; with the token, the next in line.
    #[inline]
    fn turn_is_over(&mut self) -> bool {
        if self.turn.issued < TURN_MAX || !self.word.is_issuable(&self.rules) {
            return false;
        }
        match std::mem::take(self.has_token) {
            true => self.volume.tokens.of(self.zone).park(self.zone),
            false => self.volume.ready.push(self.zone),
        }
        self.turn.leaves_work();
        true
    }

    /// The slot that the head needs, if the zone has none.
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
                self.turn.leaves_work();
                Gate::Shut
            }
        }
    }

    /// The token of mode `qd1`, if the head is a write. Without it the zone stands in line.
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

    /// The queue has the last word on its head.
    #[inline]
    fn head(&mut self, slot: &mut Option<Context>) -> Head {
        let volume = self.volume;
        let queue = self.shard.queue(self.zone);
        let (word, next) = queue.next(self.word, &self.rules);
        self.word = word;
        match next {
            Next::Nothing => return Head::Stays,
            Next::Fail(error) => return self.refuse(error),
            // A reset of all zones gives up what has failed; a switch leaves it to be decided in the new mode.
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
            // Nothing goes to the drive: polls ask it whether what timed out may still come.
            Next::Settle => {
                volume.recovering.settle(self.zone);
                self.turn.leaves_work();
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

    /// Gives the write in `slot` its place, and those along that may follow it.
    #[inline]
    fn issue_alone(&mut self, at: u32, slot: &mut Option<Context>) {
        let (volume, first) = (self.volume, one(slot));
        volume.terms.place_again(self.zone, at, first);
        if self.is_qd1 {
            volume.tokens.of(self.zone).wrote(first.sectors);
        }
        // A chain does not look whether others wait.
        let is_watched = self.is_qd1
            && volume.tokens.of(self.zone).has_line()
            && volume.terms.settings.qd1_quantum() != Qd1Quantum::NONE;
        if !self.word.appending() && !is_watched {
            self.word = volume.chain(self.word, &self.rules, self.shard, first);
        }
    }

    /// The head cannot be issued where the zone stands: it is parked or refused.
    fn refuse(&mut self, error: RequestError) -> Head {
        let volume = self.volume;
        match volume.park(self.now, self.zone, self.word, self.shard, &error, self.turn) {
            Some(parked) => self.word = parked,
            None => self.turn.end(self.shard.queue(self.zone).pop(), Err(error)),
        }
        Head::Gone
    }

    /// Nothing goes out now. A zone in which nothing waits any more gives its queue up.
    #[inline]
    fn rest(&mut self) {
        if self.word.has_parked() && !self.word.waits() {
            // No other write waits; a write that comes now was not in line after what was lost before.
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
