//! Text format of rules.

use super::error::{PlanError, PlanProblem};
use super::table::{Table, Value};
use crate::fault::Degraded;
use crate::fault::rule::{Carried, Effect, InFlight, Late, Ops, Reordered, Rule, RulePlace};
use zonal_core::{DeviceError, Nanos, Op};

/// Maximum window for reordering commands: as many as any queue holds.
const WINDOW_MAX: u64 = 1 << 16;

/// Names of operations and groups of them.
const OPS: [(&str, Ops); 18] = [
    ("any", Ops::ANY),
    ("data", Ops::DATA),
    ("writes", Ops::WRITES),
    ("management", Ops::MANAGEMENT),
    ("read", Ops::of(&[Op::Read])),
    ("write", Ops::of(&[Op::Write])),
    ("write-zeroes", Ops::of(&[Op::WriteZeroes])),
    ("append", Ops::of(&[Op::Append])),
    ("flush", Ops::of(&[Op::Flush])),
    ("reset", Ops::of(&[Op::ZoneReset])),
    ("finish", Ops::of(&[Op::ZoneFinish])),
    ("open", Ops::of(&[Op::ZoneOpen])),
    ("close", Ops::of(&[Op::ZoneClose])),
    ("reset-all", Ops::of(&[Op::ResetAll])),
    ("report", Ops::of(&[Op::Report])),
    ("verify", Ops::of(&[Op::Verify])),
    ("zone-offline", Ops::of(&[Op::ZoneOffline])),
    ("discard", Ops::of(&[Op::Discard])),
];

#[derive(Clone, Copy)]
enum EffectKind {
    Refuse,
    Fail,
    Torn,
    Lost,
    Misdirected,
    Busy,
    TimeOut,
    Attention,
    Degrade(Degraded),
    PowerCut,
    Delay,
    Reorder,
}

const KINDS: [(&str, EffectKind); 13] = [
    ("refuse", EffectKind::Refuse),
    ("fail", EffectKind::Fail),
    ("torn", EffectKind::Torn),
    ("lost", EffectKind::Lost),
    ("misdirected", EffectKind::Misdirected),
    ("busy", EffectKind::Busy),
    ("time-out", EffectKind::TimeOut),
    ("attention", EffectKind::Attention),
    ("read-only", EffectKind::Degrade(Degraded::ReadOnly)),
    ("offline", EffectKind::Degrade(Degraded::Offline)),
    ("power-cut", EffectKind::PowerCut),
    ("delay", EffectKind::Delay),
    ("reorder", EffectKind::Reorder),
];

/// Reads the rule in `table`. A time-out without a time of its own takes the plan's.
pub(super) fn read_rule(mut table: Table<'_>, time_out: Nanos) -> Result<Rule, PlanError> {
    let Some(fault) = table.take("fault") else {
        return Err(table.error(PlanProblem::Missing("fault")));
    };
    let effect = read_effect(&mut table, fault.choice(&KINDS)?, time_out)?;
    let mut rule = Rule::new(effect);
    if let Some(on) = table.take("on") {
        rule = rule.on(read_ops(on, &effect)?);
    }
    if let Some(place) = read_place(&mut table)? {
        rule = rule.at(place);
    }
    rule = read_frequency(&mut table, rule)?;
    table.finish()?;
    Ok(rule)
}

fn read_ops(on: Value<'_>, effect: &Effect) -> Result<Ops, PlanError> {
    let mut ops = Ops::of(&[]);
    for value in on.list() {
        let some = value.choice(&OPS)?;
        if some.and(effect.ops()).is_empty() {
            let which = match effect {
                Effect::Torn { .. } => "data",
                Effect::Lost | Effect::Misdirected => "writes",
                _ => "data and management",
            };
            return Err(value.error(PlanProblem::CannotHappen(which)));
        }
        ops = ops.or(some);
    }
    Ok(ops)
}

fn read_place(table: &mut Table<'_>) -> Result<Option<RulePlace>, PlanError> {
    let zones = table.read("zones", |v| v.range(u32::MAX.into()))?;
    let sectors = table.take("sectors");
    match (zones, sectors) {
        (Some(_), Some(sectors)) => Err(sectors.error(PlanProblem::Conflict("zones", "sectors"))),
        (Some(zones), None) => Ok(Some(RulePlace::Zones(*zones.start() as u32..=*zones.end() as u32))),
        (None, Some(sectors)) => Ok(Some(RulePlace::Sectors(sectors.range(u64::MAX)?))),
        (None, None) => Ok(None),
    }
}

fn read_frequency(table: &mut Table<'_>, mut rule: Rule) -> Result<Rule, PlanError> {
    let number = |min| move |v: Value<'_>| v.number(min, u64::MAX);
    let nth = table.read("nth", number(1))?;
    for other in ["skip", "every", "count"] {
        let Some(value) = table.take(other) else { continue };
        if nth.is_some() {
            return Err(value.error(PlanProblem::Conflict("nth", other)));
        }
        rule = match other {
            "skip" => rule.after(number(0)(value)?),
            "every" => rule.every(number(1)(value)?),
            _ => rule.times(number(1)(value)?),
        };
    }
    if let Some(nth) = nth {
        rule = rule.nth(nth);
    }
    if let Some(rate) = table.read("rate", |v| v.rate())? {
        rule = rule.rate(rate);
    }
    Ok(rule)
}

fn read_effect(table: &mut Table<'_>, kind: EffectKind, time_out: Nanos) -> Result<Effect, PlanError> {
    Ok(match kind {
        EffectKind::Refuse => Effect::Refuse(read_error(table)?),
        EffectKind::Fail => Effect::Fail(read_error(table)?),
        EffectKind::Torn => {
            let blocks = table.read("blocks", |v| v.number(0, u32::MAX.into()))?.map(|n| n as u32);
            Effect::Torn { blocks, error: read_error(table)? }
        }
        EffectKind::Lost => Effect::Lost,
        EffectKind::Misdirected => Effect::Misdirected,
        EffectKind::Busy => Effect::Busy,
        EffectKind::TimeOut => {
            let after = table.read("time", |v| v.time())?.unwrap_or(time_out);
            Effect::TimeOut { after, carried: read_carried(table)? }
        }
        EffectKind::Attention => {
            let commands = table.read("commands", |v| v.number(1, u32::MAX.into()))?;
            Effect::Attention { commands: commands.unwrap_or(1) as u32 }
        }
        EffectKind::Degrade(to) => Effect::Degrade(to),
        EffectKind::PowerCut => {
            let choices = [("fail", InFlight::Fail), ("lose", InFlight::Lose)];
            let policy = table.read("in_flight", |v| v.choice(&choices))?;
            Effect::PowerCut(policy.unwrap_or(InFlight::Fail))
        }
        EffectKind::Delay => match table.read("time", |v| v.time())? {
            Some(time) => Effect::Delay(time),
            None => return Err(table.error(PlanProblem::Missing("time"))),
        },
        EffectKind::Reorder => read_reorder(table)?,
    })
}

fn read_reorder(table: &mut Table<'_>) -> Result<Effect, PlanError> {
    let choices = [("execution", Reordered::Execution), ("completion", Reordered::Completion)];
    let what = table.read("what", |v| v.choice(&choices))?.unwrap_or(Reordered::Execution);
    let window = table.read("window", |v| v.number(2, WINDOW_MAX))?;
    let hold = table.read("hold", |v| v.time())?;
    match (window, hold) {
        (Some(window), Some(hold)) => Ok(Effect::Reorder { what, window: window as u32, hold }),
        (None, _) => Err(table.error(PlanProblem::Missing("window"))),
        (_, None) => Err(table.error(PlanProblem::Missing("hold"))),
    }
}

fn read_carried(table: &mut Table<'_>) -> Result<Carried, PlanError> {
    let choices =
        [("never", Carried::Never), ("before", Carried::Before), ("late", Carried::Late(Late::AtSettle))];
    let carried = table.read("executed", |v| v.choice(&choices))?.unwrap_or(Carried::Never);
    let Some(late) = table.take("late") else { return Ok(carried) };
    if !matches!(carried, Carried::Late(_)) {
        return Err(late.error(PlanProblem::Missing("executed = \"late\"")));
    }
    Ok(Carried::Late(match late.text() {
        Ok("settle") => Late::AtSettle,
        Ok("report") => Late::AfterReport,
        _ => Late::After(late.time()?),
    }))
}

/// Reads `error`, a word, or `errno`, an error number of the operating system; a medium error if
/// both are absent.
fn read_error(table: &mut Table<'_>) -> Result<DeviceError, PlanError> {
    let words: Vec<_> = DeviceError::all().map(|e| (e.word(), e)).collect();
    let errno = table.read("errno", |v| v.number(1, 4095))?;
    match (table.take("error"), errno) {
        (Some(word), Some(_)) => Err(word.error(PlanProblem::Conflict("error", "errno"))),
        (Some(word), None) => word.choice(&words),
        (None, Some(errno)) => Ok(DeviceError::Os(errno as i32)),
        (None, None) => Ok(DeviceError::Medium),
    }
}
