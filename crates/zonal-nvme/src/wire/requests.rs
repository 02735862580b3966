//! Commands as values: their dwords decoded, and checked where not every value is valid.

use super::{Sgl, Sqe, admin, io};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Data pointer (Base 4.3.2): the two SGL descriptors supported over TCP (TCP 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPointer {
    /// Data in the command's capsule.
    InCapsule {
        /// Offset in the capsule's data.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Data sent or requested by the controller.
    Transport {
        /// Length in bytes.
        len: u32,
    },
}

impl DataPointer {
    /// Decodes a descriptor; `None` if the transport does not support its type.
    pub fn parse(sgl: &Sgl) -> Option<DataPointer> {
        match sgl.kind {
            Sgl::IN_CAPSULE => Some(DataPointer::InCapsule { offset: sgl.address.get(), len: sgl.len.get() }),
            Sgl::TRANSPORT => Some(DataPointer::Transport { len: sgl.len.get() }),
            _ => None,
        }
    }

    /// Encodes as a descriptor.
    pub fn emit(self) -> Sgl {
        let (address, len, kind) = match self {
            DataPointer::InCapsule { offset, len } => (offset, len, Sgl::IN_CAPSULE),
            DataPointer::Transport { len } => (0, len, Sgl::TRANSPORT),
        };
        Sgl { address: address.into(), len: len.into(), reserved: [0; 3], kind }
    }
}

/// Get Log Page (Base 5.1.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetLogPage {
    /// Log page identifier.
    pub lid: u8,
    /// Length in bytes, a multiple of 4 and at least 4.
    pub len: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Command set.
    pub csi: u8,
    /// True to retain the asynchronous event of the log.
    pub retains: bool,
    /// Namespace; zero or all ones means the controller.
    pub nsid: u32,
}

impl GetLogPage {
    const RETAIN: u32 = 1 << 15;

    /// Decodes a command with this opcode.
    pub fn parse(sqe: &Sqe) -> GetLogPage {
        let dwords = u64::from(sqe.dword(10) >> 16) | u64::from(sqe.dword(11) & 0xFFFF) << 16;
        GetLogPage {
            lid: sqe.dword(10) as u8,
            len: (dwords + 1) * 4,
            offset: u64::from(sqe.dword(12)) | u64::from(sqe.dword(13)) << 32,
            csi: (sqe.dword(14) >> 24) as u8,
            retains: sqe.dword(10) & GetLogPage::RETAIN != 0,
            nsid: sqe.nsid.get(),
        }
    }

    /// Encodes the value into a command.
    pub fn emit(&self, sqe: &mut Sqe) {
        let dwords = (self.len / 4).saturating_sub(1);
        let retains = if self.retains { GetLogPage::RETAIN } else { 0 };
        (sqe.opcode, sqe.nsid) = (admin::GET_LOG_PAGE, self.nsid.into());
        sqe.cdw[0] = (u32::from(self.lid) | retains | (dwords as u32) << 16).into();
        sqe.cdw[1] = ((dwords >> 16) as u32 & 0xFFFF).into();
        (sqe.cdw[2], sqe.cdw[3]) = ((self.offset as u32).into(), ((self.offset >> 32) as u32).into());
        sqe.cdw[4] = (u32::from(self.csi) << 24).into();
    }
}

/// Range of Dataset Management (NVM 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DatasetRange {
    /// Context attributes.
    pub attributes: U32,
    /// Number of blocks.
    pub blocks: U32,
    /// First block.
    pub lba: U64,
}

impl DatasetRange {
    /// Deallocate in dword 11: the host no longer needs the ranges.
    pub const DEALLOCATE: u32 = 1 << 2;
}

/// Zone Management Send (ZNS 3.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSend {
    /// First block of the zone.
    pub lba: u64,
    /// Zone action.
    pub action: u8,
    /// True to select all zones to which the action applies.
    pub is_all: bool,
}

impl ZoneSend {
    /// Zone actions.
    pub const CLOSE: u8 = 1;
    /// See [`ZoneSend::CLOSE`].
    pub const FINISH: u8 = 2;
    /// See [`ZoneSend::CLOSE`].
    pub const OPEN: u8 = 3;
    /// See [`ZoneSend::CLOSE`].
    pub const RESET: u8 = 4;
    /// See [`ZoneSend::CLOSE`].
    pub const OFFLINE: u8 = 5;

    const ALL: u32 = 1 << 8;

    /// Decodes a command with this opcode.
    pub fn parse(sqe: &Sqe) -> ZoneSend {
        ZoneSend { lba: sqe.lba(), action: sqe.dword(13) as u8, is_all: sqe.dword(13) & ZoneSend::ALL != 0 }
    }

    /// Encodes the value into a command.
    pub fn emit(&self, sqe: &mut Sqe) {
        sqe.opcode = io::ZONE_MANAGEMENT_SEND;
        sqe.set_lba(self.lba);
        sqe.cdw[3] = (u32::from(self.action) | if self.is_all { ZoneSend::ALL } else { 0 }).into();
    }
}

/// Zone Management Receive (ZNS 3.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReceive {
    /// Logical block in the first zone of the report.
    pub lba: u64,
    /// Length in bytes, a multiple of 4 and at least 4.
    pub len: u64,
    /// 0: report; 1: extended report with zone descriptor extensions.
    pub action: u8,
    /// Selection of zones; 0 means all.
    pub option: u8,
    /// True to count only the zones that fit.
    pub is_partial: bool,
}

impl ZoneReceive {
    const PARTIAL: u32 = 1 << 16;

    /// Decodes a command with this opcode.
    pub fn parse(sqe: &Sqe) -> ZoneReceive {
        ZoneReceive {
            lba: sqe.lba(),
            len: (u64::from(sqe.dword(12)) + 1) * 4,
            action: sqe.dword(13) as u8,
            option: (sqe.dword(13) >> 8) as u8,
            is_partial: sqe.dword(13) & ZoneReceive::PARTIAL != 0,
        }
    }

    /// Encodes the value into a command.
    pub fn emit(&self, sqe: &mut Sqe) {
        sqe.opcode = io::ZONE_MANAGEMENT_RECEIVE;
        sqe.set_lba(self.lba);
        sqe.cdw[2] = ((self.len / 4).saturating_sub(1) as u32).into();
        let partial = if self.is_partial { ZoneReceive::PARTIAL } else { 0 };
        sqe.cdw[3] = (u32::from(self.action) | u32::from(self.option) << 8 | partial).into();
    }
}
