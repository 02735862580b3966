//! Commands as values, independent of the length of their descriptor.
//!
//! Each is parsed from a descriptor by operation code and service action, and emitted in its
//! longest form, which every zoned disk supports.

use super::cdb::{CloseZone, Command, Read10, Read12, Read16, bits::*};
use super::{Cdb, cdb_of, fields_of, flag};

/// READ (SBC 5.16 to 5.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Force Unit Access: read from the medium.
    pub fua: bool,
}

/// WRITE (SBC 5.41 to 5.43).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Force Unit Access: durable before completion.
    pub fua: bool,
}

/// Kind of comparison by VERIFY (SBC 5.36).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteCheck {
    /// None: the medium only has to be readable.
    None,
    /// With data of the whole range.
    All,
    /// Of each block with a single block of data.
    Each,
}

/// VERIFY (SBC 5.36 to 5.38).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verify {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Kind of comparison; `None` for a reserved value in the descriptor.
    pub check: Option<ByteCheck>,
}

/// SYNCHRONIZE CACHE (SBC 5.33, 5.34).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynchronizeCache {
    /// First block.
    pub lba: u64,
    /// Number of blocks; zero means all from the first on.
    pub blocks: u32,
    /// True to complete at once.
    pub is_immediate: bool,
}

/// WRITE SAME (SBC 5.50, 5.51).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteSame {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// True if the blocks may be unmapped instead.
    pub is_unmap: bool,
    /// True if there is one block of data; otherwise zeroes are written.
    pub has_data: bool,
}

/// Zone action (ZBC 5.2, 5.3, 5.7, 5.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAction {
    /// CLOSE ZONE.
    Close = 1,
    /// FINISH ZONE.
    Finish = 2,
    /// OPEN ZONE.
    Open = 3,
    /// RESET WRITE POINTER.
    Reset = 4,
}

impl ZoneAction {
    /// All actions in order of service action.
    pub const ALL: [ZoneAction; 4] =
        [ZoneAction::Close, ZoneAction::Finish, ZoneAction::Open, ZoneAction::Reset];
}

/// ZONE OUT (ZBC 5.2, 5.3, 5.7, 5.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneOut {
    /// Action.
    pub action: ZoneAction,
    /// First block of the zone.
    pub lba: u64,
    /// True for all zones to which the action applies; `lba` is ignored.
    pub is_all: bool,
}

/// Flags, first block and number of blocks of a descriptor, if it has one of these operation codes.
fn range_of(cdb: &Cdb, codes: &[u8]) -> Option<(u8, u64, u32)> {
    if !codes.contains(&cdb[0]) {
        return None;
    }
    // The group of an operation code determines the length (SPC 4.2.5.1).
    Some(match cdb[0] >> 5 {
        4 => {
            let Read16 { flags, lba, blocks, .. } = fields_of(cdb)?;
            (flags, lba.get(), blocks.get())
        }
        5 => {
            let Read12 { flags, lba, blocks, .. } = fields_of(cdb)?;
            (flags, lba.get().into(), blocks.get())
        }
        _ => {
            let Read10 { flags, lba, blocks, .. } = fields_of(cdb)?;
            (flags, lba.get().into(), blocks.get().into())
        }
    })
}

/// Builds a descriptor of 16 bytes.
fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Cdb {
    let mut cdb = cdb_of(&Read16 { flags, lba: lba.into(), blocks: blocks.into(), group: 0 });
    cdb[0] = opcode;
    cdb
}

impl Read {
    /// Parses a descriptor; `None` for other commands.
    pub fn parse(cdb: &Cdb) -> Option<Read> {
        let (flags, lba, blocks) = range_of(cdb, &[0x28, 0xA8, 0x88])?;
        Some(Read { lba, blocks, fua: flags & FUA != 0 })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Cdb {
        sixteen(0x88, flag(FUA, self.fua), self.lba, self.blocks)
    }
}

impl Write {
    /// Parses a descriptor; `None` for other commands.
    pub fn parse(cdb: &Cdb) -> Option<Write> {
        let (flags, lba, blocks) = range_of(cdb, &[0x2A, 0xAA, 0x8A])?;
        Some(Write { lba, blocks, fua: flags & FUA != 0 })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Cdb {
        sixteen(0x8A, flag(FUA, self.fua), self.lba, self.blocks)
    }
}

impl Verify {
    /// Parses a descriptor; `None` for other commands.
    pub fn parse(cdb: &Cdb) -> Option<Verify> {
        let (flags, lba, blocks) = range_of(cdb, &[0x2F, 0xAF, 0x8F])?;
        let check = match (flags & BYTCHK) >> 1 {
            0 => Some(ByteCheck::None),
            1 => Some(ByteCheck::All),
            3 => Some(ByteCheck::Each),
            _ => None,
        };
        Some(Verify { lba, blocks, check })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Cdb {
        const RESERVED: u8 = 2;
        let check = match self.check {
            Some(ByteCheck::None) => 0,
            Some(ByteCheck::All) => 1,
            Some(ByteCheck::Each) => 3,
            None => RESERVED,
        };
        sixteen(0x8F, check << 1, self.lba, self.blocks)
    }
}

impl SynchronizeCache {
    /// Parses a descriptor; `None` for other commands.
    pub fn parse(cdb: &Cdb) -> Option<SynchronizeCache> {
        let (flags, lba, blocks) = range_of(cdb, &[0x35, 0x91])?;
        Some(SynchronizeCache { lba, blocks, is_immediate: flags & SYNC_IMMED != 0 })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Cdb {
        sixteen(0x91, flag(SYNC_IMMED, self.is_immediate), self.lba, self.blocks)
    }
}

impl WriteSame {
    /// Parses a descriptor; `None` for other commands.
    pub fn parse(cdb: &Cdb) -> Option<WriteSame> {
        let (flags, lba, blocks) = range_of(cdb, &[0x41, 0x93])?;
        // The 10-byte form always has data.
        let has_data = cdb[0] == 0x41 || flags & NDOB == 0;
        Some(WriteSame { lba, blocks, is_unmap: flags & UNMAP != 0, has_data })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Cdb {
        let flags = flag(UNMAP, self.is_unmap) | flag(NDOB, !self.has_data);
        sixteen(0x93, flags, self.lba, self.blocks)
    }
}

impl ZoneOut {
    /// Parses a descriptor; `None` for other commands.
    pub fn parse(cdb: &Cdb) -> Option<ZoneOut> {
        if cdb[0] != CloseZone::OPCODE {
            return None;
        }
        let action = ZoneAction::ALL.into_iter().find(|action| *action as u8 == cdb[1] & 0x1F)?;
        let CloseZone { lba, flags, .. } = fields_of(cdb)?;
        Some(ZoneOut { action, lba: lba.get(), is_all: flags & ALL != 0 })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Cdb {
        let flags = flag(ALL, self.is_all);
        let mut cdb = cdb_of(&CloseZone { lba: self.lba.into(), flags, ..CloseZone::default() });
        cdb[1] = self.action as u8;
        cdb
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cdb(bytes: &[u8]) -> Cdb {
        let mut cdb = [0; 32];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    #[test]
    fn forms_of_one_command_parse_to_one_value() {
        let expected = Read { lba: 0x0102_0304, blocks: 0x0506, fua: true };
        let ten = cdb(&[0x28, 0x08, 1, 2, 3, 4, 0, 5, 6, 0]);
        let twelve = cdb(&[0xA8, 0x08, 1, 2, 3, 4, 0, 0, 5, 6, 0, 0]);
        let sixteen = cdb(&[0x88, 0x08, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 0, 0]);
        assert_eq!([ten, twelve, sixteen].map(|cdb| Read::parse(&cdb)), [Some(expected); 3]);
        assert_eq!(Write::parse(&ten), None);
        assert_eq!(expected.emit(), sixteen);
    }

    #[test]
    fn zone_out_has_the_standards_bytes() {
        let out = ZoneOut { action: ZoneAction::Reset, lba: 0x0800, is_all: true };
        let bytes = cdb(&[0x94, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(out.emit(), bytes);
        assert_eq!(ZoneOut::parse(&bytes), Some(out));
        // SEQUENTIALIZE ZONE.
        assert_eq!(ZoneOut::parse(&cdb(&[0x94, 0x10])), None);
    }
}
