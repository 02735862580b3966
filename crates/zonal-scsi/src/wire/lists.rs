//! Lists with elements of varying length or number.

use super::pages::{UnmapDescriptor, UnmapHeader};
use zerocopy::{FromBytes, IntoBytes};

/// Encoding of a designator (SPC 7.8.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeSet {
    /// Binary.
    Binary = 1,
    /// Printable ASCII.
    Ascii = 2,
    /// UTF-8.
    Utf8 = 3,
}

/// Entity that a designator identifies (SPC 7.8.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Association {
    /// Logical unit.
    LogicalUnit = 0,
    /// Port that received the command.
    Port = 1,
    /// Device that contains the unit.
    Device = 2,
}

/// Designator of page 83h (SPC 7.8.6.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Designator {
    /// Encoding of `bytes`.
    pub code_set: CodeSet,
    /// Identified entity.
    pub association: Association,
    /// Designator type: one of the constants here, or another.
    pub designator_type: u8,
    /// Value, at most 255 bytes.
    pub bytes: Vec<u8>,
}

impl Designator {
    /// Text starting with the 8-character vendor identification.
    pub const T10_VENDOR: u8 = 1;
    /// Name of 8 or 16 bytes (SPC 7.8.6.6).
    pub const NAA: u8 = 3;

    /// Appends the encoded designator to `page`. Values are truncated to 255 bytes.
    pub fn emit(&self, page: &mut Vec<u8>) {
        let bytes = &self.bytes[..self.bytes.len().min(255)];
        let what = (self.association as u8) << 4 | self.designator_type & 0xF;
        page.extend_from_slice(&[self.code_set as u8, what, 0, bytes.len() as u8]);
        page.extend_from_slice(bytes);
    }

    /// Parses the designators after the header of a page; `None` if one is truncated, or has a
    /// reserved code set or association.
    pub fn parse_all(mut bytes: &[u8]) -> Option<Vec<Designator>> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let [code, what, _, len, rest @ ..] = bytes else { return None };
            let code_set = match code & 0xF {
                1 => CodeSet::Binary,
                2 => CodeSet::Ascii,
                3 => CodeSet::Utf8,
                _ => return None,
            };
            let association = match what >> 4 & 3 {
                0 => Association::LogicalUnit,
                1 => Association::Port,
                2 => Association::Device,
                _ => return None,
            };
            let own = rest.get(..usize::from(*len))?.to_vec();
            all.push(Designator { code_set, association, designator_type: what & 0xF, bytes: own });
            bytes = &rest[usize::from(*len)..];
        }
        Some(all)
    }
}

/// Range of blocks to unmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmapRange {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Parameter list of UNMAP (SBC 5.35.2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnmapList {
    /// Ranges in order, at most 4095.
    pub ranges: Vec<UnmapRange>,
}

impl UnmapList {
    /// Encodes the list. Ranges beyond the 4095th are dropped, as the length field cannot represent
    /// them.
    pub fn emit(&self) -> Vec<u8> {
        let ranges = &self.ranges[..self.ranges.len().min(4095)];
        let ranges_len = ranges.len() as u16 * 16;
        let header = UnmapHeader {
            len: (ranges_len + 6).into(),
            ranges_len: ranges_len.into(),
            ..UnmapHeader::default()
        };
        let mut bytes = header.as_bytes().to_vec();
        for &UnmapRange { lba, blocks } in ranges {
            let range =
                UnmapDescriptor { lba: lba.into(), blocks: blocks.into(), ..UnmapDescriptor::default() };
            bytes.extend_from_slice(range.as_bytes());
        }
        bytes
    }

    /// Parses a list. Truncated ranges are dropped (SBC 5.35.1); `None` if the header is truncated.
    pub fn parse(bytes: &[u8]) -> Option<UnmapList> {
        let (header, ranges) = UnmapHeader::read_from_prefix(bytes).ok()?;
        let told = header.ranges_len.get().min(header.len.get().saturating_sub(6));
        let ranges = ranges[..usize::from(told).min(ranges.len())].chunks_exact(16);
        let ranges = ranges.filter_map(|range| UnmapDescriptor::read_from_bytes(range).ok());
        let ranges =
            ranges.map(|range| UnmapRange { lba: range.lba.get(), blocks: range.blocks.get() }).collect();
        Some(UnmapList { ranges })
    }
}
