//! The volume's budget: zones that hold the drive's open and active slots, and zones that wait for one.
//!
//! [`zonal_core::budget`] decides; this module tells it what becomes of zones and carries out what it asks for. A zone's
//! word says whether the zone has its slot ([`Word::has_slot`]), so a write to a zone that has one goes its usual way and
//! does not ask the budget. Everything else happens here, off the usual path: the first write of a zone asks, and where
//! none is free the zone waits, its writes in its queue.
//!
//! # Looks
//! No write is reported to the budget. When a zone lacks a slot, the zones that hold one are looked at, by their words:
//! one may have been filled, another have nothing under way. Polls look again while a zone waits.
//!
//! # Whose word counts
//! - A slot is taken by an exchange of the word under the budget's lock, or by the holder of the zone's shard. So a thread
//!   that looks at the zones sees no zone that has its slot and does not know it yet.
//! - A victim is closed or finished by a command that goes through its zone's queue like a caller's. It gives its slot up
//!   under its shard's lock, and only while nothing of it is under way: a write that comes meanwhile queues after that
//!   command.
//! - After a reset, finish, open, close, and whenever the device has said where a zone stands, the word follows what the
//!   budget makes of it.
//!
//! The budget's lock is taken inside a shard's, never the other way round.

use super::channel::TURN_MAX;
use super::counters::{Counter, Counters};
use super::event::PlugEvent;
use super::pending::{Owner, PendingRequest};
use super::plugs::Plugs;
use super::request::Request;
use super::turn::Turn;
use super::{Progress, Shard, Volume, earliest};
use crate::device::DeviceInfo;
use crate::sync::{AtomicBool, Ordering, ShortLock};
use std::collections::BTreeMap;
use zonal_core::budget::{
    Acquired, Budget, BudgetError, BudgetStep, Fill, Options, Policy, Refusal, Seen, WriterClass,
};
use zonal_core::device::{Limits, Rules as DeviceRules};
use zonal_core::plug::{Item, Queue, RequestKind, Word, ZoneClass};
use zonal_core::{Geometry, Nanos, Op, RequestError, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Classes of writers that a budget keeps apart.
pub const CLASSES: usize = 8;

/// How a volume keeps the open and active limits of its drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BudgetOptions {
    /// What happens to a write whose zone needs a slot when none is free.
    pub policy: Policy,
    /// For how long nothing may have been under way that could end a wait before that fails.
    ///
    /// A writer that sends its next write only when the last one has ended has none under way for a moment: this wants to
    /// be longer than that.
    pub grace: Nanos,
    /// For each class of writers the slots, open and active ones each, that no other class may take.
    pub minimums: [u32; CLASSES],
}

zonal_core::setters! {
    BudgetOptions
    /// What happens to a write whose zone needs a slot when none is free.
    with_policy policy: Policy;
    /// For how long nothing may have been under way that could end a wait before that fails.
    with_grace grace: Nanos;
    /// Slots of each class of writers, open and active ones each, that no other class may take.
    with_minimums minimums: [u32; CLASSES];
}

impl Default for BudgetOptions {
    /// What never fails a write that the drive itself would take: zones that are not in use are closed, as the drive itself
    /// does it, and what is in use is waited for.
    fn default() -> BudgetOptions {
        BudgetOptions { policy: Policy::Close, grace: Nanos(1_000_000_000), minimums: [0; CLASSES] }
    }
}

/// Who has the drive's slots. Not counted where the drive has no limits or no budget is kept: every zone has its slot then.
#[derive(Default)]
pub(super) struct Slots(Option<Book>);

/// The budget of one volume, and what its polls read of it.
struct Book {
    options: BudgetOptions,
    geometry: Geometry,
    /// Whether a close of a zone that was never written makes it empty.
    close_empties: bool,
    counters: Counters,
    state: ShortLock<BudgetState>,
    /// A zone waits, or is to be woken: polls have to look.
    attention: AtomicBool,
}

struct BudgetState {
    budget: Budget,
    /// Memory for the next look.
    looked_at: Vec<ZoneIndex>,
    /// Zones that are so full that they may be finished: where each stood when it was seen to have moved, and when.
    moved: BTreeMap<ZoneIndex, (u32, Nanos)>,
}

impl BudgetState {
    /// Whether a zone that has nothing under way has stood still for less than `grace`. Closing it under a writer that is
    /// between two writes costs it a moment, finishing it costs it the rest of the zone.
    fn is_fresh(&mut self, zone: ZoneIndex, fill: Fill, now: Nanos, grace: Nanos) -> bool {
        let seen = self.moved.entry(zone).or_insert((fill.written, now));
        if seen.0 != fill.written {
            *seen = (fill.written, now);
        }
        now.0 < seen.1.0.saturating_add(grace.0)
    }
}

/// What a zone that needs a slot is told.
pub(super) enum SlotAnswer {
    /// It has one, and this is its word.
    Has(Word),
    /// Its word has changed meanwhile.
    Raced(Word),
    Waits,
    Denied(RequestError),
}

/// What a volume has to do for the zones that wait.
pub(super) enum Due {
    /// It looks at the zone again, which may have its slot now.
    Wake(ZoneIndex),
    /// It makes room with this zone, by a close or a finish, unless the zone is in use by then.
    Evict(ZoneIndex, Op),
    /// The zone's wait has been found to be without end.
    Refuse(ZoneIndex, RequestError),
}

/// A zone that holds slots or waits for one, for listings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SlotStatus {
    /// Zone index.
    pub zone: u32,
    /// Class of the writers whose slots these are.
    pub class: u8,
}

/// Who holds slots and who waits.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BudgetStatus {
    /// The policy's name.
    pub policy: String,
    /// Largest number of open zones; 0: no limit.
    pub open_max: u32,
    /// Largest number of active zones; 0: no limit.
    pub active_max: u32,
    /// Zones that hold an open slot, by index.
    pub open: Vec<SlotStatus>,
    /// Zones that hold an active slot only: closed ones.
    pub closed: Vec<SlotStatus>,
    /// Zones that wait.
    pub waiting: Vec<SlotStatus>,
}

impl Slots {
    /// Counted for a drive that has a limit which its zones could reach.
    pub(super) fn new(
        info: &DeviceInfo,
        options: BudgetOptions,
        counters: &Counters,
    ) -> Result<Slots, BudgetError> {
        let zones = info.geometry.zones() - info.geometry.conventional_zones();
        let limit = |max: u32| if max < zones { max } else { 0 };
        let limits = Limits { open_max: limit(info.open_max), active_max: limit(info.active_max) };
        if limits.open_max == 0 && limits.active_max == 0 {
            return Ok(Slots::default());
        }
        let BudgetOptions { policy, grace, minimums } = options;
        let budget = Budget::new(limits, Options { policy, grace, minimums: minimums.to_vec() })?;
        Ok(Slots(Some(Book {
            options,
            geometry: info.geometry,
            close_empties: DeviceRules::of(info.personality).close_unwritten_empties,
            counters: counters.clone(),
            state: ShortLock::new(BudgetState { budget, looked_at: Vec::new(), moved: BTreeMap::new() }),
            attention: AtomicBool::new(false),
        })))
    }

    /// Whether they are counted.
    pub(super) fn are_counted(&self) -> bool {
        self.0.is_some()
    }

    /// The word of a zone as the device describes it, before any write.
    pub(super) fn adopt(&self, zone: &ZoneDescriptor, word: Word) -> Word {
        let Some(book) = &self.0 else { return word };
        if word.class() == ZoneClass::Conventional {
            return word;
        }
        if !zone.condition.is_active() {
            return word.without_slot();
        }
        let mut state = book.state.lock();
        state.budget.became(zone.zone, zone.condition, book.fill(zone.zone, word));
        if state.budget.has_slot(zone.zone) { word } else { word.without_slot() }
    }

    /// Asks for a slot for `zone`, whose head is to go out. With `Has`, the holder of the zone's shard stores the word.
    #[cold]
    pub(super) fn for_head(
        &self,
        plugs: &Plugs,
        now: Nanos,
        zone: ZoneIndex,
        word: Word,
        class: WriterClass,
    ) -> SlotAnswer {
        let Some(book) = &self.0 else { return SlotAnswer::Has(word.with_slot()) };
        let mut state = book.state.lock();
        match book.ask(plugs, &mut state, now, zone, class) {
            Acquired::Granted => {
                let fill = book.fill(zone, word);
                state.budget.observe(zone, Seen::Busy, fill);
                SlotAnswer::Has(word.with_slot())
            }
            Acquired::Wait => SlotAnswer::Waits,
            Acquired::Fail(refusal) => SlotAnswer::Denied(no_slot(&refusal)),
        }
    }

    /// Asks for a slot for `zone`, whose `word` says that no write waits, and puts it into the word, which other threads
    /// may be changing. With `Waits`, the caller rings, once it holds no lock.
    #[cold]
    pub(super) fn claim(
        &self,
        plugs: &Plugs,
        now: Nanos,
        zone: ZoneIndex,
        word: Word,
        request: &PendingRequest,
    ) -> SlotAnswer {
        let Some(book) = &self.0 else { return SlotAnswer::Waits };
        debug_assert!(!word.waits(), "the word of a zone that waits is its queue's");
        let mut state = book.state.lock();
        match book.ask(plugs, &mut state, now, zone, request.class()) {
            // Under the lock: no thread looks at the zone between the grant and the word.
            Acquired::Granted => match plugs.exchange(zone, word, word.with_slot()) {
                Ok(()) => {
                    let fill = book.fill(zone, word);
                    state.budget.observe(zone, Seen::Busy, fill);
                    SlotAnswer::Has(word.with_slot())
                }
                // It stays granted for the thread that was faster.
                Err(seen) => SlotAnswer::Raced(seen),
            },
            Acquired::Wait => {
                if request.nowait {
                    state.budget.cancel(zone);
                }
                SlotAnswer::Waits
            }
            Acquired::Fail(refusal) => SlotAnswer::Denied(no_slot(&refusal)),
        }
    }

    /// What has to be done for those that wait for a slot.
    #[inline]
    pub(super) fn due(&self, plugs: &Plugs, now: Nanos, deadline: &mut Option<Nanos>) -> Option<Vec<Due>> {
        match &self.0 {
            Some(book) if book.attention.load(Ordering::Acquire) => book.due(plugs, now, deadline),
            _ => None,
        }
    }

    /// `zone`, which has this word, was to be closed or finished and is in use again.
    fn spare(&self, zone: ZoneIndex, word: Word) {
        let Some(book) = &self.0 else { return };
        let mut state = book.state.lock();
        // What happened to it meanwhile may have settled that already.
        if state.budget.is_leaving(zone) {
            let is_open = state.budget.holders().any(|h| h.zone == zone && h.open);
            let condition = if is_open { ZoneCondition::ImpOpen } else { ZoneCondition::Closed };
            let fill = book.fill(zone, word);
            state.budget.became(zone, condition, fill);
            state.budget.observe(zone, Seen::Busy, fill);
        }
    }

    /// No write goes to `zone`, which has no slot, after all.
    #[cold]
    pub(super) fn cancel(&self, zone: ZoneIndex) {
        if let Some(book) = &self.0 {
            book.state.lock().budget.cancel(zone);
        }
    }

    /// What a reset, finish, open or close has made of a zone that had this word. Nothing of it is in flight. Returns whether polls
    /// have to look after those that wait.
    pub(super) fn managed(&self, zone: ZoneIndex, word: Word, op: Op) -> bool {
        let Some(book) = &self.0 else { return false };
        let fill = book.fill(zone, word);
        let condition = match op {
            Op::ZoneReset => ZoneCondition::Empty,
            Op::ZoneFinish => ZoneCondition::Full,
            Op::ZoneOpen => ZoneCondition::ExpOpen,
            Op::ZoneOffline => ZoneCondition::Offline,
            _ if fill.written >= fill.capacity => ZoneCondition::Full,
            // A close of a zone that was not open, which some devices take without a word, changes nothing.
            _ if fill.written == 0 && book.close_empties => ZoneCondition::Empty,
            _ => ZoneCondition::Closed,
        };
        book.became(zone, condition, fill)
    }

    /// The device has described a zone of which nothing is in flight. Returns its word.
    pub(super) fn described(
        &self,
        zone: ZoneIndex,
        word: Word,
        condition: ZoneCondition,
        turn: &mut Turn,
    ) -> Word {
        let Some(book) = &self.0 else { return word };
        // A victim that is still there could not be closed or finished: not the next time either.
        let was_leaving = book.state.lock().budget.is_leaving(zone);
        let condition = match condition {
            ZoneCondition::ImpOpen if was_leaving => ZoneCondition::ExpOpen,
            condition => condition,
        };
        if book.became(zone, condition, book.fill(zone, word)) {
            turn.leaves_work();
        }
        self.follow(zone, word)
    }

    /// The device cannot say where a zone stands: its writes have failed, and what it held it holds.
    pub(super) fn unknown(&self, zone: ZoneIndex, word: Word) {
        let Some(book) = &self.0 else { return };
        let mut state = book.state.lock();
        state.budget.cancel(zone);
        let open = state.budget.holders().find(|h| h.zone == zone).map(|h| h.open);
        if state.budget.is_leaving(zone)
            && let Some(open) = open
        {
            let condition = if open { ZoneCondition::ExpOpen } else { ZoneCondition::Closed };
            state.budget.became(zone, condition, book.fill(zone, word));
        }
    }

    /// The word of a zone of which nothing is in flight, with or without a slot as the budget has it.
    pub(super) fn follow(&self, zone: ZoneIndex, word: Word) -> Word {
        let Some(book) = &self.0 else { return word };
        let has_slot = book.state.lock().budget.has_slot(zone);
        if has_slot { word.with_slot() } else { word.without_slot() }
    }

    /// Every zone was reset, and nothing waits that came before.
    pub(super) fn all_reset(&self) {
        let Some(book) = &self.0 else { return };
        let mut state = book.state.lock();
        let budget = &mut state.budget;
        let waiting: Vec<ZoneIndex> = budget.waiting().map(|w| w.zone).collect();
        waiting.into_iter().for_each(|zone| budget.cancel(zone));
        let holding: Vec<ZoneIndex> = budget.holders().map(|h| h.zone).collect();
        for zone in holding {
            let fill = Fill { written: 0, capacity: book.geometry.capacity_of(zone) };
            budget.quiet(zone);
            budget.became(zone, ZoneCondition::Empty, fill);
        }
    }
}

impl Book {
    fn fill(&self, zone: ZoneIndex, word: Word) -> Fill {
        Fill { written: word.pointer(), capacity: self.geometry.capacity_of(zone) }
    }

    /// The next poll looks after those that wait. A caller that leaves that to it rings, once it holds no lock.
    fn attend(&self) {
        self.attention.store(true, Ordering::Release);
    }

    fn ask(
        &self,
        plugs: &Plugs,
        state: &mut BudgetState,
        now: Nanos,
        zone: ZoneIndex,
        class: WriterClass,
    ) -> Acquired {
        if state.budget.is_short(zone, class) {
            self.look(plugs, state, Some(now));
        }
        let waited = state.budget.is_waiting(zone);
        let answer = state.budget.acquire(zone, class, now);
        if answer == Acquired::Wait {
            if !waited {
                self.counters.line().add(Counter::SlotWaits, 1);
            }
            self.attend();
        }
        answer
    }

    /// Looks at the zones that hold open slots. Returns whether one counts as busy only because it was written since the
    /// last look: nothing else may bring news of it.
    fn look(&self, plugs: &Plugs, state: &mut BudgetState, now: Option<Nanos>) -> bool {
        let mut looked_at = std::mem::take(&mut state.looked_at);
        looked_at.clear();
        looked_at.extend(state.budget.holders().filter(|h| h.open).map(|h| h.zone));
        state.moved.retain(|zone, _| looked_at.binary_search(zone).is_ok());
        let BudgetOptions { policy, grace, .. } = self.options;
        let mut is_between_writes = false;
        for &zone in &looked_at {
            let word = plugs.load(zone);
            if !word.has_slot() {
                // It has been granted its slot and has not come for it, or is about to lose it.
                continue;
            }
            let fill = self.fill(zone, word);
            let is_quiet = !word.is_busy() && !word.waits();
            if is_quiet && fill.written >= fill.capacity {
                state.budget.quiet(zone);
                state.budget.became(zone, ZoneCondition::Full, fill);
                continue;
            }
            let may_finish = policy == Policy::Finish && fill.is_nearly_full();
            let is_fresh = may_finish && now.is_some_and(|now| state.is_fresh(zone, fill, now, grace));
            let seen = match is_quiet {
                true if is_fresh => Seen::Stuck,
                true => Seen::Idle,
                false if !word.is_busy() && word.recovers() => Seen::Stuck,
                false => Seen::Busy,
            };
            is_between_writes |= state.budget.observe(zone, seen, fill) && seen != Seen::Busy;
        }
        state.looked_at = looked_at;
        is_between_writes
    }

    #[cold]
    fn due(&self, plugs: &Plugs, now: Nanos, deadline: &mut Option<Nanos>) -> Option<Vec<Due>> {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        let look_again = self.look(plugs, &mut state, Some(now));
        let budget = &mut state.budget;
        let take = |budget: &mut Budget, due: &mut Vec<Due>| {
            while due.len() < TURN_MAX
                && let Some(step) = budget.next()
            {
                due.push(match step {
                    BudgetStep::Wake(zone) => Due::Wake(zone),
                    BudgetStep::Close(zone) => Due::Evict(zone, Op::ZoneClose),
                    BudgetStep::Finish(zone) => Due::Evict(zone, Op::ZoneFinish),
                });
            }
        };
        take(budget, &mut due);
        let mut refused = Vec::new();
        while let Some(refusal) = budget.expire(now) {
            refused.push(Due::Refuse(refusal.zone, no_slot(&refusal)));
        }
        take(budget, &mut due);
        *deadline = earliest(*deadline, budget.next_deadline());
        self.attention.store(!budget.is_at_rest(), Ordering::Release);
        due.extend(refused);
        (look_again || !due.is_empty()).then_some(due)
    }

    /// Returns whether polls have to look after those that wait.
    fn became(&self, zone: ZoneIndex, condition: ZoneCondition, fill: Fill) -> bool {
        let mut state = self.state.lock();
        state.budget.quiet(zone);
        state.budget.became(zone, condition, fill);
        let has_work = !state.budget.is_at_rest();
        if has_work {
            self.attend();
        }
        has_work
    }
}

fn no_slot(refusal: &Refusal) -> RequestError {
    RequestError::NoSlot { zone: refusal.zone, holders: refusal.into() }
}

impl Volume {
    /// Looks after those that wait for a slot.
    #[inline]
    pub(super) fn keep_budget(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        match self.slots.due(&self.plugs, now, deadline) {
            Some(due) => self.serve_waiting(now, due),
            None => Progress::None,
        }
    }

    #[cold]
    fn serve_waiting(&self, now: Nanos, due: Vec<Due>) -> Progress {
        for step in due {
            match step {
                Due::Wake(zone) => self.kick(now, zone),
                Due::Evict(zone, op) => self.evict(now, zone, op),
                Due::Refuse(zone, error) => {
                    let mut turn = Turn::default();
                    self.go_on(now, zone, PlugEvent::NoSlot(error), &mut turn);
                    turn.tell(self);
                }
            }
        }
        Progress::Some
    }

    /// Closes or finishes `zone` to make room, unless something has come between.
    fn evict(&self, now: Nanos, zone: ZoneIndex, op: Op) {
        let sector = self.terms.info.geometry.start_of(zone);
        let mut shard = self.plugs.shard(zone).lock();
        let word = self.plugs.load(zone);
        let is_quiet = !word.is_busy() && !word.waits();
        if !is_quiet || self.plugs.exchange(zone, word, word.without_slot().waiting()).is_err() {
            drop(shard);
            return self.slots.spare(zone, self.plugs.load(zone));
        }
        let pending = PendingRequest::new(Owner::Volume, Request::zone(op, sector));
        let item = Item { kind: RequestKind::Manage(op), mergeable: false, token: pending };
        shard.queue(zone).push(word.without_slot(), item);
        drop(shard);
        self.counters.line().add(Counter::Evicted, 1);
        self.kick(now, zone);
    }

    /// A zone's wait has been found to be without end. It may have got its slot by now, or stand in line again.
    pub(super) fn was_denied(
        &self,
        zone: ZoneIndex,
        error: RequestError,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        let word = self.plugs.load(zone);
        if word.waits() && !word.has_slot() && shard.queue(zone).wants_slot(word, &self.terms.rules(zone)) {
            deny(shard.queue(zone), error, turn);
        }
        word
    }

    /// How the drive's limits are kept; `None`: by the drive alone.
    pub fn budget(&self) -> Option<BudgetOptions> {
        self.slots.0.as_ref().map(|book| book.options)
    }

    /// Who holds slots and who waits for them; `None` where there is no budget.
    pub fn budget_status(&self) -> Option<BudgetStatus> {
        let book = self.slots.0.as_ref()?;
        let mut state = book.state.lock();
        book.look(&self.plugs, &mut state, None);
        let budget = &state.budget;
        let Limits { open_max, active_max } = budget.limits();
        let status = |zone: ZoneIndex, class: WriterClass| SlotStatus { zone: zone.0, class: class.0 };
        let holders = |open| {
            budget.holders().filter(move |h| h.open == open).map(|h| status(h.zone, h.class)).collect()
        };
        Some(BudgetStatus {
            policy: book.options.policy.name().to_owned(),
            open_max,
            active_max,
            open: holders(true),
            closed: holders(false),
            waiting: budget.waiting().map(|w| status(w.zone, w.class)).collect(),
        })
    }

    /// Compares the budget's books with the device's description of all zones, while nothing is under way. For tests and
    /// simulations.
    ///
    /// # Errors
    /// What differs.
    pub fn check_budget(&self, zones: &[ZoneDescriptor]) -> Result<(), String> {
        let Some(book) = &self.slots.0 else { return Ok(()) };
        let mut state = book.state.lock();
        book.look(&self.plugs, &mut state, None);
        state.budget.check()?;
        let held: Vec<_> = state.budget.holders().map(|h| (h.zone, h.open)).collect();
        let active = zones.iter().filter(|z| z.condition.is_active());
        let device: Vec<_> = active.map(|z| (z.zone, z.condition.is_open())).collect();
        if held != device {
            return Err(format!("zones that hold slots, and whether open: {held:?}; the device: {device:?}"));
        }
        let words = self.plugs.sequential_zones().map(|zone| (zone, self.plugs.load(zone)));
        let mut open = words.filter(|(_, w)| w.has_slot() && w.pointer() > 0);
        let differs = open.find(|&(zone, w)| {
            w.pointer() < self.terms.info.geometry.capacity_of(zone) && !state.budget.has_slot(zone)
        });
        differs.map_or(Ok(()), |(zone, w)| Err(format!("zone {zone} thinks that it has a slot: {w:?}")))
    }
}

/// The slot that a queue's head was to get is denied to it, and to all that wait after it.
#[cold]
pub(super) fn deny(queue: &mut Queue<Box<PendingRequest>>, error: RequestError, turn: &mut Turn) {
    let mut denied = Vec::new();
    queue.deny(&mut denied);
    denied.into_iter().for_each(|pending| turn.end(pending, Err(error)));
}
