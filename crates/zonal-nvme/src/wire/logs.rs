//! Log pages (Base 5.1.12, ZNS 4.1.4).

use super::layout::{Padded, ZeroEnded, layout};
use super::{Field, Page};

layout! {
    /// An entry of the error log (Base 5.1.12.1.2).
    ErrorEntry[64] {
        /// Errors up to this one; 0: no entry.
        count: u64 = 0,
        /// The queue, and the command's number there.
        sqid: u16 = 8,
        /// See `sqid`.
        cid: u16 = 10,
        /// The completion's status field.
        status: u16 = 12,
        /// The field to blame; all ones: none.
        location: u16 = 14,
        /// First logical block.
        lba: u64 = 16,
        /// The namespace.
        nsid: u32 = 24,
        /// The transport: 3 is TCP.
        transport: u8 = 29,
        /// The command set, and the opcode.
        csi: u8 = 30,
        /// See `csi`.
        opcode: u8 = 31,
        /// Version of the entry: 1 has opcode and command set.
        version: u8 = 63,
    }
}

layout! {
    /// SMART / Health Information (Base 5.1.12.1.3). Numbers of 128 bits have their lower halves here.
    HealthLog[512] {
        /// Critical warnings.
        critical: u8 = 0,
        /// Temperature in Kelvin.
        temperature: u16 = 1,
        /// Spare that is left, and of how little is warned, in percent.
        spare: u8 = 3,
        /// See `spare`.
        spare_min: u8 = 4,
        /// Life that is used, in percent.
        used: u8 = 5,
        /// Thousands of 512 bytes that were read, rounded up.
        units_read: u64 = 32,
        /// The same that were written.
        units_written: u64 = 48,
        /// Read commands.
        reads: u64 = 64,
        /// Write commands.
        writes: u64 = 80,
        /// Times that it was switched on.
        power_cycles: u64 = 112,
        /// Hours since.
        power_on_hours: u64 = 128,
        /// Errors of the medium.
        media_errors: u64 = 160,
        /// Entries that the error log has had.
        error_entries: u64 = 176,
    }
}

layout! {
    /// Firmware Slot Information (Base 5.1.12.1.4).
    FirmwareLog[512] {
        /// The slot in use.
        slot: u8 = 0,
        /// Revision in slot 1.
        revision: Padded<8> = 8,
    }
}

layout! {
    /// Head of the discovery log (Base 5.1.12.3.1).
    DiscoveryHeader[1024] {
        /// Changes of the log.
        generation: u64 = 0,
        /// Entries.
        records: u64 = 8,
        /// Version of the format: 0.
        format: u16 = 16,
    }
}

layout! {
    /// An entry of the discovery log (Base 5.1.12.3.1, TCP 3.1).
    DiscoveryEntry[1024] {
        /// 3: TCP.
        transport: u8 = 0,
        /// 1: IPv4, 2: IPv6.
        family: u8 = 1,
        /// 2: a subsystem, 3: the discovery subsystem itself.
        kind: u8 = 2,
        /// Flow control of queues can be left out (bit 2).
        requirements: u8 = 3,
        /// The port's number.
        port: u16 = 4,
        /// The controller; all ones: the subsystem makes one.
        cntlid: u16 = 6,
        /// Entries of the admin queue at most.
        admin_entries: u16 = 8,
        /// Flags.
        flags: u16 = 10,
        /// Port of TCP.
        service: Padded<32> = 32,
        /// The subsystem's name.
        subsystem: ZeroEnded<256> = 256,
        /// Address.
        address: Padded<256> = 512,
        /// Security of the connection: 0 is none.
        security: u8 = 768,
    }
}

/// Changed Zone List (ZNS 4.1.4.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangedZoneList {
    /// First blocks of at most [`ChangedZoneList::MAX`] zones.
    Zones(Vec<u64>),
    /// More than that.
    TooMany,
}

impl ChangedZoneList {
    /// Zones of a list at most.
    pub const MAX: usize = 511;

    /// Its page.
    ///
    /// # Panics
    /// If they are too many: a mistake of the caller.
    pub fn emit(&self) -> Page<4096> {
        let mut page = Page::default();
        match self {
            ChangedZoneList::TooMany => _ = page.u16(0, 0xFFFF),
            ChangedZoneList::Zones(zones) => {
                page.u16(0, zones.len() as u16);
                for (n, start) in zones.iter().enumerate() {
                    page.u64(8 + 8 * n, *start);
                }
            }
        }
        page
    }

    /// The list of a page of 4096 bytes. `None` for a number that no list has.
    pub fn parse(page: &[u8]) -> Option<ChangedZoneList> {
        let starts = page.get(8..4096)?.chunks_exact(8);
        match u16::take(&page[..2])? {
            0xFFFF => Some(ChangedZoneList::TooMany),
            count if usize::from(count) > ChangedZoneList::MAX => None,
            count => {
                starts.take(count.into()).map(u64::take).collect::<Option<_>>().map(ChangedZoneList::Zones)
            }
        }
    }
}
