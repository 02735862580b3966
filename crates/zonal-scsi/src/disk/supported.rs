//! Reports of supported operations, from the table, and of task management functions.

use super::identify::own;
use super::{Disk, Invocation, Operation, Started};
use crate::sense::CheckCondition;
use crate::status::Failure;
use crate::wire::{
    OperationEntry, OperationTimeouts, ReportOperations, ReportTaskManagement, SupportedOperation,
    TaskManagement, bits, flag,
};
use zerocopy::IntoBytes;

/// Reporting options (SPC table 284).
const ALL: u8 = 0;
const CODE: u8 = 1;
const CODE_AND_ACTION: u8 = 2;
const CODE_OR_ACTION: u8 = 3;

const HAS_TIMEOUTS: u8 = 0x80;
const IS_NOT_THERE: u8 = 1;
const IS_STANDARD: u8 = 3;

impl Disk {
    pub(super) fn report_operations(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let report: ReportOperations = own(invocation)?;
        let data = match report.options & 7 {
            ALL => self.all_operations(report.options & bits::RCTD != 0),
            CODE | CODE_AND_ACTION | CODE_OR_ACTION => self.one_operation(&report)?,
            _ => return Err(CheckCondition::in_cdb_bit(2, 2).into()),
        };
        Ok(Started::Data(data, report.len.get()))
    }

    fn all_operations(&self, has_timeouts: bool) -> Vec<u8> {
        let mut entries = Vec::new();
        for operation in Operation::all(self) {
            let entry = OperationEntry {
                opcode: operation.opcode,
                action: u16::from(operation.action.unwrap_or(0)).into(),
                flags: flag(OperationEntry::CTDP, has_timeouts)
                    | flag(OperationEntry::SERVACTV, operation.action.is_some()),
                cdb_len: (operation.len as u16).into(),
                ..OperationEntry::default()
            };
            entries.extend_from_slice(entry.as_bytes());
            if has_timeouts {
                entries.extend(no_timeouts());
            }
        }
        [(entries.len() as u32).to_be_bytes().to_vec(), entries].concat()
    }

    fn one_operation(&self, report: &ReportOperations) -> Result<Vec<u8>, CheckCondition> {
        let (options, wanted) = (report.options & 7, report.action.get());
        let of_code: Vec<_> = Operation::all(self).filter(|one| one.opcode == report.opcode).collect();
        let has_actions = of_code.iter().any(|one| one.action.is_some());
        match options {
            CODE if has_actions => return Err(CheckCondition::in_cdb_bit(2, 2)),
            CODE_AND_ACTION if !of_code.is_empty() && !has_actions => {
                return Err(CheckCondition::in_cdb_bit(2, 2));
            }
            _ => {}
        }
        let is_meant = |one: &&Operation| match one.action {
            Some(action) => u16::from(action) == wanted,
            // An operation code without service actions matches action zero (SPC table 284).
            None => options == CODE || wanted == 0,
        };
        let Some(operation) = of_code.into_iter().find(is_meant) else {
            let none = SupportedOperation { support: IS_NOT_THERE, ..SupportedOperation::default() };
            return Ok(none.as_bytes().to_vec());
        };
        let usage = operation.usage();
        let has_timeouts = report.options & bits::RCTD != 0;
        let support = IS_STANDARD | flag(HAS_TIMEOUTS, has_timeouts);
        let head = SupportedOperation { reserved: 0, support, cdb_len: (usage.len() as u16).into() };
        let timeouts = if has_timeouts { no_timeouts() } else { Vec::new() };
        Ok([head.as_bytes(), &usage, &timeouts].concat())
    }

    pub(super) fn report_task_management(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        const EXTENDED: u8 = 12;
        let ReportTaskManagement { options, len, .. } = own(invocation)?;
        let is_extended = options & bits::REPD != 0;
        let list = TaskManagement {
            functions: TaskManagement::ATS | TaskManagement::ATSS | TaskManagement::LURS,
            len: flag(EXTENDED, is_extended),
            ..TaskManagement::default()
        };
        let mut data = list.as_bytes().to_vec();
        data.resize(4 + usize::from(list.len), 0);
        Ok(Started::Data(data, len.get()))
    }
}

/// Timeouts descriptor without values, because timeouts are up to the transport.
fn no_timeouts() -> Vec<u8> {
    OperationTimeouts { len: 10.into(), ..OperationTimeouts::default() }.as_bytes().to_vec()
}
