//! The persistent emulator: a zoned drive in one sparse file.
//!
//! An image keeps exactly the promises of a drive with a volatile write cache: what was flushed is there after a power
//! cut, what was acknowledged may be, nothing else is. docs/IMAGE.md draws the file and says why a flush is atomic.
//!
//! - [`ImageOptions::create`] makes one; it never replaces a file.
//! - [`ImageDevice::open`] locks and checks one, without changing a byte of it.
//! - [`backing`] is where the bytes go; its test twin forgets what was not synced.
//! - [`mod@format`] is the bytes themselves.
//!
//! Dropping a device closes it, and says nothing of a failure. To learn of it, keep the `Arc` of the [`ImageDevice`], drop the volume,
//! then take the device out of the `Arc` and [close](ImageDevice::close) it.

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
pub use open::{inspect, is_image};
pub use profile::{PROFILES, Profile};
