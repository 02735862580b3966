//! Layouts of command descriptors between the operation code and the control byte.
//!
//! `lba` is the first block and `blocks` their number. `len` is the parameter list length or
//! allocation length; `group` is a group for statistics, which are not kept. `=` gives the bits
//! that may be set in each byte of a field; without it, all may be set. The disk implements each of
//! these bits or treats it as advisory.
//!
//! Commands with several descriptor lengths are parsed in [`super::commands`].
#![allow(missing_docs, reason = "the names are the standard's")]

use super::Cdb;
use super::layout::layouts;
use bits::*;
use std::mem::offset_of;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bits of the fields, by command.
pub mod bits {
    /// REQUEST SENSE: descriptor format.
    pub const DESC: u8 = 0x01;
    /// INQUIRY: vital product data page.
    pub const EVPD: u8 = 0x01;
    /// MODE SELECT: pages in standard format.
    pub const PF: u8 = 0x10;
    /// MODE SELECT: save the values.
    pub const SP: u8 = 0x01;
    /// MODE SENSE: no block descriptors.
    pub const DBD: u8 = 0x08;
    /// MODE SENSE(10): long block descriptors accepted.
    pub const LLBAA: u8 = 0x10;
    /// START STOP UNIT: do not flush.
    pub const NO_FLUSH: u8 = 0x04;
    /// START STOP UNIT: start.
    pub const START: u8 = 0x01;
    /// Do not keep the data in a cache (advisory).
    pub const DPO: u8 = 0x10;
    /// Read from the medium, or make durable before completion.
    pub const FUA: u8 = 0x08;
    /// READ: media errors may be reported early (advisory).
    pub const RARC: u8 = 0x04;
    /// VERIFY: kind of comparison.
    pub const BYTCHK: u8 = 0x06;
    /// SYNCHRONIZE CACHE: complete at once.
    pub const SYNC_IMMED: u8 = 0x02;
    /// WRITE SAME: the blocks may be unmapped instead.
    pub const UNMAP: u8 = 0x08;
    /// WRITE SAME(16): write zeroes, without data.
    pub const NDOB: u8 = 0x01;
    /// REPORT SUPPORTED OPERATION CODES: with timeouts.
    pub const RCTD: u8 = 0x80;
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: extended format.
    pub const REPD: u8 = 0x80;
    /// REPORT ZONES: count only the zones that fit.
    pub const PARTIAL: u8 = 0x80;
    /// ZONE OUT: all zones.
    pub const ALL: u8 = 0x01;
}

/// Fields of a command descriptor.
pub trait Command: FromBytes + IntoBytes + Immutable + Default {
    /// Operation code, in byte 0.
    const OPCODE: u8;

    /// Service action, in bits 4:0 of byte 1.
    const ACTION: Option<u8>;

    /// Bits that may be set in the descriptor.
    const MASK: Cdb;

    /// Length of the descriptor in bytes.
    const LEN: usize = size_of::<Self>() + 2;
}

/// Sets `bits` in each of `len` bytes of `mask` from `at` on.
const fn marked(mut mask: Cdb, at: usize, len: usize, bits: u8) -> Cdb {
    let mut n = at;
    while n < at + len {
        mask[n] = bits;
        n += 1;
    }
    mask
}

/// Defines a descriptor: operation code, optional service action, length in bytes, and fields.
macro_rules! cdbs {
    ($($(#[$doc:meta])* $name:ident($opcode:literal $(, $action:literal)?)[$len:literal] {
        $($field:ident: $of:ty $(= $bits:expr)?),*
    })*) => {$(
        layouts! { $(#[$doc])* $name[$len - 2] { $($field: $of),* } }

        impl Command for $name {
            const OPCODE: u8 = $opcode;
            const ACTION: Option<u8> = [$(Some($action),)? None][0];
            const MASK: Cdb = {
                let mask = [0; 32];
                $(let mask = marked(mask, offset_of!($name, $field) + 1, size_of::<$of>(), [$($bits,)? 0xFF][0]);)*
                mask
            };
        }
    )*};
}

cdbs! {
    /// TEST UNIT READY (SPC 6.47).
    TestUnitReady(0x00)[6] { reserved: [u8; 4] = 0 }

    /// REQUEST SENSE (SPC 6.39).
    RequestSense(0x03)[6] { flags: u8 = DESC, reserved: [u8; 2] = 0, len: u8 }

    /// INQUIRY (SPC 6.6).
    Inquiry(0x12)[6] { flags: u8 = EVPD, page: u8, len: U16 }

    /// MODE SELECT(6) (SPC 6.11).
    ModeSelect6(0x15)[6] { flags: u8 = PF | SP, reserved: [u8; 2] = 0, len: u8 }

    /// MODE SELECT(10) (SPC 6.12).
    ModeSelect10(0x55)[10] { flags: u8 = PF | SP, reserved: [u8; 5] = 0, len: U16 }

    /// MODE SENSE(6) (SPC 6.13). Bits 7:6 of `page` are the page control.
    ModeSense6(0x1A)[6] { flags: u8 = DBD, page: u8, subpage: u8, len: u8 }

    /// MODE SENSE(10) (SPC 6.14). Bits 7:6 of `page` are the page control.
    ModeSense10(0x5A)[10] { flags: u8 = LLBAA | DBD, page: u8, subpage: u8, reserved: [u8; 3] = 0, len: U16 }

    /// START STOP UNIT (SBC 5.31). Bit 0 of `immediate`: complete at once.
    StartStopUnit(0x1B)[6] { immediate: u8 = 1, reserved: [u8; 2] = 0, flags: u8 = NO_FLUSH | START }

    /// PREVENT ALLOW MEDIUM REMOVAL (SBC 5.15). Bit 0 of `prevent`: prevent.
    PreventAllowMediumRemoval(0x1E)[6] { reserved: [u8; 3] = 0, prevent: u8 = 3 }

    /// READ CAPACITY(10) (SBC 5.20).
    ReadCapacity10(0x25)[10] { reserved: [u8; 8] = 0 }

    /// READ CAPACITY(16) (SBC 5.21).
    ReadCapacity16(0x9E, 0x10)[16] { reserved: [u8; 9] = 0, len: U32, reserved_14: u8 = 0 }

    /// READ(10) (SBC 5.16). VERIFY, WRITE, WRITE SAME and SYNCHRONIZE CACHE have equal fields and
    /// other flags.
    Read10(0x28)[10] { flags: u8 = DPO | FUA | RARC, lba: U32, group: u8 = 0x1F, blocks: U16 }

    /// READ(12) (SBC 5.17), and others as for [`Read10`].
    Read12(0xA8)[12] { flags: u8 = DPO | FUA | RARC, lba: U32, blocks: U32, group: u8 = 0x1F }

    /// READ(16) (SBC 5.18), and others as for [`Read10`].
    Read16(0x88)[16] { flags: u8 = DPO | FUA | RARC, lba: U64, blocks: U32, group: u8 = 0x3F }

    /// UNMAP (SBC 5.35).
    Unmap(0x42)[10] { reserved: [u8; 5] = 0, group: u8 = 0x1F, len: U16 }

    /// LOG SENSE (SPC 6.8). Bits 7:6 of `page` are the page control; `first` is the parameter
    /// pointer.
    LogSense(0x4D)[10] { reserved: u8 = 0, page: u8, subpage: u8, reserved_4: u8 = 0, first: U16, len: U16 }

    /// REPORT LUNS (SPC 6.33).
    ReportLuns(0xA0)[12] { reserved: u8 = 0, select: u8, reserved_3: [u8; 3] = 0, len: U32, reserved_10: u8 = 0 }

    /// REPORT SUPPORTED OPERATION CODES (SPC 6.35). Bits 2:0 of `options` are the reporting
    /// options.
    ReportOperations(0xA3, 0x0C)[12] {
        reserved: u8 = 0, options: u8 = RCTD | 7, opcode: u8, action: U16, len: U32, reserved_10: u8 = 0
    }

    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC 6.36).
    ReportTaskManagement(0xA3, 0x0D)[12] {
        reserved: u8 = 0, options: u8 = REPD, reserved_3: [u8; 3] = 0, len: U32, reserved_10: u8 = 0
    }

    /// REPORT ZONES (ZBC 5.10). Bits 5:0 of `options` are the reporting options.
    ReportZones(0x95, 0x00)[16] { reserved: u8 = 0, lba: U64, len: U32, options: u8 = PARTIAL | 0x3F }

    /// CLOSE ZONE (ZBC 5.2). FINISH ZONE, OPEN ZONE and RESET WRITE POINTER differ only in the
    /// service action.
    CloseZone(0x94, 0x01)[16] { reserved: u8 = 0, lba: U64, reserved_10: [u8; 4] = 0, flags: u8 = ALL }
}
