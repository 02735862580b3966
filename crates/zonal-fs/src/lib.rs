//! A file system for zoned drives.
//!
//! Files are written out of place, by zone appends to a few open zones; a garbage collector keeps free zones coming; the
//! map from files to zones, and everything else that is known of them, lies in rows of an embedded database that survive any
//! cut of power. What was synced is there afterwards, and no file has another's data.
//!
//! Nothing here reads a clock or sleeps: see [`waiter`].
#![forbid(unsafe_code)]

pub mod drive;
pub mod dump;
pub mod format;
mod fs;
pub mod fsck;
pub mod make;
pub mod rebuild;
pub mod scan;
pub mod space;
pub mod store;
pub mod waiter;

pub use fs::*;

/// Bytes of a block, the unit of files' maps and of zones' accounts.
pub const BLOCK_BYTES: u32 = 4096;

/// Sectors of a block.
pub const BLOCK_SECTORS: u32 = BLOCK_BYTES / 512;
