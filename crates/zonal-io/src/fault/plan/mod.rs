//! Plans: the faults of a device, as a value or as text.
//!
//! The text is TOML: settings of the device, then rules. All of it is checked, and problems are
//! reported with line and column.
//!
//! ```
//! use zonal_io::fault::Plan;
//! let plan = Plan::parse(r#"
//!     seed = 7
//!     bad_blocks = ["+2048-2055"]
//!
//!     [rates]
//!     medium = "1/1000"
//!
//!     [[rule]]
//!     on = "write"
//!     zones = "3-5"
//!     nth = 2
//!     fault = "torn"
//!     blocks = 1
//! "#)?;
//! assert_eq!((plan.seed, plan.rules.len()), (7, 2));
//!
//! let error = Plan::parse("[[rule]]\nfault = \"tron\"").unwrap_err();
//! assert_eq!((error.line(), error.column()), (2, 9));
//! assert!(error.to_string().ends_with("did you mean `torn`?"));
//! # Ok::<(), zonal_io::fault::PlanError>(())
//! ```

mod error;
mod rates;
mod rule;
mod table;

pub use error::{PlanError, PlanMismatch, PlanProblem};
pub(crate) use rates::RATES;
pub(super) use table::parse_rate;

pub use super::late::Settling;
use super::rule::{Ops, Rule};
use crate::badblocks::{BadBlocks, BadRange};
use crate::device::{Device, DeviceInfo};
use table::{Table, Value};
use toml::de::DeTable;
use zonal_core::{Nanos, Op};

/// Maximum length of a plan in bytes: more than anybody writes by hand.
pub(crate) const TEXT_MAX: usize = 1 << 20;

/// Maximum number of rules in a plan, because every command is compared with all of them.
const RULES_MAX: usize = 4096;

/// Default time-out of rules.
pub(crate) const TIME_OUT: Nanos = Nanos(1_000_000_000);

/// Faults of a device.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Plan {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Faults injected into commands. If several rules fire together, the first one about the
    /// *outcome* and the first one about the *timing* take effect.
    pub rules: Vec<Rule>,
    /// Bad sectors.
    pub bad_blocks: BadBlocks,
    /// Time to settle timed-out commands.
    pub settling: Settling,
    /// The device does not support write-zeroes, and reports so.
    pub without_write_zeroes: bool,
    /// The device does not support zone append, and reports so.
    pub without_append: bool,
    /// Overrides whether the device reports that its queues preserve order.
    pub keeps_order: Option<bool>,
}

impl Plan {
    /// Plan of these rules.
    pub fn of(seed: u64, rules: impl IntoIterator<Item = Rule>) -> Plan {
        Plan { seed, rules: rules.into_iter().collect(), ..Plan::default() }
    }

    /// Parses a plan.
    ///
    /// # Errors
    /// [`PlanError`] with the first problem.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        if text.len() > TEXT_MAX {
            let problem = PlanProblem::TooMany { what: "bytes of a plan", max: TEXT_MAX };
            return Err(PlanError::new(text, TEXT_MAX..TEXT_MAX, problem));
        }
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            PlanError::new(text, at, PlanProblem::Syntax(error.message().into()))
        })?;
        read_plan(Table::new(text, table))
    }

    /// Refuses a plan with lost or misdirected writes if `device` does not support them.
    ///
    /// # Errors
    /// [`PlanMismatch`] with the first such rule.
    pub fn check(&self, device: &dyn Device) -> Result<(), PlanMismatch> {
        if device.insight().misplaces {
            return Ok(());
        }
        for (rule, fault) in (1..).zip(self.rules.iter().map(|rule| rule.effect.misplaces())) {
            if let Some(fault) = fault {
                return Err(PlanMismatch { device: device.info().name.clone(), rule, fault });
            }
        }
        Ok(())
    }

    /// Operations hidden from the host.
    pub(super) fn hidden(&self) -> Ops {
        let only = |hides, op| if hides { Ops::of(&[op]) } else { Ops::of(&[]) };
        only(self.without_write_zeroes, Op::WriteZeroes).or(only(self.without_append, Op::Append))
    }

    /// Applies the plan to the device's description.
    pub(super) fn describe(&self, info: &mut DeviceInfo) {
        if self.without_write_zeroes {
            info.write_zeroes_sectors_max = 0;
        }
        if self.without_append {
            info.append_sectors_max = 0;
        }
        info.keeps_order = self.keeps_order.unwrap_or(info.keeps_order);
    }
}

fn read_plan(mut table: Table<'_>) -> Result<Plan, PlanError> {
    let seed = table.read("seed", |v| v.number(0, u64::MAX))?.unwrap_or(0);
    let mut plan = Plan { seed, ..Plan::default() };
    let time_out = table.read("time_out", |v| v.time())?.unwrap_or(TIME_OUT);
    plan.settling = table.read("settle", |v| read_settling(&v))?.unwrap_or_default();
    if let Some(device) = table.read("device", Value::table)? {
        read_device(device, &mut plan)?;
    }
    plan.bad_blocks.once = table.read("bad_blocks_once", Value::flag)?.unwrap_or(false);
    plan.bad_blocks.partial_io = table.read("bad_blocks_partial_io", Value::flag)?.unwrap_or(false);
    for change in table.take("bad_blocks").map_or_else(Vec::new, Value::list) {
        let range: Result<BadRange, _> = change.text()?.parse();
        plan.bad_blocks.change(range.map_err(|e| change.error(e.into()))?);
    }
    for rule in table.take("rule").map_or_else(Vec::new, Value::list) {
        if plan.rules.len() == RULES_MAX {
            return Err(rule.error(PlanProblem::TooMany { what: "rules of a plan", max: RULES_MAX }));
        }
        plan.rules.push(rule::read_rule(rule.table()?, time_out)?);
    }
    if let Some(rates) = table.read("rates", Value::table)? {
        plan.rules.extend(rates::read_rates(rates, time_out)?);
    }
    table.finish()?;
    Ok(plan)
}

fn read_device(mut table: Table<'_>, plan: &mut Plan) -> Result<(), PlanError> {
    plan.without_write_zeroes = !table.read("write_zeroes", Value::flag)?.unwrap_or(true);
    plan.without_append = !table.read("append", Value::flag)?.unwrap_or(true);
    plan.keeps_order = table.read("keeps_order", Value::flag)?;
    table.finish()
}

fn read_settling(value: &Value<'_>) -> Result<Settling, PlanError> {
    match value.text() {
        Ok("never") => Ok(Settling::Never),
        _ => value.time().map(Settling::After),
    }
}

#[cfg(test)]
mod tests;
