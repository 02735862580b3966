//! Sense data, in both formats (SPC 4.5).

use super::flag;
use super::layout::layouts;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Pointer to an invalid field of a command (SPC 4.5.2.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldPointer {
    /// True if the field is in the command descriptor, false if in the parameter list.
    pub is_in_cdb: bool,
    /// First byte of the field.
    pub byte: u16,
    /// Highest invalid bit of that byte, 0 to 7, if applicable.
    pub bit: Option<u8>,
}

impl FieldPointer {
    fn bytes(self) -> [u8; 3] {
        let in_cdb = if self.is_in_cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 8 | bit & 7);
        let [high, low] = self.byte.to_be_bytes();
        [IS_VALID | in_cdb | bit, high, low]
    }

    fn of(bytes: [u8; 3]) -> Option<FieldPointer> {
        let [flags, high, low] = bytes;
        (flags & IS_VALID != 0).then_some(FieldPointer {
            is_in_cdb: flags & 0x40 != 0,
            byte: u16::from_be_bytes([high, low]),
            bit: (flags & 8 != 0).then_some(flags & 7),
        })
    }
}

/// Sense data of a failed command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenseData {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// Block concerned. Fixed format can represent it only below 2^32.
    pub information: Option<u64>,
    /// Invalid field; only with key ILLEGAL REQUEST.
    pub field: Option<FieldPointer>,
}

layouts! {
    /// Fixed format (SPC 4.5.3). Bit 7 of `code`: `information` is valid.
    FixedSense[18] {
        code: u8, reserved_1: u8, key: u8, information: U32, additional_len: u8, reserved_8: [u8; 4], asc: u8,
        ascq: u8, reserved_14: u8, key_specific: [u8; 3],
    }

    /// Descriptor format (SPC 4.5.2.1).
    DescriptorSense[8] { code: u8, key: u8, asc: u8, ascq: u8, reserved_4: [u8; 3], additional_len: u8 }
}

/// Valid bit of the information field and of a field pointer.
const IS_VALID: u8 = 0x80;

const FIXED: u8 = 0x70;
const DESCRIPTOR: u8 = 0x72;
const INFORMATION: u8 = 0;
const KEY_SPECIFIC: u8 = 2;
const ILLEGAL_REQUEST: u8 = 5;

impl SenseData {
    /// Encodes in fixed format: 18 bytes.
    pub fn emit_fixed(&self) -> Vec<u8> {
        let information = self.information.and_then(|lba| u32::try_from(lba).ok());
        let fixed = FixedSense {
            code: FIXED | flag(IS_VALID, information.is_some()),
            key: self.key & 0xF,
            information: information.unwrap_or(0).into(),
            additional_len: 10,
            asc: self.asc,
            ascq: self.ascq,
            key_specific: self.field.map_or([0; 3], FieldPointer::bytes),
            ..FixedSense::default()
        };
        fixed.as_bytes().to_vec()
    }

    /// Encodes in descriptor format: 8 to 28 bytes.
    pub fn emit_descriptor(&self) -> Vec<u8> {
        let mut descriptors = Vec::new();
        if let Some(information) = self.information {
            descriptors.extend_from_slice(&[INFORMATION, 10, 0x80, 0]);
            descriptors.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(field) = self.field {
            let [a, b, c] = field.bytes();
            descriptors.extend_from_slice(&[KEY_SPECIFIC, 6, 0, 0, a, b, c, 0]);
        }
        let head = DescriptorSense {
            code: DESCRIPTOR,
            key: self.key & 0xF,
            asc: self.asc,
            ascq: self.ascq,
            additional_len: descriptors.len() as u8,
            ..DescriptorSense::default()
        };
        [head.as_bytes(), &descriptors].concat()
    }

    /// Parses sense data in either format; `None` if it is truncated or in another format.
    pub fn parse(bytes: &[u8]) -> Option<SenseData> {
        match bytes.first()? & 0x7F {
            FIXED => SenseData::parse_fixed(bytes),
            DESCRIPTOR => SenseData::parse_descriptor(bytes),
            _ => None,
        }
    }

    fn parse_fixed(bytes: &[u8]) -> Option<SenseData> {
        let (fixed, _) = FixedSense::read_from_prefix(bytes).ok()?;
        let key = fixed.key & 0xF;
        Some(SenseData {
            key,
            asc: fixed.asc,
            ascq: fixed.ascq,
            information: (fixed.code & IS_VALID != 0).then_some(fixed.information.get().into()),
            // With other keys these bytes have another meaning.
            field: FieldPointer::of(fixed.key_specific).filter(|_| key == ILLEGAL_REQUEST),
        })
    }

    fn parse_descriptor(bytes: &[u8]) -> Option<SenseData> {
        let (head, left) = DescriptorSense::read_from_prefix(bytes).ok()?;
        let DescriptorSense { key, asc, ascq, additional_len, .. } = head;
        let key = key & 0xF;
        let mut sense = SenseData { key, asc, ascq, ..SenseData::default() };
        let mut left = left.get(..usize::from(additional_len))?;
        while let [kind, len, ..] = *left {
            let descriptor = left.get(..usize::from(len) + 2)?;
            match (kind, descriptor) {
                (INFORMATION, [_, _, valid, _, information @ ..]) if valid & 0x80 != 0 => {
                    sense.information = information.try_into().ok().map(u64::from_be_bytes);
                }
                (KEY_SPECIFIC, &[_, _, _, _, a, b, c, _]) if key == ILLEGAL_REQUEST => {
                    sense.field = FieldPointer::of([a, b, c]);
                }
                _ => {}
            }
            left = &left[descriptor.len()..];
        }
        Some(sense)
    }
}
