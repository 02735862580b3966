//! What the disk has: operations from the one table, and task management.

use super::identify::own;
use super::{Begun, Disk, Invocation, Operation};
use crate::sense::CheckCondition;
use crate::status::Failure;
use crate::wire::{
    Layout, OperationEntry, OperationTimeouts, ReportOperations, ReportTaskManagement, SupportedOperation,
    TaskManagement,
};

/// Which commands a report is to have (SPC table 284).
const ALL: u8 = 0;
const CODE: u8 = 1;
const CODE_AND_ACTION: u8 = 2;
const CODE_OR_ACTION: u8 = 3;

const IS_NOT_THERE: u8 = 1;
const IS_STANDARD: u8 = 3;

impl Disk {
    pub(super) fn report_operations(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        let report: ReportOperations = own(invocation)?;
        let data = match report.options {
            ALL => self.all_operations(report.has_timeouts),
            CODE | CODE_AND_ACTION | CODE_OR_ACTION => self.one_operation(&report)?,
            _ => return Err(CheckCondition::in_cdb_bit(2, 2).into()),
        };
        Ok(Begun::Data(data, report.len))
    }

    fn all_operations(&self, has_timeouts: bool) -> Vec<u8> {
        let mut entries = Vec::new();
        for operation in Operation::all(self) {
            let entry = OperationEntry {
                opcode: operation.opcode,
                action: operation.action.unwrap_or(0).into(),
                has_timeouts,
                has_action: operation.action.is_some(),
                cdb_len: operation.len as u16,
            };
            entries.extend(entry.emit());
            if has_timeouts {
                entries.extend(no_timeouts());
            }
        }
        [(entries.len() as u32).to_be_bytes().to_vec(), entries].concat()
    }

    fn one_operation(&self, report: &ReportOperations) -> Result<Vec<u8>, CheckCondition> {
        let of_code: Vec<_> = Operation::all(self).filter(|one| one.opcode == report.opcode).collect();
        let has_actions = of_code.iter().any(|one| one.action.is_some());
        match report.options {
            CODE if has_actions => return Err(CheckCondition::in_cdb_bit(2, 2)),
            CODE_AND_ACTION if !of_code.is_empty() && !has_actions => {
                return Err(CheckCondition::in_cdb_bit(2, 2));
            }
            _ => {}
        }
        let is_meant = |one: &&Operation| match one.action {
            Some(action) => u16::from(action) == report.action,
            // A code without actions has the one of number zero (SPC table 284).
            None => report.options == CODE || report.action == 0,
        };
        let Some(operation) = of_code.into_iter().find(is_meant) else {
            let none = SupportedOperation { has_timeouts: false, support: IS_NOT_THERE, cdb_len: 0 };
            return Ok(none.emit());
        };
        let usage = operation.usage();
        let has_timeouts = report.has_timeouts;
        let head = SupportedOperation { has_timeouts, support: IS_STANDARD, cdb_len: usage.len() as u16 };
        let timeouts = if has_timeouts { no_timeouts() } else { Vec::new() };
        Ok([head.emit(), usage, timeouts].concat())
    }

    pub(super) fn report_task_management(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        let ReportTaskManagement { is_extended, len } = own(invocation)?;
        let extended = 12;
        let functions = TaskManagement {
            has_abort: true,
            has_abort_set: true,
            has_reset: true,
            len: if is_extended { extended } else { 0 },
        };
        let mut data = functions.emit();
        data.resize(4 + usize::from(functions.len), 0);
        Ok(Begun::Data(data, len))
    }
}

/// Time-outs are the transport's matter: none is told.
fn no_timeouts() -> Vec<u8> {
    OperationTimeouts { len: 10, nominal: 0, recommended: 0 }.emit()
}
