//! Identify data structures (Base 5.1.13.2, NVM 4.1.5, ZNS 4.1.5). Fields that the target leaves at
//! zero and its hosts do not need have no name.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identify Controller (Base 5.1.13.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor identifier.
    pub vendor: U16,
    pub(crate) reserved_2: [u8; 2],
    /// Serial number.
    pub serial: [u8; 20],
    /// Model number.
    pub model: [u8; 40],
    /// Firmware revision.
    pub firmware: [u8; 8],
    pub(crate) reserved_72: [u8; 4],
    /// Multiple ports (bit 0), multiple controllers (bit 1).
    pub cmic: u8,
    /// Maximum data transfer size, as a power of two in pages of 4 KiB; 0 means no limit.
    pub mdts: u8,
    /// Controller number.
    pub cntlid: U16,
    /// Version of the specification.
    pub version: U32,
    pub(crate) reserved_84: [u8; 8],
    /// Optional asynchronous events.
    pub oaes: U32,
    /// 128-bit host identifiers (bit 0), any traffic counts as keep alive (bit 6).
    pub ctratt: U32,
    pub(crate) reserved_100: [u8; 11],
    /// 1: I/O, 2: discovery.
    pub kind: u8,
    pub(crate) reserved_112: [u8; 144],
    /// Optional admin commands.
    pub oacs: U16,
    /// Abort command limit, zero-based.
    pub acl: u8,
    /// Asynchronous event request limit, zero-based.
    pub aerl: u8,
    /// Firmware slots.
    pub frmw: u8,
    /// Log page attributes: per namespace (bit 0), effects log (bit 1), offsets (bit 2).
    pub lpa: u8,
    /// Error log entries, zero-based.
    pub elpe: u8,
    pub(crate) reserved_263: [u8; 57],
    /// Keep alive granularity in units of 100 ms.
    pub kas: U16,
    pub(crate) reserved_322: [u8; 190],
    /// Submission queue entry sizes, as powers of two.
    pub sqes: u8,
    /// Completion queue entry sizes, as for submission queues.
    pub cqes: u8,
    /// Recommended queue depth.
    pub maxcmd: U16,
    /// Largest namespace number.
    pub nn: U32,
    /// Optional NVM commands.
    pub oncs: U16,
    pub(crate) reserved_522: [u8; 3],
    /// Volatile write cache present (bit 0), flush of all namespaces (bits 2:1).
    pub vwc: u8,
    pub(crate) reserved_526: [u8; 10],
    /// SGL support.
    pub sgls: U32,
    /// Maximum number of namespaces.
    pub mnan: U32,
    pub(crate) reserved_544: [u8; 224],
    /// NQN of the subsystem.
    pub subsystem: [u8; 256],
    pub(crate) reserved_1024: [u8; 768],
    /// Command capsule size in units of 16 bytes.
    pub ioccsz: U32,
    /// Response capsule size in units of 16 bytes.
    pub iorcsz: U32,
    /// Offset of data in a capsule, in units of 16 bytes.
    pub icdoff: U16,
    pub(crate) reserved_1802: [u8; 1],
    /// Maximum SGL descriptors per command.
    pub msdbd: u8,
    /// Optional fabrics commands: Disconnect (bit 0).
    pub ofcs: U16,
    pub(crate) reserved_1806: [u8; 2290],
}

/// Identify Namespace of the NVM command set (NVM 4.1.5.1), also required for zoned namespaces.
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
    /// Number of formats, zero-based.
    pub nlbaf: u8,
    /// Format in use.
    pub flbas: u8,
    pub(crate) reserved_27: [u8; 3],
    /// Shared between controllers (bit 0).
    pub nmic: u8,
    pub(crate) reserved_31: [u8; 2],
    /// Deallocated blocks read as zeroes (1).
    pub dlfeat: u8,
    pub(crate) reserved_34: [u8; 65],
    /// Write protected (bit 0).
    pub nsattr: u8,
    pub(crate) reserved_100: [u8; 4],
    /// NGUID.
    pub nguid: [u8; 16],
    pub(crate) reserved_120: [u8; 8],
    /// Formats.
    pub formats: [BlockFormat; 64],
    pub(crate) reserved_384: [u8; 3712],
}

/// LBA format of [`IdentifyNamespace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockFormat {
    /// Metadata bytes per block.
    pub metadata: U16,
    /// Block size in bytes, as a power of two.
    pub lbads: u8,
    pub(crate) reserved_3: [u8; 1],
}

/// Identify Namespace, independent of command sets (Base 5.1.13.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    /// Rotational media (bit 4), no volatile write cache (bit 5).
    pub nsfeat: u8,
    /// Shared between controllers (bit 0).
    pub nmic: u8,
    pub(crate) reserved_2: [u8; 6],
    /// Write protected (bit 0).
    pub nsattr: u8,
    pub(crate) reserved_9: [u8; 5],
    /// Ready (bit 0).
    pub nstat: u8,
    pub(crate) reserved_15: [u8; 4081],
}

/// Identify Namespace of the Zoned Namespace command set (ZNS 4.1.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyZoned {
    /// Variable zone capacity (bit 0), zone active excursions (bit 1).
    pub zoc: U16,
    /// Reads may cross zone boundaries (bit 0).
    pub ozcs: U16,
    /// Maximum active zones, zero-based; all ones means no limit.
    pub mar: U32,
    /// Maximum open zones, zero-based; all ones means no limit.
    pub mor: U32,
    pub(crate) reserved_12: [u8; 2804],
    /// Zone format for each LBA format of [`IdentifyNamespace`].
    pub formats: [ZoneFormat; 64],
    pub(crate) reserved_3840: [u8; 256],
}

/// Zone format of [`IdentifyZoned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZoneFormat {
    /// Zone size in blocks.
    pub zsze: U64,
    /// Size of zone descriptor extensions in units of 64 bytes.
    pub zdes: u8,
    pub(crate) reserved_9: [u8; 7],
}

/// Identify Controller of the Zoned Namespace command set (ZNS 4.1.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyZonedController {
    /// Zone append size limit, as a power of two in pages of 4 KiB; 0 means the limit of other
    /// commands.
    pub zasl: u8,
    pub(crate) reserved_1: [u8; 4095],
}

/// Identify Controller of the NVM command set (NVM 4.1.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// Verify size limit, as a power of two in pages of 4 KiB; 0 means no limit.
    pub vsl: u8,
    /// Write Zeroes size limit, encoded like `vsl`.
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

/// Namespace identification descriptor types (Base 5.1.13.2.3).
pub mod descriptor {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const EUI64: u8 = 1;
    pub const NGUID: u8 = 2;
    pub const UUID: u8 = 3;
    pub const COMMAND_SET: u8 = 4;
}

/// Encodes a page of namespace identification descriptors.
pub fn emit_descriptors(all: &[(u8, &[u8])]) -> Vec<u8> {
    let mut page = Vec::new();
    for (kind, value) in all {
        page.extend([*kind, value.len() as u8, 0, 0]);
        page.extend_from_slice(value);
    }
    page.resize(4096, 0);
    page
}

/// Decodes the descriptors of a page, up to the first empty or truncated one.
pub fn parse_descriptors(mut page: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, len, _, _, rest @ ..] = page else { return None };
        let (value, rest) = rest.split_at_checked((*len).into()).filter(|(value, _)| !value.is_empty())?;
        page = rest;
        Some((*kind, value))
    })
}

/// Encodes a namespace list (Base 5.1.13.2.2), terminated by a zero.
pub fn emit_namespaces(all: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut page: Vec<u8> = all.flat_map(u32::to_le_bytes).collect();
    page.resize(4096, 0);
    page
}
