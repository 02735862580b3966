//! Decision about a command, before anything is executed.
//!
//! Checked in this order: power, a pending unit attention, the rules, operations hidden by the
//! device, degraded zones, bad blocks.

use super::flight::{LateCommand, Order, scope};
use super::rule::{Carried, Effect, InFlight, Late, Ops, Reordered};
use super::state::{FaultState, later};
use crate::badblocks::BadRange;
use crate::device::{Command, CommandResult, Landing};
use zonal_core::{DeviceError, Nanos, Op};

/// Decision about a command.
pub(super) enum Verdict {
    Busy,
    /// Answered without the wrapped device.
    Answer(CommandResult),
    /// Executed.
    Execute {
        /// Number of sectors to execute.
        sectors: u32,
        /// Bad blocks hit by the command.
        bad: Option<BadRange>,
    },
    /// Executed when the window of this rule opens.
    Reorder {
        rule: usize,
        sectors: u32,
    },
    NoPower(InFlight),
}

type Fired = Option<(usize, Effect)>;

/// Outcome of an effect.
enum Outcome {
    Verdict(Verdict),
    /// This number of sectors is executed.
    Part(u32),
    All,
}

impl FaultState {
    /// Decides about `command`, which is new or was undone.
    pub(super) fn decide(&mut self, now: Nanos, queue: usize, command: &Command) -> (Verdict, Order) {
        let mut order = Order::at(now);
        if let Some(policy) = self.off {
            return (Verdict::NoPower(policy), order);
        }
        if self.attention > 0 {
            self.attention -= 1;
            return (Verdict::Answer(Err(DeviceError::UnitAttention)), order);
        }
        let (how, when) = self.fire(command);
        let mut reorder = None;
        match when {
            Some((_, Effect::Delay(delay))) => order.due = later(now, delay),
            Some((rule, Effect::Reorder { what: Reordered::Execution, .. })) => reorder = Some(rule),
            Some((rule, _)) => order.reorder = Some(rule),
            None => {}
        }
        let happens = match how {
            Some((rule, effect)) => self.effect(now, queue, command, (rule, effect), &mut order),
            None => Outcome::All,
        };
        let sectors = match happens {
            Outcome::Verdict(verdict) => return (verdict, order),
            Outcome::Part(part) => part,
            Outcome::All => command.sectors,
        };
        let verdict = self.apply_device_state(command, sectors, reorder, &mut order);
        (verdict, order)
    }

    /// Applies the device's present state to the first `sectors` of a command.
    fn apply_device_state(
        &mut self,
        command: &Command,
        mut sectors: u32,
        reorder: Option<usize>,
        order: &mut Order,
    ) -> Verdict {
        if self.hidden.contains(command.op) {
            return Verdict::Answer(Err(DeviceError::Unsupported));
        }
        if let Some(result) = self.answer_of_degraded(command) {
            return Verdict::Answer(result);
        }
        // The location of an append is not known in advance.
        let has_place = Ops::DATA.contains(command.op) && command.op != Op::Append;
        let bad = self.bad.met_by(command.sector.0, sectors).filter(|_| has_place);
        if let Some(range) = bad {
            order.error = Some(DeviceError::Medium);
            sectors = self.bad.good_part(command.sector.0, range, self.block_sectors);
        }
        match (bad, reorder) {
            (Some(range), _) if sectors == 0 => {
                self.bad.hit(range);
                Verdict::Answer(Err(DeviceError::Medium))
            }
            (_, Some(rule)) => {
                bad.into_iter().for_each(|range| self.bad.hit(range));
                Verdict::Reorder { rule, sectors }
            }
            (_, None) => Verdict::Execute { sectors, bad },
        }
    }

    /// First effect of either kind that a rule has for `command`: its outcome, and its timing.
    fn fire(&mut self, command: &Command) -> (Fired, Fired) {
        let (mut how, mut when) = (None, None);
        self.touched.clear();
        for (index, (rule, tally)) in self.rules.iter_mut().enumerate() {
            if !rule.takes(&self.geometry, command) {
                continue;
            }
            self.touched.push((index, tally.clone()));
            let place = if rule.effect.is_timing() { &mut when } else { &mut how };
            match (tally.fires(rule), &place) {
                (true, None) => *place = Some((index, rule.effect)),
                // An earlier rule takes precedence, so this one keeps its turn.
                (true, Some(_)) => tally.fired -= 1,
                (false, _) => {}
            }
        }
        (how, when)
    }

    /// Undoes the accounting of a command that will be resubmitted.
    pub(super) fn undo(&mut self) {
        for (index, tally) in self.touched.drain(..) {
            self.rules[index].1 = tally;
        }
    }

    fn effect(
        &mut self,
        now: Nanos,
        queue: usize,
        command: &Command,
        (rule, effect): (usize, Effect),
        order: &mut Order,
    ) -> Outcome {
        match effect {
            Effect::Busy => {
                // For all other rules, the command will be resubmitted.
                self.touched.retain(|(index, _)| *index != rule);
                self.undo();
                Outcome::Verdict(Verdict::Busy)
            }
            Effect::Refuse(error) => Outcome::Verdict(Verdict::Answer(Err(error))),
            Effect::Fail(error) => {
                order.error = Some(error);
                Outcome::All
            }
            Effect::Torn { blocks, error } => {
                let all = command.sectors / self.block_sectors;
                let blocks = blocks.unwrap_or_else(|| self.rules[rule].1.below(all.max(1)));
                order.error = Some(error);
                match blocks.saturating_mul(self.block_sectors).min(command.sectors) {
                    0 => Outcome::Verdict(Verdict::Answer(Err(error))),
                    part => Outcome::Part(part),
                }
            }
            Effect::Lost | Effect::Misdirected if !self.inner.insight().misplaces => {
                Outcome::Verdict(Verdict::Answer(Err(DeviceError::Unsupported)))
            }
            Effect::Lost => {
                order.landing = Landing::Lost;
                Outcome::All
            }
            Effect::Misdirected => {
                let draw = self.rules[rule].1.below(1 << u8::BITS);
                order.landing = Landing::Misdirected(draw as u8);
                Outcome::All
            }
            Effect::TimeOut { after, carried } => {
                order.due = order.due.max(later(now, after));
                order.reorder = None;
                let error = DeviceError::TimedOut;
                if carried == Carried::Before {
                    order.error = Some(error);
                    return Outcome::All;
                }
                if let Carried::Late(when) = carried {
                    order.late = self.keep_for_later(queue, command, when);
                }
                Outcome::Verdict(Verdict::Answer(Err(error)))
            }
            Effect::Attention { commands } => {
                self.attention = commands.saturating_sub(1);
                Outcome::Verdict(Verdict::Answer(Err(DeviceError::UnitAttention)))
            }
            Effect::Degrade(to) => {
                if let Some(zone) = scope(&self.geometry, command) {
                    // Conventional and offline zones remain unchanged.
                    let _ = self.degrade(zone, to);
                    self.issue_held(now, 0);
                }
                Outcome::All
            }
            Effect::PowerCut(policy) => {
                self.cut(policy);
                Outcome::Verdict(Verdict::NoPower(policy))
            }
            Effect::Delay(_) | Effect::Reorder { .. } => unreachable!("timing is kept apart"),
        }
    }

    /// Keeps a copy of a command that modifies something, for execution after its time-out.
    fn keep_for_later(&mut self, queue: usize, command: &Command, when: Late) -> Option<u64> {
        if matches!(command.op, Op::Read | Op::Verify | Op::Report | Op::Flush) {
            return None;
        }
        let id = self.number();
        let scope = scope(&self.geometry, command);
        self.late.push(LateCommand::new(id, queue, command, scope, when));
        Some(id)
    }
}
