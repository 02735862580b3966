//! The block before a database in a file or in conventional zones: whose it is, and how long. docs/FS.md draws it.

use super::Uuid;
use super::error::Damage;
use crate::BLOCK_BYTES;
use crate::format::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"zonal-db";
const VERSION: u32 = 1;

/// Checks what this block and the heads of a log have in common: magic, version, file system, and a checksum at the end.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(block: &[u8], magic: &[u8; 8], version: u32, uuid: &Uuid) -> Result<(), Damage> {
    let (body, crc) = block.split_last_chunk::<4>().ok_or(Damage::Missing("the block"))?;
    let (found, rest) = body.split_first_chunk::<8>().ok_or(Damage::Missing("the block"))?;
    let (found_version, rest) = rest.split_first_chunk::<4>().ok_or(Damage::Missing("the block"))?;
    if found != magic {
        return Err(Damage::Magic);
    }
    if u32::from_le_bytes(*crc) != crc32c(body) {
        return Err(Damage::Checksum);
    }
    match u32::from_le_bytes(*found_version) {
        found if found != version => Err(Damage::Version(found)),
        _ if rest.get(4..20) != Some(uuid) => Err(Damage::Uuid),
        _ => Ok(()),
    }
}

/// What stands in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose database it is.
    pub uuid: Uuid,
    /// Grows with every header that is written: of two, the higher counts.
    pub sequence: u64,
    /// Bytes of the database; in a file, 0: there the file's length says it.
    pub len: u64,
    /// Blocks of the range, headers included; in a file, 0.
    pub blocks: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    uuid: Uuid,
    sequence: U64,
    len: U64,
    blocks: U64,
    rest: [u8; BLOCK_BYTES as usize - 60],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES as usize);

impl Header {
    /// Its block.
    pub fn emit(&self) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            reserved: 0.into(),
            uuid: self.uuid,
            sequence: self.sequence.into(),
            len: self.len.into(),
            blocks: self.blocks.into(),
            rest: [0; _],
            crc: 0.into(),
        };
        raw.crc = crc32c(&raw.as_bytes()[..BLOCK_BYTES as usize - 4]).into();
        raw.as_bytes().to_vec()
    }

    /// The header in `block`, of the file system `uuid`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(block: &[u8], uuid: &Uuid) -> Result<Header, Damage> {
        let (raw, _) = Raw::ref_from_prefix(block).map_err(|_| Damage::Missing("the header"))?;
        check(raw.as_bytes(), &MAGIC, VERSION, uuid)?;
        Ok(Header {
            uuid: raw.uuid,
            sequence: raw.sequence.get(),
            len: raw.len.get(),
            blocks: raw.blocks.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { uuid: [3; 16], sequence: 9, len: 77, blocks: 1000 };

    #[test]
    fn header_that_was_emitted_is_parsed() {
        assert_eq!(Header::parse(&HEADER.emit(), &HEADER.uuid), Ok(HEADER));
        assert_eq!(Header::parse(&HEADER.emit(), &[4; 16]), Err(Damage::Uuid));
    }

    #[test]
    fn header_with_any_byte_changed_is_refused() {
        let block = HEADER.emit();
        for at in 0..block.len() {
            let mut block = block.clone();
            block[at] ^= 0x10;
            assert!(Header::parse(&block, &HEADER.uuid).is_err(), "byte {at}");
        }
        assert!(Header::parse(&block[..100], &HEADER.uuid).is_err());
    }

    #[test]
    fn header_of_a_later_version_says_so() {
        let mut block = HEADER.emit();
        block[8] = 2;
        let crc = crc32c(&block[..BLOCK_BYTES as usize - 4]);
        block[BLOCK_BYTES as usize - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::parse(&block, &HEADER.uuid), Err(Damage::Version(2)));
    }
}
