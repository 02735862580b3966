//! Protocol data units (TCP 3.6).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a unit is: its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PduKind {
    /// A host asks for a connection.
    IcReq = 0,
    /// The controller grants it.
    IcResp = 1,
    /// The host ends the connection because of an error.
    HostTerm = 2,
    /// The controller does.
    ControllerTerm = 3,
    /// A command, with data where it fits.
    Command = 4,
    /// A completion.
    Response = 5,
    /// Data from the host.
    HostData = 6,
    /// Data from the controller.
    ControllerData = 7,
    /// The controller is ready for data.
    R2t = 9,
}

impl PduKind {
    /// The kind of this number.
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

    /// Length of its header in bytes, the common header included and digests not.
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
    /// A digest of the header follows it.
    pub const HEADER_DIGEST: u8 = 1;
    /// A digest of the data follows them.
    pub const DATA_DIGEST: u8 = 2;
    /// The last data of a command, or of what one unit has asked for.
    pub const LAST: u8 = 4;
    /// The command has succeeded, and no completion follows.
    pub const SUCCESS: u8 = 8;
}

/// What each unit begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    /// See [`PduKind`].
    pub kind: u8,
    /// See [`data_flags`].
    pub flags: u8,
    /// Bytes of the header.
    pub header_len: u8,
    /// Where the data begin, from the unit's first byte; 0 without data.
    pub data_offset: u8,
    /// Bytes of the unit, digests and padding included.
    pub len: U32,
}

/// Digests that both sides agree on: bits of [`IcReq::digests`].
pub struct DigestFlags;

impl DigestFlags {
    /// Of headers.
    pub const HEADER: u8 = 1;
    /// Of data.
    pub const DATA: u8 = 2;
}

/// A host asks for a connection (TCP 3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcReq {
    /// 128 bytes, no flags.
    pub common: CommonHeader,
    /// Version of the format: 0.
    pub format: U16,
    /// Data from the controller are aligned to this number of dwords and one more.
    pub alignment: u8,
    /// See [`DigestFlags`].
    pub digests: u8,
    /// Units of [`R2t`] that one command may have unanswered, less one.
    pub r2t_max: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// The controller grants a connection (TCP 3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcResp {
    /// 128 bytes, no flags.
    pub common: CommonHeader,
    /// Version of the format: 0.
    pub format: U16,
    /// Data from the host are aligned to this number of dwords and one more.
    pub alignment: u8,
    /// See [`DigestFlags`].
    pub digests: u8,
    /// Most data in one unit from the host, in bytes.
    pub data_max: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// Header of data, in either direction (TCP 3.6.2.6 and 3.6.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DataHeader {
    /// See [`data_flags`].
    pub common: CommonHeader,
    /// The command's number.
    pub command: U16,
    /// From the host: the number of the controller's transfer. To the host: zero.
    pub transfer: U16,
    /// Where these data lie among the command's, in bytes.
    pub offset: U32,
    /// Bytes of data.
    pub len: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// The controller is ready for data (TCP 3.6.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct R2t {
    /// 24 bytes.
    pub common: CommonHeader,
    /// The command's number.
    pub command: U16,
    /// The controller's number of the transfer.
    pub transfer: U16,
    /// From where, in bytes.
    pub offset: U32,
    /// Bytes of data.
    pub len: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// A connection ends because of an error (TCP 3.6.2.4 and 3.6.2.5). What was wrong follows: the header of that unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TermReq {
    /// 24 bytes, and the header that was wrong.
    pub common: CommonHeader,
    /// See [`term`].
    pub error: U16,
    /// Which field, where one is to blame.
    pub field: U32,
    /// Zero.
    pub reserved: [u8; 10],
}

/// Why a connection ends (TCP 3.6.2.5, figure of fatal error statuses).
pub mod term {
    /// A field of a header has a value that it may not have.
    pub const HEADER_FIELD: u16 = 1;
    /// The unit may not come here.
    pub const SEQUENCE: u16 = 2;
    /// The header is not what its digest says.
    pub const HEADER_DIGEST: u16 = 3;
    /// Data beyond what was asked for.
    pub const DATA_RANGE: u16 = 4;
    /// More data in a unit than was agreed on.
    pub const DATA_LIMIT: u16 = 5;
    /// From a host: more units of [`R2t`](super::R2t) for a command than were agreed on.
    pub const R2T_LIMIT: u16 = 5;
    /// A parameter that is not supported.
    pub const UNSUPPORTED: u16 = 6;
}
