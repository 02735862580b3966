//! Command descriptors as they lie in memory. The disk looks at each field that stands here, or takes it for advice.
//!
//! What several descriptors say in different places has a value of its own in [`super::commands`].

use super::layout::cdb;

cdb! {
    /// TEST UNIT READY (SPC 6.47).
    TestUnitReady(0x00)[6] {}
}

cdb! {
    /// REQUEST SENSE (SPC 6.39).
    RequestSense(0x03)[6] {
        /// Whether in descriptor format.
        is_descriptor: bool = 1[0],
        /// Bytes that the initiator takes.
        len: u8 = 4,
    }
}

cdb! {
    /// INQUIRY (SPC 6.6).
    Inquiry(0x12)[6] {
        /// Whether for a page of vital product data.
        is_vpd: bool = 1[0],
        /// The page.
        page: u8 = 2,
        /// Bytes that the initiator takes.
        len: u16 = 3,
    }
}

cdb! {
    /// MODE SELECT(6) (SPC 6.11).
    ModeSelect6(0x15)[6] {
        /// Whether pages have the standard's format.
        is_page_format: bool = 1[4],
        /// Whether to keep the values.
        is_saving: bool = 1[0],
        /// Bytes of the parameter list.
        len: u8 = 4,
    }
}

cdb! {
    /// MODE SELECT(10) (SPC 6.12).
    ModeSelect10(0x55)[10] {
        /// Whether pages have the standard's format.
        is_page_format: bool = 1[4],
        /// Whether to keep the values.
        is_saving: bool = 1[0],
        /// Bytes of the parameter list.
        len: u16 = 7,
    }
}

cdb! {
    /// MODE SENSE(6) (SPC 6.13).
    ModeSense6(0x1A)[6] {
        /// Whether without block descriptors.
        has_no_descriptor: bool = 1[3],
        /// Which values.
        control: u8 = 2[7:6],
        /// The page.
        page: u8 = 2[5:0],
        /// Its subpage.
        subpage: u8 = 3,
        /// Bytes that the initiator takes.
        len: u8 = 4,
    }
}

cdb! {
    /// MODE SENSE(10) (SPC 6.14).
    ModeSense10(0x5A)[10] {
        /// Whether the initiator takes long block descriptors.
        is_long: bool = 1[4],
        /// Whether without block descriptors.
        has_no_descriptor: bool = 1[3],
        /// Which values.
        control: u8 = 2[7:6],
        /// The page.
        page: u8 = 2[5:0],
        /// Its subpage.
        subpage: u8 = 3,
        /// Bytes that the initiator takes.
        len: u16 = 7,
    }
}

cdb! {
    /// START STOP UNIT (SBC 5.31).
    StartStopUnit(0x1B)[6] {
        /// Whether to answer at once.
        is_immediate: bool = 1[0],
        /// Whether not to flush.
        has_no_flush: bool = 4[2],
        /// Whether to start.
        is_start: bool = 4[0],
    }
}

cdb! {
    /// PREVENT ALLOW MEDIUM REMOVAL (SBC 5.15).
    PreventAllowMediumRemoval(0x1E)[6] {
        /// Bit 0: prevent.
        prevent: u8 = 4[1:0],
    }
}

cdb! {
    /// READ CAPACITY(10) (SBC 5.20).
    ReadCapacity10(0x25)[10] {}
}

cdb! {
    /// READ CAPACITY(16) (SBC 5.21).
    ReadCapacity16(0x9E, 0x10)[16] {
        /// Bytes that the initiator takes.
        len: u32 = 10,
    }
}

cdb! {
    /// READ(10) (SBC 5.16).
    Read10(0x28)[10] {
        /// Whether the data are not to be kept in a cache: advice.
        dpo: bool = 1[4],
        /// Whether from the medium.
        fua: bool = 1[3],
        /// Whether errors of the medium may be told early: advice.
        rarc: bool = 1[2],
        /// First block.
        lba: u32 = 2,
        /// A group for statistics, which are not kept.
        group: u8 = 6[4:0],
        /// Blocks.
        blocks: u16 = 7,
    }
}

cdb! {
    /// READ(12) (SBC 5.17).
    Read12(0xA8)[12] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// Whether from the medium.
        fua: bool = 1[3],
        /// See [`Read10::rarc`].
        rarc: bool = 1[2],
        /// First block.
        lba: u32 = 2,
        /// Blocks.
        blocks: u32 = 6,
        /// See [`Read10::group`].
        group: u8 = 10[4:0],
    }
}

cdb! {
    /// READ(16) (SBC 5.18).
    Read16(0x88)[16] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// Whether from the medium.
        fua: bool = 1[3],
        /// See [`Read10::rarc`].
        rarc: bool = 1[2],
        /// First block.
        lba: u64 = 2,
        /// Blocks.
        blocks: u32 = 10,
        /// See [`Read10::group`].
        group: u8 = 14[5:0],
    }
}

cdb! {
    /// WRITE(10) (SBC 5.41).
    Write10(0x2A)[10] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// Whether durable before the answer.
        fua: bool = 1[3],
        /// First block.
        lba: u32 = 2,
        /// See [`Read10::group`].
        group: u8 = 6[4:0],
        /// Blocks.
        blocks: u16 = 7,
    }
}

cdb! {
    /// WRITE(12) (SBC 5.42).
    Write12(0xAA)[12] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// Whether durable before the answer.
        fua: bool = 1[3],
        /// First block.
        lba: u32 = 2,
        /// Blocks.
        blocks: u32 = 6,
        /// See [`Read10::group`].
        group: u8 = 10[4:0],
    }
}

cdb! {
    /// WRITE(16) (SBC 5.43).
    Write16(0x8A)[16] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// Whether durable before the answer.
        fua: bool = 1[3],
        /// First block.
        lba: u64 = 2,
        /// Blocks.
        blocks: u32 = 10,
        /// See [`Read10::group`].
        group: u8 = 14[5:0],
    }
}

cdb! {
    /// VERIFY(10) (SBC 5.36).
    Verify10(0x2F)[10] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// What to compare with.
        byte_check: u8 = 1[2:1],
        /// First block.
        lba: u32 = 2,
        /// See [`Read10::group`].
        group: u8 = 6[4:0],
        /// Blocks.
        blocks: u16 = 7,
    }
}

cdb! {
    /// VERIFY(12) (SBC 5.37).
    Verify12(0xAF)[12] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// What to compare with.
        byte_check: u8 = 1[2:1],
        /// First block.
        lba: u32 = 2,
        /// Blocks.
        blocks: u32 = 6,
        /// See [`Read10::group`].
        group: u8 = 10[4:0],
    }
}

cdb! {
    /// VERIFY(16) (SBC 5.38).
    Verify16(0x8F)[16] {
        /// See [`Read10::dpo`].
        dpo: bool = 1[4],
        /// What to compare with.
        byte_check: u8 = 1[2:1],
        /// First block.
        lba: u64 = 2,
        /// Blocks.
        blocks: u32 = 10,
        /// See [`Read10::group`].
        group: u8 = 14[5:0],
    }
}

cdb! {
    /// SYNCHRONIZE CACHE(10) (SBC 5.33).
    SynchronizeCache10(0x35)[10] {
        /// Whether to answer at once.
        is_immediate: bool = 1[1],
        /// First block.
        lba: u32 = 2,
        /// See [`Read10::group`].
        group: u8 = 6[4:0],
        /// Blocks; zero: all after the first.
        blocks: u16 = 7,
    }
}

cdb! {
    /// SYNCHRONIZE CACHE(16) (SBC 5.34).
    SynchronizeCache16(0x91)[16] {
        /// Whether to answer at once.
        is_immediate: bool = 1[1],
        /// First block.
        lba: u64 = 2,
        /// Blocks; zero: all after the first.
        blocks: u32 = 10,
        /// See [`Read10::group`].
        group: u8 = 14[5:0],
    }
}

cdb! {
    /// WRITE SAME(10) (SBC 5.50).
    WriteSame10(0x41)[10] {
        /// Whether the blocks may be forgotten instead.
        is_unmap: bool = 1[3],
        /// First block.
        lba: u32 = 2,
        /// See [`Read10::group`].
        group: u8 = 6[4:0],
        /// Blocks.
        blocks: u16 = 7,
    }
}

cdb! {
    /// WRITE SAME(16) (SBC 5.51).
    WriteSame16(0x93)[16] {
        /// Whether the blocks may be forgotten instead.
        is_unmap: bool = 1[3],
        /// Whether zeroes, without data.
        has_no_data: bool = 1[0],
        /// First block.
        lba: u64 = 2,
        /// Blocks.
        blocks: u32 = 10,
        /// See [`Read10::group`].
        group: u8 = 14[5:0],
    }
}

cdb! {
    /// UNMAP (SBC 5.35).
    Unmap(0x42)[10] {
        /// See [`Read10::group`].
        group: u8 = 6[4:0],
        /// Bytes of the parameter list.
        len: u16 = 7,
    }
}

cdb! {
    /// LOG SENSE (SPC 6.8).
    LogSense(0x4D)[10] {
        /// Which values.
        control: u8 = 2[7:6],
        /// The page.
        page: u8 = 2[5:0],
        /// Its subpage.
        subpage: u8 = 3,
        /// First parameter wanted.
        first: u16 = 5,
        /// Bytes that the initiator takes.
        len: u16 = 7,
    }
}

cdb! {
    /// REPORT LUNS (SPC 6.33).
    ReportLuns(0xA0)[12] {
        /// Which units.
        select: u8 = 2,
        /// Bytes that the initiator takes.
        len: u32 = 6,
    }
}

cdb! {
    /// REPORT SUPPORTED OPERATION CODES (SPC 6.35).
    ReportOperations(0xA3, 0x0C)[12] {
        /// Whether with time-outs.
        has_timeouts: bool = 2[7],
        /// Which commands.
        options: u8 = 2[2:0],
        /// The operation code.
        opcode: u8 = 3,
        /// Its service action.
        action: u16 = 4,
        /// Bytes that the initiator takes.
        len: u32 = 6,
    }
}

cdb! {
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC 6.36).
    ReportTaskManagement(0xA3, 0x0D)[12] {
        /// Whether in the extended format.
        is_extended: bool = 2[7],
        /// Bytes that the initiator takes.
        len: u32 = 6,
    }
}

cdb! {
    /// REPORT ZONES (ZBC 5.10).
    ReportZones(0x95, 0x00)[16] {
        /// A block of the first zone.
        lba: u64 = 2,
        /// Bytes that the initiator takes.
        len: u32 = 10,
        /// Whether only the zones count that fit.
        is_partial: bool = 14[7],
        /// Which zones.
        option: u8 = 14[5:0],
    }
}

cdb! {
    /// CLOSE ZONE (ZBC 5.2).
    CloseZone(0x94, 0x01)[16] {
        /// First block of the zone.
        lba: u64 = 2,
        /// All zones that it concerns.
        is_all: bool = 14[0],
    }
}

cdb! {
    /// FINISH ZONE (ZBC 5.3).
    FinishZone(0x94, 0x02)[16] {
        /// First block of the zone.
        lba: u64 = 2,
        /// All zones that it concerns.
        is_all: bool = 14[0],
    }
}

cdb! {
    /// OPEN ZONE (ZBC 5.7).
    OpenZone(0x94, 0x03)[16] {
        /// First block of the zone.
        lba: u64 = 2,
        /// All zones that it concerns.
        is_all: bool = 14[0],
    }
}

cdb! {
    /// RESET WRITE POINTER (ZBC 5.11).
    ResetWritePointer(0x94, 0x04)[16] {
        /// First block of the zone.
        lba: u64 = 2,
        /// All zones that it concerns.
        is_all: bool = 14[0],
    }
}
