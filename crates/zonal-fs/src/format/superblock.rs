//! The superblock: the fixed parameters of a file system.

use super::{Uuid, VERSION, crc32c};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal_core::{Geometry, ZoneIndex};
use zonal_io::owner;

/// Size of a superblock on the drive: one block.
pub const SUPERBLOCK_BYTES: usize = crate::BLOCK_BYTES as usize;

const MAGIC: [u8; 8] = owner::ZONAL_MAGIC;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    uuid: Uuid,
    sectors: U64,
    zone_sectors: U64,
    capacity_sectors: U64,
    unit_blocks: U32,
    first_zone: U32,
    metadata: U32,
    flags: U32,
    reserved_blocks: U64,
    name: [u8; 64],
}

// `zonal_io::owner` reads the label without this crate.
const _: () = assert!(
    std::mem::offset_of!(Raw, name) == owner::ZONAL_LABEL.start && size_of::<Raw>() == owner::ZONAL_LABEL.end
);

/// Range of the checksum.
const CHECKSUM_AT: std::ops::Range<usize> = 12..16;

/// Flag: data has no checksums.
const UNSUMMED: u32 = 1;

/// Location of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metadata {
    /// In the conventional zones, after the superblock.
    Conventional,
    /// In a log in the first sequential zones.
    Logged,
    /// In a file beside the drive.
    Beside,
}

/// Fixed parameters of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the file system.
    pub uuid: Uuid,
    /// Size of the drive, in sectors.
    pub sectors: u64,
    /// Zone size, in sectors.
    pub zone_sectors: u64,
    /// Zone capacity, in sectors.
    pub capacity_sectors: u64,
    /// Size of the largest unit in blocks, header included.
    pub unit_blocks: u32,
    /// First zone for data. The zones below it are conventional or hold metadata.
    pub first_zone: u32,
    /// Location of the metadata.
    pub metadata: Metadata,
    /// True if data has checksums.
    pub is_summed: bool,
    /// Blocks that users never get, in addition to the reserve for garbage collection.
    pub reserved_blocks: u64,
    /// Label for people, up to 64 bytes.
    pub label: String,
}

/// Reason why a block is not a valid superblock.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum SuperblockError {
    /// No superblock was ever written here.
    #[error("no file system of Zonal on the drive")]
    Magic,
    /// Written by another version of the format.
    #[error("the file system has format version {version}, this program reads version {VERSION}{way_out}", version = .0, way_out = way_out(*.0))]
    Version(u32),
    /// Wrong checksum.
    #[error("the superblock is damaged")]
    Checksum,
    /// A field is out of range.
    #[error("invalid superblock: {0}")]
    Nonsense(&'static str),
}

/// Advice for the owner of a file system of another version.
fn way_out(version: u32) -> &'static str {
    match version {
        1 => "; copy its files out with `zonal get` of Zonal 0.1.0",
        2 => "; copy its files out with `zonal get` of the commit in CHANGELOG.md",
        _ => "",
    }
}

impl Superblock {
    /// Superblock for a drive of this geometry, with units of `unit_blocks` and data from
    /// `first_zone` on. It has checksums, no label, and no reserve.
    pub fn new(
        uuid: Uuid,
        geometry: &Geometry,
        unit_blocks: u32,
        metadata: Metadata,
        first_zone: u32,
    ) -> Superblock {
        Superblock {
            uuid,
            sectors: geometry.sectors().0,
            zone_sectors: geometry.size_of(ZoneIndex(0)).into(),
            capacity_sectors: geometry.zone_capacity().0,
            unit_blocks,
            first_zone,
            metadata,
            is_summed: true,
            reserved_blocks: 0,
            label: String::new(),
        }
    }

    /// Encodes the superblock as a block.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut name = [0; 64];
        let label = &self.label.as_bytes()[..self.label.len().min(name.len())];
        name[..label.len()].copy_from_slice(label);
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            uuid: self.uuid,
            sectors: self.sectors.into(),
            zone_sectors: self.zone_sectors.into(),
            capacity_sectors: self.capacity_sectors.into(),
            unit_blocks: self.unit_blocks.into(),
            first_zone: self.first_zone.into(),
            metadata: (self.metadata as u32).into(),
            flags: if self.is_summed { 0 } else { UNSUMMED }.into(),
            reserved_blocks: self.reserved_blocks.into(),
            name,
        };
        raw.checksum = crc32c(raw.as_bytes()).into();
        let mut block = [0; SUPERBLOCK_BYTES];
        block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        block
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// If the bytes are not a valid superblock.
    pub fn decode(block: &[u8]) -> Result<Superblock, SuperblockError> {
        let (raw, _) = Raw::read_from_prefix(block).map_err(|_| SuperblockError::Magic)?;
        if raw.magic != MAGIC {
            return Err(SuperblockError::Magic);
        }
        if raw.version.get() != VERSION {
            return Err(SuperblockError::Version(raw.version.get()));
        }
        if crc32c(Raw { checksum: 0.into(), ..raw }.as_bytes()) != raw.checksum.get() {
            return Err(SuperblockError::Checksum);
        }
        let metadata = match raw.metadata.get() {
            0 => Metadata::Conventional,
            1 => Metadata::Logged,
            2 => Metadata::Beside,
            _ => return Err(SuperblockError::Nonsense("unknown metadata location")),
        };
        let unit_blocks = raw.unit_blocks.get();
        if !(2..=super::DATA_BLOCKS_MAX + 1).contains(&unit_blocks) {
            return Err(SuperblockError::Nonsense("unit size out of range"));
        }
        let end = raw.name.iter().position(|&b| b == 0).unwrap_or(raw.name.len());
        let label = std::str::from_utf8(&raw.name[..end])
            .map_err(|_| SuperblockError::Nonsense("the label is not UTF-8"))?;
        let (sectors, zone_sectors) = (raw.sectors.get(), raw.zone_sectors.get());
        if zone_sectors == 0 || !(1..=zone_sectors).contains(&raw.capacity_sectors.get()) {
            return Err(SuperblockError::Nonsense("zone size or capacity out of range"));
        }
        if u64::from(raw.first_zone.get()) > sectors / zone_sectors {
            return Err(SuperblockError::Nonsense("first data zone beyond the drive"));
        }
        Ok(Superblock {
            uuid: raw.uuid,
            sectors: raw.sectors.get(),
            zone_sectors: raw.zone_sectors.get(),
            capacity_sectors: raw.capacity_sectors.get(),
            unit_blocks,
            first_zone: raw.first_zone.get(),
            metadata,
            is_summed: raw.flags.get() & UNSUMMED == 0,
            reserved_blocks: raw.reserved_blocks.get(),
            label: label.to_owned(),
        })
    }
}

/// For fuzzers: decodes any bytes as a superblock, ignoring the checksum. A superblock has to
/// survive encoding and decoding unchanged.
///
/// # Errors
/// As for [`Superblock::decode`].
///
/// # Panics
/// If a superblock changes: a bug.
pub fn fuzz_superblock(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
    let mut block = [0; SUPERBLOCK_BYTES];
    let bytes = &bytes[..bytes.len().min(SUPERBLOCK_BYTES)];
    block[..bytes.len()].copy_from_slice(bytes);
    block[CHECKSUM_AT].fill(0);
    let sum = crc32c(&block[..size_of::<Raw>()]);
    block[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
    let superblock = Superblock::decode(&block)?;
    assert_eq!(Superblock::decode(&superblock.encode()).as_ref(), Ok(&superblock), "encode and decode");
    Ok(superblock)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    pub(in crate::insides::format) fn superblock() -> Superblock {
        Superblock {
            uuid: [5; 16],
            sectors: 1 << 30,
            zone_sectors: 1 << 19,
            capacity_sectors: 1 << 19,
            unit_blocks: 256,
            first_zone: 4,
            metadata: Metadata::Logged,
            is_summed: true,
            reserved_blocks: 0,
            label: "archive".into(),
        }
    }

    #[test]
    fn superblock_round_trips() {
        assert_eq!(Superblock::decode(&superblock().encode()), Ok(superblock()));
    }

    #[test]
    fn invalid_superblocks_give_distinct_errors() {
        let change = |at: usize| {
            let mut block = superblock().encode();
            block[at] ^= 0x40;
            Superblock::decode(&block).unwrap_err()
        };
        assert_eq!(change(0), SuperblockError::Magic);
        assert!(matches!(change(8), SuperblockError::Version(_)));
        assert_eq!(change(40), SuperblockError::Checksum);
        for nonsense in [
            Superblock { unit_blocks: 1, ..superblock() },
            Superblock { zone_sectors: 0, ..superblock() },
            Superblock { capacity_sectors: (1 << 19) + 1, ..superblock() },
            Superblock { first_zone: 2049, ..superblock() },
        ] {
            assert!(matches!(Superblock::decode(&nonsense.encode()), Err(SuperblockError::Nonsense(_))));
        }
    }

    /// Random changes, as a short version of the fuzz target `superblock`.
    #[test]
    fn mutated_superblocks_are_rejected_or_round_trip() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut accepted = 0;
        for _ in 0..4000 {
            let mut bytes = superblock().encode();
            for _ in 0..random.random_range(1..5) {
                let at = random.random_range(0..size_of::<Raw>());
                bytes[at] = random.random();
            }
            accepted += u32::from(fuzz_superblock(&bytes).is_ok());
        }
        assert!((200..3800).contains(&accepted), "{accepted}");
    }
}
