//! Recovery of failed writes: their zone keeps them until its write pointer is reread, and then
//! each is resubmitted, read back, or ended with an error.
//!
//! [`zonal_core::plug::plan`] and `verdict` decide; this module carries it out. A failed command is
//! split into its requests, which enter the zone's queue as [`Failed`](zonal_core::plug::Failed).
//! The queue then requests the steps of recovery one at a time, like any other command: settling
//! timed-out commands, a report, the read-backs. Each is a command or a question repeated by polls,
//! so only this zone waits. Zones that wait for polls are in `recovering`.

use super::event::PlugEvent;
use super::pending::{PendingRequest, ReadBack, RequestStage};
use super::turn::{Stack, Turn};
use super::verdict::{ReadBackResult, end_all};
use super::{Progress, Shard, Volume, counters::Counter};
use crate::device::{CommandResult, Context, ContextKind, Output};
use zonal_core::plug::Word;
use zonal_core::{DeviceError, Nanos, Sectors, ZoneIndex};

/// Writes of a failed command, and the device's error.
pub(super) struct Lost {
    pub(super) writes: Vec<Box<PendingRequest>>,
    pub(super) error: DeviceError,
}

impl Volume {
    /// Queues the failed writes of a zone until its write pointer is known. Returns the zone's
    /// word.
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
            // The writes behind it were not issued: they have not failed and wait again.
            if let Some(behind) = pending.behind.take() {
                word = self.unchain(zone, word, behind, shard, turn);
            }
            pending.plugged = false;
            let failed = self.terms.failed_write(pending, lost.error);
            shard.queue(zone).fail(word, failed);
        }
        word
    }

    /// Decides the failed writes of a zone after the device has reported it, or failed to.
    pub(super) fn resynced(
        &self,
        zone: ZoneIndex,
        result: CommandResult,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let word = self.plugs.load(zone);
        match self.terms.reported_state(zone, result) {
            Ok((resync, condition)) => {
                let decided = self.terms.decide(zone, word, resync, shard.queue(zone), turn);
                self.counters.line().add(Counter::Redriven, decided.sent_again);
                if decided.starves {
                    self.recovering.wait_for_slot(zone);
                    turn.request_poll();
                }
                self.slots.apply_report(zone, decided.word, condition, turn)
            }
            Err(error) => {
                self.slots.unknown(zone, word);
                let mut waiting = Vec::new();
                let queue = shard.queue(zone);
                queue.resync_failed(&mut waiting);
                let failed = queue.abandon();
                // Without failed writes, a caller requested the report, so nothing is lost.
                if !failed.is_empty() {
                    turn.loses_write();
                }
                shard.abort_parked(zone, &mut waiting);
                end_all(zone, word, failed, waiting, error, turn);
                word
            }
        }
    }

    /// Continues after the read of a piece of a covered write.
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
            ReadBackResult::Again(r) => {
                let retries = r.retries;
                self.retry_later(now, Context(ContextKind::ReadBack(r)), retries, stack);
            }
            ReadBackResult::Next(r) => {
                self.issue_and_stack(now, &mut Some(Context(ContextKind::ReadBack(r))), stack)
            }
            ReadBackResult::All(pending) => {
                self.counters.line().add(Counter::Verified, 1);
                self.serve(now, zone, found(false, None), turn, stack);
                self.end_verified(now, pending, turn, stack);
            }
            ReadBackResult::InPart(rest) => {
                self.counters.line().add(Counter::Redriven, 1);
                self.serve(now, zone, found(false, Some(rest)), turn, stack);
            }
            ReadBackResult::Lost(pending, error) => {
                self.serve(now, zone, found(true, None), turn, stack);
                turn.end(pending, Err(error));
            }
        }
    }

    /// Ends a write that was found on the medium, after a flush if it has to be durable.
    fn end_verified(&self, now: Nanos, mut pending: Box<PendingRequest>, turn: &mut Turn, stack: &mut Stack) {
        if pending.fua && self.terms.info.volatile_cache {
            pending.stage = RequestStage::FlushBehind;
            return self.issue_and_stack(now, &mut Some(Context::one(pending)), stack);
        }
        let output = self.output(&pending, Output::Done);
        turn.end(pending, Ok(output));
    }

    /// Checks the zones in a recovery that only polls can continue.
    #[inline]
    pub(super) fn poll_recovering(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        match self.recovering.start_check() {
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
            turn.notify(self);
            progress = Progress::Some;
        });
        let mut treat = |zone, event| {
            let mut turn = Turn::default();
            self.apply_event(now, zone, event, &mut turn);
            turn.notify(self);
            progress = Progress::Some;
        };
        self.recovering.settle_timed_out(&*self.device, now, deadline, |zone, answer| {
            treat(zone, PlugEvent::Settled(answer))
        });
        self.recovering.try_again(&self.plugs, |zone, counts| treat(zone, PlugEvent::TryAgain { counts }));
        progress
    }

    /// Ends a timed-out write to a conventional zone once it can no longer take effect, since its
    /// caller may then write there again.
    #[cold]
    pub(super) fn end_once_settled(&self, now: Nanos, pending: Box<PendingRequest>, turn: &mut Turn) {
        let at = pending.sector + Sectors(pending.done.into());
        let zone = self.terms.info.geometry.zone_of(at);
        match self.recovering.settle_write(&*self.device, now, zone, pending) {
            Some((pending, error)) => turn.end(pending, Err(error.into())),
            None => turn.request_poll(),
        }
    }

    /// Applies the device's answer about a zone's timed-out commands.
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
