//! The formats of the wire, as they lie in memory: little-endian, without padding.
//!
//! Types of this level say what the bytes are, and check nothing. What a command asks is checked where it is carried out.

mod command;
mod pages;
mod pdu;

pub use command::{Cqe, Sgl, Sqe, admin, fabrics, io};
pub use pages::{Page, Text, text};
pub use pdu::{
    CommonHeader, DataHeader, DigestFlags, IcReq, IcResp, PduKind, R2t, TermReq, data_flags, term,
};

use crc_fast::CrcAlgorithm;

/// The digest of a header or of data: CRC-32C (TCP 3.3.1.1).
pub fn digest(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
