//! Protocol data units (TCP 3.6).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// PDU type, the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PduKind {
    /// Initialize Connection Request of the host.
    IcReq = 0,
    /// Initialize Connection Response of the controller.
    IcResp = 1,
    /// Termination by the host because of an error.
    HostTerm = 2,
    /// Termination by the controller because of an error.
    ControllerTerm = 3,
    /// Command, with in-capsule data if it fits.
    Command = 4,
    /// Completion.
    Response = 5,
    /// Data from the host.
    HostData = 6,
    /// Data from the controller.
    ControllerData = 7,
    /// Ready to Transfer: the controller requests data.
    R2t = 9,
}

impl PduKind {
    /// Kind with this number.
    pub const fn of(number: u8) -> Option<PduKind> {
        Some(match number {
            0 => PduKind::IcReq,
            1 => PduKind::IcResp,
            2 => PduKind::HostTerm,
            3 => PduKind::ControllerTerm,
            4 => PduKind::Command,
            5 => PduKind::Response,
            6 => PduKind::HostData,
            7 => PduKind::ControllerData,
            9 => PduKind::R2t,
            _ => return None,
        })
    }

    /// Header length in bytes, including the common header but not digests.
    pub const fn header_len(self) -> usize {
        match self {
            PduKind::IcReq | PduKind::IcResp => 128,
            PduKind::Command => 72,
            _ => 24,
        }
    }
}

/// Flags of the common header (TCP 3.6.1).
pub mod data_flags {
    /// A header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1;
    /// A data digest follows the data.
    pub const DATA_DIGEST: u8 = 2;
    /// Last data of a command or of one R2T.
    pub const LAST: u8 = 4;
    /// The command succeeded, and no completion follows.
    pub const SUCCESS: u8 = 8;
}

/// Common header of all PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    /// See [`PduKind`].
    pub kind: u8,
    /// See [`data_flags`].
    pub flags: u8,
    /// Header length in bytes.
    pub header_len: u8,
    /// Offset of the data from the start of the PDU; 0 without data.
    pub data_offset: u8,
    /// Total length in bytes, including digests and padding.
    pub len: U32,
}

/// Digests to negotiate: bits of [`IcReq::digests`].
pub struct DigestFlags;

impl DigestFlags {
    /// Header digest.
    pub const HEADER: u8 = 1;
    /// Data digest.
    pub const DATA: u8 = 2;
}

/// Initialize Connection Request (TCP 3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcReq {
    /// 128 bytes, no flags.
    pub common: CommonHeader,
    /// PDU format version: 0.
    pub format: U16,
    /// Alignment of data from the controller in dwords, zero-based.
    pub alignment: u8,
    /// See [`DigestFlags`].
    pub digests: u8,
    /// Maximum outstanding [`R2t`] per command, zero-based.
    pub r2t_max: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// Initialize Connection Response (TCP 3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcResp {
    /// 128 bytes, no flags.
    pub common: CommonHeader,
    /// PDU format version: 0.
    pub format: U16,
    /// Alignment of data from the host in dwords, zero-based.
    pub alignment: u8,
    /// See [`DigestFlags`].
    pub digests: u8,
    /// Maximum data of one PDU from the host, in bytes.
    pub data_max: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// Header of a data PDU in either direction (TCP 3.6.2.6 and 3.6.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DataHeader {
    /// See [`data_flags`].
    pub common: CommonHeader,
    /// Command identifier.
    pub command: U16,
    /// From the host: the controller's transfer tag. To the host: zero.
    pub transfer: U16,
    /// Offset in the command's data, in bytes.
    pub offset: U32,
    /// Length in bytes.
    pub len: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// Ready to Transfer (TCP 3.6.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct R2t {
    /// 24 bytes.
    pub common: CommonHeader,
    /// Command identifier.
    pub command: U16,
    /// Transfer tag chosen by the controller.
    pub transfer: U16,
    /// Offset of the requested data, in bytes.
    pub offset: U32,
    /// Length in bytes.
    pub len: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// Terminate Connection Request (TCP 3.6.2.4 and 3.6.2.5), followed by the offending PDU's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TermReq {
    /// 24 bytes, and the offending header.
    pub common: CommonHeader,
    /// See [`term`].
    pub error: U16,
    /// Location of the invalid field, if any.
    pub field: U32,
    /// Zero.
    pub reserved: [u8; 10],
}

/// Fatal error statuses of a termination (TCP 3.6.2.5).
pub mod term {
    /// Invalid field in a PDU header.
    pub const HEADER_FIELD: u16 = 1;
    /// PDU out of sequence.
    pub const SEQUENCE: u16 = 2;
    /// Header digest mismatch.
    pub const HEADER_DIGEST: u16 = 3;
    /// Data outside the requested range.
    pub const DATA_RANGE: u16 = 4;
    /// More data in a PDU than negotiated.
    pub const DATA_LIMIT: u16 = 5;
    /// From a host: more outstanding [`R2t`](super::R2t) for a command than negotiated.
    pub const R2T_LIMIT: u16 = 5;
    /// Unsupported parameter.
    pub const UNSUPPORTED: u16 = 6;
}
