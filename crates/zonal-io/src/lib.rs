//! Zoned devices and the write path: device trait, emulated drives, volume.

pub mod buffer;
pub mod control;
pub mod data;
pub mod device;
pub mod emulated;
pub mod fault;
pub mod image;
pub mod linear;
pub mod registry;
pub mod sync;
pub mod trace;
pub mod volume;
mod wrap;

pub use volume::Volume;
