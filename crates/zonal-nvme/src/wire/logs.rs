//! Log pages (Base 5.1.12, ZNS 4.1.4).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An entry of the error log (Base 5.1.12.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Errors up to this one; 0: no entry.
    pub count: U64,
    /// The queue, and the command's number there.
    pub sqid: U16,
    /// See `sqid`.
    pub cid: U16,
    /// The completion's status field.
    pub status: U16,
    /// The field to blame; all ones: none.
    pub location: U16,
    /// First logical block.
    pub lba: U64,
    /// The namespace.
    pub nsid: U32,
    pub(crate) reserved_28: [u8; 1],
    /// The transport: 3 is TCP.
    pub transport: u8,
    /// The command set, and the opcode.
    pub csi: u8,
    /// See `csi`.
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
    /// Temperature in Kelvin.
    pub temperature: U16,
    /// Spare that is left, and of how little is warned, in percent.
    pub spare: u8,
    /// See `spare`.
    pub spare_min: u8,
    /// Life that is used, in percent.
    pub used: u8,
    pub(crate) reserved_6: [u8; 26],
    /// Thousands of 512 bytes that were read, rounded up.
    pub units_read: U128,
    /// Data units written.
    pub units_written: U128,
    /// Read commands.
    pub reads: U128,
    /// Write commands.
    pub writes: U128,
    pub(crate) reserved_96: [u8; 16],
    /// Times that it was switched on.
    pub power_cycles: U128,
    /// Hours since.
    pub power_on_hours: U128,
    pub(crate) reserved_144: [u8; 16],
    /// Errors of the medium.
    pub media_errors: U128,
    /// Entries that the error log has had.
    pub error_entries: U128,
    pub(crate) reserved_192: [u8; 320],
}

/// Firmware Slot Information (Base 5.1.12.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareLog {
    /// The slot in use.
    pub slot: u8,
    pub(crate) reserved_1: [u8; 7],
    /// Revision in slot 1.
    pub revision: [u8; 8],
    pub(crate) reserved_16: [u8; 496],
}

/// Head of the discovery log (Base 5.1.12.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Changes of the log.
    pub generation: U64,
    /// Entries.
    pub records: U64,
    /// Version of the format: 0.
    pub format: U16,
    pub(crate) reserved_18: [u8; 1006],
}

/// An entry of the discovery log (Base 5.1.12.3.1, TCP 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// 3: TCP.
    pub transport: u8,
    /// 1: IPv4, 2: IPv6.
    pub family: u8,
    /// 2: a subsystem, 3: the discovery subsystem itself.
    pub kind: u8,
    /// Flow control of queues can be left out (bit 2).
    pub requirements: u8,
    /// The port's number.
    pub port: U16,
    /// The controller; all ones: the subsystem makes one.
    pub cntlid: U16,
    /// Entries of the admin queue at most.
    pub admin_entries: U16,
    /// Flags.
    pub flags: U16,
    pub(crate) reserved_12: [u8; 20],
    /// Port of TCP.
    pub service: [u8; 32],
    pub(crate) reserved_64: [u8; 192],
    /// The subsystem's name.
    pub subsystem: [u8; 256],
    /// Address.
    pub address: [u8; 256],
    /// Security of the connection: 0 is none.
    pub security: u8,
    pub(crate) reserved_769: [u8; 255],
}

/// Changed Zone List (ZNS 4.1.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangedZoneList {
    /// Zones of the list, or [`ChangedZoneList::TOO_MANY`].
    pub count: U16,
    pub(crate) reserved_2: [u8; 6],
    /// First blocks of the zones.
    pub starts: [U64; ChangedZoneList::MAX],
}

impl ChangedZoneList {
    /// Zones of a list at most.
    pub const MAX: usize = 511;
    /// More zones than a list has room for have changed.
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
