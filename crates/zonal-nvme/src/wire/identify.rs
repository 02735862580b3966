//! Identify data structures (Base 5.1.13.2, NVM 4.1.5, ZNS 4.1.5). Fields that the target leaves at zero and no host of it needs are
//! not named.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identify Controller (Base 5.1.13.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// Of the vendor at the PCI-SIG.
    pub vendor: U16,
    pub(crate) reserved_2: [u8; 2],
    /// Serial number.
    pub serial: [u8; 20],
    /// Model number.
    pub model: [u8; 40],
    /// Firmware revision.
    pub firmware: [u8; 8],
    pub(crate) reserved_72: [u8; 4],
    /// Several ports (bit 0), several controllers (bit 1).
    pub cmic: u8,
    /// Most data of a command, as a power of two of pages of 4 KiB; 0 is no limit.
    pub mdts: u8,
    /// The controller's number.
    pub cntlid: U16,
    /// Version of the standard.
    pub version: U32,
    pub(crate) reserved_84: [u8; 8],
    /// Optional events.
    pub oaes: U32,
    /// Host identifiers of 128 bits (bit 0), any traffic keeps the controller alive (bit 6).
    pub ctratt: U32,
    pub(crate) reserved_100: [u8; 11],
    /// 1: I/O, 2: discovery.
    pub kind: u8,
    pub(crate) reserved_112: [u8; 144],
    /// Optional admin commands.
    pub oacs: U16,
    /// Aborts at once, less one.
    pub acl: u8,
    /// Requests for events at once, less one.
    pub aerl: u8,
    /// Slots of firmware.
    pub frmw: u8,
    /// Log pages: of namespaces (bit 0), of effects (bit 1), from an offset (bit 2).
    pub lpa: u8,
    /// Entries of the error log, less one.
    pub elpe: u8,
    pub(crate) reserved_263: [u8; 57],
    /// Unit of the time to keep alive, in 100 ms.
    pub kas: U16,
    pub(crate) reserved_322: [u8; 190],
    /// Sizes of entries of submission queues, as powers of two.
    pub sqes: u8,
    /// Completion queue entry sizes, as for submission queues.
    pub cqes: u8,
    /// Commands that a queue is best given at once.
    pub maxcmd: U16,
    /// Largest number of a namespace.
    pub nn: U32,
    /// Optional NVM commands.
    pub oncs: U16,
    pub(crate) reserved_522: [u8; 3],
    /// A volatile cache (bit 0), flush of all namespaces (bits 2:1).
    pub vwc: u8,
    pub(crate) reserved_526: [u8; 10],
    /// SGL support.
    pub sgls: U32,
    /// Namespaces at most.
    pub mnan: U32,
    pub(crate) reserved_544: [u8; 224],
    /// The subsystem's name.
    pub subsystem: [u8; 256],
    pub(crate) reserved_1024: [u8; 768],
    /// Largest command capsule, in 16 bytes.
    pub ioccsz: U32,
    /// Response capsule, in 16 bytes.
    pub iorcsz: U32,
    /// Offset of data in a capsule, in units of 16 bytes.
    pub icdoff: U16,
    pub(crate) reserved_1802: [u8; 1],
    /// SGL descriptors of a command at most.
    pub msdbd: u8,
    /// Optional fabrics commands: Disconnect (bit 0).
    pub ofcs: U16,
    pub(crate) reserved_1806: [u8; 2290],
}

/// Identify Namespace of the NVM command set (NVM 4.1.5.1), also needed for zoned ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Size in logical blocks.
    pub nsze: U64,
    /// Capacity in logical blocks.
    pub ncap: U64,
    /// Blocks in use.
    pub nuse: U64,
    pub(crate) reserved_24: [u8; 1],
    /// Formats, less one.
    pub nlbaf: u8,
    /// The format in use.
    pub flbas: u8,
    pub(crate) reserved_27: [u8; 3],
    /// Several controllers may have it (bit 0).
    pub nmic: u8,
    pub(crate) reserved_31: [u8; 2],
    /// Deallocated blocks read as zeroes (1).
    pub dlfeat: u8,
    pub(crate) reserved_34: [u8; 65],
    /// Write protected (bit 0).
    pub nsattr: u8,
    pub(crate) reserved_100: [u8; 4],
    /// Identifier of 16 bytes.
    pub nguid: [u8; 16],
    pub(crate) reserved_120: [u8; 8],
    /// The formats.
    pub formats: [BlockFormat; 64],
    pub(crate) reserved_384: [u8; 3712],
}

/// A format of [`IdentifyNamespace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockFormat {
    /// Metadata of a block in bytes.
    pub metadata: U16,
    /// Bytes of a block as a power of two.
    pub lbads: u8,
    pub(crate) reserved_3: [u8; 1],
}

/// Identify Namespace, independent of command sets (Base 5.1.13.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    /// The medium turns (bit 4), there is no volatile cache (bit 5).
    pub nsfeat: u8,
    /// Several controllers may have it (bit 0).
    pub nmic: u8,
    pub(crate) reserved_2: [u8; 6],
    /// Write protected (bit 0).
    pub nsattr: u8,
    pub(crate) reserved_9: [u8; 5],
    /// It is ready (bit 0).
    pub nstat: u8,
    pub(crate) reserved_15: [u8; 4081],
}

/// Identify Namespace of the Zoned Namespace command set (ZNS 4.1.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyZoned {
    /// Zones whose capacity varies (bit 0), active excursions (bit 1).
    pub zoc: U16,
    /// Reads may cross zones (bit 0).
    pub ozcs: U16,
    /// Active zones, less one; all ones: no limit.
    pub mar: U32,
    /// Open zones, less one; all ones: no limit.
    pub mor: U32,
    pub(crate) reserved_12: [u8; 2804],
    /// Zones in each format of [`IdentifyNamespace`].
    pub formats: [ZoneFormat; 64],
    pub(crate) reserved_3840: [u8; 256],
}

/// A format of [`IdentifyZoned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZoneFormat {
    /// Blocks of a zone.
    pub zsze: U64,
    /// Descriptor extensions in 64 bytes.
    pub zdes: u8,
    pub(crate) reserved_9: [u8; 7],
}

/// Identify Controller of the Zoned Namespace command set (ZNS 4.1.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyZonedController {
    /// Largest append, as a power of two of pages of 4 KiB; 0: as other commands.
    pub zasl: u8,
    pub(crate) reserved_1: [u8; 4095],
}

/// Identify Controller of the NVM command set (NVM 4.1.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// Largest Verify, as a power of two of pages of 4 KiB; 0 is no limit.
    pub vsl: u8,
    /// Largest Write Zeroes, likewise.
    pub wzsl: u8,
    pub(crate) reserved_2: [u8; 4094],
}

const _: () = {
    assert!(size_of::<IdentifyController>() == 4096);
    assert!(size_of::<IdentifyNamespace>() == 4096);
    assert!(size_of::<IndependentNamespace>() == 4096);
    assert!(size_of::<IdentifyZoned>() == 4096);
    assert!(size_of::<IdentifyZonedController>() == 4096);
    assert!(size_of::<IdentifyNvmController>() == 4096);
};

/// Kinds of namespace descriptors (Base 5.1.13.2.3).
pub mod descriptor {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const EUI64: u8 = 1;
    pub const NGUID: u8 = 2;
    pub const UUID: u8 = 3;
    pub const COMMAND_SET: u8 = 4;
}

/// The page of namespace descriptors of these kinds and values.
pub fn emit_descriptors(all: &[(u8, &[u8])]) -> Vec<u8> {
    let mut page = Vec::new();
    for (kind, value) in all {
        page.extend([*kind, value.len() as u8, 0, 0]);
        page.extend_from_slice(value);
    }
    page.resize(4096, 0);
    page
}

/// Kinds and values of the descriptors of a page, up to the first that is empty or cut off.
pub fn parse_descriptors(mut page: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, len, _, _, rest @ ..] = page else { return None };
        let (value, rest) = rest.split_at_checked((*len).into()).filter(|(value, _)| !value.is_empty())?;
        page = rest;
        Some((*kind, value))
    })
}

/// The page of a list of namespaces (Base 5.1.13.2.2), which ends with the first zero.
pub fn emit_namespaces(all: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut page: Vec<u8> = all.flat_map(u32::to_le_bytes).collect();
    page.resize(4096, 0);
    page
}
