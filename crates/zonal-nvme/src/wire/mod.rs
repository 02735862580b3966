//! The formats of the wire: little-endian, without padding.
//!
//! On the first level are views: types that lie in memory as the bytes do, and check nothing ([`Sqe`], [`Cqe`], the units of
//! [`pdu`]). On the second are checked values with fields of their own, which are parsed from bytes and emitted as bytes
//! ([`Layout`], [`DataPointer`], [`ConnectCommand`], [`GetLogPage`], [`ZoneSend`], [`ZoneReceive`]). Both sides of a
//! connection use the same.

mod command;
mod connect;
mod identify;
mod layout;
mod logs;
mod pages;
pub mod pdu;
mod requests;
mod zones;

pub use command::{Cqe, Sgl, Sqe, admin, fabrics, io};
pub use connect::{ConnectCommand, ConnectData};
pub use identify::{
    IdentifyController, IdentifyNamespace, IdentifyZoned, IdentifyZonedController, IndependentNamespace,
    NamespaceDescriptor, parse_namespaces,
};
pub use layout::{Field, Layout, Padded, ZeroEnded};
pub use logs::{ChangedZoneList, DiscoveryEntry, DiscoveryHeader, ErrorEntry, FirmwareLog, HealthLog};
pub use pages::Page;
pub use pdu::{
    CommonHeader, DataHeader, DigestFlags, IcReq, IcResp, PduKind, R2t, TermReq, data_flags, term,
};
pub use requests::{DataPointer, GetLogPage, ZoneReceive, ZoneSend};
pub use zones::{ReportHeader, ReportedZone};

use crc_fast::CrcAlgorithm;

/// The digest of a header or of data: CRC-32C (TCP 3.3.1.1).
pub fn digest(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
