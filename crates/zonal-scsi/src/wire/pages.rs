//! Pages and lists returned or accepted by a disk.
//!
//! Unless a field states otherwise, `len` is the number of bytes after it and `page` the page code.
#![allow(missing_docs, reason = "the names are the standard's")]

use super::layout::layouts;
use zerocopy::big_endian::{U16, U32, U64};

/// Text in a field of `N` bytes, padded with blanks. Longer text is truncated.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    let len = text.len().min(N);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// Vital product data page codes (SPC 7.8.1, SBC 6.6.1, ZBC 6.4.1).
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
        /// Peripheral qualifier in bits 7:5: 0, connected; 3, impossible. Device type in bits 4:0:
        /// 14h, host-managed zoned disk; 1Fh, none.
        peripheral: u8,
        reserved_1: u8,
        /// 6: SPC-4.
        version: u8,
        /// Bit 4: hierarchical unit addresses. Bits 3:0: 2.
        format: u8,
        len: u8,
        reserved_5: [u8; 2],
        /// Bit 1: command queuing.
        flags: u8,
        /// Padded with blanks, like the next two.
        vendor: [u8; 8],
        product: [u8; 16],
        revision: [u8; 4],
        reserved_36: [u8; 22],
        /// Version descriptors: supported standards.
        standards: [U16; 4],
        reserved_66: [u8; 30],
    }

    /// Header of a vital product data page (SPC 7.8.2). `peripheral` as in [`InquiryData`].
    VpdHeader[4] { peripheral: u8, page: u8, len: U16 }

    /// Block limits page B0h after its header (SBC 6.6.4). Counts are in logical blocks; zero: not
    /// reported.
    BlockLimits[60] {
        /// [`BlockLimits::WSNZ`].
        flags: u8,
        reserved_1: u8,
        /// Optimal transfer length granularity.
        transfer_granularity: U16,
        /// Maximum transfer length.
        transfer_max: U32,
        /// Optimal transfer length.
        transfer_best: U32,
        reserved_12: [u8; 4],
        unmap_blocks_max: U32,
        unmap_ranges_max: U32,
        /// Optimal unmap granularity.
        unmap_granularity: U32,
        reserved_28: [u8; 4],
        write_same_max: U64,
        reserved_40: [u8; 20],
    }

    /// Block device characteristics page B1h after its header (SBC 6.6.2).
    BlockCharacteristics[60] {
        /// 1: non-rotational; otherwise rotations per minute.
        rotation: U16,
        reserved_2: u8,
        /// Nominal form factor in bits 3:0; 0: not reported.
        form_factor: u8,
        /// Bits 5:4: zero for a host-managed disk.
        zoned: u8,
        reserved_5: [u8; 23],
        reserved_28: [u8; 32],
    }

    /// Logical block provisioning page B2h after its header (SBC 6.6.6).
    BlockProvisioning[4] {
        threshold: u8,
        /// Bits of [`BlockProvisioning`].
        flags: u8,
        /// Provisioning type in bits 2:0: 0, fully provisioned; 2, thin.
        provisioning: u8,
        reserved_3: u8,
    }

    /// Zoned block device characteristics page B6h after its header (ZBC 6.4.3). All ones: not
    /// reported.
    ZonedCharacteristics[60] {
        /// [`ZonedCharacteristics::URSWRZ`].
        flags: u8,
        reserved_1: [u8; 3],
        /// Optimal number of open sequential write preferred zones.
        preferred_open_best: U32,
        /// Optimal number of non-sequentially written sequential write preferred zones.
        preferred_random_best: U32,
        /// Maximum number of open zones.
        open_max: U32,
        reserved_16: [u8; 3],
        /// Zone alignment method in bits 3:0: 1, constant length; 8, starts at multiples of
        /// `granularity`.
        alignment: u8,
        granularity: U64,
        reserved_28: [u8; 32],
    }

    /// READ CAPACITY(10) data (SBC 5.20.2). `last_lba` is all ones if the 16-byte command is
    /// needed.
    Capacity10[8] { last_lba: U32, block_len: U32 }

    /// READ CAPACITY(16) data (SBC 5.21.2, ZBC 5.9).
    Capacity16[32] {
        last_lba: U64,
        block_len: U32,
        /// RC BASIS in bits 5:4: 1, `last_lba` is the end of the disk, not of its conventional
        /// zones.
        basis: u8,
        /// Bits 3:0: logical blocks per physical block, as a power of two.
        physical_exponent: u8,
        /// [`Capacity16::LBPME`] and [`Capacity16::LBPRZ`].
        flags: u8,
        reserved_15: [u8; 17],
    }

    /// REPORT LUNS data for one unit (SPC 6.33). `len` is the length of the list of units.
    LunList[16] { len: U32, reserved_4: [u8; 4], lun: U64 }

    /// Mode parameter header of MODE SENSE(6) and MODE SELECT(6) (SPC 7.5.5). `len` is zero in MODE
    /// SELECT.
    ModeHeader6[4] {
        len: u8,
        medium: u8,
        /// Bits of [`ModeHeader6`].
        flags: u8,
        descriptors_len: u8,
    }

    /// Mode parameter header of MODE SENSE(10) and MODE SELECT(10) (SPC 7.5.5).
    ModeHeader10[8] {
        len: U16,
        medium: u8,
        /// Bits of [`ModeHeader6`].
        flags: u8,
        /// Bit 0: long block descriptors.
        long: u8,
        reserved_5: u8,
        descriptors_len: U16,
    }

    /// Short block descriptor (SBC 6.5.2.2). `blocks` is all ones if the number does not fit.
    BlockDescriptor[8] { blocks: U32, reserved_4: u8, block_len: [u8; 3] }

    /// Long block descriptor (SBC 6.5.2.3).
    LongBlockDescriptor[16] { blocks: U64, reserved_8: [u8; 4], block_len: U32 }

    /// Caching mode page 08h (SBC 6.5.5).
    CachingPage[20] {
        page: u8,
        len: u8,
        /// Bit 2 (WCE): writes complete before they are durable. Bit 0 (RCD): reads bypass the
        /// cache.
        flags: u8,
        reserved_3: [u8; 17],
    }

    /// Control mode page 0Ah (SPC 7.5.9).
    ControlPage[12] {
        page: u8,
        len: u8,
        /// Bit 2: sense data in descriptor format.
        flags: u8,
        /// Queue algorithm modifier in bits 7:4: 1, unrestricted reordering.
        queue: u8,
        /// Bit 3: software write protect.
        protection: u8,
        reserved_5: [u8; 3],
        /// Busy timeout in units of 100 ms; all ones: no limit.
        busy_max: U16,
        reserved_10: [u8; 2],
    }

    /// Header of a log page (SPC 7.3.2). Bit 6 of `page`: subpage format.
    LogHeader[4] { page: u8, subpage: u8, len: U16 }

    /// Entry in the list of all commands (SPC 6.35.2).
    OperationEntry[8] {
        opcode: u8,
        reserved_1: u8,
        action: U16,
        reserved_4: u8,
        /// Bits of [`OperationEntry`].
        flags: u8,
        cdb_len: U16,
    }

    /// Command timeouts in seconds (SPC 6.35.4); zero: not reported.
    OperationTimeouts[12] { len: U16, reserved_2: [u8; 2], nominal: U32, recommended: U32 }

    /// Header of the report on one command (SPC 6.35.3), followed by the CDB usage data.
    SupportedOperation[4] {
        reserved: u8,
        /// Bit 7: timeouts follow. Bits 2:0: 1, not supported; 3, supported as in the standard.
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

    /// Header of the UNMAP parameter list (SBC 5.35.2). `ranges_len` is the length of the ranges in
    /// bytes.
    UnmapHeader[8] { len: U16, ranges_len: U16, reserved_4: [u8; 4] }

    /// Block descriptor of UNMAP (SBC 5.35.2).
    UnmapDescriptor[16] { lba: U64, blocks: U32, reserved_12: [u8; 4] }

    /// Header of a zone report (ZBC 5.10.2).
    ReportHeader[64] {
        /// Length of all matching descriptors in bytes, or in a partial report of those that fit.
        len: U32,
        /// 0: types and lengths differ. 1: all equal. 2: all equal except the last length. 3: equal
        /// lengths, different types.
        same: u8,
        reserved_5: [u8; 3],
        last_lba: U64,
        /// Granularity of zone starts; zero: not reported.
        granularity: U64,
        reserved_24: [U64; 5],
    }

    /// Zone descriptor (ZBC 5.10.3). Addresses and lengths are in logical blocks.
    ReportedZone[64] {
        /// 1: conventional. 2: sequential write required. 5: gap.
        zone_type: u8,
        /// Bits 7:4: as in `zonal_core::ZoneCondition`. Bit 1: non-sequential resources active. Bit
        /// 0: reset recommended.
        condition: u8,
        reserved_2: [u8; 6],
        len: U64,
        start: U64,
        /// Write pointer; all ones if undefined.
        write_pointer: U64,
        reserved_32: [u8; 32],
    }
}

impl BlockLimits {
    /// WRITE SAME of zero blocks is not supported.
    pub const WSNZ: u8 = 0x01;
}

impl BlockProvisioning {
    /// UNMAP is supported.
    pub const LBPU: u8 = 0x80;
    /// WRITE SAME(16) supports unmap.
    pub const LBPWS: u8 = 0x40;
    /// WRITE SAME(10) supports unmap.
    pub const LBPWS10: u8 = 0x20;
    /// Unmapped blocks read as zeroes.
    pub const LBPRZ: u8 = 0x04;
}

impl ZonedCharacteristics {
    /// Unrestricted reads: beyond the write pointer and across zones.
    pub const URSWRZ: u8 = 0x01;
}

impl Capacity16 {
    /// Blocks can be unmapped.
    pub const LBPME: u8 = 0x80;
    /// Unmapped blocks read as zeroes.
    pub const LBPRZ: u8 = 0x40;
}

impl ModeHeader6 {
    /// Write-protected.
    pub const WP: u8 = 0x80;
    /// DPO and FUA are supported.
    pub const DPOFUA: u8 = 0x10;
}

impl OperationEntry {
    /// Timeouts follow.
    pub const CTDP: u8 = 0x02;
    /// The service action is valid.
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
    /// [`ReportedZone::zone_type`] of a zone that accepts writes only at its write pointer.
    pub const SEQUENTIAL: u8 = 2;
    /// [`ReportedZone::zone_type`] of a gap between zones.
    pub const GAP: u8 = 5;
}
