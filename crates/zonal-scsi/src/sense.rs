//! Sense codes under their standard names, and the sense data of failed commands.

use crate::wire::{FieldPointer, SenseData};
use std::ops::Deref;

/// Sense key with additional sense code and qualifier (SPC 4.5.6, SPC annex D).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SenseCode {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $key:ident $asc:literal / $ascq:literal;)*) => {
        impl SenseCode {
            $($(#[$doc])* pub const $name: SenseCode = SenseCode { key: key::$key, asc: $asc, ascq: $ascq };)*

            /// All named codes with their names.
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
    /// No error.
    NO_ADDITIONAL_SENSE = NO_SENSE 0x00/0x00;
    /// The unit is gone and will not return without intervention.
    NOT_READY_MANUAL_INTERVENTION = NOT_READY 0x04/0x03;
    /// Write error of the medium. Linux treats this code as final; after 0Ch it would retry the
    /// write although the write pointer may already be inside it.
    RECORDED_ENTITY_NOT_FOUND = MEDIUM_ERROR 0x14/0x00;
    /// Read error of the medium.
    UNRECOVERED_READ_ERROR = MEDIUM_ERROR 0x11/0x00;
    /// The outcome of the command is unknown.
    INTERNAL_TARGET_FAILURE = HARDWARE_ERROR 0x44/0x00;
    /// The parameter list is too short.
    PARAMETER_LIST_LENGTH_ERROR = ILLEGAL_REQUEST 0x1A/0x00;
    /// The data on the medium differs.
    MISCOMPARE_DURING_VERIFY = MISCOMPARE 0x1D/0x00;
    /// Unsupported command.
    INVALID_OPERATION_CODE = ILLEGAL_REQUEST 0x20/0x00;
    /// Block beyond the end of the disk.
    LBA_OUT_OF_RANGE = ILLEGAL_REQUEST 0x21/0x00;
    /// The write does not start at the write pointer.
    UNALIGNED_WRITE_COMMAND = ILLEGAL_REQUEST 0x21/0x04;
    /// The write crosses the end of its zone, or of the conventional zones.
    WRITE_BOUNDARY_VIOLATION = ILLEGAL_REQUEST 0x21/0x05;
    /// Block in a gap zone.
    ATTEMPT_TO_ACCESS_GAP_ZONE = ILLEGAL_REQUEST 0x21/0x09;
    /// Invalid field in the descriptor.
    INVALID_FIELD_IN_CDB = ILLEGAL_REQUEST 0x24/0x00;
    /// No such logical unit.
    LOGICAL_UNIT_NOT_SUPPORTED = ILLEGAL_REQUEST 0x25/0x00;
    /// Invalid field in the parameter list.
    INVALID_FIELD_IN_PARAMETER_LIST = ILLEGAL_REQUEST 0x26/0x00;
    /// Values cannot be saved.
    SAVING_PARAMETERS_NOT_SUPPORTED = ILLEGAL_REQUEST 0x39/0x00;
    /// The disk is write-protected.
    WRITE_PROTECTED = DATA_PROTECT 0x27/0x00;
    /// The zone is read-only.
    ZONE_IS_READ_ONLY = DATA_PROTECT 0x27/0x08;
    /// The zone is offline.
    ZONE_IS_OFFLINE = DATA_PROTECT 0x2C/0x0E;
    /// No open zone resources are left.
    INSUFFICIENT_ZONE_RESOURCES = DATA_PROTECT 0x55/0x0E;
    /// The transport's buffer does not match the command.
    DATA_PHASE_ERROR = ABORTED_COMMAND 0x4B/0x00;
}

impl SenseCode {
    /// Sense data with only this code.
    pub const fn data(self) -> SenseData {
        let SenseCode { key, asc, ascq } = self;
        SenseData { key, asc, ascq, information: None, field: None }
    }

    /// Standard name of the code, if it is among the named ones.
    pub fn name(self) -> Option<&'static str> {
        SenseCode::ALL.iter().find(|(_, code)| *code == self).map(|(name, _)| *name)
    }
}

/// CHECK CONDITION with sense data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckCondition(pub SenseData);

impl From<SenseCode> for CheckCondition {
    fn from(code: SenseCode) -> CheckCondition {
        CheckCondition(code.data())
    }
}

impl CheckCondition {
    /// INVALID FIELD IN CDB, pointing to the field at this byte.
    pub const fn in_cdb(byte: u16) -> CheckCondition {
        CheckCondition::at(SenseCode::INVALID_FIELD_IN_CDB, FieldPointer { is_in_cdb: true, byte, bit: None })
    }

    /// INVALID FIELD IN CDB, pointing to the field with this highest bit.
    pub const fn in_cdb_bit(byte: u16, bit: u8) -> CheckCondition {
        let field = FieldPointer { is_in_cdb: true, byte, bit: Some(bit) };
        CheckCondition::at(SenseCode::INVALID_FIELD_IN_CDB, field)
    }

    /// INVALID FIELD IN PARAMETER LIST, pointing to the field at this byte.
    pub const fn in_list(byte: u16) -> CheckCondition {
        let field = FieldPointer { is_in_cdb: false, byte, bit: None };
        CheckCondition::at(SenseCode::INVALID_FIELD_IN_PARAMETER_LIST, field)
    }

    const fn at(code: SenseCode, field: FieldPointer) -> CheckCondition {
        let SenseCode { key, asc, ascq } = code;
        CheckCondition(SenseData { key, asc, ascq, information: None, field: Some(field) })
    }

    /// Sense code.
    pub const fn code(&self) -> SenseCode {
        SenseCode { key: self.0.key, asc: self.0.asc, ascq: self.0.ascq }
    }
}

/// Sense data of an answer in fixed format. Empty unless the status is CHECK CONDITION.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Sense {
    bytes: [u8; Sense::LEN_MAX],
    len: u8,
}

impl Sense {
    /// Maximum length in bytes; shorter than the limits of transports.
    pub const LEN_MAX: usize = 18;

    /// No sense data.
    pub const EMPTY: Sense = Sense { bytes: [0; Sense::LEN_MAX], len: 0 };

    /// Encodes in fixed format, as announced by the control mode page.
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
