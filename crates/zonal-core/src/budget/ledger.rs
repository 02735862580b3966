//! The budget itself: all changes of holders and waiters.

use super::holding::{Held, Holding, Leaving};
use super::options::{BudgetError, Fill, Options, Policy, Refusal, WriterClass};
use super::slots::{Horizon, MissingSlot, Slots, Tally};
use super::victims::Victims;
use super::waiters::{Arrival, Waiters, WaitingZone};
use crate::device::{Limits, Needs};
use crate::units::{Nanos, ZoneIndex};
use crate::zone::ZoneCondition;
use std::collections::{BTreeMap, VecDeque};

/// Result of [`Budget::acquire`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acquired {
    /// The zone has its slots. The caller owes [`Budget::write_started`] or [`Budget::cancel`].
    Granted,
    /// The zone is in line and will be returned by [`Budget::next`]. The caller owes
    /// [`Budget::cancel`] if it gives up its writes before that.
    Wait,
    /// No slot is free, and waiting for one is not allowed or would be in vain. The zone is not in
    /// line.
    Fail(Refusal),
}

/// Action for the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BudgetStep {
    /// The zone no longer waits. Either it has its slots, and the caller owes a call as after
    /// [`Acquired::Granted`]; or it became full, read-only or offline, and its writes can be
    /// refused without slots.
    Wake(ZoneIndex),
    /// Close this zone and report the result with [`Budget::set_condition`], even if that failed.
    Close(ZoneIndex),
    /// Finish this zone and report the result with [`Budget::set_condition`], even if that failed.
    Finish(ZoneIndex),
}

/// A zone that holds slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The zone.
    pub zone: ZoneIndex,
    /// Class that the slots are charged to.
    pub class: WriterClass,
    /// True if it holds an open slot in addition to the active one.
    pub open: bool,
    /// Writes started and not ended.
    pub writes: u32,
}

/// A zone that waits for slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The zone.
    pub zone: ZoneIndex,
    /// Class of its line.
    pub class: WriterClass,
    /// Start of the wait.
    pub since: Nanos,
}

/// Holders of slots and the zones that wait for them. See the [module](super) for the calling
/// protocol.
#[derive(Debug)]
pub struct Budget {
    policy: Policy,
    grace: Nanos,
    pub(super) slots: Slots,
    pub(super) zones: BTreeMap<ZoneIndex, Holding>,
    waiters: Waiters,
    victims: Victims,
    pub(super) woken: VecDeque<ZoneIndex>,
    /// Counter of arrivals and uses.
    clock: u64,
}

impl Budget {
    /// Creates a budget without holders. Report zones that are open or closed already with
    /// [`Budget::set_condition`].
    ///
    /// # Errors
    /// The number of classes is invalid, or their minimums exceed the limits.
    pub fn new(limits: Limits, options: Options) -> Result<Budget, BudgetError> {
        options.validate(limits)?;
        let Options { policy, grace, minimums } = options;
        let classes = minimums.len();
        Ok(Budget {
            policy,
            grace,
            slots: Slots::new(limits, minimums),
            zones: BTreeMap::new(),
            waiters: Waiters::new(classes),
            victims: Victims::new(policy, classes),
            woken: VecDeque::new(),
            clock: 0,
        })
    }

    /// The drive's limits.
    pub const fn limits(&self) -> Limits {
        self.slots.limits
    }

    /// Number of zones that hold an open slot.
    pub fn open(&self) -> u32 {
        self.slots.tallies().iter().map(|t| t.open).sum()
    }

    /// Number of zones that hold an active slot, including the open ones.
    pub fn active(&self) -> u32 {
        self.slots.tallies().iter().map(|t| t.active).sum()
    }

    /// Zones that hold slots, in ascending order.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        let holding = self.zones.iter().filter(|(_, h)| h.held != Held::Nothing);
        holding.map(|(&zone, h)| {
            let (class, open, writes) = (h.class, h.held == Held::Open, h.writes);
            Holder { zone, class, open, writes }
        })
    }

    /// True if `zone` waits for slots.
    pub fn is_waiting(&self, zone: ZoneIndex) -> bool {
        self.zones.get(&zone).is_some_and(|h| h.waiting.is_some())
    }

    /// Zones that wait for slots, in ascending order.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        self.zones.iter().filter_map(|(&zone, h)| {
            let (_, since) = h.waiting?;
            Some(Waiting { zone, class: h.class, since })
        })
    }

    /// Requests the slots to write `zone` on behalf of `class`. A zone that already holds slots or
    /// waits keeps its class.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn acquire(&mut self, zone: ZoneIndex, class: WriterClass, now: Nanos) -> Acquired {
        assert!(class.index() < self.slots.tallies().len(), "there is no class {}", class.0);
        let known = self.zones.get(&zone);
        if known.is_some_and(|h| h.waiting.is_some()) {
            return Acquired::Wait;
        }
        if known.is_some_and(|h| h.held == Held::Open && h.leaving.is_none()) {
            self.change(zone, class, |h| {
                if !h.is_busy() {
                    h.reserved = Some(Held::Open);
                }
            });
            return Acquired::Granted;
        }
        // The zone may have been woken only to have its writes refused. From here on it waits for a
        // slot.
        self.woken.retain(|woken| *woken != zone);
        let arrival = self.tick();
        self.change(zone, class, |h| h.waiting = Some((arrival, now)));
        self.enqueue(zone);
        self.grant();
        self.granted_or_refused(zone)
    }

    /// Starts a write of `zone`, which holds its slots: the write is at the device, or queued
    /// behind one that is.
    ///
    /// # Panics
    /// If the zone was not granted its slots.
    pub fn write_started(&mut self, zone: ZoneIndex) {
        let used = self.tick();
        self.change_known(zone, |h| {
            assert!(h.held == Held::Open && h.leaving.is_none(), "zone {zone} holds no open slot");
            h.writes += 1;
            h.reserved = None;
            h.used = used;
        });
    }

    /// Ends a write of `zone`, successful or not. `fill` is the amount known to be written.
    ///
    /// A zone that is full now must still be reported with [`Budget::set_condition`].
    ///
    /// # Panics
    /// If no write of the zone was in flight.
    pub fn write_ended(&mut self, zone: ZoneIndex, fill: Fill) {
        let used = self.tick();
        self.change_known(zone, |h| {
            h.writes = h.writes.checked_sub(1).expect("a write ends once, after it started");
            (h.nearly_full, h.written) = (fill.is_nearly_full(), fill.written);
            h.used = used;
        });
    }

    /// Reports a zone's new condition: it was filled, reset, finished, closed or opened by a
    /// command, or found in a condition new to the budget, at the start or after an error. The
    /// slots that the zone holds follow from the condition. An unused grant survives only if the
    /// zone is open: to open a zone by a command, acquire it first, and cancel the grant once it is
    /// reported open. Slots that the budget did not grant are charged to class 0.
    ///
    /// # Panics
    /// If the zone is not open although a write is in flight.
    pub fn set_condition(&mut self, zone: ZoneIndex, condition: ZoneCondition, fill: Fill) {
        let held = Held::of(condition);
        let used = self.tick();
        let before = self.zones.get(&zone).copied().unwrap_or(Holding::new(WriterClass(0)));
        if let Some((_, asked_by)) = before.leaving {
            self.waiters.answered(asked_by);
        }
        if let Some((arrival, _)) = before.waiting {
            self.waiters.remove(before.class, arrival);
        }
        let needs_none = !matches!(condition, ZoneCondition::Empty | ZoneCondition::Closed);
        self.change(zone, WriterClass(0), |h| {
            assert!(
                h.writes == 0 || held == Held::Open,
                "zone {zone} is {condition} and has a write under way"
            );
            h.held = held;
            h.explicit = condition == ZoneCondition::ExpOpen;
            // The amount written before is meaningless for an empty zone.
            let fill = if held == Held::Nothing { Fill { written: 0, ..fill } } else { fill };
            (h.nearly_full, h.written, h.stuck) = (fill.is_nearly_full(), fill.written, false);
            (h.leaving, h.used) = (None, used);
            h.waiting = h.waiting.filter(|_| !needs_none);
            let is_promised = before.waiting.is_some() || before.reserved.is_some();
            h.reserved = (is_promised && held == Held::Open).then_some(Held::Open);
        });
        if before.reserved.is_some() && held != Held::Open {
            self.woken.retain(|woken| *woken != zone);
        }
        match before.waiting {
            Some(_) if needs_none => self.woken.push_back(zone),
            Some(_) => self.enqueue(zone),
            None => {}
        }
        self.grant();
    }

    /// Gives up the writes of `zone`: removes it from the line, or returns its unused grant. A zone
    /// with a write in flight keeps its slots.
    pub fn cancel(&mut self, zone: ZoneIndex) {
        self.woken.retain(|woken| *woken != zone);
        let Some(&Holding { class, waiting, .. }) = self.zones.get(&zone) else { return };
        if let Some((arrival, _)) = waiting {
            self.waiters.remove(class, arrival);
        }
        self.change(zone, class, |h| {
            h.waiting = None;
            h.held = h.reserved.take().unwrap_or(h.held);
        });
        self.grant();
    }

    /// Returns the next action, if any.
    #[expect(clippy::should_implement_trait, reason = "the next action depends on the calls in between")]
    pub fn next(&mut self) -> Option<BudgetStep> {
        self.woken.pop_front().map(BudgetStep::Wake).or_else(|| self.evict())
    }

    /// Returns a zone that failed to get its slots because nothing in flight could end its wait for
    /// the grace period. It has left the line, and its writes must fail. Call this until it returns
    /// `None`, then [`Budget::next`].
    pub fn expire(&mut self, now: Nanos) -> Option<Refusal> {
        for class in self.slots.classes() {
            let stuck = self.stuck(class);
            let since = self.waiters.stuck(class, stuck.is_some(), now);
            let Some((zone, since)) = stuck.zip(since) else { continue };
            if since.0.saturating_add(self.grace.0) <= now.0 {
                return Some(self.refuse(zone));
            }
        }
        None
    }

    /// Earliest time at which [`Budget::expire`] may return a zone without any event in between.
    /// Updated by that call.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.waiters.stuck_since().map(|since| Nanos(since.0.saturating_add(self.grace.0)))
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Applies a change to a zone and updates the tallies and the victims. All changes are made
    /// here.
    fn change(&mut self, zone: ZoneIndex, class: WriterClass, change: impl FnOnce(&mut Holding)) {
        let mut holding = match self.zones.get(&zone) {
            Some(holding) => {
                self.slots.tally_mut(holding.class).remove(holding.tally());
                self.victims.remove(zone, holding);
                *holding
            }
            None => Holding::new(class),
        };
        change(&mut holding);
        if holding.is_forgotten() {
            self.zones.remove(&zone);
            return;
        }
        self.slots.tally_mut(holding.class).add(holding.tally());
        self.victims.add(zone, &holding);
        self.zones.insert(zone, holding);
    }

    pub(super) fn change_known(&mut self, zone: ZoneIndex, change: impl FnOnce(&mut Holding)) {
        let class = self.zones.get(&zone).map(|h| h.class);
        self.change(zone, class.unwrap_or_else(|| panic!("zone {zone} holds no slot")), change);
    }

    /// Adds a waiting zone to the line, unless it is being closed or finished: its needs are known
    /// only after that.
    fn enqueue(&mut self, zone: ZoneIndex) {
        let holding = &self.zones[&zone];
        if let (Some((arrival, _)), None) = (holding.waiting, holding.leaving) {
            self.waiters.insert(holding.class, holding.needs(), WaitingZone { arrival, zone });
        }
    }

    /// Grants slots in order, as long as any zone in line can be served.
    fn grant(&mut self) {
        while let Some((class, waiter)) = self.servable() {
            let used = self.tick();
            self.waiters.serve(class, waiter);
            self.change(waiter.zone, class, |h| {
                h.reserved = Some(h.held);
                h.held = Held::Open;
                (h.waiting, h.used) = (None, used);
            });
            self.woken.push_back(waiter.zone);
        }
    }

    fn servable(&self) -> Option<(WriterClass, WaitingZone)> {
        let first = |class: WriterClass| {
            let mut heads = self.waiters.heads(class);
            let (waiter, _) =
                heads.find(|&(_, needs)| self.slots.missing_slot(class, needs, Horizon::Now).is_none())?;
            Some((class, waiter))
        };
        self.slots.classes().filter_map(first).min_by_key(|(_, waiter)| waiter.arrival)
    }

    /// Determines the result for a zone that has just joined the line. Before that, no zone in line
    /// could be served, so a zone served now is this one, and the last in `woken`.
    fn granted_or_refused(&mut self, zone: ZoneIndex) -> Acquired {
        let class = self.zones[&zone].class;
        if self.zones[&zone].waiting.is_none() {
            self.woken.pop_back();
            return Acquired::Granted;
        }
        let at_once =
            self.policy == Policy::Fail || self.grace == Nanos(0) && self.stuck(class) == Some(zone);
        if at_once { Acquired::Fail(self.refuse(zone)) } else { Acquired::Wait }
    }

    /// The oldest waiter of a class, if nothing in flight can end its wait and the policy offers no
    /// victim.
    fn stuck(&self, class: WriterClass) -> Option<ZoneIndex> {
        let (waiter, needs) = self.waiters.heads(class).next()?;
        self.slots.missing_slot(class, needs, Horizon::BestCase)?;
        let has_victim = self.victim(class, needs).is_some();
        (!has_victim).then_some(waiter.zone)
    }

    fn victim(&self, class: WriterClass, needs: Needs) -> Option<(ZoneIndex, Leaving)> {
        let missing = self.slots.missing_slot(class, needs, Horizon::Now)?;
        self.victims.choose(&self.slots, class, missing)
    }

    /// Removes a zone from the line.
    fn refuse(&mut self, zone: ZoneIndex) -> Refusal {
        let Holding { class, waiting, .. } = self.zones[&zone];
        let needs = self.zones[&zone].needs();
        let (arrival, _) = waiting.expect("who is refused was in line");
        let missing = self.slots.missing_slot(class, needs, Horizon::Now);
        self.waiters.remove(class, arrival);
        self.change(zone, class, |h| h.waiting = None);
        let holders =
            self.holders().filter(|h| h.open || missing == Some(MissingSlot::Active)).map(|h| h.zone);
        let refusal = Refusal { zone, holders: holders.collect() };
        self.grant();
        refusal
    }

    /// Chooses a victim for the oldest waiter that has one.
    fn evict(&mut self) -> Option<BudgetStep> {
        let first = |class: WriterClass| {
            let mut heads = self.waiters.heads(class);
            heads.find_map(|(waiter, needs)| Some((waiter.arrival, class, self.victim(class, needs)?)))
        };
        let wanting = self.slots.classes().filter(|&class| self.waiters.wants_victim(class));
        let (_, class, (zone, leaving)) = wanting.filter_map(first).min_by_key(|(arrival, ..)| *arrival)?;
        self.waiters.asked(class);
        self.change_known(zone, |h| h.leaving = Some((leaving, class)));
        Some(match leaving {
            Leaving::Closing => BudgetStep::Close(zone),
            Leaving::Finishing => BudgetStep::Finish(zone),
        })
    }

    /// Recomputes everything and compares. For tests and simulation: it takes time linear in the
    /// number of zones.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self) -> Result<(), String> {
        let classes = self.slots.tallies().len();
        let mut tallies = vec![Tally::default(); classes];
        let mut victims = Victims::new(self.policy, classes);
        for (&zone, holding) in &self.zones {
            tallies[holding.class.index()].add(holding.tally());
            victims.add(zone, holding);
        }
        same("counted", self.slots.tallies(), &tallies[..])?;
        same("victims", &self.victims, &victims)?;
        self.check_line()?;
        match self.servable() {
            Some((_, waiter)) => Err(format!("zone {} waits for nothing", waiter.zone)),
            None => Ok(()),
        }
    }

    fn check_line(&self) -> Result<(), String> {
        let in_line: BTreeMap<ZoneIndex, (WriterClass, Needs, Arrival)> =
            self.waiters.all().map(|(class, needs, w)| (w.zone, (class, needs, w.arrival))).collect();
        let waiting = self.zones.iter().filter(|(_, h)| h.leaving.is_none());
        let waiting = waiting.filter_map(|(&zone, h)| Some((zone, (h.class, h.needs(), h.waiting?.0))));
        same("in line", &in_line, &waiting.collect())?;
        for class in self.slots.classes() {
            let leaving = self.zones.values().filter(|h| h.leaving.is_some_and(|(_, by)| by == class));
            same("victims asked for", &self.waiters.victims_asked(class), &(leaving.count() as u32))?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, kept: &T, found: &T) -> Result<(), String> {
    if kept == found { Ok(()) } else { Err(format!("{what}: kept {kept:?}, found {found:?}")) }
}

#[cfg(test)]
impl Budget {
    /// Shows a zone's state in the notation of the test table.
    pub(super) fn show(&self, zone: ZoneIndex) -> String {
        let holding = self.zones.get(&zone).copied().unwrap_or(Holding::new(WriterClass(0)));
        let held = match holding.held {
            Held::Nothing => "-",
            Held::Active => "C",
            Held::Open if holding.explicit => "X",
            Held::Open => "O",
        };
        let writes = if holding.writes > 0 { holding.writes.to_string() } else { String::new() };
        let reserved = holding.reserved.map_or("", |_| "r");
        let leaving = holding.leaving.map_or("", |(l, _)| if l == Leaving::Closing { "c" } else { "f" });
        format!("{held}{writes}{reserved}{leaving}{}", holding.waiting.map_or("", |_| "w"))
    }
}
