//! Log pages (Base 5.1.12, ZNS 4.1.4).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entry of the error log (Base 5.1.12.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of errors up to this one; 0 marks an unused entry.
    pub count: U64,
    /// Submission queue.
    pub sqid: U16,
    /// Command identifier on that queue.
    pub cid: U16,
    /// Status field of the completion.
    pub status: U16,
    /// Location of the invalid field; all ones if none.
    pub location: U16,
    /// First logical block.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    pub(crate) reserved_28: [u8; 1],
    /// Transport type: 3 is TCP.
    pub transport: u8,
    /// Command set.
    pub csi: u8,
    /// Opcode.
    pub opcode: u8,
    pub(crate) reserved_32: [u8; 31],
    /// Version of the entry: 1 has opcode and command set.
    pub version: u8,
}

/// SMART / Health Information (Base 5.1.12.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HealthLog {
    /// Critical warnings.
    pub critical: u8,
    /// Composite temperature in Kelvin.
    pub temperature: U16,
    /// Available spare in percent.
    pub spare: u8,
    /// Warning threshold of `spare` in percent.
    pub spare_min: u8,
    /// Percentage of life used.
    pub used: u8,
    pub(crate) reserved_6: [u8; 26],
    /// Data units read, each 1000 times 512 bytes, rounded up.
    pub units_read: U128,
    /// Data units written.
    pub units_written: U128,
    /// Read commands.
    pub reads: U128,
    /// Write commands.
    pub writes: U128,
    pub(crate) reserved_96: [u8; 16],
    /// Power cycles.
    pub power_cycles: U128,
    /// Power-on hours.
    pub power_on_hours: U128,
    pub(crate) reserved_144: [u8; 16],
    /// Media errors.
    pub media_errors: U128,
    /// Total entries of the error log, including overwritten ones.
    pub error_entries: U128,
    pub(crate) reserved_192: [u8; 320],
}

/// Firmware Slot Information (Base 5.1.12.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareLog {
    /// Active slot.
    pub slot: u8,
    pub(crate) reserved_1: [u8; 7],
    /// Revision in slot 1.
    pub revision: [u8; 8],
    pub(crate) reserved_16: [u8; 496],
}

/// Header of the discovery log (Base 5.1.12.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation counter.
    pub generation: U64,
    /// Number of entries.
    pub records: U64,
    /// Record format: 0.
    pub format: U16,
    pub(crate) reserved_18: [u8; 1006],
}

/// Entry of the discovery log (Base 5.1.12.3.1, TCP 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport type: 3 is TCP.
    pub transport: u8,
    /// Address family: 1 is IPv4, 2 is IPv6.
    pub family: u8,
    /// Subsystem type: 2 is an NVM subsystem, 3 the discovery subsystem itself.
    pub kind: u8,
    /// Submission queue flow control can be disabled (bit 2).
    pub requirements: u8,
    /// Port identifier.
    pub port: U16,
    /// Controller number; all ones: allocated at connect.
    pub cntlid: U16,
    /// Maximum entries of the admin queue.
    pub admin_entries: U16,
    /// Flags.
    pub flags: U16,
    pub(crate) reserved_12: [u8; 20],
    /// TCP port.
    pub service: [u8; 32],
    pub(crate) reserved_64: [u8; 192],
    /// NQN of the subsystem.
    pub subsystem: [u8; 256],
    /// Address.
    pub address: [u8; 256],
    /// Transport security: 0 is none.
    pub security: u8,
    pub(crate) reserved_769: [u8; 255],
}

/// Changed Zone List (ZNS 4.1.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangedZoneList {
    /// Number of zones in the list, or [`ChangedZoneList::TOO_MANY`].
    pub count: U16,
    pub(crate) reserved_2: [u8; 6],
    /// First logical block of each zone.
    pub starts: [U64; ChangedZoneList::MAX],
}

impl ChangedZoneList {
    /// Maximum zones in the list.
    pub const MAX: usize = 511;
    /// More zones changed than fit in the list.
    pub const TOO_MANY: u16 = 0xFFFF;
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(size_of::<HealthLog>() == 512);
    assert!(size_of::<FirmwareLog>() == 512);
    assert!(size_of::<DiscoveryHeader>() == 1024);
    assert!(size_of::<DiscoveryEntry>() == 1024);
    assert!(size_of::<ChangedZoneList>() == 4096);
};
