//! Wire formats, little-endian and without padding.
//!
//! The lower level consists of views: types with the memory layout of the bytes and no checks
//! ([`Sqe`], [`Cqe`], the units of [`pdu`], identify structures, log pages, reports). Fields named
//! `reserved_N` are the bytes from offset `N` on that are reserved or unused by both sides. The
//! upper level consists of checked values that are parsed from bytes and emitted as bytes
//! ([`DataPointer`], [`ConnectCommand`], [`GetLogPage`], [`ZoneSend`], [`ZoneReceive`]). Target and
//! host share both.

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

/// Header or data digest: CRC-32C (TCP 3.3.1.1).
pub fn digest(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Text field padded with zeroes. Longer text is truncated.
pub fn zero_ended<const N: usize>(text: impl AsRef<[u8]>) -> [u8; N] {
    filled(text.as_ref(), 0)
}

/// Text field padded with blanks. Longer text is truncated.
pub fn padded<const N: usize>(text: impl AsRef<[u8]>) -> [u8; N] {
    filled(text.as_ref(), b' ')
}

fn filled<const N: usize>(text: &[u8], filler: u8) -> [u8; N] {
    let (mut field, len) = ([filler; N], text.len().min(N));
    field[..len].copy_from_slice(&text[..len]);
    field
}

/// Text of a field up to the first zero; `None` if it is not UTF-8.
pub fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field.split(|byte| *byte == 0).next()?).ok()
}
