//! Decisions about failed writes, on a zone's word and queue, without access to the drive.
//! `recovery` carries them out.

use super::pending::{PendingRequest, ReadBack};
use super::plug_state;
use super::retry::is_retried;
use super::terms::Terms;
use super::turn::Turn;
use crate::buffer::IoBuf;
use crate::device::{CommandResult, Output};
use zonal_core::plug::{
    Addressed, Decision, ErrorClass, Failed, Item, Queue, ROUNDS_MAX, RequestKind, Resync, Verdict, Word,
    WriteKind, ZoneClass,
};
use zonal_core::{DeviceError, Op, RequestError, SECTOR_BYTES, Sectors, ZoneCondition, ZoneIndex};

pub(super) type FailedWrite = Failed<Box<PendingRequest>>;

/// State of a zone after its failed writes were decided.
pub(super) struct Decided {
    pub(super) word: Word,
    /// Number of writes put at the head of its queue for resubmission.
    pub(super) sent_again: u64,
    /// The first of them waits for a slot.
    pub(super) starves: bool,
}

/// Result of reading back a piece of a covered write.
pub(super) enum ReadBackResult {
    /// The read failed and is worth a retry.
    Again(Box<ReadBack>),
    /// The piece matches; read the next.
    Next(Box<ReadBack>),
    /// The whole write is on the medium.
    All(Box<PendingRequest>),
    /// The beginning is on the medium; the rest is resubmitted.
    InPart(Item<Box<PendingRequest>>),
    /// The write ends with this error, and writes behind it may depend on it.
    Lost(Box<PendingRequest>, RequestError),
}

impl Terms {
    /// Extracts the state of `zone` from a report.
    pub(super) fn reported_state(
        &self,
        zone: ZoneIndex,
        result: CommandResult,
    ) -> Result<(Resync, ZoneCondition), DeviceError> {
        let Output::Zones(zones) = result? else { return Err(DeviceError::InvalidField) };
        // A report of another zone, or with a write pointer outside the zone, is invalid.
        let described = zones.first().filter(|z| z.zone == zone).ok_or(DeviceError::InvalidField)?;
        let (class, pointer) = plug_state(&self.info, described).ok_or(DeviceError::InvalidField)?;
        Ok((Resync { class, pointer }, described.condition))
    }

    /// Decides the failed writes of `zone` from its state in `resync`: each returns to the queue or
    /// ends.
    pub(super) fn decide(
        &self,
        zone: ZoneIndex,
        word: Word,
        resync: Resync,
        queue: &mut Queue<Box<PendingRequest>>,
        turn: &mut Turn,
    ) -> Decided {
        let (word, decided) = queue.resynced(word, resync, &self.rules(zone));
        if decided.iter().any(|(_, v)| v.is_lost()) {
            turn.loses_write();
        }
        let lost_at = queue.lost_at().unwrap_or(resync.pointer);
        let mut again = Vec::new();
        for (mut write, verdict) in decided {
            write.rounds = verdict.rounds;
            write.token.rounds = verdict.rounds;
            match verdict.decision {
                // Nothing was executed.
                Decision::Redrive => again.push(write),
                Decision::Verify => queue.read_back(Failed { at: verdict.at, ..write }),
                // The position of a native append is a guess here. Another caller's sectors must
                // not be reported as garbage.
                Decision::Torn if write.addressed == Addressed::Native => {
                    queue.read_back(Failed { at: verdict.at, sectors: verdict.covered, ..write });
                }
                _ => {
                    let error = self.verdict_error(zone, &write, &verdict, resync, lost_at);
                    turn.end(write.token, Err(error));
                }
            }
        }
        let (sent_again, starves) = self.send_again(word, again, queue, turn);
        Decided { word: word.waiting(), sent_again, starves }
    }

    /// Queues writes that were not executed ahead of all others. Returns their number, and true if
    /// the first has to wait for a slot.
    fn send_again(
        &self,
        word: Word,
        again: Vec<FailedWrite>,
        queue: &mut Queue<Box<PendingRequest>>,
        turn: &mut Turn,
    ) -> (u64, bool) {
        let sent_again = again.len() as u64;
        let wants_zone = |f: &FailedWrite| ErrorClass::of(f.error) == ErrorClass::Resource;
        let starves = again.iter().rfind(|f| wants_zone(f)).map(|f| f.error);
        // The host of a served drive gets the drive's error. Later writes are denied when they are
        // retried.
        let is_denied = |f: &&FailedWrite| wants_zone(f) && f.token.is_of_drive();
        let denied: Vec<DeviceError> = again.iter().take_while(is_denied).map(|f| f.error).collect();
        // In reverse, so that the lowest position is first.
        for write in again.into_iter().rev() {
            let item = self.again(write);
            queue.push_front(word, item);
        }
        for &error in &denied {
            turn.end(queue.give_up(word), Err(error.into()));
        }
        // An immediate retry would fail again: wait until a zone is filled, reset, finished or
        // closed.
        let starves = starves.filter(|_| denied.is_empty());
        if let Some(error) = starves {
            queue.wait_for_slot(error);
        }
        (sent_again, starves.is_some())
    }

    /// Starts to read back a covered write.
    pub(super) fn begin_read_back(&self, word: Word, write: FailedWrite) -> Box<ReadBack> {
        let covered = (write.at + write.sectors).min(word.pointer()) - write.at;
        let mut read_back =
            Box::new(ReadBack { write, covered, compared: 0, retries: 0, piece: IoBuf::empty() });
        self.next_piece(&mut read_back);
        read_back
    }

    /// Evaluates the read of a piece of a covered write of `zone`, with this word.
    pub(super) fn compare(
        &self,
        zone: ZoneIndex,
        word: Word,
        mut r: Box<ReadBack>,
        result: &CommandResult,
    ) -> ReadBackResult {
        if is_retried(r.retries, result) {
            r.retries += 1;
            return ReadBackResult::Again(r);
        }
        let from = r.write.token.done + r.compared;
        let found = result.is_ok() && r.write.token.has_payload(from, &mut r.piece);
        if found {
            // A write may be longer than the largest read.
            r.compared += (r.piece.len() as u64 / SECTOR_BYTES) as u32;
            if r.compared < r.covered {
                r.retries = 0;
                self.next_piece(&mut r);
                return ReadBackResult::Next(r);
            }
        }
        let ReadBack { write, covered, .. } = *r;
        if ErrorClass::of(write.error) == ErrorClass::Medium {
            return spoilt(zone, write, found);
        }
        self.read_whole(zone, word, write, found.then_some(covered))
    }

    /// Decides after the whole covered part of a write was read: `covered` is its length in sectors
    /// if it matched.
    fn read_whole(
        &self,
        zone: ZoneIndex,
        word: Word,
        mut write: FailedWrite,
        covered: Option<u32>,
    ) -> ReadBackResult {
        let Failed { at: offset, error, rounds, .. } = write;
        let Some(covered) = covered else {
            let write_pointer = word.pointer();
            return ReadBackResult::Lost(
                write.token,
                RequestError::FateUnknown { zone, offset, write_pointer, error },
            );
        };
        write.token.done += covered;
        if write.token.done < write.token.sectors {
            // The beginning is on the medium, so only the rest is resubmitted, as one more round.
            return match rounds <= ROUNDS_MAX {
                true => ReadBackResult::InPart(self.again(write)),
                false => ReadBackResult::Lost(
                    write.token,
                    RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error },
                ),
            };
        }
        // Reading back has confirmed the position.
        if write.addressed == Addressed::Native {
            write.token.sector = self.info.geometry.start_of(zone) + Sectors(write.at.into());
        }
        ReadBackResult::All(write.token)
    }

    pub(super) fn failed_write(&self, pending: Box<PendingRequest>, error: DeviceError) -> FailedWrite {
        let native = self.policy.appends_in_flight_max() > 0;
        // The rest of a torn append has a fixed position, which others rely on, in every mode.
        let addressed = match pending.op {
            Op::Append if pending.done > 0 => Addressed::Positional,
            Op::Append if native => Addressed::Native,
            Op::Append => Addressed::Emulated,
            _ => Addressed::Positional,
        };
        let (at, sectors) = (pending.at + pending.done, pending.sectors - pending.done);
        Failed { addressed, at, sectors, error, rounds: pending.rounds, token: pending }
    }

    /// Queue entry for a failed write to be resubmitted.
    fn again(&self, write: FailedWrite) -> Item<Box<PendingRequest>> {
        let mut pending = write.token;
        // It was admitted once, so from here on it has to wait, for a full device queue too.
        pending.nowait = false;
        let kind = match pending.op {
            Op::Append if pending.done == 0 => {
                // It loses its position. After a switch it may be issued natively, which requires
                // the zone's start.
                pending.sector = self.info.geometry.start_of(self.info.geometry.zone_of(pending.sector));
                WriteKind::Append
            }
            _ => self.queued_kind(WriteKind::At(pending.at + pending.done), &pending),
        };
        let sectors = pending.sectors - pending.done;
        Item { kind: RequestKind::Write(kind, sectors), mergeable: false, token: pending }
    }

    fn verdict_error(
        &self,
        zone: ZoneIndex,
        write: &FailedWrite,
        verdict: &Verdict,
        resync: Resync,
        lost_at: u32,
    ) -> RequestError {
        let &Failed { at: offset, error, .. } = write;
        match verdict.decision {
            Decision::Torn => {
                RequestError::TornAppend { zone, offset: verdict.at, sectors: verdict.covered, error }
            }
            Decision::Lost => RequestError::PredecessorLost { zone, lost_at, offset },
            Decision::Refuse => match resync.class {
                ZoneClass::ReadOnly => RequestError::ZoneReadOnly { zone },
                ZoneClass::Offline => RequestError::ZoneOffline { zone },
                _ => RequestError::ZoneFull { zone },
            },
            Decision::Unknown => {
                RequestError::FateUnknown { zone, offset, write_pointer: resync.pointer, error }
            }
            Decision::GiveUp => RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error },
            // The rest of a torn append has a fixed position, so the part already written is
            // garbage too.
            Decision::Fail if write.token.op == Op::Append && self.is_spoilt_rest(write, resync) => {
                let PendingRequest { at: offset, done, .. } = *write.token;
                RequestError::TornAppend { zone, offset, sectors: done + verdict.covered, error }
            }
            Decision::Fail | Decision::Redrive | Decision::Verify => RequestError::Device(error),
        }
    }

    /// True if the medium failed an append that already had, and still has, a part in the zone.
    fn is_spoilt_rest(&self, write: &FailedWrite, resync: Resync) -> bool {
        let is_medium = ErrorClass::of(write.error) == ErrorClass::Medium;
        is_medium && write.token.done > 0 && write.at <= resync.pointer
    }

    fn next_piece(&self, r: &mut ReadBack) {
        let sectors = (r.covered - r.compared).min(self.info.command_sectors_max);
        let mut piece = IoBuf::zeroed(sectors * SECTOR_BYTES as u32);
        // A device that leaves the buffer unchanged must not seem to hold the data.
        r.write.token.fill_unlike(r.write.token.done + r.compared, &mut piece);
        r.piece = piece;
    }

    /// Assigns a position to a write to be resubmitted; a partly completed write keeps its own.
    #[inline]
    pub(super) fn place_again(&self, zone: ZoneIndex, at: u32, pending: &mut PendingRequest) {
        if pending.done == 0 {
            self.place(zone, at, pending);
        } else {
            pending.plugged = true;
        }
    }
}

/// Error of a native append that failed on the medium: its garbage was found at the expected
/// position, or is elsewhere.
fn spoilt(zone: ZoneIndex, write: FailedWrite, found: bool) -> ReadBackResult {
    let Failed { at: offset, sectors, error, token, .. } = write;
    let end = match found {
        true => RequestError::TornAppend { zone, offset, sectors, error },
        false => RequestError::Device(error),
    };
    ReadBackResult::Lost(token, end)
}

/// Ends all failed and waiting writes of `zone`, since the device failed to report it with `error`.
pub(super) fn end_all(
    zone: ZoneIndex,
    word: Word,
    failed: Vec<FailedWrite>,
    waiting: Vec<Box<PendingRequest>>,
    error: DeviceError,
    turn: &mut Turn,
) {
    for Failed { at: offset, error, token, .. } in failed {
        let unknown = matches!(ErrorClass::of(error), ErrorClass::Maybe | ErrorClass::Unknown);
        let end = match unknown {
            true => RequestError::FateUnknown { zone, offset, write_pointer: word.pointer(), error },
            false => RequestError::Device(error),
        };
        turn.end(token, Err(end));
    }
    for pending in waiting {
        turn.end(pending, Err(error.into()));
    }
}

/// Ends the failed writes of a zone that is about to be reset or finished with the device's error.
pub(super) fn abandon(queue: &mut Queue<Box<PendingRequest>>, turn: &mut Turn) {
    for write in queue.abandon_for_management() {
        turn.end(write.token, Err(write.error.into()));
    }
}

/// Lets the first write of `zone` try again for a slot, or fails it after too many rounds. A try
/// `counts` as a round if nothing else could have ended the wait.
pub(super) fn try_again_for_slot(
    zone: ZoneIndex,
    word: Word,
    counts: bool,
    queue: &mut Queue<Box<PendingRequest>>,
    turn: &mut Turn,
) {
    let Some(error) = queue.try_again() else { return };
    let Some(first) = queue.front_mut().filter(|p| counts && p.op.is_write()) else { return };
    first.rounds += 1;
    if first.rounds > ROUNDS_MAX {
        let pending = queue.give_up(word);
        turn.loses_write();
        let offset = pending.at + pending.done;
        let gave_up = RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error };
        turn.end(pending, Err(gave_up));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::retry::RETRIES_MAX;
    use zonal_core::plug::Next;
    use zonal_core::{Sector, ZoneError};

    const ZONE: ZoneIndex = ZoneIndex(0);

    /// 96 sectors of zeroes at the start of the first zone, failed with `error`.
    fn failed(error: DeviceError) -> FailedWrite {
        let mut token = PendingRequest::unused();
        (token.op, token.sectors) = (Op::WriteZeroes, 96);
        Failed { addressed: Addressed::Positional, at: 0, sectors: 96, error, rounds: 1, token }
    }

    /// Reads `write` back from a zone that holds zeroes up to `pointer`. `found` returns true for
    /// each piece that can be read.
    fn read_back(write: FailedWrite, pointer: u32, mut found: impl FnMut(u32) -> bool) -> ReadBackResult {
        let terms = Terms::of_drive(|_| {});
        let word = Word::new(ZoneClass::Sequential, pointer);
        let mut r = terms.begin_read_back(word, write);
        loop {
            if found(r.compared) {
                r.piece.fill(0);
            }
            match terms.compare(ZONE, word, r, &Ok(Output::Done)) {
                ReadBackResult::Next(next) => r = next,
                end => return end,
            }
        }
    }

    #[test]
    fn covered_write_is_read_piece_by_piece_and_is_whole_when_all_are_its() {
        let mut pieces = Vec::new();
        let end = read_back(failed(DeviceError::Aborted), 96, |at| {
            pieces.push(at);
            true
        });
        assert!(matches!(end, ReadBackResult::All(pending) if pending.done == 96));
        assert_eq!(pieces, [0, 64]);
    }

    #[test]
    fn piece_that_is_not_the_writes_leaves_its_fate_unknown() {
        let end = read_back(failed(DeviceError::Aborted), 96, |at| at == 0);
        let unknown = RequestError::FateUnknown {
            zone: ZONE,
            offset: 0,
            write_pointer: 96,
            error: DeviceError::Aborted,
        };
        assert!(matches!(end, ReadBackResult::Lost(_, error) if error == unknown));
    }

    #[test]
    fn rest_of_a_partial_write_is_retried_a_limited_number_of_times() {
        let end = |rounds| read_back(Failed { rounds, ..failed(DeviceError::Aborted) }, 40, |_| true);
        let rest = RequestKind::Write(WriteKind::Alone(40), 56);
        assert!(
            matches!(end(ROUNDS_MAX), ReadBackResult::InPart(item) if item.kind == rest && item.token.done == 40)
        );
        assert!(matches!(end(ROUNDS_MAX + 1), ReadBackResult::Lost(_, RequestError::GaveUp { .. })));
    }

    #[test]
    fn read_back_that_is_refused_is_tried_again_a_few_times() {
        let terms = Terms::of_drive(|_| {});
        let word = Word::new(ZoneClass::Sequential, 96);
        let mut r = terms.begin_read_back(word, failed(DeviceError::Aborted));
        for retry in 1..=RETRIES_MAX {
            let ReadBackResult::Again(again) = terms.compare(ZONE, word, r, &Err(DeviceError::Busy)) else {
                panic!("try {retry} was the last")
            };
            assert_eq!(again.retries, retry);
            r = again;
        }
        assert!(matches!(terms.compare(ZONE, word, r, &Err(DeviceError::Busy)), ReadBackResult::Lost(..)));
    }

    #[test]
    fn torn_native_append_is_reported_only_if_its_garbage_was_found() {
        let spoilt = |is_found| {
            let write = Failed { addressed: Addressed::Native, ..failed(DeviceError::Medium) };
            match read_back(write, 96, |_| is_found) {
                ReadBackResult::Lost(_, error) => error,
                _ => panic!("what the medium spoilt is lost"),
            }
        };
        let torn =
            RequestError::TornAppend { zone: ZONE, offset: 0, sectors: 96, error: DeviceError::Medium };
        assert_eq!(spoilt(true), torn);
        assert_eq!(spoilt(false), RequestError::Device(DeviceError::Medium));
    }

    /// Decides about two adjacent writes that failed with `error`, in a zone with this write
    /// pointer. Returns the state of the zone, the positions of the writes to resubmit in order,
    /// and true if a write is lost.
    fn decided(error: DeviceError, pointer: u32) -> (Decided, Vec<u32>, bool) {
        let terms = Terms::of_drive(|_| {});
        let mut queue = Queue::default();
        let word = Word::new(ZoneClass::Sequential, 96).waiting().recovering();
        for at in [48, 0] {
            let mut write = Failed { at, sectors: 48, ..failed(error) };
            write.token.sector = Sector(at.into());
            (write.token.at, write.token.sectors) = (at, 48);
            queue.fail(word, write);
        }
        let (word, next) = queue.next(word, &terms.rules(ZONE));
        assert!(matches!(next, Next::Resync));
        let mut turn = Turn::default();
        let resync = Resync { class: ZoneClass::Sequential, pointer };
        let decided = terms.decide(ZONE, word, resync, &mut queue, &mut turn);
        let again = std::iter::from_fn(|| (!queue.is_empty()).then(|| queue.pop().at)).collect();
        (decided, again, turn.has_lost_write())
    }

    #[test]
    fn writes_that_were_not_executed_are_sent_again_the_lowest_first() {
        let (decided, again, is_lost) = decided(DeviceError::Busy, 0);
        assert_eq!((decided.word.pointer(), decided.sent_again, decided.starves), (0, 2, false));
        assert_eq!((again, is_lost), (vec![0, 48], false));
    }

    #[test]
    fn write_without_a_zone_waits_for_one_before_it_is_sent_again() {
        let (decided, again, _) = decided(DeviceError::Zone(ZoneError::TooManyActive), 0);
        assert_eq!((decided.sent_again, decided.starves, again), (2, true, vec![0, 48]));
    }

    #[test]
    fn writes_that_the_medium_spoilt_end_and_are_lost() {
        let (decided, again, is_lost) = decided(DeviceError::Medium, 0);
        assert_eq!((decided.sent_again, again, is_lost), (0, vec![], true));
    }
}
