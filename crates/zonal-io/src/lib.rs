//! Zoned devices and the write path: device trait, emulated drives, volume.

#[cfg(all(feature = "loom", feature = "shuttle"))]
compile_error!("the features loom and shuttle are mutually exclusive");

pub mod badblocks;
pub mod buffer;
pub mod changes;
pub mod clock;
pub mod control;
pub mod crypt;
pub mod data;
pub mod device;
pub mod emulated;
pub mod errno;
pub mod fault;
pub mod helpers;
pub mod identity;
pub mod image;
pub mod linear;
pub mod lock;
pub mod mapping;
pub mod news;
pub mod owner;
mod pending;
pub mod registry;
pub mod standard;
pub mod sums;
pub mod sync;
pub mod text;
pub mod threads;
pub mod trace;
pub mod volume;
mod words;
mod wrap;

pub use volume::Volume;
