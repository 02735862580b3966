//! Zone reports (ZNS 3.4.2.2).

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of a zone report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportHeader {
    /// Number of zones in the report; if it is not partial, number of all matching zones.
    pub zones: U64,
    pub(crate) reserved_8: [u8; 56],
}

/// A zone descriptor. Addresses and lengths are in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportedZone {
    /// See [`ReportedZone::SEQUENTIAL_WRITE_REQUIRED`].
    pub kind: u8,
    /// Zone state in the upper half.
    pub state: u8,
    /// Zone attributes.
    pub attributes: u8,
    pub(crate) reserved_3: [u8; 5],
    /// Zone capacity.
    pub capacity: U64,
    /// First block of the zone.
    pub start: U64,
    /// Write pointer.
    pub pointer: U64,
    pub(crate) reserved_32: [u8; 32],
}

impl ReportedZone {
    /// The only zone type.
    pub const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;
}

const _: () = {
    assert!(size_of::<ReportHeader>() == 64);
    assert!(size_of::<ReportedZone>() == 64);
};
