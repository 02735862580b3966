//! Sense codes with the standard's names, and what a command that failed answers.

use crate::wire::{FieldPointer, SenseData};
use std::ops::Deref;

/// A sense key with its additional code and qualifier (SPC 4.5.6, SPC annex D).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SenseCode {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Its qualifier.
    pub ascq: u8,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $key:ident $asc:literal / $ascq:literal;)*) => {
        impl SenseCode {
            $($(#[$doc])* pub const $name: SenseCode = SenseCode { key: key::$key, asc: $asc, ascq: $ascq };)*

            /// Every code with a name, and that name.
            pub const ALL: &'static [(&'static str, SenseCode)] =
                &[$((stringify!($name), SenseCode::$name)),*];
        }
    };
}

/// Sense keys (SPC 4.5.6).
pub mod key {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const NO_SENSE: u8 = 0x0;
    pub const NOT_READY: u8 = 0x2;
    pub const MEDIUM_ERROR: u8 = 0x3;
    pub const HARDWARE_ERROR: u8 = 0x4;
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    pub const DATA_PROTECT: u8 = 0x7;
    pub const ABORTED_COMMAND: u8 = 0xB;
    pub const MISCOMPARE: u8 = 0xE;
}

codes! {
    /// Nothing has happened.
    NO_ADDITIONAL_SENSE = NO_SENSE 0x00/0x00;
    /// The unit does not come back without help.
    NOT_READY_MANUAL_INTERVENTION = NOT_READY 0x04/0x03;
    /// The medium failed a write. Of the codes for that, Linux takes this one for final; with 0Ch it sends the write again, and the
    /// pointer may be in the middle of it.
    RECORDED_ENTITY_NOT_FOUND = MEDIUM_ERROR 0x14/0x00;
    /// The medium failed a read.
    UNRECOVERED_READ_ERROR = MEDIUM_ERROR 0x11/0x00;
    /// The disk does not know what became of the command.
    INTERNAL_TARGET_FAILURE = HARDWARE_ERROR 0x44/0x00;
    /// The parameter list ends too early.
    PARAMETER_LIST_LENGTH_ERROR = ILLEGAL_REQUEST 0x1A/0x00;
    /// The data on the medium are others.
    MISCOMPARE_DURING_VERIFY = MISCOMPARE 0x1D/0x00;
    /// There is no such command.
    INVALID_OPERATION_CODE = ILLEGAL_REQUEST 0x20/0x00;
    /// A block beyond the last one.
    LBA_OUT_OF_RANGE = ILLEGAL_REQUEST 0x21/0x00;
    /// The write does not begin at the zone's pointer.
    UNALIGNED_WRITE_COMMAND = ILLEGAL_REQUEST 0x21/0x04;
    /// The write goes beyond its zone, or leaves the conventional ones.
    WRITE_BOUNDARY_VIOLATION = ILLEGAL_REQUEST 0x21/0x05;
    /// A block between zones.
    ATTEMPT_TO_ACCESS_GAP_ZONE = ILLEGAL_REQUEST 0x21/0x09;
    /// A field of the descriptor has a value that it may not have.
    INVALID_FIELD_IN_CDB = ILLEGAL_REQUEST 0x24/0x00;
    /// There is no such unit.
    LOGICAL_UNIT_NOT_SUPPORTED = ILLEGAL_REQUEST 0x25/0x00;
    /// A field of the parameter list has a value that it may not have.
    INVALID_FIELD_IN_PARAMETER_LIST = ILLEGAL_REQUEST 0x26/0x00;
    /// Values are not kept.
    SAVING_PARAMETERS_NOT_SUPPORTED = ILLEGAL_REQUEST 0x39/0x00;
    /// The disk may not be written.
    WRITE_PROTECTED = DATA_PROTECT 0x27/0x00;
    /// The zone may not be written.
    ZONE_IS_READ_ONLY = DATA_PROTECT 0x27/0x08;
    /// The zone is gone.
    ZONE_IS_OFFLINE = DATA_PROTECT 0x2C/0x0E;
    /// No open zone is left.
    INSUFFICIENT_ZONE_RESOURCES = DATA_PROTECT 0x55/0x0E;
    /// The transport's memory is not that of the command.
    DATA_PHASE_ERROR = ABORTED_COMMAND 0x4B/0x00;
}

impl SenseCode {
    /// As sense data without more.
    pub const fn data(self) -> SenseData {
        let SenseCode { key, asc, ascq } = self;
        SenseData { key, asc, ascq, information: None, field: None }
    }

    /// The name that the standard has for it, if it has a name here.
    pub fn name(self) -> Option<&'static str> {
        SenseCode::ALL.iter().find(|(_, code)| *code == self).map(|(name, _)| *name)
    }
}

/// Why a command is not carried out: CHECK CONDITION with this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckCondition(pub SenseData);

impl From<SenseCode> for CheckCondition {
    fn from(code: SenseCode) -> CheckCondition {
        CheckCondition(code.data())
    }
}

impl CheckCondition {
    /// INVALID FIELD IN CDB, for the field at this byte.
    pub const fn in_cdb(byte: u16) -> CheckCondition {
        CheckCondition::at(SenseCode::INVALID_FIELD_IN_CDB, FieldPointer { is_in_cdb: true, byte, bit: None })
    }

    /// The same, for the field whose highest bit this is.
    pub const fn in_cdb_bit(byte: u16, bit: u8) -> CheckCondition {
        let field = FieldPointer { is_in_cdb: true, byte, bit: Some(bit) };
        CheckCondition::at(SenseCode::INVALID_FIELD_IN_CDB, field)
    }

    /// INVALID FIELD IN PARAMETER LIST, for the field at this byte.
    pub const fn in_list(byte: u16) -> CheckCondition {
        let field = FieldPointer { is_in_cdb: false, byte, bit: None };
        CheckCondition::at(SenseCode::INVALID_FIELD_IN_PARAMETER_LIST, field)
    }

    const fn at(code: SenseCode, field: FieldPointer) -> CheckCondition {
        let SenseCode { key, asc, ascq } = code;
        CheckCondition(SenseData { key, asc, ascq, information: None, field: Some(field) })
    }

    /// Its code.
    pub const fn code(&self) -> SenseCode {
        SenseCode { key: self.0.key, asc: self.0.asc, ascq: self.0.ascq }
    }
}

/// The sense data of an answer, as bytes in fixed format. Empty unless the status is CHECK CONDITION.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Sense {
    bytes: [u8; Sense::LEN_MAX],
    len: u8,
}

impl Sense {
    /// Bytes at most: what the disk returns, and less than transports carry.
    pub const LEN_MAX: usize = 18;

    /// No sense data.
    pub const EMPTY: Sense = Sense { bytes: [0; Sense::LEN_MAX], len: 0 };

    /// In fixed format, as the control mode page says.
    pub fn of(condition: &CheckCondition) -> Sense {
        let fixed = condition.0.emit_fixed();
        let mut sense = Sense::EMPTY;
        sense.len = fixed.len() as u8;
        sense.bytes[..fixed.len()].copy_from_slice(&fixed);
        sense
    }
}

impl Deref for Sense {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Sense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match SenseData::parse(self) {
            Some(data) => data.fmt(f),
            None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_one_name() {
        for (n, (name, code)) in SenseCode::ALL.iter().enumerate() {
            assert_eq!(code.name(), Some(*name));
            assert!(SenseCode::ALL[..n].iter().all(|(_, other)| other != code), "{name}");
        }
    }

    #[test]
    fn sense_of_a_condition_is_parsed_to_it() {
        let condition = CheckCondition::in_cdb_bit(14, 5);
        assert_eq!(SenseData::parse(&Sense::of(&condition)), Some(condition.0));
        assert!(Sense::EMPTY.is_empty());
    }
}
