//! The bytes of an image file: header and ledger pages, and nothing that does I/O.
//!
//! docs/IMAGE.md draws the file. Numbers are little endian. Two levels: raw structures that are a view over any bytes,
//! and values ([`Header`], [`Page`]) that are known to be valid. Parsing takes any bytes and never panics.

mod current;
mod page;

pub use current::{STAMP_BYTES, Stamp, StampState, current_state, current_word};
pub use page::{Page, PageError, Session, Slots, TAILS_MAX, Tail, initial_state, state_from_word};

use crate::identity::Identity;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::{Geometry, GeometryError, Personality, SECTOR_BYTES, Sector, Sectors};

/// First bytes of an image.
pub const MAGIC: [u8; 8] = *b"ZONALIMG";
/// Version of new images, and the newest this code reads.
pub const VERSION: u32 = 4;
/// Version of the images of Zonal 0.1.0, which are read as well: without identity, current states and tails. No release wrote versions 2
/// and 3.
const FIRST: u32 = 1;
/// Incompatible features this code knows: none yet. An image with any other is refused.
pub const INCOMPAT_KNOWN: u32 = 0;
/// Bytes of one copy of the header, of one ledger page, and of the tails beside it.
pub const PAGE_BYTES: usize = 4096;
/// Where the second copy of the header begins.
pub const HEADER_COPY_OFFSET: u64 = PAGE_BYTES as u64;
/// Where the ledger begins: two slots for the session page, then two for each page of zones.
pub const LEDGER_OFFSET: u64 = 2 * PAGE_BYTES as u64;
/// The data area begins at a multiple of this: a large extent, and a huge page of a memory file system divides it.
pub const DATA_ALIGN: u64 = 1 << 20;
/// Zones that one ledger page describes.
pub const ZONES_PER_PAGE: usize = 508;
/// Most zones of an image: bounds what opening one reads (541 MB of ledger) and keeps (two words a zone, 270 MB). 4 EiB in zones of 256 MiB.
pub const ZONES_MAX: u32 = 1 << 24;
/// Longest profile name, in bytes.
pub const PROFILE_NAME_MAX: usize = 32;
/// Largest logical block, in sectors (64 KiB).
pub const BLOCK_SECTORS_MAX: u32 = 128;

/// Bytes of the header that its checksum covers.
const HEADER_BYTES: usize = 512;

/// Header as it lies on disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    incompat: U32,
    compat: U32,
    creation: [u8; 16],
    sectors: U64,
    zone_size: U64,
    zone_capacity: U64,
    conventional: U32,
    open_max: U32,
    active_max: U32,
    block_sectors: U32,
    append_sectors_max: U32,
    personality: u8,
    rotational: u8,
    reserved: [u8; 2],
    ledger_offset: U64,
    data_offset: U64,
    profile: [u8; PROFILE_NAME_MAX],
    identity: [u8; 16],
    rest: [u8; 360],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, crc) == 12);
const _: () = assert!(std::mem::offset_of!(RawHeader, creation) == 24);
const _: () = assert!(std::mem::offset_of!(RawHeader, sectors) == 40);
const _: () = assert!(std::mem::offset_of!(RawHeader, conventional) == 64);
const _: () = assert!(std::mem::offset_of!(RawHeader, personality) == 84);
const _: () = assert!(std::mem::offset_of!(RawHeader, ledger_offset) == 88);
const _: () = assert!(std::mem::offset_of!(RawHeader, profile) == 104);
const _: () = assert!(std::mem::offset_of!(RawHeader, identity) == 136);

const _: () = assert!(LEDGER_OFFSET.is_multiple_of(PAGE_BYTES as u64));

/// Why bytes are not the header of an image.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Shorter than the two copies of a header.
    #[error("not an image: {0} bytes are too few for a header")]
    Short(u64),
    /// Neither copy begins with the magic.
    #[error("not an image: the file does not begin with \"ZONALIMG\"")]
    Foreign,
    /// Written by a later version.
    #[error("the image has format version {0}; this program reads versions {FIRST} and {VERSION}")]
    Newer(u32),
    /// Written between two releases.
    #[error(
        "the image has format version {0}, which was never released; read it with the program that wrote it, and copy its data to a \
         new image"
    )]
    Unreleased(u32),
    /// No version has this number.
    #[error("damaged header: format version 0")]
    VersionZero,
    /// Needs features that this code does not know.
    #[error("the image needs features that this program does not know (bits {0:#x})")]
    UnknownFeatures(u32),
    /// The checksum of neither copy is right.
    #[error("damaged header: checksum {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// Checksum stored.
        found: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// A field has a value that no version writes.
    #[error("damaged header: {field} is {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The geometry is impossible.
    #[error("damaged header: {0}")]
    Geometry(#[from] GeometryError),
    /// Both copies are sound and say different things.
    #[error("damaged header: its two copies differ")]
    CopiesDiffer,
}

/// What an image is: fixed when it is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Random number of this image, so that a page of another image is recognised.
    pub creation: [u8; 16],
    /// How its sectors divide into zones.
    pub geometry: Geometry,
    /// Largest number of open zones; 0 is no limit.
    pub open_max: u32,
    /// Largest number of active zones; 0 is no limit.
    pub active_max: u32,
    /// Logical block, in sectors.
    pub block_sectors: u32,
    /// Largest native zone append, in sectors; 0: none.
    pub append_sectors_max: u32,
    /// Which standard decides where ZNS and ZBC differ.
    pub personality: Personality,
    /// Whether the drive it stands for turns.
    pub rotational: bool,
    /// Name of the profile it was created from; empty if none.
    pub profile: String,
    /// What it keeps for life, under whatever name; none in images of version 1.
    pub identity: Option<Identity>,
    /// Format version of the file.
    pub version: u32,
}

impl Header {
    /// Reads the two copies from the file's first [`LEDGER_OFFSET`] bytes.
    ///
    /// One sound copy is enough; two sound ones have to agree.
    ///
    /// # Errors
    /// What is wrong with the first copy, if neither is sound.
    pub fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        let copy = |at: u64| bytes.get(at as usize..).unwrap_or(&[]);
        match (Header::parse_copy(copy(0)), Header::parse_copy(copy(HEADER_COPY_OFFSET))) {
            (Ok(a), Ok(b)) if a == b => Ok(a),
            (Ok(_), Ok(_)) => Err(HeaderError::CopiesDiffer),
            (Ok(h), Err(_)) | (Err(_), Ok(h)) => Ok(h),
            // A file whose second copy alone shows the magic is a damaged image, not a foreign file.
            (Err(HeaderError::Foreign), Err(e)) | (Err(e), Err(_)) => Err(e),
        }
    }

    fn parse_copy(bytes: &[u8]) -> Result<Header, HeaderError> {
        let (raw, _) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| HeaderError::Short(bytes.len() as u64))?;
        if raw.magic != MAGIC {
            return Err(HeaderError::Foreign);
        }
        // The version comes before the checksum: a later version may compute that differently.
        match raw.version.get() {
            0 => return Err(HeaderError::VersionZero),
            FIRST | VERSION => {}
            version @ 2..VERSION => return Err(HeaderError::Unreleased(version)),
            newer => return Err(HeaderError::Newer(newer)),
        }
        let (found, computed) = (raw.crc.get(), raw.checksum());
        if found != computed {
            return Err(HeaderError::Checksum { found, computed });
        }
        let unknown = raw.incompat.get() & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(HeaderError::UnknownFeatures(unknown));
        }
        raw.to_header()
    }

    /// The bytes from the file's start to [`LEDGER_OFFSET`]: both copies.
    pub fn emit(&self) -> Vec<u8> {
        let mut profile = [0; PROFILE_NAME_MAX];
        let name = &self.profile.as_bytes()[..self.profile.len().min(PROFILE_NAME_MAX)];
        profile[..name.len()].copy_from_slice(name);
        let mut raw = RawHeader {
            magic: MAGIC,
            version: self.version.into(),
            crc: 0.into(),
            incompat: 0.into(),
            compat: 0.into(),
            creation: self.creation,
            sectors: self.geometry.sectors().0.into(),
            zone_size: self.geometry.zone_size().0.into(),
            zone_capacity: self.geometry.zone_capacity().0.into(),
            conventional: self.geometry.conventional_zones().into(),
            open_max: self.open_max.into(),
            active_max: self.active_max.into(),
            block_sectors: self.block_sectors.into(),
            append_sectors_max: self.append_sectors_max.into(),
            personality: match self.personality {
                Personality::Zns => 0,
                Personality::Zbc => 1,
            },
            rotational: self.rotational.into(),
            reserved: [0; 2],
            ledger_offset: LEDGER_OFFSET.into(),
            data_offset: self.layout().data_offset.into(),
            profile,
            identity: self.identity.map_or([0; 16], Identity::bytes),
            rest: [0; 360],
        };
        raw.crc = raw.checksum().into();
        let mut bytes = vec![0; LEDGER_OFFSET as usize];
        for at in [0, HEADER_COPY_OFFSET as usize] {
            bytes[at..at + HEADER_BYTES].copy_from_slice(raw.as_bytes());
        }
        bytes
    }

    /// Where things lie in this image's file.
    pub const fn layout(&self) -> Layout {
        Layout::of(&self.geometry, self.version)
    }

    /// True if the file has a place for the zones' current states; not in images of version 1.
    pub const fn has_current(&self) -> bool {
        self.version != FIRST
    }
}

impl RawHeader {
    fn checksum(&self) -> u32 {
        let mut copy = self.clone();
        copy.crc = 0.into();
        crc(copy.as_bytes())
    }

    fn to_header(&self) -> Result<Header, HeaderError> {
        let field = |field, value: u64| HeaderError::Field { field, value };
        let geometry = Geometry::new(
            Sectors(self.sectors.get()),
            Sectors(self.zone_size.get()),
            Sectors(self.zone_capacity.get()),
            self.conventional.get(),
        )?;
        if geometry.zones() > ZONES_MAX {
            return Err(field("the number of zones", geometry.zones().into()));
        }
        let block = self.block_sectors.get();
        if !is_block(&geometry, block) {
            return Err(field("the logical block, in sectors,", block.into()));
        }
        let (open_max, active_max) = geometry.limits(self.open_max.get(), self.active_max.get())?;
        let version = self.version.get();
        let layout = Layout::of(&geometry, version);
        if self.ledger_offset.get() != LEDGER_OFFSET {
            return Err(field("the ledger's offset", self.ledger_offset.get()));
        }
        if self.data_offset.get() != layout.data_offset || layout.file_len().is_none() {
            return Err(field("the data's offset", self.data_offset.get()));
        }
        let name = self.profile.split(|&b| b == 0).next().unwrap_or(&[]);
        Ok(Header {
            creation: self.creation,
            geometry,
            open_max,
            active_max,
            block_sectors: block,
            append_sectors_max: self.append_sectors_max.get(),
            personality: match self.personality {
                0 => Personality::Zns,
                1 => Personality::Zbc,
                n => return Err(field("the personality", n.into())),
            },
            rotational: match self.rotational {
                0 => false,
                1 => true,
                n => return Err(field("the rotational flag", n.into())),
            },
            profile: std::str::from_utf8(name)
                .map_err(|e| field("the profile name's first bad byte", e.valid_up_to() as u64))?
                .to_owned(),
            // Of version 1 these bytes are not a field.
            identity: if version == FIRST { None } else { Identity::from_bytes(self.identity) },
            version,
        })
    }
}

/// Whether `block` sectors can be the logical block of `geometry`.
pub(crate) fn is_block(geometry: &Geometry, block: u32) -> bool {
    block.is_power_of_two()
        && block <= BLOCK_SECTORS_MAX
        && [geometry.sectors(), geometry.zone_size(), geometry.zone_capacity()]
            .iter()
            .all(|n| n.0.is_multiple_of(block.into()))
}

/// Parses any bytes as the head of an image; for fuzzers. What parses has to survive emit and parse unchanged.
///
/// # Errors
/// As [`Header::parse`].
///
/// # Panics
/// If a header does not survive: a bug.
pub fn fuzz_header(bytes: &[u8]) -> Result<Header, HeaderError> {
    let header = Header::parse(bytes)?;
    assert_eq!(Header::parse(&header.emit()).as_ref(), Ok(&header), "emit and parse");
    Ok(header)
}

/// Where things lie in an image's file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Ledger pages that describe zones; the session page comes on top.
    pub zone_pages: u32,
    /// Where the current states begin: their stamp, then a word a zone. Where there are none, the data begins.
    pub current_offset: u64,
    /// Where the data begins. Sector s of the device lies at `data_offset + 512 s`.
    pub data_offset: u64,
    /// Bytes of one slot of the ledger.
    pub slot_bytes: usize,
    zones: u32,
    data_bytes: u64,
}

impl Layout {
    const fn of(geometry: &Geometry, version: u32) -> Layout {
        let zone_pages = geometry.zones().div_ceil(ZONES_PER_PAGE as u32);
        let is_first = version == FIRST;
        let slot_bytes = if is_first { PAGE_BYTES } else { 2 * PAGE_BYTES };
        let current_offset = LEDGER_OFFSET + (zone_pages as u64 + 1) * 2 * slot_bytes as u64;
        let current = if is_first { 0 } else { PAGE_BYTES as u64 + geometry.zones() as u64 * 8 };
        let end = current_offset + current;
        Layout {
            zone_pages,
            current_offset,
            data_offset: end.next_multiple_of(DATA_ALIGN),
            slot_bytes,
            zones: geometry.zones(),
            data_bytes: geometry.sectors().bytes(),
        }
    }

    /// True if a slot has room for tails; not in images of version 1.
    pub const fn has_tails(&self) -> bool {
        self.slot_bytes > PAGE_BYTES
    }

    /// Length of the file, or `None` beyond 2^63, where no file ends.
    pub const fn file_len(&self) -> Option<u64> {
        match self.data_offset.checked_add(self.data_bytes) {
            Some(n) if n <= i64::MAX as u64 => Some(n),
            _ => None,
        }
    }

    /// Where `side` of ledger page `index` begins.
    pub const fn slot(&self, index: u32, side: Side) -> u64 {
        LEDGER_OFFSET + (index as u64 * 2 + side as u64) * self.slot_bytes as u64
    }

    /// Where `sector` of the device lies.
    pub const fn data(&self, sector: Sector) -> u64 {
        self.data_offset + sector.0 * SECTOR_BYTES
    }
}

/// One of the two slots of a ledger page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Side {
    /// The first.
    A = 0,
    /// The second.
    B = 1,
}

impl Side {
    /// The other slot.
    pub const fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// CRC-32C.
fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests;
