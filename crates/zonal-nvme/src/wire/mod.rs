//! The formats of the wire: little-endian, without padding.
//!
//! On the first level are views: types that lie in memory as the bytes do, and check nothing ([`Sqe`], [`Cqe`], the units of
//! [`pdu`], identify structures, log pages, reports). Their fields `reserved_N` are the bytes from `N` on that are reserved, or that
//! neither side uses. On the second are checked values with fields of their own, which are parsed from bytes and emitted as bytes
//! ([`DataPointer`], [`ConnectCommand`], [`GetLogPage`], [`ZoneSend`], [`ZoneReceive`]). Both sides of a connection use the same.

mod command;
mod connect;
mod identify;
mod logs;
mod numbers;
pub mod pdu;
mod requests;
mod zones;

pub use command::{Cqe, Sgl, Sqe, admin, fabrics, io};
pub use connect::{ConnectCommand, ConnectData};
pub use identify::{
    BlockFormat, IdentifyController, IdentifyNamespace, IdentifyNvmController, IdentifyZoned,
    IdentifyZonedController, IndependentNamespace, ZoneFormat, descriptor, emit_descriptors, emit_namespaces,
    parse_descriptors,
};
pub use logs::{ChangedZoneList, DiscoveryEntry, DiscoveryHeader, ErrorEntry, FirmwareLog, HealthLog};
pub use numbers::{NQN_MAX, cap, cc, command_set, csts, event, feature, log, oncs, property};
pub use pdu::{
    CommonHeader, DataHeader, DigestFlags, IcReq, IcResp, PduKind, R2t, TermReq, data_flags, term,
};
pub use requests::{DataPointer, DatasetRange, GetLogPage, ZoneReceive, ZoneSend};
pub use zones::{ReportHeader, ReportedZone};

use crc_fast::CrcAlgorithm;

/// The digest of a header or of data: CRC-32C (TCP 3.3.1.1).
pub fn digest(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A text as a field that is filled with zeroes. A longer one is cut.
pub fn zero_ended<const N: usize>(text: impl AsRef<[u8]>) -> [u8; N] {
    filled(text.as_ref(), 0)
}

/// A text as a field that is filled with blanks. A longer one is cut.
pub fn padded<const N: usize>(text: impl AsRef<[u8]>) -> [u8; N] {
    filled(text.as_ref(), b' ')
}

fn filled<const N: usize>(text: &[u8], filler: u8) -> [u8; N] {
    let (mut field, len) = ([filler; N], text.len().min(N));
    field[..len].copy_from_slice(&text[..len]);
    field
}

/// The text of a field before its first zero; `None` if it is not UTF-8.
pub fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field.split(|byte| *byte == 0).next()?).ok()
}
