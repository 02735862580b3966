//! Persistent emulator: a zoned drive in one sparse file, or in several if the file system does not
//! support a file of this length.
//!
//! An image keeps exactly the promises of a drive with a volatile write cache: after a power cut,
//! flushed data is there, acknowledged data may be, and nothing else is. docs/IMAGE.md draws the
//! file and explains why a flush is atomic.
//!
//! - [`ImageOptions::create`] creates one; it never replaces a file.
//! - [`ImageDevice::open`] locks and checks one, without changing a byte of it.
//! - [`backing`] stores the bytes; its test twin forgets unsynced data.
//! - [`mod@format`] is the byte format.
//!
//! Dropping a device closes it without reporting failures. To get them, keep the `Arc` of the
//! [`ImageDevice`], drop the volume, then take the device out of the `Arc` and
//! [close](ImageDevice::close) it.

mod ahead;
pub mod backing;
mod create;
mod current;
mod device;
mod engine;
mod error;
mod flight;
pub mod format;
mod ledger;
mod open;
mod profile;

pub use backing::CacheId;
pub use create::{BLOCK_DEFAULT, ImageOptions, ZONE_SIZE_DEFAULT};
pub use device::{ImageDevice, OpenOptions};
pub use error::{Failure, ImageError, OptionsError};
pub use open::{files, inspect, is_image, part_path};
pub use profile::{PROFILES, Profile};
