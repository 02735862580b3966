//! Byte format of an image file: header and ledger pages, without I/O.
//!
//! docs/IMAGE.md draws the file. Numbers are little endian. There are two levels: raw structures,
//! which are views of arbitrary bytes, and values ([`Header`], [`Page`]), which are valid. Parsing
//! accepts arbitrary bytes and never panics.

mod current;
mod page;
mod part;

pub use current::{STAMP_BYTES, Stamp, StampState, current_state, current_word};
pub use page::{
    Page, PageError, Session, Slots, TAILS_MAX, Tail, bad_blocks, initial_state, session_words,
    state_from_word,
};
pub use part::{
    FILES_MAX, PART_DATA_OFFSET, PART_HEAD_BYTES, PART_MAGIC, PartError, PartHead, Placed, Split,
};

use crate::identity::Identity;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::{Geometry, GeometryError, Personality, SECTOR_BYTES, Sector, Sectors};

/// First bytes of an image.
pub const MAGIC: [u8; 8] = *b"ZONALIMG";
/// Version of new images, and the newest supported.
pub const VERSION: u32 = 4;
/// Version of the images of Zonal 0.1.0, also supported: without identity, current states and
/// tails. Versions 2 and 3 were never released.
const FIRST: u32 = 1;
/// Incompatible feature: the data is in several files.
pub const INCOMPAT_SPLIT: u32 = 1;
/// Known incompatible features. Images with any other are refused.
pub const INCOMPAT_KNOWN: u32 = INCOMPAT_SPLIT;
/// Size of one copy of the header, of a ledger page, and of the tails beside it.
pub const PAGE_BYTES: usize = 4096;
/// Offset of the second copy of the header.
pub const HEADER_COPY_OFFSET: u64 = PAGE_BYTES as u64;
/// Offset of the ledger: two slots for the session page, then two for each page of zones.
pub const LEDGER_OFFSET: u64 = 2 * PAGE_BYTES as u64;
/// Alignment of the data area, a multiple of large extents and of the huge pages of a memory file
/// system.
pub const DATA_ALIGN: u64 = 1 << 20;
/// Zones per ledger page.
pub const ZONES_PER_PAGE: usize = 508;
/// Maximum number of zones of an image: bounds the data read when opening one (541 MB of ledger)
/// and the memory used (two words per zone, 270 MB). 4 EiB in zones of 256 MiB.
pub const ZONES_MAX: u32 = 1 << 24;
/// Maximum length of a profile name in bytes.
pub const PROFILE_NAME_MAX: usize = 32;
/// Largest logical block in sectors (64 KiB).
pub const BLOCK_SECTORS_MAX: u32 = 128;

/// Number of header bytes covered by its checksum.
const HEADER_BYTES: usize = 512;

/// Header in its format on disk.
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
    zones_per_file: U32,
    rest: [u8; 356],
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
const _: () = assert!(std::mem::offset_of!(RawHeader, zones_per_file) == 152);

const _: () = assert!(LEDGER_OFFSET.is_multiple_of(PAGE_BYTES as u64));

/// Error of parsing a header.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file is shorter than two copies of a header.
    #[error("not an image: {0} bytes are too few for a header")]
    Short(u64),
    /// Neither copy begins with the magic number.
    #[error("not an image: the file does not begin with \"ZONALIMG\"")]
    Foreign,
    /// Written by a newer version.
    #[error("the image has format version {0}; this program reads versions {FIRST} and {VERSION}")]
    Newer(u32),
    /// Written by an unreleased version.
    #[error(
        "the image has format version {0}, which was never released; read it with the program that wrote it, and copy its data to a \
         new image"
    )]
    Unreleased(u32),
    /// No version has the number 0.
    #[error("damaged header: format version 0")]
    VersionZero,
    /// Requires unknown features.
    #[error("the image needs features that this program does not support (bits {0:#x})")]
    UnknownFeatures(u32),
    /// The checksums of both copies are wrong.
    #[error("damaged header: checksum {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// Stored checksum.
        found: u32,
        /// Computed checksum.
        computed: u32,
    },
    /// A field has a value that no version writes.
    #[error("damaged header: {field} is {value}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The geometry is invalid.
    #[error("damaged header: {0}")]
    Geometry(#[from] GeometryError),
    /// Both copies are sound, but differ.
    #[error("damaged header: its two copies differ")]
    CopiesDiffer,
}

/// Properties of an image, fixed when it is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Random number of this image, which identifies its pages.
    pub creation: [u8; 16],
    /// Geometry of the device.
    pub geometry: Geometry,
    /// Maximum number of open zones; 0 means no limit.
    pub open_max: u32,
    /// Maximum number of active zones; 0 means no limit.
    pub active_max: u32,
    /// Logical block size in sectors.
    pub block_sectors: u32,
    /// Largest native zone append in sectors; 0 means not supported.
    pub append_sectors_max: u32,
    /// Standard that applies where ZNS and ZBC differ.
    pub personality: Personality,
    /// True if the emulated drive is rotational.
    pub rotational: bool,
    /// Name of its profile; empty if none.
    pub profile: String,
    /// Permanent identity, independent of the name; none in images of version 1.
    pub identity: Option<Identity>,
    /// Number of zones per file, except the last; 0 if all are in one file.
    pub zones_per_file: u32,
    /// Format version of the file.
    pub version: u32,
}

impl Header {
    /// Parses both copies in the first [`LEDGER_OFFSET`] bytes of the file.
    ///
    /// One sound copy is sufficient; two sound copies have to agree.
    ///
    /// # Errors
    /// The problem of the first copy, if neither is sound.
    pub fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        let copy = |at: u64| bytes.get(at as usize..).unwrap_or(&[]);
        match (Header::parse_copy(copy(0)), Header::parse_copy(copy(HEADER_COPY_OFFSET))) {
            (Ok(a), Ok(b)) if a == b => Ok(a),
            (Ok(_), Ok(_)) => Err(HeaderError::CopiesDiffer),
            (Ok(h), Err(_)) | (Err(_), Ok(h)) => Ok(h),
            // If only the second copy has the magic number, the file is a damaged image rather than
            // a foreign file.
            (Err(HeaderError::Foreign), Err(e)) | (Err(e), Err(_)) => Err(e),
        }
    }

    fn parse_copy(bytes: &[u8]) -> Result<Header, HeaderError> {
        let (raw, _) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| HeaderError::Short(bytes.len() as u64))?;
        if raw.magic != MAGIC {
            return Err(HeaderError::Foreign);
        }
        // The version is checked before the checksum, which a newer version may compute
        // differently.
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
        let known = if raw.version.get() == FIRST { 0 } else { INCOMPAT_KNOWN };
        let unknown = raw.incompat.get() & !known;
        if unknown != 0 {
            return Err(HeaderError::UnknownFeatures(unknown));
        }
        raw.to_header()
    }

    /// Emits the file's first [`LEDGER_OFFSET`] bytes: both copies.
    pub fn emit(&self) -> Vec<u8> {
        let mut profile = [0; PROFILE_NAME_MAX];
        let name = &self.profile.as_bytes()[..self.profile.len().min(PROFILE_NAME_MAX)];
        profile[..name.len()].copy_from_slice(name);
        let mut raw = RawHeader {
            magic: MAGIC,
            version: self.version.into(),
            crc: 0.into(),
            incompat: (if self.zones_per_file == 0 { 0 } else { INCOMPAT_SPLIT }).into(),
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
            zones_per_file: self.zones_per_file.into(),
            rest: [0; 356],
        };
        raw.crc = raw.checksum().into();
        let mut bytes = vec![0; LEDGER_OFFSET as usize];
        for at in [0, HEADER_COPY_OFFSET as usize] {
            bytes[at..at + HEADER_BYTES].copy_from_slice(raw.as_bytes());
        }
        bytes
    }

    /// Layout of this image's file.
    pub const fn layout(&self) -> Layout {
        Layout::of(&self.geometry, self.version)
    }

    /// Division of the image into files; `None` for a single file.
    pub const fn split(&self) -> Option<Split> {
        match self.zones_per_file {
            0 => None,
            zones => {
                let Layout { data_offset, data_bytes, .. } = self.layout();
                let run = zones as u64 * self.geometry.zone_size().bytes();
                Some(Split { data_offset, run, len: data_offset + data_bytes })
            }
        }
    }

    /// True if the file has space for the zones' current states; not in images of version 1.
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
        let zones_per_file = match self.incompat.get() & INCOMPAT_SPLIT {
            // Without the feature these bytes have no meaning.
            0 => 0,
            _ => self.zones_per_file.get(),
        };
        let has_split = self.incompat.get() & INCOMPAT_SPLIT != 0;
        if has_split && !is_split(&geometry, zones_per_file) {
            return Err(field("the number of zones in a file", zones_per_file.into()));
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
            // In version 1 these bytes are not a field.
            identity: if version == FIRST { None } else { Identity::from_bytes(self.identity) },
            zones_per_file,
            version,
        })
    }
}

/// True if `block` sectors are a valid logical block size for `geometry`.
pub(crate) fn is_block(geometry: &Geometry, block: u32) -> bool {
    block.is_power_of_two()
        && block <= BLOCK_SECTORS_MAX
        && [geometry.sectors(), geometry.zone_size(), geometry.zone_capacity()]
            .iter()
            .all(|n| n.0.is_multiple_of(block.into()))
}

/// True if the zones of `geometry` can be in several files of `zones_per_file` zones.
pub(crate) const fn is_split(geometry: &Geometry, zones_per_file: u32) -> bool {
    zones_per_file > 0
        && zones_per_file < geometry.zones()
        && geometry.zones().div_ceil(zones_per_file) <= FILES_MAX
}

/// Parses arbitrary bytes as the start of an image; for fuzzers. A parsed header has to survive
/// emitting and parsing unchanged.
///
/// # Errors
/// As for [`Header::parse`].
///
/// # Panics
/// If a header does not survive, which is a bug.
pub fn fuzz_header(bytes: &[u8]) -> Result<Header, HeaderError> {
    let header = Header::parse(bytes)?;
    assert_eq!(Header::parse(&header.emit()).as_ref(), Ok(&header), "emit and parse");
    Ok(header)
}

/// Layout of an image's file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Number of ledger pages for zones, without the session page.
    pub zone_pages: u32,
    /// Offset of the current states: their stamp, then one word per zone. Equals the start of the
    /// data if there are none.
    pub current_offset: u64,
    /// Offset of the data. Sector s of the device is at `data_offset + 512 s`.
    pub data_offset: u64,
    /// Size of one slot of the ledger.
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

    /// True if slots have space for tails; not in images of version 1.
    pub const fn has_tails(&self) -> bool {
        self.slot_bytes > PAGE_BYTES
    }

    /// Length of the file, or `None` if it exceeds 2^63, the limit of all file systems.
    pub const fn file_len(&self) -> Option<u64> {
        match self.data_offset.checked_add(self.data_bytes) {
            Some(n) if n <= i64::MAX as u64 => Some(n),
            _ => None,
        }
    }

    /// Offset of slot `side` of ledger page `index`.
    pub const fn slot(&self, index: u32, side: Side) -> u64 {
        LEDGER_OFFSET + (index as u64 * 2 + side as u64) * self.slot_bytes as u64
    }

    /// Offset of `sector` of the device.
    pub const fn data(&self, sector: Sector) -> u64 {
        self.data_offset + sector.0 * SECTOR_BYTES
    }
}

/// One of the two slots of a ledger page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Side {
    /// First slot.
    A = 0,
    /// Second slot.
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
