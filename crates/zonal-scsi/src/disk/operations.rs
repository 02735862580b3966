//! Table of operations: the operations of the disk, the bits allowed in their descriptors, and
//! their functions.
//!
//! Used both for dispatch and for REPORT SUPPORTED OPERATION CODES. READ(6) and WRITE(6) are
//! missing, as host-managed disks do not have them (ZBC 5.1).

use super::{Disk, Invocation, Started};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::Cdb;
use crate::wire::cdb::{bits::*, *};

type Begin = fn(&Disk, &Invocation<'_>) -> Result<Started, Failure>;

/// Entry of the table.
pub(crate) struct Operation {
    pub(crate) opcode: u8,
    /// Service action, if the operation code has several.
    pub(crate) action: Option<u8>,
    /// Length of the descriptor in bytes.
    pub(crate) len: usize,
    /// Bits that must be zero in the descriptor.
    refused: Cdb,
    /// True if the operation modifies the medium; a write-protected disk refuses it.
    pub(crate) is_change: bool,
    is_there: fn(&Disk) -> bool,
    pub(crate) begin: Begin,
}

/// NACA bit of the control byte (SAM 5.2); not supported.
const NACA: u8 = 1 << 2;

impl Operation {
    const fn of<T: Command>(begin: Begin) -> Operation {
        let mut refused = [0; 32];
        let (mut n, control) = (1, T::LEN - 1);
        while n < control {
            refused[n] = !T::MASK[n];
            n += 1;
        }
        refused[control] = NACA;
        if T::ACTION.is_some() {
            assert!(T::MASK[1] & 0x1F == 0, "a field is where the service action is");
            refused[1] &= !0x1F;
        }
        Operation {
            opcode: T::OPCODE,
            action: T::ACTION,
            len: T::LEN,
            refused,
            is_change: false,
            is_there: |_| true,
            begin,
        }
    }

    /// Changes the operation code and the bits allowed in byte 1.
    const fn code(self, opcode: u8, flags: u8) -> Operation {
        let mut refused = self.refused;
        refused[1] = !flags;
        Operation { opcode, refused, ..self }
    }

    const fn action(self, action: u8) -> Operation {
        Operation { action: Some(action), ..self }
    }

    const fn change(self) -> Operation {
        Operation { is_change: true, ..self }
    }

    const fn only_if(self, is_there: fn(&Disk) -> bool) -> Operation {
        Operation { is_there, ..self }
    }

    /// Operations of `disk`.
    pub(crate) fn all(disk: &Disk) -> impl Iterator<Item = &'static Operation> {
        OPERATIONS.iter().filter(|operation| (operation.is_there)(disk))
    }

    /// Finds the operation of a descriptor.
    ///
    /// # Errors
    /// INVALID COMMAND OPERATION CODE, or INVALID FIELD IN CDB for an unsupported service action.
    pub(crate) fn find(disk: &Disk, cdb: &Cdb) -> Result<&'static Operation, CheckCondition> {
        let first = OPERATIONS.partition_point(|operation| operation.opcode < cdb[0]);
        let of_code = OPERATIONS[first..].iter().take_while(|operation| operation.opcode == cdb[0]);
        let mut of_code = of_code.filter(|operation| (operation.is_there)(disk)).peekable();
        if of_code.peek().is_none() {
            return Err(SenseCode::INVALID_OPERATION_CODE.into());
        }
        let is_meant = |operation: &&Operation| operation.action.is_none_or(|action| action == cdb[1] & 0x1F);
        of_code.find(is_meant).ok_or(CheckCondition::in_cdb_bit(1, 4))
    }

    /// Checks that only allowed bits are set.
    ///
    /// # Errors
    /// INVALID FIELD IN CDB, pointing to the first invalid bit.
    pub(crate) fn check(&self, cdb: &Cdb) -> Result<(), CheckCondition> {
        let wrong: Cdb = std::array::from_fn(|n| cdb[n] & self.refused[n]);
        // Checks all bytes at once, as errors are rare.
        if wrong == [0; 32] {
            return Ok(());
        }
        let mut bits = (0..).zip(wrong).filter_map(|(n, bits)| Some((n, bits.checked_ilog2()?)));
        bits.next().map_or(Ok(()), |(n, bit)| Err(CheckCondition::in_cdb_bit(n, bit as u8)))
    }

    /// CDB usage data (SPC 6.35.3): the allowed bits, with operation code and service action.
    pub(crate) fn usage(&self) -> Vec<u8> {
        let mut usage: Vec<u8> = self.refused[..self.len].iter().map(|refused| !refused).collect();
        usage[0] = self.opcode;
        if let Some(action) = self.action {
            usage[1] = usage[1] & !0x1F | action;
        }
        usage[self.len - 1] = NACA;
        usage
    }
}

/// In order of operation code.
static OPERATIONS: [Operation; 34] = [
    Operation::of::<TestUnitReady>(Disk::test_unit_ready),
    Operation::of::<RequestSense>(Disk::request_sense),
    Operation::of::<Inquiry>(Disk::inquiry),
    Operation::of::<ModeSelect6>(Disk::mode_select),
    Operation::of::<ModeSense6>(Disk::mode_sense),
    Operation::of::<StartStopUnit>(Disk::start_stop),
    Operation::of::<PreventAllowMediumRemoval>(Disk::prevent_removal),
    Operation::of::<ReadCapacity10>(Disk::capacity_10),
    Operation::of::<Read10>(Disk::read),
    Operation::of::<Read10>(Disk::write).code(0x2A, DPO | FUA).change(),
    Operation::of::<Read10>(Disk::verify).code(0x2F, DPO | BYTCHK),
    Operation::of::<Read10>(Disk::synchronize).code(0x35, SYNC_IMMED),
    Operation::of::<Read10>(Disk::write_same).code(0x41, UNMAP).change(),
    Operation::of::<Unmap>(Disk::unmap).change().only_if(Disk::has_discard),
    Operation::of::<LogSense>(Disk::log_sense),
    Operation::of::<ModeSelect10>(Disk::mode_select),
    Operation::of::<ModeSense10>(Disk::mode_sense),
    Operation::of::<Read16>(Disk::read),
    Operation::of::<Read16>(Disk::write).code(0x8A, DPO | FUA).change(),
    Operation::of::<Read16>(Disk::verify).code(0x8F, DPO | BYTCHK),
    Operation::of::<Read16>(Disk::synchronize).code(0x91, SYNC_IMMED),
    Operation::of::<Read16>(Disk::write_same).code(0x93, UNMAP | NDOB).change(),
    Operation::of::<CloseZone>(Disk::zone_out).change(),
    Operation::of::<CloseZone>(Disk::zone_out).action(2).change(),
    Operation::of::<CloseZone>(Disk::zone_out).action(3).change(),
    Operation::of::<CloseZone>(Disk::zone_out).action(4).change(),
    Operation::of::<ReportZones>(Disk::report_zones),
    Operation::of::<ReadCapacity16>(Disk::capacity_16),
    Operation::of::<ReportLuns>(Disk::report_luns),
    Operation::of::<ReportOperations>(Disk::report_operations),
    Operation::of::<ReportTaskManagement>(Disk::report_task_management),
    Operation::of::<Read12>(Disk::read),
    Operation::of::<Read12>(Disk::write).code(0xAA, DPO | FUA).change(),
    Operation::of::<Read12>(Disk::verify).code(0xAF, DPO | BYTCHK),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_sorted_and_unique() {
        let keys: Vec<_> = OPERATIONS.iter().map(|operation| (operation.opcode, operation.action)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:02x?}");
    }

    /// The group of an operation code determines the length of its descriptor (SPC 4.2.5.1).
    #[test]
    fn length_of_a_descriptor_is_that_of_its_codes_group() {
        for operation in &OPERATIONS {
            let len = [6, 10, 10, 0, 16, 12, 0, 0][usize::from(operation.opcode >> 5)];
            assert_eq!(operation.len, len, "{:02x}", operation.opcode);
        }
    }
}
