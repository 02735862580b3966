//! What happens to a command: the part of the state that decides, before anything is carried out.
//!
//! In this order: no power, a unit attention that is due, the rules, what the device hides, degraded zones, bad blocks.

use super::bad::BadRange;
use super::flight::{LateCommand, Order, scope};
use super::rule::{Carried, Effect, InFlight, Late, Ops, Reordered};
use super::state::{FaultState, later};
use crate::device::{Command, CommandResult, Landing};
use zonal_core::{DeviceError, Nanos, Op};

/// What happens to a command.
pub(super) enum Verdict {
    Busy,
    /// Answered without the wrapped device.
    Answer(CommandResult),
    /// Carried out.
    Execute {
        /// As far as that.
        sectors: u32,
        /// What it meets.
        bad: Option<BadRange>,
    },
    /// Carried out when the window of this rule opens.
    Reorder {
        rule: usize,
        sectors: u32,
    },
    NoPower(InFlight),
}

type Fired = Option<(usize, Effect)>;

/// What an effect makes of a command.
enum Happens {
    Verdict(Verdict),
    /// This number of sectors is carried out.
    Part(u32),
    All,
}

impl FaultState {
    /// Decides about `command`, which has not been seen before or was taken back.
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
            None => Happens::All,
        };
        let sectors = match happens {
            Happens::Verdict(verdict) => return (verdict, order),
            Happens::Part(part) => part,
            Happens::All => command.sectors,
        };
        let verdict = self.meet_device(command, sectors, reorder, &mut order);
        (verdict, order)
    }

    /// What the device, as it is by now, does with the first `sectors` of a command.
    fn meet_device(
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
        // Where an append goes is known only afterwards.
        let has_place = Ops::DATA.contains(command.op) && command.op != Op::Append;
        let bad = self.bad.met_by(command.sector.0, sectors).filter(|_| has_place);
        if let Some(range) = bad {
            order.error = Some(DeviceError::Medium);
            sectors = self.good_part(command, range);
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

    /// Sectors of whole blocks that are transferred before `command` meets `bad`.
    fn good_part(&self, command: &Command, bad: BadRange) -> u32 {
        let good = bad.first.saturating_sub(command.sector.0) as u32;
        if self.bad.partial_io { good / self.block_sectors * self.block_sectors } else { 0 }
    }

    /// The first effect of either sort that a rule has for `command`: how, and when.
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
                // Another rule came first: this one may yet have its turn.
                (true, Some(_)) => tally.fired -= 1,
                (false, _) => {}
            }
        }
        (how, when)
    }

    /// The command will come again: it has not been seen.
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
    ) -> Happens {
        match effect {
            Effect::Busy => {
                // For every other rule the command will come again.
                self.touched.retain(|(index, _)| *index != rule);
                self.undo();
                Happens::Verdict(Verdict::Busy)
            }
            Effect::Refuse(error) => Happens::Verdict(Verdict::Answer(Err(error))),
            Effect::Fail(error) => {
                order.error = Some(error);
                Happens::All
            }
            Effect::Torn { blocks, error } => {
                let all = command.sectors / self.block_sectors;
                let blocks = blocks.unwrap_or_else(|| self.rules[rule].1.below(all.max(1)));
                order.error = Some(error);
                match blocks.saturating_mul(self.block_sectors).min(command.sectors) {
                    0 => Happens::Verdict(Verdict::Answer(Err(error))),
                    part => Happens::Part(part),
                }
            }
            Effect::Lost | Effect::Misdirected if !self.inner.insight().misplaces => {
                Happens::Verdict(Verdict::Answer(Err(DeviceError::Unsupported)))
            }
            Effect::Lost => {
                order.landing = Landing::Lost;
                Happens::All
            }
            Effect::Misdirected => {
                let draw = self.rules[rule].1.below(1 << u8::BITS);
                order.landing = Landing::Misdirected(draw as u8);
                Happens::All
            }
            Effect::TimeOut { after, carried } => {
                order.due = order.due.max(later(now, after));
                order.reorder = None;
                let error = DeviceError::TimedOut;
                if carried == Carried::Before {
                    order.error = Some(error);
                    return Happens::All;
                }
                if let Carried::Late(when) = carried {
                    order.late = self.keep_for_later(queue, command, when);
                }
                Happens::Verdict(Verdict::Answer(Err(error)))
            }
            Effect::Attention { commands } => {
                self.attention = commands.saturating_sub(1);
                Happens::Verdict(Verdict::Answer(Err(DeviceError::UnitAttention)))
            }
            Effect::Degrade(to) => {
                if let Some(zone) = scope(&self.geometry, command) {
                    // A conventional zone stays what it is, an offline one too.
                    let _ = self.degrade(zone, to);
                    self.go_on(now, 0);
                }
                Happens::All
            }
            Effect::PowerCut(policy) => {
                self.cut(policy);
                Happens::Verdict(Verdict::NoPower(policy))
            }
            Effect::Delay(_) | Effect::Reorder { .. } => unreachable!("timing is kept apart"),
        }
    }

    /// Keeps a command that changes something, to be carried out after its time-out.
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
