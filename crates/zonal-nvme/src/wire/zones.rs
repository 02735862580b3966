//! Reports of zones (ZNS 3.4.2.2).

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Head of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportHeader {
    /// Zones of the report, or in a report that is not partial all zones that match.
    pub zones: U64,
    pub(crate) reserved_8: [u8; 56],
}

/// A zone descriptor. Addresses and lengths are in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportedZone {
    /// See [`ReportedZone::SEQUENTIAL_WRITE_REQUIRED`].
    pub kind: u8,
    /// The zone's state in the upper half.
    pub state: u8,
    /// Attributes.
    pub attributes: u8,
    pub(crate) reserved_3: [u8; 5],
    /// Blocks that can be written.
    pub capacity: U64,
    /// First block.
    pub start: U64,
    /// Write pointer.
    pub pointer: U64,
    pub(crate) reserved_32: [u8; 32],
}

impl ReportedZone {
    /// The one kind of zone.
    pub const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;
}

const _: () = {
    assert!(size_of::<ReportHeader>() == 64);
    assert!(size_of::<ReportedZone>() == 64);
};
