//! Bytes: units in the zones, the superblock, the rows of the metadata. docs/FS.md draws them.
//!
//! All numbers are little-endian except in keys, which sort as their numbers do. Bytes from a drive may be garbage: each
//! decoder then returns an error that says what is wrong.

mod anchor;
pub mod key;
mod row;
mod superblock;
mod unit;
mod varint;

pub use anchor::{Anchor, STORE_ZONES_MAX, SuperblockCopy};
pub use row::{
    Account, Attributes, BlockPlace, Entry, Extent, FILES_END, FileKind, GENERATIONS_END, NAME_MAX, Position,
    RUN_UNITS_MAX, RowError, Run, RunPiece, SIZE_MAX, fuzz_row, is_name, positioned,
};
pub use superblock::{Metadata, SUPERBLOCK_BYTES, Superblock, SuperblockError, fuzz_superblock};
pub use unit::{
    DATA_BLOCKS_MAX, HEADER_BYTES, Header, NUMBERS_END, NUMBERS_PASSED, Record, UnitError, fuzz_header,
};

/// The version of the format: another one is not opened.
pub const VERSION: u32 = 3;

/// The checksum of everything on the drive.
pub use zonal_io::sums::crc32c;

/// Names the file system that something belongs to.
pub type Uuid = [u8; 16];
