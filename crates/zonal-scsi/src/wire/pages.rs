//! Pages and lists that a disk returns or takes.
//!
//! Unless a field says otherwise, `len` is the number of bytes that follow it and `page` the number of the page.
#![allow(missing_docs, reason = "the names are the standard's")]

use super::layout::layouts;
use zerocopy::big_endian::{U16, U32, U64};

/// A text in a field of `N` bytes, filled with blanks; a longer one is cut.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    let len = text.len().min(N);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// Numbers of pages of vital product data (SPC 7.8.1, SBC 6.6.1, ZBC 6.4.1).
pub mod vpd {
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    pub const BLOCK_LIMITS: u8 = 0xB0;
    pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xB1;
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xB2;
    pub const ZONED_BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xB6;
}

layouts! {
    /// Standard INQUIRY data (SPC 6.6.2).
    InquiryData[96] {
        /// Bits 7:5: 0, a unit is there; 3, none can be. Bits 4:0: 14h, a host-managed zoned disk; 1Fh, no unit.
        peripheral: u8,
        reserved_1: u8,
        /// 6: SPC-4.
        version: u8,
        /// Bit 4: addresses of units have levels. Bits 3:0: 2.
        format: u8,
        len: u8,
        reserved_5: [u8; 2],
        /// Bit 1: commands are queued.
        flags: u8,
        /// Filled with blanks, like the next two.
        vendor: [u8; 8],
        product: [u8; 16],
        revision: [u8; 4],
        reserved_36: [u8; 22],
        /// Standards that it follows.
        standards: [U16; 4],
        reserved_66: [u8; 30],
    }

    /// Head of a page of vital product data (SPC 7.8.2). `peripheral` is that of [`InquiryData`].
    VpdHeader[4] { peripheral: u8, page: u8, len: U16 }

    /// Block limits, page B0h, after its head (SBC 6.6.4). Counts are in logical blocks; zero: no limit is reported.
    BlockLimits[60] {
        /// [`BlockLimits::WSNZ`].
        flags: u8,
        reserved_1: u8,
        /// Best multiple of a transfer.
        transfer_granularity: U16,
        /// Longest transfer.
        transfer_max: U32,
        /// Best transfer.
        transfer_best: U32,
        reserved_12: [u8; 4],
        unmap_blocks_max: U32,
        unmap_ranges_max: U32,
        /// Best multiple of an UNMAP.
        unmap_granularity: U32,
        reserved_28: [u8; 4],
        write_same_max: U64,
        reserved_40: [u8; 20],
    }

    /// Block device characteristics, page B1h, after its head (SBC 6.6.2).
    BlockCharacteristics[60] {
        /// 1: does not rotate; otherwise rotations a minute.
        rotation: U16,
        reserved_2: u8,
        /// Bits 3:0: width of the drive; 0: not reported.
        form_factor: u8,
        /// Bits 5:4: zero for a host-managed disk.
        zoned: u8,
        reserved_5: [u8; 23],
        reserved_28: [u8; 32],
    }

    /// Logical block provisioning, page B2h, after its head (SBC 6.6.6).
    BlockProvisioning[4] {
        threshold: u8,
        /// Bits of [`BlockProvisioning`].
        flags: u8,
        /// Bits 2:0: 0, all blocks have their room; 2, thin.
        provisioning: u8,
        reserved_3: u8,
    }

    /// Zoned block device characteristics, page B6h, after its head (ZBC 6.4.3). All ones: no number is reported.
    ZonedCharacteristics[60] {
        /// [`ZonedCharacteristics::URSWRZ`].
        flags: u8,
        reserved_1: [u8; 3],
        /// Best number of open zones of the preferred kind.
        preferred_open_best: U32,
        /// Best number of open zones that are not written in order.
        preferred_random_best: U32,
        /// Most open zones.
        open_max: U32,
        reserved_16: [u8; 3],
        /// Bits 3:0: 1, zones have one length; 8, zones begin at multiples of `granularity`.
        alignment: u8,
        granularity: U64,
        reserved_28: [u8; 32],
    }

    /// Answer of READ CAPACITY(10) (SBC 5.20.2). `last_lba` is all ones if it needs the longer command.
    Capacity10[8] { last_lba: U32, block_len: U32 }

    /// Answer of READ CAPACITY(16) (SBC 5.21.2, ZBC 5.9).
    Capacity16[32] {
        last_lba: U64,
        block_len: U32,
        /// Bits 5:4: 1, `last_lba` is that of the whole disk, not of its conventional zones.
        basis: u8,
        /// Bits 3:0: logical blocks of a physical one, as a power of two.
        physical_exponent: u8,
        /// [`Capacity16::LBPME`] and [`Capacity16::LBPRZ`].
        flags: u8,
        reserved_15: [u8; 17],
    }

    /// The list of REPORT LUNS with one unit (SPC 6.33). `len` is that of the units.
    LunList[16] { len: U32, reserved_4: [u8; 4], lun: U64 }

    /// Head of the values of MODE SENSE(6) and MODE SELECT(6) (SPC 7.5.5). Its lengths are zero in MODE SELECT.
    ModeHeader6[4] {
        len: u8,
        medium: u8,
        /// Bits of [`ModeHeader6`].
        flags: u8,
        descriptors_len: u8,
    }

    /// Head of the values of MODE SENSE(10) and MODE SELECT(10) (SPC 7.5.5).
    ModeHeader10[8] {
        len: U16,
        medium: u8,
        /// Bits of [`ModeHeader6`].
        flags: u8,
        /// Bit 0: block descriptors are long.
        long: u8,
        reserved_5: u8,
        descriptors_len: U16,
    }

    /// A short block descriptor (SBC 6.5.2.2). `blocks` is all ones if there are more.
    BlockDescriptor[8] { blocks: U32, reserved_4: u8, block_len: [u8; 3] }

    /// A long block descriptor (SBC 6.5.2.3).
    LongBlockDescriptor[16] { blocks: U64, reserved_8: [u8; 4], block_len: U32 }

    /// The mode page of the cache, 08h (SBC 6.5.5).
    CachingPage[20] {
        page: u8,
        len: u8,
        /// Bit 2: writes are acknowledged before they are durable. Bit 0: reads always come from the medium.
        flags: u8,
        reserved_3: [u8; 17],
    }

    /// The control mode page, 0Ah (SPC 7.5.9).
    ControlPage[12] {
        page: u8,
        len: u8,
        /// Bit 2: sense data have descriptor format.
        flags: u8,
        /// Bits 7:4: 1, commands may be carried out in any order.
        queue: u8,
        /// Bit 3: the initiator has protected the disk.
        protection: u8,
        reserved_5: [u8; 3],
        /// Longest time of being busy, in 100 ms; all ones: no limit.
        busy_max: U16,
        reserved_10: [u8; 2],
    }

    /// Head of a log page (SPC 7.3.2). Bit 6 of `page`: it has a subpage.
    LogHeader[4] { page: u8, subpage: u8, len: U16 }

    /// One of all commands (SPC 6.35.2).
    OperationEntry[8] {
        opcode: u8,
        reserved_1: u8,
        action: U16,
        reserved_4: u8,
        /// Bits of [`OperationEntry`].
        flags: u8,
        cdb_len: U16,
    }

    /// Time-outs of a command in seconds (SPC 6.35.4); zero: not reported.
    OperationTimeouts[12] { len: U16, reserved_2: [u8; 2], nominal: U32, recommended: U32 }

    /// Head of the answer for one command (SPC 6.35.3); the bits that it may have set follow.
    SupportedOperation[4] {
        reserved: u8,
        /// Bit 7: time-outs follow. Bits 2:0: 1, it is not there; 3, it is as in the standard.
        support: u8,
        cdb_len: U16,
    }

    /// Task management functions (SPC 6.36).
    TaskManagement[4] {
        /// Bits of [`TaskManagement`].
        functions: u8,
        reserved_1: [u8; 2],
        len: u8,
    }

    /// Head of the list of UNMAP (SBC 5.35.2). `ranges_len` is the number of bytes of the ranges.
    UnmapHeader[8] { len: U16, ranges_len: U16, reserved_4: [u8; 4] }

    /// A range of UNMAP (SBC 5.35.2).
    UnmapDescriptor[16] { lba: U64, blocks: U32, reserved_12: [u8; 4] }

    /// Head of a report of zones (ZBC 5.10.2).
    ReportHeader[64] {
        /// Bytes of all descriptors that match, or that fit.
        len: U32,
        /// 0: zones differ. 1: all have one type and length. 2: but for the last one's length. 3: one length, several types.
        same: u8,
        reserved_5: [u8; 3],
        last_lba: U64,
        /// Zones begin at multiples of this; zero: not reported.
        granularity: U64,
        reserved_24: [U64; 5],
    }

    /// A zone descriptor (ZBC 5.10.3). Addresses and lengths are in logical blocks.
    ReportedZone[64] {
        /// 1: conventional. 2: sequential write required. 5: a gap.
        zone_type: u8,
        /// Bits 7:4: as in `zonal_core::ZoneCondition`. Bit 1: not written in order. Bit 0: a reset is recommended.
        condition: u8,
        reserved_2: [u8; 6],
        len: U64,
        start: U64,
        /// Where the next write begins; all ones where that has no meaning.
        write_pointer: U64,
        reserved_32: [u8; 32],
    }
}

impl BlockLimits {
    /// A WRITE SAME of zero blocks is refused.
    pub const WSNZ: u8 = 0x01;
}

impl BlockProvisioning {
    /// UNMAP is there.
    pub const LBPU: u8 = 0x80;
    /// WRITE SAME(16) can unmap.
    pub const LBPWS: u8 = 0x40;
    /// WRITE SAME(10) can unmap.
    pub const LBPWS10: u8 = 0x20;
    /// Unmapped blocks read as zeroes.
    pub const LBPRZ: u8 = 0x04;
}

impl ZonedCharacteristics {
    /// Reads may reach beyond the write pointer, and over zones.
    pub const URSWRZ: u8 = 0x01;
}

impl Capacity16 {
    /// Blocks can be unmapped.
    pub const LBPME: u8 = 0x80;
    /// Unmapped blocks read as zeroes.
    pub const LBPRZ: u8 = 0x40;
}

impl ModeHeader6 {
    /// It cannot be written.
    pub const WP: u8 = 0x80;
    /// DPO and FUA are there.
    pub const DPOFUA: u8 = 0x10;
}

impl OperationEntry {
    /// Time-outs follow.
    pub const CTDP: u8 = 0x02;
    /// It has a service action.
    pub const SERVACTV: u8 = 0x01;
}

impl TaskManagement {
    /// ABORT TASK.
    pub const ATS: u8 = 0x80;
    /// ABORT TASK SET.
    pub const ATSS: u8 = 0x40;
    /// LOGICAL UNIT RESET.
    pub const LURS: u8 = 0x08;
}

impl ReportedZone {
    /// [`ReportedZone::zone_type`] of a conventional zone.
    pub const CONVENTIONAL: u8 = 1;
    /// [`ReportedZone::zone_type`] of a zone that takes writes at its pointer only.
    pub const SEQUENTIAL: u8 = 2;
    /// [`ReportedZone::zone_type`] of addresses between zones, without medium.
    pub const GAP: u8 = 5;
}
