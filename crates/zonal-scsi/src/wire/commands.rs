//! What commands ask for, as values: one for all descriptors that say the same.
//!
//! Each is parsed from a descriptor with its operation code and service action. It is emitted in its longest form, which every
//! disk with zones has.

use super::cdb::{
    CloseZone, FinishZone, OpenZone, Read10, Read12, Read16, ResetWritePointer, SynchronizeCache10,
    SynchronizeCache16, Verify10, Verify12, Verify16, Write10, Write12, Write16, WriteSame10, WriteSame16,
};
use super::layout::CommandLayout;
use super::{Cdb, cdb_of};

/// READ (SBC 5.16 to 5.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
    /// Whether from the medium.
    pub fua: bool,
}

/// WRITE (SBC 5.41 to 5.43).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
    /// Whether durable before the answer.
    pub fua: bool,
}

/// What VERIFY compares the medium with (SBC 5.36).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteCheck {
    /// Nothing: it has to be readable.
    None,
    /// As many blocks of data.
    All,
    /// Each block with one block of data.
    Each,
}

/// VERIFY (SBC 5.36 to 5.38).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verify {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
    /// What to compare with; `None`: the descriptor has a reserved value.
    pub check: Option<ByteCheck>,
}

/// SYNCHRONIZE CACHE (SBC 5.33, 5.34).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynchronizeCache {
    /// First block.
    pub lba: u64,
    /// Blocks; zero: all after the first.
    pub blocks: u32,
    /// Whether to answer at once.
    pub is_immediate: bool,
}

/// WRITE SAME (SBC 5.50, 5.51).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteSame {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
    /// Whether the blocks may be forgotten instead.
    pub is_unmap: bool,
    /// Whether it has one block of data; otherwise zeroes are written.
    pub has_data: bool,
}

/// What is done to a zone (ZBC 5.2, 5.3, 5.7, 5.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAction {
    /// CLOSE ZONE.
    Close,
    /// FINISH ZONE.
    Finish,
    /// OPEN ZONE.
    Open,
    /// RESET WRITE POINTER.
    Reset,
}

impl ZoneAction {
    /// All of them, by their service actions.
    pub const ALL: [ZoneAction; 4] =
        [ZoneAction::Close, ZoneAction::Finish, ZoneAction::Open, ZoneAction::Reset];
}

/// ZONE OUT (ZBC 5.2, 5.3, 5.7, 5.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneOut {
    /// What to do.
    pub action: ZoneAction,
    /// First block of the zone.
    pub lba: u64,
    /// All zones that it concerns, whatever `lba` is.
    pub is_all: bool,
}

/// The descriptor as `T`, if it has its operation code and service action.
pub fn parse_as<T: CommandLayout>(cdb: &Cdb) -> Option<T> {
    let is_action = T::ACTION.is_none_or(|action| action == cdb[1] & 0x1F);
    (cdb[0] == T::OPCODE && is_action).then(|| T::parse(cdb)).flatten()
}

macro_rules! in_three_forms {
    ($value:ident, $ten:ident, $twelve:ident, $sixteen:ident) => {
        impl $value {
            /// What a descriptor asks for, if it is one of these.
            pub fn parse(cdb: &Cdb) -> Option<$value> {
                if let Some($ten { lba, blocks, fua, .. }) = parse_as(cdb) {
                    return Some($value { lba: lba.into(), blocks: blocks.into(), fua });
                }
                if let Some($twelve { lba, blocks, fua, .. }) = parse_as(cdb) {
                    return Some($value { lba: lba.into(), blocks, fua });
                }
                let $sixteen { lba, blocks, fua, .. } = parse_as(cdb)?;
                Some($value { lba, blocks, fua })
            }

            /// As a descriptor.
            pub fn emit(&self) -> Cdb {
                let $value { lba, blocks, fua } = *self;
                cdb_of(&$sixteen { lba, blocks, fua, ..$sixteen::default() })
            }
        }
    };
}

in_three_forms!(Read, Read10, Read12, Read16);
in_three_forms!(Write, Write10, Write12, Write16);

impl ByteCheck {
    const fn parse(bits: u8) -> Option<ByteCheck> {
        match bits {
            0 => Some(ByteCheck::None),
            1 => Some(ByteCheck::All),
            3 => Some(ByteCheck::Each),
            _ => None,
        }
    }
}

impl Verify {
    /// What a descriptor asks for, if it is one of these.
    pub fn parse(cdb: &Cdb) -> Option<Verify> {
        let value = |lba, blocks, bits| Some(Verify { lba, blocks, check: ByteCheck::parse(bits) });
        if let Some(Verify10 { lba, blocks, byte_check, .. }) = parse_as(cdb) {
            return value(lba.into(), blocks.into(), byte_check);
        }
        if let Some(Verify12 { lba, blocks, byte_check, .. }) = parse_as(cdb) {
            return value(lba.into(), blocks, byte_check);
        }
        let Verify16 { lba, blocks, byte_check, .. } = parse_as(cdb)?;
        value(lba, blocks, byte_check)
    }

    /// As a descriptor.
    pub fn emit(&self) -> Cdb {
        const RESERVED: u8 = 2;
        let byte_check = match self.check {
            Some(ByteCheck::None) => 0,
            Some(ByteCheck::All) => 1,
            Some(ByteCheck::Each) => 3,
            None => RESERVED,
        };
        cdb_of(&Verify16 { lba: self.lba, blocks: self.blocks, byte_check, ..Verify16::default() })
    }
}

impl SynchronizeCache {
    /// What a descriptor asks for, if it is one of these.
    pub fn parse(cdb: &Cdb) -> Option<SynchronizeCache> {
        if let Some(SynchronizeCache10 { lba, blocks, is_immediate, .. }) = parse_as(cdb) {
            return Some(SynchronizeCache { lba: lba.into(), blocks: blocks.into(), is_immediate });
        }
        let SynchronizeCache16 { lba, blocks, is_immediate, .. } = parse_as(cdb)?;
        Some(SynchronizeCache { lba, blocks, is_immediate })
    }

    /// As a descriptor.
    pub fn emit(&self) -> Cdb {
        let SynchronizeCache { lba, blocks, is_immediate } = *self;
        cdb_of(&SynchronizeCache16 { lba, blocks, is_immediate, ..SynchronizeCache16::default() })
    }
}

impl WriteSame {
    /// What a descriptor asks for, if it is one of these.
    pub fn parse(cdb: &Cdb) -> Option<WriteSame> {
        if let Some(WriteSame10 { lba, blocks, is_unmap, .. }) = parse_as(cdb) {
            return Some(WriteSame { lba: lba.into(), blocks: blocks.into(), is_unmap, has_data: true });
        }
        let WriteSame16 { lba, blocks, is_unmap, has_no_data, .. } = parse_as(cdb)?;
        Some(WriteSame { lba, blocks, is_unmap, has_data: !has_no_data })
    }

    /// As a descriptor.
    pub fn emit(&self) -> Cdb {
        let WriteSame { lba, blocks, is_unmap, has_data } = *self;
        cdb_of(&WriteSame16 { lba, blocks, is_unmap, has_no_data: !has_data, ..WriteSame16::default() })
    }
}

impl ZoneOut {
    /// What a descriptor asks for, if it is one of these.
    pub fn parse(cdb: &Cdb) -> Option<ZoneOut> {
        if let Some(CloseZone { lba, is_all }) = parse_as(cdb) {
            return Some(ZoneOut { action: ZoneAction::Close, lba, is_all });
        }
        if let Some(FinishZone { lba, is_all }) = parse_as(cdb) {
            return Some(ZoneOut { action: ZoneAction::Finish, lba, is_all });
        }
        if let Some(OpenZone { lba, is_all }) = parse_as(cdb) {
            return Some(ZoneOut { action: ZoneAction::Open, lba, is_all });
        }
        let ResetWritePointer { lba, is_all } = parse_as(cdb)?;
        Some(ZoneOut { action: ZoneAction::Reset, lba, is_all })
    }

    /// As a descriptor.
    pub fn emit(&self) -> Cdb {
        let ZoneOut { action, lba, is_all } = *self;
        match action {
            ZoneAction::Close => cdb_of(&CloseZone { lba, is_all }),
            ZoneAction::Finish => cdb_of(&FinishZone { lba, is_all }),
            ZoneAction::Open => cdb_of(&OpenZone { lba, is_all }),
            ZoneAction::Reset => cdb_of(&ResetWritePointer { lba, is_all }),
        }
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
