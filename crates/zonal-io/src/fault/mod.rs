//! The `fault` wrapper: injects faults by plan and seed.
//!
//! Owns the rules and their counters, and all commands and answers that are held back. Owns no
//! clock: time is the `now` of [`Device::submit`] and [`Device::poll`], so runs can be repeated.
//! The same seed and sequence of submissions produce the same faults; each rule has its own random
//! generator.
//!
//! # Fast path
//! While no rule can fire and nothing is held back, a volume's commands are passed straight through
//! at the cost of one load. Otherwise a single lock orders everything, and commands reach the
//! wrapped device in the order in which they were decided.
//!
//! # Invariants
//! - Each command is answered once, unless power was cut and commands are to be lost.
//! - A command for which the wrapped device is busy is not counted by any rule.
//! - The host's bytes are accessed only until its command is answered. Late execution uses a copy.
//!
//! # Why there are three kinds of time-out
//! A command that times out was never executed, was already executed, or will be. The host cannot
//! tell which, and the third kind invalidates every conclusion drawn from a report until
//! [`Device::settle`] returns yes.

mod decide;
mod degraded;
mod flight;
mod late;
mod plan;
mod power;
mod rule;
mod state;
mod window;

pub use crate::badblocks::{BadBlocks, BadRange, BadRangeError};
pub use degraded::Degraded;
pub use plan::{Plan, PlanError, PlanMismatch, PlanProblem, Settling};
pub use rule::{Carried, Effect, InFlight, Late, Ops, Reordered, Rule, RulePlace, shuffle};

pub(crate) use plan::{RATES, TEXT_MAX, TIME_OUT};

use crate::changes::{Changes, Notices, ZoneSetting};
use crate::device::{
    Command, CommandResult, Completed, Context, Device, DeviceInfo, Output, Settled, Submitted,
};
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering};
use state::FaultState;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use zonal_core::{DeviceError, Nanos, ZoneError, ZoneIndex};

/// Parses a probability as in plans: a number from 0 to 1, or a fraction.
pub(crate) fn parse_rate(text: &str) -> Option<f64> {
    plan::parse_rate(text)
}

/// Kinds of faults that may have a rate in a plan or device name.
pub fn rate_kinds() -> impl Iterator<Item = &'static str> {
    RATES.iter().map(|kind| kind.name)
}

/// A device that injects faults. See the module, and `docs/FAULT.md` for the text format of plans.
///
/// ```
/// # use std::sync::Arc;
/// use zonal_core::{DeviceError, Sector};
/// use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};
/// use zonal_io::registry::Registry;
/// use zonal_io::volume;
///
/// let null = Registry::default().open("null:size=1M,zone_size=64k")?;
/// let fault = Fault::new(null, Plan::default());
/// let id = fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).times(1));
/// assert_eq!(volume::report(&fault, Sector(0), 1), Err(DeviceError::Medium));
/// assert_eq!(fault.fired(id), 1);
/// assert!(volume::report(&fault, Sector(0), 1).is_ok());
/// # Ok::<(), zonal_io::registry::NameError>(())
/// ```
pub struct Fault {
    info: DeviceInfo,
    inner: Arc<dyn Device>,
    state: Mutex<FaultState>,
    /// [`FaultState::is_needed`] at the last release of the lock.
    is_needed: AtomicBool,
    /// Changes not yet reported to the host; moved here when the lock is released.
    notices: Notices,
}

/// Index of a rule of a [`Fault`]: the rules of its plan from 0 on, then injected rules in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId(pub usize);

/// Reads a plan from a file.
///
/// # Errors
/// The problem, with the file and its location there.
pub fn read_plan(path: &Path) -> Result<Plan, Box<dyn Error + Send + Sync>> {
    let named = |error: &dyn Error| format!("fault plan {}: {error}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|e| named(&e))?;
    // One byte more than allowed, so that parsing reports that the plan is too long.
    file.take(TEXT_MAX as u64 + 1).read_to_string(&mut text).map_err(|e| named(&e))?;
    Ok(Plan::parse(&text).map_err(|e| named(&e))?)
}

impl Fault {
    /// Injects the faults of `plan` into `inner`. If [`Plan::check`] refuses the plan, or would
    /// refuse a rule added later, commands that the rule applies to fail with
    /// [`DeviceError::Unsupported`].
    pub fn new(inner: Arc<dyn Device>, plan: Plan) -> Fault {
        let mut info = inner.info().clone();
        plan.describe(&mut info);
        let state = FaultState::new(inner.clone(), plan);
        let is_needed = AtomicBool::new(state.is_needed());
        Fault { info, inner, state: Mutex::new(state), is_needed, notices: Notices::default() }
    }

    /// Sets the device name to `name` instead of the inner device's name.
    pub fn named(mut self, name: &str) -> Fault {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Adds a rule behind all others.
    pub fn inject(&self, rule: Rule) -> RuleId {
        RuleId(self.change(|state| state.add_rule(rule)))
    }

    /// Number of times that a rule has fired.
    ///
    /// # Panics
    /// If the rule does not exist.
    pub fn fired(&self, RuleId(rule): RuleId) -> u64 {
        self.state.lock().rules[rule].1.fired
    }

    /// Returns [`Self::fired`] for all rules in order: those of the plan, its rates, and injected
    /// ones.
    pub fn fired_each(&self) -> Vec<u64> {
        self.state.lock().rules.iter().map(|(_, tally)| tally.fired).collect()
    }

    /// Disables all rules. Degraded zones, bad blocks and held commands remain.
    pub fn clear_rules(&self) {
        self.change(|state| state.rules.iter_mut().for_each(|(rule, _)| rule.count = 0));
    }

    /// Makes a zone read-only or offline, as a worn medium does.
    ///
    /// # Errors
    /// [`ZoneError`] if the zone is conventional, or if it is offline and should become read-only.
    pub fn degrade(&self, zone: ZoneIndex, to: Degraded) -> Result<(), ZoneError> {
        self.change(|state| state.degrade(zone, to))
    }

    /// Makes sectors bad or good.
    pub fn change_bad_blocks(&self, range: BadRange) {
        self.change(|state| state.bad.change(range));
    }

    /// Bad sectors as first and last of each range, ascending.
    pub fn bad_blocks(&self) -> Vec<(u64, u64)> {
        self.state.lock().bad.ranges().to_vec()
    }

    /// Cuts power. Nothing in flight is acknowledged any more.
    pub fn power_cut(&self, in_flight: InFlight) {
        self.change(|state| state.cut(in_flight));
    }

    /// Restores power.
    pub fn restore(&self) {
        self.change(|state| state.off = None);
    }

    /// Number of commands that will never be answered.
    pub fn lost(&self) -> usize {
        self.state.lock().lost.len()
    }

    fn change<R>(&self, change: impl FnOnce(&mut FaultState) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.leave(state);
        result
    }

    /// Releases the lock, and enables the fast path if no fault can happen.
    fn leave(&self, mut state: MutexGuard<'_, FaultState>) {
        let changes = std::mem::take(&mut state.changes);
        let has_changed = changes != Changes::default();
        if has_changed {
            self.notices.note(|notes| notes.merge(&changes, Some));
        }
        self.is_needed.store(state.is_needed(), Ordering::Release);
        let wakeups = self.inner.wakeups();
        // A sleeping thread arms its wake-up before it checks under this lock, so it either sees
        // the news or is woken here.
        let news: Vec<usize> = match wakeups.has_sleepers() {
            true => (0..state.queues.len()).filter(|&queue| state.queues[queue].has_news).collect(),
            false => Vec::new(),
        };
        drop(state);
        news.into_iter().for_each(|queue| wakeups.ring(queue));
        if has_changed {
            wakeups.ring_all();
        }
    }

    fn is_transparent(&self) -> bool {
        !self.is_needed.load(Ordering::Acquire)
    }
}

/// Completions from the wrapped device: the wrapper's by slot, the host's unchanged.
#[derive(Default)]
struct Reaped {
    ours: Vec<(u64, CommandResult)>,
    passed: Vec<Completed>,
}

impl crate::device::Wrapper for Fault {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        if self.is_transparent() && !context.as_ref().is_some_and(Context::is_token) {
            return self.inner.submit(now, queue, command, context);
        }
        self.change(|state| state.submit(now, queue, command, context))
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let is_transparent = self.is_transparent();
        let mut reaped = Reaped::default();
        let mut told = 0;
        // There may be commands of the wrapper even now, because another thread can have submitted
        // since.
        let inner_due = self.inner.poll(now, queue, budget, &mut |c| {
            if c.context.is_token() {
                reaped.ours.push((c.context.into_token(), c.result));
            } else if is_transparent {
                told += 1;
                done(c);
            } else {
                reaped.passed.push(c);
            }
        });
        if is_transparent && reaped.ours.is_empty() {
            return inner_due;
        }
        let mut out = Vec::new();
        let due = self.change(|state| {
            let own_due = state.reaped(now, queue, reaped, budget - told, &mut out);
            match (inner_due, own_due) {
                (Some(inner), Some(own)) => Some(inner.min(own)),
                (inner, own) => inner.or(own),
            }
        });
        out.into_iter().for_each(done);
        due
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.inner.is_idle(queue) && (self.is_transparent() || self.state.lock().is_idle(queue))
    }

    fn settle(&self, now: Nanos, zone: ZoneIndex) -> Settled {
        match self.is_transparent() {
            true => self.inner.settle(now, zone),
            false => self.change(|state| state.settle(now, zone)),
        }
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        self.change(|state| state.set_zone(zone, to))
    }

    fn badblocks(&self, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        let theirs = match self.inner.badblocks(change) {
            // Like a condition of a zone, it is handled here if the wrapped device cannot.
            Err(DeviceError::Unsupported) => {
                if change.is_some_and(|change| change.last >= self.info.geometry.sectors().0) {
                    return Err(DeviceError::OutOfRange);
                }
                change.into_iter().for_each(|change| self.change_bad_blocks(change));
                Vec::new()
            }
            theirs => {
                change
                    .filter(|change| !change.is_bad)
                    .into_iter()
                    .for_each(|change| self.change_bad_blocks(change));
                theirs?
            }
        };
        let mut all = self.state.lock().bad.clone();
        theirs.into_iter().for_each(|(first, last)| all.change(BadRange { is_bad: true, first, last }));
        Ok(all.ranges().to_vec())
    }

    fn has_changes(&self) -> bool {
        self.notices.are_there() || self.inner.has_changes()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.notices.take(into);
        self.inner.take_changes(into);
    }

    fn has_news(&self, queue: usize) -> bool {
        self.inner.has_news(queue) || !self.is_transparent() && self.state.lock().queues[queue].has_news
    }
}

impl FaultState {
    /// Rest of a poll of `queue`: processes the completions from the wrapped device and adds due
    /// answers to `out`. Returns the time of the next poll.
    fn reaped(
        &mut self,
        now: Nanos,
        queue: usize,
        reaped: Reaped,
        budget: usize,
        out: &mut Vec<Completed>,
    ) -> Option<Nanos> {
        for Completed { context, mut result } in reaped.passed {
            if let Ok(Output::Zones(zones)) = &mut result {
                self.degraded.describe(zones);
            }
            // Passed through before power was cut: must not be acknowledged any more.
            match self.was_cut {
                true => self.fail_in_flight(queue, context),
                false => out.push(Completed { context, result }),
            }
        }
        self.has_sent = false;
        for (slot, result) in reaped.ours {
            self.answered(now, slot, result);
        }
        self.issue_held(now, queue);
        let left = budget.saturating_sub(out.len());
        let held = self.hand_out(now, queue, left, |context, result| out.push(Completed { context, result }));
        let window = self.next_window(queue);
        // Commands just issued may be due earlier than the wrapped device said before.
        let sent = self.has_sent.then_some(now);
        [held, window, sent].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
