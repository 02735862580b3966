//! Owner of the data on a drive: a file system or a partition table, recognized by its magic
//! number.
//!
//! Commands that overwrite or reset a drive call [`check`] first, and refuse the drive unless the
//! user confirms. [`check`] reads the documented locations of superblocks, a few blocks at the
//! beginning of the drive. It ignores data of unknown origin. A block that cannot be read may be a
//! superblock, so the drive is refused too, unless the block was never written: a drive may reject
//! reads above a write pointer.
//!
//! A Zonal file system without conventional zones moves its superblocks if the first zones fail.
//! Then the start of each written zone is read, in the same cases in which opening the file system
//! does so.

use crate::buffer::IoBuf;
use crate::device::{Device, DeviceInfo};
use crate::volume::{read_alone, report};
use std::fmt;
use zonal_core::{DeviceError, SECTOR_BYTES, Sector, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// First bytes of each copy of Zonal's superblock.
pub const ZONAL_MAGIC: [u8; 8] = *b"ZNLsuper";

/// Location of the zero-padded label in Zonal's superblock.
pub const ZONAL_LABEL: std::ops::Range<usize> = 80..144;

/// Block size of Zonal's file system, and the unit of reads in this module.
const BLOCK: usize = 4096;

/// Bytes at the beginning of the drive that may hold a superblock: Zonal's four copies in
/// conventional zones. All others except btrfs have theirs in the first two blocks.
const HEAD: usize = 4 * BLOCK;

/// Location of the primary btrfs superblock on a drive without zones.
const BTRFS_AT: u64 = 64 << 10;

/// Maximum number of written zones to search if the first two zones have other data. Each costs a
/// read.
const SEARCHED_MAX: usize = 4096;

/// Number of zones per report.
const REPORTED: u32 = 4096;

/// Owner of a drive's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A file system of Zonal.
    Zonal {
        /// Label, possibly empty.
        label: String,
    },
    /// Another file system, by its name.
    FileSystem(&'static str),
    /// A partition table, by its name.
    PartitionTable(&'static str),
    /// Data of unknown origin on a real drive.
    Data {
        /// Number of zones that are not empty.
        zones: u32,
    },
    /// Unknown, because a written block where a superblock may be cannot be read.
    Unreadable {
        /// First sector of the block.
        sector: Sector,
        /// Error of the read, or of the report of its zone.
        error: DeviceError,
    },
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Zonal { label } if label.is_empty() => f.write_str("a file system of Zonal"),
            Owner::Zonal { label } => write!(f, "the file system `{label}` of Zonal"),
            Owner::FileSystem(name) => write!(f, "a file system of {name}"),
            Owner::PartitionTable(name) => write!(f, "a partition table ({name})"),
            Owner::Data { zones: 1 } => f.write_str("data of unknown origin (1 zone is not empty)"),
            Owner::Data { zones } => write!(f, "data of unknown origin ({zones} zones are not empty)"),
            Owner::Unreadable { sector, error } => {
                write!(f, "data of unknown origin (sector {sector} cannot be read: {error})")
            }
        }
    }
}

/// Error of a drive that holds data of a known owner, or whose owner cannot be found out.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{device}{}: there is {owner} on it", label.as_ref().map(|label| format!(", {label}")).unwrap_or_default())]
pub struct Owned {
    /// Device name.
    pub device: String,
    /// Model and serial number of a real drive.
    pub label: Option<String>,
    /// The owner.
    pub owner: Owner,
}

/// Refuses a drive that holds data of a known owner, or whose owner cannot be found out, and a real
/// drive that holds any data. A device that is always empty when opened is not read.
///
/// # Errors
/// [`Owned`]; nothing was changed.
pub fn check(device: &dyn Device) -> Result<(), Owned> {
    if device.insight().begins_empty {
        return Ok(());
    }
    let DeviceInfo { name, label, .. } = device.info();
    // What is unknown on an emulated drive can be made again, on a real one it may be precious.
    let unknown = || label.as_ref().and_then(|_| written(device));
    match find(device).or_else(unknown) {
        Some(owner) => Err(Owned { device: name.clone(), label: label.clone(), owner }),
        None => Ok(()),
    }
}

/// Number of conventional zones whose first block is looked at for unknown data.
const CONVENTIONAL_MAX: u32 = 16;

/// Data of a drive, if any of its sequential zones is not empty, or one of the first conventional
/// zones does not begin with zeroes.
fn written(device: &dyn Device) -> Option<Owner> {
    let mut places = Places { device, unreadable: None };
    let is_written = |zone: &&ZoneDescriptor| {
        !matches!(zone.condition, ZoneCondition::NotWp | ZoneCondition::Empty | ZoneCondition::Offline)
    };
    let mut zones = places.reports().iter().filter(is_written).count() as u32;
    let geometry = device.info().geometry;
    for zone in (0..geometry.conventional_zones().min(CONVENTIONAL_MAX)).map(ZoneIndex) {
        let block = places.block(geometry.start_of(zone).bytes());
        zones += u32::from(block.iter().any(|byte| *byte != 0));
    }
    places.unreadable.or_else(|| (zones > 0).then_some(Owner::Data { zones }))
}

/// Owner of the data on a drive, if it is a known one, or cannot be found out.
pub fn find(device: &dyn Device) -> Option<Owner> {
    let mut places = Places { device, unreadable: None };
    let found = places.find();
    found.or(places.unreadable)
}

/// Places of superblocks on a drive.
struct Places<'d> {
    device: &'d dyn Device,
    /// First place that could not be read.
    unreadable: Option<Owner>,
}

impl Places<'_> {
    fn find(&mut self) -> Option<Owner> {
        let geometry = self.device.info().geometry;
        let mut head = Vec::with_capacity(HEAD);
        for at in (0..HEAD).step_by(BLOCK) {
            head.extend(self.block(at as u64));
        }
        if let Some(owner) = owner_of(&head) {
            return Some(owner);
        }
        if is_btrfs(&self.block(BTRFS_AT)) {
            return Some(Owner::FileSystem("btrfs"));
        }
        // Logged superblocks alternate between the first two zones.
        let second = geometry.start_of(ZoneIndex(1)).bytes();
        let second = (geometry.zones() > 1).then(|| self.block(second))?;
        match is_btrfs(&second) {
            true => Some(Owner::FileSystem("btrfs")),
            false => zonal(&second).or_else(|| self.moved()),
        }
    }

    /// Finds a Zonal file system with its superblocks outside the first two zones.
    fn moved(&mut self) -> Option<Owner> {
        let geometry = self.device.info().geometry;
        if geometry.conventional_zones() > 0 {
            return None;
        }
        let zones = self.reports();
        let is_written =
            |zone: &&ZoneDescriptor| !matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::Offline);
        let cannot_tell = |zone: &ZoneDescriptor| {
            matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::ReadOnly | ZoneCondition::Offline)
        };
        let written: Vec<_> = zones.iter().filter(is_written).collect();
        if !zones.iter().take(2).all(cannot_tell) && written.len() > SEARCHED_MAX {
            return None;
        }
        written.into_iter().find_map(|zone| zonal(&self.block(geometry.start_of(zone.zone).bytes())))
    }

    /// Descriptors of all zones, up to the first that the device does not report.
    fn reports(&mut self) -> Vec<ZoneDescriptor> {
        let geometry = self.device.info().geometry;
        let mut zones = Vec::new();
        while (zones.len() as u32) < geometry.zones() {
            let sector = geometry.start_of(ZoneIndex(zones.len() as u32));
            match report(self.device, sector, REPORTED) {
                Ok(some) if some.is_empty() => break,
                Ok(some) => zones.extend(some),
                Err(error) => {
                    self.unreadable.get_or_insert(Owner::Unreadable { sector, error });
                    break;
                }
            }
        }
        zones
    }

    /// Reads the block at byte `at`; zeroes if it cannot be read, which is noted if it may have data.
    fn block(&mut self, at: u64) -> Vec<u8> {
        let info = self.device.info();
        let sectors = info.block_sectors.max(BLOCK as u32 / SECTOR_BYTES as u32);
        let bytes = sectors * SECTOR_BYTES as u32;
        let skipped = (at % u64::from(bytes)) as usize;
        let sector = Sector((at - skipped as u64) / SECTOR_BYTES);
        if sector.0 + u64::from(sectors) <= info.geometry.sectors().0 {
            let (read, result) = read_alone(self.device, sector, IoBuf::zeroed(bytes));
            match result {
                Ok(()) => return read[skipped..][..BLOCK].to_vec(),
                Err(error) if self.is_written(sector) => {
                    self.unreadable.get_or_insert(Owner::Unreadable { sector, error });
                }
                Err(_) => {}
            }
        }
        vec![0; BLOCK]
    }

    /// True if the sector may have data.
    fn is_written(&self, sector: Sector) -> bool {
        let zones = report(self.device, sector, 1);
        let zone = zones.ok().and_then(|zones| zones.first().copied());
        zone.is_none_or(|zone| {
            !matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::Offline)
                && zone.write_pointer.is_none_or(|pointer| sector < pointer)
        })
    }
}

/// Owner of a drive that begins with `head`.
fn owner_of(head: &[u8]) -> Option<Owner> {
    let has = |at: usize, magic: &[u8]| head[at..].starts_with(magic);
    let others = [
        ("XFS", has(0, b"XFSB")),
        ("btrfs", is_btrfs(head)),
        // The two superblocks are 1 KiB into the first two blocks.
        ("F2FS", [1024, BLOCK + 1024].iter().any(|at| has(*at, &0xF2F5_2010_u32.to_le_bytes()))),
        ("zonefs", has(0, b"SFOZ")),
        ("ext4", is_ext(head)),
    ];
    let other = || others.iter().find(|(_, is_it)| *is_it).map(|(name, _)| Owner::FileSystem(name));
    // The GPT header is in the second logical block, of 512 or 4096 bytes, protected by an MBR.
    let table = || match [512, BLOCK].iter().any(|at| has(*at, b"EFI PART")) {
        true => Some(Owner::PartitionTable("GPT")),
        false => has_partition(head).then_some(Owner::PartitionTable("MBR")),
    };
    head.chunks_exact(BLOCK).find_map(zonal).or_else(other).or_else(table)
}

/// Returns the Zonal file system if `block` is a copy of its superblock. A superblock damaged
/// behind its magic number counts, because it can be repaired.
fn zonal(block: &[u8]) -> Option<Owner> {
    block.starts_with(&ZONAL_MAGIC).then(|| {
        let label = String::from_utf8_lossy(&block[ZONAL_LABEL]);
        Owner::Zonal { label: label.trim_end_matches('\0').to_owned() }
    })
}

/// True for a btrfs superblock: at its location on a drive without zones, or at the start of a
/// zone.
fn is_btrfs(block: &[u8]) -> bool {
    block[0x40..].starts_with(b"_BHRfS_M")
}

/// True for a superblock of ext2, ext3 or ext4. Its two-byte magic number may occur by chance, so
/// the block size and the revision have to be plausible too.
fn is_ext(head: &[u8]) -> bool {
    let superblock = &head[1024..2048];
    let number = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("four bytes"));
    superblock[0x38..].starts_with(&[0x53, 0xEF]) && number(0x18) <= 6 && number(0x4C) <= 1
}

/// True for an MBR with a partition. The boot sector of a file system has the same signature, but
/// other bytes in place of the entries.
fn has_partition(head: &[u8]) -> bool {
    let mut entries = head[446..510].chunks_exact(16);
    let is_entry = |entry: &[u8]| matches!(entry[0], 0 | 0x80);
    let is_used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    head[510..512] == [0x55, 0xAA] && entries.clone().all(is_entry) && entries.any(is_used)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte strings and their offsets.
    type Pieces<'a> = &'a [(usize, &'a [u8])];

    fn head_with(pieces: Pieces<'_>) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        for (at, bytes) in pieces {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    fn said(pieces: Pieces<'_>) -> Option<String> {
        owner_of(&head_with(pieces)).map(|owner| owner.to_string())
    }

    #[test]
    fn head_with_a_known_magic_number_has_an_owner() {
        let partition = [0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0];
        let signature = (510, &[0x55, 0xAA][..]);
        let cases: [(Pieces<'_>, Option<&str>); 13] = [
            (&[], None),
            (&[(0, b"ZNLsuper")], Some("a file system of Zonal")),
            (
                &[(3 * BLOCK, b"ZNLsuper"), (3 * BLOCK + 80, b"films")],
                Some("the file system `films` of Zonal"),
            ),
            (&[(0, b"XFSB")], Some("a file system of XFS")),
            (&[(0x40, b"_BHRfS_M")], Some("a file system of btrfs")),
            (&[(BLOCK + 1024, &[0x10, 0x20, 0xF5, 0xF2])], Some("a file system of F2FS")),
            (&[(0, b"SFOZ")], Some("a file system of zonefs")),
            (&[(0x438, &[0x53, 0xEF]), (0x418, &[2])], Some("a file system of ext4")),
            // Two bytes that match the magic number by chance.
            (&[(0x438, &[0x53, 0xEF]), (0x418, &[200])], None),
            (&[(512, b"EFI PART"), (446, &partition), signature], Some("a partition table (GPT)")),
            (&[(4096, b"EFI PART")], Some("a partition table (GPT)")),
            (&[(462, &partition), signature], Some("a partition table (MBR)")),
            // An MBR without a partition.
            (&[signature], None),
        ];
        for (pieces, expected) in cases {
            assert_eq!(said(pieces).as_deref(), expected, "{pieces:?}");
        }
        let boot_sector: Pieces<'_> = &[(440, &[0x6E; 70]), signature];
        assert_eq!(said(boot_sector), None);
    }
}
