//! Rates: the probability of each kind of fault.

use super::error::PlanError;
use super::table::Table;
use crate::fault::rule::{Carried, Effect, Late, Ops, Reordered, Rule};
use zonal_core::{DeviceError, Nanos, Op, ZoneError};

/// Kind of fault that may have a rate.
pub(crate) struct RateKind {
    /// Key in a plan and option in a device name.
    pub(crate) name: &'static str,
    ops: Ops,
    effect: fn(time_out: Nanos) -> Effect,
}

impl RateKind {
    /// Rule that injects it at this rate.
    pub(crate) fn rule(&self, rate: f64, time_out: Nanos) -> Rule {
        Rule::new((self.effect)(time_out)).on(self.ops).rate(rate)
    }
}

/// Operations that modify something, so that it matters whether they were executed.
const CHANGES: Ops = Ops::WRITES.or(Ops::MANAGEMENT);

/// All kinds, in the order of their rules: the first that fires takes precedence.
pub(crate) const RATES: [RateKind; 14] = [
    RateKind { name: "busy", ops: Ops::ANY, effect: |_| Effect::Busy },
    RateKind { name: "attention", ops: Ops::ANY, effect: |_| Effect::Attention { commands: 1 } },
    RateKind { name: "medium", ops: Ops::DATA, effect: |_| Effect::Refuse(DeviceError::Medium) },
    RateKind {
        name: "invalid-write",
        ops: Ops::of(&[Op::Write, Op::WriteZeroes]),
        effect: |_| Effect::Refuse(DeviceError::Zone(ZoneError::InvalidWrite)),
    },
    RateKind {
        name: "too-many-open",
        ops: Ops::WRITES.or(Ops::of(&[Op::ZoneOpen])),
        effect: |_| Effect::Refuse(DeviceError::Zone(ZoneError::TooManyOpen)),
    },
    RateKind {
        name: "too-many-active",
        ops: Ops::WRITES.or(Ops::of(&[Op::ZoneOpen])),
        effect: |_| Effect::Refuse(DeviceError::Zone(ZoneError::TooManyActive)),
    },
    RateKind { name: "failed", ops: CHANGES, effect: |_| Effect::Fail(DeviceError::Medium) },
    RateKind {
        name: "torn",
        ops: Ops::WRITES,
        effect: |_| Effect::Torn { blocks: None, error: DeviceError::Medium },
    },
    RateKind { name: "lost", ops: Ops::WRITES, effect: |_| Effect::Lost },
    RateKind { name: "misdirected", ops: Ops::WRITES, effect: |_| Effect::Misdirected },
    RateKind {
        name: "time-out",
        ops: Ops::ANY,
        effect: |after| Effect::TimeOut { after, carried: Carried::Never },
    },
    RateKind {
        name: "time-out-before",
        ops: CHANGES,
        effect: |after| Effect::TimeOut { after, carried: Carried::Before },
    },
    RateKind {
        name: "time-out-late",
        ops: CHANGES,
        effect: |after| Effect::TimeOut { after, carried: Carried::Late(Late::AtSettle) },
    },
    RateKind {
        name: "reorder",
        ops: Ops::WRITES,
        // Four commands are enough to be out of order. A host with fewer waits for 100 us.
        effect: |_| Effect::Reorder { what: Reordered::Execution, window: 4, hold: Nanos(100_000) },
    },
];

/// Reads the rules in the table of rates.
pub(super) fn read_rates(mut table: Table<'_>, time_out: Nanos) -> Result<Vec<Rule>, PlanError> {
    let mut rules = Vec::new();
    for kind in &RATES {
        if let Some(rate) = table.read(kind.name, |v| v.rate())? {
            rules.push(kind.rule(rate, time_out));
        }
    }
    table.finish()?;
    Ok(rules)
}
