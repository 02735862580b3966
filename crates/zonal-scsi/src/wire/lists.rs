//! Lists of elements of several lengths, or of any number.

use super::pages::{UnmapDescriptor, UnmapHeader};
use zerocopy::{FromBytes, IntoBytes};

/// How a designator's bytes are to be read (SPC 7.8.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeSet {
    /// A number.
    Binary = 1,
    /// Printable ASCII.
    Ascii = 2,
    /// UTF-8.
    Utf8 = 3,
}

/// What a designator is of (SPC 7.8.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Association {
    /// The logical unit.
    LogicalUnit = 0,
    /// The port on which the page was asked for.
    Port = 1,
    /// The device that has the unit.
    Device = 2,
}

/// A designator of page 83h (SPC 7.8.6.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Designator {
    /// How to read its bytes.
    pub code_set: CodeSet,
    /// What it is of.
    pub association: Association,
    /// Its type: one of the constants here, or another.
    pub designator_type: u8,
    /// Its bytes, at most 255.
    pub bytes: Vec<u8>,
}

impl Designator {
    /// Begins with the vendor's eight characters.
    pub const T10_VENDOR: u8 = 1;
    /// A name of 8 or 16 bytes (SPC 7.8.6.6).
    pub const NAA: u8 = 3;

    /// Adds its bytes to `page`. What is beyond 255 is cut.
    pub fn emit(&self, page: &mut Vec<u8>) {
        let bytes = &self.bytes[..self.bytes.len().min(255)];
        let what = (self.association as u8) << 4 | self.designator_type & 0xF;
        page.extend_from_slice(&[self.code_set as u8, what, 0, bytes.len() as u8]);
        page.extend_from_slice(bytes);
    }

    /// The designators of a page, after its head; `None` if one is cut short, or has a reserved code set or association.
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

/// Blocks that an UNMAP forgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmapRange {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
}

/// The parameter list of UNMAP (SBC 5.35.2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnmapList {
    /// The ranges, in order: at most 4095.
    pub ranges: Vec<UnmapRange>,
}

impl UnmapList {
    /// As bytes. Ranges beyond the 4095th are left out, as their length could not be told.
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

    /// The list in these bytes. Ranges that are cut short are left out (SBC 5.35.1); `None` if there is no head.
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
