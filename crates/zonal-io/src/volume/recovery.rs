//! Recovery of failed writes: their zone keeps them until the device has said where it stands, and then each is sent again,
//! read back, or ended with the facts.
//!
//! [`zonal_core::plug::plan`] and `verdict` decide; this module carries it out. A failed command is taken apart into its requests,
//! which go to the zone's queue as [`Failed`](zonal_core::plug::Failed). The queue asks for what recovery needs as it does for
//! everything else, one step at a time: that timed-out commands are settled, a report, the read-backs. Each is a command like any
//! other or a question that polls repeat, so only the zone waits. Zones that wait for polls are in `recovering`.

use super::event::PlugEvent;
use super::pending::{PendingRequest, ReadBack, RequestStage};
use super::turn::{Stack, Turn};
use super::verdict::{Read, end_all};
use super::{Progress, Shard, Volume, counters::Counter};
use crate::device::{CommandResult, Context, ContextKind, Output};
use zonal_core::plug::Word;
use zonal_core::{DeviceError, Nanos, Sectors, ZoneIndex};

/// The writes of a command that failed, and the device's word on it.
pub(super) struct Lost {
    pub(super) writes: Vec<Box<PendingRequest>>,
    pub(super) error: DeviceError,
}

impl Volume {
    /// The failed writes of a zone go to its queue until its pointer is known. Returns the zone's word.
    pub(super) fn keep_failed(
        &self,
        zone: ZoneIndex,
        lost: Lost,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let mut word = self.plugs.change(zone, |w| w.completed().recovering());
        if self.recorder.is_on() {
            shard.queue(zone).begin_flight();
        }
        for mut pending in lost.writes {
            // What was to follow it has not gone out: it has failed with nothing, and waits again.
            if let Some(behind) = pending.behind.take() {
                word = self.unchain(zone, word, behind, shard, turn);
            }
            pending.plugged = false;
            let failed = self.terms.failed_write(pending, lost.error);
            shard.queue(zone).fail(word, failed);
        }
        word
    }

    /// The device has said where a zone stands, or could not: its failed writes are decided.
    pub(super) fn resynced(
        &self,
        zone: ZoneIndex,
        result: CommandResult,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let word = self.plugs.load(zone);
        match self.terms.described(zone, result) {
            Ok((resync, condition)) => {
                let decided = self.terms.decide(zone, word, resync, shard.queue(zone), turn);
                self.counters.line().add(Counter::Redriven, decided.sent_again);
                if decided.starves {
                    self.recovering.wait_for_slot(zone);
                    turn.leaves_work();
                }
                self.slots.described(zone, decided.word, condition, turn)
            }
            Err(error) => {
                self.slots.unknown(zone, word);
                let mut waiting = Vec::new();
                let queue = shard.queue(zone);
                queue.resync_failed(&mut waiting);
                let failed = queue.abandon();
                // Without failed writes a caller asked for the report: nothing is lost then.
                if !failed.is_empty() {
                    turn.loses_write();
                }
                shard.abort_parked(zone, &mut waiting);
                end_all(zone, word, failed, waiting, error, turn);
                word
            }
        }
    }

    /// A piece of a covered write was read, or could not be.
    pub(super) fn piece_read(
        &self,
        now: Nanos,
        read_back: Box<ReadBack>,
        result: &CommandResult,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        let zone = self.terms.info.geometry.zone_of(read_back.write.token.sector);
        let found = |lost, rest| PlugEvent::ReadBack { lost, rest };
        match self.terms.compare(zone, self.plugs.load(zone), read_back, result) {
            Read::Again(r) => {
                let retries = r.retries;
                self.retry_later(now, Context(ContextKind::ReadBack(r)), retries, stack);
            }
            Read::Next(r) => self.issue_and_stack(now, &mut Some(Context(ContextKind::ReadBack(r))), stack),
            Read::All(pending) => {
                self.counters.line().add(Counter::Verified, 1);
                self.serve(now, zone, found(false, None), turn, stack);
                self.end_verified(now, pending, turn, stack);
            }
            Read::InPart(rest) => {
                self.counters.line().add(Counter::Redriven, 1);
                self.serve(now, zone, found(false, Some(rest)), turn, stack);
            }
            Read::Lost(pending, error) => {
                self.serve(now, zone, found(true, None), turn, stack);
                turn.end(pending, Err(error));
            }
        }
    }

    /// A write that turned out to be there is as good as a successful write, up to durability.
    fn end_verified(&self, now: Nanos, mut pending: Box<PendingRequest>, turn: &mut Turn, stack: &mut Stack) {
        if pending.fua && self.terms.info.volatile_cache {
            pending.stage = RequestStage::FlushBehind;
            return self.issue_and_stack(now, &mut Some(Context::one(pending)), stack);
        }
        let output = self.output(&pending, Output::Done);
        turn.end(pending, Ok(output));
    }

    /// Looks after the zones whose recovery waits for what only polls can see.
    #[inline]
    pub(super) fn look_after_recovering(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        match self.recovering.begin_look() {
            true => self.serve_recovering(now, deadline),
            false => Progress::None,
        }
    }

    #[cold]
    fn serve_recovering(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        let mut progress = Progress::None;
        self.recovering.ask_about_writes(&*self.device, now, deadline, |pending, error| {
            let mut turn = Turn::default();
            turn.end(pending, Err(error.into()));
            turn.tell(self);
            progress = Progress::Some;
        });
        let mut treat = |zone, event| {
            let mut turn = Turn::default();
            self.go_on(now, zone, event, &mut turn);
            turn.tell(self);
            progress = Progress::Some;
        };
        self.recovering
            .ask_device(&*self.device, now, deadline, |zone, answer| treat(zone, PlugEvent::Settled(answer)));
        self.recovering.try_again(&self.plugs, |zone, counts| treat(zone, PlugEvent::TryAgain { counts }));
        progress
    }

    /// A write to a conventional zone timed out. It ends once it can no longer take effect: its caller may write there again.
    #[cold]
    pub(super) fn end_once_settled(&self, now: Nanos, pending: Box<PendingRequest>, turn: &mut Turn) {
        let at = pending.sector + Sectors(pending.done.into());
        let zone = self.terms.info.geometry.zone_of(at);
        match self.recovering.settle_write(&*self.device, now, zone, pending) {
            Some((pending, error)) => turn.end(pending, Err(error.into())),
            None => turn.leaves_work(),
        }
    }

    /// The device has settled a zone's timed-out commands, or cannot.
    pub(super) fn was_settled(
        &self,
        zone: ZoneIndex,
        answer: Result<(), DeviceError>,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let word = self.plugs.load(zone);
        if !word.waits() {
            return word;
        }
        let queue = shard.queue(zone);
        let Err(error) = answer else {
            queue.settled();
            return word;
        };
        let mut waiting = Vec::new();
        let (word, failed) = queue.cannot_settle(word, &mut waiting);
        self.slots.unknown(zone, word);
        turn.loses_write();
        shard.abort_parked(zone, &mut waiting);
        end_all(zone, word, failed, waiting, error, turn);
        word
    }
}
