//! Pages and lists that a disk returns or takes.

use super::layout::layout;

/// A text in a field of `N` bytes, filled with blanks; a longer one is cut.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    let len = text.len().min(N);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

layout! {
    /// Standard INQUIRY data (SPC 6.6.2).
    InquiryData[96] {
        /// 0: a unit is there. 3: none can be.
        qualifier: u8 = 0[7:5],
        /// 14h: a host-managed zoned disk. 1Fh: no unit.
        device_type: u8 = 0[4:0],
        /// 6: SPC-4.
        version: u8 = 2,
        /// Whether addresses of units have levels.
        is_hierarchical: bool = 3[4],
        /// 2.
        format: u8 = 3[3:0],
        /// Bytes after this one.
        additional_len: u8 = 4,
        /// Whether commands are queued.
        has_queue: bool = 7[1],
        /// Who made it, filled with blanks.
        vendor: [u8; 8] = 8,
        /// What it is, filled with blanks.
        product: [u8; 16] = 16,
        /// Its revision, filled with blanks.
        revision: [u8; 4] = 32,
        /// Standards that it follows: the first.
        standard_0: u16 = 58,
        /// The second.
        standard_1: u16 = 60,
        /// The third.
        standard_2: u16 = 62,
        /// The fourth.
        standard_3: u16 = 64,
    }
}

/// Numbers of pages of vital product data (SPC 7.8.1, SBC 6.6.1, ZBC 6.4.1).
pub mod vpd {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    pub const BLOCK_LIMITS: u8 = 0xB0;
    pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xB1;
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xB2;
    pub const ZONED_BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xB6;
}

layout! {
    /// Head of a page of vital product data (SPC 7.8.2).
    VpdHeader[4] {
        /// As in [`InquiryData::qualifier`].
        qualifier: u8 = 0[7:5],
        /// As in [`InquiryData::device_type`].
        device_type: u8 = 0[4:0],
        /// The page.
        page: u8 = 1,
        /// Bytes that follow.
        len: u16 = 2,
    }
}

layout! {
    /// Block limits, page B0h, after its head (SBC 6.6.4). Counts are in logical blocks; zero: no limit is told.
    BlockLimits[60] {
        /// Whether a WRITE SAME of zero blocks is refused.
        is_write_same_counted: bool = 0[0],
        /// Best multiple of a transfer.
        transfer_granularity: u16 = 2,
        /// Longest transfer.
        transfer_max: u32 = 4,
        /// Best transfer.
        transfer_best: u32 = 8,
        /// Most blocks of an UNMAP.
        unmap_blocks_max: u32 = 16,
        /// Most ranges of an UNMAP.
        unmap_ranges_max: u32 = 20,
        /// Best multiple of an UNMAP.
        unmap_granularity: u32 = 24,
        /// Most blocks of a WRITE SAME.
        write_same_max: u64 = 32,
    }
}

layout! {
    /// Block device characteristics, page B1h, after its head (SBC 6.6.2).
    BlockCharacteristics[60] {
        /// 1: does not rotate; otherwise rotations a minute.
        rotation: u16 = 0,
        /// Width of the drive; 0: is not told.
        form_factor: u8 = 3[3:0],
        /// Zero for a host-managed disk.
        zoned: u8 = 4[5:4],
    }
}

layout! {
    /// Logical block provisioning, page B2h, after its head (SBC 6.6.6).
    BlockProvisioning[4] {
        /// Whether UNMAP is there.
        has_unmap: bool = 1[7],
        /// Whether WRITE SAME(16) can unmap.
        has_write_same_16: bool = 1[6],
        /// Whether WRITE SAME(10) can unmap.
        has_write_same_10: bool = 1[5],
        /// 1: unmapped blocks read as zeroes.
        reads_zeroes: u8 = 1[4:2],
        /// 0: all blocks have their room. 2: thin.
        provisioning: u8 = 2[2:0],
    }
}

layout! {
    /// Zoned block device characteristics, page B6h, after its head (ZBC 6.4.3).
    ZonedCharacteristics[60] {
        /// Whether reads may reach beyond the write pointer, and over zones.
        has_free_reads: bool = 0[0],
        /// Best number of open zones of the preferred kind; all ones: is not told.
        preferred_open_best: u32 = 4,
        /// The same for zones not written in order.
        preferred_random_best: u32 = 8,
        /// Most open zones; all ones: no limit is told.
        open_max: u32 = 12,
        /// 1: zones have one length. 8: zones begin at multiples of `granularity`.
        alignment: u8 = 19[3:0],
        /// See [`ZonedCharacteristics::alignment`].
        granularity: u64 = 20,
    }
}

layout! {
    /// Answer of READ CAPACITY(10) (SBC 5.20.2).
    Capacity10[8] {
        /// The last block; all ones: it needs the longer command.
        last_lba: u32 = 0,
        /// Bytes of a block.
        block_len: u32 = 4,
    }
}

layout! {
    /// Answer of READ CAPACITY(16) (SBC 5.21.2, ZBC 5.9).
    Capacity16[32] {
        /// The last block.
        last_lba: u64 = 0,
        /// Bytes of a block.
        block_len: u32 = 8,
        /// 1: `last_lba` is that of the whole disk, not of its conventional zones.
        basis: u8 = 12[5:4],
        /// Logical blocks of a physical one, as a power of two.
        physical_exponent: u8 = 13[3:0],
        /// Whether blocks can be unmapped.
        is_provisioned: bool = 14[7],
        /// Whether unmapped blocks read as zeroes.
        reads_zeroes: bool = 14[6],
    }
}

layout! {
    /// The list of REPORT LUNS with one unit (SPC 6.33).
    LunList[16] {
        /// Bytes after the first eight.
        len: u32 = 0,
        /// The unit.
        lun: u64 = 8,
    }
}

layout! {
    /// Head of the values of MODE SENSE(6) and MODE SELECT(6) (SPC 7.5.5).
    ModeHeader6[4] {
        /// Bytes after this one; zero in MODE SELECT.
        len: u8 = 0,
        /// Zero.
        medium: u8 = 1,
        /// Whether it cannot be written.
        is_write_protected: bool = 2[7],
        /// Whether DPO and FUA are there.
        has_fua: bool = 2[4],
        /// Bytes of block descriptors.
        descriptors_len: u8 = 3,
    }
}

layout! {
    /// Head of the values of MODE SENSE(10) and MODE SELECT(10) (SPC 7.5.5).
    ModeHeader10[8] {
        /// Bytes after these two; zero in MODE SELECT.
        len: u16 = 0,
        /// Zero.
        medium: u8 = 2,
        /// Whether it cannot be written.
        is_write_protected: bool = 3[7],
        /// Whether DPO and FUA are there.
        has_fua: bool = 3[4],
        /// Whether block descriptors are long.
        is_long: bool = 4[0],
        /// Bytes of block descriptors.
        descriptors_len: u16 = 6,
    }
}

layout! {
    /// A short block descriptor (SBC 6.5.2.2).
    BlockDescriptor[8] {
        /// Blocks; all ones: more than fit.
        blocks: u32 = 0,
        /// Bytes of a block, big-endian.
        block_len: [u8; 3] = 5,
    }
}

layout! {
    /// A long block descriptor (SBC 6.5.2.3).
    LongBlockDescriptor[16] {
        /// Blocks.
        blocks: u64 = 0,
        /// Bytes of a block.
        block_len: u32 = 12,
    }
}

layout! {
    /// The mode page of the cache, 08h (SBC 6.5.5).
    CachingPage[20] {
        /// 08h.
        page: u8 = 0[5:0],
        /// Bytes that follow: 18.
        len: u8 = 1,
        /// Whether writes are acknowledged before they are durable.
        has_write_cache: bool = 2[2],
        /// Whether reads always come from the medium.
        has_no_read_cache: bool = 2[0],
    }
}

layout! {
    /// The control mode page, 0Ah (SPC 7.5.9).
    ControlPage[12] {
        /// 0Ah.
        page: u8 = 0[5:0],
        /// Bytes that follow: 10.
        len: u8 = 1,
        /// Whether sense data come in descriptor format.
        is_descriptor_sense: bool = 2[2],
        /// 1: commands may be carried out in any order.
        queue_modifier: u8 = 3[7:4],
        /// Whether the initiator has protected the disk.
        is_write_protected: bool = 4[3],
        /// Longest time of being busy, in 100 ms; all ones: no limit.
        busy_max: u16 = 8,
    }
}

layout! {
    /// Head of a log page (SPC 7.3.2).
    LogHeader[4] {
        /// The page.
        page: u8 = 0[5:0],
        /// Whether it has a subpage.
        has_subpage: bool = 0[6],
        /// The subpage.
        subpage: u8 = 1,
        /// Bytes that follow.
        len: u16 = 2,
    }
}

layout! {
    /// One of all commands (SPC 6.35.2).
    OperationEntry[8] {
        /// Operation code.
        opcode: u8 = 0,
        /// Service action.
        action: u16 = 2,
        /// Whether time-outs follow.
        has_timeouts: bool = 5[1],
        /// Whether it has a service action.
        has_action: bool = 5[0],
        /// Bytes of the descriptor.
        cdb_len: u16 = 6,
    }
}

layout! {
    /// Time-outs of a command (SPC 6.35.4); zero: not told.
    OperationTimeouts[12] {
        /// Bytes that follow: 10.
        len: u16 = 0,
        /// Seconds until an initiator asks what has become of it.
        nominal: u32 = 4,
        /// Seconds until an initiator gives it up.
        recommended: u32 = 8,
    }
}

layout! {
    /// Head of the answer for one command (SPC 6.35.3); the bits that it may have set follow.
    SupportedOperation[4] {
        /// Whether time-outs follow.
        has_timeouts: bool = 1[7],
        /// 1: it is not there. 3: it is as in the standard.
        support: u8 = 1[2:0],
        /// Bytes of the descriptor.
        cdb_len: u16 = 2,
    }
}

layout! {
    /// Task management functions (SPC 6.36).
    TaskManagement[4] {
        /// ABORT TASK.
        has_abort: bool = 0[7],
        /// ABORT TASK SET.
        has_abort_set: bool = 0[6],
        /// LOGICAL UNIT RESET.
        has_reset: bool = 0[3],
        /// Bytes that follow.
        len: u8 = 3,
    }
}

layout! {
    /// Head of the list of UNMAP (SBC 5.35.2).
    UnmapHeader[8] {
        /// Bytes after these two.
        len: u16 = 0,
        /// Bytes of the ranges.
        ranges_len: u16 = 2,
    }
}

layout! {
    /// A range of UNMAP (SBC 5.35.2).
    UnmapDescriptor[16] {
        /// First block.
        lba: u64 = 0,
        /// Blocks.
        blocks: u32 = 8,
    }
}

layout! {
    /// Head of a report of zones (ZBC 5.10.2).
    ReportHeader[64] {
        /// Bytes of all descriptors that match, or that fit.
        len: u32 = 0,
        /// 0: zones differ. 1: all have one type and length. 2: but for the last one's length. 3: one length, several types.
        same: u8 = 4[3:0],
        /// The disk's last block.
        last_lba: u64 = 8,
        /// Zones begin at multiples of this; zero: is not told.
        granularity: u64 = 16,
    }
}

layout! {
    /// A zone descriptor (ZBC 5.10.3). Addresses and lengths are in logical blocks.
    ReportedZone[64] {
        /// 1: conventional. 2: sequential write required. 5: a gap.
        zone_type: u8 = 0[3:0],
        /// As in `zonal_core::ZoneCondition`.
        condition: u8 = 1[7:4],
        /// Whether it was not written in order.
        is_non_sequential: bool = 1[1],
        /// Whether the disk would have it reset.
        wants_reset: bool = 1[0],
        /// Blocks.
        len: u64 = 8,
        /// First block.
        start: u64 = 16,
        /// Where the next write begins; all ones where that has no meaning.
        write_pointer: u64 = 24,
    }
}

impl ReportedZone {
    /// [`ReportedZone::zone_type`] of a conventional zone.
    pub const CONVENTIONAL: u8 = 1;
    /// [`ReportedZone::zone_type`] of a zone that takes writes at its pointer only.
    pub const SEQUENTIAL: u8 = 2;
    /// [`ReportedZone::zone_type`] of addresses between zones, without medium.
    pub const GAP: u8 = 5;
}
