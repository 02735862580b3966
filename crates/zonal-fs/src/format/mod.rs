//! On-disk formats: units in the zones, the superblock, the rows of the metadata. docs/FS.md draws
//! them.
//!
//! All numbers are little-endian, except in keys, which have to sort in numerical order. Bytes read
//! from a drive may be garbage, so every decoder returns an error that says what is wrong.

mod anchor;
pub mod key;
mod row;
mod superblock;
mod unit;
pub(crate) mod varint;

pub use anchor::{Anchor, STORE_ZONES_MAX, SuperblockCopy};
pub use row::{
    Account, Attributes, BlockPlace, Entry, Extent, FILES_END, FileKind, GENERATIONS_END, NAME_MAX, Position,
    RUN_UNITS_MAX, RowError, Run, RunPiece, SIZE_MAX, fuzz_row, is_name, positioned,
};
pub use superblock::{Metadata, SUPERBLOCK_BYTES, Superblock, SuperblockError, fuzz_superblock};
pub use unit::{
    DATA_BLOCKS_MAX, HEADER_BYTES, Header, NUMBERS_END, NUMBERS_SKIPPED, Record, UnitError, UnitPlace,
    fuzz_header,
};

/// Version of the format. File systems of other versions are refused.
pub const VERSION: u32 = 3;

/// Checksum used for everything on the drive.
pub use zonal_io::sums::crc32c;

/// Identity of a file system.
pub type Uuid = [u8; 16];
