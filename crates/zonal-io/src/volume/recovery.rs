//! Recovery of failed writes: their zone keeps them until the device has said where it stands, and then each is sent again,
//! read back, or ended with the facts.
//!
//! [`zonal_core::plug::plan`] decides; this module carries it out. A failed command is taken apart into its requests, which
//! go to the zone's queue as [`Failed`]. The queue asks for what recovery needs as it does for everything else, one step at
//! a time: that timed-out commands are settled, a report, the read-backs. Each is a command like any other or a question
//! that polls repeat, so only the zone waits.
//!
//! # Zones without a slot
//! A device that has no open or active zone left refuses the first write of another, where no budget is kept or the device
//! counts otherwise. Such a write goes back to the head of its queue and its zone to the list of the starved ones. It is
//! tried again when a zone that was partly written is full or empty, or one was closed, and when none of them has anything
//! under way that could lead to that: then it counts the round, so that a wait which nothing ends is an error.

use super::event::Event;
use super::pending::{Pending, Stage};
use super::retry::is_retried;
use super::turn::{Stack, Turn};
use super::{Progress, Shard, Volume, counters::Counter, earliest, plug_state};
use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, ContextKind, Output, Settled};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};
use zonal_core::plug::{
    Addressed, Class, Decision, ErrorClass, Failed, Item, Kind, ROUNDS_MAX, Resync, Verdict, Word, WriteKind,
};
use zonal_core::{DeviceError, Nanos, Op, RequestError, SECTOR_BYTES, Sectors, ZoneIndex};

type FailedWrite = Failed<Box<Pending>>;

/// The writes of a command that failed, and the device's word on it.
pub(super) struct Lost {
    pub(super) writes: Vec<Box<Pending>>,
    pub(super) error: DeviceError,
}

/// A covered write that is being read back.
pub(crate) struct ReadBack {
    write: FailedWrite,
    /// Sectors to compare, and how many were.
    covered: u32,
    compared: u32,
    /// Times that the next piece was asked for in vain.
    retries: u8,
    /// What the device has of the next piece.
    piece: IoBuf,
}

/// Zones whose recovery waits for something that only polls can see.
#[derive(Default)]
pub(super) struct Patients {
    /// How many there are: the one thing that polls read when there are none.
    len: AtomicUsize,
    /// With commands that timed out and are not settled.
    unsettled: Mutex<Vec<ZoneIndex>>,
    /// Without a slot.
    starved: Mutex<Vec<Starved>>,
    /// A zone was closed, so a slot may be free.
    closed: AtomicBool,
    /// A zone has come that no poll has looked at.
    fresh: AtomicBool,
}

struct Starved {
    zone: ZoneIndex,
    /// Zones that may hold the slots; `None` before the first look.
    holders: Option<Vec<ZoneIndex>>,
}

/// Holders that a starved zone looks at. Beyond that a device has in practice no limit.
const HOLDERS_MAX: usize = 4096;

/// What the holders of slots are doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holders {
    /// One has given its slot back.
    Freed,
    /// One has something under way.
    Busy,
    /// Nothing of them will change on its own.
    Idle,
}

impl Patients {
    fn add<T>(&self, list: &Mutex<Vec<T>>, patient: T) {
        list.lock().push(patient);
        self.len.fetch_add(1, Ordering::Release);
    }

    fn take<T>(&self, list: &Mutex<Vec<T>>) -> Vec<T> {
        let patients = std::mem::take(&mut *list.lock());
        self.len.fetch_sub(patients.len(), Ordering::Release);
        patients
    }

    pub(super) fn settle(&self, zone: ZoneIndex) {
        self.add(&self.unsettled, zone);
        self.fresh.store(true, Ordering::Release);
    }

    fn starve(&self, zone: ZoneIndex) {
        self.add(&self.starved, Starved { zone, holders: None });
        self.fresh.store(true, Ordering::Release);
    }

    /// Whether a zone has come that no poll has looked at.
    pub(super) fn are_fresh(&self) -> bool {
        self.len.load(Ordering::Acquire) > 0 && self.fresh.load(Ordering::Acquire)
    }

    /// A zone was closed.
    pub(super) fn zone_closed(&self) {
        if self.len.load(Ordering::Acquire) > 0 {
            self.closed.store(true, Ordering::Release);
        }
    }
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
        let mut word = self.change(zone, |w| w.completed().recovering());
        if self.recorder.is_on() {
            shard.queue(zone).begin_flight();
        }
        for mut pending in lost.writes {
            if let Some(behind) = pending.behind.take() {
                word = self.unchain(zone, word, behind, shard, turn);
            }
            pending.plugged = false;
            let failed = self.failed_write(pending, lost.error);
            shard.queue(zone).fail(word, failed);
        }
        word
    }

    fn failed_write(&self, pending: Box<Pending>, error: DeviceError) -> FailedWrite {
        let native = self.policy.appends_in_flight_max() > 0;
        // The rest of a torn append has a place, which others count on, in every mode.
        let addressed = match pending.op {
            Op::Append if pending.done > 0 => Addressed::Positional,
            Op::Append if native => Addressed::Native,
            Op::Append => Addressed::Emulated,
            _ => Addressed::Positional,
        };
        let (at, sectors) = (pending.at + pending.done, pending.sectors - pending.done);
        Failed { addressed, at, sectors, error, rounds: pending.rounds, token: pending }
    }

    /// The device has said where a zone stands, or could not: its failed writes are decided.
    pub(super) fn resynced(
        &self,
        zone: ZoneIndex,
        result: CommandResult,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let word = self.load(zone);
        let state = match result {
            Ok(Output::Zones(zones)) => {
                let described = zones.first().filter(|z| z.zone == zone);
                let state = described.and_then(|z| Some((plug_state(&self.info, z)?, z.condition)));
                let state = state.map(|((class, pointer), c)| (Resync { class, pointer }, c));
                state.ok_or(DeviceError::InvalidField)
            }
            Ok(_) => Err(DeviceError::InvalidField),
            Err(e) => Err(e),
        };
        match state {
            Ok((resync, condition)) => {
                let word = self.decide(zone, word, resync, shard, turn);
                self.slot_described(zone, word, condition, turn)
            }
            Err(e) => {
                self.slot_unknown(zone);
                let queue = shard.queue(zone);
                let mut waiting = Vec::new();
                queue.resync_failed(&mut waiting);
                let failed = queue.abandon();
                if !failed.is_empty() {
                    self.record_loss(zone, queue);
                }
                failed.into_iter().for_each(|f| self.end_unknown(zone, word, f, turn));
                shard.abort_parked(zone, &mut waiting);
                waiting.into_iter().for_each(|p| self.end_with(p, Err(e.into()), turn));
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
        let (word, decided) = queue.resynced(word, resync, &self.rules(zone));
        if decided.iter().any(|(_, v)| v.is_lost()) {
            self.record_loss(zone, queue);
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
                    let error = self.verdict_error(zone, &write, &verdict, resync, lost_at);
                    self.end_with(write.token, Err(error), turn);
                }
            }
        }
        let is_denied =
            |f: &&FailedWrite| ErrorClass::of(f.error) == ErrorClass::Resource && f.token.is_of_drive();
        let denied: Vec<DeviceError> = again.iter().take_while(is_denied).map(|f| f.error).collect();
        // To the head, before all that waits, and from the last to the first: so the lowest place goes out first.
        for write in again.into_iter().rev() {
            let item = self.again(write);
            queue.push_front(word, item);
        }
        // A host of a served drive hears what the drive says. One after these is denied when it is tried again.
        for &error in &denied {
            let pending = queue.give_up(word);
            self.end_with(pending, Err(error.into()), turn);
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

    /// A failed write as it waits to be sent again.
    fn again(&self, write: FailedWrite) -> Item<Box<Pending>> {
        let mut pending = write.token;
        self.counters.line().add(Counter::Redriven, 1);
        // It was admitted once: what it waits for now, a full queue included, it has to wait for.
        pending.nowait = false;
        let kind = match pending.op {
            Op::Append if pending.done == 0 => {
                // It gives its place up. It may go out natively, after a switch, and then has to name its zone.
                pending.sector = self.info.geometry.start_of(self.info.geometry.zone_of(pending.sector));
                WriteKind::Append
            }
            _ => self.with_company(WriteKind::At(pending.at + pending.done), &pending),
        };
        let sectors = pending.sectors - pending.done;
        Item { kind: Kind::Write(kind, sectors), mergeable: false, token: pending }
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
                Class::ReadOnly => RequestError::ZoneReadOnly { zone },
                Class::Offline => RequestError::ZoneOffline { zone },
                _ => RequestError::ZoneFull { zone },
            },
            Decision::Unknown => {
                RequestError::FateUnknown { zone, offset, write_pointer: resync.pointer, error }
            }
            Decision::GiveUp => RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error },
            // The rest of a torn append lies where it has to: what was written of it before is garbage, too.
            Decision::Fail if write.token.op == Op::Append && self.is_spoilt_rest(write, resync) => {
                let Pending { at: offset, done, .. } = *write.token;
                RequestError::TornAppend { zone, offset, sectors: done + verdict.covered, error }
            }
            Decision::Fail | Decision::Redrive | Decision::Verify => RequestError::Device(error),
        }
    }

    /// Whether the medium has failed an append of which a part was already in the zone, and is.
    fn is_spoilt_rest(&self, write: &FailedWrite, resync: Resync) -> bool {
        let is_medium = ErrorClass::of(write.error) == ErrorClass::Medium;
        is_medium && write.token.done > 0 && write.at <= resync.pointer
    }

    /// Ends a failed write of a zone whose pointer is not known.
    fn end_unknown(&self, zone: ZoneIndex, word: Word, write: FailedWrite, turn: &mut Turn) {
        let Failed { at: offset, error, .. } = write;
        let unknown = matches!(ErrorClass::of(error), ErrorClass::Maybe | ErrorClass::Unknown);
        let error = match unknown {
            true => RequestError::FateUnknown { zone, offset, write_pointer: word.pointer(), error },
            false => RequestError::Device(error),
        };
        self.end_with(write.token, Err(error), turn);
    }

    /// The failed writes of a zone that is about to be reset or finished end with what the device said.
    pub(super) fn abandon_failed(&self, zone: ZoneIndex, shard: &mut Shard, turn: &mut Turn) {
        for write in shard.queue(zone).abandon_for_management() {
            self.end_with(write.token, Err(write.error.into()), turn);
        }
    }

    /// The first piece of a covered write, to be read.
    pub(super) fn begin_read_back(&self, word: Word, write: FailedWrite) -> Context {
        self.counters.line().add(Counter::ReadBack, 1);
        let end = (write.at + write.sectors).min(word.pointer());
        let covered = end - write.at;
        let mut read_back =
            Box::new(ReadBack { write, covered, compared: 0, retries: 0, piece: IoBuf::empty() });
        self.next_piece(&mut read_back);
        Context(ContextKind::ReadBack(read_back))
    }

    fn next_piece(&self, r: &mut ReadBack) {
        let sectors = (r.covered - r.compared).min(self.info.command_sectors_max);
        let mut piece = IoBuf::zeroed(sectors * SECTOR_BYTES as u32);
        // A device that leaves the buffer as it is must not pass for a device that has the data.
        r.write.token.fill_unlike(r.write.token.done + r.compared, &mut piece);
        r.piece = piece;
    }

    /// The command of a read-back.
    pub(super) fn read_back_command(&self, r: &ReadBack) -> Command {
        let zone = self.info.geometry.zone_of(r.write.token.sector);
        let offset = r.write.at + r.compared;
        let sectors = (r.piece.len() as u64 / SECTOR_BYTES) as u32;
        let sector = self.info.geometry.start_of(zone) + Sectors(offset.into());
        // SAFETY: the buffer travels with the command in its boxed context and is not touched until it is back.
        let data = unsafe { Data::one(Segment::new(r.piece.as_ptr(), r.piece.len())) };
        Command { op: Op::Read, fua: false, sectors, sector, data }
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
            r.compared += (r.piece.len() as u64 / SECTOR_BYTES) as u32;
            if r.compared < r.covered {
                r.retries = 0;
                self.next_piece(&mut r);
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
        let zone = self.info.geometry.zone_of(write.token.sector);
        let Failed { at: offset, sectors, error, .. } = write;
        self.serve(now, zone, Event::ReadBack { lost: true, rest: None }, turn, stack);
        let end = match found {
            true => RequestError::TornAppend { zone, offset, sectors, error },
            false => RequestError::Device(error),
        };
        self.end_with(write.token, Err(end), turn);
    }

    /// A covered write is done, its rest is sent again, or its fate is unknown.
    fn was_read_back(&self, now: Nanos, r: ReadBack, found: bool, turn: &mut Turn, stack: &mut Stack) {
        let zone = self.info.geometry.zone_of(r.write.token.sector);
        let ReadBack { mut write, covered, .. } = r;
        let Failed { at: offset, error, rounds, .. } = write;
        if ErrorClass::of(error) == ErrorClass::Medium {
            return self.garbage_read_back(now, write, found, turn, stack);
        }
        if !found {
            let write_pointer = self.load(zone).pointer();
            self.serve(now, zone, Event::ReadBack { lost: true, rest: None }, turn, stack);
            let unknown = RequestError::FateUnknown { zone, offset, write_pointer, error };
            return self.end_with(write.token, Err(unknown), turn);
        }
        write.token.done += covered;
        if write.token.done < write.token.sectors {
            if rounds <= ROUNDS_MAX {
                let rest = Some(self.again(write));
                return self.serve(now, zone, Event::ReadBack { lost: false, rest }, turn, stack);
            }
            self.serve(now, zone, Event::ReadBack { lost: true, rest: None }, turn, stack);
            let gave_up = RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error };
            return self.end_with(write.token, Err(gave_up), turn);
        }
        self.counters.line().add(Counter::Verified, 1);
        if write.addressed == Addressed::Native {
            write.token.sector = self.info.geometry.start_of(zone) + Sectors(write.at.into());
        }
        self.serve(now, zone, Event::ReadBack { lost: false, rest: None }, turn, stack);
        self.end_verified(now, write.token, turn, stack);
    }

    /// A write that turned out to be there is as good as a successful write, up to durability.
    fn end_verified(&self, now: Nanos, mut pending: Box<Pending>, turn: &mut Turn, stack: &mut Stack) {
        if pending.fua && self.info.volatile_cache {
            pending.stage = Stage::FlushBehind;
            return self.issue_and_stack(now, &mut Some(Context::one(pending)), stack);
        }
        let output = self.output(&pending, Output::Done);
        self.end_with(pending, Ok(output), turn);
    }

    /// Takes the place of a write that goes out again: a partly done write has its own already.
    #[inline]
    pub(super) fn place_again(&self, zone: ZoneIndex, at: u32, pending: &mut Pending) {
        if pending.done == 0 {
            self.place(zone, at, pending);
        } else {
            pending.plugged = true;
        }
    }

    /// Looks after the zones whose recovery waits for what only polls can see.
    #[inline]
    pub(super) fn look_after_patients(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        if self.patients.len.load(Ordering::Acquire) == 0 {
            return Progress::None;
        }
        self.patients.fresh.store(false, Ordering::Release);
        let settled = self.settle_zones(now, deadline);
        let fed = self.feed_zones(now);
        if settled == Progress::Some { settled } else { fed }
    }

    #[cold]
    fn settle_zones(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        let mut progress = Progress::None;
        for zone in self.patients.take(&self.patients.unsettled) {
            let answer = match self.device.settle(now, zone) {
                Settled::Yes => Ok(()),
                Settled::Never(error) => Err(error),
                Settled::NotYet(due) => {
                    *deadline = earliest(*deadline, due);
                    self.patients.add(&self.patients.unsettled, zone);
                    continue;
                }
            };
            let mut turn = Turn::default();
            self.go_on(now, zone, Event::Settled(answer), &mut turn);
            turn.tell(self);
            progress = Progress::Some;
        }
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
        let word = self.load(zone);
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
        self.slot_unknown(zone);
        self.record_loss(zone, queue);
        failed.into_iter().for_each(|f| self.end_unknown(zone, word, f, turn));
        shard.abort_parked(zone, &mut waiting);
        waiting.into_iter().for_each(|p| self.end_with(p, Err(error.into()), turn));
        word
    }

    /// Tries again for zones without a slot, where it may be of use.
    #[cold]
    fn feed_zones(&self, now: Nanos) -> Progress {
        let closed = self.patients.closed.swap(false, Ordering::AcqRel);
        let mut starved = self.patients.take(&self.patients.starved);
        let hungry: Vec<ZoneIndex> = starved.iter().map(|s| s.zone).collect();
        let mut progress = Progress::None;
        for mut patient in starved.drain(..) {
            let holders = patient.holders.get_or_insert_with(|| self.slot_holders(patient.zone));
            let doing = if closed { Holders::Freed } else { self.doing(holders, &hungry) };
            if doing == Holders::Busy {
                self.patients.add(&self.patients.starved, patient);
            } else {
                self.feed(now, patient.zone, doing == Holders::Idle);
                progress = Progress::Some;
            }
        }
        progress
    }

    /// The zones that may hold a slot which `zone` lacks.
    fn slot_holders(&self, zone: ZoneIndex) -> Vec<ZoneIndex> {
        let is_partial = |&z: &ZoneIndex| {
            let word = self.load(z);
            !word.is_idle() || word.pointer() > 0 && word.pointer() < self.rules(z).capacity
        };
        self.sequential_zones().filter(|&z| z != zone).filter(is_partial).take(HOLDERS_MAX).collect()
    }

    fn doing(&self, holders: &[ZoneIndex], hungry: &[ZoneIndex]) -> Holders {
        let mut doing = Holders::Idle;
        // The starved wait themselves, with nothing under way.
        for &zone in holders.iter().filter(|z| !hungry.contains(z)) {
            let word = self.load(zone);
            // A zone at its start whose writes wait, for the token of mode qd1 or for their own slot, has given none back: zones
            // that took each other for ended ones would try for ever.
            let ended = word.pointer() == 0 && !word.waits() || word.pointer() >= self.rules(zone).capacity;
            if word.in_flight() == 0 && !word.frozen() && ended && !word.recovers() {
                return Holders::Freed;
            }
            // A zone that waits for a slot of the budget may wait for this very zone.
            let moves = word.waits() && !word.recovers() && word.has_slot();
            if word.in_flight() > 0 || word.frozen() || moves {
                doing = Holders::Busy;
            }
        }
        doing
    }

    /// Lets a starved zone try again; `counts`: nothing else can end its wait, so that the round counts.
    fn feed(&self, now: Nanos, zone: ZoneIndex, counts: bool) {
        let mut turn = Turn::default();
        self.go_on(now, zone, Event::Fed { counts }, &mut turn);
        turn.tell(self);
    }

    /// The first write of a zone may try again for a slot, unless it has often enough.
    pub(super) fn was_fed(&self, zone: ZoneIndex, counts: bool, shard: &mut Shard, turn: &mut Turn) -> Word {
        let word = self.load(zone);
        if !word.waits() {
            return word;
        }
        let queue = shard.queue(zone);
        let Some(error) = queue.feed() else { return word };
        let Some(first) = queue.front_mut().filter(|p| counts && p.op.is_write()) else { return word };
        first.rounds += 1;
        if first.rounds > ROUNDS_MAX {
            let pending = queue.give_up(word);
            self.record_loss(zone, queue);
            let offset = pending.at + pending.done;
            let gave_up = RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error };
            self.end_with(pending, Err(gave_up), turn);
        }
        word
    }
}
