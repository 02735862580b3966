//! Submission and completion queue entries, and their opcodes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Data pointer of a command (Base 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sgl {
    /// Offset in the command's capsule.
    pub address: U64,
    /// Length in bytes.
    pub len: U32,
    /// Zero.
    pub reserved: [u8; 3],
    /// Type in the upper half, subtype in the lower half.
    pub kind: u8,
}

impl Sgl {
    /// Data block with an offset: the data is in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport data block: the controller requests or sends the data.
    pub const TRANSPORT: u8 = 0x5A;
}

/// A command (Base 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sqe {
    /// Opcode: see [`admin`], [`io`] and [`fabrics`].
    pub opcode: u8,
    /// Fused operation in bits 1:0, data pointer type in bits 7:6.
    pub flags: u8,
    /// Command identifier chosen by the host.
    pub cid: U16,
    /// Namespace. For a fabrics command, its type in the lowest byte.
    pub nsid: U32,
    /// Dwords 2 and 3.
    pub cdw2: [U32; 2],
    /// Metadata pointer, unused.
    pub metadata: U64,
    /// Data pointer.
    pub data: Sgl,
    /// Dwords 10 to 15.
    pub cdw: [U32; 6],
}

impl Sqe {
    /// Force Unit Access in dword 12: a write is durable when completed.
    pub const FUA: u32 = 1 << 30;

    /// Command without data. For a fabrics command, `nsid` is its type.
    pub fn new(opcode: u8, nsid: u32, cdw: [u32; 6]) -> Sqe {
        // Fabrics commands always use SGLs, even without data (Base 4.1.1).
        const SGL: u8 = 0x40;
        Sqe {
            opcode,
            flags: SGL,
            cid: 0.into(),
            nsid: nsid.into(),
            cdw2: [0.into(); 2],
            metadata: 0.into(),
            data: Sgl { address: 0.into(), len: 0.into(), reserved: [0; 3], kind: Sgl::TRANSPORT },
            cdw: cdw.map(Into::into),
        }
    }

    /// Sets the length of data moved by the transport.
    #[must_use]
    pub fn with_data(mut self, len: u32) -> Sqe {
        self.data.len = len.into();
        self
    }

    /// Sets the length of in-capsule data.
    #[must_use]
    pub fn with_capsule(mut self, len: u32) -> Sqe {
        (self.data.len, self.data.kind) = (len.into(), Sgl::IN_CAPSULE);
        self
    }

    /// Dword `n`, from 10 to 15.
    ///
    /// # Panics
    /// For any other `n`.
    pub fn dword(&self, n: usize) -> u32 {
        self.cdw[n - 10].get()
    }

    /// First logical block, from dwords 10 and 11.
    pub fn lba(&self) -> u64 {
        u64::from(self.dword(10)) | u64::from(self.dword(11)) << 32
    }

    /// Sets the first logical block.
    pub fn set_lba(&mut self, lba: u64) {
        (self.cdw[0], self.cdw[1]) = ((lba as u32).into(), ((lba >> 32) as u32).into());
    }
}

/// A completion (Base 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Command-specific result, dwords 0 and 1.
    pub result: U64,
    /// Submission queue head: entries taken by the controller, modulo the queue size.
    pub sq_head: U16,
    /// Zero over fabrics.
    pub sq: U16,
    /// Command identifier.
    pub cid: U16,
    /// Status in bits 15:1.
    pub status: U16,
}

/// Admin opcodes (Base 3.1.3.4).
pub mod admin {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0A;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// I/O opcodes (NVM 3.2, ZNS 3.3).
pub mod io {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0C;
    pub const ZONE_MANAGEMENT_SEND: u8 = 0x79;
    pub const ZONE_MANAGEMENT_RECEIVE: u8 = 0x7A;
    pub const ZONE_APPEND: u8 = 0x7D;

    /// True if the opcode exists only in the Zoned Namespace command set.
    pub const fn is_of_zones(opcode: u8) -> bool {
        matches!(opcode, ZONE_MANAGEMENT_SEND | ZONE_MANAGEMENT_RECEIVE | ZONE_APPEND)
    }
}

/// Fabrics commands (Base 6).
pub mod fabrics {
    #![allow(missing_docs, reason = "the names are the standard's")]
    /// Opcode of all fabrics commands. Their type is in the first byte of the namespace field.
    pub const OPCODE: u8 = 0x7F;
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const DISCONNECT: u8 = 0x08;
}
