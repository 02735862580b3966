//! Recovery of failed writes: their zone keeps them until the device has said where it stands, and then each is sent again,
//! read back, or ended with the facts.
//!
//! [`zonal_core::plug::plan`] decides; this module carries it out. A failed command is taken apart into its requests, which
//! go to the zone's queue as [`Failed`]. The queue asks for what recovery needs as it does for everything else, one step at
//! a time: that timed-out commands are settled, a report, the read-backs. Each is a command like any other or a question
//! that polls repeat, so only the zone waits.

use super::event::Event;
use super::pending::{Pending, ReadBack, Stage};
use super::retry::is_retried;
use super::turn::{Stack, Turn};
use super::{Progress, Shard, Volume, counters::Counter, plug_state};
use crate::buffer::IoBuf;
use crate::device::{CommandResult, Context, ContextKind, Output};
use zonal_core::plug::{Addressed, Decision, ErrorClass, Failed, ROUNDS_MAX, Resync, Word};
use zonal_core::{DeviceError, Nanos, RequestError, SECTOR_BYTES, Sectors, ZoneIndex};

pub(super) type FailedWrite = Failed<Box<Pending>>;

/// The writes of a command that failed, and the device's word on it.
pub(super) struct Lost {
    pub(super) writes: Vec<Box<Pending>>,
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
        let state = match result {
            Ok(Output::Zones(zones)) => {
                // A device that describes another zone, or a pointer outside it, has not answered.
                let described = zones.first().filter(|z| z.zone == zone);
                let state = described.and_then(|z| Some((plug_state(&self.terms.info, z)?, z.condition)));
                let state = state.map(|((class, pointer), c)| (Resync { class, pointer }, c));
                state.ok_or(DeviceError::InvalidField)
            }
            Ok(_) => Err(DeviceError::InvalidField),
            Err(e) => Err(e),
        };
        match state {
            Ok((resync, condition)) => {
                let word = self.decide(zone, word, resync, shard, turn);
                self.slots.described(zone, word, condition, turn)
            }
            Err(e) => {
                self.slots.unknown(zone, word);
                let queue = shard.queue(zone);
                let mut waiting = Vec::new();
                queue.resync_failed(&mut waiting);
                let failed = queue.abandon();
                // Without failed writes a caller asked for the report: nothing is lost then.
                if !failed.is_empty() {
                    turn.loses_write();
                }
                failed.into_iter().for_each(|f| self.end_unknown(zone, word, f, turn));
                shard.abort_parked(zone, &mut waiting);
                waiting.into_iter().for_each(|p| turn.end(p, Err(e.into())));
                word
            }
        }
    }

    fn decide(
        &self,
        zone: ZoneIndex,
        word: Word,
        resync: Resync,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let queue = shard.queue(zone);
        let (word, decided) = queue.resynced(word, resync, &self.terms.rules(zone));
        if decided.iter().any(|(_, v)| v.is_lost()) {
            turn.loses_write();
        }
        let lost_at = queue.lost_at().unwrap_or(resync.pointer);
        let (mut again, mut starves) = (Vec::new(), None);
        for (mut write, verdict) in decided {
            write.rounds = verdict.rounds;
            write.token.rounds = verdict.rounds;
            match verdict.decision {
                // Nothing of it was executed.
                Decision::Redrive => {
                    if ErrorClass::of(write.error) == ErrorClass::Resource {
                        starves = Some(write.error);
                    }
                    again.push(write);
                }
                Decision::Verify => queue.read_back(Failed { at: verdict.at, ..write }),
                // Where the device put it is a guess, and no caller may be told that another's sectors are garbage.
                Decision::Torn if write.addressed == Addressed::Native => {
                    queue.read_back(Failed { at: verdict.at, sectors: verdict.covered, ..write });
                }
                _ => {
                    let error = self.terms.verdict_error(zone, &write, &verdict, resync, lost_at);
                    turn.end(write.token, Err(error));
                }
            }
        }
        let is_denied =
            |f: &&FailedWrite| ErrorClass::of(f.error) == ErrorClass::Resource && f.token.is_of_drive();
        let denied: Vec<DeviceError> = again.iter().take_while(is_denied).map(|f| f.error).collect();
        // To the head, before all that waits, and from the last to the first: so the lowest place goes out first.
        for write in again.into_iter().rev() {
            self.counters.line().add(Counter::Redriven, 1);
            let item = self.terms.again(write);
            queue.push_front(word, item);
        }
        // A host of a served drive hears what the drive says. One after these is denied when it is tried again.
        for &error in &denied {
            let pending = queue.give_up(word);
            turn.end(pending, Err(error.into()));
        }
        // Sent again at once they would be refused at once: they wait until a zone was filled, reset, finished or closed.
        if denied.is_empty()
            && let Some(error) = starves
        {
            queue.starve(error);
            self.patients.starve(zone);
            turn.leaves_work();
        }
        word.waiting()
    }

    /// Ends a failed write of a zone whose pointer is not known.
    fn end_unknown(&self, zone: ZoneIndex, word: Word, write: FailedWrite, turn: &mut Turn) {
        let Failed { at: offset, error, .. } = write;
        let unknown = matches!(ErrorClass::of(error), ErrorClass::Maybe | ErrorClass::Unknown);
        let error = match unknown {
            true => RequestError::FateUnknown { zone, offset, write_pointer: word.pointer(), error },
            false => RequestError::Device(error),
        };
        turn.end(write.token, Err(error));
    }

    /// The failed writes of a zone that is about to be reset or finished end with what the device said.
    pub(super) fn abandon_failed(&self, zone: ZoneIndex, shard: &mut Shard, turn: &mut Turn) {
        for write in shard.queue(zone).abandon_for_management() {
            turn.end(write.token, Err(write.error.into()));
        }
    }

    /// The first piece of a covered write, to be read.
    pub(super) fn begin_read_back(&self, word: Word, write: FailedWrite) -> Context {
        self.counters.line().add(Counter::ReadBack, 1);
        let end = (write.at + write.sectors).min(word.pointer());
        let covered = end - write.at;
        let mut read_back =
            Box::new(ReadBack { write, covered, compared: 0, retries: 0, piece: IoBuf::empty() });
        self.terms.next_piece(&mut read_back);
        Context(ContextKind::ReadBack(read_back))
    }

    /// A piece of a covered write was read, or could not be.
    pub(super) fn piece_read(
        &self,
        now: Nanos,
        mut r: Box<ReadBack>,
        result: CommandResult,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        if is_retried(r.retries, &result) {
            r.retries += 1;
            let retries = r.retries;
            return self.retry_later(now, Context(ContextKind::ReadBack(r)), retries, stack);
        }
        let from = r.write.token.done + r.compared;
        let found = result.is_ok() && r.write.token.has_payload(from, &mut r.piece);
        if found {
            // A write may be longer than the largest read.
            r.compared += (r.piece.len() as u64 / SECTOR_BYTES) as u32;
            if r.compared < r.covered {
                r.retries = 0;
                self.terms.next_piece(&mut r);
                return self.issue_and_stack(now, &mut Some(Context(ContextKind::ReadBack(r))), stack);
            }
        }
        self.was_read_back(now, *r, found, turn, stack);
    }

    /// A native append that the medium spoilt has left its garbage where it was looked for, or somewhere else.
    fn garbage_read_back(
        &self,
        now: Nanos,
        write: FailedWrite,
        found: bool,
        turn: &mut Turn,
        stack: &mut Stack,
    ) {
        let zone = self.terms.info.geometry.zone_of(write.token.sector);
        let Failed { at: offset, sectors, error, .. } = write;
        self.serve(now, zone, Event::ReadBack { lost: true, rest: None }, turn, stack);
        let end = match found {
            true => RequestError::TornAppend { zone, offset, sectors, error },
            false => RequestError::Device(error),
        };
        turn.end(write.token, Err(end));
    }

    /// A covered write is done, its rest is sent again, or its fate is unknown.
    fn was_read_back(&self, now: Nanos, r: ReadBack, found: bool, turn: &mut Turn, stack: &mut Stack) {
        let zone = self.terms.info.geometry.zone_of(r.write.token.sector);
        let ReadBack { mut write, covered, .. } = r;
        let Failed { at: offset, error, rounds, .. } = write;
        if ErrorClass::of(error) == ErrorClass::Medium {
            return self.garbage_read_back(now, write, found, turn, stack);
        }
        if !found {
            let write_pointer = self.plugs.load(zone).pointer();
            self.serve(now, zone, Event::ReadBack { lost: true, rest: None }, turn, stack);
            let unknown = RequestError::FateUnknown { zone, offset, write_pointer, error };
            return turn.end(write.token, Err(unknown));
        }
        write.token.done += covered;
        if write.token.done < write.token.sectors {
            // The beginning is there, so only the rest goes out again, as one round more.
            if rounds <= ROUNDS_MAX {
                self.counters.line().add(Counter::Redriven, 1);
                let rest = Some(self.terms.again(write));
                return self.serve(now, zone, Event::ReadBack { lost: false, rest }, turn, stack);
            }
            self.serve(now, zone, Event::ReadBack { lost: true, rest: None }, turn, stack);
            let gave_up = RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error };
            return turn.end(write.token, Err(gave_up));
        }
        self.counters.line().add(Counter::Verified, 1);
        // Only now is it known where the device put it.
        if write.addressed == Addressed::Native {
            write.token.sector = self.terms.info.geometry.start_of(zone) + Sectors(write.at.into());
        }
        self.serve(now, zone, Event::ReadBack { lost: false, rest: None }, turn, stack);
        self.end_verified(now, write.token, turn, stack);
    }

    /// A write that turned out to be there is as good as a successful write, up to durability.
    fn end_verified(&self, now: Nanos, mut pending: Box<Pending>, turn: &mut Turn, stack: &mut Stack) {
        if pending.fua && self.terms.info.volatile_cache {
            pending.stage = Stage::FlushBehind;
            return self.issue_and_stack(now, &mut Some(Context::one(pending)), stack);
        }
        let output = self.output(&pending, Output::Done);
        turn.end(pending, Ok(output));
    }

    /// Looks after the zones whose recovery waits for what only polls can see.
    #[inline]
    pub(super) fn look_after_patients(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        match self.patients.begin_look() {
            true => self.treat_patients(now, deadline),
            false => Progress::None,
        }
    }

    #[cold]
    fn treat_patients(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        let mut progress = Progress::None;
        let mut treat = |zone, event| {
            let mut turn = Turn::default();
            self.go_on(now, zone, event, &mut turn);
            turn.tell(self);
            progress = Progress::Some;
        };
        self.patients
            .ask_device(&*self.device, now, deadline, |zone, answer| treat(zone, Event::Settled(answer)));
        self.patients.feed(&self.plugs, |zone, counts| treat(zone, Event::Fed { counts }));
        progress
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
        failed.into_iter().for_each(|f| self.end_unknown(zone, word, f, turn));
        shard.abort_parked(zone, &mut waiting);
        waiting.into_iter().for_each(|p| turn.end(p, Err(error.into())));
        word
    }

    /// The first write of a zone may try again for a slot, unless it has often enough.
    pub(super) fn was_fed(&self, zone: ZoneIndex, counts: bool, shard: &mut Shard, turn: &mut Turn) -> Word {
        let word = self.plugs.load(zone);
        if !word.waits() {
            return word;
        }
        let queue = shard.queue(zone);
        let Some(error) = queue.feed() else { return word };
        let Some(first) = queue.front_mut().filter(|p| counts && p.op.is_write()) else { return word };
        first.rounds += 1;
        if first.rounds > ROUNDS_MAX {
            let pending = queue.give_up(word);
            turn.loses_write();
            let offset = pending.at + pending.done;
            let gave_up = RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error };
            turn.end(pending, Err(gave_up));
        }
        word
    }
}
