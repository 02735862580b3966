//! Budget of a volume: zones that hold the drive's open and active slots, and zones that wait for
//! one.
//!
//! [`zonal_core::budget`] decides; this module reports changes of zones to it and carries out its
//! decisions. A zone's word records if the zone has its slot ([`Word::has_slot`]), so a write to
//! such a zone bypasses the budget. Everything else happens here, off the fast path: the first
//! write to a zone requests a slot, and if none is free, the zone waits with its writes in its
//! queue.
//!
//! # Scans
//! Writes are not reported to the budget. When a zone lacks a slot, the words of the zones that
//! hold one are scanned: one may have been filled, another may be idle. Polls scan again while a
//! zone waits.
//!
//! # Ownership of the words
//! - A slot is put into the word by an exchange under the budget's lock, or by the holder of the
//!   zone's shard lock. A scan therefore never finds a zone that was granted a slot but does not
//!   show it yet.
//! - A victim is closed or finished by a command in its zone's queue, like a caller's. It gives up
//!   its slot under its shard's lock, and only while nothing of it is in flight or waiting; a write
//!   that arrives meanwhile queues behind that command.
//! - After a reset, finish, open or close, and after each report of a zone, the word is set from
//!   the budget's state.
//!
//! The budget's lock is taken inside a shard's lock, never the other way round.

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
    Acquired, Activity, Budget, BudgetError, BudgetStep, Fill, Options, Policy, Refusal, WriterClass,
};
use zonal_core::device::{Limits, Rules as DeviceRules};
use zonal_core::plug::{Item, Queue, RequestKind, Word, ZoneClass};
use zonal_core::{Geometry, Nanos, Op, RequestError, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Number of classes of writers that a budget distinguishes.
pub const CLASSES: usize = 8;

/// Options for enforcing the open and active limits of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BudgetOptions {
    /// Action if a write's zone needs a slot and none is free.
    pub policy: Policy,
    /// Time after which a wait fails if nothing was in flight meanwhile that could end it.
    ///
    /// A writer that submits its next write only after completion of the last one has brief moments
    /// with none in flight; the time should be longer than these.
    pub grace: Nanos,
    /// Number of open slots, and of active slots, reserved for each class of writers.
    pub minimums: [u32; CLASSES],
}

zonal_core::setters! {
    BudgetOptions
    /// Action if a write's zone needs a slot and none is free.
    with_policy policy: Policy;
    /// Time after which a wait fails if nothing was in flight meanwhile that could end it.
    with_grace grace: Nanos;
    /// Number of open slots, and of active slots, reserved for each class of writers.
    with_minimums minimums: [u32; CLASSES];
}

impl Default for BudgetOptions {
    /// Never fails a write that the drive itself would accept: idle zones are closed, as the drive
    /// does, and busy zones are waited for.
    fn default() -> BudgetOptions {
        BudgetOptions { policy: Policy::Close, grace: Nanos(1_000_000_000), minimums: [0; CLASSES] }
    }
}

/// Holders of the drive's slots. Not tracked for drives without limits and volumes without a
/// budget: every zone then has its slot.
#[derive(Default)]
pub(super) struct Slots(Option<Book>);

/// Budget of one volume, and the state that polls read.
struct Book {
    options: BudgetOptions,
    geometry: Geometry,
    /// True if closing an open zone that was never written makes it empty.
    close_empties: bool,
    counters: Counters,
    state: ShortLock<BudgetState>,
    /// A zone waits or has to be woken, so polls have work.
    attention: AtomicBool,
}

struct BudgetState {
    budget: Budget,
    /// Memory for the next scan.
    looked_at: Vec<ZoneIndex>,
    /// Zones that are nearly full and may be finished, with their position and the time when last
    /// seen to advance.
    moved: BTreeMap<ZoneIndex, (u32, Nanos)>,
}

impl BudgetState {
    /// True if an idle zone has been idle for less than `grace`. Closing a zone of a writer between
    /// two writes costs little; finishing it wastes the rest of the zone.
    fn is_fresh(&mut self, zone: ZoneIndex, fill: Fill, now: Nanos, grace: Nanos) -> bool {
        let seen = self.moved.entry(zone).or_insert((fill.written, now));
        if seen.0 != fill.written {
            *seen = (fill.written, now);
        }
        now.0 < seen.1.0.saturating_add(grace.0)
    }
}

/// Answer to a zone that needs a slot.
pub(super) enum SlotAnswer {
    /// The zone has its slot; this is its word.
    Has(Word),
    /// The word has changed meanwhile.
    Raced(Word),
    Waits,
    Denied(RequestError),
}

/// Action for waiting zones, to be performed by the volume.
pub(super) enum Due {
    /// Serve the zone, which may have its slot now.
    Wake(ZoneIndex),
    /// Close or finish this zone to make room, unless it has become busy.
    Evict(ZoneIndex, Op),
    /// Fail the wait of the zone, since nothing can end it.
    Refuse(ZoneIndex, RequestError),
}

/// Zone that holds or waits for slots, for listings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SlotStatus {
    /// Zone index.
    pub zone: u32,
    /// Class of the writers to which the slots are charged.
    pub class: u8,
}

/// Holders of slots, and waiting zones.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BudgetStatus {
    /// Name of the policy.
    pub policy: String,
    /// Maximum of open zones; 0: no limit.
    pub open_max: u32,
    /// Maximum of active zones; 0: no limit.
    pub active_max: u32,
    /// Zones with an open slot, by index.
    pub open: Vec<SlotStatus>,
    /// Zones with only an active slot: closed ones.
    pub closed: Vec<SlotStatus>,
    /// Zones that wait for a slot.
    pub waiting: Vec<SlotStatus>,
}

impl Slots {
    /// Tracks the slots if the drive has a limit that its zones could reach.
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

    /// True if slots are tracked.
    pub(super) fn are_counted(&self) -> bool {
        self.0.is_some()
    }

    /// Word of a zone as reported when the volume is opened.
    pub(super) fn adopt(&self, zone: &ZoneDescriptor, word: Word) -> Word {
        let Some(book) = &self.0 else { return word };
        if word.class() == ZoneClass::Conventional {
            return word;
        }
        if !zone.condition.is_active() {
            return word.without_slot();
        }
        let mut state = book.state.lock();
        state.budget.set_condition(zone.zone, zone.condition, book.fill(zone.zone, word));
        if state.budget.has_slot(zone.zone) { word } else { word.without_slot() }
    }

    /// Requests a slot for `zone`, to issue its head. On `Has`, the holder of the shard's lock
    /// stores the word.
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
                state.budget.observe(zone, Activity::Busy, fill);
                SlotAnswer::Has(word.with_slot())
            }
            Acquired::Wait => SlotAnswer::Waits,
            Acquired::Fail(refusal) => SlotAnswer::Denied(no_slot(&refusal)),
        }
    }

    /// Requests a slot for `zone`, which has no waiters according to `word`, and puts it into the
    /// word, which other threads may be changing. On `Waits`, the caller wakes pollers once it
    /// holds no lock.
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
            // Under the lock, so that no scan happens between the grant and the change of the word.
            Acquired::Granted => match plugs.exchange(zone, word, word.with_slot()) {
                Ok(()) => {
                    let fill = book.fill(zone, word);
                    state.budget.observe(zone, Activity::Busy, fill);
                    SlotAnswer::Has(word.with_slot())
                }
                // The slot stays granted for the thread that won the race.
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

    /// Actions due for the zones that wait for a slot.
    #[inline]
    pub(super) fn due(&self, plugs: &Plugs, now: Nanos, deadline: &mut Option<Nanos>) -> Option<Vec<Due>> {
        match &self.0 {
            Some(book) if book.attention.load(Ordering::Acquire) => book.due(plugs, now, deadline),
            _ => None,
        }
    }

    /// Cancels the eviction of `zone`, which has this word and is in use again.
    fn spare(&self, zone: ZoneIndex, word: Word) {
        let Some(book) = &self.0 else { return };
        let mut state = book.state.lock();
        // An event in the meantime may already have done this.
        if state.budget.is_leaving(zone) {
            let is_open = state.budget.holders().any(|h| h.zone == zone && h.open);
            let condition = if is_open { ZoneCondition::ImpOpen } else { ZoneCondition::Closed };
            let fill = book.fill(zone, word);
            state.budget.set_condition(zone, condition, fill);
            state.budget.observe(zone, Activity::Busy, fill);
        }
    }

    /// Withdraws the request for a slot of `zone`, which no longer has a write.
    #[cold]
    pub(super) fn cancel(&self, zone: ZoneIndex) {
        if let Some(book) = &self.0 {
            book.state.lock().budget.cancel(zone);
        }
    }

    /// Applies a successful reset, finish, open or close of a zone that had this word. Requires
    /// that nothing of it is in flight. Returns true if polls have to serve waiting zones.
    pub(super) fn managed(&self, zone: ZoneIndex, word: Word, op: Op) -> bool {
        let Some(book) = &self.0 else { return false };
        let fill = book.fill(zone, word);
        let condition = match op {
            Op::ZoneReset => ZoneCondition::Empty,
            Op::ZoneFinish => ZoneCondition::Full,
            Op::ZoneOpen => ZoneCondition::ExpOpen,
            Op::ZoneOffline => ZoneCondition::Offline,
            _ if fill.written >= fill.capacity => ZoneCondition::Full,
            // Some devices accept a close of a zone that is not open; it changes nothing.
            _ if fill.written == 0 && book.close_empties => ZoneCondition::Empty,
            _ => ZoneCondition::Closed,
        };
        book.became(zone, condition, fill)
    }

    /// Applies a report of a zone with nothing in flight. Returns its word.
    pub(super) fn apply_report(
        &self,
        zone: ZoneIndex,
        word: Word,
        condition: ZoneCondition,
        turn: &mut Turn,
    ) -> Word {
        let Some(book) = &self.0 else { return word };
        // A victim that still holds its slot could not be closed or finished, so do not choose it
        // again.
        let was_leaving = book.state.lock().budget.is_leaving(zone);
        let condition = match condition {
            ZoneCondition::ImpOpen if was_leaving => ZoneCondition::ExpOpen,
            condition => condition,
        };
        if book.became(zone, condition, book.fill(zone, word)) {
            turn.request_poll();
        }
        self.follow(zone, word)
    }

    /// The device failed to report the zone: its writes have failed, and it keeps the slots it had.
    pub(super) fn unknown(&self, zone: ZoneIndex, word: Word) {
        let Some(book) = &self.0 else { return };
        let mut state = book.state.lock();
        state.budget.cancel(zone);
        let open = state.budget.holders().find(|h| h.zone == zone).map(|h| h.open);
        if state.budget.is_leaving(zone)
            && let Some(open) = open
        {
            let condition = if open { ZoneCondition::ExpOpen } else { ZoneCondition::Closed };
            state.budget.set_condition(zone, condition, book.fill(zone, word));
        }
    }

    /// Word of a zone with nothing in flight, with its slot bit set from the budget.
    pub(super) fn follow(&self, zone: ZoneIndex, word: Word) -> Word {
        let Some(book) = &self.0 else { return word };
        let has_slot = book.state.lock().budget.has_slot(zone);
        if has_slot { word.with_slot() } else { word.without_slot() }
    }

    /// Applies a reset of all zones. No request submitted before it is waiting.
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
            budget.set_condition(zone, ZoneCondition::Empty, fill);
        }
    }
}

impl Book {
    fn fill(&self, zone: ZoneIndex, word: Word) -> Fill {
        Fill { written: word.pointer(), capacity: self.geometry.capacity_of(zone) }
    }

    /// Makes the next poll serve waiting zones. The caller wakes pollers once it holds no lock.
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
            self.rescan(plugs, state, Some(now));
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

    /// Scans the zones with open slots. Returns true if one counts as busy only because it was
    /// written since the last scan, in which case nothing else may trigger another scan.
    fn rescan(&self, plugs: &Plugs, state: &mut BudgetState, now: Option<Nanos>) -> bool {
        let mut looked_at = std::mem::take(&mut state.looked_at);
        looked_at.clear();
        looked_at.extend(state.budget.holders().filter(|h| h.open).map(|h| h.zone));
        state.moved.retain(|zone, _| looked_at.binary_search(zone).is_ok());
        let BudgetOptions { policy, grace, .. } = self.options;
        let mut is_between_writes = false;
        for &zone in &looked_at {
            let word = plugs.load(zone);
            if !word.has_slot() {
                // Granted but not yet put into the word, or about to be given up.
                continue;
            }
            let fill = self.fill(zone, word);
            let is_quiet = !word.is_busy() && !word.waits();
            if is_quiet && fill.written >= fill.capacity {
                state.budget.quiet(zone);
                state.budget.set_condition(zone, ZoneCondition::Full, fill);
                continue;
            }
            let may_finish = policy == Policy::Finish && fill.is_nearly_full();
            let is_fresh = may_finish && now.is_some_and(|now| state.is_fresh(zone, fill, now, grace));
            let seen = match is_quiet {
                true if is_fresh => Activity::Stuck,
                true => Activity::Idle,
                false if !word.is_busy() && word.recovers() => Activity::Stuck,
                false => Activity::Busy,
            };
            is_between_writes |= state.budget.observe(zone, seen, fill) && seen != Activity::Busy;
        }
        state.looked_at = looked_at;
        is_between_writes
    }

    #[cold]
    fn due(&self, plugs: &Plugs, now: Nanos, deadline: &mut Option<Nanos>) -> Option<Vec<Due>> {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        let look_again = self.rescan(plugs, &mut state, Some(now));
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

    /// Returns true if polls have to serve waiting zones.
    fn became(&self, zone: ZoneIndex, condition: ZoneCondition, fill: Fill) -> bool {
        let mut state = self.state.lock();
        state.budget.quiet(zone);
        state.budget.set_condition(zone, condition, fill);
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
    /// Serves the zones that wait for a slot.
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
                    self.apply_event(now, zone, PlugEvent::NoSlot(error), &mut turn);
                    turn.notify(self);
                }
            }
        }
        Progress::Some
    }

    /// Closes or finishes `zone` to make room, unless it has become busy.
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

    /// Handles a failed wait for a slot. The zone may have its slot by now, or wait again.
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

    /// Budget options in force; `None`: limits are left to the drive.
    pub fn budget(&self) -> Option<BudgetOptions> {
        self.slots.0.as_ref().map(|book| book.options)
    }

    /// Holders of slots and waiting zones; `None` without a budget.
    pub fn budget_status(&self) -> Option<BudgetStatus> {
        let book = self.slots.0.as_ref()?;
        let mut state = book.state.lock();
        book.rescan(&self.plugs, &mut state, None);
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

    /// Compares the budget's state with the device's report of all zones, while the volume is idle.
    /// For tests and simulations.
    ///
    /// # Errors
    /// Description of the difference.
    pub fn check_budget(&self, zones: &[ZoneDescriptor]) -> Result<(), String> {
        let Some(book) = &self.slots.0 else { return Ok(()) };
        let mut state = book.state.lock();
        book.rescan(&self.plugs, &mut state, None);
        state.budget.check()?;
        let held: Vec<_> = state.budget.holders().map(|h| (h.zone, h.open)).collect();
        let active = zones.iter().filter(|z| z.condition.is_active());
        let device: Vec<_> = active.map(|z| (z.zone, z.condition.is_open())).collect();
        if held != device {
            return Err(format!("slot holders (zone, open) {held:?} differ from the device's {device:?}"));
        }
        let words = self.plugs.sequential_zones().map(|zone| (zone, self.plugs.load(zone)));
        let mut open = words.filter(|(_, w)| w.has_slot() && w.pointer() > 0);
        let differs = open.find(|&(zone, w)| {
            w.pointer() < self.terms.info.geometry.capacity_of(zone) && !state.budget.has_slot(zone)
        });
        differs.map_or(Ok(()), |(zone, w)| Err(format!("zone {zone} has a slot in its word only: {w:?}")))
    }
}

/// Denies the slot to the head of a queue and to all requests behind it.
#[cold]
pub(super) fn deny(queue: &mut Queue<Box<PendingRequest>>, error: RequestError, turn: &mut Turn) {
    let mut denied = Vec::new();
    queue.deny(&mut denied);
    denied.into_iter().for_each(|pending| turn.end(pending, Err(error)));
}
