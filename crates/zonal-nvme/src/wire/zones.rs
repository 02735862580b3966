//! Reports of zones (ZNS 3.4.2.2).

use super::layout::layout;

layout! {
    /// Head of a report.
    ReportHeader[64] {
        /// Zones of the report, or in a report that is not partial all zones that match.
        zones: u64 = 0,
    }
}

layout! {
    /// A zone descriptor. Addresses and lengths are in logical blocks.
    ReportedZone[64] {
        /// 2: sequential write required.
        kind: u8 = 0,
        /// The zone's state in the upper half.
        state: u8 = 1,
        /// Attributes.
        attributes: u8 = 2,
        /// Blocks that can be written.
        capacity: u64 = 8,
        /// First block.
        start: u64 = 16,
        /// Where the next write begins.
        pointer: u64 = 24,
    }
}
